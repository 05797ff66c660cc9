//! Pods of the Kubernetes API, reduced to the facts that a termination needs. Made by `source/pods`, nowhere else.
//!
//! *Architecture invariant*: no client types, no clock, and no text longer than Kubernetes' own limits.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{ContainerId, PodUid};
use crate::time::{Boot, Wall};

/// One version of a pod of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodFact {
    pub pod: Arc<PodIdentity>,
    /// When this version arrived: its changes happened before.
    pub seen: Boot,
    pub spec: Arc<PodSpec>,
    pub deletion: Option<Deletion>,
    pub phase: Phase,
    /// `status.reason`: `Evicted`, `Preempting`, `Terminated`, `DeadlineExceeded`, `NodeShutdown`, …
    pub reason: Option<String>,
    /// The condition `DisruptionTarget` with status True.
    pub disruption: Option<Disruption>,
    /// The condition `AllContainersRestarting` with status True.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarting: bool,
    /// `metadata.finalizers`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// The condition `PodReadyToStartContainers`: the pod has a sandbox with a network. None where the status does not have it (before
    /// Kubernetes 1.29, mostly), and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_sandbox: Option<bool>,
    /// The condition `Ready`; None where the status does not have it, and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Ready>,
    pub containers: Vec<ContainerStatus>,
}

impl PodFact {
    /// Whether Services send clients to the pod by this version: an endpoint that terminates is not ready either. None: it has no condition
    /// `Ready`.
    pub fn takes_clients(&self) -> Option<bool> {
        let is_ending = self.phase.is_terminal() || self.deletion.is_some();
        self.ready.map(|ready| ready.is_ready && !is_ending)
    }

    /// Bytes of this version with its identity, without what other versions share. Whoever creates pods chooses most of them.
    pub fn bytes(&self) -> usize {
        size_of::<PodFact>()
            + self.pod.bytes()
            + self.spec.bytes()
            + self.containers.iter().map(ContainerStatus::bytes).sum::<usize>()
            + texts(&self.finalizers)
    }
}

fn texts(all: &[String]) -> usize {
    all.iter().map(|text| size_of::<String>() + text.len()).sum()
}

/// The parts of a pod that never change; they identify the pod everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodIdentity {
    pub uid: PodUid,
    /// The UID in the names of the pod's cgroups: the pod's UID, for a static pod the config hash.
    pub cgroup_uid: PodUid,
    pub namespace: String,
    pub name: String,
    pub node: String,
    /// The controller at the top of the owners; a pod without a controller is its own workload (kind `Pod`).
    pub workload: Workload,
    /// A mirror pod: deleting it does not stop the containers.
    pub is_static: bool,
    /// `service.name`, `service.namespace`, `service.version` of the application, as OpenTelemetry's operator computes them.
    pub service: Service,
    /// `metadata.creationTimestamp`.
    pub created: Option<Wall>,
    /// The label `pod-template-hash`, or `controller-revision-hash`: which version of its workload the pod is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Box<str>>,
}

impl PodIdentity {
    fn bytes(&self) -> usize {
        /// Of the texts of a pod and its owners but its own name.
        const TEXTS: usize = 512;
        size_of::<PodIdentity>() + TEXTS + 2 * self.name.len()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Workload {
    /// `Deployment`, `StatefulSet`, `DaemonSet`, `Job`, `CronJob`, `ReplicaSet`, `Pod`, `Node`, or a custom kind.
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// Where known.
    pub uid: Option<String>,
    /// `apps/v1`; where known.
    pub api_version: Option<String>,
    /// The ReplicaSet between a Deployment and its pods, the Job of a CronJob: kind, name and, where known, UID.
    pub through: Option<(String, String, Option<String>)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Service {
    pub name: String,
    pub namespace: Option<String>,
    pub version: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSpec {
    /// `spec.terminationGracePeriodSeconds`.
    pub grace: Option<Duration>,
    /// `spec.priority`: its phase at a node's shutdown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    pub restart_policy: RestartPolicy,
    pub host_network: bool,
    pub host_pid: bool,
    pub share_process_namespace: bool,
    pub ips: Vec<std::net::IpAddr>,
    /// Init containers and sidecars, main and ephemeral containers.
    pub containers: Vec<ContainerSpec>,
    /// Names of the pod's PersistentVolumeClaims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<String>,
    pub options: PodOptions,
}

impl PodSpec {
    fn bytes(&self) -> usize {
        size_of::<PodSpec>() + self.containers.iter().map(ContainerSpec::bytes).sum::<usize>() + texts(&self.claims)
    }
}

/// Our annotations on the pod, otherwise on its namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodOptions {
    /// `epitaph.dev/ignore: "true"`: nothing about the pod is exported.
    pub ignore: bool,
    /// `epitaph.dev/expected-exit-codes: "0,3"`: clean besides 0 and, after the stop signal, 128 + n.
    pub expected_exit_codes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    pub const fn restarts_after(self, code: i32) -> bool {
        match self {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => code != 0,
            RestartPolicy::Never => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    pub name: String,
    pub kind: ContainerKind,
    pub image: String,
    pub pre_stop: Option<PreStop>,
    /// `lifecycle.stopSignal`; the image's own stop signal is in the status of newer kubelets only.
    pub stop_signal: Option<String>,
    pub liveness: Option<KubeletProbe>,
    pub startup: Option<KubeletProbe>,
    pub readiness: Option<KubeletProbe>,
    /// Declared container ports.
    pub ports: Vec<u16>,
    /// `restartPolicy` of the container itself, which goes before the pod's; None of a sidecar, which it makes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<RestartPolicy>,
    /// `restartPolicyRules`: the first that matches the exit code goes before any policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restart_rules: Vec<RestartRule>,
}

/// What the kubelet does at some exit codes of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartRule {
    pub action: RestartAction,
    /// `In` or `NotIn` the codes.
    pub is_in: bool,
    pub codes: Vec<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartAction {
    Restart,
    RestartAllContainers,
    /// Of a newer Kubernetes.
    Other,
}

impl ContainerSpec {
    /// The rule of the exit code, if there is one.
    pub fn rule(&self, code: i32) -> Option<&RestartRule> {
        self.restart_rules
            .iter()
            .find(|rule| rule.codes.contains(&code) == rule.is_in)
    }

    /// Whether the kubelet restarts the container after this exit, by the container's own rules and policy; None: the pod's policy decides.
    pub fn restarts_after(&self, code: i32) -> Option<bool> {
        let own = self.restart_policy?;
        let is_rule = self.rule(code).is_some_and(|rule| rule.action != RestartAction::Other);
        Some(is_rule || own.restarts_after(code))
    }

    fn bytes(&self) -> usize {
        let hook = match &self.pre_stop {
            Some(PreStop::Exec { program }) => program.len(),
            _ => 0,
        };
        let probes = [&self.liveness, &self.startup, &self.readiness].into_iter().flatten();
        let probes = probes.map(|probe| match &probe.kind {
            KubeletProbeKind::Exec { program } => program.len(),
            KubeletProbeKind::Network { .. } => 0,
        });
        let texts = self.name.len() + self.image.len() + self.stop_signal.as_ref().map_or(0, String::len);
        let rules = self.restart_rules.iter();
        let rules = rules.map(|rule| size_of::<RestartRule>() + rule.codes.capacity() * size_of::<i32>());
        let lists = self.ports.capacity() * size_of::<u16>() + rules.sum::<usize>();
        size_of::<ContainerSpec>() + texts + hook + probes.sum::<usize>() + lists
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerKind {
    Init,
    /// An init container with `restartPolicy: Always`.
    Sidecar,
    Main,
    Ephemeral,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreStop {
    /// `argv[0]`; the other arguments may be private and are not kept.
    Exec {
        program: String,
    },
    HttpGet {
        port: Option<u16>,
    },
    TcpSocket {
        port: Option<u16>,
    },
    Sleep {
        seconds: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletProbe {
    pub kind: KubeletProbeKind,
    /// `terminationGracePeriodSeconds` of the probe: replaces the pod's for a kill by this probe.
    pub grace: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KubeletProbeKind {
    Exec {
        program: String,
    },
    /// Also gRPC: the port that the kubelet connects to; None for a named port that no container declares.
    Network {
        port: Option<u16>,
    },
}

/// `deletionTimestamp` and `deletionGracePeriodSeconds`. The deletion was requested at their difference, on the API server's clock,
/// in whole seconds: within the second that begins there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    pub timestamp: Wall,
    pub grace: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
    #[default]
    Unknown,
}

impl Phase {
    pub const fn is_terminal(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disruption {
    /// `EvictionByEvictionAPI`, `DeletionByTaintManager`, `PreemptionByScheduler`, `TerminationByKubelet`, `DeletionByPodGC`, …
    pub reason: String,
    /// Bounded to 256 bytes.
    pub message: String,
}

/// The condition `Ready`. The kubelet writes it by the node's clock; the node controller makes it False by its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    pub is_ready: bool,
    /// `lastTransitionTime`, in whole seconds.
    pub since: Wall,
    /// Of a pod that is not ready: by then the kubelet had reported the pod's status, and one of its main containers had had its last
    /// start before `since`. None: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_start: Option<Wall>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStatus {
    pub name: String,
    /// The id of the container that runs or ran last; None before the first.
    pub id: Option<ContainerId>,
    pub restarts: u32,
    pub state: ContainerState,
    /// `lastState.terminated`: the previous container, with its id.
    pub last: Option<Ended>,
    /// `stopSignal`: what the runtime will send, from the spec, the image or its default. None of older kubelets and runtimes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
}

impl ContainerStatus {
    fn bytes(&self) -> usize {
        /// Of two ids and a reason, which the kubelet writes.
        const TEXTS: usize = 256;
        size_of::<ContainerStatus>() + TEXTS + self.name.len()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerState {
    Waiting { reason: Option<String> },
    Running,
    Terminated(Ended),
}

/// `state.terminated`. Not proof: OOMKilled is sticky, 137 can be synthetic, and the times are whole seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub id: Option<ContainerId>,
    pub exit_code: i32,
    pub reason: Option<String>,
}

/// The kubelet's reason of a restart of all containers in place, in `state.waiting` and `lastState.terminated`.
pub(crate) const RESTARTING: &str = "RestartingAllContainers";

impl Ended {
    /// Without an id: the kubelet's own words about a container that it removed.
    pub(crate) fn is_placeholder(&self) -> bool {
        self.id.is_none() && self.reason.as_deref() == Some(RESTARTING)
    }
}

/// A pod that is gone from the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodGone {
    pub uid: PodUid,
    pub seen: Boot,
    /// False if a list after an interruption did not have the pod: it was deleted at an unknown time before `seen`.
    pub watched: bool,
}

/// A Kubernetes Event on a pod of this node: evidence for a cause, never for a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodEvent {
    pub uid: PodUid,
    /// Time of arrival, possibly long after the Event happened.
    pub seen: Boot,
    /// Time of the (last) occurrence, by the reporter's clock, often in whole seconds; the kubelet's clock is this node's.
    #[serde(default)]
    pub at: Option<Wall>,
    /// From `involvedObject.fieldPath`: `spec.containers{app}`.
    pub container: Option<String>,
    /// `Killing`, `FailedPreStopHook`, `Unhealthy`, `Preempted`, `ExceededGracePeriod`, …
    pub reason: String,
    /// Bounded to 256 bytes.
    pub message: String,
}

/// How far the Kubernetes Events on a pod of this node are known. Sent when a termination needs the Events, and again with the
/// answer: before the first update there was no request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodEventsUpdate {
    pub uid: PodUid,
    /// Time of the request; in an answer, time of the list request: the answer covers terminations before that.
    pub seen: Boot,
    pub state: PodEventsState,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodEventsState {
    /// No answer yet.
    Asked,
    /// Each Event of the API was sent, as a [`PodEvent`].
    Known,
    /// There may be more Events, and no further list is requested. `why` is bounded to 1 KiB.
    Unknown { why: String },
}

/// State of the watch of this node's pods. Sent at every change; the first one announces that pods will follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodsState {
    /// No answer yet, or the watch is interrupted, with the reason if there is one.
    Away { reason: Option<String> },
    /// All pods of the node have been sent, and changes follow.
    Synced,
}

/// The API server's wall clock minus this node's, within `[earliest, latest]` nanoseconds: from the `Date` header, which
/// gives whole seconds, narrowed over several answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiClock {
    pub earliest: i64,
    pub latest: i64,
}
