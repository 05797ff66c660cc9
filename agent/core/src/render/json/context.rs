//! What Kubernetes adds to the objects.

use serde::Serialize;

use super::parts::{code_or_signal, millis, time};
use crate::kubernetes::{Asker, PodContext, PreStopRun, Reported, Request, StopReason};
use crate::pod::{ContainerKind, PodIdentity, PreStop};
use crate::text::escape;
use crate::time::{Boot, WallOffset};
use crate::verdict::Cause;

#[derive(Clone, Debug, Serialize)]
pub(super) struct PodObject {
    namespace: String,
    name: String,
    uid: String,
    node: String,
    workload: WorkloadObject,
    is_static: bool,
}

#[derive(Clone, Debug, Serialize)]
struct WorkloadObject {
    kind: String,
    name: String,
    uid: Option<String>,
}

/// The Kubernetes context of one container's termination.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ContextObject {
    pod: PodObject,
    container: Option<String>,
    kind: Option<ContainerKind>,
    image: Option<String>,
    restarts: u32,
    asked: Option<AskedObject>,
    request: Option<RequestObject>,
    grace_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_signal: Option<StopSignalObject>,
    pre_stop: Option<PreStopObject>,
    mains_ended: Option<String>,
    mains_ended_boot_ns: Option<Boot>,
    shares_pid_namespace: bool,
    reported: Option<ReportedObject>,
    incomplete: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct AskedObject {
    cause: Cause,
    evidence: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct RequestObject {
    earliest: String,
    earliest_boot_ns: Boot,
    latest: String,
    latest_boot_ns: Boot,
    grace_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec_grace_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    asker: Option<&'static str>,
    shortened: Vec<ShortenedObject>,
    api_clock_ahead_ns: Option<[i64; 2]>,
}

#[derive(Clone, Debug, Serialize)]
struct ShortenedObject {
    time: String,
    boot_ns: Boot,
    grace_ms: f64,
}

#[derive(Clone, Debug, Serialize)]
struct StopSignalObject {
    signal: String,
    in_spec: bool,
}

#[derive(Clone, Debug, Serialize)]
struct PreStopObject {
    hook: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sleep_s: Option<u64>,
    begin: Option<String>,
    begin_boot_ns: Option<Boot>,
    end: Option<String>,
    end_boot_ns: Option<Boot>,
    seen: bool,
    code: Option<u8>,
    signal: Option<String>,
    failed: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ReportedObject {
    exit_code: i32,
    reason: Option<String>,
}

pub(super) fn context(c: &PodContext, clock: WallOffset) -> ContextObject {
    ContextObject {
        pod: pod(&c.pod),
        container: c.container.as_deref().map(escape),
        kind: c.kind,
        image: c.image.as_deref().map(escape),
        restarts: c.restarts,
        asked: c.stop_reason.as_ref().map(asked),
        request: c.request.as_ref().map(|r| request(r, clock)),
        grace_ms: c.grace.map(millis),
        stop_signal: c.stop_signal.map(|of| StopSignalObject {
            signal: of.signal.to_string(),
            in_spec: of.in_spec,
        }),
        pre_stop: c.pre_stop.as_ref().map(|run| pre_stop(run, clock)),
        mains_ended: c.mains_ended().map(|at| time(clock, at)),
        mains_ended_boot_ns: c.mains_ended(),
        shares_pid_namespace: c.shares_pid_namespace,
        reported: c.reported.as_ref().map(reported),
        incomplete: c.incomplete.as_deref().map(escape),
    }
}

pub(super) fn pod(p: &PodIdentity) -> PodObject {
    PodObject {
        namespace: escape(&p.namespace),
        name: escape(&p.name),
        uid: escape(&p.uid.0),
        node: escape(&p.node),
        workload: WorkloadObject {
            kind: escape(&p.workload.kind),
            name: escape(&p.workload.name),
            uid: p.workload.uid.as_deref().map(escape),
        },
        is_static: p.is_static,
    }
}

pub(super) fn asked(a: &StopReason) -> AskedObject {
    AskedObject {
        cause: a.cause,
        evidence: escape(&a.evidence),
    }
}

pub(super) fn request(r: &Request, clock: WallOffset) -> RequestObject {
    let shortened = r.shortened.iter().map(|(at, grace)| ShortenedObject {
        time: time(clock, *at),
        boot_ns: *at,
        grace_ms: millis(*grace),
    });
    RequestObject {
        earliest: time(clock, r.earliest),
        earliest_boot_ns: r.earliest,
        latest: time(clock, r.latest),
        latest_boot_ns: r.latest,
        grace_ms: millis(r.grace),
        spec_grace_ms: r.spec_grace.map(millis),
        asker: r.asker.map(Asker::name),
        shortened: shortened.collect(),
        api_clock_ahead_ns: r.skew.map(|(least, most)| [least, most]),
    }
}

fn pre_stop(run: &PreStopRun, clock: WallOffset) -> PreStopObject {
    let (hook, program, port, sleep_s) = match &run.hook {
        PreStop::Exec { program } => ("exec", Some(escape(program)), None, None),
        PreStop::HttpGet { port } => ("httpGet", None, *port, None),
        PreStop::TcpSocket { port } => ("tcpSocket", None, *port, None),
        PreStop::Sleep { seconds } => ("sleep", None, None, Some(*seconds)),
    };
    let (code, signal, _) = run.status.map_or((None, None, false), code_or_signal);
    PreStopObject {
        hook,
        program,
        port,
        sleep_s,
        begin: run.begin.map(|at| time(clock, at)),
        begin_boot_ns: run.begin,
        end: run.end.map(|at| time(clock, at)),
        end_boot_ns: run.end,
        seen: run.seen,
        code,
        signal: signal.map(|s| s.to_string()),
        failed: run.failed.as_deref().map(escape),
    }
}

pub(super) fn reported(r: &Reported) -> ReportedObject {
    ReportedObject {
        exit_code: r.exit_code,
        reason: r.reason.as_deref().map(escape),
    }
}
