//! What only the observer sees of a pod's termination, for the pod's Epitaph: the field `observed`, which the agent does not write.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fit::{OBSERVERS, bytes, cut, word};
use super::make::{NAME, SHORT_NAME, name, strip, time, took};
use super::{API_VERSION, EpitaphPod, KIND};
use crate::observe::Output;
use crate::pod::PodIdentity;
use crate::render::id;
use crate::text::escape;
use crate::time::WallOffset;
use crate::tolerances::ENDPOINT_LATE;

/// Most Services of one pod.
const SERVICES: usize = 8;
/// Longest sentence and remedy of a loss, bytes as JSON.
const TEXT: usize = 512;
/// The same where the field is still too large.
const SHORT_TEXT: usize = 96;

/// What the observer saw: the replacement of the pod, its removal from each Service, the loss of its node. Absent if it explains nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EpitaphObserved {
    /// The pod that replaced this one.
    pub replacement: Option<EpitaphReplacement>,
    /// The removal of the pod from each Service.
    pub endpoints: Vec<EpitaphEndpoint>,
    /// The loss of the pod's node.
    pub loss: Option<EpitaphLoss>,
}

/// The pod that replaced another pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EpitaphReplacement {
    /// Name of the replacement pod.
    pub pod: String,
    /// Node of the replacement pod.
    pub node: String,
    /// When the replacement pod was created.
    pub created: String,
    /// When the replacement pod became ready; absent if it did not become ready.
    pub ready: Option<String>,
}

/// The removal of the pod from one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EpitaphEndpoint {
    /// Name of the Service.
    pub service: String,
    /// When the pod's endpoint was first seen terminating or not ready.
    pub begin: String,
    /// When the pod's endpoint was in no EndpointSlice any more.
    pub removed: String,
    /// Duration from `begin` to `removed`.
    pub took: String,
    /// When the pod's endpoint stopped being ready, or was gone.
    pub ready_until: Option<String>,
}

/// The loss of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EpitaphLoss {
    /// The verdict on the loss in one word, such as `lost`.
    pub verdict: String,
    /// What happened, in one sentence.
    pub sentence: String,
    /// What to do.
    pub remedy: Option<String>,
    /// The id of the loss's trace.
    pub trace_id: String,
}

/// The observer's part of one pod's Epitaph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    pub namespace: String,
    pub pod: EpitaphPod,
    pub observed: EpitaphObserved,
    /// Also worth a write where the agent reports a clean termination.
    pub is_notable: bool,
}

impl Observed {
    /// None for what is not about one pod's end. `clock`: of the observer's machine.
    pub fn of(output: &Output, clock: WallOffset) -> Option<Observed> {
        let is_notable = match output {
            Output::Removal(of) => of.ready_after_end() > ENDPOINT_LATE,
            Output::Replacement(of) => of.ready.is_none(),
            _ => true,
        };
        let (pod, observed) = match output {
            Output::Removal(removal) => {
                let endpoint = EpitaphEndpoint {
                    service: word(&removal.service, SHORT_NAME),
                    begin: time(clock, removal.begin.at),
                    removed: time(clock, removal.end.at),
                    took: took(removal.end.at, removal.begin.at),
                    ready_until: Some(time(clock, removal.ready_until().at)),
                };
                let endpoints = vec![endpoint];
                (
                    &removal.pod,
                    EpitaphObserved {
                        endpoints,
                        ..EpitaphObserved::default()
                    },
                )
            }
            Output::Replacement(replacement) => {
                let by = EpitaphReplacement {
                    pod: word(&replacement.by.name, NAME),
                    node: word(&replacement.by.node, NAME),
                    created: time(clock, replacement.created.at),
                    ready: replacement.ready.map(|ready| time(clock, ready.at)),
                };
                let replacement_of = Some(by);
                (
                    &replacement.pod,
                    EpitaphObserved {
                        replacement: replacement_of,
                        ..EpitaphObserved::default()
                    },
                )
            }
            Output::PodLost(lost) => {
                let verdict = &lost.verdict;
                let loss = EpitaphLoss {
                    verdict: verdict.row.headline.to_owned(),
                    sentence: cut(&escape(&verdict.sentence), TEXT),
                    remedy: (!verdict.remedy.is_empty()).then(|| cut(&escape(&verdict.remedy), TEXT)),
                    trace_id: id::node_loss_trace_id(&lost.loss.node.uid, lost.loss.transition).to_string(),
                };
                (
                    &lost.pod,
                    EpitaphObserved {
                        loss: Some(loss),
                        ..EpitaphObserved::default()
                    },
                )
            }
            _ => return None,
        };
        let pod: &PodIdentity = pod;
        Some(Observed {
            namespace: word(&pod.namespace, SHORT_NAME),
            pod: EpitaphPod {
                name: word(&pod.name, NAME),
                uid: word(&pod.uid.0, SHORT_NAME),
            },
            observed,
            is_notable,
        })
    }

    /// That of the agent's object.
    pub fn name(&self) -> String {
        name(&self.pod)
    }

    /// With what was observed before: each Service once.
    #[must_use]
    pub fn after(mut self, earlier: &EpitaphObserved) -> Observed {
        let own = &mut self.observed;
        own.replacement = own.replacement.take().or_else(|| earlier.replacement.clone());
        own.loss = own.loss.take().or_else(|| earlier.loss.clone());
        let mut all = earlier.endpoints.clone();
        all.retain(|known| own.endpoints.iter().all(|new| new.service != known.service));
        all.append(&mut own.endpoints);
        all.truncate(SERVICES);
        own.endpoints = all;
        self
    }

    /// What the patch writes, at most [`OBSERVERS`] bytes: the loss's texts are cut before a Service is left out.
    fn fitted(&self) -> Value {
        let stripped = |own: &EpitaphObserved| {
            let mut value = json!(own);
            strip(&mut value);
            value
        };
        let mut own = self.observed.clone();
        let is_large = bytes(&stripped(&own)) > OBSERVERS;
        if let Some(loss) = own.loss.as_mut().filter(|_| is_large) {
            loss.sentence = cut(&loss.sentence, SHORT_TEXT);
            loss.remedy = loss.remedy.take().map(|remedy| cut(&remedy, SHORT_TEXT));
        }
        while bytes(&stripped(&own)) > OBSERVERS && own.endpoints.pop().is_some() {}
        stripped(&own)
    }

    /// The merge patch. Nothing that the agent writes is in it.
    pub fn patch(&self) -> Value {
        json!({"apiVersion": API_VERSION, "kind": KIND, "observed": self.fitted()})
    }
}
