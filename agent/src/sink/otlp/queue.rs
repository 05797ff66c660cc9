//! A bounded queue of traces that distinguishes full and closed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::parcel::Parcel;

/// Result of offering a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    Queued,
    /// The trace was queued, and the oldest one that is kept nowhere else was dropped for it.
    OldestDropped {
        /// Spans or log records, by the sink's signal.
        items: u64,
    },
    /// The sink was shut down: the trace was dropped.
    Closed,
}

#[derive(Debug)]
pub(super) struct Queue {
    most: usize,
    state: Mutex<State>,
    changed: Notify,
    closing: tokio::sync::watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    traces: VecDeque<Parcel>,
    /// How many of these hold their request's bytes.
    held: usize,
    /// Taken, and not settled: in the order in which they were taken.
    in_flight: VecDeque<Parcel>,
    closed: bool,
}

impl Queue {
    pub(super) fn new(most: usize) -> Queue {
        let (closing, _) = tokio::sync::watch::channel(false);
        Queue {
            most,
            state: Mutex::default(),
            changed: Notify::new(),
            closing,
        }
    }

    /// Traces that are kept elsewhere, too, stay in the queue without their bytes if it is full; another is dropped for good.
    pub(super) fn push(&self, mut parcel: Parcel) -> (Offer, Option<Parcel>) {
        let mut state = self.state();
        if state.closed {
            return (Offer::Closed, Some(parcel));
        }
        let is_full = state.held >= self.most;
        let mut oldest = None;
        if is_full && parcel.kept.is_some() {
            parcel.request = None;
        } else if is_full && parcel.request.is_some() {
            oldest = state.make_room();
        }
        state.held += usize::from(parcel.request.is_some());
        state.traces.push_back(parcel);
        drop(state);
        self.changed.notify_one();
        let offer = oldest
            .as_ref()
            .map_or(Offer::Queued, |oldest| Offer::OldestDropped { items: oldest.items });
        (offer, oldest)
    }

    /// Removes the traces that were kept elsewhere only, and are not any more.
    pub(super) fn remove_lost(&self) -> Vec<Parcel> {
        let mut state = self.state();
        let is_lost = |parcel: &Parcel| parcel.request.is_none() && parcel.kept.as_ref().is_none_or(|kept| !kept.is_there());
        if !state.traces.iter().any(is_lost) {
            return Vec::new();
        }
        let (lost, left) = std::mem::take(&mut state.traces).into_iter().partition(is_lost);
        state.traces = left;
        Vec::from(lost)
    }

    /// Up to `most` of the oldest traces, as soon as there is one; None once the queue is closed and empty. They are in flight until
    /// [`Queue::settle`].
    pub(super) async fn take(&self, most: usize) -> Option<Vec<Parcel>> {
        loop {
            {
                let mut state = self.state();
                if !state.traces.is_empty() {
                    let n = most.min(state.traces.len());
                    let batch: Vec<Parcel> = state.traces.drain(..n).collect();
                    state.held -= batch.iter().filter(|parcel| parcel.request.is_some()).count();
                    state.in_flight.extend(batch.iter().cloned());
                    return Some(batch);
                }
                if state.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
        self.closing.send_replace(true);
        self.changed.notify_one();
    }

    /// Becomes true when the queue is closed.
    pub(super) fn closing(&self) -> tokio::sync::watch::Receiver<bool> {
        self.closing.subscribe()
    }

    pub(super) fn len(&self) -> usize {
        self.state().traces.len()
    }

    /// Of what was taken only `left` is sent, in this order; `postponed` is taken again after all others. Returns what the queue does not
    /// take, because it is closed.
    pub(super) fn sort(&self, left: &[Parcel], postponed: Vec<Parcel>) -> Vec<Parcel> {
        let mut state = self.state();
        state.in_flight = left.iter().cloned().collect();
        if state.closed {
            return postponed;
        }
        state.traces.extend(postponed);
        Vec::new()
    }

    /// The first `count` of what was taken are sent, or given up.
    pub(super) fn settle(&self, count: usize) {
        let mut state = self.state();
        let count = count.min(state.in_flight.len());
        state.in_flight.drain(..count);
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.state().held
    }

    #[cfg(test)]
    pub(super) fn unsettled(&self) -> usize {
        self.state().in_flight.len()
    }

    /// Empties the queue; what was taken and not settled comes first.
    pub(super) fn drain(&self) -> Vec<Parcel> {
        let mut state = self.state();
        state.held = 0;
        let mut all = std::mem::take(&mut state.in_flight);
        all.append(&mut state.traces);
        all.into()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock panics during a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The oldest bytes go: those of a trace that is kept elsewhere, without the trace; else the trace.
    fn make_room(&mut self) -> Option<Parcel> {
        let is_kept = |parcel: &Parcel| parcel.request.is_some() && parcel.kept.is_some();
        if let Some(kept) = self.traces.iter_mut().find(|parcel| is_kept(parcel)) {
            kept.request = None;
            self.held -= 1;
            return None;
        }
        let oldest = self.traces.iter().position(|parcel| parcel.request.is_some())?;
        self.held -= 1;
        self.traces.remove(oldest)
    }
}
