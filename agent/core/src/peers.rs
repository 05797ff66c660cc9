//! Peers: other agents that observe this machine, known by announcements that the probes record.
//!
//! Each agent sends an announcement at its start, every [`PEER_PERIOD`], and once for each new peer. An agent's own announcement comes
//! back, too, and is known by its nonce. A peer is forgotten at its exit, or [`PEER_FORGOTTEN`] after its last announcement.
//!
//! *Architecture invariant*: no clock, no I/O, bounded memory. An announcement is not proof: any process can forge one. A forged
//! announcement costs at most one line in the log each `PEER_PERIOD` and one answer each [`PEER_ANSWER`], and changes only the count.

use crate::event::{PeerAnnouncement, Task};
use crate::time::Boot;
use crate::tolerances::{PEER_ANSWER, PEER_FORGOTTEN, PEER_PERIOD};

/// Most peers that are known at once.
pub const MOST: usize = 16;

#[derive(Default)]
pub struct Peers {
    nonce: u32,
    /// Our pid in our own pid namespace: the pid in the kernel's records is not known to us.
    ns_pid: u32,
    /// Our own announcement came back: the probes record announcements.
    own_received: bool,
    known: Vec<Peer>,
    /// Our last announcement.
    announced: Option<Boot>,
    /// A new peer may not have received our announcement.
    answer: bool,
    /// The last line in the log.
    logged: Option<Boot>,
}

struct Peer {
    task: Task,
    last_announcement: Boot,
    logged: bool,
}

/// The actions that are due.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Act {
    /// Send the announcement.
    pub announce: bool,
    /// Log these new peers, in one line.
    pub log: Vec<Task>,
}

impl Peers {
    pub fn new(nonce: u32, ns_pid: u32) -> Peers {
        Peers {
            nonce: nonce & epitaph_ebpf::announcement::NONCE,
            ns_pid,
            ..Peers::default()
        }
    }

    pub fn nonce(&self) -> u32 {
        self.nonce
    }

    pub fn receive(&mut self, now: Boot, announcement: &PeerAnnouncement) {
        let task = announcement.task;
        if announcement.nonce == self.nonce && task.ns_pid == self.ns_pid {
            self.own_received = true;
        } else if let Some(known) = self.known.iter_mut().find(|known| known.is(&task)) {
            known.last_announcement = now;
        } else if self.known.len() < MOST {
            self.answer = true;
            self.known.push(Peer {
                task,
                last_announcement: now,
                logged: false,
            });
        }
    }

    /// A process has exited.
    pub fn exited(&mut self, task: &Task) {
        self.known.retain(|known| !known.is(task));
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Boot) -> Act {
        self.known.retain(|known| now.since(known.last_announcement) < PEER_FORGOTTEN);
        let is_due = |last: Option<Boot>, period| last.is_none_or(|last| now.since(last) >= period);
        let mut act = Act::default();
        if is_due(self.announced, if self.answer { PEER_ANSWER } else { PEER_PERIOD }) {
            self.answer = false;
            self.announced = Some(now);
            act.announce = true;
        }
        if is_due(self.logged, PEER_PERIOD) {
            let new = self.known.iter_mut().filter(|known| !known.logged);
            act.log = new.map(Peer::log).collect();
        }
        if !act.log.is_empty() {
            self.logged = Some(now);
        }
        act
    }

    /// None if peers cannot be detected: not even our own announcement has come back.
    pub fn count(&self) -> Option<usize> {
        (self.own_received || !self.known.is_empty()).then_some(self.known.len())
    }
}

impl Peer {
    fn is(&self, task: &Task) -> bool {
        (self.task.tgid, self.task.start) == (task.tgid, task.start)
    }

    fn log(&mut self) -> Task {
        self.logged = true;
        self.task
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{CgroupId, Comm, Pid};

    const US: u32 = 0x00ab_cdef;

    fn at(seconds: u64) -> Boot {
        Boot(seconds * 1_000_000_000)
    }

    fn task(pid: u32, ns_pid: u32) -> Task {
        Task {
            tgid: Pid(pid),
            tid: Pid(pid),
            ppid: Pid(1),
            ns_level: 1,
            ns_pid,
            pidns: 7,
            cgroup: CgroupId::v2(9),
            v1_cgroup: None,
            container: None,
            start: Boot(u64::from(pid)),
            comm: Comm::new("epitaph"),
        }
    }

    fn announcement(pid: u32, nonce: u32) -> PeerAnnouncement {
        PeerAnnouncement {
            task: task(pid, 1),
            nonce,
        }
    }

    fn pids(act: &Act) -> Vec<u32> {
        act.log.iter().map(|task| task.tgid.0).collect()
    }

    #[test]
    fn alone_is_known_only_once_our_own_announcement_came_back() {
        let mut us = Peers::new(US, 1);
        assert!(us.tick(at(0)).announce);
        assert_eq!(us.count(), None);
        us.receive(at(1), &announcement(4711, US));
        assert_eq!((us.tick(at(1)), us.count()), (Act::default(), Some(0)));
        assert!(!us.tick(at(59)).announce && us.tick(at(60)).announce && !us.tick(at(61)).announce);
    }

    #[test]
    fn a_peer_is_answered_and_logged_once() {
        let mut us = Peers::new(US, 1);
        us.tick(at(0));
        us.receive(at(0), &announcement(12, 5));
        let act = us.tick(Boot(999_999_999));
        assert_eq!(
            (us.count(), act.announce, pids(&act)),
            (Some(1), false, vec![12]),
            "an answer waits"
        );
        assert!(us.tick(at(1)).announce);
        us.receive(at(2), &announcement(12, 5));
        assert_eq!(us.tick(at(2)), Act::default());
        // A peer's nonce may equal ours by chance; then the pid differs.
        us.receive(
            at(3),
            &PeerAnnouncement {
                task: task(13, 2),
                nonce: US,
            },
        );
        assert_eq!(us.count(), Some(2));
    }

    #[test]
    fn a_peer_that_exits_or_stops_announcing_is_forgotten() {
        let mut us = Peers::new(US, 1);
        us.receive(at(0), &announcement(12, 5));
        us.receive(at(0), &announcement(13, 6));
        us.exited(&Task {
            start: Boot(99),
            ..task(12, 1)
        });
        assert_eq!(us.count(), Some(2), "the pid was of another process before");
        us.exited(&task(12, 1));
        assert_eq!(us.count(), Some(1));
        us.receive(at(100), &announcement(13, 6));
        us.tick(at(299));
        assert_eq!(us.count(), Some(1));
        us.tick(at(300));
        assert_eq!(us.count(), None);
    }

    #[test]
    fn forged_announcements_cost_a_line_a_minute_and_an_answer_a_second() {
        let mut us = Peers::new(US, 1);
        let (mut lines, mut answers) = (0, 0);
        for tick in 0..600 {
            let now = Boot(u64::from(tick) * 200_000_000);
            for forged in 0..100 {
                let pid = 1000 + tick * 100 + forged;
                us.receive(now, &announcement(pid, pid));
            }
            assert_eq!(us.count(), Some(MOST));
            let act = us.tick(now);
            lines += u32::from(!act.log.is_empty());
            answers += u32::from(act.announce);
            for known in us.known.iter().map(|known| known.task).collect::<Vec<_>>() {
                us.exited(&known);
            }
        }
        assert_eq!((lines, answers), (2, 120));
    }
}
