//! The rights in the cluster, each with its reason: the one table behind the chart's RBAC rules, the remedies of a 403 and
//! `docs/privileges.md`.

/// An RBAC rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Right {
    pub role: Role,
    /// As in the manifest.
    pub rule: &'static str,
    /// Why the right is needed.
    pub reason: &'static str,
    /// What is missing without the rule.
    pub without: &'static str,
}

impl Right {
    /// After a 403.
    pub fn remedy(&self) -> String {
        match self.role {
            Role::Installation => format!(
                "install again (`helm upgrade` or `kubectl apply`), which brings it back; or grant this ServiceAccount the rule {}",
                self.rule
            ),
            role => format!("bind this ServiceAccount to {} with the rule {}", role.name(), self.rule),
        }
    }
}

/// The object with the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Kubernetes' own role for every authenticated user.
    Everybody,
    /// Of whoever installs Epitaph.
    Installation,
    Agent,
    /// Of the agent; not needed with `kubernetes.events = false`.
    AgentEvents,
    /// Of the agent; not needed with `kubernetes.epitaphs = false`.
    AgentEpitaphs,
    /// Of the agent; not needed where the kubelet's files are given.
    AgentConfigz,
    Observer,
    /// Of the observer; not needed with `kubernetes.events = false`.
    ObserverEvents,
    /// Of the observer; not needed with `kubernetes.epitaphs = false`.
    ObserverEpitaphs,
    ObserverLease,
}

impl Role {
    /// With the names of the chart's default.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Installation => "the installing user",
            Role::Everybody => "ClusterRole system:public-info-viewer",
            Role::Agent | Role::AgentEvents | Role::AgentEpitaphs | Role::AgentConfigz => "ClusterRole epitaph-agent",
            Role::Observer | Role::ObserverEvents | Role::ObserverEpitaphs => "ClusterRole epitaph-observer",
            Role::ObserverLease => "Role epitaph-observer of that namespace",
        }
    }
}

const fn right(role: Role, rule: &'static str, reason: &'static str, without: &'static str) -> Right {
    Right {
        role,
        rule,
        reason,
        without,
    }
}

pub const AGENT_PODS: Right = right(
    Role::Agent,
    r#"{apiGroups: [""], resources: [pods], verbs: [list, watch]}"#,
    "The pods of the agent's own node, by field selector.",
    "Terminations of containers, without their pods.",
);
pub const AGENT_REPLICA_SETS: Right = right(
    Role::Agent,
    "{apiGroups: [apps], resources: [replicasets], verbs: [get]}",
    "The Deployment of a pod: one metadata request per ReplicaSet.",
    "The workload's name comes from labels, and only if they prove it.",
);
pub const AGENT_JOBS: Right = right(
    Role::Agent,
    "{apiGroups: [batch], resources: [jobs], verbs: [get]}",
    "The CronJob of a pod: one metadata request per Job.",
    "The workload's name comes from labels, and only if they prove it.",
);
pub const AGENT_NAMESPACES: Right = right(
    Role::Agent,
    r#"{apiGroups: [""], resources: [namespaces], verbs: [get]}"#,
    "Annotations epitaph.dev/* of namespaces: one request per namespace every five minutes.",
    "Only annotations of pods have an effect.",
);
pub const AGENT_LIST_EVENTS: Right = right(
    Role::Agent,
    r#"{apiGroups: [""], resources: [events], verbs: [list]}"#,
    "The Events of a terminated pod, by the pod's name: failed hooks and probes.",
    "The affected terminations state that the Events were not listed.",
);
pub const AGENT_POST_EVENTS: Right = right(
    Role::AgentEvents,
    "{apiGroups: [events.k8s.io], resources: [events], verbs: [create, get, patch]}",
    "The agent's own Events on pods, workloads and its node. Not needed with kubernetes.events = false.",
    "No Events; traces and metrics are complete.",
);
pub const AGENT_EPITAPHS: Right = right(
    Role::AgentEpitaphs,
    "{apiGroups: [epitaph.dev], resources: [epitaphs], verbs: [create, patch]}",
    "The custom resource Epitaph of each pod of the agent's own node. Not needed with kubernetes.epitaphs = false.",
    "`kubectl get epitaphs` shows nothing new; traces, metrics and Events are complete.",
);
pub const AGENT_NODE_EPITAPHS: Right = right(
    Role::AgentEpitaphs,
    "{apiGroups: [epitaph.dev], resources: [nodeepitaphs], verbs: [create]}",
    "The custom resource NodeEpitaph of a shutdown of the agent's own node. Not needed with kubernetes.epitaphs = false.",
    "`kubectl epitaph node` shows no shutdown; traces, metrics and Events are complete.",
);
pub const AGENT_CONFIGZ: Right = right(
    Role::AgentConfigz,
    r#"{apiGroups: [""], resources: [nodes/configz], verbs: [get]}"#,
    "The configuration of the agent's own kubelet, by the kubelet itself (Kubernetes 1.33 or later). Not needed with agent.kubelet.configz = false.",
    "Whether the node would shut down gracefully is known from the bus only; agent.kubelet.config gives the file for this case.",
);
pub const OBSERVER_ENDPOINT_SLICES: Right = right(
    Role::Observer,
    "{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}",
    "The cluster's only watch of endpoints.",
    "The observer is not ready, and exports nothing.",
);
pub const OBSERVER_PODS: Right = right(
    Role::Observer,
    r#"{apiGroups: [""], resources: [pods], verbs: [list, watch]}"#,
    "Replacements, and the pods of endpoints. The observer keeps a small record of each pod.",
    "The observer is not ready, and exports nothing.",
);
pub const OBSERVER_NAMESPACES: Right = right(
    Role::Observer,
    r#"{apiGroups: [""], resources: [namespaces], verbs: [list, watch]}"#,
    "Namespaces that opted out (annotation epitaph.dev/ignore); metadata only.",
    "The observer is not ready, and exports nothing.",
);
pub const OBSERVER_REPLICA_SETS: Right = right(
    Role::Observer,
    "{apiGroups: [apps], resources: [replicasets], verbs: [get]}",
    "The Deployment of a terminating pod, for service.name and k8s.deployment.uid.",
    "The observer's spans can be under another service.name than the agent's.",
);
pub const OBSERVER_JOBS: Right = right(
    Role::Observer,
    "{apiGroups: [batch], resources: [jobs], verbs: [get]}",
    "The CronJob of a terminating pod, for service.name.",
    "The observer's spans can be under another service.name than the agent's.",
);
pub const OBSERVER_NODES: Right = right(
    Role::Observer,
    r#"{apiGroups: [""], resources: [nodes], verbs: [list, watch]}"#,
    "Nodes that are lost: the condition Ready, taints, boot id. Not needed with observer.lost_nodes = false.",
    "Nothing about lost nodes; everything else is reported.",
);
pub const OBSERVER_ATTACHMENTS: Right = right(
    Role::Observer,
    "{apiGroups: [storage.k8s.io], resources: [volumeattachments], verbs: [list, watch]}",
    "Volumes that stay attached to a lost node. Not needed with observer.lost_nodes = false.",
    "Lost nodes are reported without their volumes.",
);
pub const OBSERVER_VOLUMES: Right = right(
    Role::Observer,
    r#"{apiGroups: [""], resources: [persistentvolumes], verbs: [get]}"#,
    "The claim of a volume that is attached to a lost node: one request per volume. Not needed with observer.lost_nodes = false.",
    "Lost nodes are reported without their volumes.",
);
pub const OBSERVER_NODE_LEASES: Right = right(
    Role::Observer,
    "{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get]}",
    "When a lost node's kubelet was last heard of: one request per lost node, in namespace kube-node-lease. Not needed with observer.lost_nodes = false.",
    "Lost nodes are reported without this time.",
);
pub const OBSERVER_POST_EVENTS: Right = right(
    Role::ObserverEvents,
    "{apiGroups: [events.k8s.io], resources: [events], verbs: [create, get, patch]}",
    "Events on StatefulSets whose pods hang on a lost node, and on Deployments whose rollout lost connections. Not needed with kubernetes.events = false.",
    "No Events; traces and metrics are complete.",
);
pub const OBSERVER_EPITAPHS: Right = right(
    Role::ObserverEpitaphs,
    "{apiGroups: [epitaph.dev], resources: [epitaphs], verbs: [list, watch, patch, delete, deletecollection]}",
    "Epitaphs beyond their age, and beyond the bounds of a namespace and of the cluster, are removed; replacement, endpoints and loss are added where they explain something, for which the metadata is watched. Not needed with kubernetes.epitaphs = false.",
    "Epitaphs are never removed, and fill etcd; and they have no field `observed`.",
);
pub const OBSERVER_NODE_EPITAPHS: Right = right(
    Role::ObserverEpitaphs,
    "{apiGroups: [epitaph.dev], resources: [nodeepitaphs], verbs: [create, list, delete]}",
    "The custom resource NodeEpitaph of each lost node; old ones are removed. Not needed with kubernetes.epitaphs = false.",
    "`kubectl epitaph node` shows no loss, and NodeEpitaphs are never removed.",
);
pub const OBSERVER_ROLLOUTS: Right = right(
    Role::ObserverEpitaphs,
    "{apiGroups: [apps], resources: [replicasets], verbs: [list, watch]}",
    "When a rollout has settled, to count what it cost. Of a ReplicaSet the observer keeps numbers and names, and not its template. Not needed with kubernetes.epitaphs = false.",
    "No metrics epitaph_rollout_*, and no Event RolloutLostConnections; `kubectl epitaph rollout` is complete.",
);
pub const OBSERVER_LEASE: Right = right(
    Role::ObserverLease,
    "{apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [epitaph-observer], verbs: [get, update]}",
    "Only one observer is active. The Lease comes with the installation.",
    "No observer is active.",
);

/// Not in [`ALL`]: the chart does not repeat Kubernetes' own rules.
pub const CLOCK: Right = right(
    Role::Everybody,
    "{nonResourceURLs: [/version], verbs: [get]}",
    "The API server's time, from the answer's header.",
    "The times of deletion requests are less exact.",
);

/// Not in [`ALL`]: the Lease comes with the installation.
pub const CREATE_LEASE: Right = right(
    Role::Installation,
    "{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}",
    "A Lease that was deleted.",
    "No observer is active.",
);

/// The rules of the chart.
pub const ALL: &[Right] = &[
    AGENT_PODS,
    AGENT_REPLICA_SETS,
    AGENT_JOBS,
    AGENT_NAMESPACES,
    AGENT_LIST_EVENTS,
    AGENT_POST_EVENTS,
    AGENT_EPITAPHS,
    AGENT_NODE_EPITAPHS,
    AGENT_CONFIGZ,
    OBSERVER_ENDPOINT_SLICES,
    OBSERVER_PODS,
    OBSERVER_NAMESPACES,
    OBSERVER_REPLICA_SETS,
    OBSERVER_JOBS,
    OBSERVER_NODES,
    OBSERVER_ATTACHMENTS,
    OBSERVER_VOLUMES,
    OBSERVER_NODE_LEASES,
    OBSERVER_POST_EVENTS,
    OBSERVER_EPITAPHS,
    OBSERVER_NODE_EPITAPHS,
    OBSERVER_ROLLOUTS,
    OBSERVER_LEASE,
];

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    use super::*;

    /// The rules of one role with their reasons, as the chart's template includes them.
    fn rules(role: Role) -> String {
        let rights = ALL.iter().filter(|right| right.role == role);
        rights
            .map(|right| format!("# {}\n- {}\n", right.reason, right.rule))
            .collect()
    }

    #[test]
    fn the_chart_has_these_rules() {
        expect_file!["../../deploy/helm/epitaph/files/rbac/agent.yaml"].assert_eq(&rules(Role::Agent));
        expect_file!["../../deploy/helm/epitaph/files/rbac/agent-events.yaml"].assert_eq(&rules(Role::AgentEvents));
        expect_file!["../../deploy/helm/epitaph/files/rbac/agent-epitaphs.yaml"].assert_eq(&rules(Role::AgentEpitaphs));
        expect_file!["../../deploy/helm/epitaph/files/rbac/agent-configz.yaml"].assert_eq(&rules(Role::AgentConfigz));
        expect_file!["../../deploy/helm/epitaph/files/rbac/observer.yaml"].assert_eq(&rules(Role::Observer));
        expect_file!["../../deploy/helm/epitaph/files/rbac/observer-events.yaml"].assert_eq(&rules(Role::ObserverEvents));
        expect_file!["../../deploy/helm/epitaph/files/rbac/observer-epitaphs.yaml"].assert_eq(&rules(Role::ObserverEpitaphs));
        expect_file!["../../deploy/helm/epitaph/files/rbac/observer-lease.yaml"].assert_eq(&rules(Role::ObserverLease));
    }

    #[test]
    fn the_page_has_these_rules() {
        const FROM: &str = "<!-- from agent/src/rights.rs: UPDATE_EXPECT=1 cargo test -p epitaph --lib rights -->\n";
        const TO: &str = "<!-- end -->\n";
        let mut table = "| Role | Rule | Why | Without |\n|---|---|---|---|\n".to_owned();
        for Right {
            role,
            rule,
            reason,
            without,
        } in ALL
        {
            let role = role.name().replace(" of that namespace", "");
            table += &format!("| {role} | `{rule}` | {reason} | {without} |\n");
        }
        let page = include_str!("../../docs/privileges.md");
        let (before, rest) = page.split_once(FROM).expect("the mark before the table");
        let (_, after) = rest.split_once(TO).expect("the mark after the table");
        expect_file!["../../docs/privileges.md"].assert_eq(&format!("{before}{FROM}{table}{TO}{after}"));
    }

    #[test]
    fn every_role_has_a_rule_and_no_rule_is_there_twice() {
        for role in [
            Role::Agent,
            Role::AgentEvents,
            Role::AgentEpitaphs,
            Role::AgentConfigz,
            Role::Observer,
            Role::ObserverEvents,
            Role::ObserverEpitaphs,
            Role::ObserverLease,
        ] {
            let rules: Vec<_> = ALL
                .iter()
                .filter(|right| right.role == role)
                .map(|right| right.rule)
                .collect();
            assert!(!rules.is_empty(), "{role:?}");
            assert!(
                rules
                    .iter()
                    .all(|rule| rules.iter().filter(|other| *other == rule).count() == 1),
                "{role:?}"
            );
        }
    }
}
