//! Under any neighbour's load: what a hostile container does at full speed costs no other container its verdict.
//!
//! Everything is bounded in number, and nothing depends on how fast it happens: a slow machine makes a smaller storm.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph_tests::agent::{Agent, program};
use epitaph_tests::cgroup::{Mounts, Scope};
use epitaph_tests::machine::is_root;
use epitaph_tests::play::{Players, Role};
use epitaph_tests::skip::skip;
use epitaph_tests::stories::stories;
use epitaph_tests::sys::random_hex;
use serde_json::Value;

/// Victims under the storm of signals, which is the worst of the attacks; fewer under the others.
const VICTIMS: usize = 200;
const FEWER: usize = 20;
/// Of the victims, that many in a hundred have the verdict that they have without the attacker.
const SHARE: usize = 99;
/// Victims at a time.
const STAGES: usize = 4;
/// Orders of one attacker, at most: it rests when the victims are done.
const ORDERS: usize = 20_000;
const TO_END: Duration = Duration::from_secs(60);
const TO_JUDGE: Duration = Duration::from_secs(120);

/// Crashes, a kill from outside, and stops: each of them is unknown if a signal or an exit could have been lost.
const ENDS: [&str; 6] = [
    "exits-1-by-itself",
    "segmentation-fault",
    "force-killed",
    "default-action",
    "handler-exits-0",
    "completed",
];

/// One test at a time: each loads the whole machine.
static MACHINE: Mutex<()> = Mutex::new(());

/// A container whose processes do nothing but that.
struct Attacker {
    scope: Scope,
    nested: Vec<PathBuf>,
    player: Child,
    out: BufReader<ChildStdout>,
}

impl Attacker {
    /// `probe-player ROLE COUNT` in a container; with `nested`, which many cgroups below it are passed to it.
    fn start(role: &str, count: u32, nested: usize) -> anyhow::Result<Attacker> {
        let scope = Scope::create(&Mounts::find()?, &format!("cri-containerd-{}.scope", random_hex(32)?), None)?;
        let nested: Vec<PathBuf> = (0..nested).map(|n| scope.home().join(format!("nested-{n}"))).collect();
        nested.iter().try_for_each(fs::create_dir)?;
        let mut player = Command::new(env!("CARGO_BIN_EXE_probe-player"))
            .arg("--cgroup")
            .arg(scope.home())
            .args([role, &count.to_string()])
            .args(&nested)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = BufReader::new(player.stdout.take().context("piped")?);
        let mut attacker = Attacker {
            scope,
            nested,
            player,
            out,
        };
        let ready = attacker.line()?;
        ensure!(ready.starts_with("ready"), "the attacker printed {ready:?}");
        Ok(attacker)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.out.read_line(&mut line)?;
        Ok(line)
    }

    /// One round of what it does.
    fn act(&mut self) -> anyhow::Result<()> {
        self.player.stdin.as_mut().context("piped")?.write_all(b"\n")?;
        let done = self.line()?;
        ensure!(done == "done\n", "the attacker printed {done:?}");
        Ok(())
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        // At the end of its input it ends its children, too.
        drop(self.player.stdin.take());
        let _ = self.player.wait();
        for dir in self.nested.iter().rev() {
            let _ = fs::remove_dir(dir);
        }
        if let Err(error) = self.scope.remove() {
            eprintln!("left behind: {error}");
        }
    }
}

struct Watch {
    agent: Agent,
    lines: Receiver<Option<String>>,
}

impl Watch {
    fn start(binaries: &Path) -> anyhow::Result<Watch> {
        let (to, lines) = channel();
        let agent = Agent::start(&program(binaries), None, None, to)?;
        let mut watch = Watch { agent, lines };
        watch.next(|line| line["type"] == "observing")?;
        Ok(watch)
    }

    fn next(&mut self, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        loop {
            let line = self.lines.recv_timeout(TO_JUDGE).with_context(|| self.agent.log())?;
            let line: Value = serde_json::from_str(&line.with_context(|| format!("it ended: {}", self.agent.log()))?)?;
            if wanted(&line) {
                return Ok(line);
            }
        }
    }

    /// The terminations of all of them.
    fn terminations(&mut self, of: &[Role]) -> anyhow::Result<Vec<(Role, Value)>> {
        let mut rest: Vec<&Role> = of.iter().collect();
        let mut found = Vec::new();
        while !rest.is_empty() {
            let line = self
                .next(|line| line["type"] == "termination")
                .with_context(|| format!("{} terminations were not reported", rest.len()))?;
            if let Some(at) = rest.iter().position(|role| line["subject"]["id"] == role.subject.as_str()) {
                found.push((rest.swap_remove(at).clone(), line));
            }
        }
        Ok(found)
    }
}

fn binaries() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_BIN_EXE_victim"));
    path.pop();
    path
}

/// What is compared of a termination.
const AXES: [&str; 4] = ["verdict", "cause", "exit", "traffic"];

/// Plays `names` in turn, so many in all and some at a time; the roles that were played.
fn play(players: &Players, names: &[&str], count: usize) -> anyhow::Result<Vec<Role>> {
    let played = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let stage = || -> anyhow::Result<()> {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            if turn >= count {
                return Ok(());
            }
            let name = names[turn % names.len()];
            let story = stories().find(|story| story.name == name);
            let role = players.cast(story.with_context(|| format!("no story {name}"))?)?;
            players.play(&role)?;
            played.lock().unwrap_or_else(PoisonError::into_inner).push(role);
        }
    };
    thread::scope(|scope| {
        let stages: Vec<_> = (0..STAGES.min(count)).map(|_| scope.spawn(stage)).collect();
        stages
            .into_iter()
            .try_for_each(|stage| stage.join().map_err(|_| anyhow::anyhow!("a stage panicked"))?)
    })?;
    Ok(played.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Whether enough of `count` victims get the verdict under `attackers` that the same victim has without them.
fn under(test: &str, attackers: &[(&str, u32, usize)], names: &[&str], count: usize) -> anyhow::Result<()> {
    if !is_root() {
        skip(test, "observing needs root");
        return Ok(());
    }
    if Mounts::find()?.v2.is_none() {
        skip(test, "no cgroup v2");
        return Ok(());
    }
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let players = Players::new(&binaries())?;
    let mut watch = Watch::start(&binaries())?;
    let alone = play(&players, names, names.len())?;
    let alone = watch.terminations(&alone)?;

    let done = AtomicBool::new(false);
    let victims = thread::scope(|scope| {
        let attacks: Vec<_> = attackers
            .iter()
            .map(|&(role, count, nested)| {
                let done = &done;
                scope.spawn(move || -> anyhow::Result<usize> {
                    let mut attacker = Attacker::start(role, count, nested)?;
                    let mut orders = 0;
                    while orders < ORDERS && !done.load(Ordering::Relaxed) {
                        attacker.act()?;
                        orders += 1;
                    }
                    Ok(orders * count as usize)
                })
            })
            .collect();
        let victims = play(&players, names, count);
        done.store(true, Ordering::Relaxed);
        for attack in attacks {
            let acts = attack.join().map_err(|_| anyhow::anyhow!("an attacker panicked"))??;
            println!("{test}: an attacker acted {acts} times");
        }
        victims
    })?;
    let judged = watch.terminations(&victims)?;
    let mut other = Vec::new();
    for (role, termination) in &judged {
        let same = alone.iter().find(|(known, _)| known.story.name == role.story.name);
        let (_, same) = same.context("every victim was played alone")?;
        if AXES.iter().any(|&axis| same[axis] != termination[axis]) {
            other.push(format!("{}: {termination}\n", role.story.name));
        }
    }
    println!("{test}: {} of {count} victims have another verdict", other.len());
    ensure!(
        other.len() * 100 <= count * (100 - SHARE),
        "{} of {count}:\n{}",
        other.len(),
        other.concat()
    );
    ensure!(watch.agent.end(TO_END)?.success(), "{}", watch.agent.log());
    Ok(())
}

/// By two containers, one of them with cgroups that it nests.
#[test]
fn a_neighbour_that_signals_itself() -> anyhow::Result<()> {
    let storms = [("storm", 20_000, 0), ("storm", 20_000, 4)];
    under("a_neighbour_that_signals_itself", &storms, &ENDS, VICTIMS)
}

#[test]
fn a_neighbour_whose_processes_exit() -> anyhow::Result<()> {
    under("a_neighbour_whose_processes_exit", &[("exits", 500, 0)], &ENDS, FEWER)
}

#[test]
fn a_neighbour_that_opens_and_closes_listeners() -> anyhow::Result<()> {
    let stories = ["refuses", "handler-exits-0"];
    let churn = [("churn", 2_000, 0)];
    under("a_neighbour_that_opens_and_closes_listeners", &churn, &stories, FEWER)
}
