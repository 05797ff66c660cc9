//! How far a watch can be trusted with times.

use std::time::Duration;

use super::Moment;
use crate::time::Boot;

/// What was missed comes in one burst once a broken watch is back; a word later than this after the burst's first is new.
const BURST: Duration = Duration::from_secs(2);

/// Within so long a watch that broke, or whose connection died without a word, is back, or says once more that it is broken.
pub const BACK_WITHIN: Duration = Duration::from_secs(100);

#[derive(Clone, Debug, Default)]
pub(super) struct Contact {
    synced: bool,
    /// Its last word before the list or break that goes on.
    gap_since: Option<Boot>,
    /// Last heard to be broken.
    broken: Option<Boot>,
    /// First word after the break.
    back: Option<Boot>,
    listing: bool,
    /// When somebody listened again after a while.
    stalled: Option<Boot>,
    /// Nobody listened for a while, shortly before the list that goes on or during it: what comes after it may be late, too.
    listed_late: bool,
}

impl Contact {
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// It may not have told yet what has happened already.
    pub(super) fn is_in_gap(&self) -> bool {
        self.gap_since.is_some()
    }

    /// It told something.
    pub(super) fn word(&mut self, now: Boot) -> Seen {
        if !self.synced {
            return Seen::AtStart(now);
        }
        let Some(since) = self.gap_since else {
            return Seen::Watched(Moment::exact(now));
        };
        let back = *self.back.get_or_insert(now);
        if !self.listing && now.since(back) > BURST {
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

    pub(super) fn broken(&mut self, now: Boot) {
        self.gap_since.get_or_insert(now);
        self.broken = Some(now);
        self.back = None;
    }

    /// Nobody listened from `since` on: what it told meanwhile comes only now.
    pub(super) fn stalled(&mut self, since: Boot, now: Boot) {
        self.gap_since.get_or_insert(since);
        self.broken = Some(now);
        self.back = None;
        self.stalled = Some(now);
        self.listed_late |= self.listing;
    }

    /// A watch that was broken and tells nothing may be back, and quiet.
    pub(super) fn tick(&mut self, now: Boot) {
        let told_all = match (self.back, self.broken) {
            (Some(back), _) => now.since(back) > BURST,
            (None, Some(broken)) => now.since(broken) > BACK_WITHIN,
            (None, None) => false,
        };
        if told_all && !self.listing {
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
        self.listed_late = self.stalled.is_some_and(|at| now.since(at) <= BURST);
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
    /// In the first list: nobody knows since when it is so.
    AtStart(Boot),
    /// In a later list: of two changes nobody knows which was first.
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

    /// It happened after all that was told before it.
    pub(super) fn is_in_order(self) -> bool {
        matches!(self, Seen::Watched(_))
    }
}
