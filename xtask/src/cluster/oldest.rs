//! The chart, the agent's sources and the observer at the API server of the oldest Kubernetes that the chart is for.

use std::{fs, process::ExitCode};

use anyhow::{Context as _, Result};
use pico_args::Arguments;

use super::tools;
use crate::{
    agent::{self, Built},
    done, jaeger, monitoring, shell, skips,
    skips::Allowed,
    tally::Tally,
    test::{counted, verdict, without_telemetry_settings},
};

/// The tests of crate `epitaph-tests` that start an API server.
const TESTS: [&str; 6] = [
    "chart",
    "epitaphs",
    "kubernetes_api",
    "kubernetes_events",
    "observer",
    "pods_source",
];

pub fn task(args: Arguments) -> Result<ExitCode> {
    done(args)?;
    let (tools, jaeger) = (tools::oldest_api()?, jaeger::path()?);
    let epitaph = agent::build(false)?;
    // The tests look for it beside their own programs.
    Built::of(&["--package", "kubectl-epitaph", "--bins"], "building kubectl-epitaph")?;
    let allowed = Allowed::read(skips::of_this_machine())?;
    let recorded = shell::root().join("target/xtask/oldest-skips.txt");
    fs::create_dir_all(shell::root().join("target/xtask")).context("creating target/xtask")?;
    fs::write(&recorded, "").with_context(|| format!("emptying {}", recorded.display()))?;
    let mut cargo = shell::cargo();
    cargo.args(["test", "--package", "epitaph-tests", "--no-fail-fast"]);
    cargo.args(TESTS.iter().flat_map(|test| ["--test", test]));
    without_telemetry_settings(&mut cargo);
    cargo
        .env("EPITAPH_BIN", &epitaph)
        .env("EPITAPH_SKIPS", &recorded)
        .env("EPITAPH_CLUSTER_TOOLS", &tools)
        .env("EPITAPH_JAEGER", &jaeger)
        // The schemas of pipelines, and the Prometheus that they ask.
        .envs(monitoring::programs()?);
    let mut tally = Tally::default();
    let clean = counted(&mut cargo, "testing with the oldest API server", &mut tally)?;
    let broken = u64::from(!clean && tally.failed == 0);
    let text = fs::read_to_string(&recorded).with_context(|| format!("reading {}", recorded.display()))?;
    Ok(verdict(tally, broken, &text, &allowed))
}
