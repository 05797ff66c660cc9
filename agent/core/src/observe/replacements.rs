//! Which pod replaced a terminated pod: one for one, by rules of the controllers, and none if two are possible.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::pods::{ClusterPods, Record, Step};
use super::{Moment, ObserverDropReason, Output, Replacement, Rule};
use crate::ids::PodUid;
use crate::pod::PodIdentity;
use crate::time::Boot;
use crate::tolerances::{READY_WITHIN, REPLACED_AFTER_GONE, REPLACED_AT_ONCE, VACANCIES_CHECKED};

const DROPPED: Output = Output::dropped(ObserverDropReason::VacancyCap);

#[derive(Debug, Default)]
pub(super) struct Replacements {
    most: usize,
    /// By the owner's UID, in the order of the terminations.
    vacancies: HashMap<Arc<str>, VecDeque<Vacancy>>,
    open: usize,
    /// Created, and not ready yet.
    coming: HashMap<PodUid, Coming>,
    checked: Option<Boot>,
}

#[derive(Debug)]
struct Vacancy {
    uid: PodUid,
    pod: Arc<PodIdentity>,
    root: Root,
    completion_index: Option<Box<str>>,
    /// See [`Record::is_of_kubelet`].
    is_of_kubelet: bool,
    /// The controller may have created the replacement before the termination was observed.
    is_unsure: bool,
    was_alone: bool,
    at_once: bool,
    opened: Boot,
    gone: Option<Boot>,
}

/// What a replacement's span can be below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    /// No root: the pod opted out.
    Never,
    /// An agent exports the pod's root.
    OfAgent,
    /// No agent exports a root: only a lost node's pod has one.
    OfLostNode,
}

impl Vacancy {
    fn is_over(&self, now: Boot) -> bool {
        if self.at_once {
            now.since(self.opened) > REPLACED_AT_ONCE
        } else {
            self.gone.is_some_and(|gone| now.since(gone) > REPLACED_AFTER_GONE)
        }
    }
}

#[derive(Debug)]
struct Coming {
    pod: Arc<PodIdentity>,
    rule: Rule,
    created: Moment,
    root: Root,
    has_started: bool,
}

impl Replacements {
    pub(super) fn new(most: usize) -> Replacements {
        Replacements {
            most,
            ..Replacements::default()
        }
    }

    pub(super) fn step(&mut self, step: &Step, pods: &ClusterPods, out: &mut Vec<Output>) {
        let Some(record) = pods.get(&step.uid) else { return };
        if (step.is_new || step.is_scheduled) && !step.seen.is_at_start() {
            self.fill(step, record);
        }
        if step.ends {
            let root = match (pods.has_trace(record), pods.may_be_lost(record)) {
                (true, _) => Root::OfAgent,
                (false, true) => Root::OfLostNode,
                (false, false) => Root::Never,
            };
            self.open(step, record, root, out);
        }
        if step.is_gone {
            let queue = record.owner.as_ref().and_then(|owner| self.vacancies.get_mut(&owner.uid));
            let vacancy = queue.and_then(|queue| queue.iter_mut().find(|vacancy| vacancy.uid == step.uid));
            if let Some(vacancy) = vacancy {
                vacancy.gone = Some(step.seen.moment().at);
            }
        } else if !step.ends && record.is_held_by_finalizer() {
            self.held_by_finalizer(step, record, out);
        }
    }

    /// A replacement's first container runs: the pod that is replaced, the replacement, and the time.
    pub(super) fn started(&mut self, step: &Step, pods: &ClusterPods) -> Option<(Arc<PodIdentity>, Arc<PodIdentity>, Moment)> {
        let record = pods.get(&step.uid).filter(|record| record.run.started)?;
        let coming = self.coming.get_mut(&step.uid).filter(|coming| !coming.has_started)?;
        coming.has_started = true;
        Some((coming.pod.clone(), record.identity.clone(), step.seen.moment()))
    }

    /// A replacement is ready, or never will be. `is_lost`: the replaced pod's root is the observer's own.
    pub(super) fn settle(
        &mut self,
        step: &Step,
        pods: &ClusterPods,
        is_lost: impl FnOnce(&PodIdentity) -> bool,
        out: &mut Vec<Output>,
    ) {
        let Some(record) = pods.get(&step.uid) else { return };
        let settled = record.ready.is_some() || record.ended.is_some();
        if settled && let Some(coming) = self.coming.remove(&step.uid) {
            let end = record.ready.unwrap_or(step.seen.moment());
            out.extend(replacement(coming, record, end, is_lost));
        }
    }

    /// Drops waits that have expired. `is_lost`: as in [`Replacements::settle`].
    pub(super) fn finish(
        &mut self,
        now: Boot,
        pods: &ClusterPods,
        mut is_lost: impl FnMut(&PodIdentity) -> bool,
        out: &mut Vec<Output>,
    ) {
        if self.checked.is_some_and(|checked| now.since(checked) < VACANCIES_CHECKED) {
            return;
        }
        self.checked = Some(now);
        for queue in self.vacancies.values_mut() {
            queue.retain(|vacancy| !vacancy.is_over(now));
        }
        self.vacancies.retain(|_, queue| !queue.is_empty());
        self.open = self.vacancies.values().map(VecDeque::len).sum();
        let late = self
            .coming
            .extract_if(|_, coming| now.since(coming.created.at) > READY_WITHIN);
        let mut late: Vec<_> = late.collect();
        late.sort_by(|a, b| a.0.cmp(&b.0));
        for (uid, coming) in late {
            if let Some(record) = pods.get(&uid) {
                out.extend(replacement(coming, record, Moment::exact(now), &mut is_lost));
            }
        }
    }

    fn open(&mut self, step: &Step, record: &Record, root: Root, out: &mut Vec<Output>) {
        let Some(owner) = &record.owner else { return };
        let at_once = match &*owner.kind {
            "ReplicaSet" | "ReplicationController" => true,
            "StatefulSet" | "DaemonSet" => false,
            "Job" if !record.succeeded => false,
            _ => return,
        };
        // Half of the room is kept for pods that their kubelets end: anybody can name an owner in a pod that never runs, or that stays
        // after it has finished.
        let stays = !at_once && record.run.is_finished() && record.details().deletion.is_none();
        let is_of_kubelet = record.is_of_kubelet() && !stays;
        if self.open >= if is_of_kubelet { self.most } else { self.most / 2 } {
            out.push(DROPPED);
            return;
        }
        self.open += 1;
        self.vacancies.entry(owner.uid.clone()).or_default().push_back(Vacancy {
            uid: step.uid.clone(),
            pod: record.identity.clone(),
            root,
            completion_index: record.completion_index.clone(),
            is_of_kubelet,
            is_unsure: !step.seen.is_in_order(),
            was_alone: step.others == 0,
            at_once,
            opened: step.seen.moment().at,
            gone: None,
        });
    }

    /// The kubelet is done, and a finalizer can keep the pod for ever.
    fn held_by_finalizer(&mut self, step: &Step, record: &Record, out: &mut Vec<Output>) {
        let Some(queue) = record.owner.as_ref().and_then(|owner| self.vacancies.get_mut(&owner.uid)) else {
            return;
        };
        let is_its = |vacancy: &Vacancy| vacancy.uid == step.uid && vacancy.is_of_kubelet;
        let Some(at) = queue.iter().position(is_its) else { return };
        if self.open > self.most / 2 {
            queue.remove(at);
            self.open -= 1;
            out.push(DROPPED);
        } else {
            queue[at].is_of_kubelet = false;
        }
    }

    /// A pod was created, or got its node: it fills at most one vacancy.
    fn fill(&mut self, step: &Step, record: &Record) {
        let Some(owner) = &record.owner else { return };
        let Some(queue) = self.vacancies.get_mut(&owner.uid) else {
            return;
        };
        let now = step.seen.moment().at;
        queue.retain(|vacancy| !vacancy.is_over(now));
        let of = |what: &dyn Fn(&Vacancy) -> bool| queue.iter().position(what);
        let found = match (&*owner.kind, &record.completion_index) {
            ("ReplicaSet" | "ReplicationController", _) if step.is_new => {
                if !step.seen.is_in_order() || queue.iter().any(|vacancy| vacancy.is_unsure) {
                    queue.clear();
                    return;
                }
                of(&|_| true).zip(Some(Rule::NextOfReplicaSet))
            }
            ("StatefulSet", _) if step.is_new => {
                of(&|vacancy| vacancy.pod.name == record.identity.name).zip(Some(Rule::NameInStatefulSet))
            }
            ("DaemonSet", _) if step.is_scheduled => {
                let made_after = |vacancy: &Vacancy| vacancy.opened <= record.created.moment().at;
                of(&|vacancy| vacancy.pod.node == record.identity.node && made_after(vacancy)).zip(Some(Rule::NodeOfDaemonSet))
            }
            ("Job", Some(index)) if step.is_new => {
                of(&|vacancy| vacancy.completion_index.as_ref() == Some(index)).zip(Some(Rule::IndexInJob))
            }
            ("Job", None) if step.is_new && step.seen.is_in_order() => {
                let alone = step.others == 0 && queue.len() == 1;
                of(&|vacancy| alone && vacancy.was_alone && !vacancy.is_unsure).zip(Some(Rule::NextOfJob))
            }
            _ => None,
        };
        let Some((vacancy, rule)) = found.and_then(|(at, rule)| queue.remove(at).zip(Some(rule))) else {
            return;
        };
        // The trace of a pod that terminated before the observation began may already have a replacement.
        if vacancy.root != Root::Never && !vacancy.is_unsure {
            let coming = Coming {
                pod: vacancy.pod,
                rule,
                created: record.created.moment(),
                root: vacancy.root,
                has_started: false,
            };
            self.coming.insert(step.uid.clone(), coming);
        }
    }
}

/// None if no root would be above the span.
fn replacement(coming: Coming, record: &Record, end: Moment, is_lost: impl FnOnce(&PodIdentity) -> bool) -> Option<Output> {
    let Coming {
        pod,
        rule,
        created,
        root,
        ..
    } = coming;
    let is_of_lost_node = is_lost(&pod);
    (is_of_lost_node || root == Root::OfAgent).then(|| {
        Output::Replacement(Box::new(Replacement {
            pod,
            by: record.identity.clone(),
            rule,
            created,
            scheduled: record.scheduled,
            attached: None,
            ready: record.ready,
            end,
            api_clock: None,
            is_of_lost_node,
        }))
    })
}
