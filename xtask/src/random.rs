//! `cargo xtask test random`: terminations that are drawn, not thought of, against an oracle (`tests/random`): on this machine, or with
//! `--kernels` in emulated machines with other kernels.

mod guests;

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{agent::Built, bpf, debian, shell};

/// What starts the programs of histories, with Debian's package of it.
const STARTERS: [(&str, &str); 6] = [
    ("tini", "tini"),
    ("dumb-init", "dumb-init"),
    ("runsvdir", "runit"),
    ("s6-svscan", "s6"),
    ("supervisord", "supervisor"),
    ("ip", "iproute2"),
];

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let kernels: Option<String> = args.opt_value_from_str("--kernels")?;
    if kernels.is_none() && !shell::is_root() {
        bail!("the histories run as containers under the probes: run it as root");
    }
    for (program, package) in STARTERS {
        debian::ensure_optional(program, package, "random histories");
    }
    bpf::build()?;
    let selection = ["--package", "epitaph", "--package", "random-histories", "--bins"];
    let built = Built::of(&selection, "building the agent and the players")?;
    if let Some(kernels) = kernels {
        return guests::play(&kernels, &built, args);
    }
    let mut command = Command::new(built.bin("random-histories")?);
    command.arg("--epitaph").arg(built.bin("epitaph")?).args(args.finish());
    shell::log("playing histories");
    let status = command
        .env("PATH", shell::path())
        .status()
        .context("running random-histories")?;
    Ok(shell::exit_code(status))
}
