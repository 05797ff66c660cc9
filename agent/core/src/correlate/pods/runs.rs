//! Processes that came into a container from outside.

use std::collections::VecDeque;

use crate::correlate::subjects::ProcessId;
use crate::event::ExitStatus;
use crate::ids::Comm;
use crate::termination::OomKill;
use crate::time::Boot;

/// Most processes from outside that are kept per container; if the pod is known, only those with a hook's name.
const RUNS: usize = 16;

/// Most of those that have no hook's name: for what an OOM kill hit.
const OTHERS: usize = 8;

/// Processes that came into a container from outside.
#[derive(Debug, Default)]
pub(super) struct Runs {
    pub kept: VecDeque<Run>,
    /// Start of the last dropped process: the hook may be among the dropped ones.
    pub forgotten: Option<Boot>,
    /// The last ones without a hook's name.
    pub others: VecDeque<Run>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub id: ProcessId,
    pub at: Boot,
    /// The first name: a shell may execute another program.
    pub comm: Comm,
    pub end: Option<(Boot, ExitStatus)>,
}

impl Runs {
    pub fn bytes(&self) -> usize {
        (self.kept.capacity() + self.others.capacity()) * size_of::<Run>()
    }

    pub fn exec(&mut self, at: Boot, id: ProcessId, comm: Comm, is_wanted: bool) {
        if let Some(known) = self.kept.iter_mut().find(|run| run.id.same(&id)) {
            if at < known.at {
                (known.at, known.comm) = (at, comm);
            }
            return;
        }
        if !is_wanted {
            if self.others.iter().all(|run| !run.id.same(&id)) {
                self.others.truncate(OTHERS - 1);
                self.others.push_front(Run { id, at, comm, end: None });
            }
            return;
        }
        self.kept.push_back(Run { id, at, comm, end: None });
        if self.kept.len() > RUNS
            && let Some(old) = self.kept.pop_front()
        {
            self.forgotten = self.forgotten.max(Some(old.at));
        }
    }

    pub fn exit(&mut self, at: Boot, id: ProcessId, status: ExitStatus) {
        let mut all = self.kept.iter_mut().chain(&mut self.others);
        if let Some(run) = all.find(|run| run.id.same(&id))
            && run.end.is_none_or(|(known, _)| at < known)
        {
            run.end = Some((at, status));
        }
    }

    /// The process that came from outside and was the victim, or the victim's parent; with the time and the name of its first program. The
    /// main process came from outside, too.
    pub fn origin(&self, oom: &OomKill) -> Option<(Boot, Comm)> {
        let all = || self.kept.iter().chain(&self.others);
        let victim = ProcessId {
            tgid: oom.tgid,
            start: oom.start,
            exact: true,
        };
        let itself = all().find(|run| run.id.same(&victim));
        // A child is not older, and the parent ran then: the process id may have had another holder.
        let ran = |run: &&Run| run.id.start <= oom.start && run.end.is_none_or(|(end, _)| oom.start <= end);
        let parent = || all().find(|run| run.id.tgid == oom.parent && ran(run));
        itself.or_else(parent).map(|run| (run.at, run.comm))
    }

    /// The only process of that name that started in that time and is not the main process, which started at `main`.
    pub fn only(&self, comm: &Comm, main: Boot, from: Boot, to: Boot) -> Option<Run> {
        if self.forgotten.is_some_and(|at| at >= from) {
            return None;
        }
        let in_time = |run: &&Run| run.id.start > main && from <= run.at && run.at <= to;
        let mut runs = self.kept.iter().filter(in_time).filter(|run| run.comm == *comm);
        let first = runs.next().copied();
        first.filter(|_| runs.next().is_none())
    }
}
