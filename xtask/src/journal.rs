//! `cargo xtask test journal`: the long runs of the journal's crash tests, with more kills and power cuts than every day.

use std::{fs, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{
    agent::Built,
    bpf, cluster, debian,
    dist::{self, Arch},
    done, shell, test,
};

/// Kills of agents, so many of which run at once, and cuts of the journal's disk.
const KILLS: u32 = 1_000;
const AGENTS: u32 = 4;
const CUTS: u32 = 50;

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let kills: Option<u32> = args.opt_free_from_str().context("reading the number of kills")?;
    done(args)?;
    if !shell::is_root() {
        bail!("the agents load probes, and the disks are mounted: run it as root");
    }
    debian::ensure(&["e2fsprogs"], "the tests of disks")?;
    bpf::build()?;
    let epitaph = Built::of(&["--package", "epitaph"], "building the agent")?.bin("epitaph")?;
    let mut cargo = shell::cargo();
    cargo.args([
        "test",
        "--package",
        "epitaph-tests",
        "--test",
        "journal",
        "--",
        "--nocapture",
        "--test-threads=1",
    ]);
    test::without_telemetry_settings(&mut cargo);
    cargo.env("EPITAPH_BIN", &epitaph);
    cargo.env("EPITAPH_KILLS", kills.unwrap_or(KILLS).to_string());
    cargo.env("EPITAPH_AGENTS", AGENTS.to_string());
    cargo.env("EPITAPH_CUTS", CUTS.to_string());
    // For the images that a machine boots with.
    let program = shell::root().join("target/xtask/epitaph");
    fs::create_dir_all(shell::root().join("target/xtask")).context("creating target/xtask")?;
    dist::strip(Arch::host()?, &epitaph, &program)?;
    cargo.env("EPITAPH_TO_BOOT", &program);
    cargo.env("EPITAPH_CLUSTER_TOOLS", cluster::machine_tools(cluster::Suite::Trixie)?);
    shell::log("killing agents takes a few seconds for each kill, of four agents at once");
    shell::run(&mut cargo, "testing the journal")?;
    Ok(ExitCode::SUCCESS)
}
