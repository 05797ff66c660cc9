//! When to look for room for another connection.

use crate::correlate::subjects::connection::later;

/// When to look for room again: any client can make connections that cannot be dropped.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// The number of connections at which the next look is worth its cost. 0: the cap.
    next: usize,
    /// The last look found no room, and nothing changed since that may make some.
    pub is_full: bool,
    /// The last time that data was sent, in jiffies: a close before that was a decision.
    sent: Option<u32>,
    #[cfg(test)]
    pub looks: usize,
}

impl Room {
    /// The number of connections that fit without a look: up to an eighth more than the cap, so that a look finds that many, or is the last.
    pub fn of(&self, cap: usize) -> usize {
        self.next.max(cap)
    }

    /// A look left so many connections. False: there is no room.
    pub fn looked(&mut self, left: usize, cap: usize) -> bool {
        self.is_full = left >= cap;
        self.next = if left < cap { left + cap / 8 } else { 0 };
        left < cap
    }

    pub fn sent(&mut self, at: Option<u32>) {
        let last = later(self.sent, at);
        self.is_full &= last == self.sent;
        self.sent = last;
    }
}
