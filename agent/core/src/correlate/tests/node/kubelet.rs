//! Whether there is a kubelet, and why it has no lock.

use expect_test::expect;

use super::*;
use crate::correlate::tests::resumed::killed;
use crate::correlate::{Correlator, Limits};
use crate::fixtures::script::parse;
use crate::input::Input;
use crate::time::Boot;
use crate::verdict::Severity;

#[test]
fn a_kubelet_without_a_lock_does_not_believe_a_spoofed_signal() {
    check(
        &node(
            "
            -80 node kubelet 0 0
            -80 node locks
            -30 node prepare true by=:1.42,4711,gdbus
            -20 TERM runc -> main handler
            -19.99 enter main TERM
            -18 exit main 0
            -17.9 rmdir web:app
            -17 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
            -15 skew 0 0
            -15 pod dns deleted=-15:30
            -14.9 TERM runc -> dns handler
            -14.89 enter dns TERM
            -12 exit dns 0
            -11.9 rmdir dns:dns
            -11 gone dns
            +100 tick
    ",
        ),
        expect![[r#"
            -15.000 container 000000000000 clean: Restart
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 2.0 s later; the kubelet stopped the container, and no evidence shows why
            -9.800 pod dns clean: Deleted
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.9 s later
            +0.000 node 1 Critical -30.000…+0.000 spoofed UNCLEAN Continued
              :1.42 (pid 4711, `gdbus`) sent PrepareForShutdown, which only logind may send; the node stayed up; the kubelet held no lock, and without a lock the kubelet ignores the signal
              fix: find the process that the sentence names, and find out who may use the system bus; restart the kubelet, because the kubelet takes its lock only when it starts
        "#]],
    );
}

#[test]
fn a_kubelet_that_believed_a_spoofed_signal_has_no_lock_later() {
    check(
        &node(
            "
            -300 node prepare true by=:1.42,4711,gdbus
            -295 node locks epitaph:delay:900
            -100 tick
            +1 node prepare true reboot
            +1.2 node job reboot.target
            +4 reboot back=+40
            +5 node kubelet-state
    ",
        ),
        expect![[r#"
            +1.000 node 1 Critical -58.000…+1.000 spoofed UNCLEAN Continued
              :1.42 (pid 4711, `gdbus`) sent PrepareForShutdown, which only logind may send; the node stayed up; no pod terminated; the kubelet released its lock less than 1 ms later, and takes no new lock until it restarts
              fix: find the process that the sentence names, and find out who may use the system bus; restart the kubelet, because the kubelet takes its lock only when it starts
            +34.000 down +3.800…+40.000 of 2
            +34.000 node 2 Critical +1.000…+3.800 unprotected UNCLEAN Down { back: Boot(3640000000000) }
              the kubelet held no delay lock at the reboot, and 2 pods still ran when systemd stopped all services: the kubelet released its lock at a spoofed PrepareForShutdown, and takes no new lock until it restarts
              fix: restart the kubelet after each spoofed signal, because the kubelet takes its lock only when it starts
        "#]],
    );
}

/// A kubelet takes a new lock after `false`, whoever sent it.
#[test]
fn a_kubelet_that_took_a_new_lock_needs_no_restart() {
    check(
        &node(
            "
            +1 node prepare true by=:1.42,4711,gdbus
            +5 node locks epitaph:delay:900
            +10 node prepare false by=:1.42,4711,gdbus
            +10.1 node locks kubelet:delay:812 epitaph:delay:900
            +100 tick
    ",
        ),
        expect![[r#"
            +91.100 node 1 Critical +1.000…+91.100 spoofed UNCLEAN Continued
              :1.42 (pid 4711, `gdbus`) sent PrepareForShutdown 2 times, which only logind may send; the node stayed up; no pod terminated
              fix: find the process that the sentence names, and find out who may use the system bus
        "#]],
    );
}

/// The kubelet has not held a lock: its periods, or logind's limit, are the reason.
#[test]
fn a_kubelet_without_a_lock_has_none_to_let_go_of() {
    let reboot = "
        +1 node prepare true reboot
        +1.2 node job reboot.target
        +4 reboot back=+40
        +5 node kubelet-state
        ";
    let plan = "-50 node scheduled reboot +600\n-40 node scheduled none\n-30 tick";
    check(
        &node(&format!("-80 node limit 30\n-80 node locks\n{plan}\n{reboot}")),
        expect![[r#"
            -35.000 node 1 Info -50.000…-40.000 cancelled Continued
              the scheduled reboot was cancelled, 640 s before its time
            +34.000 down +3.800…+40.000 of 2
            +34.000 node 2 Critical +1.000…+3.800 unprotected UNCLEAN Down { back: Boot(3640000000000) }
              the kubelet held no delay lock at the reboot, and 2 pods still ran when systemd stopped all services: the kubelet needs 60 s, and logind allows 30 s (InhibitDelayMaxSec)
              fix: set InhibitDelayMaxSec=60 in a drop-in of logind.conf that sorts last, and restart systemd-logind and the kubelet; `epitaph doctor` names the file that decides now
        "#]],
    );
    let spoof = "-50 node prepare true by=:1.42\n-1 tick";
    check(
        &node(&format!("-80 node kubelet 0 0\n-80 node locks\n{spoof}\n{reboot}")),
        expect![[r#"
            -20.000 node 1 Critical -50.000…-20.000 spoofed UNCLEAN Continued
              :1.42 sent PrepareForShutdown, which only logind may send; the node stayed up; no pod terminated
              fix: the sender had left the bus before its process could be looked up: find out who may use the system bus, and who used it at that time (the audit log has each process that was started); restart the kubelet, because the kubelet takes its lock only when it starts
            +34.000 down +3.800…+40.000 of 2
            +34.000 node 2 Critical +1.000…+3.800 unprotected UNCLEAN Down { back: Boot(3640000000000) }
              the kubelet held no delay lock at the reboot, and 2 pods still ran when systemd stopped all services: the kubelet's shutdownGracePeriod is 0 (the default)
              fix: set shutdownGracePeriod and shutdownGracePeriodCriticalPods in the kubelet's configuration, and restart the kubelet
        "#]],
    );
}

/// logind and the kernel show a node whose pods the API has not shown, and no file of its kubelet.
const WITHOUT_API: &str = "
    -90 node bus connected
    -90 node limit 30
    pod web priority=0 grace=30 app
    -60 mkdir web:app
    proc main in=web:app pid=100 ns=1 start=-60 parent=shim comm=app
    -60 exec main
    ";

#[test]
fn the_cgroup_of_a_pod_shows_a_kubelet() {
    check(
        &format!(
            "{WITHOUT_API}
            -80 node locks epitaph:delay:900
            +1 node prepare true reboot
            +1.2 node locks
            +1.3 node job reboot.target
            +4 reboot back=+40
            +5 node kubelet-state
            "
        ),
        expect![[r#"
            +5.000 down +3.900…+40.000 of 1
            +5.000 node 1 Critical +1.000…+3.900 unprotected UNCLEAN Down { back: Boot(3640000000000) }
              the kubelet held no delay lock at the reboot: the reason is unknown: the kubelet's configuration was not read
              fix: set shutdownGracePeriod and shutdownGracePeriodCriticalPods in the kubelet's configuration, and an InhibitDelayMaxSec of logind that is not shorter; `epitaph doctor` names the file that decides
        "#]],
    );
    check(
        &format!(
            "{WITHOUT_API}
            +1 node prepare true reboot
            +1.3 node job reboot.target
            +4 reboot back=+40
            +5 node kubelet-state
            "
        ),
        expect![[r#"
            +5.000 down +3.900…+40.000 of 1
            +5.000 node 1 Warning +1.000…+3.900 unknown Down { back: Boot(3640000000000) }
              how the reboot went is unknown: whether the kubelet held a lock was not observed; the node was back 36.1 s after the last evidence
              fix: `epitaph doctor` shows what cannot be observed on this node
        "#]],
    );
}

/// The next boot has only what the journal has kept.
#[test]
fn the_journal_keeps_that_there_is_a_kubelet() {
    let script =
        format!("{WITHOUT_API}\n-80 node locks\n+1 node prepare true reboot\n+4 reboot back=+40\n+5 node kubelet-state");
    assert_eq!(at_the_next_boot(&script), ["unprotected"]);
}

/// The verdicts on the node of the next agent, which has only what the journal has kept until the reboot.
pub(super) fn at_the_next_boot(script: &str) -> Vec<&'static str> {
    let mut history = parse(script).inputs;
    let boots = |(_, input): &(Boot, Input)| matches!(input, Input::Start(of) if of.boot_id == "next boot");
    let next = history.split_off(history.iter().rposition(boots).expect("a reboot"));
    let ((kept, _), _) = killed(&history);
    let mut core = Correlator::new(Limits::default());
    let mut headlines = Vec::new();
    for (inputs, reads_journal) in [(kept, true), (next, false)] {
        core.reads_journal(reads_journal);
        let reports = inputs.into_iter().flat_map(|(now, input)| core.handle(now, input).reports);
        headlines.extend(reports.filter_map(|report| match report {
            Report::NodeShutdown(of) => Some(of.verdict.headline),
            _ => None,
        }));
    }
    headlines
}

/// Also one whose processes no record shows: the same history, the exec of its only process lost.
#[test]
fn the_cgroup_of_a_pod_without_a_process_shows_a_kubelet() {
    let lost = WITHOUT_API.replace("-60 exec main", "-59 lost sched_process_exec -60 1");
    let of = |begin: &str, locks: &str| {
        format!("{begin}\n{locks}\n+1 node prepare true reboot\n+4 reboot back=+40\n+5 node kubelet-state")
    };
    for (locks, verdict) in [("-50 node locks", "unprotected"), ("", "unknown")] {
        let scripts = [of(&lost, locks), of(WITHOUT_API, locks)];
        for script in scripts {
            assert_eq!(verdicts(&script), [verdict], "{script}");
            assert_eq!(at_the_next_boot(&script), [verdict], "{script}");
        }
    }
    // The record of the cgroup is lost, too: nothing shows that there is none.
    let unseen = lost.replace("-60 mkdir web:app", "-59.5 lost cgroup_mkdir -60 1");
    assert_ne!(unseen, lost);
    assert_eq!(verdicts(&of(&unseen, "-50 node locks")), ["unknown"]);
    // A bypass is no harm only to a host that is known to have no pods.
    let severities = |script: &str| {
        let of = |(_, report)| match report {
            Report::NodeShutdown(of) => Some((of.verdict.headline, of.verdict.severity)),
            _ => None,
        };
        play_all(script).reports.into_iter().filter_map(of).collect::<Vec<_>>()
    };
    let bypass = of(&unseen, "-50 node locks").replace("+1 node prepare true reboot", "+1.3 node job reboot.target");
    assert_eq!(severities(&bypass), [("bypassed", Severity::Critical)]);
    let host = bypass.replace("-59 lost sched_process_exec -60 1", "");
    let host = host.replace("proc main", "proc other").replace("web:app", "app");
    assert_eq!(severities(&host), [("bypassed", Severity::Info)]);
    // One of the two is enough.
    let by_exec = WITHOUT_API
        .replace("-60 mkdir web:app", "-59.5 lost cgroup_mkdir -60 1")
        .replace("-60 exec main", "-60 found main\n-60 exec main");
    assert_eq!(verdicts(&of(&by_exec, "-50 node locks")), ["unprotected"]);
    // Next to it: another runtime's container.
    assert_eq!(
        verdicts(&of(&lost.replace("web:app", "app"), "-50 node locks")),
        ["truncated"]
    );
}

/// The agent was given the file: there is a kubelet, whatever is in it.
#[test]
fn a_configuration_that_cannot_be_read_shows_a_kubelet() {
    check(
        "
        -90 node bus connected
        -90 node limit 30
        -90 node kubelet unknown
        -80 node locks epitaph:delay:900
        +1 node prepare true reboot
        +1.2 node locks
        +1.3 node job reboot.target
        +4 reboot back=+40
        +5 node kubelet-state
        ",
        expect![[r#"
            +5.000 down +3.900…+40.000 of 1
            +5.000 node 1 Critical +1.000…+3.900 unprotected UNCLEAN Down { back: Boot(3640000000000) }
              the kubelet held no delay lock at the reboot: the reason is unknown: the kubelet's configuration was not read
              fix: set shutdownGracePeriod and shutdownGracePeriodCriticalPods in the kubelet's configuration, and an InhibitDelayMaxSec of logind that is not shorter; `epitaph doctor` names the file that decides
        "#]],
    );
}

#[test]
fn a_lock_that_appears_after_the_announcement_was_held_before() {
    check(
        &node(&format!(
            "
            -80 node locks unattended:delay:700
            {}\n+17 node agent-ends\n+20 end",
            ORDERLY.replace(
                "+1.1 TERM runc -> main handler",
                "+1.06 node locks kubelet:delay:813 unattended:delay:700\n+1.1 TERM runc -> main handler"
            )
        )),
        expect![[r#"
            +13.000 pod web clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +16.100 pod dns clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down
            +17.000 node 1 Info +1.000…+17.000 graceful AgentEnded
              the reboot was announced by logind, and all pods (2) terminated within 11.0 s (normal phase took 8.0 s of 40 s, critical phase took 3.0 s of 20 s); logind waited 12.3 s of at most 60 s
        "#]],
    );
}
