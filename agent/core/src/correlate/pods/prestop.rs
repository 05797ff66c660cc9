//! preStop hooks. An `exec` hook is a process that the runtime starts in the container between the deletion request and the stop
//! signal; other hooks have no process here, so their time is the wait for the stop signal.

use crate::ids::Comm;
use crate::kubernetes::{PreStopRun, Request};
use crate::pod::{ContainerSpec, KubeletProbe, KubeletProbeKind, PreStop};
use crate::termination::{OomKill, OomRole};
use crate::time::Boot;

use super::api::Api;
use super::life::Life;
use super::pod::Pod;
use super::runs::Runs;
use crate::tolerances::HOLD;

impl Pod {
    /// What the victim of an OOM kill was, if it came from outside.
    pub fn role_from_outside(&self, name: Option<&str>, runs: &Runs, request: Option<Boot>, oom: &OomKill) -> Option<OomRole> {
        if oom.of_main || matches!(oom.role, OomRole::Main | OomRole::Runtime) {
            return None;
        }
        let (at, comm) = runs.origin(oom)?;
        let spec = name.and_then(|name| self.spec(name));
        let is_probe = spec.is_some_and(|spec| is_probed_by(spec, &comm));
        let is_hook = spec.and_then(exec_hook).is_some_and(|hook| hook == comm) && request.is_some_and(|request| at >= request);
        Some(match (is_hook, is_probe) {
            (true, false) => OomRole::PreStop,
            (_, true) => OomRole::Probe,
            (false, false) => OomRole::Session,
        })
    }

    /// Whether a process of that name may be a hook of the pod.
    pub fn may_be_hook(&self, comm: &Comm) -> bool {
        let Some(fact) = &self.fact else { return true };
        fact.spec.containers.iter().filter_map(exec_hook).any(|hook| hook == *comm)
    }

    /// The result of the hook of a container that got a stop signal, or will get one.
    /// `missing`: why there was no wait for the pod's last update.
    pub fn pre_stop(
        &self,
        name: &str,
        runs: &Runs,
        request: Option<&Request>,
        (life, api): (&Life, &Api),
        missing: Option<&str>,
    ) -> Option<PreStopRun> {
        let spec = self.spec(name)?;
        let hook = spec.pre_stop.clone()?;
        // Without a stop request no hook runs.
        let requested = life
            .stop
            .or(request.map(|request| request.latest).filter(|at| life.lives_at(*at)));
        requested?;
        let until = life.stop.or(life.end).unwrap_or(Boot(u64::MAX));
        let start = life.start.unwrap_or_default();
        let from = request.map_or(start, |request| request.earliest.max(start));
        let comm = exec_hook(spec).filter(|comm| !is_probed_by(spec, comm));
        // Without a deletion request (a liveness kill) the whole life counts: a hook runs once.
        let run = comm.and_then(|comm| runs.only(&comm, start, from, until));
        let failed = self.events.iter().rev().find(|(at, event)| {
            let is_own = event.container.as_deref().is_none_or(|of| of == name);
            // The kubelet may report the failure only after the kill.
            let in_time = *at >= start && life.end.is_none_or(|end| *at <= end.plus(HOLD));
            event.reason == "FailedPreStopHook" && is_own && in_time
        });
        let failed = failed.map(|(_, event)| event.message.clone());
        let events_unknown = self
            .events_unknown(life, api)
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

    /// Why the Events were not requested: the request follows a status that shows the exit.
    fn events_unrequested(&self, life: &Life, missing: Option<&str>) -> Option<String> {
        let is_reported = self.names.get(&life.id).is_some_and(|named| named.reported.is_some());
        let was_asked = |end: Boot| self.events_state.as_ref().is_some_and(|(seen, _)| *seen >= end);
        if is_reported || life.end.is_some_and(was_asked) {
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

/// A probe runs a program of the same name: hook and probe cannot be distinguished.
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

/// The kernel's name of a process of that program.
fn comm_of(program: &str) -> Comm {
    Comm::new(program.rsplit('/').next().unwrap_or(program))
}
