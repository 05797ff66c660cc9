//! What clients met.

use crate::kubernetes::Unshown;
use crate::termination::{ClientPeer, PeerPlace, RefusedSource, Traffic, Unlooked, UnseenTraffic};
use crate::verdict::case::Case;
use crate::verdict::own_time;
use crate::verdict::words::{at_least, clients_were, many, peer_name, seconds, subject};
use crate::verdict::{Cause, Exit, TrafficAxis};

pub(super) fn clients(case: &Case<'_>, exit: Exit, axis: TrafficAxis) -> Vec<String> {
    let traffic = case.traffic();
    let mut clauses = Vec::new();
    if traffic.cut.count > 0 {
        let all = if traffic.cut.count == 1 { "" } else { "all " };
        clauses.push(format!(
            "{} dropped at exit, {all}with an unanswered request",
            clients_were(traffic, traffic.cut.count, "open connection")
        ));
    }
    if traffic.reset.count > 0 {
        let queued = match traffic.reset_queued {
            0 => String::new(),
            1 if traffic.reset.count == 1 => " (in the accept queue when the listener closed)".to_owned(),
            n if n == traffic.reset.count => " (all in the accept queue when the listener closed)".to_owned(),
            n => format!(" ({n} of them in the accept queue when the listener closed)"),
        };
        clauses.push(format!(
            "{} reset{queued}",
            clients_were(traffic, traffic.reset.count, "connection")
        ));
    }
    clauses.extend(refused(traffic));
    if traffic.undecided.all.count > 0 {
        clauses.push(undecided(traffic));
    }
    if traffic.rejected.count > 0 {
        clauses.push(format!(
            "{} rejected by the network before reaching the {}",
            clients_were(traffic, traffic.rejected.count, "connection"),
            subject(case)
        ));
    }
    clauses.extend(unobserved(case, exit, axis));
    clauses
}

/// For refused clients of a pod whose deletion nobody requested: proxies send clients elsewhere only from a request on.
pub(super) fn without_a_request(case: &Case<'_>, cause: Cause) -> String {
    const ELSEWHERE: &str = "run another replica, and add a readiness probe that fails early";
    let since = match case.stop() {
        Some(_) => "after the stop signal",
        None => "before the exit",
    };
    match cause {
        Cause::RestartInPlace => format!("while the pod restarted in place, where a preStop sleep does not help: {ELSEWHERE}"),
        Cause::Liveness | Cause::Startup | Cause::Restart => {
            format!("while the container restarted, where a preStop sleep does not help: {ELSEWHERE}")
        }
        Cause::NodeShutdown => format!(
            "after the listener closed, while proxies did not know that the node was shutting down: drain the node first (`kubectl drain`), \
             or keep accepting {since} until clients stop connecting"
        ),
        Cause::Deleted | Cause::EvictedApi | Cause::EvictedTaint | Cause::EvictedPreempted if is_given_no_time(case) => {
            format!("while the deletion gave no time: {}", own_time::for_time(case))
        }
        _ if cause == Cause::Unknown || case.kubernetes.is_some_and(|context| context.may_miss(Unshown::Request)) => format!(
            "after the listener closed; whether a deletion was requested is unknown: keep accepting {since} until clients stop connecting"
        ),
        _ => format!(
            "after the listener closed; nobody had requested the pod's deletion, so proxies did not send the clients elsewhere: keep \
             accepting {since} until clients stop connecting"
        ),
    }
}

/// The object was gone at once: no version shows the request.
fn is_given_no_time(case: &Case<'_>) -> bool {
    let given = case.kubernetes.and_then(|context| context.grace);
    given.is_some_and(|given| given.is_zero())
}

fn refused(traffic: &Traffic) -> Vec<String> {
    let mut clauses = Vec::new();
    let refused = traffic.refused_clients();
    if refused.count > 0 {
        let window = traffic.refusal_window().map_or(String::new(), |window| {
            format!(" in the {} after the listener closed", seconds(window))
        });
        let source = match traffic.refused.source {
            RefusedSource::ClientError => " (counted only for clients on this machine that did not use a Service)",
            RefusedSource::ServerReset | RefusedSource::None => "",
        };
        let on = if traffic.refused.goes_on {
            ", and clients were still trying to connect when counting stopped"
        } else {
            ""
        };
        let of = |peer: &&ClientPeer| peer.had_connected || refused.count == traffic.refused.all.count;
        let whose = whose(traffic, refused.count, of);
        clauses.push(format!(
            "{} refused{window}{source}{whose}{on}",
            clients_were(traffic, refused.count, "connection")
        ));
    }
    let new = traffic.refused_new();
    if new > 0 {
        let whose = whose(traffic, new, |peer| !peer.had_connected);
        let verb = if new == 1 { "was" } else { "were" };
        clauses.push(format!(
            "{}{} of {} that had not connected before {verb} refused{whose}",
            at_least(traffic),
            many(new, "connection"),
            many(traffic.peers.new, "peer"),
        ));
    }
    clauses
}

/// Of a clean exit: why the traffic is unknown.
fn unobserved(case: &Case<'_>, exit: Exit, axis: TrafficAxis) -> Option<String> {
    let Traffic { observed, unseen, .. } = case.traffic();
    let is_about_others = *observed && unseen.may_have_others();
    let matters = case.stop().is_some() || is_about_others || unseen.clients || unseen.sent_later || unseen.refused_before;
    if axis != TrafficAxis::Unknown || exit != Exit::Clean || !matters {
        return None;
    }
    let not_observed = |why: &str| format!("the sockets of the {} were not observed{why}", subject(case));
    Some(match unseen {
        UnseenTraffic { cgroup_v1: true, .. } => not_observed(&format!(
            ": socket tracking needs a cgroup v2 of its own, and this {} shares its cgroup v2 or has none",
            subject(case)
        )),
        UnseenTraffic { unclosed: true, .. } => {
            not_observed(" to their end: the cgroup still existed, and processes in it may close connections later")
        }
        UnseenTraffic { clients: true, .. } => {
            "the listener closed, and this kernel does not show whether clients of other machines and of Services were refused"
                .to_owned()
        }
        UnseenTraffic { sent_later: true, .. } => {
            "the pod may have been Ready in the API after its end: whether a Service sent clients to it then is not observed"
                .to_owned()
        }
        UnseenTraffic {
            refused_before: true, ..
        } => format!(
            "clients were refused before, but too long ago to count without a stop of the {}",
            subject(case)
        ),
        _ if !is_about_others => not_observed(""),
        UnseenTraffic { other_sockets: true, .. } => {
            "a process served clients by a Unix or UDP socket, and what those lost is not observed".to_owned()
        }
        UnseenTraffic { unlooked, .. } => format!(
            "whether clients used a Unix or UDP socket is not known: {}",
            match unlooked {
                Some(Unlooked::TooMany) => "a process had more open files than the probes look at",
                Some(Unlooked::EarlyHandler) => "a process below handled a signal before its open files were looked at",
                Some(Unlooked::NoHandler) | None => "the process reads its stop signal without a handler (signalfd or sigwait)",
            }
        ),
    })
}

fn undecided(traffic: &Traffic) -> String {
    let (all, unheard) = (traffic.undecided.all.count, traffic.undecided.unheard);
    let never = match unheard {
        0 => String::new(),
        1 => "the client of 1 connection never acknowledged the close, and may still wait".to_owned(),
        n => format!("the clients of {n} connections never acknowledged the close, and may still wait"),
    };
    if unheard == all {
        return never;
    }
    let unacknowledged = match traffic.undecided.unacknowledged {
        0 => "",
        1 if all - unheard == 1 => "; the client had not received all of the last answer",
        _ => "; some clients had not received all of the last answer",
    };
    let never = if unheard > 0 { format!("; {never}") } else { never };
    format!(
        "{} may have had a request under way, which the kernel cannot tell{unacknowledged}{never}",
        many(all - unheard, "connection")
    )
}

/// Most peers in a sentence.
const PEERS: usize = 3;

/// " (pod shop/front-1: 12, 10.0.0.7: 2, others: 5)", of `total` refused connections. Empty for the subject itself.
fn whose(traffic: &Traffic, total: u64, of: impl Fn(&&ClientPeer) -> bool) -> String {
    let mut peers: Vec<&ClientPeer> = traffic.peers.top.iter().filter(|peer| peer.refused > 0).filter(of).collect();
    if peers.iter().all(|peer| peer.place == PeerPlace::Itself) {
        return String::new();
    }
    peers.truncate(PEERS);
    let named: u64 = peers.iter().map(|peer| peer.refused).sum();
    if let ([peer], true) = (&peers[..], named == total) {
        return format!(" ({})", peer_name(peer));
    }
    let each = peers.iter().map(|peer| format!("{}: {}", peer_name(peer), peer.refused));
    let others = (named < total).then(|| format!("others: {}", total - named));
    let all: Vec<String> = each.chain(others).collect();
    format!(" ({})", all.join(", "))
}
