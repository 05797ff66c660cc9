//! Names and numbers that the kernel, a runtime or Kubernetes gives to things.

mod call;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use call::{CallAbi, SystemCall};

/// Process id in the initial pid namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pid(pub u32);

impl Pid {
    /// PID 1 of the machine: the parent of a process whose own has exited.
    pub const INIT: Pid = Pid(1);
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A cgroup: its hierarchy (0 is cgroup v2) and the inode number of its directory there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CgroupId {
    pub hierarchy: u32,
    pub id: u64,
}

/// One number, not two: a kernel record costs about ten look-ups. Inode numbers of cgroups are far below 2^48.
impl Hash for CgroupId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.id ^ u64::from(self.hierarchy) << 48);
    }
}

impl CgroupId {
    pub const fn v2(id: u64) -> Self {
        CgroupId { hierarchy: 0, id }
    }
    /// The kernel never gives a directory inode 0: id 0 means not read.
    pub const fn is_known(self) -> bool {
        self.id != 0
    }
}

/// Signal number, 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Signal(u8);

impl Signal {
    pub const HUP: Signal = Signal(1);
    pub const ABRT: Signal = Signal(6);
    pub const KILL: Signal = Signal(9);
    pub const TERM: Signal = Signal(15);
    pub const SYS: Signal = Signal(31);
    pub const CONT: Signal = Signal(18);
    pub const STOP: Signal = Signal(19);

    pub const fn new(number: u32) -> Option<Signal> {
        if number >= 1 && number <= 64 {
            Some(Signal(number as u8))
        } else {
            None
        }
    }
    pub const fn number(self) -> u8 {
        self.0
    }
    /// By name or number, as images, runtimes and Kubernetes declare it: `SIGTERM`, `term`, `15`, `SIGRTMIN+3`, `SIGRTMAX-1`.
    pub fn named(text: &str) -> Option<Signal> {
        if let Ok(number) = text.parse() {
            return Signal::new(number);
        }
        let name = text.to_ascii_uppercase();
        let name = name.strip_prefix("SIG").unwrap_or(&name);
        if let Some(below) = name.strip_prefix("RTMAX") {
            let below: u32 = match below {
                "" => 0,
                below => below.strip_prefix('-')?.parse().ok()?,
            };
            return Signal::new(u32::from(SIGRTMAX).checked_sub(below)?).filter(|signal| signal.is_real_time());
        }
        (1..=64)
            .filter_map(Signal::new)
            .find(|signal| signal.to_string()[3..] == *name)
    }
    /// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: what a program's own fault raises.
    pub const fn is_fault(self) -> bool {
        matches!(self.0, 4 | 5 | 6 | 7 | 8 | 11 | 31)
    }
    /// SIGXCPU, SIGXFSZ: a resource limit was exceeded.
    pub const fn is_resource_limit(self) -> bool {
        matches!(self.0, 24 | 25)
    }
    /// SIGPIPE, SIGALRM, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF: what a process does to itself; mostly not even recorded.
    pub const fn is_self_inflicted(self) -> bool {
        self.0 == 13 || self.is_timer() || self.is_resource_limit()
    }
    /// SIGALRM, SIGVTALRM, SIGPROF: what a timer of the process raises. The probes record none of these, also not those of another process.
    pub const fn is_timer(self) -> bool {
        matches!(self.0, 14 | 26 | 27)
    }
    /// SIGHUP, SIGINT, SIGQUIT, SIGTERM: what a person sends to terminate a process.
    pub const fn is_request(self) -> bool {
        self.is_from_terminal() || self.0 == Signal::TERM.0
    }
    /// SIGHUP, SIGINT, SIGQUIT: what a terminal sends to terminate its processes.
    pub const fn is_from_terminal(self) -> bool {
        matches!(self.0, 1..=3)
    }
    /// A signal that means "stop" everywhere: SIGTERM, SIGINT, SIGQUIT, the real-time ones; not SIGHUP, SIGUSR1, SIGUSR2,
    /// SIGWINCH, which mostly mean "reload".
    pub const fn is_conventional_stop(self) -> bool {
        matches!(self.0, 2 | 3 | 15) || self.is_real_time()
    }
    /// From glibc's SIGRTMIN on.
    pub const fn is_real_time(self) -> bool {
        self.0 >= SIGRTMIN
    }
    /// SIGCONT, SIGSTOP, and the terminal's stops SIGTSTP, SIGTTIN, SIGTTOU: a process continues or pauses, and does not terminate.
    pub const fn is_job_control(self) -> bool {
        matches!(self.0, 18..=22)
    }
    /// SIGCHLD, SIGURG, SIGWINCH: ignored by default, so a process without a handler never notices them.
    pub const fn is_ignored_by_default(self) -> bool {
        matches!(self.0, 17 | 23 | 28)
    }
    /// Terminates a process that has no handler.
    pub const fn is_fatal_by_default(self) -> bool {
        !self.is_job_control() && !self.is_ignored_by_default()
    }
}

/// glibc's: it keeps 32 and 33 to itself.
const SIGRTMIN: u8 = 34;
const SIGRTMAX: u8 = 64;

/// `SIGTERM`, `SIGRTMIN+3`.
impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 31] = [
            "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
            "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
            "PWR", "SYS",
        ];
        match self.0 {
            n @ 1..=31 => write!(f, "SIG{}", NAMES[usize::from(n) - 1]),
            SIGRTMIN => f.write_str("SIGRTMIN"),
            n @ SIGRTMIN..=64 => write!(f, "SIGRTMIN+{}", n - SIGRTMIN),
            n => write!(f, "SIG{n}"),
        }
    }
}

/// A process's `comm`: bytes chosen by the process. `Display` escapes all that is not printable ASCII or valid UTF-8 text,
/// so it never carries an escape sequence to a terminal or a log.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Comm(pub [u8; 16]);

impl Comm {
    pub fn new(name: &str) -> Comm {
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().take(15).zip(name.bytes()) {
            *to = from;
        }
        Comm(bytes)
    }
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
    /// crun's own process, which makes a container, has no name of its own: that of the program, or the number of the file descriptor from
    /// which crun executes its copy of itself. A program may have these names, too.
    pub fn may_be_of_crun(&self) -> bool {
        let name = self.as_bytes();
        name == b"crun" || !name.is_empty() && name.iter().all(u8::is_ascii_digit)
    }

    /// A shell, which people, probes and hooks start alike.
    pub fn is_shell(&self) -> bool {
        const SHELLS: [&[u8]; 8] = [b"sh", b"bash", b"dash", b"ash", b"busybox", b"zsh", b"ksh", b"mksh"];
        SHELLS.contains(&self.as_bytes())
    }

    /// `/usr/lib/systemd/systemd-shutdown`, which PID 1 executes at the end.
    pub fn is_systemd_shutdown(&self) -> bool {
        self.as_bytes() == b"systemd-shutdow"
    }

    /// A process of runc that makes a container, by its name: `runc:[0:PARENT]`.
    pub fn is_stage_of_runc(&self) -> bool {
        self.as_bytes().starts_with(b"runc:[")
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Programs that write their title over their arguments end it with spaces.
        for chunk in self.as_bytes().trim_ascii_end().utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() || c == '\\' {
                    write!(f, "{}", c.escape_default())?
                } else {
                    fmt::Write::write_char(f, c)?
                }
            }
            for b in chunk.invalid() {
                write!(f, "\\x{b:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

/// A container id from the runtime: 64 hex digits, lower case. Shared text: an attribution is cloned for every event.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContainerId(#[serde(with = "text")] pub Arc<str>);

impl ContainerId {
    /// The first 12 digits, the short form of every runtime's command line.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

/// A Kubernetes pod's UID as in its cgroup's name (static pods: the config hash).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodUid(#[serde(with = "text")] pub Arc<str>);

/// `Arc<str>` as a JSON string, without serde's `rc` feature in the whole workspace.
pub(crate) mod text {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(text: &Arc<str>, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(d).map(Arc::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_the_names_of_kubernetes_and_of_images() {
        let number = |text: &str| Signal::named(text).map(Signal::number);
        assert_eq!(["SIGTERM", "term", "15"].map(number), [Some(15); 3]);
        assert_eq!(
            ["SIGRTMIN", "SIGRTMIN+3", "SIGRTMAX", "SIGRTMAX-14"].map(number),
            [Some(34), Some(37), Some(64), Some(50)]
        );
        assert_eq!(["SIGRTMAX-31", "SIGRTMAX+1", "SIGNONE", "", "0", "65"].map(number), [None; 6]);
    }

    #[test]
    fn a_signal_is_in_the_sets_of_its_meaning() {
        let of = |is: fn(Signal) -> bool| {
            let all = (1..=64).filter_map(Signal::new).filter(|&signal| is(signal));
            all.map(Signal::number).collect::<Vec<_>>()
        };
        assert_eq!(of(Signal::is_request), [1, 2, 3, 15]);
        assert_eq!(of(Signal::is_self_inflicted), [13, 14, 24, 25, 26, 27]);
        assert_eq!(of(Signal::is_conventional_stop)[..4], [2, 3, 15, 34]);
        assert_eq!(of(|signal| !signal.is_fatal_by_default()), [17, 18, 19, 20, 21, 22, 23, 28]);
    }
}
