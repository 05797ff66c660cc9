//! The kubelet's own configuration, as the kubelet answers at `/configz`: what is in force, without a file of the node.
//!
//! A kubelet gets the token of the ServiceAccount only after it has proven itself by a certificate of the cluster's CA. The right is
//! `nodes/configz`, which kubelets know from Kubernetes 1.33 on; never `nodes/proxy`, which is the right to run commands in pods.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use epitaph_core::input::Input;
use epitaph_core::node::{KubeletShutdown, NodeEvent};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::config::{Invalid, Merged, Shutdown};
use super::process::Running;
use super::watch::{Paths, read_config, told};
use super::{Configured, KubeletError, MOST};
use crate::error::{HasRemedy, Remedy, chain};
use crate::source::{bounded, in_cluster};

/// Where a kubelet listens by default.
const PORT: u16 = 10_250;
/// The configuration changes with a restart of the kubelet only, which is seen by its process where `/proc` shows it. The kubelet asks the API
/// server whether the token may read it.
const EVERY: Duration = Duration::from_secs(600);
/// How often the process is looked at, and a kubelet that has just started is asked again until it answers.
const LOOK: Duration = Duration::from_secs(10);
/// For how long it is asked so often: a start takes a while, but a kubelet that refuses goes on refusing.
const STARTING: u32 = 30;
const LIMIT: Duration = Duration::from_secs(10);
/// A kubelet that answered and then does not: after so many attempts another configuration may be in force.
const FAILURES: u32 = 3;
/// Longest reason, bytes.
const REASON: usize = 512;

/// Of a kubelet: an IP address, with a port or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address(SocketAddr);

impl FromStr for Address {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Address, NotAnAddress> {
        let with_port = || text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT));
        text.parse().or_else(|_| with_port()).map(Address).map_err(|_| NotAnAddress)
    }
}

impl TryFrom<String> for Address {
    type Error = NotAnAddress;

    fn try_from(text: String) -> Result<Address, NotAnAddress> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the IP address of a node")]
pub struct NotAnAddress;

#[derive(Debug, thiserror::Error)]
pub enum ConfigzError {
    #[error("no access to the cluster: {0}")]
    NoCluster(String),
    #[error("{url}: the kubelet has no certificate of the cluster's CA, and gets no token ({reason})")]
    Certificate { url: String, reason: String },
    #[error("{url} answers {status}")]
    Status { url: String, status: StatusCode },
    #[error("{url} does not answer: {reason}")]
    Away { url: String, reason: String },
    #[error("{url}: the answer is {source}")]
    Answer { url: String, source: Invalid },
}

/// After every reason.
const FILE: &str =
    "name the kubelet's file in `kubelet.config` (chart: agent.kubelet.config, such as /var/lib/kubelet/config.yaml)";

impl HasRemedy for ConfigzError {
    fn remedy(&self) -> Option<Remedy> {
        let first = match self {
            ConfigzError::Certificate { .. } => {
                "give the kubelets certificates of the cluster's CA (serverTLSBootstrap: true), or "
            }
            ConfigzError::Status { status, .. } if *status == StatusCode::FORBIDDEN => {
                "grant this ServiceAccount nodes/configz, which kubelets know from Kubernetes 1.33 on, or "
            }
            ConfigzError::NoCluster(_)
            | ConfigzError::Status { .. }
            | ConfigzError::Away { .. }
            | ConfigzError::Answer { .. } => "",
        };
        Some(format!("{first}{FILE}").into())
    }
}

/// `{"kubeletconfig": {…}}`
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    kubeletconfig: &'a RawValue,
}

/// A kubelet that can be asked.
#[derive(Clone)]
pub struct Configz {
    client: kube::Client,
    url: String,
}

impl Configz {
    /// With the ServiceAccount's token and the CA beside it.
    ///
    /// # Errors
    /// Not in a pod with a ServiceAccount.
    pub fn in_cluster(address: Address) -> Result<Configz, ConfigzError> {
        let config = kube::Config::incluster().map_err(|error| ConfigzError::NoCluster(chain(&error)))?;
        Configz::new(address, config)
    }

    fn new(address: Address, mut config: kube::Config) -> Result<Configz, ConfigzError> {
        let no_cluster = |error: &dyn std::error::Error| ConfigzError::NoCluster(chain(error));
        let base = format!("https://{address}");
        config.cluster_url = base.parse().map_err(|error: http::uri::InvalidUri| no_cluster(&error))?;
        let client = in_cluster::client(&config).map_err(|error| no_cluster(&error))?;
        let url = format!("{base}/configz");
        Ok(Configz { client, url })
    }

    /// As if it had been read from a file.
    ///
    /// # Errors
    /// The kubelet does not answer, refuses, or cannot prove itself; nothing is known then.
    pub async fn configured(&self) -> Result<Configured, ConfigzError> {
        Ok(Configured {
            files: vec![PathBuf::from(&self.url)],
            modified: None,
            shutdown: self.shutdown().await?,
        })
    }

    async fn shutdown(&self) -> Result<Shutdown, ConfigzError> {
        let url = || self.url.clone();
        let away = |reason: String| ConfigzError::Away { url: url(), reason };
        let request = Request::get("/configz").body(kube::client::Body::empty());
        let request = request.map_err(|error| away(chain(&error)))?;
        let asked = async {
            let answer = self.client.send(request).await.map_err(|error| match chain(&error) {
                reason if reason.contains("certificate") => ConfigzError::Certificate { url: url(), reason },
                reason => away(reason),
            })?;
            let status = answer.status();
            if status != StatusCode::OK {
                return Err(ConfigzError::Status { url: url(), status });
            }
            let body = Limited::new(answer.into_body(), MOST as usize).collect().await;
            Ok(body.map_err(|error| away(error.to_string()))?.to_bytes())
        };
        let body = timeout(LIMIT, asked)
            .await
            .map_err(|_| away(format!("not within {} s", LIMIT.as_secs())))??;
        parse(&body).map_err(|source| ConfigzError::Answer { url: url(), source })
    }

    async fn ask(&self) -> Result<KubeletShutdown, ConfigzError> {
        Ok(self.shutdown().await?.protection(&self.url))
    }
}

/// What a running kubelet answers it has accepted.
pub(super) fn parse(body: &[u8]) -> Result<Shutdown, Invalid> {
    let answer: Answer<'_> = serde_json::from_slice(body).map_err(|_| Invalid::Kind)?;
    let mut merged = Merged::default();
    merged.merge(answer.kubeletconfig.get().as_bytes(), false)?;
    merged.shutdown()
}

/// Sends what the kubelet answers, when it changes, until nobody reads. `files`: what counts while the kubelet does not answer.
pub(super) async fn follow(kubelet: Configz, files: Option<Paths>, mut running: Running, answers: mpsc::Sender<Input>) {
    let (mut said, mut turns) = (Said::new(files.is_some()), Turns::default());
    loop {
        // Before the question: a kubelet that starts after the answer is another one.
        running.search();
        let answer = kubelet.ask().await;
        turns.asked(answer.is_ok());
        let mut event = said.next(answer);
        loop {
            if let Some(files) = files.clone().filter(|_| said.is_without_answer()) {
                let Ok(read) = tokio::task::spawn_blocking(move || read_config(&files)).await else {
                    return;
                };
                event = said.file(read);
            }
            if let Some(event) = event.take()
                && answers.send(Input::Node(event)).await.is_err()
            {
                return;
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                () = answers.closed() => return,
            }
            // While no kubelet runs it reads every process of the machine.
            let mut looks = running;
            let looked = tokio::task::spawn_blocking(move || (looks.is_another(), looks)).await;
            let Ok((is_another, back)) = looked else { return };
            running = back;
            if turns.is_due(is_another) {
                break;
            }
        }
    }
}

/// When the kubelet is asked.
#[derive(Default)]
struct Turns {
    /// Looks since the last question.
    looks: u32,
    /// How often a kubelet that has just started may still be asked at once.
    starting: u32,
}

impl Turns {
    fn asked(&mut self, has_answered: bool) {
        self.looks = 0;
        self.starting = if has_answered { 0 } else { self.starting.saturating_sub(1) };
    }

    /// After each [`LOOK`].
    fn is_due(&mut self, is_another: bool) -> bool {
        self.looks += 1;
        if is_another {
            self.starting = STARTING;
        }
        self.starting > 0 || LOOK * self.looks >= EVERY
    }
}

/// What was sent and logged.
#[derive(Default)]
struct Said {
    config: Option<Result<KubeletShutdown, String>>,
    has_file: bool,
    has_answered: bool,
    failures: u32,
    problem: String,
}

impl Said {
    fn new(has_file: bool) -> Said {
        Said {
            has_file,
            ..Said::default()
        }
    }

    /// The event, if the answer is news. A kubelet that never answered is not one: the bus still shows whether it holds its lock.
    fn next(&mut self, answer: Result<KubeletShutdown, ConfigzError>) -> Option<NodeEvent> {
        match answer {
            Ok(config) => {
                self.failures = 0;
                self.has_answered = true;
                self.news(Ok(config))
            }
            Err(error) => {
                self.failures += 1;
                let reason = bounded(&chain(&error), REASON);
                if self.problem != reason {
                    match self.has_file {
                        true => tracing::info!(
                            "the kubelet's file counts, because the kubelet does not give its grace periods: {reason}"
                        ),
                        false => tracing::info!(
                            remedy = error.remedy().as_deref(),
                            "the kubelet's grace periods are not known: {reason}; shutdowns are reported all the same"
                        ),
                    }
                    self.problem.clone_from(&reason);
                }
                let is_news = self.is_without_answer() && self.has_answered && !self.has_file;
                is_news.then(|| self.news(Err(reason))).flatten()
            }
        }
    }

    /// It has not answered yet, or not for so long that another configuration may be in force.
    fn is_without_answer(&self) -> bool {
        self.failures >= if self.has_answered { FAILURES } else { 1 }
    }

    fn file(&mut self, read: Result<KubeletShutdown, KubeletError>) -> Option<NodeEvent> {
        let was_wrong = self.config.as_ref().is_some_and(Result::is_err);
        let config = told("configuration", read, was_wrong);
        self.news(config)
    }

    fn news(&mut self, config: Result<KubeletShutdown, String>) -> Option<NodeEvent> {
        if self.config.as_ref() == Some(&config) {
            return None;
        }
        self.config = Some(config.clone());
        Some(NodeEvent::Kubelet { config })
    }
}

#[cfg(test)]
#[path = "configz_tests.rs"]
mod tests;
