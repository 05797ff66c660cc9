//! The running kubelet, by `/proc`. Any process can have the kubelet's name: what counts is that systemd started it as a unit of the
//! kubelet, or that it is root's and in no container.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use epitaph_core::ids::Pid;
use epitaph_core::time::{Boot, TICK_NS};

use super::flags::Flags;

/// Programs with a kubelet inside. k3s renames itself.
const NAMES: [&str; 4] = ["kubelet", "kubelite", "k3s-server", "k3s-agent"];

/// Parts of the names of containers' cgroups.
const CONTAINERS: [&str; 5] = ["kubepods", "docker", "libpod", "crio-", "cri-containerd"];

/// systemd's own limit.
const UNIT: usize = 255;

/// Longest command line that is read, bytes.
pub(super) const COMMAND: usize = 128 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletProcess {
    pub pid: Pid,
    /// `comm`.
    pub name: String,
    pub start: Boot,
    /// The service of this machine's systemd that started it.
    pub unit: Option<String>,
    pub flags: Flags,
}

/// None if no kubelet runs, or `proc` does not show it. `units`: names of the kubelet's units.
pub fn find(proc: &Path, units: &[String]) -> Option<KubeletProcess> {
    let pids = fs::read_dir(proc).ok()?.flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some(Pid(pid))
    });
    let mut found: Vec<(bool, KubeletProcess)> = pids.filter_map(|pid| read(proc, pid, units)).collect();
    // In a unit first, then the oldest.
    found.sort_by_key(|(is_unit, process)| (!is_unit, process.start, process.pid));
    found.into_iter().next().map(|(_, process)| process)
}

/// Which kubelet runs, looked at again and again: another process may have read another configuration.
pub struct Running {
    proc: PathBuf,
    units: Vec<String>,
    /// The last one that was found.
    seen: Option<(Pid, Boot)>,
}

impl Running {
    pub fn new(proc: &Path, units: &[String]) -> Running {
        Running {
            proc: proc.to_owned(),
            units: units.to_owned(),
            seen: None,
        }
    }

    /// Looks at every process, unless the known kubelet still runs.
    pub fn search(&mut self) {
        if !self.runs() {
            let found = find(&self.proc, &self.units);
            self.seen = found.map(|process| (process.pid, process.start)).or(self.seen);
        }
    }

    /// Whether a kubelet has taken the place of the known one. One that ended without a successor is none: a node that shuts down stops its
    /// kubelet, whose configuration was in force. Without a known one only [`Running::search`] finds one: `/proc` may hide it.
    pub fn is_another(&mut self) -> bool {
        let before = self.seen;
        if before.is_some() {
            self.search();
        }
        self.seen != before
    }

    fn runs(&self) -> bool {
        self.seen.is_some_and(|(pid, begin)| {
            let stat = fs::read(self.proc.join(pid.to_string()).join("stat"));
            stat.is_ok_and(|stat| start(&String::from_utf8_lossy(&stat)) == Some(begin))
        })
    }
}

fn read(proc: &Path, pid: Pid, units: &[String]) -> Option<(bool, KubeletProcess)> {
    let directory = proc.join(pid.to_string());
    let text = |name: &str| Some(String::from_utf8_lossy(&fs::read(directory.join(name)).ok()?).into_owned());
    let name = text("comm")?.trim_end().to_owned();
    if !NAMES.contains(&name.as_str()) || fs::metadata(&directory).ok()?.uid() != 0 {
        return None;
    }
    let cgroups = text("cgroup")?;
    let is_unit = cgroups.split(['/', '\n']).any(|part| units.iter().any(|unit| unit == part));
    if !is_unit && CONTAINERS.iter().any(|mark| cgroups.contains(mark)) {
        return None;
    }
    let command = fs::read(directory.join("cmdline")).ok()?;
    let command = command.get(..COMMAND).unwrap_or(&command);
    let command: Vec<_> = command
        .split(|byte| *byte == 0)
        .skip(1)
        .map(String::from_utf8_lossy)
        .collect();
    let flags = Flags::parse(command.iter().map(|argument| &**argument));
    let start = start(&text("stat")?)?;
    let unit = unit_of(&cgroups);
    let process = KubeletProcess {
        pid,
        name,
        start,
        unit,
        flags,
    };
    Some((is_unit, process))
}

/// The service to restart: `k3s.service`, `snap.microk8s.daemon-kubelite.service`. None in a container and in a session, whose services
/// are not those of this machine's systemd.
fn unit_of(cgroups: &str) -> Option<String> {
    let path = cgroups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        matches!(controllers, "" | "name=systemd").then_some(path)
    })?;
    let is_other =
        |part: &str| part.ends_with(".scope") || part == "user.slice" || CONTAINERS.iter().any(|mark| part.contains(mark));
    if path.split('/').any(is_other) {
        return None;
    }
    let unit = path.rsplit('/').find(|part| part.ends_with(".service"))?;
    // Into a command for a shell.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":_.@-".contains(&byte);
    (unit.len() <= UNIT && !unit.starts_with('-') && unit.bytes().all(is_plain)).then(|| unit.to_owned())
}

/// Field 22; the name, field 2, ends at the last parenthesis.
fn start(stat: &str) -> Option<Boot> {
    let (_, after) = stat.rsplit_once(')')?;
    let ticks: u64 = after.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some(Boot(ticks.saturating_mul(TICK_NS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_a_kubelet_is_that_of_this_machine() {
        let of = |path: &str| unit_of(&format!("0::{path}\n"));
        for unit in [
            "kubelet.service",
            "k3s-agent.service",
            "rke2-server.service",
            "k0sworker.service",
            "snap.microk8s.daemon-kubelite.service",
        ] {
            assert_eq!(of(&format!("/system.slice/{unit}")).as_deref(), Some(unit));
        }
        assert_eq!(of("/kube.slice/k3s.service/init").as_deref(), Some("k3s.service"));
        for other in [
            "/",
            "/system.slice",
            "/user.slice/user-0.slice/session-3.scope",
            "/user.slice/user-0.slice/user@0.service/app.slice/k3s.service",
            "/system.slice/docker-0123.scope/kubelet.slice/kubelet.service",
            "/docker/0123/kubelet.slice/kubelet.service",
            "/system.slice/$(reboot).service",
            "/system.slice/-now.service",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        let v1 = "12:pids:/kubelet\n1:name=systemd:/system.slice/kubelet.service\n";
        assert_eq!(unit_of(v1).as_deref(), Some("kubelet.service"));
    }
}
