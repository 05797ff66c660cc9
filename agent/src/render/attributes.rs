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
    SERVICE_NAME "service.name" Resource String "" "For a pod: the name of the application, computed as OpenTelemetry's conventions for Kubernetes define; otherwise `epitaph`. `export.service_name` sets one name for all. The agent's own spans have `epitaph-agent`, unless configured."
    SERVICE_NAMESPACE "service.namespace" Resource String "" "The namespace of the application, by the same conventions; absent if `export.service_name` is set."
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
    WORKLOAD_NAME "epitaph.workload.name" Resource String "" "Name of that controller, or of the pod."
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
    CONTAINER_IMAGE_TAGS "container.image.tags" Span Strings "" "The tag of the image, if it has one there."
    CONTAINER_IMAGE_REPO_DIGESTS "container.image.repo_digests" Span Strings "" "Name and digest of the image, if it has a digest there."
    CONTAINER_COMMAND "container.command" Span String "" "The program of the container's first process; only with `containers.command`, because arguments can be secret."
    CONTAINER_COMMAND_ARGS "container.command_args" Span Strings "" "All arguments of the container's first process, the program included; only with `containers.command`."
    CONTAINER_STOP_SIGNAL "epitaph.container.stop_signal" Span String "" "The declared stop signal of the container: by the pod's status or spec (`lifecycle.stopSignal`, Kubernetes 1.33), otherwise where the runtime writes it down: Docker, Podman, CRI-O."
    CONTAINER_SANDBOX "epitaph.container.sandbox" Span Bool "" "The pod's sandbox (pause) container."
    K8S_CONTAINER_NAME "k8s.container.name" Span String "" "The container's name in the pod's spec."
    K8S_CONTAINER_RESTART_COUNT "k8s.container.restart_count" Span Int "" "Restarts before this termination."
    K8S_CONTAINER_STATUS_REASON "k8s.container.status.reason" Span String "" "`state.terminated.reason` in the pod's status: a hint, because the API keeps an earlier `OOMKilled`."
    REPORTED_EXIT_CODE "epitaph.reported.exit_code" Span Int "" "`state.terminated.exitCode` in the pod's status: a hint, because 137 can be synthetic; absent if the exit observed by the kernel gives the same code (128 + n for a signal)."
    REPORTED_DISAGREES "epitaph.reported.disagrees" Span String "" "What kubectl shows of the exit and what the kernel recorded, where these differ: `kubectl shows OOMKilled; the kernel: exited with 0 at SIGTERM`. docs/exit-codes.md has who is right."
    CONTAINER_KIND "epitaph.container.kind" Span String "" "`init`, `sidecar` (an init container that restarts), `main`, `ephemeral`."
    MAINS_ENDED_AT "epitaph.mains_ended_at" Span String "" "For a sidecar: when the last main container of the pod exited, RFC 3339; sidecars are stopped after that."
    SHARES_PID_NAMESPACE "epitaph.shares_pid_namespace" Span Bool "" "hostPID or shareProcessNamespace: the main process is not PID 1."
    UNIT_NAME "epitaph.unit.name" Span String "" "The name of the systemd unit."
    CGROUP_PATH "epitaph.cgroup.path" Span String "" "The cgroup of the container or unit, from the root of the hierarchy."
    PROCESS_PID "process.pid" Span Int "" "The main process (on `oom` the victim, on `forwarded SIGTERM` the process that got the signal), in the initial pid namespace."
    PROCESS_VPID "process.vpid" Span Int "" "The pid of the main process in its own pid namespace."
    PROCESS_EXECUTABLE_NAME "process.executable.name" Span String "" "The name of the process in the kernel (`comm`: 15 bytes, chosen by the process), escaped."
    PROCESS_CREATION_TIME "process.creation.time" Span String "" "When the main process started, RFC 3339."
    PROCESS_EXIT_CODE "process.exit.code" Span Int "" "Exit code of the main process (on `preStop`: of the hook); absent if a signal terminated the process."

    VERDICT "epitaph.verdict" Span String "" "The verdict; `epitaph explain` describes each."
    CAUSE "epitaph.cause" Span String "" "Why the container or unit terminated."
    EXIT "epitaph.exit" Span String "" "How the main process exited."
    TRAFFIC "epitaph.traffic" Span String "" "What clients saw."
    UNCLEAN "epitaph.unclean" Span Bool "" "Clients or data may be affected; the status of the span is then Error, with the sentence."
    SEVERITY "epitaph.severity" Span String "" "`info`, `warning` or `critical`."
    SENTENCE "epitaph.sentence" Span String "" "What happened, in one sentence with the measured times."
    REMEDY "epitaph.remedy" Span String "" "What to change, with the measured number if one exists."
    ADVICE "epitaph.advice" Span Strings "" "Settings that measurements show to be wrong or tight, also after a clean termination: `<kind> <value> s: <text>`, with the value if one exists."
    EVIDENCE "epitaph.evidence" Span Strings "" "Evidence that no attribute, event or span of the trace shows, in order of time: `+<ms after begin> ms <source>: <text>`. `--output json` lists all evidence."

    ASKED_CAUSE "epitaph.asked.cause" Span String "" "The cause according to the Kubernetes API; absent if equal to `epitaph.cause`."
    ASKED_EVIDENCE "epitaph.asked.evidence" Span String "" "The source of the cause in the Kubernetes API: `deletionTimestamp`, a `DisruptionTarget` reason, `status.reason`, an Event; on the span of a container only if the root does not have the attribute."
    REQUEST_EARLIEST "epitaph.request.earliest" Span String "" "Earliest time of the pod's deletion request, RFC 3339, on this node's clock: the API reports whole seconds on its own clock."
    REQUEST_LATEST "epitaph.request.latest" Span String "" "Latest time of the deletion request."
    REQUEST_GRACE "epitaph.request.grace" Span Double "s" "`deletionGracePeriodSeconds` of the first deletion request; later requests are events `grace.shortened`."
    REQUEST_SPEC_GRACE "epitaph.request.spec_grace" Span Double "s" "`terminationGracePeriodSeconds` of the pod, if the first deletion request asked for another grace period."
    REQUEST_ASKER "epitaph.request.asker" Span String "" "Who asked, where an Event on the pod names it: `cluster-autoscaler` (it announced an eviction in the two minutes before), `karpenter`."
    API_CLOCK_AHEAD_LEAST "epitaph.api_clock.ahead.least" Span Double "s" "The API server's clock minus the clock of the node that exported the span, lower bound; absent if not measured."
    API_CLOCK_AHEAD_MOST "epitaph.api_clock.ahead.most" Span Double "s" "Upper bound of the same difference."
    GRACE "epitaph.grace" Span Double "s" "The grace period that applied to this termination; on `grace.shortened`: the new grace period."
    GRACE_LEFT "epitaph.grace_left" Span Double "s" "The grace period that was left at the exit of the main process, 0 if the grace period was used up; absent if the grace period or its begin is not known."
    CONTAINERS "epitaph.containers" Span Int "{container}" "Containers that terminated with the pod, each with a span."
    CONTAINERS_UNSEEN "epitaph.containers_unseen" Span Int "{container}" "Containers whose exit only the pod's status reports, each an event `container.unseen` at the end of the pod: the time of the exit was not observed."
    POD_STATIC "epitaph.pod.static" Span Bool "" "A static pod, created by the kubelet from a file."
    GONE_AT "epitaph.gone.at" Span String "" "When the API server reported the pod as deleted, RFC 3339."
    GONE_WATCHED "epitaph.gone.watched" Span Bool "" "True: the watch reported the deletion. Absent although `epitaph.gone.at` is present: a later list no longer had the pod, so the deletion happened some time before that."
    INCOMPLETE "epitaph.incomplete" Span Strings "" "Why the Kubernetes context may be incomplete; absent if complete."
    PRESTOP_HOOK "epitaph.prestop.hook" Span String "" "`exec`, `httpGet`, `tcpSocket` or `sleep`; on the span of the container only if the hook has no span."
    PRESTOP_PROGRAM "epitaph.prestop.program" Span String "" "First word of the command of an `exec` hook; the rest is not kept."
    PRESTOP_PORT "epitaph.prestop.port" Span Int "" "Port of an `httpGet` or `tcpSocket` hook."
    PRESTOP_SLEEP "epitaph.prestop.sleep" Span Int "s" "Duration of a `sleep` hook."
    PRESTOP_SEEN "epitaph.prestop.seen" Span Bool "" "The process of the hook was observed; absent: the times are those of the kubelet's wait for the hook."
    PRESTOP_FAILED "epitaph.prestop.failed" Span String "" "Message of the Event `FailedPreStopHook`, if there was one."

    STOP_SIGNAL "epitaph.stop.signal" Span String "" "The first stop signal, by name."
    STOP_RESULT "epitaph.stop.result" Span String "" "What the kernel did with the stop signal: `delivered`, `ignored`, `already-pending`, `overflow-fail`, `lose-info`."
    STOP_DISPOSITION "epitaph.stop.disposition" Span String "" "What the process had set for the stop signal: `handler`, `default`, `ignore`, `unknown`."
    STOP_STATE "epitaph.stop.state" Span Strings "" "State of the process when the stop signal was sent, any of `blocked`, `stopped`, `frozen`, `exiting`, `traced`, `sigwait` (waits for the signal without a handler)."
    STOP_REPEATED "epitaph.stop.repeated" Span Int "{signal}" "Later stop signals to the main process."
    STOP_SENDER_PID "epitaph.stop.sender.pid" Span Int "" "The sender of the stop signal; 0 is the kernel."
    STOP_SENDER_COMM "epitaph.stop.sender.comm" Span String "" "Name of the sender (`comm`), escaped."
    STOP_SENDER_PARENT_PID "epitaph.stop.sender.parent.pid" Span Int "" "Parent of the sender; absent if the role of the sender is `runtime`."
    STOP_SENDER_PARENT_COMM "epitaph.stop.sender.parent.comm" Span String "" "Name of the parent, escaped; absent if the role of the sender is `runtime`."
    STOP_SENDER_ROLE "epitaph.stop.sender.role" Span String "" "`runtime`, `itself`, `inside`, `other`, `kernel`, or `unknown` (the kernel made the signal for a timer or a file: pid 0 and no name)."
    STOP_SENDER_PLACE "epitaph.stop.sender.place" Span String "" "Where the sender ran: a container, a unit, `host`, or `unknown`; absent if the role of the sender is `runtime`."
    STOP_SENDER_POD "epitaph.stop.sender.pod" Span String "" "The pod of that container: `<namespace>/<name>`; absent if no pod status of this node names the container."
    STOP_SENDER_CONTAINER "epitaph.stop.sender.container" Span String "" "Name of the container in the spec of that pod."
    KILL_SENDER_PID "epitaph.kill.sender.pid" Span Int "" "The sender of SIGKILL; 0 is the kernel."
    KILL_SENDER_COMM "epitaph.kill.sender.comm" Span String "" "Name of the sender (`comm`), escaped."
    KILL_SENDER_PARENT_PID "epitaph.kill.sender.parent.pid" Span Int "" "Parent of the sender; absent if the role of the sender is `runtime`."
    KILL_SENDER_PARENT_COMM "epitaph.kill.sender.parent.comm" Span String "" "Name of the parent, escaped; absent if the role of the sender is `runtime`."
    KILL_SENDER_ROLE "epitaph.kill.sender.role" Span String "" "As for the stop signal's sender."
    KILL_SENDER_PLACE "epitaph.kill.sender.place" Span String "" "As for the stop signal's sender."
    KILL_SENDER_POD "epitaph.kill.sender.pod" Span String "" "As for the stop signal's sender."
    KILL_SENDER_CONTAINER "epitaph.kill.sender.container" Span String "" "As for the stop signal's sender."
    KILL_BY_CGROUP "epitaph.kill.by_cgroup" Span Bool "" "SIGKILL was sent through `cgroup.kill`."
    STATUS_SIGNAL "epitaph.status.signal" Span String "" "The signal that terminated the main process (on `preStop`: the hook), by name."
    STATUS_CORE_DUMPED "epitaph.status.core_dumped" Span Bool "" "The kernel set the core flag."
    OOM_KILLED "epitaph.oom.killed" Span Int "{process}" "Processes of the container or unit that the OOM killer killed."
    OOM_ROLE "epitaph.oom.role" Span String "" "What the victim was: `main`, `worker` (had sockets of clients), `helper` (had none), `process` (not known), `unattributed` (the program or a process from outside started it); from outside: `exec-probe`, `pre-stop`, `exec-session`, `from-outside` (one of these), `runtime`."
    OOM_MAIN "epitaph.oom.main" Span Bool "" "On `oom`: the victim was the main process."
    OTHER_EXITS "epitaph.other_exits" Span Int "{process}" "Other processes of the container or unit that exited between begin and end."

    CONNECTIONS_OBSERVED "epitaph.connections.observed" Span Bool "" "The sockets were observed from begin to end: a count below that is absent is 0. Absent: these counts are not known, but what was seen lost."
    CONNECTIONS_AT_LEAST "epitaph.connections.at_least" Span Bool "" "More connections may have been lost than are counted: sockets were not observed, or only some of them, or clients were still refused when counting stopped."
    CONNECTIONS_ACCEPTED "epitaph.connections.accepted" Span Int "{connection}" "New connections accepted since the pod's deletion request, or since the stop signal if there was no request."
    CONNECTIONS_REFUSED "epitaph.connections.refused" Span Int "{connection}" "Connections refused because the listener had closed."
    CONNECTIONS_SINCE "epitaph.connections.since" Span String "" "When these counts begin, RFC 3339; absent if that is `epitaph.request.latest`, or the stop signal if there was no request."
    ACCEPTED_FIRST_AT "epitaph.accepted.first_at" Span String "" "When the first new connection was accepted, RFC 3339."
    ACCEPTED_LAST_AT "epitaph.accepted.last_at" Span String "" "When the last new connection was accepted, RFC 3339."
    CONNECTIONS_REFUSED_SOURCE "epitaph.connections.refused_source" Span String "" "How the refused connections were observed: `server-reset`, or `client-error` on kernels that do not show the resets of a closed port."
    CONNECTIONS_REFUSED_NEW_PEERS "epitaph.connections.refused_new_peers" Span Int "{connection}" "How many of the refused connections came from peers that had not connected before, while the sockets were observed: new clients, or a scan. Advice does not count these. Absent also if no earlier connection was observed, because peers cannot be told apart then."
    CONNECTIONS_PEERS "epitaph.connections.peers" Span Strings "" "At most 5 peers with refused, reset or dropped connections; peers that had connected before come first: `<address> <place>: <n> refused, <n> reset, <n> cut`, and `, new` for a peer that had not connected before. Place: `itself` (loopback, or the same address), `node` (this node), `pod <namespace>/<name>` (a pod of this node), `elsewhere` (all else: an agent knows the pods of its own node only)."
    CONNECTIONS_PEERS_MORE "epitaph.connections.peers_more" Span Int "{peer}" "Number of further peers with such connections."
    CONNECTIONS_RESET "epitaph.connections.reset" Span Int "{connection}" "Established connections that the container or unit reset."
    CONNECTIONS_RESET_QUEUED "epitaph.connections.reset_queued" Span Int "{connection}" "How many of the reset connections were in the accept queue when the listener closed."
    CONNECTIONS_CUT "epitaph.connections.cut" Span Int "{connection}" "Open connections dropped at exit: closed by a FIN, with an unanswered request."
    CONNECTIONS_CUT_UNANSWERED "epitaph.connections.cut_unanswered" Span Int "{connection}" "Always equal to `epitaph.connections.cut`: every cut connection has an unanswered request."
    CONNECTIONS_UNDECIDED "epitaph.connections.undecided" Span Int "{connection}" "Connections that were still open at the exit, after the server had sent the last bytes: idle, or with a request or an answer under way; the kernel cannot tell them apart."
    CONNECTIONS_IDLE_CLOSED "epitaph.connections.idle_closed" Span Int "{connection}" "Connections closed at exit on which neither side had sent a byte."
    CONNECTIONS_REJECTED "epitaph.connections.rejected" Span Int "{connection}" "Connects from this node to the address that ended with an ICMP error: a REJECT rule of a proxy or a policy, or no route. Connects from other nodes are not observed here."
    KUBELET_KNOWN "epitaph.kubelet.known" Span Bool "" "The kubelet's own probes and hooks are counted separately: a count below that is absent is 0. Absent: they are included in the counts of clients."
    KUBELET_ACCEPTED "epitaph.kubelet.accepted" Span Int "{connection}" "Connections of the kubelet: accepted."
    KUBELET_REFUSED "epitaph.kubelet.refused" Span Int "{connection}" "Connections of the kubelet: refused."
    KUBELET_BROKEN "epitaph.kubelet.broken" Span Int "{connection}" "Connections of the kubelet: reset or dropped at exit."
    SERVER_ADDRESS "server.address" Span String "" "On `listener.closed`: the address of the listener."
    SERVER_PORT "server.port" Span Int "" "On `listener.closed` and `listener closed → exit`: the port of the listener."
    NETWORK_TRANSPORT "network.transport" Span String "" "`tcp`."
    LISTENER_BY_EXIT "epitaph.listener.by_exit" Span Bool "" "The exit of the process closed the listener, not close(2)."

    K8S_SERVICE_NAME "k8s.service.name" Span String "" "On `endpoint.removal`: the Service that the pod left; same namespace as the pod."
    SERVICE_PORTS "epitaph.service.ports" Span Strings "" "Ports of the Service's EndpointSlices: `<name>/<protocol>:<port>`, or `<protocol>:<port>` without a name."
    ENDPOINT_ADDRESS_TYPES "epitaph.endpoint.address_types" Span Strings "" "Address types of the EndpointSlices that held the pod: `IPv4`, `IPv6`, `FQDN`."
    ENDPOINT_PUBLISH_NOT_READY "epitaph.endpoint.publish_not_ready_addresses" Span Bool "" "The endpoint was ready and terminating at the same time, as `publishNotReadyAddresses` causes; absent if not observed."
    ENDPOINT_ALL_TERMINATING "epitaph.endpoint.all_terminating" Span Bool "" "For part of the time no endpoint of the Service was ready and some were serving: kube-proxy then correctly sends traffic to terminating pods."
    ENDPOINTS_NAMESPACE "epitaph.endpoints.namespace" Span String "" "The namespace of the Service."
    ENDPOINTS_READY "epitaph.endpoints.ready" Span Int "{endpoint}" "Of `endpoints.ready`: endpoints of the Service on a node that shuts down, which were ready when, or after, the kubelet had announced the shutdown."
    ENDPOINTS_PODS "epitaph.endpoints.pods" Span Strings "" "UIDs of the pods of these endpoints, at most 32: what clients of this Service lost is in the `pod.termination` of each (`k8s.pod.uid`)."
    ENDPOINTS_STILL_READY "epitaph.endpoints.still_ready" Span Int "{endpoint}" "Of these, endpoints that were ready at the end of the span: the span ended because the kubelet became silent or the node became ready again."
    ENDPOINTS_AT_LEAST "epitaph.endpoints.at_least" Span Bool "" "There may have been more: the observer began during the shutdown, or had no room for all."
    REPLACEMENT_POD_NAME "epitaph.replacement.pod.name" Span String "" "The pod that replaced the terminated pod."
    REPLACEMENT_POD_UID "epitaph.replacement.pod.uid" Span String "" "The UID of the replacement pod."
    REPLACEMENT_NODE_NAME "epitaph.replacement.node.name" Span String "" "The node of the replacement pod, if it was scheduled."
    REPLACEMENT_RULE "epitaph.replacement.rule" Span String "" "How the replacement was identified: `next-of-replica-set`, `name-in-stateful-set`, `node-of-daemon-set`, `index-in-job`, `next-of-job`."
    REPLACEMENT_READY "epitaph.replacement.ready" Span Bool "" "The replacement pod became ready; absent: the span ends when the replacement pod ends, or an hour after its creation."
    NODE_TRANSITION "epitaph.node.transition" Span String "" "When the node's condition Ready changed, RFC 3339, on the clock of whoever reported it: `lastTransitionTime`."
    NODE_REASON "epitaph.node.reason" Span String "" "Reason of the condition Ready while the node was lost, or was shut down."
    NODE_MESSAGE "epitaph.node.message" Span String "" "Message of that condition."
    NODE_RENEWED_AT "epitaph.node.renewed_at" Span String "" "When the node's kubelet last renewed its Lease before the loss, RFC 3339, on the node's clock; absent if not known."
    NODE_AGENT "epitaph.node.agent" Span String "" "Whether the node's agent answered /healthz during the loss: `answered`, `silent` (three requests in a row), `unknown` (no agent on the node is known, or not asked often enough yet)."
    NODE_POWERED_OFF "epitaph.node.powered_off" Span Bool "" "The cloud provider reported that the machine was off: the taint `node.cloudprovider.kubernetes.io/shutdown`."
    NODE_PODS_STUCK "epitaph.node.pods.stuck" Span Int "{pod}" "Pods that were being deleted and that the node could not terminate."
    NODE_PODS_GONE "epitaph.node.pods.gone" Span Int "{pod}" "How many of these were gone at the end of the span."
    NODE_PODS_PARTIAL "epitaph.node.pods.partial" Span Bool "" "The observer had no room for some of the node's pods (`lost_pod_cap`): numbers, links and `pods-gone` lack them."
    NODE_ENDED_BY "epitaph.node.ended_by" Span String "" "Why `node.lost` ends: `pods-gone` (all pods that the loss evicts are gone), `no-pods` (this observer saw none that the loss evicts), `back`, `node-deleted`."
    NODE_UNWATCHED "epitaph.node.unwatched" Span Double "s" "The observer began to watch this long after the node was lost: earlier steps have the API's times, or are missing, and of a pod that was already being deleted `replacement` and `duplicate.run` are; absent if the loss was watched from its begin."
    NODE_BOOT_ID "epitaph.node.boot_id" Span String "" "The node's boot before the loss: `status.nodeInfo.bootID`."
    NODE_NEXT_BOOT_ID "epitaph.node.next_boot_id" Span String "" "The node's boot after its return."
    NODE_RETURN "epitaph.node.return" Span String "" "How the node came back: `same-boot` (paused or cut off: its containers existed all the time), `rebooted`, `other-machine` (another machine registered under the node's name: what the lost one does is not known), `unknown`."
    NODE_KUBELET_VERSION "epitaph.node.kubelet_version" Span String "" "`status.nodeInfo.kubeletVersion`."
    NODE_PROVIDER_ID "epitaph.node.provider_id" Span String "" "`spec.providerID`; absent if the node has none."
    EVICTED_BY_TAINT "epitaph.evicted_by_taint" Span Bool "" "On `pod.lost`: the deletion was requested because of a NoExecute taint."
    POD_STILL_TERMINATING "epitaph.pod.still_terminating" Span Bool "" "On `pod.lost`: the observer stopped before the pod was gone, and the span ends then."
    STUCK_BY "epitaph.stuck.by" Span String "" "On `stuck`: what held the pod that was being deleted: `node` (no kubelet confirmed the termination), `finalizer`, `volume` (the node was there, every container had terminated, and its kubelet did not finish unmounting), `runtime` (the node was there, and its kubelet or container runtime did not finish)."
    STUCK_FINALIZERS "epitaph.stuck.finalizers" Span Strings "" "The finalizers, at most 8."
    STUCK_CLAIMS "epitaph.stuck.claims" Span Strings "" "The PersistentVolumeClaims whose volumes were not unmounted, at most 8."
    VOLUME_NAME "epitaph.volume.name" Span String "" "On `volume.detach`: the PersistentVolume."
    VOLUME_CLAIM "epitaph.volume.claim" Span String "" "The PersistentVolumeClaim, in the pod's namespace."
    VOLUME_ATTACHMENT "epitaph.volume.attachment" Span String "" "The VolumeAttachment."
    VOLUME_ATTACHER "epitaph.volume.attacher" Span String "" "The CSI driver that attaches and detaches the volume."
    VOLUME_ERROR "epitaph.volume.error" Span String "" "The driver's last error while detaching."

    WATCH_GAP "epitaph.watch.gap" Span Double "s" "The watch was interrupted: begin or end of the span may be later than the real time by up to this long (on an event: the time of the event); absent without an interruption."

    SHUTDOWN_ORDINAL "epitaph.shutdown.ordinal" Span Int "" "On `node.shutdown`: its number within the boot, from 1; a spoofed or cancelled shutdown has a number, too."
    SHUTDOWN_KIND "epitaph.shutdown.kind" Span String "" "`power-off`, `reboot`, `halt`, `kexec` or `soft-reboot`; absent if not known."
    SHUTDOWN_ANNOUNCEMENT "epitaph.shutdown.announcement" Span String "" "The first sign in the order of importance: `PrepareForShutdown`, `JobNew`, `SystemState=stopping`, `signal to PID 1`, `systemd-shutdown`, `stop signals of PID 1`, `spoofed PrepareForShutdown`, `none`."
    SHUTDOWN_ENDING "epitaph.shutdown.ending" Span String "" "Why no more evidence came: `down` (another boot began), `continued` (the machine stayed up), `agent-ended` (all pods had ended, and so had the agent), `observation-ended`."
    SHUTDOWN_SCHEDULED_FOR "epitaph.shutdown.scheduled_for" Span String "" "The time for which logind had scheduled it, RFC 3339."
    SHUTDOWN_SPOOFS "epitaph.shutdown.spoofs" Span Int "{signal}" "PrepareForShutdown signals of a sender other than logind."
    SHUTDOWN_OWN_LOCK "epitaph.shutdown.own_lock" Span String "" "The agent's own delay lock: `held`, `released`, or `refused: <reason>`; absent if the agent did not ask for one."
    SHUTDOWN_PODS "epitaph.shutdown.pods" Span Int "{pod}" "Pods that ran when the shutdown began, without the agent's own; on `kubelet.phase`: those of the phase."
    SHUTDOWN_PODS_ENDED "epitaph.shutdown.pods_ended" Span Int "{pod}" "Of these, pods of which every container was seen to exit."
    SHUTDOWN_PODS_CUT "epitaph.shutdown.pods_cut" Span Int "{pod}" "Of these, pods that got SIGKILL before their own grace period was over, or still ran when logind's delay ended."
    SHUTDOWN_PODS_UNLINKED "epitaph.shutdown.pods_unlinked" Span Strings "" "Pods of the phase, or in no phase, without a link: whether a trace of the pod follows is not known, or none does; at most 16."
    SHUTDOWN_PODS_READY "epitaph.shutdown.pods_ready" Span Int "{pod}" "After the next boot: pods of the node that stayed Ready in the API until the node was back, at least so many; absent if it is not known of any pod."
    SHUTDOWN_PODS_STARTED "epitaph.shutdown.pods_started" Span Strings "" "Pods that were started on the node during the shutdown, as far as they were seen: `<namespace>/<name>`."
    SHUTDOWN_CLIENTS_LOST "epitaph.shutdown.clients.lost" Span Int "{connection}" "Connections that clients lost by the stop of the pods: refused, reset or cut. 0 only where all of them could be seen; absent if none was seen and some may have been missed."
    SHUTDOWN_CLIENTS_AT_LEAST "epitaph.shutdown.clients.at_least" Span Bool "" "Clients may have lost more: the sockets of a pod were not observed for the whole stop, or its exit was not."
    SHUTDOWN_CLIENTS_UNDECIDED "epitaph.shutdown.clients.undecided" Span Int "{connection}" "Connections that closed at the exit of a pod, where it is not known whether a request or an answer was under way. Not counted in lost."
    SHUTDOWN_CLIENTS_WORKLOADS "epitaph.shutdown.clients.workloads" Span Strings "" "The lost connections by workload, those with the most first: `<kind> <namespace>/<name>: <refused> refused, <reset> reset, <cut> cut`."
    SHUTDOWN_STILL_READY "epitaph.shutdown.still_ready" Span Double "s" "The longest time for which a pod whose clients lost connections was Ready in the API after its stop signal: during this time a Service could send clients to the pod."
    SHUTDOWN_GAPS "epitaph.shutdown.gaps" Span Strings "" "Evidence that may be missing: `bus: <why>`, `exits`, `observation`, `pods`, `agent-ended`."
    KUBELET_LOCK "epitaph.shutdown.kubelet_lock" Span String "" "The kubelet's delay lock at the start of the shutdown: `held`, `missing` or `unknown`; absent on a machine without a kubelet."
    KUBELET_SHUTDOWN_PERIOD "epitaph.shutdown.kubelet_period" Span Double "s" "The delay that the kubelet asks for: the sum of its phases."
    KUBELET_STATE_START "epitaph.shutdown.kubelet_start" Span String "" "Start in the kubelet's `graceful_node_shutdown_state`, RFC 3339."
    KUBELET_STATE_END "epitaph.shutdown.kubelet_end" Span String "" "End in the same file; absent although the start is present: the kubelet did not finish."
    DELAY_LIMIT "epitaph.delay.limit" Span Double "s" "`InhibitDelayMaxUSec` of logind when the shutdown began."
    DELAY_EXPIRED "epitaph.delay.expired" Span Bool "" "The limit ended the delay while a lock was held."
    LOCK_WHO "epitaph.lock.who" Span String "" "On `inhibitor`: who holds the lock, as the holder says."
    LOCK_WHY "epitaph.lock.why" Span String "" "Why, as the holder says."
    LOCK_WHAT "epitaph.lock.what" Span String "" "What is inhibited: `shutdown`, `sleep:shutdown`, …"
    LOCK_MODE "epitaph.lock.mode" Span String "" "`delay`, `block` or `block-weak`."
    LOCK_UID "epitaph.lock.uid" Span Int "" "User id of the holder."
    LOCK_OUTLASTED "epitaph.lock.outlasted" Span Bool "" "The lock was still held when the delay was over."
    AT_LEAST "epitaph.at_least" Span Bool "" "On spans of a node's shutdown: the observation ended before the end of the span, or evidence of the end may be missing; the span lasted at least so long. Absent if the end was seen."
    PHASE_PRIORITY "epitaph.phase.priority" Span Int "" "On `kubelet.phase`: the lowest pod priority of the phase; 2000000000 is the phase of critical pods."
    PHASE_PERIOD "epitaph.phase.period" Span Double "s" "How long the phase may last."
    SPOOF_BUS_NAME "epitaph.spoof.bus_name" Span String "" "On `spoofed`: the sender's name on the bus; with its `process.pid`, `process.executable.name` and unit where known."
    LINK_POD "epitaph.link.pod" Span String "" "On a link to a pod's trace: `<namespace>/<name>`."
    LINK_POD_CUT "epitaph.link.pod_cut" Span Bool "" "The shutdown cut the pod."
    DOWN_NEXT_BOOT "epitaph.down.next_boot_id" Span String "" "On `down`: the id of the boot that followed."
    DOWN_SOFT "epitaph.down.soft" Span Bool "" "A soft reboot: the kernel, and its boot id, stayed."
    DOWN_AT_MOST "epitaph.down.at_most" Span Bool "" "The agent ended in order before the node, and nobody saw when the node went down: the node was down for at most so long."

    ENDED_BEFORE_BEGIN "epitaph.ended_before_begin" Span Double "s" "The reported end is earlier than the reported begin by this long, and the span has no length: one of the two times is known to a second only, or is from another clock; absent if the times agree."
    LOST "epitaph.lost" Span Strings "" "Kernel records lost during the termination, `<kind>=<count>`; absent if none was lost."
    OVER_CAP "epitaph.over_cap" Span Int "{fact}" "Evidence items dropped because a termination reached `limits.facts` or `limits.connections`, or closed more than 64 listeners."
    LATE_START "epitaph.late_start" Span Bool "" "The process started before the observation began: a stop signal may have been missed."
    UNOBSERVED_DURATION "epitaph.unobserved.duration" Span Double "s" "How long epitaph did not observe, for example during a restart; on the event `unobserved`, whose time is the start of it."
    CLOCK_STEP "epitaph.clock.step" Span Double "s" "After the termination, or a span of the observer, began, the wall clock stepped by this much, or a pause of the machine ended: times from before are wrong by as much, those of the observer, some of which are the API's, by up to as much; absent without a step of a second or more."
    INACTIVE_PROBES "epitaph.inactive_probes" Span Strings "" "Probes that were not active and not substituted by another probe."
}

/// `docs/attributes.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Attributes\n\n\
        This page answers: which attributes do spans and their events have, and what does each mean?\n\n\
        <!-- Generated from the table in `agent/src/render/attributes.rs` by `UPDATE_EXPECT=1 cargo test -p epitaph attributes`; do not \
        edit. -->\n\n\
        Keys outside `epitaph.*` are from OpenTelemetry's semantic conventions.\n\n\
        False flags and counts of 0 are absent. An attribute that was not measured is absent, too: if the difference \
        matters, the row of the count names the flag that proves a 0.\n",
    );
    text.push_str(
        "\n## Log records\n\n\
        With `otlp.logs` each termination is a log record, too, for stores of logs such as Loki or Elastic: of a pod, of a container or \
        unit that is reported alone, of a node's shutdown, and of a lost pod or node. Event name: `epitaph.` and the kind of the trace's \
        first span, such as `epitaph.pod.termination`. Body: the sentence. Severity: info is INFO, warning WARN, critical ERROR. Time: \
        the end of that span. Trace and span id, resource and attributes are those of that span, in the tables below.\n\n\
        The record is made of the trace that the journal keeps, so that `otlp.traces = false` needs no other setting. \
        `export.unclean_only` holds for both; each has a queue of its own, and after a restart only what its server has not answered \
        is sent again.\n",
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
