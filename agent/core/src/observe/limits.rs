//! The observer's bounds of memory and of patience, and why a change is not reported.

use std::time::Duration;

/// Bounds of memory, where dropped objects are counted; and of patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserverLimits {
    /// Known pods, including those that are gone but still needed.
    pub pods: usize,
    /// Known endpoints, one per Service and pod.
    pub endpoints: usize,
    /// Terminated pods that wait for a replacement.
    pub vacancies: usize,
    /// Known nodes.
    pub nodes: usize,
    /// Pods of lost nodes, and pods that are being deleted.
    pub lost_pods: usize,
    /// After how long a held pod is reported as stuck.
    pub stuck_after: Duration,
}

impl Default for ObserverLimits {
    fn default() -> Self {
        // Kubernetes' own largest cluster has 150 000 pods.
        ObserverLimits {
            pods: 150_000,
            endpoints: 300_000,
            vacancies: 10_000,
            nodes: 15_000,
            // A zone of a third of the largest cluster.
            lost_pods: 50_000,
            stuck_after: Duration::from_secs(120),
        }
    }
}

/// How long Epitaphs are kept, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepLimits {
    pub unclean: Duration,
    pub clean: Duration,
    pub per_namespace: usize,
    pub cluster: usize,
}

impl KeepLimits {
    pub const DEFAULT: KeepLimits = {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        KeepLimits {
            // A week: an incident is looked into on the days after it.
            unclean: DAY.saturating_mul(7),
            clean: DAY,
            per_namespace: 500,
            // 40 MB in etcd, whose default quota is 2 GB.
            cluster: 10_000,
        }
    };
}

impl Default for KeepLimits {
    fn default() -> Self {
        KeepLimits::DEFAULT
    }
}

/// Why a change is not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObserverDropReason {
    /// More pods than [`ObserverLimits::pods`].
    PodCap,
    /// More endpoints than [`ObserverLimits::endpoints`].
    EndpointCap,
    /// More open vacancies than [`ObserverLimits::vacancies`].
    VacancyCap,
    /// More nodes than [`ObserverLimits::nodes`].
    NodeCap,
    /// More pods of lost nodes than [`ObserverLimits::lost_pods`].
    LostPodCap,
    /// Too many VolumeAttachments, or volumes of lost nodes.
    AttachmentCap,
    /// The change had begun before the observation.
    BeginUnseen,
    /// An endpoint was removed, and the pods' watch never showed its pod.
    PodUnknown,
    /// An endpoint was removed, and its pod continues according to the pods' watch.
    PodGoesOn,
}

names! {
    /// Name on metrics.
    all ObserverDropReason:
    PodCap => "pod_cap",
    EndpointCap => "endpoint_cap",
    VacancyCap => "vacancy_cap",
    NodeCap => "node_cap",
    LostPodCap => "lost_pod_cap",
    AttachmentCap => "attachment_cap",
    BeginUnseen => "begin_unseen",
    PodUnknown => "pod_unknown",
    PodGoesOn => "pod_goes_on",
}
