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

/// Builds the binaries of `package`, and asks cargo where `name` is: the target directory is the person's choice.
pub fn bin(package: &str, name: &str, release: bool) -> Result<PathBuf> {
    let what = format!("building {name} of {package}{}", if release { ", optimised" } else { "" });
    let cargo = || {
        let mut cargo = shell::cargo();
        cargo
            .args(["build", "--package", package, "--bins"])
            .args(release.then_some("--release"));
        cargo
    };
    shell::run(&mut cargo(), &what)?;
    let messages = shell::read(cargo().args(["--quiet", "--message-format=json"]))?;
    let executables = messages
        .lines()
        .filter_map(|line| line.split_once("\"executable\":\"")?.1.split_once('"'));
    let found = executables
        .map(|(path, _)| PathBuf::from(path))
        .find(|path| path.file_name().is_some_and(|file| file == name));
    match found {
        Some(path) if path.is_file() => Ok(path),
        found => bail!("{what}: cargo names no such file: {found:?}"),
    }
}
