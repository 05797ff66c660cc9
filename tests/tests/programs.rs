//! One run of the agent over the real programs that take seconds, a test each: inits, language runtimes, and servers under load, of
//! Debian's packages. The other servers: `cargo xtask test programs`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use epitaph_tests::agent;
use epitaph_tests::demo::{Options, run};
use epitaph_tests::machine::is_root;
use epitaph_tests::programs::everyday;
use epitaph_tests::report::Report;
use epitaph_tests::skip::skip;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let args = Arguments::from_args();
    let wanted = |name: &&str| match &args.filter {
        Some(filter) if args.exact => full_name(name) == *filter,
        Some(filter) => full_name(name).contains(filter.as_str()),
        None => true,
    };
    let names: Vec<&'static str> = everyday().map(|story| story.name).filter(|name| wanted(name)).collect();
    let played: Arc<OnceLock<Result<Report, String>>> = Arc::new(OnceLock::new());
    let trials = names.iter().map(|&name| {
        let (played, names) = (Arc::clone(&played), names.clone());
        Trial::test(full_name(name), move || {
            if !is_root() {
                skip(&full_name(name), "playing it needs root");
                return Ok(());
            }
            let report = played.get_or_init(|| play(&names));
            verdict(report.as_ref().map_err(Failed::from)?, name)
        })
    });
    libtest_mimic::run(&args, trials.collect()).exit();
}

fn full_name(story: &str) -> String {
    format!("program-{story}")
}

fn play(names: &[&'static str]) -> Result<Report, String> {
    let players = Path::new(env!("CARGO_BIN_EXE_victim"))
        .parent()
        .map_or_else(PathBuf::new, Path::to_path_buf);
    let mut options = Options::new(agent::program(&players), players);
    options.only = names.iter().map(|&name| name.to_owned()).collect();
    run(&options, &mut |_| {}).map_err(|e| format!("{e:#}"))
}

fn verdict(report: &Report, name: &'static str) -> Result<(), Failed> {
    if let Some((_, reason)) = report.unplayable.iter().find(|(unplayable, _)| *unplayable == name) {
        skip(&full_name(name), reason);
        return Ok(());
    }
    let case = report.case(name).ok_or("the program was not played")?;
    let differs = case.differs();
    if differs.is_empty() {
        return Ok(());
    }
    let judged = case.judged().map_or_else(String::new, |judged| format!("{judged:#}"));
    Err(format!("{}\njudged: {judged}\nplayed: {:#?}", differs.join("\n"), case.played).into())
}
