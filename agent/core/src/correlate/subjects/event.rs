//! What the subjects tell the machines after them.

use std::sync::Arc;

use crate::attribute::Subject;
use crate::container::ContainerFact;
use crate::event::ExitStatus;
use crate::ids::{CgroupId, Comm};
use crate::report::StopSignalIgnored;
use crate::termination::{OomKill, TerminationFacts};
use crate::time::Boot;

use super::process::ProcessId;

/// An event of a subject.
#[derive(Debug)]
pub(in crate::correlate) enum SubjectEvent {
    /// A process that started then was observed in the subject.
    Seen {
        own: CgroupId,
        subject: Subject,
        start: Boot,
    },
    /// A process came in from outside.
    CameIn {
        at: Boot,
        own: CgroupId,
        process: ProcessId,
        comm: Comm,
    },
    Exited {
        at: Boot,
        own: CgroupId,
        process: ProcessId,
        status: ExitStatus,
    },
    /// The runtime sent the main process a stop signal.
    StopSent {
        at: Boot,
        own: CgroupId,
        /// The subject, if PID 1 of the machine sent it.
        by_init: Option<Subject>,
    },
    /// A cgroup was removed: the subject's own or another.
    Removed {
        at: Boot,
        cgroup: CgroupId,
    },
    /// The exit is known, and clients' errors count until then.
    CountsUntil {
        own: CgroupId,
        until: Boot,
    },
    StopIgnored(Box<StopSignalIgnored>),
    /// The subject continues.
    ChildOomKilled {
        subject: Subject,
        container: Option<Arc<ContainerFact>>,
        main: Option<ProcessId>,
        oom: OomKill,
    },
    Ended(Box<TerminationFacts>),
    /// The kernel must watch the sockets in this cgroup again.
    Watched(CgroupId),
    /// The kernel can stop watching the sockets in this cgroup.
    Unwatched(CgroupId),
}

impl SubjectEvent {
    /// The unit that a report would be about.
    pub fn reported_unit(&self) -> Option<&str> {
        let subject = match self {
            SubjectEvent::StopIgnored(early) => &early.subject,
            SubjectEvent::ChildOomKilled { subject, .. } => subject,
            SubjectEvent::Ended(facts) => &facts.subject,
            _ => return None,
        };
        match subject {
            Subject::Unit { name } => Some(name),
            Subject::Container { .. } => None,
        }
    }
}
