//! A shutdown of the node: its root, logind's delay, the locks, the kubelet's phases with links to the pods that each ended, and the stop of
//! the services. The time in which the node was down is a later child.

use epitaph_core::node::InhibitMode;
use epitaph_core::render::id;
use epitaph_core::render::json::{ending, own_lock};
use epitaph_core::report::NodeShutdown;
use epitaph_core::shutdown::{EndedByShutdown, Lock, NodeDown, Phase, PodInShutdown, ShutdownKey};
use epitaph_core::text::escape;
use epitaph_core::time::Boot;
use epitaph_core::verdict::table;
use opentelemetry::trace::{Event, Link, SpanContext, SpanId, Status, TraceFlags, TraceState};
use opentelemetry_sdk::trace::{SpanData, SpanLinks};

use super::attributes::{Attributes, data};
use super::{Frame, Options, Trace, enclose, resource};
use crate::render::attributes::key;

/// The kind of the root: its name ends with the verdict.
const NODE_SHUTDOWN: &str = "node.shutdown";

/// All spans of a shutdown of the node.
pub fn node_trace(s: &NodeShutdown, options: &Options) -> Trace {
    let at = frame(&s.key, s.clock);
    let root = root(s, &at, options);
    let parent = root.span_context.span_id();
    let mut spans = vec![root];
    if let Some(delay) = s.logind.delay {
        let mut a = Attributes::default();
        a.flag(key::DELAY_EXPIRED, delay.expired);
        if let Some(limit) = delay.limit {
            a.seconds(key::DELAY_LIMIT, limit);
        }
        at_least(is_cut_short(s), &mut a);
        let end = delay.end.unwrap_or(s.end).max(delay.begin);
        let mut span = at.span("logind.delay", parent, delay.begin, end, a);
        if delay.expired {
            span.status = Status::error("the delay expired while a lock was held");
        }
        spans.push(span);
    }
    spans.extend(
        s.logind
            .locks
            .iter()
            .enumerate()
            .map(|(number, lock)| inhibitor(number, lock, s, &at, parent)),
    );
    spans.extend(
        s.phases
            .iter()
            .enumerate()
            .map(|(number, of)| phase((number, of), s, &at, parent, options)),
    );
    if let Some(begin) = s.signs.services() {
        let mut a = Attributes::default();
        at_least(s.services_outlast_evidence(), &mut a);
        spans.push(at.span("services.stop", parent, begin, s.end.max(begin), a));
    }
    enclose(&mut spans);
    Trace {
        resource: resource::of_node(&s.host, &s.key.boot_id, options),
        spans,
    }
}

/// `down`: from the last evidence to the next boot, below the root of a trace that may have been exported long before.
pub fn node_down(d: &NodeDown, options: &Options) -> Trace {
    let at = frame(&d.key, d.clock);
    let mut a = Attributes::default();
    a.text(key::DOWN_NEXT_BOOT, d.next_boot_id.clone());
    a.flag(key::DOWN_SOFT, d.is_soft);
    a.flag(key::DOWN_AT_MOST, d.at_most);
    Trace {
        resource: resource::of_node(&d.host, &d.key.boot_id, options),
        spans: vec![at.span("down", id::node_root(at.trace), d.begin, d.end, a)],
    }
}

/// From a termination to the shutdown that stopped it.
pub(super) fn link_to(by: &EndedByShutdown) -> Link {
    let trace = id::node_trace_id(&by.key);
    link(SpanContext::new(
        trace,
        id::node_root(trace),
        TraceFlags::SAMPLED,
        false,
        TraceState::NONE,
    ))
}

fn frame(key: &ShutdownKey, offset: epitaph_core::time::WallOffset) -> Frame<'static> {
    Frame {
        trace: id::node_trace_id(key),
        offset,
        container: None,
        pod: None,
    }
}

fn root(s: &NodeShutdown, at: &Frame, options: &Options) -> SpanData {
    let v = &s.verdict;
    let mut a = Attributes::default();
    a.text(key::VERDICT, v.headline);
    a.flag(key::UNCLEAN, v.unclean);
    a.text(key::SEVERITY, table::name(v.severity));
    a.text(key::SENTENCE, escape(&v.sentence));
    a.maybe(key::REMEDY, v.remedy.as_deref().map(escape));
    a.count(key::SHUTDOWN_ORDINAL, s.key.ordinal.into());
    a.maybe(key::SHUTDOWN_KIND, s.kind.map(|kind| kind.name()));
    a.text(key::SHUTDOWN_ANNOUNCEMENT, s.signs.announcement());
    a.text(key::SHUTDOWN_ENDING, ending(s.ending));
    a.maybe(
        key::SHUTDOWN_SCHEDULED_FOR,
        s.signs.scheduled.as_ref().map(|(plan, _)| plan.at.rfc3339()),
    );
    a.some(key::SHUTDOWN_SPOOFS, s.signs.spoofs);
    a.maybe(key::SHUTDOWN_OWN_LOCK, s.logind.own_lock.as_ref().map(own_lock));
    kubelet(s, &mut a);
    let pods = |is: fn(&&PodInShutdown) -> bool| s.others().filter(is).count() as u64;
    a.some(key::SHUTDOWN_PODS, pods(|_| true) + s.unlisted.more);
    a.some(key::SHUTDOWN_PODS_ENDED, pods(|pod| pod.ended.is_some()));
    a.some(key::SHUTDOWN_PODS_CUT, pods(|pod| pod.cut.is_some()));
    if let Some(ready) = s.pods_ready {
        a.count(key::SHUTDOWN_PODS_READY, ready);
    }
    clients(s, &mut a);
    a.texts(key::SHUTDOWN_GAPS, gaps(s));
    // Pods in no phase, or in one that did not begin.
    let elsewhere = |pod: &&PodInShutdown| pod.phase.is_none_or(|number| number >= s.phases.len());
    let links = links(s.pods.iter().filter(elsewhere), s, options, &mut a);
    let mut span = at.span(NODE_SHUTDOWN, SpanId::INVALID, s.begin, s.end.max(s.begin), a);
    span.name = format!("{NODE_SHUTDOWN} {}", v.headline).into();
    if v.unclean {
        span.status = Status::error(escape(&v.sentence));
    }
    span.events.events = events(s, at);
    span.links = links;
    span
}

fn kubelet(s: &NodeShutdown, a: &mut Attributes) {
    let of = &s.kubelet;
    a.maybe(
        key::KUBELET_LOCK,
        of.is_there.then_some(match of.held {
            Some(true) => "held",
            Some(false) => "missing",
            None => "unknown",
        }),
    );
    if let Some(Ok(config)) = &of.config {
        a.seconds(key::KUBELET_SHUTDOWN_PERIOD, config.needed());
    }
    if let Some(state) = of.state {
        a.maybe(key::KUBELET_STATE_START, state.started.map(|at| at.rfc3339()));
        a.maybe(key::KUBELET_STATE_END, state.ended.map(|at| at.rfc3339()));
    }
}

/// Workloads, and pods that were started, at most.
const LISTED: usize = 16;

fn name(pod: &PodInShutdown) -> String {
    data(&format!("{}/{}", pod.pod.namespace, pod.pod.name))
}

fn clients(s: &NodeShutdown, a: &mut Attributes) {
    a.texts(key::SHUTDOWN_PODS_STARTED, s.started().take(LISTED).map(name));
    let loss = s.loss();
    if let Some(lost) = loss.known() {
        a.count(key::SHUTDOWN_CLIENTS_LOST, lost);
    }
    a.flag(key::SHUTDOWN_CLIENTS_AT_LEAST, loss.is_least && loss.lost() > 0);
    a.some(key::SHUTDOWN_CLIENTS_UNDECIDED, loss.undecided);
    let workloads = s.loss_by_workload().into_iter().take(LISTED);
    a.texts(
        key::SHUTDOWN_CLIENTS_WORKLOADS,
        workloads.map(|(of, loss)| {
            let name = format!("{} {}/{}", of.kind, of.namespace, of.name);
            let lost = format!("{} refused, {} reset, {} cut", loss.refused, loss.reset, loss.cut);
            format!("{}: {lost}", data(&name))
        }),
    );
    if let Some((_, ready)) = s.longest_ready() {
        a.seconds(key::SHUTDOWN_STILL_READY, ready.lasted);
    }
}

fn gaps(s: &NodeShutdown) -> Vec<String> {
    let gaps = &s.gaps;
    let mut all: Vec<String> = gaps.bus.iter().map(|reason| format!("bus: {}", data(reason))).collect();
    let flags = [
        (gaps.exits, "exits"),
        (gaps.observation, "observation"),
        (gaps.pods, "pods"),
        (gaps.agent_ended, "agent-ended"),
    ];
    all.extend(flags.into_iter().filter(|(is, _)| *is).map(|(_, name)| name.to_owned()));
    all
}

fn events(s: &NodeShutdown, at: &Frame) -> Vec<Event> {
    let signs = &s.signs;
    let mut events: Vec<(Boot, &'static str, Attributes)> = Vec::new();
    let mut add = |when: Option<Boot>, name: &'static str, a: Attributes| events.extend(when.map(|when| (when, name, a)));
    add(signs.prepared, "prepare-for-shutdown", Attributes::default());
    add(signs.cancelled, "cancelled", Attributes::default());
    if let Some((when, sender)) = &signs.spoofed {
        let mut a = Attributes::default();
        if let epitaph_core::node::SignalSender::Other {
            name, pid, comm, unit, ..
        } = sender
        {
            a.data(key::SPOOF_BUS_NAME, name);
            if let Some(pid) = pid {
                a.count(key::PROCESS_PID, pid.0.into());
            }
            a.maybe(key::PROCESS_EXECUTABLE_NAME, comm.as_deref().map(data));
            a.maybe(key::UNIT_NAME, unit.as_deref().map(data));
        }
        add(Some(*when), "spoofed", a);
    }
    if let Some((when, unit)) = &signs.job {
        let mut a = Attributes::default();
        a.data(key::UNIT_NAME, unit);
        add(Some(*when), "job", a);
    }
    add(signs.stopping, "stopping", Attributes::default());
    if let Some(signal) = signs.signal {
        let mut a = Attributes::default();
        a.text(key::STOP_SIGNAL, signal.signal.to_string());
        a.count(key::PROCESS_PID, signal.pid.0.into());
        a.text(key::PROCESS_EXECUTABLE_NAME, signal.comm.to_string());
        add(Some(signal.at), "signal to PID 1", a);
    }
    add(signs.terminated, "SIGTERM to all", Attributes::default());
    add(signs.killed, "SIGKILL to all", Attributes::default());
    events.sort_by_key(|(when, ..)| *when);
    events
        .into_iter()
        .map(|(when, name, a)| Event::new(name, at.wall(when), a.into(), 0))
        .collect()
}

/// From the begin of the shutdown, or from when it was taken.
fn inhibitor(number: usize, lock: &Lock, s: &NodeShutdown, at: &Frame, parent: SpanId) -> SpanData {
    let of = &lock.lock;
    let mut a = Attributes::default();
    a.data(key::LOCK_WHO, &of.who);
    a.data(key::LOCK_WHY, &of.why);
    a.data(key::LOCK_WHAT, &of.what);
    a.text(
        key::LOCK_MODE,
        match of.mode {
            InhibitMode::Delay => "delay",
            InhibitMode::Block => "block",
            InhibitMode::BlockWeak => "block-weak",
            InhibitMode::Other => "other",
        },
    );
    a.count(key::PROCESS_PID, of.pid.0.into());
    a.count(key::LOCK_UID, of.uid.into());
    a.flag(key::LOCK_OUTLASTED, lock.outlasted);
    at_least(lock.released.is_none() && is_cut_short(s), &mut a);
    let begin = lock.taken.map_or(s.begin, |taken| taken.max(s.begin));
    // A lock ends with the delay at the latest: logind asks nobody after that.
    let over = s.logind.delay.and_then(|delay| delay.end).unwrap_or(s.end);
    let end = lock.released.unwrap_or(over).max(begin);
    let mut span = at.span("inhibitor", parent, begin, end, a);
    span.span_context = at.context(id::span_id(at.trace, "inhibitor", number as u64));
    span
}

/// The observation ended before the delay: what lasted until then went on.
fn is_cut_short(s: &NodeShutdown) -> bool {
    s.logind.delay.is_some_and(|delay| delay.end.is_none()) && s.may_outlast_evidence()
}

fn at_least(is: bool, a: &mut Attributes) {
    if is {
        a.flag(key::AT_LEAST, true);
    }
}

fn phase((number, of): (usize, &Phase), s: &NodeShutdown, at: &Frame, parent: SpanId, options: &Options) -> SpanData {
    let pods = || s.others().filter(move |pod| pod.phase == Some(number));
    let mut a = Attributes::default();
    a.signed(key::PHASE_PRIORITY, of.priority.into());
    a.seconds(key::PHASE_PERIOD, of.period);
    at_least(of.at_least, &mut a);
    a.some(key::SHUTDOWN_PODS, pods().count() as u64);
    a.some(key::SHUTDOWN_PODS_CUT, pods().filter(|pod| pod.cut.is_some()).count() as u64);
    let links = links(s.pods.iter().filter(|pod| pod.phase == Some(number)), s, options, &mut a);
    let mut span = at.span("kubelet.phase", parent, of.begin, of.end, a);
    span.span_context = at.context(id::span_id(at.trace, "kubelet.phase", number as u64));
    if of.overran {
        span.status = Status::error("pods still ran when the period of the phase was over");
    }
    span.links = links;
    span
}

/// To the traces that follow; the other pods are named.
fn links<'a>(
    pods: impl Iterator<Item = &'a PodInShutdown>,
    s: &NodeShutdown,
    options: &Options,
    a: &mut Attributes,
) -> SpanLinks {
    // The verdict on a pod comes later; that the shutdown killed the pod is unclean.
    let follows = |pod: &&PodInShutdown| s.has_trace(pod) && options.wants_unclean(pod.cut.is_some_and(|cut| cut.killed));
    let (linked, others): (Vec<_>, Vec<_>) = pods.partition(follows);
    let others = others.into_iter().filter(|pod| !pod.is_own).take(LISTED);
    a.texts(key::SHUTDOWN_PODS_UNLINKED, others.map(name));
    let mut links = SpanLinks::default();
    links.links = linked
        .into_iter()
        .map(|pod| {
            let trace = id::of_pod(&pod.pod, &s.key.boot_id);
            let root = SpanContext::new(trace, id::pod_root(trace), TraceFlags::SAMPLED, false, TraceState::NONE);
            let mut a = Attributes::default();
            a.text(key::LINK_POD, name(pod));
            a.flag(key::LINK_POD_CUT, pod.cut.is_some());
            Link::new(root, a.into(), 0)
        })
        .collect();
    links
}

fn link(context: SpanContext) -> Link {
    Link::new(context, Vec::new(), 0)
}
