//! Programs of the cluster: started, recorded with pid and start time, and stopped only while both still match.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::libc::{SIGKILL, SIGTERM};
use serde::{Deserialize, Serialize};

use crate::sys::{after_name, kill};
use crate::timeout::{holds, until_within};

/// How long a process may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// In the caller's process group, so that Ctrl-C reaches it as well.
    Caller,
    /// Until a reader of its record stops it.
    Detached,
}

/// One started program. Dropping it does not end it.
#[derive(Debug)]
pub struct Process {
    name: String,
    record: PathBuf,
    identity: Identity,
    /// Ours to reap.
    child: Option<Child>,
}

/// A pid is reused; together with its start time it identifies one process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    pid: i32,
    /// Field 22 of /proc/PID/stat, clock ticks after boot.
    start: u64,
    boot_id: String,
}

impl Process {
    /// Starts `command`, its output appended to `log`, and writes its record into the directory `records`.
    ///
    /// # Errors
    /// The program cannot be started or recorded.
    pub fn start(name: &str, mut command: Command, log: &Path, records: &Path, lifetime: Lifetime) -> anyhow::Result<Process> {
        let what = || format!("start {name}");
        let file = File::options().create(true).append(true).open(log).with_context(what)?;
        if lifetime == Lifetime::Detached {
            command.process_group(0);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().with_context(what)?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("start {name}: {}", command.get_program().to_string_lossy()))?;
        let record = record(records, name);
        match write_down(&child, &record) {
            Ok(identity) => Ok(Process {
                name: name.to_owned(),
                record,
                identity,
                child: Some(child),
            }),
            // Otherwise no task could ever stop it.
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error.context(what()))
            }
        }
    }

    /// A process that is recorded in `records` and still runs.
    ///
    /// # Errors
    /// Its record cannot be read.
    pub fn find(name: &str, records: &Path) -> anyhow::Result<Option<Process>> {
        let record = record(records, name);
        let text = match fs::read(&record) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("read {}", record.display())),
        };
        let identity = serde_json::from_slice(&text).with_context(|| format!("read {}", record.display()))?;
        let mut process = Process {
            name: name.to_owned(),
            record,
            identity,
            child: None,
        };
        Ok(process.runs().then_some(process))
    }

    /// Names of all processes that are recorded in `records`, running or not.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn names(records: &Path) -> anyhow::Result<Vec<String>> {
        let entries = match fs::read_dir(records) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("list {}", records.display())),
        };
        let mut names = Vec::new();
        for entry in entries {
            let file = entry.with_context(|| format!("list {}", records.display()))?.file_name();
            names.extend(file.to_str().and_then(|file| file.strip_suffix(".json")).map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> i32 {
        self.identity.pid
    }

    pub fn runs(&mut self) -> bool {
        if let Some(child) = &mut self.child {
            return matches!(child.try_wait(), Ok(None));
        }
        identity(self.identity.pid).is_ok_and(|found| found.as_ref() == Some(&self.identity))
    }

    /// An error, with the end of `log`, if the process has exited.
    ///
    /// # Errors
    /// The process has exited.
    pub fn expect_running(&mut self, log: &Path) -> anyhow::Result<()> {
        if self.runs() {
            return Ok(());
        }
        let text = fs::read(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let tail: Vec<&str> = text.lines().rev().take(8).collect();
        let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
        bail!("{} exited by itself; the last lines of {}:\n{tail}", self.name, log.display())
    }

    /// Sends `signal`, if the process still runs.
    ///
    /// # Errors
    /// As kill(2).
    pub fn signal(&mut self, signal: i32) -> anyhow::Result<()> {
        if self.runs() {
            kill(self.identity.pid, signal).with_context(|| format!("send signal {signal} to {}", self.name))?;
        }
        Ok(())
    }

    /// SIGTERM, SIGKILL after `timeout`; returns when the process is gone, and its record removed.
    ///
    /// # Errors
    /// The process cannot be signalled, or still runs half a minute after SIGKILL.
    pub fn end(&mut self, timeout: Duration) -> anyhow::Result<()> {
        self.signal(SIGTERM)?;
        if !self.gone_within(timeout) {
            self.signal(SIGKILL)?;
            if !self.gone_within(Duration::from_secs(30)) {
                bail!("{} (pid {}) is still running after SIGKILL", self.name, self.identity.pid);
            }
        }
        match fs::remove_file(&self.record) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", self.record.display()))
            }
            _ => Ok(()),
        }
    }

    fn gone_within(&mut self, timeout: Duration) -> bool {
        until_within(timeout, "the process to exit", || Ok(holds(!self.runs(), String::new))).is_ok()
    }
}

fn record(records: &Path, name: &str) -> PathBuf {
    records.join(format!("{name}.json"))
}

fn write_down(child: &Child, record: &Path) -> anyhow::Result<Identity> {
    let identity = identity(child.id().cast_signed())?.context("the process exited at once")?;
    if let Some(directory) = record.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(record, serde_json::to_vec(&identity)?).with_context(|| format!("write {}", record.display()))?;
    Ok(identity)
}

/// None if there is no such process, or only a zombie that its parent has not yet waited for.
fn identity(pid: i32) -> anyhow::Result<Option<Identity>> {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return Ok(None);
    };
    let fields = after_name(&stat).context("no end of the name in /proc/PID/stat")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    if matches!(fields.first(), Some(&"Z" | &"X")) {
        return Ok(None);
    }
    let start = fields.get(19).context("no start time in /proc/PID/stat")?.parse()?;
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").context("read the boot id")?;
    Ok(Some(Identity {
        pid,
        start,
        boot_id: boot_id.trim().to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(directory: &Path) -> Process {
        let mut command = Command::new("sleep");
        command.arg("1000");
        Process::start("sleeper", command, &directory.join("log"), directory, Lifetime::Caller).unwrap()
    }

    #[test]
    fn a_process_is_found_again_and_ended_by_its_record() {
        let directory = tempfile::tempdir().unwrap();
        let mut started = sleeper(directory.path());
        assert_eq!(Process::names(directory.path()).unwrap(), ["sleeper"]);
        let mut found = Process::find("sleeper", directory.path()).unwrap().expect("it runs");
        assert_eq!(found.pid(), started.pid());
        found.end(Duration::from_secs(10)).unwrap();
        assert!(!started.runs());
        assert!(Process::names(directory.path()).unwrap().is_empty());
    }

    #[test]
    fn a_pid_that_became_another_process_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let mut started = sleeper(directory.path());
        let file = record(directory.path(), "sleeper");
        let mut other: Identity = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        other.start += 1;
        fs::write(&file, serde_json::to_vec(&other).unwrap()).unwrap();
        assert!(Process::find("sleeper", directory.path()).unwrap().is_none());
        assert!(started.runs());
        started.end(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn an_early_exit_is_reported_with_the_end_of_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such flag; sleep 1; exit 1"]);
        let mut process = Process::start("sh", command, &log, directory.path(), Lifetime::Caller).unwrap();
        assert!(process.gone_within(Duration::from_secs(10)));
        let error = process.expect_running(&log).unwrap_err().to_string();
        assert!(error.contains("no such flag"), "{error}");
    }
}
