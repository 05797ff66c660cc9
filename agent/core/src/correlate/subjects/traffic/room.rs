//! When to look for room for another connection.

use crate::correlate::subjects::connection::later;

/// When to look for room again: any client can make connections that cannot be dropped.
#[derive(Debug)]
pub(super) struct Room {
    /// The number of connections at which the next look is worth its cost. 0: the cap.
    next: usize,
    /// Something changed since the last look that may make room.
    pub may_be_more: bool,
    /// The last time that data was sent, in jiffies: a close before that was a decision.
    sent: Option<u32>,
    #[cfg(test)]
    pub looks: usize,
}

impl Default for Room {
    fn default() -> Room {
        Room {
            next: 0,
            may_be_more: true,
            sent: None,
            #[cfg(test)]
            looks: 0,
        }
    }
}

impl Room {
    /// The number of connections that fit without a look: up to an eighth more than the cap, so that a look finds that many, or is the last.
    pub fn of(&self, cap: usize) -> usize {
        self.next.max(cap)
    }

    /// A look left so many connections. False: there is no room.
    pub fn looked(&mut self, left: usize, cap: usize) -> bool {
        self.may_be_more = left < cap;
        self.next = if left < cap { left + cap / 8 } else { 0 };
        left < cap
    }

    pub fn sent(&mut self, at: Option<u32>) {
        let last = later(self.sent, at);
        self.may_be_more |= last != self.sent;
        self.sent = last;
    }
}
