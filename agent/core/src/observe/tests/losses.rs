//! Lost nodes: what is said, what is not said, and when.

use expect_test::expect;

use super::nodes::{FENCED, LOST, state};
use super::play;

/// A tick each `step` seconds.
fn ticks(seconds: std::ops::Range<u32>, step: usize) -> String {
    seconds.step_by(step).map(|at| format!("+{at} tick\n")).collect()
}

/// Outputs that begin with one of these words, without their sentences.
fn headlines(script: &str, words: &[&str]) -> String {
    let text = play(script);
    let about = |line: &&str| {
        let what = line.split_once(' ').map_or("", |(_, what)| what);
        line.starts_with(['+', '-']) && words.iter().any(|word| what.starts_with(word))
    };
    text.lines().filter(about).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_grace_period_that_nobody_counts_delays_no_alarm() {
    // Operators of databases set half an hour.
    let script = LOST.replace("grace=5", "grace=1800");
    expect![[r#"
        +25.0 node.not_ready of n1 lost at +10: +10.0 → +25.0
        +40.0 alarm about the node of n1
        +40.0 alarm about db-0 of n1
    "#]]
    .assert_eq(&headlines(&script, &["alarm", "pod", "node"]));
    let script = [&script, FENCED].concat();
    expect![[r#"
        +25.0 node.not_ready of n1 lost at +10: +10.0 → +25.0
        +110.0 pod db-0 lost: +10.0 → +110.0, requested +30.0
        +110.0 node n1 lost at +10: +10.0 → +110.0 by pods-gone, agent silent, stuck 1, gone 1; pods db-0
    "#]]
    .assert_eq(&headlines(&script, &["pod", "node"]));
    expect![[r#"
        n1 not ready lost: stuck 1, taint false, volumes 0
        node 1 finalizer 0 volume 0 runtime 0
    "#]]
    .assert_eq(&state(&LOST.replace("grace=5", "grace=1800"), 95));
}

#[test]
fn a_grace_period_that_the_kubelet_may_count_is_waited_for() {
    let script = LOST
        .replace("grace=5", "grace=300")
        .replace("+18 agent n1 silent", "+18 agent n1 answers");
    let text = headlines(&[&script, ticks(50..400, 10).as_str()].concat(), &["alarm"]);
    expect![[r#"
        +340.0 alarm about the node of n1
        +340.0 alarm about db-0 of n1
    "#]]
    .assert_eq(&text);
}
