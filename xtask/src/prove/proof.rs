//! `cargo xtask prove claims`: runs what proves each claim, and writes the page from what the commands print.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::ExitCode,
};

use anyhow::{Context as _, Result, ensure};

use super::{
    Stamp,
    claims::{self, Claim, Proof, Test},
    closing, printed, stamp,
};
use crate::shell;

pub const PAGE: &str = "docs/proof.md";

/// What the lines of a run are about one test.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped(String),
}

/// `only`: the claims that have this text in their command.
pub fn task(quick: bool, only: Option<&str>) -> Result<ExitCode> {
    let root = shell::root();
    let claims = claims::all(&root)?;
    let stamp = stamp()?;
    let is_wanted = |claim: &&Claim| {
        let is_only = only.is_none_or(|only| shown(&claim.proof).contains(only));
        is_only && (!quick || claim.proof.is_quick())
    };
    let wanted: Vec<&Claim> = claims.iter().filter(is_wanted).collect();
    ensure!(!wanted.is_empty(), "no claim is proven by that");
    let mut results: BTreeMap<Key, String> = BTreeMap::new();
    let mut write = |key: Key, result: String| -> Result<()> {
        results.insert(key, result);
        // After each: a run that is cut short costs none of the others.
        write_page(&root, &claims, &results, &stamp)
    };
    let mut programs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for test in wanted.iter().flat_map(|claim| tests_of(claim)) {
        programs.entry(&test.program).or_default().insert(&test.name);
    }
    let mut outcomes: BTreeMap<Test, Outcome> = BTreeMap::new();
    let mut failed = 0;
    for (program, names) in &programs {
        let names: Vec<&str> = names.iter().copied().collect();
        let (lines, _) = printed(&["test", "--only", program, "--tests", &names.join(",")])?;
        for name in names {
            if let Some(outcome) = outcome(&lines, name) {
                let program = (*program).to_owned();
                outcomes.insert(
                    Test {
                        program,
                        name: name.to_owned(),
                    },
                    outcome,
                );
            }
        }
        let is_done = |claim: &&&Claim| tests_of(claim).iter().all(|test| test.program.as_str() <= *program);
        let is_of_this = |claim: &&&Claim| tests_of(claim).iter().any(|test| test.program == *program);
        for claim in wanted.iter().filter(is_done).filter(is_of_this) {
            let result = of_tests(tests_of(claim), &outcomes);
            failed += u32::from(result.starts_with(NOT));
            write(key(claim), result)?;
        }
    }
    let mut commands: BTreeMap<&str, String> = BTreeMap::new();
    for claim in &wanted {
        let Proof::Command { words, .. } = &claim.proof else {
            continue;
        };
        let result = match commands.get(words.as_str()) {
            Some(result) => result.clone(),
            None => {
                let (lines, status) = printed(&words.split(' ').collect::<Vec<_>>())?;
                let total = lines.iter().rev().find_map(|line| closing(line));
                super::result(total, status)
            }
        };
        failed += u32::from(result.starts_with(NOT));
        write(key(claim), result.clone())?;
        commands.insert(words, result);
    }
    shell::log(format_args!("the results are in {PAGE}"));
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Begins each result that proves nothing.
const NOT: &str = "**";

fn tests_of(claim: &Claim) -> &[Test] {
    match &claim.proof {
        Proof::Tests(tests) => tests,
        Proof::Command { .. } | Proof::ByHand => &[],
    }
}

/// What became of the test `name`, by what `cargo xtask test` printed.
fn outcome(lines: &[String], name: &str) -> Option<Outcome> {
    let is_it = |found: &str| found.rsplit("::").next() == Some(name);
    let skipped = lines.iter().find_map(|line| {
        let (found, why) = line.strip_prefix("SKIP ")?.split_once(": ")?;
        is_it(found).then(|| Outcome::Skipped(why.to_owned()))
    });
    let ran = lines.iter().filter_map(|line| {
        let (found, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
        is_it(found.trim()).then_some(outcome)
    });
    let mut all = ran.map(|outcome| outcome.starts_with("ok"));
    let first = all.next();
    let passed = first.map(|first| {
        if first && all.all(|passed| passed) {
            Outcome::Passed
        } else {
            Outcome::Failed
        }
    });
    skipped.or(passed)
}

fn of_tests(tests: &[Test], outcomes: &BTreeMap<Test, Outcome>) -> String {
    let mut parts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for test in tests {
        let part = match outcomes.get(test) {
            Some(Outcome::Passed) => continue,
            Some(Outcome::Failed) => "**failed**".to_owned(),
            Some(Outcome::Skipped(why)) => format!("**skipped** ({})", why.replace('|', "/")),
            None => "**not run**".to_owned(),
        };
        parts.entry(part).or_default().push(&test.name);
    }
    if parts.is_empty() {
        return match tests.len() {
            1 => "1 test passed".to_owned(),
            count => format!("{count} tests passed"),
        };
    }
    let parts = parts.iter().map(|(part, names)| format!("{part}: {}", names.join(", ")));
    parts.collect::<Vec<_>>().join("; ")
}

/// After `cargo xtask`.
fn shown(proof: &Proof) -> String {
    match proof {
        Proof::Tests(tests) => {
            let programs: BTreeSet<&str> = tests.iter().map(|test| test.program.as_str()).collect();
            let names: BTreeSet<&str> = tests.iter().map(|test| test.name.as_str()).collect();
            let joined = |words: BTreeSet<&str>| words.into_iter().collect::<Vec<_>>().join(",");
            format!("test --only \"{}\" --tests {}", joined(programs), joined(names))
        }
        Proof::Command { words, .. } => words.clone(),
        Proof::ByHand => "–".to_owned(),
    }
}

/// Of a row: the claim, with its page and its command.
type Key = String;

fn key(claim: &Claim) -> Key {
    let heading = |page: &str| -> Option<String> {
        let text = fs::read_to_string(shell::root().join(page)).ok()?;
        heading_of(&text, &claim.text)
    };
    let name = claim.page.rsplit('/').next().unwrap_or(claim.page);
    let path = claim
        .page
        .strip_prefix("docs/")
        .map_or_else(|| format!("../{}", claim.page), str::to_owned);
    let place = heading(claim.page).map_or_else(|| path.clone(), |heading| format!("{path}#{}", anchor(&heading)));
    let command = match &claim.proof {
        Proof::ByHand => "none: by hand".to_owned(),
        proof => format!("`{}`", shown(proof)),
    };
    format!("| {} | [{name}]({place}) | {command} |", claim.text)
}

/// The last heading before the claim.
fn heading_of(page: &str, claim: &str) -> Option<String> {
    let at = (1..=page.lines().count()).find(|count| {
        let until = page.lines().take(*count).collect::<Vec<_>>().join(" ");
        claims::joined(&until).contains(&claims::joined(claim))
    })?;
    let before = page.lines().take(at).filter_map(|line| line.strip_prefix("## "));
    before.last().map(str::to_owned)
}

/// As a page's own links have it.
fn anchor(heading: &str) -> String {
    let letters = heading.to_lowercase();
    let kept = letters
        .chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

fn write_page(root: &Path, claims: &[Claim], results: &BTreeMap<Key, String>, stamp: &Stamp) -> Result<()> {
    let path = root.join(PAGE);
    let before = fs::read_to_string(&path).unwrap_or_default();
    fs::write(&path, page(&before, claims, results, stamp)).with_context(|| format!("writing {}", path.display()))
}

/// With the new results; the other rows as they were, if their claim and command are still the same.
fn page(before: &str, claims: &[Claim], results: &BTreeMap<Key, String>, stamp: &Stamp) -> String {
    let mut page = String::from(
        "# Proof\n\n\
         This page answers: which test or command proves each claim, and what was its last result? Written by `cargo xtask prove claims`;\n\
         do not edit. The claims are those of the README, of SECURITY.md and of the threat model, in their words; SECURITY.md lists what would\n\
         be a vulnerability, and the tests are those that show that it is not so. A result in bold proves nothing. The kernel is that of the\n\
         machine; the content is the tree that git writes for the tracked files as they were, without the pages that runs write.\n\n\
         | Claim | Page | `cargo xtask …` | Result | Date | Kernel | Commit, content |\n|---|---|---|---|---|---|---|\n",
    );
    for claim in claims {
        let begin = key(claim);
        let of_before = before.lines().find_map(|line| line.strip_prefix(&begin));
        let cells = match (results.get(&begin), of_before, &claim.proof) {
            (Some(result), ..) => format!(" {result} | {} |", stamp.join(" | ")),
            (None, _, Proof::ByHand) => " **no test** | – | – | – |".to_owned(),
            (None, Some(cells), _) => cells.to_owned(),
            (None, None, _) => " **not recorded** | – | – | – |".to_owned(),
        };
        page += &format!("{begin}{cells}\n");
    }
    page + "\nNext: [the threat model](threat-model.md), or [the last result of each tier of tests](tiers.md).\n"
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    /// Each claim stands in its page, and each of its tests and commands exists.
    #[test]
    fn every_claim_stands_in_its_page_and_has_a_proof_that_exists() -> Result<()> {
        let claims = claims::all(&shell::root())?;
        let of = |page: &str| claims.iter().filter(|claim| claim.page == page).count();
        assert!(of("README.md") >= 10 && of("SECURITY.md") >= 8 && of(claims::THREATS) >= 70);
        for claim in &claims {
            if let Proof::Command { words, .. } = &claim.proof {
                let task = words.split(' ').next().unwrap_or_default();
                assert!(crate::TASKS.iter().any(|known| known.name == task), "{words}");
            }
            assert!(
                !claim.text.contains(['|', '\n']) && !claim.text.contains("]("),
                "{}",
                claim.text
            );
        }
        let keys: BTreeSet<String> = claims.iter().map(key).collect();
        assert_eq!(keys.len(), claims.len(), "two claims of one text");
        Ok(())
    }

    /// A claim that is new, or whose proof is another one, is a row that proves nothing yet.
    #[test]
    fn the_page_has_a_row_for_each_claim_and_no_other() -> Result<()> {
        let claims = claims::all(&shell::root())?;
        let written = fs::read_to_string(shell::root().join(PAGE))?;
        let stamp = ["", "", ""].map(str::to_owned);
        assert_eq!(
            page(&written, &claims, &BTreeMap::new(), &stamp),
            written,
            "`cargo xtask prove claims` writes {PAGE}"
        );
        Ok(())
    }

    #[test]
    fn a_result_is_what_was_printed_of_the_claims_own_tests() {
        let lines = [
            "test a::passes ... ok",
            "test a::fails ... FAILED",
            "test b::skips ... ok",
            "test b::passes_too ... ok <0.1s>",
            "SKIP skips: no memory controller (allowed: no-memory)",
        ];
        let lines = lines.map(str::to_owned);
        let test = |name: &str| Test {
            program: "p".to_owned(),
            name: name.to_owned(),
        };
        let names = ["passes", "fails", "skips", "passes_too"];
        let outcomes: BTreeMap<Test, Outcome> = names
            .iter()
            .filter_map(|name| Some((test(name), outcome(&lines, name)?)))
            .collect();
        let result = |names: &[&str]| of_tests(&names.iter().map(|name| test(name)).collect::<Vec<_>>(), &outcomes);
        assert_eq!(result(&["passes"]), "1 test passed");
        assert_eq!(result(&["passes", "passes_too"]), "2 tests passed");
        assert_eq!(result(&["passes", "fails"]), "**failed**: fails");
        assert_eq!(
            result(&["skips", "missing"]),
            "**not run**: missing; **skipped** (no memory controller (allowed: no-memory)): skips"
        );
    }

    #[test]
    fn a_claim_is_below_its_heading() {
        let page = "# P\n\nintro\n\n## One (1)\n\na\nb c\n\n## Two\n\nd\n";
        assert_eq!(heading_of(page, "intro"), None);
        assert_eq!(heading_of(page, "a b"), Some("One (1)".to_owned()));
        assert_eq!(heading_of(page, "d"), Some("Two".to_owned()));
        assert_eq!(anchor("What you see, and (which)"), "what-you-see-and-which");
    }
}
