//! What is known of a loss, and what follows from it for the machine.

use std::time::Duration;

use super::report::{Advice, AgentAnswer};
use super::verdict::Loss;
use crate::observe::{ClusterVersion, NodeIdentity, Ready};
use crate::pod::PodIdentity;

/// So many machines seldom die at once.
const MANY: usize = 3;

/// See the module.
pub(super) struct Known<'a> {
    pub node: &'a NodeIdentity,
    /// How long the node is, or was, not ready.
    pub lasted: Duration,
    pub kubelet: Kubelet<'a>,
    pub machine: Machine,
    pub pods: PodCounts<'a>,
    /// Has the taint `out-of-service`.
    pub fenced: bool,
    /// The controller does not evict the node's pods.
    pub held_back: bool,
    /// Nodes that fell silent together, and all nodes.
    pub at_once: (usize, usize),
    /// The node is back, or its object is deleted.
    pub is_over: bool,
    /// The Node object was deleted, and no kubelet ends what is left of its pods and volumes.
    pub is_deleted: bool,
    pub version: Option<ClusterVersion>,
}

/// What the kubelet reported, and until when.
pub(super) struct Kubelet<'a> {
    pub ready: Ready,
    pub reason: &'a str,
    /// How long before its silence it renewed its Lease last.
    pub renewed: Option<Duration>,
    /// At the begin of the loss it was not silent.
    pub was_heard: bool,
    /// It was, at some time of the loss.
    pub was_silent: bool,
}

/// What shows whether the machine runs, and with which containers.
pub(super) struct Machine {
    pub agent: AgentAnswer,
    /// By its provider's last report, and the kubelet is silent.
    pub powered_off: bool,
    /// The kubelet had announced a shutdown of the machine.
    pub shuts_down: bool,
    /// The machine has booted since.
    pub has_booted: bool,
    /// Another machine has the node's object: what is said of the node is not of the lost one.
    pub is_other: bool,
    /// The machine has booted since, and so none of its old containers can run.
    pub is_rebooted: bool,
}

/// The pods of the node.
pub(super) struct PodCounts<'a> {
    /// Those that the node could not terminate.
    pub stuck: usize,
    /// Of these, pods that are gone.
    pub gone: usize,
    /// Pods that were deleted without the kubelet, and that may be replaced.
    pub vanished: usize,
    /// Of these, pods whose replacement may write the same volume, or has the same identity; and the first one.
    pub doubled: (usize, Option<&'a PodIdentity>),
    /// Pods that the taint ends, or that hang.
    pub to_release: usize,
    /// There are such pods of a StatefulSet, or with volumes.
    pub to_double: bool,
    /// There are pods of which nothing is known.
    pub has_dropped: bool,
}

impl Known<'_> {
    /// The verdict while the loss goes on.
    pub fn verdict(&self) -> Loss {
        match self.fenced {
            true => Loss::FencedByTaint,
            false => self.contacted(),
        }
    }

    pub fn contacted(&self) -> Loss {
        let is_heard =
            !self.is_over && self.kubelet.ready == Ready::False && !self.machine.has_booted && !self.machine.is_other;
        match self.ran() || is_heard {
            true => Loss::Unreachable,
            false => Loss::Lost,
        }
    }

    /// All the time: its agent answered, or its kubelet never was silent. A machine that boots reports Ready=False, too.
    pub fn ran(&self) -> bool {
        !self.machine.is_other
            && (self.machine.agent == AgentAnswer::Answered || (self.kubelet.ready == Ready::False && !self.kubelet.was_silent))
    }

    /// Now, with the containers of before the loss.
    pub fn runs(&self) -> bool {
        // The last word of the kubelet of a deleted Node object is of the past.
        let is_heard = self.machine.agent == AgentAnswer::Answered || (self.kubelet.ready == Ready::False && !self.is_deleted);
        is_heard && !self.machine.is_rebooted && !self.machine.is_other
    }

    /// The class of [`Known::remedy`].
    pub fn advice(&self) -> Advice {
        if self.is_dangerous() {
            match self.may_unfence() {
                true => Advice::PowerOffOrUnfence,
                false => Advice::PowerOff,
            }
        } else if self.fenced || (self.is_over && !self.is_deleted) {
            Advice::Unfence
        } else if self.is_reported_off() {
            Advice::Release
        } else if self.runs() || self.machine.is_rebooted {
            Advice::Repair
        } else if self.is_one_of_many() {
            Advice::MakeSureOfMany
        } else {
            Advice::MakeSure
        }
    }

    /// Pods with containers that may still run beside their replacements.
    pub fn run_twice(&self) -> usize {
        if self.is_away() && self.runs() {
            self.pods.doubled.0
        } else {
            0
        }
    }

    /// The machine runs, and its pods are, or are about to be, replaced.
    pub fn is_dangerous(&self) -> bool {
        let is_replaced =
            self.pods.doubled.0 > 0 || (self.fenced && self.pods.to_release > 0) || (self.is_deleted && self.pods.to_double);
        is_replaced && self.runs() && self.is_away()
    }

    /// No kubelet of the node has spoken since, also where the Node object was deleted; unless the machine was being shut down.
    pub fn is_away(&self) -> bool {
        !self.is_over || (self.is_deleted && !self.machine.shuts_down)
    }

    /// No pod is gone yet whose containers the taint's removal would not end.
    pub fn may_unfence(&self) -> bool {
        self.fenced && self.pods.doubled.0 == 0 && !self.pods.has_dropped
    }

    /// As the provider reported. The taint stays until the node is ready, also when the machine was switched on again and is cut off: no
    /// sentence may call the machine off now, and a machine that answers is not off.
    pub fn is_reported_off(&self) -> bool {
        self.machine.powered_off && !self.runs()
    }

    pub fn is_one_of_many(&self) -> bool {
        self.kubelet.ready == Ready::Unknown && self.at_once.0 >= MANY
    }
}
