//! What holds for any timeline of pods.

use std::time::Duration;

use proptest::prelude::*;

use super::super::properties::any_input;
use super::{run, web};
use crate::correlate::{Correlator, Limits};
use crate::fixtures::cast::Cast;
use crate::fixtures::recorded::Recorded;
use crate::fixtures::script::{self, Played, ZERO, feed, tick};
use crate::ids::{ContainerId, PodUid};
use crate::input::Input;
use crate::pod::*;
use crate::report::DropReason;
use crate::report::{Answers, Report};
use crate::time::{Boot, Wall};

/// Terminations of every sort, each with the API's facts.
pub(in crate::correlate::tests) fn ends() -> Vec<String> {
    [
        "+1.05 pod web deleted=+1:30\n+1.3 TERM runc -> main handler\n+1.31 enter main TERM\n+1.5 exit main 0\n+1.51 rmdir web:app
        +1.7 KILL runc -> pause\n+1.71 exit pause KILL\n+1.72 rmdir web:pause\n+2 pod web app=0:Completed\n+3 gone web",
        "+1.05 pod web deleted=+1:8\n+1.4 TERM runc -> main ignored default\n+9.4 KILL runc -> main\n+9.41 exit main KILL\n+11 gone web",
        "+1.1 gone web\n+2 TERM runc -> main ignored default\n+4.2 KILL runc -> main\n+4.21 exit main KILL\n+4.4 KILL runc -> pause
        +4.41 exit pause KILL",
        "+1 event web app Killing Container app failed liveness probe, will be restarted\n+1.1 TERM runc -> main handler
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

/// Longer ones: an outage of the API in which a kubelet gives up an Event, and a sidecar whose main container had completed.
pub(in crate::correlate::tests) fn long_ends() -> Vec<String> {
    [
        "pod web grace=400 app app.prestop=http\n-58 pod web app=running\n+1.05 pod web deleted=+1:400\n+9 TERM runc -> main handler
        +9.01 enter main TERM\n+9.1 event web app FailedPreStopHook PreStopHook failed\n+350 exit main 0\n+351 pod web app=0:Completed
        +351.1 events web asked\n+351.2 events web known\n+353 gone web",
        "pod web policy=never app log:sidecar log.prestop=exec:/bin/drain\n-59.5 mkdir web:log
        proc log in=web:log pid=110 ns=1 start=-59.5 parent=shim comm=log\nproc drain in=web:log pid=130 ns=7 start=+40.2 parent=shim comm=drain
        -59.5 exec log\n-58 pod web app=running log=running\n+1 exit main 0\n+2 pod web app=0:Completed\n+40.05 pod web deleted=+40:30
        +40.21 exec drain\n+70 exit drain 0\n+70.1 TERM runc -> log handler\n+70.11 enter log TERM\n+72.2 KILL runc -> log\n+72.21 exit log KILL
        +74 pod web app=0:Completed log=137:Error\n+75 gone web",
    ]
    .map(web)
    .to_vec()
}

fn told(outputs: Vec<(Boot, Report)>) -> Vec<Report> {
    let is_end = |output: &Report| matches!(output, Report::Terminated(_) | Report::PodTerminated(_));
    outputs.into_iter().map(|(_, output)| output).filter(is_end).collect()
}

/// Kernel records late by up to the reorder window each. The API's order is its own.
fn run_late(script: &str, delays: &[u64]) -> Vec<(Boot, Report)> {
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
    let mut correlator = Recorded::default();
    let (mut out, mut now) = (Played::default(), Boot(0));
    for (arrival, input) in inputs {
        if now > Boot(0) {
            tick(&mut correlator, &mut now, arrival, &mut out);
        }
        now = now.max(arrival);
        feed(&mut correlator, now, input, &mut out);
    }
    let last = now.plus(Duration::from_secs(180));
    tick(&mut correlator, &mut now, last, &mut out);
    out.reports
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

    #[test]
    fn memory_is_bounded_and_nothing_panics(events in prop::collection::vec(any::<[u8; 12]>(), 0..600)) {
        let limits = Limits {
            pods: 4,
            held: 4,
            ..Limits::default()
        };
        let mut correlator = Correlator::new(limits);
        let mut now = ZERO;
        for bytes in events {
            now = now.plus(Duration::from_millis(u64::from(bytes[0]) * u64::from(bytes[1]) / 16));
            let input = match bytes[2] % 4 {
                0 => any_word(now, &bytes),
                _ => any_input(now, &[0, 0, bytes[3], bytes[4], bytes[5], bytes[6], bytes[7], bytes[8], bytes[9], bytes[10], bytes[11], 0]),
            };
            correlator.handle(now, input);
            let (pods, held) = correlator.pods.sizes();
            prop_assert!(pods <= limits.pods && held <= limits.held, "{pods} pods, {held} held");
        }
        // Names, containers, terminations, events and reported ids of each pod, and the lists that point to them.
        prop_assert!(correlator.pods.kept() <= limits.pods * (64 * 5 + 16 + 5));
        correlator.handle(now, Input::End);
        prop_assert_eq!(correlator.pods.sizes().1, 0);
    }
}

/// Few pods, which name the containers of `any_input` by their ids and by their cgroups.
fn any_word(now: Boot, bytes: &[u8; 12]) -> Input {
    let [_, _, _, verb, a, b, c, d, e, f, g, h] = *bytes;
    let uid = PodUid(format!("uid{}", a % 8).into());
    let id = |n: u8| (!n.is_multiple_of(3)).then(|| ContainerId(format!("{:0>64x}", n % 24).into()));
    let ended = |n: u8| Ended {
        id: id(n),
        exit_code: i32::from(n),
        reason: None,
    };
    match verb % 8 {
        0 => Input::Pods(if a % 2 == 0 {
            PodsState::Synced
        } else {
            PodsState::Away { reason: None }
        }),
        1 => Input::PodGone(PodGone {
            uid,
            seen: now,
            watched: b % 2 == 0,
        }),
        2 => Input::PodEvent(PodEvent {
            uid,
            seen: now,
            at: (b % 2 == 0).then_some(Wall(now.0)),
            container: Some("app".to_owned()),
            reason: "Killing".to_owned(),
            message: "failed liveness probe".to_owned(),
        }),
        4 => Input::PodEvents(PodEventsUpdate {
            uid,
            seen: Boot(now.0.saturating_sub(u64::from(c) << 30)),
            state: match b % 3 {
                0 => PodEventsState::Asked,
                1 => PodEventsState::Known,
                _ => PodEventsState::Unknown { why: String::new() },
            },
        }),
        3 => Input::ApiClock(ApiClock {
            earliest: i64::from(b) * -30_000_000_000_000_000,
            latest: i64::from(c) * 1_000_000_000_000_000,
        }),
        _ => {
            let mut cast = Cast::default();
            cast.declare(&["web", "app", "log:sidecar", "app.prestop=exec:/bin/hook"]);
            let Input::Pod(fact) = cast.version(now, &["web"], |_| unreachable!("no container is named")) else {
                unreachable!("a version is a pod's");
            };
            let mut fact = PodFact::clone(&fact);
            let mut pod = PodIdentity::clone(&fact.pod);
            (pod.cgroup_uid, pod.uid) = (
                uid.clone(),
                if h % 4 == 0 {
                    PodUid(format!("uid{}", h % 8).into())
                } else {
                    uid
                },
            );
            pod.is_static = h > 240;
            fact.pod = std::sync::Arc::new(pod);
            fact.deletion = (b % 3 == 0).then_some(Deletion {
                timestamp: Wall(u64::from(c) << 56),
                grace: Duration::from_secs(u64::from(d)),
            });
            fact.phase = [Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Unknown][usize::from(e % 4)];
            fact.containers[0].id = id(f);
            fact.containers[0].last = (g % 2 == 0).then(|| ended(g));
            fact.containers[0].state = match h % 3 {
                0 => ContainerState::Running,
                1 => ContainerState::Waiting { reason: None },
                _ => ContainerState::Terminated(ended(f)),
            };
            Input::Pod(std::sync::Arc::new(fact))
        }
    }
}

/// A recording has a tick only if the core had a result.
#[test]
fn a_replay_says_the_same() {
    for script in ends() {
        let mut correlator = Correlator::new(Limits::default());
        let (mut recorded, mut lived, mut now) = (Vec::new(), Vec::new(), Boot(0));
        let mut live = |now: Boot, input: Input| {
            let answers = correlator.handle(now, input.clone());
            if input != Input::Tick || !answers.is_empty() {
                recorded.push((now, input));
            }
            lived.push(answers);
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
        let mut replayed: Vec<Answers> = recorded
            .into_iter()
            .map(|(now, input)| correlator.handle(now, input))
            .collect();
        for answers in [&mut lived, &mut replayed] {
            answers.retain(|answers| !answers.is_empty());
        }
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
        let Report::PodTerminated(pod) = output else {
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
    let is_cap = |output: &Report| {
        matches!(
            output,
            Report::Dropped {
                reason: DropReason::PodCap,
                ..
            }
        )
    };
    let dropped = correlator.handle(now, Input::Tick).reports.iter().any(is_cap);
    assert!(dropped, "more pods than are kept, and none was counted");
    // Names, containers, terminations, events and reported ids of each pod, and the lists that point to them.
    let kept = correlator.pods.kept();
    assert!(kept <= limits.pods * (64 * 5 + 5), "{kept} kept");
}
