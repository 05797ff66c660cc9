//! The one table from axes to headline: docs, `explain`, alerts, metrics and span status come from it.

use super::{Cause, Exit, Severity, TrafficAxis};

/// What one headline means and which axes give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// `epitaph.verdict`.
    pub headline: &'static str,
    pub exit: Exit,
    /// The traffic that gives this row; empty: any.
    pub traffic: &'static [TrafficAxis],
    pub unclean: bool,
    pub severity: Severity,
    /// Of several containers of one pod, the headline with the highest precedence is the pod's. Unique.
    pub precedence: u8,
    /// For a container.
    pub meaning: &'static str,
    pub proof: &'static str,
    pub remedy: &'static str,
}

/// What differs for a systemd unit, by headline.
const OF_UNITS: [(&str, &str); 2] = [
    (
        "refused-connections",
        "For a systemd unit the severity is info and the termination is not unclean: a unit has no replica, so its clients are refused at every restart.",
    ),
    (
        "refused-new-peers",
        "For a systemd unit the severity is info and the termination is not unclean: a unit has no replica, so peers are refused at every restart.",
    ),
];

impl Row {
    /// What differs for a systemd unit.
    pub fn of_units(&self) -> Option<&'static str> {
        OF_UNITS
            .iter()
            .find(|(headline, _)| *headline == self.headline)
            .map(|(_, words)| *words)
    }

    /// [`Row::meaning`] for every subject: an alert about a workload is not about a unit.
    pub fn meaning_for_all(&self) -> String {
        let of_units = self.of_units().map_or_else(String::new, |words| format!(" {words}"));
        format!("{}{of_units}", self.meaning)
    }
}

/// The row of a verdict. A clean exit is qualified by what clients saw; any other exit has one row.
pub fn row(exit: Exit, traffic: TrafficAxis) -> &'static Row {
    TABLE
        .iter()
        .find(|row| row.exit == exit && (row.traffic.is_empty() || row.traffic.contains(&traffic)))
        .unwrap_or(&TABLE[TABLE.len() - 1])
}

/// The row of a headline, as `explain` asks for it.
pub fn by_headline(headline: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.headline == headline)
}

/// `epitaph.cause` in words.
pub const CAUSES: [(Cause, &str); 17] = [
    (
        Cause::Deleted,
        "The pod was deleted: by a rollout, a scale-down, `kubectl delete`, or pod garbage collection (which the sentence names).",
    ),
    (
        Cause::EvictedApi,
        "The pod was evicted through the Eviction API: `kubectl drain`, the cluster autoscaler, a descheduler.",
    ),
    (
        Cause::EvictedNodePressure,
        "The kubelet evicted the pod: the node ran out of memory, disk or process ids, or the pod exceeded its own ephemeral storage limit.",
    ),
    (
        Cause::EvictedTaint,
        "The pod was evicted because of a NoExecute taint that it does not tolerate, or no longer tolerates.",
    ),
    (Cause::EvictedPreempted, "The pod was preempted by a pod of higher priority."),
    (
        Cause::Deadline,
        "The pod exceeded its own `activeDeadlineSeconds`. If a Job exceeds the deadline of the Job, the cause of its pods is `deleted`.",
    ),
    (
        Cause::Liveness,
        "The kubelet stopped the container because the liveness probe failed.",
    ),
    (
        Cause::Startup,
        "The kubelet stopped the container because the startup probe did not succeed in time.",
    ),
    (
        Cause::Restart,
        "The kubelet stopped only this container. An Event shows the reason: the container definition changed, or a resize requires a restart. Without such an Event the reason is unknown.",
    ),
    (
        Cause::RestartInPlace,
        "The kubelet restarted all containers of the pod in place (`RestartAllContainers`, Kubernetes 1.36): one container exited with a code of its `restartPolicyRules`, and the others were stopped without a grace period.",
    ),
    (Cause::NodeShutdown, "The node was shutting down."),
    (
        Cause::Oom,
        "Memory ran out: the memory limit was reached, or the node had no memory left.",
    ),
    (
        Cause::Crash,
        "The process failed by itself: a signal that it caused, or an exit code other than 0 without a stop signal.",
    ),
    (
        Cause::External,
        "A signal came from a sender that is neither the runtime nor the process itself.",
    ),
    (
        Cause::Stopped,
        "The container runtime or systemd stopped the process; without Kubernetes the reason is unknown.",
    ),
    (Cause::Completed, "The process exited by itself with exit code 0."),
    (Cause::Unknown, "The evidence does not show the cause."),
];

/// `epitaph.traffic` in words.
pub const TRAFFIC: [(TrafficAxis, &str); 8] = [
    (
        TrafficAxis::Cut,
        "Open connections with an unanswered request were dropped at exit.",
    ),
    (TrafficAxis::Reset, "Client connections were reset."),
    (
        TrafficAxis::Refused,
        "Clients tried to connect after the listener had closed, and were refused.",
    ),
    (
        TrafficAxis::RefusedNewPeers,
        "Only peers that had not connected before were refused: new clients, or a port scan. The clients that had been seen before connect repeatedly, and none of them was refused.",
    ),
    (
        TrafficAxis::ProxyRejected,
        "Connections of clients on this node were rejected by the network (ICMP) before they reached the process.",
    ),
    (
        TrafficAxis::Undecided,
        "Connections were open at the exit, and whether a request or an answer was under way is not known. No other connection was lost.",
    ),
    (
        TrafficAxis::Quiet,
        "The sockets were observed until they ended (the sockets of a container: until its cgroup was removed). No connection was dropped, reset, refused or rejected, and no connection in use was open at the exit.",
    ),
    (
        TrafficAxis::Unknown,
        "What clients saw is not known, for one of these reasons: the sockets were not observed, or only for part of the time; a listener closed on a kernel that does not show whether clients of other machines and of Services were refused; or nobody deleted the pod, and the pod was still Ready in the API when it ended.",
    ),
];

/// The name of an axis' value, as JSON, spans and metrics have it.
pub fn name(axis: impl serde::Serialize) -> String {
    match serde_json::to_value(axis) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("an axis is a unit variant, not {other:?}"),
    }
}

/// In falling precedence, except for `unknown`, which is last because it is the fallback.
///
/// Of the traffic rows `cut` goes first: a request that was read and then cut may have been carried out, so that it cannot be
/// repeated blindly; a reset one may have been; a refused one was not, and every client may try it again.
pub const TABLE: [Row; 25] = [
    Row {
        headline: "oom-killed",
        exit: Exit::OomKilled,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 160,
        meaning: "The OOM killer killed the main process because memory ran out. The OOM killer is the kernel's, or a daemon that kills before the kernel has to (systemd-oomd, earlyoom, nohang): the sentence names the daemon.",
        proof: "mark_victim (the kernel's record of the OOM killer's choice) names the main process, SIGKILL terminated the main process, and no other sender had sent SIGKILL before. If a daemon killed the main process, the signal came from a process of the daemon's own unit, such as systemd-oomd.service.",
        remedy: "Raise the memory limit, or reduce the memory that the process needs (heap size, caches, concurrency).",
    },
    Row {
        headline: "oom-child",
        exit: Exit::OomChild,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 150,
        meaning: "The OOM killer killed another process of the container or unit, during the stop or within the ten seconds before the main process exited. The work of the killed process was lost. The main process exited with an error or with 0.",
        proof: "mark_victim (the kernel's record of the OOM killer's choice) names another process of the same cgroup, and the main process then exited. If a daemon killed the process before the kernel had to, the daemon's signal ended a program below the main process, and this program had clients or a listener.",
        remedy: "Raise the memory limit or run fewer workers; make the main process survive the loss of a worker.",
    },
    Row {
        headline: "crashed",
        exit: Exit::Crashed,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 140,
        meaning: "The main process was terminated by a signal that it caused itself: a fault, an abort, or a resource limit. Or a fault or an abort terminated a process below PID 1, in one of two cases: PID 1 exited with 128 + the number of that signal within a second, or the stop signal had been forwarded to the process below PID 1.",
        proof: "The exit status of the process names the signal. If the main process crashed, the sender of the signal was the process itself, or the kernel because of what the process did. If a process below PID 1 crashed without a stop signal, the sender is not known.",
        remedy: "Look at the core dump or the last lines of the log: the fault is in the program.",
    },
    Row {
        headline: "killed-by-other",
        exit: Exit::KilledByOther,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 130,
        meaning: "A signal killed the main process, and the sender of the signal is neither the container runtime (or systemd) nor the main process itself. Or a process from outside killed a process below the main process, in one of two cases: the stop signal had been forwarded to the killed process; or the killed process had a listener or a connection, and the main process then exited cleanly, or with the status of the killed process (such as 137).",
        proof: "signal_generate (the kernel's record of a signal) shows the pid, name, parent and cgroup of the sender, which is neither the runtime nor the main process. If a program below the main process was killed, the record of its exit shows a listener, a connection of a client, or a connection to a server.",
        remedy: "Find out why the named sender killed the process; use the stop command of the container runtime or service manager instead.",
    },
    Row {
        headline: "stuck",
        exit: Exit::Stuck,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 128,
        meaning: "The grace period ended long ago, and the process is still running.",
        proof: "A stop was requested. More than 12 s after the end of the grace period, no exit of the main process had been seen, and no record had been lost. The agent reports the container 15 s after the end of the grace period, with the Event `TerminationStuck` and the metric `epitaph_workload_stuck_total`. No trace has this verdict: the agent writes the trace after the exit, with the verdict on that exit.",
        remedy: "Find what holds the process: uninterruptible sleep (a disk or network mount that hangs), or a kubelet or container runtime that is not running.",
    },
    Row {
        headline: "runtime-failed",
        exit: Exit::RuntimeFailed,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 125,
        meaning: "The container runtime did not start the program of the container, or lost the container.",
        proof: "The pod's status reports StartError, ContainerCannotRun or another failure to create or run the container.",
        remedy: "Read the waiting or terminated message of the container in the pod's status: the command, a mount, the image or the container runtime itself failed.",
    },
    Row {
        headline: "truncated-by-shutdown",
        exit: Exit::TruncatedByShutdown,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 123,
        meaning: "The shutdown of the node ended the process before the process had finished and before its own grace period was over.",
        proof: "A shutdown of the node was in progress, and one of these is true. SIGKILL came earlier than terminationGracePeriodSeconds after the stop signal. SIGKILL came from systemd-shutdown. The process still ran when logind's delay was over or when systemd stopped all services, and no record was lost.",
        remedy: "Give the pods more time at a shutdown of the node (shutdownGracePeriod of the kubelet, and InhibitDelayMaxSec of logind), or drain the node before the shutdown; the verdict on the shutdown itself names the limit that was too short.",
    },
    Row {
        headline: "killed-after-grace",
        exit: Exit::KilledAfterGrace,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 120,
        meaning: "The process was shutting down but had not finished when the grace period ended, so the runtime killed it. Below an init or a supervisor, the verdict also applies in two other cases: the supervisor killed the process; or the first process exited without waiting for the process, and the kernel or the container runtime then killed it.",
        proof: "The process had read the stop signal: signal_deliver shows that the process entered its handler, or the signal was no longer pending at SIGKILL, so the process had read it by signalfd or sigwait. The runtime's SIGKILL came before the exit. Below an init or a supervisor, the same is shown for the process to which the signal was forwarded. SIGKILL can then also come from the supervisor, or, when the first process exits, from the kernel or the container runtime.",
        remedy: "Make the shutdown shorter than the grace period, or the grace period longer than the shutdown; let the first process wait for the processes to which it sent the signal. If the deletion asked for less than the pod's own grace period (the sentence names both times), change what the deletion asks for: a longer grace period in the spec of the pod does not help.",
    },
    Row {
        headline: "prestop-overran",
        exit: Exit::PrestopOverran,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 118,
        meaning: "The preStop hook used up the grace period: the hook was cut off, or the time left for the main process was too short.",
        proof: "The hook ran until the grace period had (nearly) ended. The stop signal came only then, and SIGKILL followed after the kubelet's minimum of two seconds.",
        remedy: "Shorten the hook, or set terminationGracePeriodSeconds to more than the hook and the shutdown need together.",
    },
    Row {
        headline: "sidecar-starved",
        exit: Exit::SidecarStarved,
        traffic: &[],
        unclean: true,
        severity: Severity::Warning,
        precedence: 115,
        meaning: "A sidecar was killed because the main containers had used up the grace period before the sidecar got its stop signal.",
        proof: "The sidecar's stop signal came when the grace period had ended or before the last main container had exited, and SIGKILL came within about two seconds after that.",
        remedy: "Shorten the shutdown of the main containers, or raise terminationGracePeriodSeconds by the time that the sidecar needs.",
    },
    Row {
        headline: "force-killed",
        exit: Exit::ForceKilled,
        traffic: &[],
        unclean: true,
        severity: Severity::Warning,
        precedence: 110,
        meaning: "The main process was killed without a stop signal first, or the pod was deleted with a grace period of 0. Or the main process exited cleanly, and a program below it, which had a listener or a connection open, was killed without a signal first.",
        proof: "The runtime's SIGKILL reached the process, no stop signal of the runtime came before it, and no record was lost; or the deletion had a grace period of 0. For a program below the main process: signal_generate shows SIGKILL and its sender, which is the kernel if PID 1 exited, otherwise the container runtime, systemd, or a process inside the container or unit; and inet_sock_set_state shows that the exit of the program closed a listener or an established connection. Processes without sockets do not count, and processes that came in from outside (probes, `kubectl exec`) do not count.",
        remedy: "Stop the container or unit with a grace period (without `kill`, `rm --force` or a grace period of 0).",
    },
    Row {
        headline: "blocked-stop-signal",
        exit: Exit::BlockedStopSignal,
        traffic: &[],
        unclean: true,
        severity: Severity::Warning,
        precedence: 100,
        meaning: "The stop signal was never read: the process was frozen or stopped, blocked the signal, never ran its handler, or was killed before it had time to run.",
        proof: "signal_generate shows the state of the process when the stop signal was sent. At the runtime's SIGKILL the stop signal was still pending (if the kernel's record has the pending signals), and no handler had been entered. Below an init, the same is shown for the process to which the signal was forwarded.",
        remedy: "Unblock the signal (a signal mask is inherited across fork and exec), or declare the signal that the program reads as its stop signal.",
    },
    Row {
        headline: "ignored-stop-signal",
        exit: Exit::IgnoredStopSignal,
        traffic: &[],
        unclean: true,
        severity: Severity::Warning,
        precedence: 90,
        meaning: "The kernel discarded the stop signal, so the process kept running until the runtime killed it: PID 1 has no handler, its handler only raised the signal again (Node.js), or the process below an init ignores it.",
        proof: "signal_generate has the result `ignored`: for the stop signal to the main process, for the signal that the main process raised again, or for the signal that an init forwarded to a process below. Or signal_deliver shows that PID 1 had no handler when it read the signal that it had raised again. SIGKILL came later.",
        remedy: "Install a handler, use `exec` in the shell that starts the program, or run a small init (tini, dumb-init) as PID 1.",
    },
    Row {
        headline: "default-action",
        exit: Exit::DefaultAction,
        traffic: &[],
        unclean: true,
        severity: Severity::Warning,
        precedence: 80,
        meaning: "The process has no handler for the stop signal, so the signal terminated the process at once, and any work in flight was lost. If the first process is an init (such as tini), the verdict is about the process for which the init waits. A handler that raises the signal again within 10 ms counts as no handler (the handlers of language runtimes do this), unless one of these happened in between: the process sent a signal, a child exited that no other process had signalled, or a listener was closed. The verdict also applies if the main process exited cleanly, and a program below it was terminated by a signal that had not been forwarded to the program before that exit. Examples: a shell sent the stop signal only later, systemd sends it to each process, or it was another signal.",
        proof: "The exit status names the stop signal; if PID 1 raised the signal again and the kernel discarded it, the status is an error code. signal_deliver shows that the process has no handler for it, or signal_generate shows that the handler raised the signal again just after the handler had started. For a program below the main process: signal_generate shows the signal, and the record of the program's exit shows the same signal, and a listener or a client's connection of the program.",
        remedy: "Install a handler that finishes the work in flight and then exits with 0.",
    },
    Row {
        headline: "prestop-failed",
        exit: Exit::PrestopFailed,
        traffic: &[],
        unclean: true,
        severity: Severity::Warning,
        precedence: 75,
        meaning: "The main process exited cleanly, but the preStop hook failed, so the work of the hook may be incomplete.",
        proof: "sched_process_exit shows the exit code of the hook, or the kubelet reported the Event FailedPreStopHook.",
        remedy: "Run the hook by hand in the container: the program of the hook may be missing from the image, or the hook's port may be closed.",
    },
    Row {
        headline: "nonzero-exit",
        exit: Exit::NonzeroExit,
        traffic: &[],
        unclean: true,
        severity: Severity::Warning,
        precedence: 70,
        meaning: "The main process exited with a code other than 0.",
        proof: "sched_process_exit shows the exit code.",
        remedy: "Read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number.",
    },
    Row {
        headline: "cut-connections",
        exit: Exit::Clean,
        traffic: &[TrafficAxis::Cut],
        unclean: true,
        severity: Severity::Critical,
        precedence: 60,
        meaning: "The process exited cleanly, but open connections with an unanswered request were dropped at exit.",
        proof: "inet_sock_set_state shows that the process, or its exit, closed connections in the state ESTABLISHED. On these connections the last bytes of the client came after the last bytes of the server.",
        remedy: "Finish the requests in flight before the exit (graceful shutdown of the server), and allow enough time for them.",
    },
    Row {
        headline: "reset-connections",
        exit: Exit::Clean,
        traffic: &[TrafficAxis::Reset],
        unclean: true,
        severity: Severity::Warning,
        precedence: 50,
        meaning: "The process exited cleanly, but client connections were reset.",
        proof: "tcp_send_reset shows resets of existing connections: connections in the accept queue were dropped, or the server had not read all data, or data arrived after the server had closed the connection.",
        remedy: "Accept and serve the queued connections before closing the listener, and read all data before closing a connection.",
    },
    Row {
        headline: "refused-connections",
        exit: Exit::Clean,
        traffic: &[TrafficAxis::Refused],
        unclean: true,
        severity: Severity::Warning,
        precedence: 40,
        meaning: "The process exited cleanly, but clients tried to connect after the listener had closed, and were refused.",
        proof: "The listener closed, and later SYNs to its port were answered with RST.",
        remedy: "Keep listening until clients stop connecting; in a pod, add a preStop sleep that lasts until clients stop connecting.",
    },
    Row {
        headline: "proxy-rejected",
        exit: Exit::Clean,
        traffic: &[TrafficAxis::ProxyRejected],
        unclean: true,
        severity: Severity::Warning,
        precedence: 35,
        meaning: "The process exited cleanly, but connections of clients on this node were rejected by the network before they reached the process.",
        proof: "Processes on this node tried to connect to the address of the container or unit. These attempts ended with an ICMP error and without an RST.",
        remedy: "Find the network policy, proxy rule or missing route that rejected connections while the process was still running.",
    },
    Row {
        headline: "undecided-connections",
        exit: Exit::Clean,
        traffic: &[TrafficAxis::Undecided],
        unclean: false,
        severity: Severity::Info,
        precedence: 27,
        meaning: "The process exited cleanly, and connections were open at the exit: idle connections, or requests and answers under way, which the kernel cannot tell apart.",
        proof: "inet_sock_set_state shows that the exit, or close(2) as a part of the exit, closed connections in the state ESTABLISHED. On most of them the server had sent the last bytes; on the others, too, the bytes do not prove whether a request was under way. An idle keep-alive connection, an HTTP/2 stream that waits, and an answer under way look the same in the kernel.",
        remedy: "Look for lost requests in the logs of the clients; a server that finishes its requests and ends each connection with shutdown(2) before the exit leaves no connection open.",
    },
    Row {
        headline: "refused-new-peers",
        exit: Exit::Clean,
        traffic: &[TrafficAxis::RefusedNewPeers],
        // Whoever connects often enough beforehand makes refused clients look like strangers.
        unclean: true,
        severity: Severity::Warning,
        precedence: 38,
        meaning: "The process exited cleanly; only peers that had not connected before were refused: new clients, health checks, or a port scan.",
        proof: "The listener closed, and later SYNs were answered with RST. At least 20 earlier connections were observed: nearly all came from peers that connected repeatedly, and none came from a refused peer.",
        remedy: "Look at the addresses of the refused peers: if they are clients, keep listening until clients stop connecting.",
    },
    Row {
        headline: "clean-exit",
        exit: Exit::Clean,
        traffic: &[TrafficAxis::Unknown],
        unclean: false,
        severity: Severity::Info,
        precedence: 20,
        meaning: "The process exited cleanly; what clients saw was not observed.",
        proof: "The exit status shows the clean exit. What clients saw is not known for one of these reasons: the TCP probes were not active; on this kernel the TCP probes do not show the refused clients of other machines and of Services; records were lost; or nobody deleted the pod, and the pod was still Ready in the API when it ended. If records were lost, the severity is warning.",
        remedy: "Nothing to change in the program: the sentence has the reason. If the reason is an eBPF probe that was not active, `/readyz` and the first line of `epitaph watch` name the probe.",
    },
    Row {
        headline: "clean",
        exit: Exit::Clean,
        traffic: &[TrafficAxis::Quiet],
        unclean: false,
        severity: Severity::Info,
        precedence: 10,
        meaning: "The process exited cleanly, and no client connection was lost.",
        proof: "The exit is one of these: exit code 0; the code of the stop signal (128 + n) after the process handled the signal; the stop signal itself, which the process raised again after its shutdown (for PID 1 the kernel discards that signal, and the error code that follows counts as clean); or a code that an annotation or the restart rules of the container declare as expected. The sockets were observed, no connection was lost, and no connection that had been used was open at the exit.",
        remedy: "Nothing.",
    },
    Row {
        headline: "unknown",
        exit: Exit::Unknown,
        traffic: &[],
        unclean: false,
        severity: Severity::Warning,
        precedence: 30,
        meaning: "The evidence is not sufficient: for example, records were lost, a probe was not active, or the process started before the observation began.",
        proof: "None: the sentence of the report names what is missing.",
        remedy: "Follow the remedy in the report of the termination: it depends on the evidence that is missing. If the process started before the observation began, there is nothing to fix.",
    },
];

#[cfg(test)]
mod tests;
