//! What happened, by those who did it: the shim's deeds and wait(2), the program's log, the clients' logs. No probe.

use std::ops::RangeInclusive;

use nix::libc::SIGKILL;
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
    pub strangers: Vec<Stranger>,
    /// By processes of the container that came in from outside.
    pub inside: Vec<Inside>,
    /// By the kernel's count of the container.
    pub oom_kills: usize,
    /// What the program logged, by its own clock.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Runtime,
    Stranger,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    pub at: u64,
    pub pid: u32,
    pub signal: i32,
}

impl Truth {
    pub fn take(&mut self, event: shim::Event) {
        match event {
            shim::Event::Started { shim, main } => {
                self.shim_pid = shim;
                self.main_pid = main;
            }
            shim::Event::Sent { at, signal, lives } => self.sent.push((at, signal, lives)),
            shim::Event::Inside { at, pid, signal } => self.inside.push(Inside { at, pid, signal }),
            shim::Event::Ended { at, code, signal } => {
                self.ended = at;
                self.code = code;
                self.signal = signal;
            }
            shim::Event::Oom { kills } => self.oom_kills = kills,
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

    /// When the program's last life began.
    pub fn life_began(&self) -> u64 {
        self.life().first().map_or(0, |(at, _)| *at)
    }

    /// The program itself decided to exit, and did.
    pub fn finished(&self) -> bool {
        self.has(|event| matches!(event, program::Event::Exiting { .. }))
    }

    /// By which the program exited; None: it did not by itself.
    pub fn exit_code(&self) -> Option<i32> {
        self.life().iter().rev().find_map(|(_, event)| match event {
            program::Event::Exiting { code, .. } => Some(*code),
            _ => None,
        })
    }

    /// Requests that the program had read, and did not answer before its exit.
    pub fn unanswered(&self) -> usize {
        let exits = self.life().iter().rev();
        let left = exits.filter_map(|(_, event)| match event {
            program::Event::Exiting { unanswered, .. } => Some(*unanswered),
            _ => None,
        });
        left.take(1).sum()
    }

    pub fn failed(&self) -> bool {
        self.exit_code().is_some_and(|code| code != 0)
    }

    /// The code by which a program shows that it handled its stop signal.
    pub fn is_code_of_stop(&self, code: i32) -> bool {
        self.has(|event| matches!(event, program::Event::Signal { signal } if 128 + *signal == code))
    }

    pub fn crashed(&self) -> bool {
        self.has(|event| matches!(event, program::Event::Crashing))
    }

    /// The handler raised the signal again, and longer after its entry than docs/limits has it for one that does nothing else: 10 ms.
    pub fn raised_late(&self) -> bool {
        const REFLEX_NS: u64 = 9_000_000;
        let at = |is: fn(&program::Event) -> bool| self.life().iter().find(|(_, event)| is(event)).map(|(at, _)| *at);
        let entered = at(|event| matches!(event, program::Event::Signal { .. }));
        let raised = at(|event| matches!(event, program::Event::Raising));
        entered
            .zip(raised)
            .is_some_and(|(entered, raised)| raised - entered > REFLEX_NS)
    }

    /// The program closed its listener, and finished what it had read.
    pub fn closed(&self) -> bool {
        self.has(|event| matches!(event, program::Event::Closed))
    }

    /// When the program, or a process of its pool, began to take memory.
    pub fn ate(&self) -> Option<u64> {
        let eating = self.log.iter().find(|(_, event)| *event == program::Event::Eating);
        eating.map(|(at, _)| *at).filter(|_| self.oom_kills > 0)
    }

    /// The program read a stop signal, or entered its handler.
    pub fn read_signal(&self) -> bool {
        self.has(|event| matches!(event, program::Event::Signal { .. }))
    }

    /// Processes of the pool that were ended in a job.
    pub fn jobs_lost(&self) -> usize {
        self.last_of_workers().filter(|does| *does == Doing::Job).count()
    }

    /// Processes of the pool that did not exit by themselves.
    pub fn workers_ended(&self) -> usize {
        self.last_of_workers().filter(|does| *does != Doing::Leaves).count()
    }

    fn last_of_workers(&self) -> impl Iterator<Item = Doing> {
        let of = |worker: u8| {
            self.life().iter().rev().find_map(|(_, event)| match event {
                program::Event::Worker { number, does } if *number == worker => Some(*does),
                _ => None,
            })
        };
        (0..=u8::MAX).filter_map(of)
    }

    /// The last life had an open listener.
    pub fn has_listened(&self) -> bool {
        self.has(|event| matches!(event, program::Event::Listening { .. }))
    }

    /// How often a supervisor started the program.
    pub fn lives(&self) -> usize {
        let starts = |(_, event): &&(u64, program::Event)| *event == program::Event::Starting;
        self.log.iter().filter(starts).count()
    }

    /// By whom the first process got the first SIGKILL; None: nobody, or by whom is not certain.
    pub fn killer(&self) -> Option<By> {
        const APART_NS: u64 = 200_000_000;
        let killed = |signal: i32| signal == SIGKILL;
        let sent = self.sent.iter().filter(|(_, signal, lives)| *lives && killed(*signal));
        let strangers = self
            .strangers
            .iter()
            .filter(|by| by.target == Target::Main && killed(by.signal));
        let mut all: Vec<(u64, By)> = sent.map(|(at, ..)| (*at, By::Runtime)).collect();
        all.extend(strangers.map(|by| (by.at, By::Stranger)));
        all.sort_by_key(|(at, _)| *at);
        match all[..] {
            [(_, first)] => Some(first),
            [(at, first), (next, _), ..] if next - at > APART_NS => Some(first),
            _ => None,
        }
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
        let struck = self.strangers.iter().filter(|stranger| stranger.target == Target::Main);
        let struck = struck.map(|stranger| stranger.at);
        let left = self.left().filter(|_| self.is_main());
        sent.chain(struck).chain(left).min().unwrap_or(self.ended).min(self.ended)
    }

    /// The runtime sent it, a signal that asks or kills, while the first process existed.
    pub fn runtime_sent(&self, is: impl Fn(i32) -> bool) -> bool {
        self.sent
            .iter()
            .any(|(at, signal, lives)| *lives && *at < self.ended && is(*signal))
    }

    /// The program is the first process.
    pub fn is_main(&self) -> bool {
        self.program_pid == self.main_pid
    }

    pub fn count(&self, of: &[Outcome]) -> usize {
        self.attempts.iter().filter(|attempt| of.contains(&attempt.outcome)).count()
    }

    /// Clients that connected within a few milliseconds of the program's end, and whose requests were cut.
    pub fn cut_at_once(&self) -> usize {
        const AT_ONCE_NS: u64 = 5_000_000;
        let gone = self.left().unwrap_or(self.ended);
        let is = |attempt: &&Attempt| attempt.outcome == Outcome::Cut && attempt.begin.abs_diff(gone) <= AT_ONCE_NS;
        self.attempts.iter().filter(is).count()
    }

    /// Attempts that failed for the client, and ended then.
    pub fn lost(&self, within: RangeInclusive<u64>) -> usize {
        let is = |attempt: &&Attempt| Truth::is_lost(attempt) && within.contains(&attempt.end);
        self.attempts.iter().filter(is).count()
    }

    /// Without what the clients of a second address lost: those with an odd number.
    pub fn of_first_address(&self) -> Truth {
        Truth {
            attempts: self
                .attempts
                .iter()
                .filter(|attempt| attempt.client % 2 == 0)
                .cloned()
                .collect(),
            ..self.clone()
        }
    }

    fn is_lost(attempt: &Attempt) -> bool {
        let lost = [Outcome::Refused, Outcome::Reset, Outcome::Cut, Outcome::Unanswered];
        lost.contains(&attempt.outcome)
    }

    /// As [`Truth::lost`], without the refusals of clients that had already asked at `begin`; if `is_gone`, of a program that served nobody
    /// any more, without all that they had asked.
    pub fn lost_since(&self, begin: u64, end: u64, is_gone: bool) -> usize {
        let is_earlier = |attempt: &&Attempt| attempt.begin < begin && (begin..=end).contains(&attempt.end);
        let counts = |attempt: &&Attempt| Truth::is_lost(attempt) && (is_gone || attempt.outcome == Outcome::Refused);
        self.lost(begin..=end) - self.attempts.iter().filter(is_earlier).filter(counts).count()
    }
}
