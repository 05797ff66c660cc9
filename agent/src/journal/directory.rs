//! The directory of the journal: opened once, without following a link; every file is opened relative to it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;

use super::format::{FileKind, kind_of};

#[derive(Debug)]
pub(crate) struct Directory {
    pub fd: OwnedFd,
    pub path: PathBuf,
}

impl Directory {
    pub fn open(path: &Path) -> io::Result<Directory> {
        let fd = open(path, OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok(Directory {
            fd,
            path: path.to_owned(),
        })
    }

    /// The journal's files, in order; all others are not the journal's, and stay.
    pub fn files(&self) -> io::Result<Vec<FileKind>> {
        let mut files = Vec::new();
        // A descriptor of its own: the position of the listing is the descriptor's.
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        for entry in Dir::openat(&self.fd, ".", flags, Mode::empty())?.iter() {
            files.extend(entry?.file_name().to_str().ok().and_then(kind_of));
        }
        files.sort_unstable();
        Ok(files)
    }

    /// A link or a directory with a segment's name: left as it is.
    pub fn is_foreign(opened: &io::Result<File>) -> bool {
        match opened {
            Ok(file) => file.metadata().is_ok_and(|metadata| !metadata.is_file()),
            Err(error) => error.raw_os_error() == Some(Errno::ELOOP as i32),
        }
    }

    pub fn read(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        Ok(openat(self.fd.as_fd(), name, flags, Mode::empty())?.into())
    }
}
