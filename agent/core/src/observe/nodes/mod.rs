//! What a dead node cannot report: from the condition `Ready` to the node's return, with its pods and their volumes.
//!
//! A loss is a trace of its own; each pod of it has its pod's trace. What is reported has an end that this observer watched: what
//! ended before, an earlier observer has reported, or nobody; the root says since when the loss was watched. So nothing is there twice.
//!
//! *Architecture invariant*: a healthy node costs one small record. The pods of a node are looked up when the node is lost, for all
//! nodes that were lost together in one pass.

mod agent;
mod alarms;
mod clock;
mod handling;
mod known;
mod member;
mod phases;
mod remedy;
mod report;
mod reported;
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
    Advice, AgentAnswer, DuplicateRun, Holder, LINKS, LossAlarm, LossEnd, LossKey, LossState, LostNodeState, LostPods,
    NodeLost, NodePhase, PhaseKind, PodLost, ReadyService, Return, Returned, ShuttingDown, Step, Stuck, VolumeDetach,
};

use super::contact::Seen;
use super::endpoints::{ReadyChange, ServiceKey};
use super::pods::{self, ClusterPods};
use super::{
    ApiTime, AttachmentFact, ClaimKey, ClusterVersion, Moment, NodeFact, NodeIdentity, ObserverDropReason, Output, Ready,
};
use crate::ids::PodUid;
use crate::pod::PodIdentity;
use crate::time::Boot;
use member::{Gone, Member};
use story::{Phase, Story};
use taint::Taint;
use volumes::Volumes;

#[derive(Debug, Default)]
pub(super) struct Nodes {
    most: usize,
    most_pods: usize,
    stuck_after: Duration,
    version: Option<ClusterVersion>,
    known: HashMap<Arc<str>, KnownNode>,
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
struct KnownNode {
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
            ..Nodes::default()
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
                out.push(Output::dropped(ObserverDropReason::NodeCap));
                return;
            }
            let known = KnownNode {
                identity: fact.identity.clone(),
                is_ready: true,
                taint: Taint::default(),
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
        story.deleted(at);
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
            out.push(Output::dropped(ObserverDropReason::LostPodCap));
        }
        let room = self.room(is_of_kubelet);
        let node = record.identity.node.as_str();
        let at = moment(step.seen, record.details().deletion.map(|deletion| deletion.requested));
        // A node that is back takes replacements, too.
        let takes = |story: &&mut Story| !story.is_over() || story.pods.members.contains_key(&step.uid);
        if let Some(story) = self.stories.get_mut(node).filter(takes) {
            let is_new = !story.pods.members.contains_key(&step.uid);
            if is_new {
                // Pods from before the loss come with the scan, or did.
                let is_bound = step.is_new || step.is_scheduled || !story.pods.is_scanned;
                if (step.is_gone && story.pods.is_scanned) || !is_bound || !belongs(pods, record) {
                    return;
                }
                if self.members >= room {
                    story.pods.no_room_for(is_of_kubelet);
                    out.push(Output::dropped(ObserverDropReason::LostPodCap));
                    return;
                }
                self.members += 1;
            }
            let (is_away, begin) = (story.is_away(), story.begin());
            let (is_deleted, is_silent) = (story.removed().is_some(), story.is_silent());
            let member = story
                .pods
                .members
                .entry(step.uid.clone())
                .or_insert_with(|| Member::new(record));
            let was_finished = member.ran.is_finished;
            member.follow(record, is_away, at);
            if is_new {
                member.held_from(begin);
            }
            // Without a kubelet the pod garbage collection sets the phase Failed: no container has ended.
            if is_away && (is_deleted || is_silent) {
                member.ran.is_finished = was_finished;
            }
            member.is_ignored = pods.is_ignored(record);
            if !step.is_gone && is_away {
                follow_volumes(&mut self.volumes, member, out);
            }
            if step.is_gone && member.gone.is_none() {
                let gone = step.seen.moment();
                let is_unheard = is_silent
                    || (is_deleted && member.requested.is_none())
                    // The controller does not wait for the kubelet.
                    || story.handling.is_fenced();
                let is_unconfirmed = is_unheard && member.ran.confirmed.is_none();
                member.release(gone);
                member.gone = Some(Gone {
                    at: gone,
                    is_untold: is_in_gap,
                    is_unconfirmed,
                    vanished: is_unconfirmed && is_away && member.is_to_end(),
                });
                let member = &story.pods.members[&step.uid];
                if is_away {
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
            for (uid, member) in &mut story.pods.members {
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
        let member = story.and_then(|story| story.pods.members.get_mut(&pod.uid));
        if let Some(member) = member.filter(|member| member.replaced.is_none()) {
            member.replaced = Some((by.clone(), at));
        }
    }

    /// Whether the pod's root is [`PodLost`], not an agent's: its node was lost before it was gone. From now on it is, as a span is below it.
    pub fn takes_root(&mut self, node: &str, pod: &PodUid) -> bool {
        let Some(story) = self.stories.get_mut(node) else {
            return false;
        };
        let is_lost = story
            .pods
            .members
            .get(pod)
            .is_some_and(|member| phases::is_lost(story, member));
        if let Some(member) = story.pods.members.get_mut(pod) {
            member.reported.is_parent |= is_lost;
        }
        is_lost
    }

    pub fn attachment(&mut self, fact: AttachmentFact, seen: Seen, out: &mut Vec<Output>) {
        if !self.volumes.attached(fact, seen) {
            out.push(Output::dropped(ObserverDropReason::AttachmentCap));
        }
    }

    pub fn attachment_gone(&mut self, name: &str, seen: Seen, out: &mut Vec<Output>) {
        match self.volumes.gone(name, seen, self.stuck_after) {
            Some(Ok(detach)) => out.push(Output::VolumeDetach(Box::new(detach))),
            Some(Err(reason)) => out.push(Output::dropped(reason)),
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
        if let Some(story) = self.stories.get_mut(node).filter(|story| story.is_away()) {
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

    /// Whether endpoints are followed, on some node.
    pub fn is_shutting_down(&self) -> bool {
        self.stories.values().any(Story::is_shutting_down)
    }

    /// An endpoint on the node.
    pub fn endpoint(&mut self, node: &str, change: ReadyChange) {
        if let Some(ready) = self.stories.get_mut(node).and_then(Story::still_ready) {
            ready.change(change);
        }
    }

    /// A shutdown that the kubelet has just announced: the endpoints of the node that are ready are to be shown. False if they were.
    pub fn begin_endpoints(&mut self, node: &str) -> bool {
        let ready = self.stories.get_mut(node).and_then(Story::still_ready);
        ready.is_some_and(|ready| !std::mem::replace(&mut ready.is_begun, true))
    }

    pub fn ready_endpoint(&mut self, node: &str, service: &ServiceKey, pod: &PodUid) {
        if let Some(ready) = self.stories.get_mut(node).and_then(Story::still_ready) {
            ready.ready(service, pod);
        }
    }

    fn not_ready(&mut self, fact: &NodeFact, seen: Seen, out: &mut Vec<Output>) {
        let name = &fact.identity.name;
        // Without a time there is no id; every API server and controller sets it.
        let Some(transition) = fact.transition else { return };
        let at = moment(seen, Some(transition));
        // A kubelet that could not renew: the Node object was deleted and is registered again, by the same boot.
        let is_registered_again = |story: &Story| story.is_deleted() && story.returned(&fact.identity) == Returned::SameBoot;
        if let Some(story) = self.stories.get_mut(name).filter(|story| is_registered_again(story)) {
            story.phase = Phase::Away;
        }
        if let Some(story) = self.stories.get_mut(name)
            && !story.is_over()
        {
            let began_evicting = fact.evicting && !story.handling.is_evicting();
            // False becomes Unknown: a later observer sees this transition only. Once something is exported, the id stays.
            let is_exported = story.reported.root
                || !story.reported.phases.is_empty()
                || story.pods.members.values().any(|member| member.gone.is_some());
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
                last.pods.members.into_iter().partition(|(_, member)| member.gone.is_none());
            self.members -= done.len();
            story.pods.members = left;
            story.pods.members.values_mut().for_each(|member| member.lost_again(at));
        }
        match story.handling.is_evicting() {
            // An earlier observer has reported that.
            true if seen.is_at_start() => drop(story.reported.add(PhaseKind::NotReady)),
            true => story.step(Step::Evicting, at),
            false => {}
        }
        if let Some(known) = self.known.get_mut(name) {
            known.taint.lost(fact, &mut story);
        }
        self.stories.insert(name.clone(), story);
    }

    fn ready(&mut self, fact: &NodeFact, seen: Seen, out: &mut Vec<Output>) {
        let Some(story) = self.stories.get_mut(&fact.identity.name).filter(|story| story.is_away()) else {
            return;
        };
        let at = moment(seen, fact.transition);
        phases::shutting_down(story, at, out);
        story.came_back(&fact.identity, at);
        // A deleted node that registers again: its story was over with the deletion, and its pods are with a kubelet again.
        if matches!(story.phase, Phase::Back { node: Some(_), .. }) {
            phases::over(story, self.version, out);
        }
        self.volumes.returned(&fact.identity.name);
        // The kubelet ends what was to end; what was not to end goes on.
        let before = story.pods.members.len();
        story
            .pods
            .members
            .retain(|_, member| member.gone.is_some() || member.requested.is_some());
        story.pods.members.values_mut().for_each(|member| member.returned(at));
        self.members -= before - story.pods.members.len();
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
            .map(|_| Output::dropped(ObserverDropReason::AttachmentCap)),
    );
}

/// A pod that a loss can end, and that has not opted out.
fn belongs(pods: &ClusterPods, record: &pods::Record) -> bool {
    let is_ending = record.details().deletion.is_some();
    (is_ending || !record.run.is_finished()) && pods.may_be_lost(record)
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
