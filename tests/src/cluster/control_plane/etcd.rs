//! etcd: one member, for this API server alone.

use std::process::Command;

use anyhow::Context as _;
use serde_json::json;

use super::{ControlPlane, ETCD, flag};
use crate::cluster::credentials::{Proof, kubeconfig, write_private};
use crate::cluster::kubectl::Kubectl;

impl ControlPlane {
    pub(super) fn start_etcd(&mut self) -> anyhow::Result<()> {
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

    /// Makes etcd forget every revision before the newest, which is returned: a request for an older one is answered 410 Gone, or
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

    /// etcd serves JSON over HTTPS: kubectl is client enough.
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
}
