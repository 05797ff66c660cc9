//! preStop hooks.

use expect_test::expect;

use super::{check, web};

#[test]
fn an_exec_hook_is_known_by_place_name_and_ancestry() {
    check(
        &web("
        pod web app app.prestop=exec:/bin/hook
        -58 pod web app=running
        proc hook in=web:app pid=130 ns=7 start=+1.1 parent=shim comm=hook
        +1.05 pod web deleted=+1:30
        +1.12 exec hook
        +3 exit hook 7
        +3.2 TERM runc -> main handler
        +3.21 enter main TERM
        +3.5 exit main 0
        +4 event web app FailedPreStopHook PreStopHook failed
        +5 pod web app=0:Completed
        +6 gone web
        "),
        expect![[r#"
            +6.200 pod web +1.000…+3.500 prestop-failed: Deleted/PrestopFailed/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +3.200…+3.500 prestop-failed: Deleted/PrestopFailed/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
                preStop +1.120…+3.000 Exited(7) failed: PreStopHook failed
              gone +6.000
        "#]],
    );
}

#[test]
fn a_hook_that_overran() {
    check(
        &web("
        pod web app app.prestop=exec:/bin/hook
        -58 pod web app=running
        proc hook in=web:app pid=130 ns=7 start=+1.1 parent=shim comm=hook
        +1.05 pod web deleted=+1:8
        +1.12 exec hook
        +9.3 TERM runc -> main handler
        +9.31 enter main TERM
        +11.4 KILL runc -> main
        +11.41 exit main KILL
        +11.42 exit hook KILL
        +12 pod web app=137:Error
        +13 gone web
        "),
        expect![[r#"
            +13.800 pod web +1.000…+11.410 prestop-overran: Deleted/PrestopOverran/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 8 s
              web/app +9.300…+11.410 prestop-overran: Deleted/PrestopOverran/Quiet
                Deleted: deletionTimestamp, grace 8 s, reported 137 Error
                preStop +1.120…+11.420 Signaled { signal: Signal(9), core_dumped: false }
              gone +13.000
        "#]],
    );
}

#[test]
fn a_probe_of_the_same_name_makes_it_unknown() {
    check(
        &web("
        pod web app app.prestop=exec:/bin/sh app.liveness=exec:/bin/sh
        -58 pod web app=running
        proc hook in=web:app pid=130 ns=7 start=+1.1 parent=shim comm=sh
        +1.05 pod web deleted=+1:30
        +1.12 exec hook
        +3 exit hook 0
        +3.2 TERM runc -> main handler
        +3.21 enter main TERM
        +3.5 exit main 0
        +5 pod web app=0:Completed
        +6 gone web
        "),
        expect![[r#"
            +6.200 pod web +1.000…+3.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +3.200…+3.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
                preStop +1.050…+3.200 not seen
              gone +6.000
        "#]],
    );
}

/// `kubectl exec` of the hook's program.
#[test]
fn two_of_its_name_make_it_unknown() {
    check(
        &web("
        pod web app app.prestop=exec:/bin/hook
        -58 pod web app=running
        proc hook in=web:app pid=130 ns=7 start=+1.1 parent=shim comm=hook
        proc other in=web:app pid=131 ns=8 start=+2 parent=shim comm=hook
        +1.05 pod web deleted=+1:30
        +1.12 exec hook
        +2.01 exec other
        +3 exit hook 0
        +3.2 TERM runc -> main handler
        +3.21 enter main TERM
        +3.5 exit main 0
        +5 pod web app=0:Completed
        +6 gone web
        "),
        expect![[r#"
            +6.200 pod web +1.000…+3.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +3.200…+3.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
                preStop +1.050…+3.200 not seen
              gone +6.000
        "#]],
    );
}

#[test]
fn a_child_of_the_container_is_no_hook() {
    check(
        &web("
        pod web app app.prestop=exec:/bin/hook
        -58 pod web app=running
        proc hook in=web:app pid=130 ns=7 start=+1.1 parent=shim comm=hook
        proc child in=web:app pid=132 ns=9 start=+1.1 parent=main comm=hook
        +1.05 pod web deleted=+1:30
        +1.12 exec child
        +3 exit child 0
        +3.2 TERM runc -> main handler
        +3.21 enter main TERM
        +3.5 exit main 0
        +5 pod web app=0:Completed
        +6 gone web
        "),
        expect![[r#"
            +6.200 pod web +1.000…+3.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +3.200…+3.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
                preStop +1.050…+3.200 not seen
              gone +6.000
        "#]],
    );
}

#[test]
fn a_sleeping_hook_is_the_wait() {
    check(
        &web("
        pod web app app.prestop=sleep:5
        -58 pod web app=running
        +1.05 pod web deleted=+1:30
        +6.1 TERM runc -> main ignored default
        +31.1 KILL runc -> main
        +31.11 exit main KILL
        +32 gone web
        "),
        expect![[r#"
            +6.100 early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal, 24.9 s left
            +33.400 pod web +1.000…+31.110 ignored-stop-signal: Deleted/IgnoredStopSignal/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +6.100…+31.110 ignored-stop-signal: Deleted/IgnoredStopSignal/Quiet
                Deleted: deletionTimestamp, grace 30 s
                preStop +1.050…+6.100 not seen
              gone +32.000
        "#]],
    );
}

#[test]
fn a_hook_runs_before_a_liveness_kill_as_well() {
    check(
        &web("
        pod web app app.prestop=exec:/bin/hook
        -58 pod web app=running
        proc hook in=web:app pid=130 ns=7 start=+1.1 parent=shim comm=hook
        +1 event web app Killing Container app failed liveness probe, will be restarted
        +1.12 exec hook
        +2 exit hook 0
        +2.1 TERM runc -> main handler
        +2.11 enter main TERM
        +2.4 exit main 0
        +3 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
        "),
        expect![[r#"
            +5.400 web/app +2.100…+2.400 clean: Liveness/Clean/Quiet
              Liveness: Event Killing: Container app failed liveness probe, will be restarted, grace 30 s, reported 0 Completed
              preStop +1.120…+2.000 Exited(0)
        "#]],
    );
}

#[test]
fn no_hook_runs_for_a_crash() {
    check(
        &web("
        pod web app app.prestop=exec:/bin/hook
        -58 pod web app=running
        proc hook in=web:app pid=130 ns=7 start=+1.1 parent=shim comm=hook
        +1 exit main 3
        +2 pod web app=waiting app.last=web:app:3:Error app.restarts=1
        "),
        expect![[r#"
            +4.000 web/app +1.000…+1.000 nonzero-exit: Crash/NonzeroExit/Quiet
              reported 3 Error
        "#]],
    );
}

/// The hook ran at the request; the stop signal came when the main container had used up the grace.
#[test]
fn a_sidecars_wait_for_the_main_container_is_not_its_hooks_time() {
    check(
        &web("
        pod web grace=8 app log:sidecar log.prestop=http
        -59.5 mkdir web:log
        proc log in=web:log pid=110 ns=1 start=-59.5 parent=shim comm=log
        -59.5 exec log
        -58 pod web app=running log=running
        +1.05 pod web deleted=+1:8
        +1.2 TERM runc -> main ignored default
        +9.3 TERM runc -> log handler
        +9.31 enter log TERM
        +9.4 exit log 0
        +9.9 KILL runc -> main
        +9.91 exit main KILL
        +12 pod web app=137:Error log=0:Completed
        +13 gone web
        "),
        expect![[r#"
            +1.200 early: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal, 7.8 s left
            +13.200 pod web +1.000…+9.910 ignored-stop-signal: Deleted/IgnoredStopSignal/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 8 s
              web/log +9.300…+9.400 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 8 s, mains ended +9.910, reported 0 Completed
                preStop +1.050…+9.300 not seen
              web/app +1.200…+9.910 ignored-stop-signal: Deleted/IgnoredStopSignal/Quiet
                Deleted: deletionTimestamp, grace 8 s, reported 137 Error
              gone +13.000
        "#]],
    );
}

/// A wait without a process begins with the request, which is only known to a second, and here became known late.
#[test]
fn a_wait_that_seems_to_end_before_it_begins_is_told_as_such() {
    let script = web("
        pod web app app.prestop=http
        -58 pod web app=running
        +0 skew -10 10
        +1.4 TERM runc -> main handler
        +1.41 enter main TERM
        +1.6 exit main 0
        +1.9 pod web deleted=+1:30
        +2.5 pod web app=0:Completed
        +3 gone web
        ");
    check(
        &script,
        expect![[r#"
        +3.800 pod web +0.990…+1.600 clean: Deleted/Clean/Quiet (deletionTimestamp)
          request +0.990…+1.900 grace 30 s
          web/app +1.400…+1.600 clean: Deleted/Clean/Quiet
            Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
            preStop +1.900…+1.400 not seen
          gone +3.000
    "#]],
    );
}
