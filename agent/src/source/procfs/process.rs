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

/// None if the process is gone, or exiting with cgroups of v1.
pub(super) fn read(proc: &Path, pid: Pid, hierarchies: &Hierarchies) -> Option<ProcessFact> {
    let directory = Directory::open(proc, pid)?;
    let cgroups = directory.text("cgroup")?;
    Some(directory.fact(pid, &memberships(&cgroups, hierarchies), hierarchies, None)?.0)
}

/// As [`read`], if the process runs, and `is_wanted` by one of its cgroups' paths or was shown by an earlier scan. `was`: the process of that
/// number in that scan; what never changes of a process is not read again.
pub(super) fn running(
    proc: &Path,
    pid: Pid,
    hierarchies: &Hierarchies,
    was: Option<&Known>,
    is_wanted: impl Fn(&str) -> bool,
) -> Option<ProcessFact> {
    let directory = Directory::open(proc, pid)?;
    let cgroups = directory.text("cgroup")?;
    let memberships = memberships(&cgroups, hierarchies);
    let mut paths = memberships.iter().map(|line| hierarchies.real(line.hierarchy, line.path));
    let is_wanted = paths.any(|path| is_wanted(&path));
    // Before anything else is read: a machine has hundreds of kernel threads, which are in no subject.
    if was.is_none() && !is_wanted {
        return None;
    }
    let (fact, has_exited) = directory.fact(pid, &memberships, hierarchies, was)?;
    let is_known = was.is_some_and(|was| was.start == fact.start);
    (!has_exited && (is_wanted || is_known)).then_some(fact)
}

/// Of `/proc/PID/cgroup`, the one that decides first.
fn memberships<'a>(text: &'a str, hierarchies: &Hierarchies) -> Vec<Membership<'a>> {
    let mut lines: Vec<_> = text.lines().filter_map(Membership::parse).collect();
    lines.sort_by_cached_key(|line| line.preference(|number| hierarchies.is_recorded(number)));
    lines
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

    /// A process with `memberships`, read before: the kernel shows the v1 paths of an exiting process as `/`, from any cgroup, and whether it
    /// was exiting is known only after them. Also: whether all of the process has exited.
    fn fact(
        &self,
        pid: Pid,
        memberships: &[Membership<'_>],
        hierarchies: &Hierarchies,
        was: Option<&Known>,
    ) -> Option<(ProcessFact, bool)> {
        let stat = Stat::parse(&self.text("stat")?)?;
        if stat.is_exiting && memberships.iter().any(|line| line.hierarchy != 0) {
            return None;
        }
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
            cgroups: memberships.iter().map(|line| cgroup(line, hierarchies)).collect(),
        };
        Some((fact, stat.has_exited))
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
    /// A zombie without a thread that still runs.
    has_exited: bool,
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
            has_exited: matches!(*fields.first()?, "Z" | "X") && fields.get(17)?.parse::<u32>().ok()? <= 1,
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
