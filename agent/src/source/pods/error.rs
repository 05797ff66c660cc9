//! What the Kubernetes API can refuse or fail to do, and the remedy.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;

use super::convert::bounded;
use crate::error::chain;

/// Longest text of an error that leaves this room, bytes.
const MAX_TEXT: usize = 512;

/// Why there is no client at all: wrong settings, not an API server that is away.
#[derive(Debug, thiserror::Error)]
pub enum PodsError {
    #[error(
        "cannot tell which node this is: set NODE_NAME by the downward API (env: [{{name: NODE_NAME, valueFrom: {{fieldRef: \
         {{fieldPath: spec.nodeName}}}}}}]), or give --node-name NAME as `kubectl get nodes` shows it"
    )]
    NoNodeName,
    #[error(
        "cannot use node name `{0}`: a node's name has lower-case letters, digits, `-` and `.` only, and at most 253 of them"
    )]
    NodeName(String),
    #[error("cannot read kubeconfig {}: {problem}; name another one with --kubeconfig FILE", file.display())]
    Kubeconfig { file: PathBuf, problem: String },
    #[error(
        "cannot find a Kubernetes API server: {0}; in a pod its ServiceAccount's token must be mounted \
         (automountServiceAccountToken), elsewhere give --kubeconfig FILE, or --kubernetes off"
    )]
    NoCluster(String),
    #[error("cannot make a client of the Kubernetes API: {0}")]
    Client(String),
}

/// What was asked for: a 403 names the rule that allows it.
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
    fn words(self) -> &'static str {
        match self {
            Action::Pods => "list and watch the pods of this node",
            Action::ReplicaSet => "get the ReplicaSet of a pod",
            Action::Job => "get the Job of a pod",
            Action::Namespace => "get the namespace of a pod",
            Action::Events => "list the Events of a pod",
            Action::Clock => "ask the API server for its time",
        }
    }

    /// As in `deploy/kubernetes/agent.yaml`.
    fn rule(self) -> &'static str {
        match self {
            Action::Pods => r#"{apiGroups: [""], resources: [pods], verbs: [list, watch]}"#,
            Action::ReplicaSet => "{apiGroups: [apps], resources: [replicasets], verbs: [get]}",
            Action::Job => "{apiGroups: [batch], resources: [jobs], verbs: [get]}",
            Action::Namespace => r#"{apiGroups: [""], resources: [namespaces], verbs: [get]}"#,
            Action::Events => r#"{apiGroups: [""], resources: [events], verbs: [list]}"#,
            Action::Clock => "{nonResourceURLs: [/version], verbs: [get]}",
        }
    }
}

/// One line for people: what failed, why, and what to do about it.
pub(super) fn explain(action: Action, error: &kube::Error) -> String {
    let what = action.words();
    let text = match error {
        kube::Error::Api(status) if status.is_forbidden() => format!(
            "cannot {what}: RBAC forbids it ({}); bind this ServiceAccount to a ClusterRole (epitaph-agent) with the rule {}",
            status.message,
            action.rule()
        ),
        kube::Error::Api(status) if status.code == 401 => format!(
            "cannot {what}: the API server does not accept our credentials (401 Unauthorized); the token has expired, or belongs to \
             another cluster or a ServiceAccount that was deleted"
        ),
        kube::Error::Api(status) => format!("cannot {what}: the API server answered {} {}", status.code, status.message),
        other => {
            let chain = chain(other);
            let remedy = if is_refused(other) {
                "; nobody listens there: is the API server up, and is the address right?"
            } else if chain.contains("UnknownIssuer") || chain.contains("BadSignature") {
                "; its certificate is signed by a CA that we were not given: check certificate-authority in the kubeconfig, or the \
                 ServiceAccount's ca.crt"
            } else if chain.contains("NotValidForName") {
                "; its certificate is for another name: check the server's address in the kubeconfig, or set tls-server-name"
            } else {
                ""
            };
            format!("cannot {what}: {chain}{remedy}")
        }
    };
    bounded(&text, MAX_TEXT)
}

fn is_refused(error: &kube::Error) -> bool {
    std::iter::successors(error.source(), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_403_names_the_rule_that_is_missing() {
        let refused = Status::failure("pods is forbidden: User \"x\"", "Forbidden").with_code(403);
        let text = explain(Action::Pods, &kube::Error::Api(refused.boxed()));
        expect_test::expect![[r#"cannot list and watch the pods of this node: RBAC forbids it (pods is forbidden: User "x"); bind this ServiceAccount to a ClusterRole (epitaph-agent) with the rule {apiGroups: [""], resources: [pods], verbs: [list, watch]}"#]].assert_eq(&text);
    }

    #[test]
    fn every_rule_is_in_the_manifest() {
        let manifest = include_str!("../../../../deploy/kubernetes/agent.yaml");
        for action in [
            Action::Pods,
            Action::ReplicaSet,
            Action::Job,
            Action::Namespace,
            Action::Events,
        ] {
            assert!(manifest.contains(action.rule()), "{}", action.rule());
        }
    }

    #[test]
    fn what_a_server_writes_is_escaped_and_cut() {
        let odd = Status::failure(&format!("\u{1b}[2J{}", "x".repeat(4000)), "InternalError").with_code(500);
        let text = explain(Action::Events, &kube::Error::Api(odd.boxed()));
        assert!(!text.contains('\u{1b}') && text.len() < 600, "{text}");
    }
}
