//! Deaths, requests and the API's words that overtake one another.

use expect_test::expect;

use super::{check, web};

/// The kubelet's last delete has a grace of 0: where a finalizer holds the pod (every Job's does) it becomes a version.
#[test]
fn the_kubelets_last_delete_shortens_nothing() {
    check(
        &web("
        +1.05 pod web deleted=+1:8
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +9.4 KILL runc -> main
        +9.41 exit main KILL
        +10 pod web app=137:Error phase=failed
        +10.5 pod web deleted=+10:0
        +11 gone web
        "),
        expect![[r#"
            +11.800 pod web +1.000…+9.410 killed-after-grace: Deleted/KilledAfterGrace/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 8 s
              web/app +1.300…+9.410 killed-after-grace: Deleted/KilledAfterGrace/Quiet
                Deleted: deletionTimestamp, grace 8 s, reported 137 Error
              gone +11.000
        "#]],
    );
}

#[test]
fn a_crash_that_was_followed_by_a_restart_is_no_part_of_the_pods_end() {
    check(
        &web("
        +1 exit main 3
        +1.2 mkdir web:app:2
        proc second in=web:app:2 pid=101 ns=1 start=+1.2 parent=shim comm=app
        +1.2 exec second
        +1.5 pod web app.last=web:app:3:Error app.restarts=1 app.id=web:app:2 app=running
        +2.05 pod web deleted=+2:30
        +2.1 TERM runc -> second handler
        +2.11 enter second TERM
        +2.2 exit second 0
        +3 pod web app=0:Completed
        +3.1 gone web
        "),
        expect![[r#"
            +4.100 web/app +1.000…+1.000 nonzero-exit: Crash/NonzeroExit/Quiet
              reported 3 Error
            +4.500 pod web +2.000…+2.200 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +2.000…+2.050 grace 30 s
              web/app +2.100…+2.200 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, restarts 1, reported 0 Completed
              gone +3.100
        "#]],
    );
}

#[test]
fn a_crash_in_back_off_is_no_part_of_the_pods_end() {
    check(
        &web("
        +1 exit main 3
        +1.5 pod web app=waiting app.last=web:app:3:Error app.restarts=1
        +2.05 pod web deleted=+2:30
        +2.5 KILL runc -> pause
        +2.51 exit pause KILL
        +3 gone web
        "),
        expect![[r#"
            +3.200 web/app +1.000…+1.000 nonzero-exit: Crash/NonzeroExit/Quiet
              reported 3 Error
        "#]],
    );
}

#[test]
fn a_force_delete_is_no_grace_used_up() {
    check(
        &web("
        +1.1 gone web
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +3.4 KILL runc -> main
        +3.41 exit main KILL
        +3.6 KILL runc -> pause
        +3.61 exit pause KILL
        "),
        expect![[r#"
            +5.910 pod web +1.100…+3.410 force-killed: Deleted/ForceKilled/Quiet (deleted with a grace period of 0)
              web/app +1.300…+3.410 force-killed: Deleted/ForceKilled/Quiet
                Deleted: deleted with a grace period of 0, grace 0 s
              gone +1.100
        "#]],
    );
}

#[test]
fn the_kubelets_preemption_is_no_force_delete() {
    check(
        &web("
        +1 TERM runc -> main handler
        +1.02 enter main TERM
        +1.2 exit main 0
        +1.9 pod web app=0:Completed phase=failed reason=Preempting disruption=TerminationByKubelet
        +2 gone web
        "),
        expect![[r#"
            +3.400 pod web +1.000…+1.200 clean: EvictedPreempted/Clean/Quiet (DisruptionTarget=TerminationByKubelet)
              web/app +1.000…+1.200 clean: EvictedPreempted/Clean/Quiet
                EvictedPreempted: DisruptionTarget=TerminationByKubelet, reported 0 Completed
              gone +2.000
        "#]],
    );
}

#[test]
fn a_crash_before_a_force_delete_stays_one() {
    check(
        &web("
        +1 exit main 3
        +3 gone web
        +3.3 KILL runc -> pause
        +3.31 exit pause KILL
        "),
        expect![[r#"
            +3.200 pod web +1.000…+1.000 nonzero-exit: Deleted/NonzeroExit/Quiet (deleted with a grace period of 0)
              web/app +1.000…+1.000 nonzero-exit: Crash/NonzeroExit/Quiet
              gone +3.000
        "#]],
    );
}

/// The exit is the kernel's. A deletion request before it, and its hook, may have been hidden.
#[test]
fn a_crash_that_a_relist_found_stays_one() {
    check(
        &web("
        +0 api away timeout
        +1 exit main 3
        +20 gone web unwatched
        +20.1 api synced
        "),
        expect![[r#"
            +20.300 pod web +1.000…+1.000 nonzero-exit: Unknown/NonzeroExit/Unknown (missing from a new list of the pods)
              web/app +1.000…+1.000 nonzero-exit: Unknown/NonzeroExit/Unknown
                Unknown: the watch of the pods was interrupted
                incomplete: the Kubernetes API did not answer during the termination: timeout; the watch of the pods was interrupted, so the time of the deletion is unknown; when deletion was requested, if it was, is unknown
              gone +20.000 (relist)
        "#]],
    );
}

/// What is never restarted is stopped by the kubelet because all of the pod is.
#[test]
fn an_eviction_of_a_job_waits_for_its_slow_container() {
    check(
        &web("
        pod web policy=never app slow
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

/// Late in the node's life, or in a runtime of another kind: the kernel never showed one of the two.
#[test]
fn a_container_that_only_the_api_knows_is_waited_for() {
    check(
        &web("
        pod web app other
        -58 pod web app=running other=running
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +2 pod web app=0:Completed
        +25 pod web other=137:Error phase=failed
        +26 gone web
        "),
        expect![[r#"
            +26.200 pod web +1.000…+1.500 unknown: Deleted/Unknown/Unknown (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
              unseen other Some(Reported { exit_code: 137, reason: Some("Error") })
              gone +26.000
        "#]],
    );
}

/// The Eviction API marks first; where the budget does not allow it, the mark goes.
#[test]
fn an_eviction_that_was_refused_is_not_why_it_was_deleted() {
    check(
        &web("
        pod web app
        -58 pod web app=running
        +1 pod web disruption=EvictionByEvictionAPI
        +2 pod web disruption=-
        +60.05 pod web deleted=+60:30
        +60.3 TERM runc -> main handler
        +60.31 enter main TERM
        +60.5 exit main 0
        +62 gone web
        "),
        expect![[r#"
            +62.800 pod web +60.000…+60.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +60.000…+60.050 grace 30 s
              web/app +60.300…+60.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s
              gone +62.000
        "#]],
    );
}

/// The agent came between two lives; of the second one's end every record was lost.
#[test]
fn an_earlier_end_of_the_same_name_hides_no_later_one() {
    check(
        "
        -60 api synced
        pod web app
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -58 pod web app=3:Error
        -50 pod web app.last=web:app:3:Error app.restarts=1 app.id=web:app:2 app=running
        +1.05 pod web deleted=+1:30
        +2 pod web app=137:Error phase=failed
        +2.1 KILL runc -> pause
        +2.11 exit pause KILL
        +3 gone web
        ",
        expect![[r#"
            +4.400 pod web +1.000…+3.000 unknown: Deleted/Unknown/Unknown (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              unseen app Some(Reported { exit_code: 137, reason: Some("Error") })
              gone +3.000
        "#]],
    );
}

/// A second delete: kubelets take it for a grace of 0, too.
#[test]
fn a_force_delete_of_a_pod_that_is_being_deleted() {
    check(
        &web("
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +5.1 gone web
        +7.3 KILL runc -> main
        +7.31 exit main KILL
        "),
        expect![[r#"
            +9.610 pod web +1.000…+7.310 force-killed: Deleted/ForceKilled/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+7.310 force-killed: Deleted/ForceKilled/Quiet
                Deleted: deletionTimestamp, grace 0 s
              gone +5.100
        "#]],
    );
}

#[test]
fn a_jobs_sidecar_is_stopped_because_the_job_is_done() {
    check(
        &web("
        pod web policy=never app log:sidecar
        -59.5 mkdir web:log
        proc log in=web:log pid=110 ns=1 start=-59.5 parent=shim comm=log
        -59.5 exec log
        -58 pod web app=running log=running
        +1 exit main 0
        +2 pod web app=0:Completed
        +2.1 TERM runc -> log handler
        +2.11 enter log TERM
        +2.5 exit log 0
        +3 pod web log=0:Completed phase=succeeded
        "),
        expect![[r#"
            +6.600 pod web +1.000…+2.500 clean: Completed/Clean/Quiet (nobody asked)
              web/app +1.000…+1.000 clean: Completed/Clean/Quiet
                reported 0 Completed
              web/log +2.100…+2.500 clean: Completed/Clean/Quiet
                Completed: phase=Succeeded, grace 30 s, mains ended +1.000, reported 0 Completed
        "#]],
    );
}

/// A runtime never stops a container by itself; the request is only visible after the pod's termination.
#[test]
fn an_out_of_memory_kill_while_it_stops() {
    check(
        &web("
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +2 KILL main -> main kernel
        +2.001 oom main
        +2.01 exit main KILL
        +3 pod web app=137:OOMKilled
        +4 gone web
        "),
        expect![[r#"
            +4.400 pod web +1.000…+2.010 oom-killed: Deleted/OomKilled/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+2.010 oom-killed: Oom/OomKilled/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 137 OOMKilled
              gone +4.000
        "#]],
    );
}

/// Deleted while its first init container runs.
#[test]
fn an_init_container_that_runs_at_the_deletion_ends_with_the_pod() {
    check(
        "
        -60 api synced
        pod web setup:init app
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 mkdir web:setup
        proc setup in=web:setup pid=80 ns=1 start=-59 parent=shim comm=setup
        -59 exec setup
        -58 pod web phase=pending setup=running app=waiting
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> setup handler
        +1.31 enter setup TERM
        +1.5 exit setup 143
        +1.7 KILL runc -> pause
        +1.71 exit pause KILL
        +2 pod web setup=143:Error phase=failed
        +3 gone web
        ",
        expect![[r#"
            +4.000 pod web +1.000…+1.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/setup +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 143 Error
              gone +3.000
        "#]],
    );
}

/// A debugger that exited before the agent's start is not part of the pod's termination.
#[test]
fn an_ephemeral_container_that_was_over_is_no_part_of_the_end() {
    check(
        "
        -60 api synced
        pod web app debug:ephemeral
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 mkdir web:app
        proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
        -59 exec main
        +1.05 pod web deleted=+1:30 app=running debug=0:Completed
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +2 pod web app=0:Completed
        +3 gone web
        ",
        expect![[r#"
            +3.800 pod web +1.000…+1.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
              gone +3.000
        "#]],
    );
}
