//! Which tests may be skipped, and where: `tests/allowed-skips.txt`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result, bail};

use crate::shell;

/// What a machine may lack. The names are those of the second column of the list.
const CONDITIONS: &[(&str, &str)] = &[
    ("unprivileged", "not root, and --unprivileged was given"),
    ("no-memory-controller", "the kernel has no cgroup memory controller, v1 or v2"),
    (
        "no-memory-v2",
        "the v2 hierarchy, where probes count cgroups, has no memory controller",
    ),
    ("no-cgroup-v2", "no cgroup v2 hierarchy is mounted"),
    (
        "no-cgroup-v1",
        "neither the memory nor the pids controller is mounted as cgroup v1 below /sys/fs/cgroup",
    ),
    ("no-iproute2", "no `ip` that creates network namespaces"),
    ("no-user-namespace", "`unshare --user` is forbidden"),
    (
        "no-hidepid",
        "mounting /proc with hidepid=ptraceable is forbidden, or the kernel is too old for the option",
    ),
    ("no-real-time", "`chrt --fifo` is forbidden"),
    ("own-cgroup", "this process is not in the root of the v2 hierarchy"),
    ("other-reaper", "an orphan of this process gets another parent than PID 1"),
    ("run-by-another", "always: another test runs this one in a process of its own"),
    ("no-jaeger", "no Jaeger could be built: no Go, and no package golang-go"),
    (
        "no-kubernetes",
        "no kube-apiserver could be built: no Go, and no package golang-go",
    ),
    (
        "no-monitoring",
        "no Prometheus could be built: no Go, and no package golang-go",
    ),
    (
        "no-traffic",
        "the Go servers of tests/traffic-go could not be built: no Go, and no package golang-go",
    ),
    (
        "no-programs",
        "some of the inits and language runtimes could not be installed: no Debian, or no network",
    ),
    ("no-dbus", "no dbus-daemon could be installed: no Debian, or no network"),
    (
        "no-kernel-packages",
        "some of Debian's kernels could not be fetched: no Debian, or no network",
    ),
];

pub struct Allowed {
    /// Name (a trailing `*` matches any suffix) and condition.
    rules: Vec<(String, String)>,
    holding: BTreeSet<String>,
}

impl Allowed {
    /// Reads the list. `holding` are the conditions that hold in this run.
    pub fn read(holding: BTreeSet<String>) -> Result<Allowed> {
        let path = shell::root().join("tests/allowed-skips.txt");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Allowed::parse(&text, holding).with_context(|| path.display().to_string())
    }

    fn parse(text: &str, holding: BTreeSet<String>) -> Result<Allowed> {
        let mut rules = Vec::new();
        for line in text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let mut words = line.split_whitespace();
            let (Some(name), Some(condition), Some(_why)) = (words.next(), words.next(), words.next()) else {
                bail!("`{line}`: the form of a line is NAME CONDITION WHY");
            };
            if !CONDITIONS.iter().any(|(known, _)| *known == condition) {
                let known: Vec<_> = CONDITIONS.iter().map(|(name, what)| format!("{name} ({what})")).collect();
                bail!(
                    "`{line}`: no condition `{condition}`; the conditions are {}",
                    known.join(", ")
                );
            }
            rules.push((name.to_owned(), condition.to_owned()));
        }
        Ok(Allowed { rules, holding })
    }

    /// The condition, holding here, by which `name` may be skipped.
    pub fn condition(&self, name: &str) -> Option<&str> {
        let matches = |rule: &str| rule.strip_suffix('*').map_or(rule == name, |start| name.starts_with(start));
        let rule = self
            .rules
            .iter()
            .find(|(rule, condition)| matches(rule) && self.holding.contains(condition));
        rule.map(|(_, condition)| &**condition)
    }
}

/// As the stories ask it.
fn makes_network_namespaces() -> bool {
    let asked = Command::new("ip").args(["netns", "list"]).output();
    asked.is_ok_and(|done| done.status.success())
}

/// As the test of a daemon asks it.
fn is_reaped_by_pid_1() -> bool {
    // The orphan lives until its input ends.
    let script = "exec 3<&0; cat <&3 >/dev/null & echo $!";
    let shell = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut shell) = shell else { return false };
    let input = shell.stdin.take();
    let orphan = shell.wait_with_output().ok();
    let pid = orphan.and_then(|done| String::from_utf8(done.stdout).ok());
    let status = pid.and_then(|pid| fs::read_to_string(format!("/proc/{}/status", pid.trim())).ok());
    drop(input);
    status.is_some_and(|status| status.lines().any(|line| line == "PPid:\t1"))
}

/// As the test of clients' losses asks it.
fn is_real_time_allowed() -> bool {
    let asked = Command::new("chrt").args(["--fifo", "1", "true"]).output();
    asked.is_ok_and(|done| done.status.success())
}

/// As the tests of privileges ask it.
fn unshares(args: &[&str]) -> bool {
    let asked = Command::new("unshare").args(args).output();
    asked.is_ok_and(|done| done.status.success())
}

/// The conditions that this machine shows by itself.
pub fn of_this_machine() -> BTreeSet<String> {
    let cgroups = fs::read_to_string("/proc/cgroups").unwrap_or_default();
    let memory = cgroups.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.first() == Some(&"memory") && fields.last() == Some(&"1")
    });
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let v2: Vec<&str> = mounts
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(2) == Some(&"cgroup2"))
        .filter_map(|fields| fields.get(1).copied())
        .collect();
    let memory_v2 = v2.iter().any(|dir| {
        let controllers = fs::read_to_string(format!("{dir}/cgroup.controllers")).unwrap_or_default();
        controllers.split_whitespace().any(|name| name == "memory")
    });
    let v1 = ["memory", "pids"].iter().any(|controller| {
        let directory = Path::new("/sys/fs/cgroup").join(controller);
        directory.join("cgroup.procs").exists()
    });
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let hidepid = [
        "--mount",
        "--propagation",
        "private",
        "--",
        "mount",
        "-t",
        "proc",
        "-o",
        "hidepid=ptraceable",
        "proc",
        "/proc",
    ];
    let lacking = [
        ("no-user-namespace", !unshares(&["--user", "--map-root-user", "--", "true"])),
        ("no-hidepid", !unshares(&hidepid)),
        ("run-by-another", true),
        ("no-memory-controller", !memory && !memory_v2),
        ("no-memory-v2", !memory_v2),
        ("no-cgroup-v2", v2.is_empty()),
        ("no-cgroup-v1", !v1),
        ("no-iproute2", !makes_network_namespaces()),
        ("no-real-time", !is_real_time_allowed()),
        ("own-cgroup", !own.lines().any(|line| line == "0::/")),
        ("other-reaper", !is_reaped_by_pid_1()),
    ];
    lacking
        .into_iter()
        .filter(|(_, lacks)| *lacks)
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# names\noom_main no-memory-v2 no limit to set\nprobes::* unprivileged they load BPF\n";

    fn allowed(holding: &[&str]) -> Allowed {
        Allowed::parse(LIST, holding.iter().map(|name| (*name).to_owned()).collect()).unwrap()
    }

    #[test]
    fn a_skip_needs_its_name_on_the_list_and_its_condition_here() {
        assert_eq!(allowed(&["no-memory-v2"]).condition("oom_main"), Some("no-memory-v2"));
        assert_eq!(allowed(&[]).condition("oom_main"), None);
        assert_eq!(allowed(&["unprivileged"]).condition("oom_main"), None);
        assert_eq!(allowed(&["unprivileged"]).condition("probes::load"), Some("unprivileged"));
        assert_eq!(allowed(&["no-memory-v2", "unprivileged"]).condition("oom_main_2"), None);
    }

    #[test]
    fn a_careless_line_is_an_error() {
        assert!(Allowed::parse("oom_main", BTreeSet::new()).is_err());
        assert!(Allowed::parse("oom_main whenever I like", BTreeSet::new()).is_err());
        assert!(
            Allowed::parse("oom_main unprivileged", BTreeSet::new()).is_err(),
            "a reason is wanted"
        );
    }

    #[test]
    fn the_committed_list_is_read() {
        Allowed::read(BTreeSet::new()).unwrap();
    }
}
