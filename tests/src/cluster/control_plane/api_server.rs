//! kube-apiserver: its flags, its restarts, its failures.

use std::fs;
use std::process::Command;

use anyhow::Context as _;
use nix::libc::SIGKILL;

use super::{API_SERVER, ControlPlane, Parts, SERVICE_CIDRS, TO_END, flag};
use crate::cluster::credentials::{token_key, write_private};
use crate::cluster::{HOST_FOR_GUESTS, MOST_NODES, kubelet_address, node_name};

/// The first address of [`SERVICE_CIDRS`], which the service `kubernetes` gets.
const SERVICE_KUBERNETES: &str = "10.96.0.1";

impl ControlPlane {
    /// On the same port and the same etcd; returns when the API server is ready.
    ///
    /// # Errors
    /// The API server does not come up.
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
            .arg(format!("--service-cluster-ip-range={}", SERVICE_CIDRS.join(",")))
            .arg("--profiling=false")
            .args(self.feature_gates())
            .args(&self.flags);
        if self.parts == Parts::ApiOnly {
            // No controller makes the ServiceAccount `default` that every pod would need, and no test needs the endpoints.
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

    /// Stops the API server: every watch breaks, and requests fail until [`Self::start_api_server`].
    ///
    /// # Errors
    /// The API server cannot be signalled.
    pub fn stop_api_server(&mut self) -> anyhow::Result<()> {
        self.end(API_SERVER, TO_END)
    }

    /// As in a crash.
    ///
    /// # Errors
    /// The API server cannot be signalled.
    pub fn kill_api_server(&mut self) -> anyhow::Result<()> {
        self.signal_api_server(SIGKILL)?;
        self.end(API_SERVER, TO_END)
    }

    /// SIGSTOP and SIGCONT make it slow: connections open, nothing is answered.
    ///
    /// # Errors
    /// The API server cannot be signalled.
    pub fn signal_api_server(&mut self, signal: i32) -> anyhow::Result<()> {
        let api_server = self.processes.iter_mut().find(|process| process.name() == API_SERVER);
        api_server.context("signal kube-apiserver: it does not run")?.signal(signal)
    }

    /// kube-apiserver with the nodes' names resolved to their kubelets: in a mount namespace of its own with its own /etc/hosts.
    fn with_kubelets_by_name(&self) -> anyhow::Result<Command> {
        let program = self.tools.program(API_SERVER);
        if self.parts != Parts::Full {
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
}
