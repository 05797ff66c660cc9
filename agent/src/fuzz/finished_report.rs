//! Finished reports from a file of unknown origin: any bytes are read, and what is shown of them obeys the page and the terminal.

use epitaph_core::fixtures::{pods, sample, terminations};
use epitaph_core::render::json as core_json;
use epitaph_core::render::text::Style;
use epitaph_story::history::{Counts, Found, Line, Lines, Match, Search, Wanted};
use epitaph_story::story::{
    Brief, Columns, List, Story, columns, markdown, snippets, summary, text as story_text, timeline, why_object,
};

use super::{outcome, run};

#[test]
fn finished_report() {
    let (sample, observation) = (sample::observation(), terminations::observation());
    let seeds = vec![
        core_json::line(&core_json::termination(&sample::ignored(), &sample)),
        core_json::line(&core_json::termination(&sample::unknown_unit(), &sample)),
        core_json::line(&core_json::pod_termination(&pods::pod(1), &observation)),
        core_json::line(&core_json::termination(&pods::restarted(1), &observation)),
        core_json::line(&core_json::observing(&sample, &sample::probes())),
    ];
    let seeds = seeds.into_iter().map(String::into_bytes).collect();
    run("finished_report", seeds, |bytes| {
        let mut lines = Lines::new(bytes);
        let mut counts = Counts::default();
        // The beginning of every pod's name.
        let mut search = Search::new(Wanted::new("c"));
        let mut list = List::new(Some(80), Style::Plain);
        let mut out = String::new();
        let mut verdicts = Vec::new();
        while let Some((line, text)) = lines.next_line().expect("memory is read") {
            let Line::Report(report) = line else { continue };
            search.look(&report, text, &counts, Brief::of);
            counts.add(&report);
            out.push_str(&list.line(&Brief::of(&report)));
            verdicts.push((report.verdict.to_string(), timeline(&report).len(), snippets(&report).len()));
            let found = Found {
                line: text.to_owned(),
                by: Match::Name,
                end: None,
                container: None,
                same: 0,
                all: 1,
                last_same: None,
                since: None,
            };
            let story = Story {
                report: *report,
                found,
                others: Vec::new(),
                more: 0,
                ahead: 0,
                program: "epitaph",
            };
            out.push_str(&story_text(&story, Columns(80), Style::Plain, true));
            for other in [markdown(&story), why_object(&story)] {
                check(&other, usize::MAX);
            }
        }
        out.push_str(&summary(&counts, Some(80), Style::Plain));
        // Not of its lines: a snippet is pasted as it is.
        check(&out, usize::MAX);
        check(&summary(&counts, Some(80), Style::Plain), 80);
        outcome((verdicts, lines.skipped().damaged, search.finish().is_some()))
    });
}

fn check(text: &str, width: usize) {
    let bad = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(bad, None, "{text:?}");
    for line in text.lines() {
        assert!(columns(line) <= width, "{line}");
    }
}
