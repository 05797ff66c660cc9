//! Parents of a subject's processes.

use crate::attribute::Map;
use crate::correlate::subjects::inner::InnerSignal;
use crate::correlate::subjects::process::{Candidate, ProcessId};
use crate::correlate::subjects::subject::State;
use crate::ids::Pid;

/// Which processes descend from the main process. The others came in from outside (a probe, `kubectl exec`), and its shutdown does not
/// concern them.
pub(super) struct Descent {
    /// None: it is no init, so that its orphans have another parent, and only those below one of the outsiders are known.
    init: Option<Pid>,
    outsiders: Vec<Pid>,
    parents: Map<Pid, Pid>,
}

impl Descent {
    pub fn new(state: &State, main: &ProcessId, signals: &[InnerSignal]) -> Descent {
        let exits = state.exits.iter().map(|(_, exit)| (exit.task.tgid, exit.task.ppid));
        let (mains, others): (Vec<&Candidate>, Vec<&Candidate>) = state.candidates.iter().partition(|of| of.id.same(main));
        Descent {
            init: mains.first().filter(|main| main.is_ns_init()).map(|main| main.id.tgid),
            outsiders: others
                .iter()
                .filter(|other| other.outside)
                .map(|other| other.id.tgid)
                .collect(),
            // One between, which ended without a recorded signal, has its exit only. A signal's parent is of before the end of that parent.
            parents: exits
                .chain(signals.iter().map(|fact| (fact.target.tgid, fact.parent)))
                .collect(),
        }
    }

    /// The kernel gives the orphans to an init that is the main process.
    pub fn has_init(&self) -> bool {
        self.init.is_some()
    }

    pub fn is_own(&self, process: Pid) -> bool {
        let mut of = Some(process);
        // No chain is longer; crafted parents may go in a circle.
        for _ in 0..=self.parents.len() + 1 {
            match of {
                Some(of) if Some(of) == self.init => return true,
                Some(of) if self.init.is_none() && self.outsiders.contains(&of) => return false,
                Some(known) => of = self.parents.get(&known).copied(),
                None => return self.init.is_none(),
            }
        }
        self.init.is_none()
    }
}
