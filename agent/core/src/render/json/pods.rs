//! The object of a whole pod.

use serde::Serialize;

use super::context::{AskedObject, PodObject, ReportedObject, RequestObject, asked, pod, reported, request};
use super::in_trace;
use super::node::{ByShutdownObject, by_shutdown};
use super::objects::TerminationObject;
use super::parts::{AdviceObject, EvidenceObject, advice, evidence, time};
use crate::input::Observation;
use crate::kubernetes::Reported;
use crate::render::id;
use crate::report::PodTermination;
use crate::text::escape;
use crate::time::Boot;
use crate::verdict::{Cause, Exit, Severity, TrafficAxis};

#[derive(Clone, Debug, Serialize)]
pub struct PodTerminationObject {
    r#type: &'static str,
    time: String,
    end: String,
    end_boot_ns: Boot,
    begin: String,
    begin_boot_ns: Boot,
    pod: PodObject,
    boot_id: String,
    trace_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_shutdown: Option<ByShutdownObject>,
    verdict: &'static str,
    cause: Cause,
    exit: Exit,
    traffic: TrafficAxis,
    unclean: bool,
    severity: Severity,
    sentence: String,
    remedy: Option<String>,
    asked: Option<AskedObject>,
    request: Option<RequestObject>,
    gone: Option<GoneObject>,
    unseen: Vec<UnseenObject>,
    advice: Vec<AdviceObject>,
    evidence: Vec<EvidenceObject>,
    pub(super) containers: Vec<TerminationObject>,
}

#[derive(Clone, Debug, Serialize)]
struct UnseenObject {
    container: String,
    reported: Option<ReportedObject>,
}

#[derive(Clone, Debug, Serialize)]
struct GoneObject {
    time: String,
    boot_ns: Boot,
    watched: bool,
}

pub fn pod_termination(p: &PodTermination, observation: &Observation) -> PodTerminationObject {
    let clock = observation.wall_offset;
    let trace = id::of_pod(&p.pod, &p.boot_id);
    let v = &p.verdict;
    let unseen = |(name, end): &(String, Option<Reported>)| UnseenObject {
        container: escape(name),
        reported: end.as_ref().map(reported),
    };
    PodTerminationObject {
        r#type: "pod-termination",
        time: time(clock, p.end),
        end: time(clock, p.end),
        end_boot_ns: p.end,
        begin: time(clock, p.begin),
        begin_boot_ns: p.begin,
        pod: pod(&p.pod),
        boot_id: p.boot_id.clone(),
        trace_id: trace.to_string(),
        node_shutdown: p.shutdown.as_ref().map(by_shutdown),
        verdict: v.headline,
        cause: v.cause,
        exit: v.exit,
        traffic: v.traffic,
        unclean: v.unclean,
        severity: v.severity,
        sentence: escape(&v.sentence),
        remedy: v.remedy.as_deref().map(escape),
        asked: p.stop_reason.as_ref().map(asked),
        request: p.request.as_ref().map(|r| request(r, clock)),
        gone: p.gone.map(|(at, watched)| GoneObject {
            time: time(clock, at),
            boot_ns: at,
            watched,
        }),
        unseen: p.unseen.iter().map(unseen).collect(),
        advice: advice(v),
        evidence: evidence(&v.evidence, p.begin, clock),
        containers: p.containers.iter().map(|t| in_trace(t, clock, trace)).collect(),
    }
}
