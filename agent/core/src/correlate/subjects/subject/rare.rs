//! What few subjects have.

use crate::correlate::subjects::own_exits::OwnExits;
use crate::correlate::subjects::process::ProcessId;
use crate::event::Kind;
use crate::ledger::Drops;
use crate::time::Boot;

/// Evidence of a termination, but for the exit: without its record there is no verdict that rests on it.
pub(in crate::correlate::subjects) const EVIDENCE: [Kind; 4] =
    [Kind::SignalGenerate, Kind::SignalDeliver, Kind::OomVictim, Kind::Tcp];

#[derive(Debug, Default)]
pub(in crate::correlate::subjects) struct Rare {
    /// The process and time of the reported early warning.
    pub warned: Option<(ProcessId, Boot)>,
    /// When the sockets were last let go.
    pub unwatched_at: Option<Boot>,
    /// Evidence that was dropped.
    pub drops: Drops,
    pub own_exits: OwnExits,
}

static NOTHING: Rare = Rare {
    warned: None,
    unwatched_at: None,
    drops: Drops::NONE,
    own_exits: OwnExits::NONE,
};

/// Apart, because each record reads the whole state, and of ten thousand states few are in the processor's cache.
#[derive(Debug, Default)]
pub(super) struct Apart {
    rare: Option<Box<Rare>>,
    /// Its bytes: counted again only after a change, because each look at it is a cache miss.
    weight: usize,
    changed: bool,
}

impl Apart {
    pub fn get(&self) -> &Rare {
        self.rare.as_deref().unwrap_or(&NOTHING)
    }

    pub fn get_mut(&mut self) -> &mut Rare {
        self.changed = true;
        self.rare.get_or_insert_default()
    }

    pub fn expire(&mut self, end: Boot) {
        if let Some(rare) = &mut self.rare {
            rare.drops.expire(end);
            rare.own_exits.expire(end);
        }
    }

    pub fn weigh(&mut self) -> usize {
        if std::mem::take(&mut self.changed) {
            self.weight = self.bytes();
        }
        debug_assert_eq!(self.weight, self.bytes());
        self.weight
    }

    fn bytes(&self) -> usize {
        let of = |rare: &Rare| size_of::<Rare>() + rare.drops.bytes() + rare.own_exits.bytes();
        self.rare.as_deref().map_or(0, of)
    }
}
