//! The Kubernetes part: the span of the pod, the span of the preStop hook, and attributes of the container.

use epitaph_core::event::ExitStatus;
use epitaph_core::kubernetes::{Asker, PodContext, PreStopRun, Reported, Request, StopReason};
use epitaph_core::pod::{ContainerKind, PreStop};
use epitaph_core::report::{PodTermination, Termination};
use epitaph_core::termination::Role;
use epitaph_core::time::Boot;
use epitaph_core::verdict::{Disagreement, Verdict, table};
use opentelemetry::trace::{Event, SpanId, Status};
use opentelemetry_sdk::trace::SpanData;

use super::attributes::{Attributes, data};
use super::{Frame, POD_TERMINATION, node, stop, traffic};
use crate::render::attributes::key;

/// `pod.termination`, without children. The evidence is on the containers' spans.
pub(super) fn span(p: &PodTermination, at: &Frame) -> SpanData {
    let mut a = Attributes::default();
    stop::verdict(&p.verdict, &mut a);
    a.flag(key::POD_STATIC, p.pod.is_static);
    stop_reason(p.stop_reason.as_ref(), &p.verdict, &mut a);
    request(p.request.as_ref(), at, &mut a);
    a.some(key::CONTAINERS, p.containers.len() as u64);
    a.some(key::CONTAINERS_UNSEEN, p.unseen.len() as u64);
    if !p.containers.is_empty() {
        traffic::counts(p.containers.iter().map(|t| &t.traffic), &mut a);
    }
    if let Some((gone, watched)) = p.gone {
        a.text(key::GONE_AT, at.rfc3339(gone));
        a.flag(key::GONE_WATCHED, watched);
    }
    let mut why: Vec<String> = Vec::new();
    for reason in p
        .containers
        .iter()
        .filter_map(|t| t.kubernetes.as_ref()?.incomplete.as_deref())
    {
        let reason = data(reason);
        if !why.contains(&reason) {
            why.push(reason);
        }
    }
    a.texts(key::INCOMPLETE, why);

    let mut span = at.judged(POD_TERMINATION, SpanId::INVALID, (p.begin, p.end), &p.verdict, a);
    span.events.events = events(p, at);
    if let Some(by) = &p.shutdown {
        span.links.links = vec![node::link_to(by)];
    }
    span
}

fn events(p: &PodTermination, at: &Frame) -> Vec<Event> {
    let shortened = p.request.iter().flat_map(|request| &request.shortened);
    let mut events: Vec<(Boot, &'static str, Attributes)> = shortened
        .map(|(seen, grace)| {
            let mut a = Attributes::default();
            a.seconds(key::GRACE, *grace);
            (*seen, "grace.shortened", a)
        })
        .collect();
    // The time is unknown: these events come after all others.
    events.extend(p.unseen.iter().map(|(name, end)| {
        let mut a = Attributes::default();
        a.data(key::K8S_CONTAINER_NAME, name);
        reported(end.as_ref(), &mut a);
        (p.end, "container.unseen", a)
    }));
    events.sort_by_key(|(when, ..)| *when);
    events
        .into_iter()
        .map(|(when, name, a)| Event::new(name, at.wall(when), a.into(), 0))
        .collect()
}

/// What the API reports of a container, and requested of it.
pub(super) fn container(context: &PodContext, t: &Termination, at: &Frame, a: &mut Attributes) {
    if let Some(name) = &context.container {
        a.data(key::K8S_CONTAINER_NAME, name);
    }
    a.some(key::K8S_CONTAINER_RESTART_COUNT, context.restarts.into());
    a.maybe(key::CONTAINER_KIND, context.kind.map(kind_name));
    image(context.image.as_deref().unwrap_or_default(), a);
    // The root's attributes are not repeated.
    if at.pod.is_none_or(|pod| pod.stop_reason != context.stop_reason) {
        stop_reason(context.stop_reason.as_ref(), &t.verdict, a);
    }
    if at.pod.is_none() {
        request(context.request.as_ref(), at, a);
    }
    grace(context, t, a);
    // A hook without a known begin has no span.
    if let Some(run) = context.pre_stop.as_ref().filter(|run| run.begin.is_none()) {
        a.text(key::PRESTOP_HOOK, hook_name(&run.hook));
    }
    a.maybe(key::MAINS_ENDED_AT, context.mains_ended().map(|ended| at.rfc3339(ended)));
    a.flag(key::SHARES_PID_NAMESPACE, context.shares_pid_namespace);
    if let Some(reported) = &context.reported {
        // Less reliable than the kernel's record, and of interest only if different.
        let is_same = t.exit.is_some_and(|exit| exit.status.reported_code() == reported.exit_code);
        if !is_same {
            a.signed(key::REPORTED_EXIT_CODE, reported.exit_code.into());
        }
        reason(reported, a);
    }
    a.maybe(
        key::REPORTED_DISAGREES,
        t.verdict.disagreement.as_ref().map(Disagreement::clause),
    );
    a.texts(key::INCOMPLETE, context.incomplete.as_deref().map(data));
}

fn grace(context: &PodContext, t: &Termination, a: &mut Attributes) {
    let Some(grace) = context.grace else { return };
    a.seconds(key::GRACE, grace);
    let stop = t.stop.as_ref().filter(|stop| stop.sender.role == Role::Runtime);
    let end = context.grace_end(stop.map(|stop| stop.at));
    if let (Some(end), Some(exit)) = (end, t.exit) {
        a.seconds(key::GRACE_LEFT, end.since(exit.at));
    }
}

/// None if the begin of the hook is unknown.
pub(super) fn pre_stop_span(context: &PodContext, t: &Termination, at: &Frame, parent: SpanId) -> Option<SpanData> {
    let run = context.pre_stop.as_ref()?;
    let begin = run.begin?;
    // A stop signal of another sender may have come before the hook.
    let stop = t.stop.as_ref().filter(|stop| stop.sender.role == Role::Runtime);
    let end = run.end.or(stop.map(|stop| stop.at)).unwrap_or(t.end);
    let mut a = Attributes::default();
    hook(run, &mut a);
    let mut span = at.span("preStop", parent, begin, end, a);
    if let Some(why) = failure(run) {
        span.status = Status::error(why);
    }
    Some(span)
}

fn hook(run: &PreStopRun, a: &mut Attributes) {
    a.text(key::PRESTOP_HOOK, hook_name(&run.hook));
    match &run.hook {
        PreStop::Exec { program } => a.data(key::PRESTOP_PROGRAM, program),
        PreStop::HttpGet { port } | PreStop::TcpSocket { port } => {
            if let Some(port) = port {
                a.count(key::PRESTOP_PORT, (*port).into());
            }
        }
        PreStop::Sleep { seconds } => a.count(key::PRESTOP_SLEEP, *seconds),
    }
    a.flag(key::PRESTOP_SEEN, run.seen);
    stop::status(run.status, a);
    if let Some(failed) = &run.failed {
        a.data(key::PRESTOP_FAILED, failed);
    }
}

fn failure(run: &PreStopRun) -> Option<String> {
    match run.status {
        Some(ExitStatus::Exited(0)) | None => run.failed.as_deref().map(data),
        Some(ExitStatus::Exited(code)) => Some(format!("the hook exited with code {code}")),
        Some(ExitStatus::Signaled { signal, .. }) => Some(format!("{signal} ended the hook")),
    }
}

fn stop_reason(stop_reason: Option<&StopReason>, verdict: &Verdict, a: &mut Attributes) {
    if let Some(stop_reason) = stop_reason {
        if stop_reason.cause != verdict.cause {
            a.text(key::ASKED_CAUSE, table::name(stop_reason.cause));
        }
        a.data(key::ASKED_EVIDENCE, &stop_reason.evidence);
    }
}

fn request(request: Option<&Request>, at: &Frame, a: &mut Attributes) {
    let Some(request) = request else { return };
    a.text(key::REQUEST_EARLIEST, at.rfc3339(request.earliest));
    a.text(key::REQUEST_LATEST, at.rfc3339(request.latest));
    a.seconds(key::REQUEST_GRACE, request.grace);
    if let Some(own) = request.overridden() {
        a.seconds(key::REQUEST_SPEC_GRACE, own);
    }
    a.maybe(key::REQUEST_ASKER, request.asker.map(Asker::name));
    if let Some((least, most)) = request.skew {
        a.api_clock(least, most);
    }
}

fn reported(reported: Option<&Reported>, a: &mut Attributes) {
    if let Some(reported) = reported {
        a.signed(key::REPORTED_EXIT_CODE, reported.exit_code.into());
        reason(reported, a);
    }
}

fn reason(reported: &Reported, a: &mut Attributes) {
    if let Some(reason) = &reported.reason {
        a.data(key::K8S_CONTAINER_STATUS_REASON, reason);
    }
}

/// `registry:5000/shop/app:1.2@sha256:…`: the tag's colon comes after the last slash.
pub(super) fn image(image: &str, a: &mut Attributes) {
    let (tagged, digest) = match image.split_once('@') {
        Some((tagged, digest)) => (tagged, Some(digest)),
        None => (image, None),
    };
    let (name, tag) = match tagged.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (tagged, None),
    };
    if name.is_empty() {
        return;
    }
    a.data(key::CONTAINER_IMAGE_NAME, name);
    a.texts(key::CONTAINER_IMAGE_TAGS, tag.map(data));
    a.texts(
        key::CONTAINER_IMAGE_REPO_DIGESTS,
        digest.map(|digest| data(&format!("{name}@{digest}"))),
    );
}

fn kind_name(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Init => "init",
        ContainerKind::Sidecar => "sidecar",
        ContainerKind::Main => "main",
        ContainerKind::Ephemeral => "ephemeral",
    }
}

fn hook_name(hook: &PreStop) -> &'static str {
    match hook {
        PreStop::Exec { .. } => "exec",
        PreStop::HttpGet { .. } => "httpGet",
        PreStop::TcpSocket { .. } => "tcpSocket",
        PreStop::Sleep { .. } => "sleep",
    }
}
