//! Attribution: cgroup → container, systemd unit, or host.

mod cgroups;
mod index;
mod map;
pub mod path;
mod processes;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{CgroupId, ContainerId, PodUid};

pub use index::{Index, Question};
pub(crate) use map::{Map, growth, slim, table};

/// Runtime family, from the scope's prefix in the cgroup path; `Unnamed` with the cgroupfs driver, which gives none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    Containerd,
    CriO,
    Docker,
    Podman,
    Unnamed,
}

/// A container or unit: it has terminations of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Subject {
    Container {
        id: ContainerId,
        runtime: Runtime,
        pod: Option<PodUid>,
    },
    /// A systemd service or scope that is not a container's. The name is bounded and safe to print.
    Unit {
        #[serde(with = "crate::ids::text")]
        name: Arc<str>,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Container { id, .. } => write!(f, "container {}", id.short()),
            Subject::Unit { name } => write!(f, "unit {name}"),
        }
    }
}

/// The owner of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attribution {
    /// The subject, and its own cgroup: the subject's processes may be in cgroups below.
    Subject(Subject, CgroupId),
    /// Known to be in no container and no unit: the root cgroup, a user's session, a runtime's own slice.
    Host,
    Unknown(UnknownCgroup),
}

impl Attribution {
    /// The subject's own cgroup.
    pub fn own(&self) -> Option<CgroupId> {
        match self {
            Attribution::Subject(_, own) => Some(*own),
            Attribution::Host | Attribution::Unknown(_) => None,
        }
    }
}

/// Why a process's cgroup does not name a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownCgroup {
    /// The id was never seen and is gone from the file system.
    NeverSeen,
    /// The kernel gave no id.
    NoId,
    /// The path was not readable.
    PathUnreadable,
    /// The container or unit around it has more nested cgroups than the index keeps.
    TooMany,
    /// The root on a machine with cgroup v1, and the process was gone before `/proc` was read.
    ProcessGone,
}
