//! A node: a machine under emulation with systemd, containerd, kubelet and kube-proxy, and a root's shell in it for the stories.
//!
//! The machine outlives the process that started it: [`Node::open`] finds the machine again by its directory.

mod channel;
mod clock;
mod cpio;
mod files;
mod qmp;
mod vm;

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::credentials::{Pair, Proof, kubeconfig};
use crate::cluster::images::Image;
use crate::cluster::process::{Lifetime, Process};
use crate::cluster::{HOST_FOR_GUESTS, MOST_NODES, NotInTime, Tools, kubelet_address, node_name};
use crate::http::free_port;
use crate::timeout::{Late, until_within};

pub use channel::{Ran, Shell, quoted};
pub use files::KUBELET_CONFIG;

/// The record of its process, and the file with its configuration.
const MACHINE: &str = "machine";
const KNOWN: &str = "node.json";
/// How often a machine is booted before its start is an error.
const BOOTS: u32 = 3;
/// Longest wait for a machine's shell: a busy host's emulation takes its time.
const TO_BOOT: Duration = Duration::from_secs(240);

#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub name: String,
    /// From 1 to 99: what addresses, networks and ports are made from.
    pub index: u8,
    /// Of the API server that signs kubelets' and clients' certificates.
    pub ca_pem: String,
    /// Both name the API server as the guest reaches it: [`crate::cluster::HOST_FOR_GUESTS`] and its port.
    pub kubelet_kubeconfig: String,
    pub kube_proxy_kubeconfig: String,
    /// Of that authority, as `serverTLSBootstrap` brings it to a node. None: the kubelet signs one itself, which proves nothing.
    pub kubelet_certificate: Option<Pair>,
    /// The group and port that only the nodes of one cluster share.
    pub lan: SocketAddrV4,
    pub memory_mib: u32,
    pub processors: usize,
    pub feature_gates: BTreeMap<String, bool>,
    /// AppArmor in force, as Debian's kernel has it; containerd then confines containers by its default profile.
    pub apparmor: bool,
    /// Merged over the kubelet's configuration, KubeletConfiguration v1beta1.
    pub kubelet: Value,
}

impl NodeConfig {
    /// A Debian that is no node of a cluster: nothing listens where its kubelet looks for an API server.
    ///
    /// # Errors
    /// No port is free.
    pub fn machine(index: u8) -> anyhow::Result<NodeConfig> {
        let unreachable = kubeconfig(&format!("https://{HOST_FOR_GUESTS}:1"), "", &Proof::Token("none"));
        Ok(NodeConfig {
            name: node_name(index),
            index,
            ca_pem: String::new(),
            kubelet_kubeconfig: unreachable.clone(),
            kube_proxy_kubeconfig: unreachable,
            kubelet_certificate: None,
            lan: SocketAddrV4::new([239, 255, 77, index].into(), free_port()?),
            memory_mib: 1024,
            processors: 1,
            feature_gates: BTreeMap::new(),
            apparmor: false,
            kubelet: json!({}),
        })
    }

    /// A loopback address of the node's own: its kubelet answers there on [`Node::KUBELET_PORT`].
    #[must_use]
    pub fn loopback(&self) -> Ipv4Addr {
        kubelet_address(self.index)
    }

    /// The pods' networks, IPv4 and IPv6.
    #[must_use]
    pub fn pod_cidrs(&self) -> [String; 2] {
        [
            format!("10.244.{}.0/24", self.index),
            format!("fd00:10:244:{}::/64", self.index),
        ]
    }

    /// The node's addresses in the cluster, IPv4 and IPv6.
    #[must_use]
    pub fn addresses(&self) -> [String; 2] {
        [
            format!("10.77.0.{}", 10 + self.index),
            format!("fd00:10:77::{}", 10 + self.index),
        ]
    }
}

/// What [`Node::open`] needs to read back.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Known {
    name: String,
    loopback: Ipv4Addr,
    memory_mib: u32,
    processors: usize,
    lan: SocketAddrV4,
    index: u8,
    apparmor: bool,
}

/// A machine. With [`Lifetime::Caller`] it stops on drop.
#[derive(Debug)]
pub struct Node {
    dir: PathBuf,
    known: Known,
    lifetime: Lifetime,
    process: Option<Process>,
}

impl Node {
    pub const KUBELET_PORT: u16 = 10250;
    /// sshd's port on the loopback address.
    const SHELL_PORT: u16 = 10022;

    /// Makes the node's disk and configuration in `dir`, boots it and returns once its shell answers and its clock is right; the
    /// kubelet is then still on its way.
    ///
    /// # Errors
    /// A file cannot be made, a port is taken, or the machine does not come up.
    pub fn start(tools: &Tools, config: &NodeConfig, dir: &Path, lifetime: Lifetime) -> anyhow::Result<Node> {
        ensure!(
            (1..=MOST_NODES).contains(&config.index),
            "node {} has index {}, not 1 to {MOST_NODES}",
            config.name,
            config.index
        );
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let known = Known {
            name: config.name.clone(),
            loopback: config.loopback(),
            memory_mib: config.memory_mib,
            processors: config.processors,
            lan: config.lan,
            index: config.index,
            apparmor: config.apparmor,
        };
        let keys = channel::make_keys(dir, known.loopback, Node::SHELL_PORT)?;
        let base = tools.node("initrd");
        let base = fs::read(&base).with_context(|| format!("read {}", base.display()))?;
        let own = cpio::archive("node", &files::of(config, &keys)?);
        fs::write(dir.join("initrd"), [base, own].concat()).context("write the node's initrd")?;
        fs::copy(tools.node("vmlinuz"), dir.join("vmlinuz")).context("copy the node's kernel")?;
        copy_sparse(&tools.node("rootfs.raw"), &dir.join("disk.raw"))?;
        fs::write(dir.join(KNOWN), serde_json::to_vec(&known)?).context("write what the node is")?;
        let mut node = Node {
            dir: dir.to_path_buf(),
            known,
            lifetime,
            process: None,
        };
        node.power_on()?;
        Ok(node)
    }

    /// The node that was started in `dir`, running or not.
    ///
    /// # Errors
    /// No node was started there.
    pub fn open(dir: &Path, lifetime: Lifetime) -> anyhow::Result<Node> {
        let path = dir.join(KNOWN);
        let known = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(Node {
            dir: dir.to_path_buf(),
            known: serde_json::from_slice(&known).with_context(|| format!("parse {}", path.display()))?,
            lifetime,
            process: Process::find(MACHINE, &records(dir))?,
        })
    }

    /// Boots the machine from the disk it has, as after [`Node::power_off`].
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn power_on(&mut self) -> anyhow::Result<()> {
        for boot in 1..=BOOTS {
            let _ = fs::remove_file(self.console());
            let command = vm::command(&self.dir, &self.known, Node::SHELL_PORT);
            let log = self.dir.join("qemu.log");
            self.process = Some(Process::start(MACHINE, command, &log, &records(&self.dir), self.lifetime)?);
            match self.until_up(None) {
                Ok(()) => return Ok(()),
                // Emulation crashes a kernel now and then, before a program of ours has run.
                Err(error) if boot < BOOTS && vm::panicked(&self.console()) => {
                    eprintln!("node {}: booted again: {error:#}", self.known.name);
                    self.power_off()?;
                }
                Err(error) => return Err(error),
            }
        }
        bail!("node {} did not boot in {BOOTS} attempts", self.known.name)
    }

    /// Whether its machine runs, or is paused.
    pub fn runs(&mut self) -> bool {
        self.process.as_mut().is_some_and(Process::runs)
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.known.name
    }

    /// The host's address of services on the node's kubelet port.
    #[must_use]
    pub fn loopback(&self) -> Ipv4Addr {
        self.known.loopback
    }

    /// The kernel's console, for a person and for the search for a panic.
    #[must_use]
    pub fn console(&self) -> PathBuf {
        self.dir.join("console.log")
    }

    /// Root's shell on the node, outside any pod.
    #[must_use]
    pub fn shell(&self) -> Shell {
        Shell::new(&self.dir, self.known.loopback, Node::SHELL_PORT)
    }

    /// Runs `script` as root on the node; its standard output.
    ///
    /// # Errors
    /// The shell is not reached, or the script fails.
    pub fn run(&self, script: &str) -> anyhow::Result<String> {
        self.shell()
            .run(script)
            .with_context(|| format!("on node {}", self.known.name))
    }

    /// Imports `image` into the node's containerd, for pods with `imagePullPolicy: Never`.
    ///
    /// # Errors
    /// The archive cannot be read, or containerd refuses it.
    pub fn import(&self, image: &Image) -> anyhow::Result<()> {
        let import = "exec ctr --namespace k8s.io images import --local --digests=false -";
        let archive = fs::File::open(&image.archive).with_context(|| format!("open {}", image.archive.display()))?;
        let ran = self.shell().exec(import, archive.into())?;
        ensure!(ran.success(), "import {} into node {}: {ran}", image.name, self.known.name);
        Ok(())
    }

    /// Restarts the kubelet with `changes` merged over its configuration (`singleProcessOOMKill`, `shutdownGracePeriod`, …; null
    /// removes a setting) and waits until the kubelet is healthy. A boot undoes the changes.
    ///
    /// # Errors
    /// As [`Node::run`], or the kubelet is not healthy in time.
    pub fn configure_kubelet(&self, changes: &Value) -> anyhow::Result<()> {
        let text = self.run(&format!("cat {}", KUBELET_CONFIG))?;
        let mut config = serde_json::from_str(&text).context("parse the kubelet's configuration")?;
        files::merge(&mut config, changes);
        let script = format!(
            "printf %s {} >{} && systemctl restart kubelet",
            quoted(&serde_json::to_string_pretty(&config)?),
            KUBELET_CONFIG
        );
        self.run(&script)?;
        self.until_healthy("kubelet", 10248)
    }

    /// Waits until the program that answers on that port of the node's loopback is healthy.
    ///
    /// # Errors
    /// As [`Node::run`], or the program is not healthy in time.
    pub fn until_healthy(&self, program: &str, port: u16) -> anyhow::Result<()> {
        self.until(&format!("busybox wget -qO- http://127.0.0.1:{port}/healthz"), program)
    }

    /// Waits until the command succeeds, which asks for `what`.
    ///
    /// # Errors
    /// As [`Node::run`], or it does not succeed in time.
    pub fn until(&self, command: &str, what: &str) -> anyhow::Result<()> {
        self.run(&format!("for i in $(seq 300); do {command} && exit; sleep 0.2; done; exit 1"))
            .map(drop)
            .with_context(|| format!("wait for {what} at node {}", self.known.name))
    }

    /// The kernel's id of the current boot: a new one after a reboot.
    ///
    /// # Errors
    /// As [`Node::run`].
    pub fn boot_id(&self) -> anyhow::Result<String> {
        Ok(self.run("cat /proc/sys/kernel/random/boot_id")?.trim().to_owned())
    }

    /// An orderly reboot: logind, its inhibitors, systemd's stop jobs. Returns after the request; see [`Node::until_up`].
    ///
    /// # Errors
    /// As [`Node::run`].
    pub fn reboot(&self) -> anyhow::Result<()> {
        self.run("systemctl reboot").map(drop)
    }

    /// The reset button: no program in the machine is notified, the disk keeps its content.
    ///
    /// # Errors
    /// The machine does not run.
    pub fn reset(&self) -> anyhow::Result<()> {
        qmp::ask(&self.dir, "system_reset", &json!({})).map(drop)
    }

    /// The power button: ACPI reports it to the machine, and logind acts on it.
    ///
    /// # Errors
    /// The machine does not run.
    pub fn press_power_button(&self) -> anyhow::Result<()> {
        qmp::ask(&self.dir, "system_powerdown", &json!({})).map(drop)
    }

    /// Pauses the machine, its clocks too.
    ///
    /// # Errors
    /// The machine does not run.
    pub fn pause(&self) -> anyhow::Result<()> {
        qmp::ask(&self.dir, "stop", &json!({})).map(drop)
    }

    /// Resumes after [`Node::pause`], with the wall clock set right.
    ///
    /// # Errors
    /// The machine does not run, or its shell does not answer.
    pub fn resume(&mut self) -> anyhow::Result<()> {
        qmp::ask(&self.dir, "cont", &json!({}))?;
        self.until_up(None)
    }

    /// Plugs a disk with the content of `image` into the machine, which runs; returns the disk's device in the machine.
    ///
    /// # Errors
    /// The machine does not run, or does not find the disk.
    pub fn plug(&self, image: &Path, name: &str) -> anyhow::Result<String> {
        let file = json!({"driver": "file", "filename": image});
        qmp::ask(
            &self.dir,
            "blockdev-add",
            &json!({"driver": "raw", "node-name": name, "file": file}),
        )?;
        let device = json!({"driver": "virtio-blk-pci", "drive": name, "id": name, "serial": name});
        qmp::ask(&self.dir, "device_add", &device)?;
        let found = self.run(&format!(
            "for i in $(seq 100); do for disk in /sys/block/vd*; do \
             if [ \"$(cat $disk/serial)\" = {name} ]; then basename $disk; exit; fi; done; sleep 0.2; done; exit 1"
        ))?;
        Ok(format!("/dev/{}", found.trim()))
    }

    /// The network cables, plugged or not; root's shell goes through one of them.
    ///
    /// # Errors
    /// The machine does not run, or its shell does not answer once plugged.
    pub fn connect(&mut self, connected: bool) -> anyhow::Result<()> {
        for network in vm::NETWORKS {
            qmp::ask(&self.dir, "set_link", &json!({"name": network, "up": connected}))?;
        }
        if connected { self.until_up(None) } else { Ok(()) }
    }

    /// The power plug: the machine is gone, its disk as it was at that moment. No effect if the machine does not run.
    ///
    /// # Errors
    /// The machine survives SIGKILL.
    pub fn power_off(&mut self) -> anyhow::Result<()> {
        match self.process.take() {
            Some(mut process) => process.end(Duration::from_secs(5)),
            None => Ok(()),
        }
    }

    /// Waits for the shell and sets the clock. `not` is the id of a boot that does not count: the one before a reboot.
    ///
    /// # Errors
    /// A panic, or no shell in time.
    pub fn until_up(&mut self, not: Option<&str>) -> anyhow::Result<()> {
        let log = self.dir.join("qemu.log");
        let shell = self.shell();
        let up = until_within(TO_BOOT, &format!("a shell of node {}", self.known.name), || {
            if let Some(process) = &mut self.process {
                process.expect_running(&log)?;
            }
            if vm::panicked(&self.console()) {
                bail!("node {} panicked: {}", self.known.name, vm::tail(&self.console(), 30));
            }
            // The console shows when a connection is worth trying.
            let problem = if vm::said_up(&self.console()) {
                match self.boot_id() {
                    Ok(id) if not != Some(id.as_str()) => return Ok(Ok(())),
                    Ok(_) => "still the boot before".to_owned(),
                    Err(error) => format!("{error:#}"),
                }
            } else {
                "it still boots".to_owned()
            };
            shell.forget();
            Ok(Err(format!("{problem}; its console: {}", vm::tail(&self.console(), 30))))
        });
        up.map_err(|error| match error.is::<Late>() {
            true => NotInTime(format!("{error:#}")).into(),
            false => error,
        })?;
        self.set_clock().map(drop)
    }

    /// How far the node's wall clock is ahead of the host's, in seconds, to a few milliseconds.
    ///
    /// # Errors
    /// The shell does not answer.
    pub fn clock_ahead(&self) -> anyhow::Result<f64> {
        clock::ahead(&self.shell())
    }

    /// Steps the node's wall clock to the host's if the difference is above 20 ms; how far the node is ahead after that, in
    /// seconds.
    ///
    /// # Errors
    /// The shell does not answer, or the clock stays wrong.
    pub fn set_clock(&self) -> anyhow::Result<f64> {
        clock::set(&self.shell())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::Caller {
            self.shell().forget();
            // A caller that needs the state asks before.
            let _ = self.power_off();
        }
    }
}

fn records(dir: &Path) -> PathBuf {
    dir.join("processes")
}

/// cp keeps holes; a disk is mostly holes.
fn copy_sparse(from: &Path, to: &Path) -> anyhow::Result<()> {
    let done = Command::new("cp")
        .args(["--sparse=always", "--reflink=auto", "--"])
        .args([from, to])
        .output()
        .context("run cp")?;
    ensure!(
        done.status.success(),
        "copy {}: {}",
        from.display(),
        String::from_utf8_lossy(&done.stderr).trim()
    );
    Ok(())
}
