//! A pod of the API → [`PodFact`]. Pure; an unknown part stays unknown, only a pod without a name is an error.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use epitaph_core::ids::{ContainerId, PodUid};
use epitaph_core::pod::{
    ContainerKind, ContainerSpec, ContainerState, ContainerStatus, Deletion, Disruption, Ended, KubeletProbe, KubeletProbeKind,
    Phase, PodFact, PodIdentity, PodOptions, PodSpec, PreStop, Ready, RestartAction, RestartPolicy, RestartRule, Workload,
};
use epitaph_core::time::{Boot, Wall};
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::owners::{REVISION_HASH, ROLLOUT_HASH, TEMPLATE_HASH};
use super::service;
use crate::source::bounded;

/// Longest name in Kubernetes.
const MAX_NAME: usize = 253;
const MAX_REASON: usize = 128;
/// Longest value of a label.
const MAX_REVISION: usize = 63;
pub(super) const MAX_MESSAGE: usize = 256;
const MAX_IMAGE: usize = 512;
const MAX_PROGRAM: usize = 256;
/// Most kept containers of one pod; the API's limit on an object's size allows some thousands.
const MAX_CONTAINERS: usize = 256;
const MAX_PORTS: usize = 64;
const MAX_RULES: usize = 20;
const MAX_CODES: usize = 255;
/// Most kept finalizers, and most kept claims, of one pod.
const MAX_KEPT: usize = 32;

/// Annotations of the kubelet on the mirror pods of static pods.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const HASH: &str = "kubernetes.io/config.hash";
const SOURCE: &str = "kubernetes.io/config.source";

/// None for an object without UID, name or namespace, which no API server sends.
pub(in crate::source) fn uid(pod: &api::Pod) -> Option<PodUid> {
    let uid = pod.metadata.uid.as_deref().filter(|uid| !uid.is_empty())?;
    pod.metadata.name.as_deref().zip(pod.metadata.namespace.as_deref())?;
    Some(pod_uid(uid))
}

/// The fields that never change. `node`: our node.
pub(in crate::source) fn identity(pod: &api::Pod, node: &str, workload: Workload) -> Option<PodIdentity> {
    let meta = &pod.metadata;
    let uid = uid(pod)?;
    let mirror = mirror(pod, node);
    let cgroup_uid = match mirror {
        Mirror::Of(hash) => pod_uid(hash),
        Mirror::OfManifestUid | Mirror::Claimed | Mirror::No => uid.clone(),
    };
    Some(PodIdentity {
        cgroup_uid,
        is_static: matches!(mirror, Mirror::Of(_) | Mirror::OfManifestUid),
        namespace: bounded(meta.namespace.as_deref()?, MAX_NAME),
        name: bounded(meta.name.as_deref()?, MAX_NAME),
        node: node.to_owned(),
        service: service::service(pod, &workload),
        workload,
        created: meta.creation_timestamp.as_ref().and_then(wall),
        revision: revision(pod),
        uid,
    })
}

/// Whoever creates a pod chooses its labels; their values have 63 characters at most.
fn revision(pod: &api::Pod) -> Option<Box<str>> {
    let labels = pod.metadata.labels.as_ref()?;
    let hash = [TEMPLATE_HASH, ROLLOUT_HASH, REVISION_HASH]
        .into_iter()
        .find_map(|label| labels.get(label))?;
    (!hash.is_empty()).then(|| bounded(hash, MAX_REVISION).into())
}

/// Whether a pod is the mirror of a static pod, which has cgroups of another UID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mirror<'a> {
    No,
    /// Of the static pod with this hash.
    Of(&'a str),
    /// Of a static pod with a UID in its manifest. Any pod can have such a UID, so only container ids in the status join the two.
    OfManifestUid,
    /// The annotation is there, but the kubelet of the node did not write it.
    Claimed,
}

/// Whoever creates a pod chooses its annotations. The kubelet's mirror pods also belong to their node (Kubernetes 1.17 and later),
/// and the hash is MD5 in hex, which is the UID of no pod that the API server creates.
pub(super) fn mirror<'a>(pod: &'a api::Pod, node: &str) -> Mirror<'a> {
    let meta = &pod.metadata;
    let annotation = |name: &str| meta.annotations.as_ref()?.get(name).filter(|value| !value.is_empty());
    let Some(mirror) = annotation(MIRROR) else {
        return Mirror::No;
    };
    let is_from_manifest = matches!(annotation(SOURCE).map(String::as_str), Some("file" | "http"));
    let is_of_node = match meta.owner_references.as_deref() {
        Some([owner]) => {
            owner.kind == "Node" && owner.api_version == "v1" && owner.name == node && owner.controller == Some(true)
        }
        _ => false,
    };
    let is_hash = |text: &str| text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    match annotation(HASH).filter(|hash| *hash == mirror && is_from_manifest && is_of_node) {
        Some(hash) if is_hash(hash) => Mirror::Of(hash),
        Some(_) => Mirror::OfManifestUid,
        None => Mirror::Claimed,
    }
}

/// One version of a pod, seen at `seen`.
pub(super) fn fact(pod: &api::Pod, identity: Arc<PodIdentity>, options: PodOptions, seen: Boot) -> PodFact {
    let status = pod.status.as_ref();
    PodFact {
        pod: identity,
        seen,
        spec: Arc::new(spec(pod, options)),
        deletion: deletion(pod),
        phase: match status.and_then(|s| s.phase.as_deref()) {
            Some("Pending") => Phase::Pending,
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            _ => Phase::Unknown,
        },
        reason: status.and_then(|s| reason(s.reason.as_deref())),
        restarting: status.is_some_and(restarting),
        finalizers: finalizers(pod),
        has_sandbox: status.and_then(has_sandbox),
        disruption: status.and_then(disruption),
        ready: status.and_then(ready),
        containers: status.map_or_else(Vec::new, statuses),
    }
}

fn spec(pod: &api::Pod, options: PodOptions) -> PodSpec {
    let ips = pod.status.as_ref().map_or_else(Vec::new, ips);
    let Some(spec) = &pod.spec else {
        return PodSpec {
            ips,
            options,
            ..PodSpec::default()
        };
    };
    PodSpec {
        grace: spec.termination_grace_period_seconds.and_then(seconds),
        priority: spec.priority,
        restart_policy: restart_policy(spec.restart_policy.as_deref()).unwrap_or_default(),
        host_network: spec.host_network == Some(true),
        host_pid: spec.host_pid == Some(true),
        share_process_namespace: spec.share_process_namespace == Some(true),
        ips,
        containers: containers(spec),
        claims: claims(spec, pod.metadata.name.as_deref().unwrap_or_default()),
        options,
    }
}

/// Whoever creates a pod chooses them.
fn finalizers(pod: &api::Pod) -> Vec<String> {
    let all = pod.metadata.finalizers.iter().flatten().take(MAX_KEPT);
    all.map(|name| bounded(name, MAX_NAME)).collect()
}

/// Names of the pod's claims. A generic ephemeral volume has a claim of the pod's and the volume's name.
pub(in crate::source) fn claims(spec: &api::PodSpec, pod: &str) -> Vec<String> {
    let volumes = spec.volumes.iter().flatten();
    let claims = volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{pod}-{}", volume.name)),
        (None, None) => None,
    });
    claims.take(MAX_KEPT).map(|name| bounded(&name, MAX_NAME)).collect()
}

fn restart_policy(text: Option<&str>) -> Option<RestartPolicy> {
    Some(match text? {
        "Never" => RestartPolicy::Never,
        "OnFailure" => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    })
}

/// The API server takes at most 20, with at most 255 codes each.
fn restart_rules(container: &api::Container) -> Vec<RestartRule> {
    let rules = container.restart_policy_rules.iter().flatten().take(MAX_RULES);
    let rule = |rule: &api::ContainerRestartRule| {
        let when = rule.exit_codes.as_ref()?;
        Some(RestartRule {
            action: match rule.action.as_str() {
                "Restart" => RestartAction::Restart,
                "RestartAllContainers" => RestartAction::RestartAllContainers,
                _ => RestartAction::Other,
            },
            is_in: match when.operator.as_str() {
                "In" => true,
                "NotIn" => false,
                _ => return None,
            },
            codes: when.values.iter().flatten().copied().take(MAX_CODES).collect(),
        })
    };
    rules.filter_map(rule).collect()
}

fn containers(spec: &api::PodSpec) -> Vec<ContainerSpec> {
    let init = spec.init_containers.iter().flatten().map(|container| {
        let kind = match container.restart_policy.as_deref() {
            Some("Always") => ContainerKind::Sidecar,
            _ => ContainerKind::Init,
        };
        self::container(container, kind)
    });
    let main = spec.containers.iter().map(|c| container(c, ContainerKind::Main));
    // The API accepts neither hooks nor probes nor ports for ephemeral containers.
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|c| ContainerSpec {
        name: bounded(&c.name, MAX_NAME),
        kind: ContainerKind::Ephemeral,
        image: bounded(c.image.as_deref().unwrap_or_default(), MAX_IMAGE),
        pre_stop: None,
        stop_signal: None,
        liveness: None,
        startup: None,
        readiness: None,
        ports: Vec::new(),
        restart_policy: None,
        restart_rules: Vec::new(),
    });
    init.chain(main).chain(ephemeral).take(MAX_CONTAINERS).collect()
}

fn container(container: &api::Container, kind: ContainerKind) -> ContainerSpec {
    let ports = container.ports.as_deref().unwrap_or_default();
    let probe = |probe: &Option<api::Probe>| probe.as_ref().and_then(|p| self::probe(p, ports));
    let lifecycle = container.lifecycle.as_ref();
    ContainerSpec {
        name: bounded(&container.name, MAX_NAME),
        kind,
        image: bounded(container.image.as_deref().unwrap_or_default(), MAX_IMAGE),
        pre_stop: lifecycle.and_then(|l| pre_stop(l.pre_stop.as_ref()?, ports)),
        stop_signal: lifecycle.and_then(|l| reason(l.stop_signal.as_deref())),
        liveness: probe(&container.liveness_probe),
        startup: probe(&container.startup_probe),
        readiness: probe(&container.readiness_probe),
        ports: ports
            .iter()
            .filter_map(|p| u16::try_from(p.container_port).ok())
            .take(MAX_PORTS)
            .collect(),
        restart_policy: restart_policy(container.restart_policy.as_deref()).filter(|_| kind != ContainerKind::Sidecar),
        restart_rules: restart_rules(container),
    }
}

fn pre_stop(handler: &api::LifecycleHandler, ports: &[api::ContainerPort]) -> Option<PreStop> {
    if let Some(exec) = &handler.exec {
        return Some(PreStop::Exec { program: program(exec) });
    }
    if let Some(get) = &handler.http_get {
        let port = port(&get.port, ports);
        return Some(PreStop::HttpGet { port });
    }
    if let Some(socket) = &handler.tcp_socket {
        let port = port(&socket.port, ports);
        return Some(PreStop::TcpSocket { port });
    }
    let seconds = u64::try_from(handler.sleep.as_ref()?.seconds).ok()?;
    Some(PreStop::Sleep { seconds })
}

fn probe(probe: &api::Probe, ports: &[api::ContainerPort]) -> Option<KubeletProbe> {
    let kind = if let Some(exec) = &probe.exec {
        KubeletProbeKind::Exec { program: program(exec) }
    } else if let Some(get) = &probe.http_get {
        let port = port(&get.port, ports);
        KubeletProbeKind::Network { port }
    } else if let Some(socket) = &probe.tcp_socket {
        let port = port(&socket.port, ports);
        KubeletProbeKind::Network { port }
    } else {
        let port = u16::try_from(probe.grpc.as_ref()?.port).ok();
        KubeletProbeKind::Network { port }
    };
    let grace = probe.termination_grace_period_seconds.and_then(seconds);
    Some(KubeletProbe { kind, grace })
}

fn program(exec: &api::ExecAction) -> String {
    let program = exec.command.as_ref().and_then(|command| command.first());
    bounded(program.map_or("", String::as_str), MAX_PROGRAM)
}

/// A named port is a port of the same container.
fn port(port: &IntOrString, ports: &[api::ContainerPort]) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => match ports.iter().find(|p| p.name.as_deref() == Some(name)) {
            Some(port) => port.container_port,
            None => name.parse().ok()?,
        },
    };
    u16::try_from(number).ok().filter(|port| *port != 0)
}

fn ips(status: &api::PodStatus) -> Vec<IpAddr> {
    let all = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
    let mut ips: Vec<IpAddr> = Vec::new();
    for ip in all.chain(status.pod_ip.as_deref()).filter_map(|ip| ip.parse().ok()) {
        if !ips.contains(&ip) && ips.len() < 8 {
            ips.push(ip);
        }
    }
    ips
}

pub(in crate::source) fn deletion(pod: &api::Pod) -> Option<Deletion> {
    let timestamp = wall(pod.metadata.deletion_timestamp.as_ref()?)?;
    let grace = pod.metadata.deletion_grace_period_seconds.and_then(seconds);
    Some(Deletion {
        timestamp,
        grace: grace.unwrap_or_default(),
    })
}

pub(in crate::source) fn disruption(status: &api::PodStatus) -> Option<Disruption> {
    let mut conditions = status.conditions.iter().flatten();
    let target = conditions.find(|c| c.type_ == "DisruptionTarget" && c.status == "True")?;
    Some(Disruption {
        reason: bounded(target.reason.as_deref().unwrap_or_default(), MAX_REASON),
        message: bounded(target.message.as_deref().unwrap_or_default(), MAX_MESSAGE),
    })
}

/// The pod restarts in place (Kubernetes 1.35).
fn restarting(status: &api::PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|c| c.type_ == "AllContainersRestarting" && c.status == "True")
}

/// The pod's sandbox is there, and its network is set up (by default since Kubernetes 1.29).
fn has_sandbox(status: &api::PodStatus) -> Option<bool> {
    let mut conditions = status.conditions.iter().flatten();
    let condition = conditions.find(|c| c.type_ == "PodReadyToStartContainers")?;
    match condition.status.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

fn ready(status: &api::PodStatus) -> Option<Ready> {
    let ready = status.conditions.iter().flatten().find(|c| c.type_ == "Ready")?;
    let is_ready = match ready.status.as_str() {
        "True" => true,
        "False" => false,
        _ => return None,
    };
    let since = wall(ready.last_transition_time.as_ref()?)?;
    Some(Ready {
        is_ready,
        since,
        last_start: if is_ready { None } else { last_start(status, since) },
    })
}

/// See [`Ready::last_start`].
fn last_start(status: &api::PodStatus, since: Wall) -> Option<Wall> {
    // The kubelet writes it together with its first conditions.
    let reported = wall(status.start_time.as_ref()?)?;
    let statuses = status.container_statuses.iter().flatten().take(MAX_CONTAINERS);
    let started = statuses.filter_map(|s| {
        let states = [&s.state, &s.last_state].into_iter().flatten();
        let starts = states.filter_map(started).filter(|at| *at <= since);
        starts.max()
    });
    Some(started.min()?.max(reported))
}

fn started(state: &api::ContainerState) -> Option<Wall> {
    let running = state.running.as_ref().and_then(|running| running.started_at.as_ref());
    let terminated = state.terminated.as_ref().and_then(|ended| ended.started_at.as_ref());
    wall(running.or(terminated)?)
}

fn statuses(status: &api::PodStatus) -> Vec<ContainerStatus> {
    [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ]
    .into_iter()
    .flatten()
    .flatten()
    .take(MAX_CONTAINERS)
    .map(|s| ContainerStatus {
        name: bounded(&s.name, MAX_NAME),
        id: container_id(s.container_id.as_deref()),
        restarts: u32::try_from(s.restart_count).unwrap_or(0),
        state: state(s.state.as_ref()),
        last: s.last_state.as_ref().and_then(|last| last.terminated.as_ref()).map(ended),
        stop_signal: reason(s.stop_signal.as_deref()),
    })
    .collect()
}

/// Without any of the three states the container is waiting, as the API defines.
fn state(state: Option<&api::ContainerState>) -> ContainerState {
    match state {
        Some(api::ContainerState { terminated: Some(t), .. }) => ContainerState::Terminated(ended(t)),
        Some(api::ContainerState { running: Some(_), .. }) => ContainerState::Running,
        other => ContainerState::Waiting {
            reason: other.and_then(|s| reason(s.waiting.as_ref()?.reason.as_deref())),
        },
    }
}

fn ended(terminated: &api::ContainerStateTerminated) -> Ended {
    Ended {
        id: container_id(terminated.container_id.as_deref()),
        exit_code: terminated.exit_code,
        reason: reason(terminated.reason.as_deref()),
    }
}

/// `containerd://<64 hex>`, `cri-o://…`, `docker://…`.
fn container_id(text: Option<&str>) -> Option<ContainerId> {
    let (_, id) = text?.split_once("://")?;
    let is_id = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then(|| ContainerId(id.to_ascii_lowercase().into()))
}

fn pod_uid(text: &str) -> PodUid {
    PodUid(bounded(text, MAX_NAME).into())
}

fn reason(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(|text| bounded(text, MAX_REASON))
}

fn seconds(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

pub(in crate::source) fn wall(time: &Time) -> Option<Wall> {
    u64::try_from(time.0.as_nanosecond()).ok().map(Wall)
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
