//! Bounds of what logind, systemd, their users and the role write. The role applies them to the bus, the agent to the role.

use std::time::Duration;

use epitaph_core::node::{BusState, Inhibitor, NodeEvent, OwnLock, ScheduledShutdown, SignalSender};

use super::drops::LogindDropReason;
use crate::source::bounded;

/// Locks of one list. logind itself allows 8192 (`InhibitorsMax=`).
pub(super) const LOCKS: usize = 256;

/// systemd's targets that end the machine. Their services and all other units are not reported.
pub(super) const TARGETS: [&str; 6] = [
    "shutdown.target",
    "poweroff.target",
    "reboot.target",
    "halt.target",
    "kexec.target",
    "soft-reboot.target",
];

/// A unique name of the bus: `:1.4294967295` and less.
const NAME: usize = 64;
const WORD: usize = 64;
/// The `why` of a lock; names of units have 255 bytes at most.
const TEXT: usize = 256;
const REASON: usize = 512;
/// Of a cgroup below the root of the hierarchy.
const PATH: usize = 1024;
/// A delay that nobody waits for; logind's own type allows more than any clock.
const DELAY: Duration = Duration::from_secs(365 * 24 * 3_600);

/// The event with its texts bounded; None: the role has nothing to say of that.
pub(super) fn event(event: NodeEvent) -> Option<NodeEvent> {
    Some(match event {
        NodeEvent::Bus { state } => NodeEvent::Bus {
            state: match state {
                BusState::Unavailable { reason } => BusState::Unavailable {
                    reason: bounded(&reason, REASON),
                },
                state @ BusState::Connected { .. } => state,
                // That is the agent's to say.
                BusState::Off => return None,
            },
        },
        NodeEvent::Prepare { start, kind, sender } => NodeEvent::Prepare {
            start,
            kind,
            sender: self::sender(sender),
        },
        NodeEvent::Scheduled { shutdown } => NodeEvent::Scheduled {
            shutdown: shutdown.map(|shutdown| ScheduledShutdown {
                kind: bounded(&shutdown.kind, WORD),
                at: shutdown.at,
            }),
        },
        NodeEvent::Inhibitors { mut locks } => {
            locks.truncate(LOCKS);
            NodeEvent::Inhibitors {
                locks: locks.into_iter().map(lock).collect(),
            }
        }
        NodeEvent::DelayLimit { limit } => NodeEvent::DelayLimit { limit: limit.min(DELAY) },
        NodeEvent::OwnLock { state } => NodeEvent::OwnLock {
            state: match state {
                OwnLock::Refused { reason } => OwnLock::Refused {
                    reason: bounded(&reason, REASON),
                },
                state => state,
            },
        },
        NodeEvent::Job { unit, removed } if TARGETS.contains(&unit.as_str()) => NodeEvent::Job { unit, removed },
        NodeEvent::SystemState { state } => NodeEvent::SystemState {
            state: bounded(&state, WORD),
        },
        NodeEvent::OomKilled { cgroup, reason } => NodeEvent::OomKilled {
            cgroup: bounded(&cgroup, PATH),
            reason: bounded(&reason, WORD),
        },
        NodeEvent::Lost { reason, count } => NodeEvent::Lost {
            reason: LogindDropReason::of(&reason)?.name().to_owned(),
            count,
        },
        NodeEvent::Job { .. } | NodeEvent::Kubelet { .. } | NodeEvent::KubeletState { .. } | NodeEvent::AgentEnds { .. } => {
            return None;
        }
    })
}

pub(super) fn lock(lock: Inhibitor) -> Inhibitor {
    Inhibitor {
        what: bounded(&lock.what, WORD),
        who: bounded(&lock.who, WORD),
        why: bounded(&lock.why, TEXT),
        ..lock
    }
}

fn sender(sender: SignalSender) -> SignalSender {
    match sender {
        SignalSender::Logind => SignalSender::Logind,
        SignalSender::Other {
            name,
            pid,
            uid,
            comm,
            unit,
        } => SignalSender::Other {
            name: bounded(&name, NAME),
            pid,
            uid,
            comm: comm.map(|comm| bounded(&comm, WORD)),
            unit: unit.map(|unit| bounded(&unit, TEXT)),
        },
    }
}

#[cfg(test)]
mod tests {
    use epitaph_core::ids::Pid;
    use epitaph_core::node::InhibitMode;

    use super::*;

    #[test]
    fn texts_are_bounded_and_lists_are_cut() {
        let long = Inhibitor {
            what: "w".repeat(9_999),
            who: "\u{1b}[2J".to_owned(),
            why: "y".repeat(9_999),
            mode: InhibitMode::Delay,
            uid: 0,
            pid: Pid(1),
        };
        let Some(NodeEvent::Inhibitors { locks }) = event(NodeEvent::Inhibitors {
            locks: vec![long; 9_999],
        }) else {
            panic!("a list of locks is the role's")
        };
        assert_eq!(locks.len(), LOCKS);
        assert!(locks[0].what.len() <= WORD + 3 && locks[0].why.len() <= TEXT + 3);
        assert_eq!(locks[0].who, "\\u{1b}[2J");
        let all: usize = locks
            .iter()
            .map(|lock| lock.what.len() + lock.who.len() + lock.why.len())
            .sum();
        assert!(all < super::super::wire::MAX_FRAME / 2);
    }

    #[test]
    fn only_targets_that_end_the_machine_and_known_reasons() {
        let job = |unit: &str| NodeEvent::Job {
            unit: unit.to_owned(),
            removed: false,
        };
        assert!(event(job("reboot.target")).is_some() && event(job("ssh.service")).is_none());
        let lost = |reason: &str| NodeEvent::Lost {
            reason: reason.to_owned(),
            count: 1,
        };
        assert!(event(lost("logind_strangers")).is_some() && event(lost("x")).is_none());
    }
}
