//! The running kubelet, by `/proc`. Any process can have the kubelet's name: what counts is that systemd started it as a unit of the
//! kubelet, or that it is root's and in no container.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use epitaph_core::ids::Pid;
use epitaph_core::time::{Boot, TICK_NS};

use super::flags::Flags;

/// Programs with a kubelet inside. k3s renames itself.
const NAMES: [&str; 4] = ["kubelet", "kubelite", "k3s-server", "k3s-agent"];

/// Longest command line that is read, bytes.
const COMMAND: usize = 128 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletProcess {
    pub pid: Pid,
    /// `comm`.
    pub name: String,
    pub start: Boot,
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

fn read(proc: &Path, pid: Pid, units: &[String]) -> Option<(bool, KubeletProcess)> {
    let directory = proc.join(pid.to_string());
    let text = |name: &str| Some(String::from_utf8_lossy(&fs::read(directory.join(name)).ok()?).into_owned());
    let name = text("comm")?.trim_end().to_owned();
    if !NAMES.contains(&name.as_str()) || fs::metadata(&directory).ok()?.uid() != 0 {
        return None;
    }
    let cgroups = text("cgroup")?;
    let is_unit = cgroups.split(['/', '\n']).any(|part| units.iter().any(|unit| unit == part));
    let is_container = ["kubepods", "docker", "libpod", "crio-", "cri-containerd"];
    if !is_unit && is_container.iter().any(|mark| cgroups.contains(mark)) {
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
    let process = KubeletProcess { pid, name, start, flags };
    Some((is_unit, process))
}

/// Field 22; the name, field 2, ends at the last parenthesis.
fn start(stat: &str) -> Option<Boot> {
    let (_, after) = stat.rsplit_once(')')?;
    let ticks: u64 = after.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some(Boot(ticks.saturating_mul(TICK_NS)))
}
