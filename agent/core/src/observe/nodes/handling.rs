//! What others do about a lost node, by the last version of its object: people, the provider, the controller.

use crate::observe::{NodeFact, Ready};
use crate::time::Boot;
use crate::tolerances::EVICTIONS_HELD_BACK;

/// As of now: the machine may be switched off, or on, and the taint set and removed, by whoever repairs the node.
#[derive(Debug, Default)]
pub(super) struct Handling {
    pub fence: Fence,
    pub power: Power,
    evictions: Evictions,
}

/// The taint `out-of-service`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fence {
    #[default]
    Never,
    /// It is there, or was when the loss ended.
    Set,
    Removed,
}

/// What the provider reported of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Power {
    #[default]
    NothingReported,
    /// Its last word, and the kubelet is silent.
    Off,
    /// That it was off, at some time.
    WasOff,
}

/// What the controller does with the node's pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Evictions {
    #[default]
    None,
    Running,
    /// Since then.
    Stopped(Boot),
}

/// When the taint `out-of-service` was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TaintOf {
    /// While the node was lost, or the node was lost with it.
    Loss,
    /// While the node was ready.
    Ready,
    /// Before the observation.
    #[default]
    Unseen,
}

impl Handling {
    pub fn follow(&mut self, fact: &NodeFact, at: Boot) {
        self.power = match (self.power, fact.powered_off) {
            (_, true) if fact.ready == Ready::Unknown => Power::Off,
            (Power::NothingReported, false) => Power::NothingReported,
            _ => Power::WasOff,
        };
        self.evictions = match (self.evictions, fact.evicting) {
            (_, true) => Evictions::Running,
            (Evictions::Running, false) => Evictions::Stopped(at),
            (before, false) => before,
        };
        match fact.out_of_service {
            true => self.fence = Fence::Set,
            false => self.unfence(),
        }
    }

    /// The taint is gone, if it was set.
    pub fn unfence(&mut self) {
        if self.fence == Fence::Set {
            self.fence = Fence::Removed;
        }
    }

    pub fn is_fenced(&self) -> bool {
        self.fence == Fence::Set
    }

    pub fn is_evicting(&self) -> bool {
        self.evictions == Evictions::Running
    }

    /// It does not evict, and does not so for longer than it takes to begin.
    pub fn holds_evictions_back(&self, now: Boot) -> bool {
        match self.evictions {
            Evictions::None => true,
            Evictions::Running => false,
            Evictions::Stopped(since) => now.since(since) >= EVICTIONS_HELD_BACK,
        }
    }
}
