use expect_test::expect;

use super::check;

#[test]
fn a_replica_set_replaces_at_the_deletions_begin_one_for_one() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +0 pod b ReplicaSet/web node=n1 ready
        +10 pod a ReplicaSet/web node=n1 ready deleting
        +10.1 pod b ReplicaSet/web node=n1 ready deleting
        +10.2 pod c ReplicaSet/web pending
        +10.3 pod d ReplicaSet/web pending
        +10.4 pod e ReplicaSet/web pending
        +10.5 pod c ReplicaSet/web pending node=n1
        +10.6 pod d ReplicaSet/web pending node=n2
        +12 gone a
        +14 pod d ReplicaSet/web node=n2 ready
        +15 pod c ReplicaSet/web node=n1 ready
        +16 pod e ReplicaSet/web node=n1 ready
        ",
        expect![[r#"
            +14.0 d replaces b (next-of-replica-set): created +10.3, scheduled +10.6, ready +14.0
            +15.0 c replaces a (next-of-replica-set): created +10.2, scheduled +10.5, ready +15.0
        "#]],
    );
}

#[test]
fn a_replica_set_that_shrinks_replaces_nothing() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +10 pod a ReplicaSet/web node=n1 ready deleting
        +12 gone a
        # Scaled up again: another reason.
        +21 pod b ReplicaSet/web node=n1 ready
        # Another ReplicaSet's pod in a rollout.
        +21 pod c ReplicaSet/web-2 node=n1 ready
        ",
        expect![""],
    );
}

#[test]
fn a_failed_pod_without_a_deletion_is_replaced_once() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +10 pod a ReplicaSet/web node=n1 failed
        +10.1 pod b ReplicaSet/web node=n2
        +11 pod b ReplicaSet/web node=n2 ready
        +12 pod a ReplicaSet/web node=n1 failed deleting
        +12 gone a
        +12.1 pod c ReplicaSet/web node=n2 ready
        ",
        expect![[r#"
            +11.0 b replaces a (next-of-replica-set): created +10.1, scheduled +10.1, ready +11.0
        "#]],
    );
}

#[test]
fn a_stateful_set_replaces_by_name_once_the_old_one_is_gone() {
    check(
        "
        +0 pod db-0 StatefulSet/db node=n1 ready
        +0 pod db-1 StatefulSet/db node=n1 ready
        +10 pod db-1 StatefulSet/db node=n1 ready deleting
        +10 pod db-0 StatefulSet/db node=n1 ready deleting
        +40 gone db-0
        +40.1 pod db-0 StatefulSet/db pending again=1
        +41 pod db-0 StatefulSet/db pending node=n2 again=1
        +60 pod db-0 StatefulSet/db ready node=n2 again=1
        +61 gone db-1
        +61.1 pod db-1 StatefulSet/db ready node=n2 again=1
        ",
        expect![[r#"
            +60.0 db-0 replaces db-0 (name-in-stateful-set): created +40.1, scheduled +41.0, ready +60.0
            +61.1 db-1 replaces db-1 (name-in-stateful-set): created +61.1, scheduled +61.1, ready +61.1
        "#]],
    );
}

#[test]
fn a_daemon_set_replaces_on_the_node() {
    check(
        "
        +0 pod a DaemonSet/log node=n1 ready
        +0 pod b DaemonSet/log node=n2 ready
        +10 pod a DaemonSet/log node=n1 ready deleting
        +10 pod b DaemonSet/log node=n2 ready deleting
        +11 gone b
        +11.1 pod c DaemonSet/log pending
        +12 gone a
        +12.1 pod d DaemonSet/log pending
        +12.2 pod d DaemonSet/log pending node=n1
        +12.3 pod c DaemonSet/log pending node=n2
        +13 pod c DaemonSet/log ready node=n2
        +13 pod d DaemonSet/log ready node=n1
        # A new node joins.
        +14 pod e DaemonSet/log ready node=n3
        ",
        expect![[r#"
            +13.0 c replaces b (node-of-daemon-set): created +11.1, scheduled +12.3, ready +13.0
            +13.0 d replaces a (node-of-daemon-set): created +12.1, scheduled +12.2, ready +13.0
        "#]],
    );
}

#[test]
fn a_daemon_sets_surge_pod_was_there_before() {
    check(
        "
        +0 pod a DaemonSet/log node=n1 ready
        +5 pod b DaemonSet/log pending
        +6 pod a DaemonSet/log node=n1 ready deleting
        +7 pod b DaemonSet/log node=n1 ready
        ",
        expect![""],
    );
}

#[test]
fn a_job_retries_by_index_or_alone() {
    check(
        "
        +0 pod a Job/one node=n1 ready
        +5 pod a Job/one node=n1 failed
        +15 pod b Job/one node=n1 ready
        +16 pod b Job/one node=n1 succeeded
        +17 pod c Job/one node=n1 ready
        +20 pod i0 Job/many node=n1 index=0
        +20 pod i1 Job/many node=n1 index=1
        +21 pod i0 Job/many node=n1 index=0 failed
        +21 pod i1 Job/many node=n1 index=1 failed
        +31 pod j1 Job/many node=n1 index=1 ready
        +32 pod j0 Job/many node=n1 index=0 ready
        ",
        expect![[r#"
            +15.0 b replaces a (next-of-job): created +15.0, scheduled +15.0, ready +15.0
            +31.0 j1 replaces i1 (index-in-job): created +31.0, scheduled +31.0, ready +31.0
            +32.0 j0 replaces i0 (index-in-job): created +32.0, scheduled +32.0, ready +32.0
        "#]],
    );
}

#[test]
fn a_job_with_several_pods_at_a_time_is_not_guessed() {
    check(
        "
        +0 pod a Job/many node=n1 ready
        +0 pod b Job/many node=n1 ready
        +5 pod a Job/many node=n1 failed
        +5 pod b Job/many node=n1 succeeded
        +6 pod c Job/many node=n1 ready
        ",
        expect![""],
    );
}

#[test]
fn a_replacement_that_never_gets_ready_is_reported_without_ready() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +0 pod b ReplicaSet/web node=n1 ready
        +10 pod a ReplicaSet/web node=n1 ready deleting
        +10.1 pod c ReplicaSet/web pending
        +11 pod b ReplicaSet/web node=n1 ready deleting
        +11.1 pod d ReplicaSet/web node=n2
        +20 pod d ReplicaSet/web node=n2 failed
        +20.1 pod e ReplicaSet/web node=n2 ready
        +3612 tick
        ",
        expect![[r#"
            +20.0 d replaces b (next-of-replica-set): created +11.1, scheduled +11.1, never ready, end +20.0
            +20.1 e replaces d (next-of-replica-set): created +20.1, scheduled +20.1, ready +20.1
            +3612.0 c replaces a (next-of-replica-set): created +10.1, never scheduled, never ready, end +3612.0
        "#]],
    );
}

#[test]
fn after_a_start_or_a_relist_only_what_has_a_name_is_matched() {
    check(
        "
        +0 list namespaces
        +0 listed namespaces
        +0 list endpointslices
        +0 listed endpointslices
        +0 list pods
        +0 pod a ReplicaSet/web node=n1 ready deleting
        +0 pod b ReplicaSet/web node=n1 ready
        +0 pod db-0 StatefulSet/db node=n1 ready
        +0 pod db-1 StatefulSet/db node=n1 ready deleting
        +0 listed pods
        +1 pod b ReplicaSet/web node=n1 ready deleting
        # Of a or of b?
        +1.1 pod c ReplicaSet/web node=n1 ready
        +1.2 pod d ReplicaSet/web node=n1 ready
        +2 gone db-1
        # Another observer may have told of this one.
        +2.1 pod db-1 StatefulSet/db node=n1 ready again=1
        +20 broken pods
        +30 list pods
        +30 pod db-0 StatefulSet/db node=n1 ready again=1
        +30 pod c ReplicaSet/web node=n1 ready deleting
        +30 pod e ReplicaSet/web node=n1 ready
        +30 listed pods
        ",
        expect![""],
    );
}

#[test]
fn a_forced_deletion_opens_the_place_at_its_end() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +10 gone a
        +10.1 pod b ReplicaSet/web node=n1 ready
        ",
        expect![[r#"
            +10.1 b replaces a (next-of-replica-set): created +10.1, scheduled +10.1, ready +10.1
        "#]],
    );
}

#[test]
fn nothing_is_reported_before_the_namespaces_are_known() {
    check(
        "
        +0 list pods
        +0 listed pods
        +0 list endpointslices
        +0 listed endpointslices
        +1 pod a - node=n1 ready
        +1 slice web-1 web a:rs
        +2 slice web-1 web a:st
        +2 pod a - node=n1 deleting
        +3 slice web-1 web
        +10 tick
        +11 list namespaces
        +11 listed namespaces
        +11 tick
        ",
        expect![[r#"
            +11.0 removal a of web [IPv4 http/TCP:8080]: +2.0 → +3.0, terminating +2.0, not ready +2.0, all terminating +2.0
        "#]],
    );
}

#[test]
fn a_pod_that_terminates_before_the_namespaces_are_known_is_not_reported() {
    check(
        "
        +0 list pods
        +0 pod a ReplicaSet/web node=n1 ready
        +0.1 listed pods
        +0.1 list endpointslices
        +0.2 listed endpointslices
        +0.3 pod a ReplicaSet/web node=n1 ready deleting
        +0.4 pod b ReplicaSet/web pending
        +0.5 list namespaces
        +0.5 namespace shop ignored
        +0.6 listed namespaces
        +2 pod b ReplicaSet/web node=n1 ready
        +5 gone a
        ",
        expect![""],
    );
}

#[test]
fn a_pod_that_waited_for_its_next_crash_has_no_trace_to_add_to() {
    check(
        "
        +0 pod a ReplicaSet/web node=n1 ready
        +1 slice web-1 web a:rs
        +5 pod a ReplicaSet/web node=n1 pending
        +5 slice web-1 web a:
        +10 pod a ReplicaSet/web node=n1 pending deleting
        +10 slice web-1 web a:t
        +10.1 pod b ReplicaSet/web pending
        # The kubelet's last word names the last crash.
        +11 pod a ReplicaSet/web node=n1 deleting
        +11 slice web-1 web
        +12 gone a
        +14 pod b ReplicaSet/web node=n1 ready
        +20 tick
        ",
        expect![""],
    );
}
