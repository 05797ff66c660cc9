//! What can be missing, and the remedy.

use std::io;
use std::path::PathBuf;

use super::btf::BtfError;
use super::memlock;
use super::rights::{self, Rights};
use crate::ids::CgroupId;

/// What to do about it: the end of a [`LoadError`]'s words.
mod remedy {
    pub const GRANT: &str =
        "run as root, or grant it (setcap, systemd AmbientCapabilities=, securityContext.capabilities with runAsUser: 0)";
    pub const BRING_BTF: &str = "where sysfs is not visible here, copy /sys/kernel/btf/vmlinux from the host and name it with --btf FILE; a kernel built \
         without CONFIG_DEBUG_INFO_BTF cannot run the probes";
    pub const NAME_BTF: &str = "name that of the running kernel with --btf FILE";
    pub const ALLOW: &str = "allow bpf(2) for this process";
    pub const MEMLOCK: &str =
        "allow it 1 MiB or more, 24 MiB for all that it can use (ulimit -l, LimitMEMLOCK=), or grant CAP_SYS_RESOURCE";
    pub const SMALLER: &str = "choose at most 1 GiB";
    pub const REBUILD: &str = "rebuild it with `cargo xtask build`";
}

/// Where the probes have less memory than they can use.
pub(super) const MORE_MEMLOCK: &str = "allow 24 MiB (ulimit -l, LimitMEMLOCK=), or grant CAP_SYS_RESOURCE";

/// Why no probe could be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("loading the probes needs {0}: {remedy}", remedy = remedy::GRANT)]
    Capability(&'static str),
    #[error("{0}: {remedy}", remedy = remedy::BRING_BTF)]
    Btf(BtfError),
    #[error("cannot use the kernel's type information in {path} ({source}): {remedy}", remedy = remedy::NAME_BTF)]
    BtfParse { path: PathBuf, source: aya::BtfError },
    #[error(
        "the kernel refused bpf(2) ({reason}) though the capabilities are there; in between stands {between}: {remedy}",
        remedy = remedy::ALLOW
    )]
    Refused { reason: String, between: String },
    #[error(
        "the kernel refused the memory for the probes ({0}): kernels before 5.11 count it against RLIMIT_MEMLOCK, with all other BPF \
         maps of the same user: {remedy}",
        remedy = remedy::MEMLOCK
    )]
    Memlock(String),
    #[error("cannot load the probes' object: {0}")]
    Object(String),
    #[error("a ring buffer of {0} bytes is too large: {remedy}", remedy = remedy::SMALLER)]
    RingSize(u32),
    #[error("the probes' object has no map {0}: {remedy}", remedy = remedy::REBUILD)]
    NoMap(&'static str),
    #[error("cannot tell cgroups by controller {0}: the kernel's type information does not name it; mount cgroup v2")]
    Controller(String),
    #[error("cannot use a map of the probes: {0}")]
    Map(aya::maps::MapError),
    #[error("cannot watch for new cgroups: {0}")]
    Watch(MapError),
}

impl LoadError {
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            LoadError::Capability(_) => Some(remedy::GRANT),
            LoadError::Btf(_) => Some(remedy::BRING_BTF),
            LoadError::BtfParse { .. } => Some(remedy::NAME_BTF),
            LoadError::Refused { .. } => Some(remedy::ALLOW),
            LoadError::Memlock(_) => Some(remedy::MEMLOCK),
            LoadError::RingSize(_) => Some(remedy::SMALLER),
            LoadError::NoMap(_) => Some(remedy::REBUILD),
            LoadError::Object(_) | LoadError::Map(_) | LoadError::Watch(_) | LoadError::Controller(_) => None,
        }
    }

    /// Its words without the remedy.
    pub fn problem(&self) -> String {
        let words = self.to_string();
        let end = self.remedy().and_then(|remedy| words.strip_suffix(remedy));
        end.map_or(words.as_str(), |end| end.trim_end_matches([':', ' '])).to_owned()
    }
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

/// Named before anything is tried: bpf(2) itself only says EPERM.
pub(super) fn check_capabilities() -> Result<(), LoadError> {
    match Rights::effective().and_then(rights::missing_capability) {
        Some(missing) => Err(LoadError::Capability(missing)),
        None => Ok(()),
    }
}

pub(super) fn load(error: &aya::EbpfError) -> LoadError {
    let text = chain(error);
    match (is_refusal(error), memlock::limits()) {
        (true, true) => LoadError::Memlock(text),
        (true, false) => refused(text),
        (false, _) => LoadError::Object(text),
    }
}

pub(super) fn refused(reason: String) -> LoadError {
    let between = Rights::read().between();
    LoadError::Refused { reason, between }
}

/// Whether somewhere below it the kernel said EPERM.
pub(super) fn is_refusal(error: &dyn std::error::Error) -> bool {
    std::iter::successors(error.source(), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.raw_os_error() == Some(nix::libc::EPERM))
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
    fn every_remedy_ends_its_sentence() {
        let errors = [
            LoadError::Capability("CAP_BPF"),
            LoadError::Refused {
                reason: "create map X: EPERM".to_owned(),
                between: "a seccomp profile".to_owned(),
            },
            LoadError::Memlock("create map X: EPERM".to_owned()),
            LoadError::RingSize(1 << 31),
            LoadError::NoMap("X"),
        ];
        for error in errors {
            let remedy = error.remedy().expect("a remedy");
            assert_eq!(format!("{}: {remedy}", error.problem()), error.to_string());
        }
        let none = LoadError::Object("bad".to_owned());
        assert_eq!((none.remedy(), none.problem()), (None, none.to_string()));
    }
}
