//! The measurements: builds the agent and the measuring program optimised, and has it measure on this machine.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{agent::Built, bpf, debian, done, shell};

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let only: Option<String> = args.opt_value_from_str("--only")?;
    done(args)?;
    if let Some(part) = only.as_deref()
        && !["core", "signals", "connections", "agents", "attacks"].contains(&part)
    {
        bail!("no part `{part}`; the parts are core, signals, connections, agents, attacks");
    }
    if !shell::is_root() {
        bail!("the measurements need root: they load probes and create cgroups");
    }
    debian::ensure_optional("bpftrace", "bpftrace", "comparing with bpftrace");
    bpf::build()?;
    let selection = [
        "--release",
        "--package",
        "epitaph",
        "--bin",
        "epitaph",
        "--package",
        "epitaph-tests",
        "--bench",
        "cost",
    ];
    let built = Built::of(&selection, "building the agent and the measurements, optimised")?;
    let (epitaph, cost) = (built.bin("epitaph")?, built.bench("cost")?);
    shell::log("measuring takes some minutes; an idle machine gives the best numbers");
    let status = Command::new(&cost)
        .arg(&epitaph)
        .args(only)
        .env("PATH", shell::path())
        .status()
        .with_context(|| format!("running {}", cost.display()))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
