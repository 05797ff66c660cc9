//! Files below a runtime's directory, opened so that no name and no link leads out of the directory, and read up to a bound.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;

/// Most directories of one level that are looked into.
const ENTRIES: usize = 64;

/// A directory that a person named: links on the way to it are followed.
pub(super) struct Directory {
    path: PathBuf,
    fd: OwnedFd,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("cannot read {path}: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path} is not an ordinary file")]
    NotAFile { path: PathBuf },
    #[error("{path} has more than {most} bytes")]
    TooLarge { path: PathBuf, most: u64 },
}

impl Directory {
    /// None if the directory does not exist: the runtime is not installed, or has no container yet.
    pub fn open(path: &Path) -> Result<Option<Directory>, FileError> {
        match open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()) {
            Ok(fd) => Ok(Some(Directory {
                path: path.to_owned(),
                fd,
            })),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(unreadable(path, errno)),
        }
    }

    /// The bytes of the file at `below`; None if the file does not exist. Links are not followed, at any level: the directory belongs to
    /// the runtime, but what a container mounts there does not.
    pub fn read(&self, below: &Path, most: u64) -> Result<Option<Vec<u8>>, FileError> {
        let path = || self.path.join(below);
        let how = OpenHow::new()
            // Not blocked by a FIFO.
            .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let file = match openat2(&self.fd, below, how) {
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
        Ok(Some(bytes))
    }

    /// Names of the entries, at most [`ENTRIES`].
    pub fn entries(&self) -> Result<Vec<OsString>, FileError> {
        let unreadable = |source| FileError::Unreadable {
            path: self.path.clone(),
            source,
        };
        let entries = std::fs::read_dir(&self.path).map_err(unreadable)?;
        Ok(entries.take(ENTRIES).flatten().map(|entry| entry.file_name()).collect())
    }
}

fn unreadable(path: &Path, errno: Errno) -> FileError {
    FileError::Unreadable {
        path: path.to_owned(),
        source: errno.into(),
    }
}
