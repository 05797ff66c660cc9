//! What the role has to say, until the agent has read it: the latest states, and a bounded queue of what happened. Pure but for its lock.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epitaph_core::node::{BusState, NodeEvent, SignalSender};
use epitaph_core::time::Boot;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::drops::{Drops, LogindDropReason};

/// Events of logind and systemd that wait for the agent.
const QUEUE: usize = 256;

/// Forged signals that wait for the agent: they have no part in that room.
const STRANGERS: usize = 32;

/// The agent takes the time of an event's arrival for its own: an older event is not sent, but counted.
const STALE: Duration = Duration::from_secs(10);

/// Between two looks.
const STEP: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Outbox {
    inner: Mutex<Inner>,
    changed: Notify,
    /// An agent is connected.
    linked: AtomicBool,
    /// The agent observes on in a shutdown.
    stays: AtomicBool,
    /// Everything that was taken is written.
    written: Notify,
    pub drops: Drops,
}

#[derive(Debug, Default)]
struct Inner {
    /// Taken, and not known to be written.
    is_writing: bool,
    queue: VecDeque<(Boot, NodeEvent)>,
    /// The latest of each kind that is a complete state, in the order of their first.
    states: Vec<NodeEvent>,
    /// Targets that end the machine and for which systemd has a job.
    jobs: BTreeSet<String>,
}

impl Outbox {
    pub fn new() -> Outbox {
        Outbox {
            inner: Mutex::default(),
            changed: Notify::new(),
            linked: AtomicBool::new(false),
            stays: AtomicBool::new(false),
            written: Notify::new(),
            drops: Drops::default(),
        }
    }

    /// A state that has not changed is not an event.
    pub fn put(&self, now: Boot, event: NodeEvent) {
        let mut inner = self.lock();
        if is_state(&event) {
            match inner.states.iter_mut().find(|known| same_kind(known, &event)) {
                Some(known) if *known == event => return,
                Some(known) => *known = event.clone(),
                None => inner.states.push(event.clone()),
            }
        }
        inner.note_preparing(&event);
        match &event {
            NodeEvent::Job { unit, removed: true } => inner.jobs.remove(unit),
            NodeEvent::Job { unit, removed: false } => inner.jobs.insert(unit.clone()),
            _ => false,
        };
        inner.replace_state(&event);
        let is_forged = is_forged(&event);
        let waiting = || {
            inner
                .queue
                .iter()
                .filter(|(_, waiting)| self::is_forged(waiting) == is_forged)
        };
        if is_forged && waiting().count() == STRANGERS {
            self.drops.add(LogindDropReason::Strangers, 1);
            return;
        }
        if !is_forged && waiting().count() == QUEUE {
            let oldest = inner.queue.iter().position(|(_, waiting)| !self::is_forged(waiting));
            oldest.and_then(|oldest| inner.queue.remove(oldest));
            self.drops.add(LogindDropReason::RoleQueue, 1);
        }
        inner.queue.push_back((now, event));
        drop(inner);
        self.changed.notify_one();
    }

    /// Nothing is known of logind any more, but that.
    pub fn forget(&self, now: Boot, state: BusState) {
        let mut inner = self.lock();
        inner.states.retain(|state| matches!(state, NodeEvent::Bus { .. }));
        inner.jobs.clear();
        drop(inner);
        self.put(now, NodeEvent::Bus { state });
    }

    /// The next events; empty: nothing new. After a loss, with the loss and all states again.
    pub fn take(&self, now: Boot) -> Vec<NodeEvent> {
        let mut inner = self.lock();
        let mut events = self.recent(now, &mut inner);
        let lost = self.drops.take();
        if lost.iter().any(|(reason, _)| *reason == LogindDropReason::RoleQueue) {
            events.extend(inner.states.iter().cloned());
        }
        events.extend(lost.into_iter().map(as_event));
        events
    }

    /// The first events for a new reader: how things are with the bus, what has just happened, and all states.
    pub fn begin(&self, now: Boot) -> Vec<NodeEvent> {
        let mut inner = self.lock();
        let (bus, others): (Vec<_>, Vec<_>) = inner
            .states
            .iter()
            .cloned()
            .partition(|state| matches!(state, NodeEvent::Bus { .. }));
        // States are among the states.
        inner.queue.retain(|(_, event)| !is_state(event));
        let recent = self.recent(now, &mut inner);
        let lost = self.drops.take().into_iter().map(as_event);
        bus.into_iter().chain(recent).chain(others).chain(lost).collect()
    }

    /// Empties the queue; what is too old is counted. A state is not: it is still so.
    fn recent(&self, now: Boot, inner: &mut Inner) -> Vec<NodeEvent> {
        inner.is_writing = true;
        let mut recent = Vec::new();
        for (at, event) in std::mem::take(&mut inner.queue) {
            match () {
                () if is_state(&event) || now.since(at) <= STALE => recent.push(event),
                () if is_forged(&event) => self.drops.add(LogindDropReason::Strangers, 1),
                () => self.drops.add(LogindDropReason::RoleQueue, 1),
            }
        }
        recent
    }

    /// Waits for an event.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    pub fn link(&self, is_connected: bool) {
        self.linked.store(is_connected, Ordering::Relaxed);
    }

    pub fn is_linked(&self) -> bool {
        self.linked.load(Ordering::Relaxed)
    }

    pub fn agent_stays(&self, stays: bool) {
        self.stays.store(stays, Ordering::Relaxed);
    }

    /// Whether the connected agent observes on in a shutdown.
    pub fn stays(&self) -> bool {
        self.is_linked() && self.stays.load(Ordering::Relaxed)
    }

    /// What [`Outbox::take`] and [`Outbox::begin`] gave is with the agent.
    pub fn written(&self) {
        self.lock().is_writing = false;
        self.written.notify_one();
    }

    /// Waits until the connected agent has everything; there is one waiter.
    pub async fn is_with_agent(&self) {
        while self.is_linked() && !self.is_written() {
            self.written.notified().await;
        }
    }

    fn is_written(&self) -> bool {
        let inner = self.lock();
        inner.queue.is_empty() && !inner.is_writing
    }

    /// Whether a shutdown is under way, by logind itself.
    pub fn is_preparing(&self) -> bool {
        self.lock().states.iter().any(|state| {
            matches!(
                state,
                NodeEvent::Bus {
                    state: BusState::Connected { preparing: true, .. }
                }
            )
        })
    }

    /// Waits until systemd has a job for a target that ends the machine.
    pub async fn has_job(&self) {
        while self.lock().jobs.is_empty() {
            sleep(STEP).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// A state that waits is replaced by the next one of its kind, unless logind or systemd announced something in between: whoever
    /// makes states change (by taking locks and letting them go) takes no room from what logind says.
    fn replace_state(&mut self, event: &NodeEvent) {
        if !is_state(event) {
            return;
        }
        let announced = |(_, waiting): &(Boot, NodeEvent)| !is_state(waiting) && !is_forged(waiting);
        let since = self.queue.iter().rposition(announced).map_or(0, |at| at + 1);
        let replaced = self
            .queue
            .iter()
            .skip(since)
            .position(|(_, waiting)| same_kind(waiting, event));
        if let Some(at) = replaced {
            self.queue.remove(since + at);
        }
    }

    /// A later reader learns of a shutdown under way from the state of the bus.
    fn note_preparing(&mut self, event: &NodeEvent) {
        let NodeEvent::Prepare {
            start,
            sender: SignalSender::Logind,
            ..
        } = event
        else {
            return;
        };
        for state in &mut self.states {
            if let NodeEvent::Bus {
                state: BusState::Connected { preparing, .. },
            } = state
            {
                *preparing = *start;
            }
        }
    }
}

fn as_event((reason, count): (LogindDropReason, u64)) -> NodeEvent {
    let reason = reason.name().to_owned();
    NodeEvent::Lost { reason, count }
}

fn is_state(event: &NodeEvent) -> bool {
    match event {
        NodeEvent::Bus { .. }
        | NodeEvent::Scheduled { .. }
        | NodeEvent::Inhibitors { .. }
        | NodeEvent::DelayLimit { .. }
        | NodeEvent::OwnLock { .. }
        | NodeEvent::SystemState { .. } => true,
        NodeEvent::Prepare { .. }
        | NodeEvent::Job { .. }
        | NodeEvent::OomKilled { .. }
        | NodeEvent::Lost { .. }
        | NodeEvent::Kubelet { .. }
        | NodeEvent::KubeletState { .. }
        | NodeEvent::AgentEnds { .. } => false,
    }
}

/// By anybody on the bus.
fn is_forged(event: &NodeEvent) -> bool {
    matches!(
        event,
        NodeEvent::Prepare {
            sender: SignalSender::Other { .. },
            ..
        }
    )
}

fn same_kind(a: &NodeEvent, b: &NodeEvent) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

#[cfg(test)]
mod tests {
    use epitaph_core::ids::Pid;
    use epitaph_core::node::{InhibitMode, Inhibitor};

    use super::*;

    fn connected(preparing: bool) -> NodeEvent {
        NodeEvent::Bus {
            state: BusState::Connected {
                systemd: Some(252),
                preparing,
            },
        }
    }

    fn prepare(start: bool) -> NodeEvent {
        NodeEvent::Prepare {
            start,
            kind: None,
            sender: SignalSender::Logind,
        }
    }

    fn forged() -> NodeEvent {
        let sender = SignalSender::Other {
            name: ":1.9".to_owned(),
            pid: None,
            uid: None,
            comm: None,
            unit: None,
        };
        let (start, kind) = (true, None);
        NodeEvent::Prepare { start, kind, sender }
    }

    fn limit(seconds: u64) -> NodeEvent {
        NodeEvent::DelayLimit {
            limit: Duration::from_secs(seconds),
        }
    }

    fn job(n: usize) -> NodeEvent {
        NodeEvent::Job {
            unit: n.to_string(),
            removed: false,
        }
    }

    fn locks(count: u32) -> NodeEvent {
        let lock = |n| Inhibitor {
            what: "shutdown".to_owned(),
            who: "app".to_owned(),
            why: String::new(),
            mode: InhibitMode::Delay,
            uid: 1_000,
            pid: Pid(n),
        };
        NodeEvent::Inhibitors {
            locks: (0..count % 7).map(lock).collect(),
        }
    }

    fn lost(reason: LogindDropReason, count: u64) -> NodeEvent {
        let reason = reason.name().to_owned();
        NodeEvent::Lost { reason, count }
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_state_is_sent_on_change_and_to_each_new_reader() {
        let outbox = Outbox::new();
        for event in [connected(false), limit(5), limit(5), limit(30)] {
            outbox.put(Boot(0), event);
        }
        assert_eq!(outbox.take(Boot(1)), [connected(false), limit(30)], "5 s were replaced");
        assert!(outbox.take(Boot(2)).is_empty());
        assert_eq!(outbox.begin(Boot(3)), [connected(false), limit(30)]);
        let off = BusState::Unavailable { reason: "r".to_owned() };
        outbox.forget(Boot(4), off.clone());
        assert_eq!(outbox.take(Boot(5)), [NodeEvent::Bus { state: off.clone() }]);
        assert_eq!(outbox.begin(Boot(6)), [NodeEvent::Bus { state: off }]);
    }

    #[test]
    fn a_shutdown_under_way_is_part_of_the_state() {
        let outbox = Outbox::new();
        outbox.put(Boot(0), connected(false));
        outbox.put(Boot(0), prepare(true));
        assert!(outbox.is_preparing());
        outbox.take(Boot(0));
        assert_eq!(outbox.begin(Boot(1)), [connected(true)]);
        outbox.put(Boot(2), prepare(false));
        assert!(!outbox.is_preparing());
    }

    #[test]
    fn a_reader_that_was_away_gets_what_is_recent_and_the_number_of_the_others() {
        let outbox = Outbox::new();
        outbox.put(Boot(0), connected(false));
        outbox.put(Boot(0), prepare(true));
        outbox.put(Boot(0), prepare(false));
        outbox.put(Boot(55 * SECOND), prepare(true));
        let lost = lost(LogindDropReason::RoleQueue, 2);
        assert_eq!(outbox.begin(Boot(60 * SECOND)), [connected(true), prepare(true), lost]);
    }

    #[test]
    fn a_full_queue_drops_its_oldest_and_sends_the_states_again() {
        let outbox = Outbox::new();
        outbox.put(Boot(0), limit(5));
        for n in 0..QUEUE {
            outbox.put(Boot(0), job(n));
        }
        let events = outbox.take(Boot(0));
        assert_eq!((events.len(), &events[0]), (QUEUE + 2, &job(0)));
        assert_eq!(events[QUEUE..], [limit(5), lost(LogindDropReason::RoleQueue, 1)]);
    }

    #[test]
    fn what_anybody_can_send_takes_no_room_and_no_time_from_logind() {
        let outbox = Outbox::new();
        outbox.put(Boot(0), connected(false));
        for n in 0..10_000 {
            outbox.put(Boot(0), forged());
            // Of locks that somebody takes and lets go.
            outbox.put(Boot(0), locks(n));
        }
        outbox.put(Boot(0), prepare(true));
        for n in 0..10_000 {
            outbox.put(Boot(0), locks(n));
        }
        for n in 1..QUEUE - 3 {
            outbox.put(Boot(0), job(n));
        }
        let strangers = lost(LogindDropReason::Strangers, 10_000 - STRANGERS as u64);
        let events = outbox.take(Boot(0));
        let of = |event: &NodeEvent| events.iter().filter(|known| *known == event).count();
        assert_eq!((of(&forged()), of(&prepare(true))), (STRANGERS, 1));
        assert_eq!(events.last(), Some(&strangers));
        assert_eq!(events.len(), STRANGERS + QUEUE + 1);

        // And no forged signal that was too old is a loss of logind's.
        outbox.put(Boot(0), forged());
        outbox.put(Boot(0), limit(30));
        let late = [limit(30), lost(LogindDropReason::Strangers, 1)];
        assert_eq!(outbox.take(Boot(60 * SECOND)), late);
    }

    #[test]
    fn states_before_and_after_an_announcement_are_both_sent() {
        let outbox = Outbox::new();
        for event in [locks(1), forged(), locks(2), prepare(true), locks(1), locks(0)] {
            outbox.put(Boot(0), event);
        }
        assert_eq!(outbox.take(Boot(0)), [forged(), locks(2), prepare(true), locks(0)]);
    }
}
