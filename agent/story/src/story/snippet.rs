//! The remedy as configuration, where a setting is the remedy and the evidence has the numbers.
//!
//! A name goes into a snippet only if it is one of Kubernetes or systemd: what a file of unknown origin names is not pasted into a
//! shell or into YAML.

use std::time::Duration;

use epitaph_core::verdict::AdviceKind;
use epitaph_core::verdict::advice::with_reserve;

use super::words::{between, duration, short};
use crate::history::{Kubernetes, Pod, Report, Subject};

/// Text to paste.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Snippet {
    /// Where it goes, and what is to be known about it.
    pub about: String,
    /// `yaml` or `ini`.
    pub language: &'static str,
    /// Lines, each with its end.
    pub text: String,
}

/// Of a pod or one container; empty where the remedy is not a setting.
pub fn snippets(report: &Report) -> Vec<Snippet> {
    if let Some(pod) = report.pod() {
        return in_pod(report, pod).into_iter().collect();
    }
    match &report.subject {
        Some(Subject::Unit { name }) => unit(report, name).into_iter().collect(),
        Some(Subject::Container { runtime, .. }) if **runtime == *"docker" => docker(report).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// What is set for one container.
struct Settings<'a> {
    context: &'a Kubernetes,
    name: &'a str,
    /// With the program of a hook that runs one.
    sleep: Option<(u64, Option<&'a str>)>,
    liveness: Option<u64>,
    startup: Option<u64>,
}

/// All settings of the pod in one snippet, so that it can be applied as a whole.
fn in_pod(report: &Report, pod: &Pod) -> Option<Snippet> {
    let containers: &[Report] = match report.containers.as_slice() {
        [] => std::slice::from_ref(report),
        several => several,
    };
    let mut notes = Vec::new();
    let mut grace = pod_grace(report, containers, &mut notes);
    let mut settings = Vec::new();
    for container in containers {
        let Some(context) = &container.kubernetes else { continue };
        let Some(name) = context.container.as_deref().filter(|name| is_name(name)) else {
            continue;
        };
        let mut own = Settings {
            context,
            name,
            sleep: None,
            liveness: None,
            startup: None,
        };
        if let Some(sleep) = sleep(container, context, &mut notes) {
            own.sleep = Some((sleep.seconds, sleep.program));
            let needed = sleep.needed;
            let short = own_grace(context).is_some_and(|grace| grace < needed);
            if short {
                grace = grace.max(Some(with_reserve(needed)));
            }
        }
        probe(container, context, &mut own, &mut notes);
        if own.sleep.is_some() || own.liveness.or(own.startup).is_some() {
            settings.push(own);
        }
    }
    if grace.is_none() && settings.is_empty() {
        return None;
    }
    let (path, about) = place(pod);
    let mut lines: Vec<(usize, String)> = path
        .iter()
        .enumerate()
        .map(|(depth, key)| (depth, format!("{key}:")))
        .collect();
    let depth = path.len();
    lines.extend(grace.map(|seconds| (depth, format!("terminationGracePeriodSeconds: {seconds}"))));
    for (list, is_init) in [("containers", false), ("initContainers", true)] {
        let of_list: Vec<&Settings<'_>> = settings
            .iter()
            .filter(|own| is_in_init_list(own.context) == is_init)
            .collect();
        if !of_list.is_empty() {
            lines.push((depth, format!("{list}:")));
        }
        for own in of_list {
            lines.push((depth, format!("- name: {}", own.name)));
            if let Some((seconds, program)) = own.sleep {
                let (action, setting) = match program {
                    Some(program) => ("exec:", format!("command: [\"{program}\", \"{seconds}\"]")),
                    None => ("sleep:", format!("seconds: {seconds}")),
                };
                lines.push((depth + 1, "lifecycle:".to_owned()));
                lines.push((depth + 2, "preStop:".to_owned()));
                lines.push((depth + 3, action.to_owned()));
                lines.push((depth + 4, setting));
            }
            for (probe, seconds) in [("livenessProbe", own.liveness), ("startupProbe", own.startup)] {
                if let Some(seconds) = seconds {
                    lines.push((depth + 1, format!("{probe}:")));
                    lines.push((depth + 2, format!("terminationGracePeriodSeconds: {seconds}")));
                }
            }
        }
    }
    let text = lines
        .iter()
        .map(|(depth, line)| format!("{}{line}\n", "  ".repeat(*depth)))
        .collect();
    notes.insert(0, about);
    Some(Snippet {
        about: notes.join("; "),
        language: "yaml",
        text,
    })
}

/// The grace period of the pod that a measurement advises.
fn pod_grace(report: &Report, containers: &[Report], notes: &mut Vec<String>) -> Option<u64> {
    let advised = |kind: AdviceKind| report.advice.iter().find(|advice| &*advice.kind == kind.name());
    if let Some(advice) = advised(AdviceKind::GraceLonger) {
        if let Some(seconds) = advice.seconds {
            let in_spec = |of: &Report| own_grace(of.kubernetes.as_ref()?);
            let most = containers.iter().filter_map(in_spec).max();
            return most.is_none_or(|own| own < Duration::from_secs(seconds)).then_some(seconds);
        }
        let present = containers.iter().filter_map(|of| {
            let context = of.kubernetes.as_ref()?;
            Some(own_grace(context)?.max(duration(context.grace_ms?)))
        });
        let twice = twice(present.max()?)?;
        notes.push(format!(
            "how long the shutdown needs is unknown: {twice} s is twice the present value"
        ));
        return Some(twice);
    }
    advised(AdviceKind::GraceShorter)?.seconds
}

/// `terminationGracePeriodSeconds`, of which a deletion may have left a part: a snippet is for the spec, and never lowers what is set
/// there. Of a line of an older agent, which does not have it, the grace period that applied.
fn own_grace(context: &Kubernetes) -> Option<Duration> {
    let in_spec = context.request.as_ref().and_then(|request| request.spec_grace_ms);
    in_spec.or(context.grace_ms).map(duration)
}

/// An advised preStop sleep.
struct Sleep<'a> {
    seconds: u64,
    /// Of the present hook, if it runs `sleep`: a container has one hook, and one action in it.
    program: Option<&'a str>,
    /// By the sleep and the shutdown together.
    needed: Duration,
}

fn sleep<'a>(of: &Report, context: &'a Kubernetes, notes: &mut Vec<String>) -> Option<Sleep<'a>> {
    let kinds = [AdviceKind::PreStopSleepLonger, AdviceKind::PreStopSleepShorter].map(AdviceKind::name);
    let seconds = of.advice.iter().find(|advice| kinds.contains(&&*advice.kind))?.seconds?;
    let hook = context.pre_stop.as_ref();
    let program = hook.and_then(|hook| hook.program.as_deref()).filter(|program| {
        let is_plain = program
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.'));
        is_plain && program.rsplit('/').next() == Some("sleep")
    });
    match (hook.map(|hook| &*hook.hook), program) {
        (None | Some("sleep"), _) => {
            notes.push(format!(
                "sleep needs Kubernetes 1.30, before that write exec: {{command: [\"sleep\", \"{seconds}\"]}}"
            ));
        }
        (Some(_), Some(_)) => {}
        (Some(_), None) => {
            notes.push("the container has a preStop hook of its own: let that hook take longer instead".to_owned());
            return None;
        }
    }
    let stop = of.stop.as_ref().and_then(|stop| stop.time);
    let exit = of.status.as_ref().and_then(|status| status.time);
    let shutdown = stop.zip(exit).map_or(Duration::ZERO, |(stop, exit)| between(stop.0, exit.0));
    Some(Sleep {
        seconds,
        program,
        needed: Duration::from_secs(seconds) + shutdown,
    })
}

/// A probe's own grace period, where the container was killed after it.
fn probe(of: &Report, context: &Kubernetes, own: &mut Settings<'_>, notes: &mut Vec<String>) {
    let field = match (&*of.cause, &*of.exit) {
        ("liveness", "killed-after-grace") => &mut own.liveness,
        ("startup", "killed-after-grace") => &mut own.startup,
        _ => return,
    };
    let Some(twice) = context.grace_ms.map(duration).and_then(twice) else {
        return;
    };
    notes.push(format!(
        "how long the shutdown needs is unknown: {twice} s is twice the present value"
    ));
    *field = Some(twice);
}

/// A first attempt where the needed time was not measured, because SIGKILL ended the shutdown.
fn twice(present: Duration) -> Option<u64> {
    let seconds = present.as_secs() + u64::from(present.subsec_nanos() > 0);
    (1..=3_600).contains(&seconds).then_some(2 * seconds)
}

fn is_in_init_list(context: &Kubernetes) -> bool {
    matches!(context.kind.as_deref(), Some("init" | "sidecar"))
}

/// The keys above the pod's spec in the object that people write, the spec included; and which object it is.
fn place(pod: &Pod) -> (&'static [&'static str], String) {
    let (kind, name, namespace) = (&*pod.workload.kind, &*pod.workload.name, &*pod.namespace);
    if !is_name(name) || !is_name(namespace) || !kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return (&["spec"], "the spec of the pod".to_owned());
    }
    let object = format!("{kind} {namespace}/{name}");
    match kind {
        "CronJob" => (&["spec", "jobTemplate", "spec", "template", "spec"], object),
        "Pod" => (
            &["spec"],
            format!("{object}; a running pod cannot be changed, create it anew"),
        ),
        "Job" => (
            &["spec", "template", "spec"],
            format!("{object}; a Job that exists cannot be changed, create it anew"),
        ),
        _ => (&["spec", "template", "spec"], object),
    }
}

/// A name of Kubernetes' objects (RFC 1123): nothing to quote.
fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let ends = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    // A number alone would not be text in YAML.
    let has_letter = text.bytes().any(|byte| byte.is_ascii_lowercase());
    has_letter
        && text.len() <= 253
        && text.bytes().all(inner)
        && text.as_bytes().first().is_some_and(ends)
        && text.as_bytes().last().is_some_and(ends)
}

fn unit(report: &Report, name: &str) -> Option<Snippet> {
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@' | b':'));
    if !is_plain || !name.ends_with(".service") {
        return None;
    }
    let drop_in = |setting: String, note: String| Snippet {
        about: format!("/etc/systemd/system/{name}.d/50-stop.conf, by `systemctl edit {name}`; {note}"),
        language: "ini",
        text: format!("[Service]\n{setting}\n"),
    };
    match &*report.exit {
        "killed-after-grace" => {
            let (got, twice) = got(report)?;
            Some(drop_in(
                format!("TimeoutStopSec={twice}"),
                format!(
                    "how long the shutdown needs is unknown, {twice} s is twice the {} that it got",
                    short(got)
                ),
            ))
        }
        "nonzero-exit" if report.stop.is_some() => {
            let code = report.status.as_ref()?.code.filter(|code| (1..=255).contains(code))?;
            Some(drop_in(
                format!("SuccessExitStatus={code}"),
                format!("only if the program means success by exit code {code} after a stop signal"),
            ))
        }
        _ => None,
    }
}

fn docker(report: &Report) -> Option<Snippet> {
    if &*report.exit != "killed-after-grace" {
        return None;
    }
    let (got, twice) = got(report)?;
    Some(Snippet {
        about: format!(
            "the service in compose.yaml, or `docker stop --timeout {twice}`; how long the shutdown needs is unknown, {twice} s is twice \
             the {} that it got",
            short(got)
        ),
        language: "yaml",
        text: format!("stop_grace_period: {twice}s\n"),
    })
}

/// The time from the stop signal to SIGKILL, and twice of it.
fn got(report: &Report) -> Option<(Duration, u64)> {
    let stop = report.stop.as_ref()?.time?;
    let kill = report.kill.as_ref()?.time?;
    let got = between(stop.0, kill.0);
    // The runtime's timers are a little late.
    Some((got, twice(Duration::from_secs(got.as_secs().max(1)))?))
}
