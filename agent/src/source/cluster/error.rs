//! Purposes of the observer's requests.

use epitaph_core::observe::Watch;

use crate::source::api_error::Purpose;

/// The rule, as in `deploy/kubernetes/observer.yaml`.
const fn rule(watch: Watch) -> &'static str {
    match watch {
        Watch::EndpointSlices => "{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}",
        Watch::Pods => r#"{apiGroups: [""], resources: [pods], verbs: [list, watch]}"#,
        Watch::Namespaces => r#"{apiGroups: [""], resources: [namespaces], verbs: [list, watch]}"#,
    }
}

const LEASE_RULE: &str = "{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}";

pub(super) fn of_watch(watch: Watch) -> Purpose {
    Purpose {
        what: format!("list and watch {} of the cluster", watch.name()).into(),
        role: "ClusterRole epitaph-observer",
        rule: rule(watch),
    }
}

pub(super) fn of_lease(namespace: &str, name: &str) -> Purpose {
    Purpose {
        what: format!("read and write Lease {name} in namespace {namespace}").into(),
        role: "Role epitaph-observer of that namespace",
        rule: LEASE_RULE,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::source::api_error::ApiError;

    #[test]
    fn a_403_has_the_missing_rule_as_its_remedy() {
        let refused = Status::failure("endpointslices is forbidden: User \"x\"", "Forbidden").with_code(403);
        let error = ApiError::of(&of_watch(Watch::EndpointSlices), &kube::Error::Api(refused.boxed()));
        expect_test::expect![[r#"cannot list and watch endpointslices of the cluster: RBAC forbids it (endpointslices is forbidden: User "x"); bind this ServiceAccount to ClusterRole epitaph-observer with the rule {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}"#]]
            .assert_eq(&crate::error::line(&error));
    }

    #[test]
    fn every_rule_is_in_the_manifest() {
        let manifest = include_str!("../../../../deploy/kubernetes/observer.yaml");
        for rule in Watch::ALL.map(rule).into_iter().chain([LEASE_RULE]) {
            assert!(manifest.contains(rule), "{rule}");
        }
    }
}
