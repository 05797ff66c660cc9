//! Main processes that systemd stops, pods and services alike.

use std::collections::BTreeSet;

use super::open::InProgress;
use crate::ids::{CgroupId, PodUid};
use crate::time::Boot;
use crate::tolerances::STOP_SWEEP;

/// Pods, and services, that are stopped within [`STOP_SWEEP`]: fewer are an administrator's `systemctl stop`.
const SWEPT: usize = 2;
/// Most stop signals that are kept of one.
const STOPS: usize = 512;

/// What systemd has stopped of late. It knows containers as scopes, which only their runtime ends, until the machine goes down.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    stops: Vec<Stop>,
}

#[derive(Debug)]
pub(super) struct Stop {
    pub at: Boot,
    pub own: CgroupId,
    /// None: a service.
    pub pod: Option<PodUid>,
    pub known: Known,
}

/// What was known of the bus at that time: systemd stops the bus with the others.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// Whether the kubelet had a lock; None not known.
    pub held: Option<bool>,
    /// Why an announcement may have been missed.
    pub doubt: Option<String>,
}

impl Sweep {
    /// When it began, once it is one.
    pub fn add(&mut self, stop: Stop) -> Option<Boot> {
        let since = stop.at.minus(STOP_SWEEP);
        self.stops.retain(|known| known.at >= since);
        if self.stops.len() < STOPS {
            self.stops.push(stop);
        }
        let pods: BTreeSet<&PodUid> = self.stops.iter().filter_map(|stop| stop.pod.as_ref()).collect();
        let services: BTreeSet<CgroupId> = self
            .stops
            .iter()
            .filter(|stop| stop.pod.is_none())
            .map(|stop| stop.own)
            .collect();
        let is_sweep = pods.len() >= SWEPT && services.len() >= SWEPT;
        self.stops.iter().map(|stop| stop.at).min().filter(|_| is_sweep)
    }

    /// At the first stop signal from then on.
    pub fn known(&self, since: Boot) -> Option<Known> {
        let of_it = self.stops.iter().filter(|stop| stop.at >= since);
        of_it.min_by_key(|stop| stop.at).map(|stop| stop.known.clone())
    }

    /// Those from before the shutdown was known.
    pub fn show(&self, open: &mut InProgress) {
        for stop in &self.stops {
            open.runs.stop_sent(stop.at, stop.own);
        }
    }
}
