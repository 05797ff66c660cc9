//! What a process may do: with how much it is started, and how much of it its threads have left.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

pub const SYS_PTRACE: u64 = 1 << 19;
pub const BPF: u64 = 1 << 39;

/// A program, made in `directory`, that runs `program` with the arguments of setpriv(1) in `with`, after the shell's words `before`.
///
/// # Errors
/// It cannot be written.
pub fn launcher(directory: &Path, name: &str, before: &str, with: &str, program: &Path) -> anyhow::Result<PathBuf> {
    let script = format!("#!/bin/sh\n{before}\nexec setpriv {with} -- {} \"$@\"\n", program.display());
    executable(&directory.join(name), &script)
}

/// A script that can be run at once.
///
/// # Errors
/// It cannot be written.
pub fn executable(path: &Path, script: &str) -> anyhow::Result<PathBuf> {
    let draft = path.with_extension("draft");
    fs::write(&draft, script).with_context(|| format!("write {}", draft.display()))?;
    // By another process: a child that a test forks then would hold our file open for writing: the file would be `busy`.
    let copied = Command::new("sh")
        .args(["-c", "cat \"$0\" >\"$1\""])
        .arg(&draft)
        .arg(path)
        .status()?;
    ensure!(copied.success(), "make {}: {copied}", path.display());
    fs::set_permissions(path, Permissions::from_mode(0o755))?;
    Ok(path.to_owned())
}

/// setpriv's words for a uid 0 that has these capabilities (as in `+bpf,+perfmon`) and can get no others.
pub fn root_with(capabilities: &str) -> String {
    format!("--bounding-set -all{} --no-new-privs", comma(capabilities))
}

/// The same for user `nobody`: ambient, as systemd's `AmbientCapabilities=` sets them.
pub fn nobody_with(capabilities: &str) -> String {
    let none = format!(
        "--reuid 65534 --regid 65534 --clear-groups --bounding-set -all{} --no-new-privs",
        comma(capabilities)
    );
    match capabilities {
        "" => none,
        some => format!("{none} --inh-caps {some} --ambient-caps {some}"),
    }
}

fn comma(capabilities: &str) -> String {
    match capabilities {
        "" => String::new(),
        some => format!(",{some}"),
    }
}

/// What one thread may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    pub name: String,
    /// By the name of the set in `/proc/PID/status`, such as `CapEff`.
    pub sets: BTreeMap<String, u64>,
    pub no_new_privileges: bool,
}

impl Thread {
    /// All that it has or could get at once: effective, permitted, inheritable, ambient.
    pub fn has(&self) -> u64 {
        let sets = ["CapEff", "CapPrm", "CapInh", "CapAmb"];
        sets.iter()
            .map(|set| self.sets.get(*set).copied().unwrap_or(!0))
            .fold(0, |all, set| all | set)
    }
}

/// Every thread of a process, the first one first.
///
/// # Errors
/// It has ended.
pub fn threads(pid: u32) -> anyhow::Result<Vec<Thread>> {
    let directory = format!("/proc/{pid}/task");
    let mut tids: Vec<u32> = fs::read_dir(&directory)
        .with_context(|| format!("read {directory}"))?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    tids.sort_by_key(|tid| (*tid != pid, *tid));
    // A thread that exited meanwhile has no capabilities any more.
    let statuses = tids
        .iter()
        .filter_map(|tid| fs::read_to_string(format!("{directory}/{tid}/status")).ok());
    Ok(statuses.map(|status| thread(&status)).collect())
}

fn thread(status: &str) -> Thread {
    let mut thread = Thread::default();
    for (name, value) in status.lines().filter_map(|line| line.split_once(":\t")) {
        match name {
            "Name" => thread.name = value.to_owned(),
            "NoNewPrivs" => thread.no_new_privileges = value == "1",
            set if set.starts_with("Cap") => {
                thread
                    .sets
                    .insert(set.to_owned(), u64::from_str_radix(value, 16).unwrap_or(!0));
            }
            _ => {}
        }
    }
    thread
}

/// What the probes' maps take of a thread that has the file descriptors already: before 5.19, and where the administrator keeps
/// bpf(2) from ordinary users, CAP_BPF (or a backport of 5.19's rule, and nothing).
///
/// # Errors
/// The kernel's release is not readable.
pub fn may_keep() -> anyhow::Result<u64> {
    let text = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).with_context(|| format!("read {name}"));
    let release = text("osrelease")?;
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let kept_from_users = text("unprivileged_bpf_disabled").is_ok_and(|value| value.trim() != "0");
    Ok(if version < (5, 19) && kept_from_users { BPF } else { 0 })
}

/// What is wrong with what a running agent may still do, thread by thread; empty if it is as little as can be. `keeps` is what
/// its first thread alone may have.
///
/// # Errors
/// The process has ended.
pub fn too_much(pid: u32, keeps: u64) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (at, thread) in threads(pid)?.iter().enumerate() {
        let allowed = if at == 0 { keeps } else { 0 };
        if thread.has() & !allowed != 0 || !thread.no_new_privileges {
            wrong.push(format!("thread {at}: {thread:x?}"));
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        let status = "Name:\tepitaph\nCapInh:\t0000000000000000\nCapPrm:\t0000008000000000\nCapEff:\t0000000000000000\n\
                      CapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n";
        let thread = thread(status);
        assert_eq!((thread.has(), thread.no_new_privileges), (BPF, true));
        assert_eq!(thread.sets["CapBnd"], 0x1ff_ffff_ffff);
        // A value that was not read is not trusted.
        assert_eq!(Thread::default().has(), !0);
    }
}
