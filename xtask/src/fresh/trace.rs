//! Traces every `execve` of this process and its descendants with bpftrace.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::shell;

const SCRIPT: &str = include_str!("execs.bt");
/// In a mount namespace of its own with tracefs: bpftrace cannot find tracepoints without it.
const MOUNT: &str = "test -d /sys/kernel/tracing/events || mount -t tracefs tracefs /sys/kernel/tracing || exit 1
exec bpftrace -B line \"$@\"";

pub struct Trace {
    child: Child,
    events: PathBuf,
    messages: PathBuf,
}

impl Trace {
    /// Starts tracing what the calling thread and its descendants execute from now on.
    pub fn start(dir: &Path) -> Result<Trace> {
        let script = dir.join("execs.bt");
        fs::write(&script, SCRIPT).with_context(|| format!("writing {}", script.display()))?;
        let create = |path: &Path| File::create(path).with_context(|| format!("creating {}", path.display()));
        let (events, messages) = (dir.join("execs.txt"), dir.join("bpftrace.txt"));
        shell::log(format_args!("tracing execve into {}", events.display()));
        let child = Command::new("unshare")
            .args(["--mount", "--", "sh", "-c", MOUNT, "sh"])
            .arg(&script)
            .arg(std::process::id().to_string())
            .env("PATH", shell::path())
            // More does not fit a BPF program's stack.
            .env("BPFTRACE_STRLEN", "180")
            .env("BPFTRACE_MAP_KEYS_MAX", "65536")
            .env("BPFTRACE_PERF_RB_PAGES", "256")
            .stdin(Stdio::null())
            .stdout(create(&events)?)
            .stderr(create(&messages)?)
            .spawn()
            .context("starting bpftrace")?;
        let mut trace = Trace { child, events, messages };
        let ready = shell::found_within(Duration::from_secs(60), || {
            if trace.recorded()?.lines().any(|line| line == "ready") {
                return Ok(Some(()));
            }
            if let Some(status) = trace.child.try_wait().context("waiting for bpftrace")? {
                bail!(
                    "bpftrace cannot trace execve on this kernel ({status}): {}",
                    trace.messages().trim()
                );
            }
            Ok(None)
        })?;
        ensure!(
            ready.is_some(),
            "bpftrace was not ready within a minute: {}",
            trace.messages().trim()
        );
        Ok(trace)
    }

    /// Stops tracing and returns the events.
    pub fn end(mut self) -> Result<String> {
        // By absolute path: the trace stops during a PATH search, and `sh` would look missing.
        let mut interrupt = Command::new("/bin/sh");
        interrupt.args(["-c", "kill -INT \"$1\"", "sh", &self.child.id().to_string()]);
        ensure!(
            shell::succeeds(&mut interrupt),
            "bpftrace exited early: {}",
            self.messages().trim()
        );
        self.child.wait().context("waiting for bpftrace")?;
        let recorded = self.recorded()?;
        let lost = [&recorded, &self.messages()]
            .into_iter()
            .flat_map(|text| text.lines())
            .find(|line| is_loss(line))
            .map(str::to_owned);
        if let Some(lost) = lost {
            bail!("the trace is incomplete, missing programs are unknown: bpftrace: {lost}");
        }
        Ok(recorded)
    }

    fn recorded(&self) -> Result<String> {
        let bytes = fs::read(&self.events).with_context(|| format!("reading {}", self.events.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn messages(&self) -> String {
        fs::read_to_string(&self.messages).unwrap_or_default()
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
