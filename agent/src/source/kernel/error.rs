//! Why probes cannot be loaded or their maps written, with the remedy.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use aya::maps::MapError as AyaMapError;
use aya::programs::ProgramError;
use epitaph_core::ids::CgroupId;

use super::btf::BtfError;
use super::memlock;
use super::rights::{self, Rights};
use crate::error::{HasRemedy, Remedy};

/// Remedy if the probes have less memory than they can use.
pub(super) const MORE_MEMLOCK: &str = "allow 24 MiB (ulimit -l, LimitMEMLOCK=), or grant CAP_SYS_RESOURCE";

/// Why no probe could be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("loading the probes needs {0}")]
    Capability(&'static str),
    #[error(transparent)]
    Btf(BtfError),
    #[error("cannot use the kernel's type information in {path}: {source}")]
    BtfParse { path: PathBuf, source: aya::BtfError },
    #[error("the kernel refused bpf(2) ({reason}) although the capabilities are granted: denied by {between}")]
    Refused { reason: String, between: String },
    #[error(
        "the kernel refused the memory for the probes ({0}): kernels before 5.11 count it against RLIMIT_MEMLOCK, with all other BPF \
         maps of the same user"
    )]
    Memlock(String),
    #[error("cannot load the probes' object: {0}")]
    Object(String),
    #[error("cannot make a ring buffer of {0} bytes: it is too large")]
    RingSize(u32),
    #[error("the probes' object has no map {0}")]
    NoMap(&'static str),
    #[error("cannot identify cgroups by controller {0}: the kernel's type information does not name the controller")]
    Controller(String),
    #[error("cannot use a map of the probes: {0}")]
    Map(aya::maps::MapError),
    #[error("cannot map a ring buffer of the probes: {0}")]
    Ring(io::Error),
    #[error("cannot watch for new cgroups: {0}")]
    Watch(MapError),
}

impl HasRemedy for LoadError {
    fn remedy(&self) -> Option<Remedy> {
        let remedy = match self {
            LoadError::Capability(_) => {
                "run as root, or grant it (setcap, systemd AmbientCapabilities=, securityContext.capabilities with runAsUser: 0)"
            }
            LoadError::Btf(_) => {
                "where sysfs is not visible here, copy /sys/kernel/btf/vmlinux from the host and name it with --btf FILE; a kernel \
                 built without CONFIG_DEBUG_INFO_BTF cannot run the probes: `epitaph agent` then observes pods and logind only"
            }
            LoadError::BtfParse { .. } => "name the type information of the running kernel with --btf FILE",
            LoadError::Refused { .. } => {
                "allow bpf(2) for this process: in its seccomp profile, or with SELinux by a domain that may use bpf(2) (values \
                 `agent.seccompProfile` and `agent.seLinuxOptions` of the chart)"
            }
            LoadError::Memlock(_) => {
                "allow it 1 MiB or more, 24 MiB for all that it can use (ulimit -l, LimitMEMLOCK=), or grant CAP_SYS_RESOURCE"
            }
            LoadError::RingSize(_) => "choose at most 1 GiB",
            LoadError::NoMap(_) => "rebuild it with `cargo xtask build`",
            LoadError::Controller(_) => "mount cgroup v2",
            LoadError::Object(_) | LoadError::Map(_) | LoadError::Ring(_) | LoadError::Watch(_) => return None,
        };
        Some(remedy.into())
    }
}

/// Why a map of the probes could not be written.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    #[error("cannot write {map}: {source}")]
    Write { map: &'static str, source: aya::maps::MapError },
    #[error("cannot watch cgroup {} of hierarchy {}: the probes know another hierarchy", .0.id, .0.hierarchy)]
    Hierarchy(CgroupId),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum AttachError {
    #[error("the probes' object has no program {0}")]
    Missing(String),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Checked before anything is loaded: bpf(2) itself only returns EPERM.
pub(super) fn check_capabilities() -> Result<(), LoadError> {
    match Rights::effective().and_then(rights::missing_capability) {
        Some(missing) => Err(LoadError::Capability(missing)),
        None => Ok(()),
    }
}

pub(super) fn load(error: &aya::EbpfError) -> LoadError {
    let text = chain(error);
    match (Refusal::of(error), memlock::limits()) {
        (Some(Refusal::Permission), true) => LoadError::Memlock(text),
        (Some(refusal), _) => refusal.error(text),
        (None, _) => LoadError::Object(text),
    }
}

/// The kernel refused a call of bpf(2) as such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// EPERM: of a capability, a seccomp profile, the limit of locked memory, lockdown.
    Permission,
    /// EACCES: of a security module, such as SELinux, which is asked before anything else is looked at.
    SecurityModule,
}

impl Refusal {
    /// Of the error or its causes. The verifier returns EACCES, too, but not without a log.
    pub(super) fn of(error: &(dyn Error + 'static)) -> Option<Refusal> {
        // Its own source is that of the error in it.
        match error.downcast_ref() {
            Some(AttachError::Program(error)) => return Refusal::of(error),
            Some(AttachError::Io(error)) => return Refusal::of(error),
            Some(AttachError::Missing(_)) | None => {}
        }
        std::iter::successors(Some(error), |&error| error.source()).find_map(|error| {
            if let Some(AyaMapError::CreateError { io_error, .. }) = error.downcast_ref() {
                return Refusal::answered(io_error, "");
            }
            if let Some(ProgramError::LoadError { io_error, verifier_log }) = error.downcast_ref() {
                return Refusal::answered(io_error, &verifier_log.to_string());
            }
            let code = error.downcast_ref().and_then(io::Error::raw_os_error);
            (code == Some(nix::libc::EPERM)).then_some(Refusal::Permission)
        })
    }

    /// The kernel's answer to the creation of a map or the load of a program, with the verifier's log.
    fn answered(code: &io::Error, log: &str) -> Option<Refusal> {
        match code.raw_os_error() {
            Some(nix::libc::EPERM) => Some(Refusal::Permission),
            Some(nix::libc::EACCES) if log.is_empty() => Some(Refusal::SecurityModule),
            _ => None,
        }
    }

    pub(super) fn error(self, reason: String) -> LoadError {
        let rights = Rights::read();
        let between = match self {
            Refusal::Permission => rights.between(),
            Refusal::SecurityModule => rights.security_module(),
        };
        LoadError::Refused { reason, between }
    }
}

/// An error and its causes, in one line. aya's own messages omit the kernel's.
pub(super) fn chain(error: &dyn Error) -> String {
    brief(&crate::error::chain(error))
}

/// A long text without its middle: the verifier writes up to 16 MiB, and gives the reason in its last lines.
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
    fn a_verifier_log_keeps_its_first_and_last_lines() {
        let error = |log: &str| chain(&io::Error::other(format!("load: {log}")));
        assert_eq!(error("short"), "load: short");
        let text = error(&format!("first {} R1 invalid mem access", "é".repeat(1 << 20)));
        assert!(
            text.starts_with("load: first é") && text.ends_with("é R1 invalid mem access"),
            "{text}"
        );
        assert!(text.chars().count() < 2100, "{}", text.len());
    }

    /// What the verifier rejects is a fault of the probes, and SELinux's EACCES is none.
    #[test]
    fn a_security_module_is_told_from_the_verifier() {
        let code = io::Error::from_raw_os_error;
        let map = |errno| {
            aya::EbpfError::MapError(AyaMapError::CreateError {
                name: "EVENTS".to_owned(),
                io_error: code(errno),
            })
        };
        let (permission, module) = (Some(Refusal::Permission), Some(Refusal::SecurityModule));
        assert_eq!(Refusal::of(&map(nix::libc::EACCES)), module);
        assert_eq!(Refusal::of(&map(nix::libc::EPERM)), permission);
        assert_eq!(Refusal::of(&map(nix::libc::EINVAL)), None);
        assert_eq!(Refusal::answered(&code(nix::libc::EACCES), ""), module);
        assert_eq!(Refusal::answered(&code(nix::libc::EACCES), "R1 invalid mem access"), None);
        assert_eq!(Refusal::of(&AttachError::Io(code(nix::libc::EPERM))), permission);
    }

    #[test]
    fn problem_and_remedy_are_separate() {
        let refused = LoadError::Refused {
            reason: "create map X: EPERM".to_owned(),
            between: "a seccomp profile".to_owned(),
        };
        assert_eq!(
            crate::error::lines(&refused),
            "the kernel refused bpf(2) (create map X: EPERM) although the capabilities are granted: denied by a seccomp profile\n\
             remedy: allow bpf(2) for this process: in its seccomp profile, or with SELinux by a domain that may use bpf(2) (values \
             `agent.seccompProfile` and `agent.seLinuxOptions` of the chart)"
        );
        assert_eq!(LoadError::Object("bad".to_owned()).remedy(), None);
    }
}
