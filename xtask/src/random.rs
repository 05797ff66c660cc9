//! `cargo xtask test random`: terminations that are drawn, not thought of, against an oracle (`tests/random`).

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{agent::Built, bpf, debian, shell};

pub fn task(args: Arguments) -> Result<ExitCode> {
    let args = args.finish();
    if !shell::is_root() {
        bail!("the histories run as containers under the probes: run it as root");
    }
    for (program, package) in [
        ("tini", "tini"),
        ("dumb-init", "dumb-init"),
        ("runsvdir", "runit"),
        ("s6-svscan", "s6"),
        ("supervisord", "supervisor"),
        ("ip", "iproute2"),
    ] {
        debian::ensure_optional(program, package, "random histories");
    }
    bpf::build()?;
    let selection = ["--package", "epitaph", "--package", "random-histories", "--bins"];
    let built = Built::of(&selection, "building the agent and the players")?;
    let mut command = Command::new(built.bin("random-histories")?);
    command.arg("--epitaph").arg(built.bin("epitaph")?).args(&args);
    shell::log("playing histories");
    let status = command
        .env("PATH", shell::path())
        .status()
        .context("running random-histories")?;
    Ok(shell::exit_code(status))
}
