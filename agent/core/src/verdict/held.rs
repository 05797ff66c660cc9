//! Which layer holds a pod that is still `Terminating` although its containers have exited: one table, a sentence and a remedy.
//!
//! The layers in the order in which a kubelet goes through them: the runtime reports the exits, the sandbox is stopped, its network is torn
//! down, the volumes are unmounted, the kubelet gives the pod up, and finalizers and the API server remove the object. The first one that is
//! not shown to be done holds the pod. Some steps show nothing: the sentence names what is not known. An admission that refuses the kubelet's
//! deletion leaves no sign in the pod: the API server asks admission before it sets `deletionGracePeriodSeconds` to 0.

use serde::Serialize;

use super::Severity;
use super::words::seconds;
use crate::kubernetes::{HeldFacts, Sandbox};

/// What holds a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldBy {
    Runtime,
    Sandbox,
    Network,
    Volume,
    Kubelet,
    Finalizer,
    Api,
}

/// What one headline means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRow {
    pub by: HeldBy,
    pub headline: &'static str,
    pub severity: Severity,
    pub meaning: &'static str,
    pub proof: &'static str,
    pub remedy: &'static str,
    /// What neither the kernel nor the API shows of it.
    pub unseen: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldVerdict {
    pub row: &'static HeldRow,
    pub sentence: String,
}

names! {
    /// Name on metrics.
    all HeldBy:
    Runtime => "runtime",
    Sandbox => "sandbox",
    Network => "network",
    Volume => "volume",
    Kubelet => "kubelet",
    Finalizer => "finalizer",
    Api => "api",
}

impl HeldBy {
    pub const fn row(self) -> &'static HeldRow {
        &TABLE[self as usize]
    }
}

/// The row of a headline, as `explain` asks for it.
pub fn by_headline(headline: &str) -> Option<&'static HeldRow> {
    TABLE.iter().find(|row| row.headline == headline)
}

/// In the order of [`HeldBy`].
pub const TABLE: [HeldRow; 7] = [
    HeldRow {
        by: HeldBy::Runtime,
        headline: "held-by-runtime",
        severity: Severity::Warning,
        meaning: "The main process of a container has exited, but the pod's status still shows the container as running. One of these delays the report of the exit: a process of the container that cannot be killed (state D), the container's shim, the container runtime, or the kubelet.",
        proof: "sched_process_exit shows the exit of the main process; a minute later the pod's status has the state `running` for that container; and nothing shows that the pod's sandbox is gone.",
        remedy: "On the node, look for processes of the container in state D, and run `crictl ps -a`. If `crictl` shows the container as exited, read the kubelet's log. If not, read the runtime's log and restart the runtime: running containers are not stopped by this restart.",
        unseen: "whether a process of the container is in state D, whether the shim is alive, and whether the shim, the runtime or the kubelet waits",
    },
    HeldRow {
        by: HeldBy::Sandbox,
        headline: "held-by-sandbox",
        severity: Severity::Warning,
        meaning: "All containers have exited, and the pod's sandbox (the pause process and the pod's network) is not stopped yet. One of three things shows this: the sandbox's process still runs; the kubelet reports that it cannot stop the sandbox; or the sandbox's process is gone, and the pod's status still shows a container as running, because the kubelet updates the status only when the sandbox is stopped.",
        proof: "No exit of the sandbox's process was observed; or the Event FailedKillPod names KillPodSandbox; or the sandbox's process is gone, and the pod's status shows a container as running.",
        remedy: "Read the Event FailedKillPod of the pod, and the log of the container runtime. `crictl pods` and `crictl stopp` on the node show how the runtime answers.",
        unseen: "what the container runtime waits for",
    },
    HeldRow {
        by: HeldBy::Network,
        headline: "held-by-network",
        severity: Severity::Warning,
        meaning: "The containers have exited, and the network of the pod's sandbox cannot be torn down: the CNI plugin fails, and the kubelet repeats the attempt.",
        proof: "The last Event FailedKillPod names KillPodSandbox, and the network or the CNI plugin. This Event was at most 30 s old when the agent listed the Events; the kubelet repeats the attempt within 15 s.",
        remedy: "Read the Event FailedKillPod of the pod: it has the plugin's error. Repair the plugin (its pod on this node, its binary in /opt/cni/bin, its configuration in /etc/cni/net.d); the kubelet tries again by itself.",
        unseen: "what the plugin has already removed",
    },
    HeldRow {
        by: HeldBy::Volume,
        headline: "held-by-volume",
        severity: Severity::Warning,
        meaning: "Containers and sandbox are gone, and the pod has volumes of PersistentVolumeClaims. Either the kubelet waits until these volumes are unmounted, or an admission webhook or policy refuses the kubelet's deletion of the pod. Epitaph observes neither: this verdict is what remains when all other layers are excluded, and is not proven.",
        proof: "The pod's status shows no container as running. The pod's status or the kernel shows that the sandbox is gone. The pod has PersistentVolumeClaims. Its Events were listed and have no FailedKillPod. deletionGracePeriodSeconds is not 0, so the API server has not accepted the kubelet's deletion of the pod.",
        remedy: "Search the kubelet's log for the named claims (`UnmountVolume.TearDown failed`), look for processes in state D on the node, and check the CSI driver's pod on the node. If the log has `Failed to delete status for pod`, the volumes are unmounted, and the error names the admission webhook or policy that refuses the deletion: correct this webhook or policy. Do not delete the pod by force: the volume may still be mounted, and a process may still write to it.",
        unseen: "which volumes are unmounted, and whether an admission webhook or policy refuses the kubelet's deletion of the pod",
    },
    HeldRow {
        by: HeldBy::Kubelet,
        headline: "held-by-kubelet",
        severity: Severity::Warning,
        meaning: "No container runs, and nothing shows which layer holds the pod: the kubelet has not finished its work for the pod, or an admission webhook or policy refuses the kubelet's deletion of the pod.",
        proof: "The pod's status shows no container as running, deletionGracePeriodSeconds is not 0, and nothing proves that another layer holds the pod.",
        remedy: "Search the kubelet's log for the pod's UID. The kubelet unmounts the remaining volumes (secrets, config maps, emptyDir, NFS), removes the pod's cgroup and then deletes the pod's object. If the log has `Failed to delete status for pod`, the error names the admission webhook or policy that refuses the deletion: correct this webhook or policy. Restart the kubelet if it logs nothing about the pod.",
        unseen: "what the kubelet waits for, and whether an admission webhook or policy refuses its deletion of the pod",
    },
    HeldRow {
        by: HeldBy::Finalizer,
        headline: "held-by-finalizer",
        severity: Severity::Warning,
        meaning: "Kubernetes does not wait for the kubelet any more, but finalizers keep the pod's object. A StatefulSet does not create the replacement before this object is gone.",
        proof: "`metadata.deletionGracePeriodSeconds` is 0, and `metadata.finalizers` is not empty.",
        remedy: "Find the controller that owns the finalizer, and find out why the controller does not remove the finalizer. Remove the finalizer by hand only if that controller does not exist any more.",
        unseen: "what the controller waits for",
    },
    HeldRow {
        by: HeldBy::Api,
        headline: "held-by-api",
        severity: Severity::Warning,
        meaning: "Kubernetes does not wait for the kubelet any more, and no finalizer keeps the pod's object: only the API server must still remove the object.",
        proof: "`metadata.deletionGracePeriodSeconds` is 0, `metadata.finalizers` is empty, and the agent's watch of the API still shows the pod.",
        remedy: "Look at the API server's log and at etcd. Delete a pod of another node with `kubectl delete pod`: this shows whether all deletions hang.",
        unseen: "what the API server's storage waits for",
    },
];

/// The layer that holds the pod.
pub fn judge_held(facts: &HeldFacts) -> HeldVerdict {
    let row = by(facts).row();
    HeldVerdict {
        row,
        sentence: sentence(facts, row),
    }
}

fn by(facts: &HeldFacts) -> HeldBy {
    let failed = facts.failed.as_ref().filter(|failed| failed.is_fresh);
    let says = |text: &str| failed.is_some_and(|failed| failed.message.contains(text));
    let is_network = || {
        let of_network = ["network", "CNI", "cni", "plugin type="];
        says("KillPodSandbox") && of_network.into_iter().any(says)
    };
    match () {
        () if facts.is_released && facts.finalizers.is_empty() => HeldBy::Api,
        () if facts.is_released => HeldBy::Finalizer,
        () if is_network() => HeldBy::Network,
        // The kubelet stops the sandbox once the runtime has reported the exits, and updates the status behind that.
        () if !facts.unreported.is_empty() && facts.sandbox != Sandbox::Gone => HeldBy::Runtime,
        () if facts.sandbox == Sandbox::Runs || says("KillPodSandbox") => HeldBy::Sandbox,
        () if !facts.unreported.is_empty() => HeldBy::Sandbox,
        () if has_only_volumes(facts) => HeldBy::Volume,
        () => HeldBy::Kubelet,
    }
}

/// Nothing but its volumes is left, as far as observed. An Event that is too old to name the layer may still do.
fn has_only_volumes(facts: &HeldFacts) -> bool {
    let is_undisturbed = facts.are_events_known && facts.failed.is_none();
    !facts.claims.is_empty() && facts.sandbox == Sandbox::Gone && is_undisturbed
}

/// Both leave the object as it was.
const NOT_GIVEN_UP: &str = "the kubelet has not finished its work for the pod, or an admission webhook or policy refuses the kubelet's \
                            deletion";

/// What is gone, what holds, and what is not known.
fn sentence(facts: &HeldFacts, row: &HeldRow) -> String {
    let exited = match facts.last_exit {
        Some(at) => format!("its last container exited {} ago", seconds(facts.at.since(at))),
        None => "no container of the pod runs, and no exit was seen".to_owned(),
    };
    let name = format!("{}/{}", facts.pod.namespace, facts.pod.name);
    let since = seconds(facts.at.since(facts.requested));
    let (what, unseen) = (what(facts, row.by), unseen(facts, row));
    format!("pod {name} is still Terminating {since} after its deletion was seen: {exited}, and {what}; not known: {unseen}")
}

fn what(facts: &HeldFacts, by: HeldBy) -> String {
    let failed = || match &facts.failed {
        Some(failed) => {
            let ago = seconds(facts.at.since(failed.at));
            format!("; the kubelet reported {ago} ago: {}", failed.message)
        }
        None => String::new(),
    };
    match by {
        HeldBy::Runtime => {
            let names = facts.unreported.join("`, `");
            format!("its status still shows `{names}` as running{}", failed())
        }
        HeldBy::Sandbox if facts.sandbox == Sandbox::Runs => {
            format!("no exit of its sandbox's process was observed{}", failed())
        }
        HeldBy::Sandbox if !facts.unreported.is_empty() => {
            let names = facts.unreported.join("`, `");
            format!(
                "its sandbox is not stopped yet: the sandbox's process is gone, and the pod's status still shows `{names}` as running{}",
                failed()
            )
        }
        HeldBy::Sandbox => format!("its sandbox could not be stopped{}", failed()),
        HeldBy::Network => format!("the network of its sandbox could not be torn down{}", failed()),
        HeldBy::Volume => format!(
            "its sandbox is gone; either its volumes ({}) are not unmounted yet, or an admission webhook or policy refuses the kubelet's \
             deletion{}",
            facts.claims.join(", "),
            failed()
        ),
        HeldBy::Kubelet if facts.sandbox == Sandbox::Gone => {
            format!("its sandbox is gone; {NOT_GIVEN_UP}{}", failed())
        }
        HeldBy::Kubelet => format!("{NOT_GIVEN_UP}{}", failed()),
        HeldBy::Finalizer => format!(
            "Kubernetes does not wait for the kubelet any more; finalizers keep the pod's object: {}",
            facts.finalizers.join(", ")
        ),
        HeldBy::Api => {
            "Kubernetes does not wait for the kubelet any more; no finalizer keeps the pod's object, and the API server has not removed \
             the object"
                .to_owned()
        }
    }
}

fn unseen(facts: &HeldFacts, row: &HeldRow) -> String {
    let sandbox = match (row.by, facts.sandbox) {
        (HeldBy::Kubelet, Sandbox::Unknown) => ", and whether the sandbox is gone",
        _ => "",
    };
    let events = match row.by {
        HeldBy::Finalizer | HeldBy::Api => "",
        _ if facts.are_events_known => "",
        _ => "; the pod's Events were not listed",
    };
    format!("{}{sandbox}{events}", row.unseen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{node, table};

    #[test]
    fn every_layer_has_its_row() {
        for (at, by) in HeldBy::ALL.into_iter().enumerate() {
            let row = by.row();
            assert_eq!((row.by, by as usize), (by, at));
            assert_eq!(row.headline, format!("held-by-{}", by.name()));
            assert_eq!(by_headline(row.headline), Some(row));
            assert_eq!(
                (table::by_headline(row.headline), node::table::by_headline(row.headline)),
                (None, None)
            );
        }
    }
}
