//! Whose container it is, and which of them is the sandbox.

use expect_test::expect;

use super::{check, web};

#[test]
fn a_sandbox_that_dies_first_is_not_told() {
    check(
        &web("
        +1 KILL bash -> pause
        +1.01 exit pause KILL
        +1.5 TERM runc -> main handler
        +1.51 enter main TERM
        +1.7 exit main 0
        +2 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
        "),
        expect![[r#"
            +4.800 web/app +1.500…+1.700 clean: Restart/Clean/Quiet
              grace 30 s, reported 0 Completed
        "#]],
    );
}

#[test]
fn a_new_sandbox_is_one_too() {
    check(
        &web("
        +1 KILL bash -> pause
        +1.01 exit pause KILL
        +1.5 TERM runc -> main handler
        +1.7 exit main 0
        +2 mkdir web:pause:2
        proc pause2 in=web:pause:2 pid=91 ns=1 start=+2 parent=shim comm=pause
        +2 exec pause2
        +2.5 mkdir web:app:2
        proc main2 in=web:app:2 pid=101 ns=1 start=+2.5 parent=shim comm=app
        +2.5 exec main2
        +3 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
        +20.1 pod web deleted=+20:30
        +20.3 TERM runc -> main2 handler
        +20.31 enter main2 TERM
        +20.5 exit main2 0
        +20.7 KILL runc -> pause2
        +20.71 exit pause2 KILL
        +22 gone web
        "),
        expect![[r#"
            +4.800 web/app +1.500…+1.700 clean: Restart/Clean/Quiet
              grace 30 s, reported 0 Completed
            +23.000 pod web +20.000…+20.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +20.000…+20.100 grace 30 s
              web/app +20.300…+20.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, restarts 1
              gone +22.000
        "#]],
    );
}

#[test]
fn a_pod_that_is_deleted_before_its_first_container_has_none() {
    check(
        "
        -60 api synced
        pod web app
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 pod web phase=pending app=waiting
        +1.05 pod web deleted=+1:30
        +1.3 KILL runc -> pause
        +1.31 exit pause KILL
        +2 gone web
        ",
        expect![[""]],
    );
}

#[test]
fn a_container_that_no_status_names_is_not_the_sandbox() {
    check(
        &web("
        +0 mkdir web:odd
        proc odd in=web:odd pid=140 ns=1 start=+0 parent=shim comm=odd
        +0 exec odd
        +1 exit odd 3
        "),
        expect![[r#"
            +33.100 web/? +1.000…+1.000 nonzero-exit: Crash/NonzeroExit/Quiet
              incomplete: the pod's status did not name this container
        "#]],
    );
}

/// The status names the id: the API decides, and the cgroup's name is reported.
#[test]
fn a_cgroup_that_names_another_pod_is_no_proof() {
    check(
        &web("
        pod other app
        -59 mkdir other:app
        proc theirs in=other:app pid=150 ns=1 start=-59 parent=shim comm=theirs
        -59 exec theirs
        -50 pod other app=running
        pod web app odd
        -50 pod web app=running odd.id=other:app odd=running
        +1 exit theirs 3
        +2 pod web odd=waiting odd.last=other:app:3:Error odd.restarts=1
        "),
        expect![[r#"
            +4.000 web/odd +1.000…+1.000 nonzero-exit: Crash/NonzeroExit/Quiet
              reported 3 Error
              incomplete: the cgroup path names another pod, 00000000-0000-4000-8000-000000000002
        "#]],
    );
}

#[test]
fn a_container_ends_before_its_pod_is_known() {
    check(
        "
        -60 api synced
        pod web app
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 mkdir web:app
        proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
        -59 exec main
        -58.9 exit main 3
        -55 pod web app=waiting app.last=web:app:3:Error app.id=web:app app.restarts=1
        ",
        expect![[r#"
            -54.000 web/app -58.900…-58.900 nonzero-exit: Crash/NonzeroExit/Quiet
              restarts 1, reported 3 Error
        "#]],
    );
}

/// Its sandbox is known by place, and by how it was killed.
#[test]
fn a_pod_that_the_api_never_tells_of() {
    check(
        "
        -60 api synced
        pod web app
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 mkdir web:app
        proc main in=web:app pid=100 ns=1 start=-59 parent=shim comm=app
        -59 exec main
        +1 TERM runc -> main handler
        +1.01 enter main TERM
        +1.4 exit main 0
        +1.5 KILL runc -> pause
        +1.51 exit pause KILL
        ",
        expect![[r#"
            +33.410 ? +1.000…+1.400 clean: Stopped/Clean/Quiet
        "#]],
    );
}

#[test]
fn a_shared_pid_namespace_has_the_sandbox_for_its_init() {
    check(
        "
        -60 api synced
        pod web sharepid app
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 mkdir web:app
        proc main in=web:app pid=100 ns=7 start=-59 parent=shim comm=app
        -59 exec main
        -58 pod web app=running
        proc probe in=web:app pid=105 ns=20 start=-1 parent=shim comm=probe
        -1 exec probe
        -0.9 exit probe 0
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main default
        +1.31 exit main TERM
        +1.32 rmdir web:app
        +1.7 KILL runc -> pause
        +1.71 exit pause KILL
        +2 pod web app=143:Error
        +3 gone web
        ",
        expect![[r#"
            +3.600 pod web +1.000…+1.310 default-action: Deleted/DefaultAction/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.310 default-action: Deleted/DefaultAction/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 143 Error
              gone +3.000
        "#]],
    );
}

#[test]
fn in_the_hosts_pid_namespace_the_main_process_is_no_init() {
    check(
        "
        -60 api synced
        pod web hostpid app
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 mkdir web:app
        proc main in=web:app pid=100 start=-59 parent=shim comm=app
        -59 exec main
        -58 pod web app=running
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main handler
        +1.31 enter main TERM
        +1.5 exit main 0
        +1.7 KILL runc -> pause
        +1.71 exit pause KILL
        +2 pod web app=0:Completed
        +3 gone web
        ",
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
fn a_mirror_pod_that_is_deleted_stops_nothing() {
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
        +1 gone web
        pod web hash=abc uid=00000000-0000-4000-8000-00000000beef app
        +1.5 pod web app=running
        +60 TERM runc -> main handler
        +60.1 enter main TERM
        +60.2 exit main 0
        +61 gone web
        ",
        expect![[r#"
            +62.400 pod web +60.000…+60.200 clean: Deleted/Clean/Quiet (the mirror pod was deleted and not created again)
              web/app +60.000…+60.200 clean: Deleted/Clean/Quiet
                Deleted: the mirror pod was deleted and not created again
              gone +61.000
        "#]],
    );
}

/// An outage hides that the kubelet created the mirror pod again: the end of a container is not that of the mirror pod that was deleted.
#[test]
fn a_mirror_pod_that_an_outage_hides_has_not_terminated() {
    let of = |rest: &str| {
        super::show(&crate::fixtures::script::play(&format!(
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
        +1 gone web
        {rest}
        "
        )))
    };
    let ended = "+60 TERM runc -> main handler\n+60.1 enter main TERM\n+60.2 exit main 0\n+200 tick";
    let whole = of(ended);
    assert!(whole.contains("pod web"), "{whole}");
    for hidden in [
        format!("+1.5 api away timeout\n{ended}"),
        format!("+1.5 api away timeout\n+20 api synced\n{ended}"),
    ] {
        let shown = of(&hidden);
        assert!(!shown.contains("pod web") && !shown.contains("Deleted"), "{shown}");
    }
}

/// The first termination was reported; the second life has the same cgroup name, and its terminations are reported like the first.
#[test]
fn a_manifest_that_is_put_back() {
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
        +1 event web - Evicted The node was low on resource: memory
        +1.5 pod web app=0:Completed phase=failed reason=Evicted
        +2 gone web
        pod web hash=abc uid=00000000-0000-4000-8000-00000000beef app
        +20 mkdir web:pause:2
        proc pause2 in=web:pause:2 pid=190 ns=2 start=+20 parent=shim comm=pause
        +20 exec pause2
        +21 mkdir web:app:2
        proc main2 in=web:app:2 pid=200 ns=2 start=+21 parent=shim comm=app
        +21 exec main2
        +22 pod web app.id=web:app:2 app=running
        +40 TERM runc -> main2 handler
        +40.1 enter main2 TERM
        +40.2 exit main2 0
        +44 mkdir web:app:3
        proc main3 in=web:app:3 pid=300 ns=2 start=+44 parent=shim comm=app
        +44 exec main3
        +44.5 pod web app.id=web:app:3 app.restarts=1 app=running app.last=web:app:2:0:Completed
        +45 event web app Killing at=+40 Container app failed liveness probe, will be restarted
        +60 TERM runc -> main3 handler
        +60.1 enter main3 TERM
        +60.2 exit main3 0
        +60.3 KILL runc -> pause2
        +60.4 exit pause2 KILL
        +60.45 rmdir web:app:3
        +60.45 rmdir web:pause:2
        +61 gone web
        ",
        expect![[r#"
            +3.600 pod web +1.000…+1.200 clean: EvictedNodePressure/Clean/Quiet (status.reason=Evicted)
              web/app +1.000…+1.200 clean: EvictedNodePressure/Clean/Quiet
                EvictedNodePressure: status.reason=Evicted, reported 0 Completed
              gone +2.000
            +45.600 web/app +40.000…+40.200 clean: Liveness/Clean/Quiet
              Liveness: Event Killing: Container app failed liveness probe, will be restarted, grace 30 s, reported 0 Completed
            +62.600 pod web +60.000…+60.200 clean: Deleted/Clean/Quiet (the mirror pod was deleted and not created again)
              web/app +60.000…+60.200 clean: Deleted/Clean/Quiet
                Deleted: the mirror pod was deleted and not created again, restarts 1
              gone +61.000
        "#]],
    );
}

/// As above. The exit of the first sandbox was lost; its cgroup was removed, so it did not run when the second one began.
#[test]
fn a_manifest_that_is_put_back_after_a_lost_exit() {
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
        +1.4 lost sched_process_exit +1.4 1 within web:pause
        +1.45 rmdir web:app
        +1.45 rmdir web:pause
        +1.5 pod web app=0:Completed
        +2 gone web
        pod web hash=abc uid=00000000-0000-4000-8000-00000000beef app
        +20 mkdir web:pause:2
        proc pause2 in=web:pause:2 pid=190 ns=2 start=+20 parent=shim comm=pause
        +20 exec pause2
        +40 KILL runc -> pause2
        +40.1 exit pause2 KILL
        +40.2 rmdir web:pause:2
        +41 gone web
        ",
        expect![[r#"
            +3.400 pod web +1.000…+1.200 clean: Deleted/Clean/Quiet (the mirror pod was deleted and not created again)
              web/app +1.000…+1.200 clean: Deleted/Clean/Quiet
                Deleted: the mirror pod was deleted and not created again, reported 0 Completed
              gone +2.000
        "#]],
    );
}

#[test]
fn an_ignored_pod_is_counted_and_not_told() {
    check(
        &web("
        pod web ignore app
        -58 pod web app=running
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> main ignored default
        +1.5 exit main 0
        +3 gone web
        +4 tick
        "),
        expect![[r#"
            +1.800 opted out: 1
            +4.000 opted out: 1
        "#]],
    );
}

/// The agent started after the container's exit; the pod was gone from the API before a status showed the exit.
#[test]
fn a_sandbox_is_all_that_is_seen_of_a_pod() {
    check(
        "
        +2 start
        pod web app
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        +2.1 found pause
        +2.2 api synced
        +2.3 pod web deleted=+1:30 app=running
        +2.6 KILL runc -> pause
        +2.61 exit pause KILL
        +3 gone web
        ",
        expect![[r#"
            +5.000 pod web +1.000…+3.000 unknown: Deleted/Unknown/Unknown (deletionTimestamp)
              request +1.000…+2.000 grace 30 s
              unseen app None
              gone +3.000
        "#]],
    );
}

/// Its containers go on, and what ends with them is not asked for by that.
#[test]
fn a_mirror_pod_whose_deletion_is_seen_stops_nothing_either() {
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
        +1 pod web deleted=+1:30
        +2 TERM runc -> main handler
        +2.1 enter main TERM
        +3 exit main 0
        +3.5 gone web
        ",
        expect![[r#"
            +5.300 pod web +2.000…+3.000 clean: Deleted/Clean/Quiet (the mirror pod was deleted and not created again)
              web/app +2.000…+3.000 clean: Deleted/Clean/Quiet
                Deleted: the mirror pod was deleted and not created again
              gone +3.500
        "#]],
    );
}
