//! What `epitaph doctor` reads about the agent's journal.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::statfs::{self, FsType, statfs};
use nix::unistd::{AccessFlags, access, geteuid};

use crate::doctor::node::{Journal, NotWritable};

pub fn journal(path: &Path) -> Journal {
    // The agent makes the directory itself: what exists of the path must be writable.
    let existing = path.ancestors().find(|path| path.exists()).unwrap_or(path);
    Journal {
        path: path.to_owned(),
        writable: writable(path, existing),
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
        assert_eq!(journal(&at("journal")).writable, Ok(()), "the agent makes it");
        assert_eq!(journal(place.path()).writable, Ok(()));
        assert_eq!(journal(&at("a/b/journal")).writable, Err(NotWritable::NoParent(at("a/b"))));
        std::os::unix::fs::symlink(place.path(), at("link")).unwrap();
        assert_eq!(journal(&at("link")).writable, Err(NotWritable::NotADirectory));
        std::os::unix::fs::symlink(at("nowhere"), at("dangling")).unwrap();
        assert_eq!(journal(&at("dangling")).writable, Err(NotWritable::NotADirectory));
        std::fs::write(at("file"), "x").unwrap();
        assert_eq!(journal(&at("file")).writable, Err(NotWritable::NotADirectory));
        if geteuid().is_root() {
            std::fs::create_dir(at("foreign")).unwrap();
            std::os::unix::fs::chown(at("foreign"), Some(33), None).unwrap();
            let foreign = NotWritable::Foreign { owner: 33, user: 0 };
            assert_eq!(journal(&at("foreign")).writable, Err(foreign));
        }
        // Read-only for everybody, root too.
        let proc = journal(Path::new("/proc/sys/journal")).writable;
        assert!(proc.is_err(), "{proc:?}");
    }
}
