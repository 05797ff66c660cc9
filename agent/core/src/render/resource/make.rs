//! A report of the core → the resource.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::fit::{bytes, word};
use super::label::{self, hex};
use super::{
    API_VERSION, CONTAINER, Epitaph, EpitaphAdvice, EpitaphConnections, EpitaphContainer, EpitaphOwner, EpitaphPod,
    EpitaphReport, EpitaphTimes, KIND, LABEL_NODE, LABEL_REVISION, LABEL_UNCLEAN, LABEL_VERDICT, LABEL_WORKLOAD,
    LABEL_WORKLOAD_KIND, POD,
};
use crate::attribute::Subject;
use crate::event::ExitStatus;
use crate::input::Observation;
use crate::kubernetes::{PodContext, Reported};
use crate::pod::{ContainerKind, PodIdentity, PreStop};
use crate::render::id;
use crate::report::{PodTermination, Report, Termination};
use crate::termination::{Gaps, MainExit};
use crate::time::{Boot, WallOffset};
use crate::verdict::{Advice, AdviceKind, TrafficAxis, Verdict};

/// Longest name in Kubernetes.
pub(super) const NAME: usize = 253;
/// Longest name of a container, a namespace and a revision.
pub(super) const SHORT_NAME: usize = 63;
const WORD: usize = 40;
pub(super) const GAP: usize = 120;
/// Most bytes that the version of an object that exists adds to a patch.
const RESOURCE_VERSION: usize = r#""resourceVersion":"18446744073709551615","#.len();
/// Characters of a container's id, as the runtimes' own tools show it.
const ID: usize = 12;

/// None for a report without a pod, for a pod that opted out, and for what is not a termination. An init container that did its work
/// is part of a pod's start.
pub fn of(report: &Report, observation: &Observation) -> Option<Epitaph> {
    match report {
        Report::PodTerminated(pod) => of_pod(pod, observation.wall_offset),
        Report::Terminated(termination) => of_container(termination, observation.wall_offset),
        _ => None,
    }
}

fn of_pod(p: &PodTermination, clock: WallOffset) -> Option<Epitaph> {
    let contexts = p.containers.iter().filter_map(|of| of.kubernetes.as_deref());
    if contexts.clone().any(|context| context.options.ignore) {
        return None;
    }
    let members: Vec<&Termination> = p.containers.iter().collect();
    // The verdict is one container's, with the cause and the traffic of the pod.
    let speaker = members
        .iter()
        .find(|of| (of.verdict.headline, of.verdict.exit) == (p.verdict.headline, p.verdict.exit))
        .or(members.first());
    let incomplete = contexts.filter_map(|context| context.incomplete.as_deref());
    let unseen = p
        .unseen
        .iter()
        .map(|(name, _)| format!("the exit of container {name} was not observed"));
    let gaps = members
        .iter()
        .flat_map(|of| gaps(&of.gaps))
        .chain(incomplete.map(str::to_owned))
        .chain(unseen);
    let begin = p.request.as_ref().map_or(p.begin, |request| request.earliest);
    let about = About {
        terminated: POD,
        pod: &p.pod,
        verdict: &p.verdict,
        speaker: speaker.copied(),
        requested: p.request.as_ref().map(|request| request.earliest),
        begin,
        end: p.end,
        trace: id::of_pod(&p.pod, &p.boot_id).to_string(),
        gaps: gaps.collect(),
        grace: p.request.as_ref().map(|request| request.grace),
        spec_grace: p
            .containers
            .iter()
            .find_map(|of| of.kubernetes.as_ref()?.spec_grace())
            .or(p.request.as_ref().and_then(|request| request.spec_grace)),
        has_unseen: has_unseen(p),
        members,
    };
    Some(about.epitaph(clock))
}

fn has_unseen(p: &PodTermination) -> bool {
    p.unseen
        .iter()
        .any(|(_, reported)| !reported.as_ref().is_some_and(Reported::never_started))
}

fn of_container(t: &Termination, clock: WallOffset) -> Option<Epitaph> {
    let context = t.kubernetes.as_deref()?;
    let is_start = matches!(context.kind, Some(ContainerKind::Init | ContainerKind::Ephemeral)) && !t.verdict.unclean;
    if context.options.ignore || t.is_sandbox() || is_start {
        return None;
    }
    let requested = context.request.as_ref().map(|request| request.earliest);
    let about = About {
        terminated: CONTAINER,
        pod: &context.pod,
        verdict: &t.verdict,
        speaker: Some(t),
        requested,
        begin: requested.unwrap_or(t.begin),
        end: t.end,
        trace: id::of(t).to_string(),
        gaps: gaps(&t.gaps).into_iter().chain(context.incomplete.clone()).collect(),
        grace: context.grace,
        spec_grace: context.spec_grace(),
        has_unseen: false,
        members: vec![t],
    };
    Some(about.epitaph(clock))
}

struct About<'a> {
    terminated: &'static str,
    pod: &'a PodIdentity,
    verdict: &'a Verdict,
    /// The container that the verdict is about.
    speaker: Option<&'a Termination>,
    requested: Option<Boot>,
    begin: Boot,
    end: Boot,
    trace: String,
    gaps: Vec<String>,
    grace: Option<Duration>,
    spec_grace: Option<Duration>,
    /// A container ran of which no process was observed.
    has_unseen: bool,
    members: Vec<&'a Termination>,
}

impl EpitaphContainer {
    fn shorten(&mut self) {
        *self = EpitaphContainer {
            kind: None,
            pre_stop: None,
            stop_signal: None,
            killed: None,
            ..std::mem::take(self)
        };
    }
}

impl About<'_> {
    /// Of the container that the verdict is about, otherwise of the first.
    fn kubectl_shows(&self) -> Option<String> {
        let others = self.members.iter().copied();
        let shown = |of: &Termination| of.verdict.disagreement.as_ref().map(|of| word(&of.status, SHORT_NAME));
        self.speaker.into_iter().chain(others).find_map(shown)
    }

    fn epitaph(&self, clock: WallOffset) -> Epitaph {
        let verdict = self.verdict;
        let exit = self.speaker.and_then(|of| of.exit.as_ref());
        let (exit_code, exit_signal) = code_or_signal(exit);
        let stop = self
            .members
            .iter()
            .filter_map(|of| of.stop.as_ref())
            .min_by_key(|stop| stop.at);
        let killed = self
            .members
            .iter()
            .filter_map(|of| of.kill.as_ref().map(|kill| kill.at))
            .min();
        let mut gaps: Vec<String> = Vec::new();
        for gap in self.gaps.iter().map(|gap| word(gap, GAP)) {
            if !gaps.contains(&gap) {
                gaps.push(gap);
            }
        }
        let report = EpitaphReport {
            terminated: self.terminated.to_owned(),
            pod: EpitaphPod {
                name: word(&self.pod.name, NAME),
                uid: word(&self.pod.uid.0, SHORT_NAME),
            },
            owner: owner(self.pod),
            node: word(&self.pod.node, NAME),
            container: self.speaker.and_then(|of| container_name(of.kubernetes.as_deref())),
            verdict: verdict.headline.to_owned(),
            unclean: verdict.unclean,
            cause: axis(&verdict.cause),
            exit: axis(&verdict.exit),
            traffic: axis(&verdict.traffic),
            sentence: verdict.sentence.clone(),
            remedy: verdict.remedy.clone(),
            took: took(self.end, self.begin),
            times: EpitaphTimes {
                requested: self.requested.map(|at| time(clock, at)),
                stop_signal: stop.map(|stop| time(clock, stop.at)),
                killed: killed.map(|at| time(clock, at)),
                exited: time(clock, self.end),
            },
            stop_signal: stop.map(|stop| stop.signal.to_string()),
            grace_seconds: self.grace.map(|grace| grace.as_secs()),
            spec_grace_seconds: self.spec_grace.map(|grace| grace.as_secs()),
            exit_code,
            exit_signal,
            kubectl_shows: self.kubectl_shows(),
            connections: connections(&self.members, verdict.traffic, self.has_unseen),
            trace_id: self.trace.clone(),
            gaps,
            advice: self.advice(),
            containers: self.members.iter().filter_map(|of| container(of, clock)).collect(),
        };
        Epitaph::fitted(word(&self.pod.namespace, SHORT_NAME), report)
    }

    /// The grace period is the pod's, everything else a container's own.
    fn advice(&self) -> Vec<EpitaphAdvice> {
        let entry = |advice: &Advice, container| EpitaphAdvice {
            kind: advice.kind.name().to_owned(),
            container,
            seconds: advice.seconds,
        };
        let is_of_pod = |advice: &&Advice| matches!(advice.kind, AdviceKind::GraceLonger | AdviceKind::GraceShorter);
        let of_pod = self.verdict.advice.iter().filter(is_of_pod).map(|advice| entry(advice, None));
        let of_containers = self.members.iter().flat_map(|of| {
            let name = container_name(of.kubernetes.as_deref());
            let own = of.verdict.advice.iter().filter(|advice| !is_of_pod(advice));
            own.map(move |advice| entry(advice, name.clone()))
        });
        of_pod.chain(of_containers).collect()
    }
}

impl Epitaph {
    fn fitted(namespace: String, report: EpitaphReport) -> Epitaph {
        let unfitted = Epitaph { namespace, report };
        let around = bytes(&unfitted.with_nulls()) - bytes(&unfitted.report) + RESOURCE_VERSION;
        let Epitaph { namespace, report } = unfitted;
        let report = report.fitted(around);
        Epitaph { namespace, report }
    }

    /// The same for every writer: a restart of the agent writes the same object again. Kubernetes' own names of objects have at most
    /// 253 characters.
    pub fn name(&self) -> String {
        name(&self.report.pod)
    }

    /// With the container terminations that an earlier report of the pod has: each once, in their order, the last ten. A pod's own
    /// report stays where only one of its containers is reported after it.
    #[must_use]
    pub fn after(self, earlier: &EpitaphReport) -> Epitaph {
        let Epitaph { namespace, mut report } = self;
        let count = report.containers.len();
        let mut all = earlier.containers.clone();
        all.retain(|known| report.containers.iter().all(|new| new.id != known.id));
        all.append(&mut report.containers);
        all.sort_by(|a, b| a.exited.cmp(&b.exited));
        if earlier.terminated == POD && report.terminated == CONTAINER {
            report = earlier.clone();
        } else {
            // What settings are derived from is of the latest ones: ten with all of it are larger than the object may be.
            let latest = all.len() - count;
            all[..latest].iter_mut().for_each(EpitaphContainer::shorten);
        }
        report.containers = all;
        Epitaph::fitted(namespace, report)
    }

    /// Of another pod, or of another node's: not to be written over.
    pub fn is_about(&self, other: &EpitaphReport) -> bool {
        (&self.report.pod.uid, &self.report.node) == (&other.pod.uid, &other.node)
    }

    /// The object to create. A value that is not known is absent.
    pub fn object(&self) -> Value {
        let mut object = self.with_nulls();
        strip(&mut object);
        object
    }

    /// The merge patch of an object that exists: null removes what an earlier report had and this one has not. With `version`, the API
    /// server refuses the patch if the object has changed since.
    pub fn patch(&self, version: Option<&str>) -> Value {
        let mut patch = self.with_nulls();
        // Entries of a list are replaced, not merged: null would stay.
        strip(&mut patch["report"]["advice"]);
        strip(&mut patch["report"]["containers"]);
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = version.into();
        }
        patch
    }

    fn with_nulls(&self) -> Value {
        let report = &self.report;
        let mut labels = Map::new();
        let owner = report.owner.as_ref();
        for (name, value) in [
            (LABEL_NODE, Some(report.node.as_str())),
            (LABEL_UNCLEAN, Some(if report.unclean { "true" } else { "false" })),
            (LABEL_VERDICT, Some(report.verdict.as_str())),
            (LABEL_WORKLOAD, owner.map(|owner| owner.name.as_str())),
            (LABEL_WORKLOAD_KIND, owner.map(|owner| owner.kind.as_str())),
            (LABEL_REVISION, owner.and_then(|owner| owner.revision.as_deref())),
        ] {
            labels.insert(name.to_owned(), value.map(label::value).into());
        }
        json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": self.name(), "namespace": self.namespace, "labels": labels},
            "report": report,
        })
    }
}

pub(super) fn name(pod: &EpitaphPod) -> String {
    let short: String = pod.name.chars().take(200).collect();
    let short = short.trim_end_matches(['.', '-']);
    format!("{short}.{}", hex(&format!("{}\n{}", pod.name, pod.uid), 8))
}

/// Removes what is null, at any depth.
pub(super) fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(strip);
        }
        Value::Array(entries) => entries.iter_mut().for_each(strip),
        _ => {}
    }
}

fn owner(pod: &PodIdentity) -> Option<EpitaphOwner> {
    let workload = &pod.workload;
    (workload.kind != "Pod").then(|| EpitaphOwner {
        kind: word(&workload.kind, SHORT_NAME),
        name: word(&workload.name, NAME),
        uid: workload.uid.as_deref().map(|uid| word(uid, SHORT_NAME)),
        revision: pod.revision.as_deref().map(|revision| word(revision, SHORT_NAME)),
    })
}

fn container_name(context: Option<&PodContext>) -> Option<String> {
    context?.container.as_deref().map(|name| word(name, SHORT_NAME))
}

fn container(t: &Termination, clock: WallOffset) -> Option<EpitaphContainer> {
    let Subject::Container { id, .. } = &t.subject else {
        return None;
    };
    let (exit_code, exit_signal) = code_or_signal(t.exit.as_ref());
    Some(EpitaphContainer {
        name: container_name(t.kubernetes.as_deref()).unwrap_or_default(),
        id: word(&id.0.chars().take(ID).collect::<String>(), WORD),
        kind: t.kubernetes.as_ref().and_then(|context| context.kind.as_ref()).map(axis),
        pre_stop: t
            .kubernetes
            .as_ref()
            .and_then(|context| context.pre_stop.as_ref())
            .map(|run| word(&hook(&run.hook), WORD)),
        verdict: t.verdict.headline.to_owned(),
        cause: axis(&t.verdict.cause),
        stop_signal: t.stop.as_ref().map(|stop| time(clock, stop.at)),
        killed: t.kill.as_ref().map(|kill| time(clock, kill.at)),
        exited: time(clock, t.end),
        exit_code,
        exit_signal,
        lost: connections(&[t], t.verdict.traffic, false).and_then(|of| of.lost),
    })
}

fn hook(hook: &PreStop) -> String {
    match hook {
        PreStop::Exec { program } => format!("exec {program}"),
        PreStop::HttpGet { .. } => "httpGet".to_owned(),
        PreStop::TcpSocket { .. } => "tcpSocket".to_owned(),
        PreStop::Sleep { seconds } => format!("sleep {seconds}"),
    }
}

/// Sockets that were not observed, or only in part, leave the number unknown, unless some were seen lost: then it is the least. `has_unseen`: a
/// container ran of which no process was observed.
fn connections(members: &[&Termination], traffic: TrafficAxis, has_unseen: bool) -> Option<EpitaphConnections> {
    // What the judge doubts for another reason, such as a stop signal before the observation, is in no count either.
    let is_part = |of: &&Termination| of.traffic.may_go_on() || of.exit.is_none() || of.verdict.traffic == TrafficAxis::Unknown;
    let at_least = has_unseen || members.iter().any(is_part);
    let mut sum = EpitaphConnections {
        at_least: at_least.then_some(true),
        ..EpitaphConnections::default()
    };
    for of in members.iter().map(|of| &of.traffic) {
        sum.refused += of.refused_clients().count;
        sum.refused_new_peers += of.refused_new();
        sum.reset += of.reset.count;
        sum.cut += of.cut.count;
        sum.undecided += of.undecided.all.count;
        sum.rejected += of.rejected.count;
        sum.accepted += of.accepted.count;
    }
    let nothing = EpitaphConnections {
        at_least: sum.at_least,
        ..EpitaphConnections::default()
    };
    if sum == nothing && !members.iter().any(|of| of.traffic.observed) {
        return None;
    }
    let lost = sum.refused + sum.reset + sum.cut;
    // An undecided connection outweighs the doubt of a late start in the verdict.
    let may_be_earlier = traffic == TrafficAxis::Undecided && members.iter().any(|of| of.gaps.late_start);
    let is_known = !at_least && !may_be_earlier && traffic != TrafficAxis::Unknown;
    sum.lost = (lost > 0 || is_known).then_some(lost);
    Some(sum)
}

fn gaps(gaps: &Gaps) -> Vec<String> {
    let mut all: Vec<String> = gaps
        .lost
        .iter()
        .map(|(kind, count)| format!("{count} records of {kind} were lost"))
        .collect();
    if gaps.over_cap > 0 {
        all.push(format!("{} facts were over the limit of one termination", gaps.over_cap));
    }
    if gaps.late_start {
        all.push("the process ran before it was observed".to_owned());
    }
    let unobserved = gaps.unobserved_length();
    if !unobserved.is_zero() {
        all.push(format!("epitaph did not observe for {:.1} s", unobserved.as_secs_f64()));
    }
    if !gaps.inactive_probes.is_empty() {
        all.push(format!("probes were not active: {}", gaps.inactive_probes.join(", ")));
    }
    if let Some(step) = gaps.clock_step {
        all.push(format!("the clock of the node stepped by {} ms", step / 1_000_000));
    }
    all
}

fn code_or_signal(exit: Option<&MainExit>) -> (Option<i32>, Option<String>) {
    let status = exit.map(|exit| exit.status);
    let signal = status.and_then(ExitStatus::signal);
    (
        status.and_then(ExitStatus::code).map(i32::from),
        signal.map(|signal| signal.to_string()),
    )
}

/// The name on every other output.
fn axis(value: &impl serde::Serialize) -> String {
    let name = serde_json::to_value(value).ok();
    let name = name.as_ref().and_then(Value::as_str);
    name.unwrap_or("unknown").to_owned()
}

/// To the millisecond, in the one form that sorts.
pub(super) fn time(clock: WallOffset, at: Boot) -> String {
    clock.wall(at).rfc3339_millis()
}

/// For a column: `0.4s`, `31.2s`, `5m10s`.
pub(super) fn took(end: Boot, begin: Boot) -> String {
    let took = end.since(begin);
    match took.as_secs() {
        ..120 => format!("{:.1}s", took.as_secs_f64()),
        seconds => format!("{}m{}s", seconds / 60, seconds % 60),
    }
}
