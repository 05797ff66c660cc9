//! One run of the agent over all stories, recorded and sent to a real Jaeger: its verdict on every story (a test each), the
//! traces that Jaeger then has, and the replay of the recording, whole and damaged.
//!
//! `EPITAPH_BIN` is the agent; if not set, the `epitaph` in the directory of this package's own binaries. `EPITAPH_JAEGER` is
//! Jaeger.

mod replays;
mod traces;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use epitaph_tests::agent;
use epitaph_tests::demo::{Options, run};
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::jaeger::Jaeger;
use epitaph_tests::machine::is_root;
use epitaph_tests::report::Report;
use epitaph_tests::skip::skip;
use epitaph_tests::stories::all;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let args = Arguments::from_args();
    let shared = Arc::new(Shared {
        options: options(&args),
        ran: OnceLock::new(),
    });
    let mut trials: Vec<Trial> = all()
        .map(|story| {
            let shared = Arc::clone(&shared);
            Trial::test(full_name(story.name), move || shared.verdict(story.name))
        })
        .collect();
    type Test = fn(&Shared) -> Result<(), Failed>;
    let over_all: [(&str, Test); 5] = [
        ("verdict::the-agent-behaves", Shared::agent),
        (
            "traces::jaeger-has-each-termination-once",
            traces::jaeger_has_each_termination_once,
        ),
        ("replay::any-user-gets-the-same-lines", replays::any_user_gets_the_same_lines),
        ("replay::truncated-it-loses-its-tail", replays::truncated_it_loses_its_tail),
        ("replay::corrupted-it-claims-nothing", replays::corrupted_it_claims_nothing),
    ];
    for (name, test) in over_all {
        let shared = Arc::clone(&shared);
        trials.push(Trial::test(name, move || {
            if is_root() {
                return test(&shared);
            }
            skip(name.rsplit("::").next().unwrap_or(name), "observing needs root");
            Ok(())
        }));
    }
    let conclusion = libtest_mimic::run(&args, trials);
    // Before the process goes: Jaeger is a child of it, and the recording a file.
    drop(shared);
    conclusion.exit();
}

fn full_name(story: &str) -> String {
    format!("verdict::{story}")
}

struct Shared {
    options: Options,
    ran: OnceLock<Result<Ran, String>>,
}

/// What is left of the run.
struct Ran {
    report: Report,
    /// Holds the files.
    _directory: tempfile::TempDir,
    recording: PathBuf,
    epitaph: Epitaph,
    /// None if there is no Jaeger to start.
    jaeger: Option<Jaeger>,
}

impl Shared {
    /// Plays them all, the first time.
    fn ran(&self) -> Result<&Ran, Failed> {
        let ran = self
            .ran
            .get_or_init(|| play(self.options.clone()).map_err(|e| format!("{e:#}")));
        ran.as_ref().map_err(Failed::from)
    }

    fn report(&self) -> Result<&Report, Failed> {
        Ok(&self.ran()?.report)
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
        let case = report.case(story).ok_or("the story was not played")?;
        let differs = case.differs();
        if differs.is_empty() {
            return Ok(());
        }
        let judged = case.judged().map_or_else(String::new, |j| format!("{j:#}"));
        Err(format!("{}\njudged: {judged}\nplayed: {:#?}", differs.join("\n"), case.played).into())
    }

    /// Its output is JSON throughout, and SIGTERM ends it with success.
    fn agent(&self) -> Result<(), Failed> {
        let problems = &self.report()?.problems;
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("\n").into())
        }
    }
}

fn play(mut options: Options) -> anyhow::Result<Ran> {
    let directory = tempfile::tempdir()?;
    let epitaph = Epitaph::copied(&options.agent, directory.path())?;
    let recording = directory.path().join("terminations.epitaph");
    #[expect(clippy::disallowed_methods, reason = "a test's own switch")]
    let jaeger = match std::env::var_os("EPITAPH_JAEGER") {
        Some(binary) => Some(Jaeger::start(binary.as_ref(), &directory.path().join("jaeger.log"))?),
        None => None,
    };
    options.otlp = jaeger.as_ref().map(|j| format!("http://127.0.0.1:{}", j.ports().otlp_http));
    options.record = Some(recording.clone());
    Ok(Ran {
        report: run(&options, &mut |_| {})?,
        _directory: directory,
        recording,
        epitaph,
        jaeger,
    })
}

/// A filter on the command line plays only what it leaves.
fn options(args: &Arguments) -> Options {
    let players = Path::new(env!("CARGO_BIN_EXE_victim"))
        .parent()
        .map_or_else(PathBuf::new, Path::to_path_buf);
    let mut options = Options::new(agent::program(&players), players);
    let wanted = |name: &&str| {
        let Some(filter) = &args.filter else { return true };
        let name = full_name(name);
        if args.exact {
            name == *filter
        } else {
            name.contains(filter.as_str())
        }
    };
    options.only = all().map(|s| s.name).filter(wanted).map(str::to_owned).collect();
    options
}
