//! What a history is: all that is drawn, and nothing that happens. A history as JSON can be played again.

use std::fmt::{Display, Formatter, Result};

use nix::libc::SIGKILL;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

/// One termination: how a program starts, what its clients do, and how it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// What starts the program, the outermost first. Empty: the program is the first process.
    pub entry: Vec<Wrapper>,
    pub pid_namespace: bool,
    /// A network namespace of its own, or the machine's.
    pub own_network: bool,
    pub bind: Bind,
    pub program: Program,
    pub clients: Vec<Client>,
    /// From the first answers to the begin of the end.
    pub lead_ms: u32,
    pub stop: Stop,
    /// What somebody runs in the container again and again.
    #[serde(default)]
    pub probes: Option<Probes>,
    /// What keeps the program from running, from before the stop on.
    #[serde(default)]
    pub held: Option<Held>,
}

/// Commands in the container, started from outside: probes of the kubelet, or a person's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probes {
    pub every_ms: u32,
    pub does: Exec,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exec {
    True,
    False,
    /// Connects to the server, and closes.
    Connects,
    /// Is killed after a while, by who started it.
    Hangs,
}

/// A stranger stops the program by SIGSTOP, and continues it so long after the stop signal, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub until_ms: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wrapper {
    /// `sh -c '"$@"; exit $?'`
    Sh,
    /// `sh -c 'exec "$@"'`
    Exec,
    /// `sh -c '"$@"; exit 0'`
    ShZero,
    /// `sh -c '"$@" & wait'`
    Background,
    /// A trap that sends the signal on, and waits.
    TrapWaits,
    /// A trap that sends the signal on, and exits with 0 at once.
    TrapExits,
    /// A trap that exits with 0, and sends nothing.
    TrapForgets,
    Tini,
    TiniGroup,
    DumbInit,
    /// Only the child gets the signal, not its session.
    DumbInitChild,
    /// A session of its own, `setsid --wait`.
    Setsid,
    /// The program's parent exits with 0 as soon as the program serves.
    DoubleFork,
    /// A shell that starts a daemon and stays: `service a start; tail -f log`.
    Service,
    /// runsvdir with runsv.
    Runit,
    /// s6-svscan with s6-supervise.
    S6,
    Supervisord,
    /// A trap that sends the signal on, waits, and raises it again for its default action.
    TrapRaises,
    /// A shell that goes on for a while when its child has ended, and exits with the child's code, or with 0.
    Lingers {
        ms: u32,
        zero: bool,
    },
    /// A pid namespace of its own, `unshare --pid --fork`.
    PidNamespace,
}

/// The server's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bind {
    V4,
    V6,
    /// All addresses of both families; clients by IPv4.
    Any,
    /// HTTP/1.1 over a path.
    Unix,
    /// A datagram for a request, one for the answer.
    Udp,
    /// Two addresses, as of `V4` and of `Unix`; a client uses one of them.
    TcpAndUnix,
    TcpAndUdp,
}

/// A server of HTTP/1.1. The request has the time that the answer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub handling: Handling,
    pub reaction: Reaction,
    /// Exit code of every exit that the program decides on.
    pub code: i32,
    /// Takes what waits in the accept queue before it closes its listener.
    pub drains: bool,
    pub closes: Closes,
    pub pool: Pool,
}

/// Children that the program forks before it has handlers or threads. Those without sockets have the default action for signals; every exit of
/// the program's own waits until they have finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pool {
    None,
    /// Two that wait for work.
    Idle,
    /// Two with one job after the other.
    Busy,
    /// Two that accept from the listener that they inherited, while the program itself serves nobody. With `drains` they finish their
    /// requests at a stop signal; without, they have no handler.
    Serving {
        master: Master,
        drains: bool,
    },
}

/// What the program does with a pool that serves before it exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Master {
    /// Sends each SIGTERM, and waits.
    Forwards,
    /// Nothing.
    Forgets,
    /// Lets them finish, without a signal, and waits.
    Exits,
}

/// What the program does about stop signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Handling {
    Default,
    Ignored,
    /// Masked, and never read.
    Blocked,
    Handler,
    /// A handler that the program installs some time after its start.
    LateHandler,
    SignalFd,
    /// sigwait(3) in a thread.
    SigWait,
    /// A handler that the program removes some time after its start: the default action from then on.
    Drops,
    /// The same, and ignored from then on.
    IgnoresLater,
    /// A handler, behind a mask that the program removes some time after its start.
    Unblocks,
}

/// What the program does after it read the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reaction {
    /// Exits with its sockets open.
    AtOnce,
    /// Closes the listener, answers what it has read, exits.
    Graceful,
    /// Serves for so long before it does that.
    Slow { ms: u32 },
    /// Does so at the second signal only.
    Second,
    /// Restores the default action in the handler, and raises the signal.
    ReRaise,
    /// SIGSEGV in the handler.
    Crash,
    /// As `Graceful`, and raises the signal again for its default action when all is done.
    ReRaiseAfter,
}

/// How a program that finishes its requests closes connections that wait for the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Closes {
    /// Not at all: the exit does.
    Exit,
    Close,
    Shutdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Client {
    /// A connection for each request.
    Short { every_ms: u32, answer_ms: u32 },
    /// One connection for all requests, as long as the server keeps it.
    KeepAlive { every_ms: u32, answer_ms: u32 },
    /// One request, then silence on the open connection.
    Kept,
    /// Connects, and sends nothing.
    Silent,
    /// The answer takes longer than anything else.
    Long,
    /// Sends the first half of a request.
    Half,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    /// The stop signal to the first process; SIGKILL after the grace.
    Runtime {
        signal: i32,
        grace_ms: u32,
        kill: Kill,
        /// Frozen before the signal, thawed after the kill.
        frozen: bool,
        /// The same signal once more, so long after the first.
        #[serde(default)]
        again_ms: Option<u32>,
        /// To each process of the container.
        #[serde(default)]
        to_all: bool,
    },
    /// SIGKILL without a stop signal.
    Force(Kill),
    /// A process from outside that is not the runtime.
    Stranger { signal: i32, target: Target },
    /// A process of the container's own cgroup, started from outside, signals the first process: `docker exec … kill 1`.
    Inside { signal: i32 },
    /// The same, all processes of the pid namespace: `docker exec … kill -1`.
    InsideAll { signal: i32 },
    /// The program exits by itself, with its code.
    Exit,
    /// The program has a fault.
    Fault,
    /// One deed after the other; the runtime kills what still runs long after the second.
    Two { first: Deed, after_ms: u32, second: Deed },
    /// Memory runs out: the kernel kills the one that takes it.
    Oom(Eater),
}

/// Of one party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deed {
    /// To the first process.
    Runtime(i32),
    Stranger {
        signal: i32,
        target: Target,
    },
    /// As [`Stop::Inside`].
    Inside(i32),
    Exit,
    Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Eater {
    Program,
    /// A process of the program's pool.
    Worker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kill {
    Main,
    Cgroup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// The first process.
    Main,
    Program,
}

impl History {
    /// For a machine that is so many times slower: what the parties of the history wait for takes as many times longer. Not what a wrapper
    /// lingers, which the product's own times are to be crossed by.
    pub fn slowed(mut self, times: u32) -> History {
        self.lead_ms *= times;
        if let Reaction::Slow { ms } = &mut self.program.reaction {
            *ms *= times;
        }
        for client in &mut self.clients {
            if let Client::Short { every_ms, answer_ms } | Client::KeepAlive { every_ms, answer_ms } = client {
                *every_ms *= times;
                *answer_ms *= times;
            }
        }
        if let Some(probes) = &mut self.probes {
            probes.every_ms *= times;
        }
        if let Some(Held { until_ms: Some(ms) }) = &mut self.held {
            *ms *= times;
        }
        match &mut self.stop {
            Stop::Runtime { grace_ms, again_ms, .. } => {
                *grace_ms *= times;
                *again_ms = again_ms.map(|ms| ms * times);
            }
            Stop::Two { after_ms, .. } => *after_ms *= times,
            _ => {}
        }
        self
    }
}

impl Stop {
    /// All that happens, in order; none of it is the runtime's last kill.
    pub fn deeds(self) -> Vec<Deed> {
        match self {
            Stop::Runtime { signal, .. } => vec![Deed::Runtime(signal)],
            Stop::Force(_) => vec![Deed::Runtime(SIGKILL)],
            Stop::Stranger { signal, target } => vec![Deed::Stranger { signal, target }],
            Stop::Inside { signal } | Stop::InsideAll { signal } => vec![Deed::Inside(signal)],
            Stop::Exit => vec![Deed::Exit],
            Stop::Fault => vec![Deed::Fault],
            Stop::Two { first, second, .. } => vec![first, second],
            Stop::Oom(_) => Vec::new(),
        }
    }

    /// The signals that ask.
    pub fn signals(self) -> Vec<i32> {
        let signal = |deed: &Deed| match deed {
            Deed::Runtime(signal) | Deed::Stranger { signal, .. } | Deed::Inside(signal) => Some(*signal),
            Deed::Exit | Deed::Fault => None,
        };
        let all = self.deeds();
        all.iter().filter_map(signal).filter(|signal| *signal != SIGKILL).collect()
    }
}

impl Deed {
    fn shown(self) -> String {
        match self {
            Deed::Runtime(signal) => format!("the runtime's {}", named(signal)),
            Deed::Stranger { signal, target } => format!("a stranger's {} to {target:?}", named(signal)),
            Deed::Inside(signal) => format!("{} from inside to Main", named(signal)),
            Deed::Exit => "it exits by itself".to_owned(),
            Deed::Fault => "it has a fault".to_owned(),
        }
    }
}

/// As the reports have it.
pub fn named(signal: i32) -> String {
    const FIRST_OF_REAL_TIME: i32 = 34;
    match Signal::try_from(signal) {
        Ok(signal) => signal.to_string(),
        Err(_) if signal > FIRST_OF_REAL_TIME => format!("SIGRTMIN+{}", signal - FIRST_OF_REAL_TIME),
        Err(_) => "SIGRTMIN".to_owned(),
    }
}

impl Display for History {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for wrapper in &self.entry {
            write!(f, "{} → ", wrapper.shown())?;
        }
        let Program {
            handling,
            reaction,
            code,
            drains,
            closes,
            pool,
        } = self.program;
        write!(f, "server ({handling:?}")?;
        if !matches!(handling, Handling::Default | Handling::Ignored | Handling::Blocked) {
            write!(f, ", {reaction:?}")?;
            if matches!(
                reaction,
                Reaction::Graceful | Reaction::Slow { .. } | Reaction::Second | Reaction::ReRaiseAfter
            ) {
                write!(f, ", drains {drains}, closes by {closes:?}")?;
            }
        }
        if pool != Pool::None {
            write!(f, ", {pool:?} pool")?;
        }
        write!(f, ", code {code}) on {:?}", self.bind)?;
        let space = if self.pid_namespace { "PID 1" } else { "host's pids" };
        let network = if self.own_network { "own network" } else { "host's network" };
        write!(
            f,
            " [{space}, {network}]; clients {:?}; after {} ms ",
            self.clients, self.lead_ms
        )?;
        if let Some(Probes { every_ms, does }) = self.probes {
            write!(f, "with a command each {every_ms} ms ({does:?}), ")?;
        }
        match self.held {
            Some(Held { until_ms: Some(ms) }) => write!(f, "while the program is stopped for {ms} ms, ")?,
            Some(_) => f.write_str("while the program is stopped, ")?,
            None => {}
        }
        match self.stop {
            Stop::Runtime {
                signal,
                grace_ms,
                kill,
                frozen,
                again_ms,
                to_all,
            } => {
                let all = if to_all { " to all processes" } else { "" };
                let frozen = if frozen { "frozen, then " } else { "" };
                let again = again_ms.map_or_else(String::new, |ms| format!("again after {ms} ms, "));
                let signal = named(signal);
                write!(
                    f,
                    "{frozen}the runtime's {signal}{all}, {again}{grace_ms} ms, kill of {kill:?}"
                )
            }
            Stop::Force(kill) => write!(f, "the runtime's kill of {kill:?}"),
            Stop::Two { first, after_ms, second } => {
                write!(f, "{}, after {after_ms} ms {}", first.shown(), second.shown())
            }
            Stop::InsideAll { signal } => write!(f, "{} from inside to all processes", named(signal)),
            Stop::Oom(eater) => write!(f, "memory runs out, taken by {eater:?}"),
            other => other.deeds().iter().try_for_each(|deed| f.write_str(&deed.shown())),
        }
    }
}

impl Wrapper {
    /// A shell that stays.
    pub fn is_shell(self) -> bool {
        use Wrapper::{Background, Lingers, Service, Sh, ShZero, TrapExits, TrapForgets, TrapRaises, TrapWaits};
        let traps = matches!(self, TrapWaits | TrapExits | TrapForgets | TrapRaises);
        traps || matches!(self, Sh | ShZero | Background | Service | Lingers { .. })
    }

    /// Starts again what has ended.
    pub fn supervises(self) -> bool {
        matches!(self, Wrapper::Runit | Wrapper::S6 | Wrapper::Supervisord)
    }

    fn shown(self) -> String {
        let shown = match self {
            Wrapper::Lingers { ms, zero } => {
                return format!("sh -c '…; sleep {ms} ms; exit {}'", if zero { "0" } else { "$?" });
            }
            Wrapper::TrapRaises => "sh (trap sends on, waits, raises)",
            Wrapper::Sh => "sh -c '…; exit $?'",
            Wrapper::Exec => "sh -c 'exec …'",
            Wrapper::ShZero => "sh -c '…; exit 0'",
            Wrapper::Background => "sh -c '… & wait'",
            Wrapper::TrapWaits => "sh (trap sends on, waits)",
            Wrapper::TrapExits => "sh (trap sends on, exit 0)",
            Wrapper::TrapForgets => "sh (trap exit 0)",
            Wrapper::Tini => "tini",
            Wrapper::TiniGroup => "tini -g",
            Wrapper::DumbInit => "dumb-init",
            Wrapper::DumbInitChild => "dumb-init -c",
            Wrapper::Setsid => "setsid --wait",
            Wrapper::PidNamespace => "unshare --pid --fork",
            Wrapper::DoubleFork => "double fork",
            Wrapper::Runit => "runsvdir",
            Wrapper::S6 => "s6-svscan",
            Wrapper::Supervisord => "supervisord",
            Wrapper::Service => "sh -c '… (double fork); sleep'",
        };
        shown.to_owned()
    }
}
