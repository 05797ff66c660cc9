//! The cgroup hierarchies and their mount points.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt as _};
use std::path::{Path, PathBuf};

use epitaph_core::ids::CgroupId;

use super::{MAX_CGROUPS, MAX_CHILDREN, ProcfsError, inode, read};

/// As `/proc/PID/cgroup` numbers it.
const V2: u32 = 0;

pub(super) struct Hierarchies {
    /// Whether any cgroup v1 hierarchy exists, mounted or not.
    pub has_v1: bool,
    /// The hierarchy of the tasks' cgroups in kernel records: v2, or without v2 a controller's v1 hierarchy.
    pub recorded: Hierarchy,
    /// Number and controller of the v1 hierarchy by which the probes identify tasks: `recorded`, or the first alongside v2.
    pub controlled: Option<(u32, &'static str)>,
    /// The other mounted v1 hierarchies, in order of how well they separate containers and units.
    pub v1: Vec<Hierarchy>,
}

/// Controllers of cgroup v1: the first mounted one identifies tasks. Every runtime gives each container its own cgroup in each of
/// these hierarchies.
const CONTROLLERS: [&str; 6] = ["memory", "pids", "cpu", "devices", "freezer", "cpuset"];

pub(super) struct Hierarchy {
    /// As in `/proc/PID/cgroup`; 0 is v2.
    pub number: u32,
    pub mount: PathBuf,
    /// The mounted part of the hierarchy, without a trailing slash: empty for the whole hierarchy.
    root: String,
    /// The root of our cgroup namespace, if it is not the hierarchy's root: the paths in `/proc/PID/cgroup` start there.
    namespace: Option<String>,
}

impl Hierarchies {
    pub fn find(proc: &Path, sys: &Path) -> Result<Hierarchies, ProcfsError> {
        // `self` does not exist if the host's /proc belongs to another pid namespace than ours.
        let text = |name: &str| read(&proc.join("self").join(name)).or_else(|_| read(&proc.join("1").join(name)));
        let (mountinfo, membership) = (text("mountinfo")?, text("cgroup")?);
        let mounts: Vec<Mount> = mountinfo.lines().filter_map(|line| Mount::parse(line, sys)).collect();

        let best = |fits: &dyn Fn(&Mount) -> bool| {
            // A mount of the whole hierarchy rather than a bind mount of a part; the shortest path of several.
            let fitting = mounts.iter().filter(|mount| fits(mount) && mount.point.is_dir());
            fitting.min_by_key(|mount| (!mount.root.is_empty(), mount.point.as_os_str().len()))
        };
        let at = |mount: &Mount, number: u32| Hierarchy {
            number,
            mount: mount.point.clone(),
            root: mount.root.clone(),
            namespace: None,
        };
        let whole = sys.join("fs/cgroup");
        let v2 = match best(&|mount| mount.is_v2) {
            Some(mount) => Some(at(mount, V2)),
            // The host's /sys if mountinfo has our own mounts only.
            None if whole.join("cgroup.controllers").is_file() => Some(Hierarchy {
                number: V2,
                mount: whole.clone(),
                root: String::new(),
                namespace: None,
            }),
            None => None,
        };
        let mut lines: Vec<Membership<'_>> = membership
            .lines()
            .filter_map(Membership::parse)
            .filter(|line| line.hierarchy != V2)
            .collect();
        lines.sort_by_key(|line| line.preference(|_| false));
        let of_v1 = |line: &Membership<'_>| {
            let names = || line.controllers.split(',');
            let mounted = best(&|mount| !mount.is_v2 && names().all(|name| mount.has(name)));
            if let Some(mount) = mounted {
                return Some(at(mount, line.hierarchy));
            }
            // As above. A v1 directory is named after its controllers, or has systemd's name.
            let name = line.controllers.strip_prefix("name=").unwrap_or(line.controllers);
            let mount = whole.join(name);
            mount.join("tasks").is_file().then(|| Hierarchy {
                number: line.hierarchy,
                mount,
                root: String::new(),
                namespace: None,
            })
        };
        let mut v1: Vec<Hierarchy> = lines.iter().filter_map(of_v1).collect();
        let controlled = |name: &&'static str| {
            let line = lines
                .iter()
                .find(|line| line.controllers.split(',').any(|other| other == *name))?;
            let found = v1.iter().position(|hierarchy| hierarchy.number == line.hierarchy)?;
            Some((found, *name))
        };
        let has_v1 = !lines.is_empty();
        let controlled = CONTROLLERS
            .iter()
            .find_map(controlled)
            .map(|(found, name)| (v1.remove(found), name));
        let (recorded, controlled) = match (v2, controlled) {
            (Some(v2), Some((v1_known, name))) => {
                let number = v1_known.number;
                v1.insert(0, v1_known);
                (v2, Some((number, name)))
            }
            (Some(v2), None) => (v2, None),
            (None, Some((alone, name))) => {
                let number = alone.number;
                (alone, Some((number, name)))
            }
            (None, None) => {
                return Err(ProcfsError::NoCgroups {
                    sys: sys.display().to_string(),
                });
            }
        };
        Ok(Hierarchies {
            has_v1,
            recorded,
            controlled,
            v1,
        })
    }

    /// Whether kernel records contain a task's cgroup of this hierarchy.
    pub fn is_recorded(&self, number: u32) -> bool {
        number == self.recorded.number || self.controlled.is_some_and(|(controlled, _)| number == controlled)
    }

    /// Those hierarchies.
    pub fn of_records(&self) -> impl Iterator<Item = &Hierarchy> {
        self.all().filter(|hierarchy| self.is_recorded(hierarchy.number))
    }

    /// In a container: the runtime mounted the part of a hierarchy that the container's namespace shows at `own` (v1: below `own`).
    /// Without such a mount, our own membership is used. `process` is our own `/proc/PID`.
    pub fn in_namespace_of(mut self, own: &Path, process: &Path) -> Hierarchies {
        let is_own = is_in_namespace(process);
        let memberships = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
        for hierarchy in std::iter::once(&mut self.recorded).chain(&mut self.v1) {
            let mut lines = memberships.lines().filter_map(Membership::parse);
            let line = lines.find(|line| line.hierarchy == hierarchy.number);
            let name = line.as_ref().map_or("", |line| line.controllers.trim_start_matches("name="));
            let mounted = hierarchy.namespace_at(&own.join(name));
            hierarchy.namespace = match (mounted, line) {
                (None, Some(line)) if is_own => hierarchy.namespace_around(line.path),
                (mounted, _) => mounted,
            };
        }
        self
    }

    /// A path of `/proc/PID/cgroup`, from the hierarchy's root.
    pub fn real<'a>(&self, hierarchy: u32, path: &'a str) -> Cow<'a, str> {
        match self.get(hierarchy).and_then(|hierarchy| hierarchy.namespace.as_deref()) {
            Some(namespace) => Cow::Owned(resolve(namespace, path)),
            None => Cow::Borrowed(path),
        }
    }

    pub fn get(&self, number: u32) -> Option<&Hierarchy> {
        self.all().find(|hierarchy| hierarchy.number == number)
    }

    fn all(&self) -> impl Iterator<Item = &Hierarchy> {
        std::iter::once(&self.recorded).chain(&self.v1)
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

    /// The path of the cgroup that is mounted at `own`, if the mount is a part of this hierarchy.
    fn namespace_at(&self, own: &Path) -> Option<String> {
        let node = |directory: &Path| fs::symlink_metadata(directory).ok().map(|meta| (meta.dev(), meta.ino()));
        let ((device, root), (whole, top)) = (node(own)?, node(&self.mount)?);
        if device != whole || root == top {
            return None;
        }
        let mut found = None;
        self.walk(|cgroup, path, _| {
            if cgroup.id == root {
                found = Some(path.to_owned());
            }
        });
        found
    }

    /// The path of our namespace's root, found by our own cgroup: `shown` is the cgroup's path from that root.
    fn namespace_around(&self, shown: &str) -> Option<String> {
        let own = std::process::id();
        let mut found = None;
        self.walk(|_, path, directory| {
            let procs = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            if found.is_none() && procs.lines().any(|pid| pid.parse() == Ok(own)) {
                found = Some(path.to_owned());
            }
        });
        // If we were moved out of the namespace's root since, its path is unknown.
        let root = found.as_deref()?.strip_suffix(shown.trim_end_matches('/'))?;
        let root = root.trim_end_matches('/');
        (!root.is_empty()).then(|| root.to_owned())
    }

    /// Calls `each` with id, path and directory of every cgroup, parents first.
    pub fn walk(&self, mut each: impl FnMut(CgroupId, &str, &Path)) {
        let Some(root) = inode(&self.mount) else { return };
        let (mut path, mut directory) = (self.root.clone(), self.mount.clone());
        let hierarchy = self.number;
        let mut visit = |id: u64, path: &str, directory: &Path| {
            let path = if path.is_empty() { "/" } else { path };
            each(CgroupId { hierarchy, id }, path, directory);
        };
        visit(root, &path, &directory);
        // Names only: whoever may nest cgroups also chooses their names and number, and a path for each would be many megabytes.
        let mut levels = vec![(path.len(), children(&directory))];
        let mut seen = 1;
        while let Some((parent, names)) = levels.last_mut() {
            path.truncate(*parent);
            let Some((id, name)) = names.next() else {
                levels.pop();
                directory.pop();
                continue;
            };
            seen += 1;
            if seen > MAX_CGROUPS {
                return;
            }
            path.push('/');
            path.push_str(&name.to_string_lossy());
            directory.push(&name);
            visit(id, &path, &directory);
            levels.push((path.len(), children(&directory)));
        }
    }
}

/// The cgroups in a directory. One that was removed meanwhile has none.
fn children(directory: &Path) -> impl Iterator<Item = (u64, OsString)> + use<> {
    // The kernel counts a cgroup's children as links: a list of forty files is not read for a container, which has none.
    let is_leaf = fs::symlink_metadata(directory).is_ok_and(|found| found.nlink() == 2);
    let entries = (!is_leaf).then(|| fs::read_dir(directory)).into_iter().flatten();
    let entries = entries.flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    // Read now: an open directory for each level would be too many files.
    let names: Vec<_> = directories
        .take(MAX_CHILDREN)
        .map(|entry| (entry.ino(), entry.file_name()))
        .collect();
    names.into_iter()
}

/// Whether we are in our own cgroup namespace: the initial namespace has the same number on every kernel
/// (`PROC_CGROUP_INIT_INO`).
fn is_in_namespace(process: &Path) -> bool {
    let link = fs::read_link(process.join("ns/cgroup"));
    link.is_ok_and(|link| link.as_os_str() != "cgroup:[4026531835]")
}

/// The kernel shows a cgroup outside a namespace as the relative path from the namespace's root: `/../other.slice/x.scope`.
pub(super) fn resolve(namespace: &str, path: &str) -> String {
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

    /// See [`epitaph_core::input::ProcessFact::cgroups`].
    pub fn preference(&self, is_recorded: impl Fn(u32) -> bool) -> (u8, u32) {
        let class = match self.controllers {
            _ if self.hierarchy == V2 => 0,
            _ if is_recorded(self.hierarchy) => 1,
            "name=systemd" => 2,
            controllers if controllers.split(',').any(|name| name == "memory") => 3,
            _ => 4,
        };
        (class, self.hierarchy)
    }
}

/// A line of `/proc/PID/mountinfo` for a cgroup hierarchy.
pub(super) struct Mount {
    point: PathBuf,
    root: String,
    is_v2: bool,
    options: String,
}

impl Mount {
    /// `36 35 0:30 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu`; see proc_pid_mountinfo(5).
    pub(super) fn parse(line: &str, sys: &Path) -> Option<Mount> {
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
        // Our own view of `sys`, or (from the host's process 1) the host's `/sys`, which is mounted at `sys`.
        let point = match point.strip_prefix("/sys") {
            Ok(below) if !point.starts_with(sys) => sys.join(below),
            _ => point,
        };
        let root = String::from_utf8_lossy(&root).trim_end_matches('/').to_owned();
        // Seen from a cgroup namespace, the path of the whole hierarchy's root consists of `..` only.
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
