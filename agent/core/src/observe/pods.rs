//! The pods of the cluster, a small record each.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::contact::Seen;
use super::{Moment, ObserverDropReason, Output, Owner, PodDetails, PodRun, PodSight};
use crate::ids::PodUid;
use crate::pod::PodIdentity;
use crate::time::Boot;
use crate::tolerances::POD_KEPT;

#[derive(Debug, Default)]
pub(super) struct ClusterPods {
    most: usize,
    known: HashMap<PodUid, Record>,
    gone: VecDeque<(Boot, PodUid)>,
    /// Number of an owner's pods that have not terminated.
    live: HashMap<Arc<str>, usize>,
    /// Pods in the list in progress.
    listed: Option<HashSet<PodUid>>,
    /// Namespaces with `epitaph.dev/ignore`.
    pub(super) ignored: HashSet<String>,
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) identity: Arc<PodIdentity>,
    pub(super) owner: Option<Owner>,
    pub(super) completion_index: Option<Box<str>>,
    pub(super) created: Seen,
    pub(super) scheduled: Option<Moment>,
    pub(super) ready: Option<Moment>,
    /// Deleting, failed, succeeded or gone: the first of these.
    pub(super) ended: Option<Moment>,
    pub(super) succeeded: bool,
    gone: bool,
    /// By the last status; `started`: by the begin of the termination, as later statuses can be about earlier exits.
    pub(super) run: PodRun,
    ignored: Option<bool>,
    pub(super) outlasts: bool,
    /// None for the many pods without any of this.
    details: Option<Box<PodDetails>>,
}

const NO_DETAILS: &PodDetails = &PodDetails {
    deletion: None,
    finalizers: Vec::new(),
    claims: Vec::new(),
    agent: None,
};

impl Record {
    pub(super) fn details(&self) -> &PodDetails {
        self.details.as_deref().unwrap_or(NO_DETAILS)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    pub(super) fn is_being_deleted(&self) -> bool {
        !self.gone && self.details().deletion.is_some()
    }

    /// A pod that ends while it is being deleted waits for its kubelet's last deletion request, whose grace period is 0. A pod that had
    /// ended before has that grace period from the API server.
    pub(super) fn is_held_by_finalizer(&self) -> bool {
        let details = self.details();
        details.deletion.is_some_and(|deletion| deletion.grace.is_zero()) && !details.finalizers.is_empty()
    }

    /// A kubelet has run the pod, and the pod waits for that kubelet: no node has room for more than a few hundred of these.
    pub(super) fn is_of_kubelet(&self) -> bool {
        self.run.has_run && !self.is_held_by_finalizer()
    }
}

/// What one version of a pod changed.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) uid: PodUid,
    pub(super) seen: Seen,
    pub(super) is_new: bool,
    /// The pod has a node from now on.
    pub(super) is_scheduled: bool,
    /// The pod's termination begins.
    pub(super) ends: bool,
    pub(super) is_gone: bool,
    /// The owner's pods that have not terminated, without this pod.
    pub(super) others: usize,
}

impl ClusterPods {
    pub(super) fn new(most: usize) -> ClusterPods {
        ClusterPods {
            most,
            ..ClusterPods::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn get(&self, uid: &PodUid) -> Option<&Record> {
        self.known.get(uid)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&PodUid, &Record)> {
        self.known.iter()
    }

    /// Opted out: by the pod's own annotation, otherwise by the namespace's.
    pub(super) fn is_ignored(&self, record: &Record) -> bool {
        record
            .ignored
            .unwrap_or_else(|| self.ignored.contains(&record.identity.namespace))
    }

    /// An agent reports the pod's termination, so there is a trace to add to.
    pub(super) fn has_trace(&self, record: &Record) -> bool {
        record.run.started && self.may_be_lost(record)
    }

    /// The loss of its node can be reported: the pod has not opted out, and no file of the node's own defines it.
    pub(super) fn may_be_lost(&self, record: &Record) -> bool {
        !self.is_ignored(record) && !record.identity.is_static
    }

    pub(super) fn apply(&mut self, sight: PodSight, seen: Seen, out: &mut Vec<Output>) -> Option<Step> {
        let uid = sight.identity.uid.clone();
        if let Some(listed) = &mut self.listed {
            listed.insert(uid.clone());
        }
        let is_new = !self.known.contains_key(&uid);
        if is_new && self.known.len() >= self.most {
            out.push(Output::dropped(ObserverDropReason::PodCap));
            return None;
        }
        let record = self.known.entry(uid.clone()).or_insert_with(|| Record {
            identity: sight.identity.clone(),
            owner: sight.owner.clone(),
            completion_index: sight.completion_index.clone(),
            created: seen,
            scheduled: None,
            ready: None,
            ended: None,
            succeeded: false,
            gone: false,
            run: PodRun::default(),
            ignored: None,
            outlasts: sight.outlasts,
            details: None,
        });
        let is_scheduled = sight.scheduled && record.scheduled.is_none();
        if is_scheduled {
            record.scheduled = Some(seen.moment());
        }
        if sight.ready {
            record.ready.get_or_insert(seen.moment());
        }
        let ends = sight.ends() && record.ended.is_none();
        record.run = PodRun {
            started: if record.ended.is_none() {
                sight.run.started
            } else {
                record.run.started
            },
            has_run: record.run.has_run || sight.run.has_run,
            ..sight.run
        };
        if ends {
            record.ended = Some(seen.moment());
        }
        record.succeeded |= sight.run.succeeded;
        record.ignored = sight.ignored;
        record.outlasts = sight.outlasts;
        record.details = (sight.details != *NO_DETAILS).then(|| Box::new(sight.details));
        record.identity = sight.identity;
        let owner = record.owner.as_ref().map(|owner| owner.uid.clone());
        let is_live = record.ended.is_none();
        if is_new && is_live {
            self.count_live(owner.as_ref(), 1);
        } else if !is_new && ends {
            self.count_live(owner.as_ref(), -1);
        }
        let others = self.live(owner.as_ref()) - usize::from(is_live && owner.is_some());
        Some(Step {
            uid,
            seen,
            is_new,
            is_scheduled,
            ends,
            is_gone: false,
            others,
        })
    }

    pub(super) fn gone(&mut self, uid: &PodUid, seen: Seen) -> Option<Step> {
        let record = self.known.get_mut(uid).filter(|record| !record.gone)?;
        record.gone = true;
        let ends = record.ended.is_none();
        record.ended.get_or_insert(seen.moment());
        let owner = record.owner.as_ref().map(|owner| owner.uid.clone());
        if ends {
            self.count_live(owner.as_ref(), -1);
        }
        self.gone.push_back((seen.moment().at, uid.clone()));
        Some(Step {
            uid: uid.clone(),
            seen,
            is_new: false,
            is_scheduled: false,
            ends,
            is_gone: true,
            others: self.live(owner.as_ref()),
        })
    }

    pub(super) fn list_begin(&mut self) {
        self.listed = Some(HashSet::new());
    }

    /// Pods that are not in the list are gone.
    pub(super) fn list_end(&mut self, seen: Seen) -> Vec<Step> {
        let listed = self.listed.take().unwrap_or_default();
        let mut lacking: Vec<PodUid> = self.known.keys().filter(|uid| !listed.contains(*uid)).cloned().collect();
        lacking.sort();
        lacking.iter().filter_map(|uid| self.gone(uid, seen)).collect()
    }

    pub(super) fn forget(&mut self, now: Boot) {
        while let Some((at, uid)) = self.gone.front() {
            if now.since(*at) <= POD_KEPT {
                break;
            }
            self.known.remove(uid);
            self.gone.pop_front();
        }
    }

    fn live(&self, owner: Option<&Arc<str>>) -> usize {
        owner.and_then(|owner| self.live.get(owner)).copied().unwrap_or(0)
    }

    fn count_live(&mut self, owner: Option<&Arc<str>>, by: isize) {
        let Some(owner) = owner else { return };
        let count = self.live.entry(owner.clone()).or_default();
        *count = count.saturating_add_signed(by);
        if *count == 0 {
            self.live.remove(owner);
        }
    }
}
