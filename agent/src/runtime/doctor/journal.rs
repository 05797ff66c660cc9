//! What `epitaph doctor` reads about the agent's journal.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::statfs::{self, FsType, statfs};
use nix::unistd::{AccessFlags, access, getegid, geteuid, getgroups};

use crate::doctor::node::{Journal, NotWritable};

pub fn journal(path: &Path, group: Option<u32>) -> Journal {
    // The agent makes the directory itself: what exists of the path must be writable.
    let existing = path.ancestors().find(|path| path.exists()).unwrap_or(path);
    Journal {
        path: path.to_owned(),
        writable: writable(path, existing).and_then(|()| may_share(path, group)),
        volatile: statfs(existing).ok().and_then(|found| volatile(found.filesystem_type())),
    }
}

fn writable(path: &Path, existing: &Path) -> Result<(), NotWritable> {
    let user = geteuid().as_raw();
    let owner = existing.metadata().map_or(0, |metadata| metadata.uid());
    let at = || existing.to_owned();
    if path.symlink_metadata().is_ok_and(|metadata| !metadata.is_dir()) {
        return Err(NotWritable::NotADirectory);
    }
    match access(existing, AccessFlags::W_OK | AccessFlags::X_OK) {
        Ok(()) => {}
        Err(Errno::EROFS) => return Err(NotWritable::ReadOnly(at())),
        Err(Errno::EACCES | Errno::EPERM) => return Err(NotWritable::Denied { at: at(), owner, user }),
        Err(errno) => {
            return Err(NotWritable::Other {
                at: at(),
                error: errno.desc().to_owned(),
            });
        }
    }
    match path.parent() {
        _ if existing == path && owner != user => Err(NotWritable::Foreign { owner, user }),
        Some(parent) if existing != path && !parent.as_os_str().is_empty() && existing != parent => {
            Err(NotWritable::NoParent(parent.to_owned()))
        }
        _ => Ok(()),
    }
}

/// The agent gives capabilities up, also the one to give files to any group.
fn may_share(path: &Path, group: Option<u32>) -> Result<(), NotWritable> {
    let Some(group) = group else { return Ok(()) };
    // Whoever is not in the group cannot set this mode, only leave it.
    let has_it = path
        .metadata()
        .is_ok_and(|metadata| metadata.gid() == group && metadata.mode() & 0o7777 == 0o2750);
    let is_member = getegid().as_raw() == group || getgroups().is_ok_and(|groups| groups.contains(&group.into()));
    match has_it || is_member {
        true => Ok(()),
        false => Err(NotWritable::Group(group)),
    }
}

fn volatile(kind: FsType) -> Option<&'static str> {
    /// A container's own layer goes with the container.
    const KINDS: [(FsType, &str); 2] = [(statfs::TMPFS_MAGIC, "tmpfs"), (statfs::OVERLAYFS_SUPER_MAGIC, "overlay")];
    /// <linux/magic.h>, which nix does not name.
    const RAMFS: FsType = FsType(0x8584_58f6);
    let known = KINDS.iter().find(|(magic, _)| *magic == kind);
    known.map(|(_, name)| *name).or_else(|| (kind == RAMFS).then_some("ramfs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_agent_would_refuse_or_miss_is_found() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        assert_eq!(journal(&at("journal"), None).writable, Ok(()), "the agent makes it");
        assert_eq!(journal(place.path(), None).writable, Ok(()));
        assert_eq!(journal(place.path(), Some(getegid().as_raw())).writable, Ok(()));
        assert_eq!(journal(place.path(), Some(4242)).writable, Err(NotWritable::Group(4242)));
        assert_eq!(
            journal(&at("a/b/journal"), None).writable,
            Err(NotWritable::NoParent(at("a/b")))
        );
        std::os::unix::fs::symlink(place.path(), at("link")).unwrap();
        assert_eq!(journal(&at("link"), None).writable, Err(NotWritable::NotADirectory));
        std::os::unix::fs::symlink(at("nowhere"), at("dangling")).unwrap();
        assert_eq!(journal(&at("dangling"), None).writable, Err(NotWritable::NotADirectory));
        std::fs::write(at("file"), "x").unwrap();
        assert_eq!(journal(&at("file"), None).writable, Err(NotWritable::NotADirectory));
        if geteuid().is_root() {
            std::fs::create_dir(at("foreign")).unwrap();
            std::os::unix::fs::chown(at("foreign"), Some(33), None).unwrap();
            let foreign = NotWritable::Foreign { owner: 33, user: 0 };
            assert_eq!(journal(&at("foreign"), None).writable, Err(foreign));
        }
        // Read-only for everybody, root too.
        let proc = journal(Path::new("/proc/sys/journal"), None).writable;
        assert!(proc.is_err(), "{proc:?}");
    }
}
