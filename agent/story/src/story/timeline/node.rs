//! A node's shutdown → what happened when.

use super::{Mark, Row, event};
use crate::history::{At, Cut, PodInShutdown, Report};
use crate::story::words::{between, many, setting, short};

/// Pods with a row of their own, those that were cut or lost connections first; the others are counted.
const PODS: usize = 12;

pub(super) fn rows(report: &Report) -> Vec<Row> {
    let mut rows: Vec<Option<Row>> = Vec::new();
    if report.is_down() {
        rows.push(lasting(report.begin, report.end, Mark::Lost, "the node was down"));
    }
    let signs = &report.signs;
    let kind = if report.kind.is_empty() { "shutdown" } else { &*report.kind };
    if let Some(spoofed) = &signs.spoofed {
        let by = match (spoofed.pid, &spoofed.comm) {
            (Some(pid), Some(comm)) => format!(" by `{comm}` (pid {pid})"),
            (Some(pid), None) => format!(" by pid {pid}"),
            (None, _) => String::new(),
        };
        rows.push(event(spoofed.time, Mark::Lost, format!("PrepareForShutdown, forged{by}")));
    }
    rows.push(event(signs.prepared, Mark::Event, format!("logind announces: {kind}")));
    if let Some(delay) = &report.delay {
        let limit = delay
            .limit_ms
            .map_or_else(String::new, |limit| format!(", at most {}", setting(limit)));
        let over = if delay.expired { ": expired" } else { "" };
        rows.push(lasting(
            delay.begin,
            delay.end,
            Mark::Run,
            format!("logind waits for delay locks{limit}{over}"),
        ));
    }
    for lock in &report.locks {
        let begin = lock.taken.max(report.begin);
        let label = format!("{} lock of {}", lock.mode, lock.who);
        rows.push(lasting(begin, lock.released.or(report.end), Mark::Run, label));
    }
    for phase in &report.phases {
        let over = match (phase.overran, phase.at_least) {
            (true, _) => ": overran",
            (false, true) => ": went on after epitaph's end",
            (false, false) => "",
        };
        let label = format!(
            "kubelet's phase from priority {}, {}{over}",
            phase.priority,
            setting(phase.period_ms)
        );
        rows.push(lasting(phase.begin, phase.end, Mark::Served, label));
    }
    rows.extend(pods(report));
    rows.push(event(
        signs.job_at,
        Mark::Event,
        format!("systemd has a job for {}", signs.job.as_deref().unwrap_or("a target")),
    ));
    rows.push(event(signs.stopping, Mark::Event, "systemd stops the services"));
    rows.push(event(
        signs.init_signal_at,
        Mark::Event,
        format!(
            "{} asks PID 1 for a shutdown",
            signs.init_signal.as_deref().unwrap_or("a signal")
        ),
    ));
    rows.push(event(signs.sigterm_to_all, Mark::Event, "SIGTERM to all processes"));
    rows.push(event(signs.sigkill_to_all, Mark::Kill, "SIGKILL to all processes"));
    rows.push(event(signs.cancelled, Mark::Plain, "cancelled"));
    if rows.iter().all(Option::is_none) {
        rows.push(event(report.end, Mark::Lost, "the last evidence before the node was down"));
    }
    rows.into_iter().flatten().collect()
}

fn pods(report: &Report) -> impl Iterator<Item = Option<Row>> {
    let has_harm = |pod: &&PodInShutdown| pod.cut.is_some() || pod.lost() > 0;
    let (cut, whole): (Vec<_>, Vec<_>) = report.pods.iter().partition(has_harm);
    let rest = (cut.len() + whole.len()).saturating_sub(PODS) as u64;
    let shown = cut.into_iter().chain(whole).take(PODS);
    let rows: Vec<Option<Row>> = shown
        .map(|pod| {
            let name = format!("pod {}/{}", pod.namespace, pod.name);
            let cost = cost(pod);
            match &pod.cut {
                Some(cut) => event(cut.time, Mark::Kill, format!("{name}: {}{cost}", fate(cut, pod))),
                None => lasting(
                    pod.stopped.or(pod.ended),
                    pod.ended,
                    Mark::Plain,
                    format!("{name} ended{cost}"),
                ),
            }
        })
        .collect();
    let more = (rest > 0).then(|| event(report.end, Mark::Plain, format!("{} more", many(rest, "pod"))));
    rows.into_iter().chain(more)
}

/// What the end of the pod cost its clients, and whether it should have been there at all.
fn cost(pod: &PodInShutdown) -> String {
    let mut cost = String::new();
    if pod.started.is_some() {
        cost += ", started during the shutdown";
    }
    if let Some(clients) = pod.clients.as_ref().filter(|clients| clients.lost > 0) {
        let least = if clients.at_least { "at least " } else { "" };
        cost += &format!(", clients lost {least}{}", many(clients.lost, "connection"));
    }
    if let Some(ready) = pod.still_ready.as_ref().filter(|_| pod.lost() > 0) {
        let least = if ready.at_least { "at least " } else { "" };
        cost += &format!(
            ", Ready in the API for {least}{} after its stop signal",
            setting(ready.after_stop_ms)
        );
    }
    cost
}

/// What became of a pod that the shutdown gave too little time. Its containers may still exit by themselves, a moment later.
fn fate(cut: &Cut, pod: &PodInShutdown) -> String {
    if cut.killed {
        return "SIGKILL before the end of its grace period".to_owned();
    }
    let later = cut.time.zip(pod.ended).filter(|(cut, ended)| ended > cut);
    let later = later.map_or_else(String::new, |(cut, ended)| {
        format!("; exited {} later", short(between(cut.0, ended.0)))
    });
    format!("still ran when systemd stopped everything{later}")
}

fn lasting(begin: Option<At>, end: Option<At>, mark: Mark, label: impl Into<String>) -> Option<Row> {
    begin.map(|begin| Row {
        at: begin.0,
        until: end.map(|end| end.0.max(begin.0)),
        mark,
        label: label.into(),
    })
}
