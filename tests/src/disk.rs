//! A disk of a test's own: a file system on a loop device whose blocks this process keeps. It logs each write and each flush, can be
//! cut from its power afterwards at any of them, and can fail.
//!
//! The loop device's file is the only file of a FUSE file system that a thread here serves, by the kernel's own protocol
//! (include/uapi/linux/fuse.h): neither device-mapper nor a driver of block devices in user space is needed.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context as _, ensure};
use nix::libc::{EAGAIN, EINTR, EIO, ENOENT, ENOSYS};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use crate::sys::{locked, loop_device};

/// The smallest piece that a disk writes whole, bytes.
const SECTOR: usize = 512;

/// What the disk was asked for.
#[derive(Clone, Debug)]
enum Step {
    Write {
        at: usize,
        bytes: Vec<u8>,
    },
    /// All writes before are on the disk.
    Flush,
}

#[derive(Default)]
struct State {
    /// Before the first step.
    base: Vec<u8>,
    blocks: Vec<u8>,
    log: Vec<Step>,
    fails: bool,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<State>>);

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }
}

/// Of the disk that it was taken from, which it does not keep mounted.
#[derive(Clone)]
pub struct Position(Shared);

impl Position {
    /// Number of writes and flushes so far.
    pub fn now(&self) -> usize {
        self.0.state().log.len()
    }
}

/// Unmounted when dropped.
pub struct Disk {
    shared: Shared,
    blocks: PathBuf,
    root: PathBuf,
}

impl Disk {
    /// A disk of `size` bytes with that file system (`ext2`, `ext4`), mounted below `directory`.
    ///
    /// # Errors
    /// Not root, no FUSE, no loop device, no such file system, no mke2fs (Debian's e2fsprogs).
    pub fn new(directory: &Path, file_system: &str, size: u64) -> anyhow::Result<Disk> {
        let image = directory.join("empty-disk");
        File::create(&image)?.set_len(size)?;
        // All of it is written now, and not by a thread of the kernel later.
        let options = ["-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        let mut mkfs = Command::new("mke2fs");
        mkfs.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
        run(mkfs.args(["-t", file_system]).args(options).arg(&image))?;
        let base = std::fs::read(&image)?;
        std::fs::remove_file(&image)?;

        let (blocks, root) = (directory.join("blocks"), directory.join("disk"));
        std::fs::create_dir(&blocks)?;
        std::fs::create_dir(&root)?;
        let shared = Shared::default();
        *shared.state() = State {
            blocks: base.clone(),
            base,
            ..State::default()
        };
        own_mounts()?;
        serve(&blocks, &shared)?;
        let disk = Disk { shared, blocks, root };
        mount_image(&disk.blocks.join("disk"), file_system, &disk.root)?;
        Ok(disk)
    }

    /// Where the file system is mounted.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// How far it is, from now on.
    pub fn position(&self) -> Position {
        Position(self.shared.clone())
    }

    /// From now on every write and flush fails with EIO, or none.
    pub fn fail(&self, fails: bool) {
        self.shared.state().fails = fails;
    }

    /// The position of the last flush before `position`.
    pub fn flushed(&self, position: usize) -> usize {
        let is_flush = |step: &Step| matches!(step, Step::Flush);
        self.shared.state().log[..position]
            .iter()
            .rposition(is_flush)
            .map_or(0, |at| at + 1)
    }

    /// What is on the disk if its power is cut at `position`: all that was flushed. Of the writes since, each may be there, be torn
    /// between two sectors, or be missing, in any order, as `random` decides.
    pub fn cut(&self, position: usize, random: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
        let flushed = self.flushed(position);
        let state = self.shared.state();
        let mut image = state.base.clone();
        let mut apply = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        let (held, pending) = state.log[..position].split_at(flushed);
        for step in held {
            if let Step::Write { at, bytes } = step {
                apply(*at, bytes);
            }
        }
        let mut pending: Vec<&Step> = pending.iter().collect();
        for last in (1..pending.len()).rev() {
            pending.swap(last, random(last + 1));
        }
        for step in pending {
            let Step::Write { at, bytes } = step else { continue };
            let sectors = bytes.len() / SECTOR;
            match random(4) {
                0 => {}
                1 => {
                    let from = random(sectors + 1) * SECTOR;
                    let to = from + random((bytes.len() - from) / SECTOR + 1) * SECTOR;
                    apply(at + from, &bytes[from..to]);
                }
                _ => apply(*at, bytes),
            }
        }
        image
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.fail(false);
        let _ = umount2(&self.root, MntFlags::MNT_DETACH);
        let _ = umount2(&self.blocks, MntFlags::MNT_DETACH);
    }
}

/// A file system in a file, mounted. Unmounted when dropped.
pub struct Mounted {
    root: PathBuf,
}

impl Mounted {
    /// Mounts what is in `image`, a file system of that kind, at `root`, which is made.
    ///
    /// # Errors
    /// Not root, no loop device, not such a file system.
    pub fn new(image: &Path, file_system: &str, root: &Path) -> anyhow::Result<Mounted> {
        std::fs::create_dir_all(root)?;
        own_mounts()?;
        mount_image(image, file_system, root)?;
        Ok(Mounted { root: root.to_owned() })
    }

    /// A file system in memory, of at most `size` bytes.
    ///
    /// # Errors
    /// Not root.
    pub fn memory(root: &Path, size: u64) -> anyhow::Result<Mounted> {
        std::fs::create_dir_all(root)?;
        own_mounts()?;
        let options = format!("size={size}");
        mount(Some("tmpfs"), root, Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))?;
        Ok(Mounted { root: root.to_owned() })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// # Errors
    /// The kernel refuses.
    pub fn read_only(&self, is: bool) -> anyhow::Result<()> {
        let flags = MsFlags::MS_REMOUNT | if is { MsFlags::MS_RDONLY } else { MsFlags::empty() };
        Ok(mount(None::<&str>, &self.root, None::<&str>, flags, None::<&str>)?)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.root, MntFlags::MNT_DETACH);
    }
}

/// A file system that answers nothing, as one of a server that is gone.
pub struct Hanging {
    mounted: Mounted,
    channel: File,
}

impl Hanging {
    /// # Errors
    /// Not root, no FUSE.
    pub fn new(root: &Path) -> anyhow::Result<Hanging> {
        std::fs::create_dir_all(root)?;
        own_mounts()?;
        let channel = mount_fuse(root)?;
        let mounted = Mounted { root: root.to_owned() };
        Ok(Hanging { mounted, channel })
    }

    /// What waits gets an error; the directory below the mount is there again.
    pub fn end(self) {
        drop(self.channel);
        drop(self.mounted);
    }
}

/// Gives the calling thread, and what it starts from now on, mounts of its own: they do not outlive a test that is killed.
fn own_mounts() -> anyhow::Result<()> {
    thread_local!(static OWN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    if OWN.get() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWNS).context("make a mount namespace")?;
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .context("keep the mounts from the machine's")?;
    OWN.set(true);
    Ok(())
}

/// The loop device goes with the mount.
fn mount_image(image: &Path, file_system: &str, root: &Path) -> anyhow::Result<()> {
    let image = OpenOptions::new().read(true).write(true).open(image)?;
    let (device, path) = loop_device(&image).context("get a loop device")?;
    mount(Some(&path), root, Some(file_system), MsFlags::MS_NOATIME, None::<&str>)
        .with_context(|| format!("mount {} as {file_system}", path.display()))?;
    drop(device);
    Ok(())
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Serves the file `disk` at `place`, until it is unmounted.
fn serve(place: &Path, shared: &Shared) -> anyhow::Result<()> {
    let channel = mount_fuse(place)?;
    let shared = shared.clone();
    std::thread::Builder::new()
        .name("disk".to_owned())
        .spawn(move || requests(channel, &shared))?;
    Ok(())
}

/// The end of the file system that must answer the kernel.
fn mount_fuse(place: &Path) -> anyhow::Result<File> {
    let channel = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .context("open /dev/fuse")?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", channel.as_raw_fd());
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("epitaph-disk"), place, Some("fuse"), flags, Some(options.as_str())).context("mount FUSE")?;
    Ok(channel)
}

/// Most bytes of one write. The kernel's own limit without a negotiation of pages.
const MAX_WRITE: u32 = 128 << 10;
const HEADER: usize = 40;
const ROOT_NODE: u64 = 1;
const DISK_NODE: u64 = 2;

fn requests(mut channel: File, shared: &Shared) {
    let mut buffer = vec![0; MAX_WRITE as usize + 4096];
    loop {
        let length = match channel.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if matches!(error.raw_os_error(), Some(EINTR | EAGAIN | ENOENT)) => continue,
            // Unmounted.
            Err(_) => return,
        };
        let request = Request(&buffer[..length]);
        let Some(answer) = request.answer(shared) else { continue };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (-errno, Vec::new()),
        };
        let mut out = Vec::with_capacity(16 + body.len());
        out.extend_from_slice(&(16 + body.len() as u32).to_ne_bytes());
        out.extend_from_slice(&error.to_ne_bytes());
        out.extend_from_slice(&request.u64(8).to_ne_bytes());
        out.extend_from_slice(&body);
        if channel.write_all(&out).is_err() {
            return;
        }
    }
}

/// A request of the kernel: `struct fuse_in_header`, and the operation's own fields.
struct Request<'a>(&'a [u8]);

impl Request<'_> {
    fn u32(&self, at: usize) -> u32 {
        self.0
            .get(at..at + 4)
            .map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn u64(&self, at: usize) -> u64 {
        let (low, high) = (u64::from(self.u32(at)), u64::from(self.u32(at + 4)));
        if cfg!(target_endian = "little") {
            high << 32 | low
        } else {
            low << 32 | high
        }
    }

    /// None: the kernel waits for no answer.
    fn answer(&self, shared: &Shared) -> Option<Result<Vec<u8>, i32>> {
        let node = self.u64(16);
        let size = |shared: &Shared| shared.state().blocks.len() as u64;
        Some(match self.u32(4) {
            // FORGET, BATCH_FORGET
            2 | 42 => return None,
            // LOOKUP
            1 if self.0.get(HEADER..) == Some(b"disk\0") => Ok(entry(size(shared))),
            1 => Err(ENOENT),
            // GETATTR, SETATTR
            3 | 4 => Ok(attributes(node, size(shared))),
            // OPEN, OPENDIR
            14 | 27 => Ok(vec![0; 16]),
            // READ: offset, size
            15 => {
                let state = shared.state();
                let from = usize::try_from(self.u64(HEADER + 8))
                    .unwrap_or(usize::MAX)
                    .min(state.blocks.len());
                let to = from.saturating_add(self.u32(HEADER + 16) as usize).min(state.blocks.len());
                Ok(state.blocks[from..to].to_vec())
            }
            // WRITE: offset, size, and the bytes
            16 => self.write(shared),
            // FSYNC
            20 => {
                let mut state = shared.state();
                if state.fails {
                    return Some(Err(EIO));
                }
                state.log.push(Step::Flush);
                Ok(Vec::new())
            }
            // STATFS, FLUSH, RELEASE, RELEASEDIR, DESTROY
            17 => Ok(vec![0; 80]),
            25 | 18 | 29 | 38 => Ok(Vec::new()),
            // INIT
            26 => Ok(init()),
            _ => Err(ENOSYS),
        })
    }

    fn write(&self, shared: &Shared) -> Result<Vec<u8>, i32> {
        let at = usize::try_from(self.u64(HEADER + 8)).map_err(|_| EIO)?;
        let bytes = self.0.get(HEADER + 40..).unwrap_or_default();
        let mut state = shared.state();
        if state.fails || at + bytes.len() > state.blocks.len() {
            return Err(EIO);
        }
        state.blocks[at..at + bytes.len()].copy_from_slice(bytes);
        state.log.push(Step::Write {
            at,
            bytes: bytes.to_vec(),
        });
        Ok(words(&[bytes.len() as u32, 0]))
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_ne_bytes()).collect()
}

/// `struct fuse_init_out`: the version of the protocol that this file speaks.
fn init() -> Vec<u8> {
    let mut out = words(&[7, 31, 0, 0, 0, MAX_WRITE, 1]);
    out.resize(64, 0);
    out
}

/// `struct fuse_entry_out` of the disk.
fn entry(size: u64) -> Vec<u8> {
    let mut out = longs(&[DISK_NODE, 0, u64::MAX >> 32, u64::MAX >> 32]);
    out.extend(words(&[0, 0]));
    out.extend(attribute(DISK_NODE, size));
    out
}

/// `struct fuse_attr_out`.
fn attributes(node: u64, size: u64) -> Vec<u8> {
    let mut out = longs(&[u64::MAX >> 32]);
    out.extend(words(&[0, 0]));
    out.extend(attribute(node, size));
    out
}

/// `struct fuse_attr`.
fn attribute(node: u64, size: u64) -> Vec<u8> {
    let (mode, size) = match node {
        ROOT_NODE => (0o040_755, 0),
        _ => (0o100_600, size),
    };
    let mut out = longs(&[node, size, size / 512, 0, 0, 0]);
    out.extend(words(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0]));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::is_root;
    use crate::skip::skip;

    #[test]
    fn what_is_flushed_outlives_a_cut_and_an_error_is_one() -> anyhow::Result<()> {
        if !is_root() {
            skip("what_is_flushed_outlives_a_cut_and_an_error_is_one", "mounting needs root");
            return Ok(());
        }
        let place = tempfile::tempdir()?;
        let disk = Disk::new(place.path(), "ext4", 16 << 20)?;
        let mut file = File::create(disk.root().join("file"))?;
        file.write_all(b"synced")?;
        file.sync_all()?;
        let synced = disk.position().now();
        file.write_all(b", not synced")?;
        // A file whose name never came to the disk.
        File::create(disk.root().join("late"))?.write_all(b"late")?;
        let mut seed = 7_u64;
        let mut random = |below: usize| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        for at in [synced, disk.position().now()] {
            let image = place.path().join("image");
            std::fs::write(&image, disk.cut(at, &mut random))?;
            let cut = Mounted::new(&image, "ext4", &place.path().join("cut"))?;
            assert!(std::fs::read(cut.root().join("file"))?.starts_with(b"synced"));
            assert!(!cut.root().join("late").exists());
        }
        disk.fail(true);
        file.write_all(b"!")?;
        assert_eq!(file.sync_all().map_err(|error| error.raw_os_error()), Err(Some(EIO)));
        Ok(())
    }
}
