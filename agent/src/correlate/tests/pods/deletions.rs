//! Pods that are deleted.

use expect_test::expect;

use super::{check, web};

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
            +4.000 pod web +1.050…+1.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.300…+1.500 clean: Stopped/Clean/Quiet
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
            +1.400 early: SIGTERM reached PID 1 `app`, which has no handler, so the kernel dropped it, 7.7 s left
            +12.000 pod web +1.050…+9.410 ignored-stop-signal: Deleted/IgnoredStopSignal/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 8 s
              web/app +1.400…+9.410 ignored-stop-signal: Stopped/IgnoredStopSignal/Quiet
                Deleted: deletionTimestamp, grace 8 s, reported 137 Error
              gone +11.000
        "#]],
    );
}
