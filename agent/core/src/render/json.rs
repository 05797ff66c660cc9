//! Terminations and early warnings as JSON objects, one per line; `docs/json.md` is the schema, and its examples come from here.
//!
//! Times are RFC 3339 in UTC with nanoseconds, each with the same moment as `*_boot_ns`, `CLOCK_BOOTTIME` nanoseconds, which
//! no clock step touches. Text that a process chose is escaped as in [`crate::ids::Comm`].

mod context;
mod node;
mod objects;
mod parts;
mod pods;

use opentelemetry::trace::TraceId;
use serde::Serialize;

use crate::attribute::{Attribution, Runtime, Subject, UnknownCgroup};
use crate::container::ContainerFact;
use crate::event::Kind;
use crate::input::{CgroupMode, Observation, ProbeState};
use crate::render::id;
use crate::report::{StopSignalIgnored, Termination};
use crate::termination::{
    Actor, ClientPeer, Count, Gaps, Kill, MainExit, MainProcess, OomKill, PeerPlace, RefusedSource, Stop, Traffic,
};
use crate::text::escape;
use crate::time::{Boot, WallOffset};

pub use node::{NodeDownObject, NodeShutdownObject, ending, node_down, node_shutdown, own_lock};
use objects::*;
pub use objects::{ChildOomObject, EarlyObject, LostObject, ObservingObject, ProbeObject, TerminationObject};
pub(super) use parts::after_ms;
use parts::{advice, code_or_signal, evidence, millis, time};
pub use pods::{PodTerminationObject, pod_termination};

/// One object as its line, newline included.
pub fn line(object: &impl Serialize) -> String {
    let mut line = serde_json::to_string(object).expect("no map has keys that are not text");
    line.push('\n');
    line
}

/// A termination that has a trace of its own.
pub fn termination(t: &Termination, observation: &Observation) -> TerminationObject {
    in_trace(t, observation.wall_offset, id::of(t))
}

fn in_trace(t: &Termination, clock: WallOffset, trace: TraceId) -> TerminationObject {
    let v = &t.verdict;
    TerminationObject {
        r#type: "termination",
        time: time(clock, t.end),
        end: time(clock, t.end),
        end_boot_ns: t.end,
        begin: time(clock, t.begin),
        begin_boot_ns: t.begin,
        subject: subject(&t.subject),
        container: t.container.as_deref().map(container),
        cgroup: t.cgroup_path.as_deref().map(escape),
        cgroup_id: t.key.cgroup.id,
        boot_id: t.key.boot_id.clone(),
        trace_id: trace.to_string(),
        kubernetes: t.kubernetes.as_ref().map(|context| context::context(context, clock)),
        node_shutdown: t.shutdown.as_ref().map(node::by_shutdown),
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
        disagreement: v.disagreement.as_ref().map(DisagreementObject::of),
        oom: t.oom.iter().map(|o| oom(o, clock)).collect(),
        other_exits: t.other_exits,
        connections: connections(&t.traffic, clock),
        gaps: gaps(&t.gaps, clock),
        advice: advice(v),
        evidence: evidence(&v.evidence, t.begin, clock),
    }
}

pub fn early(e: &StopSignalIgnored, observation: &Observation) -> EarlyObject {
    let clock = observation.wall_offset;
    EarlyObject {
        r#type: "stop-signal-ignored",
        time: time(clock, e.at),
        boot_ns: e.at,
        subject: subject(&e.subject),
        container: e.container.as_deref().map(container),
        cgroup_id: e.key.cgroup.id,
        trace_id: id::of_early(e).to_string(),
        kubernetes: e.kubernetes.as_ref().map(|context| context::context(context, clock)),
        signal: e.signal.to_string(),
        sender: actor(&e.sender),
        disposition: e.disposition.name(),
        main: e.main.as_ref().map(|m| main(m, clock)),
        grace_left_ms: e.grace_left.map(millis),
        sentence: escape(&e.sentence),
    }
}

/// Kernel records of this kind lost since the last such line.
pub fn lost(kind: Kind, count: u64) -> LostObject {
    LostObject {
        r#type: "lost",
        kind: kind.name(),
        count,
    }
}

pub fn child_oom(of: &Subject, described: Option<&ContainerFact>, kill: &OomKill, observation: &Observation) -> ChildOomObject {
    let clock = observation.wall_offset;
    ChildOomObject {
        r#type: "child-oom-killed",
        time: time(clock, kill.at),
        boot_ns: kill.at,
        subject: subject(of),
        container: described.map(container),
        pid: kill.tgid.0,
        comm: kill.comm.to_string(),
        role: kill.role.name(),
    }
}

/// The first line of a stream: every probe is attached, and the observation is complete from now on.
pub fn observing(observation: &Observation, probes: &[(String, ProbeState)]) -> ObservingObject {
    ObservingObject {
        r#type: "observing",
        since: time(observation.wall_offset, observation.since),
        since_boot_ns: observation.since,
        boot_id: observation.boot_id.clone(),
        host: escape(&observation.host),
        kernel: escape(&observation.kernel),
        cgroups: match observation.cgroups {
            CgroupMode::V2 => "v2",
            CgroupMode::Hybrid => "hybrid",
            CgroupMode::V1(_) => "v1",
        },
        probes: probes_object(probes),
    }
}

/// Also the body of `/readyz`.
pub fn probes_object(probes: &[(String, ProbeState)]) -> Vec<ProbeObject> {
    let one = |(name, state): &(String, ProbeState)| {
        let (problem, remedy) = state.trouble(name).unzip();
        let (state, by, reason) = match state {
            ProbeState::Active => ("active", None, None),
            ProbeState::Substituted { by, .. } => ("substituted", Some(escape(by)), problem.map(str::to_owned)),
            ProbeState::Unsupported(reason) => ("unsupported", None, Some(escape(reason))),
            ProbeState::Failed(reason) => ("failed", None, Some(escape(reason))),
        };
        ProbeObject {
            name: name.clone(),
            state,
            by,
            reason,
            remedy,
        }
    };
    probes.iter().map(one).collect()
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

fn container(described: &ContainerFact) -> ContainerObject {
    ContainerObject {
        name: described.name.as_deref().map(escape),
        image: described.image.as_deref().map(escape),
        command: described.command.iter().map(|argument| escape(argument)).collect(),
        stop_signal: described.stop_signal.map(|signal| signal.to_string()),
        sandbox: described.sandbox,
    }
}

/// Also the label of a metric.
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
                UnknownCgroup::TooMany => "too-many-nested",
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
        role: a.role.name(),
        place: place(&a.place),
        pod: a.pod.as_deref().map(|of| ActorPodObject {
            namespace: escape(&of.pod.namespace),
            name: escape(&of.pod.name),
            container: escape(&of.container),
        }),
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
        result: s.result.name(),
        disposition: s.disposition.name(),
        state: s.state.names().collect(),
        handler_entered: s.handler_entered.map(|at| time(clock, at)),
        handler_entered_boot_ns: s.handler_entered,
        repeated: s.repeated,
    }
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
    let (code, signal, core_dumped) = code_or_signal(exit.status);
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
        is_main: o.is_main(),
        role: o.role.name(),
    }
}

fn connections(t: &Traffic, clock: WallOffset) -> ConnectionsObject {
    let moment = |c: Count, at: Boot| (c.count > 0).then(|| time(clock, at));
    ConnectionsObject {
        observed: t.observed,
        other_sockets: t.unseen.other_sockets,
        since: t.since.map(|since| time(clock, since)),
        accepted: t.accepted.count,
        accepted_first: moment(t.accepted, t.accepted.first),
        accepted_last: moment(t.accepted, t.accepted.last),
        refused: t.refused.all.count,
        refused_first: moment(t.refused.all, t.refused.all.first),
        refused_last: moment(t.refused.all, t.refused.all.last),
        refused_known_by: match t.refused.source {
            RefusedSource::ServerReset => Some("server-reset"),
            RefusedSource::ClientError => Some("client-error"),
            RefusedSource::None => None,
        },
        refused_new_peers: t.refused_new(),
        peers: t.peers.top.iter().map(peer).collect(),
        peers_more: t.peers.more,
        reset: t.reset.count,
        reset_first: moment(t.reset, t.reset.first),
        reset_last: moment(t.reset, t.reset.last),
        reset_queued: t.reset_queued,
        cut: t.cut.count,
        cut_first: moment(t.cut, t.cut.first),
        cut_last: moment(t.cut, t.cut.last),
        cut_unanswered: t.cut.count,
        idle_closed: t.idle_closed.count,
        undecided: t.undecided.all.count,
        rejected: t.rejected.count,
        rejected_first: moment(t.rejected, t.rejected.first),
        rejected_last: moment(t.rejected, t.rejected.last),
        kubelet: t.kubelet.known.then_some(KubeletObject {
            accepted: t.kubelet.accepted.count,
            refused: t.kubelet.refused.count,
            broken: t.kubelet.broken.count,
        }),
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

fn peer(peer: &ClientPeer) -> PeerObject {
    PeerObject {
        address: peer.address,
        place: peer.place.name(),
        pod: match &peer.place {
            PeerPlace::Pod(pod) => Some(format!("{}/{}", pod.namespace, pod.name)),
            _ => None,
        },
        had_connected: peer.had_connected,
        refused: peer.refused,
        reset: peer.reset,
        cut: peer.cut,
    }
}

fn gaps(g: &Gaps, clock: WallOffset) -> GapsObject {
    GapsObject {
        lost: g
            .lost
            .iter()
            .map(|(kind, count)| ((*kind).to_owned(), (*count).into()))
            .collect(),
        over_cap: g.over_cap,
        late_start: g.late_start,
        unobserved: g
            .unobserved
            .iter()
            .map(|gap| UnobservedObject {
                begin: time(clock, gap.since),
                begin_boot_ns: gap.since,
                end: time(clock, gap.until),
                end_boot_ns: gap.until,
            })
            .collect(),
        inactive_probes: g.inactive_probes.iter().map(|p| escape(p)).collect(),
        clock_step_ms: g.clock_step.map(|step| step / 1_000_000),
    }
}

#[cfg(test)]
mod tests;
