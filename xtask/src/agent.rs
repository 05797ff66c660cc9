//! The binary `epitaph`, with the probes inside.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use pico_args::Arguments;

use crate::{bpf, done, shell};

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let dev = args.contains("--dev");
    done(args)?;
    println!("{}", build(!dev)?.display());
    Ok(ExitCode::SUCCESS)
}

/// Builds the probes and the agent; the agent's path.
pub fn build(release: bool) -> Result<PathBuf> {
    bpf::build()?;
    bin("epitaph", "epitaph", release)
}

/// Builds binary `name` of `package`, and asks cargo where it is: the target directory is the person's choice.
pub fn bin(package: &str, name: &str, release: bool) -> Result<PathBuf> {
    let what = format!("building {name} of {package}{}", if release { ", optimised" } else { "" });
    let cargo = || {
        let mut cargo = shell::cargo();
        cargo
            .args(["build", "--package", package, "--bin", name])
            .args(release.then_some("--release"));
        cargo
    };
    shell::run(&mut cargo(), &what)?;
    let messages = shell::read(cargo().args(["--quiet", "--message-format=json"]))?;
    let mut paths = messages
        .lines()
        .filter_map(|line| line.split_once("\"executable\":\"")?.1.split_once('"'))
        .map(|(path, _)| path);
    match paths.next_back() {
        Some(path) if PathBuf::from(path).is_file() => Ok(path.into()),
        found => bail!("{what}: cargo names no such file: {found:?}"),
    }
}
