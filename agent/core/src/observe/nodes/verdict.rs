//! The verdicts about lost nodes: one table, by the discipline of [`crate::verdict::table`]. What a node loses is not the exit of a
//! process, so these verdicts have no exit and no traffic.

use crate::verdict::Severity;

/// A verdict with its sentence and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossVerdict {
    pub row: &'static LossRow,
    pub sentence: String,
    pub remedy: String,
}

/// What one headline means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossRow {
    pub loss: Loss,
    /// `epitaph.verdict`.
    pub headline: &'static str,
    pub unclean: bool,
    pub severity: Severity,
    pub meaning: &'static str,
    pub proof: &'static str,
    pub remedy: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    StuckByFinalizer,
    StuckByVolume,
    DuplicateRun,
    FencedByTaint,
    Unreachable,
    Lost,
    TaintLeftBehind,
}

impl Loss {
    pub const fn row(self) -> &'static LossRow {
        &TABLE[self as usize]
    }

    pub(super) fn judged(self, sentence: String, remedy: String) -> LossVerdict {
        LossVerdict {
            row: self.row(),
            sentence,
            remedy,
        }
    }
}

/// The row of a headline, as `explain` asks for it.
pub fn by_headline(headline: &str) -> Option<&'static LossRow> {
    TABLE.iter().find(|row| row.headline == headline)
}

/// In the order of [`Loss`]; of several that hold for a pod, the first is the pod's.
pub const TABLE: [LossRow; 7] = [
    LossRow {
        loss: Loss::StuckByFinalizer,
        headline: "stuck-by-finalizer",
        unclean: true,
        severity: Severity::Warning,
        meaning: "Kubernetes no longer waits for a kubelet (grace period 0), but finalizers keep the pod's object. A StatefulSet does not create the replacement before this object is gone.",
        proof: "`metadata.deletionGracePeriodSeconds` is 0 (because the kubelet sent its last deletion request, because the deletion was forced, or because the pod had finished before), and `metadata.finalizers` is not empty.",
        remedy: "Find the controller that owns the finalizer, and find out why the controller does not remove the finalizer. Remove the finalizer by hand only if that controller does not exist any more.",
    },
    LossRow {
        loss: Loss::StuckByVolume,
        headline: "stuck-by-volume",
        unclean: true,
        severity: Severity::Warning,
        meaning: "The replacement waited for a volume that was still attached to the lost node.",
        proof: "A VolumeAttachment names the pod's volume and the lost node, and the replacement on another node was not ready during that time.",
        remedy: "If the node does not have the taint out-of-service, the attach-detach controller detaches the volume six minutes after the old pod's object is gone, and never while the old pod is still Terminating. If the node has the taint, look at the log of the external-attacher of the volume's CSI driver.",
    },
    LossRow {
        loss: Loss::DuplicateRun,
        headline: "duplicate-run",
        unclean: true,
        severity: Severity::Critical,
        meaning: "The node came back without a reboot: its containers existed all the time, and may have run at the same time as their replacements.",
        proof: "The node's bootID is the same before and after the loss, and the pod's replacement ran before the node was ready again.",
        remedy: "Check what both pods wrote in the time from the start of the replacement until the old pod's containers had terminated. This end may be later than the node's return. In future, power a lost node off before its pods are replaced.",
    },
    LossRow {
        loss: Loss::FencedByTaint,
        headline: "fenced-by-taint",
        unclean: true,
        severity: Severity::Warning,
        meaning: "The node is lost and has the taint node.kubernetes.io/out-of-service. Because of the taint, Kubernetes has released the pods and volumes of the node, or soon will, without confirmation by the kubelet.",
        proof: "The node was not ready and had the taint when the pod's object was deleted.",
        remedy: "Make sure that the machine is off. Remove the taint when the node is repaired: the taint stays until somebody removes it, and keeps pods away.",
    },
    LossRow {
        loss: Loss::Unreachable,
        headline: "unreachable",
        unclean: true,
        severity: Severity::Warning,
        meaning: "The node is not ready, but its agent answers, or its kubelet itself reports Ready=False. The machine runs, and its containers may run, too.",
        proof: "The condition Ready is not True, and one of two things shows that the machine runs: the agent's pod answered /healthz, or the kubelet itself reported Ready=False with the same bootID. If the report is made after the loss: Ready was False the whole time, and never Unknown.",
        remedy: "Repair the kubelet, the container runtime, or the network to the API server. Do not set the taint out-of-service on a node that runs, and do not delete its pods by force: two pods could write the same volume.",
    },
    LossRow {
        loss: Loss::Lost,
        headline: "lost",
        unclean: true,
        severity: Severity::Critical,
        meaning: "The node is not ready, nothing on it answers, and its pods cannot be terminated. These pods stay Terminating, and pods of a StatefulSet are not replaced.",
        proof: "The condition Ready is not True, and the node's agent does not answer, or the node has no agent.",
        remedy: "Check at the console or at the provider whether the machine runs. If the machine runs, repair its network or kubelet. Otherwise make sure that it is off, then set the taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute (Kubernetes 1.26 or later), and remove the taint when the node is repaired.",
    },
    LossRow {
        loss: Loss::TaintLeftBehind,
        headline: "taint-left-behind",
        unclean: false,
        severity: Severity::Warning,
        meaning: "The node is ready and still has the taint node.kubernetes.io/out-of-service. With the effect NoExecute the taint evicts pods and keeps new pods away; with NoSchedule the taint only keeps new pods away.",
        proof: "The condition Ready is True, and the taint is in the node's spec.",
        remedy: "kubectl taint nodes NODE node.kubernetes.io/out-of-service-",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::table;

    #[test]
    fn every_loss_has_its_row() {
        for (at, row) in TABLE.iter().enumerate() {
            assert_eq!(row.loss as usize, at, "{}", row.headline);
            assert_eq!(row.loss.row(), row);
            assert_eq!(by_headline(row.headline), Some(row));
            assert!(!row.unclean || row.severity > Severity::Info, "{}", row.headline);
        }
    }

    #[test]
    fn a_headline_means_one_thing_in_both_tables() {
        for row in &TABLE {
            assert_eq!(table::by_headline(row.headline), None, "{}", row.headline);
            for text in [row.meaning, row.proof] {
                assert!(text.ends_with('.'), "{text}");
            }
        }
    }
}
