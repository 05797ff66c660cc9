//! What one node cannot see of a pod's end: when its endpoints left their Services, and which pod took its place.
//!
//! A pure state machine beside `correlate`: watched objects in, finished facts out.
//!
//! *Architecture invariant*: reads no clock, does no I/O, keeps a bounded number of objects and counts what it does not keep.
//! Only what was watched from its beginning is told: an observer that starts in the middle of a removal says nothing of it.

mod contact;
pub mod election;
mod endpoints;
mod fact;
mod pods;
mod replacements;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::pod::{ApiClock, PodIdentity};
use crate::time::Boot;

pub use contact::BACK_WITHIN;
pub use fact::{Conditions, EndpointFact, Input, Owner, PodSight, SliceFact, SliceKey, Watch};

use contact::{Contact, Seen};
use endpoints::Endpoints;
use pods::Pods;
use replacements::Replacements;

/// Bounds of memory; what does not fit is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserverLimits {
    /// Pods known, those that are gone but still needed among them.
    pub pods: usize,
    /// Endpoints known, one per Service and pod.
    pub endpoints: usize,
    /// Ended pods that wait for a replacement.
    pub vacancies: usize,
}

impl Default for ObserverLimits {
    fn default() -> Self {
        // Kubernetes' own largest cluster has 150 000 pods.
        ObserverLimits {
            pods: 150_000,
            endpoints: 300_000,
            vacancies: 10_000,
        }
    }
}

/// When something was seen, on this machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub at: Boot,
    /// The watch was interrupted before: it may have happened so much earlier.
    pub gap: Option<Duration>,
}

impl Moment {
    const fn exact(at: Boot) -> Moment {
        Moment { at, gap: None }
    }

    fn earliest(self) -> Boot {
        self.at.minus(self.gap.unwrap_or_default())
    }
}

/// One pod's way out of one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointRemoval {
    pub pod: Arc<PodIdentity>,
    /// Name of the Service, in the pod's namespace.
    pub service: Arc<str>,
    /// `http/TCP:8080`, or without a name `TCP:8080`.
    pub ports: Arc<[String]>,
    /// `IPv4`, `IPv6`: of the slices that held it.
    pub address_types: Vec<Arc<str>>,
    /// Terminating first seen; where it never was, no longer ready, if that belongs to the pod's end; else gone.
    pub begin: Moment,
    /// In no slice of the Service any more.
    pub end: Moment,
    pub terminating: Option<Moment>,
    /// Since when it was not ready.
    pub not_ready: Option<Moment>,
    /// Since when it was not serving.
    pub not_serving: Option<Moment>,
    /// Since when, within begin and end, no endpoint of the Service was ready and kube-proxy used serving, terminating ones.
    pub all_terminating: Option<Moment>,
    /// It was ready and terminating at once, as only `publishNotReadyAddresses` makes it.
    pub publish_not_ready: bool,
    /// As far as it was known when this was told.
    pub api_clock: Option<ApiClock>,
}

/// The pod that took an ended one's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The one that ended.
    pub pod: Arc<PodIdentity>,
    /// As it was when it became ready.
    pub by: Arc<PodIdentity>,
    pub rule: Rule,
    pub created: Moment,
    pub scheduled: Option<Moment>,
    pub ready: Option<Moment>,
    /// Ready, or, without that, the end of the replacement or of our patience.
    pub end: Moment,
    /// As in [`EndpointRemoval::api_clock`].
    pub api_clock: Option<ApiClock>,
}

/// How a replacement is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The next pod of the same ReplicaSet (or ReplicationController), first ended first replaced.
    NextOfReplicaSet,
    /// Same StatefulSet, same name.
    NameInStatefulSet,
    /// Same DaemonSet, same node.
    NodeOfDaemonSet,
    /// Same Job, same completion index.
    IndexInJob,
    /// The next pod of a Job that has one pod at a time.
    NextOfJob,
}

impl Rule {
    pub const fn name(self) -> &'static str {
        match self {
            Rule::NextOfReplicaSet => "next-of-replica-set",
            Rule::NameInStatefulSet => "name-in-stateful-set",
            Rule::NodeOfDaemonSet => "node-of-daemon-set",
            Rule::IndexInJob => "index-in-job",
            Rule::NextOfJob => "next-of-job",
        }
    }
}

/// What the machine says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Removal(Box<EndpointRemoval>),
    Replacement(Box<Replacement>),
    Dropped { reason: DropReason, count: u64 },
}

impl Output {
    /// Whose trace it is for.
    pub fn pod_mut(&mut self) -> Option<&mut Arc<PodIdentity>> {
        match self {
            Output::Removal(removal) => Some(&mut removal.pod),
            Output::Replacement(replacement) => Some(&mut replacement.pod),
            Output::Dropped { .. } => None,
        }
    }
}

/// Why something is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// More pods than [`ObserverLimits::pods`].
    PodCap,
    /// More endpoints than [`ObserverLimits::endpoints`].
    EndpointCap,
    /// More open vacancies than [`ObserverLimits::vacancies`].
    VacancyCap,
    /// It was under way when the observation began.
    BeginUnseen,
    /// An endpoint left whose pod the pods' watch never showed.
    PodUnknown,
    /// An endpoint left whose pod goes on, as far as the pods' watch tells.
    PodGoesOn,
}

impl DropReason {
    pub const ALL: [DropReason; 6] = [
        DropReason::PodCap,
        DropReason::EndpointCap,
        DropReason::VacancyCap,
        DropReason::BeginUnseen,
        DropReason::PodUnknown,
        DropReason::PodGoesOn,
    ];

    /// Name on metrics.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::PodCap => "pod_cap",
            DropReason::EndpointCap => "endpoint_cap",
            DropReason::VacancyCap => "vacancy_cap",
            DropReason::BeginUnseen => "begin_unseen",
            DropReason::PodUnknown => "pod_unknown",
            DropReason::PodGoesOn => "pod_goes_on",
        }
    }
}

/// One term of office: made when the Lease is won, dropped when it is lost.
#[derive(Debug)]
pub struct Observer {
    contact: [Contact; Watch::ALL.len()],
    /// When the last input was taken in.
    told: Option<Boot>,
    /// Namespaces whose owners opted out, of the list that goes on.
    ignored_so_far: Option<HashSet<String>>,
    pods: Pods,
    endpoints: Endpoints,
    replacements: Replacements,
    api_clock: Option<ApiClock>,
}

impl Observer {
    pub fn new(limits: ObserverLimits) -> Observer {
        Observer {
            contact: Default::default(),
            told: None,
            ignored_so_far: None,
            pods: Pods::new(limits.pods),
            endpoints: Endpoints::new(limits.endpoints),
            replacements: Replacements::new(limits.vacancies),
            api_clock: None,
        }
    }

    /// `now` does not go back.
    pub fn handle(&mut self, now: Boot, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        let before = self.told.replace(now).unwrap_or(now);
        let seen = input.watch().map(|watch| self.contact[watch as usize].word(now));
        match (input, seen) {
            (Input::Broken { watch, since }, _) => self.contact[watch as usize].broken(since, now),
            (Input::ListBegin(watch), _) => self.list_begin(watch, now),
            (Input::ListEnd(watch), _) => self.list_end(watch, now, &mut out),
            (Input::Slice(slice), Some(seen)) => self.endpoints.slice(slice, seen, &mut out),
            (Input::SliceGone(key), Some(seen)) => self.endpoints.slice_gone(&key, seen),
            (Input::Pod(sight), Some(seen)) => {
                let seen = self.unless_unsynced(seen);
                if let Some(step) = self.pods.apply(sight, seen, &mut out) {
                    self.replacements.step(&step, &self.pods, &mut out);
                }
            }
            (Input::PodGone(uid), Some(seen)) => {
                let seen = self.unless_unsynced(seen);
                if let Some(step) = self.pods.gone(&uid, seen) {
                    self.replacements.step(&step, &self.pods, &mut out);
                }
            }
            (Input::Stalled, _) => self.contact.iter_mut().for_each(|contact| contact.stalled(before, now)),
            (Input::Tick, _) => self.contact.iter_mut().for_each(|contact| contact.tick(now)),
            (Input::Namespace { name, ignored }, _) => self.namespace(name, ignored),
            (Input::NamespaceGone(name), _) => self.namespace(name, false),
            (Input::ApiClock(clock), _) => self.api_clock = Some(clock),
            _ => {}
        }
        // Before that nobody knows who opted out.
        if self.is_synced() {
            let pods_in_gap = self.contact[Watch::Pods as usize].is_in_gap();
            self.endpoints.finish(now, &self.pods, pods_in_gap, &mut out);
            self.replacements.finish(now, &self.pods, &mut out);
        }
        self.pods.forget(now);
        for output in &mut out {
            match output {
                Output::Removal(removal) => removal.api_clock = self.api_clock,
                Output::Replacement(replacement) => replacement.api_clock = self.api_clock,
                Output::Dropped { .. } => {}
            }
        }
        out
    }

    /// Every watch told its first list.
    pub fn is_synced(&self) -> bool {
        self.contact.iter().all(Contact::is_synced)
    }

    /// Pods, and endpoints, known.
    pub fn known(&self) -> (usize, usize) {
        (self.pods.len(), self.endpoints.len())
    }

    /// A pod that ends before the namespaces are known may be one whose owners opted out: as if it had ended before us.
    fn unless_unsynced(&self, seen: Seen) -> Seen {
        if self.is_synced() {
            seen
        } else {
            Seen::AtStart(seen.moment().at)
        }
    }

    fn list_begin(&mut self, watch: Watch, now: Boot) {
        self.contact[watch as usize].list_begin(now);
        match watch {
            Watch::EndpointSlices => self.endpoints.list_begin(),
            Watch::Pods => self.pods.list_begin(),
            Watch::Namespaces => self.ignored_so_far = Some(HashSet::new()),
        }
    }

    fn list_end(&mut self, watch: Watch, now: Boot, out: &mut Vec<Output>) {
        let seen = self.contact[watch as usize].word(now);
        match watch {
            Watch::EndpointSlices => self.endpoints.list_end(seen),
            Watch::Pods => {
                for step in self.pods.list_end(seen) {
                    self.replacements.step(&step, &self.pods, out);
                }
            }
            Watch::Namespaces => self.pods.ignored = self.ignored_so_far.take().unwrap_or_default(),
        }
        self.contact[watch as usize].list_end();
    }

    fn namespace(&mut self, name: String, ignored: bool) {
        let names = self.ignored_so_far.as_mut().unwrap_or(&mut self.pods.ignored);
        if ignored {
            names.insert(name);
        } else {
            names.remove(&name);
        }
    }
}
