//! Terminations as a person reads them in a terminal.
//!
//! *Invariant*: whatever processes named themselves, nothing leaves here that a terminal would obey but our own colours, and
//! those only with [`Style::Color`].

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use crate::attribute::Subject;
use crate::event::{Boot, Observation, ProbeState};
use crate::render::json::after_ms;
use crate::termination::{Gaps, OomKill, StopSignalIgnored, Termination};
use crate::verdict::Severity;

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
        "{} {}  {}{}\n",
        paint.dim(&clock(observation, t.end)),
        paint.bold(&escape(&t.subject.to_string())),
        paint.severity(v.severity, v.headline),
        if v.unclean {
            format!("  {}", paint.severity(v.severity, "UNCLEAN"))
        } else {
            String::new()
        },
    );
    let _ = writeln!(out, "  {}", escape(&v.sentence));
    if let Some(remedy) = &v.remedy {
        let _ = writeln!(out, "  {} {}", paint.bold("remedy:"), escape(remedy));
    }
    let offsets: Vec<String> = v
        .evidence
        .iter()
        .map(|e| format!("{:+.1} ms", after_ms(e.at, t.begin)))
        .collect();
    let width = offsets.iter().map(String::len).max().unwrap_or(0);
    for (e, offset) in v.evidence.iter().zip(&offsets) {
        let _ = writeln!(
            out,
            "    {}  {}  {}",
            paint.dim(&format!("{offset:>width$}")),
            e.source.name(),
            escape(&e.text)
        );
    }
    if let Some(gaps) = gaps(&t.gaps) {
        let _ = writeln!(out, "    {}", paint.severity(Severity::Warning, &gaps));
    }
    out
}

/// One line.
pub fn early(e: &StopSignalIgnored, observation: &Observation, style: Style) -> String {
    let paint = Paint(style);
    format!(
        "{} {}  {}\n  {}\n",
        paint.dim(&clock(observation, e.at)),
        paint.bold(&escape(&e.subject.to_string())),
        paint.severity(Severity::Warning, "stop signal ignored"),
        escape(&e.sentence)
    )
}

pub fn child_oom(subject: &Subject, oom: &OomKill, observation: &Observation, style: Style) -> String {
    let paint = Paint(style);
    format!(
        "{} {}  {}\n  the OOM killer took pid {} `{}`, not the main process; the rest goes on\n",
        paint.dim(&clock(observation, oom.at)),
        paint.bold(&escape(&subject.to_string())),
        paint.severity(Severity::Warning, "child OOM-killed"),
        oom.tgid,
        oom.comm
    )
}

/// What is observed from now on, and which probes are missing.
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
        let (word, reason) = match state {
            ProbeState::Active => continue,
            ProbeState::Unsupported(reason) => ("unsupported", reason),
            ProbeState::Failed(reason) => ("failed", reason),
        };
        let _ = writeln!(out, "  {} {word}: {}", escape(name), escape(reason));
    }
    out
}

/// What may be missing from the evidence, None where nothing is.
fn gaps(gaps: &Gaps) -> Option<String> {
    let Gaps {
        lost,
        over_cap,
        late_start,
        inactive_probes,
    } = gaps;
    let mut parts = Vec::new();
    if *late_start {
        parts.push("it ran before observation began".to_owned());
    }
    parts.extend(lost.iter().map(|(kind, n)| format!("{n} {kind} records lost")));
    if *over_cap > 0 {
        parts.push(format!("{over_cap} facts over the cap"));
    }
    if !inactive_probes.is_empty() {
        parts.push(format!("not observed: {}", escape(&inactive_probes.join(", "))));
    }
    (!parts.is_empty()).then(|| format!("gaps: {}", parts.join("; ")))
}

/// Text from outside as text that a terminal only shows: controls, line breaks, and the invisible characters that reorder what
/// is read are written as escapes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let invisible = matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        );
        if c.is_control() || invisible {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// UTC to the millisecond: one form everywhere, and no time zone database.
fn clock(observation: &Observation, at: Boot) -> String {
    let wall = Duration::from_nanos(observation.wall_offset.wall(at).0);
    humantime::format_rfc3339_millis(UNIX_EPOCH + wall).to_string()
}

struct Paint(Style);

impl Paint {
    fn sgr(&self, code: &str, text: &str) -> String {
        match self.0 {
            Style::Plain => text.to_owned(),
            Style::Color => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        }
    }
    fn dim(&self, text: &str) -> String {
        self.sgr("2", text)
    }
    fn bold(&self, text: &str) -> String {
        self.sgr("1", text)
    }
    fn severity(&self, severity: Severity, text: &str) -> String {
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
    use crate::render::sample;

    fn check(t: &Termination, expected: Expect) {
        expected.assert_eq(&termination(t, &sample::observation(), Style::Plain));
    }

    #[test]
    fn a_death_with_all_there_is() {
        check(
            &sample::ignored(),
            expect![[r#"
            2026-01-02T03:05:15.003Z container 3f1c0d4e5a6b  ignored-stop-signal  UNCLEAN
              SIGTERM reached PID 1 `sh`, which has no handler, so the kernel dropped it; the runtime sent SIGKILL 10.0 s later
              remedy: install a handler for SIGTERM, or run `sh` under an init
                    +0.0 ms  signal_generate  SIGTERM to pid 4021 (`sh`), result ignored
                +10002.0 ms  signal_generate  SIGKILL from pid 812 (`containerd-shim`)
                +10003.0 ms  sched_process_exit  killed by SIGKILL
        "#]],
        );
    }

    #[test]
    fn a_death_that_is_not_understood_says_what_is_missing() {
        check(
            &sample::unknown_unit(),
            expect![[r#"
            2026-01-02T03:04:06.500Z unit nginx.service  unknown
              it ended, and how is not known: it was running before observation began
                gaps: it ran before observation began; 3 signal_generate records lost; not observed: tcp_send_reset
        "#]],
        );
    }

    #[test]
    fn warnings_and_the_start() {
        let observation = sample::observation();
        let (subject, oom) = sample::child_oom();
        let text = observing(&observation, &sample::probes(), Style::Plain)
            + &early(&sample::early(), &observation, Style::Plain)
            + &child_oom(&subject, &oom, &observation, Style::Plain);
        expect![[r#"
            2026-01-02T03:04:06.000Z observing node-1 (Linux 6.18.15), 1 of 2 probes active
              tcp_send_reset unsupported: the kernel has no such tracepoint
            2026-01-02T03:05:05.000Z container 3f1c0d4e5a6b  stop signal ignored
              SIGTERM reached PID 1 `sh`, which has no handler, so the kernel dropped it; SIGKILL follows in 10.0 s
            2026-01-02T03:05:10.000Z container 3f1c0d4e5a6b  child OOM-killed
              the OOM killer took pid 4055 `worker`, not the main process; the rest goes on
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
            // Line breaks are ours: the same number whatever the names are.
            let lines = termination(&sample::hostile("x"), &observation, Style::Plain).lines().count();
            prop_assert_eq!(plain.lines().count(), lines);
            prop_assert_eq!(uncolored(&termination(&t, &observation, Style::Color)), plain);

            let probes = [(text.clone(), ProbeState::Failed(text.clone()))];
            let observation = Observation { host: text.clone(), kernel: text.clone(), ..observation };
            let mut warning = sample::early();
            warning.subject = t.subject.clone();
            warning.sentence = text;
            let (_, oom) = sample::child_oom();
            let rest = observing(&observation, &probes, Style::Plain)
                + &early(&warning, &observation, Style::Plain)
                + &child_oom(&t.subject, &oom, &observation, Style::Plain);
            prop_assert!(!rest.contains(|c: char| c.is_control() && c != '\n'), "{:?}", rest);
            prop_assert_eq!(rest.lines().count(), 6);
        }
    }
}
