//! `cargo xtask test programs`: real programs of Debian's packages as containers, held to their own documentation.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{agent::Built, bpf, debian, shell};

pub fn task(args: Arguments) -> Result<ExitCode> {
    let stories = args.finish();
    if !shell::is_root() {
        bail!("the programs run as containers under the probes: run it as root");
    }
    bpf::build()?;
    let built = Built::of(
        &["--package", "epitaph", "--package", "epitaph-tests", "--bins"],
        "building the agent and the players",
    )?;
    let (epitaph, demo) = (built.bin("epitaph")?, built.bin("demo")?);
    install(&demo, "--packages")?;
    let mut command = Command::new(&demo);
    command.arg(&epitaph).args(["--at-once", "4"]).env("PATH", shell::path());
    match stories.is_empty() {
        true => command.arg("--programs"),
        false => command.args(&stories),
    };
    shell::log("playing the programs");
    let status = command.status().with_context(|| format!("running {}", demo.display()))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Installs the packages that the players list for `which`.
pub fn install(demo: &std::path::Path, which: &str) -> Result<()> {
    let listed = shell::read(Command::new(demo).arg(which))?;
    let packages: Vec<&str> = listed.split_whitespace().collect();
    debian::ensure(&packages, "the tests of real programs")
}
