//! Which inputs an agent keeps on disk: the evidence of terminations in progress, so that after a restart another core gets it again.
//!
//! Most of a machine's records concern no termination and are not kept. What is not kept of a termination is kept as a loss.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;

use crate::event::{Event, Kind};
use crate::ids::{CgroupId, PodUid};
use crate::input::{CgroupFact, Input, LossScope};
use crate::node::NodeEvent;
use crate::pod::PodsState;
use crate::time::Boot;

use super::Correlator;

/// Most events of one termination that are kept, and most of those that may decide: then losses.
const EVENTS: u32 = 512;
const DECISIVE: u32 = 2_048;
/// Most losses that are kept in a second as they are: then losses of the whole machine, one of each kind.
const LOSSES: u32 = 32;
/// Most cgroups whose paths are known to be kept.
const PLACES: usize = 4_096;

/// See the module.
#[derive(Debug, Default)]
pub struct Keeper {
    tracked: HashMap<CgroupId, Tracked>,
    places: HashSet<CgroupId>,
    /// The last state of the API, and its clock: kept with the first evidence.
    pods: Option<PodsState>,
    clock: Option<Input>,
    /// The last states of the probes and of the node, in the order of their changes. They are sent on change only.
    states: Vec<Input>,
    /// The frames of these states may be gone.
    owes_states: bool,
    /// A second, and the losses that were kept in it.
    losses: (u64, u32),
    /// Losses that are not kept so far: kind, begin, number.
    lost: Vec<(Kind, Boot, u64)>,
}

#[derive(Debug, Default)]
struct Tracked {
    /// Time of the first event that was kept by this run.
    since: Boot,
    events: u32,
    /// Events that were not kept, and are not yet kept as losses: kind, time of the first, number.
    lost: Vec<(Kind, Boot, u64)>,
}

/// What the core must be asked after it has taken the input.
#[derive(Debug)]
pub enum Concern {
    /// Not evidence.
    Nothing,
    /// Kept in any case.
    Everything,
    /// About the node: kept in any case, with the pods that run if a shutdown begins with it.
    Node {
        was: bool,
        /// The agent ends: what started during the shutdown runs, too.
        ends: bool,
    },
    /// A kernel record, whose subject the core finds: see [`Concern::about`].
    Record {
        at: Boot,
        /// The event is a sign of a shutdown, which was in progress or not.
        sign: Option<bool>,
    },
    /// A kernel record about the subject.
    Subject {
        own: CgroupId,
        at: Boot,
        sign: Option<bool>,
    },
    /// Kept if the pod is ending, before or after the input.
    Pod {
        uid: PodUid,
        was: bool,
    },
    Loss {
        kind: Kind,
        since: Boot,
        count: u64,
    },
    Tick,
}

impl Concern {
    /// After the core has taken the input: with [`Answers::about`](crate::report::Answers::about).
    #[must_use]
    pub fn about(self, subject: Option<CgroupId>) -> Concern {
        match (self, subject) {
            (Concern::Record { at, sign }, Some(own)) => Concern::Subject { own, at, sign },
            (Concern::Record { sign: Some(was), .. }, None) => Concern::Node { was, ends: false },
            (Concern::Record { sign: None, .. }, None) => Concern::Nothing,
            (other, _) => other,
        }
    }

    /// After the core has taken the input: whether the input is about a termination in progress, or a shutdown of the node.
    pub fn is_in_progress(&self, core: &Correlator) -> bool {
        match self {
            Concern::Subject { own, .. } => core.is_ending(*own) || core.has_shutdown(),
            Concern::Pod { uid, .. } => core.is_pod_ending(uid),
            Concern::Node { .. } => core.has_shutdown(),
            Concern::Nothing | Concern::Everything | Concern::Record { .. } | Concern::Loss { .. } | Concern::Tick => false,
        }
    }
}

/// What is kept of an input.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    /// First these.
    pub before: Vec<Input>,
    /// Whether the input itself is kept.
    pub itself: bool,
}

impl Kept {
    const NOTHING: Kept = Kept {
        before: Vec::new(),
        itself: false,
    };
    const ITSELF: Kept = Kept {
        before: Vec::new(),
        itself: true,
    };
}

impl Keeper {
    /// Before the core takes the input.
    pub fn concern(&self, core: &Correlator, input: &Input) -> Concern {
        match input {
            Input::Kernel { at, event } => {
                let sign = core.is_sign(event).then(|| core.has_shutdown());
                Concern::Record { at: *at, sign }
            }
            Input::Probe { .. } | Input::Clock(_) | Input::Pods(_) => Concern::Everything,
            Input::Node(event) => Concern::Node {
                was: core.has_shutdown(),
                ends: matches!(event, NodeEvent::AgentEnds { .. }) && core.is_shutting_down(),
            },
            Input::Pod(fact) => pod(core, &fact.pod.uid),
            Input::PodGone(gone) => pod(core, &gone.uid),
            Input::PodEvent(event) => pod(core, &event.uid),
            Input::PodEvents(events) => pod(core, &events.uid),
            Input::Lost { kind, since, count, .. } => Concern::Loss {
                kind: *kind,
                since: *since,
                count: *count,
            },
            Input::Tick => Concern::Tick,
            // The core's own clock for the API matters with evidence only: kept with it.
            Input::ApiClock(_) => Concern::Nothing,
            // Begin and end of a run are not evidence; what exists is shown again after a restart, and asked for its description again.
            Input::Start(_)
            | Input::Scanned
            | Input::Cgroup(_)
            | Input::Process(_)
            | Input::Container(_)
            | Input::End
            | Input::Cut => Concern::Nothing,
        }
    }

    /// States that are kept again: the clock of the API server with the next evidence, others when their frames are gone.
    pub fn note(&mut self, input: &Input) {
        if is_state(input) {
            self.states.retain(|known| !is_same_state(known, input));
            self.states.push(input.clone());
        }
        match input {
            Input::ApiClock(_) => self.clock = Some(input.clone()),
            Input::Pods(state) => self.pods = Some(state.clone()),
            _ => {}
        }
    }

    /// After the core has taken it. `event`: a kernel record's, asked for only if it may be kept. `answered`: the core reported
    /// something.
    pub fn keep(
        &mut self,
        core: &Correlator,
        now: Boot,
        concern: &Concern,
        event: impl FnOnce() -> Option<Event>,
        answered: bool,
    ) -> Kept {
        match *concern {
            Concern::Nothing | Concern::Record { .. } => Kept::NOTHING,
            Concern::Everything => Kept::ITSELF,
            Concern::Node { was, ends } => Kept {
                before: if ends { core.introduce_pods() } else { begun(core, was) },
                itself: true,
            },
            // Of a pod that starts within a shutdown, too.
            Concern::Pod { ref uid, was } if was || core.is_pod_ending(uid) || core.is_shutting_down() => Kept::ITSELF,
            Concern::Pod { .. } => Kept::NOTHING,
            Concern::Loss { kind, since, count } => self.loss(now, kind, since, count),
            Concern::Tick => {
                let mut before = Vec::new();
                for (own, tracked) in &mut self.tracked {
                    before.extend(losses(&mut tracked.lost, LossScope::Within(*own)));
                }
                before.extend(losses(&mut self.lost, LossScope::Machine));
                self.tracked.retain(|own, _| core.has_facts(*own));
                Kept {
                    itself: !before.is_empty() || answered && !self.tracked.is_empty(),
                    before,
                }
            }
            Concern::Subject { own, at, sign } => {
                let mut kept = self.event(core, own, at, event);
                if let Some(was) = sign {
                    kept.before.extend(begun(core, was));
                    kept.itself = true;
                }
                kept
            }
        }
    }

    /// After a scan: these subjects were kept by an earlier run. Returns those that go on, as inputs.
    pub fn resumed(&mut self, core: &Correlator, earlier: &[CgroupId]) -> Vec<Input> {
        let with_facts = earlier.iter().filter(|own| core.has_facts(**own));
        self.tracked.extend(with_facts.map(|own| (*own, Tracked::default())));
        earlier.iter().flat_map(|own| core.show(*own)).collect()
    }

    /// Whether the termination of a kept subject is in progress, or a shutdown of the node.
    pub fn is_in_progress(&self, core: &Correlator) -> bool {
        core.has_shutdown() || self.tracked.keys().any(|own| core.is_ending(*own))
    }

    /// What was kept before may be gone: it is kept again with the next evidence. Returns the terminations in progress, as inputs: what
    /// is gone of their evidence, a stop signal for example, may decide, so it is kept as a loss.
    pub fn forget(&mut self, core: &Correlator) -> Vec<Input> {
        self.places.clear();
        self.owes_states = true;
        let mut ending: Vec<(CgroupId, Boot)> = self.tracked.drain().map(|(own, of)| (own, of.since)).collect();
        ending.retain(|(own, _)| core.is_ending(*own));
        ending.sort();
        if ending.is_empty() {
            return Vec::new();
        }
        let mut inputs: Vec<Input> = self
            .pods
            .clone()
            .map(Input::Pods)
            .into_iter()
            .chain(self.clock.clone())
            .collect();
        for (own, since) in ending {
            inputs.extend(core.show(own));
            inputs.extend(core.pod_fact(own));
            let mut lost = Kind::ALL.map(|kind| (kind, since, 1)).to_vec();
            inputs.extend(losses(&mut lost, LossScope::Within(own)));
            let tracked = Tracked {
                since,
                ..Tracked::default()
            };
            self.tracked.insert(own, tracked);
        }
        inputs
    }

    /// The states that are to be kept again, once. Not within a shutdown: that logind is connected would end it.
    pub fn owed(&mut self, core: &Correlator) -> &[Input] {
        match self.owes_states && !core.has_shutdown() {
            true => {
                self.owes_states = false;
                &self.states
            }
            false => &[],
        }
    }

    fn event(&mut self, core: &Correlator, own: CgroupId, at: Boot, event: impl FnOnce() -> Option<Event>) -> Kept {
        let is_new = !self.tracked.contains_key(&own);
        if is_new && !core.has_facts(own) && !core.is_shutting_down() {
            return Kept::NOTHING;
        }
        let Some(event) = event() else { return Kept::ITSELF };
        let event = &event;
        let mut before = Vec::new();
        if self.tracked.is_empty() {
            before.extend(self.pods.clone().map(Input::Pods));
            before.extend(self.clock.clone());
        }
        if is_new {
            before.extend(core.introduce(own, (at, event)));
        }
        let tracked = self.tracked.entry(own).or_insert_with(|| Tracked {
            since: at,
            ..Tracked::default()
        });
        tracked.events += 1;
        let most = if core.may_decide(own, event) { DECISIVE } else { EVENTS };
        if tracked.events > most {
            if let Some(kind) = super::attribution::kind(event) {
                lose(&mut tracked.lost, kind, at, 1);
            }
            return Kept { before, itself: false };
        }
        before.extend(losses(&mut tracked.lost, LossScope::Within(own)));
        if self.places.len() > PLACES {
            self.places.clear();
        }
        let earlier = before.iter().filter_map(|input| match input {
            Input::Kernel { event, .. } => Some(event),
            _ => None,
        });
        let places = earlier.chain([event]).flat_map(|event| core.places_of(event));
        let new: Vec<CgroupFact> = places.filter(|place| self.places.insert(place.cgroup)).collect();
        before.splice(0..0, new.into_iter().map(Input::Cgroup));
        Kept { before, itself: true }
    }

    fn loss(&mut self, now: Boot, kind: Kind, since: Boot, count: u64) -> Kept {
        let second = now.since(Boot::default()).as_secs();
        if self.losses.0 != second {
            self.losses = (second, 0);
        }
        self.losses.1 += 1;
        if self.losses.1 <= LOSSES {
            return Kept::ITSELF;
        }
        lose(&mut self.lost, kind, since, count);
        Kept::NOTHING
    }
}

/// Whether the input is a complete state, which replaces the one before.
fn is_state(input: &Input) -> bool {
    match input {
        Input::Probe { .. } => true,
        Input::Node(event) => matches!(
            event,
            NodeEvent::Bus { .. }
                | NodeEvent::Scheduled { .. }
                | NodeEvent::Inhibitors { .. }
                | NodeEvent::DelayLimit { .. }
                | NodeEvent::OwnLock { .. }
                | NodeEvent::Kubelet { .. }
        ),
        _ => false,
    }
}

fn is_same_state(known: &Input, new: &Input) -> bool {
    match (known, new) {
        (Input::Probe { name: known, .. }, Input::Probe { name: new, .. }) => known == new,
        (Input::Node(known), Input::Node(new)) => discriminant(known) == discriminant(new),
        _ => false,
    }
}

/// The pods that run, if a shutdown began: of most of them no termination is in progress.
fn begun(core: &Correlator, was: bool) -> Vec<Input> {
    match !was && core.has_shutdown() {
        true => core.introduce_pods(),
        false => Vec::new(),
    }
}

fn lose(lost: &mut Vec<(Kind, Boot, u64)>, kind: Kind, since: Boot, count: u64) {
    match lost.iter_mut().find(|(known, ..)| *known == kind) {
        Some((_, first, sum)) => {
            *first = since.min(*first);
            *sum = sum.saturating_add(count);
        }
        None => lost.push((kind, since, count)),
    }
}

/// A loss reaches from its begin to the time at which it is kept: what is kept later than that is a gap if the agent is killed before.
fn losses(lost: &mut Vec<(Kind, Boot, u64)>, scope: LossScope) -> Vec<Input> {
    let of = |(kind, since, count)| Input::Lost {
        kind,
        scope,
        since,
        count,
    };
    lost.drain(..).map(of).collect()
}

fn pod(core: &Correlator, uid: &PodUid) -> Concern {
    Concern::Pod {
        uid: uid.clone(),
        was: core.is_pod_ending(uid),
    }
}
