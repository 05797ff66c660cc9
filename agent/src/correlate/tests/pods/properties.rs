//! What holds for any timeline of pods.

use std::time::Duration;

use proptest::prelude::*;

use super::super::script::{self, ZERO};
use super::{feed, run, tick, web};
use crate::correlate::{Correlator, Limits};
use crate::event::{Boot, Input};
use crate::termination::{DropReason, Output};

/// Ends of every sort, each with what the API said.
fn ends() -> Vec<String> {
    [
        "+1.05 pod web deleted=+1:30\n+1.3 TERM runc -> main handler\n+1.31 enter main TERM\n+1.5 exit main 0\n+1.51 rmdir web:app
        +1.7 KILL runc -> pause\n+1.71 exit pause KILL\n+1.72 rmdir web:pause\n+2 pod web app=0:Completed\n+3 gone web",
        "+1.05 pod web deleted=+1:8\n+1.4 TERM runc -> main ignored default\n+9.4 KILL runc -> main\n+9.41 exit main KILL\n+11 gone web",
        "+1.1 gone web\n+2 TERM runc -> main ignored default\n+4.2 KILL runc -> main\n+4.21 exit main KILL\n+4.4 KILL runc -> pause
        +4.41 exit pause KILL",
        "+1 hint web app Killing Container app failed liveness probe, will be restarted\n+1.1 TERM runc -> main handler
        +1.2 enter main TERM\n+1.4 exit main 0\n+2 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running",
        "+1 SEGV main -> main fault\n+1.001 exit main SEGV core\n+2.5 pod web app=waiting app.last=web:app:139:Error app.restarts=1",
        "pod web app app.prestop=exec:/bin/hook\n-58 pod web app=running
        proc hook in=web:app pid=130 ns=7 start=+1.1 parent=shim comm=hook\n+1.05 pod web deleted=+1:30\n+1.12 exec hook
        +3 exit hook 7\n+3.05 TERM runc -> main handler\n+3.06 enter main TERM\n+3.1 exit main 0\n+6 gone web",
        "pod web app log:sidecar\n-59.5 mkdir web:log\nproc log in=web:log pid=110 ns=1 start=-59.5 parent=shim comm=log
        -59.5 exec log\n-58 pod web app=running log=running\n+1.05 pod web deleted=+1:30\n+1.2 TERM runc -> main handler
        +1.21 enter main TERM\n+1.3 exit main 0\n+1.31 TERM runc -> log handler\n+1.32 enter log TERM\n+1.35 exit log 0\n+3 gone web",
    ]
    .iter()
    .map(|rest| web(rest))
    .collect()
}

fn told(outputs: Vec<(Boot, Output)>) -> Vec<Output> {
    let is_end = |output: &Output| matches!(output, Output::Terminated(_) | Output::PodTerminated(_));
    outputs.into_iter().map(|(_, output)| output).filter(is_end).collect()
}

/// Kernel records late by up to the reorder window each. The API's order is its own.
fn run_late(script: &str, delays: &[u64]) -> Vec<(Boot, Output)> {
    let window = Limits::default().reorder.as_nanos() as u64;
    let delayed = |(i, (at, input)): (usize, (Boot, Input))| {
        let late = match &input {
            Input::Kernel { .. } => delays[i % delays.len()] % window,
            _ => 0,
        };
        (Boot(at.0 + late), input)
    };
    let mut inputs: Vec<_> = script::parse(script).inputs.into_iter().enumerate().map(delayed).collect();
    inputs.sort_by_key(|(arrival, _)| *arrival);
    let mut correlator = Correlator::new(Limits::default());
    let (mut out, mut now) = (Vec::new(), Boot(0));
    for (arrival, input) in inputs {
        if now > Boot(0) {
            tick(&mut correlator, &mut now, arrival, &mut out);
        }
        now = now.max(arrival);
        feed(&mut correlator, now, input, &mut out);
    }
    let last = now.plus(Duration::from_secs(180));
    tick(&mut correlator, &mut now, last, &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_order_within_the_window_gives_the_same_ends(
        which in 0..7_usize,
        delays in prop::collection::vec(any::<u64>(), 60),
    ) {
        let script = &ends()[which];
        let expected = told(run(script));
        prop_assert!(!expected.is_empty());
        prop_assert_eq!(expected, told(run_late(script, &delays)));
    }
}

/// A recording holds a tick only where the core had something to say.
#[test]
fn a_replay_says_the_same() {
    for script in ends() {
        let mut correlator = Correlator::new(Limits::default());
        let (mut recorded, mut lived, mut now) = (Vec::new(), Vec::new(), Boot(0));
        let mut live = |now: Boot, input: Input| {
            let outputs = correlator.handle(now, input.clone());
            if input != Input::Tick || !outputs.is_empty() {
                recorded.push((now, input));
            }
            lived.extend(outputs);
        };
        let mut inputs = script::parse(&script).inputs;
        inputs.push((ZERO.plus(Duration::from_secs(120)), Input::End));
        for (at, input) in inputs {
            while now > Boot(0) && now.plus(Duration::from_millis(200)) < at {
                now = now.plus(Duration::from_millis(200));
                live(now, Input::Tick);
            }
            now = now.max(at);
            live(now, input);
        }
        let mut correlator = Correlator::new(Limits::default());
        let replayed: Vec<Output> = recorded
            .into_iter()
            .flat_map(|(now, input)| correlator.handle(now, input))
            .collect();
        assert_eq!(lived, replayed);
    }
}

/// Many pods, one second: `number` of them, each with a sandbox and a container that ends well.
fn rollout(number: u32) -> String {
    let mut script = String::from("-60 api synced\n");
    for i in 0..number {
        let (pause, main) = (1_000 + 2 * i, 1_001 + 2 * i);
        script.push_str(&format!(
            "pod p{i} app\n-59 mkdir p{i}:pause\nproc pause{i} in=p{i}:pause pid={pause} ns=1 start=-59 parent=shim comm=pause
            -59 exec pause{i}\n-58 mkdir p{i}:app\nproc main{i} in=p{i}:app pid={main} ns=1 start=-58 parent=shim comm=app
            -58 exec main{i}\n-57 pod p{i} app=running\n"
        ));
    }
    for line in [
        "+1.05 pod p# deleted=+1:30",
        "+1.3 TERM runc -> main# handler",
        "+1.31 enter main# TERM",
        "+1.5 exit main# 0",
        "+1.51 rmdir p#:app",
        "+1.7 KILL runc -> pause#",
        "+1.71 exit pause# KILL",
        "+1.72 rmdir p#:pause",
        "+3 gone p#",
    ] {
        for i in 0..number {
            script.push_str(&line.replace('#', &i.to_string()));
            script.push('\n');
        }
    }
    script
}

#[test]
fn all_pods_of_a_node_deleted_in_the_same_second_are_told_each_and_once() {
    let outputs = told(run(&rollout(110)));
    assert_eq!(outputs.len(), 110);
    let mut names = std::collections::BTreeSet::new();
    for output in outputs {
        let Output::PodTerminated(pod) = output else {
            panic!("a container by itself")
        };
        assert_eq!(pod.verdict.headline, "clean");
        assert_eq!(pod.containers.len(), 1);
        names.insert(pod.pod.name.clone());
    }
    assert_eq!(names.len(), 110);
}

#[test]
fn ten_thousand_pods_are_kept_within_the_bounds() {
    let limits = Limits {
        pods: 64,
        held: 32,
        ..Limits::default()
    };
    let mut correlator = Correlator::new(limits);
    let mut now = Boot(0);
    for (at, input) in script::parse(&rollout(10_000)).inputs {
        now = now.max(at);
        correlator.handle(now, input);
        let (pods, held) = correlator.pods.sizes();
        assert!(pods <= limits.pods && held <= limits.held, "{pods} pods, {held} held");
    }
    let is_cap = |output: &Output| {
        matches!(
            output,
            Output::Dropped {
                reason: DropReason::PodCap,
                ..
            }
        )
    };
    let dropped = correlator.handle(now, Input::Tick).iter().any(is_cap);
    assert!(dropped, "more pods than are kept, and none was counted");
    // Names, containers, ends, hints and ids told of each pod, and the lists that point to them.
    let kept = correlator.pods.kept();
    assert!(kept <= limits.pods * (64 * 5 + 5), "{kept} kept");
}
