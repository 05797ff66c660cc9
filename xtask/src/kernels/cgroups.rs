//! The ways in which a guest mounts its cgroups.

use std::str::FromStr;

use anyhow::{Error, bail};

/// Text, for `concat!`.
macro_rules! v1 {
    () => {
        "mount -t tmpfs cgroups /sys/fs/cgroup
for name in memory pids cpu,cpuacct devices freezer; do
mkdir /sys/fs/cgroup/$name
mount -t cgroup -o $name $name /sys/fs/cgroup/$name
done
mkdir /sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd systemd /sys/fs/cgroup/systemd
"
    };
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// As a current distribution has it.
    #[default]
    V2,
    /// As systemd 230 to 255 can be configured: v1 for controllers and containers, v2 without controllers for units.
    Hybrid,
    /// As before: no v2 at all.
    V1,
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Layout, Error> {
        Ok(match text {
            "v2" => Layout::V2,
            "hybrid" => Layout::Hybrid,
            "v1" => Layout::V1,
            other => bail!("no cgroup layout `{other}`; the layouts are v2, hybrid, v1"),
        })
    }
}

impl Layout {
    /// Lines of the guest's init. A controller that this kernel has not on v1 stays unmounted.
    pub fn mounts(self) -> &'static str {
        match self {
            Layout::V2 => {
                "mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo '+memory +pids' > /sys/fs/cgroup/cgroup.subtree_control
"
            }
            Layout::Hybrid => concat!(
                v1!(),
                "mkdir /sys/fs/cgroup/unified
mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
"
            ),
            Layout::V1 => v1!(),
        }
    }

    /// The flags of the guest's program for this layout.
    pub fn arguments(self) -> &'static str {
        match self {
            Layout::Hybrid => "--containers-in-v1",
            Layout::V2 | Layout::V1 => "",
        }
    }
}
