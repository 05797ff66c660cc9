//! `epitaph agent` or `epitaph observer` as a running service: its endpoints, its log, its end.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::libc::{SIGKILL, SIGTERM};

use crate::epitaph::Epitaph;
use crate::http::{free_port, get};
use crate::sys::kill;
use crate::timeout::{exit_within, holds, until};

/// Killed when dropped.
pub struct Service {
    child: Child,
    pub port: u16,
    log: std::path::PathBuf,
}

/// Nothing listens at its address.
const KUBECONFIG_WITHOUT_SERVER: &str = "\
apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: 'http://127.0.0.1:9'}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
users: [{name: none, user: {}}]
current-context: none
";

impl Service {
    /// An agent; returns once it is ready.
    ///
    /// # Errors
    /// It ends, or does not get ready.
    pub fn start(epitaph: &Epitaph, directory: &Path, args: &[&str]) -> anyhow::Result<Service> {
        Service::of("agent", epitaph, directory, args)
    }

    /// The same of another command: `observer`.
    ///
    /// # Errors
    /// It ends, or does not get ready.
    pub fn of(command: &str, epitaph: &Epitaph, directory: &Path, args: &[&str]) -> anyhow::Result<Service> {
        Service::spawn(command, epitaph.command(), directory, args)
    }

    /// An observer without an API server: it answers, and is never ready.
    ///
    /// # Errors
    /// It ends, or does not answer.
    pub fn observer_alone(epitaph: &Epitaph, directory: &Path, args: &[&str]) -> anyhow::Result<Service> {
        let kubeconfig = directory.join("kubeconfig");
        std::fs::write(&kubeconfig, KUBECONFIG_WITHOUT_SERVER)?;
        let kubeconfig = kubeconfig.to_str().context("a path of ours is text")?;
        let args = [&["--kubeconfig", kubeconfig], args].concat();
        let mut service = Service::begin("observer", epitaph.command(), directory, &args)?;
        // Until its loop runs, the answer is 503.
        service.until_answer("/healthz", |status| status == 200)?;
        Ok(service)
    }

    /// An agent as the child of `wrapper`, such as unshare(1), whose pid the service then has.
    ///
    /// # Errors
    /// As [`Service::start`].
    pub fn inside(wrapper: &[&str], epitaph: &Epitaph, directory: &Path) -> anyhow::Result<Service> {
        let (program, args) = wrapper.split_first().context("no wrapper")?;
        let mut command = epitaph.command_of(program);
        command.args(args).arg(epitaph.binary());
        Service::spawn("agent", command, directory, &[])
    }

    /// An agent that was only just started: it may still load its probes.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn begun(epitaph: &Epitaph, directory: &Path, args: &[&str]) -> anyhow::Result<Service> {
        Service::begin("agent", epitaph.command(), directory, args)
    }

    fn spawn(name: &str, command: Command, directory: &Path, args: &[&str]) -> anyhow::Result<Service> {
        let mut service = Service::begin(name, command, directory, args)?;
        service.until_ready()?;
        Ok(service)
    }

    fn begin(name: &str, mut command: Command, directory: &Path, args: &[&str]) -> anyhow::Result<Service> {
        let port = free_port()?;
        let log = directory.join(format!("{name}-{port}.log"));
        let file = std::fs::File::create(&log)?;
        let child = command
            .args([name, "--listen", &format!("127.0.0.1:{port}")])
            .args(args)
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()?;
        Ok(Service { child, port, log })
    }

    /// # Errors
    /// It ends, or does not get ready.
    pub fn until_ready(&mut self) -> anyhow::Result<()> {
        self.until_answer("/readyz", |status| status == 200)
    }

    fn until_answer(&mut self, path: &str, is_it: impl Fn(u16) -> bool) -> anyhow::Result<()> {
        until(&format!("an answer of {path}"), || {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status}: {}", self.log());
            }
            Ok(match get(self.port, path) {
                Ok((status, _)) if is_it(status) => Ok(()),
                answer => Err(format!("{answer:?}; its log: {}", self.log())),
            })
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The sum of a metric's series that have all of `labels` (as in `verdict="clean"`).
    ///
    /// # Errors
    /// /metrics does not answer, or not with numbers; there is no such series.
    pub fn metric(&self, name: &str, labels: &[&str]) -> anyhow::Result<f64> {
        self.known(name, labels)?
            .with_context(|| format!("no series {name} with {labels:?} on /metrics"))
    }

    /// The same of a counter whose series appear with the first count: 0 before.
    ///
    /// # Errors
    /// /metrics does not answer, or not with numbers.
    pub fn count(&self, name: &str, labels: &[&str]) -> anyhow::Result<f64> {
        Ok(self.known(name, labels)?.unwrap_or_default())
    }

    /// None: there is no such series.
    fn known(&self, name: &str, labels: &[&str]) -> anyhow::Result<Option<f64>> {
        let (status, body) = get(self.port, "/metrics")?;
        anyhow::ensure!(status == 200, "/metrics answered {status}");
        let series = |line: &&str| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])) && labels.iter().all(|l| line.contains(l))
        };
        let lines: Vec<&str> = body.lines().filter(series).collect();
        if lines.is_empty() {
            return Ok(None);
        }
        let values = lines.iter().map(|line| line.rsplit(' ').next().unwrap_or_default());
        values
            .map(|value| value.parse::<f64>().context("a number"))
            .sum::<anyhow::Result<f64>>()
            .map(Some)
    }

    /// Waits until the metric is at least `least`.
    ///
    /// # Errors
    /// The metric stays below `least`.
    pub fn until(&self, name: &str, labels: &[&str], least: f64) -> anyhow::Result<()> {
        until(&format!("{name} with {labels:?} of {least}"), || {
            let value = self.count(name, labels)?;
            Ok(holds(value >= least, || format!("{value}; the agent's log: {}", self.log())))
        })
    }

    /// Waits until its log has the unclean termination of that container or unit. A count on /metrics is of all that terminates on this machine.
    ///
    /// # Errors
    /// It is not logged.
    pub fn until_logged(&self, subject: &str) -> anyhow::Result<()> {
        until(&format!("the termination of {subject} in the agent's log"), || {
            let log = self.log();
            Ok(holds(log.contains(subject), || log.clone()))
        })
    }

    /// SIGKILL: nothing is let go of, nothing sent.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, then SIGKILL if it does not exit within `timeout`.
    ///
    /// # Errors
    /// It cannot be signalled or waited for.
    pub fn end(&mut self, timeout: Duration) -> anyhow::Result<ExitStatus> {
        let pid = self.child.id().cast_signed();
        kill(pid, SIGTERM)?;
        if let Some(status) = exit_within(&mut self.child, timeout)? {
            return Ok(status);
        }
        kill(pid, SIGKILL)?;
        Ok(self.child.wait()?)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
