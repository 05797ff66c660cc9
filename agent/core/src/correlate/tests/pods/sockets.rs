//! Sockets are watched, and clients counted, from the request on.

use expect_test::expect;

use super::{run, web};
use crate::fixtures::script::{Played, play_all};
use crate::report::{Command, Report};

#[test]
fn what_clients_see_counts_from_the_request() {
    let outputs = run(&web("
        +0.5 tcp web:app accepted 80 5000
        +1.05 pod web deleted=+1:30
        +3 tcp web:app accepted 80 5001
        +6 TERM runc -> main handler
        +6.01 enter main TERM
        +6.02 tcp web:app closed 80
        +6.1 tcp web:app refused 80 5002
        +6.5 exit main 0
        +8 gone web
        "));
    let pods = outputs.iter().filter_map(|(_, output)| match output {
        Report::PodTerminated(pod) => Some(&pod.containers[0].traffic),
        _ => None,
    });
    let traffic: Vec<_> = pods.collect();
    assert_eq!(traffic.len(), 1);
    assert!(traffic[0].observed);
    assert_eq!((traffic[0].accepted.count, traffic[0].refused.all.count), (1, 1));
}

/// From the request on the sockets are watched, whichever stop signal is the first.
#[test]
fn a_stop_signal_that_may_be_lost_after_the_request_leaves_the_traffic_known() {
    for (lost, observed) in [
        ("+2 lost signal_generate +1.5 1", true),
        ("+1.01 lost signal_generate +0.9 1", false),
    ] {
        let outputs = run(&web(&format!(
            "+1.05 pod web deleted=+1:30
            {lost} within web:app
            +6 TERM runc -> main handler
            +6.01 enter main TERM
            +6.02 tcp web:app closed 80
            +6.5 exit main 0
            +8 gone web"
        )));
        let traffic = outputs.iter().find_map(|(_, output)| match output {
            Report::PodTerminated(pod) => Some(&pod.containers[0].traffic),
            _ => None,
        });
        assert_eq!(traffic.expect("a termination").observed, observed, "{lost}");
    }
}

/// The maps of the new agent do not have the port: nobody records whom it refuses after the request.
#[test]
fn a_listener_that_closed_just_before_a_restart_and_the_request_leaves_the_traffic_unknown() {
    for (agent, observed) in [
        ("+9.9 tick", true),
        ("+9.9 tick\n+10 start\n+10 found main\n+10 scanned\n+10.1 api synced", false),
    ] {
        let listed = if agent.contains("start") {
            "+10.2 pod web app=running"
        } else {
            ""
        };
        let script = web(&format!(
            "
            +9.8 tcp web:app closed 80 by-own
            {agent}
            {listed}
            +10.35 pod web deleted=+10.3:30
            +10.5 TERM runc -> main handler
            +10.51 enter main TERM
            +11 exit main 0
            +12 gone web"
        ));
        let outputs = run(&format!("-100 start\n-100 scanned\n{script}"));
        let traffic = outputs.iter().find_map(|(_, output)| match output {
            Report::PodTerminated(pod) => Some(&pod.containers[0].traffic),
            _ => None,
        });
        assert_eq!(traffic.expect("a termination").observed, observed, "{agent}");
    }
}

/// A late proxy sends clients to a pod after its container's exit; the cgroup is gone by then, and the status has arrived.
fn late_proxy(refused: impl Iterator<Item = u32>) -> Vec<(crate::time::Boot, Report)> {
    let refusals: String = refused
        .map(|i| format!("+{}.5 tcp web:app refused 80 {}\n", i, 6_000 + i))
        .collect();
    run(&web(&format!(
        "+1.05 pod web deleted=+1:30
        +1.2 tcp web:app accepted 80 5000
        +2 TERM runc -> main handler
        +2.01 enter main TERM
        +2.02 tcp web:app closed 80
        +2.1 exit main 0
        +2.2 pod web deleted=+1:30 app=0:Completed
        +2.3 rmdir web:app
        +2.4 gone web
        {refusals}"
    )))
}

fn told(outputs: &[(crate::time::Boot, Report)]) -> (String, u64) {
    let mut pods = outputs.iter().filter_map(|(now, output)| match output {
        Report::PodTerminated(pod) => Some((super::at(*now), pod.containers[0].traffic.refused.all.count)),
        _ => None,
    });
    let told = pods.next().expect("told");
    assert!(pods.next().is_none(), "told once");
    told
}

#[test]
fn the_refusals_of_a_late_proxy_count_until_they_end() {
    expect![[r#"
        (
            "+16.500",
            10,
        )
    "#]]
    .assert_debug_eq(&told(&late_proxy(2..12)));
}

#[test]
fn but_not_for_ever() {
    expect![[r#"
        (
            "+32.100",
            30,
        )
    "#]]
    .assert_debug_eq(&told(&late_proxy(2..60)));
}

#[test]
fn a_deletion_has_each_container_watched_once_and_let_go_once() {
    let script = web("
        pod web app late
        +1.05 pod web deleted=+1:600
        +1.1 pod web deleted=+1:500
        +2 mkdir web:late
        proc late in=web:late pid=110 ns=1 start=+2 parent=shim comm=late
        +2 exec late
        +100 TERM runc -> main handler
        +100.01 enter main TERM
        +100.1 exit main 0
        +100.2 TERM runc -> late handler
        +100.21 enter late TERM
        +100.3 exit late 0
        +102 gone web
        ");
    let Played { reports, commands } = play_all(&script);
    let mut text = String::new();
    for (now, report) in reports {
        let line = match report {
            Report::Workload(workload) => format!("{} workload {}\n", super::at(now), workload.name),
            Report::WorkloadGone(workload) => format!("{} workload gone {}\n", super::at(now), workload.name),
            _ => continue,
        };
        text.push_str(&line);
    }
    for (now, command) in commands {
        let line = match command {
            Command::Watch(cgroup) => format!("{} watch {}\n", super::at(now), cgroup.id),
            Command::Forget(cgroup) => format!("{} forget {}\n", super::at(now), cgroup.id),
            Command::ListEvents(pod) => format!("{} events {}\n", super::at(now), pod.name),
        };
        text.push_str(&line);
    }
    expect![[r#"
        -58.000 workload web
        +1.050 watch 104
        +2.000 watch 105
        +100.400 events web
        +102.200 forget 104
        +102.400 forget 105
    "#]]
    .assert_eq(&text);
}

/// A connection that no listener here would have accepted does not delay a report; a termination with counting in progress is waited
/// for, although its cgroup and its pod are gone.
#[test]
fn refusals_at_another_address_of_the_port_hold_no_end_up() {
    let outputs = |polled: &str| {
        let polls: String = (3..25)
            .map(|i| format!("+{i}.5 tcp web:app refused 80 {} server={polled}\n", 6_000 + i))
            .collect();
        run(&web(&format!(
            "+1.05 pod web deleted=+1:30
        +2 TERM runc -> main handler
        +2.01 enter main TERM
        +2.02 tcp web:app closed 80 0 server=::1
        +2.1 exit main 0
        +2.15 tcp web:app refused 80 6000 server=::1
        +2.2 pod web deleted=+1:30 app=0:Completed
        +2.3 rmdir web:app
        +2.4 gone web
        {polls}"
        )))
    };
    // Five seconds after the last refusal of its own.
    assert_eq!(told(&outputs("127.0.0.1")), ("+7.300".to_owned(), 1));
    assert_eq!(told(&outputs("::1")), ("+29.500".to_owned(), 23));
}
