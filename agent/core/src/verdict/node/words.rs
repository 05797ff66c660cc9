//! Words for pods, workloads, locks and senders.

use crate::node::{InhibitMode, Inhibitor, SignalSender};
use crate::pod::Workload;
use crate::shutdown::{NodeShutdownFacts, PodInShutdown};

/// Pods, workloads or locks that a sentence names.
pub(super) const NAMED: usize = 3;

pub(super) fn names<'a>(
    pods: impl Iterator<Item = &'a PodInShutdown>,
    more: impl Fn(&PodInShutdown) -> String,
) -> (u64, String) {
    let all: Vec<String> = pods
        .map(|pod| format!("{}/{}{}", pod.pod.namespace, pod.pod.name, more(pod)))
        .collect();
    let count = all.len();
    let mut text = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if count > NAMED {
        text.push_str(&format!(" and {} more", count - NAMED));
    }
    (count as u64, text)
}

/// `Deployment shop/web`.
pub(super) fn name(of: &Workload) -> String {
    format!("{} {}/{}", of.kind, of.namespace, of.name)
}

/// Who blocks.
pub(super) fn blockers(facts: &NodeShutdownFacts) -> impl Iterator<Item = &Inhibitor> {
    let locks = facts
        .logind
        .locks
        .iter()
        .filter(|lock| lock.released.is_none())
        .map(|lock| &lock.lock);
    locks.filter(|lock| lock.blocks())
}

/// `kubelet` (pid 812, delay, "…").
pub(super) fn lock_text(lock: &Inhibitor) -> String {
    let mode = match lock.mode {
        InhibitMode::Delay => "delay",
        InhibitMode::Block => "block",
        InhibitMode::BlockWeak => "block-weak",
        InhibitMode::Other => "another mode",
    };
    format!("lock of `{}` (pid {}, {mode}, \"{}\")", lock.who, lock.pid, lock.why)
}

pub(super) fn sender_text(sender: &SignalSender) -> String {
    match sender {
        SignalSender::Logind => "logind".to_owned(),
        SignalSender::Other {
            name, pid, comm, unit, ..
        } => {
            let mut known = Vec::new();
            known.extend(pid.map(|pid| format!("pid {pid}")));
            known.extend(comm.as_ref().map(|comm| format!("`{comm}`")));
            known.extend(unit.clone());
            match known.is_empty() {
                true => name.clone(),
                false => format!("{name} ({})", known.join(", ")),
            }
        }
    }
}
