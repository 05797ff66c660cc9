//! A story: the subject, the cause of its termination, the bystanders, and the expected report.

use std::net::IpAddr;
use std::time::Duration;

use crate::programs::Installed;
use crate::runtime::{Kill, Others, Stop};

/// One termination.
#[derive(Clone, Copy, Debug)]
pub struct Story {
    /// Kebab-case, unique.
    pub name: &'static str,
    /// What happens, in a line.
    pub what: &'static str,
    pub subject: Kind,
    pub program: Program,
    /// The main process is PID 1 of a pid namespace of its own.
    pub pid_namespace: bool,
    /// Bytes.
    pub memory_limit: Option<u64>,
    pub leaves_core: bool,
    /// The server is in a network namespace of its own, behind a pair of veth; `ANY` or `ANY_IPV6` in its arguments is its address there.
    pub network_namespace: bool,
    /// Where its clients call it, for it listens on every address.
    pub called_at: Option<IpAddr>,
    pub stop: Stop,
    pub bystander: Bystander,
    pub expected: Expected,
}

/// Kind of the subject: visible only in the name of its cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Container,
    Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Arguments of the `victim` binary.
    Victim(&'static [&'static str]),
    /// A script for `/bin/sh -c`; `$VICTIM` in it is the path of the victim.
    Shell(&'static str),
    /// A real program of Debian's packages.
    Installed(Installed),
}

/// Processes other than the container and its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bystander {
    None,
    /// Sends a signal to the main process: `After` the stop signal, or before it (or without one).
    Signals {
        name: &'static str,
        signal: i32,
        when: When,
        from: Whence,
    },
    /// Stops the main process of its own accord: SIGTERM, and SIGKILL so much later, from the host.
    Stops {
        name: &'static str,
        grace_ms: u64,
    },
    /// Attached to the main process from before the stop on.
    Debugs {
        name: &'static str,
    },
    /// So many connections, made before the stop: see `crate::bystander`.
    Client {
        verb: &'static str,
        count: usize,
    },
    /// So many connections, made before the stop: see `crate::bystander`. At the stop their network is gone, and they wait.
    Unheard {
        verb: &'static str,
        count: usize,
        loss: Loss,
    },
    /// A request every 50 ms, from before the stop until after the end.
    KeepsCalling,
    /// After the stop signal one is answered; then its network namespace rejects all that comes, and so many meet that, one after another.
    Rejected {
        count: usize,
    },
    /// Ten clients of `victim http`, as `victim load` plays them, from before the stop on.
    Load {
        keep_alive: bool,
        /// Time from the stop signal until clients are sent elsewhere, as by a proxy that is notified late.
        goes_on_ms: u64,
        /// A kubelet probes it all the while, from a cgroup of its own.
        probed: bool,
    },
}

/// What takes a server's packets away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its network has no route to the clients any more.
    Route,
    /// The link to the clients drops all.
    Link,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    BeforeStop,
    /// Half a second after the stop signal.
    WithinGrace,
}

/// Where a bystander runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    Host,
    /// In the cgroup of a container of its own: the sentence must name that.
    Container,
}

/// The facts, as the players know them, and the verdict that follows from them.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The status that wait(2) returns.
    pub end: End,
    /// `epitaph.verdict`.
    pub verdict: &'static str,
    pub cause: &'static str,
    pub exit: &'static str,
    pub traffic: &'static str,
    /// Words that the sentence must have.
    pub sentence: &'static [&'static str],
    /// Words that the remedy must have; if not empty, there must be a remedy.
    pub remedy: &'static [&'static str],
    /// An early `stop-signal-ignored` must come before.
    pub early_warning: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Code(i32),
    Signal(i32),
}

/// What a machine may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    MemoryLimit,
    Freezer,
    CgroupKill,
    Ipv6,
    /// A core that stays in the story's own directory.
    CoreFile,
    /// The program of the story.
    Program(Installed),
    /// `ip`, to make network namespaces with.
    NetworkNamespace,
}

impl Story {
    pub fn needs(&self) -> Vec<Need> {
        let mut needs = Vec::new();
        if self.memory_limit.is_some() {
            needs.push(Need::MemoryLimit);
        }
        if matches!(self.stop, Stop::Signal { frozen: true, .. }) {
            needs.push(Need::Freezer);
        }
        if matches!(self.stop, Stop::Signal { kill: Kill::Cgroup, .. } | Stop::Force(Kill::Cgroup)) {
            needs.push(Need::CgroupKill);
        }
        if matches!(self.program, Program::Victim(args) if args.iter().any(|a| a.starts_with('['))) {
            needs.push(Need::Ipv6);
        }
        if let Program::Installed(program) = self.program {
            needs.push(Need::Program(program));
        }
        if self.network_namespace {
            needs.push(Need::NetworkNamespace);
        }
        if self.leaves_core {
            needs.push(Need::CoreFile);
        }
        needs
    }

    /// Whether the runtime's SIGKILL is what ends it.
    pub fn is_ended_by_the_kill(&self) -> bool {
        let by_stranger = matches!(
            self.bystander,
            Bystander::Signals {
                signal: nix::libc::SIGKILL,
                ..
            }
        );
        self.expected.end == End::Signal(nix::libc::SIGKILL) && self.stop != Stop::Wait && !by_stranger
    }
}

/// A container in its own pid namespace that gets SIGTERM, a grace of 2 s, and SIGKILL: what most stories vary.
pub(crate) const fn stopped(
    name: &'static str,
    what: &'static str,
    program: &'static [&'static str],
    expected: Expected,
) -> Story {
    Story {
        name,
        what,
        subject: Kind::Container,
        program: Program::Victim(program),
        pid_namespace: true,
        memory_limit: None,
        leaves_core: false,
        network_namespace: false,
        called_at: None,
        stop: by_signal(nix::libc::SIGTERM),
        bystander: Bystander::None,
        expected,
    }
}

pub(crate) const fn by_signal(signal: i32) -> Stop {
    Stop::Signal {
        signal,
        grace: Duration::from_secs(2),
        frozen: false,
        kill: Kill::Main,
        others: Others::Nothing,
    }
}
