//! A rollout's cost as text, Markdown and objects.

use std::fmt::Write as _;

use epitaph_core::render::resource::LABEL_WORKLOAD;
use epitaph_core::rollout::{Outlook, PodCost, RevisionCost};
use epitaph_core::text::bounded;
use epitaph_story::story::{many, paragraph};

use super::{MOST, Rollout};
use crate::cli::RolloutOutput;
use crate::cluster::Kind;
use crate::failure::Failure;
use crate::output::{json, named, page, table, yaml};

pub fn text(kind: Kind, of: &Rollout, output: RolloutOutput) -> Result<String, Failure> {
    match output {
        RolloutOutput::Text => Ok(plain(of, page())),
        RolloutOutput::Markdown => Ok(markdown(of)),
        RolloutOutput::Json => json(of),
        RolloutOutput::Yaml => yaml(of),
        RolloutOutput::Name => Ok(named(kind, &of.name)),
    }
}

/// Title of a row, and its value of one revision.
type Row = (&'static str, fn(&RevisionCost) -> String);

const ROWS: [Row; 11] = [
    ("pods", |of| of.pods.to_string()),
    ("unclean", |of| of.unclean.to_string()),
    ("lost connections", |of| match (of.lost(), of.unobserved) {
        (Some(lost), pods @ 1..) => {
            let least = if of.lost_at_least() > 0 { "at least " } else { "" };
            format!("{least}{lost}, unknown of {}", many(pods, "pod"))
        }
        (lost, _) => count(lost),
    }),
    ("  refused", |of| count(of.refused)),
    ("  reset", |of| count(of.reset)),
    ("  cut", |of| count(of.cut)),
    ("undecided", |of| count(of.undecided)),
    ("median time to exit", |of| seconds(of.took.map(|took| took.median))),
    ("longest time to exit", |of| seconds(of.took.map(|took| took.worst))),
    ("without a report", |of| match (of.unreported, of.missing.len()) {
        (None, named @ 1..) => format!("{named} or more"),
        (unreported, _) => count(unreported),
    }),
    ("verdicts", |of| {
        let verdicts: Vec<String> = of
            .verdicts
            .iter()
            .map(|(verdict, count)| format!("{count} {verdict}"))
            .collect();
        verdicts.join(", ")
    }),
];

fn count(of: Option<u64>) -> String {
    of.map_or_else(|| "unknown".to_owned(), |of| of.to_string())
}

fn seconds(of: Option<f64>) -> String {
    of.map_or_else(|| "unknown".to_owned(), |of| format!("{of:.1} s"))
}

fn title(of: &Rollout) -> String {
    let name = format!("{} {}/{}", of.kind, of.namespace, of.name);
    let name = bounded(&name, 400);
    match (of.revision, &of.cost) {
        (Some(revision), Some(cost)) if cost.pods > 0 => format!(
            "{name}: what the rollout to revision {revision} cost, by the pods of {}",
            number(cost)
        ),
        (Some(revision), _) => format!("{name}: no pod that the rollout to revision {revision} replaced has a report"),
        (None, _) => format!("{name}: no revision"),
    }
}

fn number(of: &RevisionCost) -> String {
    match of.revision {
        Some(revision) if !of.also_of.is_empty() => {
            let older: Vec<String> = of.also_of.iter().map(u64::to_string).collect();
            format!("revisions {} and {revision}", older.join(", "))
        }
        Some(revision) => format!("revision {revision}"),
        None => format!("the revision with hash {}", bounded(&of.hash, 63)),
    }
}

/// Against the rollout before, in one sentence.
fn comparison(of: &Rollout) -> Option<String> {
    let cost = of.cost.as_ref()?;
    let Some(before) = &of.before else {
        return Some("Nothing is known of the rollout before.".to_owned());
    };
    if of.is_at_bound {
        return Some(
            "Not comparable with the rollout before: the observer may have removed Epitaphs of one of the two rollouts."
                .to_owned(),
        );
    }
    let Some((now, then)) = cost.mean_lost().zip(before.mean_lost()) else {
        return Some(
            "Not comparable with the rollout before: for one of the two rollouts, the connections of no pod are known."
                .to_owned(),
        );
    };
    if [cost, before].iter().any(|of| of.unknown_of_half().is_some()) {
        return Some(
            "Not comparable with the rollout before: for one of the two rollouts, the connections of half of the pods or more are not \
             known."
                .to_owned(),
        );
    }
    // What pods lost at least is in no mean.
    let at_least = |of: &RevisionCost| of.lost_at_least() > 0;
    if at_least(cost) || at_least(before) {
        let least = cost.lost().unwrap_or(0) as f64 / cost.pods.max(1) as f64;
        return Some(match !at_least(before) && least > then {
            true => format!("Worse than the rollout before: at least {least:.1} lost connections per pod now, {then:.1} before."),
            false => "Not comparable with the rollout before: in one of the two rollouts, some pods may have lost more connections than \
                      were counted."
                .to_owned(),
        });
    }
    Some(match now.total_cmp(&then) {
        std::cmp::Ordering::Greater => {
            format!("Worse than the rollout before: {now:.1} lost connections per pod now, {then:.1} before.")
        }
        std::cmp::Ordering::Less => {
            format!("Better than the rollout before: {now:.1} lost connections per pod now, {then:.1} before.")
        }
        std::cmp::Ordering::Equal => format!("Same as the rollout before: {now:.1} lost connections per pod."),
    })
}

/// Of the next rollout, in one sentence.
fn forecast(of: &Rollout) -> Option<String> {
    let forecast = of.forecast.as_ref()?;
    let (least, most) = match &forecast.today {
        Outlook::Between { least, most } => (least, most),
        Outlook::Unknown { reason } => return Some(format!("No forecast for the next rollout: {reason}.")),
    };
    let with_settings = match &forecast.with_settings {
        Some(Outlook::Between { least, most }) => format!(", {least} to {most} with the settings below"),
        Some(Outlook::Unknown { reason }) => format!("; with the settings below no forecast, because {reason}"),
        None => String::new(),
    };
    Some(format!(
        "Forecast for the next rollout, of {}: {least} to {most} lost connections with today's settings{with_settings}; calculated from {} \
         of this rollout.",
        many(forecast.pods, "pod"),
        many(forecast.measured, "pod")
    ))
}

/// What the numbers do not have.
fn notes(of: &Rollout) -> Vec<String> {
    let mut notes = Vec::new();
    if of.cost.as_ref().is_none_or(|cost| cost.pods == 0) {
        notes.push(
            "Either the replaced pods still terminate, or their clean terminations are older than a day, or no agent runs on their nodes: \
             run `kubectl epitaph doctor`."
                .to_owned(),
        );
    }
    if of.is_at_bound {
        notes.push(format!(
            "The namespace has {MOST} Epitaphs or more. Beyond that number (the default), the observer removes the oldest clean Epitaphs, \
             perhaps also some of this rollout."
        ));
    }
    let Some(cost) = &of.cost else { return notes };
    if cost.worst_left_out > 0 {
        notes.push(format!(
            "{} lost connections or terminated uncleanly, too: `kubectl epitaph list --unclean -n {} -l {LABEL_WORKLOAD}={}` shows them.",
            many(cost.worst_left_out, "further pod"),
            bounded(&of.namespace, 63),
            bounded(&of.name, 63)
        ));
    }
    if !cost.missing.is_empty() {
        let names: Vec<String> = cost.missing.iter().map(|name| bounded(name, 253).into_owned()).collect();
        notes.push(format!(
            "Without a report: {}. No agent ran on their node, or the report was not written yet{}.",
            names.join(", "),
            if of.is_at_bound { ", or it was removed" } else { "" }
        ));
    }
    if cost.unreported.is_none() {
        let most = cost.replaced_at_most;
        let most = most.map_or_else(String::new, |most| format!("; it replaced at most {most}"));
        notes.push(format!(
            "How many pods have no report is not known: the rollout has reports of {}{most}.",
            many(cost.pods, "pod")
        ));
    }
    if of.is_set_by_now {
        notes.push("The workload now has advised settings; the replaced pods did not have them yet.".to_owned());
    }
    if cost.before > 0 {
        notes.push(format!(
            "{} of the same revision terminated before the rollout and are not counted.",
            many(cost.before, "pod")
        ));
    }
    if !of.forgotten.is_empty() {
        notes.push(format!(
            "The API no longer has the revisions with the hashes {}.",
            of.forgotten.join(", ")
        ));
    }
    notes
}

fn plain(of: &Rollout, width: usize) -> String {
    let mut out = paragraph(&title(of), width, "");
    if let Some(cost) = &of.cost {
        out.push('\n');
        let mut titles = vec![String::new(), number(cost)];
        titles.extend(of.before.as_ref().map(|before| format!("before: {}", number(before))));
        let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
        out.push_str(&table(Some(&titles), &rows(of)));
    }
    for sentence in comparison(of).into_iter().chain(forecast(of)) {
        let _ = write!(out, "\n{}", paragraph(&sentence, width, ""));
    }
    for pod in of.cost.iter().flat_map(|cost| &cost.worst) {
        let _ = write!(out, "\n{}", paragraph(&line(pod), width, ""));
        out.push_str(&paragraph(&bounded(&pod.sentence, 2048), width, "  "));
    }
    for note in notes(of) {
        let _ = write!(out, "\n{}", paragraph(&note, width, ""));
    }
    for remedy in remedies(of) {
        let _ = write!(out, "\n{}", paragraph(&format!("Remedy: {remedy}"), width, ""));
    }
    for snippet in &of.settings {
        let _ = write!(out, "\n{}", paragraph(&snippet.about, width, "# "));
        out.push_str(&snippet.text);
    }
    out
}

fn rows(of: &Rollout) -> Vec<Vec<String>> {
    let costs = || of.cost.iter().chain(&of.before);
    let row = |(title, value): &Row| std::iter::once((*title).to_owned()).chain(costs().map(value)).collect();
    ROWS.iter().map(row).collect()
}

fn line(pod: &PodCost) -> String {
    let lost = match pod.lost {
        Some(0) => String::new(),
        Some(lost) => {
            let least = if pod.at_least { "at least " } else { "" };
            format!(", {least}{}", many(lost, "lost connection"))
        }
        None => ", lost connections unknown".to_owned(),
    };
    format!(
        "{} on {}: {}{lost}",
        bounded(&pod.pod, 253),
        bounded(&pod.node, 253),
        bounded(&pod.verdict, 63)
    )
}

/// Each once, of the pods with most losses.
fn remedies(of: &Rollout) -> Vec<String> {
    let mut remedies: Vec<String> = Vec::new();
    for remedy in of
        .cost
        .iter()
        .flat_map(|cost| &cost.worst)
        .filter_map(|pod| pod.remedy.as_deref())
    {
        let remedy = bounded(remedy, 1024).into_owned();
        // The same remedy with other numbers is for the same setting, which the snippet has.
        if remedies.len() < 3 && !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    if !of.settings.is_empty() {
        remedies.truncate(1);
    }
    remedies
}

fn markdown(of: &Rollout) -> String {
    let mut out = format!("## {}\n\n", cell(&title(of)));
    if let Some(cost) = &of.cost {
        let before = of.before.as_ref();
        let _ = writeln!(
            out,
            "| | {} |{}",
            number(cost),
            before.map_or_else(String::new, |before| format!(" before: {} |", number(before)))
        );
        let _ = writeln!(out, "|---|---|{}", if before.is_some() { "---|" } else { "" });
        for row in rows(of) {
            let cells: Vec<String> = row.iter().map(|text| cell(text.trim())).collect();
            let _ = writeln!(out, "| {} |", cells.join(" | "));
        }
        out.push('\n');
    }
    for text in comparison(of).into_iter().chain(forecast(of)).chain(notes(of)) {
        let _ = writeln!(out, "{}\n", cell(&text));
    }
    for pod in of.cost.iter().flat_map(|cost| &cost.worst) {
        let _ = writeln!(out, "- {}: {}", cell(&line(pod)), cell(&bounded(&pod.sentence, 2048)));
    }
    for remedy in remedies(of) {
        let _ = writeln!(out, "\n**Remedy**: {}", cell(&remedy));
    }
    for snippet in &of.settings {
        let _ = writeln!(
            out,
            "\n{}\n\n```{}\n{}```",
            cell(&snippet.about),
            snippet.language,
            snippet.text
        );
    }
    out
}

/// Text of a workload is not markup.
fn cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '|' | '<' | '>' | '*' | '_' | '[' | ']' | '\\' | '#') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
