//! Power cuts within a shutdown that logind has announced (`systemctl poweroff`), and the role's own delay lock.

use std::time::Duration;

use super::PREPARE;

/// When the machine's plug is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Another program holds a delay lock.
    Delay,
    /// Nobody delays the shutdown but the role, for the agent that writes.
    OwnLock,
    /// A unit takes its time to stop; another one has stopped.
    Services,
    /// The agent is asked to end.
    AskedToEnd,
}

/// One power cut; the report comes with the next boot.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub name: &'static str,
    /// For the page.
    pub when: &'static str,
    pub moment: Moment,
    /// From the moment to the cut.
    pub after: Duration,
    pub verdict: &'static str,
    pub by: &'static str,
}

const fn cut(name: &'static str, when: &'static str, moment: Moment, after_ms: u64) -> Cut {
    Cut {
        name,
        when,
        moment,
        after: Duration::from_millis(after_ms),
        verdict: "truncated",
        by: PREPARE,
    }
}

pub const CUTS: &[Cut] = &[
    cut(
        "cut-in-delay",
        "3 s into logind's delay, which another program's lock prolongs",
        Moment::Delay,
        0,
    ),
    cut(
        "cut-in-own-lock",
        "1 s into logind's delay, which only the lock of Epitaph's role prolongs",
        Moment::OwnLock,
        0,
    ),
    cut(
        "cut-in-services",
        "3 s after systemd began to stop the services, of which one is slow",
        Moment::Services,
        0,
    ),
    cut(
        "cut-in-flush",
        "when all services have stopped, and the agent is asked to end",
        Moment::AskedToEnd,
        0,
    ),
];

/// `logind.lock`.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    pub name: &'static str,
    /// For the page.
    pub who: &'static str,
    pub as_root: bool,
    /// `own_lock` of the report begins with it.
    pub state: &'static str,
}

pub const LOCKS: &[Lock] = &[
    Lock {
        name: "own-lock",
        who: "uid 0 (`logind.uid = 0`)",
        as_root: true,
        state: "released",
    },
    Lock {
        name: "own-lock-refused",
        who: "its own user (the default)",
        as_root: false,
        state: "refused",
    },
];
