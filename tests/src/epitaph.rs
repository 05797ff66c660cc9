//! One call of `epitaph` that ends by itself: its arguments, who calls, and all that it said.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, ensure};

/// The binary in a directory that everybody may read, whatever the one that it was built in allows.
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
        // By another process: one that a test forks meanwhile would hold our file open for writing, which is then `busy`.
        let copied = Command::new("cp").arg(program).arg(&binary).status()?;
        ensure!(
            copied.success(),
            "copy {}: build it with cargo build -p epitaph",
            program.display()
        );
        std::fs::set_permissions(&binary, Permissions::from_mode(0o755))?;
        Ok(Epitaph { binary })
    }

    pub fn path(&self) -> &Path {
        &self.binary
    }

    /// As the caller.
    pub fn command(&self) -> Command {
        quiet(Command::new(&self.binary))
    }

    /// As nobody, without any capability but those in `keep` (setpriv's words, such as `+bpf`; empty for none).
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

/// How it ended, and what it said.
#[derive(Debug)]
pub struct Said {
    /// None where a signal ended it.
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn lines(&self) -> Vec<&str> {
        self.out.lines().collect()
    }
}

/// Runs to the end.
///
/// # Errors
/// It cannot be started.
pub fn run<A: AsRef<OsStr>>(mut command: Command, args: impl IntoIterator<Item = A>) -> anyhow::Result<Said> {
    let Output { status, stdout, stderr } = command
        .args(args)
        .output()
        .with_context(|| format!("start {}", command.get_program().display()))?;
    Ok(Said {
        code: status.code(),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
    })
}
