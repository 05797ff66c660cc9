//! The termination of one subject: its span and child spans.

use epitaph_core::attribute::Subject;
use epitaph_core::container::ContainerFact;
use epitaph_core::event::{ExitStatus, SignalResult};
use epitaph_core::report::Termination;
use epitaph_core::termination::{Actor, Gaps, Role, Stop};
use epitaph_core::text::escape;
use epitaph_core::time::Boot;
use epitaph_core::verdict::{Advice, Evidence, Verdict, table};
use opentelemetry::trace::{Event, SpanId};
use opentelemetry_sdk::trace::SpanData;

use super::attributes::{Attributes, after, data, place, raised_again, runtime_name};
use super::{CONTAINER_STOP, Frame, UNIT_STOP, evidence, forward, node, pod, traffic};
use crate::render::attributes::key;

/// The parent first.
pub(super) fn spans(t: &Termination, at: &Frame, parent: SpanId) -> Vec<SpanData> {
    let stop = stop_span(t, at, parent);
    let parent = stop.span_context.span_id();
    let mut spans = vec![stop];
    if let Some(context) = &t.kubernetes {
        spans.extend(pod::pre_stop_span(context, t, at, parent));
    }
    spans.extend(t.stop.as_ref().map(|stop| signal_span(stop, t, at, parent)));
    spans.extend(forward::spans(t, at, parent));
    spans.extend(traffic::connection_spans(&t.traffic, at, parent));
    // The kernel closes the sockets after the exit was recorded; `SIGTERM → exit` keeps the exact time.
    super::enclose(&mut spans);
    // A listener that was closed earlier is not related to the stop: an event is enough.
    let begin = spans[0].start_time;
    let listeners = traffic::listener_spans(t, at, parent).into_iter();
    spans.extend(listeners.filter(|span| span.start_time >= begin));
    spans
}

fn stop_span(t: &Termination, at: &Frame, parent: SpanId) -> SpanData {
    let kind = match t.subject {
        Subject::Container { .. } => CONTAINER_STOP,
        Subject::Unit { .. } => UNIT_STOP,
    };
    let mut a = Attributes::default();
    verdict(&t.verdict, &mut a);
    a.texts(key::EVIDENCE, evidence::not_shown(t, at).map(|line| proof(line, t.begin)));
    subject(t, &mut a);
    if let Some(context) = &t.kubernetes {
        pod::container(context, t, at, &mut a);
    }
    if let Some(container) = &t.container {
        described(container, t, &mut a);
    }
    let by_api = t.kubernetes.as_ref().and_then(|context| Some(context.stop_signal?.signal));
    let by_runtime = || t.container.as_ref().and_then(|container| container.stop_signal);
    a.maybe(
        key::CONTAINER_STOP_SIGNAL,
        by_api.or_else(by_runtime).map(|signal| signal.to_string()),
    );
    main_process(t, at, &mut a);
    if let Some(stop) = &t.stop {
        stop_signal(stop, &mut a);
    }
    if let Some(kill) = &t.kill {
        sender(&kill.sender, KILL_SENDER, &mut a);
        a.flag(key::KILL_BY_CGROUP, kill.cgroup_kill);
    }
    a.some(key::OOM_KILLED, t.oom.len() as u64);
    a.some(key::OTHER_EXITS, t.other_exits);
    traffic::counts([&t.traffic], &mut a);
    traffic::peers(&t.traffic, &mut a);
    traffic::times(t, at, &mut a);
    gaps(&t.gaps, &mut a);

    let mut span = at.judged(kind, parent, (t.begin, t.end), &t.verdict, a);
    span.events.events = events(t, at);
    // The root of a pod has it for all.
    if let Some(by) = t.shutdown.as_ref().filter(|_| at.pod.is_none()) {
        span.links.links = vec![node::link_to(by)];
    }
    span
}

/// From the stop signal to the exit of the main process. The signal's attributes are on the parent.
fn signal_span(stop: &Stop, t: &Termination, at: &Frame, parent: SpanId) -> SpanData {
    let end = t.exit.map_or(t.end, |exit| exit.at);
    at.span(format!("{} → exit", stop.signal), parent, stop.at, end, Attributes::default())
}

/// In order of time; events of the same time in causal order.
fn events(t: &Termination, at: &Frame) -> Vec<Event> {
    let mut events: Vec<(Boot, &'static str, Attributes)> = Vec::new();
    if let Some(stop) = &t.stop {
        if stop.result == SignalResult::Ignored {
            events.push((stop.at, "stop-signal-ignored", Attributes::default()));
        }
        if let Some(entered) = stop.handler_entered {
            events.push((entered, "handler.entered", Attributes::default()));
        }
        if let Some(raised) = stop.raised_again {
            events.push((raised.at, raised_again(raised), Attributes::default()));
        }
    }
    for listener in &t.traffic.listeners {
        let mut a = Attributes::default();
        a.text(key::SERVER_ADDRESS, listener.local.ip().to_string());
        a.count(key::SERVER_PORT, listener.local.port().into());
        a.text(key::NETWORK_TRANSPORT, "tcp");
        a.flag(key::LISTENER_BY_EXIT, listener.by_exit);
        events.push((listener.at, "listener.closed", a));
    }
    for oom in &t.oom {
        let mut a = Attributes::default();
        a.count(key::PROCESS_PID, oom.tgid.0.into());
        a.text(key::PROCESS_EXECUTABLE_NAME, oom.comm.to_string());
        a.flag(key::OOM_MAIN, oom.is_main());
        a.text(key::OOM_ROLE, oom.role.name());
        events.push((oom.at, "oom", a));
    }
    if let Some(kill) = &t.kill {
        events.push((kill.at, "SIGKILL", Attributes::default()));
    }
    for gap in &t.gaps.unobserved {
        let mut a = Attributes::default();
        a.seconds(key::UNOBSERVED_DURATION, gap.length());
        events.push((gap.since, "unobserved", a));
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

/// The image in the pod's spec has precedence: a reader compares it with the spec.
fn described(container: &ContainerFact, t: &Termination, a: &mut Attributes) {
    if let Some(name) = &container.name {
        a.data(key::CONTAINER_NAME, name);
    }
    let in_spec = t.kubernetes.as_ref().is_some_and(|context| context.image.is_some());
    if let Some(image) = container.image.as_deref().filter(|_| !in_spec) {
        pod::image(image, a);
    }
    if let Some(program) = container.command.first() {
        a.data(key::CONTAINER_COMMAND, program);
    }
    a.texts(
        key::CONTAINER_COMMAND_ARGS,
        container.command.iter().map(|argument| data(argument)),
    );
    a.flag(key::CONTAINER_SANDBOX, container.sandbox);
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
            a.flag(key::STATUS_CORE_DUMPED, core_dumped);
        }
        None => {}
    }
}

fn stop_signal(stop: &Stop, a: &mut Attributes) {
    a.text(key::STOP_SIGNAL, stop.signal.to_string());
    a.text(key::STOP_RESULT, stop.result.name());
    a.text(key::STOP_DISPOSITION, stop.disposition.name());
    a.texts(key::STOP_STATE, stop.state.names().map(str::to_owned));
    a.some(key::STOP_REPEATED, stop.repeated.into());
    sender(&stop.sender, STOP_SENDER, a);
}

/// The keys of a sender: pid, name, role; pid and name of the parent, place; pod and container.
type SenderKeys = [&'static str; 8];

const STOP_SENDER: SenderKeys = [
    key::STOP_SENDER_PID,
    key::STOP_SENDER_COMM,
    key::STOP_SENDER_ROLE,
    key::STOP_SENDER_PARENT_PID,
    key::STOP_SENDER_PARENT_COMM,
    key::STOP_SENDER_PLACE,
    key::STOP_SENDER_POD,
    key::STOP_SENDER_CONTAINER,
];

const KILL_SENDER: SenderKeys = [
    key::KILL_SENDER_PID,
    key::KILL_SENDER_COMM,
    key::KILL_SENDER_ROLE,
    key::KILL_SENDER_PARENT_PID,
    key::KILL_SENDER_PARENT_COMM,
    key::KILL_SENDER_PLACE,
    key::KILL_SENDER_POD,
    key::KILL_SENDER_CONTAINER,
];

fn sender(s: &Actor, [pid, comm, of, parent_pid, parent_comm, at, pod, container]: SenderKeys, a: &mut Attributes) {
    a.count(pid, s.tgid.0.into());
    a.text(comm, s.comm.to_string());
    a.text(of, s.role.name());
    // The runtime is the expected sender; users have to find any other sender.
    if s.role != Role::Runtime {
        a.count(parent_pid, s.parent.0.into());
        a.text(parent_comm, s.parent_comm.to_string());
        a.text(at, place(&s.place));
    }
    if let Some(of) = &s.pod {
        a.text(pod, escape(&format!("{}/{}", of.pod.namespace, of.pod.name)));
        a.data(container, &of.container);
    }
}

/// The attributes that a reader needs first.
pub(super) fn verdict(v: &Verdict, a: &mut Attributes) {
    a.text(key::SENTENCE, escape(&v.sentence));
    a.maybe(key::REMEDY, v.remedy.as_deref().map(escape));
    a.text(key::VERDICT, v.headline);
    a.text(key::CAUSE, table::name(v.cause));
    a.text(key::EXIT, table::name(v.exit));
    a.text(key::TRAFFIC, table::name(v.traffic));
    a.flag(key::UNCLEAN, v.unclean);
    a.text(key::SEVERITY, table::name(v.severity));
    a.texts(key::ADVICE, v.advice.iter().map(advice));
}

fn proof(line: &Evidence, begin: Boot) -> String {
    format!("{} {}: {}", after(line.at, begin), line.source.name(), escape(&line.text))
}

fn advice(advice: &Advice) -> String {
    let seconds = advice.seconds.map(|seconds| format!(" {seconds} s")).unwrap_or_default();
    format!("{}{seconds}: {}", advice.kind.name(), escape(&advice.text))
}

fn gaps(gaps: &Gaps, a: &mut Attributes) {
    a.texts(key::LOST, gaps.lost.iter().map(|(kind, count)| format!("{kind}={count}")));
    a.some(key::OVER_CAP, gaps.over_cap);
    a.flag(key::LATE_START, gaps.late_start);
    if let Some(step) = gaps.clock_step {
        a.nanos(key::CLOCK_STEP, step);
    }
    a.texts(key::INACTIVE_PROBES, gaps.inactive_probes.iter().cloned());
}
