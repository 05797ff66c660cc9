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
        proof: "Another boot began, and up to the last evidence of the boot before, logind was observed without a gap and announced nothing, and systemd had no job for a shutdown.",
        remedy: "Look at the end of the previous boot's log (`journalctl -b -1 -e`) and at the log of the power supply, the hypervisor or the cloud provider; reboot with `systemctl reboot`, without `-f`.",
    },
    Row {
        headline: "bypassed",
        outcome: ShutdownOutcome::Bypassed,
        unclean: true,
        severity: Severity::Critical,
        meaning: "systemd shut the node down without asking logind, so that no lock could delay the shutdown: the kubelet did not know of it, and the pods' processes were stopped together with everything else. On a drained node the severity is info and the shutdown is not unclean.",
        proof: "systemd had a job for shutdown.target or another target that ends the machine, or its state was `stopping`, or PID 1 got the signal for it, and no PrepareForShutdown of logind came before, although logind was observed without a gap.",
        remedy: "Use `systemctl poweroff` or `systemctl reboot`, without `--force`; with systemd before 251 neither `shutdown now` nor `reboot` goes through logind, and before 227 no command does: drain the node first.",
    },
    Row {
        headline: "unprotected",
        outcome: ShutdownOutcome::Unprotected,
        unclean: true,
        severity: Severity::Critical,
        meaning: "The kubelet held no lock that delays the shutdown: the shutdown did not wait for the pods. On a drained node the severity is info and the shutdown is not unclean.",
        proof: "logind's inhibitors, all of them known, contained no delay lock of the kubelet for `shutdown` at PrepareForShutdown. Or PID 1 stopped pods and services together, the agent was stopped before a message of the bus arrived, and another boot followed.",
        remedy: "Set shutdownGracePeriod and shutdownGracePeriodCriticalPods in the kubelet's configuration, and an InhibitDelayMaxSec of logind that is not shorter; `epitaph doctor` names the file that decides.",
    },
    Row {
        headline: "truncated",
        outcome: ShutdownOutcome::Truncated,
        unclean: true,
        severity: Severity::Critical,
        meaning: "logind announced the shutdown, and it ended too early: a phase of the kubelet or logind's delay expired before all pods had terminated, or the machine lost power or was reset during the shutdown.",
        proof: "A pod's container got SIGKILL before the end of the pod's grace period, or still ran when logind's delay ended; or the kubelet's state of the shutdown has a start and no end; or another boot began, the agent had observed without a gap until then, and nothing had asked the agent to stop.",
        remedy: "Raise shutdownGracePeriod (and logind's InhibitDelayMaxSec with it) to what the named pods need, or shorten their shutdown; after a power loss, look at the log of the power supply, the hypervisor or the cloud provider.",
    },
    Row {
        headline: "spoofed",
        outcome: ShutdownOutcome::Spoofed,
        unclean: true,
        severity: Severity::Critical,
        meaning: "A process other than logind sent PrepareForShutdown. The kubelet does not check the sender: it terminates the pods although the node stays up.",
        proof: "The sender of the signal on the bus was not the owner of org.freedesktop.login1.",
        remedy: "Find the process that is named in the sentence (a sender that had left the bus is not known), and who may use the system bus; restart the kubelet: it takes the lock only at its start.",
    },
    Row {
        headline: "blocked",
        outcome: ShutdownOutcome::Blocked,
        unclean: false,
        severity: Severity::Warning,
        meaning: "The time of a scheduled shutdown came, and the shutdown did not begin, because a process holds a block lock.",
        proof: "Ten seconds after the scheduled time logind had not sent PrepareForShutdown, and the list of inhibitors has a block lock for `shutdown`.",
        remedy: "Terminate the process that holds the lock, or wait until the process exits; `systemctl poweroff -i` or `systemctl reboot -i` ignores the lock and still goes through logind.",
    },
    Row {
        headline: "cancelled",
        outcome: ShutdownOutcome::Cancelled,
        unclean: false,
        severity: Severity::Info,
        meaning: "The shutdown was cancelled after its announcement, or a scheduled one before its time. Pods that the kubelet had terminated by then stay terminated: then the severity is warning.",
        proof: "logind sent PrepareForShutdown(false), logind's plan was dropped before its time, or systemd left the state `stopping` or dropped its shutdown job while the machine continued.",
        remedy: "Nothing, if no pod was terminated; otherwise delete the pods that are Failed with the reason Terminated, where no controller replaces them.",
    },
    Row {
        headline: "graceful",
        outcome: ShutdownOutcome::Graceful,
        unclean: false,
        severity: Severity::Info,
        meaning: "logind waited for the kubelet, and all pods terminated within their phases; or, on a machine without a kubelet, systemd stopped the services after logind's announcement. Clients can lose requests all the same, because a pod's endpoints may stay ready until the pod has ended: where clients lost connections, the sentence has their number by workload, and the severity is warning.",
        proof: "PrepareForShutdown of logind, the kubelet's lock and its release in time, and the exit of every pod that ran or was started meanwhile, none by an early SIGKILL.",
        remedy: "Nothing, if no client lost a connection. Otherwise run `kubectl drain NODE` before the shutdown: this command evicts the pods, and the endpoints of an evicted pod stop being ready at once, so that Services send clients to other pods. Each pod has its own verdict.",
    },
    Row {
        headline: "unknown",
        outcome: ShutdownOutcome::Unknown,
        unclean: false,
        severity: Severity::Warning,
        meaning: "The evidence is not sufficient: logind was not observed, messages or records were lost, or the agent stopped before the pods had terminated.",
        proof: "None: the sentence names what is missing.",
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
