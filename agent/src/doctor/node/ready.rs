//! Readiness for a shutdown as the agent knows it: from the inputs about the node, for the metric. Pure.
//!
//! Without the kubelet's configuration the bus still shows whether the kubelet holds its lock: it takes none without grace periods, and
//! none where logind would not wait long enough. A node about which nothing is known is not "not ready": it is unknown.

use std::time::Duration;

use epitaph_core::node::{BusState, KubeletShutdown, NodeEvent, SignalSender};

use super::kubelet::protects;

/// What must hold for a shutdown to wait for the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadyCheck {
    /// The kubelet's configuration protects pods at all.
    Periods,
    /// logind waits as long as the kubelet needs.
    Delay,
    /// The kubelet holds its lock.
    Lock,
}

impl ReadyCheck {
    pub const ALL: [ReadyCheck; 3] = [ReadyCheck::Periods, ReadyCheck::Delay, ReadyCheck::Lock];

    /// Value of the label `check`.
    pub const fn name(self) -> &'static str {
        match self {
            ReadyCheck::Periods => "periods",
            ReadyCheck::Delay => "delay",
            ReadyCheck::Lock => "lock",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyState {
    Yes,
    No,
    Unknown,
}

impl ReadyState {
    pub const ALL: [ReadyState; 3] = [ReadyState::Yes, ReadyState::No, ReadyState::Unknown];

    /// Value of the label `state`.
    pub const fn name(self) -> &'static str {
        match self {
            ReadyState::Yes => "ready",
            ReadyState::No => "not_ready",
            ReadyState::Unknown => "unknown",
        }
    }

    fn of(known: Option<bool>) -> ReadyState {
        match known {
            Some(true) => ReadyState::Yes,
            Some(false) => ReadyState::No,
            None => ReadyState::Unknown,
        }
    }
}

/// The latest of each state.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    /// The machine is a node of Kubernetes: it has a kubelet, whose lock can be missing.
    is_node: bool,
    kubelet: Option<Result<KubeletShutdown, String>>,
    limit: Option<Duration>,
    is_locked: Option<bool>,
    is_shutting_down: bool,
}

impl Readiness {
    pub fn new(is_node: bool) -> Readiness {
        Readiness {
            is_node,
            ..Readiness::default()
        }
    }

    /// True if the event can change the states.
    pub fn take(&mut self, event: &NodeEvent) -> bool {
        match event {
            NodeEvent::Kubelet { config } => self.kubelet = Some(config.clone()),
            NodeEvent::DelayLimit { limit } => self.limit = Some(*limit),
            NodeEvent::Inhibitors { locks } => {
                self.is_locked = Some(locks.iter().any(|lock| lock.is_kubelets()));
            }
            NodeEvent::Bus { state } => {
                // Read again after a connection.
                self.limit = None;
                self.is_locked = None;
                self.is_shutting_down = matches!(state, BusState::Connected { preparing: true, .. });
            }
            // The kubelet releases its lock when its pods have ended. At a forged signal too, and then the lock is missing: the machine
            // stays up.
            NodeEvent::Prepare {
                start,
                sender: SignalSender::Logind,
                ..
            } => self.is_shutting_down = *start,
            _ => return false,
        }
        true
    }

    /// Unknown on a node where neither the bus nor the kubelet has answered, from the agent's start on: without a series the node would look
    /// ready. None on another machine without a kubelet's configuration. A file that the agent cannot read is no proof of anything.
    pub fn states(&self) -> Option<[(ReadyCheck, ReadyState); 3]> {
        if self.kubelet.is_none() && !self.is_node {
            return None;
        }
        let kubelet = self.kubelet.as_ref().and_then(|config| config.as_ref().ok());
        let need = kubelet.map(KubeletShutdown::needed);
        let state = |check: ReadyCheck| match check {
            ReadyCheck::Periods => kubelet.map(protects),
            ReadyCheck::Delay => need.zip(self.limit).map(|(need, limit)| limit >= need),
            ReadyCheck::Lock => match (need, self.is_shutting_down) {
                (Some(need), false) if !need.is_zero() => self.is_locked,
                (None, false) if self.is_node => self.is_locked,
                // Without periods the kubelet takes none, which `periods` reports.
                _ => None,
            },
        };
        Some(ReadyCheck::ALL.map(|check| (check, ReadyState::of(state(check)))))
    }
}

#[cfg(test)]
mod tests {
    use epitaph_core::ids::Pid;
    use epitaph_core::node::{InhibitMode, Inhibitor};

    use super::*;

    fn shown(events: &[NodeEvent]) -> String {
        shown_by(Readiness::default(), events)
    }

    fn shown_by(mut readiness: Readiness, events: &[NodeEvent]) -> String {
        for event in events {
            readiness.take(event);
        }
        let Some(states) = readiness.states() else {
            return "nothing".to_owned();
        };
        states
            .map(|(check, state)| format!("{} {}", check.name(), state.name()))
            .join(", ")
    }

    fn kubelet(total: u64) -> NodeEvent {
        periods(total, total / 2)
    }

    fn periods(total: u64, critical: u64) -> NodeEvent {
        NodeEvent::Kubelet {
            config: Ok(KubeletShutdown {
                total: Duration::from_secs(total),
                critical: Duration::from_secs(critical),
                ..KubeletShutdown::default()
            }),
        }
    }

    fn limit(secs: u64) -> NodeEvent {
        NodeEvent::DelayLimit {
            limit: Duration::from_secs(secs),
        }
    }

    fn locks(who: &[&str]) -> NodeEvent {
        let lock = |who: &&str| Inhibitor {
            what: "shutdown".to_owned(),
            who: (*who).to_owned(),
            why: String::new(),
            mode: InhibitMode::Delay,
            uid: 0,
            pid: Pid(7),
        };
        NodeEvent::Inhibitors {
            locks: who.iter().map(lock).collect(),
        }
    }

    fn prepare(start: bool) -> NodeEvent {
        NodeEvent::Prepare {
            start,
            kind: None,
            sender: SignalSender::Logind,
        }
    }

    fn forged(start: bool) -> NodeEvent {
        NodeEvent::Prepare {
            start,
            kind: None,
            sender: SignalSender::Other {
                name: ":1.9".to_owned(),
                pid: None,
                uid: None,
                comm: None,
                unit: None,
            },
        }
    }

    #[test]
    fn without_the_kubelets_files_nothing_is_said() {
        assert_eq!(shown(&[]), "nothing");
        assert_eq!(shown(&[limit(5), locks(&[])]), "nothing");
    }

    /// The kubelet takes its lock only with periods, and only if logind waits for them.
    #[test]
    fn the_bus_of_a_node_shows_the_lock_without_any_file() {
        let of_node = |events: &[NodeEvent]| shown_by(Readiness::new(true), events);
        let held = "periods unknown, delay unknown, lock ready";
        assert_eq!(of_node(&[limit(60), locks(&["kubelet"])]), held);
        let missing = "periods unknown, delay unknown, lock not_ready";
        assert_eq!(of_node(&[limit(5), locks(&["app"])]), missing);
        let unknown = "periods unknown, delay unknown, lock unknown";
        assert_eq!(of_node(&[locks(&["kubelet"]), prepare(true), locks(&[])]), unknown);
        let away = NodeEvent::Bus {
            state: BusState::Unavailable {
                reason: "gone".to_owned(),
            },
        };
        // Nothing has answered, or one of both is not to be had.
        for events in [vec![], vec![limit(5)], vec![away.clone()], vec![locks(&["kubelet"]), away]] {
            assert_eq!(of_node(&events), unknown);
        }
        // What the kubelet answers later counts.
        assert_eq!(
            of_node(&[locks(&[]), limit(5), kubelet(0)]),
            "periods not_ready, delay ready, lock unknown"
        );
    }

    #[test]
    fn each_check_has_its_state() {
        let all = "periods ready, delay ready, lock ready";
        assert_eq!(shown(&[kubelet(60), limit(60), locks(&["app", "kubelet"])]), all);
        let short = "periods ready, delay not_ready, lock not_ready";
        assert_eq!(shown(&[kubelet(60), limit(30), locks(&["app"])]), short);
        let zero = "periods not_ready, delay ready, lock unknown";
        assert_eq!(shown(&[kubelet(0), limit(5), locks(&[])]), zero);
    }

    /// As the doctor judges them. The kubelet takes its lock all the same.
    #[test]
    fn periods_that_leave_nothing_for_other_pods_are_not_ready() {
        let ready = "periods ready, delay ready, lock ready";
        let not_ready = "periods not_ready, delay ready, lock ready";
        for (critical, expected) in [(0, ready), (59, ready), (60, not_ready)] {
            assert_eq!(shown(&[periods(60, critical), limit(60), locks(&["kubelet"])]), expected);
        }
    }

    #[test]
    fn what_is_not_known_is_unknown() {
        assert_eq!(shown(&[kubelet(60)]), "periods ready, delay unknown, lock unknown");
        let unreadable = NodeEvent::Kubelet {
            config: Err("gone".to_owned()),
        };
        let unknown = "periods unknown, delay unknown, lock unknown";
        assert_eq!(shown(&[kubelet(60), limit(60), locks(&["kubelet"]), unreadable]), unknown);
        let away = NodeEvent::Bus {
            state: BusState::Unavailable {
                reason: "gone".to_owned(),
            },
        };
        let expected = "periods ready, delay unknown, lock unknown";
        assert_eq!(shown(&[kubelet(60), limit(60), locks(&["kubelet"]), away]), expected);
    }

    #[test]
    fn a_lock_that_is_released_in_a_shutdown_is_not_missing() {
        let before = [kubelet(60), limit(60), locks(&["kubelet"]), prepare(true), locks(&[])];
        assert!(shown(&before).ends_with("lock unknown"));
        let cancelled = [before.as_slice(), &[prepare(false), locks(&["kubelet"])]].concat();
        assert!(shown(&cancelled).ends_with("lock ready"));
    }

    #[test]
    fn a_forged_signal_is_no_shutdown_and_no_end_of_one() {
        let ready = [kubelet(60), limit(60), locks(&["kubelet"])];
        // The kubelet believes it, ends the pods and lets go of its lock.
        let fooled = [ready.as_slice(), &[forged(true), locks(&[])]].concat();
        assert!(shown(&fooled).ends_with("lock not_ready"));
        let really = [ready.as_slice(), &[prepare(true), forged(false), locks(&[])]].concat();
        assert!(shown(&really).ends_with("lock unknown"));
        assert!(!Readiness::default().take(&forged(true)));
    }
}
