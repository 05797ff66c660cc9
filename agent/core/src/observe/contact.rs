//! How exact the times of a watch are.

use super::Moment;
use crate::time::Boot;
use crate::tolerances::{BACK_WITHIN, WATCH_BURST};

#[derive(Clone, Debug, Default)]
pub(super) struct Contact {
    synced: bool,
    /// When the watch last worked before the list or interruption in progress.
    gap_since: Option<Boot>,
    /// The last reported interruption.
    broken: Option<Boot>,
    /// First change after the interruption.
    back: Option<Boot>,
    listing: bool,
    /// When inputs were read again after a pause.
    stalled: Option<Boot>,
    /// No input was read for a while, shortly before or during the list in progress: changes after the list may be late, too.
    listed_late: bool,
}

impl Contact {
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// Earlier changes may not be reported yet.
    pub(super) fn is_in_gap(&self) -> bool {
        self.gap_since.is_some()
    }

    /// The watch reported a change.
    pub(super) fn observed(&mut self, now: Boot) -> Seen {
        if !self.synced {
            return Seen::AtStart(now);
        }
        let Some(since) = self.gap_since else {
            return Seen::Watched(Moment::exact(now));
        };
        let back = *self.back.get_or_insert(now);
        if !self.listing && now.since(back) > WATCH_BURST {
            self.gap_ends();
            return Seen::Watched(Moment::exact(now));
        }
        let moment = Moment {
            at: now,
            gap: Some(now.since(since)),
        };
        if self.listing {
            Seen::Relisted(moment)
        } else {
            Seen::Watched(moment)
        }
    }

    /// `since`: when the watch last worked.
    pub(super) fn broken(&mut self, since: Boot, now: Boot) {
        self.missed(since.min(now));
        self.broken = Some(now);
    }

    /// No input was read from `since` on: changes waited meanwhile.
    pub(super) fn stalled(&mut self, since: Boot, now: Boot) {
        self.paused(since, now);
        self.broken = Some(now);
    }

    /// The same by a step of the clock. A clock that steps again and again does not keep a quiet watch in its gap for ever.
    pub(super) fn paused(&mut self, since: Boot, now: Boot) {
        self.missed(since);
        self.broken.get_or_insert(now);
        self.stalled = Some(now);
        self.listed_late |= self.listing;
    }

    /// A gap in progress may be longer than it was known to be.
    fn missed(&mut self, since: Boot) {
        self.gap_since = Some(self.gap_since.map_or(since, |before| before.min(since)));
        self.back = None;
    }

    /// An interrupted watch without changes may be back.
    pub(super) fn tick(&mut self, now: Boot) {
        let is_caught_up = match (self.back, self.broken) {
            (Some(back), _) => now.since(back) > WATCH_BURST,
            (None, Some(broken)) => now.since(broken) > BACK_WITHIN,
            (None, None) => false,
        };
        if is_caught_up && !self.listing {
            self.gap_ends();
        }
    }

    fn gap_ends(&mut self) {
        self.gap_since = None;
        self.broken = None;
        self.back = None;
    }

    pub(super) fn list_begin(&mut self, now: Boot) {
        self.gap_since.get_or_insert(now);
        self.listing = true;
        self.listed_late = self.stalled.is_some_and(|at| now.since(at) <= WATCH_BURST);
    }

    /// Everything is known again.
    pub(super) fn list_end(&mut self) {
        self.synced = true;
        self.listing = false;
        if std::mem::take(&mut self.listed_late) {
            self.back = None;
        } else {
            self.gap_ends();
        }
    }
}

/// How an object's state became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// In the first list: since an unknown time.
    AtStart(Boot),
    /// In a later list: the order of two changes is unknown.
    Relisted(Moment),
    Watched(Moment),
}

impl Seen {
    pub(super) fn moment(self) -> Moment {
        match self {
            Seen::AtStart(at) => Moment::exact(at),
            Seen::Relisted(moment) | Seen::Watched(moment) => moment,
        }
    }

    pub(super) fn is_at_start(self) -> bool {
        matches!(self, Seen::AtStart(_))
    }

    /// The change happened after all changes that were reported before.
    pub(super) fn is_in_order(self) -> bool {
        matches!(self, Seen::Watched(_))
    }
}
