//! The evidence of a verdict, as lines: probe, event, time.

mod kubernetes;

use super::case::Case;
use super::words::{actor, how, is_named, is_systemd, many, of_role, seconds, target};
use super::{Evidence, Source};
use crate::attribute::Subject;
use crate::event::{Disposition, Kind, SignalResult, TargetState};
use crate::termination::{Actor, Count, OomRole, RefusedSource, Role};
use crate::time::Boot;

pub(super) fn list(case: &Case<'_>) -> Vec<Evidence> {
    let mut list = Vec::new();
    let mut add = |at: Boot, source: Kind, text: String| {
        list.push(Evidence {
            at,
            source: source.into(),
            text,
        })
    };
    stop(case, &mut add);
    inside(case, &mut add);
    fatal(case, &mut add);
    for oom in case.oom() {
        let who = match oom.role {
            OomRole::Main => "the main process".to_owned(),
            role => format!("not the main process{}", of_role(role)),
        };
        let text = format!("the OOM killer killed `{}` (pid {}), {who}", oom.comm, oom.tgid);
        add(oom.at, Kind::OomVictim, text);
    }
    if let Some(child) = case.failed_child {
        let text = format!(
            "`{}` (pid {}) {}",
            child.process.comm,
            child.process.tgid,
            how(child.exit.status)
        );
        add(child.exit.at, Kind::ProcessExit, text);
    }
    if let Some(exit) = case.exit {
        add(
            exit.at,
            Kind::ProcessExit,
            format!("{} {}", target(case.main()), how(exit.status)),
        );
    }
    clients(case, &mut add);
    if let Some((why, kill)) = case.oomd_reason.as_ref().zip(case.kill()) {
        list.push(Evidence {
            at: kill.at,
            source: Source::Bus,
            text: format!("systemd-oomd killed the cgroup: {}", why.escape_debug()),
        });
    }
    kubernetes::add(case, &mut list);
    list
}

fn stop(case: &Case<'_>, add: &mut impl FnMut(Boot, Kind, String)) {
    if let Some(stop) = case.stop() {
        let text = format!(
            "{} from {}, {}, to {}: {}{}",
            stop.signal,
            actor(&stop.sender),
            role(case, &stop.sender),
            target(case.main()),
            result(stop.result, stop.disposition),
            state(stop.state),
        );
        add(stop.at, Kind::SignalGenerate, text);
        if stop.repeated > 0 {
            let text = format!("{} followed", many(u64::from(stop.repeated), "more stop signal"));
            add(stop.at, Kind::SignalGenerate, text);
        }
        if let Some(at) = stop.handler_entered {
            let text = format!("{} entered the {} handler", target(case.main()), stop.signal);
            add(at, Kind::SignalDeliver, text);
        }
    }
}

/// The signal that ended the main process.
fn fatal(case: &Case<'_>, add: &mut impl FnMut(Boot, Kind, String)) {
    if let Some(fatal) = case.fatal() {
        let how = if case.kill().is_some_and(|kill| kill.cgroup_kill) {
            " through cgroup.kill"
        } else {
            ""
        };
        let call = fatal
            .call
            .map_or(String::new(), |call| format!(", for the system call {call}"));
        let text = format!(
            "{} from {}, {}, to {}{how}{call}",
            fatal.signal,
            actor(&fatal.sender),
            role(case, &fatal.sender),
            target(case.main()),
        );
        // A fatal stop signal, at first or raised again, already has a line.
        let has_line = |at: Boot| case.stop().is_some_and(|stop| at == fatal.at && stop.signal == fatal.signal);
        let raised = case.stop().and_then(|stop| stop.raised_again);
        if !case.stop().is_some_and(|stop| has_line(stop.at)) && !raised.is_some_and(|raised| has_line(raised.at)) {
            add(fatal.at, Kind::SignalGenerate, text);
        }
    }
}

fn clients(case: &Case<'_>, add: &mut impl FnMut(Boot, Kind, String)) {
    let traffic = case.traffic();
    for closed in &traffic.listeners {
        let by = if closed.by_exit { "process exit" } else { "close()" };
        add(closed.at, Kind::Tcp, format!("listener {} closed by {by}", closed.local));
    }
    let mut count = |count: Count, text: &str| {
        if count.count > 0 {
            let text = format!("{} {text}", many(count.count, "connection"));
            add(count.first, Kind::Tcp, text);
        }
    };
    count(traffic.accepted, &accepted(case));
    let by_clients = match traffic.refused.source {
        RefusedSource::ClientError => {
            ", counted only for clients on this machine that did not use a Service: no reset by the server was seen"
        }
        RefusedSource::ServerReset | RefusedSource::None => "",
    };
    // Without a kubelet there are no kubelet probes.
    let with_probes = match case.kubernetes {
        Some(_) if !traffic.kubelet.known => {
            "; kubelet probes may be included: the cgroup of the kubelet is unknown, or records of its connections were lost"
        }
        _ => "",
    };
    let by_new_peers = match traffic.refused_new() {
        0 => String::new(),
        new => format!(
            ", {new} of them by {} that had not connected before",
            many(traffic.peers.new, "peer")
        ),
    };
    count(
        traffic.refused.all,
        &format!("refused{by_new_peers}{by_clients}{with_probes}"),
    );
    let queued = match traffic.reset_queued {
        0 => String::new(),
        n => format!(", {n} of them in the accept queue when the listener closed"),
    };
    count(traffic.reset, &format!("reset{queued}{with_probes}"));
    count(traffic.cut, &format!("dropped at exit{with_probes}"));
    let unacknowledged = match traffic.undecided.unacknowledged {
        0 => String::new(),
        n => format!(", {n} of them before the client had acknowledged all data"),
    };
    let unheard = match traffic.undecided.unheard {
        0 => String::new(),
        n => format!(", {n} of them never acknowledged by the client"),
    };
    let undecided = format!("closed with the exit, idle or with a request under way{unacknowledged}{unheard}{with_probes}");
    count(traffic.undecided.all, &undecided);
    count(traffic.idle_closed, "closed at exit that neither side had used");
    count(traffic.rejected, "rejected by the network (ICMP) before reaching the process");
    count(
        traffic.kubelet.refused,
        "of kubelet probes refused, not counted as client connections",
    );
    count(
        traffic.kubelet.broken,
        "of kubelet probes reset or dropped, not counted as client connections",
    );
}

fn accepted(case: &Case<'_>) -> String {
    let traffic = case.traffic();
    match (case.stop(), traffic.since) {
        (Some(stop), Some(since)) if since < stop.at => format!(
            "accepted since the deletion request, the last one {} after the request",
            seconds(traffic.accepted.last.since(since))
        ),
        (Some(_), Some(_)) => "accepted after the stop signal".to_owned(),
        _ => "accepted while the sockets were observed".to_owned(),
    }
}

/// The way of the stop signal inside.
fn inside(case: &Case<'_>, add: &mut impl FnMut(Boot, Kind, String)) {
    for forward in &case.inside.forwards {
        let who = format!("`{}` (pid {})", forward.target.comm, forward.target.tgid);
        let text = format!(
            "{} from `{}` (pid {}) to {who}: {}{}",
            forward.signal,
            forward.sender.comm,
            forward.sender.tgid,
            result(forward.result, forward.disposition),
            state(forward.state),
        );
        add(forward.at, Kind::SignalGenerate, text);
        if let Some(at) = forward.handler_entered {
            add(
                at,
                Kind::SignalDeliver,
                format!("{who} entered the {} handler", forward.signal),
            );
        }
        if let Some(raised) = forward.raised_again {
            let how = if raised.discarded { ": discarded by the kernel" } else { "" };
            let text = format!("{who} sent itself {} again, with the default action{how}", forward.signal);
            add(raised.at, Kind::SignalGenerate, text);
        }
        if let Some(exit) = forward.exit {
            add(exit.at, Kind::ProcessExit, format!("{who} {}", how(exit.status)));
        }
    }
    for killed in case.inside.killed_programs() {
        let who = format!("`{}` (pid {})", killed.process.comm, killed.process.tgid);
        let by = killed.kill.sender;
        let sender = match killed.kill.role {
            Role::Kernel => "the kernel".to_owned(),
            _ => format!("`{}` (pid {})", by.comm, by.tgid),
        };
        add(
            killed.kill.at,
            Kind::SignalGenerate,
            format!("{} from {sender} to {who}", killed.kill.signal),
        );
        for (closed, what) in [(killed.held.listener, "a listener"), (killed.held.connection, "connections")] {
            if let Some(at) = closed {
                add(at, Kind::Tcp, format!("the exit of {who} closed {what}"));
            }
        }
        if let Some(at) = killed.held.other {
            let text = format!("{who} had a Unix or UDP socket for clients when it exited");
            add(at, Kind::ProcessExit, text);
        }
    }
    let raised = case.stop().and_then(|stop| Some((stop.signal, stop.raised_again?)));
    if let Some((signal, raised)) = raised {
        let how = if raised.discarded { ": discarded by the kernel" } else { "" };
        let text = format!(
            "{} sent itself {signal} again, with the default action{how}",
            target(case.main())
        );
        add(raised.at, Kind::SignalGenerate, text);
    }
}

fn role(case: &Case<'_>, sender: &Actor) -> &'static str {
    let is_unit = matches!(case.subject, Subject::Unit { .. });
    match sender.role {
        Role::Runtime if is_named(case, sender) => "the parent of the process, or in a unit around it",
        Role::Runtime if is_unit || is_systemd(sender) => "systemd",
        Role::Runtime => "the container runtime",
        Role::Itself => "the process itself",
        Role::Inside if is_unit => "another process of the unit",
        Role::Inside => "another process of the container",
        Role::Other => "neither the runtime nor the process itself",
        Role::Kernel => "sent by the kernel",
        Role::Unknown if sender.tgid.0 > 0 => "the runtime or another container: the cgroup of the sender is not known",
        Role::Unknown => "made by the kernel for a timer or a file of some process",
    }
}

fn result(result: SignalResult, disposition: Disposition) -> &'static str {
    match (result, disposition) {
        (SignalResult::Delivered, Disposition::Handler) => "delivered, handler installed",
        (SignalResult::Delivered, Disposition::Default) => "delivered, no handler",
        (SignalResult::Delivered, _) => "delivered",
        (SignalResult::Ignored, Disposition::Default) => "discarded by the kernel, no handler",
        (SignalResult::Ignored, Disposition::Ignore) => "discarded by the kernel, SIG_IGN",
        (SignalResult::Ignored, _) => "discarded by the kernel",
        (SignalResult::AlreadyPending, _) => "not queued, the same signal was already pending",
        (SignalResult::OverflowFail, _) => "not queued, the signal queue was full",
        (SignalResult::LoseInfo, _) => "delivered without siginfo",
    }
}

fn state(state: TargetState) -> String {
    let words = [
        (state.frozen, "frozen"),
        (state.stopped, "stopped"),
        (state.traced, "traced"),
        (state.blocked, "signal blocked"),
        (state.sigwait, "waiting for the signal without a handler"),
    ];
    let words: Vec<&str> = words.iter().filter(|(on, _)| *on).map(|(_, word)| *word).collect();
    if words.is_empty() {
        String::new()
    } else {
        format!("; {}", words.join(", "))
    }
}
