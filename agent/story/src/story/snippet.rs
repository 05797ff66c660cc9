//! The remedy as configuration, where a setting is the remedy and the evidence has the numbers.
//!
//! A name goes into a snippet only if it is one of Kubernetes or systemd: what a file of unknown origin names is not pasted into a
//! shell or into YAML. A number goes into one only as a [`Value`], which was compared with what is set.

use std::time::Duration;

use epitaph_core::verdict::AdviceKind;
use epitaph_core::verdict::advice::with_reserve;

use super::setting::{Present, Value};
use super::words::{between, duration, short};
use crate::history::{Kubernetes, Pod, Report, Subject};

/// The field of the pod's spec, and of a probe.
const GRACE: &str = "terminationGracePeriodSeconds";
const LIVENESS: &str = "livenessProbe";
const STARTUP: &str = "startupProbe";

/// Text to paste.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Snippet {
    /// Where it goes, and what is to be known about it: each note begins with the setting that the note is about.
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
    sleep: Option<(Value, Option<&'a str>)>,
    liveness: Option<Value>,
    startup: Option<Value>,
}

/// All settings of the pod in one snippet, so that it can be applied as a whole.
fn in_pod(report: &Report, pod: &Pod) -> Option<Snippet> {
    let containers: &[Report] = match report.containers.as_slice() {
        [] => std::slice::from_ref(report),
        several => several,
    };
    let mut notes = Vec::new();
    let advised = pod_grace(report, containers);
    let mut grace = advised.as_ref().map(|(value, _)| *value);
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
        if let Some(sleep) = sleep(container, context, name, &mut notes) {
            own.sleep = Some((sleep.value, sleep.program));
            let longer = grace_for(&sleep, own_grace(container), &mut notes);
            grace = match (grace, longer) {
                (Some(grace), Some(longer)) => Some(grace.max(longer)),
                (grace, longer) => grace.or(longer),
            };
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
    if let Some(grace) = grace {
        // A sleep may need more than that.
        notes.extend(advised.filter(|(value, _)| *value == grace).and_then(|(_, note)| note));
        let seconds = grace.paste(GRACE, &mut notes);
        lines.push((depth, format!("{GRACE}: {seconds}")));
    }
    for (list, is_init) in [("containers", false), ("initContainers", true)] {
        let of_list: Vec<&Settings<'_>> = settings
            .iter()
            .filter(|own| is_in_init_list(own.context) == is_init)
            .collect();
        if !of_list.is_empty() {
            lines.push((depth, format!("{list}:")));
        }
        for own in of_list {
            of_container(own, depth, &mut lines, &mut notes);
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

fn of_container(own: &Settings<'_>, depth: usize, lines: &mut Vec<(usize, String)>, notes: &mut Vec<String>) {
    lines.push((depth, format!("- name: {}", own.name)));
    if let Some((value, program)) = own.sleep {
        let seconds = value.paste(&hook_of(own.name), notes);
        let (action, setting) = match program {
            Some(program) => ("exec:", format!("command: [\"{program}\", \"{seconds}\"]")),
            None => ("sleep:", format!("seconds: {seconds}")),
        };
        lines.push((depth + 1, "lifecycle:".to_owned()));
        lines.push((depth + 2, "preStop:".to_owned()));
        lines.push((depth + 3, action.to_owned()));
        lines.push((depth + 4, setting));
    }
    for (probe, value) in [(LIVENESS, own.liveness), (STARTUP, own.startup)] {
        if let Some(value) = value {
            let seconds = value.paste(&grace_of(probe, own.name), notes);
            lines.push((depth + 1, format!("{probe}:")));
            lines.push((depth + 2, format!("{GRACE}: {seconds}")));
        }
    }
}

/// The hook of a container, as notes name it.
fn hook_of(container: &str) -> String {
    format!("lifecycle.preStop of `{container}`")
}

/// The grace period of a container's probe, as notes name it.
fn grace_of(probe: &str, container: &str) -> String {
    format!("{probe}.{GRACE} of `{container}`")
}

/// The grace period of the pod that a measurement advises, with a note about the value. None where the one that is set is not known.
fn pod_grace(report: &Report, containers: &[Report]) -> Option<(Value, Option<String>)> {
    let advised = |kind: AdviceKind| report.advice.iter().find(|advice| &*advice.kind == kind.name());
    let present = containers.iter().filter_map(own_grace).max();
    if let Some(advice) = advised(AdviceKind::GraceLonger) {
        let present = present?;
        if let Some(seconds) = advice.seconds {
            return Some((Value::more(Present::Is(present), seconds)?, None));
        }
        // A deletion may have given more, and that was not enough either.
        let given = containers.iter().filter_map(|of| of.kubernetes.as_ref()?.grace_ms);
        let given = given.map(duration).max().filter(|given| *given > present);
        let twice = Value::twice(given.unwrap_or(present), Present::Is(present))?;
        let note = match given {
            Some(given) => of_twice(GRACE, twice, &format!("the {} that the deletion gave", short(given))),
            None => of_twice(GRACE, twice, "the present value"),
        };
        return Some((twice, Some(note)));
    }
    let seconds = advised(AdviceKind::GraceShorter)?.seconds?;
    let unknown = Present::Unknown { default: Duration::ZERO };
    Some((Value::less(present.map_or(unknown, Present::Is), seconds)?, None))
}

/// `of`: what was doubled, in words.
fn of_twice(setting: &str, twice: Value, of: &str) -> String {
    format!(
        "{setting}: {} s is twice {of}, because how long the shutdown needs is unknown",
        twice.seconds()
    )
}

/// `terminationGracePeriodSeconds`, if it is known: a deletion may have asked for another grace period, and a probe has its own.
fn own_grace(of: &Report) -> Option<Duration> {
    let context = of.kubernetes.as_ref()?;
    let by_probe = |cause: &str| matches!(cause, "liveness" | "startup");
    let is_probes = by_probe(&of.cause) || context.asked.as_ref().is_some_and(|asked| by_probe(&asked.cause));
    let known = match &context.request {
        Some(request) => request.spec_grace_ms,
        None => context.grace_ms.filter(|_| !is_probes),
    };
    known.map(duration)
}

/// The grace period of the pod into which the sleep and the shutdown fit; None if they do, or if the present one is not known.
fn grace_for(sleep: &Sleep<'_>, present: Option<Duration>, notes: &mut Vec<String>) -> Option<Value> {
    let needed = with_reserve(sleep.needed);
    match present {
        Some(present) if present < sleep.needed => Value::more(Present::Is(present), needed),
        Some(_) => None,
        None => {
            notes.push(format!(
                "{GRACE}: has to be at least {needed} (the present value is not known here)"
            ));
            None
        }
    }
}

/// An advised preStop sleep.
struct Sleep<'a> {
    value: Value,
    /// Of the present hook, if it runs `sleep`: a container has one hook, and one action in it.
    program: Option<&'a str>,
    /// By the sleep and the shutdown together.
    needed: Duration,
}

fn sleep<'a>(of: &Report, context: &'a Kubernetes, name: &str, notes: &mut Vec<String>) -> Option<Sleep<'a>> {
    let kinds = [AdviceKind::PreStopSleepLonger, AdviceKind::PreStopSleepShorter].map(AdviceKind::name);
    let advice = of.advice.iter().find(|advice| kinds.contains(&&*advice.kind))?;
    let seconds = advice.seconds?;
    // Of a summary that lacks the kind of the container, its hook is not known either.
    context.kind.as_ref()?;
    let hook = context.pre_stop.as_ref();
    let program = hook.and_then(|hook| hook.program.as_deref()).filter(|program| {
        let is_plain = program
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.'));
        is_plain && program.rsplit('/').next() == Some("sleep")
    });
    // The arguments of a program are not reported.
    let unknown = Present::Unknown { default: Duration::ZERO };
    let present = match (hook.map(|hook| (&*hook.hook, hook.sleep_s)), program) {
        (None, _) => Present::Unset,
        (Some(("sleep", seconds)), _) => seconds.map_or(unknown, |seconds| Present::Is(Duration::from_secs(seconds))),
        (Some(_), Some(_)) => unknown,
        (Some(_), None) => {
            notes.push(format!(
                "{}: the container has a hook of another kind already: change how long that hook takes",
                hook_of(name)
            ));
            return None;
        }
    };
    let value = match &*advice.kind == AdviceKind::PreStopSleepShorter.name() {
        true => Value::less(present, seconds)?,
        false => Value::more(present, seconds)?,
    };
    if program.is_none() {
        notes.push(format!(
            "{}: sleep needs Kubernetes 1.30, before that write exec: {{command: [\"sleep\", \"{seconds}\"]}}",
            hook_of(name)
        ));
    }
    let stop = of.stop.as_ref().and_then(|stop| stop.time);
    let exit = of.status.as_ref().and_then(|status| status.time);
    let shutdown = stop.zip(exit).map_or(Duration::ZERO, |(stop, exit)| between(stop.0, exit.0));
    Some(Sleep {
        value,
        program,
        needed: Duration::from_secs(seconds) + shutdown,
    })
}

/// A probe's own grace period, where the container was killed after it.
fn probe(of: &Report, context: &Kubernetes, own: &mut Settings<'_>, notes: &mut Vec<String>) {
    let (probe, field) = match (&*of.cause, &*of.exit) {
        ("liveness", "killed-after-grace") => (LIVENESS, &mut own.liveness),
        ("startup", "killed-after-grace") => (STARTUP, &mut own.startup),
        _ => return,
    };
    let present = context.grace_ms.map(duration);
    let Some(twice) = present.and_then(|present| Value::twice(present, Present::Is(present))) else {
        return;
    };
    notes.push(of_twice(&grace_of(probe, own.name), twice, "the present value"));
    *field = Some(twice);
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

/// systemd's default of `TimeoutStopSec=`.
const OF_SYSTEMD: Duration = Duration::from_secs(90);
/// Docker's default of `stop_grace_period`.
const OF_DOCKER: Duration = Duration::from_secs(10);

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
            let (got, twice) = got(report, OF_SYSTEMD)?;
            let mut notes = vec![of_twice("TimeoutStopSec", twice, &that_it_got(got))];
            let seconds = twice.paste("TimeoutStopSec", &mut notes);
            notes.push(format!("`systemctl show -P TimeoutStopUSec {name}` prints the present value"));
            Some(drop_in(format!("TimeoutStopSec={seconds}"), notes.join("; ")))
        }
        "nonzero-exit" if report.stop.is_some() => {
            let code = report.status.as_ref()?.code.filter(|code| (1..=255).contains(code))?;
            Some(drop_in(
                format!("SuccessExitStatus={code}"),
                format!("SuccessExitStatus: only if the program means success by exit code {code} after a stop signal"),
            ))
        }
        _ => None,
    }
}

fn docker(report: &Report) -> Option<Snippet> {
    if &*report.exit != "killed-after-grace" {
        return None;
    }
    let (got, twice) = got(report, OF_DOCKER)?;
    let mut notes = vec![format!(
        "the service in compose.yaml, or `docker stop --timeout {}`",
        twice.seconds()
    )];
    notes.push(of_twice("stop_grace_period", twice, &that_it_got(got)));
    let seconds = twice.paste("stop_grace_period", &mut notes);
    Some(Snippet {
        about: notes.join("; "),
        language: "yaml",
        text: format!("stop_grace_period: {seconds}s\n"),
    })
}

fn that_it_got(got: Duration) -> String {
    format!("the {} that the shutdown got", short(got))
}

/// The time from the stop signal to SIGKILL, and twice of it. Whoever stopped it may have given it less than is set.
fn got(report: &Report, default: Duration) -> Option<(Duration, Value)> {
    let stop = report.stop.as_ref()?.time?;
    let kill = report.kill.as_ref()?.time?;
    let got = between(stop.0, kill.0);
    // The runtime's timers are a little late.
    let whole = Duration::from_secs(got.as_secs().max(1));
    Some((got, Value::twice(whole, Present::Unknown { default })?))
}
