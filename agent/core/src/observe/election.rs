//! Which one of several observers is active, by a `coordination.k8s.io/v1` Lease, with client-go's rules: a holder renews,
//! gives up if renewals fail for the renew deadline, and others take over if they observe no renewal for the lease's duration.
//!
//! *Architecture invariant*: another machine's clock is never compared with ours. A Lease expires after *we* observed no change for
//! its duration, on a clock that counts suspend.

use std::time::Duration;

use crate::time::{Boot, Wall};

/// client-go's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long others wait for a renewal; whole seconds, as the API has it.
    pub lease: Duration,
    /// How long the holder continues without a renewal. Shorter than `lease`: the difference allows for a slow clock.
    pub renew_deadline: Duration,
    /// Pause between two attempts.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// A Lease's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// None: released.
    pub holder: Option<String>,
    /// `leaseDurationSeconds`.
    pub seconds: u32,
    pub acquired: Option<Wall>,
    pub renewed: Option<Wall>,
    pub transitions: u32,
}

/// A Lease as the API has it, with its `resourceVersion`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub record: Record,
    pub version: String,
}

/// What to ask the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    Read,
    Create(Record),
    /// Only if the Lease is still at that version.
    Replace(Version),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The Lease that was read or written.
    Is(Version),
    /// The Lease does not exist.
    Missing,
    /// Another candidate was faster.
    Conflict,
    /// No answer, or a refusal.
    Failed,
}

/// One candidate's view.
#[derive(Debug, Default)]
pub struct Election {
    identity: String,
    timing: Timing,
    seen: Option<Seen>,
    /// When the last successful renewal was sent.
    renewed: Option<Boot>,
    /// The request without an answer yet, and its time.
    pending: Option<(Ask, Boot)>,
    /// The next request, after the last answer.
    next: Option<Ask>,
    not_before: Boot,
}

#[derive(Debug)]
struct Seen {
    is: Version,
    /// When this record was first observed.
    since: Boot,
}

impl Election {
    pub fn new(identity: String, timing: Timing) -> Election {
        Election {
            identity,
            timing,
            ..Election::default()
        }
    }

    /// Until then we hold the Lease, even without the API server. None: we do not hold it.
    pub fn leads_until(&self) -> Option<Boot> {
        self.renewed.map(|renewed| renewed.plus(self.timing.renew_deadline))
    }

    pub fn leads(&self, now: Boot) -> bool {
        self.leads_until().is_some_and(|until| now < until)
    }

    /// No other candidate held the Lease before that time: the request of the last successful renewal was sent then. A machine that was
    /// paused, with its clocks, leads by them until the API server refuses the next one.
    pub fn confirmed(&self) -> Option<Boot> {
        self.renewed
    }

    /// The next request is due at once.
    pub fn hurry(&mut self, now: Boot) {
        self.not_before = self.not_before.min(now);
    }

    /// The last known holder.
    pub fn holder(&self) -> Option<&str> {
        self.seen.as_ref()?.is.record.holder.as_deref()
    }

    /// Another candidate may have held the Lease meanwhile. False if the Lease expired while the API did not answer, and still has our name.
    pub fn is_lost(&self) -> bool {
        self.holder() != Some(&self.identity)
    }

    /// The next request; one at a time.
    pub fn ask(&mut self, now: Boot, wall: Wall) -> Option<Ask> {
        if self.renewed.is_some() && !self.leads(now) {
            self.renewed = None;
            self.next = None;
        }
        if self.pending.is_some() || now < self.not_before {
            return None;
        }
        let ask = match (self.next.take(), &self.seen) {
            (Some(next), _) => next,
            (None, Some(seen)) if self.renewed.is_some() => self.renewal(&seen.is, wall),
            _ => Ask::Read,
        };
        self.pending = Some((ask.clone(), now));
        Some(ask)
    }

    pub fn answer(&mut self, now: Boot, wall: Wall, answer: Answer) {
        let Some((ask, asked_at)) = self.pending.take() else { return };
        self.not_before = now.plus(self.timing.retry);
        match (ask, answer) {
            (Ask::Read, Answer::Is(is)) => {
                self.see(now, is);
                self.decide(now, wall);
            }
            (Ask::Read, Answer::Missing) => {
                self.seen = None;
                self.renewed = None;
                self.next = Some(Ask::Create(self.acquired(0, wall)));
                self.not_before = now;
            }
            (Ask::Create(_) | Ask::Replace(_), Answer::Is(is)) => {
                self.seen = Some(Seen { is, since: now });
                // From the time of the request: others may have observed the renewal that early.
                self.renewed = Some(asked_at);
            }
            // Reads the current holder at once; the Lease may be held by another candidate.
            (Ask::Create(_) | Ask::Replace(_), Answer::Conflict | Answer::Missing) => {
                self.next = Some(Ask::Read);
                self.not_before = now;
            }
            (_, Answer::Failed | Answer::Conflict) => {}
        }
    }

    /// The request that releases the Lease at once, so no candidate waits for the expiry. The caller must not act as holder after this.
    pub fn release(&mut self, wall: Wall) -> Option<Ask> {
        self.renewed.take()?;
        let seen = self.seen.take()?;
        let record = Record {
            holder: None,
            seconds: 1,
            renewed: Some(wall),
            ..seen.is.record
        };
        Some(Ask::Replace(Version {
            record,
            version: seen.is.version,
        }))
    }

    /// The expiry starts again only if the record changed: other programs edit annotations, too.
    fn see(&mut self, now: Boot, is: Version) {
        match &mut self.seen {
            Some(seen) if seen.is.record == is.record => seen.is.version = is.version,
            seen => *seen = Some(Seen { is, since: now }),
        }
    }

    fn decide(&mut self, now: Boot, wall: Wall) {
        let Some(seen) = &self.seen else { return };
        let record = &seen.is.record;
        let ours = record.holder.as_deref() == Some(&self.identity);
        let expired = now.since(seen.since) >= Duration::from_secs(record.seconds.into());
        if !ours {
            self.renewed = None;
        }
        self.next = if ours {
            Some(self.renewal(&seen.is, wall))
        } else if record.holder.is_none() || expired {
            Some(Ask::Replace(Version {
                record: self.acquired(record.transitions.saturating_add(1), wall),
                version: seen.is.version.clone(),
            }))
        } else {
            return;
        };
        self.not_before = now;
    }

    fn renewal(&self, is: &Version, wall: Wall) -> Ask {
        let record = Record {
            seconds: self.seconds(),
            renewed: Some(wall),
            ..is.record.clone()
        };
        Ask::Replace(Version {
            record,
            version: is.version.clone(),
        })
    }

    fn acquired(&self, transitions: u32, wall: Wall) -> Record {
        Record {
            holder: Some(self.identity.clone()),
            seconds: self.seconds(),
            acquired: Some(wall),
            renewed: Some(wall),
            transitions,
        }
    }

    fn seconds(&self) -> u32 {
        u32::try_from(self.timing.lease.as_secs()).unwrap_or(u32::MAX)
    }
}
