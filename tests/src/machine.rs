//! What this machine can play.

use std::fs;
use std::net::{Ipv6Addr, TcpListener};

use anyhow::{Context, bail};

use crate::cgroup::{Inhabitants, Memory, Mounts};
use crate::network::Network;
use crate::story::{Need, Story};
use crate::sys::random_hex;

/// Facts about the machine, found once.
#[derive(Clone, Debug)]
pub struct Machine {
    pub mounts: Mounts,
    core_pattern: String,
    ipv6: Result<(), String>,
    freezer: bool,
    cgroup_kill: bool,
}

/// Whether this process may make cgroups and pid namespaces, and load probes.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

impl Machine {
    /// # Errors
    /// Not root, or no cgroups at all: no story can be played then.
    pub fn survey(inhabitants: Inhabitants) -> anyhow::Result<Machine> {
        if !is_root() {
            bail!("playing the stories needs root (cgroups, pid namespaces, probes): run it as root, with sudo for instance");
        }
        let mounts = Mounts::inhabited(inhabitants).context("survey the machine")?;
        // Scopes have these files, the root does not. A name of its own: tests of one process survey at the same time.
        let scope = crate::cgroup::Scope::create(&mounts, &format!("cri-containerd-survey-{}.scope", random_hex(8)?), None)
            .context("make a cgroup: is it mounted read-only, as in an unprivileged container?")?;
        let has = |file: &str| scope.home().join(file).exists();
        let (freezer, cgroup_kill) = (has("cgroup.freeze"), has("cgroup.kill"));
        scope.remove().context("survey the machine")?;
        Ok(Machine {
            mounts,
            core_pattern: fs::read_to_string("/proc/sys/kernel/core_pattern")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            ipv6: TcpListener::bind((Ipv6Addr::LOCALHOST, 0))
                .map(drop)
                .map_err(|e| e.to_string()),
            freezer,
            cgroup_kill,
        })
    }

    /// Err with the reason if the story cannot be played here.
    pub fn can_play(&self, story: &Story) -> Result<(), String> {
        story.needs().into_iter().try_for_each(|need| match need {
            Need::MemoryLimit => match &self.mounts.memory {
                Memory::None(reason) => Err(reason.clone()),
                _ => Ok(()),
            },
            Need::Freezer if !self.freezer => Err("no cgroup.freeze: cgroup v1, or a kernel older than 5.2".into()),
            Need::CgroupKill if !self.cgroup_kill => Err("no cgroup.kill: cgroup v1, or a kernel older than 5.14".into()),
            Need::Ipv6 => self.ipv6.clone().map_err(|e| format!("no IPv6 on the loopback: {e}")),
            Need::CoreFile if self.core_pattern.starts_with(['|', '/', '@']) => Err(format!(
                "kernel.core_pattern is `{}`: a core would go to this machine's own collection",
                self.core_pattern
            )),
            Need::Program(program) => program.is_here(),
            Need::NetworkNamespace => Network::available(),
            Need::Freezer | Need::CgroupKill | Need::CoreFile => Ok(()),
        })
    }
}
