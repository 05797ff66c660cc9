//! What can be missing, and the remedy.

use std::error::Error as _;
use std::fs;
use std::io;
use std::path::PathBuf;

use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};

use super::btf::BtfError;
use crate::event::CgroupId;

/// Why no probe could be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(
        "loading the probes needs {0}: run as root, or grant it (setcap, systemd AmbientCapabilities=, securityContext.capabilities)"
    )]
    Capability(&'static str),
    #[error(
        "{0}. Where sysfs is not visible here, copy /sys/kernel/btf/vmlinux from the host and name it with --btf FILE; a kernel \
         built without CONFIG_DEBUG_INFO_BTF cannot run the probes"
    )]
    Btf(BtfError),
    #[error("cannot use the kernel's type information in {path} ({source}): name that of the running kernel with --btf FILE")]
    BtfParse { path: PathBuf, source: aya::BtfError },
    #[error(
        "the kernel refused bpf(2) though the capabilities are there: a seccomp profile, a security module, kernel lockdown or a \
         user namespace stands in between; allow bpf(2) for this process ({0})"
    )]
    Refused(String),
    #[error(
        "the kernel refused the memory for the probes' maps: kernels before 5.11 count it against RLIMIT_MEMLOCK; raise it \
         (ulimit -l unlimited, LimitMEMLOCK=infinity) or grant CAP_SYS_RESOURCE ({0})"
    )]
    Memlock(String),
    #[error("cannot load the probes' object: {0}")]
    Object(String),
    #[error("a ring buffer of {0} bytes is too large: choose at most 1 GiB")]
    RingSize(u32),
    #[error("the probes' object has no map {0}: rebuild it with `cargo xtask build`")]
    NoMap(&'static str),
    #[error("cannot tell cgroups by controller {0}: the kernel's type information does not name it; mount cgroup v2")]
    Controller(String),
    #[error("cannot use a map of the probes: {0}")]
    Map(aya::maps::MapError),
    #[error("cannot watch for new cgroups: {0}")]
    Watch(MapError),
}

/// Why the probes could not be told something.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    #[error("cannot write {map}: {source}")]
    Write { map: &'static str, source: aya::maps::MapError },
    #[error("cannot watch cgroup {} of hierarchy {}: the probes know another hierarchy", .0.id, .0.hierarchy)]
    Hierarchy(CgroupId),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum AttachError {
    #[error("the probes' object has no program {0}: rebuild it with `cargo xtask build`")]
    Missing(String),
    #[error(transparent)]
    Program(#[from] aya::programs::ProgramError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Named before anything is tried: bpf(2) itself only says EPERM.
pub(super) fn check_capabilities() -> Result<(), LoadError> {
    let Some(effective) = fs::read_to_string("/proc/self/status")
        .ok()
        .as_deref()
        .and_then(effective_capabilities)
    else {
        return Ok(());
    };
    match missing_capability(effective) {
        Some(missing) => Err(LoadError::Capability(missing)),
        None => Ok(()),
    }
}

fn effective_capabilities(status: &str) -> Option<u64> {
    u64::from_str_radix(status.lines().find_map(|line| line.strip_prefix("CapEff:"))?.trim(), 16).ok()
}

fn missing_capability(effective: u64) -> Option<&'static str> {
    let has = |cap: u32| effective >> cap & 1 != 0 || effective >> CAP_SYS_ADMIN & 1 != 0;
    match (has(CAP_BPF), has(CAP_PERFMON)) {
        (true, true) => None,
        (false, true) => Some("CAP_BPF"),
        (true, false) => Some("CAP_PERFMON"),
        (false, false) => Some("CAP_BPF and CAP_PERFMON"),
    }
}

/// For kernels before 5.11. Without CAP_SYS_RESOURCE it fails, and the maps may fit all the same.
pub(super) fn raise_memlock() {
    let _ = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
}

pub(super) fn load(error: aya::EbpfError) -> LoadError {
    let text = chain(&error);
    let refused = std::iter::successors(error.source(), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.raw_os_error() == Some(nix::libc::EPERM));
    match (refused, counts_memlock()) {
        (true, true) => LoadError::Memlock(text),
        (true, false) => LoadError::Refused(text),
        (false, _) => LoadError::Object(text),
    }
}

/// Kernels before 5.11 charge maps to RLIMIT_MEMLOCK.
fn counts_memlock() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|part| part.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) < (5, 11))
}

/// An error and what it came from, in one line. aya's own messages end where the kernel's begin.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    brief(&crate::error::chain(error))
}

/// Without its middle where it is long: the verifier writes up to 16 MiB, and says why in its last lines.
fn brief(text: &str) -> String {
    const HEAD: usize = 512;
    const TAIL: usize = 1536;
    let length = text.chars().count();
    if length <= HEAD + TAIL {
        return text.to_owned();
    }
    let head: String = text.chars().take(HEAD).collect();
    let tail: String = text.chars().skip(length - TAIL).collect();
    format!("{head} [...] {tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifiers_log_is_cut_to_its_ends() {
        let error = |log: &str| chain(&io::Error::other(format!("load: {log}")));
        assert_eq!(error("short"), "load: short");
        let text = error(&format!("first {} R1 invalid mem access", "é".repeat(1 << 20)));
        assert!(
            text.starts_with("load: first é") && text.ends_with("é R1 invalid mem access"),
            "{text}"
        );
        assert!(text.chars().count() < 2100, "{}", text.len());
    }

    #[test]
    fn a_missing_capability_is_named() {
        let status = "Name:\tx\nCapEff:\t000001ffffffffff\n";
        assert_eq!(effective_capabilities(status).and_then(missing_capability), None);
        assert_eq!(missing_capability(1 << CAP_BPF), Some("CAP_PERFMON"));
        assert_eq!(missing_capability(1 << CAP_PERFMON), Some("CAP_BPF"));
        assert_eq!(missing_capability(0), Some("CAP_BPF and CAP_PERFMON"));
        assert_eq!(missing_capability(1 << CAP_BPF | 1 << CAP_PERFMON), None);
        assert_eq!(missing_capability(1 << CAP_SYS_ADMIN), None);
    }
}
