//! What Kubernetes adds: the pod's own span, the hook's, and what a container's says of its pod.

use opentelemetry::trace::{Event, SpanId, Status};
use opentelemetry_sdk::trace::SpanData;

use super::attributes::{Attributes, data};
use super::{Frame, stop};
use crate::event::ExitStatus;
use crate::kubernetes::{Asked, PodContext, PreStopRun, Reported, Request};
use crate::pod::{ContainerKind, PreStop};
use crate::render::attributes::key;
use crate::render::text::escape;
use crate::report::PodTermination;
use crate::report::Termination;
use crate::termination::Role;
use crate::time::Boot;
use crate::verdict::table;

/// `pod.termination`, without children.
pub(super) fn span(p: &PodTermination, at: &Frame) -> SpanData {
    let mut a = Attributes::default();
    stop::verdict(&p.verdict, p.begin, &mut a);
    a.bool(key::POD_STATIC, p.pod.is_static);
    asked(p.asked.as_ref(), &mut a);
    request(p.request.as_ref(), at, &mut a);
    a.count(key::CONTAINERS, p.containers.len() as u64);
    if !p.unseen.is_empty() {
        a.count(key::CONTAINERS_UNSEEN, p.unseen.len() as u64);
    }
    if !p.containers.is_empty() {
        stop::connections(p.containers.iter().map(|t| &t.traffic), &mut a);
    }
    if let Some((gone, watched)) = p.gone {
        a.text(key::GONE_AT, at.rfc3339(gone));
        a.bool(key::GONE_WATCHED, watched);
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

    let mut span = at.span("pod.termination", SpanId::INVALID, p.begin, p.end, a);
    span.events.events = events(p, at);
    if p.verdict.unclean {
        span.status = Status::error(escape(&p.verdict.sentence));
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
    // Nobody saw when: the end of the rest is where a reader looks for them.
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

/// What the API says of a container, and wanted of it.
pub(super) fn container(context: &PodContext, at: &Frame, a: &mut Attributes) {
    if let Some(name) = &context.container {
        a.data(key::K8S_CONTAINER_NAME, name);
    }
    a.count(key::K8S_CONTAINER_RESTART_COUNT, context.restarts.into());
    a.maybe(key::CONTAINER_KIND, context.kind.map(kind_name));
    image(context.image.as_deref().unwrap_or_default(), a);
    asked(context.asked.as_ref(), a);
    if let Some(grace) = context.grace {
        a.seconds(key::GRACE, grace);
    }
    if let Some(run) = &context.pre_stop {
        a.text(key::PRESTOP_HOOK, hook_name(&run.hook));
    }
    a.maybe(key::MAINS_ENDED_AT, context.mains_ended.map(|ended| at.rfc3339(ended)));
    if context.shares_pid_namespace {
        a.bool(key::SHARES_PID_NAMESPACE, true);
    }
    reported(context.reported.as_ref(), a);
    a.texts(key::INCOMPLETE, context.incomplete.as_deref().map(data));
}

/// None where nobody knows when the hook began.
pub(super) fn pre_stop_span(context: &PodContext, t: &Termination, at: &Frame, parent: SpanId) -> Option<SpanData> {
    let run = context.pre_stop.as_ref()?;
    let begin = run.begin?;
    // Anybody else's stop signal may have come before the hook.
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
    a.bool(key::PRESTOP_SEEN, run.seen);
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

fn asked(asked: Option<&Asked>, a: &mut Attributes) {
    if let Some(asked) = asked {
        a.text(key::ASKED_CAUSE, table::name(asked.cause));
        a.data(key::ASKED_EVIDENCE, &asked.evidence);
    }
}

pub(super) fn request(request: Option<&Request>, at: &Frame, a: &mut Attributes) {
    let Some(request) = request else { return };
    a.text(key::REQUEST_EARLIEST, at.rfc3339(request.earliest));
    a.text(key::REQUEST_LATEST, at.rfc3339(request.latest));
    a.seconds(key::REQUEST_GRACE, request.grace);
    if let Some((least, most)) = request.skew {
        a.api_clock(least, most);
    }
}

fn reported(reported: Option<&Reported>, a: &mut Attributes) {
    if let Some(reported) = reported {
        a.signed(key::REPORTED_EXIT_CODE, reported.exit_code.into());
        if let Some(reason) = &reported.reason {
            a.data(key::K8S_CONTAINER_STATUS_REASON, reason);
        }
    }
}

/// `registry:5000/shop/app:1.2@sha256:…`: the tag's colon comes after the last slash.
fn image(image: &str, a: &mut Attributes) {
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
