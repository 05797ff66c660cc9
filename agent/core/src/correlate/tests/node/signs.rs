//! What shows a shutdown, and what looks like it.

use expect_test::expect;

use super::*;
use crate::correlate::{Correlator, Limits};
use crate::event::Kind;
use crate::fixtures::script::parse;
use crate::ids::Pid;
use crate::input::Input;

#[test]
fn all_pods_end_in_their_phases() {
    check(
        &node(&format!("{ORDERLY}\n+17 node agent-ends\n+20 end")),
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

/// As on systemd 219: `poweroff` gives PID 1 a job, and logind is not asked.
#[test]
fn systemd_219_powers_off_without_logind() {
    check(
        &node(
            "
            +1 node job shutdown.target
            +1 node job poweroff.target
            +1.1 node state stopping
            +3 node bus gone the_bus_was_closed
            +4 reboot back=+40
            ",
        ),
        expect![[r#"
            +34.000 down +3.800…+40.000 of 1
            +34.000 node 1 Critical +1.000…+3.800 bypassed UNCLEAN Down { back: Boot(3640000000000) }
              the power-off bypassed logind: systemd began a job for shutdown.target, and logind sent no PrepareForShutdown; the kubelet held its lock, but got no announcement; 2 pods ran at that time
              fix: use `systemctl poweroff` or `systemctl reboot`, without `--force`; with systemd before version 251 neither `shutdown now` nor `reboot` goes through logind, and with systemd before version 227 no command does: then drain the node first
        "#]],
    );
}

/// The job follows logind's announcement at once, and arrives before it.
#[test]
fn the_announcement_may_arrive_behind_the_job() {
    check(
        &node(
            "
            +1 node job reboot.target
            +1.2 node prepare true reboot
            +4 reboot back=+40
            ",
        ),
        expect![[r#"
            +34.000 down +3.800…+40.000 of 1
            +34.000 node 1 Critical +1.000…+3.800 truncated UNCLEAN Down { back: Boot(3640000000000) }
              the reboot did not wait for the shutdown of 2 of 2 pods: shop/dns (got no stop signal), shop/web (got no stop signal) (normal phase took less than 1 ms of 40 s)
              fix: raise shutdownGracePeriod to 90 s, and logind's InhibitDelayMaxSec to at least 90 s, or shorten the shutdown of shop/web, which may take 30 s
        "#]],
    );
}

#[test]
fn without_logind_a_bypass_is_not_proven() {
    check(
        &node(
            "
            -10 node bus gone no_such_file
            +1 node job poweroff.target
            +4 reboot back=+40
            ",
        ),
        expect![[r#"
            +34.000 down +3.800…+40.000 of 1
            +34.000 node 1 Warning +1.000…+3.800 unknown Down { back: Boot(3640000000000) }
              how the power-off went is unknown: no such file; the node was back 36.2 s after the last evidence
              fix: run `epitaph logind` (chart: `logind.enabled`), and keep it connected: without it a shutdown and a power loss look the same
        "#]],
    );
}

#[test]
fn a_signal_to_pid_1_bypasses_logind() {
    check(
        &node(
            "
            +1 RTMIN+5 bash -> systemd handler
            +1.1 node job reboot.target
            +4 reboot back=+40
            ",
        ),
        expect![[r#"
            +34.000 down +3.900…+40.000 of 1
            +34.000 node 1 Critical +1.000…+3.900 bypassed UNCLEAN Down { back: Boot(3640000000000) }
              the reboot bypassed logind: `bash` (pid 70) sent PID 1 SIGRTMIN+5, and logind sent no PrepareForShutdown; the kubelet held its lock, but got no announcement; 2 pods ran at that time
              fix: use `systemctl poweroff` or `systemctl reboot`, without `--force`; with systemd before version 251 neither `shutdown now` nor `reboot` goes through logind, and with systemd before version 227 no command does: then drain the node first
        "#]],
    );
}

/// Its target is masked, so that systemd has no job: what stops later is not stopped by it.
#[test]
fn a_signal_to_pid_1_that_nothing_follows_is_over() {
    check(
        &node(
            "
            +1 RTMIN+5 bash -> systemd handler
            +40 tick
            +100.1 TERM runc -> main handler
            +100.11 enter main TERM
            +103 exit main 0
            +103.1 rmdir web:app
            +104 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
            +200 reboot back=+240
            +201 node kubelet-state
            ",
        ),
        expect![[r#"
            +31.000 node 1 Warning +1.000…+1.000 unknown Continued
              how the reboot went is unknown: `bash` (pid 70) sent PID 1 SIGRTMIN+5, nothing followed, and the node stayed up
              fix: read systemd's log of that time (`journalctl _PID=1`); systemd refuses a masked target, for example
            +106.000 container 000000000000 clean: Restart
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 2.9 s later; the kubelet stopped the container, and no evidence shows why
            +230.000 down +199.800…+240.000 of 2
            +230.000 node 2 Critical +199.800…+199.800 unannounced UNCLEAN Down { back: Boot(3840000000000) }
              the node went down without any announcement, and was back 40.2 s after the last evidence; at least 1 pod ran at the last evidence
              fix: look at the end of the previous boot's log (`journalctl -b -1 -e`) and at the log of the power supply, the hypervisor or the cloud provider; reboot with `systemctl reboot`, without `-f`
        "#]],
    );
}

/// The next case to it: without logind's messages, a job that takes its time is not seen.
#[test]
fn a_signal_to_pid_1_without_the_bus_waits_for_the_end_of_the_jobs() {
    check(
        &node("-10 node bus gone no_such_file\n+1 RTMIN+5 bash -> systemd handler\n+1802 tick"),
        expect![[r#"
            +1801.000 node 1 Warning +1.000…+1.000 unknown Continued
              how the reboot went is unknown: `bash` (pid 70) sent PID 1 SIGRTMIN+5, nothing followed, and the node stayed up
              fix: read systemd's log of that time (`journalctl _PID=1`); systemd refuses a masked target, for example
        "#]],
    );
}

/// SIGTERM makes PID 1 execute itself again.
#[test]
fn sigterm_to_pid_1_is_not_a_shutdown() {
    assert_eq!(
        verdicts(&node("+1 TERM bash -> systemd handler\n+100 tick")),
        Vec::<&str>::new()
    );
}

#[test]
fn systemd_shutdown_shows_itself() {
    check(
        &node(
            "
            proc last in=init pid=1 start=-3600 comm=systemd-shutdow
            +1 TERM last -> main handler
            +1.01 enter main TERM
            +11 KILL last -> main
            +11.01 exit main KILL
            +14 reboot back=+40
            ",
        ),
        expect![[r#"
            +44.000 down +13.910…+40.000 of 1
            +44.000 node 1 Critical +1.000…+13.910 bypassed UNCLEAN Down { back: Boot(3640000000000) }
              the shutdown bypassed logind: systemd-shutdown stopped all processes, and logind sent no PrepareForShutdown; the kubelet held its lock, but got no announcement; 2 pods ran at that time
              fix: use `systemctl poweroff` or `systemctl reboot`, without `--force`; with systemd before version 251 neither `shutdown now` nor `reboot` goes through logind, and with systemd before version 227 no command does: then drain the node first
            +74.000 container 000000000000 truncated-by-shutdown: NodeShutdown, by 1 systemd-shutdown
              container `app`: systemd sent SIGTERM to PID 1 `app`; systemd-shutdown sent SIGKILL to all processes, before the end of the container's grace period of 30.0 s; the node was shutting down
        "#]],
    );
}

#[test]
fn a_spoofed_signal_is_not_a_shutdown_and_a_real_one_follows() {
    check(
        &node(&format!(
            "
            -30 node prepare true by=:1.42,4711,gdbus
            -29 TERM runc -> main handler
            -28.99 enter main TERM
            -28 exit main 0
            -27.9 rmdir web:app
            -27 pod web phase=failed reason=Terminated app=0:Completed
            {}
            +4 reboot back=+40
            ",
            "+1 node prepare true power-off\n+2 node job poweroff.target"
        )),
        expect![[r#"
            -24.000 pod web clean: NodeShutdown, by 1 spoofed PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.0 s later; the node was shutting down
            +1.000 node 1 Critical -30.000…+1.000 spoofed UNCLEAN Continued
              :1.42 (pid 4711, `gdbus`) sent PrepareForShutdown, which only logind may send; the node stayed up; the kubelet acted on it: 1 of 2 pods terminated
              fix: find the process that the sentence names, and find out who may use the system bus
            +34.000 down +3.800…+40.000 of 2
            +34.000 node 2 Critical +1.000…+3.800 truncated UNCLEAN Down { back: Boot(3640000000000) }
              the power-off did not wait for the shutdown of 1 of 1 pod: shop/dns (got no stop signal) (critical phase took 1.0 s of 20 s)
              fix: raise shutdownGracePeriodCriticalPods to 50 s, shutdownGracePeriod to 90 s, and logind's InhibitDelayMaxSec to at least 90 s, or shorten the shutdown of shop/dns, which may take 30 s
        "#]],
    );
}

#[test]
fn a_spoofed_signal_alone_is_reported_when_the_kubelet_is_done() {
    check(
        &node("+1 node prepare true by=:1.42\n+100 tick"),
        expect![[r#"
            +91.000 node 1 Critical +1.000…+91.000 spoofed UNCLEAN Continued
              :1.42 sent PrepareForShutdown, which only logind may send; the node stayed up; no pod terminated
              fix: the sender had left the bus before its process could be looked up: find out who may use the system bus, and who used it at that time (the audit log has each process that was started)
        "#]],
    );
}

#[test]
fn a_cancelled_shutdown_keeps_the_machine() {
    check(
        &node(
            "
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +3 exit main 0
            +5.5 node prepare false
            +6 pod web phase=failed reason=Terminated app=0:Completed
            +60 node prepare true reboot
            +61 node job reboot.target
            +62 reboot back=+90
            ",
        ),
        expect![[r#"
            +5.500 node 1 Warning +1.000…+5.500 cancelled Continued
              the reboot was cancelled 4.5 s after its announcement; 1 pod was terminated by then
              fix: delete the pods that are Failed with the reason Terminated, if no controller replaces them: the kubelet does not start them again
            +8.000 pod web clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.9 s later; the node was shutting down
            +92.000 down +61.800…+90.000 of 2
            +92.000 node 2 Critical +60.000…+61.800 truncated UNCLEAN Down { back: Boot(3690000000000) }
              the reboot did not wait for the shutdown of 1 of 1 pod: shop/dns (got no stop signal) (critical phase took 1.0 s of 20 s)
              fix: raise shutdownGracePeriodCriticalPods to 50 s, shutdownGracePeriod to 90 s, and logind's InhibitDelayMaxSec to at least 90 s, or shorten the shutdown of shop/dns, which may take 30 s
        "#]],
    );
}

#[test]
fn a_job_that_is_gone_while_the_machine_runs_was_cancelled() {
    check(
        &node("+1 node job reboot.target\n+2 node job reboot.target removed\n+100 tick"),
        expect![[r#"
            +32.000 node 1 Info +1.000…+2.000 cancelled Continued
              the reboot was cancelled 1.0 s after its announcement; no pod was terminated by then
        "#]],
    );
}

#[test]
fn a_scheduled_shutdown_is_cancelled() {
    check(
        &node("+1 node scheduled reboot +61\n+41 node scheduled none\n+100 tick"),
        expect![[r#"
            +46.000 node 1 Info +1.000…+41.000 cancelled Continued
              the scheduled reboot was cancelled, 20.0 s before its time
        "#]],
    );
}

#[test]
fn a_scheduled_shutdown_begins_and_its_plan_is_dropped() {
    check(
        &node(
            "
            +1 node scheduled reboot +31
            +31 node scheduled none
            +31.1 node prepare true
            +32 node job reboot.target
            +34 reboot back=+60
            ",
        ),
        expect![[r#"
            +64.000 down +33.800…+60.000 of 1
            +64.000 node 1 Critical +31.100…+33.800 truncated UNCLEAN Down { back: Boot(3660000000000) }
              the reboot did not wait for the shutdown of 2 of 2 pods: shop/dns (got no stop signal), shop/web (got no stop signal) (normal phase took 0.9 s of 40 s)
              fix: raise shutdownGracePeriod to 90 s, and logind's InhibitDelayMaxSec to at least 90 s, or shorten the shutdown of shop/web, which may take 30 s
        "#]],
    );
}

#[test]
fn a_dry_run_is_nothing() {
    let script = node("+1 node scheduled dry-reboot +31\n+40 node scheduled none\n+100 tick");
    assert_eq!(verdicts(&script), Vec::<&str>::new());
}

#[test]
fn a_block_lock_holds_a_scheduled_shutdown() {
    check(
        &node(
            "
            +1 node locks kubelet:delay:812 dpkg:block:4711
            +2 node scheduled reboot +31
            +60 node scheduled none
            +100 tick
            ",
        ),
        expect![[r#"
            +41.000 node 1 Warning +31.000…+41.000 blocked Continued
              the reboot scheduled for 1970-01-01T01:00:31.000Z did not begin: it is blocked by the lock of `dpkg` (pid 4711, block, "dpkg needs time")
              fix: terminate the process that holds the lock, or wait until the process exits; `systemctl reboot -i` ignores the lock and still goes through logind
        "#]],
    );
}

/// root may shut down in spite of a block lock.
#[test]
fn a_block_lock_does_not_block_a_shutdown_that_begins() {
    let script = node(&format!(
        "-1 node locks kubelet:delay:812 epitaph:delay:900 dpkg:block:4711\n{ORDERLY}\n+17 node agent-ends"
    ));
    assert_eq!(verdicts(&script), ["graceful"]);
}

#[test]
fn a_host_without_a_kubelet_has_no_pods_to_lose() {
    check(
        "
        -90 node bus connected
        -90 node limit 5
        -90 node locks epitaph:delay:900
        +1 node prepare true reboot
        +1.2 node locks
        +1.3 node job reboot.target
        +3 node agent-ends
        +4 reboot back=+40
        ",
        expect![[r#"
            +3.000 node 1 Info +1.000…+3.000 graceful AgentEnded
              the reboot was announced by logind; locks delayed it for 0.3 s of at most 5 s
            +4.000 down +3.800…+40.000 of 1
        "#]],
    );
}

/// A pod would have shown itself by its first program, or stands in the list that a journal has at the begin of a shutdown.
#[test]
fn a_host_without_a_kubelet_needs_no_record_of_each_cgroup() {
    let script = |lost: &str| {
        format!(
            "-90 node bus connected\n-90 node limit 5\n{lost}\n-39 node locks epitaph:delay:900\n+1 node prepare true reboot\n+1.2 node locks\n\
             +1.3 node job reboot.target\n+3 node agent-ends\n+3.1 end"
        )
    };
    let mkdir = "-60 lost cgroup_mkdir -61 1";
    let exec = "-60 lost sched_process_exec -61 1";
    let container = "-89 mkdir app\nproc app in=app pid=100 ns=1 start=-89 parent=shim comm=app\n-89 exec app\n-70 exit app 0";
    let in_container = format!("{container}\n{mkdir}\n-50 lost sched_process_exec -61 1 within app");
    let blind = format!("-90 probe sched_process_exec\n{mkdir}");
    for (lost, verdict) in [
        (mkdir, "graceful"),
        (exec, "graceful"),
        (&in_container, "graceful"),
        (&format!("{mkdir}\n{exec}"), "unknown"),
        (&blind, "unknown"),
    ] {
        assert_eq!(verdicts(&script(lost)), [verdict], "{lost}");
    }
    let part = |at: &str, scope: &str| {
        Kind::ALL
            .map(|kind| format!("{at} lost {} -50 1 {scope}\n", kind.name()))
            .concat()
    };
    let of_journal = |lost: &str| {
        let mut core = Correlator::new(Limits::default());
        core.reads_journal(true);
        let reports = parse(&script(lost))
            .inputs
            .into_iter()
            .flat_map(|(now, input)| core.handle(now, input).reports);
        let headlines = reports.filter_map(|report| match report {
            Report::NodeShutdown(of) => Some(of.verdict.headline),
            _ => None,
        });
        headlines.collect::<Vec<_>>()
    };
    for scope in ["damaged", "not-recorded"] {
        assert_eq!(of_journal(&part("-40", scope)), ["graceful"]);
        assert_eq!(verdicts(&script(&part("-40", scope))), ["unknown"]);
        // The list may be in a part that ends with the begin.
        assert_eq!(of_journal(&part("+1", scope)), ["unknown"]);
    }
}

/// Nobody else delays the shutdown: it goes on before logind's list is read again.
#[test]
fn the_own_lock_is_released_by_the_roles_word() {
    let own = |rest: &str| {
        let script = format!(
            "-90 node bus connected\n-90 node limit 30\n-90 node own held\n-90 node locks epitaph:delay:900\n+1 node prepare true poweroff\n\
             {rest}\n+3.6 node job poweroff.target\n+3.6 node state stopping\n+4 node agent-ends\n+4.1 end"
        );
        let locks = play_all(&script).reports.into_iter().find_map(|(_, report)| match report {
            Report::NodeShutdown(of) => Some(of.facts.logind.locks.clone()),
            _ => None,
        });
        let locks = locks.expect("a shutdown");
        let state = locks.iter().map(|lock| (lock.released.map(at), lock.outlasted));
        state.collect::<Vec<_>>()
    };
    let released = [(Some("+3.500".to_owned()), false)];
    assert_eq!(own("+3.5 node own released"), released);
    let late = "+3.5 node own released\n+3.55 node locks epitaph:delay:900";
    assert_eq!(own(late), released, "a list that is older than the release");
    assert_eq!(own(""), [(None, true)]);
}

fn locks(rest: &str) -> Vec<(u32, Option<String>, bool)> {
    let script = format!("-90 node bus connected\n-90 node limit 5\n-90 node own held\n{rest}");
    let last = play_all(&script)
        .reports
        .into_iter()
        .rev()
        .find_map(|(_, report)| match report {
            Report::NodeShutdown(of) => Some(of.facts.logind.locks.clone()),
            _ => None,
        });
    let locks = last.expect("a shutdown");
    locks
        .iter()
        .map(|lock| (lock.lock.uid, lock.released.map(at), lock.outlasted))
        .collect()
}

#[test]
fn anybodys_lock_of_the_roles_name_is_not_the_roles() {
    let locks = locks(
        "-90 node locks epitaph:delay:900 epitaph:delay:4242:1000
        +1 node prepare true poweroff
        +3.5 node own released
        +6 node job poweroff.target
        +6.1 node state stopping
        +7 node agent-ends",
    );
    assert_eq!(locks, [(0, Some("+3.500".to_owned()), false), (1000, None, true)]);
}

/// logind's list was not read again in between.
#[test]
fn the_own_lock_that_was_let_go_is_not_of_the_next_shutdown() {
    let second = |rest: &str| {
        locks(&format!(
            "-90 node locks epitaph:delay:900
            +1 node prepare true poweroff
            +3.5 node own released
            +4 node prepare false
            {rest}
            +14.1 node prepare true reboot
            +18.1 node job reboot.target
            +18.1 node state stopping
            +19 node agent-ends"
        ))
    };
    assert_eq!(second(""), []);
    let again = "+4.1 node own held\n+4.2 node locks epitaph:delay:900";
    assert_eq!(second(again), [(0, None, true)]);
}

/// The agent observes on: after the last container's cgroup its clients still count, and then the pod's state is to come.
#[test]
fn an_agent_that_observes_on_waits_for_what_has_just_ended() {
    let last = "
        +12 exit dns 0
        +12.1 rmdir dns:dns
        +13 tick
        +15 tick
        +17 pod dns phase=failed reason=Terminated dns=0:Completed
        +18 tick
        +21 tick
    ";
    let begin = ORDERLY.split("+12 exit").next().expect("the begin");
    let mut correlator = Correlator::new(Limits::default());
    let mut quiet = Vec::new();
    for (now, input) in parse(&node(&format!("{begin}{last}"))).inputs {
        let is_tick = matches!(input, Input::Tick);
        correlator.handle(now, input);
        if is_tick {
            quiet.push((at(now), correlator.is_quiet(Pid(1))));
        }
    }
    let expected = [("+13.000", false), ("+15.000", false), ("+18.000", false), ("+21.000", true)];
    assert_eq!(quiet, expected.map(|(at, quiet)| (at.to_owned(), quiet)));
}
