//! The spans about lost nodes: a trace for each loss of a node, and in the trace of each of its pods the observer's own root, with what
//! held the pod, its volumes, and a run at the same time as its replacement.

use epitaph_core::observe::loss_verdict::LossVerdict;
use epitaph_core::observe::{
    DuplicateRun, Holder, LossKey, NodeIdentity, NodeLost, NodePhase, PhaseKind, PodLost, ReadyService, ShuttingDown, Stuck,
    VolumeDetach,
};
use epitaph_core::pod::ApiClock;
use epitaph_core::render::id;
use epitaph_core::text::escape;
use epitaph_core::time::WallOffset;
use epitaph_core::verdict::table;
use opentelemetry::trace::{Link, SpanId, Status};
use opentelemetry_sdk::trace::SpanData;

use super::attributes::Attributes;
use super::observer::{below, clock, events, frame};
use super::{Frame, Options, Trace, resource};
use crate::render::attributes::key;

const NODE_LOST: &str = "node.lost";
const POD_LOST: &str = "pod.lost";

/// `node.lost`: the root of a loss.
pub fn node_lost(lost: &NodeLost, (offset, api): (WallOffset, Option<ApiClock>), options: &Options) -> Trace {
    let at = of_node(&lost.key, offset);
    let mut a = Attributes::default();
    verdict(&lost.verdict, &mut a);
    node(&lost.key, &mut a);
    a.data(key::NODE_REASON, &lost.reason);
    a.data(key::NODE_MESSAGE, &lost.message);
    a.maybe(key::NODE_RENEWED_AT, lost.renewed.map(|renewed| renewed.rfc3339()));
    a.text(key::NODE_AGENT, lost.agent.name());
    a.flag(key::NODE_POWERED_OFF, lost.powered_off);
    a.some(key::NODE_PODS_STUCK, lost.pods.stuck as u64);
    a.some(key::NODE_PODS_GONE, lost.pods.gone as u64);
    a.flag(key::NODE_PODS_PARTIAL, lost.pods.has_dropped);
    a.text(key::NODE_ENDED_BY, lost.ended_by.name());
    if let Some(unwatched) = lost.unwatched {
        a.seconds(key::NODE_UNWATCHED, unwatched);
    }
    clock(api, &mut a);
    let within = (lost.begin, lost.end);
    let mut span = below(&at, NODE_LOST, SpanId::INVALID, within, a);
    judged(&mut span, NODE_LOST, &lost.verdict);
    span.events.events = events(
        &at,
        lost.steps.iter().map(|(step, moment)| (step.name(), Some(*moment))),
        within,
    );
    span.links.links = lost
        .pods
        .links
        .iter()
        .map(|pod| link(&frame(pod, offset), id::pod_lost))
        .collect();
    alone(&lost.key.node, span, options)
}

/// `node.not_ready`, `node.out_of_service`, `node.down`.
pub fn node_phase(phase: &NodePhase, (offset, api): (WallOffset, Option<ApiClock>), options: &Options) -> Trace {
    let at = of_node(&phase.key, offset);
    let mut a = Attributes::default();
    if let Some(unwatched) = phase.unwatched {
        a.seconds(key::NODE_UNWATCHED, unwatched);
    }
    if let Some(boot) = &phase.boot {
        a.data(key::NODE_BOOT_ID, &phase.key.node.boot_id);
        a.data(key::NODE_NEXT_BOOT_ID, &boot.boot_id);
        a.text(key::NODE_RETURN, boot.how.name());
    }
    clock(api, &mut a);
    let name = phase.kind.name();
    let mut span = below(&at, name, id::node_lost(at.trace), (phase.begin, phase.end), a);
    if phase.kind == PhaseKind::OutOfService {
        // The taint may be set, removed and set again.
        span.span_context = at.context(id::span_id(at.trace, name, offset.wall(phase.begin.at).0));
    }
    alone(&phase.key.node, span, options)
}

/// `node.not_ready` in the trace of a shutdown, below a root that the node's agent exports.
pub fn shutting_down(down: &ShuttingDown, (offset, api): (WallOffset, Option<ApiClock>), options: &Options) -> Trace {
    let at = Frame {
        trace: id::node_trace_id(&down.key),
        offset,
        container: None,
        pod: None,
    };
    let mut a = Attributes::default();
    a.text(key::NODE_TRANSITION, down.transition.rfc3339());
    a.data(key::NODE_REASON, &down.reason);
    a.data(key::NODE_MESSAGE, &down.message);
    clock(api, &mut a);
    let (name, root) = (PhaseKind::NotReady.name(), id::node_root(at.trace));
    let mut spans = vec![below(&at, name, root, (down.begin, down.end), a)];
    spans.extend(down.services.iter().take(SERVICES).map(|of| still_ready(of, down, &at)));
    Trace {
        resource: resource::of_far_node(&down.node, options),
        spans,
    }
}

/// Services with a span of their own in a shutdown's trace.
const SERVICES: usize = 32;
/// Pods that the span of a Service names.
const SERVICE_PODS: usize = 32;

/// `endpoints.ready`: from the announcement in the API until the last endpoint of the Service on the node was not ready any more.
fn still_ready(of: &ReadyService, down: &ShuttingDown, at: &Frame) -> SpanData {
    let end = of.until.filter(|_| of.still_ready == 0).unwrap_or(down.end);
    let mut a = Attributes::default();
    a.data(key::K8S_SERVICE_NAME, &of.service);
    a.data(key::ENDPOINTS_NAMESPACE, &of.namespace);
    a.count(key::ENDPOINTS_READY, of.pods.len() as u64);
    a.texts(
        key::ENDPOINTS_PODS,
        of.pods.iter().take(SERVICE_PODS).map(|pod| escape(&pod.0)),
    );
    a.some(key::ENDPOINTS_STILL_READY, of.still_ready);
    a.flag(key::ENDPOINTS_AT_LEAST, down.has_dropped || down.unwatched.is_some());
    if let Some(unwatched) = down.unwatched {
        a.seconds(key::NODE_UNWATCHED, unwatched);
    }
    let name = "endpoints.ready";
    let mut span = below(at, name, id::node_root(at.trace), (down.begin, end), a);
    let key = format!("{}/{}", of.namespace, of.service);
    span.span_context = at.context(id::service_span_id(at.trace, name, &key));
    span
}

/// `pod.lost` and its `stuck`.
pub fn pod_lost(lost: &PodLost, (offset, api): (WallOffset, Option<ApiClock>), options: &Options) -> Trace {
    let at = frame(&lost.pod, offset);
    let mut a = Attributes::default();
    verdict(&lost.verdict, &mut a);
    a.flag(key::EVICTED_BY_TAINT, lost.by_taint);
    a.flag(key::POD_STILL_TERMINATING, !lost.is_gone);
    if let Some(unwatched) = lost.unwatched {
        a.seconds(key::NODE_UNWATCHED, unwatched);
    }
    clock(api, &mut a);
    let within = (lost.begin, lost.end);
    let mut root = below(&at, POD_LOST, SpanId::INVALID, within, a);
    judged(&mut root, POD_LOST, &lost.verdict);
    root.events.events = events(
        &at,
        [
            ("deletion.requested", lost.requested),
            ("pod.gone", lost.is_gone.then_some(lost.end)),
        ],
        within,
    );
    root.links.links = vec![link(&of_node(&lost.loss, offset), id::node_lost)];
    let mut spans = vec![root];
    spans.extend(lost.stuck.iter().enumerate().map(|(n, held)| stuck(held, n, &at)));
    Trace {
        resource: resource::of_far_pod(&lost.pod, options),
        spans,
    }
}

/// `volume.detach`: one per volume of a lost pod.
pub fn volume_detach(detach: &VolumeDetach, (offset, api): (WallOffset, Option<ApiClock>), options: &Options) -> Trace {
    let at = frame(&detach.pod, offset);
    let mut a = Attributes::default();
    if let Some(of) = &detach.verdict {
        verdict(of, &mut a);
    }
    a.data(key::VOLUME_NAME, &detach.volume);
    a.data(key::VOLUME_CLAIM, &detach.claim.name);
    a.data(key::VOLUME_ATTACHMENT, &detach.attachment);
    a.data(key::VOLUME_ATTACHER, &detach.attacher);
    if let Some(error) = &detach.error {
        a.data(key::VOLUME_ERROR, error);
    }
    clock(api, &mut a);
    let within = (detach.begin, detach.end);
    let mut span = below(&at, "volume.detach", id::pod_lost(at.trace), within, a);
    // Of two volumes of a pod, the attachment's name is the difference.
    span.span_context = at.context(id::service_span_id(at.trace, "volume.detach", &detach.attachment));
    span.events.events = events(
        &at,
        [("detach.requested", detach.requested), ("volume.detached", Some(detach.end))],
        within,
    );
    if let Some(of) = &detach.verdict {
        span.status = Status::error(escape(&of.sentence));
    }
    Trace {
        resource: resource::of_far_pod(&detach.pod, options),
        spans: vec![span],
    }
}

/// `duplicate.run`: the pod and its replacement existed at the same time.
pub fn duplicate_run(run: &DuplicateRun, (offset, api): (WallOffset, Option<ApiClock>), options: &Options) -> Trace {
    let at = frame(&run.pod, offset);
    let mut a = Attributes::default();
    verdict(&run.verdict, &mut a);
    a.text(key::REPLACEMENT_POD_NAME, run.by.name.clone());
    a.text(key::REPLACEMENT_POD_UID, run.by.uid.0.to_string());
    a.text(key::REPLACEMENT_NODE_NAME, run.by.node.clone());
    clock(api, &mut a);
    let mut span = below(&at, "duplicate.run", id::pod_lost(at.trace), (run.begin, run.end), a);
    span.status = Status::error(escape(&run.verdict.sentence));
    span.links.links = vec![link(&of_node(&run.loss, offset), id::node_lost)];
    Trace {
        resource: resource::of_far_pod(&run.pod, options),
        spans: vec![span],
    }
}

fn stuck(held: &Stuck, n: usize, at: &Frame) -> SpanData {
    let mut a = Attributes::default();
    a.text(key::STUCK_BY, held.by.name());
    let names = match held.by {
        Holder::Volume => key::STUCK_CLAIMS,
        _ => key::STUCK_FINALIZERS,
    };
    a.texts(names, held.names.iter().map(|name| super::attributes::data(name)));
    let mut span = below(at, "stuck", id::pod_lost(at.trace), (held.begin, held.end), a);
    span.span_context = at.context(id::span_id(at.trace, "stuck", n as u64));
    span
}

fn verdict(verdict: &LossVerdict, a: &mut Attributes) {
    a.text(key::VERDICT, verdict.row.headline);
    a.flag(key::UNCLEAN, verdict.row.unclean);
    a.text(key::SEVERITY, table::name(verdict.row.severity));
    a.text(key::SENTENCE, escape(&verdict.sentence));
    a.text(key::REMEDY, escape(&verdict.remedy));
}

/// The name carries the verdict, as those of all roots do.
fn judged(span: &mut SpanData, kind: &str, verdict: &LossVerdict) {
    span.name = format!("{kind} {}", verdict.row.headline).into();
    if verdict.row.unclean {
        span.status = Status::error(escape(&verdict.sentence));
    }
}

fn node(loss: &LossKey, a: &mut Attributes) {
    let node = &loss.node;
    a.text(key::NODE_TRANSITION, loss.transition.rfc3339());
    a.data(key::NODE_BOOT_ID, &node.boot_id);
    a.data(key::NODE_KUBELET_VERSION, &node.kubelet_version);
    if !node.provider.is_empty() {
        a.data(key::NODE_PROVIDER_ID, &node.provider);
    }
}

fn of_node(loss: &LossKey, offset: WallOffset) -> Frame<'static> {
    Frame {
        trace: id::node_loss_trace_id(&loss.node.uid, loss.transition),
        offset,
        container: None,
        pod: None,
    }
}

fn link(to: &Frame, root: fn(opentelemetry::trace::TraceId) -> SpanId) -> Link {
    Link::new(to.context(root(to.trace)), Vec::new(), 0)
}

fn alone(node: &NodeIdentity, span: SpanData, options: &Options) -> Trace {
    Trace {
        resource: resource::of_far_node(node, options),
        spans: vec![span],
    }
}
