//! `cargo xtask test --times`: where the time of a run goes.

use std::{
    fs,
    process::{Child, Command},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use crate::{
    shell,
    suites::{Lane, Ran},
};

/// The tests that are listed.
const SLOWEST: usize = 30;
/// Of `/proc/PID/stat`, on every architecture of Linux that Rust has.
const TICKS_PER_SECOND: u64 = 100;

pub struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "the one place of xtask that measures")]
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    #[expect(clippy::disallowed_methods, reason = "the one place of xtask that measures")]
    pub fn elapsed(&self) -> Duration {
        Instant::now() - self.0
    }
}

/// The steps before the tests, each with its time.
#[derive(Default)]
pub struct Steps(Vec<(&'static str, Duration)>);

impl Steps {
    pub fn step<T>(&mut self, what: &'static str, step: impl FnOnce() -> T) -> T {
        let begin = Stopwatch::start();
        let done = step();
        self.0.push((what, begin.elapsed()));
        done
    }
}

/// Makes a program of libtest report the time of each test. A stable libtest does so only if it is taken for an unstable one.
pub fn report_each(program: &mut Command) {
    program
        .args(["-Zunstable-options", "--report-time"])
        .env("RUSTC_BOOTSTRAP", "1");
}

/// Name and reported time of a test, from its line: `test NAME ... ok <1.234s>`.
pub fn of_line(line: &str) -> Option<(&str, Option<Duration>)> {
    let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let seconds = outcome
        .rsplit_once('<')
        .and_then(|(_, time)| time.strip_suffix("s>")?.parse::<f64>().ok());
    Some((
        name.trim(),
        seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
    ))
}

/// The process has ended; it is not waited for.
pub fn is_over(process: &Child) -> Result<bool> {
    Ok(stat(process)?.first().is_some_and(|state| state == "Z"))
}

/// Of its line in /proc, the fields after the name, which may hold anything: state, and 10 fields further user, system, and the same of
/// children.
fn stat(process: &Child) -> Result<Vec<String>> {
    let path = format!("/proc/{}/stat", process.id());
    let stat = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let (_, fields) = stat.rsplit_once(')').with_context(|| format!("{path}: {stat}"))?;
    Ok(fields.split_whitespace().map(str::to_owned).collect())
}

/// What a process and its ended children used, once the process has ended; it is not waited for.
pub fn processors(process: &Child) -> Result<Duration> {
    /// Its output has ended already.
    const TO_EXIT: Duration = Duration::from_secs(600);
    let used = shell::found_within(TO_EXIT, || {
        let fields = stat(process)?;
        if fields.first().is_none_or(|state| state != "Z") {
            return Ok(None);
        }
        let ticks = fields.iter().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok());
        Ok(Some(Duration::from_millis(ticks.sum::<u64>() * 1000 / TICKS_PER_SECOND)))
    })?;
    used.with_context(|| format!("process {} closed its output and still runs", process.id()))
}

/// The table. `all`: the whole run.
pub fn table(steps: &Steps, suites: &[Ran], all: Duration) -> String {
    let mut text = format!("\nwhere the time goes: {} in all\n\n  builds and set-up\n", minutes(all));
    for (what, took) in &steps.0 {
        text += &format!("  {:>6}  {what}\n", minutes(*took));
    }
    for lane in Lane::ALL {
        let mut suites: Vec<&Ran> = suites.iter().filter(|suite| suite.lane == lane).collect();
        suites.sort_by_key(|suite| std::cmp::Reverse(suite.took));
        let sum = |of: fn(&Ran) -> Duration| suites.iter().map(|suite| of(suite)).sum::<Duration>();
        text += &format!(
            "\n  lane {}: {}, processors {}\n",
            lane.name(),
            minutes(sum(|suite| suite.took)),
            minutes(sum(|suite| suite.processors))
        );
        for suite in suites {
            let (took, processors) = (minutes(suite.took), minutes(suite.processors));
            text += &format!(
                "  {took:>6}  processors {processors:>6}  {}, {} tests\n",
                suite.name,
                suite.tests.len()
            );
        }
    }
    let tests = suites
        .iter()
        .flat_map(|suite| suite.tests.iter().map(|(test, took)| (*took, &suite.name, test)));
    let mut tests: Vec<_> = tests.collect();
    tests.sort_by_key(|(took, ..)| std::cmp::Reverse(*took));
    text += &format!("\n  the slowest {SLOWEST} tests; of a program without libtest, the time since its result before\n");
    for (took, suite, test) in tests.iter().take(SLOWEST) {
        text += &format!("  {:>6.1} s  {suite}: {test}\n", took.as_secs_f64());
    }
    text
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_test_is_on_its_line() {
        let seconds = |line| of_line(line).map(|(name, time)| (name, time.map(|time| time.as_secs_f64())));
        assert_eq!(seconds("test a::b ... ok <1.250s>"), Some(("a::b", Some(1.25))));
        assert_eq!(seconds("test a::b ... FAILED <0.001s>"), Some(("a::b", Some(0.001))));
        assert_eq!(seconds("test oom   ... ok"), Some(("oom", None)));
        assert_eq!(
            seconds("test src/lib.rs - a <T> (line 3) ... ok"),
            Some(("src/lib.rs - a <T> (line 3)", None))
        );
        assert_eq!(seconds("test result: ok. 1 passed"), None);
    }

    #[test]
    fn a_busy_process_has_used_processors_and_an_idle_one_has_not() {
        let used = |script: &str| {
            let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            let used = processors(&child).unwrap();
            child.wait().unwrap();
            used
        };
        assert!(used("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; true") > Duration::ZERO);
        // Of a child that is waited for, too.
        assert!(used("sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; true'; true") > Duration::ZERO);
    }

    #[test]
    fn minutes_have_two_digits_of_seconds() {
        assert_eq!(minutes(Duration::from_millis(65_400)), "1:05");
    }
}
