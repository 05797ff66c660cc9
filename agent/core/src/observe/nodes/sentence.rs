//! Sentences and remedies about lost nodes. A remedy is the next command, for this cluster's version and for what is known of the
//! machine's power.

use std::time::Duration;

use super::handling::TaintOf;
use super::known::Known;
use super::remedy::unfence;
use super::report::{AgentAnswer, Holder};
use super::verdict::{Loss, LossVerdict};
use crate::observe::{AttachmentFact, Moment, NodeIdentity, Ready};
use crate::pod::PodIdentity;
use crate::text::bounded;
use crate::verdict::seconds;

impl Known<'_> {
    pub fn node(&self) -> LossVerdict {
        let verb = if self.is_over { "was not" } else { "has not been" };
        let mut text = format!("node `{}` {verb} ready for {}", self.node.name, seconds(self.lasted));
        if !self.kubelet.reason.is_empty() {
            text += &format!(" ({})", self.kubelet.reason);
        }
        text += "; ";
        text += &self.contact();
        match self.pods.stuck {
            0 => {}
            1 => text += "; 1 pod on it could not be terminated",
            many => text += &format!("; {many} pods on it could not be terminated"),
        }
        if self.fenced {
            text += if self.is_over {
                "; the taint out-of-service was set"
            } else {
                "; the taint out-of-service is set"
            };
            if self.pods.gone < self.pods.stuck {
                text += ", and has not released all of them yet";
            } else if self.pods.stuck > 0 {
                text += ", and the objects of all of these pods are gone";
            }
        } else if self.held_back {
            text += "; the controller does not evict its pods: it limits or stops evictions while many nodes of a zone are not ready";
        }
        match self.pods.vanished.saturating_sub(self.pods.stuck) {
            0 => {}
            1 => text += "; 1 pod was deleted without the kubelet",
            many => text += &format!("; {many} pods were deleted without the kubelet"),
        }
        if self.is_one_of_many() {
            let (silent, all) = self.at_once;
            text += &format!("; {silent} of {all} nodes fell silent within minutes of each other");
        }
        self.verdict().judged(text, self.remedy())
    }

    /// A pod of the node is gone, this long after the request. `by`: what held it last.
    pub fn pod(&self, by: Holder, names: &[Box<str>], requested: Option<Duration>) -> LossVerdict {
        let node = &self.node.name;
        let after = requested.map_or(String::new(), |after| {
            format!(" {} after the deletion request", seconds(after))
        });
        if by == Holder::Finalizer {
            let text = format!(
                "the pod's node `{node}` was lost; then {} kept the pod's object, which was gone{after}",
                finalizers(names)
            );
            return stuck_by_finalizer(text);
        }
        let verdict = self.verdict();
        let power = if self.is_reported_off() {
            "its provider had reported that the machine was off"
        } else if self.machine.is_rebooted {
            "the machine has booted again, so its old containers are gone"
        } else if self.ran() {
            "the machine still ran, and the pod's containers may have run, too"
        } else {
            "whether the pod's containers still ran is not known"
        };
        let text = match verdict {
            Loss::FencedByTaint => format!(
                "the pod's node `{node}` was lost, and the pod's object was deleted{after}, while the taint out-of-service was set, without \
                 the kubelet; {power}"
            ),
            Loss::Unreachable => format!(
                "the pod's node `{node}` was not ready, but ran; the pod's object was deleted{after}, without the kubelet: the pod's \
                 containers may still have run"
            ),
            _ => format!(
                "the pod's node `{node}` was lost, and the pod's object was deleted{after}, without the kubelet and without the taint \
                 out-of-service; {power}"
            ),
        };
        verdict.judged(text, self.remedy())
    }

    /// The pod of a node that came back: the kubelet completed the termination.
    /// `is_unsure`: the watch was interrupted, and the pod may have been deleted before.
    pub fn pod_after_return(&self, requested: Option<Duration>, is_unsure: bool) -> LossVerdict {
        let after = after_request(requested);
        let how = match is_unsure {
            true => {
                "the pod was deleted while the watch was interrupted: either before the node's return, without the kubelet, or after the return"
            }
            false => "the pod was terminated only after the node's return",
        };
        let text = format!(
            "the pod's node `{}` was not ready for {}, and {how}{after}",
            self.node.name,
            seconds(self.lasted)
        );
        self.contacted().judged(text, self.remedy())
    }

    /// The kubelet completed the termination while the node was not ready.
    pub fn pod_confirmed(&self, requested: Option<Duration>) -> LossVerdict {
        let text = format!(
            "the pod's node `{}` was not ready when its kubelet completed the termination{}",
            self.node.name,
            after_request(requested)
        );
        self.contacted().judged(text, self.find_out())
    }

    /// The pod of a node that is back, or deleted, while the termination is not complete and the observer stops.
    pub fn pod_at_stop(&self, by: Holder, names: &[Box<str>], requested: Option<Duration>) -> LossVerdict {
        let after = after_request(requested);
        let held = match by {
            Holder::Finalizer => format!("{} kept the object", finalizers(names)),
            _ if self.is_deleted => "the pod's object still existed".to_owned(),
            Holder::Volume => format!("its kubelet had not unmounted {}", claims(names)),
            _ => "its kubelet had not completed the termination".to_owned(),
        };
        let text = format!(
            "the pod's node `{}` was not ready for {}; when this observer stopped after {}, {held}{after}",
            self.node.name,
            seconds(self.lasted),
            if self.is_deleted {
                "the deletion of the Node object"
            } else {
                "the node's return"
            }
        );
        match by {
            Holder::Finalizer => stuck_by_finalizer(text),
            _ => self.contacted().judged(text, self.remedy()),
        }
    }

    /// A StatefulSet's pod hangs.
    pub fn hangs(&self, pod: &PodIdentity) -> LossVerdict {
        let mut text = format!(
            "pod `{}` cannot be terminated, and is not replaced: its node `{}` has not been ready for {}; ",
            pod.name,
            self.node.name,
            seconds(self.lasted)
        );
        text += &self.contact();
        self.verdict().judged(text, self.remedy())
    }

    /// A StatefulSet's pod hung, and is gone, or will be; its old containers run on.
    pub fn runs_on(&self, pod: &PodIdentity) -> LossVerdict {
        let (is, had) = match self.is_deleted {
            true => ("is", format!("the object of its node `{}` was deleted", self.node.name)),
            false => (
                "was",
                format!(
                    "its node `{}` has not been ready for {}",
                    self.node.name,
                    seconds(self.lasted)
                ),
            ),
        };
        let text = format!(
            "pod `{}` {is} deleted without the kubelet, and may be replaced: {had}; {}",
            pod.name,
            self.contact()
        );
        self.verdict().judged(text, self.remedy())
    }

    /// A StatefulSet's pod is neither deleted nor replaced.
    pub fn left_alone(&self, pod: &PodIdentity) -> LossVerdict {
        let text = format!(
            "pod `{}` is not evicted, because it tolerates the loss of its node, and is not replaced: its node `{}` has not been ready \
             for {}; {}",
            pod.name,
            self.node.name,
            seconds(self.lasted),
            self.contact()
        );
        let remedy = format!(
            "{}; and, when the machine is off, if the pod still exists then: kubectl delete pod --namespace {} {}",
            self.remedy(),
            pod.namespace,
            pod.name
        );
        self.verdict().judged(text, remedy)
    }

    /// The replacement of a pod of the node waits for a volume.
    pub fn volume_waits(&self, pod: &PodIdentity, at: &AttachmentFact, waited: Duration) -> LossVerdict {
        let text = format!(
            "the replacement of pod `{}` has waited {} for volume `{}`, which is attached to the pod's node `{}`; {}{}",
            pod.name,
            seconds(waited),
            at.volume,
            at.node,
            self.contact(),
            driver_error(at)
        );
        let remedy = if self.fenced && !self.runs() {
            format!("{}{}", detach(at), self.still_by_hand())
        } else {
            self.remedy()
        };
        Loss::StuckByVolume.judged(text, remedy)
    }

    fn contact(&self) -> String {
        let then = if self.kubelet.was_heard {
            "it fell silent"
        } else {
            "`Ready` became `Unknown`"
        };
        let lease = self
            .kubelet
            .renewed
            .map(|before| format!("its kubelet last renewed its Lease {} before {then}", seconds(before)));
        let agent = match self.machine.agent {
            AgentAnswer::Answered if self.is_over => "its agent answered: the machine ran",
            AgentAnswer::Answered => "its agent still answers: the machine runs",
            AgentAnswer::Silent if self.is_over => "its agent did not answer",
            AgentAnswer::Silent => "its agent does not answer",
            AgentAnswer::Unknown => "no agent on it could be asked",
        };
        let kubelet = match (self.kubelet.ready, lease) {
            (Ready::Unknown, Some(lease)) => lease,
            (Ready::Unknown, None) if self.is_over => "its kubelet was silent".to_owned(),
            (Ready::Unknown, None) => "its kubelet is silent".to_owned(),
            _ if self.is_over => "its kubelet itself reported this".to_owned(),
            _ => "its kubelet itself reports this".to_owned(),
        };
        format!("{kubelet}, and {agent}")
    }
}

pub(super) fn left_behind(node: &NodeIdentity, set: TaintOf, since: Duration) -> LossVerdict {
    let (name, since) = (&node.name, seconds(since));
    let still = match set {
        TaintOf::Loss => format!("node `{name}` has been ready again for {since} and still has the taint out-of-service"),
        TaintOf::Ready => {
            format!("node `{name}` was ready when the taint out-of-service was set {since} ago, and has not been lost since")
        }
        TaintOf::Unseen => format!("node `{name}` has been ready for at least {since} and has the taint out-of-service"),
    };
    let text = format!(
        "{still}: with the effect NoExecute the taint evicts pods and keeps new pods away, with NoSchedule the taint keeps new pods away"
    );
    Loss::TaintLeftBehind.judged(text, unfence(node))
}

/// The replacement ran from `began` on; the old pod until `end`, if its kubelet reported that before the node was `back`, or longer.
pub(super) fn duplicate(
    node: &NodeIdentity,
    pod: &PodIdentity,
    by: &PodIdentity,
    (began, end, back): (Moment, Moment, Moment),
) -> LossVerdict {
    let before = |at: Moment| format!("{} before the node was ready again", seconds(back.at.since(at.at)));
    let both = seconds(end.at.since(began.at));
    let (until, both) = if end.at < back.at {
        let until = format!(
            "{}, when its kubelet reported that its containers had terminated",
            before(end)
        );
        (until, both)
    } else {
        let until = "the node was ready again, and longer, until its kubelet stopped it".to_owned();
        (until, format!("at least {both}"))
    };
    let text = format!(
        "node `{}` came back with the same boot: the node had been paused or cut off. The old pod `{}` may have run there until {until}; \
         its \
         replacement `{}` on `{}` ran from {}: both pods may have run for {both}",
        node.name,
        pod.name,
        by.name,
        by.node,
        before(began)
    );
    let remedy = format!(
        "check what both pods wrote in that time ({both}); in future, power a lost node off before its pods are replaced"
    );
    Loss::DuplicateRun.judged(text, remedy)
}

pub(super) fn volume(at: &AttachmentFact, waited: Duration) -> LossVerdict {
    let text = format!(
        "the replacement waited {} for volume `{}`, which was attached to the lost node `{}`{}",
        seconds(waited),
        at.volume,
        at.node,
        driver_error(at)
    );
    let remedy = format!(
        "the volume is detached now; to find the cause, search the log of the external-attacher of {} for the VolumeAttachment {}",
        at.attacher, at.name
    );
    Loss::StuckByVolume.judged(text, remedy)
}

fn after_request(requested: Option<Duration>) -> String {
    requested.map_or(String::new(), |after| {
        format!(", {} after the deletion request", seconds(after))
    })
}

fn stuck_by_finalizer(text: String) -> LossVerdict {
    let loss = Loss::StuckByFinalizer;
    loss.judged(text, loss.row().remedy.to_owned())
}

/// An Event's note has 1,024 bytes, and the command is its end.
const DRIVER_ERROR: usize = 120;

fn driver_error(at: &AttachmentFact) -> String {
    at.error.as_ref().map_or(String::new(), |error| {
        format!("; the driver reported: {}", bounded(error, DRIVER_ERROR))
    })
}

fn detach(at: &AttachmentFact) -> String {
    format!(
        "kubectl describe volumeattachment {}; then the log of the external-attacher of {}",
        at.name, at.attacher
    )
}

fn finalizers(names: &[Box<str>]) -> String {
    match names {
        [one] => format!("the finalizer `{one}`"),
        many => format!("the finalizers `{}`", many.join("`, `")),
    }
}

fn claims(names: &[Box<str>]) -> String {
    match names {
        [one] => format!("the volume of claim `{one}`"),
        many => format!("the volumes of claims `{}`", many.join("`, `")),
    }
}
