//! What waits to be written: the object of a pod, the object of a node, or the observer's part of a pod's.

use epitaph_core::render::resource::{Epitaph, NodeEpitaph, Observed, POD};
use serde_json::{Value, json};

use super::queue::Key;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Pod(Box<Epitaph>),
    Node(NodeEpitaph),
    Observed(Observed),
}

impl Object {
    pub fn key(&self) -> Key {
        match self {
            Object::Pod(epitaph) => Key {
                namespace: epitaph.namespace.clone(),
                name: epitaph.name(),
            },
            // Takes turns with the namespaces.
            Object::Node(epitaph) => Key {
                namespace: String::new(),
                name: epitaph.name(),
            },
            Object::Observed(observed) => Key::of(observed),
        }
    }

    /// For the journal. Nothing of an observer, which has none.
    pub fn stored(&self) -> Vec<u8> {
        let stored = match self {
            Object::Pod(epitaph) => json!({"namespace": epitaph.namespace, "report": epitaph.report}),
            Object::Node(epitaph) => json!({"report": epitaph.report}),
            Object::Observed(_) => Value::Null,
        };
        stored.to_string().into_bytes()
    }

    /// What [`Object::stored`] wrote.
    pub fn read(stored: &[u8]) -> Option<Object> {
        let mut stored: Value = serde_json::from_slice(stored).ok()?;
        let report = stored.get_mut("report")?.take();
        Some(match stored.get("namespace") {
            Some(namespace) => Object::Pod(Box::new(Epitaph {
                namespace: namespace.as_str()?.to_owned(),
                report: serde_json::from_value(report).ok()?,
            })),
            None => Object::Node(NodeEpitaph {
                report: serde_json::from_value(report).ok()?,
            }),
        })
    }

    /// Of a pod that lives on: another one follows.
    pub fn lives_on(&self) -> bool {
        matches!(self, Object::Pod(epitaph) if epitaph.report.terminated != POD)
    }

    pub fn is_unclean(&self) -> bool {
        match self {
            Object::Pod(epitaph) => epitaph.report.unclean,
            Object::Node(epitaph) => epitaph.report.unclean,
            // Mostly of an unclean one.
            Object::Observed(_) => true,
        }
    }

    /// With what an earlier one of the same name has.
    #[must_use]
    pub fn after(self, earlier: &Object) -> Object {
        match (self, earlier) {
            (Object::Pod(newer), Object::Pod(earlier)) => Object::Pod(Box::new(newer.after(&earlier.report))),
            (Object::Observed(newer), Object::Observed(earlier)) => Object::Observed(newer.after(&earlier.observed)),
            (newer, _) => newer,
        }
    }
}
