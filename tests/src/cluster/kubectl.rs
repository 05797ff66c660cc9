//! kubectl, the client of people and of tests.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// kubectl as one user.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Kubectl {
    /// `cache` is a directory for what it knows of the API, one per API server.
    pub fn new(program: &Path, kubeconfig: &Path, cache: &Path) -> Kubectl {
        Kubectl {
            program: program.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            cache: cache.to_owned(),
        }
    }

    /// To start it oneself: for `watch`, `exec -it`, `port-forward`.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--cache-dir")
            .arg(&self.cache)
            .env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// Its standard output.
    ///
    /// # Errors
    /// kubectl fails: the error holds its output.
    pub fn run(&self, args: &[&str]) -> anyhow::Result<String> {
        self.run_with(args, "")
    }

    /// The same with `input` on its standard input.
    ///
    /// # Errors
    /// kubectl fails: the error holds its output.
    pub fn run_with(&self, args: &[&str], input: &str) -> anyhow::Result<String> {
        let mut command = self.command();
        command.args(args);
        output(command, &format!("kubectl {}", args.join(" ")), input)
    }

    /// The same, its output read as JSON: `-o json` is the caller's to ask for.
    ///
    /// # Errors
    /// kubectl fails, or its output is not JSON.
    pub fn json(&self, args: &[&str]) -> anyhow::Result<Value> {
        let text = self.run(args)?;
        serde_json::from_str(&text).with_context(|| format!("kubectl {}: not JSON: {text}", args.join(" ")))
    }

    /// Applies manifests, YAML or JSON, by server-side apply.
    ///
    /// # Errors
    /// The API server refuses one of them.
    pub fn apply(&self, manifests: &str) -> anyhow::Result<()> {
        let args = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.run_with(&args, manifests).map(drop)
    }
}

/// Standard output of `command`, given `input`.
///
/// # Errors
/// The command fails: the error holds its standard error.
pub fn output(mut command: Command, what: &str, input: &str) -> anyhow::Result<String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| what.to_owned())?;
    let mut stdin = child.stdin.take().with_context(|| what.to_owned())?;
    // The program may exit without having read all of its input: its own output explains why.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().with_context(|| what.to_owned())?;
    if !output.status.success() {
        bail!(
            "{what}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
