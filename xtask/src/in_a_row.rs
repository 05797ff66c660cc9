//! `cargo xtask test --repeat RUNS --loops N`: the same tests again and again beside busy loops. No test is retried: a failure stays one.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};

use crate::{
    prove::{self, Row},
    test::Counts,
    times::Stopwatch,
};

/// What became of one run.
struct Run {
    took: Duration,
    counts: Counts,
}

/// Calls `run` so often, each time beside `loops` busy loops, and records the row after each: a task that is cut short has those before.
pub fn runs(only: Option<&str>, times: usize, loops: usize, run: impl Fn() -> Result<Counts>) -> Result<ExitCode> {
    ensure!(times > 0, "no run: `--repeat 0`");
    // Before the page changes: the commit would be a dirty one.
    let stamp = prove::stamp()?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..loops {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let _over = Over(&over);
        let mut done: Vec<Run> = Vec::new();
        for number in 1..=times {
            let begin = Stopwatch::start();
            // What keeps a run from its tests is a failure of the run, and ends the task.
            let (counts, error) = match run() {
                Ok(counts) => (counts, None),
                Err(error) => (broken(&error), Some(error)),
            };
            let took = begin.elapsed();
            println!(
                "run {number} of {times} beside {loops} busy loops: {} min, {} passed, {} failed {:?}",
                minutes(took),
                counts.passed,
                counts.failed,
                names(&counts)
            );
            done.push(Run { took, counts });
            println!("{}", prove::record(&row(only, loops, &done), &stamp)?);
            if let Some(error) = error {
                return Err(error);
            }
        }
        let is_well = done.iter().all(|run| run.counts.are_well());
        Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// As one failure with the error for its name; the cell of a table has no `|` and one line.
fn broken(error: &anyhow::Error) -> Counts {
    let text = format!("{error:#}").replace('|', "/");
    Counts {
        passed: 0,
        failed: 1,
        failed_names: vec![text.lines().next().unwrap_or_default().to_owned()],
    }
}

/// Ends the loops, also where a run is an error.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The failures of a run; one without a name is of a program, or of a skip that is not allowed.
fn names(counts: &Counts) -> Vec<String> {
    let mut names = counts.failed_names.clone();
    let nameless = counts.failed.saturating_sub(names.len() as u64);
    if nameless > 0 {
        names.push(format!("{nameless} outside of tests"));
    }
    names
}

fn row(only: Option<&str>, loops: usize, done: &[Run]) -> Row {
    let mut failures: BTreeMap<String, u32> = BTreeMap::new();
    for name in done.iter().flat_map(|run| names(&run.counts)) {
        *failures.entry(name).or_default() += 1;
    }
    let failures: Vec<String> = failures
        .iter()
        .map(|(name, times)| match times {
            1 => name.clone(),
            _ => format!("{name} ({times} times)"),
        })
        .collect();
    let time = |of: Option<Duration>| of.map(minutes).unwrap_or_default();
    let took = || done.iter().map(|run| run.took);
    Row {
        key: [
            only.map_or_else(|| "everyday".to_owned(), |only| format!("`{only}`")),
            loops.to_string(),
        ],
        cells: [
            done.len().to_string(),
            done.iter().filter(|run| run.counts.are_well()).count().to_string(),
            format!("{} to {}", time(took().min()), time(took().max())),
            if failures.is_empty() {
                "none".to_owned()
            } else {
                failures.join(", ")
            },
        ],
    }
}

fn minutes(took: Duration) -> String {
    format!("{:.1}", took.as_secs_f64() / 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(seconds: u64, passed: u64, failed_names: &[&str], nameless: u64) -> Run {
        Run {
            took: Duration::from_secs(seconds),
            counts: Counts {
                passed,
                failed: failed_names.len() as u64 + nameless,
                failed_names: failed_names.iter().map(|name| (*name).to_owned()).collect(),
            },
        }
    }

    #[test]
    fn an_error_is_one_failure_on_one_line_of_a_table() {
        let counts = broken(&anyhow::anyhow!("a | b\nc").context("checking"));
        assert!(!counts.are_well());
        assert_eq!(counts.failed_names, ["checking: a / b"]);
    }

    #[test]
    fn a_row_counts_the_runs_without_a_failure_and_names_each_failure() {
        let done = [
            ran(90, 3, &[], 0),
            ran(60, 2, &["a"], 0),
            ran(120, 1, &["a"], 1),
            ran(60, 0, &[], 0),
        ];
        let row = row(Some("timing"), 2, &done);
        assert_eq!(row.key, ["`timing`", "2"]);
        assert_eq!(row.cells, ["4", "1", "1.0 to 2.0", "1 outside of tests, a (2 times)"]);
    }
}
