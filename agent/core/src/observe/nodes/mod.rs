//! What a dead node cannot report: from the condition `Ready` to the node's return, with its pods and their volumes.
//!
//! A loss is a trace of its own; each pod of it has its pod's trace. What is reported has an end that this observer watched: what
//! ended before, an earlier observer has reported, or nobody; the root says since when the loss was watched. So nothing is there twice.
//!
//! *Architecture invariant*: a healthy node costs one small record. The pods of a node are looked up when the node is lost, for all
//! nodes that were lost together in one pass.

mod agent;
mod member;
mod phases;
mod report;
mod sentence;
mod still_ready;
mod story;
mod survey;
mod taint;
pub mod verdict;
mod volumes;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

pub use report::{
    Advice, AgentAnswer, DuplicateRun, Holder, LINKS, LossAlarm, LossEnd, LossKey, LossState, LostNodeState, NodeLost,
    NodePhase, PhaseKind, PodLost, ReadyService, Return, Returned, ShuttingDown, Step, Stuck, VolumeDetach,
};

use super::contact::Seen;
use super::pods::{self, ClusterPods};
use super::{
    ApiTime, AttachmentFact, ClaimKey, ClusterVersion, Moment, NodeFact, NodeIdentity, ObserverDropReason, Output, Ready,
};
use crate::ids::PodUid;
use crate::pod::PodIdentity;
use crate::time::Boot;
use crate::tolerances::{LASTING_LOSS, LOSS_CHECKED, LOST_TOGETHER, RECOVERY};
use member::Member;
use story::Story;
use taint::Taint;
use volumes::Volumes;

#[derive(Debug)]
pub(super) struct Nodes {
    most: usize,
    most_pods: usize,
    stuck_after: Duration,
    version: Option<ClusterVersion>,
    known: HashMap<Arc<str>, Known>,
    listed: Option<HashSet<Arc<str>>>,
    /// By the node's name.
    stories: BTreeMap<Arc<str>, Story>,
    /// Pods of all stories.
    members: usize,
    /// Pods of the cluster that are being deleted.
    ending: BTreeSet<PodUid>,
    volumes: Volumes,
    checked: Option<Boot>,
    /// Where the last round of questions ended.
    asked_until: Option<Arc<str>>,
}

#[derive(Debug)]
struct Known {
    identity: Arc<NodeIdentity>,
    is_ready: bool,
    taint: Taint,
}

impl Nodes {
    pub fn new(most: usize, most_pods: usize, stuck_after: Duration) -> Nodes {
        Nodes {
            most,
            most_pods,
            stuck_after,
            version: None,
            known: HashMap::new(),
            listed: None,
            stories: BTreeMap::new(),
            members: 0,
            ending: BTreeSet::new(),
            volumes: Volumes::default(),
            checked: None,
            asked_until: None,
        }
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn list_begin(&mut self) {
        self.listed = Some(HashSet::new());
    }

    /// Nodes that are not in the list are gone.
    pub fn list_end(&mut self, seen: Seen, out: &mut Vec<Output>) {
        let listed = self.listed.take().unwrap_or_default();
        let mut lacking: Vec<Arc<str>> = self.known.keys().filter(|name| !listed.contains(*name)).cloned().collect();
        lacking.sort();
        for name in lacking {
            self.node_gone(&name, seen, out);
        }
    }

    pub fn node(&mut self, fact: &NodeFact, seen: Seen, out: &mut Vec<Output>) {
        let name = fact.identity.name.clone();
        if let Some(listed) = &mut self.listed {
            listed.insert(name.clone());
        }
        if self
            .known
            .get(&name)
            .is_some_and(|known| known.identity.uid != fact.identity.uid)
        {
            self.node_gone(&name, seen, out);
        }
        if !self.known.contains_key(&name) {
            if self.known.len() >= self.most {
                out.push(dropped(ObserverDropReason::NodeCap));
                return;
            }
            let known = Known {
                identity: fact.identity.clone(),
                is_ready: true,
                taint: Taint::new(),
            };
            self.known.insert(name.clone(), known);
        }
        if fact.ready == Ready::True {
            self.ready(fact, seen, out);
        } else {
            self.not_ready(fact, seen, out);
        }
        if let Some(known) = self.known.get_mut(&name) {
            let story = self.stories.get_mut(&name);
            out.extend(known.taint.follow(fact, seen, story));
            known.identity = fact.identity.clone();
            known.is_ready = fact.ready == Ready::True;
        }
    }

    pub fn node_gone(&mut self, name: &Arc<str>, seen: Seen, out: &mut Vec<Output>) {
        let at = seen.moment();
        if let Some(known) = self.known.remove(name) {
            out.extend(known.taint.deleted(at));
        }
        let Some(story) = self.stories.get_mut(name).filter(|story| !story.is_over()) else {
            return;
        };
        phases::shutting_down(story, at, out);
        story.removed = Some(at);
        // The taint went with the object.
        story.fenced = false;
        story.step(Step::NodeDeleted, at);
        phases::over(story, self.version, out);
    }

    /// A change of a pod.
    /// `is_in_gap`: the watch of nodes is interrupted.
    pub fn pod(&mut self, step: &pods::Step, pods: &ClusterPods, is_in_gap: bool, out: &mut Vec<Output>) {
        let Some(record) = pods.get(&step.uid) else { return };
        let is_of_kubelet = record.is_of_kubelet();
        let is_away = self.stories.get(record.identity.node.as_str()).is_some_and(Story::is_away);
        if !record.is_being_deleted() {
            self.ending.remove(&step.uid);
        } else if self.ending.len() < self.room(is_of_kubelet && is_away) {
            self.ending.insert(step.uid.clone());
        } else if !self.ending.contains(&step.uid) {
            out.push(dropped(ObserverDropReason::LostPodCap));
        }
        let room = self.room(is_of_kubelet);
        let node = record.identity.node.as_str();
        let at = moment(step.seen, record.details().deletion.map(|deletion| deletion.requested));
        // A node that is back takes replacements, too.
        let takes = |story: &&mut Story| !story.is_over() || story.members.contains_key(&step.uid);
        if let Some(story) = self.stories.get_mut(node).filter(takes) {
            let is_new = !story.members.contains_key(&step.uid);
            if is_new {
                // Pods from before the loss come with the scan, or did.
                let is_bound = step.is_new || step.is_scheduled || !story.is_scanned;
                if (step.is_gone && story.is_scanned) || !is_bound || !belongs(pods, record) {
                    return;
                }
                if self.members >= room {
                    story.no_room_for(is_of_kubelet);
                    out.push(dropped(ObserverDropReason::LostPodCap));
                    return;
                }
                self.members += 1;
            }
            let member = story.members.entry(step.uid.clone()).or_insert_with(|| Member::new(record));
            let was_finished = member.is_finished;
            member.follow(record, story.back.is_none(), at);
            if is_new {
                member.held_from(story.begin);
            }
            // Without a kubelet the pod garbage collection sets the phase Failed: no container has ended.
            if story.back.is_none() && (story.removed.is_some() || story.ready == Ready::Unknown) {
                member.is_finished = was_finished;
            }
            member.is_ignored = pods.is_ignored(record);
            if !step.is_gone && story.back.is_none() {
                follow_volumes(&mut self.volumes, member, out);
            }
            if step.is_gone && member.gone.is_none() {
                let gone = step.seen.moment();
                let is_unheard = story.ready == Ready::Unknown
                    || (story.removed.is_some() && member.requested.is_none())
                    // The controller does not wait for the kubelet.
                    || story.fenced;
                let is_unconfirmed = is_unheard && member.confirmed.is_none();
                member.vanished = is_unconfirmed && story.back.is_none() && member.is_to_end();
                member.is_unconfirmed = is_unconfirmed;
                member.release(gone);
                member.gone = Some(gone);
                member.is_untold = is_in_gap;
                let member = &story.members[&step.uid];
                if story.is_away() {
                    self.volumes.pod_ends(member, Some(gone));
                }
                if !is_in_gap {
                    phases::pod(story, member, (gone, false), self.version, out);
                }
            }
        } else {
            self.volumes.pod(&step.uid, record, step.seen.moment());
        }
    }

    /// Half of the room is kept for what nobody can make up: a pod can be bound to a lost node by whoever creates it, and a finalizer
    /// keeps a pod that is deleted.
    fn room(&self, is_full: bool) -> usize {
        if is_full { self.most_pods } else { self.most_pods / 2 }
    }

    /// See [`phases::unfinished`].
    pub fn stop(&mut self, now: Boot, pods: &ClusterPods, out: &mut Vec<Output>) {
        for story in self.stories.values_mut() {
            // A namespace may have opted out since the pod's last version.
            for (uid, member) in &mut story.members {
                member.is_ignored |= pods.get(uid).is_some_and(|record| pods.is_ignored(record));
            }
            phases::gone(story, true, self.version, out);
            phases::unfinished(story, Moment::exact(now), self.version, out);
        }
    }

    /// A container of the replacement `by` runs since then, ready or not.
    pub fn replaced(&mut self, pod: &PodIdentity, by: &Arc<PodIdentity>, at: Moment) {
        // One kubelet runs both, one after the other.
        if by.node == pod.node {
            return;
        }
        let story = self.stories.get_mut(pod.node.as_str());
        let member = story.and_then(|story| story.members.get_mut(&pod.uid));
        if let Some(member) = member.filter(|member| member.replaced.is_none()) {
            member.replaced = Some((by.clone(), at));
        }
    }

    /// The pod's root is [`PodLost`], not an agent's: its node was lost before it was gone. What is asked for has a span below it.
    pub fn is_lost(&mut self, node: &str, pod: &PodUid) -> bool {
        let Some(story) = self.stories.get_mut(node) else {
            return false;
        };
        let is_lost = story.members.get(pod).is_some_and(|member| phases::is_lost(story, member));
        if let Some(member) = story.members.get_mut(pod) {
            member.is_parent |= is_lost;
        }
        is_lost
    }

    pub fn attachment(&mut self, fact: AttachmentFact, seen: Seen, out: &mut Vec<Output>) {
        if !self.volumes.attached(fact, seen) {
            out.push(dropped(ObserverDropReason::AttachmentCap));
        }
    }

    pub fn attachment_gone(&mut self, name: &str, seen: Seen, out: &mut Vec<Output>) {
        match self.volumes.gone(name, seen, self.stuck_after) {
            Some(Ok(detach)) => out.push(Output::VolumeDetach(Box::new(detach))),
            Some(Err(reason)) => out.push(dropped(reason)),
            None => {}
        }
    }

    /// See [`Volumes::attached_to`].
    pub fn attached(&self, by: &pods::Record) -> Option<Moment> {
        self.volumes.attached_to(&by.identity, &by.details().claims)
    }

    pub fn attachments_begin(&mut self) {
        self.volumes.list_begin();
    }

    pub fn attachments_end(&mut self, seen: Seen, pods: &ClusterPods, out: &mut Vec<Output>) {
        for name in self.volumes.list_end() {
            self.attachment_gone(&name, seen, out);
        }
        if seen.is_at_start() {
            self.attachments_known(seen.moment().at, pods, out);
        }
    }

    pub fn renewal(&mut self, node: &str, renewed: Option<ApiTime>) {
        if let Some(story) = self.stories.get_mut(node) {
            story.renewed(renewed);
        }
    }

    pub fn agent(&mut self, node: &str, answered: bool, shutdown: Option<u32>) {
        if let Some(story) = self.stories.get_mut(node).filter(|story| story.back.is_none()) {
            story.agent.heard(answered);
            if let Some(announced) = &mut story.announced {
                announced.shutdown = announced.shutdown.or(shutdown);
            }
        }
    }

    pub fn claim(&mut self, volume: &Arc<str>, claim: Option<ClaimKey>) {
        self.volumes.claim(volume, claim);
    }

    pub fn version(&mut self, version: ClusterVersion) {
        self.version = Some(version);
    }

    /// Time has passed. `is_in_gap`: the watch of nodes or pods is interrupted, so the node may be back, and its pods
    /// gone; `attachments_in_gap`: that of VolumeAttachments, so the volumes may be detached.
    pub fn finish(
        &mut self,
        now: Boot,
        pods: &ClusterPods,
        (is_in_gap, attachments_in_gap): (bool, bool),
        out: &mut Vec<Output>,
    ) {
        if self.checked.is_some_and(|checked| now.since(checked) < LOSS_CHECKED) {
            return;
        }
        self.checked = Some(now);
        self.scan(now, pods, out);
        self.ask(now, out);
        self.count_silent();
        for story in self.stories.values_mut() {
            if !story.is_over() {
                story.notice_silence(now);
            }
            if !is_in_gap {
                phases::gone(story, false, self.version, out);
                phases::alarms(story, now, self.version, out);
            }
            // As another observer would measure it.
            let is_lasting = now.since(story.keyed.at) >= LASTING_LOSS;
            if !is_in_gap && !story.is_reported && story.is_settled(now) && is_lasting && story.is_serious() && !story.is_over()
            {
                let end = match story.last_gone() {
                    Some(end) => {
                        story.step(Step::LastPodGone, end);
                        (end, LossEnd::PodsGone)
                    }
                    None => (Moment::exact(now), LossEnd::NoPods),
                };
                phases::root(story, end, self.version, out);
            }
        }
        if !is_in_gap && !attachments_in_gap {
            self.overdue(now, out);
        }
        let mut left_behind: Vec<&mut Known> = self.known.values_mut().filter(|known| known.taint.is_left_behind()).collect();
        left_behind.sort_by(|a, b| a.identity.name.cmp(&b.identity.name));
        out.extend(
            left_behind
                .into_iter()
                .filter_map(|known| known.taint.alarm(&known.identity, now, self.stuck_after)),
        );
        self.forget(now);
    }

    fn not_ready(&mut self, fact: &NodeFact, seen: Seen, out: &mut Vec<Output>) {
        let name = &fact.identity.name;
        // Without a time there is no id; every API server and controller sets it.
        let Some(transition) = fact.transition else { return };
        let at = moment(seen, Some(transition));
        // A kubelet that could not renew: the Node object was deleted and is registered again, by the same boot.
        let is_registered_again = |story: &Story| {
            story.removed.is_some() && story.back.is_none() && story.returned(&fact.identity) == Returned::SameBoot
        };
        if let Some(story) = self.stories.get_mut(name).filter(|story| is_registered_again(story)) {
            story.removed = None;
        }
        if let Some(story) = self.stories.get_mut(name)
            && !story.is_over()
        {
            let began_evicting = fact.evicting && !story.evicting;
            // False becomes Unknown: a later observer sees this transition only. Once something is exported, the id stays.
            let is_exported = story.is_reported
                || story.is_not_ready_reported
                || story.is_taint_reported
                || story.members.values().any(|member| member.gone.is_some());
            if !is_exported && story.key.transition != transition.wall {
                let before = std::mem::replace(&mut story.key.transition, transition.wall);
                story.keyed = at;
                if let Some(known) = self.known.get_mut(name) {
                    known.taint.moved(before, &story.key);
                }
            }
            story.follow(fact, at);
            if fact.ready == Ready::Unknown {
                phases::shutting_down(story, at, out);
            }
            if began_evicting {
                story.step(Step::Evicting, seen.moment());
                phases::evicting(story, seen.moment(), out);
            }
            return;
        }
        // A machine that booted within the controller's grace period shows its next boot here.
        let before = self.known.get(name).map_or(&fact.identity, |known| &known.identity);
        let identity = NodeIdentity {
            boot_id: before.boot_id.clone(),
            system_uuid: before.system_uuid.clone(),
            ..(*fact.identity).clone()
        };
        let key = LossKey::of(&Arc::new(identity), transition);
        let unwatched = seen.is_at_start().then(|| seen.moment().at.since(at.at));
        let mut story = Story::new(fact, key, at, unwatched);
        // Lost again before all pods of the last loss were gone: they are still its pods.
        if let Some(mut last) = self.stories.remove(name) {
            phases::gone(&mut last, true, self.version, out);
            let (left, done): (BTreeMap<_, _>, BTreeMap<_, _>) =
                last.members.into_iter().partition(|(_, member)| member.gone.is_none());
            self.members -= done.len();
            story.members = left;
            story.members.values_mut().for_each(|member| member.lost_again(at));
        }
        if story.evicting && !seen.is_at_start() {
            story.step(Step::Evicting, at);
        }
        // An earlier observer has.
        story.is_not_ready_reported = story.evicting && seen.is_at_start();
        if let Some(known) = self.known.get_mut(name) {
            known.taint.lost(fact, &mut story);
        }
        self.stories.insert(name.clone(), story);
    }

    fn ready(&mut self, fact: &NodeFact, seen: Seen, out: &mut Vec<Output>) {
        let Some(story) = self.stories.get_mut(&fact.identity.name).filter(|story| story.back.is_none()) else {
            return;
        };
        let at = moment(seen, fact.transition);
        phases::shutting_down(story, at, out);
        story.back = Some(at);
        story.saw_boot(&fact.identity, at);
        // A deleted node that registers again: its story was over with the deletion, and its pods are with a kubelet again.
        if story.removed.is_none() || story.returned(&fact.identity) == Returned::SameBoot {
            story.step(Step::Back, at);
            story.returned_as = Some(fact.identity.clone());
            phases::over(story, self.version, out);
        }
        self.volumes.returned(&fact.identity.name);
        // The kubelet ends what was to end; what was not to end goes on.
        let before = story.members.len();
        story
            .members
            .retain(|_, member| member.gone.is_some() || member.requested.is_some());
        story.members.values_mut().for_each(|member| member.returned(at));
        self.members -= before - story.members.len();
    }

    /// Replacements that wait for long for a volume of a lost node.
    fn overdue(&mut self, now: Boot, out: &mut Vec<Output>) {
        let stories = &self.stories;
        let is_due = |node: &str| {
            let story = stories.get(node);
            story.is_some_and(|story| story.removed.is_some() || story.agent.is_known()) && story.is_some_and(Story::is_away)
        };
        for overdue in self.volumes.overdue(now, self.stuck_after, is_due) {
            let Some(story) = stories.get(overdue.pod.node.as_str()) else {
                continue;
            };
            let known = story.known(now, self.version);
            let verdict = known.volume_waits(&overdue.pod, &overdue.attachment, overdue.waited);
            out.push(phases::alarm(
                &story.key.node,
                Some(overdue.pod),
                now,
                (known.advice(), verdict),
            ));
        }
    }

    /// How many nodes fell silent together: a network, or machines.
    fn count_silent(&mut self) {
        let silent = |story: &Story| story.silent_since().filter(|_| !story.is_over());
        let mut times: Vec<Boot> = self.stories.values().filter_map(silent).collect();
        times.sort_unstable();
        for story in self.stories.values_mut() {
            if let Some(since) = silent(story) {
                let first = times.partition_point(|at| *at < since.minus(LOST_TOGETHER));
                let last = times.partition_point(|at| *at <= since.plus(LOST_TOGETHER));
                // Those that are back fell silent all the same.
                story.at_once = (story.at_once.0.max(last - first), self.known.len());
            }
        }
    }

    fn forget(&mut self, now: Boot) {
        self.volumes.expire(now);
        let (volumes, members) = (&mut self.volumes, &mut self.members);
        self.stories.retain(|name, story| {
            let Some(over) = story.back.or(story.removed) else {
                return true;
            };
            // A finalizer may keep a pod for longer.
            let is_left = |member: &Member| member.is_untold || (member.requested.is_some() && member.gone.is_none());
            let is_attached = story.back.is_none() && volumes.left(name) > 0;
            let keep = now.since(over.at) < RECOVERY || story.members.values().any(is_left) || is_attached;
            if !keep {
                *members -= story.members.len();
                volumes.forget(name);
            }
            keep
        });
    }
}

/// The volumes of a pod that is being deleted are the lost node's from now on.
fn follow_volumes(volumes: &mut Volumes, member: &mut Member, out: &mut Vec<Output>) {
    if member.requested.is_none() {
        return;
    }
    let is_first = !std::mem::replace(&mut member.is_owner, true);
    let lacking = volumes.pod_ends(member, None);
    out.extend(
        (0..lacking)
            .filter(|_| is_first)
            .map(|_| dropped(ObserverDropReason::AttachmentCap)),
    );
}

/// A pod that a loss can end, and that has not opted out.
fn belongs(pods: &ClusterPods, record: &pods::Record) -> bool {
    let is_ending = record.details().deletion.is_some();
    (is_ending || !record.finished) && pods.may_be_lost(record)
}

/// As watched; else as the API has it, if that is possible.
fn moment(seen: Seen, api: Option<ApiTime>) -> Moment {
    let at = seen.moment();
    match (seen, api) {
        (Seen::AtStart(now), Some(api)) => Moment::exact(api.at.min(now)),
        (_, Some(api)) if at.gap.is_some() && (at.earliest()..=at.at).contains(&api.at) => Moment::exact(api.at),
        _ => at,
    }
}

const fn dropped(reason: ObserverDropReason) -> Output {
    Output::Dropped { reason, count: 1 }
}
