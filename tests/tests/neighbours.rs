//! Two agents on one machine: both report correctly, each survives the other's exit, and each reports that another agent runs.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph_tests::agent::program;
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::machine::is_root;
use epitaph_tests::play::{Players, Role};
use epitaph_tests::service::Service;
use epitaph_tests::skip::skip;
use epitaph_tests::stories::stories;
use epitaph_tests::sys::{kill, locked};
use epitaph_tests::timeout::{TO_END, holds, until, until_within};
use epitaph_tests::watch::Watch;
use nix::libc::SIGKILL;
use serde_json::Value;
use tempfile::TempDir;

/// A lost announcement is sent again after a minute; a neighbour with a lost exit is forgotten after 200 s.
const TO_COUNT: Duration = Duration::from_secs(240);
const GAUGE: &str = "epitaph_agent_neighbours";

/// Each test counts agents.
static MACHINE: Mutex<()> = Mutex::new(());

struct Stage {
    directory: TempDir,
    epitaph: Epitaph,
    players: Players,
    _machine: MutexGuard<'static, ()>,
}

impl Stage {
    /// None, and a skip, if the test of that name cannot be played.
    fn set(test: &str) -> anyhow::Result<Option<Stage>> {
        if !is_root() {
            skip(test, "observing needs root");
            return Ok(None);
        }
        let machine = locked(&MACHINE);
        let directory = tempfile::tempdir()?;
        Ok(Some(Stage {
            epitaph: Epitaph::copied(&program(&binaries()), directory.path())?,
            directory,
            players: Players::new(&binaries())?,
            _machine: machine,
        }))
    }

    fn agent(&self) -> anyhow::Result<Service> {
        Service::start(&self.epitaph, self.directory.path(), &[])
    }

    /// A `watch` that observes.
    fn watch(&self) -> anyhow::Result<Watch> {
        Watch::start(&program(&binaries()))
    }

    /// Plays the story of that name.
    fn play(&self, name: &str) -> anyhow::Result<Role> {
        let role = self
            .players
            .cast(stories().find(|s| s.name == name).context("no such story")?)?;
        let differs = self.players.play(&role)?.differs(&role);
        ensure!(differs.is_empty(), "{name}: {}", differs.join("\n"));
        Ok(role)
    }
}

/// On a loaded machine the ring buffer may overflow, and the termination reports the loss.
fn lost_some(termination: &Value) -> bool {
    termination["gaps"]["lost"].as_object().is_some_and(|lost| !lost.is_empty())
}

fn binaries() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_BIN_EXE_victim"));
    path.pop();
    path
}

/// Everything that observes this machine, other people's too.
fn observers() -> anyhow::Result<usize> {
    let processes = fs::read_dir("/proc")?.flatten();
    let observes = |directory: PathBuf| {
        let line = fs::read(directory.join("cmdline")).unwrap_or_default();
        let mut words = line.split(|&byte| byte == 0).map(String::from_utf8_lossy);
        let is_epitaph = words
            .next()
            .is_some_and(|program| program.rsplit('/').next() == Some("epitaph"));
        is_epitaph
            && words
                .next()
                .is_some_and(|verb| ["agent", "watch", "record"].contains(&&*verb))
    };
    Ok(processes.filter(|process| observes(process.path())).count())
}

/// Waits until `agent` counts at least `ours`, and not more than there are on the machine.
fn counts(agent: &Service, ours: usize) -> anyhow::Result<()> {
    until_within(TO_COUNT, &format!("{GAUGE} of at least {ours}"), || {
        // Not there before its own announcement has come back.
        let value = match agent.metric(GAUGE, &[]) {
            Ok(value) => value,
            Err(error) => return Ok(Err(format!("{error:#}"))),
        };
        let most = observers()?.saturating_sub(1);
        let is_so = (ours as f64..=most as f64).contains(&value);
        Ok(holds(is_so, || {
            format!("{value} of at most {most}; its log: {}", agent.log())
        }))
    })
}

/// Its warnings about that neighbour.
fn warnings(agent: &Service, of: &Service) -> usize {
    let pid = format!("pid {} ", of.pid());
    let log = agent.log();
    log.lines()
        .filter(|line| line.contains("another epitaph observes this machine") && line.contains(&pid))
        .count()
}

/// Waits for the warning: of two agents that start at once, the second is reported a minute later.
fn warned(agent: &Service, of: &Service) -> anyhow::Result<()> {
    until("a warning", || {
        let count = warnings(agent, of);
        ensure!(count <= 1, "{count} times: {}", agent.log());
        Ok(holds(count == 1, || format!("none about pid {}: {}", of.pid(), agent.log())))
    })
}

#[test]
fn each_agent_warns_once_of_another_until_that_exits() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("each_agent_warns_once_of_another_until_that_exits")? else {
        return Ok(());
    };
    let mut first = stage.agent()?;
    counts(&first, 0)?;
    // Also after it has logged that: another one may come in between.
    let log = first.log();
    if observers()? == 1 {
        assert!(!log.contains("another epitaph"), "{log}");
    }

    let mut second = stage.agent()?;
    counts(&first, 1)?;
    counts(&second, 1)?;
    let mut third = stage.agent()?;
    for agent in [&first, &second, &third] {
        counts(agent, 2)?;
    }
    warned(&first, &second)?;
    warned(&second, &first)?;
    let warning = first.log();
    let warning = warning
        .lines()
        .find(|line| line.contains("another epitaph"))
        .context("none")?;
    assert!(
        warning.contains("WARN") && warning.contains("`epitaph`, ") && warning.contains("who="),
        "{warning}"
    );
    assert_eq!(warnings(&first, &first), 0, "its own announcement");

    assert!(second.end(TO_END)?.success(), "{}", second.log());
    counts(&first, 1)?;
    third.kill()?;
    counts(&first, 0)?;
    assert_eq!(warnings(&first, &second), 1, "{}", first.log());
    assert!(first.end(TO_END)?.success(), "{}", first.log());
    Ok(())
}

/// As in a pod: its own pid is 1, and it does not know the host's pid.
#[test]
fn in_a_pid_namespace_an_agent_recognizes_its_own_announcement() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("in_a_pid_namespace_an_agent_recognizes_its_own_announcement")? else {
        return Ok(());
    };
    let inside = Service::inside(
        &["unshare", "--pid", "--fork", "--kill-child"],
        &stage.epitaph,
        stage.directory.path(),
    )?;
    counts(&inside, 0)?;
    let outside = stage.agent()?;
    counts(&inside, 1)?;
    counts(&outside, 1)?;
    warned(&inside, &outside)?;
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", inside.pid()))?;
    let pid = format!("pid {} ", children.trim());
    until("a warning", || {
        let log = outside.log();
        let is_it = |line: &str| line.contains("another epitaph") && line.contains(&pid);
        Ok(holds(log.lines().any(is_it), || format!("none about {pid}: {log}")))
    })
}

#[test]
fn two_agents_judge_the_same_terminations_alike_and_survive_each_other() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("two_agents_judge_the_same_terminations_alike_and_survive_each_other")? else {
        return Ok(());
    };
    let mut one = stage.watch()?;
    let mut other = stage.watch()?;
    for story in [
        "default-action",
        "handler-exits-0",
        "ignored-without-handler",
        "resets-its-backlog",
    ] {
        let role = stage.play(story)?;
        let (one, other) = (one.termination_of(&role.subject)?, other.termination_of(&role.subject)?);
        println!("{story}: {} {}", one["verdict"], one["trace_id"]);
        if lost_some(&one) || lost_some(&other) {
            println!("not compared, for records were lost: {one}\n{other}");
            continue;
        }
        for same in [
            "verdict",
            "unclean",
            "trace_id",
            "cause",
            "exit",
            "traffic",
            "cgroup_id",
            "gaps",
        ] {
            assert_eq!(one[same], other[same], "{story}: {one}\n{other}");
        }
        for same in ["pid", "start_boot_ns"] {
            assert_eq!(one["main"][same], other["main"][same], "{story}: {one}\n{other}");
        }
    }

    assert!(one.agent.end(TO_END)?.success(), "{}", one.agent.log());
    let role = stage.play("default-action")?;
    let termination = other.termination_of(&role.subject)?;
    assert!(
        termination["verdict"] == "default-action" || lost_some(&termination),
        "{termination}"
    );
    let mut third = stage.watch()?;
    kill(other.agent.pid().cast_signed(), SIGKILL)?;
    other.agent.end(Duration::ZERO)?;
    let role = stage.play("handler-exits-0")?;
    let termination = third.termination_of(&role.subject)?;
    assert!(termination["verdict"] == "clean" || lost_some(&termination), "{termination}");
    assert!(third.agent.end(TO_END)?.success(), "{}", third.agent.log());
    Ok(())
}
