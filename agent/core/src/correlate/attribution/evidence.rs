//! What attribution makes of kernel events.

use std::sync::Arc;

use super::sender::Sender;
use crate::attribute::Subject;
use crate::event::{Armed, Client, Kind, ProcessExec, ProcessExit, SignalDeliver, SignalDiscarded, SignalGenerate, Task, Tcp};
use crate::ids::CgroupId;
use crate::input::ProcessFact;
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
