//! `kubectl epitaph watch`.

use std::pin::pin;

use epitaph_story::color::Color;
use epitaph_story::history::Report;
use epitaph_story::resource;
use epitaph_story::story::{Brief, List, safe};
use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::core::WatchEvent;

use crate::cli::{WatchArgs, WatchOutput};
use crate::cluster::{Cluster, EPITAPHS, Place, Selection};
use crate::failure::{Exit, Failure};
use crate::output::{names, object, print, style, terminal};
use crate::read::{Epitaph, place, selection};

pub async fn run(cluster: &Cluster, args: &WatchArgs) -> Result<Exit, Failure> {
    let (place, selection) = (place(cluster, &args.select), selection(&args.select));
    let mut list = List::new(terminal(), style(Color::Auto)).with_header();
    let mut version = newest(cluster, place, &selection).await?;
    eprintln!("watching terminations; Ctrl-C ends");
    loop {
        let mut events = pin!(cluster.watch(EPITAPHS, place, &selection, &version).await?);
        // An API server ends each watch after some minutes.
        while let Some(event) = events.next().await {
            match event {
                Ok(WatchEvent::Added(of) | WatchEvent::Modified(of)) => {
                    version = of.metadata.resource_version.clone().unwrap_or(version);
                    show(of, args.output, &mut list)?;
                }
                Ok(WatchEvent::Deleted(of)) => version = of.metadata.resource_version.unwrap_or(version),
                Ok(WatchEvent::Bookmark(bookmark)) => version = bookmark.metadata.resource_version,
                // 410: the changes since this version are gone.
                Ok(WatchEvent::Error(status)) if status.code == 410 => {
                    eprintln!("warning: terminations of the last moments may be missing: the API server no longer has them");
                    version = newest(cluster, place, &selection).await?;
                    break;
                }
                Ok(WatchEvent::Error(status)) => return Err(Failure::of(&kube::Error::Api(status), "watch epitaphs")),
                // The connection broke: the next request shows whether the API server is there.
                Err(_) => break,
            }
        }
    }
}

async fn newest(cluster: &Cluster, place: Place<'_>, selection: &Selection) -> Result<String, Failure> {
    Ok(cluster.list(EPITAPHS, place, selection).await?.1)
}

fn show(of: DynamicObject, output: WatchOutput, list: &mut List) -> Result<(), Failure> {
    let text = match output {
        WatchOutput::Json => safe(&object(EPITAPHS, of).to_string()) + "\n",
        WatchOutput::Name => names(EPITAPHS, [of]),
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
