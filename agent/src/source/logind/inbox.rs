//! Admitted signals on their way to the session. Anybody on the bus can send some, and make logind send others: neither takes the room of
//! what logind and systemd announce, nor delays it.

use tokio::sync::mpsc;

use super::drops::{Drops, LogindDropReason};
use super::gate::Admitted;

/// Signals of logind and systemd that wait while calls are under way.
const OWN: usize = 256;

/// Of strangers.
const STRANGERS: usize = 32;

#[derive(Debug)]
pub(super) struct Sender {
    own: mpsc::Sender<Admitted>,
    strangers: mpsc::Sender<Admitted>,
    changed: mpsc::Sender<()>,
}

/// Signals in their order, of strangers after all others.
#[derive(Debug)]
pub(super) struct Inbox {
    own: mpsc::Receiver<Admitted>,
    strangers: mpsc::Receiver<Admitted>,
}

/// The last: that properties have changed, once for all changes before it is taken.
pub(super) fn new() -> (Sender, Inbox, mpsc::Receiver<()>) {
    let (to_own, own) = mpsc::channel(OWN);
    let (to_strangers, strangers) = mpsc::channel(STRANGERS);
    let (to_changed, changed) = mpsc::channel(1);
    let sender = Sender {
        own: to_own,
        strangers: to_strangers,
        changed: to_changed,
    };
    (sender, Inbox { own, strangers }, changed)
}

impl Sender {
    /// What has no room is counted.
    pub fn send(&self, signal: Admitted, drops: &Drops) {
        let (room, reason) = match &signal {
            Admitted::Changed => {
                // Full: one waits already, and says the same.
                let _ = self.changed.try_send(());
                return;
            }
            Admitted::Prepare { stranger: Some(_), .. } => (&self.strangers, LogindDropReason::Strangers),
            Admitted::Prepare { stranger: None, .. }
            | Admitted::Owner { .. }
            | Admitted::Job { .. }
            | Admitted::OomKilled { .. } => (&self.own, LogindDropReason::SignalQueue),
        };
        if room.try_send(signal).is_err() {
            drops.add(reason, 1);
        }
    }
}

impl Inbox {
    pub async fn next(&mut self) -> Admitted {
        tokio::select! {
            biased;
            Some(signal) = self.own.recv() => signal,
            Some(signal) = self.strangers.recv() => signal,
            // The session ends with the stream of the bus.
            else => std::future::pending().await,
        }
    }

    pub fn try_next(&mut self) -> Option<Admitted> {
        self.own.try_recv().or_else(|_| self.strangers.try_recv()).ok()
    }

    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.strangers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare(stranger: Option<&str>) -> Admitted {
        let stranger = stranger.map(str::to_owned);
        let (start, kind) = (true, None);
        Admitted::Prepare { start, kind, stranger }
    }

    #[tokio::test]
    async fn strangers_and_changes_have_no_part_in_the_room_of_logind() {
        let (sender, mut inbox, mut changed) = new();
        let drops = Drops::default();
        for _ in 0..1_000 {
            sender.send(prepare(Some(":1.9")), &drops);
            sender.send(Admitted::Changed, &drops);
        }
        for _ in 0..OWN {
            sender.send(prepare(None), &drops);
        }
        let strangers = 1_000 - STRANGERS as u64;
        assert_eq!(drops.take(), [(LogindDropReason::Strangers, strangers)]);
        for _ in 0..OWN {
            assert_eq!(inbox.next().await, prepare(None));
        }
        for _ in 0..STRANGERS {
            assert_eq!(inbox.try_next(), Some(prepare(Some(":1.9"))));
        }
        assert!(inbox.is_empty() && inbox.try_next().is_none());
        assert_eq!((changed.try_recv(), changed.try_recv().is_err()), (Ok(()), true));

        for _ in 0..=OWN {
            sender.send(prepare(None), &drops);
        }
        assert_eq!(drops.take(), [(LogindDropReason::SignalQueue, 1)]);
    }
}
