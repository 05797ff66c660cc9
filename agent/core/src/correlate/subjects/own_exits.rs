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
pub(super) struct OwnExits {
    recorded: Vec<Span>,
    /// The kernel did not record the sockets from that exit on.
    unrecorded: Vec<Span>,
    /// Exits of processes with sockets of clients that no probe observes, and handlers that started with a UDP socket open.
    unobserved: Vec<Span>,
    /// The same with a listener on a Unix socket; of a unit only where no other process held it.
    unix: Vec<Span>,
}

impl OwnExits {
    pub const NONE: OwnExits = OwnExits {
        recorded: Vec::new(),
        unrecorded: Vec::new(),
        unobserved: Vec::new(),
        unix: Vec::new(),
    };

    pub fn add(&mut self, at: Boot, is_recorded: bool) {
        let spans = if is_recorded {
            &mut self.recorded
        } else {
            &mut self.unrecorded
        };
        keep(spans, at);
    }

    pub fn add_unobserved(&mut self, at: Boot) {
        keep(&mut self.unobserved, at);
    }

    pub fn has_unobserved(&self, from: Boot, to: Boot) -> bool {
        self.unobserved.iter().any(|span| span.overlaps(from, to))
    }

    pub fn add_unix(&mut self, at: Boot) {
        keep(&mut self.unix, at);
    }

    pub fn has_unix(&self, from: Boot, to: Boot) -> bool {
        self.unix.iter().any(|span| span.overlaps(from, to))
    }

    /// The first one between the two.
    pub fn since(&self, from: Boot, to: Boot) -> Option<Boot> {
        let all = self.recorded.iter().chain(&self.unrecorded);
        let within = all.filter(|span| span.overlaps(from, to));
        within.map(|span| span.first.max(from)).min()
    }

    /// The last one.
    pub fn last(&self) -> Option<Boot> {
        self.recorded.iter().map(|span| span.last).max()
    }

    pub fn has_unrecorded(&self, from: Boot, to: Boot) -> bool {
        self.unrecorded.iter().any(|span| span.overlaps(from, to))
    }

    /// What concerns the life that ended then is over.
    pub fn expire(&mut self, end: Boot) {
        for spans in [&mut self.recorded, &mut self.unrecorded, &mut self.unobserved, &mut self.unix] {
            spans.retain(|span| span.last > end);
        }
    }

    pub fn bytes(&self) -> usize {
        let all = [&self.recorded, &self.unrecorded, &self.unobserved, &self.unix];
        all.iter().map(|spans| spans.capacity()).sum::<usize>() * size_of::<Span>()
    }
}

fn keep(spans: &mut Vec<Span>, at: Boot) {
    spans.retain(|span| span.last.plus(OWN_EXITS_KEPT) >= at);
    let is_near = |span: &&mut Span| span.first.minus(OWN_EXITS_JOINED) <= at && at <= span.last.plus(OWN_EXITS_JOINED);
    match spans.iter_mut().find(is_near) {
        Some(span) => *span = span.and(Span::at(at)),
        None => spans.push(Span::at(at)),
    }
}
