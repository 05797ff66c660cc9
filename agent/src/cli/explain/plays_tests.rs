//! What remedies lead to: two recordings of real processes each, of one that got the remedy, and of one that does what it asks for. Judged
//! again here, written to docs/verdicts.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use epitaph_core::correlate::{Correlator, Limits};
use epitaph_core::decode::decode;
use epitaph_core::report::{Report, Termination};
use epitaph_core::verdict::table::by_headline;
use epitaph_core::verdict::{Case, judge, remedies, remedies_of};

use crate::recording::Reader;

mod nodes;
mod table;
mod unfollowed;

use nodes::{MEASURED, ON_THE_CLUSTER};
use table::{PLAYS, Program, Then};
use unfollowed::{NOT_PLAYED, UNFOLLOWED};

fn judged(name: &str) -> Termination {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/corpus/stories/{name}.epitaph"));
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut core = Correlator::new(Limits::default());
    let inputs = Reader::new(std::io::BufReader::new(file), decode).unwrap();
    let reports = inputs
        .flat_map(|(now, input)| core.handle(now, input).reports)
        .collect::<Vec<_>>();
    let mut terminations = reports.into_iter().filter_map(|report| match report {
        Report::Terminated(termination) => Some(*termination),
        _ => None,
    });
    let one = terminations.next().unwrap_or_else(|| panic!("{name} has no termination"));
    assert!(terminations.next().is_none(), "{name} has several terminations");
    one
}

#[test]
fn a_process_that_does_what_a_remedy_asks_for_has_a_better_verdict() {
    let mut wrong = Vec::new();
    for play in PLAYS {
        let (before, after) = (judged(play.before), judged(play.after));
        let code = |of: &Termination| of.facts.exit.map(|exit| exit.status.reported_code());
        let is_shown = code(&before) == Some(0) && code(&after) != Some(0);
        let of_a_stop = |of: &Termination| [0, 128 + 15].map(Some).contains(&code(of));
        let is_agreed = !of_a_stop(&before) && of_a_stop(&after);
        let (before, after) = (before.verdict, after.verdict);
        let remedy = before.remedy.unwrap_or_default();
        if !remedy.contains(play.part) {
            wrong.push(format!("{}: its remedy has no `{}`: {remedy}", play.before, play.part));
        }
        let rank = |headline: &str| by_headline(headline).map(|row| (row.unclean, row.precedence));
        let is_better = rank(after.headline) < rank(before.headline);
        let is_right = match play.then {
            Then::Better => is_better,
            Then::Shown => is_shown,
            Then::Agreed => is_agreed && [before.headline, after.headline] == ["clean"; 2],
        };
        if !is_right {
            wrong.push(format!(
                "{} is {}, and {} is {}",
                play.before, before.headline, play.after, after.headline
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_command_that_a_remedy_of_a_node_names_was_measured() {
    let page = include_str!("../../../../docs/shutdowns.md");
    for [before, verdict, _, after, then] in MEASURED {
        for (command, verdict) in [(before, verdict), (after, then)] {
            let row = |line: &&str| line.starts_with(&format!("| `{command}` |")) && line.contains(&format!("| `{verdict}` |"));
            assert!(page.lines().any(|line| row(&line)), "{command}: {verdict}");
        }
    }
    for [_, verdict, part, ..] in MEASURED {
        let remedy = epitaph_core::verdict::node::table::by_headline(verdict).map(|row| row.remedy);
        assert!(remedy.is_some_and(|remedy| remedy.contains(part)), "{verdict}: {remedy:?}");
    }
    for [.., story, file] in ON_THE_CLUSTER {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/src/cluster").join(file);
        let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(source.contains(story), "{story} is not in {file}");
    }
}

/// The names of the remedies of one story whose words have this part.
fn followed(before: &Termination, part: &str) -> Vec<&'static str> {
    let case = Case::new(&before.facts, before.kubernetes.as_deref());
    let given = remedies_of(&case, &judge(&case));
    let with_part = given.into_iter().filter(|(_, words)| words.contains(part));
    with_part.map(|(remedy, _)| remedy.name).collect()
}

/// By name of the remedy: the stories before and after.
fn pairs() -> BTreeMap<&'static str, Vec<(&'static str, &'static str)>> {
    let mut pairs: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for play in PLAYS {
        for name in followed(&judged(play.before), play.part) {
            pairs.entry(name).or_default().push((play.before, play.after));
        }
    }
    pairs
}

/// Why no recording follows it.
fn unfollowed(name: &str) -> Option<&'static str> {
    let is_its = |(_, names): &&(&str, &[&str])| names.contains(&name);
    UNFOLLOWED.iter().find(is_its).map(|(reason, _)| *reason)
}

#[test]
fn every_remedy_is_followed_by_a_recording_or_has_one_reason() {
    let pairs = pairs();
    let mut wrong = Vec::new();
    for remedy in remedies() {
        match (pairs.get(remedy.name), unfollowed(remedy.name)) {
            (Some(_), None) | (None, Some(_)) => {}
            (None, None) => wrong.push(format!(
                "{} has neither a play nor a reason: {}",
                remedy.name, remedy.helps_if
            )),
            (Some(pairs), Some(reason)) => wrong.push(format!("{} is played ({pairs:?}) in spite of: {reason}", remedy.name)),
        }
    }
    for name in UNFOLLOWED.iter().flat_map(|(_, names)| *names) {
        if !remedies().any(|remedy| remedy.name == *name) {
            wrong.push(format!("{name} is not a remedy"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn stories() -> Vec<String> {
    let stories = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/stories")).unwrap();
    let mut names: Vec<String> = stories
        .filter_map(|file| Some(file.unwrap().file_name().to_str()?.strip_suffix(".epitaph")?.to_owned()))
        .collect();
    names.sort();
    names
}

/// A new story has a play, or a reason why it has none.
#[test]
fn every_unclean_story_has_a_play_or_a_reason() {
    let mut missing = Vec::new();
    for name in stories() {
        let is_listed = PLAYS.iter().any(|play| play.before == name) || NOT_PLAYED.iter().any(|(story, _)| *story == name);
        let verdict = judged(&name).verdict;
        if verdict.unclean && !is_listed {
            missing.push(format!(
                "{name}: {}: {}",
                verdict.headline,
                verdict.remedy.unwrap_or_default()
            ));
        }
    }
    missing.sort();
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

/// A section of docs/verdicts.md.
pub fn markdown() -> String {
    let mut out = String::from(
        "\n## What remedies lead to\n\n\
         Each row has two recordings of real processes (their names are in brackets; the files are in tests/corpus/stories). The first process got\n\
         the remedy. The second process does what the remedy asks for: it is the same program, or another program where the row says so. The\n\
         numbers in a remedy were measured.\n\n\
         | verdict on the first process | remedy | what the second process does | verdict on the second process |\n|---|---|---|---|\n",
    );
    for play in PLAYS {
        let (before, after) = (judged(play.before).verdict, judged(play.after).verdict);
        let _ = writeln!(
            out,
            "| [`{0}`](#{0}) (`{1}`) | {2} | {3}{6} | [`{4}`](#{4}) (`{5}`) |",
            before.headline,
            play.before,
            before.remedy.unwrap_or_default(),
            play.change,
            after.headline,
            play.after,
            match play.program {
                Program::Same => "",
                Program::Another => " (another program)",
            }
        );
    }
    out.push_str(
        "\nThe same for shutdowns of a node, with the commands that [shutdowns.md](shutdowns.md) compares:\n\n\
         | verdict (command before) | remedy | command that the remedy names | verdict after this command |\n|---|---|---|---|\n",
    );
    for [before, verdict, part, after, then] in MEASURED {
        let _ = writeln!(out, "| `{verdict}` (`{before}`) | {part} | `{after}` | `{then}` |");
    }
    out.push_str(
        "\nThese remedies were followed on a real cluster; the test runs only when somebody starts it (`cargo xtask cluster test`):\n\n\
         | verdict before | what was changed | verdict after | name of the test |\n|---|---|---|---|\n",
    );
    for [verdict, what, then, story, _] in ON_THE_CLUSTER {
        let _ = writeln!(out, "| `{verdict}` | {what} | `{then}` | `{story}` |");
    }
    out.push_str(
        "\nAll remedies for containers and units, in the order in which Epitaph tries them: a report gets the first remedy whose condition holds.\n\
         The last column has the recordings before and after the remedy was followed, or the reason why there are none.\n\n\
         | remedy | condition | recordings: before → after |\n|---|---|---|\n",
    );
    let pairs = pairs();
    for remedy in remedies() {
        let played = match pairs.get(remedy.name) {
            Some(pairs) => {
                let pairs: Vec<String> = pairs
                    .iter()
                    .map(|(before, after)| format!("`{before}` → `{after}`"))
                    .collect();
                pairs.join(", ")
            }
            None => unfollowed(remedy.name).unwrap_or_default().to_owned(),
        };
        let _ = writeln!(out, "| `{}` | {} | {played} |", remedy.name, remedy.helps_if);
    }
    out.push_str("\nRecordings with an unclean verdict to which no remedy was applied, each with the reason:\n\n");
    for (reason, names) in reasons() {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(out, "- {}: {reason}.", names.join(", "));
    }
    out
}

fn reasons() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, reason) in NOT_PLAYED {
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    reasons
}
