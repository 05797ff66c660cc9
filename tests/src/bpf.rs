//! What of BPF the kernel holds, and which of it some process holds: whatever outlives its process was left behind.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

use nix::libc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Program,
    Map,
    Link,
    Btf,
}

/// An object and its id, which the kernel does not give twice for a long time.
pub type Object = (Kind, u32);

/// `BPF_PROG_GET_NEXT_ID` and its like, and the name of the id in `/proc/PID/fdinfo`.
const KINDS: [(Kind, libc::c_long, &str); 4] = [
    (Kind::Program, 11, "prog_id:"),
    (Kind::Map, 12, "map_id:"),
    (Kind::Link, 31, "link_id:"),
    (Kind::Btf, 23, "btf_id:"),
];

/// Everything in the kernel, whoever loaded it.
///
/// # Errors
/// Without CAP_SYS_ADMIN, or where bpf(2) is forbidden.
pub fn loaded() -> Result<BTreeSet<Object>> {
    let mut all = BTreeSet::new();
    for (kind, command, _) in KINDS {
        let mut id = 0;
        while let Some(next) = next_id(command, id)? {
            all.insert((kind, next));
            id = next;
        }
    }
    Ok(all)
}

/// What a process holds by a file descriptor; nothing where it is gone.
pub fn held_by(pid: u32) -> BTreeSet<Object> {
    held_in(&Path::new("/proc").join(pid.to_string()))
}

/// What is in the kernel, was not there `before`, and is held by no process.
///
/// # Errors
/// As [`loaded`].
pub fn left_since(before: &BTreeSet<Object>) -> Result<BTreeSet<Object>> {
    // In this order: what is loaded between the two is not in the first.
    let mut left: BTreeSet<Object> = loaded()?.difference(before).copied().collect();
    for process in fs::read_dir("/proc")?.flatten() {
        if left.is_empty() {
            break;
        }
        for held in held_in(&process.path()) {
            left.remove(&held);
        }
    }
    Ok(left)
}

/// Descriptors of perf events.
pub fn perf_events(pid: u32) -> usize {
    let targets = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    targets
        .filter(|fd| fs::read_link(fd.path()).is_ok_and(|target| target.as_os_str() == "anon_inode:[perf_event]"))
        .count()
}

/// Every path below the BPF file system of this mount namespace.
pub fn pins() -> BTreeSet<std::path::PathBuf> {
    let mut found = BTreeSet::new();
    let mut directories = vec![Path::new("/sys/fs/bpf").to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(entry.path());
            }
            found.insert(entry.path());
        }
    }
    found
}

fn held_in(process: &Path) -> BTreeSet<Object> {
    let mut held = BTreeSet::new();
    for fd in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
        let target = fs::read_link(fd.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        if !target.contains("bpf") && !target.contains("btf") {
            continue;
        }
        let info = fs::read_to_string(process.join("fdinfo").join(fd.file_name())).unwrap_or_default();
        for line in info.lines() {
            let ids = KINDS.iter().filter_map(|(kind, _, name)| {
                let id = line.strip_prefix(name)?.trim().parse().ok()?;
                Some((*kind, id))
            });
            held.extend(ids);
        }
    }
    held
}

/// The first id above `id`.
fn next_id(command: libc::c_long, id: u32) -> Result<Option<u32>> {
    // start_id, next_id, open_flags.
    let mut attributes = [id, 0, 0];
    #[expect(unsafe_code, reason = "there is no safe form of bpf(2) without a loader")]
    // SAFETY: the kernel reads and writes as many bytes as it is told, of an array that is ours.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size_of_val(&attributes)) };
    match result {
        0 => Ok(Some(attributes[1])),
        _ => match Error::last_os_error() {
            error if error.kind() == ErrorKind::NotFound => Ok(None),
            error => Err(error),
        },
    }
}
