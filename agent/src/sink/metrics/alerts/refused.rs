//! The alert about a kernel that does not show which clients were refused, and its runbook.

use super::pages::Page;
use super::{LASTING, Rule, Rules, rule};
use crate::sink::metrics::table::REFUSED_CLIENTS;

pub(super) fn unseen(of: &Rules) -> Rule {
    Rule {
        expr: format!(
            "max by (cluster, instance, clients) ({}{{clients=~\"of_this_machine|none\"}}) == 1",
            REFUSED_CLIENTS.prometheus()
        ),
        lasting: of.seconds(LASTING),
        ..rule(
            "EpitaphRefusedClientsUnseen",
            "The agent {{ $labels.instance }} does not see all refused clients: {{ $labels.clients }}".into(),
            "The traffic of a container that closes a listener on this node is `unknown`, whether or not a rollout lost requests. \
             of_this_machine: refused clients of other machines and of Services are not observed. none: no refused client is observed. \
             /readyz of the agent names the missing kernel feature; `epitaph doctor` in that pod has the remedy."
                .into(),
        )
    }
}

pub(super) const PAGE: Page = Page {
    alert: "EpitaphRefusedClientsUnseen",
    means: "The kernel of this node does not show all clients that were refused. The traffic of a container that closes a listener is \
            `unknown`, never `quiet`. It is not known whether a rollout lost requests on this node.",
    proves: "`epitaph_refused_clients_seen` by `clients`, and `/readyz` of the agent, which names the missing kernel feature.",
    to_do: &[
        "Run `epitaph doctor` in the agent's pod of that node (docs/kubernetes.md has the command), or on the host: the finding on \
         `tcp_send_reset` has the remedy.",
        "If a capability is missing: see `docs/privileges.md`.",
        "If `/readyz` reports that the machine has cgroup v1 only: boot the node with cgroup v2.",
        "If the kernel does not have the feature: `docs/kernels.md` and `docs/limits/kernels.md` list which kernels show all clients. Move \
         the nodes \
         to such a kernel.",
        "Until then, give the workloads of this node the preStop sleep that Epitaph advises for these workloads on a node that shows all \
         clients. At a rollout, look at the errors in the clients' own logs.",
    ],
    silence: "Silence nodes whose kernel will not be upgraded permanently, by `instance`.",
};
