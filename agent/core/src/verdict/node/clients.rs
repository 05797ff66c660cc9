//! What the shutdown cost the clients of the pods, and pods that were started on a node that was going.

use super::words::{NAMED, name, names};
use crate::shutdown::{ClientLoss, NodeShutdownFacts, PodInShutdown, StillReady};
use crate::verdict::words::{many, seconds};

/// Nothing where none is proven, and neither that there was none.
pub(super) fn lost(facts: &NodeShutdownFacts) -> String {
    let all = facts.loss();
    if all.lost() == 0 {
        return String::new();
    }
    let workloads = facts.loss_by_workload();
    let mut named: Vec<String> = workloads
        .iter()
        .take(NAMED)
        .map(|(of, loss)| format!("{} {} ({})", name(of), loss.lost(), kinds(loss)))
        .collect();
    if workloads.len() > NAMED {
        let more = (workloads.len() - NAMED) as u64;
        named.push(format!("{} more", many(more, "workload")));
    }
    let ready = facts.longest_ready().map(|(pod, of)| still_ready(pod, of));
    // Otherwise the last clause says so.
    let why = match facts.pods_ready {
        None | Some(0) if ready.is_some() => ", and a Service sends clients to Ready pods",
        _ => "",
    };
    format!(
        "; clients lost {}{}: {}{}{why}",
        if all.is_least { "at least " } else { "" },
        many(all.lost(), "connection"),
        named.join(", "),
        ready.unwrap_or_default()
    )
}

fn still_ready(pod: &PodInShutdown, of: StillReady) -> String {
    format!(
        "; {}/{} was Ready in the API for {}{} after its stop signal",
        pod.pod.namespace,
        pod.pod.name,
        if of.is_least { "at least " } else { "" },
        seconds(of.lasted)
    )
}

pub(super) fn started(facts: &NodeShutdownFacts) -> String {
    match names(facts.started(), |_| String::new()) {
        (0, _) => String::new(),
        (count, names) => format!("; {} during the shutdown: {names}", were_started(count)),
    }
}

fn were_started(count: u64) -> String {
    let verb = if count == 1 { "was" } else { "were" };
    format!("{} {verb} started", many(count, "pod"))
}

/// Of a shutdown that gave every pod its time.
pub(super) fn remedy(facts: &NodeShutdownFacts) -> Option<String> {
    if facts.loss().lost() > 0 {
        return Some(
            "drain the node before its shutdown (`kubectl drain`): a drain deletes the pods, and the endpoints of a deleted pod stop being \
             ready at once; the endpoints of a pod that the kubelet stops at a shutdown may stay ready until the pod has ended. Each pod's \
             own remedy \
             applies, too"
                .to_owned(),
        );
    }
    // A cordon does not keep these away.
    let is_placed = |pod: &PodInShutdown| !pod.pod.is_static && pod.pod.workload.kind != "DaemonSet";
    facts.started().any(is_placed).then(|| {
        "cordon or drain the node before its shutdown (`kubectl cordon`, `kubectl drain`): the scheduler places no pods on a cordoned node"
            .to_owned()
    })
}

/// `10 refused, 2 cut`.
fn kinds(loss: &ClientLoss) -> String {
    let all = [(loss.refused, "refused"), (loss.reset, "reset"), (loss.cut, "cut")];
    let some = all.iter().filter(|(count, _)| *count > 0);
    some.map(|(count, kind)| format!("{count} {kind}"))
        .collect::<Vec<_>>()
        .join(", ")
}
