//! What a shutdown costs the clients of the pods, and pods that are started on a node that is going.

use expect_test::expect;

use super::*;
use crate::shutdown::{ClientLoss, NodeShutdownFacts};
use crate::verdict::TrafficAxis;

/// `web` closes its listener at its stop signal; the API shows it as Ready until it has ended.
const LOSSY: &str = "
    -1 pod web ready=-50 app=running
    -1 pod dns ready=-50 dns=running
    +1 node prepare true reboot
    +1.1 TERM runc -> main handler
    +1.11 enter main TERM
    +1.12 tcp web:app closed 8080
    +1.3 tcp web:app refused 8080 40001
    +2.3 tcp web:app refused 8080 40002
    +4 tcp web:app reset 8080 40003
    +5 exit main 0
    +5.1 rmdir web:app
    +5.2 pod web phase=failed reason=Terminated unready=+5 app=0:Completed
    +10 TERM runc -> dns handler
    +10.01 enter dns TERM
    +12 exit dns 0
    +12.1 rmdir dns:dns
    +12.5 pod dns phase=failed reason=Terminated unready=+12 dns=0:Completed
    +13 node locks epitaph:delay:900
    +13.3 node job reboot.target
    ";

fn facts(script: &str) -> NodeShutdownFacts {
    let of = |(_, report): (crate::time::Boot, Report)| match report {
        Report::NodeShutdown(of) => Some(of.facts),
        _ => None,
    };
    let mut all: Vec<_> = play_all(script).reports.into_iter().filter_map(of).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn lossy(rest: &str) -> String {
    node(&[LOSSY, rest].concat())
}

#[test]
fn a_graceful_shutdown_loses_requests_while_the_pod_is_ready() {
    check(
        &lossy("+16 node agent-ends\n+60 end"),
        expect![[r#"
            +9.000 pod web reset-connections: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 3.9 s later; the node was shutting down; at least 1 connection was reset; at least 2 connections were refused in the 1.2 s after the listener closed (10.0.0.2)
            +16.000 node 1 Warning +1.000…+16.000 graceful AgentEnded
              the reboot was announced by logind, and all pods (2) terminated within 11.0 s (normal phase took 4.0 s of 40 s, critical phase took 7.0 s of 20 s); logind waited 12.3 s of at most 60 s; clients lost at least 3 connections: Deployment shop/web 3 (2 refused, 1 reset); shop/web was Ready in the API for 4.1 s after its stop signal, and a Service sends clients to Ready pods
              fix: drain the node before its shutdown (`kubectl drain`): a drain deletes the pods, and the endpoints of a deleted pod stop being ready at once; the endpoints of a pod that the kubelet stops at a shutdown may stay ready until the pod has ended. Each pod's own remedy applies, too
            +16.000 pod dns clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down
        "#]],
    );
}

/// On a real node, `quiet` where clients lost sixteen connections: the address of a pod goes with its sandbox, before its endpoint.
#[test]
fn of_a_pod_that_is_ready_after_its_end_quiet_is_not_known() {
    let quiet = |of_web: &str| {
        let lost = [
            "+1.3 tcp web:app refused 8080 40001",
            "+2.3 tcp web:app refused 8080 40002",
            "+4 tcp web:app reset 8080 40003",
        ];
        let script = lost.iter().fold(LOSSY.to_owned(), |script, line| script.replace(line, ""));
        let known = "+5.2 pod web phase=failed reason=Terminated unready=+5 app=0:Completed";
        node(&[&script.replace(known, of_web), "+16 node agent-ends\n+60 end"].concat())
    };
    let web = |script: &str| {
        let of = |(_, report): (crate::time::Boot, Report)| match report {
            Report::PodTerminated(of) if of.facts.pod.name == "web" => Some((of.verdict.headline, of.verdict.sentence)),
            _ => None,
        };
        play_all(script).reports.into_iter().find_map(of).expect("a report of web")
    };
    let after = "+5.2 pod web phase=failed reason=Terminated unready=+5 app=0:Completed";
    let (headline, sentence) = web(&quiet(after));
    assert_eq!(headline, "clean-exit", "{sentence}");
    assert!(
        sentence.contains("the pod may have been Ready in the API after its end"),
        "{sentence}"
    );
    assert!(facts(&quiet(after)).loss().is_least);
    assert_eq!(facts(&quiet(after)).loss().known(), None);
    // Unready before: the Service had left it out.
    let term = "+1.1 TERM runc -> main handler";
    let before = quiet(after).replace(term, &format!("+1.05 pod web unready=+1 app=running\n{term}"));
    let (headline, sentence) = web(&before);
    assert_eq!(headline, "clean", "{sentence}");
    assert!(!facts(&before).loss().is_least);
    // No status came any more.
    assert!(facts(&quiet("")).loss().is_least);
    // Reported without its pod.
    let alone = |(_, report): (crate::time::Boot, Report)| match report {
        Report::Terminated(of) if of.verdict.sentence.contains("`app`") => Some(of.verdict.traffic),
        _ => None,
    };
    let traffic = play_all(&quiet("")).reports.into_iter().find_map(alone);
    assert_eq!(traffic, Some(TrafficAxis::Unknown));
    // Less evidence: the deletion of the object came later, and is all that a list shows after an outage.
    let term = "+4 api away";
    let listed =
        format!("{term}\n+9 api synced\n+9 pod web phase=failed reason=Terminated unready=+5 deleted=+8:30 app=0:Completed");
    let (headline, sentence) = web(&quiet(&listed));
    assert_eq!(headline, "clean-exit", "{sentence}");
    // Ready again in an outage.
    let outage = "+1.05 pod web unready=+1 app=running\n+1.07 api away\n+1.1 TERM runc -> main handler";
    let (headline, sentence) =
        web(&quiet(&format!("+5.15 api synced\n{after}")).replace("+1.1 TERM runc -> main handler", outage));
    assert_eq!(headline, "clean-exit", "{sentence}");
    // A force delete, before the end: the endpoint goes with the object.
    let (headline, sentence) = web(&quiet("").replace("+5 exit main 0", "+3 gone web\n+5 exit main 0"));
    assert_eq!(headline, "clean", "{sentence}");
}

/// The next case to it: all was seen, and nothing was lost.
#[test]
fn a_graceful_shutdown_that_loses_nothing_is_known_to() {
    let of = facts(&node(&[ORDERLY, "+16 node agent-ends\n+60 end"].concat()));
    assert_eq!((of.loss(), of.loss().known()), (ClientLoss::default(), Some(0)));
    assert_eq!(
        verdicts(&node(&[ORDERLY, "+16 node agent-ends\n+60 end"].concat())),
        ["graceful"]
    );
}

/// What nobody could see is not nothing.
#[test]
fn sockets_that_were_not_observed_leave_the_number_unknown() {
    let unseen = "-70 probe inet_sock_set_state\n-70 probe tcp_send_reset\n";
    let nothing = facts(&node(&[unseen, ORDERLY, "+16 node agent-ends\n+60 end"].concat()));
    assert_eq!((nothing.loss().is_least, nothing.loss().known()), (true, None));
    let lost = "+4.5 lost tcp +4.2 1 within web:app\n+5 exit main 0";
    let some = facts(&lossy("+16 node agent-ends\n+60 end").replace("+5 exit main 0", lost));
    // Whether the reset one was a client's is in doubt.
    assert_eq!((some.loss().is_least, some.loss().known()), (true, Some(2)));
}

/// Nobody counts what clients lose later, at an endpoint that is still ready.
#[test]
fn clients_that_still_connect_when_counting_stops_lose_at_least_what_was_counted() {
    let refused: Vec<String> = (14..40)
        .step_by(4)
        .map(|at| format!("+{at} tcp web:app refused 8080 {}", 40_000 + at))
        .collect();
    let early = LOSSY.replace(
        "+10 TERM runc",
        "+6 tcp web:app refused 8080 40006\n+10 tcp web:app refused 8080 40010\n+10 TERM runc",
    );
    let of = facts(&node(
        &[&early, &*refused.join("\n"), "\n+45 node agent-ends\n+60 end"].concat(),
    ));
    assert!(of.loss().is_least && of.loss().refused > 6, "{:?}", of.loss());
}

/// The agent is asked to end before the last pod has: the next boot has the whole of it.
#[test]
fn the_next_boot_counts_what_an_agent_saw_that_ended_within_the_shutdown() {
    let script = node(
        &LOSSY
            .replace("+12 exit dns 0", "+11.5 node agent-ends\n+12 exit dns 0")
            .replace(
                "+13.3 node job reboot.target",
                "+13.3 node job reboot.target\n+30 reboot back=+45\n+31 node kubelet-state start=+1 end=+13\n+40 end",
            ),
    );
    let of = facts(&script);
    assert_eq!((of.loss().lost(), of.loss().refused, of.loss().reset), (3, 2, 1));
}

/// Whatever reason ended a pod during the shutdown: what another one costs is not the shutdown's.
#[test]
fn what_a_deletion_costs_is_not_the_shutdowns() {
    let script = lossy("+16 node agent-ends\n+60 end").replace(
        "+1.1 TERM runc -> main handler",
        "+0.5 skew 0 0\n+1.05 pod web deleted=+1:30\n+1.1 TERM runc -> main handler",
    );
    let script = script.replace(
        "+5.2 pod web phase=failed reason=Terminated unready=+5 app=0:Completed",
        "+5.2 gone web",
    );
    assert_eq!(facts(&script).loss().lost(), 0);
}

/// A status after an interruption of the watch comes late, and a watch that is silent is no evidence: the network goes down, too.
#[test]
fn how_long_a_pod_was_ready_is_claimed_by_statuses_only() {
    let ready = |script: &str| {
        let of = facts(script);
        let web = of.others().find(|pod| pod.pod.name == "web").cloned();
        web.and_then(|pod| pod.still_ready)
            .map(|of| (of.lasted.as_millis(), of.is_least))
    };
    let ended = "+16 node agent-ends\n+60 end";
    assert_eq!(ready(&lossy(ended)), Some((4_100, false)));
    let of_web = "+5.2 pod web phase=failed reason=Terminated unready=+5 app=0:Completed";
    assert_eq!(ready(&lossy(ended).replace(of_web, "")), None);
    assert_eq!(
        ready(&lossy(ended).replace(of_web, "+5.2 pod web ready=-50 app=running")),
        Some((4_100, true))
    );
    assert_eq!(
        ready(&lossy(ended).replace(of_web, &format!("+4 api away\n+5.1 api synced\n{of_web}"))),
        None
    );
    let away = format!("-2 api away\n{}", LOSSY.replace("+4 tcp", "+3.9 api synced\n+4 tcp"));
    assert_eq!(ready(&node(&[&*away, ended].concat())), None);
    // By its readiness probe, before its stop signal.
    let before = "+1.05 pod web unready=+1 app=running\n+1.1 TERM runc -> main handler";
    assert_eq!(ready(&lossy(ended).replace("+1.1 TERM runc -> main handler", before)), None);
}

/// `late` starts on a node that is going, and has ended before the node's own report.
const STARTED: &str = "
    pod late priority=0 grace=30 app
    +1.5 mkdir late:app
    proc late in=late:app pid=120 ns=1 start=+1.5 parent=shim comm=late
    +1.5 exec late
    +1.7 pod late app=running
    +2 TERM runc -> late handler
    +2.01 enter late TERM
    +3 exit late 0
    +3.1 rmdir late:app
    +3.5 pod late phase=failed reason=Terminated app=0:Completed
    ";

#[test]
fn a_pod_that_was_started_within_the_shutdown_is_named() {
    let begin = ORDERLY.replace("+9 exit main 0", &[STARTED, "+9 exit main 0"].concat());
    check(
        &node(&[&*begin, "+16 node agent-ends\n+60 end"].concat()),
        expect![[r#"
        +7.100 pod late clean: NodeShutdown, by 1 PrepareForShutdown
          container `app`: the container runtime sent SIGTERM to PID 1 `late`, the handler ran, and the process exited with code 0, 1.0 s later; the node was shutting down
        +13.000 pod web clean: NodeShutdown, by 1 PrepareForShutdown
          container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
        +16.000 node 1 Info +1.000…+16.000 graceful AgentEnded
          the reboot was announced by logind, and all pods (3) terminated within 11.0 s (normal phase took 8.0 s of 40 s, critical phase took 3.0 s of 20 s); logind waited 12.3 s of at most 60 s; 1 pod was started during the shutdown: shop/late
          fix: cordon or drain the node before its shutdown (`kubectl cordon`, `kubectl drain`): the scheduler places no pods on a cordoned node
        +16.000 pod dns clean: NodeShutdown, by 1 PrepareForShutdown
          container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down
    "#]],
    );
}

/// The next case to it: a container that starts again in a pod of before.
#[test]
fn a_restart_within_the_shutdown_starts_no_pod() {
    let again = "
        +1.5 mkdir web:next
        proc next in=web:next pid=120 ns=1 start=+1.5 parent=shim comm=next
        +1.5 exec next
        +1.6 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:next app=running
        +2 TERM runc -> next handler
        +3 exit next 0
        +3.1 rmdir web:next
    ";
    let script = ORDERLY
        .replace("+9 exit main 0", "")
        .replace("+9.1 rmdir web:app", "")
        .replace("+1.1 TERM runc -> main handler", "+1.1 exit main 0")
        .replace("+1.11 enter main TERM", &format!("+1.2 rmdir web:app\n{again}"));
    assert_eq!(
        facts(&node(&[&*script, "+16 node agent-ends\n+60 end"].concat()))
            .started()
            .count(),
        0
    );
}
