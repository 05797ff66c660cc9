//! Who else observes this machine: other agents, heard through the probes themselves.
//!
//! Each agent sends an announcement at its start, every [`PERIOD`], and once to each new peer; its own comes back to it, too, known
//! by its nonce. A peer is forgotten at its end, or where it was not heard for [`FORGOTTEN`].
//!
//! *Architecture invariant*: no clock, no I/O, bounded memory. An announcement is no proof: any process can forge one, so it costs at most one
//! line in the log each `PERIOD` and one answer each [`ANSWER`], and decides nothing but the count.

use std::time::Duration;

use crate::event::{PeerAnnouncement, Task};
use crate::time::Boot;

pub const PERIOD: Duration = Duration::from_secs(60);
/// Between two of our announcements, at least.
pub const ANSWER: Duration = Duration::from_secs(1);
/// Some may be lost in a storm.
pub const FORGOTTEN: Duration = Duration::from_secs(200);
/// Most that are told apart.
pub const MOST: usize = 16;

pub struct Peers {
    nonce: u32,
    /// Our pid as we see it ourselves: nobody tells us the one that the kernel's records have.
    ns_pid: u32,
    heard_ourselves: bool,
    known: Vec<Peer>,
    /// When we said it last.
    said: Option<Boot>,
    /// Somebody new is there, who may not have heard us.
    answer: bool,
    told: Option<Boot>,
}

struct Peer {
    task: Task,
    heard: Boot,
    told: bool,
}

/// What is to be done now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Act {
    /// Send the announcement.
    pub say: bool,
    /// Say of these, once and in one line, that they are there.
    pub tell: Vec<Task>,
}

impl Peers {
    pub fn new(nonce: u32, ns_pid: u32) -> Peers {
        Peers {
            nonce: nonce & epitaph_ebpf::announcement::NONCE,
            ns_pid,
            heard_ourselves: false,
            known: Vec::new(),
            said: None,
            answer: false,
            told: None,
        }
    }

    pub fn nonce(&self) -> u32 {
        self.nonce
    }

    pub fn hear(&mut self, now: Boot, announcement: &PeerAnnouncement) {
        let task = announcement.task;
        if announcement.nonce == self.nonce && task.ns_pid == self.ns_pid {
            self.heard_ourselves = true;
        } else if let Some(known) = self.known.iter_mut().find(|known| known.is(&task)) {
            known.heard = now;
        } else if self.known.len() < MOST {
            self.answer = true;
            let (heard, told) = (now, false);
            self.known.push(Peer { task, heard, told });
        }
    }

    /// A process has ended.
    pub fn ended(&mut self, task: &Task) {
        self.known.retain(|known| !known.is(task));
    }

    /// Time went by.
    pub fn tick(&mut self, now: Boot) -> Act {
        self.known.retain(|known| now.since(known.heard) < FORGOTTEN);
        let is_due = |last: Option<Boot>, period| last.is_none_or(|last| now.since(last) >= period);
        let mut act = Act::default();
        if is_due(self.said, if self.answer { ANSWER } else { PERIOD }) {
            self.answer = false;
            self.said = Some(now);
            act.say = true;
        }
        if is_due(self.told, PERIOD) {
            let new = self.known.iter_mut().filter(|known| !known.told);
            act.tell = new.map(Peer::tell).collect();
        }
        if !act.tell.is_empty() {
            self.told = Some(now);
        }
        act
    }

    /// None where nobody could be heard: not even our own announcement has come back.
    pub fn count(&self) -> Option<usize> {
        (self.heard_ourselves || !self.known.is_empty()).then_some(self.known.len())
    }
}

impl Peer {
    fn is(&self, task: &Task) -> bool {
        (self.task.tgid, self.task.start) == (task.tgid, task.start)
    }

    fn tell(&mut self) -> Task {
        self.told = true;
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
        act.tell.iter().map(|task| task.tgid.0).collect()
    }

    #[test]
    fn alone_is_known_only_once_our_own_announcement_came_back() {
        let mut us = Peers::new(US, 1);
        assert!(us.tick(at(0)).say);
        assert_eq!(us.count(), None);
        us.hear(at(1), &announcement(4711, US));
        assert_eq!((us.tick(at(1)), us.count()), (Act::default(), Some(0)));
        assert!(!us.tick(at(59)).say && us.tick(at(60)).say && !us.tick(at(61)).say);
    }

    #[test]
    fn a_neighbour_is_answered_and_told_of_once() {
        let mut us = Peers::new(US, 1);
        us.tick(at(0));
        us.hear(at(0), &announcement(12, 5));
        let act = us.tick(Boot(999_999_999));
        assert_eq!(
            (us.count(), act.say, pids(&act)),
            (Some(1), false, vec![12]),
            "an answer waits"
        );
        assert!(us.tick(at(1)).say);
        us.hear(at(2), &announcement(12, 5));
        assert_eq!(us.tick(at(2)), Act::default());
        // Its nonce may be ours, by chance; then its pid is another.
        us.hear(
            at(3),
            &PeerAnnouncement {
                task: task(13, 2),
                nonce: US,
            },
        );
        assert_eq!(us.count(), Some(2));
    }

    #[test]
    fn who_ends_or_falls_silent_is_forgotten() {
        let mut us = Peers::new(US, 1);
        us.hear(at(0), &announcement(12, 5));
        us.hear(at(0), &announcement(13, 6));
        us.ended(&Task {
            start: Boot(99),
            ..task(12, 1)
        });
        assert_eq!(us.count(), Some(2), "its pid was another's before");
        us.ended(&task(12, 1));
        assert_eq!(us.count(), Some(1));
        us.hear(at(100), &announcement(13, 6));
        us.tick(at(299));
        assert_eq!(us.count(), Some(1));
        us.tick(at(300));
        assert_eq!(us.count(), None);
    }

    #[test]
    fn whoever_forges_announcements_gets_a_line_a_minute_and_an_answer_a_second() {
        let mut us = Peers::new(US, 1);
        let (mut lines, mut answers) = (0, 0);
        for tick in 0..600 {
            let now = Boot(u64::from(tick) * 200_000_000);
            for forged in 0..100 {
                let pid = 1000 + tick * 100 + forged;
                us.hear(now, &announcement(pid, pid));
            }
            assert_eq!(us.count(), Some(MOST));
            let act = us.tick(now);
            lines += u32::from(!act.tell.is_empty());
            answers += u32::from(act.say);
            for known in us.known.iter().map(|known| known.task).collect::<Vec<_>>() {
                us.ended(&known);
            }
        }
        assert_eq!((lines, answers), (2, 120));
    }
}
