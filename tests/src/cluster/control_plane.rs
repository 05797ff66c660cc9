//! The control plane, natively and on the loopback alone: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

use std::fs::{self, DirBuilder};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::libc::SIGKILL;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cluster::credentials::{Authority, Proof, kubeconfig, token_key, write_private};
use crate::cluster::kubectl::Kubectl;
use crate::cluster::process::{Lifetime, Process};
use crate::cluster::{FEATURE_GATES, HOST_FOR_GUESTS, MOST_NODES, Tools, kubelet_address, node_name};
use crate::http::free_port;

const ETCD: &str = "etcd";
const API_SERVER: &str = "kube-apiserver";
const CONTROLLERS: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";
/// Dual stack; the first address of the first is that of the service `kubernetes`.
const SERVICE_CIDRS: &str = "10.96.0.0/16,fd00:96::/108";
const SERVICE_KUBERNETES: &str = "10.96.0.1";
const TO_END: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(100);

/// What of it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// etcd and kube-apiserver: no controller acts, nothing is scheduled, ServiceAccounts are made by hand.
    ApiOnly,
    Full,
}

/// A control plane in a directory of its own. With [`Lifetime::Caller`] it ends with this value.
#[derive(Debug)]
pub struct ControlPlane {
    directory: PathBuf,
    tools: Tools,
    parts: Parts,
    lifetime: Lifetime,
    ports: Ports,
    processes: Vec<Process>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Ports {
    etcd: u16,
    api_server: u16,
}

impl ControlPlane {
    /// etcd and kube-apiserver alone, new, in `directory`; ends with the value.
    ///
    /// # Errors
    /// One of them does not come up.
    pub fn api_only(tools: &Tools, directory: &Path) -> anyhow::Result<ControlPlane> {
        ControlPlane::start(tools, directory, Parts::ApiOnly, Lifetime::Caller)
    }

    /// Starts what does not run yet of the one in `directory`, and returns when the API server is ready.
    ///
    /// # Errors
    /// A part does not come up: the error holds its last words.
    pub fn start(tools: &Tools, directory: &Path, parts: Parts, lifetime: Lifetime) -> anyhow::Result<ControlPlane> {
        for directory in [directory.to_owned(), directory.join("credentials"), directory.join("logs")] {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
            made.with_context(|| format!("create {}", directory.display()))?;
        }
        let mut plane = ControlPlane::open(tools, directory, parts, lifetime)?;
        plane.start_etcd()?;
        plane.start_api_server()?;
        if parts == Parts::Full {
            plane.start_controllers()?;
        }
        Ok(plane)
    }

    /// The one in `directory`, as it is: nothing is started.
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
            processes,
        })
    }

    /// Port of the API server on 127.0.0.1. It stays the same over restarts.
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

    /// What its certificate is signed by, PEM.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn authority(&self) -> anyhow::Result<String> {
        Ok(self.signer("ca")?.certificate)
    }

    /// kubectl as an administrator.
    pub fn kubectl(&self) -> Kubectl {
        self.kubectl_as(&self.admin())
    }

    /// kubectl with another's kubeconfig.
    pub fn kubectl_as(&self, kubeconfig: &Path) -> Kubectl {
        Kubectl::new(
            &self.tools.program("kubectl"),
            kubeconfig,
            &self.directory.join("kubectl-cache"),
        )
    }

    /// The file of an administrator's kubeconfig.
    pub fn admin(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// A kubeconfig, as text, for any user, in one group or none; `server` is [`Self::url`] or [`Self::url_for_guests`].
    ///
    /// # Errors
    /// Its certificate cannot be signed.
    pub fn kubeconfig_for(&self, user: &str, group: Option<&str>, server: &str) -> anyhow::Result<String> {
        let signer = self.signer("ca")?;
        let pair = signer.client(user, group)?;
        Ok(kubeconfig(server, &signer.certificate, &Proof::Certificate(&pair)))
    }

    /// A token of a ServiceAccount that exists, for a day.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn token(&self, namespace: &str, service_account: &str) -> anyhow::Result<String> {
        let args = ["-n", namespace, "create", "token", service_account, "--duration=24h"];
        Ok(self.kubectl().run(&args)?.trim().to_owned())
    }

    /// The file of a kubeconfig for a ServiceAccount that exists.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn kubeconfig_of_service_account(&self, namespace: &str, name: &str) -> anyhow::Result<PathBuf> {
        let token = self.token(namespace, name)?;
        let file = self.directory.join(format!("{namespace}.{name}.kubeconfig"));
        let text = kubeconfig(&self.url(), &self.authority()?, &Proof::Token(&token));
        write_private(&file, text.as_bytes())?;
        Ok(file)
    }

    /// Ends the API server: every watch breaks, and nobody answers until [`Self::start_api_server`].
    ///
    /// # Errors
    /// It cannot be signalled.
    pub fn stop_api_server(&mut self) -> anyhow::Result<()> {
        self.end(API_SERVER, TO_END)
    }

    /// As a crash of it would.
    ///
    /// # Errors
    /// It cannot be signalled.
    pub fn kill_api_server(&mut self) -> anyhow::Result<()> {
        self.signal_api_server(SIGKILL)?;
        self.end(API_SERVER, TO_END)
    }

    /// SIGSTOP and SIGCONT make it slow: connections open, nothing is answered.
    ///
    /// # Errors
    /// It cannot be signalled.
    pub fn signal_api_server(&mut self, signal: i32) -> anyhow::Result<()> {
        let api_server = self.processes.iter_mut().find(|process| process.name() == API_SERVER);
        api_server.context("signal kube-apiserver: it does not run")?.signal(signal)
    }

    /// On the same port and the same etcd; returns when it is ready.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start_api_server(&mut self) -> anyhow::Result<()> {
        let credentials = self.directory.join("credentials");
        let (signer, etcd) = (self.signer("ca")?, self.signer("etcd-ca")?);
        let serving = [
            "localhost",
            "127.0.0.1",
            HOST_FOR_GUESTS,
            SERVICE_KUBERNETES,
            "kubernetes.default",
            "kubernetes.default.svc",
        ];
        let (certificate, key) = signer.server(API_SERVER, &serving)?.write(&credentials, API_SERVER)?;
        // As the kubelets' client: they ask the API server itself what this user may do.
        let to_kubelets = signer.client("kube-apiserver-kubelet-client", Some("system:masters"))?;
        let (kubelet_certificate, kubelet_key) = to_kubelets.write(&credentials, "kubelet-client")?;
        let (etcd_certificate, etcd_key) = etcd.client(API_SERVER, None)?.write(&credentials, "etcd-client")?;
        let (token_private, token_public) = token_key(&credentials)?;
        let admin = self.kubeconfig_for("admin", Some("system:masters"), &self.url())?;
        write_private(&self.admin(), admin.as_bytes())?;

        let mut command = self.with_kubelets_by_name()?;
        command
            .arg(format!("--etcd-servers=https://127.0.0.1:{}", self.ports.etcd))
            .arg(flag("etcd-cafile", &etcd.file))
            .arg(flag("etcd-certfile", &etcd_certificate))
            .arg(flag("etcd-keyfile", &etcd_key))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={}", self.ports.api_server))
            .arg(format!("--advertise-address={HOST_FOR_GUESTS}"))
            .arg(flag("tls-cert-file", &certificate))
            .arg(flag("tls-private-key-file", &key))
            .arg(flag("client-ca-file", &signer.file))
            .arg(flag("kubelet-client-certificate", &kubelet_certificate))
            .arg(flag("kubelet-client-key", &kubelet_key))
            .arg("--kubelet-preferred-address-types=Hostname")
            .arg("--anonymous-auth=false")
            .arg("--authorization-mode=Node,RBAC")
            .arg("--enable-admission-plugins=NodeRestriction")
            .arg("--allow-privileged=true")
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(flag("service-account-key-file", &token_public))
            .arg(flag("service-account-signing-key-file", &token_private))
            .arg(format!("--service-cluster-ip-range={SERVICE_CIDRS}"))
            .arg(feature_gates())
            .arg("--profiling=false");
        if self.parts == Parts::ApiOnly {
            // Nobody makes the ServiceAccount `default` that every pod would have to have, nor needs the endpoints.
            command
                .arg("--disable-admission-plugins=ServiceAccount")
                .arg("--endpoint-reconciler-type=none");
        }
        self.ensure(API_SERVER, command)?;
        let kubectl = self.kubectl();
        self.until(API_SERVER, self.ports.api_server, || {
            kubectl.run(&["get", "--raw", "/readyz"]).map(drop)
        })
    }

    /// Makes etcd forget every revision before the newest, which is returned: who asks for an older one is told 410 Gone, or
    /// by the API server's own cache once it is restarted.
    ///
    /// # Errors
    /// etcd refuses.
    pub fn compact(&self) -> anyhow::Result<u64> {
        let kubectl = self.etcd_client()?;
        let ask = |path: &str, body: serde_json::Value| -> anyhow::Result<serde_json::Value> {
            let answer = kubectl.run_with(&["create", "--raw", path, "-f", "-"], &body.to_string())?;
            serde_json::from_str(&answer).with_context(|| format!("read etcd's answer {answer}"))
        };
        // The key is base64 of `/`.
        let newest = ask("/v3/kv/range", json!({"key": "Lw==", "count_only": true}))?;
        let revision = newest["header"]["revision"]
            .as_str()
            .context("no revision in etcd's answer")?;
        ask("/v3/kv/compaction", json!({"revision": revision, "physical": true}))?;
        revision.parse().with_context(|| format!("read etcd's revision {revision}"))
    }

    /// Ends every part, the last started first.
    ///
    /// # Errors
    /// One cannot be ended.
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

    fn start_etcd(&mut self) -> anyhow::Result<()> {
        let credentials = self.directory.join("credentials");
        let signer = self.signer("etcd-ca")?;
        let (certificate, key) = signer.server(ETCD, &["localhost", "127.0.0.1"])?.write(&credentials, ETCD)?;
        let client = format!("https://127.0.0.1:{}", self.ports.etcd);
        // The only member never calls itself, so this port is never used; the one it listens on is the kernel's choice.
        let peer = "https://127.0.0.1:2380";
        let mut command = Command::new(self.tools.program(ETCD));
        command
            .arg("--name=epitaph")
            .arg(flag("data-dir", &self.directory.join("etcd")))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg("--listen-peer-urls=https://127.0.0.1:0")
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=epitaph={peer}"))
            .arg("--unsafe-no-fsync")
            .arg("--log-level=warn");
        for kind in ["", "peer-"] {
            command
                .arg(flag(&format!("{kind}cert-file"), &certificate))
                .arg(flag(&format!("{kind}key-file"), &key))
                .arg(flag(&format!("{kind}trusted-ca-file"), &signer.file))
                .arg(format!("--{kind}client-cert-auth"));
        }
        self.ensure(ETCD, command)?;
        let kubectl = self.etcd_client()?;
        self.until(ETCD, self.ports.etcd, || kubectl.run(&["get", "--raw", "/health"]).map(drop))
    }

    fn start_controllers(&mut self) -> anyhow::Result<()> {
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
                .arg(feature_gates())
                .arg("--profiling=false");
            if name == CONTROLLERS {
                command
                    .arg("--use-service-account-credentials=true")
                    .arg(flag("service-account-private-key-file", &token_key))
                    .arg(flag("root-ca-file", &signer.file))
                    .arg(format!("--service-cluster-ip-range={SERVICE_CIDRS}"))
                    .arg("--node-monitor-period=2s")
                    .arg("--node-monitor-grace-period=40s");
            }
            self.ensure(name, command)?;
        }
        // Without it no pod is admitted in `default`: it is made by the controllers, seconds after they start.
        let kubectl = self.kubectl();
        self.until(CONTROLLERS, self.ports.api_server, || {
            kubectl.run(&["-n", "default", "get", "serviceaccount", "default"]).map(drop)
        })
    }

    /// kube-apiserver where the nodes' names lead to their kubelets: in a mount namespace of its own with its own /etc/hosts.
    fn with_kubelets_by_name(&self) -> anyhow::Result<Command> {
        let program = self.tools.program(API_SERVER);
        if self.parts == Parts::ApiOnly {
            return Ok(Command::new(program));
        }
        let mut hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
        for node in 1..=MOST_NODES {
            hosts.push_str(&format!("\n{} {}", kubelet_address(node), node_name(node)));
        }
        let file = self.directory.join("hosts");
        fs::write(&file, hosts + "\n").with_context(|| format!("write {}", file.display()))?;
        let mut command = Command::new("unshare");
        if !crate::machine::is_root() {
            command.arg("--map-root-user");
        }
        command
            .args(["--mount", "--propagation", "private", "sh", "-ec"])
            .arg(r#"mount --bind "$1" /etc/hosts; shift; exec "$@""#)
            .arg("sh")
            .arg(&file)
            .arg(&program);
        Ok(command)
    }

    /// etcd speaks JSON over HTTPS: kubectl is client enough.
    fn etcd_client(&self) -> anyhow::Result<Kubectl> {
        let signer = self.signer("etcd-ca")?;
        let pair = signer.client("epitaph-tests", None)?;
        let server = format!("https://127.0.0.1:{}", self.ports.etcd);
        let file = self.directory.join("credentials/etcd.kubeconfig");
        let text = kubeconfig(&server, &signer.certificate, &Proof::Certificate(&pair));
        write_private(&file, text.as_bytes())?;
        Ok(Kubectl::new(
            &self.tools.program("kubectl"),
            &file,
            &self.directory.join("kubectl-cache"),
        ))
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
        let mut last = format!("nobody listens on port {port}");
        for _ in 0..1800 {
            if let Some(process) = self.processes.iter_mut().find(|process| process.name() == name) {
                process.expect_running(&log)?;
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                match answers() {
                    Ok(()) => return Ok(()),
                    Err(error) => last = format!("{error:#}"),
                }
            }
            sleep(STEP);
        }
        bail!("{name} is not ready after minutes: {last}; see {}", log.display())
    }

    fn end(&mut self, name: &str, patience: Duration) -> anyhow::Result<()> {
        for process in self.processes.iter_mut().filter(|process| process.name() == name) {
            process.end(patience)?;
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
                // Nothing in it is worth a goodbye.
                let _ = process.signal(SIGKILL);
                let _ = process.end(TO_END);
            }
        }
    }
}

/// Those that this directory's were given when they first started.
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

fn feature_gates() -> String {
    let gates: Vec<String> = FEATURE_GATES.iter().map(|(name, on)| format!("{name}={on}")).collect();
    format!("--feature-gates={}", gates.join(","))
}
