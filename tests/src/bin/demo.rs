//! `cargo xtask demo` builds the agent and runs this program.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use epitaph_tests::demo::{Options, demo};
use epitaph_tests::programs::{self, packages};
use epitaph_tests::stories::stories;

const USAGE: &str = "usage: demo AGENT [--otlp URL] [--keep] [--record FILE] [--at-once NUMBER] [--programs | STORY...] | demo --list | demo --packages | demo --everyday-packages";

fn main() -> ExitCode {
    match play() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("demo: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn play() -> anyhow::Result<bool> {
    let mut agent = None;
    let (mut otlp, mut keep, mut only) = (None, false, Vec::new());
    let (mut record, mut at_once) = (None, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--list" => {
                stories().for_each(|s| println!("{:26} {}", s.name, s.what));
                return Ok(true);
            }
            "--packages" => {
                packages(programs::all().filter_map(programs::installed))
                    .iter()
                    .for_each(|package| println!("{package}"));
                return Ok(true);
            }
            "--everyday-packages" => {
                packages(programs::everyday_programs())
                    .iter()
                    .for_each(|package| println!("{package}"));
                return Ok(true);
            }
            "--otlp" => otlp = Some(args.next().context("--otlp needs a URL")?),
            "--programs" => only.extend(programs::all().map(|story| story.name.to_owned())),
            "--keep" => keep = true,
            "--record" => record = Some(PathBuf::from(args.next().context("--record needs a file")?)),
            "--at-once" => at_once = Some(args.next().context("--at-once needs a number")?.parse()?),
            flag if flag.starts_with('-') => bail!("no flag {flag}; {USAGE}"),
            path if agent.is_none() => agent = Some(PathBuf::from(path)),
            story => only.push(story.to_owned()),
        }
    }
    let players = std::env::current_exe()?
        .parent()
        .context("this program has no directory")?
        .to_path_buf();
    let defaults = Options::new(agent.context(USAGE)?, players);
    let options = Options {
        otlp,
        only,
        keep,
        record,
        at_once: at_once.unwrap_or(defaults.at_once),
        ..defaults
    };
    Ok(demo(&options)?.passed())
}
