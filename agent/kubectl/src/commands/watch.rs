//! `kubectl epitaph watch`.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::pin;
use std::time::Duration;

use epitaph_story::color::Color;
use epitaph_story::history::Report;
use epitaph_story::resource;
use epitaph_story::story::{Brief, List, safe};
use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::core::WatchEvent;

use super::events;
use crate::cli::{WatchArgs, WatchOutput};
use crate::cluster::{Cluster, EPITAPHS, EVENTS, Kind, Place, Selection};
use crate::failure::{Exit, Failure};
use crate::output::{names, object, print, style, terminal, yaml};
use crate::read::{Epitaph, place, selection};

/// Between two watches.
const PAUSE: Duration = Duration::from_secs(1);

pub async fn run(cluster: &Cluster, args: &WatchArgs) -> Result<Exit, Failure> {
    let place = place(cluster, &args.select);
    let (mut kind, mut selection) = (EPITAPHS, selection(&args.select));
    let mut list = List::new(terminal(), style(Color::Auto)).with_header();
    let (mut shown, mut version) = match there(cluster, kind, place, &selection).await {
        Err(failure) if failure.is_kind_absent => {
            events::warn(&args.select, failure)?;
            (kind, selection) = (EVENTS, events::of(events::AGENTS));
            there(cluster, kind, place, &selection).await?
        }
        there => there?,
    };
    eprintln!("watching terminations; Ctrl-C ends");
    loop {
        let mut events = pin!(cluster.watch(kind, place, &selection, &version).await?);
        // An API server ends each watch after some minutes.
        while let Some(event) = events.next().await {
            match event {
                Ok(WatchEvent::Added(of) | WatchEvent::Modified(of)) => {
                    version = of.metadata.resource_version.clone().unwrap_or(version);
                    if shown.is_new(&of) {
                        show(kind, of, args, &mut list)?;
                    }
                }
                Ok(WatchEvent::Deleted(of)) => {
                    shown.forget(&of);
                    version = of.metadata.resource_version.unwrap_or(version);
                }
                Ok(WatchEvent::Bookmark(bookmark)) => version = bookmark.metadata.resource_version,
                // 410: the changes since this version are gone.
                Ok(WatchEvent::Error(status)) if status.code == 410 => {
                    eprintln!("warning: terminations of the last moments may be missing: the API server no longer has them");
                    (shown, version) = there(cluster, kind, place, &selection).await?;
                    break;
                }
                Ok(WatchEvent::Error(status)) => {
                    let what = format!("watch {}", kind.name());
                    return Err(Failure::of(&kube::Error::Api(status), &what));
                }
                // The connection broke: the next request shows whether the API server is there.
                Err(_) => break,
            }
        }
        // One that ends each watch at once is not asked without a pause.
        tokio::time::sleep(PAUSE).await;
    }
}

/// What there is before the watch begins, and the version from which it does.
async fn there(cluster: &Cluster, kind: Kind, place: Place<'_>, selection: &Selection) -> Result<(Shown, String), Failure> {
    let (objects, version) = cluster.list(kind, place, selection).await?;
    let mut shown = Shown::default();
    for object in &objects {
        shown.is_new(object);
    }
    Ok((shown, version))
}

/// Hashes of the reports that were shown or were there before, by the UID of the Epitaph or Event: as many as are kept in the cluster.
#[derive(Default)]
struct Shown(HashMap<String, u64>);

impl Shown {
    /// False where the observer added what it saw, which is no part of the report. An Event has no report: each change counts it up.
    fn is_new(&mut self, of: &DynamicObject) -> bool {
        let Some(uid) = of.metadata.uid.clone() else { return true };
        let mut hasher = DefaultHasher::new();
        of.data.get("report").unwrap_or(&of.data).to_string().hash(&mut hasher);
        let hash = hasher.finish();
        self.0.insert(uid, hash) != Some(hash)
    }

    fn forget(&mut self, of: &DynamicObject) {
        if let Some(uid) = &of.metadata.uid {
            self.0.remove(uid);
        }
    }
}

fn show(kind: Kind, of: DynamicObject, args: &WatchArgs, list: &mut List) -> Result<(), Failure> {
    let text = match args.output {
        WatchOutput::Json => safe(&object(kind, of).to_string()) + "\n",
        WatchOutput::Yaml => format!("---\n{}", yaml(&object(kind, of))?),
        WatchOutput::Name => names(kind, [of]),
        WatchOutput::Text if kind.name() == EVENTS.name() => events::text([&of], args.select.all_namespaces, false),
        WatchOutput::Text => {
            let Some(epitaph) = Epitaph::of(of) else { return Ok(()) };
            let value = resource::object(&epitaph.namespace, &epitaph.report);
            let Ok(report) = serde_json::from_value::<Report>(value) else {
                return Ok(());
            };
            let mut brief = Brief::of(&report);
            // The pod, not its workload: several pods of one are in a rollout.
            brief.name = format!("{}/{}", epitaph.namespace, epitaph.report.pod.name);
            list.line(&brief)
        }
    };
    print(&text)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_the_observer_adds_is_no_further_termination() {
        let object = |exited: &str, observed: Value| -> DynamicObject {
            let object = json!({
                "apiVersion": "epitaph.dev/v1alpha1", "kind": "Epitaph", "metadata": {"name": "cart-1", "uid": "u"},
                "report": {"times": {"exited": exited}}, "observed": observed,
            });
            serde_json::from_value(object).expect("an Epitaph")
        };
        let mut shown = Shown::default();
        assert!(shown.is_new(&object("03:04:05", Value::Null)));
        assert!(!shown.is_new(&object("03:04:05", json!({"replacement": {"pod": "cart-2"}}))));
        // A pod that lives on: its container terminated once more.
        assert!(shown.is_new(&object("03:05:05", Value::Null)));
        shown.forget(&object("03:05:05", Value::Null));
        assert!(shown.is_new(&object("03:05:05", Value::Null)));
    }
}
