//! The next command, for this cluster's version and for what is known of the machine's power.

use super::known::Known;
use crate::observe::{ClusterVersion, NodeIdentity, Ready};

const TAINT: &str = "node.kubernetes.io/out-of-service";

/// The taint exists since.
const ALPHA: ClusterVersion = version(24);

/// Without a feature gate since.
const BETA: ClusterVersion = version(26);

const fn version(minor: u32) -> ClusterVersion {
    ClusterVersion { major: 1, minor }
}

pub(super) fn unfence(node: &NodeIdentity) -> String {
    format!("kubectl taint nodes {} {TAINT}-", node.name)
}

impl Known<'_> {
    /// The next command for the whole node.
    pub(super) fn remedy(&self) -> String {
        let name = &self.node.name;
        if self.is_dangerous() {
            return self.power_off();
        }
        if self.fenced && !self.is_over && !self.is_reported_off() && !self.runs() && !self.machine.is_rebooted {
            return format!(
                "nothing confirms that `{name}` is powered off: check its console or its provider{}. Later, when the machine is repaired, \
                 remove the taint: {}",
                self.still_by_hand(),
                unfence(self.node)
            );
        }
        if self.fenced {
            let by_hand = if self.is_over { String::new() } else { self.still_by_hand() };
            return format!("when `{name}` is repaired, remove the taint: {}{by_hand}", unfence(self.node));
        }
        if self.is_deleted {
            return format!(
                "the Node object is deleted, so the controller deletes its pods without the kubelet. Make sure that `{name}` is powered off: \
                 on a machine that still runs, two pods may write the same volume. Then look at the volumes that are still attached to \
                 `{name}`: kubectl get volumeattachments"
            );
        }
        if self.is_over {
            return format!("{}. No taint is needed any more", self.find_out());
        }
        let release = self.release();
        if self.is_reported_off() {
            return format!(
                "the provider reported that `{name}` is off, and that report stays until the node is ready, also if the machine runs again: \
                 ask the provider whether the machine still is off. If so, release its pods and volumes: {release}"
            );
        }
        if self.machine.is_rebooted {
            return format!(
                "`{name}` has booted again, so its old containers are gone: repair what its condition Ready names (kubectl describe node \
                 {name}). Only if that takes long: {release}"
            );
        }
        if !self.runs() && self.is_one_of_many() {
            let (silent, all) = self.at_once;
            return format!(
                "find out first why {silent} of {all} nodes fell silent within minutes of each other: suspect the network and the control plane before the \
                 machines, which may run. Only for a machine that is certainly powered off: {release}"
            );
        }
        if !self.runs() {
            return format!(
                "check the console or the provider of `{name}`. If it runs, repair its network or kubelet: a taint would let two pods \
                 write the same volume. If it does not, or that is not possible, power it off, make sure that it is off, and if the node is \
                 still not ready then: {release}"
            );
        }
        let repair = match self.kubelet.ready {
            Ready::Unknown => "its kubelet or its network to the API server (on the node: systemctl status kubelet)".to_owned(),
            _ => format!("what its condition Ready names (kubectl describe node {name})"),
        };
        format!(
            "`{name}` runs: repair {repair}. Only if that is not possible, power it off, make sure that it is off, and then: {release}"
        )
    }

    pub(super) fn find_out(&self) -> String {
        let name = &self.node.name;
        if self.machine.has_booted {
            format!("find out why `{name}` stopped: journalctl -b -1 -u kubelet, its console, and its provider's events")
        } else {
            format!("find out why `{name}` was not ready: journalctl -u kubelet, and its network to the API server")
        }
    }

    /// Once a pod is gone, removing the taint does not stop its old containers.
    pub(super) fn power_off(&self) -> String {
        let name = &self.node.name;
        let both = "two pods may write the same volume. Power it off at once";
        let runs = match self.is_deleted {
            true => "ran when its Node object was deleted",
            false => "runs",
        };
        let doubled = match self.pods.doubled {
            (_, None) if self.is_deleted => {
                return format!("`{name}` {runs}, so the controller deletes its pods without the kubelet: {both}");
            }
            (_, None) => {
                let or = match self.may_unfence() {
                    true => ", or remove the taint",
                    false => ". Later, when the machine is repaired, remove the taint",
                };
                return format!("`{name}` {runs} in spite of the taint: {both}{or}: {}", unfence(self.node));
            }
            (1, Some(pod)) => format!("its pod `{}/{}` was", pod.namespace, pod.name),
            (count, Some(pod)) => format!("{count} pods of it (`{}/{}` is one) were", pod.namespace, pod.name),
        };
        let text = format!("`{name}` {runs}, and {doubled} deleted without the kubelet: {both}");
        match self.fenced {
            true => format!(
                "{text}: removing the taint does not stop the old containers. Later, when the machine is repaired, remove the taint: {}",
                unfence(self.node)
            ),
            false => text,
        }
    }

    /// Where the taint alone releases nothing.
    pub(super) fn still_by_hand(&self) -> String {
        let is_gated = |version: &ClusterVersion| (ALPHA..BETA).contains(version);
        match self
            .version
            .filter(|version| is_gated(version) && self.pods.gone < self.pods.stuck && !self.runs())
        {
            None => String::new(),
            Some(version) => format!(
                ". In Kubernetes {}.{} without the feature gate NodeOutOfServiceVolumeDetach the taint releases nothing: if the machine is off \
                 and the pods stay Terminating: {}",
                version.major,
                version.minor,
                self.by_hand()
            ),
        }
    }

    fn by_hand(&self) -> String {
        let name = &self.node.name;
        format!("kubectl delete pods --all-namespaces --field-selector spec.nodeName={name} --force --grace-period=0")
    }

    pub(super) fn release(&self) -> String {
        let name = &self.node.name;
        let taint = format!("kubectl taint nodes {name} {TAINT}=nodeshutdown:NoExecute");
        let by_hand = self.by_hand();
        match self.version {
            Some(version) if version < ALPHA => by_hand,
            Some(version) if version < BETA => format!(
                "{taint} (alpha in Kubernetes {}.{}: without the feature gate NodeOutOfServiceVolumeDetach it only evicts, and the \
                 pods stay Terminating; then: {by_hand})",
                version.major, version.minor
            ),
            Some(_) => taint,
            None => format!("{taint} (for Kubernetes 1.26 or later; the version of this cluster is not known)"),
        }
    }
}
