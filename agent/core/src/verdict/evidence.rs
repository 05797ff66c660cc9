//! What a verdict rests on, as lines: which probe saw what, when.

mod kubernetes;

use super::Evidence;
use super::judge::Case;
use super::sentence::{actor, many, seconds, target};
use crate::event::{Disposition, ExitStatus, Kind, SignalResult, TargetState};
use crate::ids::Signal;
use crate::termination::{Count, RefusedSource, Role};
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
    if let Some(stop) = case.stop() {
        let text = format!(
            "{} from {} ({}) to {}: {}{}",
            stop.signal,
            actor(&stop.sender),
            role(stop.sender.role),
            target(case.main()),
            result(stop.result, stop.disposition),
            state(stop.state),
        );
        add(stop.at, Kind::SignalGenerate, text);
        if stop.repeated > 0 {
            let text = format!("{} after it", many(u64::from(stop.repeated), "more stop signal"));
            add(stop.at, Kind::SignalGenerate, text);
        }
        if let Some(at) = stop.handler_entered {
            let text = format!("{} entered its handler for {}", target(case.main()), stop.signal);
            add(at, Kind::SignalDeliver, text);
        }
    }
    if let Some(fatal) = case.fatal() {
        let how = if case.kill().is_some_and(|kill| kill.cgroup_kill) {
            ", by cgroup.kill"
        } else {
            ""
        };
        let text = format!(
            "{} from {} ({}){how} to {}",
            fatal.signal,
            actor(&fatal.sender),
            role(fatal.sender.role),
            target(case.main()),
        );
        // The stop signal that was fatal itself is told above.
        if case
            .stop()
            .is_none_or(|stop| stop.at != fatal.at || stop.signal != fatal.signal)
        {
            add(fatal.at, Kind::SignalGenerate, text);
        }
    }
    for oom in case.oom() {
        let who = if oom.is_main {
            "the main process"
        } else {
            "not the main process"
        };
        let text = format!("the OOM killer chose `{}` (pid {}), {who}", oom.comm, oom.tgid);
        add(oom.at, Kind::OomVictim, text);
    }
    if let Some(exit) = case.exit {
        add(
            exit.at,
            Kind::ProcessExit,
            format!("{} {}", target(case.main()), status(exit.status)),
        );
    }
    for closed in &case.traffic().listeners {
        let by = if closed.by_exit { "the end of its process" } else { "close" };
        add(closed.at, Kind::Tcp, format!("listener {} closed by {by}", closed.local));
    }
    let mut count = |count: Count, text: &str| {
        if count.count > 0 {
            let text = format!("{} {text}", many(count.count, "connection"));
            list.push(Evidence {
                at: count.first,
                source: Kind::Tcp.into(),
                text,
            });
        }
    };
    let traffic = case.traffic();
    let before_stop = case.stop().is_some_and(|stop| traffic.since < stop.at);
    let accepted = match before_stop {
        true => format!(
            "accepted since its pod was to go, the last {} later",
            seconds(traffic.accepted.last.since(traffic.since))
        ),
        false => "accepted after the stop signal".to_owned(),
    };
    count(traffic.accepted, &accepted);
    let by_clients = match traffic.refused_source {
        RefusedSource::ClientError => ", known from clients on this machine only: no reset of its own was seen",
        RefusedSource::ServerReset | RefusedSource::None => "",
    };
    // Nobody's probes without a kubelet.
    let with_probes = match case.kubernetes {
        Some(_) if !traffic.kubelet.known => "; the kubelet's own may be among them, for its cgroup is not known",
        _ => "",
    };
    count(traffic.refused, &format!("refused{by_clients}{with_probes}"));
    let queued = match traffic.reset_queued {
        0 => String::new(),
        n => format!(", {n} in the accept queue when the listener closed"),
    };
    count(traffic.reset, &format!("reset{queued}{with_probes}"));
    count(traffic.cut, &format!("cut{with_probes}"));
    count(traffic.idle_closed, "closed idle");
    count(traffic.rejected, "rejected on the way, by ICMP and not by itself");
    count(traffic.kubelet.refused, "of the kubelet's own refused: not a client's");
    count(traffic.kubelet.broken, "of the kubelet's own reset or cut: not a client's");
    kubernetes::add(case, &mut list);
    list
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Runtime => "its runtime",
        Role::Itself => "itself",
        Role::Inside => "inside it",
        Role::Other => "neither its runtime nor itself",
        Role::Kernel => "sent by the kernel",
    }
}

fn result(result: SignalResult, disposition: Disposition) -> &'static str {
    match (result, disposition) {
        (SignalResult::Delivered, Disposition::Handler) => "delivered, it has a handler",
        (SignalResult::Delivered, Disposition::Default) => "delivered, it has no handler",
        (SignalResult::Delivered, _) => "delivered",
        (SignalResult::Ignored, Disposition::Default) => "ignored, it has no handler",
        (SignalResult::Ignored, Disposition::Ignore) => "ignored, it is set to SIG_IGN",
        (SignalResult::Ignored, _) => "ignored",
        (SignalResult::AlreadyPending, _) => "one was pending already",
        (SignalResult::OverflowFail, _) => "not queued, its queue was full",
        (SignalResult::LoseInfo, _) => "delivered without its details",
    }
}

fn state(state: TargetState) -> String {
    let words = [
        (state.frozen, "frozen"),
        (state.stopped, "stopped"),
        (state.traced, "traced"),
        (state.blocked, "masked"),
    ];
    let words: Vec<&str> = words.iter().filter(|(on, _)| *on).map(|(_, word)| *word).collect();
    if words.is_empty() {
        String::new()
    } else {
        format!("; {}", words.join(", "))
    }
}

pub(super) fn status(status: ExitStatus) -> String {
    match status {
        ExitStatus::Exited(code) => format!("exited with code {code}"),
        ExitStatus::Signaled { signal, core_dumped } => {
            let core = if core_dumped && signal != Signal::KILL {
                ", core dumped"
            } else {
                ""
            };
            format!("was ended by {signal}{core}")
        }
    }
}
