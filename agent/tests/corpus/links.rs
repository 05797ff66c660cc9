//! Links between traces lead to spans that are exported, on every recording.
//!
//! Not from a shutdown to its pods: a pod whose status comes late, or not at all in the recording, has traces by container only
//! (docs/limits/nodes.md). That the other pods are reported, `less_evidence` of the core's text timelines asserts.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::judged::{each_report, trace};
use super::{ROOMS, corpus, in_parallel, stems};

#[test]
fn every_link_leads_to_a_span() {
    let linked = AtomicUsize::new(0);
    let mut problems = Vec::new();
    for room in ROOMS {
        let room = corpus().join(room);
        problems.extend(in_parallel(stems(&room, "epitaph"), |name| {
            let found = dangling(&room.join(format!("{name}.epitaph")), &linked);
            let text = found.unwrap_or_else(|error| vec![error]).join("\n");
            (!text.is_empty()).then(|| format!("{name}: {text}"))
        }));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(linked.into_inner() > 0, "no recording has a link");
}

/// Links to spans that no report of the recording has.
fn dangling(recording: &Path, linked: &AtomicUsize) -> Result<Vec<String>, String> {
    let (mut spans, mut links) = (BTreeSet::new(), Vec::new());
    each_report(recording, |report, observation| {
        for span in trace(report, observation).into_iter().flat_map(|trace| trace.spans) {
            spans.insert((
                span.span_context.trace_id().to_bytes(),
                span.span_context.span_id().to_bytes(),
            ));
            let is_to_pods = ["kubelet.phase", "node.shutdown"]
                .iter()
                .any(|name| span.name.starts_with(name));
            let of = span.links.links.into_iter().filter(|_| !is_to_pods);
            links.extend(of.map(|link| (span.name.clone(), link.span_context)));
        }
    })?;
    linked.fetch_add(links.len(), Ordering::Relaxed);
    let leads = |to: &opentelemetry::trace::SpanContext| spans.contains(&(to.trace_id().to_bytes(), to.span_id().to_bytes()));
    let dangling = links.into_iter().filter(|(_, to)| !leads(to));
    Ok(dangling
        .map(|(from, to)| {
            format!(
                "`{from}` has a link to {} of {}, which is not exported",
                to.span_id(),
                to.trace_id()
            )
        })
        .collect())
}
