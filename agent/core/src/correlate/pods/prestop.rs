//! preStop hooks. Those of kind `exec` are processes that the runtime puts into the container between the request and the stop
//! signal; the others no process here shows, so their time is that of the wait.

use std::collections::VecDeque;

use crate::event::{ExitStatus, ProcessExec, ProcessExit};
use crate::ids::Comm;
use crate::kubernetes::{PreStopRun, Request};
use crate::pod::{ContainerSpec, KubeletProbe, KubeletProbeKind, PreStop};
use crate::time::Boot;

use super::context::Life;
use super::pod::Pod;
use crate::correlate::subjects::ProcessId;

/// Processes from outside kept per container: where the pod is known only those with a hook's name are.
const RUNS: usize = 16;

/// Processes that came into a container from outside.
#[derive(Debug, Default)]
pub(super) struct Runs {
    kept: VecDeque<Run>,
    /// When the last one that was not kept had begun: what is looked for may be among them.
    forgotten: Option<Boot>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    id: ProcessId,
    at: Boot,
    /// Its first name: a shell may execute another program.
    comm: Comm,
    end: Option<(Boot, ExitStatus)>,
}

impl Runs {
    pub fn exec(&mut self, at: Boot, exec: &ProcessExec, is_wanted: impl Fn(&Comm) -> bool) {
        let id = ProcessId::of(&exec.task);
        if let Some(known) = self.kept.iter_mut().find(|run| run.id.same(&id)) {
            if at < known.at {
                (known.at, known.comm) = (at, exec.task.comm);
            }
            return;
        }
        if !is_wanted(&exec.task.comm) {
            return;
        }
        let comm = exec.task.comm;
        self.kept.push_back(Run { id, at, comm, end: None });
        if self.kept.len() > RUNS
            && let Some(old) = self.kept.pop_front()
        {
            self.forgotten = self.forgotten.max(Some(old.at));
        }
    }

    pub fn exit(&mut self, at: Boot, exit: &ProcessExit) {
        if let Some(run) = self.kept.iter_mut().find(|run| run.id.is(&exit.task))
            && run.end.is_none_or(|(known, _)| at < known)
        {
            run.end = Some((at, exit.status));
        }
    }

    /// The only one of that name that began in that time, and is not the main process that began at `main`.
    fn only(&self, comm: &Comm, main: Boot, from: Boot, to: Boot) -> Option<Run> {
        if self.forgotten.is_some_and(|at| at >= from) {
            return None;
        }
        let in_time = |run: &&Run| run.id.start > main && from <= run.at && run.at <= to;
        let mut runs = self.kept.iter().filter(in_time).filter(|run| run.comm == *comm);
        let first = runs.next().copied();
        first.filter(|_| runs.next().is_none())
    }
}

impl Pod {
    /// Whether a process of that name may be a hook of the pod's.
    pub fn may_be_hook(&self, comm: &Comm) -> bool {
        let Some(fact) = &self.fact else { return true };
        fact.spec.containers.iter().filter_map(exec_hook).any(|hook| hook == *comm)
    }

    /// What became of the hook of a container that was asked to stop, or of one that is still to be.
    /// `missing`: why the pod's last update was not waited for.
    pub fn pre_stop(
        &self,
        name: &str,
        runs: &Runs,
        request: Option<&Request>,
        life: &Life,
        missing: Option<&str>,
    ) -> Option<PreStopRun> {
        let spec = self.spec(name)?;
        let hook = spec.pre_stop.clone()?;
        // Not asked to stop: no hook runs for one that ended by itself.
        let requested = life
            .stop
            .or(request.map(|request| request.latest).filter(|at| life.lives_at(*at)));
        requested?;
        let until = life.stop.or(life.end).unwrap_or(Boot(u64::MAX));
        let from = request.map_or(life.start, |request| request.earliest.max(life.start));
        let comm = exec_hook(spec).filter(|comm| !is_probed_by(spec, comm));
        // Without a request (a liveness kill) the whole life is looked at: a hook runs once.
        let run = comm.and_then(|comm| runs.only(&comm, life.start, from, until));
        let failed = self.events.iter().rev().find(|(at, event)| {
            let is_its = event.container.as_deref().is_none_or(|of| of == name);
            // The kubelet may say so only after the kill.
            let in_time = *at >= life.start && life.end.is_none_or(|end| *at <= end.plus(super::HOLD));
            event.reason == "FailedPreStopHook" && is_its && in_time
        });
        let failed = failed.map(|(_, event)| event.message.clone());
        let events_unknown = self
            .events_unknown(life)
            .or_else(|| self.events_unrequested(life, missing))
            .filter(|_| failed.is_none());
        let waited = (request.map(|request| request.latest), life.stop);
        Some(match run {
            Some(run) => PreStopRun {
                hook,
                begin: Some(run.at),
                end: run.end.map(|(at, _)| at).or(life.stop),
                status: run.end.map(|(_, status)| status),
                seen: true,
                failed,
                events_unknown,
            },
            None => PreStopRun {
                hook,
                begin: waited.0,
                end: waited.1,
                status: None,
                seen: false,
                failed,
                events_unknown,
            },
        })
    }

    /// Why nobody asked for its Events: they are asked for when a status shows the end.
    fn events_unrequested(&self, life: &Life, missing: Option<&str>) -> Option<String> {
        let was_told = self.names.get(&life.id).is_some_and(|named| named.reported.is_some());
        let was_asked = |end: Boot| self.events_state.as_ref().is_some_and(|(seen, _)| *seen >= end);
        if was_told || life.end.is_some_and(was_asked) {
            return None;
        }
        let why = match (&self.gone, missing) {
            (Some(_), _) => "the pod was gone before its status reported the exit",
            (None, Some(missing)) => missing,
            (None, None) => return None,
        };
        Some(format!("{why}, so the Events of the pod were not requested"))
    }
}

fn exec_hook(spec: &ContainerSpec) -> Option<Comm> {
    match spec.pre_stop.as_ref()? {
        PreStop::Exec { program } => Some(comm_of(program)),
        PreStop::HttpGet { .. } | PreStop::TcpSocket { .. } | PreStop::Sleep { .. } => None,
    }
}

/// A probe runs a program of the same name: hook and probe cannot be told apart.
fn is_probed_by(spec: &ContainerSpec, comm: &Comm) -> bool {
    let probes = [&spec.liveness, &spec.startup, &spec.readiness];
    let programs = probes
        .into_iter()
        .flatten()
        .filter_map(|KubeletProbe { kind, .. }| match kind {
            KubeletProbeKind::Exec { program } => Some(comm_of(program)),
            KubeletProbeKind::Network { .. } => None,
        });
    programs.into_iter().any(|of| of == *comm)
}

/// What the kernel calls a process of that program.
fn comm_of(program: &str) -> Comm {
    Comm::new(program.rsplit('/').next().unwrap_or(program))
}
