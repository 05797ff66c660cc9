//! The Event in Kubernetes' form, and the known state of posted Events.

use std::collections::BTreeMap;

use epitaph_core::text::{head, tail};
use epitaph_core::time::Wall;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::notice::{Key, Object, TERMINATION};
use super::queue::{NAMED, Pending};

/// Annotation with the terminations that an Event counts, so that a restarted agent does not count them again.
const TERMINATIONS: &str = "epitaph.dev/deaths";
/// Kubernetes' own limit, bytes.
const LONGEST_INSTANCE: usize = 128;
/// Most remembered Events; a forgotten one is read from the API.
pub(super) const REMEMBERED: usize = 1024;

/// Content of a request; the API server has it if the request arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub posted: Posted,
    /// Number of waiting terminations that the request counts.
    pub of: u64,
}

/// Most remembered requests without an answer, per Event.
const UNANSWERED: usize = 8;

/// Content of an Event of ours in the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Posted {
    pub count: u64,
    pub terminations: Vec<String>,
}

impl Posted {
    /// Read back from the API.
    pub fn read(event: &Event) -> Posted {
        let listed = event.metadata.annotations.as_ref().and_then(|all| all.get(TERMINATIONS));
        let count = event.series.as_ref().map_or(1, |series| series.count);
        Posted {
            count: u64::try_from(count).unwrap_or(1),
            terminations: listed.map_or_else(Vec::new, |text| last_terminations(text)),
        }
    }

    /// The Event with the waiting terminations; None if it counts all of them already.
    pub fn with(&self, pending: &Pending) -> Option<Posted> {
        // Terminations beyond the listed ones have no id to compare: the earlier request has their number.
        let known = match pending.sent.iter().rfind(|sent| sent.posted == *self) {
            Some(sent) => sent.of,
            None => pending
                .terminations
                .iter()
                .filter(|id| self.terminations.contains(id))
                .count() as u64,
        };
        let new = pending.count.saturating_sub(known);
        if new == 0 {
            return None;
        }
        let mut terminations = self.terminations.clone();
        terminations.extend(
            pending
                .terminations
                .iter()
                .filter(|id| !self.terminations.contains(id))
                .cloned(),
        );
        let surplus = terminations.len().saturating_sub(NAMED);
        terminations.drain(..surplus);
        Some(Posted {
            count: self.count + new,
            terminations,
        })
    }

    /// Absolute numbers, not differences: a retry changes nothing. With `version`, the API server refuses the request if another
    /// writer has changed or replaced the Event since.
    pub fn patch(&self, last: Wall, version: Option<&str>) -> Value {
        let mut patch = json!({
            "metadata": { "annotations": { TERMINATIONS: self.terminations.join(",") } },
            "series": series(self.count, last),
        });
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        patch
    }
}

/// Whoever may write Events can write the annotation, up to 256 KiB: only its end is read, and only what can be an id of ours.
fn last_terminations(text: &str) -> Vec<String> {
    let listed = tail(text, NAMED * (TERMINATION + 1)).rsplit(',');
    let ids = listed.filter(|id| !id.is_empty() && id.len() <= TERMINATION).take(NAMED);
    let mut ids: Vec<String> = ids.map(str::to_owned).collect();
    ids.reverse();
    ids
}

/// Whether an Event in the API is the one of this key. Whoever may create Events can take its name first, and the API allows no change
/// of these fields. The note may differ: an Event keeps the note of its first termination.
pub(super) fn is_of(event: &Event, key: &Key, controller: &str) -> bool {
    let Object {
        kind,
        namespace,
        name,
        uid,
        ..
    } = &key.object;
    let is_of_object = event.regarding.as_ref().is_some_and(|of| {
        (of.kind.as_ref(), of.name.as_ref()) == (Some(kind), Some(name)) && (&of.namespace, &of.uid) == (namespace, uid)
    });
    is_of_object
        && event.reporting_controller.as_deref() == Some(controller)
        && event.reason.as_deref() == Some(key.reason.name())
}

/// Time of the last termination that the Event counts.
pub(super) fn last(event: &Event) -> Option<Wall> {
    let last = event.series.as_ref().map(|series| &series.last_observed_time);
    let last = last.or(event.event_time.as_ref())?;
    u64::try_from(last.0.as_nanosecond()).ok().map(Wall)
}

impl Pending {
    /// Remembers a request's content before it is sent: the answer may never come.
    pub fn remember_sent(&mut self, posted: Posted) {
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

/// The Event's namespace: `default` for an object without one.
pub(super) fn namespace(object: &Object) -> &str {
    object.namespace.as_deref().unwrap_or("default")
}

pub(super) fn event(key: &Key, pending: &Pending, (controller, node): (&str, &str)) -> Event {
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
            annotations: Some(BTreeMap::from([(TERMINATIONS.to_owned(), pending.terminations.join(","))])),
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
        reporting_controller: Some(controller.to_owned()),
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
