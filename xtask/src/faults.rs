//! `cargo xtask test faults`: whether the tests find deliberate faults of the product, one at a time, in a copy of the checkout.
//!
//! A test that waits for a marker instead of for time can wait for the wrong one, and then passes whatever the product does. Each fault of
//! [`FAULTS`] names the tests that look for the fault: one of these must fail. A test that fails by chance finds nothing.

mod copy;
mod table;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use pico_args::Arguments;

use self::table::FAULTS;
use crate::{prove, shell, tally::Tally};

/// A change of the product that a test must find.
struct Fault {
    name: &'static str,
    /// What the product does wrong, one sentence.
    what: &'static str,
    file: &'static str,
    /// Occurs once in the file.
    find: &'static str,
    replace: &'static str,
    /// Test programs, by their names in [`crate::suites`].
    suites: &'static [&'static str],
    /// Tests of these programs that look for the fault.
    tests: &'static [&'static str],
}

/// What the tests made of a fault.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The tests that failed, at least one of those that look for the fault.
    Found(Vec<String>),
    /// The tests that failed, none of those that look for the fault.
    NotFound(Vec<String>),
    /// Or the set-up failed: no test ran.
    NotBuilt,
    /// No test that looks for the fault can run on this machine.
    Skipped,
}

/// What a run of tests printed.
#[derive(Default)]
struct Seen {
    tally: Tally,
    skipped: BTreeSet<String>,
    /// The closing line, without which the tests did not run to their end.
    closing: Option<String>,
    succeeded: bool,
}

pub fn task(args: Arguments) -> Result<ExitCode> {
    let names: Vec<String> = args
        .finish()
        .into_iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let faults = chosen(&names)?;
    if !shell::is_root() {
        bail!("the probes and the stories need root: without them the faults that only a live test finds are not found");
    }
    let directory = shell::root().join("target/faults");
    let checkout = directory.join("checkout");
    copy::update(&checkout)?;

    shell::log("without a fault first");
    let seen = run(&checkout, &faults, &directory.join("none.log"))?;
    ensure!(
        seen.succeeded,
        "without a fault the tests must pass, else their failures show nothing: {}; see {}",
        match &seen.closing {
            None => "they did not run".to_owned(),
            Some(closing) => format!("{closing} {:?}", seen.tally.failed_names),
        },
        directory.join("none.log").display()
    );
    println!("without a fault: {}", seen.closing.as_deref().unwrap_or_default());
    let (mut found, mut not_found, mut skipped) = (0, 0, 0);
    for &fault in &faults {
        let outcome = match fault.tests.iter().all(|test| seen.skipped.contains(*test)) {
            true => Outcome::Skipped,
            false => with(fault, &checkout, &directory)?,
        };
        match outcome {
            Outcome::Found(_) => found += 1,
            Outcome::Skipped => skipped += 1,
            Outcome::NotFound(_) | Outcome::NotBuilt => not_found += 1,
        }
        println!("{}", line(fault, &outcome));
    }
    // As the other tiers end.
    println!("{found} passed, {not_found} failed, {skipped} skipped");
    let is_well = not_found == 0 && found > 0;
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The faults of these names, or all.
fn chosen(names: &[String]) -> Result<Vec<&'static Fault>> {
    if let Some(unknown) = names.iter().find(|name| !FAULTS.iter().any(|fault| fault.name == **name)) {
        let known: Vec<&str> = FAULTS.iter().map(|fault| fault.name).collect();
        bail!("no fault `{unknown}`; the faults are {}", known.join(", "));
    }
    let is_chosen = |fault: &&Fault| names.is_empty() || names.iter().any(|name| name == fault.name);
    Ok(FAULTS.iter().filter(is_chosen).collect())
}

/// Plays the fault, and takes it out again. A copy that keeps one, because this program was killed, is corrected by the next update.
fn with(fault: &Fault, checkout: &Path, directory: &Path) -> Result<Outcome> {
    shell::log(format_args!("fault {}: {}", fault.name, fault.what));
    let path = checkout.join(fault.file);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    fs::write(&path, fault.applied(&text)?).with_context(|| format!("writing {}", path.display()))?;
    let seen = run(checkout, &[fault], &directory.join(format!("{}.log", fault.name)));
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    Ok(fault.outcome(seen?))
}

impl Fault {
    fn applied(&self, text: &str) -> Result<String> {
        let count = text.matches(self.find).count();
        ensure!(
            count == 1,
            "fault {}: its text occurs {count} times in {}: correct the table in xtask/src/faults/table.rs",
            self.name,
            self.file
        );
        Ok(text.replacen(self.find, self.replace, 1))
    }

    fn outcome(&self, seen: Seen) -> Outcome {
        if seen.closing.is_none() {
            return Outcome::NotBuilt;
        }
        let looks_for = |failed: &String| self.tests.contains(&last(failed));
        match seen.tally.failed_names.iter().any(looks_for) {
            true => Outcome::Found(seen.tally.failed_names),
            false => Outcome::NotFound(seen.tally.failed_names),
        }
    }
}

fn line(fault: &Fault, outcome: &Outcome) -> String {
    let Fault { name, what, .. } = fault;
    match outcome {
        Outcome::Found(by) => format!("found      {name} ({what}), by {}", by.join(", ")),
        Outcome::NotFound(others) if others.is_empty() => format!("NOT FOUND  {name} ({what})"),
        Outcome::NotFound(others) => format!(
            "NOT FOUND  {name} ({what}): none of {} failed, but {}",
            fault.tests.join(", "),
            others.join(", ")
        ),
        Outcome::NotBuilt => format!("NOT BUILT  {name} ({what}): see target/faults/{name}.log and above"),
        Outcome::Skipped => format!("skipped    {name} ({what}): its tests cannot run on this machine"),
    }
}

/// The function of a test.
fn last(test: &str) -> &str {
    test.rsplit("::").next().unwrap_or(test)
}

/// Runs the tests of the faults in the copy, with this program: what the tests print goes to `log`.
fn run(checkout: &Path, faults: &[&Fault], log: &Path) -> Result<Seen> {
    let all = |of: fn(&Fault) -> &'static [&'static str]| -> String {
        let all: BTreeSet<&str> = faults.iter().flat_map(|fault| of(fault)).copied().collect();
        all.into_iter().collect::<Vec<_>>().join(",")
    };
    let program = std::env::current_exe().context("finding this program")?;
    let mut tests = Command::new(program);
    tests
        .args([
            "test",
            "--only",
            &all(|fault| fault.suites),
            "--tests",
            &all(|fault| fault.tests),
        ])
        .current_dir(checkout)
        // Its root is the copy.
        .env("CARGO_MANIFEST_DIR", checkout.join("xtask"));
    // A program with a fault must not replace the person's own.
    for directory in ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR", "CARGO_BUILD_BUILD_DIR"] {
        tests.env_remove(directory);
    }
    let mut child = tests
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("running the tests in the copy")?;
    let output = BufReader::new(child.stdout.take().context("the pipe that was just asked for")?);
    let mut file = File::create(log).with_context(|| format!("creating {}", log.display()))?;
    let mut seen = Seen::default();
    for line in output.lines() {
        let line = line.context("reading what the tests print")?;
        writeln!(file, "{line}").with_context(|| format!("writing {}", log.display()))?;
        seen.line(&line);
    }
    seen.succeeded = child.wait().context("waiting for the tests")?.success();
    Ok(seen)
}

impl Seen {
    fn line(&mut self, line: &str) {
        self.tally.line(line);
        if let Some((skipped, _)) = line.strip_prefix("SKIP ").and_then(|rest| rest.split_once(": ")) {
            self.skipped.insert(last(skipped).to_owned());
        }
        if let Some(closing) = prove::closing(line) {
            self.closing = Some(closing);
        }
    }
}

#[cfg(test)]
mod tests;
