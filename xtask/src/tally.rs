//! The totals of a test run, read from what the test runners print.

use std::collections::BTreeSet;

/// Counts what passes through it, line by line.
#[derive(Default)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub failed_names: Vec<String>,
    /// Tests that the runners themselves left out.
    pub ignored: Vec<String>,
    ignored_by_totals: u64,
    passed_names: BTreeSet<String>,
}

/// A test, or a part of one, that did not run, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    pub name: String,
    pub reason: String,
}

impl Tally {
    pub fn line(&mut self, line: &str) {
        if let Some(totals) = line.strip_prefix("test result: ") {
            self.passed += number_before(totals, " passed");
            self.failed += number_before(totals, " failed");
            self.ignored_by_totals += number_before(totals, " ignored");
        } else if let Some((name, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) {
            let name = name.trim();
            if outcome.starts_with("ok") {
                self.passed_names.insert(name.to_owned());
            } else if outcome.starts_with("FAILED") {
                self.failed_names.push(name.to_owned());
            } else if outcome.starts_with("ignored") {
                self.ignored.push(name.to_owned());
            }
        }
    }

    /// Every skip: those that tests wrote down in `recorded` (name, tab, reason), and the runners' ignored ones. A test that
    /// skipped itself whole was called passed by its runner, and is not.
    pub fn settle(&mut self, recorded: &str) -> Vec<Skip> {
        let parse = |line: &str| {
            let (name, reason) = line.split_once('\t').unwrap_or((line, "no reason given"));
            Skip {
                name: name.to_owned(),
                reason: reason.to_owned(),
            }
        };
        let mut skips: Vec<Skip> = recorded.lines().filter(|line| !line.is_empty()).map(parse).collect();
        let whole: BTreeSet<&str> = skips.iter().map(|skip| &*skip.name).collect();
        let unrun = self
            .passed_names
            .iter()
            .filter(|name| name.rsplit("::").next().is_some_and(|last| whole.contains(last)));
        self.passed = self.passed.saturating_sub(unrun.count() as u64);
        // A runner that knows a skip before the run ignores the test, too: one skip, not two.
        let written: BTreeSet<String> = skips.iter().map(|skip| skip.name.clone()).collect();
        let last = |name: &str| name.rsplit("::").next().unwrap_or(name).to_owned();
        let bare = self.ignored.iter().filter(|name| !written.contains(&last(name)));
        skips.extend(bare.map(|name| Skip {
            name: name.clone(),
            reason: "marked as ignored".into(),
        }));
        for _ in self.ignored.len() as u64..self.ignored_by_totals {
            skips.push(Skip {
                name: "?".into(),
                reason: "the runner counts an ignored test without a name".into(),
            });
        }
        skips
    }
}

fn number_before(text: &str, what: &str) -> u64 {
    let before = text.split_once(what).map(|(before, _)| before);
    before.and_then(|before| before.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(text: &str) -> Tally {
        let mut tally = Tally::default();
        text.lines().for_each(|line| tally.line(line));
        tally
    }

    #[test]
    fn totals_of_all_runners_are_summed() {
        let tally = tally(
            "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 1.10s\n",
        );
        assert_eq!((tally.passed, tally.failed), (13, 1));
        assert_eq!(tally.failed_names, ["b"]);
    }

    #[test]
    fn a_test_that_skipped_itself_did_not_pass() {
        let mut tally = tally("test deep::oom ... ok\ntest other ... ok\ntest result: ok. 2 passed; 0 failed; 0 ignored\n");
        let skips = tally.settle("oom\tno memory controller\n");
        assert_eq!(
            skips,
            [Skip {
                name: "oom".into(),
                reason: "no memory controller".into()
            }]
        );
        assert_eq!(tally.passed, 1);
    }

    #[test]
    fn a_part_that_was_skipped_leaves_its_test_passed() {
        let mut tally = tally("test stories ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored\n");
        assert_eq!(tally.settle("oom-killed\tno limit\n").len(), 1);
        assert_eq!(tally.passed, 1);
    }

    #[test]
    fn a_written_skip_that_the_runner_left_out_counts_once() {
        let mut tally = tally("test oom      ... ignored\ntest result: ok. 0 passed; 0 failed; 1 ignored; 0 measured\n");
        assert_eq!(
            tally.settle("oom\tno limit\n"),
            [Skip {
                name: "oom".into(),
                reason: "no limit".into()
            }]
        );
    }

    #[test]
    fn ignored_tests_are_skips_even_unnamed() {
        let mut tally = tally("test slow ... ignored, too slow\ntest result: ok. 0 passed; 0 failed; 2 ignored; 0 measured\n");
        let names: Vec<String> = tally.settle("").into_iter().map(|skip| skip.name).collect();
        assert_eq!(names, ["slow", "?"]);
    }
}
