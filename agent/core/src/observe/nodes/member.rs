//! A pod of a lost node: what holds it, and whether the loss ended it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::report::{Holder, NAMED, Stuck};
use crate::ids::PodUid;
use crate::observe::pods::Record;
use crate::observe::{DeletionSight, Moment};
use crate::pod::PodIdentity;
use crate::time::Boot;
use crate::tolerances::HELD_SLACK;

/// Most changes of what holds a pod.
const MOST_HELD: usize = 8;

/// A pod of a lost node.
#[derive(Debug)]
pub(super) struct Member {
    pub pod: Arc<PodIdentity>,
    pub owner: OwnerKind,
    /// No eviction ends it.
    pub stays: bool,
    pub ran: Ran,
    pub claims: Vec<Box<str>>,
    pub requested: Option<(Moment, DeletionSight)>,
    pub held: Vec<Stuck>,
    current: Option<(Holder, Vec<Box<str>>, Moment)>,
    pub gone: Option<Gone>,
    /// Its grace period was over when the loss began: its runtime holds it, unless the node falls silent.
    pub is_overdue: bool,
    /// Since when no process on the node counts the grace period: kubelet and agent are silent.
    pub unheard: Option<Boot>,
    /// It ran at that time.
    pub replaced: Option<(Arc<PodIdentity>, Moment)>,
    pub reported: MemberReports,
    /// Its volumes are followed.
    pub is_owner: bool,
    /// It opted out since the loss.
    pub is_ignored: bool,
}

/// What made the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerKind {
    StatefulSet,
    /// Its pods are not missed elsewhere.
    DaemonSet,
    Other,
}

/// Its containers, by the pod's status at the time of the loss, or since.
#[derive(Debug)]
pub(super) struct Ran {
    pub has_run: bool,
    /// Succeeded or failed before it was deleted: nothing of it can be lost.
    pub is_finished: bool,
    is_terminated: bool,
    /// A kubelet reported that the pod's containers had terminated, after the deletion request: no container ran any more.
    pub confirmed: Option<Moment>,
}

/// The pod's object is gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    pub at: Moment,
    /// It went while the watch of nodes was interrupted: what the node was by then is not known yet.
    pub is_untold: bool,
    /// Its object was removed without the kubelet, maybe after the node's return.
    pub is_unconfirmed: bool,
    /// The same, before the return, of a pod that the loss was to end.
    pub vanished: bool,
}

/// What was reported of it.
#[derive(Debug, Default)]
pub(super) struct MemberReports {
    /// An alarm that it hangs.
    pub hangs: bool,
    /// An alarm that nothing evicts it.
    pub stays: bool,
    /// A span of its replacement is below its root.
    pub is_parent: bool,
}

impl Member {
    pub fn new(record: &Record) -> Member {
        Member {
            pod: record.identity.clone(),
            owner: match record.owner.as_ref().map(|owner| &*owner.kind) {
                Some("StatefulSet") => OwnerKind::StatefulSet,
                Some("DaemonSet") => OwnerKind::DaemonSet,
                _ => OwnerKind::Other,
            },
            stays: record.outlasts,
            ran: Ran {
                has_run: record.run.has_run,
                is_finished: record.run.is_finished(),
                is_terminated: record.run.terminated,
                confirmed: None,
            },
            claims: record.details().claims.clone(),
            requested: None,
            held: Vec::new(),
            current: None,
            gone: None,
            is_overdue: false,
            unheard: None,
            replaced: None,
            reported: MemberReports::default(),
            is_owner: false,
            is_ignored: false,
        }
    }

    pub fn is_stateful(&self) -> bool {
        self.owner == OwnerKind::StatefulSet
    }

    /// Not missed elsewhere.
    pub fn is_of_node(&self) -> bool {
        self.owner == OwnerKind::DaemonSet
    }

    /// See [`Gone::vanished`].
    pub fn vanished(&self) -> bool {
        self.gone.is_some_and(|gone| gone.vanished)
    }

    /// The loss ends the pod, and has not yet.
    pub fn is_to_end(&self) -> bool {
        let is_spared = self.requested.is_none() && (self.stays || self.ran.is_finished);
        self.gone.is_none() && !is_spared
    }

    /// No loss ends the pod, and nothing replaces it meanwhile.
    pub fn is_left_alone(&self) -> bool {
        self.stays && !self.is_of_node() && !self.ran.is_finished && self.requested.is_none() && self.gone.is_none()
    }

    /// A version of the pod, seen at that time.
    pub fn follow(&mut self, record: &Record, is_away: bool, at: Moment) {
        let details = record.details();
        self.stays = record.outlasts;
        self.ran.has_run = record.run.has_run;
        // Of a container that waits for its restart, the status can have been the last one before the loss.
        if self.requested.is_some() && record.run.terminated && !self.ran.is_terminated {
            self.ran.confirmed = self.ran.confirmed.or(Some(at));
        }
        self.ran.is_terminated = record.run.terminated;
        self.ran.is_finished |= record.run.is_finished() && self.requested.is_none();
        if self.requested.is_none()
            && let Some(deletion) = details.deletion
        {
            self.requested = Some((request(&deletion, at), deletion));
        }
        let now = holder(record, is_away);
        let names: Vec<Box<str>> = match now {
            Some(Holder::Finalizer) => details.finalizers.iter().take(NAMED).cloned().collect(),
            Some(Holder::Volume) => details.claims.iter().take(NAMED).cloned().collect(),
            _ => Vec::new(),
        };
        let is_same = self.current.as_ref().map(|(by, names, _)| (*by, names)) == now.map(|by| (by, &names));
        if is_same {
            return;
        }
        self.release(at);
        let requested = self.requested.map(|(requested, _)| requested);
        // The first holder holds from the request on.
        let since = if self.held.is_empty() { requested.unwrap_or(at) } else { at };
        self.current = now.map(|by| (by, names, since));
    }

    /// Before the loss its kubelet held the pod, and not the node.
    pub fn held_from(&mut self, begin: Moment) {
        self.is_overdue = self.expected().is_some_and(|expected| expected < begin.at);
        if let Some((Holder::Node, _, since)) = &mut self.current
            && since.at < begin.at
        {
            *since = begin;
        }
    }

    /// Nothing holds the pod any more, or another thing.
    pub fn release(&mut self, at: Moment) {
        if let Some((by, names, begin)) = self.current.take()
            && self.held.len() < MOST_HELD
        {
            let end = at;
            // Every pod of a Job has a finalizer, which its controller removes at once, and every claim is unmounted.
            let is_passing = matches!(by, Holder::Finalizer | Holder::Volume) && end.at < begin.at.plus(HELD_SLACK);
            if !is_passing {
                self.held.push(Stuck { by, names, begin, end });
            }
        }
    }

    /// The node is back: its kubelet holds the pod now.
    pub fn returned(&mut self, at: Moment) {
        // Reported with the return, or ended by the boot.
        self.replaced = None;
        if self.current.as_ref().is_some_and(|(by, ..)| *by == Holder::Node) {
            self.release(at);
            self.current = Some((Holder::Runtime, Vec::new(), at));
        }
    }

    /// The node is lost again before its kubelet finished.
    pub fn lost_again(&mut self, at: Moment) {
        self.unheard = None;
        self.reported.hangs = false;
        if (self.current.as_ref()).is_some_and(|(by, ..)| matches!(by, Holder::Runtime | Holder::Volume)) {
            self.release(at);
            self.current = Some((Holder::Node, Vec::new(), at));
        }
    }

    /// What holds the pod, or held it last.
    pub fn holder(&self) -> (Holder, &[Box<str>]) {
        let current = self.current.as_ref().map(|(by, names, _)| (*by, &names[..]));
        let last = self.held.last().map(|stuck| (stuck.by, &stuck.names[..]));
        current.or(last).unwrap_or((Holder::Node, &[]))
    }

    /// A second one has its identity, or may write its volume.
    pub fn does_harm_twice(&self) -> bool {
        self.is_stateful() || !self.claims.is_empty()
    }

    /// Not by the node: the loss is over for it.
    pub fn is_held_by_finalizer(&self) -> bool {
        self.current.as_ref().is_some_and(|(by, ..)| *by == Holder::Finalizer)
    }

    /// The node holds the pod for longer than a healthy node would need.
    pub fn hangs(&self, now: Boot) -> bool {
        if self.is_overdue {
            return false;
        }
        let held = self.current.as_ref().filter(|(by, ..)| *by == Holder::Node);
        held.zip(self.expected())
            .is_some_and(|((_, _, since), expected)| now >= expected.max(since.at).plus(HELD_SLACK))
    }

    /// When a healthy node would have terminated the pod; a grace period that no kubelet counts does not delay that.
    pub fn expected(&self) -> Option<Boot> {
        let (requested, deletion) = self.requested?;
        let ends = requested.at.plus(deletion.grace);
        Some(self.unheard.map_or(ends, |unheard| ends.min(unheard.max(requested.at))))
    }

    /// The node held the pod for that long.
    pub fn was_held(&self) -> bool {
        let Some(expected) = self.expected() else {
            return false;
        };
        if self.is_overdue {
            return false;
        }
        let is_long = |stuck: &Stuck| stuck.end.earliest() >= expected.max(stuck.begin.at).plus(HELD_SLACK);
        let ended = self.held.iter().any(|stuck| stuck.by == Holder::Node && is_long(stuck));
        ended || self.reported.hangs
    }
}

/// The pods that were on the node.
#[derive(Debug, Default)]
pub(super) struct Pods {
    pub members: BTreeMap<PodUid, Member>,
    /// The members of before the loss are known.
    pub is_scanned: bool,
    pub lacking: Lacking,
    /// Pods run there that opted out.
    pub has_ignored: bool,
}

/// Pods of the node for which there was no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lacking {
    #[default]
    None,
    /// By the last status such a pod may not have run, and run all the same. One that anybody can make up does not keep the loss open.
    Unproven,
    /// A kubelet has run it.
    OfKubelet,
}

impl Pods {
    pub fn has_dropped(&self) -> bool {
        self.lacking != Lacking::None
    }

    pub fn no_room_for(&mut self, is_of_kubelet: bool) {
        let lacking = if is_of_kubelet {
            Lacking::OfKubelet
        } else {
            Lacking::Unproven
        };
        self.lacking = self.lacking.max(lacking);
    }
}

/// When the deletion was requested: as watched, else as the API has it.
pub(super) fn request(deletion: &DeletionSight, at: Moment) -> Moment {
    match at.gap {
        None => at,
        Some(gap) => Moment {
            at: deletion.requested.at.max(at.at.minus(gap)).min(at.at),
            gap: None,
        },
    }
}

/// What holds a pod that is being deleted.
pub(super) fn holder(record: &Record, is_away: bool) -> Option<Holder> {
    let details = record.details();
    details.deletion?;
    Some(match (record.is_held_by_finalizer(), is_away) {
        (true, _) => Holder::Finalizer,
        (false, true) => Holder::Node,
        // After the last container a kubelet unmounts the volumes, then removes the pod's cgroup, which is quick.
        (false, false) if record.run.terminated && !details.claims.is_empty() => Holder::Volume,
        (false, false) => Holder::Runtime,
    })
}
