//! Terminations and early warnings as JSON objects, one per line; `docs/json.md` is the schema, and its examples come from here.
//!
//! Times are RFC 3339 in UTC with nanoseconds, each beside the same moment as `*_boot_ns`, `CLOCK_BOOTTIME` nanoseconds, which
//! no clock step touches. Text that a process chose is escaped as in [`crate::event::Comm`].

use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;

use crate::attribute::{Attribution, Runtime, Subject, UnknownCgroup};
use crate::event::{Boot, Disposition, ExitStatus, Observation, ProbeState, Signal, SignalResult, TargetState, WallOffset};
use crate::render::text::escape;
use crate::termination::{
    Actor, Count, Gaps, Kill, MainExit, MainProcess, OomKill, RefusedSource, Role, Stop, StopSignalIgnored, Termination,
    Traffic,
};
use crate::verdict::{Cause, Exit, Severity, TrafficAxis};

/// One object as its line, newline included.
pub fn line(object: &impl Serialize) -> String {
    let mut line = serde_json::to_string(object).expect("no map has keys that are not text");
    line.push('\n');
    line
}

/// `trace_id` is that of [`crate::render::id`], hex.
pub fn termination(t: &Termination, observation: &Observation, trace_id: &str) -> TerminationObject {
    let clock = observation.wall_offset;
    let v = &t.verdict;
    TerminationObject {
        r#type: "termination",
        time: time(clock, t.end),
        end: time(clock, t.end),
        end_boot_ns: t.end,
        begin: time(clock, t.begin),
        begin_boot_ns: t.begin,
        subject: subject(&t.subject),
        cgroup: t.cgroup_path.as_deref().map(escape),
        cgroup_id: t.key.cgroup.id,
        boot_id: t.key.boot_id.clone(),
        trace_id: trace_id.to_owned(),
        verdict: v.headline,
        cause: v.cause,
        exit: v.exit,
        traffic: v.traffic,
        unclean: v.unclean,
        severity: v.severity,
        sentence: escape(&v.sentence),
        remedy: v.remedy.as_deref().map(escape),
        main: t.main.as_ref().map(|m| main(m, clock)),
        stop: t.stop.as_ref().map(|s| stop(s, clock)),
        kill: t.kill.as_ref().map(|k| kill(k, clock)),
        status: t.exit.as_ref().map(|e| status(e, clock)),
        oom: t.oom.iter().map(|o| oom(o, clock)).collect(),
        other_exits: t.other_exits,
        connections: connections(&t.traffic, clock),
        gaps: gaps(&t.gaps),
        evidence: v
            .evidence
            .iter()
            .map(|e| EvidenceObject {
                source: e.source.name(),
                time: time(clock, e.at),
                boot_ns: e.at,
                after_begin_ms: after_ms(e.at, t.begin),
                text: escape(&e.text),
            })
            .collect(),
    }
}

pub fn early(e: &StopSignalIgnored, observation: &Observation, trace_id: &str) -> EarlyObject {
    let clock = observation.wall_offset;
    EarlyObject {
        r#type: "stop-signal-ignored",
        time: time(clock, e.at),
        boot_ns: e.at,
        subject: subject(&e.subject),
        cgroup_id: e.key.cgroup.id,
        trace_id: trace_id.to_owned(),
        signal: e.signal.to_string(),
        sender: actor(&e.sender),
        disposition: disposition(e.disposition),
        main: e.main.as_ref().map(|m| main(m, clock)),
        grace_left_ms: e.grace_left.map(millis),
        sentence: escape(&e.sentence),
    }
}

pub fn child_oom(of: &Subject, kill: &OomKill, observation: &Observation) -> ChildOomObject {
    let clock = observation.wall_offset;
    ChildOomObject {
        r#type: "child-oom-killed",
        time: time(clock, kill.at),
        boot_ns: kill.at,
        subject: subject(of),
        pid: kill.tgid.0,
        comm: kill.comm.to_string(),
    }
}

/// The first line of a stream: every probe is attached, and what happens from now on is seen.
pub fn observing(observation: &Observation, probes: &[(String, ProbeState)]) -> ObservingObject {
    ObservingObject {
        r#type: "observing",
        since: time(observation.wall_offset, observation.since),
        since_boot_ns: observation.since,
        boot_id: observation.boot_id.clone(),
        host: escape(&observation.host),
        kernel: escape(&observation.kernel),
        cgroup_v1_too: observation.hybrid,
        probes: probes_object(probes),
    }
}

/// Also the body of `/readyz`.
pub fn probes_object(probes: &[(String, ProbeState)]) -> Vec<ProbeObject> {
    let one = |(name, state): &(String, ProbeState)| {
        let (state, reason) = match state {
            ProbeState::Active => ("active", None),
            ProbeState::Unsupported(reason) => ("unsupported", Some(escape(reason))),
            ProbeState::Failed(reason) => ("failed", Some(escape(reason))),
        };
        ProbeObject {
            name: name.clone(),
            state,
            reason,
        }
    };
    probes.iter().map(one).collect()
}

#[derive(Clone, Debug, Serialize)]
pub struct TerminationObject {
    r#type: &'static str,
    time: String,
    end: String,
    end_boot_ns: Boot,
    begin: String,
    begin_boot_ns: Boot,
    subject: SubjectObject,
    cgroup: Option<String>,
    cgroup_id: u64,
    boot_id: String,
    trace_id: String,
    verdict: &'static str,
    cause: Cause,
    exit: Exit,
    traffic: TrafficAxis,
    unclean: bool,
    severity: Severity,
    sentence: String,
    remedy: Option<String>,
    main: Option<MainObject>,
    stop: Option<StopObject>,
    kill: Option<KillObject>,
    status: Option<StatusObject>,
    oom: Vec<OomObject>,
    other_exits: u64,
    connections: ConnectionsObject,
    gaps: GapsObject,
    evidence: Vec<EvidenceObject>,
}

#[derive(Clone, Debug, Serialize)]
pub struct EarlyObject {
    r#type: &'static str,
    time: String,
    boot_ns: Boot,
    subject: SubjectObject,
    cgroup_id: u64,
    trace_id: String,
    signal: String,
    sender: ActorObject,
    disposition: &'static str,
    main: Option<MainObject>,
    grace_left_ms: Option<f64>,
    sentence: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct ChildOomObject {
    r#type: &'static str,
    time: String,
    boot_ns: Boot,
    subject: SubjectObject,
    pid: u32,
    comm: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct ObservingObject {
    r#type: &'static str,
    since: String,
    since_boot_ns: Boot,
    boot_id: String,
    host: String,
    kernel: String,
    cgroup_v1_too: bool,
    probes: Vec<ProbeObject>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ProbeObject {
    name: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum SubjectObject {
    Container {
        id: String,
        runtime: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        pod_uid: Option<String>,
    },
    Unit {
        name: String,
    },
}

/// Where a process lives.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum PlaceObject {
    Subject(SubjectObject),
    Other {
        kind: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'static str>,
    },
}

#[derive(Clone, Debug, Serialize)]
struct ActorObject {
    pid: u32,
    comm: String,
    parent_pid: u32,
    parent_comm: String,
    role: &'static str,
    place: PlaceObject,
}

#[derive(Clone, Debug, Serialize)]
struct MainObject {
    pid: u32,
    ns_pid: u32,
    is_ns_init: bool,
    comm: String,
    start: String,
    start_boot_ns: Boot,
}

#[derive(Clone, Debug, Serialize)]
struct StopObject {
    time: String,
    boot_ns: Boot,
    signal: String,
    sender: ActorObject,
    result: &'static str,
    disposition: &'static str,
    state: Vec<&'static str>,
    handler_entered: Option<String>,
    handler_entered_boot_ns: Option<Boot>,
    repeated: u32,
}

#[derive(Clone, Debug, Serialize)]
struct KillObject {
    time: String,
    boot_ns: Boot,
    sender: ActorObject,
    cgroup_kill: bool,
}

#[derive(Clone, Debug, Serialize)]
struct StatusObject {
    time: String,
    boot_ns: Boot,
    code: Option<u8>,
    signal: Option<String>,
    core_dumped: bool,
}

#[derive(Clone, Debug, Serialize)]
struct OomObject {
    time: String,
    boot_ns: Boot,
    pid: u32,
    comm: String,
    is_main: bool,
}

#[derive(Clone, Debug, Serialize)]
struct ConnectionsObject {
    observed: bool,
    accepted: u64,
    refused: u64,
    refused_first: Option<String>,
    refused_last: Option<String>,
    refused_known_by: Option<&'static str>,
    reset: u64,
    cut: u64,
    cut_unanswered: u64,
    idle_closed: u64,
    listeners_closed: Vec<ListenerObject>,
}

#[derive(Clone, Debug, Serialize)]
struct ListenerObject {
    time: String,
    boot_ns: Boot,
    local: SocketAddr,
    by_exit: bool,
}

#[derive(Clone, Debug, Serialize)]
struct GapsObject {
    lost: serde_json::Map<String, serde_json::Value>,
    over_cap: u64,
    late_start: bool,
    inactive_probes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct EvidenceObject {
    source: &'static str,
    time: String,
    boot_ns: Boot,
    after_begin_ms: f64,
    text: String,
}

/// RFC 3339, UTC, nanoseconds.
fn time(clock: WallOffset, at: Boot) -> String {
    humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::from_nanos(clock.wall(at).0)).to_string()
}

/// Milliseconds to the microsecond: all that a reader can use, and no float noise after it.
fn millis(d: Duration) -> f64 {
    d.as_micros() as f64 / 1000.0
}

/// Negative where evidence is earlier than what the termination counts from.
pub(super) fn after_ms(at: Boot, begin: Boot) -> f64 {
    if at < begin {
        -millis(begin.since(at))
    } else {
        millis(at.since(begin))
    }
}

fn subject(subject: &Subject) -> SubjectObject {
    match subject {
        Subject::Container { id, runtime, pod } => SubjectObject::Container {
            id: escape(&id.0),
            runtime: runtime_name(*runtime),
            pod_uid: pod.as_ref().map(|p| escape(&p.0)),
        },
        Subject::Unit { name } => SubjectObject::Unit { name: escape(name) },
    }
}

/// Also a metric's label.
pub fn runtime_name(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Containerd => "containerd",
        Runtime::CriO => "cri-o",
        Runtime::Docker => "docker",
        Runtime::Podman => "podman",
        Runtime::Unnamed => "unnamed",
    }
}

fn place(place: &Attribution) -> PlaceObject {
    let other = |kind, reason| PlaceObject::Other { kind, reason };
    match place {
        Attribution::Subject(s, _) => PlaceObject::Subject(subject(s)),
        Attribution::Host => other("host", None),
        Attribution::Unknown(why) => other(
            "unknown",
            Some(match why {
                UnknownCgroup::NeverSeen => "never-seen",
                UnknownCgroup::NoId => "no-id",
                UnknownCgroup::PathUnreadable => "path-unreadable",
                UnknownCgroup::ProcessGone => "process-gone",
            }),
        ),
    }
}

fn actor(a: &Actor) -> ActorObject {
    ActorObject {
        pid: a.tgid.0,
        comm: a.comm.to_string(),
        parent_pid: a.parent.0,
        parent_comm: a.parent_comm.to_string(),
        role: match a.role {
            Role::Runtime => "runtime",
            Role::Itself => "itself",
            Role::Inside => "inside",
            Role::Other => "other",
            Role::Kernel => "kernel",
        },
        place: place(&a.place),
    }
}

fn main(m: &MainProcess, clock: WallOffset) -> MainObject {
    MainObject {
        pid: m.tgid.0,
        ns_pid: m.ns_pid,
        is_ns_init: m.is_ns_init,
        comm: m.comm.to_string(),
        start: time(clock, m.start),
        start_boot_ns: m.start,
    }
}

fn stop(s: &Stop, clock: WallOffset) -> StopObject {
    StopObject {
        time: time(clock, s.at),
        boot_ns: s.at,
        signal: s.signal.to_string(),
        sender: actor(&s.sender),
        result: match s.result {
            SignalResult::Delivered => "delivered",
            SignalResult::Ignored => "ignored",
            SignalResult::AlreadyPending => "already-pending",
            SignalResult::OverflowFail => "overflow-fail",
            SignalResult::LoseInfo => "lose-info",
        },
        disposition: disposition(s.disposition),
        state: state(s.state),
        handler_entered: s.handler_entered.map(|at| time(clock, at)),
        handler_entered_boot_ns: s.handler_entered,
        repeated: s.repeated,
    }
}

fn disposition(d: Disposition) -> &'static str {
    match d {
        Disposition::Unknown => "unknown",
        Disposition::Default => "default",
        Disposition::Ignore => "ignore",
        Disposition::Handler => "handler",
    }
}

fn state(state: TargetState) -> Vec<&'static str> {
    let TargetState {
        blocked,
        stopped,
        frozen,
        exiting,
        traced,
    } = state;
    [
        (blocked, "blocked"),
        (stopped, "stopped"),
        (frozen, "frozen"),
        (exiting, "exiting"),
        (traced, "traced"),
    ]
    .into_iter()
    .filter_map(|(is, name)| is.then_some(name))
    .collect()
}

fn kill(k: &Kill, clock: WallOffset) -> KillObject {
    KillObject {
        time: time(clock, k.at),
        boot_ns: k.at,
        sender: actor(&k.sender),
        cgroup_kill: k.cgroup_kill,
    }
}

fn status(exit: &MainExit, clock: WallOffset) -> StatusObject {
    let (code, signal, core_dumped): (_, Option<Signal>, _) = match exit.status {
        ExitStatus::Exited(code) => (Some(code), None, false),
        ExitStatus::Signaled { signal, core_dumped } => (None, Some(signal), core_dumped),
    };
    StatusObject {
        time: time(clock, exit.at),
        boot_ns: exit.at,
        code,
        signal: signal.map(|s| s.to_string()),
        core_dumped,
    }
}

fn oom(o: &OomKill, clock: WallOffset) -> OomObject {
    OomObject {
        time: time(clock, o.at),
        boot_ns: o.at,
        pid: o.tgid.0,
        comm: o.comm.to_string(),
        is_main: o.is_main,
    }
}

fn connections(t: &Traffic, clock: WallOffset) -> ConnectionsObject {
    let moment = |c: Count, at: Boot| (c.count > 0).then(|| time(clock, at));
    ConnectionsObject {
        observed: t.observed,
        accepted: t.accepted.count,
        refused: t.refused.count,
        refused_first: moment(t.refused, t.refused.first),
        refused_last: moment(t.refused, t.refused.last),
        refused_known_by: match t.refused_source {
            RefusedSource::ServerReset => Some("server-reset"),
            RefusedSource::ClientError => Some("client-error"),
            RefusedSource::None => None,
        },
        reset: t.reset.count,
        cut: t.cut.count,
        cut_unanswered: t.cut_unanswered,
        idle_closed: t.idle_closed.count,
        listeners_closed: t
            .listeners
            .iter()
            .map(|l| ListenerObject {
                time: time(clock, l.at),
                boot_ns: l.at,
                local: l.local,
                by_exit: l.by_exit,
            })
            .collect(),
    }
}

fn gaps(g: &Gaps) -> GapsObject {
    GapsObject {
        lost: g
            .lost
            .iter()
            .map(|(kind, count)| ((*kind).to_owned(), (*count).into()))
            .collect(),
        over_cap: g.over_cap,
        late_start: g.late_start,
        inactive_probes: g.inactive_probes.iter().map(|p| escape(p)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;
    use proptest::prelude::*;

    use super::*;
    use crate::render::sample;

    #[test]
    fn the_documented_examples_are_what_the_code_makes() {
        fn pretty(object: &impl Serialize) -> String {
            serde_json::to_string_pretty(object).unwrap()
        }
        let observation = sample::observation();
        let (subject, oom) = sample::child_oom();
        // Only the examples are made; the words around them are written by hand.
        let mut doc = include_str!("../../../docs/json.md").to_owned();
        for (name, example) in [
            ("observing", pretty(&observing(&observation, &sample::probes()))),
            (
                "termination",
                pretty(&termination(&sample::ignored(), &observation, sample::TRACE_ID)),
            ),
            (
                "stop-signal-ignored",
                pretty(&early(&sample::early(), &observation, sample::TRACE_ID)),
            ),
            ("child-oom-killed", pretty(&child_oom(&subject, &oom, &observation))),
        ] {
            let start = format!("<!-- example: {name} -->\n```json\n");
            let from = doc
                .find(&start)
                .unwrap_or_else(|| panic!("docs/json.md has no example of {name}"))
                + start.len();
            let to = from + doc[from..].find("```").unwrap();
            doc.replace_range(from..to, &format!("{example}\n"));
        }
        expect_file!["../../../docs/json.md"].assert_eq(&doc);
    }

    #[test]
    fn every_field_is_described() {
        fn keys(value: &serde_json::Value, into: &mut Vec<String>) {
            match value {
                serde_json::Value::Object(map) => map.iter().for_each(|(k, v)| {
                    into.push(k.clone());
                    keys(v, into);
                }),
                serde_json::Value::Array(list) => list.iter().for_each(|v| keys(v, into)),
                _ => {}
            }
        }
        let observation = sample::observation();
        let (subject, oom) = sample::child_oom();
        let mut all = Vec::new();
        keys(
            &serde_json::to_value(observing(&observation, &sample::probes())).unwrap(),
            &mut all,
        );
        keys(
            &serde_json::to_value(termination(&sample::ignored(), &observation, "")).unwrap(),
            &mut all,
        );
        keys(
            &serde_json::to_value(early(&sample::early(), &observation, "")).unwrap(),
            &mut all,
        );
        keys(
            &serde_json::to_value(child_oom(&subject, &oom, &observation)).unwrap(),
            &mut all,
        );
        let doc = include_str!("../../../docs/json.md");
        for key in all {
            assert!(doc.contains(&format!("`{key}`")), "docs/json.md does not describe `{key}`");
        }
    }

    #[test]
    fn a_line_is_one_object_and_one_line() {
        let line = line(&termination(
            &sample::hostile("a\nb\u{1b}[2J\u{202e}\"\\"),
            &sample::observation(),
            sample::TRACE_ID,
        ));
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.ends_with("}\n"));
        let back: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(back["sentence"], "a\\nb\\u{1b}[2J\\u{202e}\"\\");
    }

    #[test]
    fn evidence_before_the_begin_is_negative() {
        assert_eq!(after_ms(Boot(1_000_000), Boot(2_500_000)), -1.5);
        assert_eq!(after_ms(Boot(2_500_999), Boot(1_000_000)), 1.5);
    }

    proptest! {
        #[test]
        fn no_text_of_a_process_leaves_a_control_character(text in any::<String>()) {
            let line = line(&termination(&sample::hostile(&text), &sample::observation(), sample::TRACE_ID));
            let back: serde_json::Value = serde_json::from_str(&line).unwrap();
            for text in [&back["sentence"], &back["remedy"], &back["cgroup"], &back["subject"]["name"], &back["main"]["comm"]] {
                prop_assert!(!text.as_str().unwrap().contains(char::is_control));
            }
        }
    }
}
