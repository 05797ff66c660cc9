//! What the rules find: claims, without prose.

use super::ask::Ask;
use crate::event::Kind;
use crate::ids::{Comm, Signal};
use crate::termination::Open;
use crate::verdict::{Cause, Exit};

pub(super) type Found = Option<Finding>;

/// The result of the facts, and the evidence that the result depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::verdict) struct Finding {
    pub exit: Exit,
    pub cause: Cause,
    pub why: Why,
    /// Which absences it rests on.
    pub(super) rests: &'static [Ask],
}

impl Finding {
    pub fn with_why(&self, why: &Why) -> Finding {
        Finding {
            why: why.clone(),
            ..self.clone()
        }
    }
}

/// The finer reason, for the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::verdict) enum Why {
    Completed,
    Stopped,
    /// Exit 0 although the kernel had discarded the stop signal.
    StoppedAfterDiscard,
    /// 128 + n.
    StoppedWithSignalCode(Signal),
    Reraised,
    /// The same of PID 1, which has no default action: the kernel discarded the second signal, and an exit with an error followed at once.
    RaisedThenFailed,
    DefaultAction,
    Nonzero,
    /// A handler that only sent the process the same signal again.
    RaisedAgain,
    Ignored,
    /// The handler sent the process the same signal again, and the kernel discarded this one.
    RaisedInVain,
    Blocked(Blocked),
    AfterGrace,
    /// A process that got the signal from another process of the subject; its number in `inside.forwards`.
    Inside(InnerEnd, usize),
    /// The main process ended well, as the first says, and programs below it were killed.
    Below(Box<Why>),
    Forced,
    Oom,
    /// By a daemon that kills before memory has run out.
    OomByDaemon,
    OomChild,
    KilledByOther,
    /// Killed with the pid namespace, when the namespace's init exited.
    NamespaceEnded,
    Crashed(Crash),
    /// See `failed_child`.
    ChildCrashed,
    /// It exited with another code than 0, and the main process with 0.
    ChildFailed,
    /// An exit code that an annotation declares as clean.
    Expected,
    /// An exit code that the container's restart rules list.
    Listed,
    /// Killed at once: the pod was deleted with a grace period of 0.
    ForceDeleted,
    /// Got the stop signal only when the main containers had used up the grace period.
    Starved,
    /// Killed after the hook had left only the kubelet's minimum.
    HookTookGrace,
    /// Still runs long after the grace period.
    Stuck,
    NeverStarted,
    /// SIGKILL because of a node's shutdown.
    CutByShutdown,
    /// Still ran when the node's shutdown stopped everything.
    RanAtShutdown,
    Unknown(Missing),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verdict) enum Blocked {
    Frozen,
    Stopped,
    Traced,
    Masked,
    HandlerNeverEntered,
    NothingEntered,
}

/// As the variants of [`Why`] of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verdict) enum InnerEnd {
    Ignored,
    Blocked(Blocked),
    AfterGrace,
    DefaultAction,
    Nonzero,
    /// Its supervisor killed it before it could run.
    AtOnce,
    /// By a fault of its own.
    Crashed,
    /// By a process from outside, within the grace period.
    KilledByOther,
    /// The main process exited before it had finished, and the kernel or the container runtime killed it.
    Abandoned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verdict) enum Crash {
    Fault,
    Itself,
    Limit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::verdict) enum Missing {
    LateStart,
    Gap,
    OverCap,
    Lost(Vec<Kind>),
    /// The record of a signal, long before, that may have been the stop signal.
    StopLost,
    /// The recording begins after it.
    NotRecorded,
    /// A part of the recording or of the journal is damaged or missing.
    Damaged,
    Inactive(Vec<Kind>),
    NoExit(Open),
    /// Terminated by this signal, and the sender was not observed.
    SenderNotSeen(Signal),
    /// By a timer of its own, or by another process.
    Timer(Signal),
    /// The same of a program with clients below the main process, which then exited with 0.
    EndOfChild(Signal),
    /// The signals between the processes of the subject are not recorded here.
    Inside,
    /// A process below the main one was killed, and nothing shows whether it had sockets.
    Sockets,
    /// The default action ended such a process of the program's pool, and nothing shows whether it had a job.
    Job(Comm),
    /// See `ended_unseen`.
    EndBelow(Comm, Signal),
    /// Nothing shows whether the main process of a unit was only the wrapper of another process.
    Program,
    /// Of a unit's process that began unobserved, nothing shows whether it was the main process or a command before or after that.
    Main,
    /// Whether the program, or a process from outside, had started the victim of an OOM kill.
    Victim,
    /// The kernel sent a SIGKILL, and no evidence shows why.
    KernelKill,
    /// A deletion request, or one with a shorter grace period.
    Request,
    /// Whether what a deletion gave, or the node's shutdown, ended first.
    RequestTime,
    /// What had used up the grace period before a sidecar's stop signal: its pod's main containers, or its own hook.
    LateStop,
    /// No status named the container: its hook, or that it is the sandbox.
    Name,
}

pub(super) fn finding(exit: Exit, cause: Cause, why: Why, rests: &'static [Ask]) -> Finding {
    Finding { exit, cause, why, rests }
}
