//! The pods at a node's shutdown: cut or not, and whose fault it was.

use expect_test::expect;

use super::*;

#[test]
fn a_phase_cuts_a_pod_that_has_a_longer_grace() {
    check(
        &cut_by_a_phase("", ""),
        expect![[r#"
            +60.000 container 000000000000 truncated-by-shutdown: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`; the container runtime sent SIGKILL 40.0 s later, before the end of the container's grace period of 120 s; the node was shutting down
            +60.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 1.0 s later; the node was shutting down
            +60.000 node 1 Critical +1.000…+60.000 truncated UNCLEAN ObservationEnded
              the reboot did not wait for the shutdown of 1 of 2 pods: shop/web (had 40.0 s of its 120 s) (normal phase took 40.1 s of 40 s, critical phase took 1.9 s of 20 s)
              fix: raise shutdownGracePeriod to 140 s, and logind's InhibitDelayMaxSec to at least 140 s, or shorten the shutdown of shop/web, which may take 120 s
        "#]],
    );
}

/// Somebody deletes the pod meanwhile: that took nothing, unless what it gave had ended by the SIGKILL.
#[test]
fn a_deletion_during_the_shutdown_explains_a_cut_only_by_its_own_end() {
    let is_cut_by = |clock: &str, before: &str, deleted: &str| {
        let script = cut_by_a_phase("", clock).replace(before, &format!("{deleted}\n{before}"));
        show(&play_all(&script)).contains(" truncated-by-shutdown: NodeShutdown")
    };
    let is_cut = |before: &str, deleted: &str| is_cut_by("+1 skew -10 10", before, deleted);
    assert!(is_cut("+41.1 KILL", ""));
    assert!(is_cut("+41.1 KILL", "+3 pod web deleted=+3:60"));
    assert!(!is_cut("+41.1 KILL", "+3 pod web deleted=+3:20"));
    assert!(is_cut("+44 node", "+43.5 pod web deleted=+43:5"), "after the SIGKILL");
    // Clocks that were not compared: the watch shows that it came after the SIGKILL, also where the API server's clock is behind.
    assert!(is_cut_by("", "+44 node", "+43.5 pod web deleted=+43:5"));
    // By that clock what the deletion gave had ended, and by the watch it had not: a watch can be slower than most.
    assert!(!is_cut_by("", "+44 node", "+43.5 pod web deleted=+30:5"));
    assert!(!is_cut_by(
        "+1.05 api away timeout",
        "+44 node",
        "+43.5 pod web deleted=+30:5"
    ));
    let script = cut_by_a_phase("", "").replace("+44 node", "+43.5 pod web deleted=+30:5\n+44 node");
    assert!(show(&play_all(&script)).contains(" unknown: "));
}

/// The same in an outage that began before the stop signal: a deletion may have been requested, with any grace period.
#[test]
fn a_cut_in_an_outage_is_in_doubt() {
    check(
        &cut_by_a_phase("", "+1.05 api away timeout"),
        expect![[r#"
            +60.000 container 000000000000 unknown: Unknown, by 1 PrepareForShutdown
              container `app`: PID 1 `app` was terminated by SIGKILL, but the reason is unknown: the watch of the pods was interrupted, so a deletion request or a shorter grace period may not have been seen; the reason for the termination is unknown: epitaph stopped before the state of the pod was known; the Kubernetes API did not answer during the termination: timeout; when deletion was requested, if it was, is unknown
            +60.000 container 000000000000 clean-exit: Unknown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 1.0 s later; the reason for the termination is unknown: epitaph stopped before the state of the pod was known; the Kubernetes API did not answer during the termination: timeout; when deletion was requested, if it was, is unknown; the sockets of the container were not observed
            +60.000 node 1 Warning +1.000…+60.000 unknown ObservationEnded
              how the reboot went is unknown: a container was killed, and why it was stopped, or how long it had, is not known: shop/web
              fix: read the report of that container: it names the evidence that is missing
        "#]],
    );
}

/// The next case to it: the process has used up its own grace period.
#[test]
fn a_pod_that_needs_more_than_its_own_grace_is_not_cut() {
    check(
        &node(
            "
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +31.1 KILL runc -> main
            +31.11 exit main KILL
            +31.2 rmdir web:app
            +32 TERM runc -> dns handler
            +32.01 enter dns TERM
            +33 exit dns 0
            +34 node locks
            +34.1 node job reboot.target
            +38 node agent-ends
            +60 end
            ",
        ),
        expect![[r#"
            +38.000 node 1 Info +1.000…+38.000 graceful AgentEnded
              the reboot was announced by logind, and all pods (2) terminated within 32.0 s (normal phase took 30.1 s of 40 s, critical phase took 1.9 s of 20 s); logind waited 33.1 s of at most 60 s
            +60.000 container 000000000000 killed-after-grace: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 30.0 s later; the node was shutting down
            +60.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 1.0 s later; the node was shutting down
        "#]],
    );
}

#[test]
fn the_delay_expires_while_a_pod_runs() {
    check(
        &node(
            "
            -80 node limit 30
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +31 node job reboot.target
            +31.1 node state stopping
            +35 reboot back=+60
            +36 node kubelet-state start=+1
            ",
        ),
        expect![[r#"
            +65.000 down +34.900…+60.000 of 1
            +65.000 node 1 Critical +1.000…+34.900 truncated UNCLEAN Down { back: Boot(3660000000000) }
              the reboot did not wait for the shutdown of 2 of 2 pods: shop/dns (got no stop signal), shop/web (had 29.9 s of its 30 s) (normal phase took 30.0 s of 40 s); logind's delay of 30 s expired before the kubelet released its lock
              fix: raise logind's InhibitDelayMaxSec from 30 s to 60 s, which the kubelet's periods need
            +95.000 container 000000000000 truncated-by-shutdown: NodeShutdown, by 1 PrepareForShutdown
              container `app`: PID 1 `app` still ran 29.9 s after SIGTERM, when the shutdown of the node stopped all processes; the node was shutting down
        "#]],
    );
}

/// An exit may be among the lost records.
#[test]
fn lost_records_are_not_a_cut() {
    check(
        &node(
            "
            -80 node limit 30
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +20 lost sched_process_exit +19 5
            +31 node job reboot.target
            +35 reboot back=+60
            +36 node kubelet-state
            ",
        ),
        expect![[r#"
            +65.000 down +34.800…+60.000 of 1
            +65.000 node 1 Warning +1.000…+34.800 unknown Down { back: Boot(3660000000000) }
              how the reboot went is unknown: exits of processes were not observed, or their records were lost; the node was back 25.2 s after the last evidence
              fix: run `epitaph doctor`: the report names each probe that is not active on this kernel, and the reason
            +95.000 container 000000000000 unknown: NodeShutdown, by 1 PrepareForShutdown
              container `app`: how PID 1 `app` terminated is unknown: kernel records of process exits were lost during the termination; the node was shutting down
        "#]],
    );
}

/// Of another container than those of the pods: their verdict stays.
#[test]
fn a_neighbours_loss_does_not_change_the_verdict() {
    let script = |cgroup: &str| {
        node(&format!(
            "
            -50 mkdir noise
            -80 node limit 30
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +20 lost sched_process_exit +19 5 within {cgroup}
            +31 node job reboot.target
            +35 reboot back=+60
            +36 node kubelet-state
            "
        ))
    };
    assert_eq!(verdicts(&script("noise")), ["truncated"]);
    // The other pod was cut, too.
    assert_eq!(verdicts(&script("web:app")), ["truncated"]);
}

#[test]
fn zero_periods_protect_nothing() {
    check(
        &node(
            "
            -80 node kubelet 0 0
            -80 node locks epitaph:delay:900
            +1 node prepare true reboot
            +1.2 node locks
            +1.3 node job reboot.target
            +4 reboot back=+40
            +5 node kubelet-state
            ",
        ),
        expect![[r#"
            +34.000 down +3.900…+40.000 of 1
            +34.000 node 1 Critical +1.000…+3.900 unprotected UNCLEAN Down { back: Boot(3640000000000) }
              the kubelet held no delay lock at the reboot, and 2 pods still ran when systemd stopped all services: the kubelet's shutdownGracePeriod is 0 (the default)
              fix: set shutdownGracePeriod and shutdownGracePeriodCriticalPods in the kubelet's configuration, and restart the kubelet
        "#]],
    );
}

#[test]
fn a_limit_below_the_periods_keeps_the_kubelet_from_its_lock() {
    check(
        &node(
            "
            -80 node limit 30
            -80 node locks epitaph:delay:900
            +1 node prepare true reboot
            +1.3 node job reboot.target
            +4 reboot back=+40
            +5 node kubelet-state
            ",
        ),
        expect![[r#"
            +34.000 down +3.900…+40.000 of 1
            +34.000 node 1 Critical +1.000…+3.900 unprotected UNCLEAN Down { back: Boot(3640000000000) }
              the kubelet held no delay lock at the reboot, and 2 pods still ran when systemd stopped all services: the kubelet needs 60 s, and logind allows 30 s (InhibitDelayMaxSec)
              fix: set InhibitDelayMaxSec=60 in a drop-in of logind.conf that sorts last, and restart systemd-logind and the kubelet; `epitaph doctor` names the file that decides now
        "#]],
    );
}

/// The next case to it: no list of locks was seen since the agent began.
#[test]
fn locks_that_were_not_listed_are_not_missing() {
    let script = NODE.replace("-90 node locks kubelet:delay:812 epitaph:delay:900", "");
    check(
        &format!(
            "{script}\n+1 node prepare true reboot\n+1.3 node job reboot.target\n+4 reboot back=+40\n+5 node kubelet-state"
        ),
        expect![[r#"
            +34.000 down +3.900…+40.000 of 1
            +34.000 node 1 Warning +1.000…+3.900 unknown Down { back: Boot(3640000000000) }
              how the reboot went is unknown: whether the kubelet held a lock was not observed; the node was back 36.1 s after the last evidence
              fix: `epitaph doctor` shows what cannot be observed on this node
        "#]],
    );
}

#[test]
fn a_lock_of_another_makes_the_delay_expire_and_the_pods_are_done() {
    check(
        &node(
            "
            -80 node locks kubelet:delay:812 backup:delay:77
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +3 exit main 0
            +4 TERM runc -> dns handler
            +4.01 enter dns TERM
            +5 exit dns 0
            +6 node locks backup:delay:77
            +61 node job reboot.target
            +63 node agent-ends
            +64 reboot back=+90
            +65 node kubelet-state start=+1 end=+5
            ",
        ),
        expect![[r#"
            +35.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.9 s later; the node was shutting down
            +37.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 1.0 s later; the node was shutting down
            +63.000 node 1 Info +1.000…+63.000 graceful AgentEnded
              the reboot was announced by logind, and all pods (2) terminated within 4.0 s (normal phase took 2.0 s of 40 s, critical phase took 2.0 s of 20 s); logind waited 60 s of at most 60 s, and `backup` still held a lock at the end of the delay
            +65.000 down +63.800…+90.000 of 1
        "#]],
    );
}

/// The API shows the deletion only afterwards: it removes the object.
#[test]
fn a_later_deletion_is_neither_the_cause_nor_stuck() {
    check(
        &node(
            "
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +3 pod web deleted=+3:1
            +9 exit main 0
            +9.1 rmdir web:app
            +10 gone web
            +30 end
            ",
        ),
        expect![[r#"
            +11.200 pod web clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +30.000 node 1 Warning +1.000…+30.000 unknown ObservationEnded
              how the reboot went is unknown: epitaph stopped observing 29.0 s after the shutdown began
              fix: keep epitaph running until the pods have terminated: give it the highest priority and a long grace period
        "#]],
    );
}

/// The same without the record of the stop signal: either of both can be the cause.
#[test]
fn a_later_deletion_is_not_the_cause_if_the_stop_signal_was_lost() {
    check(
        &node(
            "
            +1 node prepare true reboot
            +1.2 lost signal_generate +1.1 1
            +3 pod web deleted=+3:1
            +9 exit main 0
            +9.1 rmdir web:app
            +10 gone web
            +30 end
            ",
        ),
        expect![[r#"
            +11.200 pod web unknown: Unknown, by 1 PrepareForShutdown
              container `app`: PID 1 `app` exited with code 0, but the reason is unknown: kernel records of sent signals were lost during the termination
            +30.000 node 1 Warning +1.000…+30.000 unknown ObservationEnded
              how the reboot went is unknown: exits of processes were not observed, or their records were lost
              fix: run `epitaph doctor`: the report names each probe that is not active on this kernel, and the reason
        "#]],
    );
}

/// The next case to it: the pod was being deleted when the shutdown began.
#[test]
fn an_earlier_deletion_is_the_cause() {
    check(
        &node(
            "
            -2 skew 0 0
            -2 pod web deleted=-2:30
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +9 exit main 0
            +9.1 rmdir web:app
            +10 gone web
            +30 end
            ",
        ),
        expect![[r#"
            +11.200 pod web clean: Deleted
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later
            +30.000 node 1 Warning +1.000…+30.000 unknown ObservationEnded
              how the reboot went is unknown: epitaph stopped observing 29.0 s after the shutdown began
              fix: keep epitaph running until the pods have terminated: give it the highest priority and a long grace period
        "#]],
    );
}

/// The watch had no time to show one: an outage began just after the stop signal.
#[test]
fn a_deletion_that_no_watch_showed_may_be_the_cause() {
    check(
        &node(
            "
            -2 skew 0 0
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +1.5 api away timeout
            +8 api synced
            +9 exit main 0
            +9.1 rmdir web:app
            +10 gone web
            +30 end
            ",
        ),
        expect![[r#"
            +11.200 pod web clean-exit: Unknown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the reason for the termination is unknown: the Kubernetes API did not answer during the termination: timeout; when deletion was requested, if it was, is unknown; the sockets of the container were not observed
            +30.000 node 1 Warning +1.000…+30.000 unknown ObservationEnded
              how the reboot went is unknown: epitaph stopped observing 29.0 s after the shutdown began
              fix: keep epitaph running until the pods have terminated: give it the highest priority and a long grace period
        "#]],
    );
}

#[test]
fn pods_by_priority_have_a_phase_each() {
    check(
        &node(
            "
            -80 node kubelet 0=10 1000=20 2000000000=30
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +3 exit main 0
            +4 TERM runc -> dns handler
            +4.01 enter dns TERM
            +5 exit dns 0
            +6 node locks
            +6.1 node job reboot.target
            +9 node agent-ends
            ",
        ),
        expect![[r#"
            +9.000 node 1 Info +1.000…+9.000 graceful AgentEnded
              the reboot was announced by logind, and all pods (2) terminated within 4.0 s (priority 0 took 2.0 s of 10 s, priority 2000000000 took 2.0 s of 30 s); logind waited 5.1 s of at most 60 s
            +35.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.9 s later; the node was shutting down
            +37.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 1.0 s later; the node was shutting down
        "#]],
    );
}

/// A unit is stopped with all services.
#[test]
fn a_unit_is_stopped_by_the_shutdown() {
    check(
        "
        -90 node bus connected
        -90 node locks
        +0 mkdir web.service
        proc main in=web.service pid=200 start=+0 parent=systemd comm=web
        +0.001 exec main
        +1 node prepare true reboot
        +1.1 node job reboot.target
        +2 TERM systemd -> main handler
        +2.01 enter main TERM
        +3 exit main 0
        +3.1 rmdir web.service
        +8 end
        ",
        expect![[r#"
            +5.100 unit web.service clean: NodeShutdown, by 1 PrepareForShutdown
              systemd sent SIGTERM to `web` (pid 200), the handler ran, and the process exited with code 0, 1.0 s later; the node was shutting down
            +8.000 node 1 Warning +1.000…+8.000 unknown ObservationEnded
              how the reboot went is unknown: epitaph stopped observing 7.0 s after the shutdown began
              fix: keep epitaph running until the pods have terminated: give it the highest priority and a long grace period
        "#]],
    );
}

/// Our own pod does not count as one that still runs.
#[test]
fn the_agents_own_pod_does_not_hold_up_the_report() {
    check(
        &node(
            "
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +3 exit main 0
            +6 tick
            +6 found dns
            +7 node agent-ends 00000000-0000-4000-8000-000000000002
            ",
        ),
        expect![[r#"
            +7.000 node 1 Info +1.000…+7.000 graceful AgentEnded
              the reboot was announced by logind, and 1 pod terminated within 2.0 s (normal phase took 2.0 s of 40 s); logind still waited when epitaph ended, 6.0 s after the announcement, and waits at most 60 s
            +35.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.9 s later; the node was shutting down
        "#]],
    );
}

/// Its container began before the evidence that the next boot has, and the agent does not see its own exit.
#[test]
fn the_agents_own_pod_is_not_cut() {
    let agent = "pod epitaph priority=2000001000 grace=30 agent\n-58 pod epitaph agent=running\n";
    let ends = "+13.3 node agent-ends 00000000-0000-4000-8000-000000000003\n+60 reboot back=+105\n+62 node kubelet-state start=+1 end=+13";
    check(
        &node(&format!("{agent}{ORDERLY}\n{ends}")),
        expect![[r#"
            +13.000 pod web clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +16.100 pod dns clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down
            +90.000 down +59.900…+105.000 of 1
            +90.000 node 1 Info +1.000…+59.900 graceful Down { back: Boot(3705000000000) }
              the reboot was announced by logind, and all pods (2) terminated within 11.0 s (normal phase took 8.0 s of 40 s, critical phase took at least 4.3 s of 20 s); logind waited 12.3 s of at most 60 s
        "#]],
    );
}

/// The kubelet replaced the agent: nobody saw the end of the one before, and the next boot has only what the new one wrote down.
#[test]
fn what_ended_in_a_gap_does_not_run_at_the_begin() {
    check(
        &gap("
            -30 TERM runc -> dns handler
            -20 start
            -20 node bus connected
            -20 node limit 60
            -20 node locks kubelet:delay:812
            -20 node kubelet 60 20
            -19 found main
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +9 exit main 0
            +9.1 rmdir web:app
            +10 node locks
            +10.1 node job reboot.target
            +11.5 node agent-ends
            +12 reboot back=+60
            +13 node kubelet-state
            "),
        expect![[r#"
            +11.500 node 1 Info +1.000…+11.500 graceful AgentEnded
              the reboot was announced by logind, and 1 pod terminated within 8.0 s (normal phase took 8.0 s of 40 s); logind waited 9.1 s of at most 60 s
            +12.000 container 000000000000 unknown: Unknown
              container `dns`: how PID 1 `dns` terminated is unknown: epitaph's last evidence is 41.9 s after SIGTERM, and no exit was seen until then; the reason for the termination is unknown: epitaph stopped before the state of the pod was known
            +13.000 down +11.900…+60.000 of 1
            +72.000 container 000000000000 clean-exit: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down; epitaph did not observe for part of the time before this SIGTERM: the stop may have begun before it, and the shutdown may have taken longer than stated; the sockets of the container were not observed
        "#]],
    );
}
