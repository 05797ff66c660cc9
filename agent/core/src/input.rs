//! The core's inputs: everything that a source can report, parsed. Made by `decode` (kernel records) and the `source` rooms, nowhere else.
//!
//! *Architecture invariant*: no clock, no environment, no files here, and only text that is bounded and escaped.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::container::ContainerFact;
use crate::event::{Event, Kind};
use crate::ids::{CgroupId, Pid};
use crate::node::NodeEvent;
use crate::pod::{ApiClock, PodEvent, PodEventsUpdate, PodFact, PodGone, PodsState};
use crate::time::{Boot, TickRate, WallOffset};

/// A cgroup that exists: from the scan at the start, or looked up when an event named an unknown id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupFact {
    pub cgroup: CgroupId,
    /// From the hierarchy's root; the reason if the cgroup is gone or was not readable.
    pub path: Result<String, String>,
    /// When it was created, by the kernel's record; None if that was not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Boot>,
}

impl CgroupFact {
    /// The reason in `path` if the cgroup is gone from the file system; any other text is why the path was not readable.
    pub const GONE: &str = "gone";
    /// The reason if there was no look-up: a later look-up may find the path.
    pub const BUSY: &str = "too many unknown cgroups at once to look for each";

    pub const fn of(cgroup: CgroupId, path: Result<String, String>) -> CgroupFact {
        CgroupFact {
            cgroup,
            path,
            created: None,
        }
    }
}

/// A process as `/proc` shows it: the processes of a subject at the start, and processes without a cgroup in the kernel's
/// record (cgroup v1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFact {
    pub tgid: Pid,
    pub ppid: Pid,
    /// `/proc/PID/stat` starttime on CLOCK_BOOTTIME; resolution one clock tick (10 ms): less exact than a kernel record's.
    pub start: Boot,
    pub ns_level: u32,
    pub ns_pid: u32,
    pub comm: String,
    /// One entry per hierarchy: the cgroup (id 0 where its directory was not found) and its path. Ordered by how well the
    /// hierarchy separates containers and units: those of kernel records ([`CgroupMode::hierarchy`], v1 alongside it), `name=systemd`,
    /// memory, then the others.
    /// Empty if the process was gone or not readable: then only `tgid` is valid.
    pub cgroups: Vec<(CgroupId, String)>,
}

impl ProcessFact {
    /// The answer for a process that is gone, or that `/proc` does not show.
    pub fn gone(tgid: Pid) -> ProcessFact {
        let zero = Pid::default();
        ProcessFact {
            tgid,
            ppid: zero,
            start: Boot(0),
            ns_level: 0,
            ns_pid: 0,
            comm: String::new(),
            cgroups: Vec::new(),
        }
    }
    pub fn is_gone(&self) -> bool {
        self.cgroups.is_empty()
    }
}

/// Of which clients a refused connection is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeenClients {
    None,
    /// Those that connect to the server's own address. A client that connects to a Service's address is not among them.
    OfThisMachine,
    All,
}

names! {
    /// As metrics and JSON name it.
    all SeenClients:
    All => "all",
    OfThisMachine => "of_this_machine",
    None => "none",
}

impl SeenClients {
    /// What is not known where not all clients are seen, and what to do; None with all clients.
    pub const fn trouble(self) -> Option<(&'static str, &'static str)> {
        match self {
            SeenClients::All => None,
            SeenClients::OfThisMachine => Some((
                "refused clients of other machines and of Services are not seen: the traffic of a container that closes a listener is unknown",
                ProbeState::ALL_CLIENTS,
            )),
            SeenClients::None => Some((
                "refused clients are not seen: the traffic of every termination is unknown",
                ProbeState::ALL_CLIENTS,
            )),
        }
    }
}

/// State of one probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "StoredState")]
pub enum ProbeState {
    Active,
    /// On this kernel another probe shows part or all of this probe's evidence: that probe's name, and in brackets the evidence.
    Substituted {
        by: String,
        /// Of which clients the other probe shows the evidence.
        clients: SeenClients,
    },
    /// This kernel cannot have the probe.
    Unsupported(String),
    /// The kernel should have the probe, but the probe failed.
    Failed(String),
}

/// Without these probes no termination is observed; without any other probe, verdicts only have less evidence, and report this.
pub const ESSENTIAL: [&str; 2] = ["signal_generate", "sched_process_exit"];

/// As recordings have it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredState {
    Active,
    Substituted { by: String, clients: Option<SeenClients> },
    Unsupported(String),
    Failed(String),
}

impl From<StoredState> for ProbeState {
    fn from(stored: StoredState) -> ProbeState {
        /// In `by` of recordings that have no `clients`.
        const BY_CLIENTS: &str = "by the error of a client on this machine";
        match stored {
            StoredState::Active => ProbeState::Active,
            StoredState::Substituted { by, clients } => {
                let clients = clients.unwrap_or(match by.contains(BY_CLIENTS) {
                    true => SeenClients::OfThisMachine,
                    false => SeenClients::All,
                });
                ProbeState::Substituted { by, clients }
            }
            StoredState::Unsupported(reason) => ProbeState::Unsupported(reason),
            StoredState::Failed(reason) => ProbeState::Failed(reason),
        }
    }
}

impl ProbeState {
    /// The probe that shows refused connections.
    pub const REFUSALS: &str = "tcp_send_reset";
    /// Remedy where [`ProbeState::clients`] of that probe is not all.
    const ALL_CLIENTS: &str = "run kernel 6.10 or newer, or one that accepts BPF programs at tcp_v4_send_reset and \
                               tcp_v6_send_reset (arm64: 6.4 or newer): docs/limits/kernels.md";

    /// Reason where the kernel identifies no socket's cgroup.
    pub const NO_SOCKETS: &str = "this machine has cgroup v1 only, and the kernel knows a socket's cgroup of v2 only";
    /// Its remedy.
    pub const USE_V2: &str = "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)";
    const REPORT: &str = "this kernel should support the probe: please report it, with the output of `epitaph doctor`";

    /// What is not known of refused clients where the probe of that name does not show all of them, and what to do. None: nothing is missing,
    /// or the probe shows other things.
    pub fn trouble(&self, name: &str) -> Option<(&str, &'static str)> {
        match self {
            ProbeState::Active => None,
            ProbeState::Substituted { clients, .. } => clients.trouble(),
            ProbeState::Unsupported(_) | ProbeState::Failed(_) if name != ProbeState::REFUSALS => None,
            ProbeState::Unsupported(reason) if reason == ProbeState::NO_SOCKETS => Some((reason, ProbeState::USE_V2)),
            ProbeState::Unsupported(reason) => Some((reason, ProbeState::ALL_CLIENTS)),
            ProbeState::Failed(reason) => Some((reason, ProbeState::REPORT)),
        }
    }

    /// Of which clients the probe's evidence is observed.
    pub fn clients(&self) -> SeenClients {
        match self {
            ProbeState::Active => SeenClients::All,
            ProbeState::Substituted { clients, .. } => *clients,
            ProbeState::Unsupported(_) | ProbeState::Failed(_) => SeenClients::None,
        }
    }

    /// Whether the probe's evidence is observed, by this probe or by another.
    pub fn is_observed(&self) -> bool {
        matches!(self, ProbeState::Active | ProbeState::Substituted { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_before_the_clients_were_stored_has_those_that_its_words_name() {
        let of = |by: &str| {
            let stored = serde_json::json!({"substituted": {"by": by}});
            serde_json::from_value::<ProbeState>(stored).map(|state| state.clients())
        };
        let refused = of("inet_sock_set_state (a refused SYN, by the error of a client on this machine)");
        assert_eq!(refused.ok(), Some(SeenClients::OfThisMachine));
        let errors = of("inet_sock_set_state (the error with which a connection closes)");
        assert_eq!(errors.ok(), Some(SeenClients::All));
    }

    #[test]
    fn where_refused_clients_are_not_seen_the_remedy_is_that_of_the_cause() {
        let remedy = |state: ProbeState| state.trouble(ProbeState::REFUSALS).map(|(_, remedy)| remedy);
        let unsupported = |reason: &str| ProbeState::Unsupported(reason.to_owned());
        assert_eq!(remedy(unsupported(ProbeState::NO_SOCKETS)), Some(ProbeState::USE_V2));
        assert_eq!(remedy(unsupported("no function")), Some(ProbeState::ALL_CLIENTS));
        assert_eq!(remedy(ProbeState::Failed("EINVAL".to_owned())), Some(ProbeState::REPORT));
        assert_eq!(remedy(ProbeState::Active), None);
        // Of another probe.
        assert_eq!(unsupported("no tracepoint").trouble("inet_sk_error_report"), None);
    }

    #[test]
    fn a_probes_state_is_read_as_it_was_stored() {
        let by = "inet_sock_set_state (a refused SYN)".to_owned();
        for state in [
            ProbeState::Active,
            ProbeState::Substituted {
                by,
                clients: SeenClients::OfThisMachine,
            },
            ProbeState::Unsupported("no".to_owned()),
            ProbeState::Failed("no".to_owned()),
        ] {
            let stored = serde_json::to_value(&state).expect("JSON");
            assert_eq!(serde_json::from_value::<ProbeState>(stored).ok(), Some(state));
        }
    }
}

/// The observing agent, its start, and the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    pub host: String,
    pub kernel: String,
    pub wall_offset: WallOffset,
    /// From here on the probes record everything; earlier exits and signals are not known.
    pub since: Boot,
    #[serde(alias = "hybrid", deserialize_with = "cgroups")]
    pub cgroups: CgroupMode,
    /// The nodes of this machine are containers (kind, minikube), so the pods below a container are a node's. A setting: a
    /// container can create cgroups with the names of pods, too.
    #[serde(default)]
    pub nodes_in_containers: bool,
    /// Jiffies of the kernel in a second (`CONFIG_HZ`); None unknown, as in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticks_per_second: Option<u32>,
    /// Sockets of a container whose program ended below its wrapper are observed as long as that end counts. False in older recordings: the
    /// kernel let go of them before, and what is not in these was not observed.
    #[serde(default)]
    pub observes_followed: bool,
}

impl Observation {
    pub fn tick_rate(&self) -> TickRate {
        self.ticks_per_second
            .and_then(TickRate::per_second)
            .unwrap_or(TickRate::USUAL)
    }
}

/// Which cgroup hierarchies a machine has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupMode {
    #[default]
    V2,
    /// v1 alongside v2: a process's v2 cgroup then need not be its container's, and the v2 root shows nothing about it.
    Hybrid,
    /// No v2. Tasks are separated in this hierarchy, the number in `/proc/PID/cgroup`; which socket belongs to which is not known.
    V1(u32),
}

/// A hierarchy of cgroup v1 by which the probes can separate tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V1 {
    /// There is no v2.
    pub is_alone: bool,
    /// As in `/proc/PID/cgroup`; never 0.
    pub hierarchy: u16,
    /// One of its controllers, as `/proc/cgroups` names it.
    pub controller: String,
}

impl CgroupMode {
    /// Of the cgroups that a kernel record gives for a task.
    pub const fn hierarchy(self) -> u32 {
        match self {
            CgroupMode::V2 | CgroupMode::Hybrid => 0,
            CgroupMode::V1(hierarchy) => hierarchy,
        }
    }

    /// Whether `/proc/PID/cgroup` may know better than a kernel record.
    pub const fn has_v1(self) -> bool {
        !matches!(self, CgroupMode::V2)
    }
}

/// Recordings older than [`CgroupMode::V1`] only have whether the machine was hybrid.
fn cgroups<'de, D: serde::Deserializer<'de>>(from: D) -> Result<CgroupMode, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Hybrid(bool),
        CgroupMode(CgroupMode),
    }
    Ok(match Either::deserialize(from)? {
        Either::Hybrid(false) => CgroupMode::V2,
        Either::Hybrid(true) => CgroupMode::Hybrid,
        Either::CgroupMode(cgroups) => cgroups,
    })
}

/// The evidence that lost records could have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossScope {
    /// Of any container or unit.
    #[default]
    Machine,
    /// Of the subjects in this cgroup, of those around it, and of no other.
    Within(CgroupId),
    /// Of other processes than the first one of these subjects: what became of a stop signal inside.
    Others(CgroupId),
    /// Of any container or unit, and not lost by the kernel: the recording begins only after it.
    NotRecorded,
    /// Of any container or unit, and not lost by the kernel: a part of the recording or of the journal is damaged or missing.
    Damaged,
    /// Of clients' connects to the servers with this [`server_hash`](crate::event::server_hash).
    ConnectsTo(u32),
}

/// Everything that a source can report. Closed: the core handles every kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// First input of every run, and again after a gap.
    Start(Observation),
    /// After a gap, all that exists was shown ([`Input::Cgroup`], [`Input::Process`]): what was not shown has ended in the gap.
    Scanned,
    Probe {
        name: String,
        state: ProbeState,
    },
    /// A kernel record and its own time, which may be earlier than that of an input before it (per-CPU order).
    Kernel {
        at: Boot,
        event: Event,
    },
    Cgroup(CgroupFact),
    Process(ProcessFact),
    /// A container, as the files of its runtime describe it.
    Container(ContainerFact),
    /// How far the Kubernetes API is known; before the first of these no pods are expected.
    Pods(PodsState),
    /// A pod of this node is new, or has changed.
    Pod(Arc<PodFact>),
    PodGone(PodGone),
    PodEvent(PodEvent),
    PodEvents(PodEventsUpdate),
    ApiClock(ApiClock),
    /// logind, systemd or the kubelet about the node's shutdown.
    Node(NodeEvent),
    /// `count` records of `kind` were lost between the last report and now (user space reads the counters at least each
    /// second, and after every exit before it is judged).
    Lost {
        kind: Kind,
        scope: LossScope,
        since: Boot,
        count: u64,
    },
    /// Wall-clock offset changed (NTP step, suspend).
    Clock(WallOffset),
    /// Nothing but time (the caller's `now`): lets the core finish what is due.
    Tick,
    /// No more input will come (end of a recording, shutdown): finish what can be finished now.
    End,
    /// As [`Input::End`], but the recorder was stopped in the middle: what it had observed last may be missing.
    Cut,
}

impl Input {
    /// One loss of each kind of kernel record, and one of the node's messages: of a recording or a journal a part of unknown content is
    /// damaged or missing.
    pub fn part_missing(since: Boot) -> Vec<Input> {
        Input::all_lost(LossScope::Damaged, since)
    }

    /// The same of a recording that begins later than the observation.
    pub fn none_recorded(since: Boot) -> Vec<Input> {
        Input::all_lost(LossScope::NotRecorded, since)
    }

    fn all_lost(scope: LossScope, since: Boot) -> Vec<Input> {
        let node = Input::Node(NodeEvent::Lost {
            reason: "a part of the evidence is missing".to_owned(),
            count: 1,
        });
        let kernel = Kind::ALL.map(|kind| Input::Lost {
            kind,
            scope,
            since,
            count: 1,
        });
        kernel.into_iter().chain([node]).collect()
    }

    /// Lost records that could have been evidence of any container or unit.
    pub const fn lost_by_machine(kind: Kind, since: Boot, count: u64) -> Input {
        Input::Lost {
            kind,
            scope: LossScope::Machine,
            since,
            count,
        }
    }
}
