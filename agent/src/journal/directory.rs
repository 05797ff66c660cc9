//! The directory of the journal: opened once, without following a link; every file is opened relative to it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
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

    /// An error if the directory was removed or moved, or another one is mounted over it: what is written here is lost, or nobody finds it.
    pub fn is_at_its_path(&self) -> io::Result<()> {
        let own = File::from(self.fd.try_clone()?).metadata()?;
        let gone = match fs::metadata(&self.path) {
            Ok(found) => (found.dev(), found.ino()) != (own.dev(), own.ino()),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        match gone {
            false => Ok(()),
            true => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{} was removed, moved or mounted over", self.path.display()),
            )),
        }
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
