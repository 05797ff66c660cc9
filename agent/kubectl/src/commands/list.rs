//! `kubectl epitaph list`.

use epitaph_core::render::resource::LABEL_VERDICT;
use epitaph_core::time::Wall;
use epitaph_story::story::Hidden;

use super::events;
use crate::cli::{ListArgs, ListOutput, SelectArgs};
use crate::cluster::{Cluster, EPITAPHS, EVENTS, Place, Selection, now};
use crate::failure::{Exit, Failure};
use crate::output::{age_of, json, list, names, print, table, yaml};
use crate::read::{Epitaph, epitaphs, place, selection};

pub async fn run(cluster: &Cluster, args: &ListArgs) -> Result<Exit, Failure> {
    let place = place(cluster, &args.select);
    let now = now();
    let since = args.since.map(|when| when.before(now));
    let mut all = match epitaphs(cluster, place, &selection(&args.select)).await {
        Err(failure) if failure.is_kind_absent => return fallback(cluster, place, args, failure).await,
        all => all?,
    };
    let is_then = |epitaph: &Epitaph| since.is_none_or(|since| epitaph.exited().is_none_or(|exited| exited >= since));
    all.retain(is_then);
    let is_for_people = matches!(args.output, ListOutput::Table | ListOutput::Wide);
    if all.is_empty() && is_for_people {
        // As kubectl: an empty list is not a failure.
        eprintln!("No terminations found{}.", within(place));
        not_shown(cluster, place, args, is_then).await;
        return Ok(Exit::Done);
    }
    let objects = |all: Vec<Epitaph>| all.into_iter().map(|epitaph| epitaph.object);
    print(&match args.output {
        ListOutput::Table | ListOutput::Wide => text(&all, args, now),
        ListOutput::Json => json(&list(EPITAPHS, objects(all)))?,
        ListOutput::Yaml => yaml(&list(EPITAPHS, objects(all)))?,
        ListOutput::Name => names(EPITAPHS, objects(all)),
    })?;
    if is_for_people {
        not_shown(cluster, place, args, is_then).await;
    }
    Ok(Exit::Done)
}

/// Of a list of unclean terminations, those that the evidence does not show to be clean: the list leaves them out.
fn left_out(select: &SelectArgs) -> Option<Selection> {
    let verdicts = format!("{LABEL_VERDICT} in ({})", Hidden::VERDICTS.join(","));
    let all: Vec<String> = select.selector.iter().cloned().chain([verdicts]).collect();
    select.unclean.then(|| Selection::labels(all.join(",")))
}

/// What a list of unclean terminations leaves out, counted behind it: the list does not depend on a second request.
async fn not_shown(cluster: &Cluster, place: Place<'_>, args: &ListArgs, is_then: impl Fn(&Epitaph) -> bool) {
    let Some(left_out) = left_out(&args.select) else { return };
    let others = match epitaphs(cluster, place, &left_out).await {
        Ok(others) => others,
        Err(failure) => {
            eprintln!("What the list leaves out is not counted: {}", failure.problem);
            return;
        }
    };
    let mut hidden = Hidden::default();
    others
        .iter()
        .filter(|of| is_then(of) && !of.report.unclean)
        .for_each(|of| hidden.add(&of.report.verdict));
    if let Some(text) = hidden.text(&format!("-l {LABEL_VERDICT}=")) {
        eprintln!("{text}");
    }
}

pub fn within(place: Place<'_>) -> String {
    match place {
        Place::Namespace(namespace) => format!(" in {namespace} namespace"),
        Place::Cluster => String::new(),
    }
}

fn text(all: &[Epitaph], args: &ListArgs, now: Wall) -> String {
    let (has_namespaces, is_wide) = (args.select.all_namespaces, args.output == ListOutput::Wide);
    let mut titles = vec!["POD", "VERDICT", "LOST", "TOOK", "EXIT", "AGE"];
    if is_wide {
        titles.extend(["NODE", "KUBECTL", "TRACE", "SENTENCE"]);
    }
    if has_namespaces {
        titles.insert(0, "NAMESPACE");
    }
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|epitaph| {
            let report = &epitaph.report;
            let lost = report.connections.as_ref().and_then(|of| {
                let more = if of.at_least == Some(true) { "+" } else { "" };
                Some(format!("{}{more}", of.lost?))
            });
            let mut row = vec![
                report.pod.name.clone(),
                report.verdict.clone(),
                lost.unwrap_or_else(|| "<unknown>".to_owned()),
                report.took.clone(),
                report.exit.clone(),
                age_of(epitaph.exited(), now),
            ];
            if is_wide {
                let kubectl = report.kubectl_shows.clone().unwrap_or_else(|| "<same>".to_owned());
                let more = [&report.node, &kubectl, &report.trace_id, &report.sentence];
                row.extend(more.map(String::clone));
            }
            if has_namespaces {
                row.insert(0, epitaph.namespace.clone());
            }
            row
        })
        .collect();
    table((!args.no_headers).then_some(&titles), &rows)
}

async fn fallback(cluster: &Cluster, place: Place<'_>, args: &ListArgs, failure: Failure) -> Result<Exit, Failure> {
    let mut all = events::instead(cluster, place, &args.select, failure).await?;
    let since = args.since.map(|when| when.before(now()));
    all.retain(|event| since.is_none_or(|since| events::last(event).is_none_or(|last| last >= since)));
    print(&match args.output {
        ListOutput::Table | ListOutput::Wide if all.is_empty() => {
            eprintln!("No Events of Epitaph found{}.", within(place));
            return Ok(Exit::Done);
        }
        ListOutput::Table | ListOutput::Wide => events::text(&all, args.select.all_namespaces, !args.no_headers),
        ListOutput::Json => json(&list(EVENTS, all))?,
        ListOutput::Yaml => yaml(&list(EVENTS, all))?,
        ListOutput::Name => names(EVENTS, all),
    })?;
    Ok(Exit::Done)
}
