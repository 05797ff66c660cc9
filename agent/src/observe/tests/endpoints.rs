use expect_test::expect;

use super::check;

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

#[test]
fn all_that_is_told_says_how_far_the_apis_clock_was_known_to_be() {
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
fn an_endpoint_whose_pod_goes_on_is_no_removal() {
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
        ",
        expect![""],
    );
}

#[test]
fn a_pod_that_ends_by_itself_is_not_ready_before_it_is_gone() {
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
fn not_ready_for_a_while_and_ready_again_is_no_begin() {
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
fn what_was_under_way_at_the_start_is_counted_and_not_told() {
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
fn a_relist_tells_what_happened_and_that_nobody_knows_when() {
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
fn a_watch_that_resumes_tells_late_and_says_so() {
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
fn opted_out_static_and_never_started_pods_are_not_told() {
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
fn a_pod_that_nobody_showed_is_waited_for_and_counted() {
    check(
        "
        +1 slice web-1 web a:rs b:rs
        +2 slice web-1 web a:st b:st
        +3 slice web-1 web
        +20 pod b - node=n1 deleting
        +32 tick
        +34 tick
        ",
        expect![[r#"
            +20.0 removal b of web [IPv4 http/TCP:8080]: +2.0 → +3.0, terminating +2.0, not ready +2.0, all terminating +2.0
            +34.0 dropped 1 pod_unknown
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
