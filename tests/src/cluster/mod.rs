//! A real Kubernetes cluster on one machine: the control plane on the loopback, the nodes in emulated machines.
//!
//! *Architecture invariant*: everything listens on the loopback, and only processes recorded as started here are stopped.

pub mod agent;
pub mod apparmor;
mod beside;
mod clients;
pub mod control_plane;
pub mod credentials;
pub mod deploy;
pub mod helm;
pub mod images;
pub mod kubectl;
pub mod lifecycle;
pub mod lost;
pub mod node;
pub mod node_shutdown;
pub mod play;
pub mod process;
mod reported;
pub mod rollouts;
pub mod stories;

use std::fmt;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::cluster::control_plane::{ControlPlane, Parts};
use crate::cluster::node::Node;
use crate::cluster::process::Lifetime;
use crate::jaeger::Jaeger;

/// This machine's loopback as QEMU's user networking shows it to a guest.
pub const HOST_FOR_GUESTS: &str = "10.0.2.2";
pub const MOST_NODES: u8 = 9;
/// Stop signals by spec are still alpha in Kubernetes 1.37; only pods that ask for one are changed by the gate.
const FEATURE_GATES: &[(&str, bool)] = &[("ContainerStopSignals", true)];
/// Directory of the nodes' own ones.
const NODES: &str = "nodes";
/// In a node's directory: the digests of the images that it has.
const IMAGES: &str = "images.json";

/// What `cargo xtask cluster` built: a directory with
/// - `bin/`: etcd, kube-apiserver, kubectl and helm; for a whole cluster kube-controller-manager, kube-scheduler and jaeger too
/// - for nodes: `bin/go-server`, and in `node/` rootfs.raw, vmlinuz, initrd and busybox
#[derive(Clone, Debug)]
pub struct Tools {
    directory: PathBuf,
}

impl Tools {
    /// Those in `directory`.
    ///
    /// # Errors
    /// The directory lacks one of the programs that every use needs.
    pub fn new(directory: &Path) -> anyhow::Result<Tools> {
        let tools = Tools {
            directory: directory.to_owned(),
        };
        for name in ["etcd", "kube-apiserver", "kubectl"] {
            let program = tools.program(name);
            ensure!(
                program.is_file(),
                "{} is missing: `cargo xtask cluster` creates it",
                program.display()
            );
        }
        Ok(tools)
    }

    /// The tools that `cargo xtask` names in `EPITAPH_CLUSTER_TOOLS`; None if the variable is not set.
    ///
    /// # Errors
    /// The directory lacks one.
    pub fn named() -> anyhow::Result<Option<Tools>> {
        #[expect(clippy::disallowed_methods, reason = "set by cargo xtask for this function alone")]
        let directory = std::env::var_os("EPITAPH_CLUSTER_TOOLS");
        directory.map(|directory| Tools::new(directory.as_ref())).transpose()
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join("bin").join(name)
    }

    /// A file of the nodes' machines.
    pub fn node(&self, name: &str) -> PathBuf {
        self.directory.join("node").join(name)
    }
}

/// A cluster that [`lifecycle::up`] started, by its directory. Dropping it stops nothing.
#[derive(Debug)]
pub struct Cluster {
    directory: PathBuf,
    tools: Tools,
    known: Known,
}

/// What a cluster is made of.
#[derive(Debug, Serialize, Deserialize)]
struct Known {
    /// Directory of its [`Tools`].
    tools: PathBuf,
    /// The group and port that separate this cluster's nodes from those of other clusters.
    lan_port: u16,
}

impl Known {
    fn read(directory: &Path) -> anyhow::Result<Option<Known>> {
        let file = directory.join("cluster.json");
        match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).with_context(|| format!("read {}", file.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("read {}", file.display())),
        }
    }
}

/// A node that an emulating machine did not bring up in time. Nothing failed.
#[derive(Debug)]
pub struct NotInTime(String);

impl NotInTime {
    /// The exit status of the program `cluster` then: `EX_TEMPFAIL`.
    pub const STATUS: u8 = 75;
}

impl fmt::Display for NotInTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotInTime {}

impl Cluster {
    /// The cluster in `directory`; None if none is recorded.
    ///
    /// # Errors
    /// The record cannot be read, or the tools of the cluster are gone.
    pub fn open(directory: &Path) -> anyhow::Result<Option<Cluster>> {
        let Some(known) = Known::read(directory)? else {
            return Ok(None);
        };
        Ok(Some(Cluster {
            directory: directory.to_owned(),
            tools: Tools::new(&known.tools)?,
            known,
        }))
    }

    /// The cluster that `cargo xtask cluster test` names in `EPITAPH_CLUSTER`.
    ///
    /// # Errors
    /// No cluster is named, or the named one is not up.
    pub fn named() -> anyhow::Result<Cluster> {
        const HOW: &str = "`cargo xtask cluster test` brings one up and names it";
        #[expect(clippy::disallowed_methods, reason = "set by cargo xtask for this function alone")]
        let directory = std::env::var_os("EPITAPH_CLUSTER");
        let directory = directory.with_context(|| format!("EPITAPH_CLUSTER names no cluster: {HOW}"))?;
        Cluster::open(directory.as_ref())?.with_context(|| format!("no cluster is up: {HOW}"))
    }

    /// Its control plane; a part that a test starts outlives the test.
    ///
    /// # Errors
    /// Its records cannot be read.
    pub fn control_plane(&self) -> anyhow::Result<ControlPlane> {
        ControlPlane::open(&self.tools, &self.directory, Parts::Full, Lifetime::Detached)
    }

    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Its Jaeger, if one is recorded. Guests reach it at [`HOST_FOR_GUESTS`], on the same ports.
    ///
    /// # Errors
    /// Its ports cannot be read.
    pub fn jaeger(&self) -> anyhow::Result<Option<Jaeger>> {
        let file = self.directory.join("jaeger.json");
        match fs::read(&file) {
            Ok(text) => {
                let ports = serde_json::from_slice(&text).with_context(|| format!("read {}", file.display()))?;
                Ok(Some(Jaeger::at(ports)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("read {}", file.display())),
        }
    }

    /// One of its nodes, running or not: `node-1` and so on.
    ///
    /// # Errors
    /// There is no node of that name.
    pub fn node(&self, name: &str) -> anyhow::Result<Node> {
        Node::open(&self.node_directory(name), Lifetime::Detached).with_context(|| format!("find {name}"))
    }

    /// Digest of the image as last imported into its nodes.
    ///
    /// # Errors
    /// No node has it.
    pub fn imported(&self, image: &str) -> anyhow::Result<String> {
        let file = self.node_directory(&node_name(1)).join(IMAGES);
        let text = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        let known: std::collections::BTreeMap<String, String> = serde_json::from_slice(&text)?;
        known.get(image).cloned().with_context(|| format!("no node has {image}"))
    }

    fn node_directory(&self, name: &str) -> PathBuf {
        self.directory.join(NODES).join(name)
    }
}

/// Nodes are counted from 1.
pub fn node_name(index: u8) -> String {
    format!("node-{index}")
}

/// The host's address of a node's kubelet, on its usual port.
pub fn kubelet_address(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 10 + index)
}
