//! systemd stops pods and services alike: on a busy machine the kernel's records are there before the messages of the bus, and the agent is
//! stopped with the others.

use expect_test::expect;

use super::*;

/// No lock of the kubelet.
const UNPROTECTED: &str = "
    -90 node bus connected
    -90 node limit 5
    -90 node locks
    -90 node kubelet 0 0
    ";
const SERVICES: &str = "
    -60 mkdir cron.service
    proc cron in=cron.service pid=60 start=-60 parent=systemd comm=cron
    -60 exec cron
    -60 mkdir db.service
    proc db in=db.service pid=61 start=-60 parent=systemd comm=db
    -60 exec db
    ";
const SWEEP: &str = "
    +1 TERM systemd -> main handler
    +1.01 enter main TERM
    +1.02 TERM systemd -> cron
    +1.03 TERM systemd -> dns handler
    +1.04 enter dns TERM
    +1.05 TERM systemd -> db
    ";

fn unprotected(rest: &str) -> String {
    node(&format!("{UNPROTECTED}{SERVICES}{rest}"))
}

#[test]
fn the_stop_signals_of_systemd_begin_a_shutdown() {
    check(
        &unprotected(&format!(
            "{SWEEP}
            +1.1 node bus gone the_role_has_ended
            +1.5 exit dns 0
            +1.6 rmdir dns:dns
            +1.8 node agent-ends
            +4 reboot back=+49
            +5 node kubelet-state"
        )),
        expect![[r#"
            +4.000 unit cron.service unknown: NodeShutdown, by 1 stop signals of PID 1
              How `cron` (pid 60) terminated is unknown: epitaph's last evidence is 2.8 s after SIGTERM, and no exit was seen until then; the node was shutting down
            +4.000 unit db.service unknown: NodeShutdown, by 1 stop signals of PID 1
              How `db` (pid 61) terminated is unknown: epitaph's last evidence is 2.8 s after SIGTERM, and no exit was seen until then; the node was shutting down
            +34.000 down +3.800…+49.000 of 1
            +34.000 node 1 Critical +1.000…+3.800 unprotected UNCLEAN Down { back: Boot(3649000000000) }
              the kubelet held no delay lock at the shutdown, and 2 pods still ran when systemd stopped all services: the kubelet's shutdownGracePeriod is 0 (the default)
              fix: set shutdownGracePeriod and shutdownGracePeriodCriticalPods in the kubelet's configuration, and restart the kubelet
            +64.000 container 000000000000 unknown: NodeShutdown, by 1 stop signals of PID 1
              container `app`: how PID 1 `app` terminated is unknown: epitaph's last evidence is 2.8 s after SIGTERM, and no exit was seen until then; the node was shutting down
            +64.000 container 000000000000 clean: NodeShutdown, by 1 stop signals of PID 1
              container `dns`: systemd sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 0.5 s later; the node was shutting down
        "#]],
    );
}

const DNS_EXITS: &str = "
    +1.5 exit dns 0
    +1.6 rmdir dns:dns
    +1.8 node agent-ends
    ";

/// The next boot proves the shutdown, and the API shows the status that the kubelet reported after the agent's end.
#[test]
fn a_pod_that_exited_in_the_sweep_is_completed_by_the_next_boot() {
    check(
        &unprotected(&format!(
            "{SWEEP}{DNS_EXITS}
            +4 reboot back=+49
            +5 node kubelet-state
            +6 pod dns phase=failed reason=Terminated dns=0:Completed
            +6.1 api synced"
        )),
        expect![[r#"
            +4.000 unit cron.service unknown: NodeShutdown, by 1 stop signals of PID 1
              How `cron` (pid 60) terminated is unknown: epitaph's last evidence is 2.8 s after SIGTERM, and no exit was seen until then; the node was shutting down
            +4.000 unit db.service unknown: NodeShutdown, by 1 stop signals of PID 1
              How `db` (pid 61) terminated is unknown: epitaph's last evidence is 2.8 s after SIGTERM, and no exit was seen until then; the node was shutting down
            +6.000 pod dns clean: NodeShutdown, by 1 stop signals of PID 1
              container `dns`: systemd sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 0.5 s later; the node was shutting down
            +6.100 pod web unknown: NodeShutdown, by 1 stop signals of PID 1
              container `app`: how PID 1 `app` terminated is unknown: epitaph's last evidence is 2.8 s after SIGTERM, and no exit was seen until then; the node was shutting down
            +34.100 down +3.800…+49.000 of 1
            +34.100 node 1 Critical +1.000…+3.800 unprotected UNCLEAN Down { back: Boot(3649000000000) }
              the kubelet held no delay lock at the shutdown, and 2 pods still ran when systemd stopped all services: the kubelet's shutdownGracePeriod is 0 (the default)
              fix: set shutdownGracePeriod and shutdownGracePeriodCriticalPods in the kubelet's configuration, and restart the kubelet
        "#]],
    );
}

/// The next case to it: the machine continued after the sweep and lost its power later. Nothing proves what the sweep was for.
#[test]
fn a_pod_that_exited_in_a_sweep_long_before_is_not_the_shutdowns() {
    check(
        &unprotected(&format!(
            "{SWEEP}{DNS_EXITS}
            +60 tick
            +61 reboot back=+105
            +62 node kubelet-state"
        )),
        expect![[r#"
            +31.000 node 1 Warning +1.000…+1.000 unknown Continued
              how the shutdown went is unknown: systemd sent stop signals to pods and services alike, nothing followed, and the node stayed up
              fix: read systemd's log of that time (`journalctl _PID=1`); systemd refuses a masked target, for example
            +33.600 container 000000000000 clean-exit: Unknown
              container `dns`: systemd sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 0.5 s later; the reason for the termination is unknown: the pod\'s status did not report the exit within 30 s; the sockets of the container were not observed
            +61.000 unit cron.service unknown: Stopped
              How `cron` (pid 60) terminated is unknown: epitaph's last evidence is 59.8 s after SIGTERM, and no exit was seen until then
            +61.000 unit db.service unknown: Stopped
              How `db` (pid 61) terminated is unknown: epitaph's last evidence is 59.8 s after SIGTERM, and no exit was seen until then
            +61.000 container 000000000000 unknown: Unknown
              container `app`: how PID 1 `app` terminated is unknown: epitaph's last evidence is 59.8 s after SIGTERM, and no exit was seen until then; the reason for the termination is unknown: epitaph stopped before the state of the pod was known
            +91.000 node 2 Warning +60.800…+60.800 unknown Down { back: Boot(3705000000000) }
              why the node went down is unknown: the agent stopped before the node went down
              fix: keep epitaph running until the pods have terminated: give it the highest priority and a long grace period
        "#]],
    );
}

/// The same where no tick comes before the next boot, which begins days later: the machine may have gone down for any reason by then.
#[test]
fn a_boot_long_after_the_end_of_the_agent_proves_no_shutdown() {
    let back = |back: &str| {
        show(&play_all(&unprotected(&format!(
            "{SWEEP}{DNS_EXITS}
            +4 reboot back={back}
            +5 node kubelet-state
            +6 pod dns phase=failed reason=Terminated dns=0:Completed
            +6.1 api synced"
        ))))
    };
    let late = back("+1000000");
    assert!(late.contains("Warning +1.000…+3.800 unknown Down"), "{late}");
    assert!(!late.contains("NodeShutdown") && !late.contains(" down +"), "{late}");
    // The next case to it: within the time after which systemd ends a shutdown by force.
    let soon = back("+1700");
    assert!(soon.contains("Critical +1.000…+3.800 unprotected UNCLEAN Down"), "{soon}");
    assert!(
        soon.contains("pod dns clean: NodeShutdown") && soon.contains(" down +3.800"),
        "{soon}"
    );
}

/// A service that somebody restarted is in the sweep's time, and with it a stop of the runtime, which a kubelet without a lock did not ask for
/// because of a shutdown.
#[test]
fn a_stop_of_the_runtime_is_not_the_sweeps() {
    let of_app = |stopper: &str| {
        let text = show(&play_all(&unprotected(&format!(
            "-8 TERM systemd -> cron
            -5 TERM {stopper} -> main handler
            -4.99 enter main TERM
            -4.5 exit main 0
            -4.4 rmdir web:app
            +1 TERM systemd -> pause
            +1.03 TERM systemd -> dns handler
            +1.04 enter dns TERM
            +1.05 TERM systemd -> db
            {DNS_EXITS}
            +4 reboot back=+49
            +5 node kubelet-state"
        ))));
        assert!(text.contains("unprotected UNCLEAN"), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        let app = lines.windows(2).find(|lines| lines[1].contains("SIGTERM to PID 1 `app`"));
        app.unwrap_or_else(|| panic!("{text}"))[0].to_owned()
    };
    assert!(!of_app("runc").contains("NodeShutdown"), "{}", of_app("runc"));
    assert!(of_app("systemd").contains("NodeShutdown"), "{}", of_app("systemd"));
}

/// A machine that goes down within the sweep counts what clients lost.
#[test]
fn what_a_pod_of_the_sweep_lost_is_the_shutdowns() {
    let script = unprotected(&format!(
        "{SWEEP}
        +1.1 tcp dns:dns closed 80
        +1.2 tcp dns:dns refused 80 5001
        +1.5 exit dns 0
        +1.6 rmdir dns:dns
        +1.8 node agent-ends
        +4 reboot back=+49
        +5 node kubelet-state"
    ));
    let of = |(_, report): &(crate::time::Boot, Report)| match report {
        Report::NodeShutdown(of) => Some(of.loss()),
        _ => None,
    };
    let loss = play_all(&script).reports.iter().find_map(of);
    assert!(loss.is_some_and(|loss| loss.is_least && loss.refused == 1), "{loss:?}");
}

/// The kubelet had its lock: then logind's announcement is a message that did not arrive, and nothing shows how the delay went.
#[test]
fn with_a_lock_the_announcement_is_missing() {
    let script = node(&format!(
        "
        {SERVICES}
        {SWEEP}
        +1.8 node agent-ends
        +4 reboot back=+49
        +5 node kubelet-state"
    ));
    assert_eq!(verdicts(&script), ["unknown"]);
}

/// The bus was not observed, so that the list of locks may be older than a lock.
#[test]
fn without_the_bus_nothing_shows_the_lock() {
    let script = unprotected(&format!(
        "-1 node bus gone the_role_has_ended\n{SWEEP}\n+1.8 node agent-ends\n+4 reboot back=+49\n+5 node kubelet-state"
    ));
    assert_eq!(verdicts(&script), ["unknown"]);
}

/// The message arrives after all: the shutdown is the announced one.
#[test]
fn a_late_message_is_of_the_same_shutdown() {
    check(
        &unprotected(&format!(
            "{SWEEP}
            +1.5 exit dns 0
            +1.6 rmdir dns:dns
            +2.9 node prepare true poweroff
            +3 node job poweroff.target
            +3.1 exit main 0
            +3.2 rmdir web:app
            +3.3 node agent-ends
            +9 end"
        )),
        expect![[r#"
            +9.000 unit cron.service unknown: Stopped
              How `cron` (pid 60) terminated is unknown: epitaph stopped while this unit was still shutting down; SIGTERM had been sent before
            +9.000 unit db.service unknown: Stopped
              How `db` (pid 61) terminated is unknown: epitaph stopped while this unit was still shutting down; SIGTERM had been sent before
            +9.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: systemd sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 2.1 s later; the node was shutting down
            +9.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: systemd sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 0.5 s later; the node was shutting down
            +9.000 node 1 Critical +1.000…+9.000 unprotected UNCLEAN ObservationEnded
              the kubelet held no delay lock at the power-off, and 1 pod still ran when systemd stopped all services: the kubelet's shutdownGracePeriod is 0 (the default)
              fix: set shutdownGracePeriod and shutdownGracePeriodCriticalPods in the kubelet's configuration, and restart the kubelet
        "#]],
    );
}

/// Somebody stops the containers' slice and two services by hand: no shutdown ended them.
#[test]
fn what_is_stopped_by_hand_is_no_shutdown() {
    check(
        &unprotected(&format!(
            "{SWEEP}
            +1.5 exit dns 0
            +1.6 rmdir dns:dns
            +3.1 exit main 0
            +3.2 rmdir web:app
            +3.5 exit cron TERM
            +3.6 rmdir cron.service
            +60 tick
            +70 end"
        )),
        expect![[r#"
            +5.600 unit cron.service default-action: Stopped
              SIGTERM terminated `cron` (pid 60): the process has no SIGTERM handler, so any work in flight was lost
            +31.000 node 1 Warning +1.000…+1.000 unknown Continued
              how the shutdown went is unknown: systemd sent stop signals to pods and services alike, nothing followed, and the node stayed up
              fix: read systemd's log of that time (`journalctl _PID=1`); systemd refuses a masked target, for example
            +33.600 container 000000000000 clean-exit: Unknown
              container `dns`: systemd sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 0.5 s later; the reason for the termination is unknown: the pod\'s status did not report the exit within 30 s; the sockets of the container were not observed
            +35.200 container 000000000000 clean-exit: Unknown
              container `app`: systemd sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 2.1 s later; the reason for the termination is unknown: the pod\'s status did not report the exit within 30 s; the sockets of the container were not observed
            +70.000 unit db.service unknown: Stopped
              How `db` (pid 61) terminated is unknown: epitaph stopped while this unit was still shutting down; SIGTERM had been sent before
        "#]],
    );
}

/// The next cases: one pod of the two, or its containers alone.
#[test]
fn fewer_stops_are_somebodys() {
    for stops in [
        "+1 TERM systemd -> main handler\n+1.1 TERM systemd -> cron\n+1.2 TERM systemd -> db",
        "+1 TERM systemd -> main handler\n+1.1 TERM systemd -> dns handler\n+1.2 TERM systemd -> cron",
        "+1 TERM systemd -> main handler\n+1.1 TERM systemd -> dns handler\n+1.2 TERM systemd -> cron\n+12 TERM systemd -> db",
    ] {
        assert_eq!(
            verdicts(&unprotected(&format!(
                "{stops}\n+15 node agent-ends\n+20 reboot back=+49\n+21 node kubelet-state"
            ))),
            ["unknown"],
            "{stops}"
        );
        assert_eq!(
            verdicts(&unprotected(&format!("{stops}\n+60 tick\n+70 end"))),
            [""; 0],
            "{stops}"
        );
    }
}

/// systemd stops the bus before the fourth of the stop signals: what was known when the sweep began counts.
#[test]
fn the_bus_may_be_gone_before_the_sweep_is_one() {
    let sweep = SWEEP.replace("+1.03 TERM", "+1.02 node bus gone the_role_has_ended\n+1.03 TERM");
    assert!(sweep.contains("bus gone"));
    let rest = format!("{sweep}{DNS_EXITS}\n+4 reboot back=+49\n+5 node kubelet-state");
    assert_eq!(verdicts(&unprotected(&rest)), ["unprotected"]);
    // The next case to it: the bus was gone before.
    let rest = format!("+0.9 node bus gone the_role_has_ended\n{SWEEP}{DNS_EXITS}\n+4 reboot back=+49\n+5 node kubelet-state");
    assert_eq!(verdicts(&unprotected(&rest)), ["unknown"]);
}

/// Shutdowns that nothing but systemd's stop signals shows, or that a message announces late.
pub fn scripts() -> Vec<String> {
    let back = "+4 reboot back=+49\n+5 node kubelet-state";
    vec![
        unprotected(&format!("{SWEEP}{DNS_EXITS}\n{back}")),
        unprotected(&format!("{SWEEP}{DNS_EXITS}\n+60 tick\n+70 end")),
        unprotected(&format!(
            "{SWEEP}+1.5 exit dns 0\n+1.6 rmdir dns:dns\n+2.9 node prepare true poweroff\n+3 node job poweroff.target\n+9 end"
        )),
        node(&format!("{SERVICES}{SWEEP}\n+1.8 node agent-ends\n{back}")),
        node("+1 RTMIN+5 bash -> systemd handler\n+1.1 node job reboot.target\n+4 reboot back=+40"),
    ]
}
