//! helm, by which people install the chart.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::Tools;
use super::kubectl::output;

/// helm with a home of its own, as one user of an API server or of none.
#[derive(Clone, Debug)]
pub struct Helm {
    program: PathBuf,
    home: PathBuf,
    kubeconfig: Option<PathBuf>,
}

impl Helm {
    /// Without a cluster: for `template`, `lint` and `package`. `home` is a directory for helm's own files.
    pub fn new(tools: &Tools, home: &Path) -> Helm {
        Helm {
            program: tools.program("helm"),
            home: home.to_owned(),
            kubeconfig: None,
        }
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The same for a cluster.
    #[must_use]
    pub fn with(self, kubeconfig: &Path) -> Helm {
        Helm {
            kubeconfig: Some(kubeconfig.to_owned()),
            ..self
        }
    }

    /// Its standard output.
    ///
    /// # Errors
    /// helm fails: the error holds its output.
    pub fn run(&self, args: &[&str]) -> anyhow::Result<String> {
        self.run_with(args, "")
    }

    /// The same with values on its standard input, for `--values -`.
    ///
    /// # Errors
    /// helm fails: the error holds its output.
    pub fn run_values(&self, args: &[&str], values: &Value) -> anyhow::Result<String> {
        self.run_with(&[args, &["--values", "-"]].concat(), &values.to_string())
    }

    fn run_with(&self, args: &[&str], input: &str) -> anyhow::Result<String> {
        let mut command = Command::new(&self.program);
        command.args(args);
        for (name, directory) in [
            ("HELM_CACHE_HOME", "cache"),
            ("HELM_CONFIG_HOME", "config"),
            ("HELM_DATA_HOME", "data"),
        ] {
            command.env(name, self.home.join(directory));
        }
        match &self.kubeconfig {
            Some(file) => command.env("KUBECONFIG", file),
            // Never the person's own cluster.
            None => command.env("KUBECONFIG", self.home.join("no-kubeconfig")),
        };
        output(command, &format!("helm {}", args.join(" ")), input)
    }
}

/// The chart of this checkout.
pub fn chart() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/helm/epitaph")
}
