//! cargo-deny: licences, banned crates and sources of all dependencies, and known vulnerabilities (`deny.toml`).
//!
//! Building cargo-deny takes longer than everything else that a test run builds. So `cargo xtask test` checks with cargo-deny only
//! where `cargo xtask deny` has built it before, and says so otherwise.

use std::{
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Result, bail};
use pico_args::Arguments;

use crate::{done, shell};

const VERSION: &str = "0.20.2";

pub fn task(args: Arguments) -> Result<ExitCode> {
    done(args)?;
    if !runs() {
        install()?;
    }
    shell::run_quietly(&mut fetch(), "fetching the dependencies of all platforms")?;
    check()?;
    Ok(ExitCode::SUCCESS)
}

/// The checks, where cargo-deny is built.
pub fn if_built() -> Result<()> {
    if runs() {
        if shell::succeeds(&mut fetch()) {
            return check();
        }
        shell::log("licences and advisories of the dependencies are not checked: those of other platforms cannot be fetched");
        return Ok(());
    }
    shell::log(
        "licences and advisories of the dependencies are not checked: `cargo xtask deny` builds cargo-deny, once per machine",
    );
    Ok(())
}

fn check() -> Result<()> {
    let local = ["check", "licenses", "bans", "sources"];
    shell::run(
        deny().arg("--offline").args(local),
        "checking licences, banned crates and sources of the dependencies",
    )?;
    if !shell::succeeds(deny().args(["fetch", "db"])) {
        shell::log("advisories are not checked: RustSec's database cannot be fetched from github.com");
        return Ok(());
    }
    shell::run(
        deny().args(["--offline", "check", "advisories"]),
        "checking the dependencies for known vulnerabilities",
    )
}

/// The checks read the manifests of all dependencies, also of those that no build here needs.
fn fetch() -> Command {
    let mut cargo = shell::cargo();
    cargo.args(["fetch", "--locked"]);
    cargo
}

/// The program, for this workspace.
fn deny() -> Command {
    let mut command = Command::new(program());
    command.current_dir(shell::root()).env("PATH", shell::path());
    command
}

fn program() -> PathBuf {
    directory().join("bin/cargo-deny")
}

fn directory() -> PathBuf {
    shell::cache().join(format!("cargo-deny-{VERSION}"))
}

fn runs() -> bool {
    shell::succeeds(Command::new(program()).arg("--version"))
}

fn install() -> Result<()> {
    let mut cargo = Command::new(shell::cargo_path());
    shell::clean_rust_env(&mut cargo);
    // Unoptimised: the build takes half the time, and the checks still take seconds.
    cargo.args([
        "install",
        "cargo-deny",
        "--version",
        VERSION,
        "--locked",
        "--force",
        "--debug",
        "--root",
    ]);
    cargo.arg(directory());
    shell::run_quietly(
        &mut cargo,
        &format!("building cargo-deny {VERSION} (once, several minutes on two processors)"),
    )?;
    if !runs() {
        bail!("{} was built but does not run", program().display());
    }
    Ok(())
}
