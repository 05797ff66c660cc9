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
            +11.800 pod web +1.050…+9.410 killed-after-grace: Deleted/KilledAfterGrace/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 8 s
              web/app +1.300…+9.410 killed-after-grace: Deleted/KilledAfterGrace/Quiet
                Deleted: deletionTimestamp, grace 8 s, reported 137 Error
              gone +11.000
        "#]],
    );
}
