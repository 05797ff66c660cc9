//! What the agent of a lost node and its kubelet's Lease say: is the machine running?

use std::net::SocketAddr;

use super::report::AgentAnswer;
use crate::observe::ApiTime;
use crate::time::Boot;
use crate::tolerances::{AGENT_ANSWERED_WITHIN, AGENT_ASKED_AGAIN, AGENT_ASKED_LATER, AGENT_QUESTION_DROPPED};

/// Unanswered requests until an agent counts as silent.
const ASKS: u8 = 3;
/// Most reads of a Lease that fail: one that does not exist is no reason to ask for ever.
const RENEWAL_ASKS: u8 = 3;

#[derive(Debug, Default)]
pub(super) struct AgentCheck {
    pub address: Option<SocketAddr>,
    has_answered: bool,
    /// In a row.
    silent: u8,
    next: Option<Boot>,
    question: Question,
    /// Since when its answers are missed.
    missed: Option<Boot>,
    /// It did not answer, and did not fail to: too many questions.
    is_given_up: bool,
}

/// One question at a time: thousands of lost nodes are asked at once.
#[derive(Debug, Default)]
pub(super) struct Question {
    asked: Option<Boot>,
    pub is_answered: bool,
}

impl Question {
    /// Asked, and neither answered nor dropped.
    pub fn is_pending(&self, now: Boot) -> bool {
        !self.is_answered && self.asked.is_some_and(|asked| now.since(asked) < AGENT_QUESTION_DROPPED)
    }

    pub fn ask(&mut self, now: Boot) {
        *self = Question {
            asked: Some(now),
            is_answered: false,
        };
    }
}

/// The last renewal of the kubelet's Lease.
#[derive(Debug, Default)]
pub(super) struct Lease {
    pub renewed: Option<ApiTime>,
    question: Question,
    failures: u8,
}

impl Lease {
    /// Whether it is time to ask.
    pub fn ask(&mut self, now: Boot) -> bool {
        let is_due = !self.question.is_answered && !self.question.is_pending(now);
        if is_due {
            self.question.ask(now);
        }
        is_due
    }

    /// None if the read failed. A renewal after `silent_from` does not count.
    pub fn answered(&mut self, renewed: Option<ApiTime>, silent_from: Boot) {
        self.failures = self.failures.saturating_add(u8::from(renewed.is_none()));
        self.question = Question {
            asked: None,
            is_answered: self.question.is_answered || renewed.is_some() || self.failures >= RENEWAL_ASKS,
        };
        self.renewed = renewed.filter(|renewed| renewed.at <= silent_from).or(self.renewed);
    }
}

impl AgentCheck {
    pub fn answer(&self) -> AgentAnswer {
        match (self.has_answered, self.silent >= ASKS) {
            (true, _) => AgentAnswer::Answered,
            (false, true) => AgentAnswer::Silent,
            (false, false) => AgentAnswer::Unknown,
        }
    }

    /// Known, or not to be had.
    pub fn is_known(&self) -> bool {
        self.address.is_none() || self.answer() != AgentAnswer::Unknown || self.is_given_up
    }

    /// Time has passed: an alarm does not wait for ever.
    pub fn notice(&mut self, now: Boot) {
        let missed = *self.missed.get_or_insert(now);
        self.is_given_up |= now.since(missed) >= AGENT_ANSWERED_WITHIN;
    }

    /// An answer, or none within its time.
    pub fn heard(&mut self, answered: bool) {
        self.question.is_answered = true;
        if answered {
            self.has_answered = true;
            self.silent = 0;
        } else {
            self.silent = self.silent.saturating_add(1);
            self.has_answered &= self.silent < ASKS;
        }
    }

    /// The address, if it is time to ask. `is_pressing`: soon again, whatever the last answers were.
    pub fn ask(&mut self, now: Boot, is_pressing: bool) -> Option<SocketAddr> {
        let address = self.address?;
        if self.next.is_some_and(|next| now < next) || self.question.is_pending(now) {
            return None;
        }
        self.question.ask(now);
        let is_known = !matches!(self.answer(), AgentAnswer::Unknown) && (self.silent == 0 || self.silent >= ASKS);
        self.next = Some(now.plus(if is_known && !is_pressing {
            AGENT_ASKED_LATER
        } else {
            AGENT_ASKED_AGAIN
        }));
        Some(address)
    }
}
