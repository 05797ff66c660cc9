//! What a shutdown in order cost all the same: clients' connections, and pods that were started although the node was going.

use expect_test::expect;

use super::*;

/// [`ORDERLY`], with clients of `app` and further lines before the agent ends.
fn orderly(rest: &str) -> String {
    node(&format!(
        "
        -50 tcp web:app accepted 80 4000
        {ORDERLY}
        {rest}
        +30 node agent-ends
        +60 end
        "
    ))
}

/// The listener closes as the handler begins, and clients still come: their Service has the endpoint.
const REFUSED: &str = "
    +1.2 tcp web:app closed 80
    +1.5 tcp web:app refused 80 5001
    +2.5 tcp web:app refused 80 5002
    +5.2 tcp web:app refused 80 5003
    ";

#[test]
fn a_graceful_shutdown_that_loses_requests() {
    check(&orderly(REFUSED), expect![[r#""#]]);
}

#[test]
fn connections_of_two_workloads() {
    let of_dns = "
        +10.1 tcp dns:dns closed 53
        +10.5 tcp dns:dns refused 53 6001
        ";
    check(&orderly(&format!("{REFUSED}{of_dns}")), expect![[r#""#]]);
}

/// Next to it: no client lost a connection.
#[test]
fn a_graceful_shutdown_that_loses_nothing() {
    check(&orderly(""), expect![[r#""#]]);
}

/// The sockets were not observed: nothing is claimed, neither a loss nor none.
#[test]
fn what_was_not_observed_is_not_counted() {
    check(&orderly("+3 lost tcp +1 5 within web:app"), expect![[r#""#]]);
}

/// Of a pod that was deleted before, its own termination has the connections.
#[test]
fn what_a_deletion_cost_is_not_the_shutdowns() {
    let deleted = "
        -15 skew 0 0
        -15 pod web deleted=-15:30 app=running
        -14.9 TERM runc -> main handler
        -14.89 enter main TERM
        -14.8 tcp web:app closed 80
        -14.5 tcp web:app refused 80 5001
        -10 exit main 0
        -9.9 rmdir web:app
        -9.5 gone web
        +1 node prepare true reboot
        +10 TERM runc -> dns handler
        +10.01 enter dns TERM
        +12 exit dns 0
        +12.1 rmdir dns:dns
        +12.5 pod dns phase=failed reason=Terminated dns=0:Completed
        +13 node locks
        +13.3 node job reboot.target
        +30 node agent-ends
        +60 end
        ";
    check(
        &node(&format!("-50 tcp web:app accepted 80 4000\n{deleted}")),
        expect![[r#""#]],
    );
}

const LATE: &str = "
    pod late priority=0 grace=30 app
    +3 pod late phase=pending
    +3.5 mkdir late:app
    proc late in=late:app pid=130 ns=1 start=+3.6 parent=shim comm=late
    +3.6 exec late
    +4 pod late app=running
    ";

#[test]
fn a_pod_that_is_started_on_a_node_that_is_going() {
    check(&orderly(LATE), expect![[r#""#]]);
}

/// It has ended again by the end.
#[test]
fn a_pod_that_is_started_and_ends_within_the_shutdown() {
    let ends = "
        +6 TERM runc -> late handler
        +6.01 enter late TERM
        +7 exit late 0
        +7.1 rmdir late:app
        +7.5 pod late phase=failed reason=Terminated app=0:Completed
        ";
    check(&orderly(&format!("{LATE}{ends}")), expect![[r#""#]]);
}

/// Next to it: a container that restarts in a pod that ran before.
#[test]
fn a_container_that_restarts_is_no_pod_that_is_started() {
    let restarts = "
        +3 exit main 1
        +3.1 rmdir web:app
        +4 mkdir web:app:2
        proc again in=web:app:2 pid=140 ns=1 start=+4.1 parent=shim comm=app
        +4.1 exec again
        +4.2 pod web app.last=web:app:1:Error app.restarts=1 app.id=web:app:2 app=running
        ";
    let script = node(&format!(
        "
        +1 node prepare true reboot
        {restarts}
        +30 node agent-ends
        +60 end
        "
    ));
    let played = play_all(&script);
    let started = played.reports.iter().filter_map(|(_, report)| match report {
        Report::NodeShutdown(of) => Some(of.started().count()),
        _ => None,
    });
    assert_eq!(started.collect::<Vec<_>>(), [0]);
}
