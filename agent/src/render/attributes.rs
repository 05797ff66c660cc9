//! Every attribute of the spans, span events and resources: one table. `docs/attributes.md` is generated from it, and every span of
//! the tests is checked against it.

use std::fmt::Write as _;

/// What has the attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum On {
    Resource,
    /// A span, or an event of one.
    Span,
}

/// A value's type, as OpenTelemetry names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    String,
    Strings,
    Int,
    Double,
    Bool,
}

impl Type {
    pub const fn name(self) -> &'static str {
        match self {
            Type::String => "string",
            Type::Strings => "string[]",
            Type::Int => "int",
            Type::Double => "double",
            Type::Bool => "boolean",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    pub key: &'static str,
    pub on: On,
    pub value: Type,
    /// Empty where a unit makes no sense.
    pub unit: &'static str,
    pub meaning: &'static str,
}

macro_rules! table {
    ($($name:ident $key:literal $on:ident $value:ident $unit:literal $meaning:literal)*) => {
        /// The keys, as code names them.
        pub mod key {
            $(#[doc = $meaning] pub const $name: &str = $key;)*
        }
        /// The table, in the order of the docs.
        pub const ATTRIBUTES: &[Attribute] = &[
            $(Attribute { key: $key, on: On::$on, value: Type::$value, unit: $unit, meaning: $meaning },)*
        ];
    };
}

table! {
    SERVICE_NAME "service.name" Resource String "" "A pod's: its application's, as OpenTelemetry's conventions for Kubernetes compute it; else `epitaph`. `export.service_name` puts all under one. The agent's own spans: `epitaph-agent`, unless configured."
    SERVICE_NAMESPACE "service.namespace" Resource String "" "As the application's own; absent where `export.service_name` is set."
    SERVICE_VERSION "service.version" Resource String "" "As the application's own: an annotation, a label, else tag and digest of its first container's image; absent where `export.service_name` is set."
    SERVICE_INSTANCE_ID "service.instance.id" Resource String "" "What died: `<namespace>.<pod>` for a pod, `<namespace>.<pod>.<container>` for a container's own trace; without Kubernetes the container's id, or the unit's name."
    K8S_CLUSTER_NAME "k8s.cluster.name" Resource String "" "`export.cluster_name`: no API tells it."
    K8S_NODE_NAME "k8s.node.name" Resource String "" "The node on which it ran."
    K8S_NAMESPACE_NAME "k8s.namespace.name" Resource String "" "The pod's namespace."
    K8S_POD_NAME "k8s.pod.name" Resource String "" "The pod's name."
    K8S_POD_UID "k8s.pod.uid" Resource String "" "The pod's UID as the API has it; a static pod's is its mirror's."
    K8S_DEPLOYMENT_NAME "k8s.deployment.name" Resource String "" "The workload, where it is a Deployment."
    K8S_DEPLOYMENT_UID "k8s.deployment.uid" Resource String "" "Its UID, where known."
    K8S_REPLICASET_NAME "k8s.replicaset.name" Resource String "" "The ReplicaSet that made the pod."
    K8S_REPLICASET_UID "k8s.replicaset.uid" Resource String "" "Its UID, where known."
    K8S_STATEFULSET_NAME "k8s.statefulset.name" Resource String "" "The workload, where it is a StatefulSet."
    K8S_STATEFULSET_UID "k8s.statefulset.uid" Resource String "" "Its UID, where known."
    K8S_DAEMONSET_NAME "k8s.daemonset.name" Resource String "" "The workload, where it is a DaemonSet."
    K8S_DAEMONSET_UID "k8s.daemonset.uid" Resource String "" "Its UID, where known."
    K8S_JOB_NAME "k8s.job.name" Resource String "" "The Job that made the pod."
    K8S_JOB_UID "k8s.job.uid" Resource String "" "Its UID, where known."
    K8S_CRONJOB_NAME "k8s.cronjob.name" Resource String "" "The workload, where it is a CronJob."
    K8S_CRONJOB_UID "k8s.cronjob.uid" Resource String "" "Its UID, where known."
    WORKLOAD_KIND "epitaph.workload.kind" Resource String "" "Kind of the controller at the top of the pod's owners; `Pod` where it has none."
    WORKLOAD_NAME "epitaph.workload.name" Resource String "" "Its name."
    HOST_NAME "host.name" Resource String "" "The machine's host name; a pod has `k8s.node.name` instead."
    OS_TYPE "os.type" Resource String "" "`linux`."
    BOOT_ID "epitaph.boot_id" Resource String "" "The boot in which it died: `/proc/sys/kernel/random/boot_id`."
    TELEMETRY_SDK_LANGUAGE "telemetry.sdk.language" Resource String "" "`rust`."
    TELEMETRY_SDK_NAME "telemetry.sdk.name" Resource String "" "`opentelemetry`."
    TELEMETRY_SDK_VERSION "telemetry.sdk.version" Resource String "" "Version of the OpenTelemetry SDK whose data types were used."

    CONTAINER_ID "container.id" Span String "" "The container's id, 64 hex digits."
    CONTAINER_RUNTIME_NAME "container.runtime.name" Span String "" "`containerd`, `cri-o`, `docker`, `podman`; absent where the cgroup's name does not tell."
    CONTAINER_IMAGE_NAME "container.image.name" Span String "" "The image as the pod's spec names it, without tag and digest."
    CONTAINER_IMAGE_TAGS "container.image.tags" Span Strings "" "Its tag, where the spec gives one."
    CONTAINER_IMAGE_REPO_DIGESTS "container.image.repo_digests" Span Strings "" "Name and digest, where the spec gives one."
    K8S_CONTAINER_NAME "k8s.container.name" Span String "" "The container's name in the pod's spec."
    K8S_CONTAINER_RESTART_COUNT "k8s.container.restart_count" Span Int "" "Restarts before this death."
    K8S_CONTAINER_STATUS_REASON "k8s.container.status.reason" Span String "" "`state.terminated.reason`, once the API says it: a hint, `OOMKilled` is sticky."
    REPORTED_EXIT_CODE "epitaph.reported.exit_code" Span Int "" "`state.terminated.exitCode`, where the exit that the kernel saw does not give the same code (128 + n for a signal): a hint, 137 can be synthetic."
    CONTAINER_KIND "epitaph.container.kind" Span String "" "`init`, `sidecar` (an init container that restarts), `main`, `ephemeral`."
    MAINS_ENDED_AT "epitaph.mains_ended_at" Span String "" "Of a sidecar: when the last of the pod's main containers ended, RFC 3339; sidecars are stopped after that."
    SHARES_PID_NAMESPACE "epitaph.shares_pid_namespace" Span Bool "" "hostPID or shareProcessNamespace: its main process is no init."
    UNIT_NAME "epitaph.unit.name" Span String "" "The systemd unit's name."
    CGROUP_PATH "epitaph.cgroup.path" Span String "" "The subject's cgroup, from the root of its hierarchy."
    PROCESS_PID "process.pid" Span Int "" "The main process (on `oom`: the victim), in the initial pid namespace."
    PROCESS_VPID "process.vpid" Span Int "" "The main process, as it sees itself."
    PROCESS_EXECUTABLE_NAME "process.executable.name" Span String "" "Its name as the kernel has it (`comm`: 15 bytes, chosen by the process), escaped."
    PROCESS_CREATION_TIME "process.creation.time" Span String "" "When the main process started, RFC 3339."
    PROCESS_EXIT_CODE "process.exit.code" Span Int "" "Exit code of the main process (on `preStop`: of the hook); absent where a signal ended it."

    VERDICT "epitaph.verdict" Span String "" "The headline; `epitaph explain` says what each means."
    CAUSE "epitaph.cause" Span String "" "Why it had to end."
    EXIT "epitaph.exit" Span String "" "How it ended."
    TRAFFIC "epitaph.traffic" Span String "" "What its clients saw."
    UNCLEAN "epitaph.unclean" Span Bool "" "Somebody may have noticed; the span's status is then Error with the sentence."
    SEVERITY "epitaph.severity" Span String "" "`info`, `warning` or `critical`."
    SENTENCE "epitaph.sentence" Span String "" "What happened, in one sentence with the measured times."
    REMEDY "epitaph.remedy" Span String "" "What to change, with a number where one was measured."
    ADVICE "epitaph.advice" Span Strings "" "What could be set better, by measurement, also of a clean end: `<kind> <value> s: <text>`, the value where there is one."
    EVIDENCE "epitaph.evidence" Span Strings "" "Evidence that no attribute, event or span of the trace shows, in order of time: `+<ms after begin> ms <source>: <text>`. `--output json` lists all evidence."

    ASKED_CAUSE "epitaph.asked.cause" Span String "" "The cause by the Kubernetes API, where `epitaph.cause` differs."
    ASKED_EVIDENCE "epitaph.asked.evidence" Span String "" "Where the Kubernetes API has the cause: `deletionTimestamp`, a `DisruptionTarget` reason, `status.reason`, an Event. A container's span has it only where the root does not."
    REQUEST_EARLIEST "epitaph.request.earliest" Span String "" "The pod's deletion was asked for no earlier, RFC 3339, this node's clock: the API gives whole seconds on its own clock."
    REQUEST_LATEST "epitaph.request.latest" Span String "" "And no later."
    REQUEST_GRACE "epitaph.request.grace" Span Double "s" "`deletionGracePeriodSeconds` of the first request; later ones are events `grace.shortened`."
    API_CLOCK_AHEAD_LEAST "epitaph.api_clock.ahead.least" Span Double "s" "The API server's clock minus that of the node that tells the span, at least; absent where it was not measured."
    API_CLOCK_AHEAD_MOST "epitaph.api_clock.ahead.most" Span Double "s" "At most."
    GRACE "epitaph.grace" Span Double "s" "The grace that counted for this death; on `grace.shortened`: the new one."
    GRACE_LEFT "epitaph.grace_left" Span Double "s" "The grace that was left at the exit of the main process, 0 where the grace was used up; absent where the grace, or its begin, is not known."
    CONTAINERS "epitaph.containers" Span Int "{container}" "Containers that ended with the pod, each with a span."
    CONTAINERS_UNSEEN "epitaph.containers_unseen" Span Int "{container}" "Containers that ended by the API's word only, each an event `container.unseen` at the pod's end: no probe saw when."
    POD_STATIC "epitaph.pod.static" Span Bool "" "A static pod, made by the kubelet from a file."
    GONE_AT "epitaph.gone.at" Span String "" "When the API said that the pod is gone, RFC 3339."
    GONE_WATCHED "epitaph.gone.watched" Span Bool "" "The watch reported the removal; absent with `epitaph.gone.at`: a relist lacked the pod, so the removal was earlier."
    INCOMPLETE "epitaph.incomplete" Span Strings "" "Why the pod's side may be incomplete; absent where it is whole."
    PRESTOP_HOOK "epitaph.prestop.hook" Span String "" "`exec`, `httpGet`, `tcpSocket` or `sleep`; on the container's span only where the hook has no span."
    PRESTOP_PROGRAM "epitaph.prestop.program" Span String "" "First word of an `exec` hook's command; the rest is not kept."
    PRESTOP_PORT "epitaph.prestop.port" Span Int "" "Port of an `httpGet` or `tcpSocket` hook."
    PRESTOP_SLEEP "epitaph.prestop.sleep" Span Int "s" "Of a `sleep` hook."
    PRESTOP_SEEN "epitaph.prestop.seen" Span Bool "" "The hook's own process was seen; absent: the times are those of the wait for the hook."
    PRESTOP_FAILED "epitaph.prestop.failed" Span String "" "Message of the Event `FailedPreStopHook`, where one came."

    STOP_SIGNAL "epitaph.stop.signal" Span String "" "The first stop signal, by name."
    STOP_RESULT "epitaph.stop.result" Span String "" "What the kernel did with it: `delivered`, `ignored`, `already-pending`, `overflow-fail`, `lose-info`."
    STOP_DISPOSITION "epitaph.stop.disposition" Span String "" "What the process had for it: `handler`, `default`, `ignore`, `unknown`."
    STOP_STATE "epitaph.stop.state" Span Strings "" "State of the main process at that moment, of `blocked`, `stopped`, `frozen`, `exiting`, `traced`."
    STOP_REPEATED "epitaph.stop.repeated" Span Int "{signal}" "Later stop signals to the main process."
    STOP_SENDER_PID "epitaph.stop.sender.pid" Span Int "" "Who sent it; 0 is the kernel."
    STOP_SENDER_COMM "epitaph.stop.sender.comm" Span String "" "Its name (`comm`), escaped."
    STOP_SENDER_PARENT_PID "epitaph.stop.sender.parent.pid" Span Int "" "Its parent; absent where the sender is the runtime."
    STOP_SENDER_PARENT_COMM "epitaph.stop.sender.parent.comm" Span String "" "Its parent's name, escaped; absent where the sender is the runtime."
    STOP_SENDER_ROLE "epitaph.stop.sender.role" Span String "" "`runtime`, `itself`, `inside`, `other` or `kernel`."
    STOP_SENDER_PLACE "epitaph.stop.sender.place" Span String "" "Where it ran: a container, a unit, `host`, or `unknown`; absent where the sender is the runtime."
    STOP_SENDER_POD "epitaph.stop.sender.pod" Span String "" "Where that container is a pod's: `<namespace>/<name>`; absent where no status of a pod of this node names the container."
    STOP_SENDER_CONTAINER "epitaph.stop.sender.container" Span String "" "Its name in that pod's spec."
    KILL_SENDER_PID "epitaph.kill.sender.pid" Span Int "" "Who sent SIGKILL; 0 is the kernel."
    KILL_SENDER_COMM "epitaph.kill.sender.comm" Span String "" "Its name (`comm`), escaped."
    KILL_SENDER_PARENT_PID "epitaph.kill.sender.parent.pid" Span Int "" "Its parent; absent where the sender is the runtime."
    KILL_SENDER_PARENT_COMM "epitaph.kill.sender.parent.comm" Span String "" "Its parent's name, escaped; absent where the sender is the runtime."
    KILL_SENDER_ROLE "epitaph.kill.sender.role" Span String "" "As for the stop signal's sender."
    KILL_SENDER_PLACE "epitaph.kill.sender.place" Span String "" "As for the stop signal's sender."
    KILL_SENDER_POD "epitaph.kill.sender.pod" Span String "" "As for the stop signal's sender."
    KILL_SENDER_CONTAINER "epitaph.kill.sender.container" Span String "" "As for the stop signal's sender."
    KILL_BY_CGROUP "epitaph.kill.by_cgroup" Span Bool "" "SIGKILL came by `cgroup.kill`."
    STATUS_SIGNAL "epitaph.status.signal" Span String "" "The signal that ended the main process (on `preStop`: the hook), by name."
    STATUS_CORE_DUMPED "epitaph.status.core_dumped" Span Bool "" "The kernel set the core flag."
    OOM_KILLED "epitaph.oom.killed" Span Int "{process}" "Processes of the subject that the OOM killer took."
    OOM_MAIN "epitaph.oom.main" Span Bool "" "On `oom`: the victim was the main process."
    OTHER_EXITS "epitaph.other_exits" Span Int "{process}" "Other processes of the subject that ended between begin and end."

    CONNECTIONS_OBSERVED "epitaph.connections.observed" Span Bool "" "The sockets were observed all the time: a count below that is absent is 0. Absent: nothing is known of these counts."
    CONNECTIONS_ACCEPTED "epitaph.connections.accepted" Span Int "{connection}" "New connections accepted: from the pod's deletion request on, without one from the stop signal on."
    CONNECTIONS_REFUSED "epitaph.connections.refused" Span Int "{connection}" "Connections refused because nobody listened any more."
    CONNECTIONS_SINCE "epitaph.connections.since" Span String "" "When counting began, RFC 3339; absent where that is `epitaph.request.latest`, without a request the stop signal."
    ACCEPTED_FIRST_AT "epitaph.accepted.first_at" Span String "" "The first of the accepted, RFC 3339."
    ACCEPTED_LAST_AT "epitaph.accepted.last_at" Span String "" "The last: until then clients still came."
    CONNECTIONS_REFUSED_SOURCE "epitaph.connections.refused_source" Span String "" "How they were known: `server-reset`, or `client-error` on kernels before 6.12."
    CONNECTIONS_RESET "epitaph.connections.reset" Span Int "{connection}" "Established connections that its side reset."
    CONNECTIONS_RESET_QUEUED "epitaph.connections.reset_queued" Span Int "{connection}" "Of those: still waiting to be accepted when the listener closed."
    CONNECTIONS_CUT "epitaph.connections.cut" Span Int "{connection}" "Connections open at the death, closed by it with a FIN, and not provably idle."
    CONNECTIONS_CUT_UNANSWERED "epitaph.connections.cut_unanswered" Span Int "{connection}" "Of those: where the client's last bytes had got no answer."
    CONNECTIONS_IDLE_CLOSED "epitaph.connections.idle_closed" Span Int "{connection}" "Connections closed by the death where the server had spoken last."
    CONNECTIONS_REJECTED "epitaph.connections.rejected" Span Int "{connection}" "Connects from this node to its address that an ICMP error ended: a proxy's or a policy's REJECT, or no route. Those from other nodes are not seen here."
    KUBELET_KNOWN "epitaph.kubelet.known" Span Bool "" "The kubelet's own probes and hooks are counted apart: a count below that is absent is 0. Absent: they are among the clients' counts."
    KUBELET_ACCEPTED "epitaph.kubelet.accepted" Span Int "{connection}" "The kubelet's: accepted."
    KUBELET_REFUSED "epitaph.kubelet.refused" Span Int "{connection}" "The kubelet's: refused."
    KUBELET_BROKEN "epitaph.kubelet.broken" Span Int "{connection}" "The kubelet's: reset or cut."
    SERVER_ADDRESS "server.address" Span String "" "On `listener.closed`: the address it listened on."
    SERVER_PORT "server.port" Span Int "" "On `listener.closed` and `listener closed → exit`: the port it listened on."
    NETWORK_TRANSPORT "network.transport" Span String "" "`tcp`."
    LISTENER_BY_EXIT "epitaph.listener.by_exit" Span Bool "" "The listener was closed by the end of its process, not by close(2)."

    K8S_SERVICE_NAME "k8s.service.name" Span String "" "On `endpoint.removal`: the Service that the pod left; it is in the pod's namespace."
    SERVICE_PORTS "epitaph.service.ports" Span Strings "" "Ports of its EndpointSlices: `<name>/<protocol>:<port>`, without a name `<protocol>:<port>`."
    ENDPOINT_ADDRESS_TYPES "epitaph.endpoint.address_types" Span Strings "" "Of the slices that held the pod: `IPv4`, `IPv6`, `FQDN`."
    ENDPOINT_PUBLISH_NOT_READY "epitaph.endpoint.publish_not_ready_addresses" Span Bool "" "It was ready and terminating at once, as `publishNotReadyAddresses` makes it; absent where that was not seen."
    ENDPOINT_ALL_TERMINATING "epitaph.endpoint.all_terminating" Span Bool "" "For a part of the time no endpoint of the Service was ready and some were serving: kube-proxy then sends traffic to terminating pods, which is right."
    REPLACEMENT_POD_NAME "epitaph.replacement.pod.name" Span String "" "The pod that took the ended one's place."
    REPLACEMENT_POD_UID "epitaph.replacement.pod.uid" Span String "" "Its UID."
    REPLACEMENT_NODE_NAME "epitaph.replacement.node.name" Span String "" "Its node, where it got one."
    REPLACEMENT_RULE "epitaph.replacement.rule" Span String "" "How it is known: `next-of-replica-set`, `name-in-stateful-set`, `node-of-daemon-set`, `index-in-job`, `next-of-job`."
    REPLACEMENT_READY "epitaph.replacement.ready" Span Bool "" "It became ready; absent: the span ends with the pod, or ten minutes after the pod's creation."
    WATCH_GAP "epitaph.watch.gap" Span Double "s" "The watch was interrupted: of the span, its begin or end may be so much later than what it tells, of an event that one; absent where it was not."

    ENDED_BEFORE_BEGIN "epitaph.ended_before_begin" Span Double "s" "By what was told it ended so much before it began, and is shown without a length: one of the two times is known to a second only, or by another clock; absent where they agree."
    LOST "epitaph.lost" Span Strings "" "Kernel records lost while this went on, `<kind>=<count>`; absent where none was."
    OVER_CAP "epitaph.over_cap" Span Int "{fact}" "Facts counted but not kept, over the cap of one timeline."
    LATE_START "epitaph.late_start" Span Bool "" "It ran already when observation began: a stop signal may have come before."
    INACTIVE_PROBES "epitaph.inactive_probes" Span Strings "" "Probes that were not active, and that no other stood in for."
}

/// `docs/attributes.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Attributes\n\n\
         Made from the table in `agent/src/render/attributes.rs`; a test holds both equal (`UPDATE_EXPECT=1 cargo test -p epitaph attributes` \
         writes this file). Keys outside `epitaph.*` are OpenTelemetry's semantic conventions.\n\n\
         A flag that is false is absent, and a count that is 0. What was not measured is absent, too: where the difference matters, the \
         row of the count names the flag that proves a 0.\n",
    );
    for (on, title) in [(On::Resource, "Resource"), (On::Span, "Spans and their events")] {
        let _ = write!(text, "\n## {title}\n\n| key | type | unit | meaning |\n|---|---|---|---|\n");
        for a in ATTRIBUTES.iter().filter(|a| a.on == on) {
            let unit = if a.unit.is_empty() { "" } else { &format!("`{}`", a.unit) };
            let _ = writeln!(text, "| `{}` | {} | {unit} | {} |", a.key, a.value.name(), a.meaning);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_are_the_table() {
        expect_test::expect_file!["../../../docs/attributes.md"].assert_eq(&markdown());
    }

    /// A backend that nests keys cannot store a key that is also the namespace of another.
    #[test]
    fn no_key_is_another_ones_namespace() {
        for a in ATTRIBUTES {
            for b in ATTRIBUTES {
                assert!(
                    !b.key.starts_with(&format!("{}.", a.key)),
                    "{} is the namespace of {}",
                    a.key,
                    b.key
                );
            }
        }
        let keys: std::collections::HashSet<_> = ATTRIBUTES.iter().map(|a| a.key).collect();
        assert_eq!(keys.len(), ATTRIBUTES.len(), "a key twice");
    }
}
