//! Programs from crates, each at one version, built once per machine.

use std::{path::PathBuf, process::Command};

use anyhow::{Result, bail};

use crate::shell;

/// A program that runs as `cargo SUBCOMMAND`.
pub struct CrateTool {
    pub name: &'static str,
    pub version: &'static str,
    pub subcommand: &'static str,
}

impl CrateTool {
    /// A command of the program, built if need be, in the workspace.
    pub fn command(&self, takes: &str) -> Result<Command> {
        let CrateTool { name, version, .. } = self;
        let dir = shell::cache().join(format!("{name}-{version}"));
        let program = dir.join("bin").join(name);
        if !self.runs(&program) {
            let mut cargo = Command::new(shell::cargo_path());
            shell::clean_rust_env(&mut cargo);
            cargo
                .args(["install", name, "--version", version, "--locked", "--force", "--root"])
                .arg(&dir);
            shell::run_quietly(&mut cargo, &format!("building {name} {version} (once, {takes})"))?;
            if !self.runs(&program) {
                bail!("{} was built but does not run", program.display());
            }
        }
        let mut command = Command::new(program);
        shell::clean_rust_env(&mut command);
        command
            .current_dir(shell::root())
            .env("CARGO", shell::cargo_path())
            .arg(self.subcommand);
        Ok(command)
    }

    fn runs(&self, program: &PathBuf) -> bool {
        shell::succeeds(
            Command::new(program)
                .args([self.subcommand, "--version"])
                .env_remove("LD_LIBRARY_PATH"),
        )
    }
}
