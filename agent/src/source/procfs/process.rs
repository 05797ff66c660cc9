//! One process, from `/proc/PID`.

use std::fs;
use std::path::Path;

use epitaph_core::ids::{CgroupId, Pid};
use epitaph_core::input::ProcessFact;
use epitaph_core::time::{Boot, TICK_NS};

use super::hierarchy::{Hierarchies, Membership};

/// A task flag of the kernel: the same bit from 5.10 on.
const PF_EXITING: u32 = 4;

/// None if the process is gone or exiting, or another process took its pid during the reading.
pub(super) fn read(proc: &Path, pid: Pid, hierarchies: &Hierarchies) -> Option<ProcessFact> {
    let directory = proc.join(pid.to_string());
    let text = |name: &str| Some(String::from_utf8_lossy(&fs::read(directory.join(name)).ok()?).into_owned());
    let stat = Stat::parse(&text("stat")?)?;
    let (ns_level, ns_pid) = namespace(&text("status")?).unwrap_or((0, pid.0));
    let mut cgroups: Vec<_> = text("cgroup")?
        .lines()
        .filter_map(Membership::parse)
        .map(|line| {
            (
                line.preference(|number| hierarchies.is_recorded(number)),
                cgroup(&line, hierarchies),
            )
        })
        .collect();
    cgroups.sort_by_key(|(preference, _)| *preference);
    let after = Stat::parse(&text("stat")?)?;
    // The kernel shows the v1 paths of an exiting process as `/`, from any cgroup: such paths are unknown.
    let is_unknown = after.is_exiting && cgroups.iter().any(|(_, (cgroup, _))| cgroup.hierarchy != 0);
    if after.start_ticks != stat.start_ticks || is_unknown {
        return None;
    }
    Some(ProcessFact {
        tgid: pid,
        ppid: Pid(stat.ppid),
        start: Boot(stat.start_ticks.saturating_mul(TICK_NS)),
        ns_level,
        ns_pid,
        comm: stat.comm,
        cgroups: cgroups.into_iter().map(|(_, cgroup)| cgroup).collect(),
    })
}

fn cgroup(line: &Membership<'_>, hierarchies: &Hierarchies) -> (CgroupId, String) {
    let path = hierarchies.real(line.hierarchy, line.path);
    let id = |path: &str| hierarchies.get(line.hierarchy).and_then(|hierarchy| hierarchy.id(path));
    let unknown = CgroupId {
        hierarchy: line.hierarchy,
        id: 0,
    };
    match id(&path) {
        Some(cgroup) => (cgroup, path.into_owned()),
        // A zombie's cgroup can be gone before the zombie. A new cgroup of the same name is not the zombie's.
        None => (unknown, path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned()),
    }
}

pub(super) struct Stat {
    pub(super) comm: String,
    ppid: u32,
    is_exiting: bool,
    /// Since boot, suspend included.
    start_ticks: u64,
}

impl Stat {
    /// `42 (co) mm)) S 1 …`: the name ends at the last parenthesis; see proc_pid_stat(5).
    pub(super) fn parse(text: &str) -> Option<Stat> {
        let (head, tail) = text.rsplit_once(')')?;
        let (_, comm) = head.split_once('(')?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        Some(Stat {
            // The kernel's name has at most 15 bytes; each invalid byte became three.
            comm: comm.chars().take(45).collect(),
            ppid: fields.get(1)?.parse().ok()?,
            is_exiting: fields.get(6)?.parse::<u32>().ok()? & PF_EXITING != 0,
            start_ticks: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Depth of the pid namespace below the reader's, and the pid in that namespace: `NSpid:\t4711\t12\t1` is depth 2, pid 1.
pub(super) fn namespace(status: &str) -> Option<(u32, u32)> {
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let pids: Vec<u32> = pids.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    Some((u32::try_from(pids.len().checked_sub(1)?).ok()?, *pids.last()?))
}
