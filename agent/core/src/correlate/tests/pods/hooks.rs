//! preStop hooks.

use expect_test::expect;

use super::{check, check_sentences, web};

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

/// The Event of a hook is not older than the hook.
#[test]
fn an_outage_of_long_before_a_restart_hides_no_event_of_its_hook() {
    let restarted = |away: &str, synced: &str| {
        web(&format!(
            "
        pod web app app.prestop=http
        -58 pod web app=running
        +{away} api away timeout
        +{synced} api synced
        +3001 event web app Killing Container app failed liveness probe, will be restarted
        +3002.1 TERM runc -> main handler
        +3002.11 enter main TERM
        +3002.4 exit main 0
        +3003 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
        +3003.1 events web asked
        +3003.2 events web known
        "
        ))
    };
    check(
        &restarted("10", "200"),
        expect![[r#"
        +3005.400 web/app +3002.100…+3002.400 clean: Liveness/Clean/Quiet
          Liveness: Event Killing: Container app failed liveness probe, will be restarted, grace 30 s, reported 0 Completed
          preStop ?…+3002.100 not seen
    "#]],
    );
    check(
        &restarted("2800", "2995"),
        expect![[r#"
        +3005.400 web/app +3002.100…+3002.400 unknown: Liveness/Unknown/Quiet
          Liveness: Event Killing: Container app failed liveness probe, will be restarted, grace 30 s, reported 0 Completed
          preStop ?…+3002.100 not seen
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

const SIDECAR: &str = "
        pod web grace=30 policy=never app log:sidecar log.prestop=exec:/bin/drain
        -59.5 mkdir web:log
        proc log in=web:log pid=110 ns=1 start=-59.5 parent=shim comm=log
        proc drain in=web:log pid=130 ns=7 start=+40.2 parent=shim comm=drain
        ";

/// A sidecar that got its stop signal 30 s after the deletion, when its own hook had ended, and was killed 2 s later.
fn killed_late(before: &str, app: &str) -> String {
    format!(
        "
        {before}
        +40.05 pod web deleted=+40:30
        +40.21 exec drain
        +70 exit drain 0
        +70.1 TERM runc -> log handler
        +70.11 enter log TERM
        +72.2 KILL runc -> log
        +72.21 exit log KILL
        +74 pod web {app} log=137:Error
        +75 gone web
        "
    )
}

/// A main container that nobody observed need not have used up the grace period: it may have completed before.
#[test]
fn a_sidecar_is_not_starved_by_main_containers_that_were_not_observed() {
    let running = "-59.5 exec log\n-58 pod web app=running log=running";
    let whole = |mains: &str| web(&killed_late(&format!("{SIDECAR}{running}\n{mains}"), "app=0:Completed"));
    check(
        &whole("+1 exit main 0\n+2 pod web app=0:Completed"),
        expect![[r#"
            +33.000 web/app +1.000…+1.000 clean: Completed/Clean/Quiet
              reported 0 Completed
            +75.200 pod web +40.000…+72.210 prestop-overran: Deleted/PrestopOverran/Quiet (deletionTimestamp)
              request +40.000…+40.050 grace 30 s
              web/log +70.100…+72.210 prestop-overran: Deleted/PrestopOverran/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 137 Error
                preStop +40.210…+70.000 Exited(0)
              gone +75.000
        "#]],
    );
    let lines = |at: &str, words: [&str; 6]| words.map(|words| format!("{at} {words}\n")).concat();
    let restarted = [
        "start",
        "found log",
        "scanned",
        "api away",
        "pod web app=0:Completed",
        "api synced",
    ];
    let lost = whole("+1 exit main 0\n+2 pod web app=0:Completed").replace("+40.21 exec drain", "");
    check_sentences(
        &lost.replace("+70 exit", "+70 lost sched_process_exec +40 1\n+70 exit"),
        expect![[r#"
            container `app`: PID 1 `app` exited by itself with code 0
            container `log`: PID 1 `log` was terminated by SIGKILL, but the reason is unknown: nothing shows what used up the grace period before the stop signal: the pod's main containers, or the container's own preStop hook
        "#]],
    );
    let in_gap = whole(&format!("+0.9 tick\n{}", lines("+5", restarted)));
    check(
        &format!("-100 start\n{in_gap}"),
        expect![[r#"
            +37.000 web/app +5.000…+5.000 unknown: Unknown/Unknown/Unknown
              reported 0 Completed
              incomplete: the Kubernetes API did not answer during the termination; when deletion was requested, if it was, is unknown
            +75.200 pod web +40.000…+72.210 prestop-overran: Deleted/PrestopOverran/Quiet (deletionTimestamp)
              request +40.000…+40.050 grace 30 s
              web/log +70.100…+72.210 prestop-overran: Deleted/PrestopOverran/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 137 Error
                preStop +40.210…+70.000 Exited(0)
              gone +75.000
        "#]],
    );
    // The first agent comes after their exit, which a status shows, or none.
    let found = [
        "start",
        "found log",
        "scanned",
        "api away",
        "pod web app=0:Completed log=running",
        "api synced",
    ];
    let late = killed_late(&format!("{SIDECAR}{}", lines("+5", found)), "app=0:Completed");
    check(
        &late,
        expect![[r#"
            +75.200 pod web +40.000…+72.210 prestop-overran: Deleted/PrestopOverran/Quiet (deletionTimestamp)
              request +40.000…+40.050 grace 30 s
              web/log +70.100…+72.210 prestop-overran: Deleted/PrestopOverran/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 137 Error
                preStop +40.210…+70.000 Exited(0)
              gone +75.000
        "#]],
    );
    let late = late
        .replace("app=0:Completed", "app=running")
        .replace("+74 pod web app=running", "+74 pod web app=0:Completed");
    check_sentences(
        &late,
        expect![[r#"
            container `log` (0 of 2 clean): PID 1 `log` was terminated by SIGKILL, but the reason is unknown: nothing shows what used up the grace period before the stop signal: the pod's main containers, or the container's own preStop hook; the preStop hook `/bin/drain` took 29.8 s of the grace period of 30 s, which left 2.1 s for the shutdown; container `app` was not observed: the pod's status reports Completed, exit code 0
        "#]],
    );
}

/// As one whose image cannot be pulled: the hook alone used up the grace period.
#[test]
fn a_sidecar_is_not_starved_by_a_main_container_that_never_ran() {
    let running = "-60 api synced\n-59.5 exec log\n-58 pod web log=running";
    check(
        &killed_late(&format!("{SIDECAR}{running}"), "app=waiting:ErrImagePull"),
        expect![[r#"
            +75.200 pod web +40.000…+72.210 prestop-overran: Deleted/PrestopOverran/Quiet (deletionTimestamp)
              request +40.000…+40.050 grace 30 s
              web/log +70.100…+72.210 prestop-overran: Deleted/PrestopOverran/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 137 Error
                preStop +40.210…+70.000 Exited(0)
              gone +75.000
        "#]],
    );
}
