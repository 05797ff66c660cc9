//! The table of a shutdown's verdicts: docs, `explain`, metrics and span status come from it.

use crate::verdict::{Severity, ShutdownOutcome};

/// What one headline means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// `epitaph.shutdown.verdict`.
    pub headline: &'static str,
    pub outcome: ShutdownOutcome,
    pub unclean: bool,
    pub severity: Severity,
    pub meaning: &'static str,
    pub proof: &'static str,
    pub remedy: &'static str,
}

pub fn row(outcome: ShutdownOutcome) -> &'static Row {
    TABLE
        .iter()
        .find(|row| row.outcome == outcome)
        .unwrap_or(&TABLE[TABLE.len() - 1])
}

/// The row of a headline, as `explain` asks for it.
pub fn by_headline(headline: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.headline == headline)
}

/// The worst first, except for `unknown`, which is last because it is the fallback.
pub const TABLE: [Row; 9] = [
    Row {
        headline: "unannounced",
        outcome: ShutdownOutcome::Unannounced,
        unclean: true,
        severity: Severity::Critical,
        meaning: "The node went down without any announcement: power loss, a reset, a kernel panic, `reboot -f` or `systemctl reboot --force --force`. No process was asked to stop.",
        proof: "Another boot began. In the boot before, logind was observed without a gap up to the last evidence and announced nothing, and systemd had no job for a shutdown.",
        remedy: "Look at the end of the previous boot's log (`journalctl -b -1 -e`) and at the log of the power supply, the hypervisor or the cloud provider; reboot with `systemctl reboot`, without `-f`.",
    },
    Row {
        headline: "bypassed",
        outcome: ShutdownOutcome::Bypassed,
        unclean: true,
        severity: Severity::Critical,
        meaning: "systemd shut the node down without asking logind, so no lock could delay the shutdown. The kubelet did not know of the shutdown, and systemd stopped the pods' processes together with everything else. On a drained node the severity is info and the shutdown is not unclean.",
        proof: "systemd had a job for shutdown.target or another target that ends the machine; or the state of systemd was `stopping`; or PID 1 got the signal for a shutdown. logind was observed without a gap, and sent no PrepareForShutdown before.",
        remedy: "Use `systemctl poweroff` or `systemctl reboot`, without `--force`; with systemd before version 251 neither `shutdown now` nor `reboot` goes through logind, and with systemd before version 227 no command does: then drain the node first.",
    },
    Row {
        headline: "unprotected",
        outcome: ShutdownOutcome::Unprotected,
        unclean: true,
        severity: Severity::Critical,
        meaning: "The kubelet held no lock that delays the shutdown, so the shutdown did not wait for the pods. On a drained node the severity is info and the shutdown is not unclean.",
        proof: "When logind sent PrepareForShutdown, its complete list of inhibitors had no delay lock of the kubelet for `shutdown`. Or PID 1 stopped pods and services together, the agent was stopped before a message of the bus arrived, and another boot followed.",
        remedy: "Set shutdownGracePeriod and shutdownGracePeriodCriticalPods in the kubelet's configuration, and an InhibitDelayMaxSec of logind that is not shorter; `epitaph doctor` names the file that decides.",
    },
    Row {
        headline: "truncated",
        outcome: ShutdownOutcome::Truncated,
        unclean: true,
        severity: Severity::Critical,
        meaning: "logind announced the shutdown, and the shutdown ended too early: a phase of the kubelet or logind's delay expired before all pods had terminated, or the machine lost power or was reset during the shutdown.",
        proof: "One of three things was observed. A container of a pod got SIGKILL before the end of the pod's grace period, or still ran when logind's delay ended. The kubelet's record of the shutdown has a start and no end. Or another boot began, the agent had observed without a gap until then, and nothing had asked the agent to stop.",
        remedy: "Raise shutdownGracePeriod (and logind's InhibitDelayMaxSec with it) to the time that the named pods need, or shorten the shutdown of these pods; after a power loss, look at the log of the power supply, the hypervisor or the cloud provider.",
    },
    Row {
        headline: "spoofed",
        outcome: ShutdownOutcome::Spoofed,
        unclean: true,
        severity: Severity::Critical,
        meaning: "A process other than logind sent the announcement PrepareForShutdown. The kubelet does not check who sent it: the kubelet terminates the pods although the node stays up.",
        proof: "The sender of the signal on the bus was not the owner of org.freedesktop.login1.",
        remedy: "Find the process that the sentence names (a sender that had left the bus is not known), and find out who may use the system bus. Restart the kubelet, because the kubelet takes its lock only when it starts.",
    },
    Row {
        headline: "blocked",
        outcome: ShutdownOutcome::Blocked,
        unclean: false,
        severity: Severity::Warning,
        meaning: "The time of a scheduled shutdown came, but the shutdown did not begin, because a process holds a block lock.",
        proof: "Ten seconds after the scheduled time logind had not sent PrepareForShutdown, and the list of inhibitors has a block lock for `shutdown`.",
        remedy: "Terminate the process that holds the lock, or wait until the process exits; `systemctl poweroff -i` or `systemctl reboot -i` ignores the lock and still goes through logind.",
    },
    Row {
        headline: "cancelled",
        outcome: ShutdownOutcome::Cancelled,
        unclean: false,
        severity: Severity::Info,
        meaning: "The shutdown was cancelled after its announcement, or a scheduled shutdown was cancelled before its time. Pods that the kubelet had already terminated stay terminated; if there are such pods, the severity is warning.",
        proof: "logind sent PrepareForShutdown(false); or logind dropped the scheduled shutdown before its time; or systemd left the state `stopping` or dropped its shutdown job, and the machine continued to run.",
        remedy: "Nothing, if no pod was terminated; otherwise delete the pods that are Failed with the reason Terminated, if no controller replaces them.",
    },
    Row {
        headline: "graceful",
        outcome: ShutdownOutcome::Graceful,
        unclean: false,
        severity: Severity::Info,
        meaning: "logind waited for the kubelet, and all pods terminated within their phases; or, on a machine without a kubelet, systemd stopped the services after logind's announcement. Clients can still lose requests, because a pod's endpoints may stay ready until the pod has ended. If clients lost connections, the sentence has the number of lost connections by workload, and the severity is warning.",
        proof: "logind sent PrepareForShutdown, the kubelet held a lock and released it in time, and every pod that ran or was started meanwhile exited without an early SIGKILL.",
        remedy: "Nothing, if no client lost a connection. Otherwise run `kubectl drain NODE` before the shutdown: this command evicts the pods, and the endpoints of an evicted pod stop being ready at once, so that Services send clients to other pods. Each pod has its own verdict.",
    },
    Row {
        headline: "unknown",
        outcome: ShutdownOutcome::Unknown,
        unclean: false,
        severity: Severity::Warning,
        meaning: "The evidence is not sufficient: logind was not observed, messages or records were lost, or the agent stopped before the pods had terminated.",
        proof: "None: the sentence of the report names what is missing.",
        remedy: "`epitaph doctor` shows what cannot be observed on this node.",
    },
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::verdict::table::name;

    #[test]
    fn every_outcome_has_one_row_that_has_its_name() {
        let outcomes: HashSet<_> = TABLE.iter().map(|row| row.outcome).collect();
        assert_eq!(outcomes.len(), TABLE.len());
        for row in &TABLE {
            assert_eq!(row.headline, name(row.outcome));
            assert_eq!(by_headline(row.headline), Some(row));
            assert_eq!(super::row(row.outcome), row);
        }
        assert_eq!(row(ShutdownOutcome::Unknown), &TABLE[TABLE.len() - 1]);
    }
}
