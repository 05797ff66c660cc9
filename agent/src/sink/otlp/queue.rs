//! A bounded queue of traces that distinguishes full and closed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::render::span::Trace;

/// Result of offering a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    Queued,
    /// The trace was queued, and the oldest trace, with so many spans, was dropped for it.
    OldestDropped {
        spans: u64,
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
    traces: VecDeque<Trace>,
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

    pub(super) fn push(&self, trace: Trace) -> Offer {
        let mut state = self.state();
        if state.closed {
            return Offer::Closed;
        }
        let oldest = if state.traces.len() >= self.most {
            state.traces.pop_front()
        } else {
            None
        };
        state.traces.push_back(trace);
        drop(state);
        self.changed.notify_one();
        oldest.map_or(Offer::Queued, |oldest| Offer::OldestDropped {
            spans: oldest.spans.len() as u64,
        })
    }

    /// Up to `most` of the oldest traces, as soon as there is one; None once the queue is closed and empty.
    /// `taken` is called with them before any other caller can access the queue.
    pub(super) async fn take(&self, most: usize, taken: impl Fn(&[Trace])) -> Option<Vec<Trace>> {
        loop {
            {
                let mut state = self.state();
                if !state.traces.is_empty() {
                    let n = most.min(state.traces.len());
                    let batch: Vec<Trace> = state.traces.drain(..n).collect();
                    taken(&batch);
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

    /// Empties the queue; returns the number of spans in it.
    pub(super) fn drain(&self) -> u64 {
        self.state().traces.drain(..).map(|trace| trace.spans.len() as u64).sum()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock panics during a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
