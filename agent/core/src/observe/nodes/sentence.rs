//! Sentences and remedies about lost nodes. A remedy is the next command, for this cluster's version and for what is known of the
//! machine's power.

use std::time::Duration;

use super::remedy::unfence;
use super::report::{Advice, AgentAnswer, Holder, Returned};
use super::taint::TaintOf;
use super::verdict::{Loss, LossVerdict};
use crate::observe::{AttachmentFact, ClusterVersion, Moment, NodeIdentity, Ready};
use crate::pod::PodIdentity;
use crate::text::bounded;
use crate::verdict::seconds;

/// So many machines seldom die at once.
const MANY: usize = 3;

/// What is known of a loss.
pub(super) struct Known<'a> {
    pub node: &'a NodeIdentity,
    pub ready: Ready,
    pub reason: &'a str,
    /// How long the node is, or was, not ready.
    pub lasted: Duration,
    /// How long before its silence the kubelet renewed its Lease last.
    pub renewed: Option<Duration>,
    /// At the begin of the loss the kubelet was not silent.
    pub was_heard: bool,
    pub agent: AgentAnswer,
    /// Has the taint `out-of-service`.
    pub fenced: bool,
    /// By its provider's last report, and the kubelet is silent.
    pub powered_off: bool,
    /// The kubelet was, at some time of the loss.
    pub was_silent: bool,
    /// The controller does not evict the node's pods.
    pub held_back: bool,
    /// Nodes that fell silent together, and all nodes.
    pub at_once: (usize, usize),
    /// The node is back, or its object is deleted.
    pub is_over: bool,
    /// The Node object was deleted, and no kubelet ends what is left of its pods and volumes.
    pub is_deleted: bool,
    /// The kubelet had announced a shutdown of the machine.
    pub shuts_down: bool,
    /// The machine has booted since.
    pub has_booted: bool,
    /// Another machine has the node's object: what is said of the node is not of the lost one.
    pub is_other: bool,
    /// The same, and so none of its old containers can run.
    pub is_rebooted: bool,
    /// Pods that the node could not terminate.
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
    pub version: Option<ClusterVersion>,
}

impl Known<'_> {
    /// The verdict while the loss goes on.
    pub fn verdict(&self) -> Loss {
        match self.fenced {
            true => Loss::FencedByTaint,
            false => self.contacted(),
        }
    }

    pub(super) fn contacted(&self) -> Loss {
        let is_heard = !self.is_over && self.ready == Ready::False && !self.has_booted && !self.is_other;
        match self.ran() || is_heard {
            true => Loss::Unreachable,
            false => Loss::Lost,
        }
    }

    /// All the time: its agent answered, or its kubelet never was silent. A machine that boots reports Ready=False, too.
    pub(super) fn ran(&self) -> bool {
        !self.is_other && (self.agent == AgentAnswer::Answered || (self.ready == Ready::False && !self.was_silent))
    }

    /// Now, with the containers of before the loss.
    pub(super) fn runs(&self) -> bool {
        // The last word of the kubelet of a deleted Node object is of the past.
        let is_heard = self.agent == AgentAnswer::Answered || (self.ready == Ready::False && !self.is_deleted);
        is_heard && !self.is_rebooted && !self.is_other
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
        } else if self.runs() || self.is_rebooted {
            Advice::Repair
        } else if self.is_one_of_many() {
            Advice::MakeSureOfMany
        } else {
            Advice::MakeSure
        }
    }

    /// Pods with containers that may still run beside their replacements.
    pub fn run_twice(&self) -> usize {
        if self.is_away() && self.runs() { self.doubled.0 } else { 0 }
    }

    /// The machine runs, and its pods are, or are about to be, replaced.
    pub(super) fn is_dangerous(&self) -> bool {
        let is_replaced = self.doubled.0 > 0 || (self.fenced && self.to_release > 0) || (self.is_deleted && self.to_double);
        is_replaced && self.runs() && self.is_away()
    }

    /// No kubelet of the node has spoken since, also where the Node object was deleted; unless the machine was being shut down.
    pub(super) fn is_away(&self) -> bool {
        !self.is_over || (self.is_deleted && !self.shuts_down)
    }

    /// No pod is gone yet whose containers the taint's removal would not end.
    pub(super) fn may_unfence(&self) -> bool {
        self.fenced && self.doubled.0 == 0 && !self.has_dropped
    }

    /// As the provider reported. The taint stays until the node is ready, also when the machine was switched on again and is cut off: no
    /// sentence may call the machine off now, and a machine that answers is not off.
    pub(super) fn is_reported_off(&self) -> bool {
        self.powered_off && !self.runs()
    }

    pub(super) fn is_one_of_many(&self) -> bool {
        self.ready == Ready::Unknown && self.at_once.0 >= MANY
    }

    pub fn node(&self) -> LossVerdict {
        let verb = if self.is_over { "was not" } else { "has not been" };
        let mut text = format!("node `{}` {verb} ready for {}", self.node.name, seconds(self.lasted));
        if !self.reason.is_empty() {
            text += &format!(" ({})", self.reason);
        }
        text += "; ";
        text += &self.contact();
        match self.stuck {
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
            if self.gone < self.stuck {
                text += ", and has not released all of them yet";
            } else if self.stuck > 0 {
                text += ", and the objects of all of these pods are gone";
            }
        } else if self.held_back {
            text += "; the controller does not evict its pods: it limits or stops evictions while many nodes of a zone are not ready";
        }
        match self.vanished.saturating_sub(self.stuck) {
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
        } else if self.is_rebooted {
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
        let then = if self.was_heard {
            "it fell silent"
        } else {
            "`Ready` became `Unknown`"
        };
        let lease = self
            .renewed
            .map(|before| format!("its kubelet last renewed its Lease {} before {then}", seconds(before)));
        let agent = match self.agent {
            AgentAnswer::Answered if self.is_over => "its agent answered: the machine ran",
            AgentAnswer::Answered => "its agent still answers: the machine runs",
            AgentAnswer::Silent if self.is_over => "its agent did not answer",
            AgentAnswer::Silent => "its agent does not answer",
            AgentAnswer::Unknown => "no agent on it could be asked",
        };
        let kubelet = match (self.ready, lease) {
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
        "{still}: with effect NoExecute it evicts pods and keeps new ones away, with NoSchedule it keeps new ones away"
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
        "node `{}` came back with the same boot: it was paused or cut off. The old pod `{}` may have run there until {until}; its \
         replacement `{}` on `{}` ran from {}: both may have run for {both}",
        node.name,
        pod.name,
        by.name,
        by.node,
        before(began)
    );
    let remedy = format!("check what both wrote in that time ({both}); power a lost node off before its pods are replaced");
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
        "the volume is detached now; for the cause: the log of the external-attacher of {}, VolumeAttachment {}",
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

pub(super) fn returned(before: &NodeIdentity, now: &NodeIdentity) -> Returned {
    let is_known = |before: &str, now: &str| !before.is_empty() && !now.is_empty();
    let is_other =
        is_known(&before.system_uuid, &now.system_uuid) && !before.system_uuid.eq_ignore_ascii_case(&now.system_uuid);
    match (is_known(&before.boot_id, &now.boot_id), before.boot_id == now.boot_id) {
        (false, _) => Returned::Unknown,
        (true, true) => Returned::SameBoot,
        (true, false) if is_other => Returned::OtherMachine,
        (true, false) => Returned::Rebooted,
    }
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
