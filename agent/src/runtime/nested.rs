//! Pods of this node whose cgroups are below a container's: the node is a container itself (kind, minikube, k3d), and the setting for such
//! nodes is not made. Without a line in the log an installation that reports no pod looks healthy.

use std::collections::HashSet;

use epitaph_core::attribute::path::pod_below_container;
use epitaph_core::event::{CgroupMkdir, Event};
use epitaph_core::ids::PodUid;
use epitaph_core::input::{CgroupFact, Input};

/// Most pods that are remembered: one that the API has is enough.
const MOST: usize = 256;

const REMEDY: &str =
    "set kubernetes.nodes_in_containers = true (--set config.kubernetes.nodes_in_containers=true with the chart)";

/// Names in a cgroup's path are anybody's. Those of a pod of this node count, by the API.
#[derive(Debug, Default)]
pub(super) struct Nested {
    below: HashSet<PodUid>,
    was_said: bool,
}

impl Nested {
    /// Writes to the log once.
    pub fn take(&mut self, input: &Input) {
        match input {
            Input::Cgroup(CgroupFact { path: Ok(path), .. })
            | Input::Kernel {
                event: Event::CgroupMkdir(CgroupMkdir { path: Some(path), .. }),
                ..
            } => self.cgroup(path),
            Input::Pod(fact) if self.is_first(&fact.pod.cgroup_uid) => tracing::warn!(
                remedy = REMEDY,
                "this node is a container itself (kind, minikube, k3d), or rootless: the cgroups of its pods are below that of a container or a \
                 user, for which their terminations count, so that no pod is reported"
            ),
            _ => {}
        }
    }

    fn cgroup(&mut self, path: &str) {
        if !self.was_said && self.below.len() < MOST {
            self.below.extend(pod_below_container(path));
        }
    }

    /// `pod`: of this node, by its name in the paths of cgroups.
    fn is_first(&mut self, pod: &PodUid) -> bool {
        let is_first = !self.was_said && self.below.contains(pod);
        self.was_said |= is_first;
        is_first
    }
}

#[cfg(test)]
mod tests {
    use epitaph_core::fixtures::pods;

    use super::*;

    #[test]
    fn a_pod_of_the_node_below_a_container_is_said_once() {
        let pod = pods::identity().cgroup_uid.clone();
        let (uid, container) = (&pod.0, "0123456789abcdef".repeat(4));
        let mut nested = Nested::default();
        // As on a machine that is a node; and below a container of a pod.
        for path in [
            format!("/kubepods/burstable/pod{uid}/{container}"),
            format!("/kubepods/pod{uid}/{container}/docker/{container}/kubepods/pod{uid}"),
        ] {
            nested.cgroup(&path);
        }
        assert!(!nested.is_first(&pod));
        nested.cgroup(&format!(
            "/docker/{container}/kubelet/kubepods/burstable/pod{uid}/{container}"
        ));
        assert!(
            !nested.is_first(&PodUid("of-another-node".into())),
            "anybody can make a cgroup of any name"
        );
        assert!(nested.is_first(&pod));
        assert!(!nested.is_first(&pod));
    }
}
