//! VolumeAttachments: which volumes are attached to lost nodes, and which pods they belong to.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::member::Member;
use super::report::VolumeDetach;
use super::sentence;
use crate::ids::PodUid;
use crate::observe::contact::Seen;
use crate::observe::pods::Record;
use crate::observe::{AttachmentFact, ClaimKey, Moment, ObserverDropReason};
use crate::pod::PodIdentity;
use crate::time::Boot;
use crate::tolerances::{READY_WITHIN, VOLUME_FIRST_PAUSE, VOLUME_LONGEST_PAUSE};

/// Most attachments that are known; those of a cluster with 30 volumes on each of 5 000 nodes.
const MOST: usize = 150_000;

/// Most volumes of lost nodes whose claim is known or asked for.
const MOST_CLAIMS: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Volumes {
    /// By name.
    known: HashMap<Arc<str>, Attached>,
    /// Their names, by node.
    by_node: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    listed: Option<HashSet<Arc<str>>>,
    /// Of volumes on lost nodes, by PersistentVolume.
    claims: BTreeMap<Arc<str>, Asked>,
    /// Pods that lost their node, by claim.
    owners: BTreeMap<ClaimKey, Owner>,
    /// Replacements that wait for a volume: since when.
    waiting: BTreeMap<ClaimKey, (PodUid, Moment)>,
    /// Of volumes that were detached from lost nodes, by PersistentVolume, and since when.
    detached: BTreeMap<Arc<str>, (ClaimKey, Boot)>,
}

/// A question about a volume's claim.
#[derive(Debug)]
struct Asked {
    claim: Option<ClaimKey>,
    /// Without an answer until then it is asked again, and then after twice the time.
    again: Boot,
    pause: Duration,
}

#[derive(Debug)]
struct Attached {
    fact: AttachmentFact,
    requested: Option<Moment>,
    /// The volume is attached since then; None also if it was before this observer began.
    since: Option<Moment>,
}

/// A pod of a lost node that is being deleted, or is gone.
#[derive(Clone, Debug)]
struct Owner {
    pod: Arc<PodIdentity>,
    gone: Option<Moment>,
    /// The replacement waited, from then.
    waited: Option<Moment>,
    /// There was an alarm that a replacement waits for long.
    is_alarmed: bool,
}

/// A replacement waits for long.
pub(super) struct Overdue {
    /// The pod that had the volume.
    pub pod: Arc<PodIdentity>,
    pub attachment: AttachmentFact,
    pub waited: Duration,
}

impl Volumes {
    /// False if there is no room for it.
    pub fn attached(&mut self, fact: AttachmentFact, seen: Seen) -> bool {
        if let Some(listed) = &mut self.listed {
            listed.insert(fact.name.clone());
        }
        if !self.known.contains_key(&fact.name) && self.known.len() >= MOST {
            return false;
        }
        let was_attached = self.known.get(&fact.name).is_some_and(|of| of.fact.attached);
        let of = self.known.entry(fact.name.clone()).or_insert_with(|| Attached {
            fact: fact.clone(),
            requested: None,
            since: None,
        });
        if fact.detaching {
            of.requested.get_or_insert(seen.moment());
        }
        if fact.attached != was_attached {
            of.since = Some(seen.moment()).filter(|_| fact.attached && !seen.is_at_start());
        }
        self.by_node.entry(fact.node.clone()).or_default().insert(fact.name.clone());
        of.fact = fact;
        true
    }

    pub fn list_begin(&mut self) {
        self.listed = Some(HashSet::new());
    }

    /// Names of attachments that are gone.
    pub fn list_end(&mut self) -> Vec<Arc<str>> {
        let listed = self.listed.take().unwrap_or_default();
        let mut lacking: Vec<Arc<str>> = self.known.keys().filter(|name| !listed.contains(*name)).cloned().collect();
        lacking.sort();
        lacking
    }

    /// The attachment's end, if it belonged to a lost pod; an error if the answer that would tell is missing. `stuck_after`: how long a
    /// replacement waits before that is a verdict.
    pub fn gone(&mut self, name: &str, seen: Seen, stuck_after: Duration) -> Option<Result<VolumeDetach, ObserverDropReason>> {
        let Attached { fact, requested, .. } = self.known.remove(name)?;
        if let Some(names) = self.by_node.get_mut(&fact.node) {
            names.remove(name);
            if names.is_empty() {
                self.by_node.remove(&fact.node);
            }
        }
        let is_of_node = |owner: &Owner| *owner.pod.node == *fact.node;
        let is_gone_of_node = |owner: &Owner| is_of_node(owner) && owner.gone.is_some();
        let Some(asked) = self.claims.get(&fact.volume) else {
            let is_missed = self.claims.len() >= MOST_CLAIMS && self.owners.values().any(is_gone_of_node);
            return is_missed.then_some(Err(ObserverDropReason::AttachmentCap));
        };
        let claim = asked.claim.clone();
        let is_owned = claim
            .as_ref()
            .is_some_and(|claim| self.owners.get(claim).is_some_and(is_of_node));
        // A volume of several nodes: the attachment to the lost one is still there.
        if is_owned || !self.known.values().any(|of| of.fact.volume == fact.volume) {
            self.claims.remove(&fact.volume);
        }
        let Some(claim) = claim else {
            let is_missed = self.owners.values().any(is_gone_of_node);
            return is_missed.then_some(Err(ObserverDropReason::BeginUnseen));
        };
        if !is_owned {
            return None;
        }
        let owner = self.owners.remove(&claim)?;
        self.waiting.remove(&claim);
        let end = seen.moment();
        self.detached.insert(fact.volume.clone(), (claim.clone(), end.at));
        // A Deployment's replacement waits while the old pod still exists.
        let Some(begin) = owner.gone.or(owner.waited) else {
            return Some(Err(ObserverDropReason::BeginUnseen));
        };
        let waited = owner
            .waited
            .map(|since| end.at.since(since.at))
            .filter(|waited| *waited >= stuck_after);
        Some(Ok(VolumeDetach {
            verdict: waited.map(|waited| sentence::volume(&fact, waited)),
            pod: owner.pod,
            claim,
            volume: fact.volume,
            attachment: fact.name,
            attacher: fact.attacher,
            begin,
            end,
            requested,
            error: fact.error,
        }))
    }

    /// Volumes of this node whose claim is to be asked for: for the first time, or again.
    pub fn unasked(&mut self, node: &str, now: Boot) -> Vec<Arc<str>> {
        let unknown = |volume: &Arc<str>| match self.claims.get(volume) {
            Some(asked) => asked.claim.is_none() && now >= asked.again,
            None => true,
        };
        let mut volumes: Vec<Arc<str>> = self.of_node(node).map(|of| of.fact.volume.clone()).filter(unknown).collect();
        volumes.sort();
        volumes.dedup();
        let mut room = MOST_CLAIMS.saturating_sub(self.claims.len());
        volumes.retain(|volume| {
            if let Some(asked) = self.claims.get_mut(volume) {
                asked.pause = (2 * asked.pause).min(VOLUME_LONGEST_PAUSE);
                asked.again = now.plus(asked.pause);
                return true;
            }
            let is_room = room > 0;
            if is_room {
                room -= 1;
                let asked = Asked {
                    claim: None,
                    again: now.plus(VOLUME_FIRST_PAUSE),
                    pause: VOLUME_FIRST_PAUSE,
                };
                self.claims.insert(volume.clone(), asked);
            }
            is_room
        });
        volumes
    }

    pub fn claim(&mut self, volume: &Arc<str>, claim: Option<ClaimKey>) {
        // A late answer about a volume that is not of interest any more is dropped.
        if let Some(asked) = self.claims.get_mut(volume) {
            asked.claim = claim.or(asked.claim.take());
        }
    }

    /// A pod of a lost node is being deleted, or is gone: the number of its claims for which there is no room.
    pub fn pod_ends(&mut self, member: &Member, gone: Option<Moment>) -> usize {
        let pod = &member.pod;
        // Nothing waits for the detach of a volume that was never attached.
        if !self.by_node.contains_key(pod.node.as_str()) {
            return 0;
        }
        // A pod that has run has real claims; of another they may be made up, 32 each.
        let room = if member.ran.has_run { MOST_CLAIMS } else { MOST_CLAIMS / 2 };
        let mut dropped = 0;
        for name in &member.claims {
            let key = claim_key(pod, name);
            if let Some(owner) = self.owners.get_mut(&key).filter(|owner| owner.pod.uid == pod.uid) {
                owner.gone = owner.gone.or(gone);
            } else if self.owners.len() + self.detached.len() < room {
                let owner = Owner {
                    pod: pod.clone(),
                    gone,
                    waited: None,
                    is_alarmed: false,
                };
                self.owners.insert(key, owner);
            } else if gone.is_none() {
                dropped += 1;
            }
        }
        dropped
    }

    /// The node is back: its kubelet ends the pods, and a volume is only of interest if a replacement waits for it.
    pub fn returned(&mut self, node: &str) {
        self.owners
            .retain(|_, owner| *owner.pod.node != *node || owner.gone.is_some() || owner.waited.is_some());
    }

    /// Replacements that have waited for so long, once each.
    pub fn overdue(&mut self, now: Boot, stuck_after: Duration, is_due: impl Fn(&str) -> bool) -> Vec<Overdue> {
        let mut overdue = Vec::new();
        for (claim, (_, since)) in &self.waiting {
            let waited = now.since(since.at);
            let Some(owner) = self
                .owners
                .get(claim)
                .filter(|owner| !owner.is_alarmed && waited >= stuck_after && is_due(&owner.pod.node))
            else {
                continue;
            };
            let is_its = |of: &&Attached| {
                let known = self.claims.get(&of.fact.volume).and_then(|asked| asked.claim.as_ref());
                of.fact.attached && known == Some(claim)
            };
            if let Some(of) = self.of_node(&owner.pod.node).find(is_its) {
                let (pod, attachment) = (owner.pod.clone(), of.fact.clone());
                overdue.push((claim.clone(), Overdue { pod, attachment, waited }));
            }
        }
        let alarmed = overdue.into_iter().map(|(claim, overdue)| {
            if let Some(owner) = self.owners.get_mut(&claim) {
                owner.is_alarmed = true;
            }
            overdue
        });
        alarmed.collect()
    }

    /// A version of a pod on another node: does it wait for a volume of a lost node?
    pub fn pod(&mut self, uid: &PodUid, record: &Record, seen: Moment) {
        let pod = &record.identity;
        let is_settled = record.ready.is_some() || record.ended.is_some();
        for name in &record.details().claims {
            let key = claim_key(pod, name);
            let is_elsewhere = self
                .owners
                .get(&key)
                .is_some_and(|owner| owner.pod.node != pod.node && !pod.node.is_empty());
            if is_settled || !is_elsewhere {
                if self.waiting.get(&key).is_some_and(|(of, _)| of == uid) {
                    self.waiting.remove(&key);
                    // Ready beside the attachment to the lost node: a volume of several nodes.
                    if let Some(owner) = self.owners.get_mut(&key) {
                        owner.waited = None;
                    }
                }
            } else if !self.waiting.contains_key(&key) {
                self.waiting.insert(key.clone(), (uid.clone(), seen));
                if let Some(owner) = self.owners.get_mut(&key) {
                    owner.waited = Some(seen);
                }
            }
        }
    }

    /// Namespace of each replacement that waits, and since when.
    pub fn waiting(&self) -> impl Iterator<Item = (&Box<str>, Moment)> {
        let attached: HashSet<&ClaimKey> = self.claims.values().filter_map(|asked| asked.claim.as_ref()).collect();
        let waiting = self.waiting.iter().filter(move |(claim, _)| attached.contains(claim));
        waiting.map(|(claim, (_, since))| (&claim.namespace, *since))
    }

    /// Volumes still attached to this node of which the pod is gone, or for which a replacement waits.
    pub fn left(&self, node: &str) -> usize {
        let attached = self.of_node(node).filter(|of| of.fact.attached);
        let claims = attached.filter_map(|of| self.claims.get(&of.fact.volume)?.claim.as_ref());
        let is_gone = |claim: &ClaimKey| self.owners.get(claim).is_some_and(|owner| owner.gone.is_some());
        claims
            .filter(|claim| is_gone(claim) || self.waiting.contains_key(*claim))
            .count()
    }

    /// The node is not lost any more.
    pub fn forget(&mut self, node: &str) {
        let volumes: Vec<Arc<str>> = self.of_node(node).map(|of| of.fact.volume.clone()).collect();
        for volume in volumes {
            self.claims.remove(&volume);
        }
        let (owners, waiting) = (&mut self.owners, &mut self.waiting);
        owners.retain(|claim, owner| {
            let keep = *owner.pod.node != *node;
            if !keep {
                waiting.remove(claim);
            }
            keep
        });
    }

    /// No replacement waits any more.
    pub fn expire(&mut self, now: Boot) {
        self.detached.retain(|_, (_, since)| now.since(*since) <= READY_WITHIN);
    }

    /// When the last of the volumes of a lost node that this replacement uses was attached to its node; None if one was not, or
    /// nobody watched it.
    pub fn attached_to(&self, by: &PodIdentity, claims: &[Box<str>]) -> Option<Moment> {
        let claim_of = |volume: &Arc<str>| {
            let asked = self.claims.get(volume).and_then(|asked| asked.claim.as_ref());
            asked.or(self.detached.get(volume).map(|(claim, _)| claim))
        };
        let is_its = |of: &&Attached| {
            claim_of(&of.fact.volume).is_some_and(|claim| *claim.namespace == *by.namespace && claims.contains(&claim.name))
        };
        let since: Option<Vec<Moment>> = self.of_node(&by.node).filter(is_its).map(|of| of.since).collect();
        since?.into_iter().max_by_key(|since| since.at)
    }

    fn of_node(&self, node: &str) -> impl Iterator<Item = &Attached> {
        let names = self.by_node.get(node).into_iter().flatten();
        names.filter_map(|name| self.known.get(name))
    }
}

fn claim_key(pod: &PodIdentity, name: &str) -> ClaimKey {
    ClaimKey {
        namespace: pod.namespace.as_str().into(),
        name: name.into(),
    }
}
