//! A shutdown in progress.

use std::time::Duration;

use super::parts::TEXT;
use super::pods::Runs;
use crate::attribute::Subject;
use crate::ids::Pid;
use crate::shutdown::{EndedByShutdown, Lock, NodeDown, NodeShutdownFacts};
use crate::termination::{Actor, Open, TerminationFacts};
use crate::time::Boot;

#[derive(Clone, Debug)]
pub(super) struct InProgress {
    /// Whether a kubelet is there, delay, phases and pods are filled in when the shutdown is over.
    pub facts: NodeShutdownFacts,
    pub limit: Option<Duration>,
    pub runs: Runs,
    pub wants_pods: bool,
    /// Of a spoofed one: the kubelet acts on it at most until then.
    pub acts_until: Option<Boot>,
    /// systemd's jobs for it are gone.
    pub jobs_gone: Option<Boot>,
    /// It had begun before it was seen.
    pub begun_before: bool,
    /// The observation began again within it.
    pub resumed: Option<Boot>,
    /// The agent before that had ended in order.
    pub agent_ended: bool,
    /// Why its announcement may have been missed.
    pub doubt: Option<String>,
    /// Terminations of pods wait for their judgement.
    pub is_unsettled: bool,
    /// Another boot has begun so soon that the machine went down for it.
    pub went_down: bool,
}

impl InProgress {
    /// systemd has begun to stop everything.
    pub fn is_stopping(&self) -> bool {
        self.facts.signs.stopping.is_some() || self.facts.signs.terminated.is_some()
    }

    /// A kubelet without a lock does not listen, and a spoofed signal has no other effect.
    pub fn may_end_pods(&self) -> bool {
        self.facts.signs.is_real() || self.facts.kubelet.held == Some(true)
    }

    /// For what it stops.
    pub fn link(&self) -> EndedByShutdown {
        EndedByShutdown {
            key: self.facts.key.clone(),
            begin: self.facts.begin,
            evidence: self.facts.signs.announcement(),
            ran_at: None,
        }
    }

    /// The shutdown, if it stopped the subject: its runtime did after the begin. A unit, or a container that no kubelet manages, is stopped
    /// with the services. Of a pod's container whose stop signal may be lost, the shutdown that may have stopped it.
    pub fn ended_by(&self, facts: &TerminationFacts) -> Option<EndedByShutdown> {
        let is_pods = matches!(facts.subject, Subject::Container { pod: Some(_), .. });
        let since = match (is_pods, self.facts.signs.is_real()) {
            (true, _) if self.may_end_pods() => self.facts.begin,
            (false, true) => self.facts.signs.stopped_since()?,
            (..) => return None,
        };
        // Also what was not stopped, if the machine went down under it. systemd's own stop signals begin a time, and do not end it.
        let services = self.facts.signs.services();
        let went_down = facts.exit.is_none() && matches!(facts.open, Open::NodeDown { .. });
        let over = services.filter(|over| facts.exit.is_none() && went_down && facts.end >= *over);
        // Perhaps only units were stopped, where the machine did not go down for it.
        if self.facts.signs.only_swept() && !self.went_down {
            return None;
        }
        // A kubelet without a lock does not stop its pods for it: a runtime that did had another reason.
        let is_kubelets = self.facts.kubelet.held == Some(true);
        if self.facts.signs.only_swept() && !is_kubelets && stopper(facts).is_some_and(|by| by.tgid != Pid::INIT) {
            return None;
        }
        let is_under_it = went_down && self.facts.signs.is_real();
        let may_be = is_pods && facts.hidden_stops().any(|hole| self.begun_before || hole.reaches(since)) && facts.end >= since;
        let is_by_it = stopped_at(facts).map_or(is_under_it || may_be, |at| at >= since);
        is_by_it.then(|| EndedByShutdown {
            ran_at: over,
            ..self.link()
        })
    }

    pub fn down(&self, back: Boot, next_boot_id: String, is_soft: bool) -> NodeDown {
        NodeDown {
            key: self.facts.key.clone(),
            host: self.facts.host.clone(),
            clock: self.facts.clock,
            begin: self.last_evidence().min(back),
            end: back,
            next_boot_id,
            is_soft,
            at_most: self.agent_ended,
        }
    }

    /// The last that is known of it.
    pub fn last_evidence(&self) -> Boot {
        let signs = &self.facts.signs;
        let times = [signs.prepared, signs.services(), signs.killed, self.runs.last_end()];
        times
            .into_iter()
            .flatten()
            .max()
            .unwrap_or(self.facts.begin)
            .max(self.facts.end)
    }

    pub fn bytes(&self) -> usize {
        size_of::<InProgress>() + self.facts.logind.locks.len() * (size_of::<Lock>() + 3 * TEXT) + self.runs.bytes()
    }
}

/// When the runtime stopped the subject.
pub(super) fn stopped_at(facts: &TerminationFacts) -> Option<Boot> {
    stop_of(facts).map(|(at, _)| at)
}

/// Who of the runtime did.
fn stopper(facts: &TerminationFacts) -> Option<&Actor> {
    stop_of(facts).map(|(_, by)| by)
}

fn stop_of(facts: &TerminationFacts) -> Option<(Boot, &Actor)> {
    let stop = facts.runtime_stop().map(|stop| (stop.at, &stop.sender));
    stop.or(facts.runtime_kill().map(|kill| (kill.at, &kill.sender)))
}
