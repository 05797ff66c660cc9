//! The Lease: whether this observer is the active one.

use std::time::Duration;

use epitaph_core::observe::election::{Answer, Ask, Election};
use epitaph_core::time::Boot;
use tokio::task::JoinHandle;

use crate::clock;
use crate::config::Config;
use crate::source::cluster::Lease;

/// Without an election: how often the Lease is read, to warn of another observer.
const LOOK: Duration = Duration::from_secs(30);

/// Limit of the last renewal at shutdown, and the pause after an attempt that failed.
const CONFIRM: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);

/// Limit of the Lease's release at shutdown.
const RELEASE: Duration = Duration::from_secs(2);

/// The right to observe: by the Lease; without an election, always.
pub(super) struct Leadership {
    election: Option<Election>,
    /// None while a request is under way.
    lease: Option<Lease>,
    asking: Option<JoinHandle<(Lease, Answer)>>,
    looked: Option<Boot>,
    /// The holder of the Lease, while this observer runs without an election.
    warned: Option<String>,
    is_known: bool,
}

impl Leadership {
    pub(super) fn new(config: &Config, identity: String, lease: Lease) -> Leadership {
        let election = config
            .observer
            .election
            .then(|| Election::new(identity, config.observer.timing()));
        if election.is_none() {
            tracing::warn!(
                "observer.election is off: run no second observer, or every span is exported twice, with times that differ"
            );
        }
        Leadership {
            is_known: election.is_none(),
            election,
            lease: Some(lease),
            asking: None,
            looked: None,
            warned: None,
        }
    }

    pub(super) fn is_ours(&self, now: Boot) -> bool {
        self.election.as_ref().is_none_or(|election| election.leads(now))
    }

    /// What this observer knew at that time, no other one can have reported.
    pub(super) fn has_confirmed(&self, at: Boot) -> bool {
        let confirmed = |election: &Election| election.confirmed().is_some_and(|confirmed| at <= confirmed);
        self.election.as_ref().is_none_or(confirmed)
    }

    /// Waits for [`Leadership::has_confirmed`], while the Lease is ours and the API server answers within a second.
    pub(super) async fn confirm(&mut self, at: Boot) {
        let confirmed = async {
            while !self.has_confirmed(at) && !self.is_lost() {
                if let Some(election) = &mut self.election {
                    election.hurry(clock::now());
                }
                self.renew(clock::now());
                self.answered().await;
                if !self.has_confirmed(at) {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        };
        let _ = tokio::time::timeout(CONFIRM, confirmed).await;
    }

    pub(super) fn is_lost(&self) -> bool {
        self.election.as_ref().is_some_and(Election::is_lost)
    }

    /// Whether the API server has answered a request for the Lease.
    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }

    pub(super) fn holder(&self) -> Option<String> {
        Some(self.election.as_ref()?.holder()?.to_owned())
    }

    /// Sends a request for the Lease if one is due.
    pub(super) fn renew(&mut self, now: Boot) {
        if self.lease.is_none() {
            return;
        }
        let ask = match &mut self.election {
            Some(election) => election.ask(now, clock::wall_offset().wall(now)),
            None => {
                let is_due = self.looked.is_none_or(|looked| now.since(looked) >= LOOK);
                is_due.then(|| {
                    self.looked = Some(now);
                    Ask::Read
                })
            }
        };
        if let Some((ask, mut lease)) = ask.and_then(|ask| Some((ask, self.lease.take()?))) {
            self.asking = Some(tokio::spawn(async move {
                let answer = lease.ask(ask).await;
                (lease, answer)
            }));
        }
    }

    /// Waits for the answer; forever without a request.
    pub(super) async fn answered(&mut self) {
        let Some(asking) = &mut self.asking else {
            return std::future::pending().await;
        };
        let answered = asking.await;
        self.asking = None;
        let Ok((lease, answer)) = answered else {
            // Only a panic ends the task this way. The Lease is not renewed any more, and the session ends at the Lease's deadline.
            tracing::error!("the task that renews the Lease failed");
            return;
        };
        self.lease = Some(lease);
        self.is_known |= answer != Answer::Failed;
        let now = clock::now();
        match &mut self.election {
            Some(election) => election.answer(now, clock::wall_offset().wall(now), answer),
            None => self.warn_of_another(answer),
        }
    }

    fn warn_of_another(&mut self, answer: Answer) {
        let Answer::Is(version) = answer else { return };
        if let Some(holder) = version.record.holder
            && self.warned.as_ref() != Some(&holder)
        {
            tracing::warn!(
                %holder,
                "another observer holds the Lease while observer.election is off here: every span may be exported twice, with \
                 times that differ; stop one of them"
            );
            self.warned = Some(holder);
        }
    }

    /// Releases the Lease if this observer holds it.
    pub(super) async fn release(mut self) {
        let released = async {
            if self.asking.is_some() {
                self.answered().await;
            }
            let now = clock::now();
            let ask = self.election.as_mut()?.release(clock::wall_offset().wall(now))?;
            Some(self.lease.as_mut()?.ask(ask).await)
        };
        match tokio::time::timeout(RELEASE, released).await {
            Ok(Some(Answer::Is(_))) => tracing::info!("the Lease is free"),
            Ok(Some(_)) | Err(_) => tracing::warn!("the Lease could not be released: the next observer waits until it expires"),
            Ok(None) => {}
        }
    }
}
