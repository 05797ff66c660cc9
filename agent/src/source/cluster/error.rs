//! What the API server refuses or fails to do, and the remedy.

use kube::runtime::watcher;

use crate::error::chain;
use crate::observe::Watch;
use crate::source::pods::convert::bounded;

/// Longest text of an error that leaves this room, bytes.
const MAX_TEXT: usize = 512;

/// The rule, as in `deploy/kubernetes/observer.yaml`.
const fn rule(watch: Watch) -> &'static str {
    match watch {
        Watch::EndpointSlices => "{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}",
        Watch::Pods => r#"{apiGroups: [""], resources: [pods], verbs: [list, watch]}"#,
        Watch::Namespaces => r#"{apiGroups: [""], resources: [namespaces], verbs: [list, watch]}"#,
    }
}

const LEASE_RULE: &str = "{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}";

/// One line for people.
pub(super) fn explain_watch(watch: Watch, error: &watcher::Error) -> String {
    use watcher::Error::*;
    let what = format!("list and watch {} of the cluster", watch.name());
    match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
            explain(&what, ("ClusterRole epitaph-observer", rule(watch)), error)
        }
        other => bounded(&format!("cannot {what}: {}", chain(other)), MAX_TEXT),
    }
}

pub(super) fn explain_lease(namespace: &str, name: &str, error: &kube::Error) -> String {
    let what = format!("read and write Lease {name} in namespace {namespace}");
    explain(&what, ("Role epitaph-observer of that namespace", LEASE_RULE), error)
}

fn explain(what: &str, (role, rule): (&str, &str), error: &kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) if status.is_forbidden() => format!(
            "cannot {what}: RBAC forbids it ({}); bind this ServiceAccount to {role} with the rule {rule}",
            status.message
        ),
        kube::Error::Api(status) if status.code == 401 => format!(
            "cannot {what}: the API server does not accept our credentials (401 Unauthorized); the token has expired, or belongs to \
             another cluster or a ServiceAccount that was deleted"
        ),
        kube::Error::Api(status) => format!("cannot {what}: the API server answered {} {}", status.code, status.message),
        other => format!("cannot {what}: {}", chain(other)),
    };
    bounded(&text, MAX_TEXT)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_403_names_the_rule_that_is_missing() {
        let refused = Status::failure("endpointslices is forbidden: User \"x\"", "Forbidden").with_code(403);
        let error = watcher::Error::InitialListFailed(kube::Error::Api(refused.boxed()));
        expect_test::expect![[r#"cannot list and watch endpointslices of the cluster: RBAC forbids it (endpointslices is forbidden: User "x"); bind this ServiceAccount to ClusterRole epitaph-observer with the rule {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}"#]]
            .assert_eq(&explain_watch(Watch::EndpointSlices, &error));
    }

    #[test]
    fn every_rule_is_in_the_manifest() {
        let manifest = include_str!("../../../../deploy/kubernetes/observer.yaml");
        for rule in Watch::ALL.map(rule).into_iter().chain([LEASE_RULE]) {
            assert!(manifest.contains(rule), "{rule}");
        }
    }
}
