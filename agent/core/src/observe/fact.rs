//! The watched objects, reduced to what is needed.

use std::sync::Arc;

use crate::ids::PodUid;
use crate::pod::{ApiClock, PodIdentity};
use crate::time::Boot;

/// The observer's watches. Each has its own gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Watch {
    EndpointSlices,
    Pods,
    Namespaces,
}

impl Watch {
    pub const ALL: [Watch; 3] = [Watch::EndpointSlices, Watch::Pods, Watch::Namespaces];

    /// The resource, as RBAC and metrics name it.
    pub const fn name(self) -> &'static str {
        match self {
            Watch::EndpointSlices => "endpointslices",
            Watch::Pods => "pods",
            Watch::Namespaces => "namespaces",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    Slice(SliceFact),
    SliceGone(SliceKey),
    Pod(PodSight),
    PodGone(PodUid),
    /// `ignored`: annotated `epitaph.dev/ignore: "true"`.
    Namespace {
        name: String,
        ignored: bool,
    },
    NamespaceGone(String),
    /// All objects follow; an object that does not follow is gone.
    ListBegin(Watch),
    ListEnd(Watch),
    /// A list or a watch failed: changes from `since` on may be reported late.
    Broken {
        watch: Watch,
        since: Boot,
    },
    ApiClock(ApiClock),
    /// No input was read since the last one: changes of all watches waited meanwhile.
    Stalled,
    /// Only time has passed.
    Tick,
}

impl Input {
    /// The watch that an object comes from.
    pub(super) fn watch(&self) -> Option<Watch> {
        match self {
            Input::Slice(_) | Input::SliceGone(_) => Some(Watch::EndpointSlices),
            Input::Pod(_) | Input::PodGone(_) => Some(Watch::Pods),
            Input::Namespace { .. } | Input::NamespaceGone(_) => Some(Watch::Namespaces),
            Input::ListBegin(_)
            | Input::ListEnd(_)
            | Input::Broken { .. }
            | Input::ApiClock(_)
            | Input::Stalled
            | Input::Tick => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SliceKey {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

/// One version of an EndpointSlice of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceFact {
    pub key: SliceKey,
    /// Label `kubernetes.io/service-name`.
    pub service: Arc<str>,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: Arc<str>,
    /// As in [`super::EndpointRemoval::ports`].
    pub ports: Arc<[String]>,
    /// The endpoints that are pods.
    pub endpoints: Vec<EndpointFact>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointFact {
    pub pod: PodUid,
    pub conditions: Conditions,
}

/// As the API has them, its defaults applied: unset is ready and serving, and not terminating.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
}

impl Conditions {
    /// Of one endpoint in several slices.
    pub(super) fn or(self, other: Conditions) -> Conditions {
        Conditions {
            ready: self.ready || other.ready,
            serving: self.serving || other.serving,
            terminating: self.terminating || other.terminating,
        }
    }
}

/// One version of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSight {
    pub identity: Arc<PodIdentity>,
    /// The controller among its owners.
    pub owner: Option<Owner>,
    /// Annotation `batch.kubernetes.io/job-completion-index`.
    pub completion_index: Option<Box<str>>,
    /// `spec.nodeName` is set.
    pub scheduled: bool,
    /// The condition `Ready`.
    pub ready: bool,
    /// `deletionTimestamp` is set.
    pub deleting: bool,
    /// Phase `Failed`.
    pub failed: bool,
    /// Phase `Succeeded`.
    pub succeeded: bool,
    /// A container runs, or has terminated for good: only then the pod has a termination to report. A container that waits for its
    /// restart does not count.
    pub started: bool,
    /// Annotation `epitaph.dev/ignore`; None: the namespace's counts.
    pub ignored: Option<bool>,
}

impl PodSight {
    /// The pod is being deleted, or has finished.
    pub fn ends(&self) -> bool {
        self.deleting || self.failed || self.succeeded
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    pub kind: Box<str>,
    pub uid: Arc<str>,
}
