//! The Event as Kubernetes has it, and what we know to be posted.

use std::collections::BTreeMap;

use epitaph_core::text::head;
use epitaph_core::time::Wall;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::CONTROLLER;
use super::notice::{Key, Object};
use super::queue::{NAMED, Pending};

/// The deaths that an Event counts, so that a restart of ours does not count them again.
const DEATHS: &str = "epitaph.dev/deaths";
/// Kubernetes' own limit, bytes.
const LONGEST_INSTANCE: usize = 128;
/// Events remembered; one that was forgotten is asked for.
pub(super) const REMEMBERED: usize = 1024;

/// A request's words, which the API has if it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub posted: Posted,
    /// How many of the deaths that wait are counted in it.
    pub of: u64,
}

/// Requests without an answer that are remembered, of one Event.
const UNANSWERED: usize = 8;

/// What an Event of ours says on the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Posted {
    pub count: u64,
    pub deaths: Vec<String>,
}

impl Posted {
    /// Read back from the API.
    pub fn read(event: &Event) -> Posted {
        let deaths = event.metadata.annotations.as_ref().and_then(|all| all.get(DEATHS));
        let count = event.series.as_ref().map_or(1, |series| series.count);
        Posted {
            count: u64::try_from(count).unwrap_or(1),
            deaths: deaths.map_or(Vec::new(), |text| text.split(',').map(str::to_owned).collect()),
        }
    }

    /// With what waits; None where all of it is counted already.
    pub fn with(&self, pending: &Pending) -> Option<Posted> {
        // Deaths beyond those that are named cannot be told apart by name.
        let known = match pending.sent.iter().rfind(|sent| sent.posted == *self) {
            Some(sent) => sent.of,
            None => pending.deaths.iter().filter(|death| self.deaths.contains(death)).count() as u64,
        };
        let new = pending.count.saturating_sub(known);
        if new == 0 {
            return None;
        }
        let mut deaths = self.deaths.clone();
        deaths.extend(pending.deaths.iter().filter(|death| !self.deaths.contains(death)).cloned());
        let surplus = deaths.len().saturating_sub(NAMED);
        deaths.drain(..surplus);
        Some(Posted {
            count: self.count + new,
            deaths,
        })
    }

    /// Whole numbers, not differences: a retry changes nothing.
    pub fn patch(&self, last: Wall) -> Value {
        json!({
            "metadata": { "annotations": { DEATHS: self.deaths.join(",") } },
            "series": series(self.count, last),
        })
    }
}

impl Pending {
    /// These words are sent; an answer may never come.
    pub fn sends(&mut self, posted: Posted) {
        let sent = Sent { posted, of: self.count };
        if self.sent.contains(&sent) {
            return;
        }
        if self.sent.len() >= UNANSWERED {
            self.sent.remove(0);
        }
        self.sent.push(sent);
    }
}

/// Events of an object without a namespace live in this one.
pub(super) fn namespace(object: &Object) -> &str {
    object.namespace.as_deref().unwrap_or("default")
}

pub(super) fn event(key: &Key, pending: &Pending, node: &str) -> Event {
    let Object {
        kind,
        api_version,
        namespace: of,
        name,
        uid,
    } = &key.object;
    let instance = head(node, LONGEST_INSTANCE);
    Event {
        metadata: ObjectMeta {
            name: Some(key.event_name(node)),
            namespace: Some(namespace(&key.object).to_owned()),
            annotations: Some(BTreeMap::from([(DEATHS.to_owned(), pending.deaths.join(","))])),
            ..ObjectMeta::default()
        },
        action: Some(key.reason.action().to_owned()),
        event_time: Some(time(pending.first)),
        note: Some(pending.note.clone()),
        reason: Some(key.reason.name().to_owned()),
        regarding: Some(ObjectReference {
            api_version: api_version.clone(),
            kind: Some(kind.clone()),
            name: Some(name.clone()),
            namespace: of.clone(),
            uid: uid.clone(),
            ..ObjectReference::default()
        }),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        series: (pending.count > 1).then(|| series(pending.count, pending.last)),
        type_: Some("Warning".to_owned()),
        ..Event::default()
    }
}

fn series(count: u64, last: Wall) -> EventSeries {
    EventSeries {
        count: i32::try_from(count).unwrap_or(i32::MAX),
        last_observed_time: time(last),
    }
}

fn time(wall: Wall) -> MicroTime {
    MicroTime(Timestamp::from_nanosecond(i128::from(wall.0)).unwrap_or(Timestamp::MAX))
}
