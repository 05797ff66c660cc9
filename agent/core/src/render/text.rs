//! Terminations as a person reads them in a terminal.
//!
//! *Invariant*: for any name that a process chooses, the output has no control sequence except our own colours, and these only
//! with [`Style::Color`].

use std::fmt::Write as _;
use std::time::Duration;

use crate::attribute::Subject;
use crate::container::ContainerFact;
use crate::input::{Observation, ProbeState};
use crate::kubernetes::{PodContext, Reported};
use crate::pod::PodIdentity;
use crate::render::json::after_ms;
use crate::report::{NodeShutdown, PodTermination, StopSignalIgnored, Termination};
use crate::shutdown::NodeDown;
use crate::termination::{Gaps, OomKill};
use crate::text::escape;
use crate::time::Boot;
use crate::verdict::{self, Evidence, Severity, Verdict, seconds};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    #[default]
    Plain,
    /// SGR sequences. The caller decides by terminal, flag and `NO_COLOR`.
    Color,
}

/// Headline, sentence, remedy, evidence, gaps: some lines, each ended by a newline.
pub fn termination(t: &Termination, observation: &Observation, style: Style) -> String {
    let v = &t.verdict;
    let paint = Paint(style);
    let mut out = format!(
        "{} {}  {}\n",
        paint.dim(&clock(observation, t.end)),
        paint.bold(&name(&t.subject, t.container.as_deref(), t.kubernetes.as_deref())),
        headline(v, &paint),
    );
    words(v, t.begin, &paint, &mut out);
    if let Some(gaps) = gaps(&t.gaps, t.kubernetes.as_deref(), observation) {
        let _ = writeln!(out, "    {}", paint.severity(Severity::Warning, &gaps));
    }
    out
}

/// A pod and, in a line each, its containers.
pub fn pod_termination(p: &PodTermination, observation: &Observation, style: Style) -> String {
    let paint = Paint(style);
    let workload = match p.pod.workload.kind.as_str() {
        "Pod" => String::new(),
        kind => format!(" ({} {})", escape(kind), escape(&p.pod.workload.name)),
    };
    let mut out = format!(
        "{} {}{workload}  {}\n",
        paint.dim(&clock(observation, p.end)),
        paint.bold(&pod_name(&p.pod)),
        headline(&p.verdict, &paint),
    );
    words(&p.verdict, p.begin, &paint, &mut out);
    for t in &p.containers {
        let _ = writeln!(
            out,
            "    {}  {}",
            paint.bold(&in_pod(&t.subject, t.container.as_deref(), t.kubernetes.as_deref())),
            headline(&t.verdict, &paint)
        );
        if let Some(gaps) = gaps(&t.gaps, t.kubernetes.as_deref(), observation) {
            let _ = writeln!(out, "      {}", paint.severity(Severity::Warning, &gaps));
        }
    }
    for (name, end) in &p.unseen {
        let _ = writeln!(
            out,
            "    {}  exit not observed; {}",
            paint.bold(&format!("container {}", escape(name))),
            status(end.as_ref())
        );
    }
    out
}

/// Headline, sentence, remedy, and a line for each pod that was cut.
pub fn node_shutdown(s: &NodeShutdown, style: Style) -> String {
    let paint = Paint(style);
    let v = &s.verdict;
    let mut out = format!(
        "{} {}  {}\n",
        paint.dim(&s.clock.wall(s.end).rfc3339_millis()),
        paint.bold(&format!("node {} shutdown", escape(&s.host))),
        marked(v.headline, v.severity, v.unclean, &paint),
    );
    let _ = writeln!(out, "  {}", escape(&v.sentence));
    if let Some(remedy) = &v.remedy {
        let _ = writeln!(out, "  {} {}", paint.bold("remedy:"), escape(remedy));
    }
    lines(&v.evidence, s.begin, &paint, &mut out);
    out
}

/// One line.
pub fn node_down(d: &NodeDown, style: Style) -> String {
    let paint = Paint(style);
    format!(
        "{} {}  back after {}{:.1} s\n",
        paint.dim(&d.clock.wall(d.end).rfc3339_millis()),
        paint.bold(&format!("node {}", escape(&d.host))),
        if d.at_most { "at most " } else { "" },
        d.end.since(d.begin).as_secs_f64()
    )
}

/// One line.
pub fn early(e: &StopSignalIgnored, observation: &Observation, style: Style) -> String {
    let paint = Paint(style);
    format!(
        "{} {}  {}\n  {}\n",
        paint.dim(&clock(observation, e.at)),
        paint.bold(&name(&e.subject, e.container.as_deref(), e.kubernetes.as_deref())),
        paint.severity(Severity::Warning, "stop signal ignored"),
        escape(&e.sentence)
    )
}

pub fn child_oom(
    subject: &Subject,
    container: Option<&ContainerFact>,
    oom: &OomKill,
    observation: &Observation,
    style: Style,
) -> String {
    let paint = Paint(style);
    let severity = match oom.role.is_from_outside() {
        true => Severity::Info,
        false => Severity::Warning,
    };
    format!(
        "{} {}  {}\n  the OOM killer killed `{}` (pid {}){}; the main process was not killed\n",
        paint.dim(&clock(observation, oom.at)),
        paint.bold(&name(subject, container, None)),
        paint.severity(severity, "child OOM-killed"),
        oom.comm,
        oom.tgid,
        verdict::oom_role(oom.role).trim_end_matches(',')
    )
}

/// The first line: what is observed from now on, and which probes are not active.
pub fn observing(observation: &Observation, probes: &[(String, ProbeState)], style: Style) -> String {
    let paint = Paint(style);
    let active = probes.iter().filter(|(_, s)| *s == ProbeState::Active).count();
    let mut out = format!(
        "{} observing {} (Linux {}), {active} of {} probes active\n",
        paint.dim(&clock(observation, observation.since)),
        escape(&observation.host),
        escape(&observation.kernel),
        probes.len()
    );
    for (name, state) in probes {
        let (word, text) = match state {
            ProbeState::Active => continue,
            ProbeState::Substituted { by, .. } => ("substituted by", by),
            ProbeState::Unsupported(reason) => ("unsupported:", reason),
            ProbeState::Failed(reason) => ("failed:", reason),
        };
        let _ = writeln!(out, "  {} {word} {}", escape(name), escape(text));
        if let ProbeState::Substituted { clients, .. } = state
            && let Some((problem, remedy)) = clients.trouble()
        {
            let _ = writeln!(out, "    {problem}\n    remedy: {remedy}");
        }
    }
    out
}

fn headline(v: &Verdict, paint: &Paint) -> String {
    marked(v.headline, v.severity, v.unclean, paint)
}

fn marked(headline: &str, severity: Severity, unclean: bool, paint: &Paint) -> String {
    let mut out = paint.severity(severity, headline);
    if unclean {
        let _ = write!(out, "  {}", paint.severity(severity, "UNCLEAN"));
    }
    out
}

/// Sentence, remedy, advice, evidence.
fn words(v: &Verdict, begin: Boot, paint: &Paint, out: &mut String) {
    let _ = writeln!(out, "  {}", escape(&v.sentence));
    if let Some(remedy) = &v.remedy {
        let _ = writeln!(out, "  {} {}", paint.bold("remedy:"), escape(remedy));
    }
    for advice in &v.advice {
        let _ = writeln!(out, "  {} {}", paint.bold("advice:"), escape(&advice.text));
    }
    lines(&v.evidence, begin, paint, out);
}

fn lines(evidence: &[Evidence], begin: Boot, paint: &Paint, out: &mut String) {
    let offsets: Vec<String> = evidence.iter().map(|e| format!("{:+.1} ms", after_ms(e.at, begin))).collect();
    let width = offsets.iter().map(String::len).max().unwrap_or(0);
    for (e, offset) in evidence.iter().zip(&offsets) {
        let _ = writeln!(
            out,
            "    {}  {}  {}",
            paint.dim(&format!("{offset:>width$}")),
            e.source.name(),
            escape(&e.text)
        );
    }
}

fn name(subject: &Subject, described: Option<&ContainerFact>, context: Option<&PodContext>) -> String {
    match (context, described) {
        (Some(known), _) => format!("{} {}", pod_name(&known.pod), in_pod(subject, described, context)),
        (None, Some(container)) => format!("container {}", escape(&container.title())),
        (None, None) => escape(&subject.to_string()),
    }
}

fn pod_name(pod: &PodIdentity) -> String {
    format!("pod {}/{}", escape(&pod.namespace), escape(&pod.name))
}

fn in_pod(subject: &Subject, described: Option<&ContainerFact>, context: Option<&PodContext>) -> String {
    let by_status = context.and_then(|context| context.container.as_deref());
    match by_status.or_else(|| described.and_then(|container| container.name.as_deref())) {
        Some(name) => format!("container {}", escape(name)),
        None => escape(&subject.to_string()),
    }
}

fn status(end: Option<&Reported>) -> String {
    let Some(Reported { exit_code, reason }) = end else {
        return "the pod's status reports no exit code".to_owned();
    };
    let reason = reason.as_deref().map(|reason| format!(", {}", escape(reason)));
    format!("the pod's status reports exit code {exit_code}{}", reason.unwrap_or_default())
}

/// What may be missing from the evidence; None if nothing is.
fn gaps(gaps: &Gaps, context: Option<&PodContext>, observation: &Observation) -> Option<String> {
    let Gaps {
        lost,
        over_cap,
        late_start,
        unobserved,
        inactive_probes,
        clock_step,
        own_lost: _,
    } = gaps;
    let mut parts = Vec::new();
    if *late_start {
        parts.push("the process started before the observation began".to_owned());
    }
    if let Some(first) = unobserved.first() {
        let since = clock(observation, first.since);
        parts.push(not_observed(gaps.unobserved_length(), &since, unobserved.len()));
    }
    parts.extend(lost.iter().map(|(kind, n)| match *kind {
        // Also what the journal and an export do not have: the number counts these, too.
        "tcp" => "tcp records lost or not kept".to_owned(),
        _ => format!("{n} {kind} {} lost", if *n == 1 { "record" } else { "records" }),
    }));
    if *over_cap > 0 {
        parts.push(format!("{over_cap} evidence items lost"));
    }
    if !inactive_probes.is_empty() {
        parts.push(format!("probes not active: {}", escape(&inactive_probes.join(", "))));
    }
    if let Some(step) = clock_step {
        parts.push(clock_stepped(*step));
    }
    parts.extend(context.and_then(|context| context.incomplete.as_deref()).map(escape));
    (!parts.is_empty()).then(|| format!("gaps: {}", parts.join("; ")))
}

/// Times without observation: how long in all, when the first began, and how many.
pub fn not_observed(all: Duration, since: &str, times: usize) -> String {
    let all = seconds(all);
    match times {
        1 => format!("epitaph did not observe for {all} from {since}"),
        _ => format!("epitaph did not observe {times} times, for {all} in all, first from {since}"),
    }
}

/// What a step of the wall clock, in nanoseconds, does to the times.
pub fn clock_stepped(step: i64) -> String {
    let seconds = step as f64 / 1e9;
    format!("the wall clock stepped by {seconds:+.1} s, or the machine was paused: earlier times are wrong by as much")
}

/// UTC to the millisecond: one form everywhere, and no time zone database.
fn clock(observation: &Observation, at: Boot) -> String {
    observation.wall_offset.wall(at).rfc3339_millis()
}

/// Our own colours.
#[derive(Clone, Copy, Debug)]
pub struct Paint(pub Style);

impl Paint {
    fn sgr(&self, code: &str, text: &str) -> String {
        match self.0 {
            Style::Plain => text.to_owned(),
            Style::Color => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        }
    }
    pub fn dim(&self, text: &str) -> String {
        self.sgr("2", text)
    }
    pub fn bold(&self, text: &str) -> String {
        self.sgr("1", text)
    }
    pub fn severity(&self, severity: Severity, text: &str) -> String {
        match severity {
            Severity::Info => self.sgr("32", text),
            Severity::Warning => self.sgr("33", text),
            Severity::Critical => self.sgr("31", text),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::{self, sample};

    fn check(t: &Termination, expected: Expect) {
        expected.assert_eq(&termination(t, &sample::observation(), Style::Plain));
    }

    #[test]
    fn a_termination_with_every_part() {
        check(
            &sample::ignored(),
            expect![[r#"
                2026-01-02T03:05:15.003Z container 3f1c0d4e5a6b  ignored-stop-signal  UNCLEAN
                  `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
                  remedy: handle SIGTERM in PID 1 `sh`, use `exec` in the shell that starts the program, or run a small init such as tini
                        +0.0 ms  signal_generate  SIGTERM from `containerd-shim` (pid 812, unit containerd.service), the container runtime, to PID 1 `sh`: discarded by the kernel, no handler
                    +10002.0 ms  signal_generate  SIGKILL from `containerd-shim` (pid 812, unit containerd.service), the container runtime, to PID 1 `sh`
                    +10003.0 ms  sched_process_exit  PID 1 `sh` was terminated by SIGKILL
            "#]],
        );
    }

    #[test]
    fn an_unknown_termination_names_what_is_missing() {
        check(
            &sample::unknown_unit(),
            expect![[r#"
                2026-01-02T03:04:06.500Z unit nginx.service  unknown
                  How the main process terminated is unknown: the process started before the observation began, so a stop signal may have been missed
                    gaps: the process started before the observation began; 3 signal_generate records lost; probes not active: tcp_send_reset; the wall clock stepped by +12.5 s, or the machine was paused: earlier times are wrong by as much
            "#]],
        );
    }

    #[test]
    fn a_pod_and_its_containers() {
        let pod = fixtures::pods::pod(1);
        expect![[r#"
            2023-11-14T23:37:10.260Z pod shop/cart-7d9f8b6c5-x2x4z (Deployment cart)  ignored-stop-signal  UNCLEAN
              container `app`: `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 30.0 s later
              remedy: use `exec` in the shell that starts the server, so that the server is PID 1
              advice: 14 connections were refused in the 3.2 s after the listener closed
                 +2100.0 ms  signal_generate  SIGTERM from `containerd-shim` (pid 900, on the host), the container runtime, to PID 1 `sh`: discarded by the kernel, no handler
                +32100.0 ms  signal_generate  SIGKILL from `containerd-shim` (pid 900, on the host), the container runtime, to PID 1 `sh`
                container app  ignored-stop-signal  UNCLEAN
                container proxy  clean
                  gaps: the Kubernetes API did not answer for 4.0 s
                container init  exit not observed; the pod's status reports exit code 0, Completed
        "#]].assert_eq(&pod_termination(&pod, &fixtures::terminations::observation(), Style::Plain));
    }

    #[test]
    fn a_container_of_a_pod_that_continues() {
        let t = fixtures::pods::restarted(1);
        let early = fixtures::pods::early(&t);
        let observation = fixtures::terminations::observation();
        expect![[r#"
            2023-11-14T23:36:40.000Z pod shop/cart-7d9f8b6c5-x2x4z container app  stop signal ignored
              container `app`: `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            2023-11-14T23:37:10.002Z pod shop/cart-7d9f8b6c5-x2x4z container app  ignored-stop-signal  UNCLEAN
              `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 30.0 s later
              remedy: use `exec` in the shell that starts the server, so that the server is PID 1
                    +0.0 ms  signal_generate  SIGTERM from `containerd-shim` (pid 900, on the host), the container runtime, to PID 1 `sh`: discarded by the kernel, no handler
                +30000.0 ms  signal_generate  SIGKILL from `containerd-shim` (pid 900, on the host), the container runtime, to PID 1 `sh`
        "#]]
        .assert_eq(&(super::early(&early, &observation, Style::Plain) + &termination(&t, &observation, Style::Plain)));
    }

    #[test]
    fn warnings_and_the_start() {
        let observation = sample::observation();
        let (subject, oom) = sample::child_oom();
        let text = observing(&observation, &sample::probes(), Style::Plain)
            + &early(&sample::early(), &observation, Style::Plain)
            + &child_oom(&subject, None, &oom, &observation, Style::Plain);
        expect![[r#"
            2026-01-02T03:04:06.000Z observing node-1 (Linux 6.18.15), 1 of 3 probes active
              tcp_send_reset unsupported: the kernel has no such tracepoint
              inet_sk_error_report substituted by inet_sock_set_state (the error with which a connection closes)
            2026-01-02T03:05:05.000Z container checkout (image shop:1.4)  stop signal ignored
              `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal
            2026-01-02T03:05:10.000Z container 3f1c0d4e5a6b  child OOM-killed
              the OOM killer killed `worker` (pid 4055), which had sockets of clients; the main process was not killed
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn colour_is_the_same_text_with_our_own_sequences() {
        let t = sample::ignored();
        let colored = termination(&t, &sample::observation(), Style::Color);
        assert!(colored.contains("\u{1b}[33mUNCLEAN\u{1b}[0m"), "{colored:?}");
        assert_eq!(uncolored(&colored), termination(&t, &sample::observation(), Style::Plain));
    }

    fn uncolored(text: &str) -> String {
        ["0", "1", "2", "31", "32", "33"]
            .iter()
            .fold(text.to_owned(), |t, code| t.replace(&format!("\u{1b}[{code}m"), ""))
    }

    proptest! {
        #[test]
        fn nothing_that_a_terminal_obeys_comes_through(text in any::<String>(), tail in "[\u{1b}\u{9b}\r\n\u{7}\u{202e}a]{0,8}") {
            let text = text + &tail;
            let observation = sample::observation();
            let t = sample::hostile(&text);
            let plain = termination(&t, &observation, Style::Plain);
            prop_assert!(!plain.contains(|c: char| c.is_control() && c != '\n'), "{:?}", plain);
            // Line breaks are ours: the same number for any names.
            let lines = termination(&sample::hostile("x"), &observation, Style::Plain).lines().count();
            prop_assert_eq!(plain.lines().count(), lines);
            prop_assert_eq!(uncolored(&termination(&t, &observation, Style::Color)), plain);

            let probes = [(text.clone(), ProbeState::Failed(text.clone()))];
            let observation = Observation { host: text.clone(), kernel: text.clone(), ..observation };
            let mut warning = sample::early();
            warning.subject = t.subject.clone();
            warning.container.clone_from(&t.container);
            warning.sentence = text.clone();
            let pod = fixtures::pods::hostile(&text);
            let text = pod_termination(&pod, &fixtures::terminations::observation(), Style::Plain);
            prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{:?}", text);
            let lines = pod_termination(&fixtures::pods::hostile("x"), &fixtures::terminations::observation(), Style::Plain).lines().count();
            prop_assert_eq!(text.lines().count(), lines);
            let (_, oom) = sample::child_oom();
            let rest = observing(&observation, &probes, Style::Plain)
                + &early(&warning, &observation, Style::Plain)
                + &child_oom(&t.subject, t.container.as_deref(), &oom, &observation, Style::Plain);
            prop_assert!(!rest.contains(|c: char| c.is_control() && c != '\n'), "{:?}", rest);
            prop_assert_eq!(rest.lines().count(), 6);
        }
    }
}
