//! The control plane, natively and on the loopback alone: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

mod api_server;
mod etcd;
mod users;

use std::fs::{self, DirBuilder};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use nix::libc::SIGKILL;
use serde::{Deserialize, Serialize};

use crate::cluster::credentials::{Authority, token_key, write_private};
use crate::cluster::process::{Lifetime, Process};
use crate::cluster::{FEATURE_GATES, HOST_FOR_GUESTS, Tools};
use crate::http::free_port;
use crate::timeout::until_within;

const ETCD: &str = "etcd";
const API_SERVER: &str = "kube-apiserver";
const CONTROLLERS: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";
/// Of Services, IPv4 and IPv6.
pub const SERVICE_CIDRS: [&str; 2] = ["10.96.0.0/16", "fd00:96::/108"];
const TO_END: Duration = Duration::from_secs(5);
/// On a loaded machine.
const TO_START: Duration = Duration::from_secs(180);

/// The parts that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// etcd and kube-apiserver: no controller acts, nothing is scheduled, ServiceAccounts are made by hand.
    ApiOnly,
    /// And controllers and scheduler, but no node: with the API server of any version, whose feature gates are the default.
    NoNodes,
    /// What nodes need too: [`FEATURE_GATES`].
    Full,
}

/// A control plane in a directory of its own. With [`Lifetime::Caller`] it stops on drop: not to be kept in a static, which
/// is never dropped.
#[derive(Debug)]
pub struct ControlPlane {
    directory: PathBuf,
    tools: Tools,
    parts: Parts,
    lifetime: Lifetime,
    ports: Ports,
    /// Further flags of kube-apiserver.
    flags: Vec<String>,
    /// Further flags of kube-controller-manager.
    controller_flags: Vec<String>,
    processes: Vec<Process>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Ports {
    etcd: u16,
    api_server: u16,
}

impl ControlPlane {
    /// etcd and kube-apiserver alone, new, in `directory`; both stop on drop.
    ///
    /// # Errors
    /// One of them does not come up.
    pub fn api_only(tools: &Tools, directory: &Path) -> anyhow::Result<ControlPlane> {
        ControlPlane::api_only_with(tools, directory, &[])
    }

    /// The same with further flags of kube-apiserver.
    ///
    /// # Errors
    /// One of them does not come up.
    pub fn api_only_with(tools: &Tools, directory: &Path, flags: &[&str]) -> anyhow::Result<ControlPlane> {
        ControlPlane::start_with(tools, directory, Parts::ApiOnly, Lifetime::Caller, (flags, &[]))
    }

    /// Every part, new, in `directory`, with further flags of kube-apiserver and kube-controller-manager; all stop on drop.
    ///
    /// # Errors
    /// One of them does not come up.
    pub fn without_nodes(
        tools: &Tools,
        directory: &Path,
        flags: &[&str],
        controller_flags: &[&str],
    ) -> anyhow::Result<ControlPlane> {
        ControlPlane::start_with(tools, directory, Parts::NoNodes, Lifetime::Caller, (flags, controller_flags))
    }

    /// Starts the parts in `directory` that do not run yet, and returns when the API server is ready.
    ///
    /// # Errors
    /// A part does not come up: the error holds the end of its log.
    pub fn start(tools: &Tools, directory: &Path, parts: Parts, lifetime: Lifetime) -> anyhow::Result<ControlPlane> {
        ControlPlane::start_with(tools, directory, parts, lifetime, (&[], &[]))
    }

    fn start_with(
        tools: &Tools,
        directory: &Path,
        parts: Parts,
        lifetime: Lifetime,
        (flags, controller_flags): (&[&str], &[&str]),
    ) -> anyhow::Result<ControlPlane> {
        for directory in [directory.to_owned(), directory.join("credentials"), directory.join("logs")] {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
            made.with_context(|| format!("create {}", directory.display()))?;
        }
        let mut plane = ControlPlane::open(tools, directory, parts, lifetime)?;
        plane.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        plane.controller_flags = controller_flags.iter().map(|flag| (*flag).to_owned()).collect();
        plane.start_etcd()?;
        plane.start_api_server()?;
        if parts != Parts::ApiOnly {
            plane.start_controllers()?;
        }
        Ok(plane)
    }

    /// The control plane in `directory`, as it is: nothing is started.
    ///
    /// # Errors
    /// Its records cannot be read.
    pub fn open(tools: &Tools, directory: &Path, parts: Parts, lifetime: Lifetime) -> anyhow::Result<ControlPlane> {
        let records = directory.join("processes");
        let mut processes = Vec::new();
        for name in [CONTROLLERS, SCHEDULER, API_SERVER, ETCD] {
            processes.extend(Process::find(name, &records)?);
        }
        Ok(ControlPlane {
            directory: directory.to_owned(),
            tools: tools.clone(),
            parts,
            lifetime,
            ports: ports(directory)?,
            flags: Vec::new(),
            controller_flags: Vec::new(),
            processes,
        })
    }

    fn feature_gates(&self) -> Option<String> {
        let gates: Vec<String> = FEATURE_GATES.iter().map(|(name, on)| format!("{name}={on}")).collect();
        (self.parts == Parts::Full).then(|| format!("--feature-gates={}", gates.join(",")))
    }

    /// Port of the API server on 127.0.0.1. The port stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.ports.api_server
    }

    /// Its URL for programs on this machine.
    pub fn url(&self) -> String {
        format!("https://{}:{}", Ipv4Addr::LOCALHOST, self.ports.api_server)
    }

    /// Its URL for nodes and their pods.
    pub fn url_for_guests(&self) -> String {
        format!("https://{HOST_FOR_GUESTS}:{}", self.ports.api_server)
    }

    /// Stops every part, the last started first.
    ///
    /// # Errors
    /// A part cannot be stopped.
    pub fn end_all(&mut self) -> anyhow::Result<()> {
        for name in [CONTROLLERS, SCHEDULER, API_SERVER, ETCD] {
            self.end(name, TO_END)?;
        }
        Ok(())
    }

    /// Name and pid of each part that runs.
    pub fn running(&mut self) -> Vec<(String, i32)> {
        let running = self.processes.iter_mut().filter_map(|process| {
            let runs = process.runs();
            runs.then(|| (process.name().to_owned(), process.pid()))
        });
        running.collect()
    }

    /// Starts the controllers and the scheduler that do not run.
    ///
    /// # Errors
    /// One does not start.
    pub fn start_controllers(&mut self) -> anyhow::Result<()> {
        let signer = self.signer("ca")?;
        let token_key = token_key(&self.directory.join("credentials"))?.0;
        for name in [CONTROLLERS, SCHEDULER] {
            let file = self.directory.join(format!("credentials/{name}.kubeconfig"));
            let text = self.kubeconfig_for(&format!("system:{name}"), None, &self.url())?;
            write_private(&file, text.as_bytes())?;
            let mut command = Command::new(self.tools.program(name));
            command
                .arg(flag("kubeconfig", &file))
                .arg(flag("authentication-kubeconfig", &file))
                .arg(flag("authorization-kubeconfig", &file))
                .arg("--leader-elect=false")
                .arg("--secure-port=0")
                .args(self.feature_gates())
                .arg("--profiling=false");
            if name == CONTROLLERS {
                command
                    .arg("--use-service-account-credentials=true")
                    .arg(flag("service-account-private-key-file", &token_key))
                    .arg(flag("root-ca-file", &signer.file))
                    .arg(format!("--service-cluster-ip-range={}", SERVICE_CIDRS.join(",")))
                    .arg("--node-monitor-period=2s")
                    .arg("--node-monitor-grace-period=40s")
                    // The last of several values counts.
                    .args(&self.controller_flags);
            }
            self.ensure(name, command)?;
        }
        // Without the namespace no pod is admitted in `default`: the controllers make the namespace, seconds after they start.
        let kubectl = self.kubectl();
        self.until(CONTROLLERS, self.ports.api_server, || {
            kubectl.run(&["-n", "default", "get", "serviceaccount", "default"]).map(drop)
        })
    }

    fn signer(&self, name: &str) -> anyhow::Result<Authority> {
        Authority::open(&self.directory.join("credentials"), name)
    }

    fn ensure(&mut self, name: &str, command: Command) -> anyhow::Result<()> {
        if self
            .processes
            .iter_mut()
            .any(|process| process.name() == name && process.runs())
        {
            return Ok(());
        }
        self.processes.retain(|process| process.name() != name);
        let records = self.directory.join("processes");
        let process = Process::start(name, command, &self.log(name), &records, self.lifetime)?;
        self.processes.push(process);
        Ok(())
    }

    /// Waits until `name` listens and `answers`.
    fn until(&mut self, name: &str, port: u16, answers: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let log = self.log(name);
        until_within(TO_START, &format!("{name} to be ready; see {}", log.display()), || {
            if let Some(process) = self.processes.iter_mut().find(|process| process.name() == name) {
                process.expect_running(&log)?;
            }
            Ok(match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                Ok(_) => answers().map_err(|error| format!("{error:#}")),
                Err(error) => Err(format!("port {port}: {error}")),
            })
        })
    }

    fn end(&mut self, name: &str, timeout: Duration) -> anyhow::Result<()> {
        for process in self.processes.iter_mut().filter(|process| process.name() == name) {
            process.end(timeout)?;
        }
        self.processes.retain(|process| process.name() != name);
        Ok(())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.directory.join("logs").join(format!("{name}.log"))
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::Caller {
            for process in &mut self.processes {
                // The data is discarded, so an orderly stop is not needed.
                let _ = process.signal(SIGKILL);
                let _ = process.end(TO_END);
            }
        }
    }
}

/// The ports that this directory's parts were given when they first started.
fn ports(directory: &Path) -> anyhow::Result<Ports> {
    let file = directory.join("ports.json");
    if let Ok(text) = fs::read(&file) {
        return serde_json::from_slice(&text).with_context(|| format!("read {}", file.display()));
    }
    let ports = Ports {
        etcd: free_port()?,
        api_server: free_port()?,
    };
    write_private(&file, &serde_json::to_vec(&ports)?)?;
    Ok(ports)
}

fn flag(name: &str, file: &Path) -> String {
    format!("--{name}={}", file.display())
}
