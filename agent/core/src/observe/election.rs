//! Which one of several observers is active, by a `coordination.k8s.io/v1` Lease, with client-go's rules: a holder renews,
//! gives up when it could not for the renew deadline, and others take over when they saw no renewal for the lease's duration.
//!
//! *Architecture invariant*: another's clock is never compared with ours. A lease expires by how long *we* saw no change of it,
//! on a clock that counts suspend.

use std::time::Duration;

use crate::time::{Boot, Wall};

/// client-go's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long others wait for a renewal; whole seconds, as the API has it.
    pub lease: Duration,
    /// How long the holder goes on without one. Shorter than `lease`: the difference is what a slow clock may cost.
    pub renew_deadline: Duration,
    /// Between two attempts.
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
    /// Only where it is still at that version.
    Replace(Version),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// What was read, or written.
    Is(Version),
    /// There is none.
    Missing,
    /// Another one was faster.
    Conflict,
    /// No answer, or a refusal.
    Failed,
}

/// One candidate's view.
#[derive(Debug)]
pub struct Election {
    identity: String,
    timing: Timing,
    seen: Option<Seen>,
    /// When the last successful renewal was sent.
    renewed: Option<Boot>,
    asked: Option<(Ask, Boot)>,
    /// What the last answer leads to.
    next: Option<Ask>,
    not_before: Boot,
}

#[derive(Debug)]
struct Seen {
    is: Version,
    /// When its record was first seen like this.
    since: Boot,
}

impl Election {
    pub fn new(identity: String, timing: Timing) -> Election {
        Election {
            identity,
            timing,
            seen: None,
            renewed: None,
            asked: None,
            next: None,
            not_before: Boot(0),
        }
    }

    /// Ours until then, whatever becomes of the API server. None: it is not ours.
    pub fn leads_until(&self) -> Option<Boot> {
        self.renewed.map(|renewed| renewed.plus(self.timing.renew_deadline))
    }

    pub fn leads(&self, now: Boot) -> bool {
        self.leads_until().is_some_and(|until| now < until)
    }

    /// Who holds it, as far as is known.
    pub fn holder(&self) -> Option<&str> {
        self.seen.as_ref()?.is.record.holder.as_deref()
    }

    /// Another one may have had it meanwhile. False where it ran out while nobody could be asked, and it is still in our name.
    pub fn is_lost(&self) -> bool {
        self.holder() != Some(&self.identity)
    }

    /// What to ask now; one question at a time.
    pub fn ask(&mut self, now: Boot, wall: Wall) -> Option<Ask> {
        if self.renewed.is_some() && !self.leads(now) {
            self.renewed = None;
            self.next = None;
        }
        if self.asked.is_some() || now < self.not_before {
            return None;
        }
        let ask = match (self.next.take(), &self.seen) {
            (Some(next), _) => next,
            (None, Some(seen)) if self.renewed.is_some() => self.renewal(&seen.is, wall),
            _ => Ask::Read,
        };
        self.asked = Some((ask.clone(), now));
        Some(ask)
    }

    pub fn answer(&mut self, now: Boot, wall: Wall, answer: Answer) {
        let Some((ask, asked_at)) = self.asked.take() else { return };
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
                // From when it was sent: others may have seen it as early as that.
                self.renewed = Some(asked_at);
            }
            // Whose it is now is found out at once; until then it may be nobody's else.
            (Ask::Create(_) | Ask::Replace(_), Answer::Conflict | Answer::Missing) => {
                self.next = Some(Ask::Read);
                self.not_before = now;
            }
            (_, Answer::Failed | Answer::Conflict) => {}
        }
    }

    /// What gives it up at once, so that nobody waits for its end. Nothing is to be done as its holder after this.
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

    /// The clock of its expiry starts again only where the record changed: others edit annotations, too.
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
