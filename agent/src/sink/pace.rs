//! How fast a sink writes to the API server: its rate, its rests while the server is away, and how often it logs that.

use std::collections::HashSet;
use std::hash::Hash;
use std::time::Duration;

use epitaph_core::time::Boot;

use super::queue::{Entry, Queue};
use crate::bucket::{Bucket, Rate};

/// Of one writer.
pub(super) struct Pace {
    bucket: Bucket,
    clock: fn() -> Boot,
    /// The first pause after a success, and the longest.
    first: Duration,
    longest: Duration,
    /// Next pause if nothing can be written.
    next: Duration,
}

impl Pace {
    /// `pause`: the first one and the longest.
    pub fn new(rate: Rate, pause: (Duration, Duration), clock: fn() -> Boot) -> Pace {
        let (first, longest) = pause;
        Pace {
            bucket: Bucket::new(rate),
            clock,
            first,
            longest,
            next: first,
        }
    }

    pub fn clock(&self) -> fn() -> Boot {
        self.clock
    }

    pub fn now(&self) -> Boot {
        (self.clock)()
    }

    /// Waits for a token; at shutdown the rate does not apply.
    pub async fn token<E: Entry>(&mut self, queue: &Queue<E>) {
        while !queue.is_closed() {
            let Err(wait) = self.bucket.take(self.now()) else { return };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = queue.closed() => return,
            }
        }
    }

    /// A pause after a failure of the API server; each is longer than the one before. At shutdown they are short.
    pub async fn rest<E: Entry>(&mut self, queue: &Queue<E>) {
        let pause = self.next;
        self.next = (self.next * 2).min(self.longest);
        if queue.is_closed() {
            tokio::time::sleep(self.first.min(pause)).await;
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = queue.closed() => self.next = self.first,
        }
    }

    /// The pause of one object after so many failures of its own.
    pub fn of_object(&self) -> impl Fn(u32) -> Duration + use<> {
        let (first, longest) = (self.first, self.longest);
        move |failed| first.saturating_mul(2_u32.saturating_pow(failed)).min(longest)
    }

    /// Something was written.
    pub fn recovered(&mut self) {
        self.next = self.first;
    }
}

/// Most failures that are remembered as logged.
const LOGGED: usize = 64;

/// Failures by namespace, each logged once until the next success.
pub(super) struct Logged<O>(HashSet<(String, O)>);

impl<O: Eq + Hash> Default for Logged<O> {
    fn default() -> Logged<O> {
        Logged(HashSet::new())
    }
}

impl<O: Eq + Hash> Logged<O> {
    /// Whether it was not logged yet; it is from now on.
    pub fn is_news(&mut self, outcome: O, namespace: &str) -> bool {
        // Cleared rather than closed at the limit: namespaces come and go.
        if self.0.len() >= LOGGED {
            self.0.clear();
        }
        self.0.insert((namespace.to_owned(), outcome))
    }

    /// These do not hold any longer. Returns whether one of them was logged.
    pub fn forget<const N: usize>(&mut self, namespace: &str, outcomes: [O; N]) -> bool {
        let keys = outcomes.map(|outcome| (namespace.to_owned(), outcome));
        keys.iter().filter(|key| self.0.remove(*key)).count() > 0
    }
}
