//! The pods' grace periods against the phases of the kubelet's shutdown.

use std::time::Duration;

use epitaph_core::node::PriorityPeriod;

use super::{FoundKubelet, Node, not_checked, shown};
use crate::doctor::Finding;
use crate::source::pods::PodGrace;

/// Most pods that are named.
const NAMED: usize = 5;

pub(super) fn check(node: &Node, kubelet: &FoundKubelet) -> Vec<Finding> {
    let check = "pods";
    let phases = match kubelet.protection() {
        // Reported already.
        Some(protection) if protection.needed().is_zero() => return Vec::new(),
        Some(protection) => protection.phases(),
        None => return Vec::new(),
    };
    let pods = match &node.pods {
        Ok(pods) => pods,
        Err(unknown) => return vec![not_checked(check, unknown.clone())],
    };
    let mut cut: Vec<(Duration, &PodGrace, Duration)> = pods
        .iter()
        .filter_map(|pod| {
            let period = phases[phase(&phases, pod.priority)].period;
            let by = pod.grace.saturating_sub(period);
            (!by.is_zero()).then_some((by, pod, period))
        })
        .collect();
    if cut.is_empty() {
        return vec![Finding::ok(
            check,
            format!("the grace periods of all {} pods fit into their phases", pods.len()),
        )];
    }
    cut.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.name.cmp(&b.1.name)));
    let mut named: Vec<String> = cut
        .iter()
        .take(NAMED)
        .map(|(by, pod, period)| {
            format!(
                "{} has {} in a phase of {}: up to {} are cut",
                pod.name,
                shown(pod.grace),
                shown(*period),
                shown(*by)
            )
        })
        .collect();
    if cut.len() > NAMED {
        named.push(format!("{} more", cut.len() - NAMED));
    }
    let message = format!(
        "{} of {} pods have a longer grace period than their phase: {}",
        cut.len(),
        pods.len(),
        named.join("; ")
    );
    vec![Finding::note(check, message, Some(remedy(&phases, pods).into()))]
}

/// The periods that all pods fit into.
fn remedy(phases: &[PriorityPeriod], pods: &[PodGrace]) -> String {
    let mut fitting: Vec<PriorityPeriod> = phases.to_vec();
    for pod in pods {
        let phase = phase(phases, pod.priority);
        fitting[phase].period = fitting[phase].period.max(pod.grace);
    }
    let total: Duration = fitting.iter().map(|phase| phase.period).sum();
    let each: Vec<String> = fitting
        .iter()
        .map(|phase| format!("{} from priority {}", shown(phase.period), phase.priority))
        .collect();
    format!(
        "periods for all: {} ({} in all, which logind must allow); or shorter terminationGracePeriodSeconds",
        each.join(", "),
        shown(total)
    )
}

/// The kubelet's own choice: the last phase whose priority is not above the pod's, else the first.
fn phase(phases: &[PriorityPeriod], priority: i32) -> usize {
    phases.iter().rposition(|phase| phase.priority <= priority).unwrap_or(0)
}
