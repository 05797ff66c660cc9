//! What attribution makes of kernel events, and the role of a signal's sender for the target: by place and ancestry, never by name.

use std::borrow::Cow;
use std::sync::Arc;

use crate::attribute::{Attribution, Index, Subject, UnknownCgroup};
use crate::event::{Armed, Client, Kind, ProcessExec, ProcessExit, SignalDeliver, SignalDiscarded, SignalGenerate, Task, Tcp};
use crate::ids::{CgroupId, Comm, Pid};
use crate::input::ProcessFact;
use crate::termination::{Actor, Role, is_oom_daemon};
use crate::time::Boot;

/// Takes what is attributed, piece by piece: nothing is moved into a list, because a record is large.
pub(in crate::correlate) type Taker<'t> = dyn FnMut(Attributed<'_>) + 't;

/// A kernel event or a process, with its subject.
#[derive(Debug)]
pub(in crate::correlate) enum Attributed<'a> {
    /// About a process or a socket of a subject.
    Evidence(Evidence<'a>),
    /// A cgroup was removed. `subject` if the cgroup was a subject's own, even without any event in the cgroup.
    Removed {
        at: Boot,
        cgroup: CgroupId,
        subject: Option<Subject>,
    },
    /// An event that could not be attributed, or not kept until it can be.
    Dropped { at: Boot, kind: Kind, of: Concerned },
    /// The end of a connect, as the client's own socket showed it. `of`: see `Attributor::client`.
    Client {
        at: Boot,
        tcp: &'a Tcp,
        by: Client,
        of: CgroupId,
    },
}

/// Whom a dropped event may concern.
#[derive(Clone, Debug)]
pub(in crate::correlate) enum Concerned {
    Anybody,
    /// The subject with this cgroup, which may become known later.
    Cgroup(CgroupId),
    /// The subjects around the cgroup with this path and below it.
    Around {
        hierarchy: u32,
        path: Arc<str>,
    },
}

#[derive(Debug)]
pub(in crate::correlate) struct Evidence<'a> {
    pub at: Boot,
    /// The subject's own cgroup.
    pub own: CgroupId,
    pub subject: &'a Subject,
    /// The owner of the v2 cgroup that the process's sockets count for, if the subject is a container that only v1 knows.
    pub sockets_of: Option<(CgroupId, Subject)>,
    pub what: What<'a>,
}

#[derive(Debug)]
pub(in crate::correlate) enum What<'a> {
    Signal {
        signal: &'a SignalGenerate,
        sender: Sender<'a>,
    },
    Deliver(&'a SignalDeliver),
    Discarded(&'a SignalDiscarded),
    Exit(&'a ProcessExit),
    /// `outside`: the executing process came from outside the subject.
    Exec {
        exec: &'a ProcessExec,
        outside: bool,
    },
    /// None: only the pid is known.
    Oom {
        victim: Option<Task>,
        armed: Option<Armed>,
    },
    Tcp(&'a Tcp),
    /// A process that `/proc` shows; `sockets_of` as above, for each of its cgroups of v2.
    Process {
        fact: &'a ProcessFact,
        outside: bool,
        sockets_of: Vec<(CgroupId, Subject)>,
    },
}

/// Services that make containers, and systemd itself (`init.scope`), as segments of a cgroup path.
const MANAGERS: [&str; 14] = [
    "init.scope",
    "containerd.service",
    "docker.service",
    "crio.service",
    "cri-o.service",
    "podman.service",
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "k0scontroller.service",
    "k0sworker.service",
    "snap.microk8s.daemon-containerd.service",
];
/// A container's monitor: `libpod-conmon-<id>.scope`, `crio-conmon-<id>.scope`.
const MONITORS: [&str; 2] = ["libpod-conmon-", "crio-conmon-"];

/// The sender of a signal to a subject.
#[derive(Debug)]
pub(in crate::correlate) struct Sender<'a> {
    signal: &'a SignalGenerate,
    place: Cow<'a, Attribution>,
    pub role: Role,
}

impl<'a> Sender<'a> {
    /// See [`Actor::is_oom_daemon`].
    pub fn is_oom_daemon(&self) -> bool {
        is_oom_daemon(self.role, &self.place)
    }

    /// `own` is the cgroup of the target's subject.
    pub(super) fn of(index: &'a Index, (own, subject): (CgroupId, &Subject), signal: &'a SignalGenerate) -> Sender<'a> {
        if signal.is_of_no_sender() {
            return Sender {
                signal,
                place: Cow::Owned(Attribution::Unknown(UnknownCgroup::NoId)),
                role: Role::Unknown,
            };
        }
        let place = index.attribute(&signal.sender);
        let role = role(index, (own, subject), signal, &place);
        Sender { signal, place, role }
    }

    /// As it is kept.
    pub fn actor(&self) -> Actor {
        let sender = &self.signal.sender;
        let (tgid, comm, parent, parent_comm) = match self.signal.is_of_no_sender() {
            true => (Pid(0), Comm::new(""), Pid(0), Comm::new("")),
            false => (sender.tgid, sender.comm, sender.ppid, self.signal.sender_parent_comm),
        };
        Actor {
            tgid,
            comm,
            parent,
            parent_comm,
            role: self.role,
            place: self.place.clone().into_owned(),
            pod: None,
        }
    }
}

fn role(index: &Index, (own, subject): (CgroupId, &Subject), signal: &SignalGenerate, place: &Attribution) -> Role {
    let (sender, target) = (&signal.sender, &signal.target);
    if signal.from_kernel {
        return Role::Kernel;
    }
    if sender.tgid == target.tgid {
        return Role::Itself;
    }
    if matches!(place, Attribution::Subject(_, theirs) if *theirs == own) {
        return Role::Inside;
    }
    let is_around = encloses(index, own, place);
    if matches!(subject, Subject::Unit { .. }) {
        return role_for_unit(signal, place, is_around);
    }
    // PID 1 of the machine manages the units, and the scopes of containers. A container may name the cgroups below its own as it likes:
    // what these say holds for the containers inside it only.
    let may_manage = is_around || !matches!(place, Attribution::Subject(Subject::Container { .. }, _));
    if sender.tgid == Pid::INIT || may_manage && is_manager(index, home(sender, place), place) {
        return Role::Runtime;
    }
    if is_around && matches!(place, Attribution::Subject(Subject::Unit { .. }, _)) {
        return Role::Runtime;
    }
    // One shim can be the parent of several containers, so a sibling is not the runtime. In an outer container (Docker in Docker)
    // the runtime can run next to other processes.
    if !is_around && matches!(place, Attribution::Subject(Subject::Container { .. }, _)) {
        return Role::Other;
    }
    // A process that has lost its parent is a child of PID 1, as half of the machine is.
    let parent = target.ppid;
    let descends = [sender.tgid, sender.ppid, signal.sender_grandparent].contains(&parent);
    match parent > Pid::INIT && descends {
        true if sender.tgid == parent => Role::Runtime,
        // A relative in a cgroup that was not seen: the runtime, or a sibling container whose record was lost.
        true if matches!(place, Attribution::Unknown(_)) => Role::Unknown,
        true => Role::Runtime,
        false => Role::Other,
    }
}

/// The manager of a unit is PID 1, or what is in the unit around it (`user@UID.service` has a user's manager); of a scope, the process that
/// started its process. Not a relative: a shell's child is related to all that the shell started.
fn role_for_unit(signal: &SignalGenerate, place: &Attribution, is_around: bool) -> Role {
    let (sender, target) = (&signal.sender, &signal.target);
    let is_around = is_around && matches!(place, Attribution::Subject(Subject::Unit { .. }, _));
    let is_parent = target.ppid > Pid::INIT && target.ppid == sender.tgid;
    if sender.tgid == Pid::INIT || is_around || is_parent {
        Role::Runtime
    } else {
        Role::Other
    }
}

/// The subject around a container: podman's own unit of a Quadlet, `foo.service/libpod-payload-<id>`; a container,
/// `docker/<id>/docker/<id>`.
fn encloses(index: &Index, own: CgroupId, place: &Attribution) -> bool {
    let Attribution::Subject(_, around) = place else {
        return false;
    };
    let below = index.path(*around).and_then(|around| index.path(own)?.strip_prefix(around));
    below.is_some_and(|below| below.starts_with('/'))
}

/// The cgroup that shows the sender's place: for a container that only v1 knows, the v2 cgroup is the runtime's.
fn home(sender: &Task, place: &Attribution) -> CgroupId {
    match place {
        Attribution::Subject(_, own) if own.hierarchy != sender.cgroup.hierarchy => {
            let v1_cgroup = sender.v1_cgroup.filter(|v1_cgroup| v1_cgroup.hierarchy == own.hierarchy);
            v1_cgroup.unwrap_or(*own)
        }
        _ => sender.cgroup,
    }
}

fn is_manager(index: &Index, cgroup: CgroupId, place: &Attribution) -> bool {
    if let Attribution::Subject(Subject::Unit { name }, _) = place
        && is_manager_segment(name)
    {
        return true;
    }
    index.path(cgroup).is_some_and(|path| path.split('/').any(is_manager_segment))
}

fn is_manager_segment(name: &str) -> bool {
    MANAGERS.contains(&name) || MONITORS.iter().any(|prefix| name.starts_with(prefix))
}
