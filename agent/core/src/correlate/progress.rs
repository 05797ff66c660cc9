//! Which inputs are evidence of a termination in progress: an agent keeps these, and after its restart another core gets them again.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::attribute::{Attribution, Index, Subject};
use crate::event::{Event, Task};
use crate::ids::{CgroupId, Pid, PodUid};
use crate::input::{CgroupFact, Input};
use crate::time::Boot;

use super::Correlator;
use super::attribution::task_of;
use super::node::{FOLLOWED, RunningPod};
use super::subjects::SubjectEvent;

/// Most pods that are kept at the begin of a shutdown: one more than are followed shows that there are too many.
const INTRODUCED: usize = FOLLOWED + 1;

impl Correlator {
    /// Whether a shutdown of the node is in progress, as far as known.
    pub fn is_shutting_down(&self) -> bool {
        self.node.is_shutting_down()
    }

    /// The same, or a spoofed one.
    pub fn has_shutdown(&self) -> bool {
        self.node.is_open()
    }

    /// The number within the boot of the shutdown that is in progress, a spoofed one, too.
    pub fn shutdown_in_progress(&self) -> Option<u32> {
        self.node.ordinal()
    }

    /// Whether anything shows the node's shutdowns: then its last evidence counts.
    pub fn observes_node(&self) -> bool {
        self.node.is_active()
    }

    /// How long the kubelet's last phase lasts, in which critical pods end: their grace period at a shutdown of the node.
    pub fn last_phase(&self) -> Option<Duration> {
        self.node.last_phase()
    }

    /// Whether nothing else terminates any more in a shutdown of the node: its pods have ended, and their terminations are reported. The
    /// process is the agent's own, whose pod does not count.
    pub fn is_quiet(&self, agent: Pid) -> bool {
        let own = self.pod_of(agent);
        let runs = |of: &RunningPod| !of.cgroups.is_empty() && Some(&of.pod.cgroup_uid) != own.as_ref();
        let ends = || self.subjects.has_ending_pod(own.as_ref());
        let is_over = !self.node.is_open() || !self.running_pods().iter().flatten().any(runs) && !ends();
        is_over && !self.pods.has_held()
    }

    /// The UID in the names of the cgroups of the process's pod; None outside a pod.
    pub fn pod_of(&self, process: Pid) -> Option<PodUid> {
        match self.attribution.index().attribute_process(process) {
            Attribution::Subject(Subject::Container { pod, .. }, _) => pod,
            _ => None,
        }
    }

    /// Whether the event shows the node's shutdown: evidence without a subject.
    pub fn is_sign(&self, event: &Event) -> bool {
        self.node.is_news(event)
    }

    /// Inputs that make the pods that run known to another core, at the begin of a shutdown of the node.
    pub fn introduce_pods(&self) -> Vec<Input> {
        let Some(running) = self.pods.running() else {
            return self.introduce_kubelet();
        };
        let mut inputs = Vec::new();
        for pod in running.into_iter().take(INTRODUCED) {
            // Only its status shows what runs.
            if pod.is_unseen {
                inputs.extend(self.pods.fact(&pod.pod.uid).map(Input::Pod));
            }
            for own in pod.cgroups {
                inputs.extend(self.subjects.introduce(own, None, self.attribution.index()));
                inputs.extend(self.pods.fact_of(own).map(Input::Pod));
            }
        }
        for own in self.unknown_pods().take(INTRODUCED) {
            inputs.extend(self.subjects.introduce(own, None, self.attribution.index()));
        }
        inputs
    }

    /// Without Kubernetes: one container of a pod, which shows that a kubelet works here.
    fn introduce_kubelet(&self) -> Vec<Input> {
        let of_pod = |event: SubjectEvent| match event {
            SubjectEvent::Seen {
                own,
                subject: Subject::Container { pod: Some(_), .. },
                ..
            } => Some(self.subjects.introduce(own, None, self.attribution.index())),
            _ => None,
        };
        let shows = |inputs: &Vec<Input>| inputs.iter().any(|input| matches!(input, Input::Process(_)));
        let known = self.subjects.containers(self.now).into_iter();
        let shown = known.filter_map(of_pod).find(shows);
        let cgroup = || place(self.attribution.index(), self.node.pods_cgroup()?);
        shown.unwrap_or_else(|| cgroup().map(Input::Cgroup).into_iter().collect())
    }

    /// Whether facts of the subject are kept that its termination may need: the events of such a subject are evidence.
    pub fn has_facts(&self, own: CgroupId) -> bool {
        self.subjects.has_facts(own) || self.pods.is_ending(own)
    }

    /// Containers that run, of pods that the API has not shown.
    pub(super) fn unknown_pods(&self) -> impl Iterator<Item = CgroupId> {
        let is_shown = |own: &CgroupId| self.scan.as_ref().is_none_or(|scan| scan.has(*own));
        self.pods.unknown().filter(is_shown)
    }

    /// The pods with containers that run. After a gap without a scan, as in the evidence of an earlier run, those that were shown since: what
    /// ended in the gap nobody saw, such as the agent's predecessor.
    pub(super) fn running_pods(&self) -> Option<Vec<RunningPod>> {
        let mut running = self.pods.running()?;
        if let Some(scan) = &self.scan {
            for pod in &mut running {
                pod.cgroups.retain(|own| scan.has(*own));
            }
            running.retain(|pod| !pod.cgroups.is_empty() || pod.is_unseen);
        }
        for pod in &mut running {
            let may_be_over = |own: &&CgroupId| self.subjects.may_be_over(**own, &self.attribution);
            pod.perhaps_over = pod.cgroups.iter().filter(may_be_over).copied().collect();
        }
        Some(running)
    }

    /// Whether a termination of the subject is requested, in progress, or not reported yet.
    pub fn is_ending(&self, own: CgroupId) -> bool {
        self.subjects.is_ending(own) || self.pods.is_ending(own)
    }

    /// Whether the main process got a stop signal or has exited, and the termination is not assembled.
    #[cfg(test)]
    pub fn is_stopped(&self, own: CgroupId) -> bool {
        self.subjects.is_stopped(own)
    }

    /// Whether the event may decide the verdict: about the subject as a whole, or about a process that may be its main one.
    pub fn may_decide(&self, own: CgroupId, event: &Event) -> bool {
        match event {
            Event::ProcessExit(exit) => self.subjects.may_be_main(own, &exit.task),
            Event::ProcessExec(exec) => self.subjects.may_be_main(own, &exec.task),
            Event::SignalDeliver(deliver) => self.subjects.may_be_main(own, &deliver.task),
            event => !matches!(event, Event::Tcp(_)),
        }
    }

    /// Whether the pod is ending, or one of its containers is.
    pub fn is_pod_ending(&self, uid: &PodUid) -> bool {
        let ends = |own: CgroupId| self.subjects.is_ending(own);
        self.pods.is_pod_ending(uid, ends)
    }

    /// Inputs that make the subject, with what is known of it so far, and its pod known to another core, which gets this event, already taken
    /// here, next.
    pub fn introduce(&self, own: CgroupId, (at, event): (Boot, &Event)) -> Vec<Input> {
        let exited = match event {
            Event::ProcessExit(exit) => Some(exit.task.tgid),
            _ => None,
        };
        let mut inputs = self.subjects.introduce(own, exited, self.attribution.index());
        inputs.extend(self.subjects.earlier(own, (at, event)));
        inputs.extend(self.pod_fact(own));
        inputs
    }

    /// The pod of the subject, as it is known.
    pub fn pod_fact(&self, own: CgroupId) -> Option<Input> {
        self.pods.fact_of(own).map(Input::Pod)
    }

    /// The own cgroups of the subjects that are known.
    pub fn subjects(&self) -> Vec<CgroupId> {
        self.subjects.known()
    }

    /// Inputs that show another core that the subject exists, and its processes that may be the main one.
    pub fn show(&self, own: CgroupId) -> Vec<Input> {
        self.subjects.introduce(own, None, self.attribution.index())
    }

    /// The cgroups that an event names besides its subject's, with their paths: by them the role of a signal's sender is known.
    pub fn places_of(&self, event: &Event) -> Vec<CgroupFact> {
        places(self.attribution.index(), event)
    }
}

fn places(index: &Index, event: &Event) -> Vec<CgroupFact> {
    let of = |task: &Task| [Some(task.cgroup), task.v1_cgroup, task.container];
    let mut cgroups = BTreeSet::new();
    match event {
        Event::SignalGenerate(signal) => cgroups.extend(of(&signal.sender).into_iter().flatten()),
        Event::ProcessExec(exec) => cgroups.extend([Some(exec.parent_cgroup), exec.parent_v1_cgroup].into_iter().flatten()),
        Event::Tcp(tcp) => cgroups.extend(tcp.cgroup),
        Event::CgroupRmdir(removed) => cgroups.extend([removed.cgroup]),
        _ => {}
    }
    cgroups.extend(task_of(event).into_iter().flat_map(of).flatten());
    cgroups.into_iter().filter_map(|cgroup| place(index, cgroup)).collect()
}

fn place(index: &Index, cgroup: CgroupId) -> Option<CgroupFact> {
    let path = index.exact_path(cgroup)?.to_string();
    Some(CgroupFact {
        created: index.created_at(cgroup),
        ..CgroupFact::of(cgroup, Ok(path))
    })
}
