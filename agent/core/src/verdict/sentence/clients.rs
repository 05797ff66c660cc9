//! What clients met.

use crate::termination::{ClientPeer, PeerPlace, RefusedSource, Traffic, Unlooked};
use crate::verdict::case::Case;
use crate::verdict::words::{at_least, clients_were, many, peer_name, seconds, subject};
use crate::verdict::{Exit, TrafficAxis};

pub(super) fn clients(case: &Case<'_>, exit: Exit, axis: TrafficAxis) -> Vec<String> {
    let traffic = case.traffic();
    let mut clauses = Vec::new();
    if traffic.cut.count > 0 {
        let unanswered = match traffic.cut_unanswered {
            0 => String::new(),
            1 if traffic.cut.count == 1 => ", with an unanswered request".to_owned(),
            n if n == traffic.cut.count => ", all with an unanswered request".to_owned(),
            n => format!(", {n} of them with an unanswered request"),
        };
        clauses.push(format!(
            "{} dropped at exit{unanswered}",
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
    if traffic.undecided.count > 0 {
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

fn refused(traffic: &Traffic) -> Vec<String> {
    let mut clauses = Vec::new();
    let refused = traffic.refused_clients();
    if refused.count > 0 {
        let window = traffic.refusal_window().map_or(String::new(), |window| {
            format!(" in the {} after the listener closed", seconds(window))
        });
        let source = match traffic.refused_source {
            RefusedSource::ClientError => " (counted only for clients on this machine that did not use a Service)",
            RefusedSource::ServerReset | RefusedSource::None => "",
        };
        let on = if traffic.refusing_on {
            ", and clients were still trying to connect when counting stopped"
        } else {
            ""
        };
        let of = |peer: &&ClientPeer| peer.had_connected || refused.count == traffic.refused.count;
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
    let traffic = case.traffic();
    let is_about_others = traffic.observed && (traffic.other_sockets || traffic.unlooked.is_some());
    let matters = case.stop().is_some() || is_about_others || traffic.unseen_clients || traffic.sent_later;
    if axis != TrafficAxis::Unknown || exit != Exit::Clean || !matters {
        return None;
    }
    if traffic.sent_later && !traffic.cgroup_v1 && !traffic.unclosed && !traffic.unseen_clients {
        return Some(
            "the pod may have been Ready in the API after its end: whether a Service sent clients to it then is not observed"
                .to_owned(),
        );
    }
    let why = match traffic {
        Traffic { cgroup_v1: true, .. } => format!(
            ": socket tracking needs a cgroup v2 of its own, and this {} shares its cgroup v2 or has none",
            subject(case)
        ),
        Traffic { unclosed: true, .. } => {
            " to their end: the cgroup still existed, and processes in it may close connections later".to_owned()
        }
        _ => String::new(),
    };
    Some(match (why.as_str(), traffic.unseen_clients) {
        ("", false) if is_about_others && !traffic.other_sockets => format!(
            "whether clients used a Unix or UDP socket is not known: {}",
            match traffic.unlooked {
                Some(Unlooked::TooMany) => "a process had more open files than the probes look at",
                Some(Unlooked::NoHandler) | None => "the process reads its stop signal without a handler (signalfd or sigwait)",
            }
        ),
        ("", false) if is_about_others => {
            "a process served clients by a Unix or UDP socket, and what those lost is not observed".to_owned()
        }
        ("", true) => {
            "the listener closed, and this kernel does not show whether clients of other machines and of Services were refused"
                .to_owned()
        }
        _ => format!("the sockets of the {} were not observed{why}", subject(case)),
    })
}

fn undecided(traffic: &Traffic) -> String {
    let (all, unheard) = (traffic.undecided.count, traffic.undecided_unheard);
    let never = match unheard {
        0 => String::new(),
        1 => "the client of 1 connection never acknowledged the close, and may still wait".to_owned(),
        n => format!("the clients of {n} connections never acknowledged the close, and may still wait"),
    };
    if unheard == all {
        return never;
    }
    let unacknowledged = match traffic.undecided_unacknowledged {
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
