//! The BPF objects in the kernel, and which of them a process holds: an object that outlives its process was left behind.
//!
//! Other programs on the machine load BPF too, and some of their objects are held by no visible process: only our names count.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;

use nix::libc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Program,
    Map,
    Link,
    Btf,
}

/// An object and its id, which the kernel does not reuse for a long time.
pub type Object = (Kind, u32);

/// `BPF_PROG_GET_NEXT_ID` and its like, and the name of the id in `/proc/PID/fdinfo`.
const KINDS: [(Kind, libc::c_long, &str); 4] = [
    (Kind::Program, 11, "prog_id:"),
    (Kind::Map, 12, "map_id:"),
    (Kind::Link, 31, "link_id:"),
    (Kind::Btf, 23, "btf_id:"),
];

const PROGRAM_BY_ID: libc::c_long = 13;
const MAP_BY_ID: libc::c_long = 14;
const LINK_BY_ID: libc::c_long = 30;
const INFO_BY_FD: libc::c_long = 15;

/// Offsets of the name in `struct bpf_prog_info` and `struct bpf_map_info`, and of the program's id in `struct bpf_link_info`.
const PROGRAM_NAME: usize = 64;
const MAP_NAME: usize = 24;
const LINK_PROGRAM: usize = 8;
/// `BPF_OBJ_NAME_LEN`: longer names are cut to one less.
const NAME: usize = 16;

/// Our programs, as far as the kernel keeps their names, and maps.
const PROGRAMS: [&str; 14] = [
    "signal_generate",
    "signal_deliver",
    "cgroup_mkdir",
    "cgroup_rmdir",
    "process_exit_gr",
    "process_exit_li",
    "process_exec",
    "mark_victim_",
    "inet_sock_set_s",
    "inet_sk_error_r",
    "tcp_send_reset",
    "tcp_v4_send_res",
    "tcp_v6_send_res",
    "tcp_receive_res",
];
const MAPS: [&str; 21] = [
    "RARE",
    "EVENTS",
    "ACCOUNTS",
    "EMPTY",
    "PORTS_HELD",
    "LOST",
    "WATCHED",
    "SIGNALLED",
    "ENDED",
    "FOUND",
    "ARMED",
    "ARMED_COUNT",
    "RECOVERED",
    "TAKEN",
    "AT_FUNCTIONS",
    "CLOSED_PORTS",
    "REFUSED_BY_CLIE",
    "LOST_CONNECTS",
    "KUBELETS",
    // By aya: what the log and the constants are in.
    "AYA_LOGS",
    ".rodata",
];

/// Everything in the kernel, of any loader.
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

/// What a process holds by a file descriptor; nothing if the process is gone.
pub fn held_by(pid: u32) -> BTreeSet<Object> {
    held_in(&Path::new("/proc").join(pid.to_string()))
}

/// Objects with our names in the kernel that did not exist `before` and that no process holds.
///
/// # Errors
/// As [`loaded`].
pub fn left_since(before: &BTreeSet<Object>) -> Result<BTreeSet<Object>> {
    // In this order: an object that is loaded between the two is not in the first.
    let mut left: BTreeSet<Object> = loaded()?.difference(before).copied().collect();
    for process in fs::read_dir("/proc")?.flatten() {
        if left.is_empty() {
            break;
        }
        for held in held_in(&process.path()) {
            left.remove(&held);
        }
    }
    left.retain(|&object| is_ours(object));
    Ok(left)
}

/// By its name, a link by its program's; a type's object has none. False if the object is gone.
pub fn is_ours((kind, id): Object) -> bool {
    match kind {
        Kind::Program => {
            name(PROGRAM_BY_ID, id, PROGRAM_NAME).is_some_and(|name| PROGRAMS.iter().any(|ours| name.starts_with(ours)))
        }
        Kind::Map => name(MAP_BY_ID, id, MAP_NAME).is_some_and(|name| MAPS.contains(&&*name)),
        Kind::Link => info(LINK_BY_ID, id)
            .and_then(|info| Some(u32::from_ne_bytes(*info.get(LINK_PROGRAM..)?.first_chunk()?)))
            .is_some_and(|program| is_ours((Kind::Program, program))),
        Kind::Btf => false,
    }
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

fn name(by_id: libc::c_long, id: u32, at: usize) -> Option<String> {
    let info = info(by_id, id)?;
    let name = info.get(at..at + NAME)?;
    let end = name.iter().position(|&byte| byte == 0)?;
    Some(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// What the kernel reports of an object: the bytes of its `struct bpf_*_info`, zero in fields that it does not know.
fn info(by_id: libc::c_long, id: u32) -> Option<[u8; 256]> {
    let fd = bpf(by_id, &mut [id, 0, 0]).ok()?;
    #[expect(unsafe_code, reason = "a file descriptor that bpf(2) made has no owner yet")]
    // SAFETY: the kernel has just made it for us.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut info = [0; 256];
    let mut attributes = InfoByFd {
        fd: fd.as_raw_fd(),
        length: 256,
        info: info.as_mut_ptr(),
    };
    bpf(INFO_BY_FD, &mut attributes).ok()?;
    Some(info)
}

/// The first id above `id`.
fn next_id(command: libc::c_long, id: u32) -> Result<Option<u32>> {
    // start_id, next_id, open_flags.
    let mut attributes = [id, 0, 0];
    match bpf(command, &mut attributes) {
        Ok(_) => Ok(Some(attributes[1])),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The part of `union bpf_attr` for it.
#[repr(C)]
struct InfoByFd {
    fd: i32,
    length: u32,
    info: *mut u8,
}

fn bpf<A>(command: libc::c_long, attributes: &mut A) -> Result<i32> {
    #[expect(unsafe_code, reason = "there is no safe form of bpf(2) without a loader")]
    // SAFETY: the kernel reads and writes as many bytes as `size` allows, in memory of ours that outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<A>()) };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(Error::last_os_error()),
    }
}
