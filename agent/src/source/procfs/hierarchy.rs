//! Where the cgroup hierarchies are mounted.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::{MAX_CGROUPS, ProcfsError, inode, read};
use crate::event::CgroupId;

pub(super) struct Hierarchies {
    /// True where any cgroup v1 hierarchy exists, mounted or not.
    pub hybrid: bool,
    pub v2: Hierarchy,
    /// Mounted v1 hierarchies, those first that tell containers and units apart best.
    pub v1: Vec<Hierarchy>,
    /// The root of our cgroup namespace, where that is not the hierarchy's: `/proc/PID/cgroup` tells v2 paths from there.
    namespace: Option<String>,
}

pub(super) struct Hierarchy {
    /// As in `/proc/PID/cgroup`; 0 is v2.
    pub number: u32,
    pub mount: PathBuf,
    /// The part of the hierarchy that is mounted there, without a slash at its end: empty for all of it.
    root: String,
}

impl Hierarchies {
    pub fn find(proc: &Path, sys: &Path) -> Result<Hierarchies, ProcfsError> {
        // `self` is not there where the host's /proc is of another pid namespace than ours.
        let text = |name: &str| read(&proc.join("self").join(name)).or_else(|_| read(&proc.join("1").join(name)));
        let (mountinfo, membership) = (text("mountinfo")?, text("cgroup")?);
        let mounts: Vec<Mount> = mountinfo.lines().filter_map(|line| Mount::parse(line, sys)).collect();

        let best = |fits: &dyn Fn(&Mount) -> bool| {
            // The whole hierarchy rather than a part of it, bound somewhere; the shortest path of several.
            let fitting = mounts.iter().filter(|mount| fits(mount) && mount.point.is_dir());
            fitting.min_by_key(|mount| (!mount.root.is_empty(), mount.point.as_os_str().len()))
        };
        let whole = sys.join("fs/cgroup");
        let v2 = match best(&|mount| mount.is_v2) {
            Some(mount) => Hierarchy {
                number: 0,
                mount: mount.point.clone(),
                root: mount.root.clone(),
            },
            // The host's /sys where mountinfo tells of our own mounts only.
            None if whole.join("cgroup.controllers").is_file() => Hierarchy {
                number: 0,
                mount: whole,
                root: String::new(),
            },
            None => {
                return Err(ProcfsError::NoCgroup2 {
                    sys: sys.display().to_string(),
                });
            }
        };
        let mut lines: Vec<Membership<'_>> = membership
            .lines()
            .filter_map(Membership::parse)
            .filter(|line| line.hierarchy != 0)
            .collect();
        lines.sort_by_key(Membership::preference);
        let v1 = lines.iter().filter_map(|line| {
            let mount = best(&|mount| !mount.is_v2 && line.controllers.split(',').all(|name| mount.has(name)))?;
            Some(Hierarchy {
                number: line.hierarchy,
                mount: mount.point.clone(),
                root: mount.root.clone(),
            })
        });
        Ok(Hierarchies {
            hybrid: !lines.is_empty(),
            v2,
            v1: v1.collect(),
            namespace: None,
        })
    }

    /// In a container: `own` is where its runtime mounted the part of cgroup v2 that its namespace shows.
    pub fn in_namespace_of(mut self, own: &Path) -> Hierarchies {
        let node = |directory: &Path| fs::symlink_metadata(directory).ok().map(|meta| (meta.dev(), meta.ino()));
        let (Some((device, root)), Some((whole, top))) = (node(own), node(&self.v2.mount)) else {
            return self;
        };
        if device == whole && root != top {
            self.v2.walk(|cgroup, path, _| {
                if cgroup.id == root {
                    self.namespace = Some(path.to_owned());
                }
            });
        }
        self
    }

    /// A path of `/proc/PID/cgroup`, from the hierarchy's root.
    pub fn real<'a>(&self, hierarchy: u32, path: &'a str) -> Cow<'a, str> {
        match &self.namespace {
            Some(namespace) if hierarchy == 0 => Cow::Owned(resolve(namespace, path)),
            _ => Cow::Borrowed(path),
        }
    }

    pub fn get(&self, number: u32) -> Option<&Hierarchy> {
        std::iter::once(&self.v2)
            .chain(&self.v1)
            .find(|hierarchy| hierarchy.number == number)
    }
}

impl Hierarchy {
    /// Id of the cgroup at `path` from the hierarchy's root.
    pub fn id(&self, path: &str) -> Option<CgroupId> {
        let below = path.strip_prefix(&self.root)?;
        if below.split('/').any(|segment| segment == "..") || !(below.is_empty() || below.starts_with('/')) {
            return None;
        }
        let directory = self.mount.join(below.trim_start_matches('/'));
        Some(CgroupId {
            hierarchy: self.number,
            id: inode(&directory)?,
        })
    }

    /// Calls `each` with id, path and directory of every cgroup, parents first.
    pub fn walk(&self, mut each: impl FnMut(CgroupId, &str, &Path)) {
        let Some(root) = inode(&self.mount) else { return };
        let mut todo = vec![(root, self.root.clone(), self.mount.clone())];
        let mut seen = 0;
        while let Some((id, path, directory)) = todo.pop() {
            each(
                CgroupId {
                    hierarchy: self.number,
                    id,
                },
                if path.is_empty() { "/" } else { &path },
                &directory,
            );
            seen += 1;
            if seen == MAX_CGROUPS {
                return;
            }
            // One that was removed meanwhile has no children.
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            for entry in entries.flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let name = entry.file_name();
                    todo.push((entry.ino(), format!("{path}/{}", name.to_string_lossy()), entry.path()));
                }
            }
        }
    }
}

/// The kernel shows what is outside a namespace as the way there from its root: `/../other.slice/x.scope`.
fn resolve(namespace: &str, path: &str) -> String {
    let (mut base, mut rest) = (namespace, path);
    while let Some(up) = rest.strip_prefix("/..").filter(|up| up.is_empty() || up.starts_with('/')) {
        rest = up;
        base = base.rsplit_once('/').map_or("", |(above, _)| above);
    }
    match (base, rest) {
        ("", "") => "/".to_owned(),
        (base, "/") => base.to_owned(),
        (base, rest) => format!("{base}{rest}"),
    }
}

/// A line of `/proc/PID/cgroup`.
pub(super) struct Membership<'a> {
    pub hierarchy: u32,
    /// `cpu,cpuacct`, `name=systemd`; empty for v2.
    pub controllers: &'a str,
    pub path: &'a str,
}

impl<'a> Membership<'a> {
    pub fn parse(line: &'a str) -> Option<Membership<'a>> {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Membership {
            hierarchy: number.parse().ok()?,
            controllers,
            path,
        })
    }

    /// See [`crate::event::ProcessFact::cgroups`].
    pub fn preference(&self) -> (u8, u32) {
        let class = match self.controllers {
            "" => 0,
            "name=systemd" => 1,
            controllers if controllers.split(',').any(|name| name == "memory") => 2,
            _ => 3,
        };
        (class, self.hierarchy)
    }
}

/// A line of `/proc/PID/mountinfo` that is a cgroup hierarchy's.
struct Mount {
    point: PathBuf,
    root: String,
    is_v2: bool,
    options: String,
}

impl Mount {
    /// `36 35 0:30 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu`; see proc_pid_mountinfo(5).
    fn parse(line: &str, sys: &Path) -> Option<Mount> {
        let (head, tail) = line.split_once(" - ")?;
        let mut head = head.split(' ').skip(3);
        let (root, point) = (unescape(head.next()?), unescape(head.next()?));
        let mut tail = tail.split(' ');
        let (kind, options) = (tail.next()?, tail.nth(1)?);
        let is_v2 = match kind {
            "cgroup2" => true,
            "cgroup" => false,
            _ => return None,
        };
        let point = PathBuf::from(OsString::from_vec(point));
        // Our own view of `sys`, or (from the host's process 1) the host's, which `sys` stands for.
        let point = match point.strip_prefix("/sys") {
            Ok(below) if !point.starts_with(sys) => sys.join(below),
            _ => point,
        };
        let root = String::from_utf8_lossy(&root).trim_end_matches('/').to_owned();
        // From within a cgroup namespace the whole hierarchy's root is nothing but the way up to it.
        let root = match root.split('/').skip(1).all(|segment| segment == "..") {
            true => String::new(),
            false => root,
        };
        Some(Mount {
            point,
            root,
            is_v2,
            options: options.to_owned(),
        })
    }

    fn has(&self, controller: &str) -> bool {
        self.options.split(',').any(|option| option == controller)
    }
}

/// mountinfo writes space, tab, newline and backslash as `\040` and the like.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = tail.first_chunk::<3>().filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        out.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::resolve;

    #[test]
    fn a_path_from_a_namespace_is_found_in_the_whole() {
        let namespace = "/kubepods.slice/kubepods-pod1.slice/own.scope";
        for (shown, real) in [
            ("/", namespace),
            ("/below", "/kubepods.slice/kubepods-pod1.slice/own.scope/below"),
            ("/../sibling.scope", "/kubepods.slice/kubepods-pod1.slice/sibling.scope"),
            (
                "/../../kubepods-pod2.slice/a.scope",
                "/kubepods.slice/kubepods-pod2.slice/a.scope",
            ),
            ("/../../../system.slice/sshd.service", "/system.slice/sshd.service"),
            ("/../../..", "/"),
            ("/..a", "/kubepods.slice/kubepods-pod1.slice/own.scope/..a"),
        ] {
            assert_eq!(resolve(namespace, shown), real, "{shown}");
        }
    }
}
