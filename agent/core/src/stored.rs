//! An input as JSON: the form in a recording of every input except kernel records, which stay bytes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::container::ContainerFact;
use crate::event::Kind;
use crate::input::{CgroupFact, Input, LossScope, Observation, ProbeState, ProcessFact};
use crate::node::NodeEvent;
use crate::pod::{ApiClock, PodEvent, PodEventsUpdate, PodFact, PodGone, PodsState};
use crate::time::{Boot, WallOffset};

/// Any input except a kernel record. An added field has a default, so that older recordings stay readable.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
pub enum StoredInput {
    Start(Observation),
    Scanned,
    Probe {
        name: String,
        state: ProbeState,
    },
    Cgroup(CgroupFact),
    Process(ProcessFact),
    Container(ContainerFact),
    Pods {
        state: PodsState,
    },
    Pod {
        pod: PodFact,
    },
    PodGone(PodGone),
    /// The older tag, which every reader knows.
    #[serde(rename = "pod_hint", alias = "pod_event")]
    PodEvent(PodEvent),
    /// As above.
    #[serde(rename = "pod_hints", alias = "pod_events")]
    PodEvents(PodEventsUpdate),
    ApiClock(ApiClock),
    Node {
        node: NodeEvent,
    },
    Lost {
        /// [`Kind::name`].
        kind: String,
        /// Without it, as written before there were scopes: any evidence.
        #[serde(default, skip_serializing_if = "is_machine")]
        scope: LossScope,
        since: Boot,
        count: u64,
        /// [`LossScope::NotRecorded`]; for older readers a loss of any evidence.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        not_recorded: bool,
        /// [`LossScope::Damaged`]; the same for older readers.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        damaged: bool,
    },
    Clock {
        offset: WallOffset,
    },
    Tick,
    End,
    Cut,
}

impl StoredInput {
    /// None for a kernel event, which is kept as bytes.
    pub fn new(input: &Input) -> Option<StoredInput> {
        Some(match input.clone() {
            Input::Kernel { .. } => return None,
            Input::Start(observation) => StoredInput::Start(observation),
            Input::Scanned => StoredInput::Scanned,
            Input::Probe { name, state } => StoredInput::Probe { name, state },
            Input::Cgroup(fact) => StoredInput::Cgroup(fact),
            Input::Process(fact) => StoredInput::Process(fact),
            Input::Container(fact) => StoredInput::Container(fact),
            Input::Pods(state) => StoredInput::Pods { state },
            Input::Pod(pod) => StoredInput::Pod {
                pod: Arc::unwrap_or_clone(pod),
            },
            Input::PodGone(gone) => StoredInput::PodGone(gone),
            Input::PodEvent(event) => StoredInput::PodEvent(event),
            Input::PodEvents(events) => StoredInput::PodEvents(events),
            Input::ApiClock(clock) => StoredInput::ApiClock(clock),
            Input::Node(node) => StoredInput::Node { node },
            Input::Lost {
                kind,
                scope,
                since,
                count,
            } => {
                let (not_recorded, damaged) = (scope == LossScope::NotRecorded, scope == LossScope::Damaged);
                StoredInput::Lost {
                    kind: kind.name().to_owned(),
                    scope: if not_recorded || damaged { LossScope::Machine } else { scope },
                    since,
                    count,
                    not_recorded,
                    damaged,
                }
            }
            Input::Clock(offset) => StoredInput::Clock { offset },
            Input::Tick => StoredInput::Tick,
            Input::End => StoredInput::End,
            Input::Cut => StoredInput::Cut,
        })
    }

    /// None for a kind of evidence that this version does not know.
    pub fn input(self) -> Option<Input> {
        Some(match self {
            StoredInput::Start(observation) => Input::Start(observation),
            StoredInput::Scanned => Input::Scanned,
            StoredInput::Probe { name, state } => Input::Probe { name, state },
            StoredInput::Cgroup(fact) => Input::Cgroup(fact),
            StoredInput::Process(fact) => Input::Process(fact),
            StoredInput::Container(fact) => Input::Container(fact),
            StoredInput::Pods { state } => Input::Pods(state),
            StoredInput::Pod { pod } => Input::Pod(Arc::new(pod)),
            StoredInput::PodGone(gone) => Input::PodGone(gone),
            StoredInput::PodEvent(event) => Input::PodEvent(event),
            StoredInput::PodEvents(events) => Input::PodEvents(events),
            StoredInput::ApiClock(clock) => Input::ApiClock(clock),
            StoredInput::Node { node } => Input::Node(node),
            StoredInput::Lost {
                kind,
                scope,
                since,
                count,
                not_recorded,
                damaged,
            } => Input::Lost {
                kind: Kind::ALL.into_iter().find(|k| k.name() == kind)?,
                scope: match (damaged, not_recorded) {
                    (true, _) => LossScope::Damaged,
                    (false, true) => LossScope::NotRecorded,
                    (false, false) => scope,
                },
                since,
                count,
            },
            StoredInput::Clock { offset } => Input::Clock(offset),
            StoredInput::Tick => Input::Tick,
            StoredInput::End => Input::End,
            StoredInput::Cut => Input::Cut,
        })
    }
}

fn is_machine(scope: &LossScope) -> bool {
    *scope == LossScope::Machine
}
