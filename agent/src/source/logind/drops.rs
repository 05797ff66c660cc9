//! What was dropped, by reason: by the role on its way from the bus, and by the agent on its way from the role.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why something is not among the node's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogindDropReason {
    /// The role: signals of senders other than logind, beyond the rate that is looked into or the room that they have.
    Strangers,
    /// The role: more signals of logind and systemd at once than wait.
    SignalQueue,
    /// The role: signals with the right name and another content, or from a sender that does not send such.
    Garbage,
    /// The role: locks beyond the longest list.
    Locks,
    /// The role: what logind or systemd announced while the agent read too slowly, or was away.
    RoleQueue,
    /// The agent: connections from another user, or while there is one.
    Peer,
    /// The agent: messages longer than any of the role.
    Oversize,
    /// The agent: messages that are not the role's, or of another version.
    Undecodable,
}

impl LogindDropReason {
    pub const ALL: [LogindDropReason; 8] = [
        LogindDropReason::Strangers,
        LogindDropReason::SignalQueue,
        LogindDropReason::Garbage,
        LogindDropReason::Locks,
        LogindDropReason::RoleQueue,
        LogindDropReason::Peer,
        LogindDropReason::Oversize,
        LogindDropReason::Undecodable,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            LogindDropReason::Strangers => "logind_strangers",
            LogindDropReason::SignalQueue => "logind_signal_queue",
            LogindDropReason::Garbage => "logind_garbage",
            LogindDropReason::Locks => "logind_locks",
            LogindDropReason::RoleQueue => "logind_role_queue",
            LogindDropReason::Peer => "logind_peer",
            LogindDropReason::Oversize => "logind_oversize",
            LogindDropReason::Undecodable => "logind_undecodable",
        }
    }

    /// Whether what was dropped can have been a message of logind or systemd: then what they said is in doubt. All others anybody on
    /// the bus can provoke, and they are counted only.
    pub const fn hides_logind(self) -> bool {
        match self {
            LogindDropReason::SignalQueue
            | LogindDropReason::RoleQueue
            | LogindDropReason::Oversize
            | LogindDropReason::Undecodable => true,
            // Of a list that is too long, those that delay or block a shutdown come first, and the kubelet's before all.
            LogindDropReason::Locks | LogindDropReason::Strangers | LogindDropReason::Garbage | LogindDropReason::Peer => false,
        }
    }

    /// By [`LogindDropReason::name`].
    pub fn of(name: &str) -> Option<LogindDropReason> {
        LogindDropReason::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

/// Totals by reason.
#[derive(Debug, Default)]
pub(super) struct Drops([AtomicU64; LogindDropReason::ALL.len()]);

impl Drops {
    pub fn add(&self, reason: LogindDropReason, count: u64) {
        self.0[reason as usize].fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self, reason: LogindDropReason) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }

    /// What was added since the last call.
    pub fn take(&self) -> Vec<(LogindDropReason, u64)> {
        let taken = LogindDropReason::ALL
            .into_iter()
            .map(|reason| (reason, self.0[reason as usize].swap(0, Ordering::Relaxed)));
        taken.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_counter_and_a_name_of_its_own() {
        let drops = Drops::default();
        for (at, reason) in LogindDropReason::ALL.into_iter().enumerate() {
            assert_eq!((reason as usize, LogindDropReason::of(reason.name())), (at, Some(reason)));
            drops.add(reason, at as u64);
        }
        assert_eq!(drops.get(LogindDropReason::Peer), 5);
        assert_eq!(drops.take().len(), 7);
        assert!(drops.take().is_empty());
    }
}
