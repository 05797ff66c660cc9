//! The facts of a pod that is still `Terminating` although its containers have exited.

use std::sync::Arc;
use std::time::Duration;

use crate::pod::PodIdentity;
use crate::time::Boot;

/// What the kernel and the API show of the layers that a termination goes through after the last container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldFacts {
    pub pod: Arc<PodIdentity>,
    pub at: Boot,
    /// When a version of the pod first showed its deletion.
    pub requested: Boot,
    /// Exit of the last container; None: no exit of a container was seen, and none runs.
    pub last_exit: Option<Boot>,
    /// Containers of which the kernel saw the exit, and which the pod's status still has as running.
    pub unreported: Vec<String>,
    pub sandbox: Sandbox,
    /// The last Event `FailedKillPod` since the deletion.
    pub failed: Option<FailedKill>,
    /// The pod's Events were listed after the last exit.
    pub are_events_known: bool,
    /// Names of the pod's PersistentVolumeClaims.
    pub claims: Vec<String>,
    pub finalizers: Vec<String>,
    /// `deletionGracePeriodSeconds` is 0: the kubelet is done with the pod, or Kubernetes does not wait for the kubelet.
    pub is_released: bool,
}

/// The kubelet could not stop a container or the sandbox, and tries again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedKill {
    pub at: Boot,
    pub message: String,
    /// Late enough, when the Events were listed, to be of the last try.
    pub is_fresh: bool,
}

/// The pod's sandbox: its pause process, and its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    /// No exit of its process was observed.
    Runs,
    /// Its process is gone, or the status has no sandbox any more.
    Gone,
    Unknown,
}

impl HeldFacts {
    /// How long the pod has waited since its last container exited, or since its deletion if that was later.
    pub fn waited(&self) -> Duration {
        self.at.since(self.last_exit.unwrap_or(self.requested).max(self.requested))
    }
}
