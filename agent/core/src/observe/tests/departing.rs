//! The endpoints of a node that shuts down: the agent says when each pod was stopped, the slices when its endpoint left.

use expect_test::expect;

use super::play_from;
use crate::observe::tests::LIMITS;
use crate::observe::{Observer, Output};
use crate::time::Boot;

/// Two pods of Service `web` on the node that goes, one elsewhere.
const NODE: &str = "
    +0 node n1 true since=-600
    +0 node n2 true since=-600
    +0 pod web-a ReplicaSet/web node=n1 ready
    +0 pod web-b ReplicaSet/web node=n1 ready
    +0 pod web-c ReplicaSet/web node=n2 ready
    +0 pod agent-a DaemonSet/agent node=n1 ready outlasts agent
    +0 slice s1 web web-a:rs web-b:rs web-c:rs
    +1 tick
    +10 node n1 false since=+10 reason=KubeletNotReady shutting-down
    +11 tick
    ";

/// The kubelet is silent: nothing more follows.
const SILENT: &str = "
    +60 node n1 unknown since=+60 reason=NodeStatusUnknown
    +61 tick
    ";

/// The sentences of the shutdown.
fn sentences(script: &str) -> Vec<Option<String>> {
    let mut observer = Observer::new(LIMITS);
    let mut all = Vec::new();
    for (at, input) in super::script::parse(script) {
        all.extend(observer.handle(at, input).into_iter().filter_map(|output| match output {
            Output::ShuttingDown(down) => Some(down.sentence),
            _ => None,
        }));
    }
    all
}

fn sentence(rest: &str) -> String {
    let found = sentences(&format!("{NODE}{rest}{SILENT}"));
    let [found] = &found[..] else { panic!("{found:?}") };
    found.clone().unwrap_or_else(|| "none".to_owned())
}

#[test]
fn an_endpoint_that_is_ready_after_the_stop_signal() {
    let script = "
        +11.1 agent n1 answers shutdown=1
        +12.1 agent n1 answers shutdown=1 stopped=web-a:+11.9 stopped=web-b:+12
        +16 slice s1 web web-a:s web-b:rs web-c:rs
        +17 agent n1 answers shutdown=1 stopped=web-a:+11.9:12 stopped=web-b:+12:0
        +18 pod web-a ReplicaSet/web node=n1 terminated failed
        +18 pod web-b ReplicaSet/web node=n1 terminated failed
        +18.2 slice s1 web web-c:rs
        +22 tick
        ";
    expect![[r#""#]].assert_eq(&sentence(script));
}

/// The node controller has marked the pods before the kubelet stops them.
#[test]
fn an_endpoint_that_left_before_the_stop_signal() {
    let script = "
        +11 slice s1 web web-a:s web-b:s web-c:rs
        +12.1 agent n1 answers shutdown=1 stopped=web-a:+11.9:0 stopped=web-b:+12:0
        +18 pod web-a ReplicaSet/web node=n1 terminated failed
        +18 pod web-b ReplicaSet/web node=n1 terminated failed
        +18.2 slice s1 web web-c:rs
        +22 tick
        ";
    expect![[r#""#]].assert_eq(&sentence(script));
}

/// The machine is off, and the endpoints are there as before.
#[test]
fn an_endpoint_that_is_ready_to_the_end() {
    let script = "+12.1 agent n1 answers shutdown=1 stopped=web-a:+11.9";
    expect![[r#""#]].assert_eq(&sentence(script));
}

/// Without an agent's answer the stop signals are not known: nothing is said.
#[test]
fn without_stop_signals_nothing_is_said() {
    let script = "
        +11.1 agent n1 answers shutdown=1
        +18 slice s1 web web-c:rs
        ";
    expect![[r#""#]].assert_eq(&sentence(script));
}

/// A watch that was away shows the change late: the least is said.
#[test]
fn a_gap_counts_for_the_endpoint() {
    let script = "
        +12.1 agent n1 answers shutdown=1 stopped=web-a:+11.9
        +12.5 broken endpointslices since=+12.4
        +20 slice s1 web web-b:rs web-c:rs
        +20.5 tick
        ";
    expect![[r#""#]].assert_eq(&sentence(script));
}

/// Another shutdown of the same boot, after a cancelled one.
#[test]
fn a_later_shutdown_is_another() {
    let script = "
        +12.1 agent n1 answers shutdown=1 stopped=web-a:+11.9:3
        +13.1 agent n1 answers shutdown=2 stopped=web-b:+12.9:5
        ";
    expect![[r#""#]].assert_eq(&sentence(script));
}

#[test]
fn the_agent_is_asked_each_second_while_its_node_shuts_down() {
    let answers: String = (11..20)
        .map(|at| format!("+{at}.1 agent n1 answers shutdown=1\n+{at}.9 tick\n"))
        .collect();
    let mut text = String::new();
    let mut observer = Observer::new(LIMITS);
    play_from(Boot(0), &mut observer, &format!("{NODE}{answers}"), &mut text);
    let asked: Vec<&str> = text.lines().filter(|line| line.contains("ask agent")).collect();
    assert!(asked.len() >= 8, "{text}");
}
