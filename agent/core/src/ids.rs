//! Names and numbers that the kernel, a runtime or Kubernetes gives to things.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Process id in the initial pid namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pid(pub u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A cgroup: its hierarchy (0 is cgroup v2) and the inode number of its directory there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CgroupId {
    pub hierarchy: u32,
    pub id: u64,
}

impl CgroupId {
    pub const fn v2(id: u64) -> Self {
        CgroupId { hierarchy: 0, id }
    }
    /// The kernel never gives a directory inode 0: an id of 0 was not read.
    pub const fn is_known(self) -> bool {
        self.id != 0
    }
}

/// Signal number, 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Signal(u8);

impl Signal {
    pub const ABRT: Signal = Signal(6);
    pub const KILL: Signal = Signal(9);
    pub const TERM: Signal = Signal(15);
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
    /// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: what a program's own fault raises.
    pub const fn is_fault(self) -> bool {
        matches!(self.0, 4 | 5 | 6 | 7 | 8 | 11 | 31)
    }
}

/// `SIGTERM`, `SIGRTMIN+3` (glibc's SIGRTMIN, 34).
impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 31] = [
            "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
            "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
            "PWR", "SYS",
        ];
        match self.0 {
            n @ 1..=31 => write!(f, "SIG{}", NAMES[usize::from(n) - 1]),
            34 => f.write_str("SIGRTMIN"),
            n @ 35..=64 => write!(f, "SIGRTMIN+{}", n - 34),
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
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.as_bytes().utf8_chunks() {
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

/// A container id as its runtime gave it: 64 hex digits, lower case. Shared text: an attribution is cloned for every event.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContainerId(#[serde(with = "text")] pub Arc<str>);

impl ContainerId {
    /// The first 12 digits, as every runtime's command line shows them.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

/// A Kubernetes pod's UID as its cgroup's name gives it (static pods: the config hash).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodUid(#[serde(with = "text")] pub Arc<str>);

/// `Arc<str>` as a JSON string, without serde's `rc` feature for everybody.
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
