//! Facts from `/proc` and the cgroup file systems: everything that exists at the start, and single facts on request.
//!
//! Files read here can vanish or change between two system calls: a fact that cannot be read is reported as such. The only error
//! is a machine without any cgroup hierarchy that identifies tasks.

mod first;
mod hierarchy;
mod process;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epitaph_core::attribute::Question;
use epitaph_core::attribute::path::{self, Nodes, Place};
use epitaph_core::ids::{CgroupId, Pid};
use epitaph_core::input::{CgroupFact, CgroupMode, Input, Observation, ProcessFact, V1};
use epitaph_core::time::{Boot, WallOffset};

use crate::clock;
use crate::error::{HasRemedy, Remedy};

use hierarchy::Hierarchies;
use process::Known;

/// More cgroups than any known machine has: the bound of a walk.
const MAX_CGROUPS: usize = 1 << 18;
/// The same of the cgroups in one directory.
const MAX_CHILDREN: usize = 1 << 14;
/// Bytes of the paths that a walk keeps for the next question.
const WALKED_BYTES: usize = 4 << 20;

/// Walks for single unknown ids may take at most one part in this many of the time.
const WALK_SHARE: u32 = 10;

const OWN_CGROUP: &str = "/sys/fs/cgroup";
const OWN_PROCESS: &str = "/proc/self";

#[derive(Debug, thiserror::Error)]
pub enum ProcfsError {
    #[error("cannot read {path}: {source}")]
    Unreadable { path: String, source: io::Error },
    #[error("no cgroup hierarchy is mounted below {sys}, neither v2 nor a controller's of v1")]
    NoCgroups { sys: String },
}

impl HasRemedy for ProcfsError {
    fn remedy(&self) -> Option<Remedy> {
        Some(match self {
            ProcfsError::Unreadable { .. } => "mount the host's /proc and /sys, or name them with --proc and --sys".into(),
            ProcfsError::NoCgroups { sys } => format!(
                "mount the host's there or name its place with --sys, or mount one: mount -t cgroup2 none {sys}/fs/cgroup"
            )
            .into(),
        })
    }
}

/// The machine's `/proc` and `/sys`, at their mount points.
pub struct Procfs {
    proc: PathBuf,
    hierarchies: Hierarchies,
    walked: Mutex<Walked>,
    /// What the first scan has shown, until the next one.
    first: Vec<Input>,
    /// The same of each process, in few bytes.
    known: HashMap<Pid, Known>,
}

/// Result of the last walk, as far as it fits.
#[derive(Default)]
struct Walked {
    paths: HashMap<CgroupId, String>,
    bytes: usize,
    /// No walk for a single id before this time.
    rested: Boot,
}

impl Walked {
    fn forget(&mut self) {
        (self.paths, self.bytes) = (HashMap::new(), 0);
    }

    fn keep(&mut self, cgroup: CgroupId, path: &str) {
        let bytes = path.len() + 2 * size_of::<(CgroupId, String)>();
        if self.bytes + bytes <= WALKED_BYTES {
            self.bytes += bytes;
            self.paths.insert(cgroup, path.to_owned());
        }
    }
}

/// This process as the machine counts it: in a container its own number is another one. `proc`: the machine's `/proc`.
pub fn own_pid(proc: &Path) -> Pid {
    let own = fs::read_link(proc.join("self")).ok();
    let shown = own.and_then(|own| own.to_str()?.parse().ok());
    Pid(shown.unwrap_or_else(std::process::id))
}

impl Procfs {
    /// `proc` and `sys` are `/proc` and `/sys`, or the mount points of the host's in a container.
    pub fn new(proc: &Path, sys: &Path) -> Result<Procfs, ProcfsError> {
        Procfs::seen_from(proc, sys, Path::new(OWN_CGROUP), Path::new(OWN_PROCESS))
    }

    /// `own`: the place at which a container's runtime mounts the container's cgroups; `process`: our own `/proc/PID`.
    fn seen_from(proc: &Path, sys: &Path, own: &Path, process: &Path) -> Result<Procfs, ProcfsError> {
        let hierarchies = Hierarchies::find(proc, sys)?.in_namespace_of(own, process);
        Ok(Procfs {
            proc: proc.to_owned(),
            hierarchies,
            walked: Mutex::default(),
            first: Vec::new(),
            known: HashMap::new(),
        })
    }

    /// The v1 hierarchy by which the probes identify tasks, alone or alongside v2.
    pub fn v1(&self) -> Option<V1> {
        let (number, controller) = self.hierarchies.controlled?;
        Some(V1 {
            is_alone: number == self.hierarchies.recorded.number,
            hierarchy: u16::try_from(number).ok()?,
            controller: controller.to_owned(),
        })
    }

    pub fn cgroups(&self) -> CgroupMode {
        match (self.hierarchies.recorded.number, self.hierarchies.has_v1) {
            (0, true) => CgroupMode::Hybrid,
            (0, false) => CgroupMode::V2,
            (v1, _) => CgroupMode::V1(v1),
        }
    }

    /// Mount point of the hierarchy that identifies tasks, as this process sees it.
    pub fn mount(&self) -> &Path {
        &self.hierarchies.recorded.mount
    }

    /// The machine and the begin of the observation. `since` is the moment from which on the records of what exists are complete.
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
            cgroups: self.cgroups(),
            nodes_in_containers: false,
            ticks_per_second: None,
            observes_followed: true,
        })
    }

    /// Every cgroup of the recorded hierarchies, parents first, then the processes of subjects, oldest first: one after the other to
    /// `each`, until the first error.
    pub fn scan<E: From<ProcfsError>>(&self, mut each: impl FnMut(Input) -> Result<(), E>) -> Result<(), E> {
        let mut result = Ok(());
        let mut walked = Walked::default();
        let mount = &self.hierarchies.recorded.mount;
        fs::read_dir(mount).map_err(|source| unreadable(mount, source))?;
        for hierarchy in self.hierarchies.of_records() {
            hierarchy.walk(|cgroup, path, _| {
                if result.is_ok() {
                    walked.keep(cgroup, path);
                    let path = Ok(path.to_owned());
                    result = each(Input::Cgroup(CgroupFact::of(cgroup, path)));
                }
            });
        }
        let mut known = self.walked();
        (known.paths, known.bytes) = (walked.paths, walked.bytes);
        drop(known);
        result?;
        let mut processes: Vec<ProcessFact> = self.running().collect();
        processes.sort_by_key(|process| (process.start, process.tgid));
        processes.into_iter().try_for_each(|process| each(Input::Process(process)))
    }

    /// The processes of subjects, also those that the first scan has found in one, and that have left since.
    ///
    /// By the numbers in `/proc`, not by each cgroup's `cgroup.procs`: a process that moves from a cgroup that is not read yet to one that was
    /// read is in none of these files, and a number from such a file can be another process's when it is looked at. Each process is in `/proc`
    /// from its begin to its end, wherever it moves, and its cgroups are read once, at one moment.
    fn running(&self) -> impl Iterator<Item = ProcessFact> {
        self.pids().filter_map(|pid| {
            let was = self.known.get(&pid);
            process::running(&self.proc, pid, &self.hierarchies, was, is_subject)
        })
    }

    /// One fact. A missing or unreadable object is answered too, so that the core does not ask again.
    pub fn answer(&self, question: &Question) -> Input {
        match question {
            Question::Process(pid) => Input::Process(self.process(*pid)),
            Question::Cgroup(cgroup) => Input::Cgroup(CgroupFact::of(*cgroup, self.path(*cgroup))),
        }
    }

    /// A process's facts; [`ProcessFact::gone`] if the process does not exist any more.
    pub fn process(&self, pid: Pid) -> ProcessFact {
        process::read(&self.proc, pid, &self.hierarchies).unwrap_or_else(|| ProcessFact::gone(pid))
    }

    /// [`own_pid`] by this mount of `/proc`.
    pub fn own_pid(&self) -> Pid {
        own_pid(&self.proc)
    }

    /// Every process that `/proc` shows.
    fn pids(&self) -> impl Iterator<Item = Pid> {
        let entries = fs::read_dir(&self.proc).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid))
    }

    fn walked(&self) -> MutexGuard<'_, Walked> {
        // The value is consistent even after a panic.
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
        walked.forget();
        let mut found = None;
        hierarchy.walk(|id, path, _| {
            walked.keep(id, path);
            if id == cgroup {
                found = Some(path.to_owned());
            }
        });
        let after = clock::now();
        walked.rested = after.plus(after.since(before).max(Duration::from_micros(100)) * (WALK_SHARE - 1));
        found.ok_or_else(|| CgroupFact::GONE.to_owned())
    }
}

fn is_subject(path: &str) -> bool {
    matches!(path::parse(path, Nodes::default()), Ok(Place::Subject(..)))
}

/// The inode number of a cgroup's directory, which is the kernel's id of the cgroup.
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
#[path = "fuzz_tests.rs"]
mod fuzz;
#[cfg(test)]
mod tests;
