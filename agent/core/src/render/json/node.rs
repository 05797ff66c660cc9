//! The node's shutdowns as JSON objects.

use serde::Serialize;

use super::parts::{EvidenceObject, evidence, millis, time};
use crate::node::{InhibitMode, Inhibitor, OwnLock, SignalSender};
use crate::pod::Workload;
use crate::render::id;
use crate::report::NodeShutdown;
use crate::shutdown::{ClientLoss, Delay, EndedByShutdown, Ending, Lock, NodeDown, Phase, PodInShutdown, Signs};
use crate::text::escape;
use crate::time::{Boot, WallOffset};
use crate::verdict::Severity;

#[derive(Clone, Debug, Serialize)]
pub struct NodeShutdownObject {
    r#type: &'static str,
    time: String,
    end: String,
    end_boot_ns: Boot,
    begin: String,
    begin_boot_ns: Boot,
    node: String,
    boot_id: String,
    ordinal: u32,
    trace_id: String,
    verdict: &'static str,
    unclean: bool,
    severity: Severity,
    sentence: String,
    remedy: Option<String>,
    kind: Option<&'static str>,
    ending: &'static str,
    signs: SignsObject,
    delay: Option<DelayObject>,
    locks: Vec<LockObject>,
    own_lock: Option<String>,
    kubelet: KubeletObject,
    phases: Vec<PhaseObject>,
    pods: Vec<PodInShutdownObject>,
    pods_more: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pods_ready: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<ClientLossObject>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    workloads: Vec<WorkloadLossObject>,
    gaps: ShutdownGapsObject,
    evidence: Vec<EvidenceObject>,
}

#[derive(Clone, Debug, Serialize)]
struct SignsObject {
    announcement: &'static str,
    prepared: Option<String>,
    cancelled: Option<String>,
    scheduled_for: Option<String>,
    job: Option<String>,
    job_at: Option<String>,
    stopping: Option<String>,
    init_signal: Option<String>,
    init_signal_at: Option<String>,
    sigterm_to_all: Option<String>,
    sigkill_to_all: Option<String>,
    spoofed: Option<SpoofObject>,
}

#[derive(Clone, Debug, Serialize)]
struct SpoofObject {
    time: String,
    count: u64,
    bus_name: Option<String>,
    pid: Option<u32>,
    uid: Option<u32>,
    comm: Option<String>,
    unit: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct DelayObject {
    begin: String,
    end: Option<String>,
    limit_ms: Option<f64>,
    expired: bool,
}

#[derive(Clone, Debug, Serialize)]
struct LockObject {
    what: String,
    who: String,
    why: String,
    mode: InhibitMode,
    uid: u32,
    pid: u32,
    taken: Option<String>,
    released: Option<String>,
    outlasted: bool,
}

#[derive(Clone, Debug, Serialize)]
struct KubeletObject {
    present: bool,
    lock_held: Option<bool>,
    total_ms: Option<f64>,
    critical_ms: Option<f64>,
    config: Option<String>,
    config_unknown: Option<String>,
    state_start: Option<String>,
    state_end: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct PhaseObject {
    priority: i32,
    period_ms: f64,
    begin: String,
    end: String,
    overran: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    at_least: bool,
}

#[derive(Clone, Debug, Serialize)]
struct PodInShutdownObject {
    namespace: String,
    name: String,
    uid: String,
    workload: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    priority: Option<i32>,
    grace_ms: Option<f64>,
    phase: Option<usize>,
    stopped: Option<String>,
    ended: Option<String>,
    cut: Option<CutObject>,
    own: bool,
    unsure: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<ClientLossObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    still_ready: Option<StillReadyObject>,
}

/// What clients lost; `lost` is refused, reset and cut.
#[derive(Clone, Debug, Serialize)]
struct ClientLossObject {
    lost: u64,
    refused: u64,
    reset: u64,
    cut: u64,
    undecided: u64,
    at_least: bool,
}

#[derive(Clone, Debug, Serialize)]
struct WorkloadLossObject {
    workload: String,
    namespace: String,
    clients: ClientLossObject,
}

#[derive(Clone, Debug, Serialize)]
struct StillReadyObject {
    after_stop_ms: f64,
    at_least: bool,
}

#[derive(Clone, Debug, Serialize)]
struct CutObject {
    time: String,
    had_ms: Option<f64>,
    killed: bool,
}

#[derive(Clone, Debug, Serialize)]
struct ShutdownGapsObject {
    bus: Option<String>,
    exits: bool,
    observation: bool,
    pods: bool,
    agent_ended: bool,
}

/// How long the node was down.
#[derive(Clone, Debug, Serialize)]
pub struct NodeDownObject {
    r#type: &'static str,
    time: String,
    end: String,
    begin: String,
    down_ms: f64,
    node: String,
    boot_id: String,
    ordinal: u32,
    trace_id: String,
    next_boot_id: String,
    soft: bool,
    at_most: bool,
}

/// The node's shutdown that stopped a container or unit.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ByShutdownObject {
    boot_id: String,
    ordinal: u32,
    trace_id: String,
    evidence: &'static str,
}

pub fn node_shutdown(s: &NodeShutdown) -> NodeShutdownObject {
    let clock = s.clock;
    let v = &s.verdict;
    NodeShutdownObject {
        r#type: "node-shutdown",
        time: time(clock, s.end),
        end: time(clock, s.end),
        end_boot_ns: s.end,
        begin: time(clock, s.begin),
        begin_boot_ns: s.begin,
        node: escape(&s.host),
        boot_id: s.key.boot_id.clone(),
        ordinal: s.key.ordinal,
        trace_id: id::node_trace_id(&s.key).to_string(),
        verdict: v.headline,
        unclean: v.unclean,
        severity: v.severity,
        sentence: escape(&v.sentence),
        remedy: v.remedy.as_deref().map(escape),
        kind: s.kind.map(|kind| kind.name()),
        ending: ending(s.ending),
        signs: signs(&s.signs, clock),
        delay: s.logind.delay.map(|of| delay(of, clock)),
        locks: s.logind.locks.iter().map(|of| lock(of, clock)).collect(),
        own_lock: s.logind.own_lock.as_ref().map(own_lock),
        kubelet: kubelet(s),
        phases: s.phases.iter().map(|of| phase(of, clock)).collect(),
        pods: s.pods.iter().map(|pod| pod_in(pod, s, clock)).collect(),
        pods_more: s.unlisted.more,
        pods_ready: s.pods_ready,
        clients: clients(s.loss()),
        workloads: s.loss_by_workload().into_iter().map(workload).collect(),
        gaps: ShutdownGapsObject {
            bus: s.gaps.bus.as_deref().map(escape),
            exits: s.gaps.exits,
            observation: s.gaps.observation,
            pods: s.gaps.pods,
            agent_ended: s.gaps.agent_ended,
        },
        evidence: evidence(&v.evidence, s.begin, clock),
    }
}

pub fn node_down(d: &NodeDown) -> NodeDownObject {
    NodeDownObject {
        r#type: "node-down",
        time: time(d.clock, d.end),
        end: time(d.clock, d.end),
        begin: time(d.clock, d.begin),
        down_ms: millis(d.end.since(d.begin)),
        node: escape(&d.host),
        boot_id: d.key.boot_id.clone(),
        ordinal: d.key.ordinal,
        trace_id: id::node_trace_id(&d.key).to_string(),
        next_boot_id: d.next_boot_id.clone(),
        soft: d.is_soft,
        at_most: d.at_most,
    }
}

pub(super) fn by_shutdown(by: &EndedByShutdown) -> ByShutdownObject {
    ByShutdownObject {
        boot_id: by.key.boot_id.clone(),
        ordinal: by.key.ordinal,
        trace_id: id::node_trace_id(&by.key).to_string(),
        evidence: by.evidence,
    }
}

/// Also an attribute of the span.
pub fn ending(ending: Ending) -> &'static str {
    match ending {
        Ending::Down { .. } => "down",
        Ending::Continued => "continued",
        Ending::AgentEnded => "agent-ended",
        Ending::ObservationEnded => "observation-ended",
    }
}

/// As [`ending`].
pub fn own_lock(lock: &OwnLock) -> String {
    match lock {
        OwnLock::Held => "held".to_owned(),
        OwnLock::Released => "released".to_owned(),
        OwnLock::Refused { reason } => format!("refused: {}", escape(reason)),
    }
}

fn signs(signs: &Signs, clock: WallOffset) -> SignsObject {
    let at = |at: Option<Boot>| at.map(|at| time(clock, at));
    let (job_at, job) = signs.job.clone().unzip();
    SignsObject {
        announcement: signs.announcement(),
        prepared: at(signs.prepared),
        cancelled: at(signs.cancelled),
        scheduled_for: signs.scheduled.as_ref().map(|(plan, _)| plan.at.rfc3339()),
        job: job.as_deref().map(escape),
        job_at: at(job_at),
        stopping: at(signs.stopping),
        init_signal: signs
            .signal
            .map(|of| format!("{} from {} (pid {})", of.signal, of.comm, of.pid)),
        init_signal_at: at(signs.signal.map(|of| of.at)),
        sigterm_to_all: at(signs.terminated),
        sigkill_to_all: at(signs.killed),
        spoofed: signs
            .spoofed
            .as_ref()
            .map(|(at, sender)| spoof(*at, sender, signs.spoofs, clock)),
    }
}

fn spoof(at: Boot, sender: &SignalSender, count: u64, clock: WallOffset) -> SpoofObject {
    let mut of = SpoofObject {
        time: time(clock, at),
        count,
        bus_name: None,
        pid: None,
        uid: None,
        comm: None,
        unit: None,
    };
    if let SignalSender::Other {
        name,
        pid,
        uid,
        comm,
        unit,
    } = sender
    {
        of.bus_name = Some(escape(name));
        of.pid = pid.map(|pid| pid.0);
        of.uid = *uid;
        of.comm = comm.as_deref().map(escape);
        of.unit = unit.as_deref().map(escape);
    }
    of
}

fn delay(of: Delay, clock: WallOffset) -> DelayObject {
    DelayObject {
        begin: time(clock, of.begin),
        end: of.end.map(|at| time(clock, at)),
        limit_ms: of.limit.map(millis),
        expired: of.expired,
    }
}

fn lock(of: &Lock, clock: WallOffset) -> LockObject {
    let Inhibitor {
        what,
        who,
        why,
        mode,
        uid,
        pid,
    } = &of.lock;
    LockObject {
        what: escape(what),
        who: escape(who),
        why: escape(why),
        mode: *mode,
        uid: *uid,
        pid: pid.0,
        taken: of.taken.map(|at| time(clock, at)),
        released: of.released.map(|at| time(clock, at)),
        outlasted: of.outlasted,
    }
}

fn kubelet(s: &NodeShutdown) -> KubeletObject {
    let of = &s.kubelet;
    let config = of.config.as_ref().and_then(|config| config.as_ref().ok());
    let unknown = of.config.as_ref().and_then(|config| config.as_ref().err());
    KubeletObject {
        present: of.is_there,
        lock_held: of.held,
        total_ms: config.map(|config| millis(config.needed())),
        critical_ms: config.map(|config| millis(config.critical)),
        config: config.map(|config| escape(&config.source)),
        config_unknown: unknown.map(|reason| escape(reason)),
        state_start: of.state.and_then(|state| state.started).map(|at| at.rfc3339()),
        state_end: of.state.and_then(|state| state.ended).map(|at| at.rfc3339()),
    }
}

fn phase(of: &Phase, clock: WallOffset) -> PhaseObject {
    PhaseObject {
        priority: of.priority,
        period_ms: millis(of.period),
        begin: time(clock, of.begin),
        end: time(clock, of.end),
        overran: of.overran,
        at_least: of.at_least,
    }
}

fn pod_in(of: &PodInShutdown, s: &NodeShutdown, clock: WallOffset) -> PodInShutdownObject {
    let workload = &of.pod.workload;
    PodInShutdownObject {
        namespace: escape(&of.pod.namespace),
        name: escape(&of.pod.name),
        uid: escape(&of.pod.uid.0),
        workload: escape(&format!("{}/{}", workload.kind, workload.name)),
        trace_id: s.has_trace(of).then(|| id::of_pod(&of.pod, &s.key.boot_id).to_string()),
        priority: of.priority,
        grace_ms: of.grace.map(millis),
        phase: of.phase,
        stopped: of.stopped.map(|at| time(clock, at)),
        ended: of.ended.map(|at| time(clock, at)),
        cut: of.cut.map(|cut| CutObject {
            time: time(clock, cut.at),
            had_ms: cut.had.map(millis),
            killed: cut.killed,
        }),
        own: of.is_own,
        unsure: of.is_unsure,
        started: of.started.map(|at| time(clock, at)),
        clients: clients(of.loss),
        still_ready: of.still_ready.map(|ready| StillReadyObject {
            after_stop_ms: millis(ready.lasted),
            at_least: ready.is_least,
        }),
    }
}

/// None: nothing was seen, and not all could be.
fn clients(of: ClientLoss) -> Option<ClientLossObject> {
    (of.undecided > 0 || of.known().is_some()).then(|| loss(of))
}

fn loss(of: ClientLoss) -> ClientLossObject {
    ClientLossObject {
        lost: of.lost(),
        refused: of.refused,
        reset: of.reset,
        cut: of.cut,
        undecided: of.undecided,
        at_least: of.is_least,
    }
}

fn workload((of, lost): (&Workload, ClientLoss)) -> WorkloadLossObject {
    WorkloadLossObject {
        workload: escape(&format!("{}/{}", of.kind, of.name)),
        namespace: escape(&of.namespace),
        clients: loss(lost),
    }
}
