//! One subject's death: its span and those below it.

use opentelemetry::trace::{Event, SpanId, Status};
use opentelemetry_sdk::trace::SpanData;

use super::attributes::{Attributes, after, disposition, place, refused_source, role, runtime_name, states};
use super::{Frame, pod};
use crate::attribute::Subject;
use crate::event::{ExitStatus, SignalResult};
use crate::render::attributes::key;
use crate::render::text::escape;
use crate::report::Termination;
use crate::termination::{Actor, Count, Gaps, Stop, Traffic};
use crate::time::Boot;
use crate::verdict::{Advice, Verdict, table};

/// The parent first.
pub(super) fn spans(t: &Termination, at: &Frame, parent: SpanId) -> Vec<SpanData> {
    let stop = stop_span(t, at, parent);
    let parent = stop.span_context.span_id();
    let mut spans = vec![stop];
    if let Some(context) = &t.kubernetes {
        spans.extend(pod::pre_stop_span(context, t, at, parent));
    }
    spans.extend(t.stop.as_ref().map(|stop| signal_span(stop, t, at, parent)));
    spans.extend(traffic_spans(&t.traffic, at, parent));
    // The kernel closes the sockets after the process's end was recorded; `SIGTERM → exit` keeps the exact end.
    super::enclose(&mut spans);
    spans
}

fn stop_span(t: &Termination, at: &Frame, parent: SpanId) -> SpanData {
    let name = match t.subject {
        Subject::Container { .. } => "container.stop",
        Subject::Unit { .. } => "unit.stop",
    };
    let mut a = Attributes::default();
    subject(t, &mut a);
    if let Some(context) = &t.kubernetes {
        pod::container(context, at, &mut a);
        // Else the pod's span says it.
        if parent == SpanId::INVALID || t.of_ending_pod {
            pod::request(context.request.as_ref(), at, &mut a);
        }
    }
    main_process(t, at, &mut a);
    verdict(&t.verdict, t.begin, &mut a);
    if let Some(stop) = &t.stop {
        stop_signal(stop, &mut a);
    }
    if let Some(kill) = &t.kill {
        kill_sender(&kill.sender, &mut a);
        a.bool(key::KILL_BY_CGROUP, kill.cgroup_kill);
    }
    if !t.oom.is_empty() {
        a.count(key::OOM_KILLED, t.oom.len() as u64);
    }
    a.count(key::OTHER_EXITS, t.other_exits);
    connections([&t.traffic], &mut a);
    newcomers(&t.traffic, at, &mut a);
    gaps(&t.gaps, &mut a);

    let mut span = at.span(name, parent, t.begin, t.end, a);
    span.events.events = events(t, at);
    if t.verdict.unclean {
        span.status = Status::error(escape(&t.verdict.sentence));
    }
    span
}

/// From the stop signal to the end of the main process.
fn signal_span(stop: &Stop, t: &Termination, at: &Frame, parent: SpanId) -> SpanData {
    let mut a = Attributes::default();
    stop_signal(stop, &mut a);
    at.span(
        format!("{} → exit", stop.signal),
        parent,
        stop.at,
        t.exit.map_or(t.end, |exit| exit.at),
        a,
    )
}

fn traffic_spans(traffic: &Traffic, at: &Frame, parent: SpanId) -> impl Iterator<Item = SpanData> {
    let spans = [
        ("refused connections", key::CONNECTIONS_REFUSED, traffic.refused),
        ("reset connections", key::CONNECTIONS_RESET, traffic.reset),
        ("cut connections", key::CONNECTIONS_CUT, traffic.cut),
        ("rejected connections", key::CONNECTIONS_REJECTED, traffic.rejected),
    ];
    let (unanswered, queued) = (traffic.cut_unanswered, traffic.reset_queued);
    let source = refused_source(traffic.refused_source);
    spans
        .into_iter()
        .filter(|(.., count)| count.count > 0)
        .map(move |(name, key, Count { count, first, last })| {
            let mut a = Attributes::default();
            a.count(key, count);
            match key {
                key::CONNECTIONS_CUT => a.count(key::CONNECTIONS_CUT_UNANSWERED, unanswered),
                key::CONNECTIONS_RESET => a.count(key::CONNECTIONS_RESET_QUEUED, queued),
                key::CONNECTIONS_REFUSED => a.maybe(key::CONNECTIONS_REFUSED_SOURCE, source),
                _ => {}
            }
            a.text(key::NETWORK_TRANSPORT, "tcp");
            at.span(name, parent, first, last, a)
        })
}

/// Moments, in order of time; those of one moment in the order in which one leads to the next.
fn events(t: &Termination, at: &Frame) -> Vec<Event> {
    let mut events: Vec<(Boot, &'static str, Attributes)> = Vec::new();
    if let Some(stop) = &t.stop {
        if stop.result == SignalResult::Ignored {
            let mut a = Attributes::default();
            a.text(key::STOP_SIGNAL, stop.signal.to_string());
            a.text(key::STOP_DISPOSITION, disposition(stop.disposition));
            events.push((stop.at, "stop-signal-ignored", a));
        }
        if let Some(entered) = stop.handler_entered {
            let mut a = Attributes::default();
            a.text(key::STOP_SIGNAL, stop.signal.to_string());
            events.push((entered, "handler.entered", a));
        }
    }
    for listener in &t.traffic.listeners {
        let mut a = Attributes::default();
        a.text(key::SERVER_ADDRESS, listener.local.ip().to_string());
        a.count(key::SERVER_PORT, listener.local.port().into());
        a.text(key::NETWORK_TRANSPORT, "tcp");
        a.bool(key::LISTENER_BY_EXIT, listener.by_exit);
        events.push((listener.at, "listener.closed", a));
    }
    for oom in &t.oom {
        let mut a = Attributes::default();
        a.count(key::PROCESS_PID, oom.tgid.0.into());
        a.text(key::PROCESS_EXECUTABLE_NAME, oom.comm.to_string());
        a.bool(key::OOM_MAIN, oom.is_main);
        events.push((oom.at, "oom", a));
    }
    if let Some(kill) = &t.kill {
        let mut a = Attributes::default();
        kill_sender(&kill.sender, &mut a);
        events.push((kill.at, "SIGKILL", a));
    }
    events.sort_by_key(|(when, ..)| *when);
    events
        .into_iter()
        .map(|(when, name, a)| Event::new(name, at.wall(when), a.into(), 0))
        .collect()
}

fn subject(t: &Termination, a: &mut Attributes) {
    match &t.subject {
        Subject::Container { id, runtime, .. } => {
            a.text(key::CONTAINER_ID, id.0.clone());
            a.maybe(key::CONTAINER_RUNTIME_NAME, runtime_name(*runtime));
        }
        Subject::Unit { name } => a.text(key::UNIT_NAME, name.clone()),
    }
    a.maybe(key::CGROUP_PATH, t.cgroup_path.clone());
}

fn main_process(t: &Termination, at: &Frame, a: &mut Attributes) {
    if let Some(main) = &t.main {
        a.count(key::PROCESS_PID, main.tgid.0.into());
        a.count(key::PROCESS_VPID, main.ns_pid.into());
        a.text(key::PROCESS_EXECUTABLE_NAME, main.comm.to_string());
        if main.start != Boot(0) {
            a.text(key::PROCESS_CREATION_TIME, at.rfc3339(main.start));
        }
    }
    status(t.exit.map(|exit| exit.status), a);
}

pub(super) fn status(status: Option<ExitStatus>, a: &mut Attributes) {
    match status {
        Some(ExitStatus::Exited(code)) => a.count(key::PROCESS_EXIT_CODE, code.into()),
        Some(ExitStatus::Signaled { signal, core_dumped }) => {
            a.text(key::STATUS_SIGNAL, signal.to_string());
            a.bool(key::STATUS_CORE_DUMPED, core_dumped);
        }
        None => {}
    }
}

fn stop_signal(stop: &Stop, a: &mut Attributes) {
    a.text(key::STOP_SIGNAL, stop.signal.to_string());
    a.text(
        key::STOP_RESULT,
        match stop.result {
            SignalResult::Delivered => "delivered",
            SignalResult::Ignored => "ignored",
            SignalResult::AlreadyPending => "already-pending",
            SignalResult::OverflowFail => "overflow-fail",
            SignalResult::LoseInfo => "lose-info",
        },
    );
    a.text(key::STOP_DISPOSITION, disposition(stop.disposition));
    a.texts(key::STOP_STATE, states(stop.state));
    if stop.repeated > 0 {
        a.count(key::STOP_REPEATED, stop.repeated.into());
    }
    let s = &stop.sender;
    a.count(key::STOP_SENDER_PID, s.tgid.0.into());
    a.text(key::STOP_SENDER_COMM, s.comm.to_string());
    a.count(key::STOP_SENDER_PARENT_PID, s.parent.0.into());
    a.text(key::STOP_SENDER_PARENT_COMM, s.parent_comm.to_string());
    a.text(key::STOP_SENDER_ROLE, role(s.role));
    a.text(key::STOP_SENDER_PLACE, place(&s.place));
    sender_pod(s, (key::STOP_SENDER_POD, key::STOP_SENDER_CONTAINER), a);
}

fn kill_sender(s: &Actor, a: &mut Attributes) {
    a.count(key::KILL_SENDER_PID, s.tgid.0.into());
    a.text(key::KILL_SENDER_COMM, s.comm.to_string());
    a.count(key::KILL_SENDER_PARENT_PID, s.parent.0.into());
    a.text(key::KILL_SENDER_PARENT_COMM, s.parent_comm.to_string());
    a.text(key::KILL_SENDER_ROLE, role(s.role));
    a.text(key::KILL_SENDER_PLACE, place(&s.place));
    sender_pod(s, (key::KILL_SENDER_POD, key::KILL_SENDER_CONTAINER), a);
}

fn sender_pod(s: &Actor, (pod, container): (&'static str, &'static str), a: &mut Attributes) {
    if let Some(of) = &s.pod {
        a.text(pod, escape(&format!("{}/{}", of.pod.namespace, of.pod.name)));
        a.data(container, &of.container);
    }
}

/// Of all of them together: no counts where one was not observed.
pub(super) fn connections<'a>(all: impl IntoIterator<Item = &'a Traffic> + Clone, a: &mut Attributes) {
    let sum = |of: fn(&Traffic) -> u64| all.clone().into_iter().map(of).sum();
    let observed = all.clone().into_iter().all(|traffic| traffic.observed);
    a.bool(key::CONNECTIONS_OBSERVED, observed);
    if !observed {
        return;
    }
    let source = all.clone().into_iter().find_map(|t| refused_source(t.refused_source));
    a.count(key::CONNECTIONS_ACCEPTED, sum(|t| t.accepted.count));
    a.count(key::CONNECTIONS_REFUSED, sum(|t| t.refused.count));
    a.maybe(key::CONNECTIONS_REFUSED_SOURCE, source);
    a.count(key::CONNECTIONS_RESET, sum(|t| t.reset.count));
    a.count(key::CONNECTIONS_RESET_QUEUED, sum(|t| t.reset_queued));
    a.count(key::CONNECTIONS_CUT, sum(|t| t.cut.count));
    a.count(key::CONNECTIONS_CUT_UNANSWERED, sum(|t| t.cut_unanswered));
    a.count(key::CONNECTIONS_IDLE_CLOSED, sum(|t| t.idle_closed.count));
    a.count(key::CONNECTIONS_REJECTED, sum(|t| t.rejected.count));
    let known = all.clone().into_iter().all(|traffic| traffic.kubelet.known);
    a.bool(key::KUBELET_KNOWN, known);
    if known {
        a.count(key::KUBELET_ACCEPTED, sum(|t| t.kubelet.accepted.count));
        a.count(key::KUBELET_REFUSED, sum(|t| t.kubelet.refused.count));
        a.count(key::KUBELET_BROKEN, sum(|t| t.kubelet.broken.count));
    }
}

/// From when on it was counted, and until when clients still came.
fn newcomers(traffic: &Traffic, at: &Frame, a: &mut Attributes) {
    if !traffic.observed {
        return;
    }
    if traffic.since != Boot(0) {
        a.text(key::CONNECTIONS_SINCE, at.rfc3339(traffic.since));
    }
    if traffic.accepted.count > 0 {
        a.text(key::ACCEPTED_FIRST_AT, at.rfc3339(traffic.accepted.first));
        a.text(key::ACCEPTED_LAST_AT, at.rfc3339(traffic.accepted.last));
    }
}

pub(super) fn verdict(v: &Verdict, begin: Boot, a: &mut Attributes) {
    a.text(key::VERDICT, v.headline);
    a.text(key::CAUSE, table::name(v.cause));
    a.text(key::EXIT, table::name(v.exit));
    a.text(key::TRAFFIC, table::name(v.traffic));
    a.bool(key::UNCLEAN, v.unclean);
    a.text(key::SEVERITY, table::name(v.severity));
    a.text(key::SENTENCE, escape(&v.sentence));
    a.maybe(key::REMEDY, v.remedy.as_deref().map(escape));
    a.texts(key::ADVICE, v.advice.iter().map(advice));
    let evidence = v.evidence.iter();
    a.texts(
        key::EVIDENCE,
        evidence.map(|e| format!("{} {}: {}", after(e.at, begin), e.source.name(), escape(&e.text))),
    );
}

fn advice(advice: &Advice) -> String {
    let seconds = advice.seconds.map(|seconds| format!(" {seconds} s")).unwrap_or_default();
    format!("{}{seconds}: {}", advice.kind.name(), escape(&advice.text))
}

fn gaps(gaps: &Gaps, a: &mut Attributes) {
    a.texts(key::LOST, gaps.lost.iter().map(|(kind, count)| format!("{kind}={count}")));
    if gaps.over_cap > 0 {
        a.count(key::OVER_CAP, gaps.over_cap);
    }
    a.bool(key::LATE_START, gaps.late_start);
    a.texts(key::INACTIVE_PROBES, gaps.inactive_probes.iter().cloned());
}
