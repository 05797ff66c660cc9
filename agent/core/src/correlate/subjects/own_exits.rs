//! What a subject's processes do with clients' sockets while nobody stops it: exits of processes that held such sockets, and listeners
//! that closed.
//!
//! A program below a wrapper can exit by itself: the main process's own exit comes a little later. What clients lost at the program's
//! exit belongs to that termination, and the program may have been terminated while the kernel recorded no sockets.

use crate::ledger::Span;
use crate::time::Boot;
use crate::tolerances::{OWN_EXITS_JOINED, OWN_EXITS_KEPT};

/// The last times, bounded by [`OWN_EXITS_KEPT`] and [`OWN_EXITS_JOINED`].
#[derive(Clone, Debug, Default)]
pub(super) struct Times(Vec<Span>);

#[derive(Clone, Debug, Default)]
pub(super) struct OwnExits {
    pub recorded: Times,
    /// The kernel did not record the sockets from that exit on.
    pub unrecorded: Times,
    /// Exits of processes with sockets of clients that no probe observes, and handlers that started with a UDP socket open.
    pub unobserved: Times,
    /// The same with a listener on a Unix socket; of a unit only where no other process held it.
    pub unix: Times,
    /// The same with more descriptors than the probes look at.
    pub more: Times,
}

impl Times {
    const NONE: Times = Times(Vec::new());

    pub fn add(&mut self, at: Boot) {
        let Times(spans) = self;
        spans.retain(|span| span.last.plus(OWN_EXITS_KEPT) >= at);
        let is_near = |span: &&mut Span| span.first.minus(OWN_EXITS_JOINED) <= at && at <= span.last.plus(OWN_EXITS_JOINED);
        match spans.iter_mut().find(is_near) {
            Some(span) => *span = span.and(Span::at(at)),
            None => spans.push(Span::at(at)),
        }
    }

    /// The first one between the two.
    pub fn since(&self, from: Boot, to: Boot) -> Option<Boot> {
        let within = self.0.iter().filter(|span| span.overlaps(from, to));
        within.map(|span| span.first.max(from)).min()
    }

    pub fn last(&self) -> Option<Boot> {
        self.0.iter().map(|span| span.last).max()
    }
}

impl OwnExits {
    pub const NONE: OwnExits = OwnExits {
        recorded: Times::NONE,
        unrecorded: Times::NONE,
        unobserved: Times::NONE,
        unix: Times::NONE,
        more: Times::NONE,
    };

    /// The first exit between the two.
    pub fn since(&self, from: Boot, to: Boot) -> Option<Boot> {
        let each = [&self.recorded, &self.unrecorded].map(|times| times.since(from, to));
        each.into_iter().flatten().min()
    }

    /// What concerns the life that ended then is over.
    pub fn expire(&mut self, end: Boot) {
        let unseen = [&mut self.unobserved, &mut self.unix, &mut self.more];
        for times in unseen.into_iter().chain([&mut self.recorded, &mut self.unrecorded]) {
            times.0.retain(|span| span.last > end);
        }
    }

    pub fn bytes(&self) -> usize {
        let all = [&self.recorded, &self.unrecorded, &self.unobserved, &self.unix, &self.more];
        all.map(|times| times.0.capacity()).iter().sum::<usize>() * size_of::<Span>()
    }
}
