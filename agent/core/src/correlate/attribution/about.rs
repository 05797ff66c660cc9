//! What an event is about, before its subject is known.

use crate::event::{Event, Kind, Task};
use crate::ids::CgroupId;

/// The process that an event is about.
pub(in crate::correlate) fn task_of(event: &Event) -> Option<&Task> {
    match event {
        Event::SignalGenerate(signal) => Some(&signal.target),
        Event::SignalDeliver(deliver) => Some(&deliver.task),
        Event::ProcessExit(exit) => Some(&exit.task),
        Event::ProcessExec(exec) => Some(&exec.task),
        Event::OomVictim(oom) => oom.task.as_ref(),
        Event::SignalDiscarded(discarded) => Some(&discarded.task),
        Event::CgroupMkdir(_) | Event::CgroupRmdir(_) | Event::Tcp(_) | Event::PeerAnnouncement(_) => None,
    }
}

/// Whose noise an event is: a container's with all that is nested in it, or a cgroup's.
pub(super) fn party(event: &Event) -> CgroupId {
    let of = match event {
        Event::Tcp(tcp) => tcp.container.or(tcp.cgroup),
        event => task_of(event).map(|task| task.container.or(task.v1_cgroup).unwrap_or(task.cgroup)),
    };
    of.unwrap_or_default()
}

/// The kind of an event that can be evidence about a subject.
pub(in crate::correlate) fn kind(event: &Event) -> Option<Kind> {
    match event {
        Event::SignalGenerate(_) => Some(Kind::SignalGenerate),
        Event::SignalDeliver(_) | Event::SignalDiscarded(_) => Some(Kind::SignalDeliver),
        Event::ProcessExit(_) => Some(Kind::ProcessExit),
        Event::ProcessExec(_) => Some(Kind::ProcessExec),
        Event::OomVictim(_) => Some(Kind::OomVictim),
        Event::Tcp(_) => Some(Kind::Tcp),
        Event::CgroupMkdir(_) | Event::CgroupRmdir(_) | Event::PeerAnnouncement(_) => None,
    }
}

pub(super) fn is_of(event: &Event, cgroup: CgroupId) -> bool {
    match event {
        Event::Tcp(tcp) => tcp.cgroup == Some(cgroup),
        event => task_of(event).is_some_and(|task| task.cgroup == cgroup || task.v1_cgroup == Some(cgroup)),
    }
}
