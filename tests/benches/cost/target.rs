//! Whom the signals go to: a container's main process that ignores them, and nothing more.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph_core::ids::CgroupId;
use epitaph_tests::cgroup::Scope;
use epitaph_tests::sys::kill;
use nix::libc::{SIGTERM, SIGURG};

use crate::stats::now;

pub const RECORDED: i32 = SIGTERM;
/// What Go's runtime sends its threads all day.
pub const FILTERED: i32 = SIGURG;

/// PID 1 of a pid namespace, in a cgroup named as containerd names a container's. Gone when dropped.
pub struct Target {
    pid: i32,
    /// unshare(1), that takes the process with it.
    parent: Child,
    scope: Scope,
}

impl Target {
    pub fn start() -> anyhow::Result<Target> {
        let scope = Scope::of_new_container()?;
        let parent = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--", "sh", "-c"])
            .arg("trap '' TERM URG; echo ready; exec sleep 3600")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("start a process in a pid namespace: unshare(1) of util-linux")?;
        let mut target = Target { pid: 0, parent, scope };
        let mut line = String::new();
        BufReader::new(target.parent.stdout.take().context("no stdout")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "the target never got ready: it printed {line:?}");
        let parent = target.parent.id();
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
        let pid = children.trim().parse::<u32>().context("find the target's pid")?;
        target.scope.join(pid)?;
        target.pid = pid.cast_signed();
        // Its exec of sleep(1) is not part of the measurement.
        sleep(Duration::from_millis(50));
        Ok(target)
    }

    pub fn pid(&self) -> u32 {
        self.pid.cast_unsigned()
    }

    pub fn cgroup(&self) -> anyhow::Result<CgroupId> {
        Ok(CgroupId::v2(self.scope.id()?))
    }

    pub fn signal(&self, signal: i32) -> anyhow::Result<()> {
        Ok(kill(self.pid, signal)?)
    }

    /// Nanoseconds per kill(2), over `count` in a row.
    pub fn burst(&self, signal: i32, count: u32) -> anyhow::Result<f64> {
        let begin = now();
        for _ in 0..count {
            kill(self.pid, signal)?;
        }
        Ok((now() - begin) as f64 / f64::from(count))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.parent.kill();
        let _ = self.parent.wait();
        let _ = self.scope.remove();
    }
}
