//! The watch of the pods was away, and a new list shows the last versions only. What the hidden versions could have changed is
//! unknown; what the last version still shows is kept.

use expect_test::expect;

use super::{check, check_sentences, web};
use crate::report::Report;
use crate::time::Boot;
use crate::verdict::{Cause, Exit};

/// The old request is in the object, with its grace period.
#[test]
fn a_list_that_shows_the_request_hides_nothing() {
    check(
        &web("
        +1 api away timeout
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +31.3 KILL runc -> main
        +31.31 exit main KILL
        +33 pod web disruption=EvictionByEvictionAPI deleted=+1:30 app=137:Error
        +33.1 api synced
        +34 gone web
        "),
        expect![[r#"
            +34.200 pod web +1.000…+31.310 killed-after-grace: EvictedApi/KilledAfterGrace/Quiet (DisruptionTarget=EvictionByEvictionAPI)
              request +1.000…+1.300 grace 30 s
              web/app +1.300…+31.310 killed-after-grace: EvictedApi/KilledAfterGrace/Quiet
                EvictedApi: DisruptionTarget=EvictionByEvictionAPI, grace 30 s, reported 137 Error
                incomplete: the Kubernetes API did not answer during the termination: timeout
              gone +34.000
        "#]],
    );
}

#[test]
fn an_eviction_that_no_version_names_is_not_a_deletion() {
    let script = web("
        +0.9 api away timeout
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +8 gone web unwatched
        +8.1 api synced
        ");
    check(
        &script,
        expect![[r#"
        +8.300 pod web +1.300…+1.500 clean-exit: Unknown/Clean/Unknown (missing from a new list of the pods)
          web/app +1.300…+1.500 clean-exit: Unknown/Clean/Unknown
            Unknown: missing from a new list of the pods
            incomplete: the Kubernetes API did not answer during the termination: timeout; the watch of the pods was interrupted, so the time of the deletion is unknown; when deletion was requested, if it was, is unknown
          gone +8.000 (relist)
    "#]],
    );
    check_sentences(
        &script,
        expect![[r#"
        container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later; the reason for the termination is unknown: the Kubernetes API did not answer during the termination: timeout; the watch of the pods was interrupted, so the time of the deletion is unknown; when deletion was requested, if it was, is unknown; the sockets of the container were not observed
    "#]],
    );
}

/// The request came a while before: its preStop hook drains.
#[test]
fn clients_after_a_hidden_request_were_not_counted() {
    check(
        &web("
        pod web app app.prestop=sleep:5
        -58 pod web app=running
        +0.9 api away timeout
        +6.3 TERM runc -> main handler
        +6.31 enter main TERM
        +6.5 exit main 0
        +8 gone web unwatched
        +8.1 api synced
        "),
        expect![[r#"
            +8.700 pod web +6.300…+6.500 clean-exit: Unknown/Clean/Unknown (missing from a new list of the pods)
              web/app +6.300…+6.500 clean-exit: Unknown/Clean/Unknown
                Unknown: missing from a new list of the pods
                preStop ?…+6.300 not seen
                incomplete: the Kubernetes API did not answer during the termination: timeout; the watch of the pods was interrupted, so the time of the deletion is unknown; when deletion was requested, if it was, is unknown
              gone +8.000 (relist)
        "#]],
    );
}

#[test]
fn a_hidden_request_may_have_begun_with_a_hook() {
    let script = web("
        pod web grace=8 app app.prestop=exec:/bin/hook
        -58 pod web app=running
        proc hook in=web:app pid=130 ns=7 start=+1.1 parent=shim comm=hook
        +0.9 api away timeout
        +1.12 exec hook
        +9.1 TERM runc -> main handler
        +9.11 enter main TERM
        +9.12 exit hook KILL
        +11.1 KILL runc -> main
        +11.2 exit main KILL
        +14 gone web unwatched
        +14.1 api synced
        ");
    check(
        &script,
        expect![[r#"
        +14.300 pod web +1.120…+11.200 unknown: Unknown/Unknown/Unknown (missing from a new list of the pods)
          web/app +9.100…+11.200 unknown: Unknown/Unknown/Unknown
            Unknown: missing from a new list of the pods
            preStop +1.120…+9.120 Signaled { signal: Signal(9), core_dumped: false }
            incomplete: the Kubernetes API did not answer during the termination: timeout; the watch of the pods was interrupted, so the time of the deletion is unknown; when deletion was requested, if it was, is unknown
          gone +14.000 (relist)
    "#]],
    );
    check_sentences(
        &script,
        expect![[r#"
            container `app`: PID 1 `app` was terminated by SIGKILL, but the reason is unknown: the watch of the pods was interrupted, so a deletion request or a shorter grace period may not have been seen; the preStop hook `/bin/hook` was still running when the grace period ended, which left 2.0 s for the shutdown; the reason for the termination is unknown: the Kubernetes API did not answer during the termination: timeout; the watch of the pods was interrupted, so the time of the deletion is unknown; when deletion was requested, if it was, is unknown
        "#]],
    );
}

/// `kubectl delete --force` of a pod that was being deleted.
#[test]
fn a_kill_before_the_end_of_the_known_grace_has_a_hidden_reason() {
    let killed = |at: &str| {
        web(&format!(
            "
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +5 api away timeout
        +{at} KILL runc -> main
        +{at}1 exit main KILL
        +50 gone web unwatched
        +50.1 api synced
        "
        ))
    };
    check(
        &killed("7.3"),
        expect![[r#"
        +50.300 pod web +1.000…+7.310 unknown: Deleted/Unknown/Quiet (deletionTimestamp)
          request +1.000…+1.050 grace 30 s
          web/app +1.300…+7.310 unknown: Deleted/Unknown/Quiet
            Deleted: deletionTimestamp, grace 30 s
            incomplete: the Kubernetes API did not answer during the termination: timeout; the watch of the pods was interrupted, so the time of the deletion is unknown
          gone +50.000 (relist)
    "#]],
    );
    check(
        &killed("31.3"),
        expect![[r#"
        +50.300 pod web +1.000…+31.310 killed-after-grace: Deleted/KilledAfterGrace/Quiet (deletionTimestamp)
          request +1.000…+1.050 grace 30 s
          web/app +1.300…+31.310 killed-after-grace: Deleted/KilledAfterGrace/Quiet
            Deleted: deletionTimestamp, grace 30 s
            incomplete: the Kubernetes API did not answer during the termination: timeout; the watch of the pods was interrupted, so the time of the deletion is unknown
          gone +50.000 (relist)
    "#]],
    );
}

/// The kubelet's last request has a grace period of 0.
#[test]
fn a_list_that_shows_the_last_request_alone_shows_no_force() {
    check(
        &web("
        +0.9 api away timeout
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +31.3 KILL runc -> main
        +31.31 exit main KILL
        +33 pod web deleted=+32:0 app=137:Error phase=failed
        +33.1 api synced
        +34 gone web
        "),
        expect![[r#"
            +34.200 pod web +1.300…+31.310 unknown: Deleted/Unknown/Quiet (deletionTimestamp)
              request +1.300…+1.300 grace 0 s
              web/app +1.300…+31.310 unknown: Deleted/Unknown/Quiet
                Deleted: deletionTimestamp, reported 137 Error
                incomplete: the Kubernetes API did not answer during the termination: timeout; the API server's clock was not compared, and by that clock the deletion request came 30.7 s after the stop signal
              gone +34.000
        "#]],
    );
}

#[test]
fn an_exit_before_the_watch_is_back_may_have_been_asked_for() {
    check(
        &web("
        +0.9 api away timeout
        +3 exit main 0
        +90 gone web unwatched
        +90.1 api synced
        "),
        expect![[r#"
            +65.100 web/app +3.000…+3.000 clean-exit: Unknown/Clean/Unknown
              Unknown: the watch of the pods was interrupted
              incomplete: the pod's status did not report the exit within 60 s; the Kubernetes API did not answer during the termination: timeout; when deletion was requested, if it was, is unknown
        "#]],
    );
}

/// As [`super::places`]: the list shows the new object alone.
#[test]
fn a_manifest_that_is_put_back_while_the_watch_is_away() {
    check(
        "
        -60 api synced
        pod web hash=abc app
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 mkdir web:app
        proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
        -59 exec main
        -58 pod web app=running
        +1 TERM runc -> main handler
        +1.1 enter main TERM
        +1.2 exit main 0
        +1.3 KILL runc -> pause
        +1.4 exit pause KILL
        +1.45 rmdir web:app
        +1.45 rmdir web:pause
        +1.5 pod web app=0:Completed phase=failed reason=Evicted
        +1.6 api away timeout
        pod web hash=abc uid=00000000-0000-4000-8000-00000000beef app
        +20 mkdir web:pause:2
        proc pause2 in=web:pause:2 pid=190 ns=2 start=+20 parent=shim comm=pause
        +20 exec pause2
        +21 mkdir web:app:2
        proc main2 in=web:app:2 pid=200 ns=2 start=+21 parent=shim comm=app
        +21 exec main2
        +22 pod web app.id=web:app:2 app=running
        +22.1 api synced
        +60 TERM runc -> main2 handler
        +60.1 enter main2 TERM
        +60.2 exit main2 0
        +60.3 KILL runc -> pause2
        +60.4 exit pause2 KILL
        +60.45 rmdir web:app:2
        +60.45 rmdir web:pause:2
        +61 gone web
        ",
        expect![[r#"
            +5.400 pod web +1.000…+1.200 clean: EvictedNodePressure/Clean/Quiet (status.reason=Evicted)
              web/app +1.000…+1.200 clean: EvictedNodePressure/Clean/Quiet
                EvictedNodePressure: status.reason=Evicted, reported 0 Completed
                incomplete: the Kubernetes API did not answer during the termination: timeout
            +62.600 pod web +60.000…+60.200 clean: Deleted/Clean/Quiet (the mirror pod was deleted and not created again)
              web/app +60.000…+60.200 clean: Deleted/Clean/Quiet
                Deleted: the mirror pod was deleted and not created again
              gone +61.000
        "#]],
    );
}

/// No status names the second life; the kernel shows that the pod went on.
#[test]
fn a_crash_before_a_hidden_restart_is_no_part_of_the_pods_end() {
    check(
        &web("
        +0.9 api away timeout
        +1 exit main 3
        +1.2 mkdir web:app:2
        proc second in=web:app:2 pid=101 ns=1 start=+1.2 parent=shim comm=app
        +1.2 exec second
        +2.1 TERM runc -> second handler
        +2.11 enter second TERM
        +2.2 exit second 0
        +20 gone web unwatched
        +20.1 api synced
        "),
        expect![[r#"
            +20.300 web/app +1.000…+1.000 nonzero-exit: Crash/NonzeroExit/Quiet
              incomplete: the Kubernetes API did not answer during the termination: timeout; the watch of the pods was interrupted, so the time of the deletion is unknown
            +20.300 pod web +2.100…+2.200 clean-exit: Unknown/Clean/Unknown (missing from a new list of the pods)
              web/? +2.100…+2.200 clean-exit: Unknown/Clean/Unknown
                Unknown: missing from a new list of the pods
                incomplete: the Kubernetes API did not answer during the termination: timeout; the pod's status did not name this container; the watch of the pods was interrupted, so the time of the deletion is unknown; when deletion was requested, if it was, is unknown
              gone +20.000 (relist)
        "#]],
    );
}

#[test]
fn a_container_without_a_name_may_have_a_hook() {
    let script = web("
        pod web app app.prestop=http
        -58 pod web app=running
        +0 mkdir web:odd
        proc odd in=web:odd pid=140 ns=1 start=+0 parent=shim comm=odd
        +0 exec odd
        +1 TERM runc -> odd handler
        +1.1 enter odd TERM
        +1.2 exit odd 0
        ");
    check(
        &script,
        expect![[r#"
            +33.300 web/? +1.000…+1.200 unknown: Unknown/Unknown/Quiet
              grace 30 s
              incomplete: the pod's status did not name this container
        "#]],
    );
    check_sentences(
        &script,
        expect![[r#"
            a container of unknown name: PID 1 `odd` exited with code 0, but the reason is unknown: no status of the pod named the container, so it is unknown whether the container is the sandbox, and which preStop hook it has; the reason for the termination is unknown: the pod\'s status did not name this container
        "#]],
    );
}

/// Exit and removal of the first sandbox were lost: it may still run.
#[test]
fn a_sandbox_after_one_whose_end_was_lost_is_not_a_forced_container() {
    check(
        &web("
        +0 KILL runc -> pause
        +0.1 lost sched_process_exit +0.1 1 within web:pause
        +0.2 lost cgroup_rmdir +0.2 1
        +1 exit main 0
        +1.5 pod web app=waiting app.last=web:app:0:Completed app.restarts=1
        +20 mkdir web:pause:2
        proc pause2 in=web:pause:2 pid=190 ns=2 start=+20 parent=shim comm=pause
        +20 exec pause2
        +40 KILL runc -> pause2
        +40.1 exit pause2 KILL
        +41 gone web
        "),
        expect![[r#"
            +4.100 web/app +1.000…+1.000 clean: Completed/Clean/Quiet
              reported 0 Completed
            +42.400 pod web +40.000…+40.100 unknown: Deleted/Unknown/Quiet (deleted with a grace period of 0)
              web/? +40.000…+40.100 unknown: Deleted/Unknown/Quiet
                Deleted: deleted with a grace period of 0
                incomplete: the pod's status did not name this container
              gone +41.000
        "#]],
    );
}

/// Its exit is in no version that arrived, and the kernel never showed it.
#[test]
fn a_container_that_runs_by_the_last_version_alone_is_not_forgotten() {
    check(
        &web("
        pod web app other
        -58 pod web app=running other=running
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +2 pod web app=0:Completed
        +3 api away timeout
        "),
        expect![[r#"
            +93.600 pod web +1.000…+1.500 unknown: Deleted/Unknown/Unknown (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
                incomplete: the API server had not reported the pod as finished; the Kubernetes API did not answer during the termination: timeout
              unseen other None
        "#]],
    );
}

/// The version in which it had completed, before anyone deleted it, is hidden.
#[test]
fn a_pod_that_may_have_completed_before_its_deletion_was_not_stopped_by_it() {
    let cleaned_up = |clock: &str, deleted: &str| {
        web(&format!(
            "
            pod web policy=never app
            -58 pod web app=running
            {clock}
            +0 api away timeout
            +1 exit main 0
            +60 pod web phase=succeeded app=0:Completed deleted={deleted}:0
            +60 api synced
            +61 gone web
            "
        ))
    };
    check(
        &cleaned_up("", "+59"),
        expect![[r#"
            +61.200 pod web +1.000…+1.000 clean: Unknown/Clean/Quiet (the watch of the pods was interrupted)
              request +59.000…+60.000 grace 0 s
              web/app +1.000…+1.000 clean: Completed/Clean/Quiet
                Unknown: the watch of the pods was interrupted, reported 0 Completed
                incomplete: the Kubernetes API did not answer during the termination: timeout
              gone +61.000
        "#]],
    );
    // By its own clock the API server was asked before the exit, or long after it.
    check(
        &cleaned_up("-1 skew 0 0", "+0.2"),
        expect![[r#"
            +61.200 pod web +0.000…+1.000 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +0.000…+1.000 grace 0 s
              web/app +1.000…+1.000 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, reported 0 Completed
                incomplete: the Kubernetes API did not answer during the termination: timeout
              gone +61.000
        "#]],
    );
    check(
        &cleaned_up("-1 skew 0 0", "+59"),
        expect![[r#"
            +61.200 pod web +1.000…+1.000 clean: Unknown/Clean/Quiet (the watch of the pods was interrupted)
              request +59.000…+60.000 grace 0 s
              web/app +1.000…+1.000 clean: Completed/Clean/Quiet
                Unknown: the watch of the pods was interrupted, reported 0 Completed
                incomplete: the Kubernetes API did not answer during the termination: timeout
              gone +61.000
        "#]],
    );
}

/// A kubelet tries for so long to write an Event: a hook of the network fails without a trace.
#[test]
fn an_outage_may_hide_that_a_hook_failed() {
    let stopped = |away: &str| {
        web(&format!(
            "
        pod web grace=300 app app.prestop=http
        -58 pod web app=running
        +0.05 pod web deleted=+0:300
        +5 api away timeout
        +10 TERM runc -> main handler
        +10.01 enter main TERM
        +{away} api synced
        +250 exit main 0
        +251 pod web app=0:Completed
        +251 events web asked
        +252 events web known
        +253 gone web
        "
        ))
    };
    check(
        &stopped("65"),
        expect![[r#"
        +253.200 pod web +0.000…+250.000 clean: Deleted/Clean/Quiet (deletionTimestamp)
          request +0.000…+0.050 grace 300 s
          web/app +10.000…+250.000 clean: Deleted/Clean/Quiet
            Deleted: deletionTimestamp, grace 300 s, reported 0 Completed
            preStop +0.050…+10.000 not seen
            incomplete: the Kubernetes API did not answer during the termination: timeout
          gone +253.000
    "#]],
    );
    check(
        &stopped("130"),
        expect![[r#"
        +253.200 pod web +0.000…+250.000 unknown: Deleted/Unknown/Quiet (deletionTimestamp)
          request +0.000…+0.050 grace 300 s
          web/app +10.000…+250.000 unknown: Deleted/Unknown/Quiet
            Deleted: deletionTimestamp, grace 300 s, reported 0 Completed
            preStop +0.050…+10.000 not seen
            incomplete: the Kubernetes API did not answer during the termination: timeout
          gone +253.000
    "#]],
    );
    // Of an exec hook the exit shows the result.
    let exec = stopped("130").replace("prestop=http", "prestop=exec:/bin/hook").replace(
        "+5 api",
        "proc hook in=web:app pid=130 ns=7 start=+0.1 parent=shim comm=hook\n+0.12 exec hook\n+9.9 exit hook 0\n+5 api",
    );
    check(
        &exec,
        expect![[r#"
        +253.200 pod web +0.000…+250.000 clean: Deleted/Clean/Quiet (deletionTimestamp)
          request +0.000…+0.050 grace 300 s
          web/app +10.000…+250.000 clean: Deleted/Clean/Quiet
            Deleted: deletionTimestamp, grace 300 s, reported 0 Completed
            preStop +0.120…+9.900 Exited(0)
            incomplete: the Kubernetes API did not answer during the termination: timeout
          gone +253.000
    "#]],
    );
}

/// A part of the recording before the stop had the versions with the request, or none.
#[test]
fn a_request_in_a_part_that_is_missing_may_be_the_cause() {
    let causes = |before: &str, rest: &str| {
        let script = web(&format!(
            "
            {before}
            +1.3 TERM runc -> main handler
            +1.31 enter main TERM
            +1.5 exit main 0
            {rest}
            "
        ));
        let of = |(_, report): (Boot, Report)| match report {
            Report::PodTerminated(of) => Some(of.verdict.cause),
            Report::Terminated(of) => Some(of.verdict.cause),
            _ => None,
        };
        super::run(&script).into_iter().filter_map(of).collect::<Vec<_>>()
    };
    let part = "+0.9 lost tcp +0.2 1 damaged";
    // No watch shows a deletion of an evicted pod without its eviction.
    assert_eq!(causes("", "+8 gone web"), [Cause::Deleted]);
    assert_eq!(causes(part, "+8 gone web"), [Cause::Unknown]);
    let shutdown = "-60 node bus connected\n+1.2 node prepare true reboot";
    assert_eq!(causes(shutdown, "+8 gone web"), [Cause::NodeShutdown]);
    assert_eq!(causes(&format!("{part}\n{shutdown}"), "+8 gone web"), [Cause::Unknown]);
    // A version behind it shows that there was no request in it; or the request itself is shown.
    let version = format!("{part}\n+1 pod web app=running\n{shutdown}");
    assert_eq!(causes(&version, "+8 gone web"), [Cause::NodeShutdown]);
    let shown = "+2 skew 0 0\n+2 pod web deleted=+0.5:30\n+8 gone web";
    assert_eq!(causes(&format!("{part}\n{shutdown}"), shown), [Cause::Deleted]);
}

/// An agent that starts within a shutdown does not know how long before it began, nor whether it had stopped a container by then.
#[test]
fn a_pod_that_is_gone_after_a_start_within_a_shutdown_need_not_have_been_deleted() {
    let script = |bus: &str| {
        web(&format!(
            "
            +1.5 start
            +1.5 found main
            +1.5 scanned
            +1.5 node bus {bus}
            +1.5 api away
            +1.5 pod web app=running
            +1.5 api synced
            +1.5 exit main 0
            +8 gone web
            "
        ))
    };
    let causes = |script: &str| verdicts(script).into_iter().map(|(_, cause)| cause).collect::<Vec<_>>();
    assert_eq!(causes(&script("preparing")), [Cause::Unknown]);
    assert_eq!(causes(&script("connected")), [Cause::Deleted]);
}

/// Exit and cause of what a history reports.
fn verdicts(script: &str) -> Vec<(Exit, Cause)> {
    let of = |(_, report): (Boot, Report)| match report {
        Report::PodTerminated(of) => Some((of.verdict.exit, of.verdict.cause)),
        Report::Terminated(of) => Some((of.verdict.exit, of.verdict.cause)),
        _ => None,
    };
    super::run(script).into_iter().filter_map(of).collect()
}

/// Only the part that is missing may have shown the pod: its hook, its grace period, and why it was stopped.
#[test]
fn a_pod_in_a_part_that_is_missing_is_not_a_container_without_kubernetes() {
    let unshown = |instead: &str, rest: &str| verdicts(&web(rest).replace("-58 pod web app=running", instead));
    let stopped = "+1 TERM runc -> main handler\n+1.01 enter main TERM\n+1.5 exit main 0\n+90 tick";
    let killed = "+1 TERM runc -> main handler\n+1.01 enter main TERM\n+11 KILL runc -> main\n+11.01 exit main KILL\n+90 tick";
    let crashed = "+1 SEGV main -> main default kernel\n+1.01 exit main SEGV\n+90 tick";
    let missing = "-50 lost tcp -58 1 damaged";
    // On a node whose pods are not known.
    assert_eq!(unshown("", stopped), [(Exit::Clean, Cause::Stopped)]);
    for (how, exit) in [(stopped, Exit::Unknown), (killed, Exit::Unknown)] {
        assert_eq!(unshown(missing, how), [(exit, Cause::Unknown)], "{how}");
    }
    // Kubernetes knows nothing about a fault.
    assert_eq!(unshown(missing, crashed)[0].0, Exit::Crashed);
    // The next agent lists the pods.
    let listed = format!("{missing}\n-40 start\n-40 scanned\n-39 api synced");
    assert_eq!(unshown(&listed, stopped), [(Exit::Clean, Cause::Stopped)]);
    let unlisted = format!("{missing}\n-40 start\n-40 scanned");
    assert_eq!(unshown(&unlisted, stopped), [(Exit::Unknown, Cause::Unknown)]);
}

/// The list of the next agent does not have a pod that terminated before.
#[test]
fn a_list_after_the_stop_shows_nothing_of_a_pod_in_a_part_that_is_missing() {
    let missing = "-50 lost tcp -58 1 damaged";
    let stopped = "+1 TERM runc -> main handler\n+1.01 enter main TERM\n+1.5 exit main 0\n+2 start\n+2 scanned";
    let unshown = |rest: &str| verdicts(&web(&format!("{stopped}\n{rest}")).replace("-58 pod web app=running", missing));
    for rest in ["+90 tick", "+3 api synced\n+90 tick"] {
        assert_eq!(unshown(rest), [(Exit::Unknown, Cause::Unknown)], "{rest}");
    }
}

/// The part has the first state of the API too: that there are pods at all is not known.
#[test]
fn a_part_that_is_missing_may_have_had_the_first_state_of_the_api() {
    let missing = "-50 lost tcp -58 1 damaged";
    let stopped = "+1 TERM runc -> main handler\n+1.01 enter main TERM\n+1.5 exit main 0\n+90 tick";
    let of = |script: String| verdicts(&script.replace("-60 api synced", ""));
    let unshown = |instead: &str| of(web(stopped).replace("-58 pod web app=running", instead));
    assert_eq!(unshown(missing), [(Exit::Unknown, Cause::Unknown)]);
    // Versions that follow show the pod.
    let deleted = "+0.5 skew 0 0\n+0.5 pod web deleted=+0.5:30";
    let shown = format!("{missing}\n-40 pod web app=running\n{deleted}");
    assert_eq!(unshown(&shown), [(Exit::Clean, Cause::Deleted)]);
}

/// What stopped a pod may have been in the part that is missing, and the deletion only remove the object.
#[test]
fn a_deletion_after_a_part_that_is_missing_need_not_be_the_cause() {
    let of = |part: &str| {
        verdicts(&web(&format!(
            "
            pod web policy=never app
            -58 pod web app=running
            {part}
            +2.1 pod web app=0:Completed phase=succeeded deleted=+2:0
            +2.2 gone web
            +2.3 KILL runc -> pause
            +2.31 exit pause KILL
            +90 tick
            "
        )))
    };
    assert_eq!(
        of("+1 exit main 0\n+1.1 rmdir web:app\n+2 pod web app=0:Completed phase=succeeded"),
        [(Exit::Clean, Cause::Completed)]
    );
    assert_eq!(of("+2.05 lost tcp +0.9 1 damaged"), [(Exit::Unknown, Cause::Unknown)]);
    // A stop signal after the deletion shows that it is.
    let stopped = |part: &str| {
        verdicts(&web(&format!(
            "{part}\n+1 skew 0 0\n+2 pod web deleted=+2:30\n+3.1 TERM runc -> main handler\n+3.11 enter main TERM\n+3.5 exit main 0\n+5 gone web"
        )))
    };
    let part = "+0.9 lost tcp +0.2 1 damaged";
    assert_eq!(stopped(part), [(Exit::Clean, Cause::Deleted)]);
    // Without compared clocks too, if the watch showed the deletion before.
    let term = "+3.1 TERM runc -> main handler\n+3.11 enter main TERM\n+3.5 exit main 0";
    let deleted = |at: &str| format!("{at} pod web deleted=+2:30");
    let by_watch = |first: &str, then: &str| verdicts(&web(&format!("{part}\n{first}\n{then}\n+5 gone web")));
    assert_eq!(by_watch(&deleted("+2"), term), [(Exit::Clean, Cause::Deleted)]);
    assert_eq!(by_watch(term, &deleted("+3.6"))[0].1, Cause::Unknown);
}

/// What the pod's containers show of its deletion counts for the pod, also where another cause ended them.
#[test]
fn an_oom_kill_during_a_stop_leaves_the_pods_cause() {
    let killed = |clock: &str| {
        let script = web(&format!(
            "
            +0.9 lost tcp +0.2 1 damaged
            {clock}
            +2 pod web deleted=+2:30
            +3.1 TERM runc -> main handler
            +3.11 enter main TERM
            +3.4 oom main
            +3.5 exit main KILL
            +5 gone web
            "
        ));
        let of = |(_, report): (Boot, Report)| match report {
            Report::PodTerminated(of) => Some((of.verdict.cause, of.containers[0].verdict.cause)),
            _ => None,
        };
        super::run(&script).into_iter().filter_map(of).collect::<Vec<_>>()
    };
    assert_eq!(killed("+1 skew 0 0"), [(Cause::Deleted, Cause::Oom)]);
}

/// An earlier part says nothing about a pod whose first version has its deletion.
#[test]
fn a_part_that_is_missing_from_before_a_pod_hides_nothing_of_it() {
    let first_shown_deleted = |before: &str, part: &str| {
        let script = web("+1 exit main 0\n+1.1 pod web deleted=+1:30\n+2 gone web");
        let script = script.replace("-58 pod web app=running", part);
        verdicts(&format!("-200 tick\n{before}\n{script}"))[0].1
    };
    assert_eq!(first_shown_deleted("", ""), Cause::Deleted);
    assert_eq!(first_shown_deleted("-100 lost tcp -200 1 damaged", ""), Cause::Deleted);
    assert_eq!(first_shown_deleted("", "-50 lost tcp -58 1 damaged"), Cause::Unknown);
}

/// The taint manager may have taken its mark back.
#[test]
fn an_eviction_that_may_have_been_called_off_in_a_part_that_is_missing_is_in_doubt() {
    let of = |part: &str| {
        let script = web(&format!(
            "
            +1 event web - TaintManagerEviction Marking for deletion Pod shop/web
            {part}
            +60.05 pod web deleted=+60:30
            +60.3 TERM runc -> main handler
            +60.31 enter main TERM
            +60.5 exit main 0
            +62 gone web
            "
        ));
        verdicts(&script)
    };
    assert_eq!(of(""), [(Exit::Clean, Cause::EvictedTaint)]);
    assert_eq!(of("+3 lost tcp +1.5 1 damaged")[0].1, Cause::Unknown);
}
