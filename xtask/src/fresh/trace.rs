//! Every program that this process and its descendants start, as bpftrace sees it in the kernel.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::shell;

const SCRIPT: &str = include_str!("execs.bt");
/// In a mount namespace of its own, where tracefs is mounted: bpftrace finds tracepoints by no other way.
const MOUNT: &str = "test -d /sys/kernel/tracing/events || mount -t tracefs tracefs /sys/kernel/tracing || exit 1
exec bpftrace -B line \"$@\"";

pub struct Trace {
    child: Child,
    events: PathBuf,
    words: PathBuf,
}

impl Trace {
    /// Begins to watch what is started from here on by the calling thread, and by those that it starts.
    pub fn start(dir: &Path) -> Result<Trace> {
        let script = dir.join("execs.bt");
        fs::write(&script, SCRIPT).with_context(|| format!("writing {}", script.display()))?;
        let create = |path: &Path| File::create(path).with_context(|| format!("creating {}", path.display()));
        let (events, words) = (dir.join("execs.txt"), dir.join("bpftrace.txt"));
        shell::say(format_args!("watching which programs are started: {}", events.display()));
        let child = Command::new("unshare")
            .args(["--mount", "--", "sh", "-c", MOUNT, "sh"])
            .arg(&script)
            .arg(std::process::id().to_string())
            .env("PATH", shell::path())
            // The most that the stack of a BPF program leaves room for.
            .env("BPFTRACE_STRLEN", "180")
            .env("BPFTRACE_MAP_KEYS_MAX", "65536")
            .env("BPFTRACE_PERF_RB_PAGES", "256")
            .stdin(Stdio::null())
            .stdout(create(&events)?)
            .stderr(create(&words)?)
            .spawn()
            .context("starting bpftrace")?;
        let mut trace = Trace { child, events, words };
        for _ in 0..600 {
            if trace.recorded()?.lines().any(|line| line == "ready") {
                return Ok(trace);
            }
            if let Some(status) = trace.child.try_wait().context("waiting for bpftrace")? {
                bail!(
                    "bpftrace cannot watch execve on this kernel ({status}): {}",
                    trace.said().trim()
                );
            }
            thread::sleep(Duration::from_millis(100));
        }
        bail!("bpftrace was not ready within a minute: {}", trace.said().trim())
    }

    /// All that was recorded.
    pub fn end(mut self) -> Result<String> {
        // By its path: a search for it would be cut off in the middle of the recording, and look like a program that is missing.
        let mut interrupt = Command::new("/bin/sh");
        interrupt.args(["-c", "kill -INT \"$1\"", "sh", &self.child.id().to_string()]);
        ensure!(
            shell::succeeds(&mut interrupt),
            "bpftrace ended early: {}",
            self.said().trim()
        );
        self.child.wait().context("waiting for bpftrace")?;
        let recorded = self.recorded()?;
        let lost = [&recorded, &self.said()]
            .into_iter()
            .flat_map(|text| text.lines())
            .find(|line| is_loss(line))
            .map(str::to_owned);
        if let Some(lost) = lost {
            bail!("what is missing cannot be told, for bpftrace was too slow: {lost}");
        }
        Ok(recorded)
    }

    fn recorded(&self) -> Result<String> {
        let bytes = fs::read(&self.events).with_context(|| format!("reading {}", self.events.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.words).unwrap_or_default()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_loss(line: &str) -> bool {
    line.starts_with("Lost ") && line.ends_with(" events")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_noticed() {
        assert!(is_loss("Lost 12 events"));
        assert!(!is_loss("shell\t1\t2\tsh\tLost 12 events"));
    }
}
