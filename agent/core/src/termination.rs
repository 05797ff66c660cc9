//! The facts of one termination: the kernel's evidence, before the judgement. Made by `correlate`, read by `verdict`, `render`
//! and the sinks.

mod forward;
mod process;
mod traffic;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::attribute::{Attribution, Subject};
use crate::container::ContainerFact;
use crate::event::{Disposition, SignalResult, SignalSet, TargetState, si_code};
use crate::ids::{CgroupId, Signal, SystemCall};
use crate::ledger::{Claim, Hole, MissingEvidence};
use crate::shutdown::EndedByShutdown;
use crate::time::Boot;
use crate::tolerances::LATE_REACH;

pub use forward::{Forward, Held, InnerKill, Inside, Killed, RaisedAgain, Unsignalled};
pub use process::{Actor, InnerProcess, MainExit, MainProcess, OomKill, OomRole, PodContainer, Role, is_oom_daemon};
pub use traffic::{
    ClientPeer, ClientPeers, Count, KubeletTraffic, ListenerClosed, PeerPlace, PortRefused, RefusalWindow, Refused,
    RefusedSource, Traffic, Undecided, Unlooked, UnseenTraffic,
};

/// Identifies a termination on any machine and after any restart of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TerminationKey {
    pub boot_id: String,
    pub cgroup: CgroupId,
    /// Start of the main process: a unit's cgroup can see several terminations. None if the main process was never known.
    pub main_start: Option<Boot>,
}

/// The first stop signal, with the kernel's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub at: Boot,
    pub signal: Signal,
    pub sender: Actor,
    pub result: SignalResult,
    pub disposition: Disposition,
    pub state: TargetState,
    /// The process entered its handler for the signal.
    pub handler_entered: Option<Boot>,
    pub raised_again: Option<RaisedAgain>,
    /// The main process had not read the signal when its SIGKILL came. None: no SIGKILL, or its record does not have the pending
    /// signals.
    pub still_pending: Option<bool>,
    /// Later stop signals to the main process (a second `docker stop`, an impatient operator).
    pub repeated: u32,
    /// All stop signals that the container runtime sent the main process.
    pub by_runtime: SignalSet,
}

impl Stop {
    /// By the kernel, so that nothing follows from it.
    pub fn is_discarded(&self) -> bool {
        self.result == SignalResult::Ignored
    }

    /// When it began its shutdown: who raised the signal again without a handler had read it before.
    pub fn began(&self) -> Option<Boot> {
        self.handler_entered.or(self.raised_again.and(Some(self.at)))
    }
}

/// The SIGKILL to the main process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    pub at: Boot,
    pub sender: Actor,
    /// By `cgroup.kill`.
    pub cgroup_kill: bool,
}

/// Without a stop signal: another process of the subject that a fault or an abort terminated, just before the main process exited with
/// 128 + that signal, as shells and inits do with the status of their child; or one with clients' sockets that any signal terminated,
/// before the main process exited with 0, as a shell does that goes on after its child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedChild {
    pub process: InnerProcess,
    pub exit: MainExit,
}

/// How far the evidence goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Records lost while this was going on, by kind's name.
    pub lost: Vec<(&'static str, u64)>,
    /// Facts over the cap of one timeline: counted, not kept.
    pub over_cap: u64,
    /// The process was already running when its observation began, so an earlier stop signal is possible.
    pub late_start: bool,
    /// Times without observation, of those that can matter; without one whose end is not known.
    pub unobserved: Vec<Unobserved>,
    /// How many records of its own processes were lost, and in which time; None if some were, or may have been, of others.
    pub own_lost: Option<(u64, Duration)>,
    /// Probes that were not active, by name.
    pub inactive_probes: Vec<String>,
    /// After the deletion request, or the begin, the wall clock stepped by so many nanoseconds, or a pause of the machine ended: wall
    /// times from before are wrong by as much.
    pub clock_step: Option<i64>,
}

impl Gaps {
    /// How long epitaph did not observe, in all.
    pub fn unobserved_length(&self) -> Duration {
        self.unobserved.iter().map(Unobserved::length).sum()
    }
}

/// A time in which epitaph did not observe, and the process ran or may have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unobserved {
    pub since: Boot,
    pub until: Boot,
}

impl Unobserved {
    pub fn length(&self) -> Duration {
        self.until.since(self.since)
    }
}

/// The kernel's evidence of one termination of a container or a unit.
///
/// Complete when the subject's machine returns the value. Before the one judgement, the pods' machine adds facts that only the API
/// has: the senders' containers, and that clients were watched too late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminationFacts {
    pub key: TerminationKey,
    pub subject: Subject,
    /// The container as the files of its runtime describe it, where they do.
    pub container: Option<Arc<ContainerFact>>,
    /// Path of the subject's cgroup, where known.
    pub cgroup_path: Option<String>,
    pub main: Option<MainProcess>,
    /// First evidence: the stop signal, otherwise the kill, otherwise the exit.
    pub begin: Boot,
    /// Exit of the main process, otherwise the removal of the cgroup.
    pub end: Boot,
    pub stop: Option<Stop>,
    /// The SIGKILL that took effect.
    pub kill: Option<Kill>,
    /// The fatal signal, as it was sent; for a SIGKILL the same as `kill`.
    pub fatal: Option<Fatal>,
    pub exit: Option<MainExit>,
    pub inside: Inside,
    pub failed_child: Option<FailedChild>,
    pub oom: Vec<OomKill>,
    /// Why systemd-oomd killed the subject, in its own words on the bus.
    pub oomd_reason: Option<String>,
    /// Number of other processes of the subject that exited between `begin` and `end`.
    pub other_exits: u64,
    pub traffic: Traffic,
    /// Lost evidence, for the reader.
    pub gaps: Gaps,
    /// Lost or unobserved evidence that could have changed the verdict.
    pub missing: MissingEvidence,
    /// Why the exit was not observed; valid if `exit` is None.
    pub open: Open,
    /// The node's shutdown that stopped it, if one did.
    pub shutdown: Option<EndedByShutdown>,
}

/// How the fatal signal was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fatal {
    pub at: Boot,
    pub signal: Signal,
    /// `si_code`.
    pub code: i32,
    /// The sender was the exiting init of the target's pid namespace.
    pub namespace_ended: bool,
    /// Of SIGSYS, the system call for which the kernel raised it, where the record has it.
    pub call: Option<SystemCall>,
    pub sender: Actor,
}

/// Why the exit of the main process was not observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Open {
    #[default]
    CgroupRemoved,
    ObservationEnded,
    /// The cap on live timelines closed it.
    TimelineCap,
    /// The process exited in a gap of the observation, between these two.
    InGap {
        since: Boot,
        until: Boot,
    },
    /// The node went down: this is the last that is known. `agent_ended`: in order, before the node.
    NodeDown {
        agent_ended: bool,
    },
}

impl TerminationFacts {
    /// The observation ended first: the next observation reports the termination.
    pub fn is_still_ending(&self) -> bool {
        self.open == Open::ObservationEnded && self.exit.is_none()
    }

    /// The exit of the main process, at the earliest.
    pub fn earliest_end(&self) -> Boot {
        match (self.exit, self.open) {
            (Some(exit), _) => exit.at,
            (None, Open::InGap { since, .. }) => since,
            // A process that gets a signal has not exited.
            (None, _) => self.begin,
        }
    }

    /// The first stop signal, if the container runtime sent it, or the manager of units.
    pub fn runtime_stop(&self) -> Option<&Stop> {
        self.stop.as_ref().filter(|stop| stop.sender.role == Role::Runtime)
    }

    pub fn runtime_kill(&self) -> Option<&Kill> {
        self.kill.as_ref().filter(|kill| kill.sender.role == Role::Runtime)
    }

    /// Without an observed stop signal: where the first one may be hidden.
    pub fn hidden_stops(&self) -> impl Iterator<Item = &Hole> {
        let hidden = self.stop.is_none().then(|| self.missing.hidden_stops());
        hidden.into_iter().flatten()
    }

    /// The pod's sandbox, by its runtime's annotation.
    pub fn is_sandbox(&self) -> bool {
        self.container.as_ref().is_some_and(|container| container.sandbox)
    }

    /// With the containers of the signals' senders, from `of`.
    #[must_use]
    pub fn with_sender_pods(mut self, of: impl Fn(&Attribution) -> Option<Arc<PodContainer>>) -> TerminationFacts {
        let senders = [
            self.stop.as_mut().map(|stop| &mut stop.sender),
            self.kill.as_mut().map(|kill| &mut kill.sender),
            self.fatal.as_mut().map(|fatal| &mut fatal.sender),
        ];
        for sender in senders.into_iter().flatten() {
            sender.pod = of(&sender.place);
        }
        self
    }

    /// With what is known of the clients' addresses, from `of`.
    #[must_use]
    pub fn with_peer_places(mut self, of: impl Fn(IpAddr) -> PeerPlace) -> TerminationFacts {
        let peers = self.traffic.peers.top.iter_mut();
        for peer in peers.filter(|peer| peer.place == PeerPlace::Elsewhere) {
            peer.place = of(peer.address);
        }
        self
    }

    /// Clients were not watched for the whole time that counts.
    #[must_use]
    pub fn with_traffic_unobserved(mut self) -> TerminationFacts {
        self.traffic.observed = false;
        self.traffic.peers.is_complete = false;
        self
    }

    /// Of a container with this grace period at most: a stop that began longer ago was over, so neither a gap nor a loss from before hides a
    /// stop signal of this termination.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> TerminationFacts {
        let reach = grace.max(LATE_REACH);
        // The exit of a process that is killed may be late.
        let deadline = self.kill.as_ref().map_or(self.begin, |kill| kill.at);
        let (begin, missing) = (self.begin, &mut self.missing);
        missing.retain(Claim::NoStop, |hole| hole.to.is_none_or(|to| to.plus(reach) > deadline));
        self.gaps.late_start &= missing.late_start().is_some();
        self.gaps
            .unobserved
            .retain(|gap| gap.until > begin || gap.until.plus(reach) > deadline);
        self
    }

    /// The container's remaining processes have exited, too.
    #[must_use]
    pub fn with_leftover(mut self) -> TerminationFacts {
        self.other_exits += 1;
        self
    }
}

impl Fatal {
    /// `si_code` above 0 and below 128: the kernel signals the process's own fault.
    pub fn is_fault(&self) -> bool {
        self.code > 0 && self.code < si_code::KERNEL
    }

    /// By kill(2), sigqueue(3) or tkill(2): neither a timer nor the kernel raised it.
    pub fn is_sent(&self) -> bool {
        [si_code::USER, si_code::QUEUE, si_code::TKILL].contains(&self.code)
    }
}
