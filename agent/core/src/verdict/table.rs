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
    /// Of several containers of one pod, the headline with the highest one speaks for all. Unique.
    pub precedence: u8,
    pub meaning: &'static str,
    pub proof: &'static str,
    pub remedy: &'static str,
}

/// The row of a verdict. A clean exit is qualified by what the clients saw; any other exit speaks for itself.
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
pub const CAUSES: [(Cause, &str); 16] = [
    (
        Cause::Deleted,
        "Its pod was deleted: a rollout, a scale-down, `kubectl delete`, or pod garbage collection, as the sentence then says.",
    ),
    (
        Cause::EvictedApi,
        "The Eviction API: `kubectl drain`, the cluster autoscaler, a descheduler.",
    ),
    (
        Cause::EvictedNodePressure,
        "The kubelet: the node ran out of memory, disk or process ids, or the pod over its own ephemeral storage.",
    ),
    (
        Cause::EvictedTaint,
        "A NoExecute taint that the pod does not tolerate, or not any longer.",
    ),
    (Cause::EvictedPreempted, "Room was made for a pod of higher priority."),
    (
        Cause::Deadline,
        "The pod's own `activeDeadlineSeconds` was over; over a Job's its pods are told `deleted`.",
    ),
    (Cause::Liveness, "The kubelet, because the liveness probe failed."),
    (
        Cause::Startup,
        "The kubelet, because the startup probe did not succeed in time.",
    ),
    (
        Cause::Restart,
        "The kubelet restarted or ended the container alone: for a changed definition or a resize, where an Event says so; else no evidence names why.",
    ),
    (Cause::NodeShutdown, "The node was shutting down."),
    (Cause::Oom, "Memory ran out: its own limit's, or the node's."),
    (
        Cause::Crash,
        "Its own fault: a signal of its own, or an exit code other than 0 that nobody asked for.",
    ),
    (
        Cause::External,
        "A signal from someone who is neither its runtime nor itself.",
    ),
    (
        Cause::Stopped,
        "Its runtime or systemd asked it to stop; without Kubernetes nobody says why.",
    ),
    (Cause::Completed, "It ended of its own accord with exit code 0."),
    (Cause::Unknown, "The evidence does not say."),
];

/// `epitaph.traffic` in words.
pub const TRAFFIC: [(TrafficAxis, &str); 6] = [
    (TrafficAxis::Cut, "Connections in use were open at its end and closed by it."),
    (TrafficAxis::Reset, "Clients had their connections reset."),
    (
        TrafficAxis::Refused,
        "Clients connected after its listener was closed, and were refused.",
    ),
    (
        TrafficAxis::ProxyRejected,
        "Clients on this node were rejected on the way to it (ICMP), and not by itself.",
    ),
    (
        TrafficAxis::Quiet,
        "Its sockets were observed, and no client was seen to be cut off, reset, refused or rejected.",
    ),
    (TrafficAxis::Unknown, "Its sockets were not observed, or not all the time."),
];

/// The name of an axis' value, as JSON, spans and metrics have it.
pub fn name(axis: impl serde::Serialize) -> String {
    match serde_json::to_value(axis) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("an axis is a unit variant, not {other:?}"),
    }
}

/// In falling precedence but for `unknown`, which stands last because it is what is left.
///
/// Of the traffic rows `cut` goes first: a request that was read and then cut may have been carried out, so that it cannot be
/// repeated blindly; a reset one may have been; a refused one was not, and every client may try it again.
pub const TABLE: [Row; 22] = [
    Row {
        headline: "oom-killed",
        exit: Exit::OomKilled,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 160,
        meaning: "The kernel killed the main process because memory ran out.",
        proof: "mark_victim named the main process, and it ended by SIGKILL; no SIGKILL of anybody else came first.",
        remedy: "Raise the memory limit, or make the process stay below it (heap size, caches, concurrency).",
    },
    Row {
        headline: "oom-child",
        exit: Exit::OomChild,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 150,
        meaning: "The kernel killed a child for memory, and the main process ended with an error within ten seconds.",
        proof: "mark_victim named another process of the same cgroup, then the main process ended with a code other than 0.",
        remedy: "Raise the memory limit or run fewer workers; make the main process survive the loss of one.",
    },
    Row {
        headline: "crashed",
        exit: Exit::Crashed,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 140,
        meaning: "A signal of its own making ended the main process: a fault, an abort, or a limit that it ran into.",
        proof: "The exit status names the signal, and its sender was the process itself or the kernel on its behalf.",
        remedy: "Look at the core dump or the last lines of its log; it is a fault of the program.",
    },
    Row {
        headline: "killed-by-other",
        exit: Exit::KilledByOther,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 130,
        meaning: "Someone who is neither its runtime nor itself killed the main process.",
        proof: "signal_generate shows the sender: its pid, comm, parent and cgroup are neither the runtime's nor the subject's.",
        remedy: "Stop the process that is named as the sender from doing it; use the runtime's own stop command.",
    },
    Row {
        headline: "stuck",
        exit: Exit::Stuck,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 128,
        meaning: "Its grace is long over, and it still runs.",
        proof: "Its stop was asked for; no end of its main process was seen, with nothing lost, ten seconds and more after the grace.",
        remedy: "Look for what holds it: a process in uninterruptible sleep (a disk or network mount that hangs), or a kubelet or runtime that is not running.",
    },
    Row {
        headline: "runtime-failed",
        exit: Exit::RuntimeFailed,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 125,
        meaning: "The runtime did not start the container's program, or gave it up.",
        proof: "The API reports StartError, ContainerCannotRun or another failure to create or run it.",
        remedy: "See the container's waiting or terminated message in the pod's status: the command, a mount, the image or the runtime itself.",
    },
    Row {
        headline: "killed-after-grace",
        exit: Exit::KilledAfterGrace,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 120,
        meaning: "The process was shutting down, but not done when the grace was over: the runtime killed it.",
        proof: "signal_deliver shows that it entered its handler; the runtime's SIGKILL came before its end.",
        remedy: "Make the shutdown shorter than the grace, or the grace longer than the shutdown.",
    },
    Row {
        headline: "prestop-overran",
        exit: Exit::PrestopOverran,
        traffic: &[],
        unclean: true,
        severity: Severity::Critical,
        precedence: 118,
        meaning: "The preStop hook took the grace: it was cut, or what it left the main process was too short.",
        proof: "The hook ran until the grace was (nearly) over; the stop signal came only then, and the kubelet's minimum of two seconds after it the SIGKILL.",
        remedy: "Make the hook shorter, or terminationGracePeriodSeconds longer than the hook and the shutdown together.",
    },
    Row {
        headline: "sidecar-starved",
        exit: Exit::SidecarStarved,
        traffic: &[],
        unclean: true,
        severity: Severity::Warning,
        precedence: 115,
        meaning: "A sidecar was killed because the main containers had used up the grace: it was asked to stop only then.",
        proof: "The sidecar's stop signal came when the grace was over or before the last main container ended, and its SIGKILL within about two seconds.",
        remedy: "Shorten the main containers' shutdown, or raise terminationGracePeriodSeconds by what the sidecar needs.",
    },
    Row {
        headline: "force-killed",
        exit: Exit::ForceKilled,
        traffic: &[],
        unclean: true,
        severity: Severity::Warning,
        precedence: 110,
        meaning: "The runtime killed the main process without asking it to stop first, or its pod was deleted with a grace of 0.",
        proof: "The runtime's SIGKILL reached it, and no stop signal of the runtime's before that, with nothing lost; or the deletion had a grace of 0.",
        remedy: "Stop it with a grace period (not `kill`, `rm --force` or a grace of 0).",
    },
    Row {
        headline: "blocked-stop-signal",
        exit: Exit::BlockedStopSignal,
        traffic: &[],
        unclean: true,
        severity: Severity::Warning,
        precedence: 100,
        meaning: "The stop signal was never read: the process was frozen or stopped, had it masked, or never came to its handler.",
        proof: "signal_generate shows the target's state; no handler was entered before the runtime's SIGKILL.",
        remedy: "Unmask the signal (a mask is inherited over fork and exec), or thaw the process before stopping it.",
    },
    Row {
        headline: "ignored-stop-signal",
        exit: Exit::IgnoredStopSignal,
        traffic: &[],
        unclean: true,
        severity: Severity::Warning,
        precedence: 90,
        meaning: "The kernel dropped the stop signal, so that the process never knew: it ran on until the runtime killed it.",
        proof: "signal_generate's own result says ignored; the runtime's SIGKILL came later.",
        remedy: "Install a handler, exec the program in place of the shell, or put a small init (tini, dumb-init) at PID 1.",
    },
    Row {
        headline: "default-action",
        exit: Exit::DefaultAction,
        traffic: &[],
        unclean: true,
        severity: Severity::Warning,
        precedence: 80,
        meaning: "The stop signal itself ended the process: no handler ran, and any work in flight was dropped.",
        proof: "The exit status names the stop signal, and signal_deliver shows no handler for it.",
        remedy: "Install a handler that finishes the work in flight and then exits with 0.",
    },
    Row {
        headline: "prestop-failed",
        exit: Exit::PrestopFailed,
        traffic: &[],
        unclean: true,
        severity: Severity::Warning,
        precedence: 75,
        meaning: "The main process ended cleanly, but the preStop hook failed: its work was not done.",
        proof: "sched_process_exit shows the hook's code, or the kubelet's Event FailedPreStopHook says so.",
        remedy: "Run the hook by hand in the container: its program may be missing from the image, or its port closed.",
    },
    Row {
        headline: "nonzero-exit",
        exit: Exit::NonzeroExit,
        traffic: &[],
        unclean: true,
        severity: Severity::Warning,
        precedence: 70,
        meaning: "The main process ended by itself with a code other than 0.",
        proof: "sched_process_exit shows the code.",
        remedy: "Look at its log; if the code is meant as a success after a stop signal, exit with 0 or 128 plus the signal.",
    },
    Row {
        headline: "cut-connections",
        exit: Exit::Clean,
        traffic: &[TrafficAxis::Cut],
        unclean: true,
        severity: Severity::Critical,
        precedence: 60,
        meaning: "It ended cleanly, but connections that were in use were open at its end and closed by it.",
        proof: "inet_sock_set_state shows them leave ESTABLISHED by the process's end, not provably idle.",
        remedy: "Finish the requests in flight before the exit (a server's graceful shutdown), and give it the time.",
    },
    Row {
        headline: "reset-connections",
        exit: Exit::Clean,
        traffic: &[TrafficAxis::Reset],
        unclean: true,
        severity: Severity::Warning,
        precedence: 50,
        meaning: "It ended cleanly, but clients had their connections reset.",
        proof: "tcp_send_reset shows resets of existing connections: an accept queue dropped, or data not read or come too late.",
        remedy: "Accept and serve what is queued before closing the listener, and read to the end before closing.",
    },
    Row {
        headline: "refused-connections",
        exit: Exit::Clean,
        traffic: &[TrafficAxis::Refused],
        unclean: true,
        severity: Severity::Warning,
        precedence: 40,
        meaning: "It ended cleanly, but clients went on connecting after its listener was closed and were refused.",
        proof: "The listener's end, and then SYNs to its port answered by RST.",
        remedy: "Keep listening until nobody is sent here any more: a preStop sleep as long as the clients needed.",
    },
    Row {
        headline: "proxy-rejected",
        exit: Exit::Clean,
        traffic: &[TrafficAxis::ProxyRejected],
        unclean: true,
        severity: Severity::Warning,
        precedence: 35,
        meaning: "It ended cleanly, but clients on this node were rejected on the way to it, and not by itself.",
        proof: "Connects of this node's processes to its address ended with an ICMP error and without an RST.",
        remedy: "Look for the network policy, proxy rule or missing route that rejected them before it was gone.",
    },
    Row {
        headline: "clean-exit",
        exit: Exit::Clean,
        traffic: &[TrafficAxis::Unknown],
        unclean: false,
        severity: Severity::Info,
        precedence: 20,
        meaning: "It ended cleanly; what its clients saw was not observed.",
        proof: "The exit status; the TCP probes were not active, or lost records.",
        remedy: "Nothing to change in the program; `/readyz`, and the first line of `epitaph watch`, name the TCP probes that are not active and why.",
    },
    Row {
        headline: "clean",
        exit: Exit::Clean,
        traffic: &[TrafficAxis::Quiet],
        unclean: false,
        severity: Severity::Info,
        precedence: 10,
        meaning: "It ended as it should, and no client was hurt.",
        proof: "Exit code 0, the stop signal's own (128 + n) after it was handled, or one that an annotation expects; its sockets were observed and quiet.",
        remedy: "Nothing.",
    },
    Row {
        headline: "unknown",
        exit: Exit::Unknown,
        traffic: &[],
        unclean: false,
        severity: Severity::Warning,
        precedence: 30,
        meaning: "The evidence does not suffice: something was lost, not observed, or came before the agent.",
        proof: "Nothing: the sentence says what is missing.",
        remedy: "See what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late.",
    },
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const EXITS: [Exit; 17] = [
        Exit::Clean,
        Exit::DefaultAction,
        Exit::NonzeroExit,
        Exit::IgnoredStopSignal,
        Exit::BlockedStopSignal,
        Exit::KilledAfterGrace,
        Exit::PrestopOverran,
        Exit::PrestopFailed,
        Exit::SidecarStarved,
        Exit::Stuck,
        Exit::RuntimeFailed,
        Exit::ForceKilled,
        Exit::OomKilled,
        Exit::OomChild,
        Exit::KilledByOther,
        Exit::Crashed,
        Exit::Unknown,
    ];

    #[test]
    fn every_pair_of_axes_has_exactly_one_row() {
        for exit in EXITS {
            for (traffic, _) in TRAFFIC {
                let rows = TABLE
                    .iter()
                    .filter(|row| row.exit == exit && (row.traffic.is_empty() || row.traffic.contains(&traffic)));
                assert_eq!(rows.count(), 1, "{exit:?} {traffic:?}");
                assert_eq!(row(exit, traffic).exit, exit);
            }
        }
    }

    #[test]
    fn an_exit_that_is_not_clean_names_its_own_headline() {
        for exit in EXITS.into_iter().filter(|&exit| exit != Exit::Clean) {
            let name = serde_json::to_value(exit).unwrap();
            assert_eq!(row(exit, TrafficAxis::Quiet).headline, name.as_str().unwrap());
        }
    }

    #[test]
    fn headlines_and_precedences_are_unique_and_unclean_outranks_clean() {
        let headlines: HashSet<_> = TABLE.iter().map(|row| row.headline).collect();
        let precedences: HashSet<_> = TABLE.iter().map(|row| row.precedence).collect();
        assert_eq!((headlines.len(), precedences.len()), (TABLE.len(), TABLE.len()));
        let lowest_unclean = TABLE.iter().filter(|row| row.unclean).map(|row| row.precedence).min();
        let highest_other = TABLE.iter().filter(|row| !row.unclean).map(|row| row.precedence).max();
        assert!(lowest_unclean > highest_other);
        assert!(TABLE.iter().all(|row| by_headline(row.headline) == Some(row)));
    }
}
