//! One run of `epitaph` to its exit: its arguments, its user, and all of its output.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, ensure};

/// The binary in a directory that every user may read, independent of the build directory's permissions.
#[derive(Debug)]
pub struct Epitaph {
    binary: PathBuf,
}

impl Epitaph {
    /// # Errors
    /// There is no such program, or no room for a copy.
    pub fn copied(program: &Path, to: &Path) -> anyhow::Result<Epitaph> {
        std::fs::set_permissions(to, Permissions::from_mode(0o755))?;
        let binary = to.join("epitaph");
        // By another process: a child that a test forks then would hold our file open for writing: the file would be `busy`.
        let copied = Command::new("cp").arg(program).arg(&binary).status()?;
        ensure!(
            copied.success(),
            "copy {}: build it with cargo build -p epitaph",
            program.display()
        );
        std::fs::set_permissions(&binary, Permissions::from_mode(0o755))?;
        Ok(Epitaph { binary })
    }

    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// As the caller.
    pub fn command(&self) -> Command {
        self.command_of(&self.binary)
    }

    /// Another program, which then starts the binary.
    pub fn command_of(&self, program: impl AsRef<OsStr>) -> Command {
        quiet(Command::new(program))
    }

    /// As user `nobody`, without capabilities except those in `keep` (setpriv's syntax, such as `+bpf`; empty for none).
    pub fn as_nobody(&self, keep: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        if !keep.is_empty() {
            command.args(["--inh-caps", keep, "--ambient-caps", keep]);
        }
        command.arg("--").arg(&self.binary);
        quiet(command)
    }
}

/// No input, and none of the person's own exporter settings.
fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["OTEL_", "EPITAPH_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
}

/// Exit code and output.
#[derive(Debug)]
pub struct CommandOutput {
    /// None if a signal ended it.
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    pub fn lines(&self) -> Vec<&str> {
        self.out.lines().collect()
    }
}

/// Runs to the end.
///
/// # Errors
/// It cannot be started.
pub fn run<A: AsRef<OsStr>>(mut command: Command, args: impl IntoIterator<Item = A>) -> anyhow::Result<CommandOutput> {
    let Output { status, stdout, stderr } = command
        .args(args)
        .output()
        .with_context(|| format!("start {}", command.get_program().display()))?;
    Ok(CommandOutput {
        code: status.code(),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
    })
}
