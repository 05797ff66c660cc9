//! Every attribute of the spans, span events and resources: one table. `docs/attributes.md` is generated from it, and every span of
//! the tests is checked against it.

use std::fmt::Write as _;

/// The record that carries the attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum On {
    Resource,
    /// A span, or a span event.
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
    /// UCUM; empty if a unit makes no sense.
    pub unit: &'static str,
    pub meaning: &'static str,
}

macro_rules! table {
    ($($name:ident $key:literal $on:ident $value:ident $unit:literal $meaning:literal)*) => {
        /// The keys, as constants.
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
    SERVICE_NAME "service.name" Resource String "" "For a pod: the name of the application, by the rules of OpenTelemetry's conventions for Kubernetes. Without a pod: `epitaph`. `export.service_name` sets one name for all terminations. The agent's own spans have `epitaph-agent`, unless another name is configured."
    SERVICE_NAMESPACE "service.namespace" Resource String "" "The namespace of the application, by the rules of OpenTelemetry's conventions for Kubernetes; absent if `export.service_name` is set."
    SERVICE_VERSION "service.version" Resource String "" "The version of the application: an annotation, a label, otherwise tag and digest of the first container's image; absent if `export.service_name` is set."
    SERVICE_INSTANCE_ID "service.instance.id" Resource String "" "What terminated: `<namespace>.<pod>` for a pod, `<namespace>.<pod>.<container>` for a trace of one container; without Kubernetes the container id or the name of the unit."
    K8S_CLUSTER_NAME "k8s.cluster.name" Resource String "" "The value of `export.cluster_name`: no API reports the name of the cluster."
    K8S_NODE_NAME "k8s.node.name" Resource String "" "Name of the node on which the pod ran."
    K8S_NODE_UID "k8s.node.uid" Resource String "" "On the trace of a lost node: the UID of its Node object."
    K8S_NAMESPACE_NAME "k8s.namespace.name" Resource String "" "The pod's namespace."
    K8S_POD_NAME "k8s.pod.name" Resource String "" "The pod's name."
    K8S_POD_UID "k8s.pod.uid" Resource String "" "The pod's UID in the API; for a static pod the UID of the mirror pod."
    K8S_DEPLOYMENT_NAME "k8s.deployment.name" Resource String "" "Name of the Deployment, if the pod's workload is one."
    K8S_DEPLOYMENT_UID "k8s.deployment.uid" Resource String "" "The UID of the Deployment, if known."
    K8S_REPLICASET_NAME "k8s.replicaset.name" Resource String "" "Name of the ReplicaSet that created the pod."
    K8S_REPLICASET_UID "k8s.replicaset.uid" Resource String "" "The UID of the ReplicaSet, if known."
    K8S_STATEFULSET_NAME "k8s.statefulset.name" Resource String "" "Name of the StatefulSet, if the pod's workload is one."
    K8S_STATEFULSET_UID "k8s.statefulset.uid" Resource String "" "The UID of the StatefulSet, if known."
    K8S_DAEMONSET_NAME "k8s.daemonset.name" Resource String "" "Name of the DaemonSet, if the pod's workload is one."
    K8S_DAEMONSET_UID "k8s.daemonset.uid" Resource String "" "The UID of the DaemonSet, if known."
    K8S_JOB_NAME "k8s.job.name" Resource String "" "Name of the Job that created the pod."
    K8S_JOB_UID "k8s.job.uid" Resource String "" "The UID of the Job, if known."
    K8S_CRONJOB_NAME "k8s.cronjob.name" Resource String "" "Name of the CronJob, if the pod's workload is one."
    K8S_CRONJOB_UID "k8s.cronjob.uid" Resource String "" "The UID of the CronJob, if known."
    WORKLOAD_KIND "epitaph.workload.kind" Resource String "" "Kind of the topmost controller among the pod's owners; `Pod` for a pod without a controller."
    WORKLOAD_NAME "epitaph.workload.name" Resource String "" "Name of the topmost controller among the pod's owners; for a pod without a controller the name of the pod."
    HOST_NAME "host.name" Resource String "" "The host name of the machine; a pod has `k8s.node.name` instead."
    OS_TYPE "os.type" Resource String "" "`linux`."
    BOOT_ID "epitaph.boot_id" Resource String "" "The boot during which the termination happened: `/proc/sys/kernel/random/boot_id`."
    TELEMETRY_SDK_LANGUAGE "telemetry.sdk.language" Resource String "" "`rust`."
    TELEMETRY_SDK_NAME "telemetry.sdk.name" Resource String "" "`opentelemetry`."
    TELEMETRY_SDK_VERSION "telemetry.sdk.version" Resource String "" "Version of the OpenTelemetry SDK whose data types were used."

    CONTAINER_ID "container.id" Span String "" "The container id, 64 hex digits."
    CONTAINER_RUNTIME_NAME "container.runtime.name" Span String "" "`containerd`, `cri-o`, `docker`, `podman`; absent if the name of the cgroup does not identify the runtime."
    CONTAINER_NAME "container.name" Span String "" "The container's name in the files of its runtime; in a pod the name in the spec."
    CONTAINER_IMAGE_NAME "container.image.name" Span String "" "The image in the pod's spec, otherwise in the files of the runtime, without tag and digest."
    CONTAINER_IMAGE_TAGS "container.image.tags" Span Strings "" "The tag of the image in the pod's spec, otherwise in the files of the runtime; absent if there is no tag."
    CONTAINER_IMAGE_REPO_DIGESTS "container.image.repo_digests" Span Strings "" "Name and digest of the image in the pod's spec, otherwise in the files of the runtime; absent if there is no digest."
    CONTAINER_COMMAND "container.command" Span String "" "The program of the container's first process; only with `containers.command`, because arguments can be secret."
    CONTAINER_COMMAND_ARGS "container.command_args" Span Strings "" "All arguments of the container's first process, the program included; only with `containers.command`."
    CONTAINER_STOP_SIGNAL "epitaph.container.stop_signal" Span String "" "The declared stop signal of the container: from the pod's status or spec (`lifecycle.stopSignal`, Kubernetes 1.33), otherwise from the files of the runtime (Docker, Podman, CRI-O)."
    CONTAINER_SANDBOX "epitaph.container.sandbox" Span Bool "" "True: this is the pod's sandbox (pause) container."
    K8S_CONTAINER_NAME "k8s.container.name" Span String "" "The container's name in the pod's spec."
    K8S_CONTAINER_RESTART_COUNT "k8s.container.restart_count" Span Int "" "Restarts before this termination."
    K8S_CONTAINER_STATUS_REASON "k8s.container.status.reason" Span String "" "`state.terminated.reason` in the pod's status. It proves nothing, because the API keeps an earlier `OOMKilled`."
    REPORTED_EXIT_CODE "epitaph.reported.exit_code" Span Int "" "`state.terminated.exitCode` in the pod's status. It proves nothing, because the kubelet can make up the code 137. Absent if the exit observed by the kernel gives the same code (128 + n for a signal)."
    REPORTED_DISAGREES "epitaph.reported.disagrees" Span String "" "What kubectl shows of the exit, and what the kernel recorded; present only if the two differ. Example: `kubectl shows OOMKilled; the kernel: exited with 0 at SIGTERM`. docs/exit-codes.md explains which of the two is right."
    CONTAINER_KIND "epitaph.container.kind" Span String "" "`init`, `sidecar` (an init container that restarts), `main`, `ephemeral`."
    MAINS_ENDED_AT "epitaph.mains_ended_at" Span String "" "For a sidecar: when the last main container of the pod exited, RFC 3339. Kubernetes stops sidecars after this exit."
    SHARES_PID_NAMESPACE "epitaph.shares_pid_namespace" Span Bool "" "True: the pod uses hostPID or shareProcessNamespace, so the main process is not PID 1."
    UNIT_NAME "epitaph.unit.name" Span String "" "The name of the systemd unit."
    CGROUP_PATH "epitaph.cgroup.path" Span String "" "The cgroup of the container or unit, from the root of the hierarchy."
    PROCESS_PID "process.pid" Span Int "" "The pid of the main process in the initial pid namespace, as `ps` on the node shows it. On `oom`: the pid of the victim. On `forwarded SIGTERM`: the pid of the process that got the signal."
    PROCESS_VPID "process.vpid" Span Int "" "The pid of the main process in its own pid namespace."
    PROCESS_EXECUTABLE_NAME "process.executable.name" Span String "" "The name of the process in the kernel (`comm`: 15 bytes, chosen by the process), escaped."
    PROCESS_CREATION_TIME "process.creation.time" Span String "" "When the main process started, RFC 3339."
    PROCESS_EXIT_CODE "process.exit.code" Span Int "" "Exit code of the main process (on `preStop`: of the hook); absent if a signal terminated the process."

    VERDICT "epitaph.verdict" Span String "" "The verdict; `epitaph explain` describes each."
    CAUSE "epitaph.cause" Span String "" "Why the container or unit terminated."
    EXIT "epitaph.exit" Span String "" "How the main process exited."
    TRAFFIC "epitaph.traffic" Span String "" "What clients saw."
    UNCLEAN "epitaph.unclean" Span Bool "" "True: clients or data may be affected. The status of the span is then Error, and the description of the status is the sentence."
    SEVERITY "epitaph.severity" Span String "" "`info`, `warning` or `critical`."
    SENTENCE "epitaph.sentence" Span String "" "What happened, in one sentence with the measured times."
    REMEDY "epitaph.remedy" Span String "" "What to change, with the measured number if one exists."
    ADVICE "epitaph.advice" Span Strings "" "Settings that measurements show to be wrong or tight, also after a clean termination: `<kind> <value> s: <text>`, with the value if one exists."
    EVIDENCE "epitaph.evidence" Span Strings "" "Evidence that no attribute, event or span of the trace shows, in order of time: `+<ms after begin> ms <source>: <text>`. `--output json` lists all evidence."

    ASKED_CAUSE "epitaph.asked.cause" Span String "" "The cause according to the Kubernetes API; absent if equal to `epitaph.cause`."
    ASKED_EVIDENCE "epitaph.asked.evidence" Span String "" "The source of the cause in the Kubernetes API: `deletionTimestamp`, a `DisruptionTarget` reason, `status.reason`, an Event; on the span of a container only if the root span does not have the attribute."
    REQUEST_EARLIEST "epitaph.request.earliest" Span String "" "The earliest possible time of the pod's deletion request, RFC 3339, on this node's clock. The exact time is not known, because the API reports whole seconds on its own clock."
    REQUEST_LATEST "epitaph.request.latest" Span String "" "The latest possible time of the pod's deletion request, RFC 3339, on this node's clock."
    REQUEST_GRACE "epitaph.request.grace" Span Double "s" "`deletionGracePeriodSeconds` of the first deletion request; later requests are events `grace.shortened`."
    REQUEST_SPEC_GRACE "epitaph.request.spec_grace" Span Double "s" "`terminationGracePeriodSeconds` of the pod, if the first deletion request asked for another grace period."
    REQUEST_ASKER "epitaph.request.asker" Span String "" "Who requested the deletion, if an Event on the pod names the requester: `cluster-autoscaler` (the autoscaler announced an eviction in the two minutes before), `karpenter`."
    API_CLOCK_AHEAD_LEAST "epitaph.api_clock.ahead.least" Span Double "s" "Lower bound of the difference between two clocks: the API server's clock minus the clock of the node that exported the span. Absent if not measured."
    API_CLOCK_AHEAD_MOST "epitaph.api_clock.ahead.most" Span Double "s" "Upper bound of the difference between two clocks: the API server's clock minus the clock of the node that exported the span."
    GRACE "epitaph.grace" Span Double "s" "The grace period that applied to this termination; on `grace.shortened`: the new grace period."
    GRACE_LEFT "epitaph.grace_left" Span Double "s" "The part of the grace period that was left at the exit of the main process, 0 if the grace period was used up; absent if the grace period or its begin is not known."
    CONTAINERS "epitaph.containers" Span Int "{container}" "Containers that terminated with the pod, each with a span."
    CONTAINERS_UNSEEN "epitaph.containers_unseen" Span Int "{container}" "Containers whose exit is known only from the pod's status. Each has an event `container.unseen` at the end of the pod's span, because the time of the exit was not observed."
    POD_STATIC "epitaph.pod.static" Span Bool "" "True: a static pod, which the kubelet created from a file."
    GONE_AT "epitaph.gone.at" Span String "" "When the API server reported the pod as deleted, RFC 3339."
    GONE_WATCHED "epitaph.gone.watched" Span Bool "" "True: the watch reported the deletion. Absent although `epitaph.gone.at` is present: a later list no longer had the pod, so the deletion happened some time before that."
    INCOMPLETE "epitaph.incomplete" Span Strings "" "Why the Kubernetes context may be incomplete; absent if complete."
    PRESTOP_HOOK "epitaph.prestop.hook" Span String "" "The kind of the hook: `exec`, `httpGet`, `tcpSocket` or `sleep`; on the span of the container only if the hook has no span."
    PRESTOP_PROGRAM "epitaph.prestop.program" Span String "" "First word of the command of an `exec` hook; the agent does not keep the rest of the command."
    PRESTOP_PORT "epitaph.prestop.port" Span Int "" "Port of an `httpGet` or `tcpSocket` hook."
    PRESTOP_SLEEP "epitaph.prestop.sleep" Span Int "s" "Duration of a `sleep` hook."
    PRESTOP_SEEN "epitaph.prestop.seen" Span Bool "" "True: the process of the hook was observed. Absent: the process was not observed, and the times of the span are the times during which the kubelet waited for the hook."
    PRESTOP_FAILED "epitaph.prestop.failed" Span String "" "Message of the Event `FailedPreStopHook`, if there was one."

    STOP_SIGNAL "epitaph.stop.signal" Span String "" "The first stop signal, by name."
    STOP_RESULT "epitaph.stop.result" Span String "" "What the kernel did with the stop signal: `delivered`, `ignored`, `already-pending`, `overflow-fail`, `lose-info`."
    STOP_DISPOSITION "epitaph.stop.disposition" Span String "" "What the process had set for the stop signal: `handler`, `default`, `ignore`, `unknown`."
    STOP_STATE "epitaph.stop.state" Span Strings "" "State of the process when the stop signal was sent, any of `blocked`, `stopped`, `frozen`, `exiting`, `traced`, `sigwait` (waits for the signal without a handler)."
    STOP_REPEATED "epitaph.stop.repeated" Span Int "{signal}" "Later stop signals to the main process."
    STOP_SENDER_PID "epitaph.stop.sender.pid" Span Int "" "The pid of the sender of the stop signal; 0 is the kernel."
    STOP_SENDER_COMM "epitaph.stop.sender.comm" Span String "" "Name of the sender in the kernel (`comm`), escaped."
    STOP_SENDER_PARENT_PID "epitaph.stop.sender.parent.pid" Span Int "" "The pid of the sender's parent; absent if the role of the sender is `runtime`."
    STOP_SENDER_PARENT_COMM "epitaph.stop.sender.parent.comm" Span String "" "Name of the sender's parent, escaped; absent if the role of the sender is `runtime`."
    STOP_SENDER_ROLE "epitaph.stop.sender.role" Span String "" "What the sender was: `runtime` (the container runtime, or systemd for a unit), `itself` (the process that got the signal), `inside` (another process of the container or unit), `other` (any other process), `kernel`, or `unknown` (the kernel made the signal for a timer or a file: pid 0 and no name)."
    STOP_SENDER_PLACE "epitaph.stop.sender.place" Span String "" "Where the sender ran: a container, a unit, `host`, or `unknown`; absent if the role of the sender is `runtime`."
    STOP_SENDER_POD "epitaph.stop.sender.pod" Span String "" "The pod of the container in which the sender ran: `<namespace>/<name>`; absent if no pod status of this node names this container."
    STOP_SENDER_CONTAINER "epitaph.stop.sender.container" Span String "" "Name, in the pod's spec, of the container in which the sender ran."
    KILL_SENDER_PID "epitaph.kill.sender.pid" Span Int "" "The pid of the sender of SIGKILL; 0 is the kernel."
    KILL_SENDER_COMM "epitaph.kill.sender.comm" Span String "" "Name of the sender in the kernel (`comm`), escaped."
    KILL_SENDER_PARENT_PID "epitaph.kill.sender.parent.pid" Span Int "" "The pid of the sender's parent; absent if the role of the sender is `runtime`."
    KILL_SENDER_PARENT_COMM "epitaph.kill.sender.parent.comm" Span String "" "Name of the sender's parent, escaped; absent if the role of the sender is `runtime`."
    KILL_SENDER_ROLE "epitaph.kill.sender.role" Span String "" "What the sender of SIGKILL was: one of the values of `epitaph.stop.sender.role`."
    KILL_SENDER_PLACE "epitaph.kill.sender.place" Span String "" "Where the sender of SIGKILL ran: a container, a unit, `host`, or `unknown`; absent if the role of the sender is `runtime`."
    KILL_SENDER_POD "epitaph.kill.sender.pod" Span String "" "The pod of the container in which the sender of SIGKILL ran: `<namespace>/<name>`; absent if no pod status of this node names this container."
    KILL_SENDER_CONTAINER "epitaph.kill.sender.container" Span String "" "Name, in the pod's spec, of the container in which the sender of SIGKILL ran."
    KILL_BY_CGROUP "epitaph.kill.by_cgroup" Span Bool "" "True: SIGKILL was sent through `cgroup.kill`."
    STATUS_SIGNAL "epitaph.status.signal" Span String "" "The signal that terminated the main process (on `preStop`: the hook), by name."
    STATUS_CORE_DUMPED "epitaph.status.core_dumped" Span Bool "" "True: the exit status in the kernel has the flag for a core dump."
    OOM_KILLED "epitaph.oom.killed" Span Int "{process}" "Processes of the container or unit that the OOM killer killed."
    OOM_ROLE "epitaph.oom.role" Span String "" "What the victim was: `main` (the main process), `worker` (another process of the program, with sockets of clients), `helper` (another process of the program, without such sockets), `process` (whether it had such sockets is not known), `unattributed` (nothing shows whether the program or a process from outside started it). A victim from outside is `exec-probe`, `pre-stop`, `exec-session`, `from-outside` (one of these three), or `runtime` (the container runtime's own process)."
    OOM_MAIN "epitaph.oom.main" Span Bool "" "On `oom`: true if the victim was the main process."
    OTHER_EXITS "epitaph.other_exits" Span Int "{process}" "Other processes of the container or unit that exited between begin and end."

    CONNECTIONS_OBSERVED "epitaph.connections.observed" Span Bool "" "True: the sockets were observed from begin to end, so an `epitaph.connections.*` count that is absent is 0. Absent: the counts are not complete, and have only the losses that were observed."
    CONNECTIONS_AT_LEAST "epitaph.connections.at_least" Span Bool "" "True: more connections may have been lost than are counted, because some sockets were not observed, or because clients were still refused when counting stopped."
    CONNECTIONS_ACCEPTED "epitaph.connections.accepted" Span Int "{connection}" "New connections accepted since the pod's deletion request, or since the stop signal if there was no request."
    CONNECTIONS_REFUSED "epitaph.connections.refused" Span Int "{connection}" "Connections refused because the listener had closed."
    CONNECTIONS_SINCE "epitaph.connections.since" Span String "" "The time from which the `epitaph.connections.*` counts count, RFC 3339. Absent if they count from `epitaph.request.latest`, or, without a deletion request, from the stop signal."
    ACCEPTED_FIRST_AT "epitaph.accepted.first_at" Span String "" "When the first new connection was accepted, RFC 3339."
    ACCEPTED_LAST_AT "epitaph.accepted.last_at" Span String "" "When the last new connection was accepted, RFC 3339."
    CONNECTIONS_REFUSED_SOURCE "epitaph.connections.refused_source" Span String "" "How the refused connections were observed: `server-reset`, or `client-error` on kernels that do not show the resets of a closed port."
    CONNECTIONS_REFUSED_NEW_PEERS "epitaph.connections.refused_new_peers" Span Int "{connection}" "How many of the refused connections came from peers that had not connected before, while the sockets were observed: new clients, or a scan. Advice does not count these connections. Also absent if no earlier connection was observed, because new peers cannot be recognized then."
    CONNECTIONS_PEERS "epitaph.connections.peers" Span Strings "" "At most 5 peers with refused, reset or dropped connections; peers that had connected before come first: `<address> <place>: <n> refused, <n> reset, <n> cut`, and `, new` for a peer that had not connected before. Place: `itself` (loopback, or the same address), `node` (this node), `pod <namespace>/<name>` (a pod of this node), `elsewhere` (all else: an agent knows the pods of its own node only)."
    CONNECTIONS_PEERS_MORE "epitaph.connections.peers_more" Span Int "{peer}" "Number of further peers with refused, reset or dropped connections, which `epitaph.connections.peers` does not list."
    CONNECTIONS_RESET "epitaph.connections.reset" Span Int "{connection}" "Established connections that the container or unit reset."
    CONNECTIONS_RESET_QUEUED "epitaph.connections.reset_queued" Span Int "{connection}" "How many of the reset connections were in the accept queue when the listener closed."
    CONNECTIONS_CUT "epitaph.connections.cut" Span Int "{connection}" "Open connections dropped at exit: closed by a FIN, with an unanswered request."
    CONNECTIONS_CUT_UNANSWERED "epitaph.connections.cut_unanswered" Span Int "{connection}" "Always equal to `epitaph.connections.cut`: every cut connection has an unanswered request."
    CONNECTIONS_UNDECIDED "epitaph.connections.undecided" Span Int "{connection}" "Connections that were still open at the exit, after the server had sent the last bytes. They were idle, or a request or an answer was under way; the kernel cannot tell these cases apart."
    CONNECTIONS_IDLE_CLOSED "epitaph.connections.idle_closed" Span Int "{connection}" "Connections closed at exit on which neither side had sent a byte."
    CONNECTIONS_REJECTED "epitaph.connections.rejected" Span Int "{connection}" "Attempts to connect from this node to the address of the container or unit that ended with an ICMP error: because of a REJECT rule of a proxy or a policy, or because there is no route. Attempts from other nodes are not observed here."
    KUBELET_KNOWN "epitaph.kubelet.known" Span Bool "" "True: connections of the kubelet (its probes and hooks) are counted separately, so an `epitaph.kubelet.*` count that is absent is 0. Absent: these connections are included in the counts of clients."
    KUBELET_ACCEPTED "epitaph.kubelet.accepted" Span Int "{connection}" "Connections of the kubelet that were accepted."
    KUBELET_REFUSED "epitaph.kubelet.refused" Span Int "{connection}" "Connections of the kubelet that were refused."
    KUBELET_BROKEN "epitaph.kubelet.broken" Span Int "{connection}" "Connections of the kubelet that were reset or dropped at exit."
    SERVER_ADDRESS "server.address" Span String "" "On `listener.closed`: the address of the listener."
    SERVER_PORT "server.port" Span Int "" "On `listener.closed` and `listener closed → exit`: the port of the listener."
    NETWORK_TRANSPORT "network.transport" Span String "" "`tcp`."
    LISTENER_BY_EXIT "epitaph.listener.by_exit" Span Bool "" "True: the exit of the process closed the listener. Absent: the process closed it with close(2)."

    K8S_SERVICE_NAME "k8s.service.name" Span String "" "On `endpoint.removal`: the Service that the pod left; the Service is in the pod's namespace."
    SERVICE_PORTS "epitaph.service.ports" Span Strings "" "Ports of the Service's EndpointSlices: `<name>/<protocol>:<port>`, or `<protocol>:<port>` without a name."
    ENDPOINT_ADDRESS_TYPES "epitaph.endpoint.address_types" Span Strings "" "Address types of the EndpointSlices that held the pod: `IPv4`, `IPv6`, `FQDN`."
    ENDPOINT_PUBLISH_NOT_READY "epitaph.endpoint.publish_not_ready_addresses" Span Bool "" "True: the endpoint was ready and terminating at the same time, which `publishNotReadyAddresses` causes. Absent if this was not observed."
    ENDPOINT_ALL_TERMINATING "epitaph.endpoint.all_terminating" Span Bool "" "True: for part of the time no endpoint of the Service was ready and some were serving. kube-proxy then correctly sends traffic to terminating pods."
    ENDPOINTS_NAMESPACE "epitaph.endpoints.namespace" Span String "" "The namespace of the Service."
    ENDPOINTS_READY "epitaph.endpoints.ready" Span Int "{endpoint}" "On `endpoints.ready`: number of endpoints of the Service on a node that shuts down. Counted are endpoints that were ready when the kubelet announced the shutdown, or later."
    ENDPOINTS_PODS "epitaph.endpoints.pods" Span Strings "" "UIDs of the pods of the endpoints that `epitaph.endpoints.ready` counts, at most 32. The span `pod.termination` of each pod (search for its `k8s.pod.uid`) has the connections that clients lost."
    ENDPOINTS_STILL_READY "epitaph.endpoints.still_ready" Span Int "{endpoint}" "How many of the endpoints of `epitaph.endpoints.ready` were still ready at the end of the span. The span then ended because the kubelet became silent or because the node became ready again."
    ENDPOINTS_AT_LEAST "epitaph.endpoints.at_least" Span Bool "" "True: there may have been more such endpoints, because the observer began during the shutdown or had no room for all of them."
    REPLACEMENT_POD_NAME "epitaph.replacement.pod.name" Span String "" "The pod that replaced the terminated pod."
    REPLACEMENT_POD_UID "epitaph.replacement.pod.uid" Span String "" "The UID of the replacement pod."
    REPLACEMENT_NODE_NAME "epitaph.replacement.node.name" Span String "" "The node of the replacement pod, if it was scheduled."
    REPLACEMENT_RULE "epitaph.replacement.rule" Span String "" "How the replacement was identified: `next-of-replica-set`, `name-in-stateful-set`, `node-of-daemon-set`, `index-in-job`, `next-of-job`."
    REPLACEMENT_READY "epitaph.replacement.ready" Span Bool "" "True: the replacement pod became ready. Absent: it did not become ready, and the span ends when the replacement pod ends, or an hour after its creation."
    NODE_TRANSITION "epitaph.node.transition" Span String "" "When the node's condition Ready changed, RFC 3339, on the clock of the component that reported the change: `lastTransitionTime`."
    NODE_REASON "epitaph.node.reason" Span String "" "Reason of the condition Ready while the node was lost, or was shut down."
    NODE_MESSAGE "epitaph.node.message" Span String "" "Message of the condition Ready while the node was lost, or was shut down."
    NODE_RENEWED_AT "epitaph.node.renewed_at" Span String "" "When the node's kubelet last renewed its Lease before the loss, RFC 3339, on the node's clock; absent if not known."
    NODE_AGENT "epitaph.node.agent" Span String "" "Whether the node's agent answered /healthz during the loss: `answered`, `silent` (three requests in a row), `unknown` (no agent on the node is known, or not asked often enough yet)."
    NODE_POWERED_OFF "epitaph.node.powered_off" Span Bool "" "True: the cloud provider reported that the machine was off, by the taint `node.cloudprovider.kubernetes.io/shutdown`."
    NODE_PODS_STUCK "epitaph.node.pods.stuck" Span Int "{pod}" "Pods that were being deleted and that the node could not terminate."
    NODE_PODS_GONE "epitaph.node.pods.gone" Span Int "{pod}" "How many of the pods of `epitaph.node.pods.stuck` were gone at the end of the span."
    NODE_PODS_PARTIAL "epitaph.node.pods.partial" Span Bool "" "True: the observer had no room for some of the node's pods (`lost_pod_cap`). These pods are missing in numbers, links and `pods-gone`."
    NODE_ENDED_BY "epitaph.node.ended_by" Span String "" "Why `node.lost` ends: `pods-gone` (all pods that the loss evicts are gone), `no-pods` (this observer saw no pod that the loss evicts), `back` (the node came back), `node-deleted`."
    NODE_UNWATCHED "epitaph.node.unwatched" Span Double "s" "The observer began to watch this long after the node was lost. Steps before that have the API's times, or are missing; for a pod that was already being deleted, `replacement` and `duplicate.run` are missing. Absent if the observer watched the loss from its begin."
    NODE_BOOT_ID "epitaph.node.boot_id" Span String "" "The node's boot before the loss: `status.nodeInfo.bootID`."
    NODE_NEXT_BOOT_ID "epitaph.node.next_boot_id" Span String "" "The node's boot after its return."
    NODE_RETURN "epitaph.node.return" Span String "" "How the node came back: `same-boot` (paused or cut off: its containers existed all the time), `rebooted`, `other-machine` (another machine registered under the node's name: what the lost machine does is not known), `unknown`."
    NODE_KUBELET_VERSION "epitaph.node.kubelet_version" Span String "" "`status.nodeInfo.kubeletVersion`."
    NODE_PROVIDER_ID "epitaph.node.provider_id" Span String "" "`spec.providerID`; absent if the node has none."
    EVICTED_BY_TAINT "epitaph.evicted_by_taint" Span Bool "" "On `pod.lost`: true if the deletion was requested because of a NoExecute taint."
    POD_STILL_TERMINATING "epitaph.pod.still_terminating" Span Bool "" "On `pod.lost`: true if the observer stopped before the pod was gone. The span ends when the observer stopped."
    STUCK_BY "epitaph.stuck.by" Span String "" "On `stuck`: what held the pod that was being deleted: `node` (no kubelet confirmed the termination), `finalizer`, `volume` (the node was not lost, every container had terminated, and the kubelet did not finish unmounting), `runtime` (the node was not lost, and the kubelet or the container runtime did not finish its work)."
    STUCK_FINALIZERS "epitaph.stuck.finalizers" Span Strings "" "The finalizers that hold the pod, at most 8."
    STUCK_CLAIMS "epitaph.stuck.claims" Span Strings "" "The PersistentVolumeClaims whose volumes were not unmounted, at most 8."
    VOLUME_NAME "epitaph.volume.name" Span String "" "On `volume.detach`: the name of the PersistentVolume."
    VOLUME_CLAIM "epitaph.volume.claim" Span String "" "The name of the PersistentVolumeClaim, which is in the pod's namespace."
    VOLUME_ATTACHMENT "epitaph.volume.attachment" Span String "" "The name of the VolumeAttachment."
    VOLUME_ATTACHER "epitaph.volume.attacher" Span String "" "The CSI driver that attaches and detaches the volume."
    VOLUME_ERROR "epitaph.volume.error" Span String "" "The driver's last error while detaching."

    WATCH_GAP "epitaph.watch.gap" Span Double "s" "The observer's watch of the API was interrupted: the begin or the end of the span (on an event: the time of the event) may be later than the real time by up to this long. Absent if there was no interruption."

    SHUTDOWN_ORDINAL "epitaph.shutdown.ordinal" Span Int "" "On `node.shutdown`: the number of this shutdown within the boot, beginning with 1; a spoofed or cancelled shutdown has a number, too."
    SHUTDOWN_KIND "epitaph.shutdown.kind" Span String "" "`power-off`, `reboot`, `halt`, `kexec` or `soft-reboot`; absent if not known."
    SHUTDOWN_ANNOUNCEMENT "epitaph.shutdown.announcement" Span String "" "The most important sign of the shutdown that was observed. In the order of importance: `PrepareForShutdown`, `JobNew`, `SystemState=stopping`, `signal to PID 1`, `systemd-shutdown`, `stop signals of PID 1`, `spoofed PrepareForShutdown`, `none`."
    SHUTDOWN_ENDING "epitaph.shutdown.ending" Span String "" "Why no more evidence came: `down` (another boot began), `continued` (the machine stayed up), `agent-ended` (all pods and the agent had ended), `observation-ended`."
    SHUTDOWN_SCHEDULED_FOR "epitaph.shutdown.scheduled_for" Span String "" "The time for which logind had scheduled the shutdown, RFC 3339."
    SHUTDOWN_SPOOFS "epitaph.shutdown.spoofs" Span Int "{signal}" "PrepareForShutdown signals of a sender other than logind."
    SHUTDOWN_OWN_LOCK "epitaph.shutdown.own_lock" Span String "" "The agent's own delay lock: `held`, `released`, or `refused: <reason>`; absent if the agent did not ask for one."
    SHUTDOWN_PODS "epitaph.shutdown.pods" Span Int "{pod}" "Number of pods that ran when the shutdown began, without the agent's own pod; on `kubelet.phase`: number of pods of the phase."
    SHUTDOWN_PODS_ENDED "epitaph.shutdown.pods_ended" Span Int "{pod}" "How many of the pods of `epitaph.shutdown.pods` terminated: the exit of every container was observed."
    SHUTDOWN_PODS_CUT "epitaph.shutdown.pods_cut" Span Int "{pod}" "How many of the pods of `epitaph.shutdown.pods` got SIGKILL before their own grace period was over, or still ran when logind's delay ended."
    SHUTDOWN_PODS_UNLINKED "epitaph.shutdown.pods_unlinked" Span Strings "" "Pods to which the span has no link, because the pod has no trace, or because it is not known whether its trace follows. On a phase: pods of the phase; otherwise pods that are in no phase. At most 16."
    SHUTDOWN_PODS_READY "epitaph.shutdown.pods_ready" Span Int "{pod}" "After the next boot: number of pods of the node that stayed Ready in the API until the node was back; there may have been more. Absent if this is known of no pod."
    SHUTDOWN_PODS_STARTED "epitaph.shutdown.pods_started" Span Strings "" "Pods that were started on the node during the shutdown, as far as they were seen: `<namespace>/<name>`."
    SHUTDOWN_CLIENTS_LOST "epitaph.shutdown.clients.lost" Span Int "{connection}" "Connections that clients lost because the pods stopped: refused, reset or cut. 0 only if all connections could be observed. Absent if no lost connection was observed and some may have been missed."
    SHUTDOWN_CLIENTS_AT_LEAST "epitaph.shutdown.clients.at_least" Span Bool "" "True: clients may have lost more connections, because the sockets of a pod were not observed for the whole stop, or its exit was not observed."
    SHUTDOWN_CLIENTS_UNDECIDED "epitaph.shutdown.clients.undecided" Span Int "{connection}" "Connections that closed at the exit of a pod, and of which it is not known whether a request or an answer was under way. `epitaph.shutdown.clients.lost` does not count them."
    SHUTDOWN_CLIENTS_WORKLOADS "epitaph.shutdown.clients.workloads" Span Strings "" "The lost connections by workload, those with the most first: `<kind> <namespace>/<name>: <refused> refused, <reset> reset, <cut> cut`."
    SHUTDOWN_STILL_READY "epitaph.shutdown.still_ready" Span Double "s" "The longest time for which a pod whose clients lost connections was Ready in the API after its stop signal: during this time a Service could send clients to the pod."
    SHUTDOWN_GAPS "epitaph.shutdown.gaps" Span Strings "" "Evidence that may be missing: `bus: <why>`, `exits`, `observation`, `pods`, `agent-ended`."
    KUBELET_LOCK "epitaph.shutdown.kubelet_lock" Span String "" "The kubelet's delay lock at the start of the shutdown: `held`, `missing` or `unknown`; absent on a machine without a kubelet."
    KUBELET_SHUTDOWN_PERIOD "epitaph.shutdown.kubelet_period" Span Double "s" "The delay that the kubelet asks for: the sum of its phases."
    KUBELET_STATE_START "epitaph.shutdown.kubelet_start" Span String "" "Start of the shutdown, in the kubelet's file `graceful_node_shutdown_state`, RFC 3339."
    KUBELET_STATE_END "epitaph.shutdown.kubelet_end" Span String "" "End of the shutdown, in the kubelet's file `graceful_node_shutdown_state`, RFC 3339. If the start is present and the end is absent, the kubelet did not finish the shutdown."
    DELAY_LIMIT "epitaph.delay.limit" Span Double "s" "`InhibitDelayMaxUSec` of logind when the shutdown began."
    DELAY_EXPIRED "epitaph.delay.expired" Span Bool "" "True: the limit ended the delay while a process still held a lock."
    LOCK_WHO "epitaph.lock.who" Span String "" "On `inhibitor`: the name of the holder of the lock, as the holder gave it."
    LOCK_WHY "epitaph.lock.why" Span String "" "The reason for the lock, as the holder gave it."
    LOCK_WHAT "epitaph.lock.what" Span String "" "What is inhibited: `shutdown`, `sleep:shutdown`, …"
    LOCK_MODE "epitaph.lock.mode" Span String "" "`delay`, `block` or `block-weak`."
    LOCK_UID "epitaph.lock.uid" Span Int "" "User id of the holder."
    LOCK_OUTLASTED "epitaph.lock.outlasted" Span Bool "" "True: the lock was still held when the delay was over."
    AT_LEAST "epitaph.at_least" Span Bool "" "On spans of a node's shutdown. True: the real end was not observed, because the observation ended before or because evidence may be missing; the real duration is at least the length of the span. Absent if the end was observed."
    PHASE_PRIORITY "epitaph.phase.priority" Span Int "" "On `kubelet.phase`: the lowest pod priority of the phase; 2000000000 is the phase of critical pods."
    PHASE_PERIOD "epitaph.phase.period" Span Double "s" "How long the phase may last."
    SPOOF_BUS_NAME "epitaph.spoof.bus_name" Span String "" "On `spoofed`: the sender's name on the bus. The attributes `process.pid`, `process.executable.name` and the unit describe the sender, if known."
    LINK_POD "epitaph.link.pod" Span String "" "On a link to a pod's trace: `<namespace>/<name>`."
    LINK_POD_CUT "epitaph.link.pod_cut" Span Bool "" "True: the shutdown cut the pod short."
    DOWN_NEXT_BOOT "epitaph.down.next_boot_id" Span String "" "On `down`: the id of the boot that followed."
    DOWN_SOFT "epitaph.down.soft" Span Bool "" "True: a soft reboot, after which the kernel and the boot id are the same as before."
    DOWN_AT_MOST "epitaph.down.at_most" Span Bool "" "True: the agent ended in order before the node, and nothing shows when the node went down. The node was down for at most the length of the span."

    ENDED_BEFORE_BEGIN "epitaph.ended_before_begin" Span Double "s" "The reported end is earlier than the reported begin by this long, so the span has no length. The reason: one of the two times is known only to the second, or is from another clock. Absent if the end is not earlier."
    LOST "epitaph.lost" Span Strings "" "Kernel records lost during the termination, `<kind>=<count>`; absent if none was lost."
    OVER_CAP "epitaph.over_cap" Span Int "{fact}" "Evidence items dropped because a termination reached `limits.facts` or `limits.connections`, or closed more than 64 listeners, or because `limits.memory` was used up."
    LATE_START "epitaph.late_start" Span Bool "" "True: the process started before the observation began, so a stop signal may have been missed."
    UNOBSERVED_DURATION "epitaph.unobserved.duration" Span Double "s" "On the event `unobserved`: how long epitaph did not observe, for example during a restart. The time of the event is the beginning of this gap."
    CLOCK_STEP "epitaph.clock.step" Span Double "s" "After the begin of the termination (or of the observer's span), the wall clock stepped by this much, or the machine was paused for this long. Times from before the step are wrong by this much. Times in spans of the observer are wrong by up to this much, because some of them are the API's times. Absent if there was no step of a second or more."
    INACTIVE_PROBES "epitaph.inactive_probes" Span Strings "" "eBPF probes that were not active and that no other probe replaced."
}

/// `docs/attributes.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Attributes\n\n\
        This page answers: which attributes do spans and their events have, and what does each mean?\n\n\
        <!-- Generated from the table in `agent/src/render/attributes.rs` by `UPDATE_EXPECT=1 cargo test -p epitaph attributes`; do not \
        edit. -->\n\n\
        Keys outside `epitaph.*` are from OpenTelemetry's semantic conventions.\n\n\
        A flag that is false and a count of 0 are absent. An attribute that was not measured is absent, too. Where this difference matters, \
        a flag in the table shows whether an absent count means 0.\n",
    );
    text.push_str(
        "\n## Log records\n\n\
        With `otlp.logs` each trace of a termination also becomes a log record, for log stores such as Loki or Elastic. This includes \
        pods, containers and units that are reported alone, shutdowns of a node, and lost pods and nodes. The event name is `epitaph.` and \
        the kind of the trace's root span, such as `epitaph.pod.termination`. The body is the sentence. The severity is INFO for info, WARN \
        for warning, and ERROR for critical. The time is the end of the root span. Trace id, span id, resource and attributes are those of \
        the root span; the tables below describe them.\n\n\
        The agent makes the record from the trace in its journal, so `otlp.traces = false` needs no other setting. \
        `export.unclean_only` applies to traces and to log records. Each of the two has its own queue: after a restart the agent sends only \
        what the server of that queue has not answered.\n",
    );
    for (on, title) in [(On::Resource, "Resource"), (On::Span, "Spans and their events")] {
        let _ = write!(text, "\n## {title}\n\n| key | type | unit | meaning |\n|---|---|---|---|\n");
        for a in ATTRIBUTES.iter().filter(|a| a.on == on) {
            let unit = if a.unit.is_empty() { "" } else { &format!("`{}`", a.unit) };
            let _ = writeln!(text, "| `{}` | {} | {unit} | {} |", a.key, a.value.name(), a.meaning);
        }
    }
    text += "\nNext: [what to search in Jaeger](kubernetes.md#what-to-search), or [the metrics](metrics.md).\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_are_the_table() {
        expect_test::expect_file!["../../../docs/attributes.md"].assert_eq(&markdown());
    }

    /// A backend that nests keys cannot store a key that is also the namespace of another key.
    #[test]
    fn no_key_is_the_namespace_of_another() {
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
