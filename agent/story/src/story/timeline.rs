//! A report → what happened when, in order of time.

mod node;

use epitaph_core::time::Wall;

use super::words::{between, duration, many, setting, short};
use crate::history::{At, Connections, Kubernetes, PreStop, Report, Request, Sender, Status, Stop, Subject, Unobserved};

/// Listeners with a row of their own; the others are counted.
const LISTENERS: usize = 3;

/// OOM kills with a row of their own.
const OOM_KILLS: usize = 3;

/// How a row is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A moment; what follows until the end of the row is time without an effect.
    Event,
    /// Something runs.
    Run,
    /// Clients are served.
    Served,
    /// Clients lose connections.
    Lost,
    /// The kernel kills.
    Kill,
    /// A moment of minor interest, or a container that ended well.
    Plain,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub at: Wall,
    /// End of what lasts.
    pub until: Option<Wall>,
    pub mark: Mark,
    pub label: String,
}

/// A heading of one container's rows; empty for what is not of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub heading: Option<String>,
    pub rows: Vec<Row>,
}

/// One part for a single container; for a pod with several bad ones a part for each. Containers that ended well have a row.
pub fn timeline(report: &Report) -> Vec<Part> {
    if report.is_of_node() {
        let heading = None;
        let rows = sorted(node::rows(report));
        return vec![Part { heading, rows }];
    }
    let request = report.request().map(requested).unwrap_or_default();
    let part = |heading, rows| Part {
        heading,
        rows: sorted(rows),
    };
    let containers: &[Report] = match report.containers.as_slice() {
        [] => std::slice::from_ref(report),
        several => several,
    };
    let is_whole = |of: &&Report| of.unclean || of.verdict == report.verdict || containers.len() == 1;
    let (whole, well): (Vec<&Report>, Vec<&Report>) = containers.iter().partition(is_whole);
    let mut parts = match whole.as_slice() {
        [one] => vec![part(None, request.into_iter().chain(container(one)).collect())],
        several => {
            let each = several
                .iter()
                .map(|of| part(Some(format!("{}: {}", name(of), of.verdict)), container(of)));
            std::iter::once(part(None, request)).chain(each).collect()
        }
    };
    let rest: Vec<Row> = well.into_iter().filter_map(in_one_row).chain(gone(report)).collect();
    let heading = (containers.len() > 1).then(|| "the rest of the pod".to_owned());
    match (parts.as_mut_slice(), heading) {
        // A pod with one container.
        ([only], None) => *only = part(None, only.rows.drain(..).chain(rest).collect()),
        (_, heading) => parts.push(part(heading, rest)),
    }
    parts.retain(|part| !part.rows.is_empty());
    parts
}

/// Stable: rows of one moment stay in the order of the story.
fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by_key(|row| row.at);
    rows
}

fn name(container: &Report) -> String {
    let named = container.kubernetes.as_ref().and_then(|context| context.container.as_deref());
    match (&container.subject, named) {
        (_, Some(name)) => format!("container {name}"),
        (Some(Subject::Container { id, .. }), None) => format!("container {}", id.get(..12).unwrap_or(id)),
        _ => "a container".to_owned(),
    }
}

fn event(at: Option<At>, mark: Mark, label: impl Into<String>) -> Option<Row> {
    at.map(|at| Row {
        at: at.0,
        until: None,
        mark,
        label: label.into(),
    })
}

/// The request is known as an interval: the API server's clock has whole seconds.
fn requested(request: &Request) -> Vec<Row> {
    let mut rows = Vec::new();
    let is_other = |own: &f64| request.grace_ms.is_none_or(|asked| duration(*own) != duration(asked));
    let own = request.spec_grace_ms.filter(is_other);
    let own = own.map_or(String::new(), |own| format!(" ({} in the spec)", setting(own)));
    if let (Some(earliest), Some(latest)) = (request.earliest, request.latest) {
        rows.push(Row {
            at: earliest.0.min(latest.0),
            until: Some(latest.0),
            mark: Mark::Plain,
            label: match request.grace_ms {
                Some(grace) => format!("deletion requested, grace period {}{own}", setting(grace)),
                None => "deletion requested".to_owned(),
            },
        });
    }
    rows.extend(request.shortened.iter().filter_map(|shortened| {
        let label = format!("grace period shortened to {}", setting(shortened.grace_ms));
        event(shortened.time, Mark::Event, label)
    }));
    rows
}

fn gone(report: &Report) -> Option<Row> {
    let gone = report.gone.as_ref().filter(|gone| gone.watched)?;
    event(gone.time, Mark::Plain, "pod removed from the API")
}

fn in_one_row(of: &Report) -> Option<Row> {
    let from = of.stop.as_ref().and_then(|stop| stop.time).or(of.begin)?.0;
    let exit = of.status.as_ref().and_then(|status| status.time).or(of.end);
    let how = of
        .status
        .as_ref()
        .map_or_else(String::new, |status| format!(", {}", exited(status)));
    Some(Row {
        at: from,
        until: exit.map(|at| at.0),
        mark: Mark::Run,
        label: format!("{}: {}{how}", name(of), of.verdict),
    })
}

/// The rows of one container or unit, without those of the pod's request.
fn container(of: &Report) -> Vec<Row> {
    let exit = of.status.as_ref().and_then(|status| status.time).map(|at| at.0);
    let end = exit.or(of.kill.as_ref().and_then(|kill| kill.time).map(|at| at.0));
    let context = of.kubernetes.as_ref();
    let mut rows = Vec::new();
    if let Some(context) = context {
        rows.extend(context.pre_stop.as_ref().and_then(hook));
        rows.extend(event(context.mains_ended, Mark::Plain, "last main container exited"));
    }
    if let Some(stop) = &of.stop {
        rows.extend(stopped(stop, of, end));
        rows.extend(stop.handler_entered.map(|at| Row {
            at: at.0,
            until: end,
            mark: Mark::Run,
            label: format!("{} handler entered", stop.signal),
        }));
    }
    clients(&of.connections, &mut rows);
    for oom in of.oom.iter().take(OOM_KILLS) {
        let who = if oom.is_main { "the main process" } else { "a child process" };
        rows.extend(event(oom.time, Mark::Kill, format!("OOM killer kills {who} `{}`", oom.comm)));
    }
    if let Some(more) = of.oom.get(OOM_KILLS..).filter(|more| !more.is_empty()) {
        let at = more.last().and_then(|oom| oom.time);
        rows.extend(event(at, Mark::Kill, format!("{} more OOM kills", more.len())));
    }
    rows.extend(of.gaps.unobserved.iter().filter_map(not_observed));
    rows.extend(grace_end(of, context, end));
    if let Some(kill) = &of.kill {
        rows.extend(event(kill.time, Mark::Kill, format!("SIGKILL{}", from(&kill.sender, of))));
    }
    match &of.status {
        Some(status) => rows.extend(event(status.time, Mark::Plain, exited(status))),
        None => rows.extend(event(of.end, Mark::Plain, "end; the exit was not observed")),
    }
    rows
}

fn not_observed(gap: &Unobserved) -> Option<Row> {
    let (begin, end) = (gap.begin?.0, gap.end?.0);
    Some(Row {
        at: begin,
        until: Some(end),
        mark: Mark::Plain,
        label: format!("not observed, {}", short(between(begin, end))),
    })
}

fn hook(hook: &PreStop) -> Option<Row> {
    let what = match (&hook.program, hook.port, hook.sleep_s) {
        (Some(program), ..) => format!("{} {program}", hook.hook),
        (_, Some(port), _) => format!("{} :{port}", hook.hook),
        (.., Some(seconds)) => format!("{} {seconds} s", hook.hook),
        _ => hook.hook.to_string(),
    };
    let took = match (hook.begin, hook.end) {
        (Some(begin), Some(end)) => format!(", {}", short(between(begin.0, end.0))),
        (Some(_), None) => ", end not observed".to_owned(),
        _ => String::new(),
    };
    let how = match (hook.code, &hook.signal, &hook.failed) {
        (Some(code), ..) if code != 0 => format!(": exit code {code}"),
        (_, Some(signal), _) => format!(": killed by {signal}"),
        (.., Some(_)) => ": failed".to_owned(),
        _ => String::new(),
    };
    let (at, until) = match (hook.begin, hook.end) {
        (Some(begin), end) => (begin, end),
        (None, Some(end)) => (end, None),
        (None, None) => return None,
    };
    Some(Row {
        at: at.0,
        until: until.map(|at| at.0),
        mark: Mark::Run,
        label: format!("preStop {what}{took}{how}"),
    })
}

/// With the time that passed without an effect, where no handler was entered.
fn stopped(stop: &Stop, of: &Report, end: Option<Wall>) -> Option<Row> {
    let at = stop.time?.0;
    let state: Vec<&str> = stop
        .state
        .iter()
        .map(|state| &**state)
        .filter(|state| ["blocked", "stopped", "frozen"].contains(state))
        .collect();
    let how = match (&*stop.result, &*stop.disposition) {
        ("ignored", "ignore") => ": discarded (SIG_IGN)".to_owned(),
        ("ignored", _) => ": discarded, no handler".to_owned(),
        _ if !state.is_empty() => format!(": process is {}", state.join(", ")),
        ("already-pending", _) => ": already pending".to_owned(),
        ("overflow-fail", _) => ": not queued, queue full".to_owned(),
        ("delivered" | "lose-info", "default") => ": no handler".to_owned(),
        _ => String::new(),
    };
    let repeated = match stop.repeated {
        0 => String::new(),
        n => format!(", sent {n} more {}", if n == 1 { "time" } else { "times" }),
    };
    Some(Row {
        at,
        // Without effect, as far as that is known.
        until: end.filter(|_| stop.handler_entered.is_none() && !stop.result.is_empty()),
        mark: Mark::Event,
        label: format!("{}{} to {}{how}{repeated}", stop.signal, from(&stop.sender, of), target(of)),
    })
}

fn target(of: &Report) -> String {
    match &of.main {
        Some(main) if main.is_ns_init => format!("PID 1 `{}`", main.comm),
        Some(main) => format!("`{}`", main.comm),
        None => "the main process".to_owned(),
    }
}

/// Nothing for the runtime's own signals: a stop comes from the runtime.
fn from(sender: &Sender, of: &Report) -> String {
    let is_unit = matches!(of.subject, Some(Subject::Unit { .. }));
    // Another process can manage a scope.
    let is_systemd = matches!(&*sender.comm, "systemd" | "init" | "systemd-shutdow");
    match &*sender.role {
        "runtime" if !is_unit => " from the runtime".to_owned(),
        "runtime" if is_systemd => " from systemd".to_owned(),
        "itself" => " from the process itself".to_owned(),
        "kernel" => " from the kernel".to_owned(),
        "inside" if is_unit => format!(" from `{}` of the unit", sender.comm),
        "inside" => format!(" from `{}` in the container", sender.comm),
        // Of a summary, which has no sender.
        "" if sender.comm.is_empty() => String::new(),
        _ => format!(" from `{}` (pid {})", sender.comm, sender.pid),
    }
}

fn exited(status: &Status) -> String {
    match (status.code, &status.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) if status.core_dumped => format!("killed by {signal}, core dumped"),
        (None, Some(signal)) => format!("killed by {signal}"),
        (None, None) => "exit".to_owned(),
    }
}

fn clients(of: &Connections, rows: &mut Vec<Row>) {
    let mut add = |count: u64, first: Option<At>, last: Option<At>, mark, label: String| {
        if let (1.., Some(first), Some(last)) = (count, first, last) {
            rows.push(Row {
                at: first.0,
                until: Some(last.0),
                mark,
                label,
            });
        }
    };
    let unanswered = match of.cut_unanswered {
        0 => String::new(),
        n => format!(", {n} unanswered"),
    };
    // Others may have been missed.
    let least = if of.observed { "" } else { "at least " };
    let lost = |count: u64, what: &str| format!("{least}{}", many(count, what));
    for (count, first, last, mark, label) in [
        (
            of.accepted,
            of.accepted_first,
            of.accepted_last,
            Mark::Served,
            many(of.accepted, "new connection") + " accepted",
        ),
        (
            of.refused,
            of.refused_first,
            of.refused_last,
            Mark::Lost,
            lost(of.refused, "connection") + " refused",
        ),
        (
            of.reset,
            of.reset_first,
            of.reset_last,
            Mark::Lost,
            lost(of.reset, "connection") + " reset",
        ),
        (
            of.cut,
            of.cut_first,
            of.cut_last,
            Mark::Lost,
            lost(of.cut, "open connection") + " cut" + &unanswered,
        ),
        (
            of.rejected,
            of.rejected_first,
            of.rejected_last,
            Mark::Lost,
            lost(of.rejected, "connection") + " rejected by the network",
        ),
    ] {
        add(count, first, last, mark, label);
    }
    // Those that the exit closed say nothing that the exit does not say.
    let closed: Vec<_> = of.listeners_closed.iter().filter(|listener| !listener.by_exit).collect();
    for listener in closed.iter().take(LISTENERS) {
        rows.extend(event(
            listener.time,
            Mark::Event,
            format!("listener {} closed", listener.local),
        ));
    }
    if let Some(more) = closed.get(LISTENERS..).filter(|more| !more.is_empty()) {
        let at = more.last().and_then(|listener| listener.time);
        rows.extend(event(
            at,
            Mark::Event,
            format!("{} closed", many(more.len() as u64, "more listener")),
        ));
    }
}

/// The end of the grace period, where the termination reached it.
fn grace_end(of: &Report, context: Option<&Kubernetes>, end: Option<Wall>) -> Option<Row> {
    let (context, end) = (context?, end?);
    let hook = context.pre_stop.as_ref().and_then(|hook| hook.begin);
    let stop = of.stop.as_ref().and_then(|stop| stop.time);
    // Each as an interval: the time of a request is one.
    let ends: Vec<(At, At, f64)> = match &context.request {
        Some(request) => {
            let whole = request
                .earliest
                .zip(request.latest)
                .zip(request.grace_ms)
                .map(|((from, to), grace)| (from, to, grace));
            let shortened = request.shortened.iter().filter_map(|s| s.time.map(|at| (at, at, s.grace_ms)));
            whole.into_iter().chain(shortened).collect()
        }
        None => hook
            .or(stop)
            .zip(context.grace_ms)
            .map(|(at, grace)| (at, at, grace))
            .into_iter()
            .collect(),
    };
    let after = |at: At, millis| {
        let nanos = u64::try_from(duration(millis).as_nanos()).unwrap_or(u64::MAX);
        Wall(at.0.0.saturating_add(nanos))
    };
    let (from, to, grace_ms) = ends.into_iter().min_by_key(|&(_, to, grace)| after(to, grace))?;
    (end >= after(from, grace_ms)).then(|| Row {
        at: after(to, grace_ms).min(end),
        until: None,
        mark: Mark::Event,
        label: format!("grace period of {} over", setting(grace_ms)),
    })
}
