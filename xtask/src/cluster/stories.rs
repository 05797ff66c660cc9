//! The stories on the real cluster, and their totals.

use std::{fs, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use super::{BUILDS, debian_of_nodes, run, state, tools};
use crate::{
    agent::Built,
    bpf, shell, skips,
    skips::Allowed,
    tally::Tally,
    test::{counted, verdict, without_telemetry_settings},
};

/// Of a new cluster, unless told; one that is up is taken as it is.
const NODES: u8 = 1;

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let suite = debian_of_nodes(&mut args)?;
    let nodes = args.opt_value_from_str("--nodes")?.unwrap_or(NODES);
    let at_once: Option<u8> = args.opt_value_from_str("--at-once")?;
    let stories = args.finish();
    if let Some(flag) = stories.iter().find(|name| name.as_encoded_bytes().starts_with(b"-")) {
        bail!("unexpected flag `{}`; stories are chosen by name", flag.to_string_lossy());
    }
    bpf::build()?;
    let epitaph = Built::of(&BUILDS, "building the agent, the program `cluster` and its tests")?.bin("epitaph")?;
    let tools = tools::all(Some(suite))?;
    if run(
        &["up".into(), "--nodes".into(), nodes.to_string().into()],
        Some(tools.clone()),
    )? != ExitCode::SUCCESS
    {
        bail!("no cluster to play the stories on");
    }

    let allowed = Allowed::read(skips::of_this_machine())?;
    let recorded = shell::root().join("target/xtask/cluster-skips.txt");
    fs::create_dir_all(shell::root().join("target/xtask")).context("creating target/xtask")?;
    fs::write(&recorded, "").with_context(|| format!("emptying {}", recorded.display()))?;
    let mut cargo = shell::cargo();
    cargo.args(["test", "--test", "cluster", "--no-fail-fast", "--"]);
    cargo.args(at_once.map(|number| format!("--test-threads={number}")));
    cargo.args(&stories);
    without_telemetry_settings(&mut cargo);
    cargo
        .env("EPITAPH_BIN", &epitaph)
        .env("EPITAPH_SKIPS", &recorded)
        .env("EPITAPH_CLUSTER", state())
        .env("EPITAPH_CLUSTER_TOOLS", &tools);
    let mut tally = Tally::default();
    let clean = counted(&mut cargo, "playing the stories on the cluster", &mut tally)?;
    let broken = u64::from(!clean && tally.failed == 0);
    let text = fs::read_to_string(&recorded).with_context(|| format!("reading {}", recorded.display()))?;
    Ok(verdict(tally, broken, &text, &allowed))
}
