//! The evidence of a shutdown, a line each.

use crate::event::Kind;
use crate::shutdown::{Ending, NodeShutdownFacts};
use crate::time::Boot;
use crate::verdict::words::{seconds, whole_seconds};
use crate::verdict::{Evidence, Source};

use super::words::{lock_text, name, sender_text};

/// Lines about locks and pods, at most: the facts have all of them.
const LINES: usize = 32;

pub(super) fn list(facts: &NodeShutdownFacts) -> Vec<Evidence> {
    let mut lines = signs(facts);
    let mut add = |at: Boot, source: Source, text: String| lines.push(Evidence { at, source, text });
    if let Some(delay) = facts.logind.delay {
        if let Some(limit) = delay.limit {
            add(
                delay.begin,
                Source::Bus,
                format!("InhibitDelayMaxUSec is {}", whole_seconds(limit)),
            );
        }
        if let Some(end) = delay.end {
            let how = if delay.expired { "expired after" } else { "lasted" };
            add(
                end,
                Source::Bus,
                format!("the delay {how} {}", seconds(end.since(delay.begin))),
            );
        }
    }
    for lock in facts.logind.locks.iter().take(LINES) {
        let of = lock_text(&lock.lock);
        match lock.taken {
            Some(at) => add(at, Source::Bus, format!("{of}: taken")),
            None => add(facts.begin, Source::Bus, format!("{of}: held when the shutdown began")),
        }
        if let Some(at) = lock.released {
            add(at, Source::Bus, format!("{of}: released"));
        }
    }
    kubelet(facts, &mut add);
    for (pod, cut) in facts.cut().take(LINES) {
        let name = format!("pod {}/{}", pod.pod.namespace, pod.pod.name);
        let text = match cut.killed {
            true => format!("{name}: SIGKILL before the end of its grace period"),
            false => format!("{name}: still ran"),
        };
        add(cut.at, Source::Probe(Kind::ProcessExit), text);
    }
    for (of, loss) in facts.loss_by_workload().into_iter().take(LINES) {
        let text = format!(
            "clients of {} lost connections: {} refused, {} reset, {} cut",
            name(of),
            loss.refused,
            loss.reset,
            loss.cut
        );
        add(facts.end, Source::Probe(Kind::Tcp), text);
    }
    for pod in facts.started().take(LINES) {
        if let Some(at) = pod.started {
            let text = format!("pod {}/{}: its first process started", pod.pod.namespace, pod.pod.name);
            add(at, Source::Probe(Kind::ProcessExec), text);
        }
    }
    if let Ending::Down { back } = facts.ending {
        add(back, Source::Bus, "the next boot".to_owned());
        if let Some(ready) = facts.pods_ready {
            add(
                back,
                Source::Kubernetes,
                format!("pods that are known to have stayed Ready until then: {ready}"),
            );
        }
    }
    lines
}

fn kubelet(facts: &NodeShutdownFacts, add: &mut impl FnMut(Boot, Source, String)) {
    match &facts.kubelet.config {
        Some(Ok(config)) => add(
            facts.begin,
            Source::Kubelet,
            format!(
                "shutdownGracePeriod {}, of which {} for critical pods ({})",
                whole_seconds(config.total),
                whole_seconds(config.critical),
                config.source
            ),
        ),
        Some(Err(reason)) => add(
            facts.begin,
            Source::Kubelet,
            format!("the configuration is not known: {reason}"),
        ),
        None => {}
    }
    if let Some(state) = facts.kubelet.state {
        let time = |at: Option<crate::time::Wall>| at.map_or("none".to_owned(), crate::time::Wall::rfc3339_millis);
        let text = format!(
            "graceful_node_shutdown_state: start {}, end {}",
            time(state.started),
            time(state.ended)
        );
        add(facts.end, Source::Kubelet, text);
    }
}

fn signs(facts: &NodeShutdownFacts) -> Vec<Evidence> {
    let signs = &facts.signs;
    let mut lines = Vec::new();
    let mut add = |at: Option<Boot>, source: Source, text: String| {
        lines.extend(at.map(|at| Evidence { at, source, text }));
    };
    if let Some((plan, seen)) = &signs.scheduled {
        let text = format!("{} scheduled for {}", plan.kind, plan.at.rfc3339_millis());
        add(Some(*seen), Source::Bus, text);
    }
    add(signs.prepared, Source::Bus, "PrepareForShutdown(true) of logind".to_owned());
    add(signs.cancelled, Source::Bus, "the shutdown was cancelled".to_owned());
    if let Some((at, sender)) = &signs.spoofed {
        add(
            Some(*at),
            Source::Bus,
            format!("PrepareForShutdown from {}, which is not logind", sender_text(sender)),
        );
    }
    if let Some((at, unit)) = &signs.job {
        add(Some(*at), Source::Bus, format!("systemd has a job for {unit}"));
    }
    add(signs.stopping, Source::Bus, "systemd's state is stopping".to_owned());
    if let Some(signal) = signs.signal {
        let text = format!("{} from `{}` (pid {}) to PID 1", signal.signal, signal.comm, signal.pid);
        add(Some(signal.at), Source::Probe(Kind::SignalGenerate), text);
    }
    let kernel = Source::Probe(Kind::SignalGenerate);
    add(
        signs.swept,
        kernel,
        "systemd sent stop signals to pods and services alike".to_owned(),
    );
    add(
        signs.terminated,
        kernel,
        "systemd-shutdown sent SIGTERM to all processes".to_owned(),
    );
    add(
        signs.killed,
        kernel,
        "systemd-shutdown sent SIGKILL to all processes".to_owned(),
    );
    lines
}
