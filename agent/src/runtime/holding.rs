//! When the agent lets the role's delay lock go: every other lock is gone, and what terminated is on disk and offered. Pure.

use std::time::Duration;

use epitaph_core::node::{BusState, InhibitMode, NodeEvent, SignalSender};
use epitaph_core::time::Boot;

/// The last termination is judged and written down within this time.
const SETTLE: Duration = Duration::from_secs(2);

/// The collector gets no longer: the traces are in the journal.
const OFFER: Duration = Duration::from_secs(5);

/// `who` of our own lock.
const OWN: &str = "epitaph";

/// The lock of the role in a shutdown.
#[derive(Debug, Default)]
pub struct Holding {
    preparing: bool,
    /// Other delay locks on shutdown are held, as of the last list.
    others: bool,
    /// Since when nobody else delays the shutdown.
    alone: Option<Boot>,
    released: bool,
}

impl Holding {
    pub fn see(&mut self, now: Boot, event: &NodeEvent) {
        match event {
            NodeEvent::Prepare {
                start,
                sender: SignalSender::Logind,
                ..
            } => self.prepare(*start),
            NodeEvent::Bus {
                state: BusState::Connected { preparing, .. },
            } if *preparing != self.preparing => self.prepare(*preparing),
            NodeEvent::Inhibitors { locks } => {
                let delays = |lock: &&_| {
                    let lock: &epitaph_core::node::Inhibitor = lock;
                    lock.is_for_shutdown() && lock.mode == InhibitMode::Delay && lock.who != OWN
                };
                self.others = locks.iter().filter(delays).count() > 0;
            }
            _ => return,
        }
        self.alone = match (self.preparing, self.others) {
            (true, false) => self.alone.or(Some(now)),
            _ => None,
        };
    }

    /// Whether the lock is to be released now. `unsent`: traces that wait for the collector.
    pub fn is_over(&mut self, now: Boot, unsent: usize) -> bool {
        let Some(alone) = self.alone.filter(|_| !self.released) else {
            return false;
        };
        let waited = now.since(alone);
        let is_over = waited >= OFFER || waited >= SETTLE && unsent == 0;
        self.released |= is_over;
        is_over
    }

    fn prepare(&mut self, start: bool) {
        self.preparing = start;
        self.released = false;
        self.alone = None;
    }
}

#[cfg(test)]
mod tests {
    use epitaph_core::ids::Pid;
    use epitaph_core::node::Inhibitor;

    use super::*;

    fn at(millis: u64) -> Boot {
        Boot(millis * 1_000_000)
    }

    fn prepare(start: bool, sender: SignalSender) -> NodeEvent {
        let kind = None;
        NodeEvent::Prepare { start, kind, sender }
    }

    fn held_by(all: &[&str]) -> NodeEvent {
        let lock = |who: &&str| Inhibitor {
            what: "shutdown".to_owned(),
            who: (*who).to_owned(),
            why: String::new(),
            mode: InhibitMode::Delay,
            uid: 0,
            pid: Pid(1),
        };
        NodeEvent::Inhibitors {
            locks: all.iter().map(lock).collect(),
        }
    }

    #[test]
    fn released_once_the_kubelet_is_done_and_the_traces_are_sent() {
        let mut holding = Holding::default();
        holding.see(at(0), &held_by(&["kubelet", "epitaph"]));
        holding.see(at(100), &prepare(true, SignalSender::Logind));
        assert!(!holding.is_over(at(60_000), 0));
        holding.see(at(61_000), &held_by(&["epitaph"]));
        assert!(!holding.is_over(at(62_900), 0));
        assert!(!holding.is_over(at(63_000), 1));
        assert!(holding.is_over(at(63_200), 0));
        assert!(!holding.is_over(at(63_400), 0), "once");
    }

    #[test]
    fn a_collector_that_is_away_does_not_hold_the_shutdown() {
        let mut holding = Holding::default();
        holding.see(at(0), &prepare(true, SignalSender::Logind));
        assert!(!holding.is_over(at(4_900), 7));
        assert!(holding.is_over(at(5_000), 7));
    }

    #[test]
    fn only_logind_begins_a_shutdown_and_a_cancelled_one_begins_again() {
        let mut holding = Holding::default();
        let name = ":1.9".to_owned();
        let stranger = SignalSender::Other {
            name,
            pid: None,
            uid: None,
            comm: None,
            unit: None,
        };
        holding.see(at(0), &prepare(true, stranger));
        assert!(!holding.is_over(at(90_000), 0));
        holding.see(at(91_000), &prepare(true, SignalSender::Logind));
        assert!(holding.is_over(at(94_000), 0));
        holding.see(at(95_000), &prepare(false, SignalSender::Logind));
        holding.see(at(96_000), &prepare(true, SignalSender::Logind));
        assert!(!holding.is_over(at(96_500), 0) && holding.is_over(at(98_000), 0));
    }
}
