//! What may hide that a machine has pods, and with them its kubelet.

use crate::attribute::{Attribution, Subject};
use crate::event::Kind;
use crate::input::{Observation, ProbeState};
use crate::time::Boot;

/// See the module. A container shows itself by its cgroup and by its first program: the kernel side watches a cgroup also where the cgroup's
/// record is lost, and a full map of watched cgroups does not lose that record.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    /// Of the two kinds, those with lost records.
    lost: Vec<Kind>,
    /// No probe shows programs.
    lacks_programs: bool,
    /// The end of the last part of the recording or the journal that is missing.
    part: Option<Boot>,
    /// The pods below a container are a node's: see [`Observation::nodes_in_containers`].
    are_in_containers: bool,
}

impl Hidden {
    /// A run begins.
    pub fn starts(&mut self, observation: &Observation) {
        self.are_in_containers = observation.nodes_in_containers;
        self.lacks_programs = false;
    }

    pub fn probe(&mut self, name: &str, state: &ProbeState) {
        if name == Kind::ProcessExec.name() {
            self.lacks_programs = !state.is_observed();
        }
    }

    /// The kernel lost records.
    pub fn lost(&mut self, kind: Kind, within: Option<&Attribution>) {
        let is_container = matches!(within, Some(Attribution::Subject(Subject::Container { .. }, _)));
        let is_of_pods = self.are_in_containers || !is_container;
        if is_of_pods && matches!(kind, Kind::CgroupMkdir | Kind::ProcessExec) && !self.lost.contains(&kind) {
            self.lost.push(kind);
        }
    }

    /// A part of the recording or the journal is missing, until `now`.
    pub fn part_missing(&mut self, now: Boot) {
        self.part = self.part.max(Some(now));
    }

    /// At `begun` the journal shows what a part before had shown.
    pub fn listed(&mut self, begun: Boot) {
        self.part.take_if(|until| *until < begun);
    }

    /// All that exists was shown.
    pub fn all_shown(&mut self) {
        self.lost.clear();
        self.part = None;
    }

    pub fn may_hide_pods(&self) -> bool {
        let is_lost = |kind| self.lost.contains(&kind);
        let hides_programs = self.lacks_programs || is_lost(Kind::ProcessExec);
        self.part.is_some() || is_lost(Kind::CgroupMkdir) && hides_programs
    }
}
