//! The warning about a stop signal that the kernel has discarded, while the process still runs.

use super::Subjects;
use super::event::SubjectEvent;
use super::process::Candidate;
use super::timeline::SignalFact;
use crate::event::{SignalDiscarded, SignalResult};
use crate::ids::CgroupId;
use crate::report::StopSignalIgnored;
use crate::termination::{Role, TerminationKey};
use crate::time::Boot;
use crate::tolerances::RUN_GAP;
use crate::verdict;

impl Subjects {
    pub(super) fn discarded(&mut self, at: Boot, own: CgroupId, discarded: &SignalDiscarded, out: &mut Vec<SubjectEvent>) {
        let (cap, reorder) = (self.limits.facts, self.limits.reorder);
        self.keep(own, out, |state| {
            if state.is_past(&discarded.task) {
                return true;
            }
            state.suspect(at.plus(reorder));
            state
                .timeline()
                .inside
                .entry(at, &discarded.task, discarded.signal, true, cap)
        });
    }

    /// Reports at once that the kernel discarded a stop signal: once for each stop request.
    pub(super) fn warn(&mut self, own: CgroupId, fact: &SignalFact, out: &mut Vec<SubjectEvent>) {
        let signal = &fact.signal;
        let is_stop = match fact.sender.role {
            Role::Runtime => fact.is_stop() && signal.signal.is_fatal_by_default(),
            Role::Other | Role::Unknown => signal.signal.is_request(),
            Role::Itself | Role::Inside | Role::Kernel => false,
        };
        if signal.result != SignalResult::Ignored || !is_stop {
            return;
        }
        let Some(state) = self.subjects.get(&own) else { return };
        let main = state.main();
        if main.is_some_and(|main| !main.id.is(&signal.target)) || main.is_none() && fact.sender.role != Role::Runtime {
            return;
        }
        let main = main.unwrap_or_else(|| Candidate::of(&signal.target, fact.at, false));
        let sentence = verdict::ignored(Some(&main.process()), signal.signal, signal.disposition);
        self.warn_once(own, &main, fact.at, fact, sentence, out);
    }

    /// `at`: of the discarded signal; `stop`: the signal that the main process got.
    pub(super) fn warn_once(
        &mut self,
        own: CgroupId,
        main: &Candidate,
        at: Boot,
        stop: &SignalFact,
        sentence: String,
        out: &mut Vec<SubjectEvent>,
    ) {
        let Some(state) = self.subjects.get_mut(&own) else { return };
        if let Some((warned, when)) = state.rare().warned
            && warned.same(&main.id)
            && at.apart(when) <= RUN_GAP
        {
            return;
        }
        state.rare_mut().warned = Some((main.id, at));
        let process = main.process();
        out.push(SubjectEvent::StopIgnored(Box::new(StopSignalIgnored {
            key: TerminationKey {
                boot_id: self.observing.boot_id.clone(),
                cgroup: own,
                main_start: Some(process.start),
            },
            subject: state.subject.clone(),
            container: None,
            main: Some(process),
            at,
            signal: stop.signal.signal,
            sender: stop.sender.clone(),
            disposition: stop.signal.disposition,
            grace_left: None,
            kubernetes: None,
            sentence,
        })));
    }
}
