//! Purposes of the observer's requests.

use epitaph_core::observe::Watch;

use crate::rights::{self, Right};
use crate::source::api_error::Purpose;

const fn right(watch: Watch) -> &'static Right {
    match watch {
        Watch::EndpointSlices => &rights::OBSERVER_ENDPOINT_SLICES,
        Watch::Pods => &rights::OBSERVER_PODS,
        Watch::Namespaces => &rights::OBSERVER_NAMESPACES,
        Watch::Nodes => &rights::OBSERVER_NODES,
        Watch::VolumeAttachments => &rights::OBSERVER_ATTACHMENTS,
    }
}

pub(super) fn of_watch(watch: Watch) -> Purpose {
    Purpose {
        what: format!("list and watch {} of the cluster", watch.name()).into(),
        right: right(watch),
    }
}

pub(super) fn of_lease(namespace: &str, name: &str) -> Purpose {
    Purpose {
        what: format!("read and write Lease {name} in namespace {namespace}").into(),
        right: &rights::OBSERVER_LEASE,
    }
}

pub(super) fn of_missing_lease(namespace: &str, name: &str) -> Purpose {
    Purpose {
        what: format!("create Lease {name}, which is missing in namespace {namespace}").into(),
        right: &rights::CREATE_LEASE,
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
        let refused = Status::failure("leases is forbidden: User \"x\"", "Forbidden").with_code(403);
        let error = ApiError::of(&of_missing_lease("epitaph", "l"), &kube::Error::Api(refused.boxed()));
        expect_test::expect![[r#"cannot create Lease l, which is missing in namespace epitaph: RBAC forbids it (leases is forbidden: User "x"); install again (`helm upgrade` or `kubectl apply`), which brings it back; or grant this ServiceAccount the rule {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}"#]]
            .assert_eq(&crate::error::line(&error));
    }
}
