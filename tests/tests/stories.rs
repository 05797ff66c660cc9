//! The agent's verdict on every story, one test per story over one run of the agent.
//!
//! `EPITAPH_BIN` is the agent; where it is not set, the `epitaph` beside this package's own binaries.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use epitaph_tests::demo::{Options, run};
use epitaph_tests::machine::is_root;
use epitaph_tests::report::Report;
use epitaph_tests::skip::skip;
use epitaph_tests::stories::stories;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let args = Arguments::from_args();
    let shared = Arc::new(Shared {
        options: options(&args),
        report: OnceLock::new(),
    });
    let mut trials: Vec<Trial> = stories()
        .map(|story| {
            let shared = Arc::clone(&shared);
            Trial::test(full_name(story.name), move || shared.verdict(story.name))
        })
        .collect();
    trials.push(Trial::test(full_name("the-agent-behaves"), move || shared.agent()));
    libtest_mimic::run(&args, trials).exit();
}

fn full_name(story: &str) -> String {
    format!("verdict::{story}")
}

struct Shared {
    options: Options,
    report: OnceLock<Result<Report, String>>,
}

impl Shared {
    /// Plays them all, the first time.
    fn report(&self) -> Result<&Report, Failed> {
        let report = self
            .report
            .get_or_init(|| run(&self.options, &mut |_| {}).map_err(|e| format!("{e:#}")));
        report.as_ref().map_err(Failed::from)
    }

    fn verdict(&self, story: &str) -> Result<(), Failed> {
        if !is_root() {
            skip(story, "playing it needs root");
            return Ok(());
        }
        let report = self.report()?;
        if let Some((_, reason)) = report.unplayable.iter().find(|(name, _)| *name == story) {
            skip(story, reason);
            return Ok(());
        }
        let case = report.case(story).ok_or("it was not played")?;
        let differs = case.differs();
        if differs.is_empty() {
            return Ok(());
        }
        let judged = case.judged().map_or_else(String::new, |j| format!("{j:#}"));
        Err(format!("{}\njudged: {judged}\nplayed: {:#?}", differs.join("\n"), case.played).into())
    }

    /// Its output is JSON throughout, and SIGTERM ends it with success.
    fn agent(&self) -> Result<(), Failed> {
        if !is_root() {
            skip("the-agent-behaves", "observing needs root");
            return Ok(());
        }
        let problems = &self.report()?.problems;
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("\n").into())
        }
    }
}

/// A filter on the command line plays only what it leaves.
fn options(args: &Arguments) -> Options {
    let players = Path::new(env!("CARGO_BIN_EXE_victim"))
        .parent()
        .map_or_else(PathBuf::new, Path::to_path_buf);
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's own setting: there is no configuration to read it in"
    )]
    let agent = std::env::var_os("EPITAPH_BIN").map_or_else(|| players.join("epitaph"), PathBuf::from);
    let mut options = Options::new(agent, players);
    if let Some(filter) = &args.filter {
        let wanted = |name: &&str| {
            let name = full_name(name);
            if args.exact {
                name == *filter
            } else {
                name.contains(filter.as_str())
            }
        };
        options.only = stories().map(|s| s.name).filter(wanted).map(str::to_owned).collect();
    }
    options
}
