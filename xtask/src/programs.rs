//! `cargo xtask test programs`: real programs of Debian's packages as containers, held to their own documentation.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{agent::Built, bpf, debian, shell};

const PURPOSE: &str = "the tests of real programs";

pub fn task(args: Arguments) -> Result<ExitCode> {
    let stories = args.finish();
    if !shell::is_root() {
        bail!("the programs run as containers under the probes: run it as root");
    }
    bpf::build()?;
    let selection = ["--package", "epitaph", "--package", "epitaph-tests", "--bins"];
    let built = Built::of(&selection, "building the agent and the players")?;
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
    Ok(shell::exit_code(status))
}

/// Installs the programs of the everyday tests; false where that is impossible.
pub fn of_everyday(demo: &Path) -> bool {
    let installed = install(demo, "--everyday-packages");
    if let Err(error) = &installed {
        shell::log(format_args!("going on without the real programs: {error:#}"));
    }
    installed.is_ok()
}

/// Installs the packages that the players list.
fn install(demo: &Path, list: &str) -> Result<()> {
    let listed = shell::read(Command::new(demo).arg(list))?;
    debian::ensure(&listed.split_whitespace().collect::<Vec<_>>(), PURPOSE)
}
