//! Errors without a client of the API, and the purposes of requests.

use std::borrow::Cow;
use std::path::PathBuf;

use crate::error::{HasRemedy, Remedy};
use crate::rights::{self, Right};
use crate::source::api_error::Purpose;

/// Access to the API server, for whoever has none. The program that was built for pods knows a ServiceAccount alone.
pub const NO_ACCESS: &str = if cfg!(feature = "kubeconfig") {
    "mount the token of the ServiceAccount (automountServiceAccountToken), or give --kubeconfig FILE, or --kubernetes off"
} else {
    "mount the token of the ServiceAccount (automountServiceAccountToken), or give --kubernetes off"
};

/// The same for a command that is of no use without the API.
pub const NEEDS_ACCESS: &str = if cfg!(feature = "kubeconfig") {
    "run it in a pod with a ServiceAccount, or give --kubeconfig FILE"
} else {
    "run it in a pod with a ServiceAccount, or elsewhere the program of the Debian package with --kubeconfig FILE"
};

/// Why no client can be made: wrong settings, not an API server that is away. Display is the problem alone.
#[derive(Debug, thiserror::Error)]
pub enum PodsError {
    #[error("cannot watch the pods of this node: no node name is given")]
    NoNodeName,
    #[error("cannot use node name `{0}`")]
    NodeName(String),
    #[error("cannot read kubeconfig {}: {problem}", file.display())]
    Kubeconfig { file: PathBuf, problem: String },
    #[error("this program cannot use a kubeconfig: it was built for pods, which have a ServiceAccount")]
    #[cfg(not(feature = "kubeconfig"))]
    WithoutKubeconfig,
    #[error("cannot find a Kubernetes API server: {0}")]
    NoCluster(String),
    #[error("cannot make a client of the Kubernetes API: {0}")]
    Client(String),
}

impl HasRemedy for PodsError {
    fn remedy(&self) -> Option<Remedy> {
        let remedy = match self {
            PodsError::NoNodeName => Some(
                "set NODE_NAME by the downward API (env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]), \
                 or give --node-name NAME as `kubectl get nodes` shows it",
            ),
            PodsError::NodeName(_) => {
                Some("a node's name has at most 253 characters, each a lower-case letter, a digit, `-` or `.`")
            }
            PodsError::Kubeconfig { .. } => Some("name another kubeconfig with --kubeconfig FILE"),
            #[cfg(not(feature = "kubeconfig"))]
            PodsError::WithoutKubeconfig => {
                Some("leave --kubeconfig out in a pod; elsewhere run the program of the Debian package")
            }
            PodsError::NoCluster(_) => Some(NO_ACCESS),
            PodsError::Client(_) => None,
        };
        remedy.map(Remedy::Borrowed)
    }
}

/// Purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Pods,
    ReplicaSet,
    Job,
    Namespace,
    Events,
    Clock,
}

impl Action {
    pub(super) fn purpose(self) -> Purpose {
        Purpose {
            what: Cow::Borrowed(self.what()),
            right: self.right(),
        }
    }

    fn what(self) -> &'static str {
        match self {
            Action::Pods => "list and watch the pods of this node",
            Action::ReplicaSet => "get the ReplicaSet of a pod",
            Action::Job => "get the Job of a pod",
            Action::Namespace => "get the namespace of a pod",
            Action::Events => "list the Events of a pod",
            Action::Clock => "get the API server's time",
        }
    }

    fn right(self) -> &'static Right {
        match self {
            Action::Pods => &rights::AGENT_PODS,
            Action::ReplicaSet => &rights::AGENT_REPLICA_SETS,
            Action::Job => &rights::AGENT_JOBS,
            Action::Namespace => &rights::AGENT_NAMESPACES,
            Action::Events => &rights::AGENT_LIST_EVENTS,
            Action::Clock => &rights::CLOCK,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only mention is of the program that has the flag.
    #[test]
    fn a_program_without_kubeconfig_advises_none() {
        let has_flag = cfg!(feature = "kubeconfig");
        assert_eq!(NO_ACCESS.contains("--kubeconfig"), has_flag);
        assert_eq!(
            NEEDS_ACCESS.contains("the program of the Debian package with --kubeconfig"),
            !has_flag
        );
    }

    #[test]
    fn a_problem_does_not_contain_its_remedy() {
        let file = PathBuf::from("/etc/kubeconfig");
        let problem = "no such file".to_owned();
        for error in [
            PodsError::NoNodeName,
            PodsError::NodeName("A".into()),
            PodsError::Kubeconfig { file, problem },
            PodsError::NoCluster("no token".into()),
        ] {
            let remedy = error.remedy().expect("a remedy");
            assert!(
                !error.to_string().contains(';') && !error.to_string().contains(&*remedy),
                "{error}"
            );
        }
    }
}
