//! The agent where cgroups are not as on a current host: in a cgroup namespace of its own with nothing at `/sys/fs/cgroup`, on a
//! machine that shows it no v2, and under a runtime that uses only v1. The terminations are real, and so is the agent.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context as _, ensure};
use epitaph_tests::agent::program;
use epitaph_tests::cgroup::{Inhabitants, Mounts, Scope};
use epitaph_tests::demo::{Options, run};
use epitaph_tests::machine::is_root;
use epitaph_tests::privileges::executable;
use epitaph_tests::report::Report;
use epitaph_tests::skip::skip;
use epitaph_tests::sys::{locked, random_hex};

/// One of each sort: by itself, on demand, against its will, at once or by itself in no pid namespace of its own, by a stranger, with clients.
const STORIES: [&str; 11] = [
    "completed",
    "exits-1-by-itself",
    "exits-1-beside-the-host",
    "ignored-without-handler",
    "segmentation-fault",
    "default-action",
    "unit-default-action",
    "killed-by-a-neighbour",
    "oom",
    "oom-child",
    "refuses",
];

/// One test at a time: each looks at all terminations of the machine.
static MACHINE: Mutex<()> = Mutex::new(());

/// Whether the test of that name can go on.
fn can_play(test: &str) -> bool {
    if !is_root() {
        skip(test, "playing needs root");
    }
    is_root()
}

/// Whether the test of that name has a v1 hierarchy to use.
fn has_v1(test: &str) -> bool {
    let mounts = Mounts::inhabited(Inhabitants::ContainersInV1);
    let is_controller = |mount: &PathBuf| mount.ends_with("memory") || mount.ends_with("pids");
    let has = mounts.is_ok_and(|mounts| mounts.v1.iter().any(is_controller));
    if !has {
        skip(test, "no memory or pids controller on cgroup v1");
    }
    has
}

/// A container whose main process is the agent, judged by its cgroups and namespaces.
struct Pod {
    scopes: Vec<Scope>,
    directory: tempfile::TempDir,
}

impl Pod {
    fn new() -> anyhow::Result<Pod> {
        let name = format!("cri-containerd-{}.scope", random_hex(32)?);
        let mut scopes = vec![Scope::create(&Mounts::find()?, &name, None)?];
        if let Ok(mounts) = Mounts::inhabited(Inhabitants::AllInV1) {
            scopes.push(Scope::create(&mounts, &name, None)?);
        }
        Ok(Pod {
            scopes,
            directory: tempfile::tempdir()?,
        })
    }

    /// The agent, with namespaces of its own and the host's cgroups at a place of its own: there is nothing at `/sys/fs/cgroup`.
    /// `prepare` is what else is done there, `$HOST` that place; `arguments` are the agent's.
    fn agent(&self, prepare: &str, arguments: &str) -> anyhow::Result<PathBuf> {
        let agent = program(&players()?);
        let joins: Vec<String> = self.scopes.iter().flat_map(Scope::directories).map(join).collect();
        let host = self.directory.path().join("host");
        fs::create_dir_all(host.join("fs/cgroup"))?;
        let inside = self.script(
            "inside",
            &format!(
                "set -e
HOST={host}
mount --rbind /sys/fs/cgroup $HOST/fs/cgroup
mount -t tmpfs none /sys/fs/cgroup
{prepare}
exec {agent} \"$@\" {arguments}",
                host = host.display(),
                agent = agent.display(),
            ),
        )?;
        self.script(
            "agent",
            &format!(
                "set -e
{joins}
exec unshare --mount --propagation private --cgroup {inside} \"$@\"",
                joins = joins.join("\n"),
                inside = inside.display(),
            ),
        )
    }

    fn script(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        executable(&self.directory.path().join(name), &format!("#!/bin/sh\n{text}\n"))
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        for scope in &self.scopes {
            if let Err(error) = scope.remove() {
                eprintln!("{error}");
            }
        }
    }
}

fn join(directory: &Path) -> String {
    format!("echo $$ > {}/cgroup.procs", directory.display())
}

fn players() -> anyhow::Result<PathBuf> {
    let victim = Path::new(env!("CARGO_BIN_EXE_victim"));
    Ok(victim.parent().context("the players lie nowhere")?.to_path_buf())
}

fn play(agent: PathBuf, inhabitants: Inhabitants) -> anyhow::Result<Report> {
    let _alone = locked(&MACHINE);
    let mut options = Options::new(agent, players()?);
    options.only = STORIES.map(str::to_owned).to_vec();
    options.inhabitants = inhabitants;
    let report = run(&options, &mut |_| {})?;
    ensure!(report.passed(), "{report}");
    Ok(report)
}

#[test]
fn in_a_cgroup_namespace_the_agent_finds_the_hosts_hierarchies_at_any_mount_point() -> anyhow::Result<()> {
    if !can_play("in_a_cgroup_namespace_the_agent_finds_the_hosts_hierarchies_at_any_mount_point") {
        return Ok(());
    }
    let pod = Pod::new()?;
    play(pod.agent("", "")?, Inhabitants::AsFound)?;
    Ok(())
}

#[test]
fn in_a_cgroup_namespace_the_agent_uses_the_configured_hierarchies() -> anyhow::Result<()> {
    if !can_play("in_a_cgroup_namespace_the_agent_uses_the_configured_hierarchies") {
        return Ok(());
    }
    let pod = Pod::new()?;
    play(pod.agent("", "--sys $HOST --proc /proc")?, Inhabitants::AsFound)?;
    Ok(())
}

/// The same kernel, seen as one without v2: what is found then is what there is on such a machine.
#[test]
fn with_v1_alone_terminations_are_judged_and_their_clients_are_unknown() -> anyhow::Result<()> {
    const NAME: &str = "with_v1_alone_terminations_are_judged_and_their_clients_are_unknown";
    if !can_play(NAME) || !has_v1(NAME) {
        return Ok(());
    }
    let pod = Pod::new()?;
    let hide = "awk '$3 == \"cgroup2\" {print $2}' /proc/mounts | while read -r at; do umount \"$at\" || true; done";
    let report = play(pod.agent(hide, "")?, Inhabitants::AllInV1)?;
    ensure!(report.observing["cgroups"] == "v1", "{}", report.observing);
    Ok(())
}

#[test]
fn terminations_under_a_runtime_that_uses_only_v1_are_judged() -> anyhow::Result<()> {
    const NAME: &str = "terminations_under_a_runtime_that_uses_only_v1_are_judged";
    if !can_play(NAME) || !has_v1(NAME) {
        return Ok(());
    }
    play(program(&players()?), Inhabitants::ContainersInV1)?;
    Ok(())
}
