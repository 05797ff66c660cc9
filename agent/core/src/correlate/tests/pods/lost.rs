//! Breaches that the rule of [`super::super::monotone`] found, each as the smallest timeline: a lost record must not blame another.

use expect_test::expect;

use super::{check, web};

#[test]
fn without_a_stop_signal_that_may_have_come_before_the_request_the_request_is_not_the_cause() {
    check(
        &web("
        -10 skew 0 10
        +1.1 lost signal_generate +1.1 1 within web:app
        +5.05 pod web deleted=+5:30
        +8 exit main 0
        +9 pod web app=0:Completed
        +10 gone web
        "),
        expect![[r#"
            +10.200 pod web +4.990…+8.000 unknown: Deleted/Unknown/Unknown (deletionTimestamp)
              request +4.990…+5.050 grace 30 s
              web/app +8.000…+8.000 unknown: Unknown/Unknown/Unknown
                reported 0 Completed
              gone +10.000
        "#]],
    );
}

#[test]
fn without_the_last_containers_exit_the_next_sandbox_is_still_one() {
    check(
        &web("
        +1 KILL bash -> pause
        +1.01 exit pause KILL
        +1.5 TERM runc -> main handler
        +1.7 lost sched_process_exit +1.7 1 within web:app
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
            +23.000 pod web +20.000…+20.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +20.000…+20.100 grace 30 s
              web/app +20.300…+20.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, restarts 1
              gone +22.000
        "#]],
    );
}

#[test]
fn without_the_exit_the_events_that_are_not_known_are_still_its_own() {
    check(
        &web("
        +1.1 TERM runc -> main handler
        +1.11 enter main TERM
        +1.4 lost sched_process_exit +1.4 1 within web:app
        +1.8 mkdir web:app:2
        proc second in=web:app:2 pid=101 ns=1 start=+1.8 parent=shim comm=app
        +1.8 exec second
        +2 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
        +2 events web asked
        +4 events web no answer within 2s
        +6 rmdir web:app
        "),
        expect![[r#"
            +9.000 web/app +1.100…+6.000 unknown: Unknown/Unknown/Unknown
              grace 30 s, reported 0 Completed
              incomplete: the Kubernetes Events of the pod are unknown: no answer within 2s
        "#]],
    );
}
