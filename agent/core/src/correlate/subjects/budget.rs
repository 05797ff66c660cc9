//! The subjects' part of the core's memory: who has most gives first.
//!
//! Bytes are counted by the sizes and numbers of what is kept. What is dropped is known to the verdict of the subject that it was
//! about, and of no other. So the share of each shrinks as more terminations are in progress, and a small termination loses nothing
//! to a large one.

use crate::attribute::{growth, slim, table};
use crate::ids::CgroupId;
use crate::time::Boot;

use super::Subjects;
use super::missed::PLACED;
use super::subject::State;
use super::weights::Weights;

/// Of a subject in the ordered lists (timers, idleness, armed sockets; weight), at most.
const LISTED: usize = 3 * (3 * size_of::<(Boot, CgroupId)>() + Weights::LISTED) / 2;
/// Of a new subject: its first processes.
const NEW: usize = 512;

impl Subjects {
    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        let listed =
            self.subjects.len() * LISTED + self.touched.len() * PLACED + self.gone.capacity() * size_of::<(Boot, CgroupId)>();
        let table = table::<CgroupId, State>(self.subjects.capacity());
        self.weights.total + table + listed + self.clients.bytes() + self.closers.bytes()
    }

    /// After a change: counts a subject's bytes again, and marks its place among the timelines as changed.
    pub(super) fn weigh(&mut self, own: CgroupId) {
        let Some(state) = self.subjects.get_mut(&own) else { return };
        self.missed.displace(own, state);
        self.weights.weigh(own, state);
    }

    /// As [`Subjects::fit`], after a change that made no room for itself.
    pub(super) fn fit_grown(&mut self) {
        if self.weights.take_grew() {
            self.fit(0);
        }
    }

    /// Frees memory until `more` bytes fit: of the facts of who has most, and if no facts are left, of whole subjects, which then have
    /// no verdict. False: nothing more can be freed, or not enough for a new subject, for which nobody gives up facts in vain.
    pub(super) fn fit(&mut self, more: usize) -> bool {
        let most = self.limits.subjects_bytes();
        if more > 0 && (self.bytes() + more).saturating_sub(self.weights.freed) > most {
            return false;
        }
        while self.bytes() + more > most {
            let Some((spare, own)) = self.weights.most() else {
                return false;
            };
            if spare > 0 {
                let dropped = self.subjects.get_mut(&own).map_or(0, State::squeeze);
                self.drops.memory += dropped;
                self.weigh(own);
                continue;
            }
            // A new subject is not worth another.
            if more > 0 {
                return false;
            }
            if let Some(mut state) = self.subjects.remove(&own) {
                self.unlist(own, &mut state);
                self.weights.remove(own, &mut state);
                self.drops.memory += 1;
                self.early.refuse(self.now);
            }
            self.slim();
        }
        true
    }

    /// Whether another subject fits.
    pub(super) fn fits_another(&mut self) -> bool {
        self.fit(growth(&self.subjects) + NEW)
    }

    /// Memory of subjects that are gone.
    pub(super) fn slim(&mut self) {
        slim(&mut self.subjects);
        if self.gone.len() < self.gone.capacity() / 4 {
            self.gone.shrink_to(2 * self.gone.len());
        }
    }
}
