//! Clients of the API server: kubectl, kubeconfigs and tokens.

use std::path::{Path, PathBuf};

use super::ControlPlane;
use crate::cluster::credentials::{Pair, Proof, kubeconfig, write_private};
use crate::cluster::helm::Helm;
use crate::cluster::kubectl::Kubectl;

impl ControlPlane {
    /// kubectl as an administrator.
    pub fn kubectl(&self) -> Kubectl {
        self.kubectl_as(&self.admin())
    }

    /// kubectl with another user's kubeconfig.
    pub fn kubectl_as(&self, kubeconfig: &Path) -> Kubectl {
        Kubectl::new(
            &self.tools.program("kubectl"),
            kubeconfig,
            &self.directory.join("kubectl-cache"),
        )
    }

    /// helm as an administrator.
    pub fn helm(&self) -> Helm {
        Helm::new(&self.tools, &self.directory.join("helm")).with(&self.admin())
    }

    /// The file of an administrator's kubeconfig.
    pub fn admin(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// The authority that signs its certificate, PEM.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn authority(&self) -> anyhow::Result<String> {
        Ok(self.signer("ca")?.certificate)
    }

    /// The certificate with which a kubelet proves that it is that node's, to whoever knows [`Self::authority`].
    ///
    /// # Errors
    /// It cannot be signed.
    pub fn certificate_of_kubelet(&self, node: &str, addresses: &[String]) -> anyhow::Result<Pair> {
        let names: Vec<&str> = [node].into_iter().chain(addresses.iter().map(String::as_str)).collect();
        self.signer("ca")?.server(&format!("system:node:{node}"), &names)
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

    /// A token of an existing ServiceAccount, for a day.
    ///
    /// # Errors
    /// There is no ServiceAccount of that name.
    pub fn token(&self, namespace: &str, service_account: &str) -> anyhow::Result<String> {
        let args = ["-n", namespace, "create", "token", service_account, "--duration=24h"];
        Ok(self.kubectl().run(&args)?.trim().to_owned())
    }

    /// The file of a kubeconfig for an existing ServiceAccount.
    ///
    /// # Errors
    /// There is no ServiceAccount of that name.
    pub fn kubeconfig_of_service_account(&self, namespace: &str, name: &str) -> anyhow::Result<PathBuf> {
        let token = self.token(namespace, name)?;
        let file = self.directory.join(format!("{namespace}.{name}.kubeconfig"));
        let text = kubeconfig(&self.url(), &self.authority()?, &Proof::Token(&token));
        write_private(&file, text.as_bytes())?;
        Ok(file)
    }
}
