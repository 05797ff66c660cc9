//! The processes of a termination: who sent what, and who exited.

use std::sync::Arc;

use crate::attribute::{Attribution, Subject};
use crate::event::{ExitStatus, Task};
use crate::ids::{Comm, Pid};
use crate::pod::PodIdentity;
use crate::time::Boot;

/// A process that sent a signal, or exited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    pub tgid: Pid,
    pub comm: Comm,
    pub parent: Pid,
    pub parent_comm: Comm,
    pub place: Attribution,
    /// The process's pod and container, if a status of the pod names the container.
    pub pod: Option<Arc<PodContainer>>,
    pub role: Role,
}

/// Daemons that kill processes before memory has run out, each by the unit that its package runs it in: systemd makes the cgroup, and no
/// container can move into it. None has another reason to send a signal.
const OOM_DAEMONS: [&str; 5] = [
    "systemd-oomd.service",
    "earlyoom.service",
    "nohang.service",
    "nohang-desktop.service",
    "bustd.service",
];

impl Actor {
    pub fn is_oom_daemon(&self) -> bool {
        is_oom_daemon(self.role, &self.place)
    }
}

/// Of a sender with that role, in that place.
pub fn is_oom_daemon(role: Role, place: &Attribution) -> bool {
    let unit = match place {
        Attribution::Subject(Subject::Unit { name }, _) => name,
        _ => return false,
    };
    role == Role::Other && OOM_DAEMONS.iter().any(|daemon| **daemon == **unit)
}

/// A container by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodContainer {
    pub pod: Arc<PodIdentity>,
    pub container: String,
}

/// The relation of a signal's sender to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The runtime that created the container, systemd for a unit: by ancestry and cgroup, not by name.
    Runtime,
    /// The target itself.
    Itself,
    /// Another process of the same subject.
    Inside,
    /// Any other process on the machine, also in another container.
    Other,
    /// The kernel itself (OOM, end of the pid namespace, resource limit).
    Kernel,
    /// The kernel made the signal for a timer, a file or a queue that a process had set up: the record has the process that ran just then,
    /// which may be anybody's.
    Unknown,
}

names! {
    Role:
    Runtime => "runtime",
    Itself => "itself",
    Inside => "inside",
    Other => "other",
    Kernel => "kernel",
    Unknown => "unknown",
}

/// The main process: init of the container's pid namespace, or the first process from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MainProcess {
    pub tgid: Pid,
    /// The pid in the process's own pid namespace.
    pub ns_pid: u32,
    pub is_ns_init: bool,
    pub comm: Comm,
    pub start: Boot,
    /// False: no record shows that it executed a program. Then it is what the container runtime forked, unless a record is missing.
    pub executed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MainExit {
    pub at: Boot,
    pub status: ExitStatus,
}

/// A process of the subject other than the main process, or the main process as the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerProcess {
    pub tgid: Pid,
    pub comm: Comm,
    pub start: Boot,
}

impl InnerProcess {
    pub(crate) fn of(task: &Task) -> InnerProcess {
        InnerProcess {
            tgid: task.tgid,
            comm: task.comm,
            start: task.start,
        }
    }

    /// The same process, whatever its name was.
    pub fn is(&self, other: &InnerProcess) -> bool {
        (self.tgid, self.start) == (other.tgid, other.start)
    }
}

/// A process of the subject that the OOM killer terminated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomKill {
    pub at: Boot,
    pub tgid: Pid,
    pub start: Boot,
    pub parent: Pid,
    /// The parent is the main process.
    pub of_main: bool,
    pub comm: Comm,
    pub role: OomRole,
}

/// What the victim of an OOM kill was for its container or unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OomRole {
    /// The first process.
    Main,
    /// Another process of the program, which had a socket of clients or a connection.
    Worker,
    /// Another process of the container, without such a socket.
    Helper,
    /// Another process; its sockets are not known.
    Inside,
    /// The kubelet's exec probe: it came from outside, by the name of a probe of the spec; or a child of it.
    Probe,
    /// The process of the preStop hook, in the same way.
    PreStop,
    /// It came from outside otherwise: `kubectl exec`, for example; or a child of it.
    Session,
    /// It came from outside in the same way, and more than one of these may have started it: a shell is the program of many.
    Outside,
    /// No record shows whether the program or a process from outside, which then ran, started it.
    Unattributed,
    /// The container runtime's own, which had not yet executed the program.
    Runtime,
}

names! {
    /// In JSON, attributes and metrics.
    all OomRole:
    Main => "main",
    Worker => "worker",
    Helper => "helper",
    Inside => "process",
    Probe => "exec-probe",
    PreStop => "pre-stop",
    Session => "exec-session",
    Outside => "from-outside",
    Unattributed => "unattributed",
    Runtime => "runtime",
}

impl OomRole {
    /// Not a part of the program: what it was for is lost, and none of the program's work.
    pub const fn is_from_outside(self) -> bool {
        matches!(
            self,
            OomRole::Probe | OomRole::PreStop | OomRole::Session | OomRole::Outside | OomRole::Runtime
        )
    }

    /// A part of the program, by what was recorded.
    pub const fn is_programs(self) -> bool {
        !self.is_from_outside() && !matches!(self, OomRole::Unattributed)
    }
}

impl OomKill {
    pub fn is_main(&self) -> bool {
        self.role == OomRole::Main
    }
}
