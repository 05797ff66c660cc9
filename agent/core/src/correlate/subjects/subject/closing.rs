//! Until when the sockets of a process that exited may be closed, and clients refused.

use std::time::Duration;

use super::State;
use crate::attribute::Subject;
use crate::time::Boot;
use crate::tolerances::{REFUSED_LATE, REFUSED_ON, REFUSED_PAUSE, SOCKETS_CLOSED};

impl State {
    /// Clients' errors count until then. A pod keeps its address until the sandbox is gone, and a late proxy sends clients there:
    /// these refusals belong to the termination before them.
    pub fn counted_until(&self, end: Boot, linger: Duration) -> Boot {
        let paused = self
            .last_refused()
            .filter(|_| self.is_of_pod())
            .map(|last| last.plus(REFUSED_PAUSE).min(end.plus(REFUSED_ON)));
        self.closed_by(end, linger).max(paused.unwrap_or(end))
    }

    /// Until when the sockets of the process that exited at `end` may be closed, and clients refused after that.
    fn closed_by(&self, end: Boot, linger: Duration) -> Boot {
        let soon = end.plus(linger);
        // A unit's cgroup stays for its other processes, and its next main process begins there. A container that goes on has its sockets
        // with it; those of a shared cgroup are not observed.
        let is_unit = matches!(self.subject, Subject::Unit { .. });
        if is_unit || self.shares_cgroup || self.removed.is_none() && self.is_step(linger) {
            return soon;
        }
        let closed = match self.removed {
            Some(removed) if removed <= soon => return soon,
            Some(removed) => removed.min(end.plus(SOCKETS_CLOSED)).plus(linger),
            None => end.plus(SOCKETS_CLOSED),
        };
        // What is closed after that may be the next process's.
        let outside = self.candidates.iter().filter(|other| other.outside && other.is_after(end));
        let next = outside.map(|other| other.id.start).min();
        next.map_or(closed, |next| next.min(closed)).max(soon)
    }

    /// The cgroup is removed: no process of it can have a socket open.
    pub fn is_removed_by(&self, until: Boot) -> bool {
        self.removed.is_some_and(|removed| removed <= until)
    }

    /// Until when a known exit waits because clients are refused.
    pub fn counted_on(&self, linger: Duration) -> Option<Boot> {
        let end = self.main()?.exit_at()?;
        let until = self.counted_until(end, linger);
        (until > end.plus(linger) && !self.may_be_stage()).then_some(until)
    }

    /// Clients that were refused after this were refused until counting stopped, and so probably longer.
    pub fn refusing_from(&self, end: Boot, linger: Duration) -> Boot {
        match self.is_of_pod() {
            true => end.plus(REFUSED_ON).minus(REFUSED_PAUSE),
            false => self.counted_until(end, linger).minus(REFUSED_LATE),
        }
    }

    fn last_refused(&self) -> Option<Boot> {
        self.timeline.as_deref()?.sockets.last_refused()
    }

    fn is_of_pod(&self) -> bool {
        matches!(self.subject, Subject::Container { pod: Some(_), .. })
    }
}
