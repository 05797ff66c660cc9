//! The way of a stop signal inside its container or unit, from the main process on.

use super::{MainExit, Role};
use crate::event::{Disposition, SignalResult, TargetState};
use crate::ids::{Comm, Pid, Signal};
use crate::time::Boot;

/// A process of the subject other than the main process, or the main process as the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerProcess {
    pub tgid: Pid,
    pub comm: Comm,
    pub start: Boot,
}

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
}

/// The SIGKILL to a process that is not the main process, or another process's signal of a fault that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerKill {
    pub at: Boot,
    pub signal: Signal,
    pub sender: InnerProcess,
    pub role: Role,
}

/// What the processes of the subject did with the stop signal among themselves. Bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// In the order of their times, one for each target; at most [`Inside::MOST`].
    pub forwards: Vec<Forward>,
    /// Further targets.
    pub more: u64,
    /// At most [`Inside::UNSIGNALLED`].
    pub unsignalled: Vec<Unsignalled>,
    /// The first SIGKILL to one of these.
    pub unsignalled_killed: Option<Boot>,
    /// Without a stop signal: processes that still ran when PID 1 exited by itself, and that the kernel then killed; at most
    /// [`Inside::UNSIGNALLED`].
    pub left_running: Vec<InnerProcess>,
    /// The main process sent no signal to any other process after its stop signal.
    pub main_sent_nothing: bool,
    /// The kernel recorded the signals inside the subject from the stop signal on.
    pub observed: bool,
}

impl Inside {
    pub const MOST: usize = 16;
    pub const UNSIGNALLED: usize = 4;
}
