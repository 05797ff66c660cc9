//! `cargo xtask test --repeat RUNS --loops N`: the same tests again and again beside busy loops. No test is retried: a failure stays one.
//! Runs of the same tests of the same content add up, so that a long series can be made in parts.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

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
    let stamp = prove::stamp()?;
    let key = key(only, loops);
    let earlier = prove::recorded(&key, &stamp).map(|cells| Series::read(&cells)).transpose()?;
    if let Some(earlier) = &earlier {
        println!("{} runs of this content are recorded: these are added", earlier.runs);
    }
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
            let series = earlier.clone().unwrap_or_default().and(&done);
            let row = Row {
                key: key.clone(),
                cells: series.cells(),
            };
            println!("{}", prove::record(&row, &stamp)?);
            if let Some(error) = error {
                return Err(error);
            }
        }
        let is_well = done.iter().all(|run| run.counts.are_well());
        Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// As one failure with the error for its name; the cell of a table has no `|` and one line, and commas between its names.
fn broken(error: &anyhow::Error) -> Counts {
    let text = format!("{error:#}").replace('|', "/").replace(',', ";");
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

fn key(only: Option<&str>, loops: usize) -> [String; 2] {
    let tests = only.map_or_else(|| "everyday".to_owned(), |only| format!("`{only}`"));
    [tests, loops.to_string()]
}

/// Runs, of this call and of those before it: a row of the page.
#[derive(Clone, Debug, Default, PartialEq)]
struct Series {
    runs: u32,
    /// Without a failure.
    well: u32,
    /// Minutes of the shortest and of the longest run.
    minutes: Option<(f64, f64)>,
    /// How often each test failed.
    failures: BTreeMap<String, u32>,
}

const NO_FAILURE: &str = "none";

impl Series {
    fn and(mut self, done: &[Run]) -> Series {
        for run in done {
            self.runs += 1;
            self.well += u32::from(run.counts.are_well());
            let took = run.took.as_secs_f64() / 60.0;
            let (least, most) = self.minutes.unwrap_or((took, took));
            self.minutes = Some((least.min(took), most.max(took)));
            for name in names(&run.counts) {
                *self.failures.entry(name).or_default() += 1;
            }
        }
        self
    }

    fn cells(&self) -> [String; 4] {
        let failures = self.failures.iter().map(|(name, times)| match times {
            1 => name.clone(),
            _ => format!("{name} ({times} times)"),
        });
        let failures: Vec<String> = failures.collect();
        let (least, most) = self.minutes.unwrap_or_default();
        [
            self.runs.to_string(),
            self.well.to_string(),
            format!("{least:.1} to {most:.1}"),
            if failures.is_empty() {
                NO_FAILURE.to_owned()
            } else {
                failures.join(", ")
            },
        ]
    }

    /// What [`Series::cells`] wrote.
    fn read([runs, well, minutes, failures]: &[String; 4]) -> Result<Series> {
        let what = || format!("reading the recorded runs `{runs} | {well} | {minutes} | {failures}`");
        let (least, most) = minutes.split_once(" to ").with_context(what)?;
        let failures = failures.split(", ").filter(|name| *name != NO_FAILURE).map(|name| {
            let several = name.strip_suffix(" times)").and_then(|name| name.rsplit_once(" ("));
            let several = several.and_then(|(name, times)| Some((name.to_owned(), times.parse().ok()?)));
            several.unwrap_or((name.to_owned(), 1))
        });
        Ok(Series {
            runs: runs.parse().with_context(what)?,
            well: well.parse().with_context(what)?,
            minutes: Some((least.parse().with_context(what)?, most.parse().with_context(what)?)),
            failures: failures.collect(),
        })
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
        assert_eq!(key(Some("timing"), 2), ["`timing`", "2"]);
        let cells = Series::default().and(&done).cells();
        assert_eq!(cells, ["4", "1", "1.0 to 2.0", "1 outside of tests, a (2 times)"]);
    }

    #[test]
    fn a_series_in_parts_has_the_row_of_one_at_once() {
        let done = [
            ran(90, 3, &["b"], 0),
            ran(60, 2, &["a", "b"], 0),
            ran(120, 1, &["a"], 2),
            ran(30, 3, &[], 0),
        ];
        let whole = Series::default().and(&done).cells();
        assert_eq!(
            whole,
            ["4", "1", "0.5 to 2.0", "2 outside of tests, a (2 times), b (2 times)"]
        );
        for parts in 0..=done.len() {
            let (first, second) = done.split_at(parts);
            let recorded = Series::read(&Series::default().and(first).cells());
            // Nothing is recorded before the first run.
            let earlier = if parts == 0 {
                Series::default()
            } else {
                recorded.expect("it reads what it writes")
            };
            assert_eq!(earlier.and(second).cells(), whole, "after {parts}");
        }
    }

    #[test]
    fn a_series_without_a_failure_stays_one() {
        let cells = Series::default().and(&[ran(60, 3, &[], 0)]).cells();
        let again = Series::read(&cells).expect("a row").and(&[ran(61, 3, &[], 0)]);
        assert_eq!(again.cells(), ["2", "2", "1.0 to 1.0", "none"]);
        assert!(Series::read(&["1", "1", "?", "none"].map(str::to_owned)).is_err());
    }
}
