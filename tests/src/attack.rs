//! A hostile container at a chosen rate, and victims that terminate meanwhile: how many of them keep the verdict that they have without it.
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
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::agent::Agent;
use crate::cgroup::{Mounts, Scope};
use crate::network::Network;
use crate::play::{Players, Role};
use crate::stories::all;
use crate::sys::random_hex;

/// Victims at a time.
const STAGES: usize = 4;
/// Orders of one attacker, at most: it rests when the victims are done.
const ORDERS: usize = 20_000;
/// Between two orders of an attacker with a rate.
const STEP: Duration = Duration::from_millis(10);
const TO_END: Duration = Duration::from_secs(60);
const TO_JUDGE: Duration = Duration::from_secs(120);
/// A port without a listener.
const CLOSED: u16 = 9;

/// Crashes, a kill from outside, and stops: each of them is unknown if a signal or an exit could have been lost.
pub const ENDS: &[&str] = &[
    "exits-1-by-itself",
    "segmentation-fault",
    "force-killed",
    "default-action",
    "handler-exits-0",
    "completed",
];
/// Each of them is unknown if what its clients saw could have been lost.
pub const SERVERS: &[&str] = &["refuses", "handler-exits-0"];
/// With one whose clients' own records are the only evidence.
pub const CLIENTS: &[&str] = &["rejected-on-the-way", "refuses", "handler-exits-0"];

/// What one container does.
#[derive(Clone, Copy, Debug)]
pub enum Attack {
    /// Signals within itself, in so many nested cgroups; 0: in its own.
    Signals { nested: usize },
    /// Processes that exit.
    Exits,
    /// Listeners that are opened and closed.
    Listeners,
    /// Failed connects to its own loopback.
    Connects,
    /// Failed connects to the address of a network namespace of its own.
    ConnectsElsewhere,
    /// Nested cgroups that are made, used by a process that exits, and removed.
    Cgroups,
    /// Pid namespaces whose init exits before its child.
    Inits,
    /// Stops of its own processes, by one with a runtime's name.
    Pretends,
}

/// How often.
#[derive(Clone, Copy, Debug)]
pub enum Rate {
    PerSecond(u32),
    /// As fast as it can, so many at an order.
    Full(u32),
}

/// How it went.
#[derive(Debug)]
pub struct Outcome {
    pub victims: usize,
    /// What the victims with another verdict have, one line each.
    pub other: Vec<String>,
    /// What all attackers did in a second, together.
    pub per_second: f64,
}

impl Outcome {
    pub fn kept(&self) -> usize {
        self.victims - self.other.len()
    }
}

/// A container whose processes do nothing but that.
struct Attacker {
    scope: Scope,
    nested: Vec<PathBuf>,
    player: Child,
    out: BufReader<ChildStdout>,
    _network: Option<Network>,
}

impl Attacker {
    fn start(players: &Path, attack: Attack, at_once: u32) -> anyhow::Result<Attacker> {
        let (role, nested, network) = match attack {
            Attack::Signals { nested } => ("storm", nested, None),
            Attack::Exits => ("exits", 0, None),
            Attack::Listeners => ("churn", 0, None),
            Attack::Connects => ("connects", 0, None),
            Attack::ConnectsElsewhere => ("connects", 0, Some(Network::create(false)?)),
            Attack::Cgroups => ("cgroups", 1, None),
            Attack::Inits => ("inits", 0, None),
            Attack::Pretends => ("pretends", 0, None),
        };
        let mut address = network.as_ref().map_or(([127, 0, 0, 1], 0).into(), Network::address);
        address.set_port(CLOSED);
        let address = (role == "connects").then(|| address.to_string());
        let scope = Scope::create(&Mounts::find()?, &format!("cri-containerd-{}.scope", random_hex(32)?), None)?;
        let nested: Vec<PathBuf> = (0..nested).map(|n| scope.home().join(format!("nested-{n}"))).collect();
        nested.iter().try_for_each(fs::create_dir)?;
        let mut player = Command::new(players.join("probe-player"))
            .arg("--cgroup")
            .arg(scope.home())
            .args([role, &at_once.to_string()])
            .args(&nested)
            .args(address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = BufReader::new(player.stdout.take().context("piped")?);
        let mut attacker = Attacker {
            scope,
            nested,
            player,
            out,
            _network: network,
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
    fn start(epitaph: &Path) -> anyhow::Result<Watch> {
        let (to, lines) = channel();
        let agent = Agent::start(epitaph, None, None, to)?;
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
            let story = all().find(|story| story.name == name);
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

/// Plays `count` victims while the attackers act, with `epitaph` watching; `players` is the directory of the programs.
///
/// # Errors
/// Something could not be played, or a termination was not reported at all.
pub fn play_under(
    players: &Path,
    epitaph: &Path,
    attackers: &[(Attack, Rate)],
    names: &[&str],
    count: usize,
) -> anyhow::Result<Outcome> {
    let actors = Players::new(players)?;
    let mut watch = Watch::start(epitaph)?;
    let alone = play(&actors, names, names.len())?;
    let alone = watch.terminations(&alone)?;

    let done = AtomicBool::new(false);
    let (victims, per_second) = thread::scope(|scope| {
        let attacks: Vec<_> = attackers
            .iter()
            .map(|&(attack, rate)| {
                let done = &done;
                scope.spawn(move || act_until(players, attack, rate, done))
            })
            .collect();
        let victims = play(&actors, names, count);
        done.store(true, Ordering::Relaxed);
        let mut per_second = 0.0;
        for attack in attacks {
            per_second += attack.join().map_err(|_| anyhow::anyhow!("an attacker panicked"))??;
        }
        anyhow::Ok((victims?, per_second))
    })?;
    let mut other = Vec::new();
    for (role, termination) in watch.terminations(&victims)? {
        let same = alone.iter().find(|(known, _)| known.story.name == role.story.name);
        let (_, same) = same.context("every victim was played alone")?;
        if AXES.iter().any(|&axis| same[axis] != termination[axis]) {
            other.push(format!("{}: {termination}", role.story.name));
        }
    }
    ensure!(watch.agent.end(TO_END)?.success(), "{}", watch.agent.log());
    let victims = count;
    Ok(Outcome {
        victims,
        other,
        per_second,
    })
}

/// What it did in a second.
fn act_until(players: &Path, attack: Attack, rate: Rate, done: &AtomicBool) -> anyhow::Result<f64> {
    let at_once = match rate {
        Rate::PerSecond(rate) => (rate / (Duration::from_secs(1).as_millis() / STEP.as_millis()) as u32).max(1),
        Rate::Full(at_once) => at_once,
    };
    let mut attacker = Attacker::start(players, attack, at_once)?;
    #[expect(clippy::disallowed_methods, reason = "an attacker's own clock")]
    let begin = Instant::now();
    let mut orders = 0;
    while orders < ORDERS && !done.load(Ordering::Relaxed) {
        attacker.act()?;
        orders += 1;
        if let Rate::PerSecond(rate) = rate {
            let due = Duration::from_secs_f64(orders as f64 * f64::from(at_once) / f64::from(rate));
            thread::sleep(due.saturating_sub(begin.elapsed()));
        }
    }
    Ok(orders as f64 * f64::from(at_once) / begin.elapsed().as_secs_f64())
}
