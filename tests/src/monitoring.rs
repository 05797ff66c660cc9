//! Prometheus, Alertmanager and the OpenTelemetry Collector as processes of a test: each on free ports of the loopback, with its data in
//! a directory of the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::http::{free_port, get};
use crate::timeout::{holds, until};

/// The program that `cargo xtask test` names in `variable`; None: it could not be built here.
pub fn program(variable: &str) -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "a test's own switch")]
    std::env::var_os(variable).map(PathBuf::from)
}

/// A literal block of a YAML file: what stands below `key: |`, without its indentation.
pub fn literal(text: &str, key: &str) -> Option<String> {
    let mut lines = text.lines().skip_while(|line| line.trim() != format!("{key}: |"));
    let indent = lines.next()?.find(key)? + 2;
    let inside = |line: &&str| line.trim().is_empty() || line.len() - line.trim_start().len() >= indent;
    let block = lines.take_while(inside).map(|line| line.get(indent..).unwrap_or_default());
    Some(block.collect::<Vec<_>>().join("\n") + "\n")
}

/// A process; killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Returns when `ready` does.
    ///
    /// # Errors
    /// The program exits, or does not get ready: the error holds its log.
    pub fn start(command: &mut Command, log: PathBuf, ready: impl Fn() -> bool) -> anyhow::Result<Daemon> {
        let file = fs::File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn();
        let child = child.with_context(|| format!("start {}", command.get_program().display()))?;
        let mut daemon = Daemon { child, log };
        let name = command.get_program().display().to_string();
        until(&format!("{name} to be ready"), || {
            if let Some(status) = daemon.child.try_wait()? {
                bail!("{name} ended with {status}: {}", daemon.log());
            }
            Ok(holds(ready(), || daemon.log()))
        })?;
        Ok(daemon)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An Alertmanager that notifies nobody.
#[derive(Debug)]
pub struct Alertmanager {
    daemon: Daemon,
    pub port: u16,
}

impl Alertmanager {
    /// # Errors
    /// It does not get ready.
    pub fn start(program: &Path, directory: &Path) -> anyhow::Result<Alertmanager> {
        let (config, data) = (directory.join("alertmanager.yaml"), directory.join("alertmanager"));
        fs::write(&config, "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")?;
        let port = free_port()?;
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.path={}", data.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            // No cluster: the port would be open to the network.
            .arg("--cluster.listen-address=");
        let daemon = Daemon::start(&mut command, directory.join("alertmanager.log"), || {
            get(port, "/-/ready").is_ok_and(|(status, _)| status == 200)
        })?;
        Ok(Alertmanager { daemon, port })
    }

    /// The alerts that it has and that are not resolved.
    ///
    /// # Errors
    /// Its API does not answer.
    pub fn alerts(&self) -> anyhow::Result<Vec<Alert>> {
        let (status, body) = get(self.port, "/api/v2/alerts")?;
        ensure!(status == 200, "Alertmanager answered {status}: {body}; {}", self.daemon.log());
        let alerts: Vec<Value> = serde_json::from_str(&body).with_context(|| format!("parse {body}"))?;
        Ok(alerts.into_iter().map(Alert).collect())
    }
}

/// As Alertmanager's API has it.
#[derive(Debug)]
pub struct Alert(Value);

impl Alert {
    /// Empty if the alert does not have the label.
    pub fn label(&self, name: &str) -> &str {
        self.0["labels"][name].as_str().unwrap_or_default()
    }

    pub fn annotation(&self, name: &str) -> &str {
        self.0["annotations"][name].as_str().unwrap_or_default()
    }
}

/// A Prometheus that scrapes and evaluates every second.
#[derive(Debug)]
pub struct Prometheus {
    daemon: Daemon,
    pub port: u16,
}

impl Prometheus {
    /// `targets`: ports of the loopback.
    ///
    /// # Errors
    /// It does not get ready, or rejects the rules.
    pub fn start(
        program: &Path,
        directory: &Path,
        rules: &str,
        targets: &[u16],
        alertmanager: u16,
    ) -> anyhow::Result<Prometheus> {
        let targets: Vec<String> = targets.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let (config, data) = (directory.join("prometheus.yaml"), directory.join("prometheus"));
        fs::write(directory.join("epitaph.rules.yaml"), rules)?;
        let text = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             rule_files: [epitaph.rules.yaml]\n\
             alerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:{alertmanager}']}}]}}]}}\n\
             scrape_configs: [{{job_name: epitaph, static_configs: [{{targets: {targets:?}}}]}}]\n"
        );
        fs::write(&config, text)?;
        let port = free_port()?;
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let daemon = Daemon::start(&mut command, directory.join("prometheus.log"), || {
            get(port, "/-/ready").is_ok_and(|(status, _)| status == 200)
        })?;
        Ok(Prometheus { daemon, port })
    }

    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// Waits until every group of rules was evaluated so often from now on.
    ///
    /// # Errors
    /// They are not in time, or its metrics cannot be read.
    pub fn evaluates(&self, times: u64) -> anyhow::Result<()> {
        let done = || -> anyhow::Result<Vec<u64>> {
            let (_, metrics) = get(self.port, "/metrics")?;
            let of_groups = metrics
                .lines()
                .filter(|line| line.starts_with("prometheus_rule_group_iterations_total{"))
                .filter_map(|line| line.rsplit_once(' ')?.1.parse().ok());
            Ok(of_groups.collect())
        };
        let before = done()?;
        ensure!(!before.is_empty(), "Prometheus counts no evaluations of rules");
        until(&format!("{times} evaluations of each group of rules"), || {
            let now = done()?;
            let is_so = now.iter().zip(&before).all(|(now, before)| *now >= before + times);
            Ok(holds(is_so, || format!("{now:?}, {before:?} before")))
        })
    }

    /// The result of an instant query.
    ///
    /// # Errors
    /// Its API does not answer, or rejects the query. `query` needs no escapes in a URL.
    pub fn query(&self, query: &str) -> anyhow::Result<Vec<Value>> {
        let (status, body) = get(self.port, &format!("/api/v1/query?query={query}"))?;
        ensure!(status == 200, "Prometheus answered {status}: {body}");
        let mut answer: Value = serde_json::from_str(&body).with_context(|| format!("parse {body}"))?;
        match answer["data"]["result"].take() {
            Value::Array(result) => Ok(result),
            other => bail!("Prometheus answered {other}"),
        }
    }
}
