//! Which of a pod's containers is the sandbox (the pause container). No status names the sandbox, but absence alone proves nothing: a
//! status may be late, and a privileged container can create a cgroup that names any pod. So the order of starts counts, too.

use crate::termination::TerminationFacts;

use super::parts::Container;
use super::pod::Pod;

impl Pod {
    /// Decides for each undecided container, if the evidence is enough.
    pub fn place(&mut self) {
        let found: Vec<bool> = self
            .containers
            .iter()
            .map(|of| of.is_sandbox || self.is_sandbox(of))
            .collect();
        self.object.lingering.had_sandbox |= found.contains(&true);
        for (container, is_sandbox) in self.containers.iter_mut().zip(found) {
            container.is_sandbox = is_sandbox;
        }
    }

    fn is_sandbox(&self, of: &Container) -> bool {
        // A status is the kubelet's, an annotation can be a pod's.
        if self.names.contains_key(&of.id) {
            return false;
        }
        let held = self.held.iter().find(|held| held.facts.key.cgroup == of.cgroup);
        if held.is_some_and(|held| held.facts.is_sandbox()) {
            return true;
        }
        if !self.was_first(of) {
            return false;
        }
        let later = |other: &&Container| other.order() > of.order() && of.ended.is_none_or(|end| end >= other.start);
        let mut later_ones = self.containers.iter().filter(later);
        if later_ones.any(|other| self.names.contains_key(&other.id)) {
            return true;
        }
        let Some(held) = held else { return false };
        // No status names a container that ran at the same time. Runtimes send a container a stop signal before SIGKILL, a sandbox
        // only SIGKILL.
        let nothing_else = self.runs_nothing() || self.object.gone.is_some();
        was_only_killed(&held.facts) && (self.containers.iter().any(|other| later(&other)) || nothing_else)
    }

    /// No container of the pod was running at its start: a sandbox is created before all others, and again after the last exit. Of an
    /// exit that only the status shows, the time is not known.
    fn was_first(&self, of: &Container) -> bool {
        let is_reported = |other: &Container| self.is_reported(&other.id);
        let runs_on = |other: &Container| other.ended.map_or(!is_reported(other), |end| end > of.start);
        let ran = |other: &Container| other.order() < of.order() && runs_on(other);
        !self.containers.iter().any(ran)
    }

    /// The API shows the pod's containers, and none of them runs.
    fn runs_nothing(&self) -> bool {
        let is_known = self.fact.as_ref().is_some_and(|fact| !fact.containers.is_empty());
        is_known && self.all_reported()
    }
}

fn was_only_killed(facts: &TerminationFacts) -> bool {
    let by_runtime = facts.runtime_kill().is_some();
    by_runtime && facts.stop.is_none()
}
