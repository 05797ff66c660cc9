//! What happened, by those who did it: the shim's deeds and wait(2), the program's log, the clients' logs. No probe.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::client::{Attempt, Outcome};
use crate::history::Target;
use crate::program::Doing;
use crate::{program, shim};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    pub shim_pid: u32,
    pub main_pid: u32,
    pub program_pid: u32,
    /// `CLOCK_BOOTTIME`, nanoseconds.
    pub started: u64,
    pub ended: u64,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// By the runtime, in order: time, signal, whether the first process still existed.
    pub sent: Vec<(u64, i32, bool)>,
    pub stranger: Option<Stranger>,
    /// What the program logged, with the time at which the log was read.
    pub log: Vec<(u64, program::Event)>,
    pub attempts: Vec<Attempt>,
    /// What went wrong in the play itself: such a history is not judged.
    pub broken: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stranger {
    pub at: u64,
    pub pid: u32,
    pub signal: i32,
    pub target: Target,
}

impl Truth {
    pub fn take(&mut self, event: shim::Event) {
        match event {
            shim::Event::Started { shim, main } => {
                self.shim_pid = shim;
                self.main_pid = main;
            }
            shim::Event::Sent { at, signal, lives } => self.sent.push((at, signal, lives)),
            shim::Event::Ended { at, code, signal } => {
                self.ended = at;
                self.code = code;
                self.signal = signal;
            }
            shim::Event::Removed { .. } => {}
            shim::Event::Failed { what } => self.broken = Some(what),
        }
    }

    /// The log of the program's last life: a supervisor starts it again.
    fn life(&self) -> &[(u64, program::Event)] {
        let start = self
            .log
            .iter()
            .rposition(|(_, event)| *event == program::Event::Starting)
            .unwrap_or(0);
        &self.log[start..]
    }

    /// The program itself decided to exit, and did.
    pub fn finished(&self) -> bool {
        self.has(|event| matches!(event, program::Event::Exiting { .. }))
    }

    pub fn failed(&self) -> bool {
        self.has(|event| matches!(event, program::Event::Exiting { code, .. } if *code != 0))
    }

    pub fn crashed(&self) -> bool {
        self.has(|event| matches!(event, program::Event::Crashing))
    }

    /// The program read a stop signal, or entered its handler.
    pub fn read_signal(&self) -> bool {
        self.has(|event| matches!(event, program::Event::Signal))
    }

    /// Processes of the pool that were ended in a job.
    pub fn jobs_lost(&self) -> usize {
        let has = |worker: u8, doing: Doing| {
            self.has(|event| matches!(event, program::Event::Worker { number, does } if *number == worker && *does == doing))
        };
        (0..=u8::MAX)
            .filter(|number| has(*number, Doing::Job) && !has(*number, Doing::Leaves))
            .count()
    }

    fn has(&self, is: impl Fn(&program::Event) -> bool) -> bool {
        self.life().iter().any(|(_, event)| is(event))
    }

    /// When the program's log ended by its own hand; None: it was ended.
    pub fn left(&self) -> Option<u64> {
        let last = |event: &program::Event| matches!(event, program::Event::Exiting { .. } | program::Event::Crashing);
        self.life().iter().find(|(_, event)| last(event)).map(|(at, _)| *at)
    }

    /// It wrote its last line so near to the end of the first process that the kernel, which kills what is left then, can have been earlier than
    /// its exit: no log has the order.
    pub fn may_be_overtaken(&self) -> bool {
        const AS_NEAR_NS: u64 = 10_000_000;
        !self.is_main() && self.left().is_some_and(|at| at.saturating_add(AS_NEAR_NS) >= self.ended)
    }

    /// When the termination of the first process began: counts begin there, by docs/json.md.
    pub fn began(&self) -> u64 {
        let sent = self.sent.iter().filter(|(.., lives)| *lives).map(|(at, ..)| *at);
        let struck = self
            .stranger
            .filter(|stranger| stranger.target == Target::Main)
            .map(|stranger| stranger.at);
        let left = self.left().filter(|_| self.is_main());
        sent.chain(struck).chain(left).min().unwrap_or(self.ended).min(self.ended)
    }

    /// The program is the first process.
    pub fn is_main(&self) -> bool {
        self.program_pid == self.main_pid
    }

    pub fn count(&self, of: &[Outcome]) -> usize {
        self.attempts.iter().filter(|attempt| of.contains(&attempt.outcome)).count()
    }

    /// A client connected within a few milliseconds of the program's end, and its request was cut.
    pub fn was_cut_at_once(&self) -> bool {
        const AT_ONCE_NS: u64 = 5_000_000;
        let gone = self.left().unwrap_or(self.ended);
        let is = |attempt: &Attempt| attempt.outcome == Outcome::Cut && attempt.begin.abs_diff(gone) <= AT_ONCE_NS;
        self.attempts.iter().any(is)
    }

    /// Attempts that failed for the client, and ended then.
    pub fn lost(&self, within: RangeInclusive<u64>) -> usize {
        let lost = [Outcome::Refused, Outcome::Reset, Outcome::Cut, Outcome::Unanswered];
        let is = |attempt: &&Attempt| lost.contains(&attempt.outcome) && within.contains(&attempt.end);
        self.attempts.iter().filter(is).count()
    }
}
