//! Files below a directory, opened so that no name and no link leads out of the directory, and read up to a bound.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

use epitaph_core::time::Wall;
use nix::dir::Dir;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2, readlinkat};
use nix::sys::stat::Mode;

/// A directory that a person named: links on the way to it are followed.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    fd: OwnedFd,
    links: Links,
}

/// Links below the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Links {
    /// Not followed, at any level.
    Refused,
    /// Followed as if the directory were the root of the file system: none leads out.
    Inside,
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path} is not an ordinary file", path = path.display())]
    NotAFile { path: PathBuf },
    #[error("{path} has more than {most} bytes", path = path.display())]
    TooLarge { path: PathBuf, most: u64 },
}

impl FileError {
    /// Not a fault of the file: this user may not read it.
    pub fn is_permission(&self) -> bool {
        matches!(self, FileError::Unreadable { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// A file's bytes, and when they were last changed.
#[derive(Debug)]
pub struct Content {
    pub bytes: Vec<u8>,
    pub modified: Wall,
}

/// What a name in a directory is, links not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Missing,
    /// `/dev/null`, or a link to it: systemd's way to switch a file off.
    Null,
    File,
    Directory,
    Link,
    Other,
}

impl Directory {
    /// None if the directory does not exist: the runtime is not installed, or has no container yet.
    pub fn open(path: &Path) -> Result<Option<Directory>, FileError> {
        match open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()) {
            Ok(fd) => Ok(Some(Directory {
                path: path.to_owned(),
                fd,
                links: Links::Refused,
            })),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(unreadable(path, errno)),
        }
    }

    /// The root of a machine's or an image's files. Names below are absolute, as that machine has them.
    pub fn root(path: &Path) -> Result<Option<Directory>, FileError> {
        Ok(Directory::open(path)?.map(|directory| Directory {
            links: Links::Inside,
            ..directory
        }))
    }

    /// The bytes of the file at `below`; None if the file does not exist. In a runtime's directory links are not followed, at any
    /// level: the directory belongs to the runtime, but what a container mounts there does not.
    pub fn read(&self, below: &Path, most: u64) -> Result<Option<Vec<u8>>, FileError> {
        Ok(self.content(below, most)?.map(|content| content.bytes))
    }

    /// As [`Directory::read`], with the time of the last change.
    pub fn content(&self, below: &Path, most: u64) -> Result<Option<Content>, FileError> {
        let path = || self.shown(below);
        // Not blocked by a FIFO.
        let file = match self.opened(below, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY) {
            Ok(fd) => File::from(fd),
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(None),
            Err(errno) => return Err(unreadable(&path(), errno)),
        };
        let meta = file
            .metadata()
            .map_err(|source| FileError::Unreadable { path: path(), source })?;
        if !meta.is_file() {
            return Err(FileError::NotAFile { path: path() });
        }
        let mut bytes = Vec::new();
        let read = file.take(most + 1).read_to_end(&mut bytes);
        read.map_err(|source| FileError::Unreadable { path: path(), source })?;
        if bytes.len() as u64 > most {
            return Err(FileError::TooLarge { path: path(), most });
        }
        let modified = wall(meta.mtime(), meta.mtime_nsec());
        Ok(Some(Content { bytes, modified }))
    }

    /// What is at `below`; a link as the last part of the name is not followed.
    pub fn entry(&self, below: &Path) -> Result<Entry, FileError> {
        let error = |errno| unreadable(&self.shown(below), errno);
        let fd = match self.opened(below, OFlag::O_PATH | OFlag::O_NOFOLLOW) {
            Ok(fd) => fd,
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(Entry::Missing),
            Err(errno) => return Err(error(errno)),
        };
        let file = File::from(fd);
        let meta = file.metadata().map_err(|source| FileError::Unreadable {
            path: self.shown(below),
            source,
        })?;
        let kind = meta.file_type();
        Ok(if kind.is_symlink() {
            // An image without devices has no /dev/null to follow the link to.
            let target = readlinkat(&file, "").map_err(error)?;
            let is_null = Path::new(&target).ends_with("dev/null");
            if is_null { Entry::Null } else { Entry::Link }
        } else if kind.is_file() {
            Entry::File
        } else if kind.is_dir() {
            Entry::Directory
        } else if kind.is_char_device() && meta.rdev() == NULL_DEVICE {
            Entry::Null
        } else {
            Entry::Other
        })
    }

    /// Names of the entries of the directory itself, at most `most`, in no order.
    pub fn entries(&self, most: usize) -> Result<Vec<OsString>, FileError> {
        Ok(self.list(Path::new("."), most)?.unwrap_or_default())
    }

    /// Names of the entries of the directory at `below`, at most `most`, in no order; None if there is no such directory.
    pub fn list(&self, below: &Path, most: usize) -> Result<Option<Vec<OsString>>, FileError> {
        use std::os::unix::ffi::OsStrExt as _;
        let error = |errno| unreadable(&self.shown(below), errno);
        let fd = match self.opened(below, OFlag::O_RDONLY | OFlag::O_DIRECTORY) {
            Ok(fd) => fd,
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(None),
            Err(errno) => return Err(error(errno)),
        };
        let mut names = Vec::new();
        for entry in Dir::from_fd(fd).map_err(error)?.iter() {
            let entry = entry.map_err(error)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == most {
                break;
            }
            names.push(std::ffi::OsStr::from_bytes(name).to_owned());
        }
        Ok(Some(names))
    }

    /// Whether two names are one directory, by links or mounts.
    pub fn is_same(&self, one: &Path, other: &Path) -> bool {
        let id = |path: &Path| {
            let meta = File::from(self.opened(path, OFlag::O_PATH).ok()?).metadata().ok()?;
            Some((meta.dev(), meta.ino()))
        };
        id(one).is_some_and(|one| id(other) == Some(one))
    }

    fn opened(&self, below: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
        match self.links {
            Links::Refused => self.walked(below, flags),
            Links::Inside => {
                let how = OpenHow::new()
                    .flags(flags | OFlag::O_CLOEXEC)
                    .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
                match openat2(&self.fd, below, how) {
                    // See `walked`. Links lead nowhere out of this process's own root.
                    Err(Errno::ENOSYS) if self.path == Path::new("/") => {
                        openat(&self.fd, below, flags | OFlag::O_CLOEXEC, Mode::empty())
                    }
                    opened => opened,
                }
            }
        }
    }

    /// Component by component, without openat2(2): `RestrictSUIDSGID=`, as in the package's unit, refuses every openat2(2), because a filter
    /// of system calls cannot read the mode.
    fn walked(&self, below: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
        fn open_one(at: BorrowedFd<'_>, part: Component<'_>, flags: OFlag) -> Result<OwnedFd, Errno> {
            let name = part.as_os_str();
            openat(at, name, flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty()).map_err(|errno| match errno {
                // With O_DIRECTORY the kernel reports a link as ENOTDIR.
                Errno::ENOTDIR if readlinkat(at, name).is_ok() => Errno::ELOOP,
                errno => errno,
            })
        }
        let mut parts: Vec<Component<'_>> = below.components().collect();
        if !parts
            .iter()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        {
            return Err(Errno::EXDEV);
        }
        let last = parts.pop().ok_or(Errno::ENOENT)?;
        let mut at = None;
        for part in parts {
            let from = at.as_ref().unwrap_or(&self.fd).as_fd();
            at = Some(open_one(from, part, OFlag::O_PATH | OFlag::O_DIRECTORY)?);
        }
        open_one(at.as_ref().unwrap_or(&self.fd).as_fd(), last, flags)
    }

    /// The name for people: where the file is for this process.
    fn shown(&self, below: &Path) -> PathBuf {
        match self.links {
            Links::Refused => self.path.join(below),
            Links::Inside => self.path.join(below.strip_prefix("/").unwrap_or(below)),
        }
    }
}

/// Character device 1:3.
const NULL_DEVICE: u64 = 0x103;

/// A time before 1970 counts as 1970.
fn wall(seconds: i64, nanos: i64) -> Wall {
    let nanos = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    Wall(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
}

fn unreadable(path: &Path, errno: Errno) -> FileError {
    FileError::Unreadable {
        path: path.to_owned(),
        source: errno.into(),
    }
}
