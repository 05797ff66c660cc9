//! The watched objects, reduced to what is needed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::PodUid;
use crate::pod::{ApiClock, PodIdentity};
use crate::time::{Boot, Wall};

/// The observer's watches. Each has its own gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Watch {
    EndpointSlices,
    Pods,
    Namespaces,
    Nodes,
    VolumeAttachments,
}

names! {
    /// The resource, as RBAC and metrics name it.
    all Watch:
    EndpointSlices => "endpointslices",
    Pods => "pods",
    Namespaces => "namespaces",
    Nodes => "nodes",
    VolumeAttachments => "volumeattachments",
}

impl Watch {
    /// Without these nothing is reported; without the others, nothing about lost nodes or about volumes.
    pub const ESSENTIAL: [Watch; 3] = [Watch::EndpointSlices, Watch::Pods, Watch::Namespaces];
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
    Node(NodeFact),
    NodeGone(Arc<str>),
    Attachment(AttachmentFact),
    /// By the object's name.
    AttachmentGone(Arc<str>),
    /// Answer to [`Ask::Renewal`]; None: the node has no Lease, or the Lease could not be read.
    Renewal {
        node: Arc<str>,
        renewed: Option<ApiTime>,
    },
    /// Answer to [`Ask::Agent`]: whether the agent answered `/healthz`, and the number of the shutdown that is in progress there.
    Agent {
        node: Arc<str>,
        answered: bool,
        shutdown: Option<u32>,
    },
    /// Answer to [`Ask::Claim`]: namespace and name of the volume's claim.
    Claim {
        volume: Arc<str>,
        claim: Option<ClaimKey>,
    },
    Version(ClusterVersion),
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
    /// The wall clock is ahead by this much of where it was on this machine's clock: the machine was paused with both clocks, or somebody
    /// set the wall clock. Changes waited since the last input, and for up to so much longer.
    Paused(Duration),
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
            Input::Node(_) | Input::NodeGone(_) => Some(Watch::Nodes),
            Input::Attachment(_) | Input::AttachmentGone(_) => Some(Watch::VolumeAttachments),
            Input::Renewal { .. }
            | Input::Agent { .. }
            | Input::Claim { .. }
            | Input::Version(_)
            | Input::ListBegin(_)
            | Input::ListEnd(_)
            | Input::Broken { .. }
            | Input::ApiClock(_)
            | Input::Stalled
            | Input::Paused(_)
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
    pub run: PodRun,
    /// Annotation `epitaph.dev/ignore`; None: the namespace's counts.
    pub ignored: Option<bool>,
    /// No `NoExecute` taint of an unreachable node evicts the pod: it tolerates the taint without a limit, as a DaemonSet's pod does.
    pub outlasts: bool,
    pub details: PodDetails,
}

/// How far a pod has come, by its status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodRun {
    /// Phase `Failed`.
    pub failed: bool,
    /// Phase `Succeeded`.
    pub succeeded: bool,
    /// A container runs, or has terminated for good: only then the pod has a termination to report. A container that waits for its
    /// restart does not count.
    pub started: bool,
    /// A container has run, now or at some time: also one that waits for its restart.
    pub has_run: bool,
    /// Every container has terminated. Only a kubelet writes that: without one, a deleted pod's containers still run by their statuses.
    pub terminated: bool,
}

/// What only few pods have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDetails {
    /// `deletionTimestamp` is set.
    pub deletion: Option<DeletionSight>,
    pub finalizers: Vec<Box<str>>,
    /// Names of the pod's PersistentVolumeClaims, in its namespace.
    pub claims: Vec<Box<str>>,
    /// The pod is an agent of ours, with this address of `/healthz`.
    pub agent: Option<SocketAddr>,
}

impl PodRun {
    pub fn is_finished(&self) -> bool {
        self.failed || self.succeeded
    }
}

impl PodSight {
    /// The pod is being deleted, or has finished.
    pub fn ends(&self) -> bool {
        self.details.deletion.is_some() || self.run.is_finished()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    pub kind: Box<str>,
    pub uid: Arc<str>,
}

/// A time that the API reports: whole seconds, on the clock of whoever wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiTime {
    pub wall: Wall,
    /// The same time on this machine's clock, if both clocks agree.
    pub at: Boot,
}

/// `deletionTimestamp` and `deletionGracePeriodSeconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletionSight {
    /// Their difference.
    pub requested: ApiTime,
    pub grace: Duration,
    /// Because of a taint: the condition `DisruptionTarget` with reason `DeletionByTaintManager`.
    pub by_taint: bool,
}

/// The condition `Ready` of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    True,
    /// As the kubelet itself reports.
    False,
    /// The kubelet is silent: as the node controller reports.
    Unknown,
}

/// One version of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFact {
    pub identity: Arc<NodeIdentity>,
    pub ready: Ready,
    /// `lastTransitionTime` of that condition.
    pub transition: Option<ApiTime>,
    pub reason: Box<str>,
    pub message: Box<str>,
    /// The taint `node.kubernetes.io/out-of-service`, which a person sets.
    pub out_of_service: bool,
    /// A taint with effect `NoExecute` for a node that is not ready: the controller evicts its pods.
    pub evicting: bool,
    /// The taint `node.cloudprovider.kubernetes.io/shutdown`: the provider confirms that the machine is off.
    pub powered_off: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    pub name: Arc<str>,
    pub uid: Box<str>,
    /// `status.nodeInfo.bootID`.
    pub boot_id: Box<str>,
    /// `status.nodeInfo.systemUUID`: of the machine; empty if it is not known.
    pub system_uuid: Box<str>,
    pub kubelet_version: Box<str>,
    /// `spec.providerID`; empty if the node has none.
    pub provider: Box<str>,
    /// `spec.unschedulable`: cordoned.
    pub unschedulable: bool,
}

/// One version of a VolumeAttachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentFact {
    pub name: Arc<str>,
    /// The PersistentVolume.
    pub volume: Arc<str>,
    pub node: Arc<str>,
    /// The CSI driver.
    pub attacher: Box<str>,
    pub attached: bool,
    /// `deletionTimestamp` is set: the detach is requested.
    pub detaching: bool,
    /// `status.detachError.message`.
    pub error: Option<Box<str>>,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimKey {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

/// Version of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterVersion {
    pub major: u32,
    pub minor: u32,
}

/// A question about a lost node: the runtime asks, and the answer is an [`Input`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// When did the kubelet last renew its Lease?
    Renewal { node: Arc<str> },
    /// Does the node's agent answer `/healthz`?
    Agent { node: Arc<str>, address: SocketAddr },
    /// Which claim is bound to this PersistentVolume?
    Claim { volume: Arc<str> },
}
