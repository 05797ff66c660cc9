//! `cargo xtask test journal`: the long runs of the journal's crash tests, with more kills and power cuts than every day.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{agent::Built, bpf, done, shell, test};

/// Kills of agents, and cuts of the journal's disk.
const KILLS: u32 = 1_000;
const CUTS: u32 = 50;

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let kills: Option<u32> = args.opt_free_from_str().context("reading the number of kills")?;
    done(args)?;
    if !shell::is_root() {
        bail!("the agents load probes, and the disks are mounted: run it as root");
    }
    bpf::build()?;
    let epitaph = Built::of(&["--package", "epitaph"], "building the agent")?.bin("epitaph")?;
    let mut cargo = shell::cargo();
    cargo.args(["test", "--package", "epitaph-tests", "--test", "journal", "--", "--nocapture"]);
    test::without_telemetry_settings(&mut cargo);
    cargo.env("EPITAPH_BIN", &epitaph);
    cargo.env("EPITAPH_KILLS", kills.unwrap_or(KILLS).to_string());
    cargo.env("EPITAPH_CUTS", CUTS.to_string());
    shell::log("killing agents takes about a second for each kill");
    shell::run(&mut cargo, "testing the journal")?;
    Ok(ExitCode::SUCCESS)
}
