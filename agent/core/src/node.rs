//! A node's shutdown as logind, systemd and the kubelet's files show it.
//!
//! Every text comes from outside: bounded and safe to print. Times on the bus have no clock of their own: an input's time is that of
//! its arrival.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{Pid, PodUid};
use crate::time::Wall;

/// One observation about the node. Sent on change; [`NodeEvent::Inhibitors`], [`NodeEvent::DelayLimit`], [`NodeEvent::Kubelet`] and
/// [`NodeEvent::Bus`] are complete states and replace the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum NodeEvent {
    /// Whether logind can be observed at all.
    Bus { state: BusState },
    /// `PrepareForShutdown`, or `PrepareForShutdownWithMetadata`, from whoever sent it.
    Prepare {
        /// False: the shutdown was cancelled, or its job is gone.
        start: bool,
        /// Only `PrepareForShutdownWithMetadata` (systemd 255) has the type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<ShutdownKind>,
        sender: SignalSender,
    },
    /// `ScheduledShutdown`, or `/run/systemd/shutdown/scheduled` before systemd 257. None: nothing is scheduled (any more).
    Scheduled { shutdown: Option<ScheduledShutdown> },
    /// All locks, by `ListInhibitors`.
    Inhibitors { locks: Vec<Inhibitor> },
    /// `InhibitDelayMaxUSec` as in force.
    DelayLimit { limit: Duration },
    /// Our own delay lock.
    OwnLock { state: OwnLock },
    /// systemd's `JobNew` or `JobRemoved` of a target that ends the machine.
    Job { unit: String, removed: bool },
    /// systemd's `SystemState`, as text: `running`, `stopping`, …
    SystemState { state: String },
    /// systemd-oomd's `Killed`: the cgroup whose processes it has killed, with all below it, and why (`memory-used`, `memory-pressure`).
    OomKilled { cgroup: String, reason: String },
    /// The kubelet's configuration of graceful node shutdown, as its files say.
    Kubelet { config: Result<KubeletShutdown, String> },
    /// The kubelet's `graceful_node_shutdown_state`, at the start of the agent and when it changes.
    KubeletState { state: Result<KubeletState, String> },
    /// The agent ends in order, because it was asked to: what follows is not observed. `pod` is its own, by the UID of its cgroups.
    AgentEnds {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pod: Option<PodUid>,
    },
    /// Messages from the logind role were dropped or could not be read: what they said is not known.
    Lost { reason: String, count: u64 },
}

/// Whether the source of logind's events works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "bus", rename_all = "snake_case")]
pub enum BusState {
    /// Connected, and subscribed before the first states were read. The owner of org.freedesktop.login1 as its unique name.
    Connected {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        systemd: Option<u32>,
        /// `PreparingForShutdown` at that time: a shutdown whose begin was not observed.
        preparing: bool,
    },
    /// No bus, no logind, or refused: with the remedy in the text. Retried.
    Unavailable { reason: String },
    /// The role does not run or was switched off.
    Off,
}

/// `type` of `PrepareForShutdownWithMetadata`, of a scheduled shutdown, or read from the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShutdownKind {
    PowerOff,
    Reboot,
    Halt,
    Kexec,
    SoftReboot,
}

names! {
    /// As logind writes it on the bus.
    all ShutdownKind:
    PowerOff => "power-off",
    Reboot => "reboot",
    Halt => "halt",
    Kexec => "kexec",
    SoftReboot => "soft-reboot",
}

impl ShutdownKind {
    /// logind's other spelling, in `ScheduledShutdown`, is `poweroff`.
    pub fn parse(name: &str) -> Option<ShutdownKind> {
        match name {
            "poweroff" => Some(ShutdownKind::PowerOff),
            name => ShutdownKind::ALL.into_iter().find(|kind| kind.name() == name),
        }
    }
}

/// Who sent a signal on the bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum SignalSender {
    /// The owner of org.freedesktop.login1 at that time.
    Logind,
    /// Anybody else: spoofed. What is known of the sender while it is still connected.
    Other {
        /// Unique bus name.
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<Pid>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comm: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unit: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledShutdown {
    /// As logind writes it; `dry-` in front means that nothing will happen.
    #[serde(rename = "type")]
    pub kind: String,
    pub at: Wall,
}

/// A line of `ListInhibitors`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Inhibitor {
    /// `shutdown`, `sleep:shutdown`, …
    pub what: String,
    pub who: String,
    pub why: String,
    pub mode: InhibitMode,
    pub uid: u32,
    pub pid: Pid,
}

impl Inhibitor {
    pub fn blocks(&self) -> bool {
        matches!(self.mode, InhibitMode::Block | InhibitMode::BlockWeak)
    }

    pub fn is_for_shutdown(&self) -> bool {
        self.what.split(':').any(|what| what == "shutdown")
    }

    /// `who` of the role's own lock.
    pub const OWN: &str = "epitaph";

    /// As the kubelet's, root's: anybody can give that name.
    pub fn is_own(&self) -> bool {
        self.is_for_shutdown() && self.mode == InhibitMode::Delay && self.who == Inhibitor::OWN && self.uid == 0
    }

    /// The kubelet's own lock, by the name that it gives.
    pub fn is_kubelets(&self) -> bool {
        self.is_for_shutdown() && self.mode == InhibitMode::Delay && self.who == "kubelet" && self.uid == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InhibitMode {
    Delay,
    Block,
    /// systemd 257.
    BlockWeak,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "lock", rename_all = "snake_case")]
pub enum OwnLock {
    Held,
    /// Let go: the evidence is on disk and offered to the collector, or the time for it was over.
    Released,
    /// Not taken, with the reason (polkit refuses a uid other than 0).
    Refused {
        reason: String,
    },
}

/// Graceful node shutdown in a kubelet's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletShutdown {
    /// Where the configuration was read.
    pub source: String,
    /// `shutdownGracePeriod`; zero is the default: no pod is protected.
    pub total: Duration,
    /// `shutdownGracePeriodCriticalPods`, of the total.
    pub critical: Duration,
    /// `shutdownGracePeriodByPodPriority`, lowest priority first; empty: `total` and `critical` decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_priority: Vec<PriorityPeriod>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityPeriod {
    /// From this pod priority on.
    pub priority: i32,
    pub period: Duration,
}

/// Pods of `system-cluster-critical` and above: the kubelet's critical phase.
pub const CRITICAL_PRIORITY: i32 = 2_000_000_000;

impl KubeletShutdown {
    /// The phases in their order, lowest priority first: the kubelet's own conversion of the two periods. Empty: no protection.
    pub fn phases(&self) -> Vec<PriorityPeriod> {
        if !self.by_priority.is_empty() {
            return self.by_priority.clone();
        }
        if self.total.is_zero() {
            return Vec::new();
        }
        vec![
            PriorityPeriod {
                priority: 0,
                period: self.total.saturating_sub(self.critical),
            },
            PriorityPeriod {
                priority: CRITICAL_PRIORITY,
                period: self.critical,
            },
        ]
    }

    /// The delay that the kubelet asks of logind.
    pub fn needed(&self) -> Duration {
        self.phases().iter().map(|phase| phase.period).sum()
    }
}

/// `graceful_node_shutdown_state`: times of the last shutdown that the kubelet managed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Wall>,
    /// None after a start: the shutdown was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Wall>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_the_kubelets() {
        let periods = KubeletShutdown {
            total: Duration::from_secs(60),
            critical: Duration::from_secs(30),
            ..KubeletShutdown::default()
        };
        let phases: Vec<(i32, u64)> = periods.phases().iter().map(|p| (p.priority, p.period.as_secs())).collect();
        assert_eq!(phases, [(0, 30), (CRITICAL_PRIORITY, 30)]);
        assert_eq!(periods.needed(), Duration::from_secs(60));
        assert!(KubeletShutdown::default().phases().is_empty());
    }

    #[test]
    fn kinds_in_both_spellings() {
        for kind in ShutdownKind::ALL {
            assert_eq!(ShutdownKind::parse(kind.name()), Some(kind));
        }
        assert_eq!(ShutdownKind::parse("poweroff"), Some(ShutdownKind::PowerOff));
        assert_eq!(ShutdownKind::parse("dry-poweroff"), None);
    }
}
