//! Graceful, truncated and unprotected need their proof: what looks like it and is not.

use expect_test::expect;

use super::kubelet::at_the_next_boot;
use super::*;
use crate::correlate::node::FOLLOWED;
use crate::correlate::{Correlator, Limits};
use crate::event::Kind;
use crate::fixtures::script;

/// The critical container is started again and never stopped: only the kubelet's lock outlasts the delay.
#[test]
fn a_container_that_restarts_within_the_shutdown_is_followed() {
    check(
        &node(
            "
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +1.5 exit dns 1
            +1.6 rmdir dns:dns
            +1.8 pod dns dns.last=dns:dns:1:Error dns.restarts=1 dns=waiting
            +2 mkdir dns:dns:2
            proc dns2 in=dns:dns:2 pid=120 ns=1 start=+2 parent=shim comm=dns
            +2 exec dns2
            +2.2 pod dns dns.id=dns:dns:2 dns=running
            +9 exit main 0
            +9.1 rmdir web:app
            +9.5 pod web phase=failed reason=Terminated app=0:Completed
            +61 node job reboot.target
            +61.1 node state stopping
            +64 reboot back=+90
            +65 node kubelet-state start=+1
    ",
        ),
        expect![[r#"
            +4.600 container 000000000000 nonzero-exit: Crash
              container `dns`: PID 1 `dns` exited by itself with code 1
            +13.100 pod web clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +94.000 down +63.900…+90.000 of 1
            +94.000 node 1 Critical +1.000…+63.900 truncated UNCLEAN Down { back: Boot(3690000000000) }
              the reboot did not wait for the shutdown of 1 of 2 pods: shop/dns (got no stop signal) (normal phase took 8.0 s of 40 s, critical phase took 20.0 s of 20 s); logind's delay of 60 s expired before the kubelet released its lock
              fix: raise shutdownGracePeriodCriticalPods to 50 s, shutdownGracePeriod to 90 s, and logind's InhibitDelayMaxSec to at least 90 s, or shorten the shutdown of shop/dns, which may take 30 s
        "#]],
    );
}

#[test]
fn a_container_that_starts_within_the_shutdown_is_followed() {
    check(
        &node(
            "
            pod job priority=2000000000 grace=30 job
            -1 pod job phase=pending
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +2 mkdir job:job
            proc job in=job:job pid=130 ns=1 start=+2 parent=shim comm=job
            +2 exec job
            +2.2 pod job phase=running job=running
            +9 exit main 0
            +9.1 rmdir web:app
            +10 TERM runc -> dns handler
            +10.01 enter dns TERM
            +12 exit dns 0
            +12.1 rmdir dns:dns
            +61 node job reboot.target
            +61.1 node state stopping
            +64 reboot back=+90
            +65 node kubelet-state
    ",
        ),
        expect![[r#"
            +41.100 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +44.100 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down
            +94.000 down +63.900…+90.000 of 1
            +94.000 node 1 Critical +1.000…+63.900 truncated UNCLEAN Down { back: Boot(3690000000000) }
              the reboot did not wait for the shutdown of 1 of 3 pods: shop/job (got no stop signal) (normal phase took 8.0 s of 40 s, critical phase took 20.0 s of 20 s); logind's delay of 60 s expired before the kubelet released its lock; 1 pod was started during the shutdown: shop/job
              fix: raise shutdownGracePeriodCriticalPods to 50 s, shutdownGracePeriod to 90 s, and logind's InhibitDelayMaxSec to at least 90 s, or shorten the shutdown of shop/job, which may take 30 s
        "#]],
    );
}

#[test]
fn a_deletion_with_a_short_grace_before_the_shutdown_is_no_cut() {
    check(
        &node(
            "
            -2 skew 0 0
            -2 pod web deleted=-2:5
            -1.9 TERM runc -> main handler
            -1.89 enter main TERM
            +1 node prepare true reboot
            +3.1 KILL runc -> main
            +3.11 exit main KILL
            +3.2 rmdir web:app
            +4 gone web
            +10 TERM runc -> dns handler
            +10.01 enter dns TERM
            +12 exit dns 0
            +12.1 rmdir dns:dns
            +13 node locks
            +13.1 node job reboot.target
            +16 node agent-ends
            +40 end
    ",
        ),
        expect![[r#"
            +5.400 pod web killed-after-grace: Deleted
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 5.0 s later; the pod's grace period is 30 s in its spec, 5 s asked for by the deletion
            +16.000 node 1 Info +1.000…+16.000 graceful AgentEnded
              the reboot was announced by logind, and all pods (2) terminated within 11.0 s (normal phase took 2.1 s of 40 s, critical phase took 8.9 s of 20 s); logind waited 12.1 s of at most 60 s
            +40.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down
        "#]],
    );
}

#[test]
fn a_liveness_probe_with_a_grace_of_its_own_is_no_cut() {
    check(
        &node(
            "
            pod dns priority=2000000000 grace=30 dns dns.liveness-grace=3
            -1 pod dns dns=running
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +2 event dns dns Killing Container dns failed liveness probe, will be restarted
            +2.1 TERM runc -> dns handler
            +2.11 enter dns TERM
            +5.2 KILL runc -> dns
            +5.21 exit dns KILL
            +5.3 rmdir dns:dns
            +9 exit main 0
            +9.1 rmdir web:app
            +13 node locks
            +13.1 node job reboot.target
            +16 node agent-ends
            +40 end
    ",
        ),
        expect![[r#"
            +37.400 container 000000000000 killed-after-grace: Liveness, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 3.1 s later; the kubelet stopped the container because the liveness probe failed
            +40.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +40.000 node 1 Info +1.000…+40.000 graceful ObservationEnded
              the reboot was announced by logind, and all pods (2) terminated within 8.0 s (normal phase took 8.0 s of 40 s, critical phase took less than 1 ms of 20 s); logind waited 12.1 s of at most 60 s
        "#]],
    );
}

#[test]
fn a_drained_node_has_nothing_to_lose_by_a_bypass() {
    check(
        "
        -90 node bus connected
        -90 node limit 60
        -90 node locks kubelet:delay:812
        -90 node kubelet 60 20
        -60 api synced
        +1 node job reboot.target
        +4 reboot back=+40
        +5 node kubelet-state
        ",
        expect![[r#"
            +34.000 down +3.800…+40.000 of 1
            +34.000 node 1 Info +1.000…+3.800 bypassed Down { back: Boot(3640000000000) }
              the reboot bypassed logind: systemd began a job for reboot.target, and logind sent no PrepareForShutdown; the kubelet held its lock, but got no announcement
              fix: use `systemctl poweroff` or `systemctl reboot`, without `--force`; with systemd before version 251 neither `shutdown now` nor `reboot` goes through logind, and with systemd before version 227 no command does: then drain the node first
        "#]],
    );
}

/// The next case to it: a pod that is not reported ran, and it is none that a drain leaves.
#[test]
fn a_node_with_a_pod_that_opted_out_has_something_to_lose() {
    let bypassed = node(
        "
        pod web priority=0 grace=30 ignore app
        -1 pod web app=running
        -0.9 exit dns 0
        -0.8 rmdir dns:dns
        -0.7 gone dns
        +1 node job reboot.target
        +4 reboot back=+40
        +5 node kubelet-state
        ",
    );
    let of = |(_, report): &(crate::time::Boot, Report)| match report {
        Report::NodeShutdown(of) => Some((of.facts.unlisted.ignored_losers, of.verdict.headline, of.verdict.unclean)),
        _ => None,
    };
    let found: Vec<_> = play_all(&bypassed).reports.iter().filter_map(of).collect();
    assert_eq!(found, [(1, "bypassed", true)]);
}

#[test]
fn a_drained_node_has_nothing_to_lose_without_periods() {
    check(
        "
        -90 node bus connected
        -90 node limit 5
        -90 node locks
        -90 node kubelet 0 0
        -60 api synced
        +1 node prepare true reboot
        +1.1 node job reboot.target
        +4 reboot back=+40
        +5 node kubelet-state
        ",
        expect![[r#"
            +34.000 down +3.900…+40.000 of 1
            +34.000 node 1 Info +1.000…+3.900 unprotected Down { back: Boot(3640000000000) }
              the kubelet held no delay lock at the reboot: the kubelet's shutdownGracePeriod is 0 (the default)
              fix: set shutdownGracePeriod and shutdownGracePeriodCriticalPods in the kubelet's configuration, and restart the kubelet
        "#]],
    );
}

#[test]
fn a_machine_that_ran_on_without_an_agent_was_not_down() {
    check(
        &node("+2 node agent-ends\n+2.1 reboot back=+1900000\n+3 node kubelet-state"),
        expect![[r#"
            +32.200 node 1 Warning +2.000…+2.000 unknown Down { back: Boot(1903600000000000) }
              why the node went down is unknown: the agent stopped before the node went down
              fix: keep epitaph running until the pods have terminated: give it the highest priority and a long grace period
        "#]],
    );
}

#[test]
fn critical_pods_get_their_time_from_the_total() {
    check(
        &node(
            "
            -80 node kubelet 30 10
            -80 node limit 30
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +3 exit main 0
            +3.1 rmdir web:app
            +3.5 TERM runc -> dns handler
            +3.51 enter dns TERM
            +13.5 KILL runc -> dns
            +13.51 exit dns KILL
            +13.6 rmdir dns:dns
            +14 node locks
            +14.1 node job reboot.target
            +17 node agent-ends
            +40 end
    ",
        ),
        expect![[r#"
            +35.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 1.9 s later; the node was shutting down
            +40.000 container 000000000000 truncated-by-shutdown: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`; the container runtime sent SIGKILL 10.0 s later, before the end of the container's grace period of 30.0 s; the node was shutting down
            +40.000 node 1 Critical +1.000…+40.000 truncated UNCLEAN ObservationEnded
              the reboot did not wait for the shutdown of 1 of 2 pods: shop/dns (had 10.0 s of its 30 s) (normal phase took 2.0 s of 20 s, critical phase took 10.5 s of 10 s)
              fix: raise shutdownGracePeriodCriticalPods to 30 s, shutdownGracePeriod to 50 s, and logind's InhibitDelayMaxSec to at least 50 s, or shorten the shutdown of shop/dns, which may take 30 s
        "#]],
    );
}

#[test]
fn the_lock_of_another_outlasts_the_delay() {
    check(
        &node(
            "
            pod web priority=0 grace=120 app
            -1 pod web app=running
            -80 node locks kubelet:delay:812 backup:delay:77
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +41.1 KILL runc -> main
            +41.11 exit main KILL
            +41.2 rmdir web:app
            +42 TERM runc -> dns handler
            +42.01 enter dns TERM
            +43 exit dns 0
            +43.1 rmdir dns:dns
            +44 node locks backup:delay:77
            +61 node job reboot.target
            +63 node agent-ends
            +70 end
    ",
        ),
        expect![[r#"
            +70.000 container 000000000000 truncated-by-shutdown: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`; the container runtime sent SIGKILL 40.0 s later, before the end of the container's grace period of 120 s; the node was shutting down
            +70.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 1.0 s later; the node was shutting down
            +70.000 node 1 Critical +1.000…+70.000 truncated UNCLEAN ObservationEnded
              the reboot did not wait for the shutdown of 1 of 2 pods: shop/web (had 40.0 s of its 120 s) (normal phase took 40.1 s of 40 s, critical phase took 1.9 s of 20 s); `backup` held a lock until logind's delay of 60 s expired
              fix: raise shutdownGracePeriod to 140 s, and logind's InhibitDelayMaxSec to at least 140 s, or shorten the shutdown of shop/web, which may take 120 s
        "#]],
    );
}

#[test]
fn a_pod_that_the_api_has_not_shown_is_not_proven_to_have_ended() {
    check(
        &node(&format!(
            "
            pod late priority=0 grace=30 app
            -5 mkdir late:app
            proc late in=late:app pid=140 ns=1 start=-5 parent=shim comm=late
            -5 exec late
            {ORDERLY}\n+17 node agent-ends\n+20 end"
        )),
        expect![[r#"
            +13.000 pod web clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +16.100 pod dns clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down
            +20.000 node 1 Warning +1.000…+20.000 unknown ObservationEnded
              how the reboot went is unknown: the pods of the node were not known
              fix: `epitaph doctor` shows what cannot be observed on this node
        "#]],
    );
}

#[test]
fn a_role_that_is_switched_off_within_the_delay_is_a_gap() {
    check(
        &node(
            "
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +1.2 node bus off
            +9 exit main 0
            +9.1 rmdir web:app
            +10 TERM runc -> dns handler
            +10.01 enter dns TERM
            +12 exit dns 0
            +12.1 rmdir dns:dns
            +15 node agent-ends
            +20 end
    ",
        ),
        expect![[r#"
            +20.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +20.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 2.0 s later; the node was shutting down
            +20.000 node 1 Warning +1.000…+20.000 unknown ObservationEnded
              how the reboot went is unknown: the observation of logind is switched off
              fix: run `epitaph logind` (chart: `logind.enabled`), and keep it connected: without it a shutdown and a power loss look the same
        "#]],
    );
}

/// In a part that is missing the kubelet may have released its lock, or taken one: the list before it is out of date.
#[test]
fn a_lock_from_before_a_missing_part_need_not_be_held() {
    let lost = Kind::ALL
        .map(|kind| format!("-40 lost {} -50 1 damaged\n", kind.name()))
        .concat();
    let script = |locks: &str, orderly: &str| {
        node(&format!(
            "{locks}\n{lost}-40 node lost 1\n{orderly}\n+17 node agent-ends\n+20 end"
        ))
    };
    for locks in ["", "-55 node locks epitaph:delay:900"] {
        assert_eq!(verdicts(&script(locks, ORDERLY)), ["unknown"], "{locks}");
        let text = show(&play_all(&script(locks, ORDERLY)));
        assert!(text.contains("whether the kubelet held a lock was not observed"), "{text}");
        // A list within the shutdown shows it. A pod that came in that part, and that nothing stops, would show itself in no record.
        let list = "+1.05 node locks kubelet:delay:813 epitaph:delay:900\n+1.1 TERM";
        let text = show(&play_all(&script(locks, &ORDERLY.replace("+1.1 TERM", list))));
        assert!(text.contains("the pods of the node were not known"), "{text}");
    }
}

/// A journal shows the pods that run at the begin of a shutdown once more. Any other recording does not.
#[test]
fn a_missing_part_long_before_hides_no_pod_of_a_journal() {
    let lost = Kind::ALL
        .map(|kind| format!("-40 lost {} -50 1 damaged\n", kind.name()))
        .concat();
    let list = "+1.05 node locks kubelet:delay:813 epitaph:delay:900\n+1.1 TERM";
    let orderly = ORDERLY.replace("+1.1 TERM", list);
    let verdicts_of = |script: &str, reads_journal: bool| {
        let mut core = Correlator::new(Limits::default());
        core.reads_journal(reads_journal);
        let inputs = script::parse(script).inputs.into_iter();
        let reports = inputs.flat_map(|(now, input)| core.handle(now, input).reports);
        let of = |report| match report {
            Report::NodeShutdown(of) => Some(of.verdict.headline),
            _ => None,
        };
        reports.filter_map(of).collect::<Vec<_>>()
    };
    let verdicts = |script: &str, reads_journal: bool| verdicts_of(&node(script), reads_journal);
    let end = "+17 node agent-ends\n+20 end";
    let before = format!("{lost}-40 node lost 1\n{orderly}\n{end}");
    assert_eq!(verdicts(&before, true), ["graceful"]);
    assert_eq!(verdicts(&before, false), ["unknown"]);
    // A journal may have several boots.
    assert_eq!(
        verdicts_of(&format!("-110 start\n-100 reboot\n{}", node(&before)), true),
        ["graceful"]
    );
    // A part that ends with the begin may have had some of them.
    let at_begin = before.replace("-40 ", "+1 ");
    assert_eq!(verdicts(&at_begin, true), ["unknown"]);
}

/// The journal keeps it, too: the kernel need not have shown its cgroup.
#[test]
fn a_pod_that_only_its_status_shows_is_known_at_the_next_boot() {
    let script = node(&format!(
        "pod ghost app\n-50 pod ghost app=running\n{ORDERLY}\n+17 node agent-ends\n+20 reboot back=+40\n+21 node kubelet-state\n+100 tick"
    ));
    assert_eq!(verdicts(&script), ["unknown"]);
    assert_eq!(at_the_next_boot(&script), ["unknown"]);
    let seen = script.replace("pod ghost app\n-50 pod ghost app=running\n", "");
    assert_eq!(at_the_next_boot(&seen), ["graceful"]);
}

/// So does one pod more than are followed.
#[test]
fn too_many_pods_are_too_many_at_the_next_boot() {
    let with = |more: usize| {
        let begin = |i: usize| {
            format!(
                "pod p{i} app\n-59 mkdir p{i}:app\nproc p{i} in=p{i}:app pid={} ns=1 start=-59 parent=shim comm=app\n-59 exec p{i}\n\
                 -58 pod p{i} app=running\n",
                1_000 + i
            )
        };
        let end = |i: usize| {
            format!(
                "+1.1 TERM runc -> p{i} handler\n+1.11 enter p{i} TERM\n+2 exit p{i} 0\n+2.1 rmdir p{i}:app\n\
                 +2.5 pod p{i} phase=failed reason=Terminated app=0:Completed\n"
            )
        };
        let of = |lines: &dyn Fn(usize) -> String| (0..more).map(lines).collect::<String>();
        let orderly = ORDERLY.replace("+9 exit main", &format!("{}+9 exit main", of(&end)));
        node(&format!(
            "{}{orderly}\n+17 node agent-ends\n+20 reboot back=+40\n+21 node kubelet-state\n+100 tick",
            of(&begin)
        ))
    };
    for (more, verdict) in [(FOLLOWED - 2, "graceful"), (FOLLOWED - 1, "unknown")] {
        assert_eq!(verdicts(&with(more)), [verdict]);
        assert_eq!(at_the_next_boot(&with(more)), [verdict]);
    }
}

#[test]
fn a_kubelet_that_dies_within_the_delay_is_named() {
    check(
        &node(
            "
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +3 node locks
            +3.1 node job reboot.target
            +3.2 node state stopping
            +6 reboot back=+40
            +7 node kubelet-state start=+1
    ",
        ),
        expect![[r#"
            +36.000 down +5.800…+40.000 of 1
            +36.000 node 1 Critical +1.000…+5.800 truncated UNCLEAN Down { back: Boot(3640000000000) }
              the reboot did not wait for the shutdown of 2 of 2 pods: shop/dns (got no stop signal), shop/web (had 2.0 s of its 30 s) (normal phase took 2.1 s of 40 s)
              fix: look at the log of the kubelet's service in that boot: the kubelet released its lock after 2.0 s, before its periods (60 s) had passed and its pods had ended
            +66.000 container 000000000000 truncated-by-shutdown: NodeShutdown, by 1 PrepareForShutdown
              container `app`: PID 1 `app` still ran 2.0 s after SIGTERM, when the shutdown of the node stopped all processes; the node was shutting down
        "#]],
    );
}

#[test]
fn a_pod_that_opted_out_is_not_named() {
    check(
        &cut_by_a_phase("ignore", ""),
        expect![[r#"
            +47.000 node 1 Info +1.000…+47.000 graceful AgentEnded
              the reboot was announced by logind, and 1 pod terminated within 42.0 s (critical phase took 1.9 s of 20 s); logind waited 43.1 s of at most 60 s
            +60.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 1.0 s later; the node was shutting down
        "#]],
    );
}

#[test]
fn a_hard_eviction_is_no_cut() {
    check(
        &node(
            "
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +2 TERM runc -> dns handler
            +2.01 enter dns TERM
            +4.05 KILL runc -> dns
            +4.06 exit dns KILL
            +4.1 rmdir dns:dns
            +4.5 pod dns phase=failed reason=Evicted dns=137:Error
            +9 exit main 0
            +9.1 rmdir web:app
            +13 node locks
            +13.1 node job reboot.target
            +16 node agent-ends
            +40 end
    ",
        ),
        expect![[r#"
            +8.100 pod dns killed-after-grace: EvictedNodePressure
              container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.0 s later; the pod's grace period is 30 s in its spec, and the kubelet's eviction did not wait for its end; the kubelet evicted the pod: the node or the pod ran out of a resource
            +16.000 node 1 Info +1.000…+16.000 graceful AgentEnded
              the reboot was announced by logind, and all pods (2) terminated within 8.0 s (normal phase took 8.0 s of 40 s, critical phase took less than 1 ms of 20 s); logind waited 12.1 s of at most 60 s
            +40.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
        "#]],
    );
}

/// The API did not answer any more: an eviction that no status shows may have killed the pod.
#[test]
fn an_outage_may_hide_the_eviction_that_killed_a_pod() {
    check(
        &node(
            "
            +1 node prepare true reboot
            +1.1 TERM runc -> main handler
            +1.11 enter main TERM
            +2 TERM runc -> dns handler
            +2.01 enter dns TERM
            +4.05 KILL runc -> dns
            +4.06 exit dns KILL
            +4.1 rmdir dns:dns
            +4.5 api away timeout
            +9 exit main 0
            +9.1 rmdir web:app
            +13 node locks
            +13.1 node job reboot.target
            +16 node agent-ends
            +40 end
    ",
        ),
        expect![[r#"
            +40.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
              container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
            +40.000 container 000000000000 unknown: Unknown, by 1 PrepareForShutdown
              container `dns`: PID 1 `dns` was terminated by SIGKILL, but the reason is unknown: the watch of the pods was interrupted, so a deletion request or a shorter grace period may not have been seen; the reason for the termination is unknown: epitaph stopped before the state of the pod was known; the Kubernetes API did not answer during the termination: timeout
            +40.000 node 1 Warning +1.000…+40.000 unknown ObservationEnded
              how the reboot went is unknown: a container was killed, and why it was stopped, or how long it had, is not known: shop/dns
              fix: read the report of that container: it names the evidence that is missing
        "#]],
    );
}

/// No kubelet evicts a static pod, and nobody requests the end of one: only the phase can have killed it.
#[test]
fn an_outage_hides_no_eviction_of_a_static_pod() {
    let script = node(
        "
        pod dns hash=abc priority=2000000000 grace=30 dns
        -58 mkdir dns:dns
        proc dns in=dns:dns pid=110 ns=1 start=-58 parent=shim comm=dns
        -58 exec dns
        -57 pod dns dns=running
        +1 node prepare true reboot
        +1.1 TERM runc -> main handler
        +1.11 enter main TERM
        +9 exit main 0
        +9.1 rmdir web:app
        +10 TERM runc -> dns handler
        +10.01 enter dns TERM
        +13 api away timeout
        +30 KILL runc -> dns
        +30.01 exit dns KILL
        +30.1 rmdir dns:dns
        +33 node locks
        +33.1 node job reboot.target
        +36 node agent-ends
        +120 end
        ",
    );
    let script = script.replacen(
        "    -59 mkdir dns:dns\n    proc dns in=dns:dns pid=110 ns=1 start=-59 parent=shim comm=dns\n    -59 exec dns\n",
        "",
        1,
    );
    let script = script.replacen("    -58 pod dns dns=running\n", "", 1);
    check(
        &script,
        expect![[r#"
        +71.000 container 000000000000 clean: NodeShutdown, by 1 PrepareForShutdown
          container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 7.9 s later; the node was shutting down
        +92.200 container 000000000000 truncated-by-shutdown: NodeShutdown, by 1 PrepareForShutdown
          container `dns`: the container runtime sent SIGTERM to PID 1 `dns`; the container runtime sent SIGKILL 20.0 s later, before the end of the container's grace period of 30.0 s; the node was shutting down
        +120.000 node 1 Critical +1.000…+120.000 truncated UNCLEAN ObservationEnded
          the reboot did not wait for the shutdown of 1 of 2 pods: shop/dns (had 20.0 s of its 30 s) (normal phase took 8.0 s of 40 s, critical phase took 20.0 s of 20 s)
          fix: raise shutdownGracePeriodCriticalPods to 30 s, shutdownGracePeriod to 70 s, and logind's InhibitDelayMaxSec to at least 70 s, or shorten the shutdown of shop/dns, which may take 30 s
    "#]],
    );
}

/// What a drain leaves opted out: these pods ran, and the sentence does not say that none did.
#[test]
fn pods_that_opted_out_are_no_proof_that_none_ran() {
    let drained = |options: &str| {
        node(&format!(
            "
            +0.1 exit main 0
            +0.2 rmdir web:app
            +0.3 gone web
            pod dns priority=2000000000 grace=30 {options} dns
            +0.4 pod dns dns=running
            +10 node prepare true reboot
            +11 TERM runc -> dns handler
            +11.01 enter dns TERM
            +12 exit dns 0
            +12.1 rmdir dns:dns
            +12.5 pod dns phase=failed reason=Terminated dns=0:Completed
            +13 node locks
            +13.3 node job reboot.target
            +16 node agent-ends
            +20 end
            "
        ))
    };
    check(
        &drained("ignore"),
        expect![[r#"
        +2.400 pod web clean: Deleted
          container `app`: PID 1 `app` exited with code 0; no stop signal was seen
        +16.000 node 1 Info +10.000…+16.000 graceful AgentEnded
          the reboot was announced by logind, and no pod that is reported ran; logind waited 3.3 s of at most 60 s
    "#]],
    );
    check(
        &drained(""),
        expect![[r#"
        +2.400 pod web clean: Deleted
          container `app`: PID 1 `app` exited with code 0; no stop signal was seen
        +16.000 node 1 Info +10.000…+16.000 graceful AgentEnded
          the reboot was announced by logind, and 1 pod terminated within 2.0 s (critical phase took 2.0 s of 20 s); logind waited 3.3 s of at most 60 s
        +16.000 pod dns clean: NodeShutdown, by 1 PrepareForShutdown
          container `dns`: the container runtime sent SIGTERM to PID 1 `dns`, the handler ran, and the process exited with code 0, 1.0 s later; the node was shutting down
    "#]],
    );
}

/// The next case to it: really none, but the agent's own.
#[test]
fn no_pod_ran_where_none_ran() {
    let script = |own: &str| {
        format!(
            "
            -90 node bus connected
            -90 node limit 60
            -90 node locks kubelet:delay:812
            -90 node kubelet 60 20
            -60 api synced
            {own}
            +1 node prepare true reboot
            +3 node locks
            +3.3 node job reboot.target
            +6 node agent-ends 00000000-0000-4000-8000-000000000001
            +10 end
            "
        )
    };
    check(
        &script(""),
        expect![[r#"
        +6.000 node 1 Info +1.000…+6.000 graceful AgentEnded
          the reboot was announced by logind, and no pod ran; logind waited 2.3 s of at most 60 s
    "#]],
    );
    // The chart opts the agent's pod out.
    for options in ["", "ignore"] {
        check(
            &script(&format!(
                "pod epitaph priority=2000001000 grace=30 {options} agent
                -50 mkdir epitaph:agent
                proc agent in=epitaph:agent pid=130 ns=1 start=-50 parent=shim comm=epitaph
                -50 exec agent
                -49 pod epitaph agent=running"
            )),
            expect![[r#"
                +6.000 node 1 Info +1.000…+6.000 graceful AgentEnded
                  the reboot was announced by logind, and no pod ran besides epitaph's own; logind waited 2.3 s of at most 60 s
            "#]],
        );
    }
}
