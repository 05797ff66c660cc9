//! For a process that lost connections of its clients.

use super::asked::{Asked, Remedy};
use crate::attribute::Subject;
use crate::verdict::advice::NeededSleep;
use crate::verdict::judge::Why;
use crate::verdict::own_time;
use crate::verdict::sentence::clients;
use crate::verdict::sentence::settings::Managed;
use crate::verdict::table::row;
use crate::verdict::words::{at_least, clients_were, lower, many, seconds};
use crate::verdict::{Cause, Exit, TrafficAxis};

/// Before the remedy for an exit with an error: cut requests are lost with any exit code.
pub const BESIDE: &[Remedy] = &[Remedy {
    name: "finish-the-requests-first",
    helps_if: "The process failed, and requests under way were cut. These are two faults, and the report has a remedy for each.",
    holds: |of| of.axis == TrafficAxis::Cut && matches!(of.why(), Why::Nonzero | Why::ChildFailed),
    words: |of| Some(of_axis(of)),
}];

/// Of a process that exited cleanly.
pub const OF_CLEAN: &[Remedy] = &[
    Remedy {
        name: "socket-unit",
        helps_if: "Clients of a systemd unit were refused while the unit was down. systemd can hold the listener during that time.",
        holds: |of| is_clean(of, &[TrafficAxis::Refused]) && is_unit(of),
        words: |of| {
            Some(format!(
                "{} refused while the unit was down: a socket unit keeps the listener open over a restart",
                refused(of)
            ))
        },
    },
    Remedy {
        name: "socket-unit-for-new-peers",
        helps_if: "While a systemd unit was down, only peers that had not connected before were refused, and these peers are clients.",
        holds: |of| is_clean(of, &[TrafficAxis::RefusedNewPeers]) && is_unit(of),
        words: |_| {
            Some(
                "look at the addresses of the refused peers: if they are clients, a socket unit keeps the listener open over a restart"
                    .to_owned(),
            )
        },
    },
    // Proxies send clients elsewhere only if the pod is deleted.
    Remedy {
        name: "another-replica",
        helps_if: "Clients were refused while a container or its pod restarted in place. At such a restart no proxy sends the clients to \
                   another pod.",
        holds: |of| is_without_a_request(of) && restarts(of),
        words: without_a_request,
    },
    Remedy {
        name: "drain-the-node-first",
        helps_if: "Clients of a pod were refused during the shutdown of its node, and nobody had requested the pod's deletion.",
        holds: |of| is_without_a_request(of) && of.finding.cause == Cause::NodeShutdown,
        words: without_a_request,
    },
    Remedy {
        name: "accept-without-a-deletion",
        helps_if: "Clients of a pod were refused. As far as is known, nobody had requested the pod's deletion, so no proxy had sent the \
                   clients to another pod.",
        holds: is_without_a_request,
        words: without_a_request,
    },
    Remedy {
        name: "accept-until-clients-stop",
        helps_if: "Clients were still refused when Epitaph stopped counting, so it is not known how long the process would have to wait.",
        holds: |of| is_clean(of, &[TrafficAxis::Refused]) && of.case.traffic().refused.goes_on,
        words: |of| {
            Some(format!(
                "{} refused, and clients were still trying to connect when counting stopped: {}, or send clients elsewhere before the {}",
                refused(of),
                accept_longer(of),
                ending(of)
            ))
        },
    },
    Remedy {
        name: "pre-stop-sleep",
        helps_if: "Clients of a deleted pod were refused after its listener had closed, and the time until the last refusal was measured.",
        holds: |of| is_measured(of) && Managed::of(of.case) == Managed::Pod,
        words: |of| {
            let (window, least, sleep) = measured(of)?;
            Some(format!(
                "{} refused in the {window} after the listener closed: {}",
                refused(of),
                own_time::sleep_avoids(of.case, least, sleep, "the refusals")
            ))
        },
    },
    Remedy {
        name: "accept-for-longer",
        helps_if: "Clients of a container without a pod were refused after its listener had closed, and the time until the last refusal \
                   was measured.",
        holds: is_measured,
        words: |of| {
            let (window, least, sleep) = measured(of)?;
            Some(format!(
                "{} refused in the {window} after the listener closed: keep accepting for {least}{sleep} s {}, or send clients elsewhere before \
                 the {}",
                refused(of),
                since_when(of),
                ending(of)
            ))
        },
    },
    Remedy {
        name: "let-the-sleep-end",
        helps_if: "Clients of a pod were refused, and the pod's preStop sleep was still running when the grace period ended.",
        holds: |of| is_clean(of, &[TrafficAxis::Refused]) && own_time::for_the_sleep(of.case).is_some(),
        words: |of| {
            Some(format!(
                "{} refused, and the preStop sleep was cut: {}",
                refused(of),
                own_time::for_the_sleep(of.case)?
            ))
        },
    },
    Remedy {
        name: "listen-until-clients-stop",
        helps_if: "Clients of a deleted pod were refused, and it is not known for how long.",
        holds: |of| is_clean(of, &[TrafficAxis::Refused]) && Managed::of(of.case) == Managed::Pod,
        words: |of| Some(of_axis(of)),
    },
    Remedy {
        name: "accept-until-clients-stop-connecting",
        helps_if: "Clients of a container without a pod were refused, and it is not known for how long.",
        holds: |of| is_clean(of, &[TrafficAxis::Refused]),
        words: |of| Some(accept_longer(of)),
    },
    // A pod has an advice for the refused connections.
    Remedy {
        name: "finish-the-requests-and-keep-accepting",
        helps_if: "Requests to a systemd unit, or to a container without a pod, were cut or reset, and other clients were refused.",
        holds: |of| {
            let is_alone = of.case.kubernetes.is_none() && of.case.traffic().refused_clients().count > 0;
            is_clean(of, &[TrafficAxis::Reset, TrafficAxis::Cut]) && is_alone
        },
        words: |of| {
            Some(format!(
                "{}; for the {}: {}",
                dropped(of),
                many(of.case.traffic().refused_clients().count, "refused connection"),
                accept_longer(of)
            ))
        },
    },
    Remedy {
        name: "finish-the-requests",
        helps_if: "Open connections with an unanswered request were dropped at the exit.",
        holds: |of| is_clean(of, &[TrafficAxis::Cut]),
        words: |of| Some(of_axis(of)),
    },
    Remedy {
        name: "serve-the-queue",
        helps_if: "Connections that the server had not accepted were reset when its listener closed. Other connections may have been reset \
                   because of data that the server had not read.",
        holds: |of| is_clean(of, &[TrafficAxis::Reset]) && of.case.traffic().reset_queued > 0,
        words: |of| Some(dropped(of)),
    },
    Remedy {
        name: "read-all-data",
        helps_if: "Connections were reset because the server closed them before it had read or sent all data.",
        holds: |of| is_clean(of, &[TrafficAxis::Reset]),
        words: |of| Some(dropped(of)),
    },
    Remedy {
        name: "find-what-took-the-way",
        helps_if: "No client of an open connection acknowledged the close: the network path to these clients was gone.",
        holds: |of| {
            let traffic = of.case.traffic();
            is_clean(of, &[TrafficAxis::Undecided]) && traffic.undecided.unheard == traffic.undecided.all.count
        },
        words: |_| {
            Some(
                "look for requests without an end in the logs of the clients, and find out why the network path to the clients was gone: a \
                 route or a policy that was removed while the process still served, or a client's own machine that failed"
                    .to_owned(),
            )
        },
    },
    Remedy {
        name: "end-each-connection",
        helps_if: "Connections were open at the exit, and whether a request was under way is not known.",
        holds: |of| is_clean(of, &[TrafficAxis::Undecided]),
        words: |of| Some(of_axis(of)),
    },
    Remedy {
        name: "look-at-the-new-peers",
        helps_if: "Only peers that had not connected before were refused, and these are clients.",
        holds: |of| is_clean(of, &[TrafficAxis::RefusedNewPeers]),
        words: |of| Some(of_axis(of)),
    },
    Remedy {
        name: "find-the-rule-that-rejects",
        helps_if: "The network rejected connections on the way to a process that was still running.",
        holds: |of| is_clean(of, &[TrafficAxis::ProxyRejected]),
        words: |of| Some(of_axis(of)),
    },
];

fn is_clean(of: &Asked<'_>, axes: &[TrafficAxis]) -> bool {
    of.exit() == Exit::Clean && axes.contains(&of.axis)
}

/// Refused clients of a pod whose deletion nobody requested.
fn is_without_a_request(of: &Asked<'_>) -> bool {
    let is_alone = of.case.kubernetes.is_some_and(|context| context.request.is_none());
    is_clean(of, &[TrafficAxis::Refused]) && is_alone
}

fn restarts(of: &Asked<'_>) -> bool {
    matches!(
        of.finding.cause,
        Cause::RestartInPlace | Cause::Liveness | Cause::Startup | Cause::Restart
    )
}

fn without_a_request(of: &Asked<'_>) -> Option<String> {
    let how = clients::without_a_request(of.case, of.finding.cause);
    Some(format!("{} refused {how}", refused(of)))
}

fn is_unit(of: &Asked<'_>) -> bool {
    matches!(of.case.subject, Subject::Unit { .. })
}

fn of_axis(of: &Asked<'_>) -> String {
    lower(row(Exit::Clean, of.axis).remedy)
}

fn refused(of: &Asked<'_>) -> String {
    let traffic = of.case.traffic();
    clients_were(traffic, traffic.refused_clients().count, "connection")
}

fn is_measured(of: &Asked<'_>) -> bool {
    is_clean(of, &[TrafficAxis::Refused]) && measured(of).is_some()
}

/// From the close of the listener to the last refused client, and the sleep that would have been enough.
fn measured(of: &Asked<'_>) -> Option<(String, &'static str, u64)> {
    let traffic = of.case.traffic();
    let (window, sleep) = traffic.refusal_window().zip(NeededSleep::of(of.case))?;
    // Of clients that were not all seen, the last one may have come later.
    Some((seconds(window), at_least(traffic), sleep.seconds))
}

fn accept_longer(of: &Asked<'_>) -> String {
    format!("keep accepting {} until clients stop connecting", since_when(of))
}

fn since_when(of: &Asked<'_>) -> &'static str {
    match of.case.stop() {
        Some(_) => "after the stop signal",
        None => "before the exit",
    }
}

fn ending(of: &Asked<'_>) -> &'static str {
    match of.case.stop() {
        Some(_) => "stop",
        None => "exit",
    }
}

/// Of resets only what happened: in the accept queue, or later.
fn dropped(of: &Asked<'_>) -> String {
    let traffic = of.case.traffic();
    match (of.axis, traffic.reset_queued) {
        (TrafficAxis::Reset, 0) => "finish the requests in flight, and read all data before closing a connection".to_owned(),
        (TrafficAxis::Reset, queued) if queued == traffic.reset.count => {
            "accept and serve the queued connections before closing the listener".to_owned()
        }
        _ => of_axis(of),
    }
}
