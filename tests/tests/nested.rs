//! A container runtime in a container (Docker in Docker): each termination is attributed to its own container.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use epitaph_tests::agent::program;
use epitaph_tests::cgroup::{Mounts, SLICE};
use epitaph_tests::machine::is_root;
use epitaph_tests::play::Players;
use epitaph_tests::runtime::{Did, Kill, Others, Spec, Stop};
use epitaph_tests::skip::skip;
use epitaph_tests::stories::stories;
use epitaph_tests::sys::random_hex;
use epitaph_tests::watch::{Watch, is_termination_of};
use nix::libc::SIGTERM;
use serde_json::Value;

const UID: &str = "8b7c1f9a-52d1-4a47-9f0e-0c1d2e3f4a5b";

/// Whether the test of that name can go on.
fn can_play(test: &str) -> bool {
    if !is_root() {
        skip(test, "playing needs root");
        return false;
    }
    let has_v2 = Mounts::find().is_ok_and(|mounts| mounts.v2.is_some());
    if !has_v2 {
        skip(test, "no cgroup v2");
    }
    has_v2
}

#[test]
fn a_container_in_a_container_has_its_own_termination() -> anyhow::Result<()> {
    if !can_play("a_container_in_a_container_has_its_own_termination") {
        return Ok(());
    }
    for namespace in [&[][..], &["--cgroup"]] {
        let played = play("docker", "docker/", namespace)?;
        let [inner, outer] = &played.terminations[..] else {
            bail!(
                "two terminations, of the inner and then of the outer container: {:#?}",
                played.terminations
            );
        };
        for (termination, id, exit) in [(inner, &played.inner, "clean"), (outer, &played.outer, "force-killed")] {
            assert_eq!(termination["subject"]["id"], id.as_str(), "{termination:#}");
            assert_eq!(termination["exit"], exit, "{termination:#}");
            assert_eq!(termination["cause"], "stopped", "{termination:#}");
        }
        // Its runtime is in the container around it.
        assert_eq!(inner["stop"]["sender"]["role"], "runtime", "{inner:#}");
        assert_eq!(inner["stop"]["sender"]["place"]["id"], played.outer.as_str(), "{inner:#}");
        assert_eq!(inner["main"]["ns_pid"], 1, "{inner:#}");
    }
    Ok(())
}

#[test]
fn a_container_in_a_pods_container_is_a_part_of_it() -> anyhow::Result<()> {
    if !can_play("a_container_in_a_pods_container_is_a_part_of_it") {
        return Ok(());
    }
    for namespace in [&[][..], &["--cgroup"]] {
        let played = play(&format!("kubepods/burstable/pod{UID}"), "docker/", namespace)?;
        let [outer] = &played.terminations[..] else {
            bail!("one termination, of the pod's container: {:#?}", played.terminations);
        };
        assert_eq!(outer["subject"]["id"], played.outer.as_str(), "{outer:#}");
        assert_eq!(outer["subject"]["pod_uid"], UID, "{outer:#}");
        assert_eq!(outer["exit"], "force-killed", "{outer:#}");
    }
    Ok(())
}

/// A container that can create cgroups gives one of them the names of another pod's container. What terminates there is the
/// container's own: no termination names the other pod, so there is nothing to post an Event on.
#[test]
fn a_container_cannot_forge_another_pods_termination() -> anyhow::Result<()> {
    if !can_play("a_container_cannot_forge_another_pods_termination") {
        return Ok(());
    }
    const VICTIM: &str = "11111111-2222-4333-8444-555555555555";
    // Of a pod, and of a runtime without pods.
    for (parent, pod) in [
        (format!("kubepods/burstable/pod{UID}"), Some(UID)),
        ("docker".to_owned(), None),
    ] {
        let forged = format!("kubepods-pod{}.slice/cri-containerd-", VICTIM.replace('-', "_"));
        let played = play(&parent, &forged, &[])?;
        let [outer] = &played.terminations[..] else {
            bail!("one termination, of the outer container: {:#?}", played.terminations);
        };
        assert_eq!(outer["subject"]["id"], played.outer.as_str(), "{outer:#}");
        assert_eq!(outer["subject"]["pod_uid"].as_str(), pod, "{outer:#}");
        assert_eq!(outer["exit"], "force-killed", "{outer:#}");
        let all = serde_json::to_string(&played.terminations)?;
        ensure!(!all.contains(&played.inner), "the forged container is named: {all}");
    }
    Ok(())
}

/// What [`Watch::before_a_marker`] claims: a termination that was over before the marker is reported before it.
#[test]
fn a_marker_is_reported_behind_what_terminated_before_it() -> anyhow::Result<()> {
    const STORIES: [&str; 4] = [
        "default-action",
        "ignored-without-handler",
        "exits-1-by-itself",
        "force-killed",
    ];
    if !can_play("a_marker_is_reported_behind_what_terminated_before_it") {
        return Ok(());
    }
    let programs = players()?;
    let players = Players::new(&programs)?;
    let mut watch = Watch::start(&program(&programs))?;
    let mut played = Vec::new();
    for name in STORIES {
        let role = players.cast(stories().find(|story| story.name == name).context("no such story")?)?;
        players.play(&role)?;
        played.push(role);
    }
    let before = watch.before_a_marker(&players)?;
    for role in &played {
        let count = before.iter().filter(|line| is_termination_of(line, &role.subject)).count();
        ensure!(count == 1, "{} is reported {count} times before the marker", role.story.name);
    }
    let rest = watch.end()?;
    let late = rest
        .iter()
        .find(|line| played.iter().any(|role| is_termination_of(line, &role.subject)));
    ensure!(late.is_none(), "reported behind the marker: {late:?}");
    Ok(())
}

struct Played {
    outer: String,
    inner: String,
    /// Terminations of the cgroups below the slice, in order.
    terminations: Vec<Value>,
}

/// A container below `parent` whose main process runs a runtime. The runtime's container, with the cgroup `below` and an id, is
/// stopped; then the outer is killed. `namespace`: the outer container's own, for unshare(1), in addition to those of processes and mounts.
fn play(parent: &str, below: &str, namespace: &[&str]) -> anyhow::Result<Played> {
    let players = players()?;
    let directory = tempfile::tempdir()?;
    let mounts = Mounts::find()?;
    let (outer, inner) = (random_hex(32)?, random_hex(32)?);
    let scope = format!("{parent}/{outer}");
    let spec = |scope: String, command: Vec<String>, stop: Stop| Spec {
        scope,
        command,
        pid_namespace: true,
        memory_limit: None,
        stop,
        mounts: mounts.clone(),
        listens: None,
        directory: directory.path().to_path_buf(),
    };
    let victim = players.join("victim").display().to_string();
    let within = spec(
        format!("{scope}/{below}{inner}"),
        vec![victim, "handle".into(), "0".into()],
        Stop::Signal {
            signal: SIGTERM,
            grace: Duration::from_secs(10),
            frozen: false,
            kill: Kill::Main,
            others: Others::Nothing,
        },
    );
    let runtime = players.join("stand-in-runtime");
    // Stops the inner container once it is ready, and is ready itself, for its own runtime, once that is gone.
    let script = r#"mkfifo orders output
"$0" shim "$1" <orders >output &
exec 3>orders 4<output
while read -r did <&4; do
    case $did in
    '{"event":"ready"'*) echo stop >&3 ;;
    '{"event":"failed"'*) echo "$did" >&2; exit 1 ;;
    '{"event":"removed"'*) echo ready; exec sleep 60 ;;
    esac
done"#;
    let mut command: Vec<String> = ["unshare", "--mount", "--mount-proc"].map(str::to_owned).to_vec();
    command.extend(namespace.iter().map(|&flag| flag.to_owned()));
    command.extend(["sh".into(), "-c".into(), script.into(), runtime.display().to_string()]);
    command.push(serde_json::to_string(&within)?);
    let around = spec(scope.clone(), command, Stop::Force(Kill::Main));

    let mut watch = Watch::start(&program(&players))?;
    let slice = mounts.v2.as_ref().context("no cgroup v2")?.join(SLICE);
    let mut container = Command::new(&runtime)
        .arg("run")
        .arg(serde_json::to_string(&around)?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut orders = container.stdin.take().context("its input is not a pipe")?;
    let out = BufReader::new(container.stdout.take().context("its output is not a pipe")?);
    for done in out.lines() {
        match serde_json::from_str(&done?)? {
            Did::Ready { .. } => orders.write_all(b"stop\n")?,
            Did::Failed { what } => bail!("the outer container: {what}"),
            _ => {}
        }
    }
    container.wait()?;
    let (last, mut seen) = watch.up_to(|line| is_termination_of(line, &outer))?;
    seen.push(last);
    // One that comes twice, or late.
    seen.extend(watch.before_a_marker(&Players::new(&players)?)?);
    seen.extend(watch.end()?);
    let below = format!("/{SLICE}/{scope}");
    let is_ours = |line: &Value| line["cgroup"].as_str().is_some_and(|path| path.starts_with(&below));
    let terminations = seen.into_iter().filter(|line| line["type"] == "termination" && is_ours(line));
    let terminations = terminations.collect();
    let mut above = Path::new(&scope);
    while let Some(parent) = above.parent() {
        above = parent;
        // Kept where another test is in it.
        let _ = std::fs::remove_dir(slice.join(parent));
    }
    Ok(Played {
        outer,
        inner,
        terminations,
    })
}

fn players() -> anyhow::Result<PathBuf> {
    let victim = Path::new(env!("CARGO_BIN_EXE_victim"));
    Ok(victim.parent().context("the players lie nowhere")?.to_path_buf())
}
