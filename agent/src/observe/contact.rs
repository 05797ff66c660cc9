//! How far a watch can be trusted with times.

use std::time::Duration;

use super::Moment;
use crate::event::Boot;

/// What was missed comes in one burst once a broken watch is back; a word later than this after the burst's first is new.
const BURST: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Default)]
pub(super) struct Contact {
    synced: bool,
    /// Its last word before the list or break that goes on.
    gap_since: Option<Boot>,
    /// First word after the break.
    back: Option<Boot>,
    listing: bool,
}

impl Contact {
    pub(super) fn is_synced(&self) -> bool {
        self.synced
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
            self.gap_since = None;
            self.back = None;
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
        self.back = None;
    }

    pub(super) fn list_begin(&mut self, now: Boot) {
        self.gap_since.get_or_insert(now);
        self.listing = true;
    }

    /// Everything is known again.
    pub(super) fn list_end(&mut self) {
        *self = Contact {
            synced: true,
            ..Contact::default()
        };
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
