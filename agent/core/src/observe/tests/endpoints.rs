use expect_test::expect;

use super::script::parse;
use super::{LIMITS, check, show};
use crate::observe::{Input, Observer};

#[test]
fn ready_terminating_gone() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +0 pod b ReplicaSet/web node=n2 ready
        +1 slice web-1 web a:rs b:rs
        +10 pod a ReplicaSet/web node=n1 ready deleting
        +10.1 slice web-1 web a:st b:rs
        +11 slice web-1 web a:t b:rs
        +12 slice web-1 web b:rs
        +12.5 gone a
        +14 tick
        +15 tick
        ",
        expect![[r#"
            +15.0 removal a of web [IPv4 http/TCP:8080]: +10.1 → +12.0, terminating +10.1, not ready +10.1, not serving +11.0
        "#]],
    );
}

/// The controller of EndpointSlices writes all conditions at once: a slow one is seen by the pod's deletion only.
#[test]
fn an_endpoint_is_ready_for_as_long_as_its_pod_is_deleted_and_the_slice_is_old() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +0 pod b ReplicaSet/web node=n1 ready
        +0 pod c ReplicaSet/web node=n2 ready
        +1 slice web-1 web a:rs b:rs c:rs
        +10 pod a ReplicaSet/web node=n1 ready deleting
        +14 slice web-1 web a:st b:rs c:rs
        +15 slice web-1 web b:rs c:rs
        +15 gone a
        # Removed at once, and never shown as terminating.
        +20 pod b ReplicaSet/web node=n1 ready deleting
        +26 slice web-1 web c:rs
        +27 gone b
        +30 tick
        ",
        expect![[r#"
            +20.0 removal a of web [IPv4 http/TCP:8080]: +14.0 → +15.0, terminating +14.0, not ready +14.0, ready for 4.0 s after the pod's end
            +30.0 removal b of web [IPv4 http/TCP:8080]: +26.0 → +26.0, ready for 6.0 s after the pod's end
        "#]],
    );
}

/// The slice of 14.0 may have been written at 10.0, before the watch was interrupted.
#[test]
fn a_gap_of_the_watch_makes_no_endpoint_late() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs
        +10 pod a ReplicaSet/web node=n1 ready deleting
        +10 broken endpointslices since=+9
        +14 slice web-1 web a:st
        +15 slice web-1 web
        +16 gone a
        +20 tick
        ",
        expect![[r#"
            +20.0 removal a of web [IPv4 http/TCP:8080]: +14.0 (gap 5.0) → +15.0 (gap 6.0), terminating +14.0 (gap 5.0), not ready +14.0 (gap 5.0), all terminating +14.0 (gap 5.0)
        "#]],
    );
}

#[test]
fn every_output_has_the_offset_of_the_apis_clock() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +0 pod b ReplicaSet/web node=n2 ready
        +1 slice web-1 web a:rs b:rs
        +10 pod a ReplicaSet/web node=n1 ready deleting
        +10.1 slice web-1 web b:rs
        +10.2 gone a
        # Not measured yet.
        +14 tick
        +20 skew -20 10
        +21 skew 3000 3010
        +30 pod b ReplicaSet/web node=n2 ready deleting
        +30.1 slice web-1 web
        +30.2 pod c ReplicaSet/web node=n1
        +30.2 gone b
        +33 pod c ReplicaSet/web node=n1 ready
        +34 tick
        ",
        expect![[r#"
            +14.0 removal a of web [IPv4 http/TCP:8080]: +10.1 → +10.1
            +33.0 c replaces b (next-of-replica-set): created +30.2, scheduled +30.2, ready +33.0, the API's clock +3000..+3010 ms
            +34.0 removal b of web [IPv4 http/TCP:8080]: +30.1 → +30.1, the API's clock +3000..+3010 ms
        "#]],
    );
}

#[test]
fn after_a_step_of_our_clock_the_offset_of_the_apis_is_unknown() {
    let script = "
        +0 pod a ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs
        +5 skew 3000 3010
        +10 pod a ReplicaSet/web node=n1 ready deleting
        +10.1 slice web-1 web
        +10.2 gone a
        +14 tick
    ";
    let mut observer = Observer::new(LIMITS);
    let mut text = String::new();
    for (at, input) in parse(script) {
        if input == Input::Tick {
            observer.forget_api_clock();
        }
        text.extend(observer.handle(at, input).iter().map(show));
    }
    expect!["removal a of web [IPv4 http/TCP:8080]: +10.1 → +10.1"].assert_eq(&text);
}

#[test]
fn one_span_per_service_over_both_address_families() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +1 slice web-4 web a:rs
        +1 slice web-6 web v6 a:rs
        +1 slice admin-4 admin a:rs
        +10 pod a ReplicaSet/web node=n1 ready deleting
        +10.1 slice web-4 web a:st
        +10.2 slice web-6 web v6 a:st
        +10.3 slice admin-4 admin a:st
        +12 slice web-4 web
        +12.4 slice web-6 web v6
        +13 no-slice admin-4
        +13 gone a
        +17 tick
        ",
        expect![[r#"
            +17.0 removal a of admin [IPv4 http/TCP:8080]: +10.3 → +13.0, terminating +10.3, not ready +10.3, all terminating +10.3
            +17.0 removal a of web [IPv4,IPv6 http/TCP:8080]: +10.1 → +12.4, terminating +10.1, not ready +10.2, all terminating +10.2
        "#]],
    );
}

#[test]
fn moved_to_another_slice_is_not_gone() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs
        +5 slice web-1 web
        +5.2 slice web-2 web a:rs
        +10 pod a ReplicaSet/web node=n1 ready deleting
        +10.1 slice web-2 web a:st
        # The controller writes the whole anew: first the old one goes, then another holds it.
        +11 no-slice web-2
        +11.1 slice web-3 web a:t
        +12 slice web-3 web
        +12.1 gone a
        +20 tick
        ",
        expect![[r#"
            +20.0 removal a of web [IPv4 http/TCP:8080]: +10.1 → +12.0, terminating +10.1, not ready +10.1, not serving +11.1, all terminating +10.1
        "#]],
    );
}

#[test]
fn an_endpoint_of_a_continuing_pod_is_not_a_removal() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs
        # The Service's selector changed.
        +5 slice web-1 web
        +40 tick
        # Later it is deleted, out of the Service.
        +50 pod a ReplicaSet/web node=n1 ready deleting
        +55 gone a
        +70 tick
        # This one goes on for longer than anybody's word may be late.
        +100 pod b ReplicaSet/web node=n1 ready
        +100 slice web-1 web b:rs
        +101 slice web-1 web
        +202 tick
        ",
        expect![[r#"
            +50.0 dropped 1 pod_goes_on
            +202.0 dropped 1 pod_goes_on
        "#]],
    );
}

#[test]
fn a_pod_that_terminates_by_itself_is_not_ready_before_it_is_gone() {
    check(
        "
        +0 pod a Job/once node=n1 ready
        +1 slice web-1 web a:rs
        +10 slice web-1 web a:
        +10.5 pod a Job/once node=n1 succeeded
        +10.6 slice web-1 web
        +14 tick
        ",
        expect![[r#"
            +14.0 removal a of web [IPv4 http/TCP:8080]: +10.0 → +10.6, not ready +10.0, not serving +10.0
        "#]],
    );
}

#[test]
fn not_ready_for_a_while_and_ready_again_is_not_a_begin() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs
        +2 slice web-1 web a:
        +3 slice web-1 web a:rs
        +10 slice web-1 web a:st
        +10 pod a ReplicaSet/web node=n1 ready deleting
        +12 slice web-1 web
        +12 gone a
        +16 tick
        ",
        expect![[r#"
            +16.0 removal a of web [IPv4 http/TCP:8080]: +10.0 → +12.0, terminating +10.0, not ready +10.0, all terminating +10.0
        "#]],
    );
}

#[test]
fn all_endpoints_terminating_is_known_for_both_from_then_on() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +0 pod b ReplicaSet/web node=n2 ready
        +1 slice web-1 web a:rs b:rs
        +10 pod a ReplicaSet/web node=n1 ready deleting
        +10.1 slice web-1 web a:st b:rs
        +13 pod b ReplicaSet/web node=n2 ready deleting
        +13.1 slice web-1 web a:st b:st
        +15 slice web-1 web b:st
        +15 gone a
        +16 slice web-1 web
        +16 gone b
        +20 tick
        ",
        expect![[r#"
            +20.0 removal a of web [IPv4 http/TCP:8080]: +10.1 → +15.0, terminating +10.1, not ready +10.1, all terminating +13.1
            +20.0 removal b of web [IPv4 http/TCP:8080]: +13.1 → +16.0, terminating +13.1, not ready +13.1, all terminating +13.1
        "#]],
    );
}

#[test]
fn publish_not_ready_addresses_keeps_it_ready() {
    check(
        "
        +0 pod a StatefulSet/db node=n1 ready
        +1 slice db-1 db a:rs
        +10 pod a StatefulSet/db node=n1 ready deleting
        +10.1 slice db-1 db a:rst
        +12 slice db-1 db a:rt
        +13 slice db-1 db
        +13 gone a
        +17 tick
        ",
        expect![[r#"
            +17.0 removal a of db [IPv4 http/TCP:8080]: +10.1 → +13.0, terminating +10.1, not serving +12.0, publishNotReadyAddresses
        "#]],
    );
}

#[test]
fn a_removal_in_progress_at_the_start_is_counted_and_not_reported() {
    check(
        "
        +0 list pods
        +0 pod a ReplicaSet/web node=n1 ready deleting
        +0 pod b ReplicaSet/web node=n1 ready
        +0 pod c ReplicaSet/web node=n1
        +0 listed pods
        +0 list namespaces
        +0 listed namespaces
        +0 list endpointslices
        +0 slice web-1 web a:st b:rs c:
        +0 listed endpointslices
        +1 slice web-1 web b:st c:
        +1 pod b ReplicaSet/web node=n1 ready deleting
        +1 pod c ReplicaSet/web node=n1 failed
        +2 slice web-1 web
        +2 gone a
        +2 gone b
        +9 tick
        ",
        expect![[r#"
            +9.0 dropped 1 begin_unseen
            +9.0 removal b of web [IPv4 http/TCP:8080]: +1.0 → +2.0, terminating +1.0, not ready +1.0, all terminating +1.0
            +9.0 dropped 1 begin_unseen
        "#]],
    );
}

#[test]
fn a_relist_shows_a_change_at_an_unknown_time() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +0 pod b ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs b:rs
        +10 broken endpointslices
        +10 broken pods
        +20 list pods
        +20 pod b ReplicaSet/web node=n1 ready deleting
        +20 listed pods
        +22 list endpointslices
        +22 slice web-1 web b:st
        +22 listed endpointslices
        +24 slice web-1 web
        +24 gone b
        +30 tick
        ",
        expect![[r#"
            +30.0 removal a of web [IPv4 http/TCP:8080]: +22.0 (gap 12.0) → +22.0 (gap 12.0)
            +30.0 removal b of web [IPv4 http/TCP:8080]: +22.0 (gap 12.0) → +24.0, terminating +22.0 (gap 12.0), not ready +22.0 (gap 12.0), all terminating +22.0 (gap 12.0)
        "#]],
    );
}

#[test]
fn a_resumed_watch_reports_late_changes_as_late() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +0 pod b ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs b:rs
        +10 broken endpointslices
        +12 slice web-1 web a:st b:rs
        +12 pod a ReplicaSet/web node=n1 ready deleting
        +13 slice web-1 web b:rs
        +13 gone a
        +20 slice web-1 web b:st
        +20 pod b ReplicaSet/web node=n1 ready deleting
        +21 slice web-1 web
        +21 gone b
        +25 tick
        ",
        expect![[r#"
            +20.0 removal a of web [IPv4 http/TCP:8080]: +12.0 (gap 2.0) → +13.0 (gap 3.0), terminating +12.0 (gap 2.0), not ready +12.0 (gap 2.0)
            +25.0 removal b of web [IPv4 http/TCP:8080]: +20.0 → +21.0, terminating +20.0, not ready +20.0, all terminating +20.0
        "#]],
    );
}

#[test]
fn the_gap_of_a_stalled_watch_begins_when_it_was_last_known_to_be_alive() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs
        +66 broken endpointslices since=+1
        +67 slice web-1 web a:st
        +67 pod a ReplicaSet/web node=n1 ready deleting
        +68 slice web-1 web
        +68 gone a
        +75 tick
        ",
        expect![[r#"
            +75.0 removal a of web [IPv4 http/TCP:8080]: +67.0 (gap 66.0) → +68.0 (gap 67.0), terminating +67.0 (gap 66.0), not ready +67.0 (gap 66.0), all terminating +67.0 (gap 66.0)
        "#]],
    );
}

#[test]
fn a_watch_that_was_back_and_quiet_has_no_gap() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +0 pod b ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs b:rs
        +10 broken endpointslices
        # It may still be on its way back.
        +99 tick
        +100 slice web-1 web a:st b:rs
        +100 pod a ReplicaSet/web node=n1 ready deleting
        +110 slice web-1 web b:rs
        +110 gone a
        +200 broken endpointslices
        +290 broken endpointslices
        +389 tick
        +391 tick
        +1800 slice web-1 web b:st
        +1800 pod b ReplicaSet/web node=n1 ready deleting
        +1801 slice web-1 web
        +1801 gone b
        +1810 tick
        ",
        expect![[r#"
            +200.0 removal a of web [IPv4 http/TCP:8080]: +100.0 (gap 90.0) → +110.0, terminating +100.0 (gap 90.0), not ready +100.0 (gap 90.0)
            +1810.0 removal b of web [IPv4 http/TCP:8080]: +1800.0 → +1801.0, terminating +1800.0, not ready +1800.0, all terminating +1800.0
        "#]],
    );
}

#[test]
fn changes_during_a_stall_may_be_earlier() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs
        +10 tick
        +130 stalled
        +130 tick
        +130 slice web-1 web a:st
        +130 pod a ReplicaSet/web node=n1 ready deleting
        +131 slice web-1 web
        +131 gone a
        +140 tick
        ",
        expect![[r#"
            +140.0 removal a of web [IPv4 http/TCP:8080]: +130.0 (gap 120.0) → +131.0 (gap 121.0), terminating +130.0 (gap 120.0), not ready +130.0 (gap 120.0), all terminating +130.0 (gap 120.0)
        "#]],
    );
}

#[test]
fn changes_during_a_pause_of_the_machine_may_be_earlier() {
    // Its clocks stood still for a minute.
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs
        +70 tick
        +70.1 paused 60
        +70.1 slice web-1 web a:st
        +70.1 pod a ReplicaSet/web node=n1 ready deleting
        +71 slice web-1 web
        +71 gone a
        +80 tick
        ",
        expect![[r#"
            +80.0 removal a of web [IPv4 http/TCP:8080]: +70.1 (gap 60.1) → +71.0 (gap 61.0), terminating +70.1 (gap 60.1), not ready +70.1 (gap 60.1), all terminating +70.1 (gap 60.1)
        "#]],
    );
}

#[test]
fn a_step_of_the_clock_hides_no_part_of_a_stall() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs
        +101 paused 2
        +101 stalled
        +101 slice web-1 web a:st
        +101 pod a ReplicaSet/web node=n1 ready deleting
        +104 slice web-1 web
        +104 gone a
        +110 tick
        ",
        expect![[r#"
            +110.0 removal a of web [IPv4 http/TCP:8080]: +101.0 (gap 102.0) → +104.0, terminating +101.0 (gap 102.0), not ready +101.0 (gap 102.0), all terminating +101.0 (gap 102.0)
        "#]],
    );
}

#[test]
fn a_loss_during_a_pause_of_the_machine_has_the_apis_times() {
    let script = "
        +0 node n1 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +70 tick
        +70.1 paused 60
        +70.1 node n1 unknown since=+20
        +70.1 pod db-0 StatefulSet/db node=n1 ready deleted=+30 grace=5
        +71 tick
        +73 tick
        +90 gone db-0
    ";
    expect![[r#"
        +90.0 pod db-0 lost: +20.0 → +90.0, requested +30.0
        +90.0 node n1 lost at +20: +20.0 → +90.0 by pods-gone, agent unknown, stuck 1, gone 1; pods db-0
    "#]]
    .assert_eq(&super::headlines(script, &["pod", "node n1"]));
}

#[test]
fn a_watch_that_had_failed_before_a_stall_has_the_longer_gap() {
    let script = "
        +0 node n1 true
        +0 pod db-0 StatefulSet/db node=n1 ready
        +20 tick
        +90 stalled
        +90 broken nodes since=+10
        +90 node n1 unknown since=+15
        +90 pod db-0 StatefulSet/db node=n1 ready deleted=+30 grace=5
        +91 tick
        +93 tick
        +100 gone db-0
    ";
    expect![[r#"
        +100.0 pod db-0 lost: +15.0 → +100.0, requested +30.0
    "#]]
    .assert_eq(&super::headlines(script, &["pod"]));
}

#[test]
fn changes_after_a_list_with_a_stall_may_be_late() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs
        +10 list endpointslices
        +10 slice web-1 web a:rs
        +40 stalled
        +40 listed endpointslices
        +40 slice web-1 web a:st
        +40 pod a ReplicaSet/web node=n1 ready deleting
        +50 slice web-1 web
        +50 gone a
        +60 tick
        ",
        expect![[r#"
            +60.0 removal a of web [IPv4 http/TCP:8080]: +40.0 (gap 30.0) → +50.0, terminating +40.0 (gap 30.0), not ready +40.0 (gap 30.0), all terminating +40.0 (gap 30.0)
        "#]],
    );
}

#[test]
fn not_ready_long_before_the_termination_is_not_a_begin() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +0 pod b ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs b:rs
        +10 pod a ReplicaSet/web node=n1
        +10 slice web-1 web a: b:rs
        # By force.
        +7200 gone a
        +7200.1 slice web-1 web b:rs
        # By the kubelet.
        +7300 slice web-1 web b:
        +7302 pod b ReplicaSet/web node=n1 failed
        +7302.1 slice web-1 web
        +7310 tick
        ",
        expect![[r#"
            +7300.0 removal a of web [IPv4 http/TCP:8080]: +7200.1 → +7200.1, not ready +10.0, not serving +10.0
            +7310.0 removal b of web [IPv4 http/TCP:8080]: +7300.0 → +7302.1, not ready +7300.0, not serving +7300.0
        "#]],
    );
}

#[test]
fn a_late_change_of_the_pod_is_waited_for() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +0 pod b ReplicaSet/web node=n1 ready
        +0 pod c ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs b:rs c:rs
        +10 slice web-1 web a:st b:st c:rs
        +11 slice web-1 web c:rs
        # Its connection was dead.
        +75 pod a ReplicaSet/web node=n1 ready deleting
        +112 tick
        +120 broken pods
        +130 slice web-1 web c:st
        +131 slice web-1 web
        +200 broken pods
        +280 tick
        +290 pod c ReplicaSet/web node=n1 ready deleting
        ",
        expect![[r#"
            +75.0 removal a of web [IPv4 http/TCP:8080]: +10.0 → +11.0, terminating +10.0, not ready +10.0
            +112.0 dropped 1 pod_goes_on
            +290.0 removal c of web [IPv4 http/TCP:8080]: +130.0 → +131.0, terminating +130.0, not ready +130.0, all terminating +130.0
        "#]],
    );
}

#[test]
fn ignored_static_and_never_started_pods_are_not_reported() {
    check(
        "
        +0 pod a - node=n1 ready ignored
        +0 pod b - node=n1 static
        +0 pod c - node=n1 pending
        +1 slice web-1 web a:rs b:rs c:
        +2 pod a - node=n1 deleting ignored
        +2 pod b - node=n1 deleting static
        +2 pod c - node=n1 deleting pending
        +2 slice web-1 web a:st b:st c:t
        +3 slice web-1 web
        +9 tick
        +10 namespace shop ignored
        +10 pod d - node=n1 ready
        +10 pod e - node=n1 ready not-ignored
        +10 slice web-1 web d:rs e:rs
        +11 slice web-1 web d:st e:st
        +11 pod d - node=n1 deleting
        +11 pod e - node=n1 deleting not-ignored
        +12 slice web-1 web
        +20 tick
        ",
        expect![[r#"
            +20.0 removal e of web [IPv4 http/TCP:8080]: +11.0 → +12.0, terminating +11.0, not ready +11.0, all terminating +11.0
        "#]],
    );
}

#[test]
fn a_pod_that_was_never_shown_is_waited_for_and_counted() {
    check(
        "
        +1 slice web-1 web a:rs b:rs
        +2 slice web-1 web a:st b:st
        +3 slice web-1 web
        +20 pod b - node=n1 deleting
        +102 tick
        +104 tick
        ",
        expect![[r#"
            +20.0 removal b of web [IPv4 http/TCP:8080]: +2.0 → +3.0, terminating +2.0, not ready +2.0, all terminating +2.0
            +104.0 dropped 1 pod_unknown
        "#]],
    );
}

#[test]
fn over_the_cap_is_counted() {
    check(
        "
        +1 slice web-1 web a:rs b:rs c:rs d:rs e:rs f:rs g:rs h:rs i:rs j:rs k:rs l:rs m:rs n:rs
        ",
        expect![[r#"
            +1.0 dropped 2 endpoint_cap
        "#]],
    );
}

#[test]
fn a_service_made_anew_meanwhile_is_left_once() {
    check(
        "
        +0 pod a - node=n1 ready
        +1 slice web-1 web a:rs
        +2 slice web-1 web a:st
        +2 pod a - node=n1 deleting
        +3 no-slice web-1
        +7 tick
        +8 slice web-2 web a:st
        +9 slice web-2 web
        +20 tick
        ",
        expect![[r#"
            +7.0 removal a of web [IPv4 http/TCP:8080]: +2.0 → +3.0, terminating +2.0, not ready +2.0, all terminating +2.0
        "#]],
    );
}
