//! What holds for any timeline of the node.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::correlate::{Correlator, Limits};
use crate::event::{Event, Kind};
use crate::fixtures::script::{self, ZERO};
use crate::input::{CgroupMode, Input, Observation};
use crate::node::*;
use crate::report::Report;
use crate::time::{Boot, Wall, WallOffset};

/// Shutdowns of every sort with their verdict.
pub fn shutdowns() -> Vec<String> {
    vec![
        node(&format!("{ORDERLY}\n+16 node agent-ends\n+20 end")),
        node("+1 node job poweroff.target\n+1.1 node state stopping\n+4 reboot back=+40\n+5 node kubelet-state"),
        node("+1 node prepare true by=:1.42\n+100 tick"),
        node("+1 node prepare true\n+5 node prepare false\n+100 tick"),
        node("+2 tick\n+60 reboot back=+45\n+62 node kubelet-state"),
        node("-80 node locks\n+1 node prepare true\n+2 node job reboot.target\n+4 reboot back=+40\n+5 node kubelet-state"),
        node(
            "-80 node limit 30\n+1 node prepare true\n+1.1 TERM runc -> main handler\n+31 node job reboot.target\n+35 reboot back=+60\n+36 node kubelet-state start=+1",
        ),
        node("+1 node scheduled reboot +61\n+41 node scheduled none\n+100 tick"),
        node("+1 node locks dpkg:block:4711\n+2 node scheduled reboot +31\n+60 tick"),
        // A container exits before.
        node(&format!(
            "proc again in=web:app:2 pid=200 ns=1 start=-49 parent=shim comm=app\n-50 exit main 1\n-49.9 rmdir web:app\n-49 mkdir web:app:2\n\
             -49 exec again\n-48 pod web app.last=web:app:1:Error app.restarts=1 app.id=web:app:2 app=running\n{}\n+16 node agent-ends\n+20 end",
            ORDERLY
                .replace("main", "again")
                .replace("rmdir web:app", "rmdir web:app:2")
                .replace("Terminated app=", "Terminated app.id=web:app:2 app=")
        )),
    ]
}

type History = Vec<(Boot, Input)>;

fn reports(history: &History, change: impl Fn(&mut History)) -> Vec<&'static str> {
    let mut inputs = history.clone();
    change(&mut inputs);
    let mut core = Correlator::new(Limits::default());
    let mut verdicts = Vec::new();
    let mut now = Boot(0);
    for (at, input) in inputs {
        now = now.max(at);
        for report in core.handle(now, input).reports {
            if let Report::NodeShutdown(of) = report {
                verdicts.push(of.verdict.headline);
            }
        }
    }
    for step in 1..=20 {
        for report in core.handle(now.plus(Duration::from_secs(10 * step)), Input::Tick).reports {
            if let Report::NodeShutdown(of) = report {
                verdicts.push(of.verdict.headline);
            }
        }
    }
    verdicts
}

/// What was seen proves it, whatever was lost.
const PROVEN: [&str; 3] = ["spoofed", "cancelled", "blocked"];

#[test]
fn a_lost_message_makes_a_verdict_unknown_or_leaves_it() {
    for script in shutdowns().into_iter().chain(swept::scripts()) {
        let history = script::parse(&script).inputs;
        let before = reports(&history, |_| {});
        assert!(!before.is_empty(), "{script}");
        let count = history.len();
        for place in 0..count {
            // After a loss the role sends its states again, before it reports the loss: of the locks, none is lost.
            let is_state = matches!(history[place].1, Input::Node(NodeEvent::Inhibitors { .. }));
            if is_state || !matches!(history[place].1, Input::Kernel { .. } | Input::Node(_)) {
                continue;
            }
            let after = reports(&history, |inputs| {
                let at = inputs[place].0;
                // Not on the other side of a boot.
                let lost = NodeEvent::Lost {
                    reason: "queue".into(),
                    count: 1,
                };
                if matches!(inputs[place].1, Input::Node(_)) {
                    inputs[place].1 = Input::Node(lost);
                } else {
                    inputs.insert(place, (at, Input::Node(lost)));
                }
            });
            for verdict in &after {
                assert!(
                    *verdict == "unknown" || before.contains(verdict) || PROVEN.contains(verdict),
                    "{before:?} → {after:?} with a message lost at {place}: {script}"
                );
                // Nothing gets cleaner.
                assert!(
                    *verdict != "graceful" || before.contains(&"graceful"),
                    "{before:?} → {after:?} at {place}: {script}"
                );
            }
        }
    }
}

#[test]
fn lost_records_do_not_make_a_verdict_cleaner_or_blame_the_shutdown() {
    for script in shutdowns().into_iter().chain(swept::scripts()) {
        let history = script::parse(&script).inputs;
        let before = reports(&history, |_| {});
        for place in 0..history.len() {
            if !matches!(history[place].1, Input::Kernel { .. }) {
                continue;
            }
            // The record itself, and the exit of another process.
            for kind in [kind(&history[place].1), Some(Kind::ProcessExit)].into_iter().flatten() {
                let after = reports(&history, |inputs| {
                    inputs[place].1 = Input::lost_by_machine(kind, inputs[place].0, 1)
                });
                for verdict in &after {
                    assert!(
                        *verdict == "unknown" || before.contains(verdict),
                        "{before:?} → {after:?} with a record of {kind:?} lost at {place}: {script}"
                    );
                }
            }
        }
    }
}

fn kind(input: &Input) -> Option<Kind> {
    let Input::Kernel { event, .. } = input else { return None };
    Some(match event {
        Event::SignalGenerate(_) => Kind::SignalGenerate,
        Event::ProcessExit(_) => Kind::ProcessExit,
        Event::ProcessExec(_) => Kind::ProcessExec,
        Event::CgroupMkdir(_) => Kind::CgroupMkdir,
        Event::CgroupRmdir(_) => Kind::CgroupRmdir,
        _ => return None,
    })
}

#[test]
fn messages_of_one_moment_in_any_order() {
    for script in shutdowns().into_iter().chain(swept::scripts()) {
        let history = script::parse(&script).inputs;
        let before = reports(&history, |_| {});
        let count = history.len();
        for place in 1..count {
            let both = matches!((&history[place - 1].1, &history[place].1), (Input::Node(_), Input::Node(_)));
            if !both || history[place].0.since(history[place - 1].0) > Duration::from_millis(300) {
                continue;
            }
            let after = reports(&history, |inputs| {
                let (first, second) = inputs.split_at_mut(place);
                std::mem::swap(&mut first[place - 1].1, &mut second[0].1);
            });
            assert_eq!(before, after, "at {place}: {script}");
        }
    }
}

fn arbitrary(bytes: [u8; 4], now: Boot) -> Input {
    let [kind, a, b, c] = bytes;
    let text = "x".repeat(usize::from(b) * 4);
    let event = match kind % 14 {
        0 => NodeEvent::Bus {
            state: match a % 3 {
                0 => BusState::Off,
                1 => BusState::Unavailable { reason: text },
                _ => BusState::Connected {
                    systemd: None,
                    preparing: b % 4 == 0,
                },
            },
        },
        1..=3 => NodeEvent::Prepare {
            start: a % 3 != 0,
            kind: None,
            sender: match b % 2 {
                0 => SignalSender::Logind,
                _ => SignalSender::Other {
                    name: text,
                    pid: None,
                    uid: None,
                    comm: None,
                    unit: None,
                },
            },
        },
        4 => NodeEvent::Scheduled {
            shutdown: (a % 3 != 0).then(|| ScheduledShutdown {
                kind: text,
                at: Wall(now.0 + u64::from(c) * 1_000_000_000),
            }),
        },
        5 | 6 => NodeEvent::Inhibitors {
            locks: (0..usize::from(a))
                .map(|i| Inhibitor {
                    what: "shutdown".into(),
                    who: format!("{i}{}", if b % 2 == 0 { "kubelet" } else { "x" }),
                    why: "y".repeat(usize::from(c) * 2),
                    mode: if i % 2 == 0 { InhibitMode::Delay } else { InhibitMode::Block },
                    uid: 0,
                    pid: crate::ids::Pid(u32::from(c)),
                })
                .collect(),
        },
        7 => NodeEvent::DelayLimit {
            limit: Duration::from_secs(u64::from(a)),
        },
        8 => NodeEvent::Job {
            unit: text,
            removed: a % 2 == 0,
        },
        9 => NodeEvent::SystemState {
            state: if a % 2 == 0 { "stopping" } else { "running" }.into(),
        },
        10 => NodeEvent::KubeletState {
            state: Ok(KubeletState {
                started: Some(Wall(now.0)),
                ended: None,
            }),
        },
        11 => NodeEvent::AgentEnds { pod: None },
        12 => {
            return Input::Start(Observation {
                boot_id: format!("boot{}", a % 3),
                host: "host".into(),
                kernel: String::new(),
                wall_offset: WallOffset(0),
                since: now,
                cgroups: CgroupMode::V2,
                nodes_in_containers: false,
                ticks_per_second: None,
                observes_followed: true,
            });
        }
        _ => NodeEvent::Lost { reason: text, count: 1 },
    };
    Input::Node(event)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_messages_keep_memory_bounded(inputs in proptest::collection::vec(any::<[u8; 4]>(), 1..300)) {
        let mut core = Correlator::new(Limits::default());
        let mut now = ZERO;
        for bytes in inputs {
            now = now.plus(Duration::from_millis(u64::from(bytes[3]) * 100));
            core.handle(now, arbitrary(bytes, now));
            core.handle(now, Input::Tick);
            prop_assert!(core.memory() < 4 << 20, "{}", core.memory());
        }
        core.handle(now, Input::End);
    }
}
