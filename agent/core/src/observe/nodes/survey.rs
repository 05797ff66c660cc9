//! The pods of lost nodes, the questions about them, and the state of all of it.

use std::collections::HashMap;
use std::sync::Arc;

use super::handling::Fence;
use super::member::{self, Member};
use super::story::Story;
use super::{Holder, LossState, LostNodeState, Nodes, belongs, follow_volumes, phases, verdict};
use crate::ids::PodUid;
use crate::observe::pods::{self, ClusterPods};
use crate::observe::{Ask, Moment, ObserverDropReason, Output};
use crate::time::Boot;
use crate::tolerances::{LASTING_LOSS, RECOVERY, TOLERATED_LOSS};

/// Questions at once: the answers of a lost zone arrive over time. Those about volumes are many, and wait for no others.
const ASKS: usize = 64;
const CLAIM_ASKS: usize = 64;

impl Nodes {
    /// For `/metrics`.
    pub fn state(&self, now: Boot, pods: &ClusterPods) -> LossState {
        let is_long = |since: Boot| now.since(since) >= self.stuck_after;
        let mut state = LossState::default();
        let mut by_node: HashMap<&str, usize> = HashMap::new();
        for record in self.ending.iter().filter_map(|uid| pods.get(uid)) {
            let node = record.identity.node.as_str();
            let is_away = self.stories.get(node).is_some_and(Story::is_away);
            let (Some(by), Some(deletion)) = (member::holder(record, is_away), record.details().deletion) else {
                continue;
            };
            let member = self
                .stories
                .get(node)
                .and_then(|story| story.pods.members.get(&record.identity.uid));
            let expected = member.filter(|_| by == Holder::Node).and_then(Member::expected);
            let expected = expected.unwrap_or(deletion.requested.at.plus(deletion.grace));
            if is_long(expected) && !pods.is_ignored(record) {
                state.stuck[by as usize] += 1;
                if by != Holder::Node {
                    *state.held.entry((by, record.identity.namespace.as_str().into())).or_default() += 1;
                }
                if by == Holder::Node {
                    *by_node.entry(node).or_default() += 1;
                }
            }
        }
        for (namespace, _) in self.volumes.waiting().filter(|(_, since)| is_long(since.at)) {
            state.stuck[Holder::Volume as usize] += 1;
            *state.held.entry((Holder::Volume, namespace.clone())).or_default() += 1;
        }
        // Of a deleted Node object, as long as something of it is held.
        let is_left = |story: &Story| {
            // Nobody asks its agent any more.
            let is_recent = story.removed().is_some_and(|at| now.since(at.at) < RECOVERY);
            let runs_twice = || is_recent && story.known(now, self.version).run_twice() > 0;
            story.is_away() && (story.is_left() || self.volumes.left(&story.key.node.name) > 0 || runs_twice())
        };
        let lost = self.stories.values().filter(|story| !story.is_over() || is_left(story));
        state.nodes.extend(lost.map(|story| {
            let (name, known) = (&story.key.node.name, story.known(now, self.version));
            LostNodeState {
                name: name.clone(),
                is_ready: false,
                verdict: known.verdict().row().headline,
                stuck: by_node.get(&**name).copied().unwrap_or_default(),
                out_of_service: self.known.get(name).is_some_and(|known| known.taint.is_set()),
                run_twice: known.run_twice(),
                volumes: self.volumes.left(name),
                evictions_held: known.held_back,
            }
        }));
        let left_behind = self.known.iter().filter(|(_, known)| known.taint.is_left_behind());
        state.nodes.extend(left_behind.map(|(name, _)| LostNodeState {
            name: name.clone(),
            is_ready: true,
            verdict: verdict::Loss::TaintLeftBehind.row().headline,
            stuck: 0,
            out_of_service: true,
            run_twice: 0,
            volumes: 0,
            evictions_held: false,
        }));
        state.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        state
    }

    /// The pods of newly lost nodes.
    pub(super) fn scan(&mut self, now: Boot, pods: &ClusterPods, out: &mut Vec<Output>) {
        if self.stories.values().all(|story| story.pods.is_scanned) {
            return;
        }
        let mut found: Vec<(&PodUid, &pods::Record)> = pods
            .iter()
            .filter(|(_, record)| {
                self.stories
                    .get(record.identity.node.as_str())
                    .is_some_and(|story| !story.pods.is_scanned)
            })
            .collect();
        found.sort_by(|a, b| a.0.cmp(b.0));
        for (uid, record) in found {
            let is_of_kubelet = record.is_of_kubelet();
            let room = self.room(is_of_kubelet);
            // As long as the node counted as ready, a pod had half the room only.
            if record.is_being_deleted() && self.ending.len() < room {
                self.ending.insert(uid.clone());
            }
            let Some(story) = self.stories.get_mut(record.identity.node.as_str()) else {
                continue;
            };
            if story.agent.address.is_none() && !record.is_gone() {
                story.agent.address = record.details().agent;
            }
            let is_of_node = record.owner.as_ref().is_some_and(|owner| &*owner.kind == "DaemonSet");
            story.pods.has_ignored |= pods.is_ignored(record) && !record.is_gone() && !record.run.is_finished() && !is_of_node;
            // What a kubelet that is back does not end goes on.
            let goes_on = || !story.is_away() && record.details().deletion.is_none();
            if record.is_gone() || goes_on() || story.pods.members.contains_key(uid) || !belongs(pods, record) {
                continue;
            }
            if self.members >= room {
                story.pods.no_room_for(is_of_kubelet);
                out.push(Output::dropped(ObserverDropReason::LostPodCap));
                continue;
            }
            self.members += 1;
            let mut member = Member::new(record);
            let requested = record.details().deletion.map(|deletion| deletion.requested.at.min(now));
            member.follow(record, story.is_away(), Moment::exact(requested.unwrap_or(now)));
            member.held_from(story.begin());
            if story.is_away() {
                follow_volumes(&mut self.volumes, &mut member, out);
            }
            story.pods.members.insert(uid.clone(), member);
        }
        self.find_waiting(now, pods);
        for story in self.stories.values_mut().filter(|story| !story.pods.is_scanned) {
            story.pods.is_scanned = true;
            // An earlier observer has reported such a loss, if it lasted; pods that outlast it may have been deleted since, and it did not
            // wait for pods that tolerate the loss for long.
            let is_tolerated =
                story.handling.is_evicting() && story.unwatched.is_some_and(|unwatched| unwatched >= TOLERATED_LOSS);
            let is_done = story.pods.members.values().all(|member| match member.requested {
                Some(_) => member.is_of_node() || member.is_held_by_finalizer(),
                None => {
                    is_tolerated || !member.is_to_end() && (!member.is_left_alone() || story.handling.fence != Fence::Never)
                }
            });
            let lasted = story.unwatched.is_some_and(|unwatched| unwatched >= LASTING_LOSS);
            story.reported.root |= is_done && lasted;
            phases::over(story, self.version, out);
        }
    }

    /// The VolumeAttachments are known: of those that were there before, pods may wait.
    pub(super) fn attachments_known(&mut self, now: Boot, pods: &ClusterPods, out: &mut Vec<Output>) {
        for story in self.stories.values_mut().filter(|story| story.is_away()) {
            for member in story.pods.members.values_mut().filter(|member| member.gone.is_none()) {
                follow_volumes(&mut self.volumes, member, out);
            }
        }
        self.find_waiting(now, pods);
    }

    /// Pods that waited for a lost node's volumes before it was known, and do not change while they wait.
    fn find_waiting(&mut self, now: Boot, pods: &ClusterPods) {
        let with_claims = pods
            .iter()
            .filter(|(_, record)| !record.is_gone() && !record.details().claims.is_empty());
        for (uid, record) in with_claims {
            let story = self.stories.get(record.identity.node.as_str());
            if !story.is_some_and(|story| story.pods.members.contains_key(uid)) {
                self.volumes.pod(uid, record, record.scheduled.unwrap_or(Moment::exact(now)));
            }
        }
    }

    pub(super) fn ask(&mut self, now: Boot, out: &mut Vec<Output>) {
        let (mut left, mut claims_left) = (ASKS, CLAIM_ASKS);
        let from = self.asked_until.take();
        let names: Vec<Arc<str>> = self.stories.keys().cloned().collect();
        let first = from.map_or(0, |from| names.partition_point(|name| *name <= from));
        for name in names[first..].iter().chain(&names[..first]) {
            if left == 0 {
                return;
            }
            let Some(story) = self
                .stories
                .get_mut(name)
                .filter(|story| story.pods.is_scanned && story.is_away())
            else {
                continue;
            };
            let mut asks: Vec<Ask> = Vec::new();
            if story.ask_renewal(now) {
                asks.push(Ask::Renewal { node: name.clone() });
            }
            let is_pressing = story.wants_number(now);
            // The address of a deleted node may be another's.
            if story.removed().is_none()
                && let Some(address) = story.agent.ask(now, is_pressing)
            {
                asks.push(Ask::Agent {
                    node: name.clone(),
                    address,
                });
            }
            left = left.saturating_sub(asks.len());
            if claims_left > 0 {
                let volumes = self.volumes.unasked(name, now);
                claims_left = claims_left.saturating_sub(volumes.len());
                asks.extend(volumes.into_iter().map(|volume| Ask::Claim { volume }));
            }
            out.extend(asks.into_iter().map(Output::Ask));
            self.asked_until = Some(name.clone());
        }
    }
}
