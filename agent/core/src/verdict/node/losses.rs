//! What a shutdown cost that was in order otherwise: the connections that clients lost, and pods that were started although the node was going.

use std::collections::BTreeMap;

use super::sentence::NAMED;
use crate::pod::Workload;
use crate::shutdown::{ClientLosses, NodeShutdownFacts};
use crate::verdict::sentence::many;

/// Clauses behind the sentence; empty where nothing is known to be lost.
pub(super) fn clauses(facts: &NodeShutdownFacts) -> String {
    format!("{}{}", lost(facts), started(facts))
}

/// Connections were lost.
pub(super) fn is_costly(facts: &NodeShutdownFacts) -> bool {
    facts.losses().count() > 0
}

/// By workload, those with the most first. Of others it may not be known: "at least".
fn lost(facts: &NodeShutdownFacts) -> String {
    let all = facts.losses();
    if all.count() == 0 {
        return String::new();
    }
    let mut by_workload: BTreeMap<&Workload, ClientLosses> = BTreeMap::new();
    for pod in facts.others().filter(|pod| pod.losses.count() > 0) {
        by_workload.entry(&pod.pod.workload).or_default().add(&pod.losses);
    }
    let mut by_workload: Vec<_> = by_workload.into_iter().collect();
    by_workload.sort_by_key(|(_, losses)| std::cmp::Reverse(losses.count()));
    let named = by_workload.iter().take(NAMED).map(|(of, losses)| {
        let kinds = [("refused", losses.refused), ("reset", losses.reset), ("cut", losses.cut)];
        let kinds = kinds.iter().filter(|(_, count)| *count > 0);
        let kinds: Vec<String> = kinds.map(|(kind, count)| format!("{count} {kind}")).collect();
        format!("{} {}/{} ({})", of.kind, of.namespace, of.name, kinds.join(", "))
    });
    let named: Vec<String> = named.collect();
    let more = match by_workload.len() - named.len() {
        0 => String::new(),
        more => format!(" and of {}", many(more as u64, "more workload")),
    };
    let least = if all.may_be_more { "at least " } else { "" };
    let connections = many(all.count(), "connection");
    format!("; clients lost {least}{connections} of {}{more}", named.join(", "))
}

fn started(facts: &NodeShutdownFacts) -> String {
    let (count, names) = super::sentence::names(facts.started(), |_| String::new());
    match count {
        0 => String::new(),
        1 => format!("; 1 pod was started after the shutdown had begun: {names}"),
        count => format!("; {count} pods were started after the shutdown had begun: {names}"),
    }
}

/// None where nothing was lost and nothing was started.
pub(super) fn remedy(facts: &NodeShutdownFacts) -> Option<String> {
    let lost = is_costly(facts).then_some(
        "drain the node before its shutdown; or give the named workloads a preStop sleep of 5 s or more, which the kubelet also runs at a \
         node's shutdown, and as much more shutdownGracePeriod, so that the endpoints can leave before the stop signal",
    );
    let started =
        (facts.started().next().is_some()).then_some("cordon the node before its shutdown: a cordoned node gets no new pods");
    let parts: Vec<&str> = lost.into_iter().chain(started).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
