//! Endpoints that stay ready while the kubelet stops the pods of a node that shuts down.

use expect_test::expect;

use super::{headlines, play};

/// Two nodes with a pod of `web` each, and on the first one a second Service, a pod that has opted out, and the agent.
const CLUSTER: &str = "
    +0 node n1 true boot=b1
    +0 node n2 true boot=b2
    +0 pod a ReplicaSet/web node=n1 ready
    +0 pod b ReplicaSet/web node=n2 ready
    +0 pod db-0 StatefulSet/db node=n1 ready
    +0 pod secret ReplicaSet/secret node=n1 ready ignored
    +0 pod agent-a DaemonSet/agent node=n1 ready outlasts agent
    +1 slice web-1 web a:rs b:rs
    +1 slice db-1 db db-0:rs
    +1 slice secret-1 secret secret:rs
";

/// The kubelet's announcement, and the number of the shutdown.
const ANNOUNCED: &str = "
    +10 node n1 false since=+10 boot=b1 reason=KubeletNotReady shutting-down
    +11 tick
    +11.1 agent n1 answers shutdown=1
";

fn shutdowns(rest: &str) -> String {
    let text = play(&[CLUSTER, rest].concat());
    let at = text.find("shutdown").unwrap_or(text.len());
    let begin = text[..at].rfind('\n').map_or(0, |line| line + 1);
    let lines = text[begin..].lines().filter(|line| !line.contains(" ask "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn endpoints_stay_ready_until_their_pods_have_ended() {
    let rest = "
        +14.1 pod a ReplicaSet/web node=n1 failed
        +14.2 slice web-1 web b:rs
        +18 pod db-0 StatefulSet/db node=n1 failed
        +18.5 slice db-1 db
        +60 node n1 unknown since=+60 boot=b1
    ";
    expect![[r#"
        +60.0 shutdown 1 of n1, boot b1, of +10: +10.0 → +60.0, KubeletNotReady: node is shutting down
              ready: shop/db (1 endpoint), until +18.5
              ready: shop/web (1 endpoint), until +14.2
        +60.0 removal db-0 of db [IPv4 http/TCP:8080]: +18.5 → +18.5
    "#]]
    .assert_eq(&shutdowns(&[ANNOUNCED, rest].concat()));
}

/// The next case to it: the node was drained, and what is ready elsewhere is no part of it.
#[test]
fn a_drained_node_has_no_ready_endpoints() {
    let rest = "
        +60 node n1 unknown since=+60 boot=b1
    ";
    let drained = "
        +5 pod a ReplicaSet/web node=n1 ready deleting
        +5.1 slice web-1 web a:st b:rs
        +5.1 slice db-1 db db-0:st
        +7 slice web-1 web b:rs
        +7 gone a
    ";
    expect![[r#"
        +60.0 shutdown 1 of n1, boot b1, of +10: +10.0 → +60.0, KubeletNotReady: node is shutting down
    "#]]
    .assert_eq(&shutdowns(&[drained, ANNOUNCED, rest].concat()));
}

/// The node goes down with its pods: their endpoints are ready as long as nobody marks them.
#[test]
fn endpoints_of_a_node_that_is_gone_are_still_ready() {
    let rest = "
        +14.2 slice web-1 web a:s b:rs
        +15 slice web-1 web a:rs b:rs
        +60 node n1 unknown since=+60 boot=b1
        +61 slice db-1 db db-0:s
    ";
    expect![[r#"
        +60.0 shutdown 1 of n1, boot b1, of +10: +10.0 → +60.0, KubeletNotReady: node is shutting down
              ready: shop/db (1 endpoint, 1 still ready)
              ready: shop/web (1 endpoint, 1 still ready)
    "#]]
    .assert_eq(&shutdowns(&[ANNOUNCED, rest].concat()));
}

/// An endpoint that becomes ready on a node that is going; and one that moves to another slice, which is in none for a moment.
#[test]
fn a_pod_that_becomes_ready_within_the_shutdown_counts() {
    let rest = "
        +12 pod c ReplicaSet/web node=n1
        +12.5 slice web-2 web c:rs
        +12.7 slice web-1 web b:rs
        +12.8 slice web-2 web a:rs c:rs
        +13 slice web-2 web a:s c:rs
        +20 slice web-2 web a:s c:s
        +60 node n1 unknown since=+60 boot=b1
    ";
    expect![[r#"
        +60.0 shutdown 1 of n1, boot b1, of +10: +10.0 → +60.0, KubeletNotReady: node is shutting down
              ready: shop/db (1 endpoint, 1 still ready)
              ready: shop/web (2 endpoints), until +20.0
    "#]]
    .assert_eq(&shutdowns(&[ANNOUNCED, rest].concat()));
}

/// What had stopped being ready before this observer began is not known, and neither is when it did in an interruption of the watch.
#[test]
fn an_observer_that_begins_within_the_shutdown_says_so() {
    let script = "
        +0 list namespaces
        +0 list pods
        +0 list endpointslices
        +20 list nodes
        +20 node n1 false since=+10 boot=b1 reason=KubeletNotReady shutting-down
        +20 listed nodes
        +20 pod a ReplicaSet/web node=n1 ready
        +20 pod c ReplicaSet/web node=n1 ready
        +20 pod agent-a DaemonSet/agent node=n1 ready outlasts agent
        +20 listed pods
        +20 slice web-1 web a:rs c:s
        +20 listed endpointslices
        +20 listed namespaces
        +21 tick
        +21.1 agent n1 answers shutdown=1
        +30 broken endpointslices since=+28
        +31 slice web-1 web c:s
        +60 node n1 unknown since=+60 boot=b1
    ";
    let text: String = play(script)
        .lines()
        .filter(|line| !line.contains(" ask "))
        .map(|line| format!("{line}\n"))
        .collect();
    expect![[r#"
        +60.0 shutdown 1 of n1, boot b1, of +10: +10.0 → +60.0, KubeletNotReady: node is shutting down
              ready: shop/web (1 endpoint), until +31.0 (gap 3.0), unwatched 10.0
    "#]]
    .assert_eq(&text);
}

/// Without a shutdown, endpoints are followed on no node.
#[test]
fn a_kubelet_with_another_trouble_is_not_followed() {
    let script = [
        CLUSTER,
        "
        +10 node n1 false since=+10 boot=b1 reason=KubeletNotReady
        +11 tick
        +14.2 slice web-1 web b:rs
        +60 node n1 unknown since=+60 boot=b1
        ",
    ]
    .concat();
    expect![[""]].assert_eq(&headlines(&script, &["shutdown"]));
}
