//! A termination with its context: what is judged and told.

use std::ops::Deref;

use crate::event::ExitStatus;
use crate::ids::Signal;
use crate::kubernetes::PodContext;
use crate::termination::{Fatal, Kill, MainProcess, OomKill, Stop, TerminationFacts, Traffic};

/// One termination's facts, with their Kubernetes context.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    facts: &'a TerminationFacts,
    /// None for a unit, for a container without a pod, or without the API.
    pub kubernetes: Option<&'a PodContext>,
}

impl<'a> Case<'a> {
    pub fn new(facts: &'a TerminationFacts, kubernetes: Option<&'a PodContext>) -> Case<'a> {
        Case { facts, kubernetes }
    }

    pub fn main(&self) -> Option<&'a MainProcess> {
        self.facts.main.as_ref()
    }

    pub fn stop(&self) -> Option<&'a Stop> {
        self.facts.stop.as_ref()
    }

    pub fn kill(&self) -> Option<&'a Kill> {
        self.facts.kill.as_ref()
    }

    pub fn fatal(&self) -> Option<&'a Fatal> {
        self.facts.fatal.as_ref()
    }

    pub fn oom(&self) -> &'a [OomKill] {
        &self.facts.oom
    }

    pub fn traffic(&self) -> &'a Traffic {
        &self.facts.traffic
    }

    /// SIGKILL ended the main process.
    pub(super) fn was_killed(&self) -> bool {
        self.exit.map(|exit| exit.status).and_then(ExitStatus::signal) == Some(Signal::KILL)
    }
}

impl Deref for Case<'_> {
    type Target = TerminationFacts;

    fn deref(&self) -> &TerminationFacts {
        self.facts
    }
}
