//! What is known of the API itself: its clock, and when it did not answer.

use crate::correlate::limits::STEPS;
use crate::ledger::{Claim, Hole, Origin};
use crate::pod::{ApiClock, Deletion};
use crate::termination::TerminationFacts;
use crate::time::{Boot, Wall, WallClock};
use crate::tolerances::{EVENT_RETRIED, EVENT_TRIED, RESOLUTION};

/// Most separate outages of the API that are kept.
const AWAY: usize = 16;

/// What is known of the API itself.
#[derive(Debug, Default)]
pub(super) struct Api {
    pub clock: Option<ApiClock>,
    pub wall: WallClock<STEPS>,
    /// From here on the probes record everything.
    pub since: Boot,
    /// Since when the API does not answer, or has not yet.
    pub away_since: Option<Boot>,
    /// Earlier outages, and the last reason.
    away: Vec<(Boot, Boot)>,
    reason: Option<String>,
    /// Times of which a part of the recording or the journal is missing.
    pub missing: Vec<(Boot, Boot)>,
    /// The first such time since the pods were listed: only it may have shown that a pod exists.
    pub may_hide_pods: Option<(Boot, Boot)>,
    /// The end of the last one.
    pub hidden_until: Boot,
    /// An observation began after it: the next list has all pods that are left.
    pub is_list_due: bool,
    /// When that list was complete: what ran on then was not hidden.
    pub listed: Option<Boot>,
}

/// Why, then.
pub(super) const PART_MISSING: &str = "a part of the evidence is missing, perhaps also of what the Kubernetes API showed";

impl Api {
    pub fn away(&mut self, now: Boot, reason: Option<String>) {
        self.away_since.get_or_insert(now);
        self.reason = reason;
    }

    pub fn synced(&mut self, now: Boot) {
        if let Some(since) = self.away_since.take() {
            add(&mut self.away, (since, now));
        }
    }

    /// What the API showed in that time may be missing.
    pub fn part_missing(&mut self, since: Boot, now: Boot) {
        if self.missing.last() != Some(&(since, now)) {
            add(&mut self.missing, (since, now));
        }
    }

    /// Of a pod that was not shown: only a part that is missing may have shown the hook, the grace period and the reason.
    pub fn with_pod_hidden(&self, mut facts: TerminationFacts) -> TerminationFacts {
        let is_listed = self.listed.is_some_and(|at| facts.end > at);
        let Some((from, to)) = self.may_hide_pods.filter(|_| !is_listed) else {
            return facts;
        };
        let hole = Hole {
            why: Origin::Damaged,
            ..Hole::gap(from, Some(to))
        };
        facts.missing.add(Claim::Pod, [hole]);
        // Clients count from the deletion request on.
        facts.with_traffic_unobserved()
    }

    /// A pod may exist that nothing has shown.
    pub fn may_lack_pods(&self) -> bool {
        self.may_hide_pods.is_some() && self.listed.is_none()
    }

    pub fn is_part_missing(&self, from: Boot, to: Boot) -> bool {
        self.missing.iter().any(|&(since, until)| since <= to && until >= from)
    }

    /// It did not answer for so long that a kubelet gave up an Event from between the two. `now`: an outage lasts at least until then.
    pub fn may_lack_events(&self, from: Boot, to: Boot, now: Boot) -> bool {
        if self.is_part_missing(from, to) {
            return true;
        }
        let away = self.away.iter().copied().chain(self.away_since.map(|since| (since, now)));
        let mut joined: Option<(Boot, Boot)> = None;
        for (since, until) in away {
            let first = joined
                .filter(|(_, last)| since <= last.plus(EVENT_RETRIED))
                .map_or(since, |(first, _)| first);
            joined = Some((first, until));
            if until.since(first) >= EVENT_TRIED && first <= to && until >= from {
                return true;
            }
        }
        false
    }

    /// By how much its clock is ahead of this node's, at least and at most, nanoseconds; None if the clocks were not compared.
    pub fn skew(&self) -> Option<(i64, i64)> {
        self.clock.map(|clock| (clock.earliest, clock.latest))
    }

    /// Why the API's facts of that time may be incomplete.
    pub fn was_away(&self, from: Boot, to: Boot) -> Option<String> {
        if self.is_part_missing(from, to) {
            return Some(PART_MISSING.to_owned());
        }
        let is_now = self.away_since.is_some_and(|since| since <= to);
        let was = self.away.iter().any(|&(since, until)| since <= to && until >= from);
        (is_now || was).then(|| match &self.reason {
            Some(reason) => format!("the Kubernetes API did not answer during the termination: {reason}"),
            None => "the Kubernetes API did not answer during the termination".to_owned(),
        })
    }

    /// The earliest and latest time of the request, on this node's clock. The API server's counts as this node's if it was not compared.
    pub fn requested(&self, deletion: Deletion) -> (Boot, Boot) {
        let (skew, offset) = (self.skew().unwrap_or_default(), self.wall.offset());
        let Wall(at) = deletion.timestamp;
        let request = i128::from(at) - deletion.grace.as_nanos().cast_signed();
        let boot = |wall: i128| Boot(u64::try_from((wall - i128::from(offset.0)).max(0)).unwrap_or(u64::MAX));
        let earliest = boot(request - i128::from(skew.1));
        let latest = boot(request + RESOLUTION.as_nanos().cast_signed() - i128::from(skew.0));
        (earliest, latest)
    }
}

fn add(times: &mut Vec<(Boot, Boot)>, time: (Boot, Boot)) {
    times.push(time);
    if times.len() > AWAY {
        let first = times.remove(0);
        times[0].0 = first.0;
    }
}
