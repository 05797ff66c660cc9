//! The binary `epitaph`, with the probes inside.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use pico_args::Arguments;

use crate::{bpf, dist, done, shell};

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let dev = args.contains("--dev");
    done(args)?;
    let program = if dev {
        build(false)?
    } else {
        let dist = dist::build(dist::Arch::host()?)?;
        shell::log(format_args!("the debug information is in {}", dist.debug.display()));
        dist.program
    };
    println!("{}", program.display());
    Ok(ExitCode::SUCCESS)
}

/// Builds the probes and the agent; the agent's path. Its debug information is in it.
pub fn build(release: bool) -> Result<PathBuf> {
    bpf::build()?;
    let selection: &[&str] = if release {
        &["--release", "--package", "epitaph", "--bins"]
    } else {
        &["--package", "epitaph", "--bins"]
    };
    Built::of(selection, "building epitaph")?.bin("epitaph")
}

/// The executables that one call of `cargo build` reported: the target directory is the person's choice.
pub struct Built {
    executables: Vec<PathBuf>,
}

impl Built {
    /// Builds what `selection` selects. All that a task needs belongs into one selection: cargo joins the features of
    /// dependencies within it, and would build them anew for another.
    pub fn of(selection: &[&str], what: &str) -> Result<Built> {
        let cargo = || {
            let mut cargo = shell::cargo();
            cargo.arg("build").args(selection);
            cargo
        };
        shell::run(&mut cargo(), what)?;
        let messages = shell::read(cargo().args(["--quiet", "--message-format=json"]))?;
        Ok(Built::reported(&messages))
    }

    /// The executables in cargo's messages.
    pub fn reported(messages: &str) -> Built {
        let executables = messages
            .lines()
            .filter_map(|line| line.split_once("\"executable\":\"")?.1.split_once('"'));
        Built {
            executables: executables.map(|(path, _)| PathBuf::from(path)).collect(),
        }
    }

    pub fn bin(&self, name: &str) -> Result<PathBuf> {
        self.find(name, |file| file == name)
    }

    /// Cargo appends a hash to a bench target's name.
    pub fn bench(&self, name: &str) -> Result<PathBuf> {
        self.find(name, |file| file.rsplit_once('-').is_some_and(|(stem, _)| stem == name))
    }

    fn find(&self, name: &str, is_it: impl Fn(&str) -> bool) -> Result<PathBuf> {
        let named = |path: &&PathBuf| path.file_name().and_then(|file| file.to_str()).is_some_and(&is_it);
        match self.executables.iter().find(named) {
            Some(path) if path.is_file() => Ok(path.clone()),
            found => bail!("cargo build reported no executable {name}: {found:?}"),
        }
    }
}
