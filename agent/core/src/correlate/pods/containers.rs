//! The kernel's facts of pods' containers: that they run, the runtime's signals, and terminations, which are held.

use crate::attribute::Subject;
use crate::event::ExitStatus;
use crate::ids::{CgroupId, Comm, PodUid};
use crate::kubernetes::EarlierOom;
use crate::report::{Report, StopSignalIgnored};
use crate::termination::{OomKill, OomRole, Role, TerminationFacts};
use crate::time::Boot;

use super::life::{Life, was_stopped};
use super::parts::{Container, Held};
use super::pod::{CONTAINERS, Pod};
use super::runs::Runs;
use super::{FromPods, Pods};
use crate::correlate::subjects::{ProcessId, SubjectEvent};

impl Pods {
    /// Takes a subject's event: terminations of pods' containers are held, the rest is reported at once.
    pub fn take(&mut self, now: Boot, event: SubjectEvent, out: &mut FromPods) {
        match event {
            SubjectEvent::Seen { own, subject, start } => {
                if self.active && self.container(now, own, &subject, start, out) {
                    out.requested.push(own);
                }
            }
            SubjectEvent::CameIn { at, own, process, comm } => self.came_in(at, own, process, comm),
            SubjectEvent::Exited {
                at,
                own,
                process,
                status,
            } => self.exited(at, own, process, status),
            SubjectEvent::StopSent { at, own, .. } => self.stop_sent(at, own, now),
            SubjectEvent::Removed { at, cgroup } => self.removed(at, cgroup, now),
            SubjectEvent::CountsUntil { own, until } => self.counts_until(own, until, now),
            SubjectEvent::StopIgnored(early) => out.reports.extend(self.early(now, early).map(Report::StopSignalIgnored)),
            SubjectEvent::ChildOomKilled {
                subject,
                container,
                main,
                mut oom,
            } => {
                self.note_oom(&subject, main, &oom);
                oom.role = self.role_of(&subject, main, &oom).unwrap_or(oom.role);
                if self.is_ignored(&subject) {
                    self.opted_out += 1;
                } else {
                    out.reports.push(Report::ChildOomKilled { subject, container, oom });
                }
            }
            SubjectEvent::Ended(facts) => self.ended(now, facts, out),
            SubjectEvent::Watched(_) | SubjectEvent::Unwatched(_) => {}
        }
    }

    /// What the victim of an OOM kill was, if it came into a pod's container from outside.
    fn role_of(&self, subject: &Subject, main: Option<ProcessId>, oom: &OomKill) -> Option<OomRole> {
        let Subject::Container { id, pod: path_uid, .. } = subject else {
            return None;
        };
        let pod = self.pods.get(self.ids.get(id).or(path_uid.as_ref())?)?;
        let container = pod.containers.iter().find(|of| of.id == *id)?;
        pod.role_of(pod.name_of(id), container, main, oom)
    }

    /// The pod's status keeps its mark until the container ends, whatever the victim was.
    fn note_oom(&mut self, subject: &Subject, main: Option<ProcessId>, oom: &OomKill) {
        let Subject::Container { id, pod: path_uid, .. } = subject else {
            return;
        };
        let key = self.ids.get(id).or(path_uid.as_ref());
        let pod = key.cloned().and_then(|key| self.pods.get_mut(&key));
        let container = pod.and_then(|pod| pod.containers.iter_mut().find(|of| of.id == *id));
        if let Some(container) = container {
            container.runs.keep_victim(oom, main);
            container.last_oom = Some(EarlierOom {
                at: oom.at,
                comm: oom.comm,
            });
        }
    }

    /// A container that the kernel shows. True if its pod is already being deleted.
    fn container(&mut self, now: Boot, own: CgroupId, subject: &Subject, start: Boot, out: &mut FromPods) -> bool {
        let Subject::Container { id, pod: path_uid, .. } = subject else {
            return false;
        };
        if let Some(key) = self.homes.get(&own) {
            if let Some(known) = self.pods.get_mut(key).and_then(|pod| pod.container(own)) {
                known.start = known.start.min(start);
            }
            return false;
        }
        let Some(key) = self.ids.get(id).or(path_uid.as_ref()).cloned() else {
            return false;
        };
        // A second cgroup with the id of a pod's container, in no pod: a name that any container or user may give.
        let is_known = |pod: &Pod| pod.containers.iter().any(|of| of.id == *id);
        if path_uid.is_none() && self.pods.get(&key).is_some_and(is_known) {
            self.forged += 1;
            return false;
        }
        self.make_room(&key, now, out);
        let pod = self.pods.entry(key.clone()).or_insert_with(|| Pod::new(key.clone(), now));
        pod.touched = now;
        if pod.containers.len() >= CONTAINERS {
            // Terminated containers are kept only to place the others; a running container is not dropped for them.
            let is_idle = |of: &Container| of.ended.is_some() || of.removed.is_some();
            let Some(i) = pod.containers.iter().position(is_idle) else {
                self.dropped += 1;
                return false;
            };
            let old = pod.containers.swap_remove(i);
            self.homes.remove(&old.cgroup);
        }
        pod.containers.push(Container {
            id: id.clone(),
            cgroup: own,
            path_uid: path_uid.clone(),
            start,
            ended: None,
            ended_earliest: None,
            removed: None,
            counted_until: None,
            stopped: None,
            own_stop: None,
            last_oom: None,
            was_overdue: false,
            is_sandbox: false,
            runs: Runs::default(),
        });
        let is_requested = pod.is_requested();
        self.homes.insert(own, key.clone());
        self.name_stops(&key, out);
        self.schedule(&key, now);
        self.fit(now, out);
        is_requested
    }

    /// The stop signals of containers that run, once each.
    pub(super) fn name_stops(&mut self, key: &PodUid, out: &mut FromPods) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        for of in pod.containers.iter_mut().filter(|of| of.runs()) {
            let named = pod.names.get(&of.id).and_then(|named| named.stop_signal);
            if let Some(signal) = named.filter(|_| of.own_stop != named) {
                of.own_stop = named;
                out.own_stops.push((of.cgroup, signal));
            }
        }
    }

    /// A process came into a container from outside.
    fn came_in(&mut self, at: Boot, own: CgroupId, process: ProcessId, comm: Comm) {
        let Some(pod) = self.homes.get(&own).and_then(|key| self.pods.get_mut(key)) else {
            return;
        };
        let is_hook = pod.may_be_hook(&comm);
        if let Some(container) = pod.container(own) {
            container.runs.exec(at, process, comm, is_hook);
        }
    }

    fn exited(&mut self, at: Boot, own: CgroupId, process: ProcessId, status: ExitStatus) {
        if let Some(container) = self.of_home(own) {
            container.runs.exit(at, process, status);
        }
    }

    /// The runtime sent the main process a stop signal.
    fn stop_sent(&mut self, at: Boot, own: CgroupId, now: Boot) {
        let Some(key) = self.homes.get(&own).cloned() else { return };
        if let Some(container) = self.of_home(own) {
            container.stopped = Some(container.stopped.map_or(at, |known| known.min(at)));
        }
        self.schedule(&key, now);
    }

    /// The cgroup is gone: nothing runs in it.
    fn removed(&mut self, at: Boot, own: CgroupId, now: Boot) {
        let Some(key) = self.homes.get(&own).cloned() else { return };
        if let Some(container) = self.of_home(own) {
            container.removed = Some(at);
        }
        self.schedule(&key, now);
    }

    /// The container has exited, but clients' errors still count: its termination is reported later.
    fn counts_until(&mut self, own: CgroupId, until: Boot, now: Boot) {
        let Some(key) = self.homes.get(&own).cloned() else { return };
        if let Some(container) = self.of_home(own) {
            container.counted_until = Some(until);
        }
        self.schedule(&key, now);
    }

    fn ended(&mut self, now: Boot, facts: Box<TerminationFacts>, out: &mut FromPods) {
        let own = facts.key.cgroup;
        let Subject::Container { id, .. } = facts.subject.clone() else {
            return out.reports.push(self.at_once(*facts));
        };
        if !self.active {
            // The runtime kills the sandbox of every pod that terminates: nothing is wrong with it.
            if !(facts.is_sandbox() && was_stopped(&facts)) {
                let is_of_pod = matches!(facts.subject, Subject::Container { pod: Some(_), .. });
                let facts = match is_of_pod {
                    true => self.api.with_pod_hidden(*facts),
                    false => *facts,
                };
                out.reports.push(self.at_once(facts));
            }
            return;
        }
        let start = facts.main.as_ref().map_or(facts.begin, |main| main.start);
        self.container(now, own, &facts.subject, start, out);
        let key = self.homes.get(&own).cloned();
        let Some((key, pod)) = key.and_then(|key| Some((key.clone(), self.pods.get_mut(&key)?))) else {
            return out.reports.push(self.at_once(*facts));
        };
        pod.touched = now;
        if let Some(container) = pod.container(own) {
            container.ended = Some(container.ended.map_or(facts.end, |end| end.min(facts.end)));
            container.ended_earliest.get_or_insert(facts.earliest_end());
        }
        // A container can create a cgroup with its own id; a runtime never creates two.
        if pod.is_forged(own) {
            self.forged += 1;
            self.schedule(&key, now);
            return;
        }
        // A container terminates once. Processes left behind are not another termination.
        if let Some(i) = pod.held.iter().position(|held| held.id == id && held.facts.key.cgroup == own) {
            let first = pod.held.remove(i);
            let facts = first.facts.with_leftover();
            pod.held.insert(i, Held { facts, ..first });
            return;
        }
        if pod.reported_ids.contains(&(id.clone(), own)) {
            return;
        }
        pod.held.push(Held {
            // Not `now`: a recording has no tick without an effect.
            since: facts.end.plus(self.limits.linger),
            facts: *facts,
            asked: None,
            of_ending_pod: false,
            id,
        });
        self.held += 1;
        while self.held > self.limits.held {
            self.release_oldest(
                "too many terminations waited for the Kubernetes API at the same time",
                now,
                out,
            );
        }
        self.request_events(&key, now, out);
        self.schedule(&key, now);
        self.fit(now, out);
    }

    /// An early warning, with the facts so far; None for a pod with `epitaph.dev/ignore`.
    fn early(&mut self, now: Boot, mut early: Box<StopSignalIgnored>) -> Option<Box<StopSignalIgnored>> {
        let own = early.key.cgroup;
        early.sender.pod = self.container_at(&early.sender.place);
        let Subject::Container { id, .. } = &early.subject else {
            return Some(early);
        };
        let Some(pod) = self.at(own) else {
            return Some(early);
        };
        if pod.is_ignored() {
            self.opted_out += 1;
            return None;
        }
        let by_runtime = early.sender.role == Role::Runtime;
        let life = Life {
            id: id.clone(),
            cgroup: own,
            start: early.main.as_ref().map(|main| main.start),
            stop: by_runtime.then_some(early.at),
            hidden_stops: Vec::new(),
            stop_requested: by_runtime,
            end: None,
            end_earliest: None,
            code: None,
            shutdown: None,
        };
        early.kubernetes = pod.context(&self.api, &life, None, now);
        if let Some(context) = early.kubernetes.as_deref().filter(|_| by_runtime) {
            early.grace_left = context.grace_end(Some(early.at)).map(|end| end.since(early.at));
        }
        Some(early)
    }
}
