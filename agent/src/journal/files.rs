//! The files of the journal, as the writer needs them: a layer of its own, so that tests can have a disk that fails.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, Flock, FlockArg, OFlag, fallocate, openat, renameat};
use nix::libc::{EACCES, ELOOP, ENOTDIR};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, UnlinkatFlags, fchown, geteuid, mkdir, unlinkat};

use super::Options;
use super::directory::Directory;
use super::format::{newer_name, segment_name};
use crate::error::{HasRemedy, Remedy};

/// The files of the journal.
pub(crate) trait Files: Send {
    /// Of a directory that is opened late: what earlier runs left in it, once.
    fn earlier(&mut self) -> io::Result<Option<Earlier>> {
        Ok(None)
    }
    /// A new segment, of which `reserve` bytes are on the disk already.
    fn create(&mut self, number: u64, reserve: u64) -> io::Result<Box<dyn SegmentFile>>;
    fn remove(&mut self, number: u64) -> io::Result<()>;
    /// Whether others find at the journal's path what is written here.
    fn is_there(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The segments of earlier runs.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    /// Number and bytes of each, the oldest first.
    pub segments: Vec<(u64, u64)>,
    /// Above all of them.
    pub next: u64,
}

pub(crate) trait SegmentFile: Send {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
    /// Nothing more is appended: gives back what was reserved and not used.
    fn seal(&mut self) -> io::Result<()>;
}

#[derive(Debug, thiserror::Error)]
pub enum RefusedError {
    #[error("the journal {} is in use by another agent (pid {pid})", path.display())]
    Held { path: PathBuf, pid: String },
    #[error("the journal {} is a link or not a directory", path.display())]
    NotADirectory { path: PathBuf },
    #[error("the journal {} belongs to user {owner}, and the agent is user {agent}", path.display())]
    Foreign { path: PathBuf, owner: u32, agent: u32 },
    #[error("cannot give the journal {} to group {group}: {error}", path.display())]
    Group { path: PathBuf, group: u32, error: io::Error },
    #[error("cannot open the journal {}: {error}", path.display())]
    Disk { path: PathBuf, error: io::Error },
}

impl HasRemedy for RefusedError {
    fn remedy(&self) -> Option<Remedy> {
        Some(match self {
            RefusedError::Held { .. } => "stop that agent, or give this one another `journal.directory`".into(),
            RefusedError::NotADirectory { .. } => "give a directory as `journal.directory`, not a link to one".into(),
            RefusedError::Foreign { .. } => "give a directory of the agent's own user as `journal.directory`".into(),
            RefusedError::Group { path, group, .. } => format!(
                "let the agent run in group {group} (systemd: `SupplementaryGroups={group}`, Kubernetes: `supplementalGroups: [{group}]`), \
                 or `install -d -o {} -g {group} -m 2750 {}`",
                geteuid(),
                path.display()
            )
            .into(),
            RefusedError::Disk { .. } => "create the parent directory, and mount it writable".into(),
        })
    }
}

/// How long a successor waits for its predecessor: the default grace period of a pod.
const PREDECESSOR: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);
const LOCK: &str = "lock";

/// The directory, locked: its only writer.
pub(crate) struct Disk {
    pub directory: Arc<Directory>,
    mode: Mode,
    /// Of new files.
    group: Option<Gid>,
    lock: Flock<File>,
}

/// With a group. New files get the directory's group (set-group-ID).
const SHARED: Mode = Mode::from_bits_truncate(0o2750);

impl Disk {
    /// Creates the directory if needed, and locks it. Waits up to 30 s for an agent that has it.
    /// Less if `stops` says so: the agent was told to end meanwhile.
    pub fn open(options: &Options, stops: &dyn Fn() -> bool) -> Result<Disk, RefusedError> {
        Disk::open_within(options, PREDECESSOR, stops)
    }

    pub fn open_within(options: &Options, patience: Duration, stops: &dyn Fn() -> bool) -> Result<Disk, RefusedError> {
        let (path, group) = (options.directory.as_path(), options.group);
        let at = || path.to_owned();
        let disk = |error| RefusedError::Disk { path: at(), error };
        match mkdir(path, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(disk(not_created(path, errno))),
        }
        let agent = geteuid().as_raw();
        let foreign = |owner| RefusedError::Foreign {
            path: at(),
            owner,
            agent,
        };
        let directory = Directory::open(path).map_err(|error| match error.raw_os_error() {
            Some(ELOOP | ENOTDIR) => RefusedError::NotADirectory { path: at() },
            // Another user's, who lets nobody in: without capabilities the agent cannot open it, to see whose it is.
            Some(EACCES) => match path.symlink_metadata().map(|metadata| metadata.uid()) {
                Ok(owner) if owner != agent => foreign(owner),
                _ => disk(error),
            },
            _ => disk(error),
        })?;
        let file = File::from(directory.fd.try_clone().map_err(disk)?);
        let owner = file.metadata().map_err(disk)?.uid();
        if owner != agent {
            return Err(foreign(owner));
        }
        let mode = match group {
            None => {
                narrow(&file, path).map_err(disk)?;
                Mode::S_IRUSR | Mode::S_IWUSR
            }
            Some(_) => Mode::S_IRUSR | Mode::S_IWUSR | Mode::S_IRGRP,
        };
        let shared = group.map(|group| share(&file, group));
        let lock = lock(&directory, options.pid, patience, stops)?;
        let group = group.map(Gid::from_raw);
        let disk = Disk {
            directory: Arc::new(directory),
            mode,
            group,
            lock,
        };
        if let Some((group, inherits)) = group.zip(shared) {
            let shared = inherits.and_then(|inherits| disk.share_files(group, inherits));
            shared.map_err(|error| RefusedError::Group {
                path: at(),
                group: group.as_raw(),
                error,
            })?;
        }
        Ok(disk)
    }

    /// Files of earlier runs, as far as the agent may: they can be of the time before the group was configured. `inherits`: new files
    /// get the group from the directory; else the agent must be able to give them to the group.
    fn share_files(&self, group: Gid, inherits: bool) -> io::Result<()> {
        if !inherits {
            fchown(&*self.lock, None, Some(group))?;
        }
        for file in self.directory.files()? {
            let opened = self.directory.read(&file.name());
            if !Directory::is_foreign(&opened) {
                let _ = opened.and_then(|file| self.share_file(&file));
            }
        }
        Ok(())
    }

    fn share_file(&self, file: &File) -> io::Result<()> {
        if let Some(group) = self.group
            && file.metadata()?.gid() != group.as_raw()
        {
            fchown(file, None, Some(group))?;
        }
        // The process's umask must not decide who reads.
        Ok(fchmod(file, self.mode)?)
    }

    /// Gives a file another name.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.directory.fd, from, &self.directory.fd, to)?)
    }

    /// Cuts the end of a segment.
    pub fn cut(&self, number: u64, length: u64) -> io::Result<()> {
        let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file: File = openat(self.directory.fd.as_fd(), segment_name(number).as_str(), flags, Mode::empty())?.into();
        file.set_len(length)
    }
}

/// Lets the group read the directory; returns whether new files get its group.
///
/// The kernel takes the set-group-ID bit away, without an error, when a mode is set by a process that is not in the group; and a filter
/// (systemd's `RestrictSUIDSGID=`) refuses to set it. So a mode that fits is left alone, and the result is read back.
fn share(directory: &File, group: u32) -> io::Result<bool> {
    if directory.metadata()?.gid() != group {
        fchown(directory, None, Some(Gid::from_raw(group)))?;
    }
    let mode = || io::Result::Ok(Mode::from_bits_truncate(directory.metadata()?.mode()));
    if mode()? != SHARED {
        match fchmod(directory, SHARED) {
            Err(Errno::EPERM) => fchmod(directory, SHARED - Mode::S_ISGID)?,
            set => set?,
        }
    }
    Ok(mode()?.contains(Mode::S_ISGID))
}

/// Without a group the directory is its owner's alone. Said if others could read it: they may have been meant to.
fn narrow(directory: &File, path: &Path) -> io::Result<()> {
    let before = directory.metadata()?.mode() & 0o7777;
    fchmod(directory, Mode::S_IRWXU)?;
    if before & 0o077 != 0 {
        tracing::warn!(
            remedy = "set `journal.group` to let a group read the journal",
            "others could use the directory {} (mode {before:04o}): now only its owner can (0700)",
            path.display()
        );
    }
    Ok(())
}

/// With what the parent says of the error.
fn not_created(path: &Path, errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let why = match (error.kind(), parent.metadata()) {
        (io::ErrorKind::NotFound, Err(missing)) if missing.kind() == io::ErrorKind::NotFound => {
            format!("{} does not exist", parent.display())
        }
        (io::ErrorKind::NotADirectory, _) => format!("a part of {} is not a directory", parent.display()),
        (io::ErrorKind::PermissionDenied, Ok(metadata)) => format!(
            "{} belongs to user {}, mode {:o}, and the agent is user {} without capabilities",
            parent.display(),
            metadata.uid(),
            metadata.mode() & 0o7777,
            geteuid()
        ),
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("cannot create {}: {why}", path.display()))
}

/// One agent per directory: the kernel gives the lock back when the process ends, however it ends.
fn lock(directory: &Directory, pid: u32, patience: Duration, stops: &dyn Fn() -> bool) -> Result<Flock<File>, RefusedError> {
    let path = || directory.path.clone();
    let disk = |error| RefusedError::Disk { path: path(), error };
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let mut file: File = openat(directory.fd.as_fd(), LOCK, flags, mode)
        .map_err(|error| disk(error.into()))?
        .into();
    let mut waited = Duration::ZERO;
    loop {
        let (back, errno) = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut locked) => {
                let write = |file: &mut File| {
                    file.set_len(0)?;
                    file.rewind()?;
                    writeln!(file, "{pid}")
                };
                // On a full disk the lock has no text, and is one nevertheless.
                let _ = write(&mut locked);
                return Ok(locked);
            }
            Err(refused) => refused,
        };
        file = back;
        if errno != Errno::EWOULDBLOCK {
            return Err(disk(errno.into()));
        }
        let pid = holder(&mut file);
        if waited >= patience || stops() {
            return Err(RefusedError::Held { path: path(), pid });
        }
        if waited.is_zero() {
            tracing::warn!(
                directory = %directory.path.display(),
                "another agent (pid {pid}) uses the journal; waiting up to {} s for that agent to exit",
                patience.as_secs()
            );
        }
        std::thread::sleep(POLL);
        waited += POLL;
    }
}

/// The pid in the lock's file.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(32).read_to_string(&mut text));
    let pid: Option<u32> = read.ok().and_then(|_| text.trim().parse().ok());
    pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string())
}

impl Files for Disk {
    fn is_there(&self) -> io::Result<()> {
        self.directory.is_at_its_path()
    }

    fn create(&mut self, number: u64, reserve: u64) -> io::Result<Box<dyn SegmentFile>> {
        self.is_there()?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let name = segment_name(number);
        let file: File = openat(self.directory.fd.as_fd(), name.as_str(), flags, self.mode)?.into();
        let shared = self.share_file(&file);
        let length = i64::try_from(reserve).unwrap_or(i64::MAX);
        let reserved = match fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length) {
            // A file system that cannot reserve.
            Ok(()) | Err(Errno::EOPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        };
        // The name is on the disk before anything relies on the segment.
        let named = shared
            .and(reserved)
            .and_then(|()| File::from(self.directory.fd.try_clone()?).sync_all());
        if let Err(error) = named {
            let _ = self.remove(number);
            return Err(error);
        }
        Ok(Box::new(DiskSegment { file, length: 0 }))
    }

    fn remove(&mut self, number: u64) -> io::Result<()> {
        let unlink = |name: &str| unlinkat(&self.directory.fd, name, UnlinkatFlags::NoRemoveDir);
        match unlink(&segment_name(number)) {
            // One that is kept aside.
            Err(Errno::ENOENT) => Ok(unlink(&newer_name(number))?),
            unlinked => Ok(unlinked?),
        }
    }
}

struct DiskSegment {
    file: File,
    length: u64,
}

impl SegmentFile for DiskSegment {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn seal(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)
    }
}
