//! What `/proc` and the cgroup file systems say: everything that exists at the start, and single facts on request.
//!
//! Everything read here can vanish or lie between two system calls: a fact that could not be had is a fact that says so, and
//! only a machine without any cgroup v2 is an error.

mod hierarchy;
mod process;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::attribute::Question;
use crate::attribute::path::{self, Place};
use crate::clock;
use crate::event::{Boot, CgroupFact, CgroupId, Input, Observation, Pid, ProcessFact, WallOffset};

use hierarchy::Hierarchies;

/// More cgroups than any kernel has been seen with: a walk ends there rather than never.
const MAX_CGROUPS: usize = 1 << 18;

/// A walk for one unknown id may not take more than this part of the time: 1 in 10.
const WALK_SHARE: u32 = 10;

#[derive(Debug, thiserror::Error)]
pub enum ProcfsError {
    #[error("cannot read {path}: {source}; mount the host's /proc and /sys, or name them with --proc and --sys")]
    Unreadable { path: String, source: io::Error },
    #[error("no cgroup v2 hierarchy is mounted below {sys}; mount one: mount -t cgroup2 none {sys}/fs/cgroup/unified")]
    NoCgroup2 { sys: String },
}

/// The machine's `/proc` and `/sys`, wherever they are mounted.
pub struct Procfs {
    proc: PathBuf,
    hierarchies: Hierarchies,
    walked: Mutex<Walked>,
}

/// What the last walk saw.
#[derive(Default)]
struct Walked {
    paths: HashMap<CgroupId, String>,
    /// No walk for a single id before then.
    rested: Boot,
}

impl Procfs {
    /// `proc` and `sys` are `/proc` and `/sys`, or where a container sees the host's.
    pub fn new(proc: &Path, sys: &Path) -> Result<Procfs, ProcfsError> {
        let hierarchies = Hierarchies::find(proc, sys)?;
        Ok(Procfs {
            proc: proc.to_owned(),
            hierarchies,
            walked: Mutex::default(),
        })
    }

    /// Where the cgroup v2 hierarchy is mounted, as seen from here.
    pub fn cgroup2(&self) -> &Path {
        &self.hierarchies.v2.mount
    }

    /// Who observes. `since` is the moment at which the last probe was attached.
    pub fn observation(&self, since: Boot, wall_offset: WallOffset) -> Result<Observation, ProcfsError> {
        let kernel = |name: &str| -> Result<String, ProcfsError> {
            let text = read(&self.proc.join("sys/kernel").join(name))?;
            Ok(path::shown(text.trim_end()).into_owned())
        };
        Ok(Observation {
            boot_id: kernel("random/boot_id")?,
            host: kernel("hostname")?,
            kernel: kernel("osrelease")?,
            wall_offset,
            since,
            hybrid: self.hierarchies.hybrid,
        })
    }

    /// Every v2 cgroup, parents first, then the processes of subjects, oldest first.
    pub fn scan(&self) -> Result<Vec<Input>, ProcfsError> {
        let mut inputs = Vec::new();
        let mut pids = BTreeSet::new();
        let mut paths = HashMap::new();
        let mount = &self.hierarchies.v2.mount;
        fs::read_dir(mount).map_err(|source| unreadable(mount, source))?;
        self.hierarchies.v2.walk(|cgroup, path, directory| {
            if is_subject(path) {
                members(directory, &mut pids);
            }
            inputs.push(Input::Cgroup(CgroupFact {
                cgroup,
                path: Ok(path.to_owned()),
            }));
            paths.insert(cgroup, path.to_owned());
        });
        // What only v1 knows: containers whose runtime leaves cgroup v2 alone.
        for v1 in self.hierarchies.v1.iter().take(2) {
            v1.walk(|_, path, directory| {
                if is_subject(path) {
                    members(directory, &mut pids);
                }
            });
        }
        self.walked().paths = paths;
        let mut processes: Vec<ProcessFact> = pids
            .into_iter()
            .map(|pid| self.process(pid))
            .filter(|p| !p.is_gone())
            .collect();
        processes.sort_by_key(|process| (process.start, process.tgid));
        inputs.extend(processes.into_iter().map(Input::Process));
        Ok(inputs)
    }

    /// One fact. What is gone or not readable is answered too: the core then does not ask again.
    pub fn answer(&self, question: &Question) -> Input {
        match question {
            Question::Process(pid) => Input::Process(self.process(*pid)),
            Question::Cgroup(cgroup) => Input::Cgroup(CgroupFact {
                cgroup: *cgroup,
                path: self.path(*cgroup),
            }),
        }
    }

    /// A process's facts; [`ProcessFact::gone`] where it is not there, or was replaced while it was looked at.
    pub fn process(&self, pid: Pid) -> ProcessFact {
        process::read(&self.proc, pid, &self.hierarchies).unwrap_or_else(|| ProcessFact::gone(pid))
    }

    fn walked(&self) -> MutexGuard<'_, Walked> {
        // Nothing in there is half done after a panic.
        self.walked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, cgroup: CgroupId) -> Result<String, String> {
        let mut walked = self.walked();
        if let Some(path) = walked.paths.get(&cgroup) {
            return Ok(path.clone());
        }
        let Some(hierarchy) = self.hierarchies.get(cgroup.hierarchy) else {
            return Err(format!("cgroup hierarchy {} is not mounted below --sys", cgroup.hierarchy));
        };
        let before = clock::now();
        if before < walked.rested {
            return Err(CgroupFact::BUSY.to_owned());
        }
        walked.paths.retain(|id, _| id.hierarchy != cgroup.hierarchy);
        hierarchy.walk(|id, path, _| {
            walked.paths.insert(id, path.to_owned());
        });
        let after = clock::now();
        walked.rested = after.plus(after.since(before).max(Duration::from_micros(100)) * (WALK_SHARE - 1));
        let found = walked.paths.get(&cgroup).cloned();
        found.ok_or_else(|| CgroupFact::GONE.to_owned())
    }
}

fn is_subject(path: &str) -> bool {
    matches!(path::parse(path), Ok(Place::Subject(..)))
}

/// The processes in a cgroup itself. A threaded one shows none: they are shown by its domain.
fn members(directory: &Path, pids: &mut BTreeSet<Pid>) {
    let Ok(text) = fs::read_to_string(directory.join("cgroup.procs")) else {
        return;
    };
    // 0 is a process outside the reader's pid namespace.
    pids.extend(
        text.lines()
            .filter_map(|line| line.parse().ok())
            .filter(|pid| *pid != 0)
            .map(Pid),
    );
}

/// The inode number of a cgroup's directory: what the kernel calls its id.
fn inode(directory: &Path) -> Option<u64> {
    let meta = fs::symlink_metadata(directory).ok()?;
    meta.is_dir().then(|| meta.ino())
}

fn read(path: &Path) -> Result<String, ProcfsError> {
    let bytes = fs::read(path).map_err(|source| unreadable(path, source))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn unreadable(path: &Path, source: io::Error) -> ProcfsError {
    ProcfsError::Unreadable {
        path: path.display().to_string(),
        source,
    }
}

#[cfg(test)]
mod tests;
