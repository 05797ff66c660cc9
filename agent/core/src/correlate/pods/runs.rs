//! Processes that came into a container from outside.

use std::collections::VecDeque;

use crate::correlate::subjects::ProcessId;
use crate::event::ExitStatus;
use crate::ids::{Comm, Pid};
use crate::termination::OomKill;
use crate::time::Boot;
use crate::tolerances::OOM_SLACK;

/// Most processes from outside that are kept per container; if the pod is known, only those with a hook's name.
const RUNS: usize = 16;

/// Most of those that have no hook's name: for what an OOM kill hit. Of these, the ones that still run are kept longest.
const OTHERS: usize = 16;

/// Most victims of OOM kills that are kept.
const VICTIMS: usize = 8;

/// Processes that came into a container from outside.
#[derive(Debug, Default)]
pub(super) struct Runs {
    pub kept: VecDeque<Run>,
    /// Start of the last dropped process: the hook may be among the dropped ones.
    pub forgotten: Option<Boot>,
    /// The last ones without a hook's name.
    others: VecDeque<Run>,
    /// One of these was dropped while it ran.
    others_dropped: bool,
    victims: VecDeque<(Pid, Boot, Origin)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub id: ProcessId,
    pub at: Boot,
    /// The first name: a shell may execute another program.
    pub comm: Comm,
    pub end: Option<(Boot, ExitStatus)>,
}

/// Where the victim of an OOM kill came from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// From outside: when that process, or its parent, executed its first program.
    Outside { at: Boot, comm: Comm },
    /// From outside, or from the program itself.
    Open,
}

impl Runs {
    pub fn bytes(&self) -> usize {
        let runs = (self.kept.capacity() + self.others.capacity()) * size_of::<Run>();
        runs + self.victims.capacity() * size_of::<(Pid, Boot, Origin)>()
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
                self.drop_other();
                self.others.push_front(Run { id, at, comm, end: None });
            }
            return;
        }
        self.kept.push_back(Run { id, at, comm, end: None });
        if self.kept.len() > RUNS {
            // The oldest that has ended, or else the oldest.
            let ended = self.kept.iter().position(|run| run.end.is_some());
            self.others_dropped |= ended.is_none();
            let old = self.kept.remove(ended.unwrap_or(0));
            self.forgotten = self.forgotten.max(old.map(|old| old.at));
        }
    }

    /// Makes room for another: the oldest that has ended, or else the oldest.
    fn drop_other(&mut self) {
        if self.others.len() < OTHERS {
            return;
        }
        let ended = self.others.iter().rposition(|run| run.end.is_some());
        self.others_dropped |= ended.is_none();
        self.others.remove(ended.unwrap_or(self.others.len() - 1));
    }

    pub fn exit(&mut self, at: Boot, id: ProcessId, status: ExitStatus) {
        let mut all = self.kept.iter_mut().chain(&mut self.others);
        if let Some(run) = all.find(|run| run.id.same(&id))
            && run.end.is_none_or(|(known, _)| at < known)
        {
            run.end = Some((at, status));
        }
    }

    /// Where the victim of an OOM kill came from; None: from the program itself. `main`: the main process, which came from outside, too.
    pub fn origin(&self, oom: &OomKill, main: Option<ProcessId>) -> Option<Origin> {
        let known = || {
            let mut victims = self.victims.iter();
            let known = victims.find(|(tgid, start, _)| (*tgid, *start) == (oom.tgid, oom.start));
            known.map(|(.., origin)| *origin)
        };
        let may_be = || self.may_have_started(oom, main).then_some(Origin::Open);
        self.outside(oom).or_else(known).or_else(may_be)
    }

    /// The process that came from outside and was the victim, or the victim's parent.
    fn outside(&self, oom: &OomKill) -> Option<Origin> {
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
        let run = itself.or_else(parent)?;
        Some(Origin::Outside {
            at: run.at,
            comm: run.comm,
        })
    }

    /// A process from outside, other than the main process, ran when the victim began, and at the OOM kill: it may have started the
    /// victim, by a process in between.
    fn may_have_started(&self, oom: &OomKill, main: Option<ProcessId>) -> bool {
        let is_other = |run: &Run| main.is_none_or(|main| !run.id.same(&main));
        let ran = |run: &Run| run.id.start <= oom.start && run.end.is_none_or(|(end, _)| oom.at <= end.plus(OOM_SLACK));
        self.others_dropped || self.kept.iter().chain(&self.others).any(|run| is_other(run) && ran(run))
    }

    /// Keeps where the victim came from: probes that run each second replace what shows it.
    pub fn keep_victim(&mut self, oom: &OomKill, main: Option<ProcessId>) {
        if let Some(origin) = self.origin(oom, main) {
            self.victims.truncate(VICTIMS - 1);
            self.victims.push_front((oom.tgid, oom.start, origin));
        }
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
