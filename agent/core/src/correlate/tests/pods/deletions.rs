//! Pods that are deleted, and others that are over.

use expect_test::expect;

use crate::fixtures::script::play as run;
use crate::report::Report;

use super::{check, check_sentences, web};

#[test]
fn a_clean_deletion_is_one_termination_of_the_pod() {
    check(
        &web("
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +1.51 rmdir web:app
        +1.7 KILL runc -> pause
        +1.71 exit pause KILL
        +1.72 rmdir web:pause
        +2 pod web app=0:Completed
        +3 gone web
        "),
        expect![[r#"
            +4.000 pod web +1.000…+1.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
              gone +3.000
        "#]],
    );
}

#[test]
fn no_handler_and_the_grace_is_known_at_once() {
    check(
        &web("
        +1.05 pod web deleted=+1:8
        +1.4 TERM runc -> main ignored default
        +9.4 KILL runc -> main
        +9.41 exit main KILL
        +9.6 KILL runc -> pause
        +9.61 exit pause KILL
        +10 pod web app=137:Error
        +11 gone web
        "),
        expect![[r#"
            +1.400 early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal, 7.7 s left
            +12.000 pod web +1.000…+9.410 ignored-stop-signal: Deleted/IgnoredStopSignal/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 8 s
              web/app +1.400…+9.410 ignored-stop-signal: Deleted/IgnoredStopSignal/Quiet
                Deleted: deletionTimestamp, grace 8 s, reported 137 Error
              gone +11.000
        "#]],
    );
}

#[test]
fn a_force_delete_is_not_over_when_the_api_forgets_the_pod() {
    check(
        &web("
        +1.1 gone web
        +2 TERM runc -> main ignored default
        +4.2 KILL runc -> main
        +4.21 exit main KILL
        +4.4 KILL runc -> pause
        +4.41 exit pause KILL
        "),
        expect![[r#"
            +2.000 early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal, 2.0 s left
            +6.710 pod web +1.100…+4.210 ignored-stop-signal: Deleted/IgnoredStopSignal/Quiet (deleted with a grace period of 0)
              web/app +2.000…+4.210 ignored-stop-signal: Deleted/IgnoredStopSignal/Quiet
                Deleted: deleted with a grace period of 0, grace 0 s
              gone +1.100
        "#]],
    );
}

/// No exit: no report.
#[test]
fn a_force_delete_of_what_never_ends_is_told_in_time() {
    check(
        &web("
        +1.1 gone web
        +2 TERM runc -> main ignored default
        "),
        expect![[r#"
            +2.000 early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal, 2.0 s left
        "#]],
    );
}

/// Nothing ends it; then it ends all the same.
#[test]
fn a_process_that_no_kill_ends_is_told_while_it_runs() {
    check(
        &web("
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +20 pod web deleted=+1:5
        +31.4 KILL runc -> main
        +200 exit main KILL
        +203 gone web
        "),
        expect![[r#"
            +46.400 stuck: container `app`: PID 1 `app` is still running 45.4 s after deletion was requested (grace period 30 s), 15.0 s after SIGKILL; a later delete request, 18.9 s after the first, shortened the grace period from 30 s to 5 s, but SIGKILL did not come earlier
            +203.200 pod web +1.000…+200.000 killed-after-grace: Deleted/KilledAfterGrace/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s, +20.000 to 5 s
              web/app +1.300…+200.000 killed-after-grace: Deleted/KilledAfterGrace/Quiet
                Deleted: deletionTimestamp, grace 30 s
              gone +203.000
        "#]],
    );
    // The record of its end was lost: the API knows better, and a finalizer keeps the pod.
    check(
        &web("
        +1.05 pod web deleted=+1:5
        +1.3 TERM runc -> main handler
        +6.4 KILL runc -> main
        +8 pod web app=137:Error
        +60 gone web
        "),
        expect![[r#"
            +38.000 pod web +1.000…+8.000 unknown: Deleted/Unknown/Unknown (deletionTimestamp)
              request +1.000…+1.050 grace 5 s
              unseen app Some(Reported { exit_code: 137, reason: Some("Error") })
        "#]],
    );
}

#[test]
fn a_second_delete_shortens_the_grace() {
    check(
        &web("
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +5.1 pod web deleted=+5:3
        +8.2 KILL runc -> main
        +8.21 exit main KILL
        +9 pod web app=137:Error
        +10 gone web
        "),
        expect![[r#"
            +10.600 pod web +1.000…+8.210 killed-after-grace: Deleted/KilledAfterGrace/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s, +5.100 to 3 s
              web/app +1.300…+8.210 killed-after-grace: Deleted/KilledAfterGrace/Quiet
                Deleted: deletionTimestamp, grace 3 s, reported 137 Error
              gone +10.000
        "#]],
    );
}

/// As Kubernetes 1.36's kubelet with containerd was seen to do.
#[test]
fn a_second_delete_that_the_kubelet_does_not_follow() {
    check(
        &web("
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +5.1 pod web deleted=+5:3
        +31.4 KILL runc -> main
        +31.41 exit main KILL
        +32 pod web app=137:Error
        +33 gone web
        "),
        expect![[r#"
            +33.800 pod web +1.000…+31.410 killed-after-grace: Deleted/KilledAfterGrace/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s, +5.100 to 3 s
              web/app +1.300…+31.410 killed-after-grace: Deleted/KilledAfterGrace/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 137 Error
              gone +33.000
        "#]],
    );
}

#[test]
fn who_ended_by_itself_after_a_shorter_grace_had_the_first_one() {
    check(
        &web("
        +1.05 pod web deleted=+1:60
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +5.1 pod web deleted=+5:20
        +45 exit main 0
        +46 pod web app=0:Completed
        +47 gone web
        "),
        expect![[r#"
            +47.200 pod web +1.000…+45.000 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 60 s, +5.100 to 20 s
              web/app +1.300…+45.000 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 60 s, reported 0 Completed
              gone +47.000
        "#]],
    );
}

#[test]
fn an_eviction_by_the_api() {
    check(
        &web("
        +1 pod web disruption=EvictionByEvictionAPI
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +3 gone web
        "),
        expect![[r#"
            +3.800 pod web +1.000…+1.500 clean: EvictedApi/Clean/Quiet (DisruptionTarget=EvictionByEvictionAPI)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.500 clean: EvictedApi/Clean/Quiet
                EvictedApi: DisruptionTarget=EvictionByEvictionAPI, grace 30 s
              gone +3.000
        "#]],
    );
}

#[test]
fn a_node_pressure_eviction_says_why_only_when_all_is_over() {
    check(
        &web("
        pod web app slow
        -59 mkdir web:slow
        proc slow in=web:slow pid=110 ns=1 start=-59 parent=shim comm=slow
        -59 exec slow
        -58 pod web app=running slow=running
        +1 TERM runc -> main handler
        +1.01 TERM runc -> slow handler
        +1.02 enter main TERM
        +1.03 enter slow TERM
        +1.2 exit main 0
        +2 pod web app=0:Completed
        +24 exit slow 0
        +26 pod web slow=0:Completed phase=failed reason=Evicted disruption=TerminationByKubelet
        "),
        expect![[r#"
            +28.000 pod web +1.000…+24.000 clean: EvictedNodePressure/Clean/Quiet (DisruptionTarget=TerminationByKubelet)
              web/app +1.000…+1.200 clean: EvictedNodePressure/Clean/Quiet
                EvictedNodePressure: DisruptionTarget=TerminationByKubelet, reported 0 Completed
              web/slow +1.010…+24.000 clean: EvictedNodePressure/Clean/Quiet
                EvictedNodePressure: DisruptionTarget=TerminationByKubelet, reported 0 Completed
        "#]],
    );
}

/// The removal of a terminated pod is not a second termination.
#[test]
fn a_job_that_completes_and_is_removed_later() {
    check(
        &web("
        pod web policy=never app
        -58 pod web app=running
        +1 exit main 0
        +1.1 rmdir web:app
        +2 pod web app=0:Completed phase=succeeded
        +2.2 KILL runc -> pause
        +2.21 exit pause KILL
        +60 pod web deleted=+60:0
        +60.1 gone web
        "),
        expect![[r#"
            +6.310 pod web +1.000…+1.000 clean: Completed/Clean/Quiet (nobody asked)
              web/app +1.000…+1.000 clean: Completed/Clean/Quiet
                reported 0 Completed
        "#]],
    );
}

#[test]
fn a_finalizer_keeps_a_pod_that_is_over() {
    check(
        &web("
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +3 pod web app=0:Completed phase=succeeded
        +100 gone web
        "),
        expect![[r#"
            +5.600 pod web +1.000…+1.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
        "#]],
    );
}

#[test]
fn a_sidecar_waits_for_the_main_container() {
    check(
        &web("
        pod web grace=8 app log:sidecar
        -59.5 mkdir web:log
        proc log in=web:log pid=110 ns=1 start=-59.5 parent=shim comm=log
        -59.5 exec log
        -58 pod web app=running log=running
        +1.05 pod web deleted=+1:8
        +1.2 TERM runc -> main ignored default
        +9.3 TERM runc -> log handler
        +9.31 enter log TERM
        +9.9 KILL runc -> main
        +9.91 exit main KILL
        +11.5 KILL runc -> log
        +11.51 exit log KILL
        +12 pod web app=137:Error log=137:Error
        +13 gone web
        "),
        expect![[r#"
            +1.200 early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal, 7.8 s left
            +13.800 pod web +1.000…+11.510 sidecar-starved: Deleted/SidecarStarved/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 8 s
              web/app +1.200…+9.910 ignored-stop-signal: Deleted/IgnoredStopSignal/Quiet
                Deleted: deletionTimestamp, grace 8 s, reported 137 Error
              web/log +9.300…+11.510 sidecar-starved: Deleted/SidecarStarved/Quiet
                Deleted: deletionTimestamp, grace 8 s, mains ended +9.910, reported 137 Error
              gone +13.000
        "#]],
    );
}

#[test]
fn a_crash_before_the_deletion_is_not_part_of_it() {
    check(
        &web("
        +1 exit main 3
        +1.5 pod web app=waiting app.last=web:app:3:Error app.restarts=1
        +60 pod web deleted=+60:30
        +61 KILL runc -> pause
        +61.1 exit pause KILL
        +62 gone web
        "),
        expect![[r#"
            +4.100 web/app +1.000…+1.000 nonzero-exit: Crash/NonzeroExit/Quiet
              reported 3 Error
        "#]],
    );
}

#[test]
fn a_name_that_is_used_again_at_once_is_another_pod() {
    check(
        &web("
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +2 pod web app=0:Completed
        +2.5 gone web
        pod web uid=00000000-0000-4000-8000-00000000beef app
        +2.6 mkdir web:again-pause
        proc again-pause in=web:again-pause pid=190 ns=1 start=+2.6 parent=shim comm=pause
        +2.6 exec again-pause
        +2.8 mkdir web:again
        proc again in=web:again pid=200 ns=1 start=+2.8 parent=shim comm=app
        +2.8 exec again
        +3 pod web app.id=web:again app=running
        +5.02 pod web deleted=+5:30
        +5.1 TERM runc -> again default ignored
        +5.2 KILL bash -> again
        +5.21 exit again KILL
        +6 gone web
        "),
        expect![[r#"
            +3.800 pod web +1.000…+1.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
              gone +2.500
            +5.100 early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal, 29.9 s left
            +7.600 pod web +5.000…+5.210 killed-by-other: Deleted/KilledByOther/Quiet (deletionTimestamp)
              request +5.000…+5.020 grace 30 s
              web/app +5.100…+5.210 killed-by-other: Deleted/KilledByOther/Quiet
                Deleted: deletionTimestamp, grace 30 s
              gone +6.000
        "#]],
    );
}

#[test]
fn one_of_two_crashes_while_the_other_stops() {
    check(
        &web("
        pod web app other
        -59 mkdir web:other
        proc other in=web:other pid=110 ns=1 start=-59 parent=shim comm=other
        -59 exec other
        -58 pod web app=running other=running
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 TERM runc -> other handler
        +1.32 enter main TERM
        +1.33 enter other TERM
        +1.5 exit main 0
        +1.6 SEGV other -> other fault
        +1.61 exit other SEGV
        +3 pod web app=0:Completed other=139:Error
        +4 gone web
        "),
        expect![[r#"
            +4.200 pod web +1.000…+1.610 crashed: Deleted/Crashed/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
              web/other +1.310…+1.610 crashed: Deleted/Crashed/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 139 Error
              gone +4.000
        "#]],
    );
}

#[test]
fn what_ends_long_after_its_pod_is_told_by_itself() {
    check(
        &web("
        +1.1 gone web
        +2 TERM runc -> main ignored default
        +90 KILL runc -> main
        +90.1 exit main KILL
        "),
        expect![[r#"
            +2.000 early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal, 2.0 s left
            +93.200 web/app +2.000…+90.100 ignored-stop-signal: Deleted/IgnoredStopSignal/Quiet
              Deleted: deleted with a grace period of 0, grace 0 s
        "#]],
    );
}

#[test]
fn a_taint_and_a_preemption() {
    check(
        &web("
        +1.05 pod web deleted=+1:30 disruption=DeletionByTaintManager
        +1.3 TERM runc -> main default ignored
        +1.5 KILL runc -> main
        +1.51 exit main KILL
        +3 gone web
        pod low uid=00000000-0000-4000-8000-00000000beef app
        +10 mkdir low:app
        proc low in=low:app pid=200 ns=1 start=+10 parent=shim comm=low
        +10 exec low
        +11 pod low app=running
        +20.05 pod low deleted=+20:30 disruption=PreemptionByScheduler
        +20.3 TERM runc -> low handler
        +20.31 enter low TERM
        +20.4 exit low 0
        +22 gone low
        "),
        expect![[r#"
            +1.300 early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal, 29.8 s left
            +3.800 pod web +1.000…+1.510 ignored-stop-signal: EvictedTaint/IgnoredStopSignal/Quiet (DisruptionTarget=DeletionByTaintManager)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.510 ignored-stop-signal: EvictedTaint/IgnoredStopSignal/Quiet
                EvictedTaint: DisruptionTarget=DeletionByTaintManager, grace 30 s
              gone +3.000
            +22.600 pod low +20.000…+20.400 clean: EvictedPreempted/Clean/Quiet (DisruptionTarget=PreemptionByScheduler)
              request +20.000…+20.050 grace 30 s
              low/app +20.300…+20.400 clean: EvictedPreempted/Clean/Quiet
                EvictedPreempted: DisruptionTarget=PreemptionByScheduler, grace 30 s
              gone +22.000
        "#]],
    );
}

#[test]
fn a_job_that_is_removed_at_once_completed_all_the_same() {
    check(
        &web("
        pod web policy=never app
        -58 pod web app=running
        +1 exit main 0
        +1.1 rmdir web:app
        +2 pod web app=0:Completed phase=succeeded
        +2.1 pod web deleted=+2:0
        +2.2 gone web
        +2.3 KILL runc -> pause
        +2.31 exit pause KILL
        "),
        expect![[r#"
            +3.210 pod web +1.000…+1.000 clean: Completed/Clean/Quiet (nobody asked)
              web/app +1.000…+1.000 clean: Completed/Clean/Quiet
                reported 0 Completed
              gone +2.200
        "#]],
    );
}

/// The pod's node was deleted. The garbage collector sets the phase, even if containers still run.
#[test]
fn a_pod_that_garbage_collection_removes() {
    let script = web("
        +1 pod web phase=failed disruption=DeletionByPodGC:PodGC:_node_no_longer_exists
        +1.05 gone web
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        ");
    check(
        &script,
        expect![[r#"
            +3.800 pod web +1.050…+1.500 clean: Deleted/Clean/Quiet (DisruptionTarget=DeletionByPodGC)
              web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: DisruptionTarget=DeletionByPodGC
              gone +1.050
        "#]],
    );
    check_sentences(
        &script,
        expect![[r#"
            container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later; pod garbage collection removed the pod: "PodGC: node no longer exists"
        "#]],
    );
}

/// A message can hold anything, and a controller of one's own can leave it out.
#[test]
fn the_word_of_garbage_collection_is_quoted() {
    let long = "x".repeat(300);
    let said = |message: &str| {
        web(&format!(
            "
        +1.05 pod web deleted=+1:30 disruption=DeletionByPodGC:{message}
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +3 gone web
        "
        ))
    };
    check_sentences(
        &said(""),
        expect![[r#"
            container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later; pod garbage collection removed the pod
        "#]],
    );
    check_sentences(
        &said(&format!("\u{1b}[2J\"{long}")),
        expect![[r#"
            container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later; pod garbage collection removed the pod: "\u{1b}[2J\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"
        "#]],
    );
}

/// The condition has more detail than the reason.
#[test]
fn a_node_pressure_eviction_names_the_resource() {
    check_sentences(
        &web("
        +1 TERM runc -> main handler
        +1.02 enter main TERM
        +1.2 exit main 0
        +3 pod web app=0:Completed phase=failed reason=Evicted disruption=TerminationByKubelet:The_node_was_low_on_resource:_memory.
        "),
        expect![[r#"
            container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later; the kubelet evicted the pod: the node or the pod ran out of a resource ("The node was low on resource: memory.")
        "#]],
    );
}

#[test]
fn a_node_shutdown_names_itself_in_the_status() {
    check(
        &web("
        +1 TERM runc -> main handler
        +1.02 enter main TERM
        +1.2 exit main 0
        +3 pod web app=0:Completed phase=failed reason=Terminated disruption=TerminationByKubelet
        "),
        expect![[r#"
            +5.200 pod web +1.000…+1.200 clean: NodeShutdown/Clean/Quiet (DisruptionTarget=TerminationByKubelet)
              web/app +1.000…+1.200 clean: NodeShutdown/Clean/Quiet
                NodeShutdown: DisruptionTarget=TerminationByKubelet, reported 0 Completed
        "#]],
    );
}

/// A virtual machine that was paused: its kubelet stops a pod whose deletion was requested meanwhile.
#[test]
fn a_pause_between_the_request_and_the_stop_is_stated() {
    let steps = |timeline: &str| -> Vec<Option<i64>> {
        let of = |(_, report)| match report {
            Report::PodTerminated(pod) => pod.containers.iter().map(|of| of.facts.gaps.clock_step).collect(),
            _ => Vec::new(),
        };
        run(&web(timeline)).into_iter().flat_map(of).collect()
    };
    let rest = "
        +3 TERM runc -> main handler
        +3.01 enter main TERM
        +3.5 exit main 0
        +3.51 rmdir web:app
        +3.7 KILL runc -> pause
        +3.71 exit pause KILL
        +3.72 rmdir web:pause
        +4 pod web app=0:Completed
        +5 gone web
        ";
    let resumed = |before: &str| steps(&format!("{before}{rest}"));
    assert_eq!(resumed("\n+2 clock +90\n+2.5 pod web deleted=+60:30"), [Some(90_000_000_000)]);
    assert_eq!(
        resumed("\n+2 clock +90\n+2.5 pod web deleted=+92.4:30"),
        [None],
        "requested after it"
    );
}
