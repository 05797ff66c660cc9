//! A watch's next request and its events, as a state machine: reply in, events out. Pure.

use std::time::Duration;

use epitaph_core::time::Boot;

use super::super::api_error::{ApiError, FailureReason};
use super::{Change, Gap, WatchEvent};

/// A resumed watch sends the changes since its resourceVersion at once. A pause of this length ends that backlog.
pub(super) const BACKLOG_PAUSE: Duration = Duration::from_millis(500);

/// A backlog that lasts longer is a busy cluster.
pub(super) const BACKLOG_LIMIT: Duration = Duration::from_secs(5);

/// A watch that ended sooner, without an event, counts as failed.
pub(super) const SHORTEST_WATCH: Duration = Duration::from_secs(1);

/// A watch that failed after this time was healthy: the next request does not wait longer than after a first failure.
const HEALTHY_WATCH: Duration = Duration::from_secs(120);

/// A watch that ended is opened again at once. After this time without a watch, changes are late.
const LATE_OPEN: Duration = Duration::from_secs(1);

const FIRST_PAUSE: Duration = Duration::from_millis(800);
pub(in crate::source) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Any version that the API server's watch cache has.
const ANY_VERSION: &str = "0";

/// The next request, or the next wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// A page of a list, until [`Reply::Page`].
    List {
        /// From the watch cache, not older than this version. None: as etcd has it.
        not_older_than: Option<String>,
        /// End of the previous page.
        continue_token: Option<String>,
    },
    /// A watch from this version on.
    Open { version: String },
    /// The next event of the open watch; [`Reply::Silence`] if none arrives within this time.
    Event { within: Duration },
    /// A pause.
    Rest(Duration),
}

#[derive(Debug)]
pub(super) enum Reply<T> {
    /// An object of the current list.
    Item(T),
    /// A page is complete.
    Page {
        version: Option<String>,
        continue_token: Option<String>,
    },
    Opened,
    /// With the object's version.
    Change(Change<T>, Option<String>),
    Bookmark {
        version: String,
    },
    /// The server ended the watch.
    Ended,
    Silence,
    Failed(ApiError),
    Rested,
}

/// What an open watch tolerates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// The API server ends a watch after this time.
    pub watch: Duration,
    /// Without event or bookmark for so long, the connection may be dead: the watch is opened again.
    pub silence: Duration,
}

#[derive(Debug)]
pub(super) struct Machine {
    patience: Patience,
    phase: Phase,
    /// Consecutive failures.
    failures: u32,
    /// All changes up to now are reported, as far as is known.
    is_synced: bool,
    was_synced: bool,
    /// Since when changes may have been missed, and why.
    interrupted: Option<(Boot, ApiError)>,
    /// When the list or watch was last known to be alive.
    alive: Boot,
    /// Since when no watch is open: the end of the list or of the last watch.
    unwatched: Boot,
    /// The list was requested because a watch failed: until a watch proves to work, the failures count on.
    is_relisted: bool,
    /// This API server sends bookmarks: silence proves a dead connection.
    has_bookmarks: bool,
    /// How a stalled watch is reported.
    stalled: ApiError,
    opened_late: ApiError,
    closed: ApiError,
    without_version: ApiError,
}

#[derive(Clone, Debug)]
enum Phase {
    List {
        not_older_than: Option<String>,
        continue_token: Option<String>,
        is_reported: bool,
    },
    Open {
        version: String,
    },
    Follow {
        version: String,
        opened: Boot,
        is_empty: bool,
    },
    Rest {
        pause: Duration,
        then: Box<Phase>,
    },
}

impl Phase {
    fn list(not_older_than: Option<String>) -> Phase {
        Phase::List {
            not_older_than,
            continue_token: None,
            is_reported: false,
        }
    }
}

impl Machine {
    /// `error`: makes an error of this watch.
    pub fn new(now: Boot, patience: Patience, error: impl Fn(FailureReason, &str) -> ApiError) -> Machine {
        let silent = format!("no event or bookmark for {:?}: the connection is dead", patience.silence);
        Machine {
            patience,
            phase: Phase::list(Some(ANY_VERSION.to_owned())),
            failures: 0,
            is_synced: false,
            was_synced: false,
            interrupted: None,
            alive: now,
            unwatched: now,
            is_relisted: false,
            has_bookmarks: false,
            stalled: error(FailureReason::Stalled, &silent),
            opened_late: error(
                FailureReason::Timeout,
                &format!("the API server did not open a watch within {LATE_OPEN:?}"),
            ),
            closed: error(FailureReason::Closed, "the API server ended the watch at once"),
            without_version: error(FailureReason::Undecodable, "the API server's list has no resourceVersion"),
        }
    }

    pub fn ask(&self, now: Boot) -> Ask {
        match &self.phase {
            Phase::List {
                not_older_than,
                continue_token,
                ..
            } => Ask::List {
                // The token contains the version.
                not_older_than: not_older_than.clone().filter(|_| continue_token.is_none()),
                continue_token: continue_token.clone(),
            },
            Phase::Open { version } => Ask::Open {
                version: version.clone(),
            },
            Phase::Follow { opened, .. } => Ask::Event {
                within: match self.is_synced {
                    true => self.patience.silence,
                    false => BACKLOG_PAUSE.min(BACKLOG_LIMIT.saturating_sub(now.since(*opened))),
                },
            },
            Phase::Rest { pause, .. } => Ask::Rest(*pause),
        }
    }

    /// Changes the state and returns its events. A reply that does not answer the request is ignored.
    pub fn step<T>(&mut self, now: Boot, reply: Reply<T>) -> Vec<WatchEvent<T>> {
        let phase = std::mem::replace(&mut self.phase, Phase::list(None));
        let (phase, events) = match (phase, reply) {
            (phase, Reply::Failed(error)) => self.failed(now, phase, error),
            (list @ Phase::List { .. }, reply) => self.list(now, list, reply),
            (Phase::Open { version }, Reply::Opened) => {
                let is_late = self.is_synced && now.since(self.unwatched) > LATE_OPEN;
                let late = is_late.then(|| self.interrupted(self.unwatched, self.opened_late.clone()));
                self.alive = now;
                let follow = Phase::Follow {
                    version,
                    opened: now,
                    is_empty: true,
                };
                (follow, late.into_iter().collect())
            }
            (
                Phase::Follow {
                    version,
                    opened,
                    is_empty,
                },
                reply,
            ) => self.follow(now, (version, opened, is_empty), reply),
            (Phase::Rest { then, .. }, Reply::Rested) => (*then, Vec::new()),
            (phase @ (Phase::Open { .. } | Phase::Rest { .. }), _) => (phase, Vec::new()),
        };
        self.phase = phase;
        events
    }

    fn list<T>(&mut self, now: Boot, phase: Phase, reply: Reply<T>) -> (Phase, Vec<WatchEvent<T>>) {
        let mut events = Vec::new();
        if let (Phase::List { is_reported: false, .. }, Reply::Item(_) | Reply::Page { .. }) = (&phase, &reply) {
            events.push(WatchEvent::ListStarted);
        }
        let phase = match (phase, reply) {
            (
                Phase::List {
                    not_older_than,
                    continue_token,
                    ..
                },
                Reply::Item(object),
            ) => {
                events.push(WatchEvent::Changed(Change::Applied { object, listed: true }));
                Phase::List {
                    not_older_than,
                    continue_token,
                    is_reported: true,
                }
            }
            (
                Phase::List { not_older_than, .. },
                Reply::Page {
                    continue_token: Some(token),
                    ..
                },
            ) => Phase::List {
                not_older_than,
                continue_token: Some(token),
                is_reported: true,
            },
            (
                Phase::List { .. },
                Reply::Page {
                    version: Some(version), ..
                },
            ) => {
                events.push(WatchEvent::ListFinished);
                events.extend(self.synced(now));
                (self.alive, self.unwatched) = (now, now);
                if !self.is_relisted {
                    self.failures = 0;
                }
                Phase::Open { version }
            }
            (list @ Phase::List { .. }, Reply::Page { .. }) => {
                let (phase, failed) = self.failed(now, list, self.without_version.clone());
                events.extend(failed);
                phase
            }
            (phase, _) => phase,
        };
        (phase, events)
    }

    fn follow<T>(
        &mut self,
        now: Boot,
        (mut version, opened, is_empty): (String, Boot, bool),
        reply: Reply<T>,
    ) -> (Phase, Vec<WatchEvent<T>>) {
        let mut events = Vec::new();
        self.lived(now, opened);
        match reply {
            Reply::Change(change, newer) => {
                if !self.is_synced && now.since(opened) >= BACKLOG_LIMIT {
                    events.extend(self.synced(now));
                }
                if let Some(newer) = newer.filter(|newer| !newer.is_empty()) {
                    version = newer;
                }
                events.push(WatchEvent::Changed(change));
            }
            Reply::Bookmark { version: newer } => {
                self.has_bookmarks = true;
                version = newer;
            }
            Reply::Silence if !self.is_synced => {
                events.extend(self.synced(now));
                let follow = Phase::Follow {
                    version,
                    opened,
                    is_empty,
                };
                return (follow, events);
            }
            Reply::Silence => {
                let is_proof = self.has_bookmarks || now.since(opened) >= self.patience.watch;
                if is_proof {
                    let since = self.alive;
                    events.push(self.interrupted(since, self.stalled.clone()));
                }
                self.unwatched = now;
                return (Phase::Open { version }, events);
            }
            Reply::Ended if is_empty && now.since(opened) < SHORTEST_WATCH => {
                self.alive = now;
                return self.failed(now, Phase::Open { version }, self.closed.clone());
            }
            Reply::Ended => {
                (self.alive, self.unwatched) = (now, now);
                self.failures = 0;
                return (Phase::Open { version }, events);
            }
            Reply::Item(_) | Reply::Page { .. } | Reply::Opened | Reply::Failed(_) | Reply::Rested => {
                let follow = Phase::Follow {
                    version,
                    opened,
                    is_empty,
                };
                return (follow, events);
            }
        }
        self.alive = now;
        let follow = Phase::Follow {
            version,
            opened,
            is_empty: false,
        };
        (follow, events)
    }

    fn failed<T>(&mut self, now: Boot, phase: Phase, error: ApiError) -> (Phase, Vec<WatchEvent<T>>) {
        let reason = error.reason();
        if let Phase::Follow { opened, .. } = &phase {
            self.lived(now, *opened);
        }
        let since = match &phase {
            Phase::Open { .. } | Phase::Follow { .. } => self.alive,
            Phase::List { .. } | Phase::Rest { .. } => now,
        };
        let (next, wants_list) = match phase {
            Phase::List { not_older_than, .. } => match reason {
                // The version does not exist any more, or not yet: an older copy of etcd was restored.
                FailureReason::Expired | FailureReason::TooNew => (Phase::list(None), false),
                _ => (Phase::list(not_older_than), false),
            },
            Phase::Open { version } | Phase::Follow { version, .. } if is_relist(reason) => (Phase::list(Some(version)), true),
            Phase::Follow { version, opened, .. } => {
                if now.since(opened) >= HEALTHY_WATCH {
                    self.failures = 0;
                }
                (Phase::Open { version }, false)
            }
            phase @ (Phase::Open { .. } | Phase::Rest { .. }) => (phase, false),
        };
        // An API server that asks for a list works, unless the watch after the list fails as well.
        if wants_list && !std::mem::replace(&mut self.is_relisted, true) {
            self.failures = 0;
        }
        let pause = LONGEST_PAUSE.min(FIRST_PAUSE * 2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        let rest = Phase::Rest {
            pause,
            then: Box::new(next),
        };
        (rest, vec![self.interrupted(since, error)])
    }

    /// A watch after a list works.
    fn lived(&mut self, now: Boot, opened: Boot) {
        if now.since(opened) >= SHORTEST_WATCH && std::mem::take(&mut self.is_relisted) {
            self.failures = 0;
        }
    }

    fn interrupted<T>(&mut self, since: Boot, error: ApiError) -> WatchEvent<T> {
        self.is_synced = false;
        self.interrupted.get_or_insert_with(|| (since, error.clone()));
        WatchEvent::Interrupted { since, error }
    }

    /// None if already reported.
    fn synced<T>(&mut self, now: Boot) -> Option<WatchEvent<T>> {
        if std::mem::replace(&mut self.is_synced, true) {
            return None;
        }
        let is_first = !std::mem::replace(&mut self.was_synced, true);
        let interrupted = self.interrupted.take().filter(|_| !is_first);
        let gap = interrupted.map(|(since, why)| Gap { since, until: now, why });
        Some(WatchEvent::Synced { gap })
    }
}

/// The same watch would fail again: the changes are deleted, do not exist yet, or are still unreadable.
fn is_relist(reason: FailureReason) -> bool {
    use FailureReason::{Expired, TooNew, Undecodable};
    matches!(reason, Expired | TooNew | Undecodable)
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
