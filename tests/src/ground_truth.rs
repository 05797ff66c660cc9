//! The facts that the players know, compared with the story before any verdict on it counts.

use std::time::Duration;

use crate::bystander::What;
use crate::cgroup::SLICE;
use crate::play::{Played, Role};
use crate::runtime::{Did, Stop};
use crate::story::{Bystander, End, Story};

impl Played {
    /// The differences between the facts and the story: with any of them the story was not played, and no verdict on it counts.
    pub fn differs(&self, role: &Role) -> Vec<String> {
        let mut differs = Vec::new();
        self.check_start(role, &mut differs);
        self.check_stop(role.story, &mut differs);
        self.check_end(role.story, &mut differs);
        self.check_clients(role.story, &mut differs);
        differs
    }

    fn check_start(&self, role: &Role, differs: &mut Vec<String>) {
        let started = self.did.iter().find_map(|d| match d {
            Did::Started { ns_pid, membership, .. } => Some((ns_pid, membership)),
            _ => None,
        });
        let Some((&ns_pid, membership)) = started else {
            differs.push("it never started".into());
            return;
        };
        if (ns_pid == 1) != role.story.pid_namespace {
            differs.push(format!("its own pid is {ns_pid}"));
        }
        let path = format!("/{SLICE}/{}", role.scope);
        let is_there = |line: &str| line.ends_with(&format!(":{path}")) && line.starts_with("0::") == role.sockets_attributable;
        if !membership.lines().any(is_there) {
            differs.push(format!("its cgroups are {membership:?}, without {path}"));
        }
    }

    fn check_stop(&self, story: &Story, differs: &mut Vec<String>) {
        let shim = self.did.iter().find_map(|d| {
            if let Did::Created { shim, .. } = d {
                Some(*shim)
            } else {
                None
            }
        });
        let signalled = self.did.iter().find_map(|d| match d {
            Did::Signalled { at, signal, sender } => Some((*at, *signal, *sender)),
            _ => None,
        });
        let killed = self.did.iter().find_map(|d| match d {
            Did::Killed { at, by, sender } => Some((*at, *by, *sender)),
            _ => None,
        });
        let senders = [signalled.map(|s| s.2), killed.map(|k| k.2)];
        if senders.iter().flatten().any(|&sender| Some(sender) != shim) {
            differs.push(format!("signals came from {senders:?}, but the runtime is {shim:?}"));
        }
        let (signal, plan_grace, plan_kill) = match story.stop {
            Stop::Wait => (None, Duration::ZERO, None),
            Stop::Force(by) => (None, Duration::ZERO, Some(by)),
            Stop::Signal { signal, grace, kill, .. } => (Some(signal), grace, Some(kill)),
        };
        if signalled.map(|s| s.1) != signal {
            differs.push(format!("the stop signal was {signalled:?}, not {signal:?}"));
        }
        let kill_wanted = story.is_ended_by_the_kill();
        if killed.map(|k| k.1) != plan_kill.filter(|_| kill_wanted) {
            differs.push(format!("the runtime's kill was {killed:?}, with {plan_kill:?} planned"));
        }
        if let (Some((stop, ..)), Some((kill, ..))) = (signalled, killed)
            && u128::from(kill - stop) < plan_grace.as_nanos()
        {
            differs.push("the kill came before the grace period expired".into());
        }
    }

    fn check_end(&self, story: &Story, differs: &mut Vec<String>) {
        if let Some(what) = self
            .did
            .iter()
            .find_map(|d| if let Did::Failed { what } = d { Some(what) } else { None })
        {
            differs.push(what.clone());
        }
        let (code, signal) = match story.expected.end {
            End::Code(code) => (Some(code), None),
            End::Signal(signal) => (None, Some(signal)),
        };
        let ends: Vec<_> = self.did.iter().filter(|d| matches!(d, Did::Ended { .. })).collect();
        let wanted = |d: &Did| {
            matches!(d, Did::Ended { code: c, signal: s, core_dumped, .. }
                if *c == code && *s == signal && *core_dumped == story.leaves_core)
        };
        if ends.len() != 1 || !wanted(ends[0]) {
            differs.push(format!("its end was {ends:?}, not {:?}", story.expected.end));
        }
        if !matches!(self.did.last(), Some(Did::Removed { .. })) {
            differs.push("its cgroup was not removed by the runtime".into());
        }
    }

    fn check_clients(&self, story: &Story, differs: &mut Vec<String>) {
        let count = |what| self.seen.iter().filter(|s| s.what == what).count();
        let good = match (story.bystander, story.expected.traffic) {
            (Bystander::KeepsCalling, "quiet") => !self.seen.is_empty() && count(What::Answered) == self.seen.len(),
            (Bystander::KeepsCalling, _) => {
                count(What::Refused) > 0 && count(What::Answered) + count(What::Refused) == self.seen.len()
            }
            // Neither an answer nor an end.
            (Bystander::Unheard { count: n, .. }, _) => count(What::Connected) == n && self.seen.len() == n,
            (Bystander::Rejected { count: n }, _) => count(What::Answered) == 1 && count(What::Unreachable) == n,
            (Bystander::Client { count: n, .. }, "reset") => count(What::Reset) == n,
            (Bystander::Client { count: n, .. }, "cut")
            | (
                Bystander::Client {
                    verb: "connect",
                    count: n,
                },
                "quiet",
            ) => count(What::Eof) == n,
            (
                Bystander::Client {
                    verb: "keep-alive",
                    count: n,
                },
                _,
            ) => count(What::AnsweredAndKept) == n && count(What::Eof) == n,
            (Bystander::Client { count: n, .. }, _) => count(What::Answered) == n,
            (Bystander::Load { probed, .. }, traffic) => {
                self.load.as_ref().is_some_and(|load| load.is_as_told(traffic))
                    && probed == self.probes.as_ref().is_some_and(|probes| probes.is_as_told("refused"))
            }
            (Bystander::None | Bystander::Signals { .. } | Bystander::Stops { .. } | Bystander::Debugs { .. }, _) => {
                self.seen.is_empty()
            }
        };
        if !good {
            differs.push(format!(
                "clients of a server whose traffic is `{}` saw {:?}, {:?}, a kubelet {:?}",
                story.expected.traffic, self.seen, self.load, self.probes
            ));
        }
    }

    /// When the runtime sent the stop signal, `CLOCK_BOOTTIME` nanoseconds: the kernel's record is later.
    pub fn signalled_at(&self) -> Option<u64> {
        self.did
            .iter()
            .find_map(|d| if let Did::Signalled { at, .. } = d { Some(*at) } else { None })
    }

    /// When the runtime had reaped it: the kernel's record is earlier.
    pub fn ended_at(&self) -> Option<u64> {
        self.did
            .iter()
            .find_map(|d| if let Did::Ended { at, .. } = d { Some(*at) } else { None })
    }

    /// Connections refused: at least (all of the attempt between the stop signal and the end), and at most.
    pub fn refused(&self) -> (u64, u64) {
        let (from, to) = (self.signalled_at().unwrap_or(u64::MAX), self.ended_at().unwrap_or(0));
        let refused = || self.seen.iter().filter(|s| s.what == What::Refused);
        (
            refused().filter(|s| s.from >= from && s.to <= to).count() as u64,
            refused().count() as u64,
        )
    }
}
