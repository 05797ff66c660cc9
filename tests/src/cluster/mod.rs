//! A real Kubernetes cluster on one machine: the control plane on the loopback, the nodes in emulated machines.
//!
//! *Architecture invariant*: everything listens on the loopback, and nothing is ended but what is written down as started here.

pub mod control_plane;
pub mod credentials;
pub mod images;
pub mod kubectl;
pub mod node;
pub mod process;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::ensure;

/// This machine's loopback as QEMU's user networking shows it to a guest.
pub const HOST_FOR_GUESTS: &str = "10.0.2.2";
pub const MOST_NODES: u8 = 9;

/// What `cargo xtask cluster` built: a directory with
/// - `bin/`: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl
/// - `node/`: rootfs.raw, vmlinuz, initrd
#[derive(Clone, Debug)]
pub struct Tools {
    directory: PathBuf,
}

impl Tools {
    /// Those in `directory`.
    ///
    /// # Errors
    /// It lacks one of the programs that every use needs.
    pub fn new(directory: &Path) -> anyhow::Result<Tools> {
        let tools = Tools {
            directory: directory.to_owned(),
        };
        for name in ["etcd", "kube-apiserver", "kubectl"] {
            let program = tools.program(name);
            ensure!(
                program.is_file(),
                "{} is not there: `cargo xtask cluster` makes it",
                program.display()
            );
        }
        Ok(tools)
    }

    /// Those that `cargo xtask` names in `EPITAPH_CLUSTER_TOOLS`; None where it names none.
    ///
    /// # Errors
    /// The directory lacks one.
    pub fn named() -> anyhow::Result<Option<Tools>> {
        #[expect(clippy::disallowed_methods, reason = "set by cargo xtask for this function alone")]
        let directory = std::env::var_os("EPITAPH_CLUSTER_TOOLS");
        directory.map(|directory| Tools::new(directory.as_ref())).transpose()
    }

    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join("bin").join(name)
    }

    /// A file of the nodes' machines.
    pub fn node(&self, name: &str) -> PathBuf {
        self.directory.join("node").join(name)
    }
}

/// Nodes are counted from 1.
pub fn node_name(index: u8) -> String {
    format!("node-{index}")
}

/// Where this machine reaches a node's kubelet, on its usual port.
pub fn kubelet_address(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 10 + index)
}
