//! preStop hooks. An `exec` hook is a process that the runtime starts in the container between the deletion request and the stop
//! signal; other hooks have no process here, so their time is the wait for the stop signal.

use crate::correlate::subjects::ProcessId;
use crate::ids::{Comm, ContainerId};
use crate::kubernetes::{PreStopRun, Request};
use crate::pod::{ContainerSpec, KubeletProbe, KubeletProbeKind, PreStop};
use crate::termination::{OomKill, OomRole, TerminationFacts};
use crate::time::Boot;

use super::api::Api;
use super::life::Life;
use super::parts::Container;
use super::pod::Pod;
use super::runs::{Origin, Runs};
use crate::tolerances::{EVENT_SLACK, HOLD, HOOK_AFTER, LATE_REACH};

impl Pod {
    /// What the victims of OOM kills were, where they came into the container from outside.
    pub(super) fn name_victims(&self, facts: &mut TerminationFacts, id: &ContainerId) {
        let Some(container) = self.containers.iter().find(|of| of.cgroup == facts.key.cgroup) else {
            return;
        };
        let name = self.name_of(id);
        let main = facts.main.as_ref().map(|main| ProcessId {
            tgid: main.tgid,
            start: main.start,
            exact: true,
        });
        for oom in &mut facts.oom {
            oom.role = self.role_of(name, container, main, oom).unwrap_or(oom.role);
        }
    }

    /// See [`Pod::role_from_outside`].
    pub(super) fn role_of(
        &self,
        name: Option<&str>,
        container: &Container,
        main: Option<ProcessId>,
        oom: &OomKill,
    ) -> Option<OomRole> {
        let seen = self.object.deletion.map(|(_, seen)| seen);
        // A hook runs before the stop signal; the deletion may be seen later than the hook.
        let requested = container.stopped.into_iter().chain(seen).min();
        let since = requested.map(|at| at.minus(HOOK_AFTER));
        self.role_from_outside(name, (&container.runs, main), since, oom)
    }

    /// What the victim of an OOM kill was, if it came from outside or may have; `main`: the main process, which came from outside, too.
    fn role_from_outside(
        &self,
        name: Option<&str>,
        (runs, main): (&Runs, Option<ProcessId>),
        request: Option<Boot>,
        oom: &OomKill,
    ) -> Option<OomRole> {
        if oom.of_main || matches!(oom.role, OomRole::Main | OomRole::Runtime) {
            return None;
        }
        let (at, comm) = match runs.origin(oom, main)? {
            Origin::Outside { at, comm } => (at, comm),
            // What serves clients is the program's.
            Origin::Open => return (oom.role != OomRole::Worker).then_some(OomRole::Unattributed),
        };
        // A program that the spec names is run for that; a shell, by people as well.
        let Some(spec) = name.and_then(|name| self.spec(name)) else {
            return Some(OomRole::Outside);
        };
        let is_probe = is_probed_by(spec, &comm);
        let is_hook = exec_hook(spec).is_some_and(|hook| hook == comm) && request.is_some_and(|request| at >= request);
        Some(match (is_hook, is_probe) {
            (false, false) => OomRole::Session,
            (true, true) => OomRole::Outside,
            _ if comm.is_shell() => OomRole::Outside,
            (true, false) => OomRole::PreStop,
            (false, true) => OomRole::Probe,
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
        // The Event of a hook is not older than the hook, whose begin is not known without a request.
        let stopped = life.stop.or(life.end).map_or(start, |at| at.minus(LATE_REACH));
        let hook_from = request.map_or(stopped, |request| request.earliest).max(start);
        let comm = exec_hook(spec).filter(|comm| !is_probed_by(spec, comm));
        // Without a deletion request (a liveness kill) the whole life counts: a hook runs once.
        let run = comm.and_then(|comm| runs.only(&comm, start, from, until));
        let failed = self.events.list.iter().rev().find(|(at, event)| {
            let is_own = event.container.as_deref().is_none_or(|of| of == name);
            // The kubelet may report the failure only after the kill.
            let in_time = *at >= start && life.end.is_none_or(|end| *at <= end.plus(HOLD));
            event.reason == "FailedPreStopHook" && is_own && in_time
        });
        let failed = failed.map(|(_, event)| event.message.clone());
        let events_unknown = self
            .events_unknown(life, api)
            .or_else(|| self.events_unrequested(life, missing))
            .or_else(|| self.events_lost(api, hook_from, until))
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

    /// Why the kubelet may have given up the Event of a hook between the two, although all Events that exist were listed.
    fn events_lost(&self, api: &Api, from: Boot, until: Boot) -> Option<String> {
        let (seen, _) = self.events.state.as_ref()?;
        let may_lack = api.may_lack_events(from, until.plus(EVENT_SLACK), *seen);
        may_lack.then(|| "the Kubernetes API did not answer for so long that the kubelet may have given up an Event".to_owned())
    }

    /// Why the Events were not requested: the request follows a status that shows the exit.
    fn events_unrequested(&self, life: &Life, missing: Option<&str>) -> Option<String> {
        let is_reported = self.is_reported(&life.id);
        let was_asked = |end: Boot| self.events.state.as_ref().is_some_and(|(seen, _)| *seen >= end);
        if is_reported || life.end.is_some_and(was_asked) {
            return None;
        }
        let why = match (&self.object.gone, missing) {
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
