//! A story in a terminal.

use std::fmt::Write as _;

use epitaph_core::render::text::{Paint, Style, clock_stepped, not_observed};
use epitaph_core::time::Wall;
use epitaph_core::verdict::{Severity, table};

use super::draw::draw;
use super::list;
use super::snippet::{Snippet, snippets};
use super::timeline::timeline;
use super::words::{between, hanging, local_moment, many, moment, paragraph, short};
use super::{NODE_PROGRAM, Story};
use crate::history::{At, Connections, Gaps, Group, Kubernetes, Report, Reported, Subject, Unobserved};

/// Columns of a page of text; a wider terminal is not filled.
#[derive(Clone, Copy, Debug)]
pub struct Columns(pub usize);

/// Name, sentence, timeline, remedy, what happened before, facts. With `evidence` also each piece of proof.
pub fn text(story: &Story, Columns(width): Columns, style: Style, evidence: bool) -> String {
    let shown = story.shown();
    let paint = Paint(style);
    let mut out = String::new();
    for line in paragraph(&title(shown), width, "").lines() {
        let _ = writeln!(out, "{}", paint.bold(line));
    }
    if let Some(image) = image(shown) {
        out.push_str(&paragraph(&format!("image {image}"), width, ""));
    }
    let _ = writeln!(out, "{}", headline(shown, &paint));
    if let Some(ambiguous) = ambiguous(story) {
        out.push_str(&paragraph(&ambiguous, width, ""));
    }
    out.push('\n');
    out.push_str(&paragraph(&shown.sentence, width, ""));
    out.push('\n');
    out.push_str(&draw(&timeline(shown), width, style));
    if let Some(missing) = missing(shown) {
        out.push('\n');
        for line in paragraph(&missing, width, "").lines() {
            let _ = writeln!(out, "{}", paint.severity(Severity::Warning, line));
        }
    }
    remedy(shown, width, &paint, &mut out);
    out.push_str(&facts(story, width, &paint));
    if evidence {
        let _ = writeln!(out, "\n{}", paint.bold("Evidence"));
        for piece in proof(shown) {
            out.push_str(&paragraph(&piece, width, "  "));
        }
    }
    if !story.others.is_empty() {
        let program = story.program;
        let head = format!("Earlier, {} (`{program} why ID`)", story.found.by.in_common());
        let _ = writeln!(out, "\n{}", paint.bold(&head));
        let mut list = list::List::new(Some(width), style);
        for other in &story.others {
            out.push_str(&list.line(other));
        }
        let more = story.more - story.others.len() as u64;
        if more > 0 {
            let _ = writeln!(out, "  … and {more} more: `{program} list`");
        }
    }
    out
}

/// Something else may be meant.
pub(super) fn ambiguous(story: &Story) -> Option<String> {
    let by = story.found.by;
    let all = story.more + 1;
    (by.is_prefix() && all > 1).then(|| format!("{all} terminations begin with this name or id; this is the newest"))
}

fn remedy(shown: &Report, width: usize, paint: &Paint, out: &mut String) {
    let snippets = snippets(shown);
    if shown.remedy.is_none() && shown.advice.is_empty() && snippets.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", paint.bold("Remedy"));
    let texts = remedies(shown);
    let (before, after) = if texts.len() > 1 { ("- ", "  ") } else { ("", "") };
    for text in texts {
        for line in hanging(&format!("{before}{text}"), width - 2, after) {
            let _ = writeln!(out, "  {line}");
        }
    }
    for Snippet { about, text, .. } in snippets {
        out.push('\n');
        for line in paragraph(&about, width - 4, "").lines() {
            let _ = writeln!(out, "  {}", paint.dim(&format!("# {line}")));
        }
        for line in text.lines() {
            let _ = writeln!(out, "  {line}");
        }
    }
}

/// The remedy, then the advice.
pub(super) fn remedies(shown: &Report) -> Vec<String> {
    let advice = shown.advice.iter().map(|advice| advice.text.to_string());
    shown.remedy.iter().map(|remedy| remedy.to_string()).chain(advice).collect()
}

/// `pod shop/cart-7d9f8b6c5-x2x4z, container app`.
pub(super) fn title(shown: &Report) -> String {
    if shown.is_of_node() {
        return format!("node {}", shown.node);
    }
    let container = shown.kubernetes.as_ref().and_then(|context| context.container.as_deref());
    let of_subject = || match &shown.subject {
        Some(Subject::Container { id, .. }) => {
            let id = id.get(..12).unwrap_or(id);
            match shown.container_name() {
                Some(name) => format!("container {name} ({id})"),
                None => format!("container {id}"),
            }
        }
        Some(Subject::Unit { name }) => format!("unit {name}"),
        Some(Subject::Other) | None => "unknown process".to_owned(),
    };
    match (shown.pod(), &shown.subject, container) {
        (Some(pod), None, _) => format!("pod {}/{}", pod.namespace, pod.name),
        (Some(pod), _, Some(container)) => format!("pod {}/{}, container {container}", pod.namespace, pod.name),
        (Some(pod), Some(_), None) => format!("pod {}/{}, {}", pod.namespace, pod.name, of_subject()),
        (None, ..) => of_subject(),
    }
}

/// Of the container whose verdict is shown.
pub(super) fn image(shown: &Report) -> Option<&str> {
    let spec = context(shown).and_then(|context| context.image.as_deref());
    spec.or_else(|| shown.container_image().map(|image| &**image))
}

/// The context of the container, or of that container of a pod which gave the verdict.
fn context(shown: &Report) -> Option<&Kubernetes> {
    let decisive = shown.containers.iter().find(|of| of.verdict == shown.verdict);
    decisive.unwrap_or(shown).kubernetes.as_ref()
}

fn headline(shown: &Report, paint: &Paint) -> String {
    let tone = severity(&shown.severity);
    let mut out = paint.severity(tone, &shown.verdict);
    if shown.unclean {
        let _ = write!(out, "  {}", paint.severity(tone, "UNCLEAN"));
    }
    let _ = write!(out, "  {}", paint.dim(&shown.severity));
    out
}

pub(super) fn severity(name: &str) -> Severity {
    match name {
        "critical" => Severity::Critical,
        "warning" => Severity::Warning,
        _ => Severity::Info,
    }
}

/// `1 tcp record was`, `2 tcp records were`.
fn records(count: u64, kind: &str) -> String {
    let were = if count == 1 { "was" } else { "were" };
    format!("{} {were}", many(count, &format!("{kind} record")))
}

/// Since when the process may have exited: it did in a time without observation, whose end is all that is known.
fn exited_in_gap(of: &Report) -> Option<Wall> {
    let end = of.end.filter(|_| of.status.is_none())?;
    let in_gap = |gap: &&Unobserved| {
        gap.begin
            .zip(gap.end)
            .is_some_and(|(begin, until)| begin.0 < end.0 && end.0 <= until.0)
    };
    of.gaps.unobserved.iter().find(in_gap)?.begin.map(|begin| begin.0)
}

/// What the evidence may lack; None if it is whole.
pub(super) fn missing(shown: &Report) -> Option<String> {
    let reports = || std::iter::once(shown).chain(&shown.containers);
    let mut parts: Vec<String> = Vec::new();
    let mut add = |part: String| {
        if !parts.contains(&part) {
            parts.push(part);
        }
    };
    for of in reports() {
        let Gaps {
            lost,
            over_cap,
            late_start,
            unobserved,
            inactive_probes,
            clock_step_ms,
            bus,
            exits,
            observation,
            pods,
        } = &of.gaps;
        if let Some(bus) = bus {
            add(bus.to_string());
        }
        for (is_missing, what) in [
            (*exits, "exits of processes were not observed"),
            (*observation, "epitaph did not run for part of this time"),
            (*pods, "the pods of the node were not known"),
        ] {
            if is_missing {
                add(what.to_owned());
            }
        }
        if *late_start {
            add("the process started before the observation began".to_owned());
        }
        let times: Vec<(At, At)> = unobserved.iter().filter_map(|gap| gap.begin.zip(gap.end)).collect();
        if let Some((since, _)) = times.first() {
            let all = times.iter().map(|(begin, end)| between(begin.0, end.0)).sum();
            add(not_observed(all, &format!("{} UTC", moment(since.0)), times.len()));
        }
        for (kind, count) in lost {
            match &**kind {
                // Also what the journal does not keep: the connects of clients, before a restart.
                "tcp" => add("records of TCP connections were lost, or not kept over a restart of epitaph".to_owned()),
                _ => add(format!("{} lost", records(*count, kind))),
            }
        }
        if *over_cap > 0 {
            let (pieces, were) = if *over_cap == 1 {
                ("piece", "was")
            } else {
                ("pieces", "were")
            };
            add(format!("{over_cap} {pieces} of evidence {were} dropped"));
        }
        if !inactive_probes.is_empty() {
            let names: Vec<&str> = inactive_probes.iter().map(|name| &**name).collect();
            add(format!("probes were not active: {}", names.join(", ")));
        }
        if let Some(step) = clock_step_ms {
            add(clock_stepped(step.saturating_mul(1_000_000)));
        }
        if let Some(incomplete) = of.kubernetes.as_ref().and_then(|context| context.incomplete.as_deref()) {
            add(incomplete.to_owned());
        }
    }
    if shown.left_out > 0 {
        add(format!(
            "{} entries of lists were left out: the lists are too long",
            shown.left_out
        ));
    }
    for unseen in &shown.unseen {
        let how = unseen
            .reported
            .as_ref()
            .map_or_else(String::new, |end| format!("; its status reports {}", reported(end)));
        add(format!("the exit of container {} was not observed{how}", unseen.container));
    }
    (!parts.is_empty()).then(|| format!("Incomplete evidence: {}", parts.join("; ")))
}

fn reported(end: &Reported) -> String {
    match &end.reason {
        Some(reason) => format!("exit code {} ({reason})", end.exit_code),
        None => format!("exit code {}", end.exit_code),
    }
}

/// Name and value, in the order in which they are shown.
pub(super) fn table(story: &Story) -> Vec<(&'static str, String)> {
    let shown = story.shown();
    let first = match shown.is_of_node() {
        true => ("kind", shown.kind.to_string()),
        false => (
            "axes",
            format!("cause {}, exit {}, traffic {}", shown.cause, shown.exit, shown.traffic),
        ),
    };
    let mut rows = vec![first];
    let decisive = shown
        .containers
        .iter()
        .find(|of| of.verdict == shown.verdict)
        .unwrap_or(shown);
    rows.extend(shown.end.map(|end| {
        let local = match story.ahead {
            0 => String::new(),
            ahead => format!(" ({})", local_moment(end.0, ahead)),
        };
        let since = exited_in_gap(decisive).filter(|_| decisive.end == shown.end);
        let (since, end) = (since.map(moment), moment(end.0));
        let text = match since.filter(|since| *since != end) {
            Some(since) => format!("between {since} and {end} UTC"),
            None => format!("{end} UTC"),
        };
        ("ended", text + &local)
    }));
    if let Some((start, end)) = decisive.main.as_ref().and_then(|main| main.start).zip(decisive.end) {
        let ran = short(between(start.0, end.0));
        let ran = match exited_in_gap(decisive) {
            Some(since) => format!("{} to {ran}", short(between(start.0, since))),
            None => ran,
        };
        rows.push(("ran", format!("{ran}, since {} UTC", moment(start.0))));
    }
    if let Some(context) = context(shown) {
        if let Some(end) = &context.reported {
            rows.push(("kubectl", format!("shows {}", reported(end))));
        }
        if context.restarts > 0 {
            rows.push(("restarts", format!("{} before this", context.restarts)));
        }
    }
    rows.push(("clients", undated(&shown.connections)));
    rows.push(("before", before(story)));
    if let Some(pod) = shown.pod() {
        rows.push((
            "workload",
            format!("{} {}/{}", pod.workload.kind, pod.namespace, pod.workload.name),
        ));
        rows.push(("node", pod.node.to_string()));
    } else if let Some(cgroup) = &shown.cgroup {
        rows.push(("cgroup", cgroup.to_string()));
    }
    if !shown.trace_id.is_empty() {
        rows.push(("trace", shown.trace_id.to_string()));
    }
    if !shown.is_down() {
        rows.push(("meaning", meaning(story.program, &shown.verdict)));
    }
    rows.retain(|(_, value)| !value.is_empty());
    rows
}

/// Who asked the plugin has no `epitaph explain`. Of a verdict of a newer agent nothing is known.
fn meaning(program: &str, verdict: &str) -> String {
    match program {
        NODE_PROGRAM => format!("`{program} explain {verdict}`"),
        _ => table::by_headline(verdict).map_or_else(String::new, |row| row.meaning.to_owned()),
    }
}

/// Lost connections that no row of the timeline shows, because only their number is known.
fn undated(of: &Connections) -> String {
    let numbers = [
        (of.refused, of.refused_first, "refused"),
        (of.reset, of.reset_first, "reset"),
        (of.cut, of.cut_first, "cut"),
        (of.rejected, of.rejected_first, "rejected by the network"),
    ];
    let without_time = numbers.into_iter().filter(|(count, first, _)| *count > 0 && first.is_none());
    let texts: Vec<String> = without_time.map(|(count, _, what)| format!("{count} {what}")).collect();
    let least = if of.observed || texts.is_empty() { "" } else { "at least " };
    format!("{least}{}", texts.join(", "))
}

fn facts(story: &Story, width: usize, paint: &Paint) -> String {
    let mut out = String::from("\n");
    for (name, value) in table(story) {
        let indent = 10;
        for (n, line) in paragraph(&value, width - indent, "").lines().enumerate() {
            let name = if n == 0 { name } else { "" };
            let _ = writeln!(out, "{}{line}", paint.dim(&format!("{name:indent$}")));
        }
    }
    out
}

/// How often the same happened to the workload.
pub(super) fn before(story: &Story) -> String {
    let found = &story.found;
    let Some(group) = Group::of(&story.report) else {
        return String::new();
    };
    let since = found.since.map_or_else(String::new, |since: Wall| {
        format!("; the records begin at {} UTC", moment(since))
    });
    let name = group.name();
    let what = match group {
        Group::Node(_) => "shutdown",
        _ => "termination",
    };
    match (found.same, found.all) {
        (_, 0) => format!("no earlier {what} of {name} is known{since}"),
        (same, all) => {
            let same = if same == 0 { "none".to_owned() } else { same.to_string() };
            let last = found
                .last_same
                .map_or_else(String::new, |last| format!(", the last at {} UTC", moment(last)));
            let earlier = many(all, &format!("earlier {what}"));
            format!("{same} of {earlier} of {name} had the same verdict{last}{since}")
        }
    }
}

/// One line for each piece of evidence.
pub(super) fn proof(shown: &Report) -> Vec<String> {
    let line = |at: Option<At>, source: &str, text: &str| {
        let clock = at.map_or_else(String::new, |at| format!("{} ", &at.0.rfc3339_millis()[11..23]));
        format!("{clock}{source}: {text}")
    };
    let lines = shown
        .evidence
        .iter()
        .map(|piece| line(piece.time, &piece.source, &piece.text));
    lines.collect()
}
