//! Containers that end while their pod goes on.

use expect_test::expect;

use super::{check, check_sentences, run, web};
use crate::report::Report;

#[test]
fn a_crash_is_told_with_its_container() {
    check(
        &web("
        +1 SEGV main -> main fault
        +1.001 exit main SEGV core
        +2 pod web app=139:Error
        +2.5 pod web app=waiting app.last=web:app:139:Error app.restarts=1
        "),
        expect![[r#"
            +4.100 web/app +1.000…+1.001 crashed: Crash/Crashed/Quiet
              reported 139 Error
        "#]],
    );
}

#[test]
fn a_liveness_kill_has_the_grace_of_the_probe() {
    check(
        &web("
        pod web app app.liveness-grace=5
        -58 pod web app=running
        +1 event web app Killing Container app failed liveness probe, will be restarted
        +1.1 TERM runc -> main handler
        +1.11 enter main TERM
        +6.4 KILL runc -> main
        +6.41 exit main KILL
        +7 pod web app.last=web:app:137:Error app.restarts=1 app.id=web:app:2 app=running
        "),
        expect![[r#"
            +9.600 web/app +1.100…+6.410 killed-after-grace: Liveness/KilledAfterGrace/Quiet
              Liveness: Event Killing: Container app failed liveness probe, will be restarted, grace 5 s, reported 137 Error
        "#]],
    );
}

#[test]
fn a_restart_that_no_event_explains() {
    check(
        &web("
        +1.1 TERM runc -> main handler
        +1.11 enter main TERM
        +1.4 exit main 0
        +2 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
        "),
        expect![[r#"
            +4.400 web/app +1.100…+1.400 clean: Restart/Clean/Quiet
              grace 30 s, reported 0 Completed
        "#]],
    );
}

/// The kubelet stops it with this Event, and starts it again.
fn restarted_with(message: &str) -> String {
    web(&format!(
        "
        +1 event web app Killing {message}
        +1.1 TERM runc -> main handler
        +1.11 enter main TERM
        +1.4 exit main 0
        +2 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
        "
    ))
}

#[test]
fn a_restart_for_a_changed_definition() {
    let script = restarted_with("Container app definition changed, will be restarted");
    check(
        &script,
        expect![[r#"
            +4.400 web/app +1.100…+1.400 clean: Restart/Clean/Quiet
              Restart: Event Killing: Container app definition changed, will be restarted, grace 30 s, reported 0 Completed
        "#]],
    );
    check_sentences(
        &script,
        expect![[r#"
            container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.3 s later; the kubelet stopped the container to restart it: the container definition changed
        "#]],
    );
}

#[test]
fn a_restart_for_a_resize() {
    let script = restarted_with("Container app resize requires restart");
    check(
        &script,
        expect![[r#"
            +4.400 web/app +1.100…+1.400 clean: Restart/Clean/Quiet
              Restart: Event Killing: Container app resize requires restart, grace 30 s, reported 0 Completed
        "#]],
    );
    check_sentences(
        &script,
        expect![[r#"
            container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.3 s later; the kubelet stopped the container to restart it: the resize of a resource requires a restart
        "#]],
    );
}

/// The message of any stop names the container.
#[test]
fn the_name_of_a_container_is_no_reason() {
    let script = restarted_with("Stopping container resize");
    check_sentences(
        &script,
        expect![[r#"
            container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.3 s later; the kubelet stopped the container, and no evidence shows why
        "#]],
    );
}

#[test]
fn an_oom_kill_of_a_container_that_restarts() {
    let script = web("
        +1 KILL main -> main kernel
        +1.0001 oom main
        +1.01 exit main KILL
        +1.5 mkdir web:app:2
        proc second in=web:app:2 pid=101 ns=1 start=+1.5 parent=shim comm=app
        +1.5 exec second
        +2 pod web app.last=web:app:137:OOMKilled app.restarts=1 app.id=web:app:2 app=running
        +60.05 pod web deleted=+60:30
        +60.3 TERM runc -> second handler
        +60.31 enter second TERM
        +60.5 exit second 0
        +61 pod web app=0:Completed
        +62 gone web
        ");
    check(
        &script,
        expect![[r#"
            +4.200 web/app +1.000…+1.010 oom-killed: Oom/OomKilled/Quiet
              reported 137 OOMKilled
            +62.800 pod web +60.000…+60.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +60.000…+60.050 grace 30 s
              web/app +60.300…+60.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, restarts 1, reported 0 Completed
              gone +62.000
        "#]],
    );
    assert!(
        run(&script).iter().any(|(_, output)| matches!(output, Report::Terminated(_))),
        "an end of its own"
    );
}

#[test]
fn the_next_life_of_a_container_is_not_the_last_one() {
    check(
        &web("
        +1 exit main 3
        +1.2 mkdir web:app:2
        proc second in=web:app:2 pid=101 ns=1 start=+1.2 parent=shim comm=app
        +1.2 exec second
        +1.5 exit second 4
        +2 pod web app.last=web:app:3:Error app.restarts=1 app.id=web:app:2 app=4:Error
        +3 pod web app.last=web:app:2:4:Error app.restarts=1 app=waiting
        +12 mkdir web:app:3
        proc third in=web:app:3 pid=102 ns=1 start=+12 parent=shim comm=app
        +12 exec third
        +13 pod web app.last=web:app:2:4:Error app.restarts=2 app.id=web:app:3 app=running
        +20.1 pod web deleted=+20:30
        +20.3 TERM runc -> third handler
        +20.31 enter third TERM
        +20.5 exit third 0
        +22 pod web app=0:Completed
        +23 gone web
        "),
        expect![[r#"
            +4.000 web/app +1.000…+1.000 nonzero-exit: Crash/NonzeroExit/Quiet
              reported 3 Error
            +4.600 web/app +1.500…+1.500 nonzero-exit: Crash/NonzeroExit/Quiet
              restarts 1, reported 4 Error
            +23.200 pod web +20.000…+20.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +20.000…+20.100 grace 30 s
              web/app +20.300…+20.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, restarts 2, reported 0 Completed
              gone +23.000
        "#]],
    );
}

#[test]
fn a_liveness_kill_that_a_deletion_overtakes_stays_one() {
    check(
        &web("
        +1 event web app Killing Container app failed liveness probe, will be restarted
        +1.1 TERM runc -> main handler
        +1.11 enter main TERM
        +5.1 pod web deleted=+5:30
        +8 exit main 0
        +9 pod web app=0:Completed
        +10 gone web
        "),
        expect![[r#"
            +10.400 pod web +1.100…+8.000 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +5.000…+5.100 grace 30 s
              web/app +1.100…+8.000 clean: Liveness/Clean/Quiet
                Liveness: Event Killing: Container app failed liveness probe, will be restarted, grace 30 s, reported 0 Completed
              gone +10.000
        "#]],
    );
}

#[test]
fn an_init_container_that_is_done_is_told_and_is_no_part_of_the_end() {
    check(
        &web("
        pod web app setup:init
        -58 pod web setup=running
        +0 mkdir web:setup
        proc setup in=web:setup pid=80 ns=1 start=+0 parent=shim comm=setup
        +0 exec setup
        +1 exit setup 0
        +2 pod web setup=0:Completed app=running
        +60.05 pod web deleted=+60:30
        +60.3 TERM runc -> main handler
        +60.31 enter main TERM
        +60.5 exit main 0
        +61 pod web app=0:Completed
        +62 gone web
        "),
        expect![[r#"
            +4.000 web/setup +1.000…+1.000 clean: Completed/Clean/Quiet
              reported 0 Completed
            +62.800 pod web +60.000…+60.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +60.000…+60.050 grace 30 s
              web/app +60.300…+60.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
              gone +62.000
        "#]],
    );
}

#[test]
fn an_ephemeral_container_ends_by_itself() {
    check(
        &web("
        pod web app debug:ephemeral
        -58 pod web app=running
        +0 mkdir web:debug
        proc debug in=web:debug pid=80 ns=1 start=+0 parent=shim comm=sh
        +0 exec debug
        +0.5 pod web debug=running
        +5 exit debug 0
        +6 pod web debug=0:Completed
        "),
        expect![[r#"
            +8.000 web/debug +5.000…+5.000 clean: Completed/Clean/Quiet
              reported 0 Completed
        "#]],
    );
}

#[test]
fn an_end_that_the_api_never_tells() {
    check(
        &web("
        +1 exit main 3
        "),
        expect![[r#"
            +33.100 web/app +1.000…+1.000 nonzero-exit: Crash/NonzeroExit/Quiet
              incomplete: the pod's status did not report the exit within 30 s
        "#]],
    );
}

#[test]
fn one_of_two_that_is_never_restarted() {
    check(
        &web("
        pod web policy=never app other
        -59 mkdir web:other
        proc other in=web:other pid=110 ns=1 start=-59 parent=shim comm=other
        -59 exec other
        -58 pod web app=running other=running
        +1 exit main 3
        +2 pod web app=3:Error
        +100 exit other 0
        +101 pod web other=0:Completed phase=failed
        "),
        expect![[r#"
            +33.000 web/app +1.000…+1.000 nonzero-exit: Crash/NonzeroExit/Quiet
              reported 3 Error
            +104.000 pod web +100.000…+100.000 clean: Completed/Clean/Quiet (nobody asked)
              web/other +100.000…+100.000 clean: Completed/Clean/Quiet
                reported 0 Completed
        "#]],
    );
}

#[test]
fn what_is_left_in_a_dead_container_dies_no_second_death() {
    check(
        &web("
        proc late in=web:app pid=120 start=+1.1 level=1 parent=shim comm=probe
        +1 exit main 3
        +1.11 exec late
        +2 pod web app=waiting app.last=web:app:3:Error app.restarts=1
        +6 exit late KILL
        "),
        expect![[r#"
            +8.100 web/app +1.000…+1.000 nonzero-exit: Crash/NonzeroExit/Quiet
              reported 3 Error
        "#]],
    );
}
