//! Control groups as the stand-in runtime makes them: a scope in the v2 hierarchy, wherever it is mounted, and one in the v1
//! memory hierarchy if memory is limited and v1 has the controller. Or, as on machines with older runtimes or without v2, one
//! in each hierarchy of v1.

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::sys::random_hex;
use crate::timeout::{holds, until};

/// Parent of all cgroups of a demo.
pub const SLICE: &str = "epitaph-demo.slice";

/// Where this machine mounts its hierarchies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounts {
    /// Mount point of cgroup v2: `/sys/fs/cgroup`, on hybrid machines below it.
    pub v2: Option<PathBuf>,
    /// The hierarchies with the containers, if not v2: first the one by which the agent is to identify them.
    pub v1: Vec<PathBuf>,
    /// Where a memory limit can be set.
    pub memory: Memory,
}

/// What runs in v1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inhabitants {
    /// Nothing if v2 is mounted.
    #[default]
    AsFound,
    /// Containers, as with runtimes of before 2021 on a hybrid machine: v2 knows nothing of them. Units are in v2, where
    /// systemd has them.
    ContainersInV1,
    /// All, as if there were no v2.
    AllInV1,
}

/// The v1 controllers in whose hierarchies a runtime makes a cgroup per container; see the agent's own order of preference.
const CONTROLLERS: [&str; 5] = ["memory", "pids", "cpu", "devices", "freezer"];

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Memory {
    V2,
    V1(PathBuf),
    /// Nowhere, with the reason.
    None(String),
}

impl Mounts {
    /// Reads `/proc/self/mountinfo`. Containers are in v2 if it is mounted.
    ///
    /// # Errors
    /// No cgroup mount of any kind, or `/proc` is not readable.
    pub fn find() -> Result<Mounts> {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
        let v2 = mounts(&mountinfo, "cgroup2", "");
        let v1 = if v2.is_some() { Vec::new() } else { v1(&mountinfo) };
        if v2.is_none() && v1.is_empty() {
            return Err(Error::new(
                ErrorKind::NotFound,
                "find cgroups: no mount of them in /proc/self/mountinfo; mount one: mount -t cgroup2 none /sys/fs/cgroup",
            ));
        }
        let controllers = match &v2 {
            Some(v2) => fs::read_to_string(v2.join("cgroup.controllers"))?,
            None => String::new(),
        };
        let memory = match (&v2, mounts(&mountinfo, "cgroup", "memory")) {
            (Some(v2), _) if controllers.split_whitespace().any(|c| c == "memory") => match enable_memory(v2) {
                Ok(()) => Memory::V2,
                Err(e) => Memory::None(format!("cgroup v2's memory controller cannot be delegated to {SLICE}: {e}")),
            },
            (_, Some(v1)) => Memory::V1(v1),
            (_, None) => {
                Memory::None("no memory controller: neither in cgroup v2's cgroup.controllers nor mounted as cgroup v1".into())
            }
        };
        Ok(Mounts { v2, v1, memory })
    }

    /// As [`Mounts::find`], but with the given inhabitants in v1.
    ///
    /// # Errors
    /// As [`Mounts::find`]; or v1 is not mounted.
    pub fn inhabited(by: Inhabitants) -> Result<Mounts> {
        let mut mounts = Mounts::find()?;
        if by == Inhabitants::AsFound {
            return Ok(mounts);
        }
        let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
        mounts.v1 = v1(&mountinfo);
        if by == Inhabitants::AllInV1 {
            mounts.v2 = None;
        }
        match mounts.v1.is_empty() {
            true => Err(Error::new(ErrorKind::NotFound, "find cgroup v1: none of it is mounted")),
            false => Ok(mounts),
        }
    }

    /// Whether the sockets of a scope of that name can be attributed.
    pub fn sockets_attributable(&self, name: &str) -> bool {
        self.in_v2(name).is_some()
    }

    /// The v2 hierarchy, if a scope of that name is in it.
    fn in_v2(&self, name: &str) -> Option<&PathBuf> {
        self.v2
            .as_ref()
            .filter(|_| self.v1.is_empty() || !name.starts_with("cri-containerd-"))
    }
}

/// Each hierarchy once, systemd's last.
fn v1(mountinfo: &str) -> Vec<PathBuf> {
    let all = CONTROLLERS.iter().chain(&["name=systemd"]);
    let mut found: Vec<PathBuf> = Vec::new();
    for mount in all.filter_map(|option| mounts(mountinfo, "cgroup", option)) {
        if !found.contains(&mount) {
            found.push(mount);
        }
    }
    found
}

fn enable_memory(v2: &Path) -> Result<()> {
    for dir in [v2.to_path_buf(), v2.join(SLICE)] {
        again(|| {
            fs::create_dir_all(&dir)?;
            let control = dir.join("cgroup.subtree_control");
            if !fs::read_to_string(&control)?.split_whitespace().any(|c| c == "memory") {
                fs::write(&control, "+memory")?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Mount point of the first mount of type `kind` with super option `option` (any mount, if empty).
fn mounts(mountinfo: &str, kind: &str, option: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let right_kind = right.next()?;
        let options = right.nth(1)?;
        let matches = right_kind == kind && (option.is_empty() || options.split(',').any(|o| o == option));
        matches.then(|| left.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// The cgroups of one subject.
#[derive(Debug)]
pub struct Scope {
    /// The directory by which the agent is to identify the scope.
    home: PathBuf,
    others: Vec<PathBuf>,
}

impl Scope {
    /// Paths only: nothing is made.
    pub fn at(mounts: &Mounts, name: &str) -> Scope {
        let below = |mount: &PathBuf| mount.join(SLICE).join(name);
        let mut all: Vec<PathBuf> = match (mounts.in_v2(name), &mounts.memory) {
            (Some(v2), Memory::V1(memory)) => vec![below(v2), below(memory)],
            (Some(v2), _) => vec![below(v2)],
            (None, _) => mounts.v1.iter().map(below).collect(),
        };
        let others = all.split_off(1);
        Scope {
            home: all.remove(0),
            others,
        }
    }

    /// Makes the scope of a container of its own, named as containerd names it.
    ///
    /// # Errors
    /// As [`Mounts::find`] and [`Scope::create`].
    pub fn of_new_container() -> Result<Scope> {
        let name = format!("cri-containerd-{}.scope", random_hex(32)?);
        Scope::create(&Mounts::find()?, &name, None)
    }

    /// Makes the scope; with `limit` (bytes) the memory limit too.
    ///
    /// # Errors
    /// A directory cannot be made or a limit cannot be written; `limit` without a memory controller.
    pub fn create(mounts: &Mounts, name: &str, limit: Option<u64>) -> Result<Scope> {
        let mut scope = Scope::at(mounts, name);
        let is_v2 = mounts.sockets_attributable(name);
        if limit.is_none() && is_v2 {
            scope.others.clear();
        }
        scope.directories().try_for_each(make)?;
        match (limit, &mounts.memory, &mounts.v2) {
            (None, ..) => {}
            (Some(_), Memory::None(reason), _) => return Err(Error::new(ErrorKind::Unsupported, reason.clone())),
            (Some(bytes), Memory::V2, Some(v2)) => {
                // Another demo may have removed the slice at its end, after the mounts were found.
                enable_memory(v2)?;
                fs::write(scope.home.join("memory.max"), bytes.to_string())?;
                // Absent without swap accounting; there is then no swap to escape to, or the story shows it.
                let _ = fs::write(scope.home.join("memory.swap.max"), "0");
            }
            (Some(_), Memory::V2, None) => return Err(Error::new(ErrorKind::Unsupported, "no cgroup v2 to limit memory in")),
            (Some(bytes), Memory::V1(memory), _) => {
                let dir = memory.join(SLICE).join(name);
                fs::write(dir.join("memory.limit_in_bytes"), bytes.to_string())?;
                let _ = fs::write(dir.join("memory.memsw.limit_in_bytes"), bytes.to_string());
            }
        }
        Ok(scope)
    }

    /// Its directory in the hierarchy by which the agent is to identify it.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// All of its directories.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.home).chain(&self.others).map(PathBuf::as_path)
    }

    /// The kernel's id of its home directory: the inode.
    ///
    /// # Errors
    /// The directory is gone.
    pub fn id(&self) -> Result<u64> {
        Ok(fs::metadata(&self.home)?.ino())
    }

    /// Path from the hierarchy's root, as `/proc/PID/cgroup` has it.
    pub fn path(&self) -> String {
        self.home
            .file_name()
            .map_or_else(String::new, |name| format!("/{SLICE}/{}", name.to_string_lossy()))
    }

    /// # Errors
    /// The process or the directory is gone.
    pub fn join(&self, pid: u32) -> Result<()> {
        for dir in self.directories() {
            fs::write(dir.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// Freezes or thaws, and waits until the kernel confirms the state.
    ///
    /// # Errors
    /// No `cgroup.freeze` (cgroup v1, kernels before 5.2), or it did not happen.
    pub fn freeze(&self, frozen: bool) -> Result<()> {
        fs::write(self.home.join("cgroup.freeze"), if frozen { "1" } else { "0" })?;
        let wanted = if frozen { "frozen 1" } else { "frozen 0" };
        let done = until(&format!("`{wanted}` in cgroup.events"), || {
            let events = fs::read_to_string(self.home.join("cgroup.events"))?;
            Ok(holds(events.lines().any(|line| line == wanted), || events.clone()))
        });
        done.map_err(Error::other)
    }

    /// SIGKILL to every process of the scope, by `cgroup.kill`.
    ///
    /// # Errors
    /// No such file (cgroup v1, kernels before 5.14), or the directory is gone.
    pub fn kill(&self) -> Result<()> {
        fs::write(self.home.join("cgroup.kill"), "1")
    }

    /// # Errors
    /// The directory is gone.
    pub fn processes(&self) -> Result<Vec<u32>> {
        let all = fs::read_to_string(self.home.join("cgroup.procs"))?;
        Ok(all.lines().filter_map(|pid| pid.parse().ok()).collect())
    }

    /// Kills the remaining processes and removes the scope; the slice too, if it was the last. A missing scope is not an error.
    ///
    /// # Errors
    /// It does not get empty.
    pub fn remove(&self) -> Result<()> {
        for dir in self.directories() {
            remove(dir)?;
            // Not ours alone: scopes of other stories keep the slice.
            let _ = dir.parent().map(fs::remove_dir);
        }
        Ok(())
    }
}

fn make(dir: &Path) -> Result<()> {
    again(|| fs::create_dir_all(dir)).map_err(|e| Error::new(e.kind(), format!("create cgroup {}: {e}", dir.display())))
}

/// The end of another story may remove the slice at any moment: before the scope is made in it (not found), or between the attempt to
/// make the slice and the look whether what exists is a directory (exists).
fn again(make: impl Fn() -> Result<()>) -> Result<()> {
    for _ in 0..1_000 {
        match make() {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => std::thread::yield_now(),
            other => return other,
        }
    }
    make()
}

fn remove(dir: &Path) -> Result<()> {
    let removed = until(&format!("cgroup {} to be empty", dir.display()), || {
        Ok(match fs::remove_dir(dir) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => {
                let procs = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
                for pid in procs.lines().filter_map(|p| p.parse().ok()) {
                    let _ = crate::sys::kill(pid, nix::libc::SIGKILL);
                }
                Err(format!("{e}; processes {procs:?}"))
            }
        })
    });
    removed.map_err(Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn finds_hierarchies_by_type_and_option() {
        assert_eq!(mounts(HYBRID, "cgroup2", ""), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mounts(HYBRID, "cgroup", "memory"), Some("/sys/fs/cgroup/memory".into()));
        assert_eq!(mounts(HYBRID, "cgroup", "freezer"), None);
        assert_eq!(v1(HYBRID), ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu"].map(PathBuf::from));
    }

    /// Each may remove the slice that the others are about to use.
    #[test]
    fn scopes_are_made_while_others_end() -> anyhow::Result<()> {
        const LIMIT: u64 = 64 << 20;
        if !crate::machine::is_root() {
            crate::skip::skip("scopes_are_made_while_others_end", "making cgroups needs root");
            return Ok(());
        }
        let come_and_go = || {
            (0..1000).try_for_each(|_| -> anyhow::Result<()> {
                let mounts = Mounts::find()?;
                let limit = (!matches!(mounts.memory, Memory::None(_))).then_some(LIMIT);
                Ok(Scope::create(&mounts, &format!("made-{}.scope", random_hex(8)?), limit)?.remove()?)
            })
        };
        std::thread::scope(|scope| {
            let all = [(); 8].map(|()| scope.spawn(come_and_go));
            all.into_iter()
                .try_for_each(|one| one.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
        })
    }
}
