//! Words for processes, numbers and kernel records: what all sentences are made of.

use std::time::Duration;

use super::case::Case;
use crate::attribute::{Attribution, Subject};
use crate::event::{ExitStatus, Kind};
use crate::ids::{Pid, Signal};
use crate::termination::{Actor, ClientPeer, MainProcess, OomRole, PeerPlace, Role, Traffic};
use crate::time::Boot;

/// "pod shop/front-1", "this node", or the address.
pub fn peer_name(peer: &ClientPeer) -> String {
    match &peer.place {
        PeerPlace::Pod(pod) => format!("pod {}/{}", pod.namespace, pod.name),
        PeerPlace::Node => "this node".to_owned(),
        PeerPlace::Itself | PeerPlace::Elsewhere => peer.address.to_string(),
    }
}

/// "PID 1 `sh`" for the init of a pid namespace, otherwise "`nginx` (pid 77)".
pub(super) fn target(main: Option<&MainProcess>) -> String {
    match main {
        Some(main) if main.is_ns_init => format!("PID 1 `{}`", main.comm),
        Some(main) => format!("`{}` (pid {})", main.comm, main.tgid),
        None => "the main process".to_owned(),
    }
}

/// "`bash` (pid 77, on the host)".
pub(super) fn actor(actor: &Actor) -> String {
    if actor.role == Role::Unknown {
        return "an unknown sender".to_owned();
    }
    let place = match (&actor.pod, &actor.place) {
        (Some(of), _) => format!("container `{}` of pod {}/{}", of.container, of.pod.namespace, of.pod.name),
        (None, Attribution::Subject(subject, _)) => subject.to_string(),
        (None, Attribution::Host) => "on the host".to_owned(),
        (None, Attribution::Unknown(_)) => "cgroup unknown".to_owned(),
    };
    let parent = if actor.parent_comm.is_empty() {
        String::new()
    } else {
        format!(", child of `{}`", actor.parent_comm)
    };
    format!("`{}` (pid {}, {place}{parent})", actor.comm, actor.tgid)
}

/// The manager of a unit that is not systemd: the process that started a scope's, or another that has the unit below its own.
pub(super) fn is_named(case: &Case<'_>, sender: &Actor) -> bool {
    let is_unit = matches!(case.subject, Subject::Unit { .. });
    let is_users = matches!(&sender.place, Attribution::Subject(Subject::Unit { name }, _) if name.starts_with("user@"));
    let is_manager = is_systemd(sender) || is_users && has_its_name(sender);
    is_unit && sender.role == Role::Runtime && !is_manager
}

/// PID 1 of the machine.
pub(super) fn is_systemd(sender: &Actor) -> bool {
    sender.tgid == Pid::INIT && has_its_name(sender)
}

fn has_its_name(sender: &Actor) -> bool {
    const SYSTEMD: [&[u8]; 3] = [b"systemd", b"init", b"systemd-shutdow"];
    SYSTEMD.contains(&sender.comm.as_bytes())
}

/// What a victim of an OOM kill was, behind its name; empty where nothing more is known than that it was another process.
pub fn of_role(role: OomRole) -> &'static str {
    match role {
        OomRole::Main | OomRole::Helper | OomRole::Inside => "",
        OomRole::Worker => ", which had sockets of clients,",
        OomRole::Probe => ", the kubelet's exec probe,",
        OomRole::PreStop => ", the preStop hook,",
        OomRole::Session => ", which came from outside, as by `kubectl exec`,",
        OomRole::Outside => ", which came from outside (an exec probe, a hook or `kubectl exec`: not known which),",
        OomRole::Unattributed => ", started by the program or by a process from outside (not known which),",
        OomRole::Runtime => ", the container runtime's own process,",
    }
}

pub(super) fn runtime(case: &Case<'_>, sender: &Actor) -> String {
    match sender.role {
        Role::Runtime if is_named(case, sender) => actor(sender),
        // It manages the scopes of containers, and ends them with the machine.
        Role::Runtime if is_systemd(sender) => "systemd".to_owned(),
        Role::Runtime => the_runtime(case).to_owned(),
        _ => actor(sender),
    }
}

pub(super) fn the_runtime(case: &Case<'_>) -> &'static str {
    match case.subject {
        Subject::Container { .. } => "the container runtime",
        Subject::Unit { .. } => "systemd",
    }
}

pub(super) fn subject(case: &Case<'_>) -> &'static str {
    match case.subject {
        Subject::Container { .. } => "container",
        Subject::Unit { .. } => "unit",
    }
}

/// Whose stop command ends the subject.
pub(super) fn manager(case: &Case<'_>) -> &'static str {
    match case.subject {
        Subject::Container { .. } => "container runtime",
        Subject::Unit { .. } => "service manager",
    }
}

/// "exited with code 3", "was terminated by SIGTERM".
pub(super) fn status(case: &Case<'_>) -> String {
    case.exit.map_or("disappeared".to_owned(), |exit| how(exit.status))
}

pub(super) fn core(case: &Case<'_>) -> &'static str {
    if dumped_core(case) { ", which dumped core" } else { "" }
}

pub(super) fn dumped_core(case: &Case<'_>) -> bool {
    let status = case.exit.map(|exit| exit.status);
    matches!(status, Some(ExitStatus::Signaled { core_dumped: true, .. }))
}

pub(super) fn since(case: &Case<'_>, at: Boot) -> String {
    seconds(case.exit.map_or(case.end, |exit| exit.at).since(at))
}

pub(super) fn many(count: u64, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{s}")
}

pub(super) fn were(count: u64, noun: &str) -> String {
    let verb = if count == 1 { "was" } else { "were" };
    format!("{} {verb}", many(count, noun))
}

/// As [`were`], of clients.
pub(super) fn clients_were(traffic: &Traffic, count: u64, noun: &str) -> String {
    format!("{}{}", at_least(traffic), were(count, noun))
}

/// Before a number of clients: others may have been missed.
pub(super) fn at_least(traffic: &Traffic) -> &'static str {
    if traffic.is_part() { "at least " } else { "" }
}

/// `12 ms`, `3.2 s`, `75 s`.
pub fn seconds(d: Duration) -> String {
    match d.as_millis() {
        0 => "less than 1 ms".to_owned(),
        ms @ 1..100 => format!("{ms} ms"),
        100..60_000 => format!("{:.1} s", d.as_secs_f64()),
        _ => format!("{:.0} s", d.as_secs_f64()),
    }
}

/// Grace periods are whole seconds in the API.
pub(super) fn whole_seconds(d: Duration) -> String {
    if d.subsec_nanos() == 0 {
        format!("{} s", d.as_secs())
    } else {
        seconds(d)
    }
}

/// Names that begin with a small letter keep it.
pub(super) fn upper(text: String) -> String {
    if text.starts_with("systemd ") {
        return text;
    }
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => text,
    }
}

pub(super) fn lower(text: &str) -> String {
    let mut chars = text.trim_end_matches('.').chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// Kinds of kernel records in words: readers of the sentence do not know the tracepoints.
pub(super) fn records(kinds: &[Kind]) -> String {
    let word = |kind: &Kind| match kind {
        Kind::SignalGenerate => "sent signals",
        Kind::SignalDeliver => "started signal handlers",
        Kind::ProcessExit => "process exits",
        Kind::ProcessExec => "program starts",
        Kind::OomVictim => "OOM kills",
        Kind::CgroupMkdir => "created cgroups",
        Kind::CgroupRmdir => "removed cgroups",
        Kind::Tcp => "TCP connections",
    };
    kinds.iter().map(word).collect::<Vec<_>>().join(" and ")
}

pub(super) fn how(status: ExitStatus) -> String {
    match status {
        ExitStatus::Exited(code) => format!("exited with code {code}"),
        ExitStatus::Signaled { signal, core_dumped } => {
            let core = if core_dumped && signal != Signal::KILL {
                ", core dumped"
            } else {
                ""
            };
            format!("was terminated by {signal}{core}")
        }
    }
}

/// A message can contain any text: an Event's message contains the hook's own output.
pub(super) fn quoted(message: &str) -> String {
    format!("\"{}\"", escaped(message, 120))
}

pub(super) fn escaped(text: &str, limit: usize) -> String {
    let mut short: String = text.chars().take(limit).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short.escape_debug().to_string()
}
