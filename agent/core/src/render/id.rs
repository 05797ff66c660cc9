//! Trace and span ids, derived by hashing: the same termination has the same ids in every process that reports it, before and
//! after a restart of the agent, so the spans meet in one trace without any communication.
//!
//! *Architecture invariant*: pure, and pinned by fixed vectors below. A change of what is hashed is a new version in the
//! domain (`epitaph/2/…`), never an edit.

use opentelemetry::trace::{SpanId, TraceId};
use sha2::{Digest, Sha256};

use crate::attribute::Subject;
use crate::ids::Pid;
use crate::ids::{ContainerId, PodUid};
use crate::kubernetes::PodContext;
use crate::pod::PodIdentity;
use crate::report::{StopSignalIgnored, Termination};
use crate::shutdown::ShutdownKey;
use crate::termination::TerminationKey;
use crate::time::{TICK_NS, Wall};
use crate::verdict::Cause;

/// The trace of one termination without Kubernetes.
///
/// `main` is the main process, where known: it separates two terminations of a unit if the main processes started within one
/// tick of [`TICK_NS`] (`RestartSec=0`).
pub fn trace_id(key: &TerminationKey, main: Option<Pid>) -> TraceId {
    let hash = Domain::new("epitaph/1/trace")
        .text(&key.boot_id)
        .number(key.cgroup.hierarchy.into())
        .number(key.cgroup.id)
        // An agent that started after the process knows the start from `/proc/PID/stat`; an agent that recorded the exec knows
        // the start exactly. Both must derive the same trace, so only the tick is hashed.
        .number(key.main_start.unwrap_or_default().0 / TICK_NS)
        .number(main.map_or(0, |pid| pid.0.into()))
        .finish();
    TraceId::from_bytes(non_zero(hash))
}

/// The trace of a pod's termination, reported by the agent of the node and by the observer.
///
/// `static_boot` is the boot id for a static pod, whose UID here is the config hash ([`PodIdentity::cgroup_uid`]): the hash
/// stays the same over reboots, so each boot has a trace of its own. None for any other pod.
pub fn pod_trace_id(uid: &PodUid, static_boot: Option<&str>) -> TraceId {
    let hash = Domain::new("epitaph/1/pod")
        .text(&uid.0)
        .text(static_boot.unwrap_or_default())
        .finish();
    TraceId::from_bytes(non_zero(hash))
}

/// [`pod_trace_id`] of a pod that terminated in this boot.
pub fn of_pod(pod: &PodIdentity, boot_id: &str) -> TraceId {
    pod_trace_id(&pod.cgroup_uid, pod.is_static.then_some(boot_id))
}

/// The trace of a container that terminated without its pod. `pod` is the UID in the cgroup's name.
pub fn container_trace_id(pod: &PodUid, container: &ContainerId) -> TraceId {
    let hash = Domain::new("epitaph/1/container").text(&pod.0).text(&container.0).finish();
    TraceId::from_bytes(non_zero(hash))
}

/// The trace of a termination that is reported separately: its own, or the trace of the pod if the pod's termination follows.
pub fn of(termination: &Termination) -> TraceId {
    if let Some(context) = termination.kubernetes.as_deref().filter(|_| termination.of_ending_pod) {
        return of_pod(&context.pod, &termination.key.boot_id);
    }
    own_trace(&termination.key, &termination.subject, termination.main.map(|main| main.tgid))
}

/// The trace of the termination that this early warning announces: the pod's if deletion of the whole pod was requested.
pub fn of_early(early: &StopSignalIgnored) -> TraceId {
    match early.kubernetes.as_deref().filter(|context| ends_the_pod(context)) {
        Some(context) => of_pod(&context.pod, &early.key.boot_id),
        None => own_trace(&early.key, &early.subject, early.main.map(|main| main.tgid)),
    }
}

/// From the cgroup's own name, so that no id depends on an answer of the API.
fn own_trace(key: &TerminationKey, subject: &Subject, main: Option<Pid>) -> TraceId {
    match subject {
        Subject::Container { id, pod: Some(pod), .. } => container_trace_id(pod, id),
        Subject::Container { .. } | Subject::Unit { .. } => trace_id(key, main),
    }
}

fn ends_the_pod(context: &PodContext) -> bool {
    let by_the_pod = |cause| {
        matches!(
            cause,
            Cause::Deleted
                | Cause::EvictedApi
                | Cause::EvictedNodePressure
                | Cause::EvictedTaint
                | Cause::EvictedPreempted
                | Cause::Deadline
                | Cause::NodeShutdown
        )
    };
    context.request.is_some()
        || context
            .stop_reason
            .as_ref()
            .is_some_and(|stop_reason| by_the_pod(stop_reason.cause))
}

/// The root of [`pod_trace_id`]: the parent of all spans that other processes add to a pod's trace.
pub fn pod_root(trace: TraceId) -> SpanId {
    span_id(trace, "pod.termination", 0)
}

/// The trace of a node's shutdown, and of the time in which the node was down after it.
pub fn node_trace_id(key: &ShutdownKey) -> TraceId {
    let hash = Domain::new("epitaph/1/node")
        .text(&key.boot_id)
        .number(key.ordinal.into())
        .finish();
    TraceId::from_bytes(non_zero(hash))
}

/// The root of [`node_trace_id`]: what the pods' traces link to.
pub fn node_root(trace: TraceId) -> SpanId {
    span_id(trace, "node.shutdown", 0)
}

/// The observer's root of a pod whose node was lost: in the pod's trace, beside the root of an agent that comes back.
pub fn pod_lost(trace: TraceId) -> SpanId {
    span_id(trace, "pod.lost", 0)
}

/// The trace of a node's loss, by the Node's UID and the time at which the API reports that it became not ready: the same for every
/// observer.
pub fn node_loss_trace_id(uid: &str, transition: Wall) -> TraceId {
    let hash = Domain::new("epitaph/1/node-loss").text(uid).number(transition.0).finish();
    TraceId::from_bytes(non_zero(hash))
}

/// The root of [`node_loss_trace_id`].
pub fn node_lost(trace: TraceId) -> SpanId {
    span_id(trace, "node.lost", 0)
}

/// A span of a trace. `discriminator` separates spans of one name in one trace; 0 if there is only one.
pub fn span_id(trace: TraceId, name: &str, discriminator: u64) -> SpanId {
    let hash = Domain::new("epitaph/1/span")
        .bytes(&trace.to_bytes())
        .text(name)
        .number(discriminator)
        .finish();
    SpanId::from_bytes(non_zero(hash))
}

/// A span about one container of a pod's trace: a restarted container has another id, and so have its spans.
pub fn container_span_id(trace: TraceId, name: &str, container: &ContainerId) -> SpanId {
    let hash = Domain::new("epitaph/1/span/container")
        .bytes(&trace.to_bytes())
        .text(name)
        .text(&container.0)
        .finish();
    SpanId::from_bytes(non_zero(hash))
}

/// A span about one Service of a pod's trace; the pod's namespace is the Service's.
pub fn service_span_id(trace: TraceId, name: &str, service: &str) -> SpanId {
    let hash = Domain::new("epitaph/1/span/service")
        .bytes(&trace.to_bytes())
        .text(name)
        .text(service)
        .finish();
    SpanId::from_bytes(non_zero(hash))
}

/// A hash of fields with clear borders: every text carries its length, numbers are 8 bytes, big endian.
struct Domain(Sha256);

impl Domain {
    fn new(name: &str) -> Domain {
        Domain(Sha256::new()).text(name)
    }
    fn bytes(mut self, bytes: &[u8]) -> Domain {
        self.0.update(bytes);
        self
    }
    fn number(self, n: u64) -> Domain {
        self.bytes(&n.to_be_bytes())
    }
    fn text(self, text: &str) -> Domain {
        self.number(text.len() as u64).bytes(text.as_bytes())
    }
    fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// The first bytes of a hash; the all-zero id means "none" in every tracing format.
fn non_zero<const N: usize>(hash: [u8; 32]) -> [u8; N] {
    let mut id = [0; N];
    id.copy_from_slice(&hash[..N]);
    if id == [0; N] {
        id[N - 1] = 1;
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::CgroupId;
    use crate::time::Boot;

    fn key(boot_id: &str, hierarchy: u32, id: u64, main_start: u64) -> TerminationKey {
        TerminationKey {
            boot_id: boot_id.into(),
            cgroup: CgroupId { hierarchy, id },
            main_start: Some(Boot(main_start)),
        }
    }

    fn uid() -> PodUid {
        PodUid("0f9c2c1e-6f0b-4a53-9a4e-1f2a3b4c5d6e".into())
    }

    fn container(digit: &str) -> ContainerId {
        ContainerId(digit.repeat(64).into())
    }

    const BOOT: &str = "5ad5ae73-41a8-4a0c-8b5c-3a1c2b0e0f11";

    /// An edit here breaks every trace that is half exported: take a new version of the domain instead.
    #[test]
    fn ids_never_change() {
        let trace = trace_id(&key(BOOT, 0, 4711, 1_234_567_890_123), Some(Pid(815)));
        assert_eq!(trace.to_string(), "2297e7361eb3d8c34363d744f73911d1");
        assert_eq!(
            trace_id(&key(BOOT, 1, 4711, 0), None).to_string(),
            "44b0cd7624e6ac31e0d5143039e1e746"
        );
        assert_eq!(span_id(trace, "container.stop", 0).to_string(), "d3720eedbfd00646");
        assert_eq!(span_id(trace, "SIGTERM → exit", 7).to_string(), "eb864a66387f5aea");

        let pod = pod_trace_id(&uid(), None);
        assert_eq!(pod.to_string(), "f413a7a4e46d1258ed4927cd46f8b039");
        assert_eq!(
            pod_trace_id(&uid(), Some(BOOT)).to_string(),
            "62ea91de59ebc61ff23ecfedabd1cd11"
        );
        assert_eq!(
            container_trace_id(&uid(), &container("a")).to_string(),
            "4d187b1a62014a4b42d740b5883e34ba"
        );
        let node = node_trace_id(&crate::fixtures::shutdowns::key());
        assert_eq!(node.to_string(), "e4e73e15a3dc9179fe4a3d4e42c0949d");
        assert_eq!(node_root(node).to_string(), "bdec28928fbb4e02");
        assert_eq!(pod_root(pod).to_string(), "284beb4525f2471a");
        assert_eq!(
            container_span_id(pod, "container.stop", &container("a")).to_string(),
            "bbd0db0c37c0e9bb"
        );
    }

    #[test]
    fn ids_of_lost_nodes_never_change() {
        let loss = node_loss_trace_id("5d1f0a86-1f0d-4a0b-8d6e-000000000007", Wall(1_795_261_450_000_000_000));
        expect_test::expect!["e47a62de4d8df1175efacddbfda5702b"].assert_eq(&loss.to_string());
        expect_test::expect!["54c1d5a6cd65c577"].assert_eq(&node_lost(loss).to_string());
        let pod = pod_trace_id(&uid(), None);
        expect_test::expect!["91a1c53dbd0ae492"].assert_eq(&pod_lost(pod).to_string());
        assert_ne!(pod_lost(pod), pod_root(pod));
    }

    #[test]
    fn every_field_separates_terminations() {
        let base = key(BOOT, 0, 4711, 1_000_000_000);
        let ids = [
            trace_id(&base, Some(Pid(1))),
            trace_id(&base, Some(Pid(2))),
            trace_id(&base, None),
            trace_id(
                &key("5ad5ae73-41a8-4a0c-8b5c-3a1c2b0e0f12", 0, 4711, 1_000_000_000),
                Some(Pid(1)),
            ),
            trace_id(&key(BOOT, 1, 4711, 1_000_000_000), Some(Pid(1))),
            trace_id(&key(BOOT, 0, 4712, 1_000_000_000), Some(Pid(1))),
            trace_id(&key(BOOT, 0, 4711, 1_010_000_000), Some(Pid(1))),
        ];
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
        assert_ne!(span_id(ids[0], "a", 0), span_id(ids[0], "a", 1));
        assert_ne!(span_id(ids[0], "a", 0), span_id(ids[0], "b", 0));
        assert_ne!(span_id(ids[0], "a", 0), span_id(ids[1], "a", 0));
    }

    #[test]
    fn pods_and_their_containers_have_different_ids() {
        let other = PodUid("0f9c2c1e-6f0b-4a53-9a4e-1f2a3b4c5d6f".into());
        let traces = [
            pod_trace_id(&uid(), None),
            pod_trace_id(&uid(), Some(BOOT)),
            pod_trace_id(&uid(), Some("5ad5ae73-41a8-4a0c-8b5c-3a1c2b0e0f12")),
            pod_trace_id(&other, None),
            container_trace_id(&uid(), &container("a")),
            container_trace_id(&uid(), &container("b")),
            container_trace_id(&other, &container("a")),
        ];
        let distinct: std::collections::HashSet<_> = traces.iter().collect();
        assert_eq!(distinct.len(), traces.len());
        let spans = [
            pod_root(traces[0]),
            container_span_id(traces[0], "container.stop", &container("a")),
            container_span_id(traces[0], "container.stop", &container("b")),
            container_span_id(traces[0], "preStop", &container("a")),
            container_span_id(traces[1], "container.stop", &container("a")),
        ];
        let distinct: std::collections::HashSet<_> = spans.iter().collect();
        assert_eq!(distinct.len(), spans.len());
    }

    #[test]
    fn a_start_read_from_proc_names_the_same_trace() {
        let exact = key(BOOT, 0, 4711, 98_765_432_109);
        let from_proc = key(BOOT, 0, 4711, 98_760_000_000);
        assert_eq!(trace_id(&exact, Some(Pid(1))), trace_id(&from_proc, Some(Pid(1))));
    }

    #[test]
    fn never_all_zero() {
        assert_eq!(non_zero::<8>([0; 32]), [0, 0, 0, 0, 0, 0, 0, 1]);
        let mut late = [0; 32];
        late[31] = 9;
        assert_eq!(non_zero::<16>(late)[15], 1);
    }
}
