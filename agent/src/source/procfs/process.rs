//! One process, from `/proc/PID`.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;

use epitaph_core::ids::{CgroupId, Pid};
use epitaph_core::input::ProcessFact;
use epitaph_core::time::{Boot, TICK_NS};
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;

use super::hierarchy::{Hierarchies, Membership};

/// A task flag of the kernel: the same bit from 5.10 on.
const PF_EXITING: u32 = 4;

/// None if the process is gone or exiting.
pub(super) fn read(proc: &Path, pid: Pid, hierarchies: &Hierarchies) -> Option<ProcessFact> {
    let directory = Directory::open(proc, pid)?;
    let mut cgroups: Vec<_> = directory
        .text("cgroup")?
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
    let (fact, is_exiting) = directory.fact(pid, None)?;
    // The kernel shows the v1 paths of an exiting process as `/`, from any cgroup: such paths are unknown.
    let is_unknown = is_exiting && cgroups.iter().any(|(_, (cgroup, _))| cgroup.hierarchy != 0);
    (!is_unknown).then(|| ProcessFact {
        cgroups: cgroups.into_iter().map(|(_, cgroup)| cgroup).collect(),
        ..fact
    })
}

/// As [`read`], without its cgroups. `was`: the process of that number in an earlier scan; what never changes of a process is not read again.
pub(super) fn read_again(proc: &Path, pid: Pid, was: Option<&Known>) -> Option<ProcessFact> {
    Some(Directory::open(proc, pid)?.fact(pid, was)?.0)
}

/// Of a process in an earlier scan.
pub(super) struct Known {
    pub start: Boot,
    pub ns_level: u32,
    pub ns_pid: u32,
}

/// A directory of `/proc`: what is read in it is of one process. Once that is gone, nothing can be read, even if another one has its number.
struct Directory(OwnedFd);

impl Directory {
    fn open(proc: &Path, pid: Pid) -> Option<Directory> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        open(&proc.join(pid.to_string()), flags, Mode::empty()).ok().map(Directory)
    }

    fn text(&self, name: &str) -> Option<String> {
        let Directory(directory) = self;
        let file = openat(directory, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
        // Room for the whole file: the kernel states no length, and a buffer that grows is a system call for each step.
        let mut bytes = Vec::with_capacity(4096);
        File::from(file).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Without cgroups; and whether the process is exiting.
    fn fact(&self, pid: Pid, was: Option<&Known>) -> Option<(ProcessFact, bool)> {
        let stat = Stat::parse(&self.text("stat")?)?;
        let start = Boot(stat.start_ticks.saturating_mul(TICK_NS));
        let (ns_level, ns_pid) = match was.filter(|was| was.start == start) {
            Some(was) => (was.ns_level, was.ns_pid),
            None => namespace(&self.text("status")?).unwrap_or((0, pid.0)),
        };
        let fact = ProcessFact {
            tgid: pid,
            ppid: Pid(stat.ppid),
            start,
            ns_level,
            ns_pid,
            comm: stat.comm,
            cgroups: Vec::new(),
        };
        Some((fact, stat.is_exiting))
    }
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
