//! The way of a stop signal inside its container or unit, from the main process on.

use super::process::{InnerProcess, MainExit, Role};
use crate::event::{Disposition, SignalResult, TargetState};
use crate::ids::{Pid, Signal};
use crate::time::Boot;

/// A process that ran before the stop signal, and got no signal from another process of the subject before the SIGKILL that ended it. Of a
/// pid namespace, a process below PID 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsignalled {
    pub process: InnerProcess,
    /// Its parent at that SIGKILL.
    pub parent: Pid,
}

/// A process got the stop signal, its handler entered, and the process sent itself the same signal again with the default action:
/// what a language runtime does whose application has no handler, and what a handler does that has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaisedAgain {
    pub at: Boot,
    /// The kernel discarded the second signal, at once or when the process read it: PID 1 has no default action.
    pub discarded: bool,
    /// Between its handler and this signal the process sent another process a signal, or a child exited that no other process had
    /// signalled.
    pub acted: bool,
}

/// A stop signal from one process of the subject to another, after the main process had got its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    pub at: Boot,
    pub signal: Signal,
    pub sender: InnerProcess,
    pub target: InnerProcess,
    /// The target's parent at that time.
    pub parent: Pid,
    pub result: SignalResult,
    pub disposition: Disposition,
    pub state: TargetState,
    /// The target entered its handler.
    pub handler_entered: Option<Boot>,
    pub raised_again: Option<RaisedAgain>,
    /// The target had not read the signal when its SIGKILL came. None: no SIGKILL, or its record does not have the pending signals.
    pub still_pending: Option<bool>,
    pub kill: Option<InnerKill>,
    /// None: not observed.
    pub exit: Option<MainExit>,
    /// It had clients at that exit, as the exit's record shows, or a connection to a server.
    pub served: bool,
    /// That exit cut a client's request.
    pub has_cut: bool,
    /// Whoever killed it descends from the main process.
    pub killed_by_own: bool,
}

impl Forward {
    /// As [`Stop::began`](super::Stop::began).
    pub fn began(&self) -> Option<Boot> {
        self.handler_entered.or(self.raised_again.and(Some(self.at)))
    }
}

/// The SIGKILL to a process that is not the main process, or another process's signal of a fault that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerKill {
    pub at: Boot,
    pub signal: Signal,
    pub sender: InnerProcess,
    pub role: Role,
    /// See [`Actor::is_oom_daemon`](super::Actor::is_oom_daemon).
    pub by_oom_daemon: bool,
}

/// A process other than the main process that a SIGKILL ended: after the stop signal, or, without one, after the exit of the main process.
/// Not one that came in from outside. Also a program that the default action of another signal ended, where the signal is none of
/// [`Inside::forwards`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed {
    pub process: InnerProcess,
    pub kill: InnerKill,
    /// Another process had sent it another signal after the stop signal and before that one.
    pub was_signalled: bool,
    /// The container runtime or systemd had.
    pub runtime_signalled: bool,
    /// A signal that was not recorded may have ended it: the sender of this one is not to blame.
    pub is_unsure: bool,
    pub held: Held,
}

/// The sockets that the exit of a process closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The last time that one was closed.
    pub listener: Option<Boot>,
    /// The same of established connections, of clients and to servers.
    pub connection: Option<Boot>,
    /// The exit, if the process served by a Unix socket or by UDP.
    pub other: Option<Boot>,
}

impl Killed {
    /// It served clients, or used a server: any other is a helper, such as the `sleep` of a shell.
    pub fn is_program(&self) -> bool {
        let Held {
            listener,
            connection,
            other,
        } = self.held;
        listener.or(connection).or(other).is_some()
    }
}

/// What the processes of the subject did with the stop signal among themselves. Bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// In the order of their times, one for each target; at most [`Inside::MOST`].
    pub forwards: Vec<Forward>,
    /// Further targets.
    pub more: u64,
    /// The sender of the stop signal sent that also to this process, which has the name of its parent: a fork, or the same
    /// program again. The default action ended it, while the parent went on. Of a stop from inside: any signal, from whomever.
    pub pool: Option<InnerProcess>,
    /// At most [`Inside::UNSIGNALLED`].
    pub unsignalled: Vec<Unsignalled>,
    /// Those with sockets first; at most [`Inside::KILLED`].
    pub killed: Vec<Killed>,
    /// Where no init takes the orphans: others were killed, too, whose sockets do not show that they are the subject's own.
    pub others_killed: bool,
    /// One that served clients and was ended by this signal, without a record of the signal.
    pub ended_unseen: Option<(InnerProcess, Signal)>,
    /// The sockets that each of these had open are known.
    pub sockets_known: bool,
    /// The default action of a signal ended another process after the stop: with connections it was a program.
    pub ended_by_default: bool,
    /// Of a unit: systemd stopped other processes, too, and nothing shows whether one of them had sockets and is the program.
    pub program_unsure: bool,
    /// The main process sent no signal to any other process after its stop signal.
    pub main_sent_nothing: bool,
    /// The kernel recorded the signals inside the subject from the stop signal on.
    pub observed: bool,
}

impl Inside {
    pub const MOST: usize = 16;
    pub const UNSIGNALLED: usize = 4;
    pub const KILLED: usize = 4;

    /// See [`Killed::is_program`].
    pub fn killed_programs(&self) -> impl Iterator<Item = &Killed> + Clone {
        self.killed.iter().filter(|killed| killed.is_program())
    }
}
