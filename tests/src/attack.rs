//! A hostile container at a chosen rate, and victims that terminate meanwhile: how many of them keep the verdict that they have without it.
//!
//! Everything is bounded in number, and nothing depends on how fast it happens: a slow machine makes a smaller storm.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::cgroup::Scope;
use crate::epitaph::{Epitaph, run};
use crate::network::Network;
use crate::play::{Players, Role};
use crate::service::Service;
use crate::stories::all;
use crate::sys::{locked, random_hex};
use crate::timeout::{TO_END, until};

/// Victims at a time.
const STAGES: usize = 4;
/// Orders of one attacker, at most: it rests when the victims are done.
const ORDERS: usize = 20_000;
/// Between two orders of an attacker with a rate.
const STEP: Duration = Duration::from_millis(10);
/// A port without a listener.
const CLOSED: u16 = 9;
/// The pod whose name the attackers forge.
const FORGED_POD: &str = "11111111-2222-4333-8444-555555555555";

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
    /// Processes that exit with a listener, behind as many files as the probes look at.
    ExitsWithSockets,
    /// Listeners that are opened and closed.
    Listeners,
    /// Failed connects to its own loopback.
    Connects,
    /// Failed connects to the address of a network namespace of its own.
    ConnectsElsewhere,
    /// Segments to a closed port of its own loopback, without connects.
    Segments,
    /// Connections that both sides abort, in a network namespace of its own whose packets interrupt the other CPUs.
    Aborts,
    /// Nested cgroups that are made, used by a process that exits, and removed.
    Cgroups,
    /// The same, with the names of containers of another pod.
    ForgedCgroups,
    /// Pid namespaces whose init exits before its child.
    Inits,
    /// Stops of its own processes, by one with a runtime's name.
    Pretends,
    /// Requests to the agent that are never complete, and requests whose answer is not read.
    Requests,
}

impl Attack {
    /// Whether it has a network namespace of its own.
    pub fn needs_network(self) -> bool {
        matches!(self, Attack::ConnectsElsewhere | Attack::Aborts)
    }
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
    /// Those that were played as their story says, and are judged.
    pub victims: usize,
    /// Those that were not, one line each: the machine gave one no processor for its grace period, say.
    pub left_out: Vec<String>,
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
    /// Cgroups below its own.
    nested: Vec<PathBuf>,
    player: Child,
    out: BufReader<ChildStdout>,
    _network: Option<Network>,
}

impl Attacker {
    /// `agent`: where the agent listens.
    fn start(players: &Path, attack: Attack, at_once: u32, agent: SocketAddr) -> anyhow::Result<Attacker> {
        let scope = Scope::of_new_container()?;
        let names = match attack {
            Attack::Signals { nested } => (0..nested).map(|n| format!("nested-{n}")).collect(),
            Attack::Cgroups => vec!["nested".to_owned()],
            Attack::ForgedCgroups => vec![format!("kubepods-pod{}.slice", FORGED_POD.replace('-', "_"))],
            _ => Vec::new(),
        };
        let nested: Vec<PathBuf> = names.iter().map(|name| scope.home().join(name)).collect();
        nested.iter().try_for_each(fs::create_dir)?;
        let network = attack.needs_network().then(|| Network::create(false)).transpose()?;
        let closed = network
            .as_ref()
            .map_or(Ipv4Addr::LOCALHOST.into(), |network| network.address().ip());
        let below = |name: &str| nested.iter().map(|dir| dir.join(name).display().to_string()).collect();
        let (role, args) = match attack {
            Attack::Signals { .. } => ("storm", nested.iter().map(|dir| dir.display().to_string()).collect()),
            Attack::Exits => ("exits", vec![]),
            Attack::ExitsWithSockets => ("exits", vec!["server".to_owned()]),
            Attack::Listeners => ("churn", vec![]),
            Attack::Connects | Attack::ConnectsElsewhere => ("connects", vec![SocketAddr::new(closed, CLOSED).to_string()]),
            Attack::Segments => ("segments", vec![CLOSED.to_string()]),
            Attack::Aborts => ("aborts", vec![]),
            Attack::Cgroups => ("cgroups", below("")),
            // An id has 64 digits, of which the player chooses four.
            Attack::ForgedCgroups => ("cgroups", below(&format!("cri-containerd-{}", random_hex(30)?))),
            Attack::Inits => ("inits", vec![]),
            Attack::Pretends => ("pretends", vec![]),
            Attack::Requests => ("requests", vec![agent.to_string()]),
        };
        let mut command = Command::new(players.join("probe-player"));
        command.arg("--cgroup").arg(scope.home());
        if let (Attack::Aborts, Some(network)) = (attack, &network) {
            network.steer_packets()?;
            command.args(["--network", &network.file()]);
        }
        let mut player = command
            .args([role, &at_once.to_string()])
            .args(args)
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

/// An agent as a service, and what its journal has.
struct Watch {
    epitaph: Epitaph,
    service: Service,
    journal: String,
}

impl Watch {
    /// `directory`: empty, for the journal, a log and a copy of the program.
    fn start(program: &Path, directory: &Path) -> anyhow::Result<Watch> {
        let epitaph = Epitaph::copied(program, directory)?;
        let journal = directory.join("journal").display().to_string();
        let setting = format!("journal.directory={journal}");
        let service = Service::start(&epitaph, directory, &["--set", &setting])?;
        Ok(Watch {
            epitaph,
            service,
            journal,
        })
    }

    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.service.port).into()
    }

    /// The terminations of all of them.
    fn terminations(&self, of: &[Role]) -> anyhow::Result<Vec<(Role, Value)>> {
        until("the terminations", || {
            let listed = self.listed()?;
            let termination_of = |role: &Role| listed.iter().find(|line| line["subject"]["id"] == role.subject.as_str());
            let found: Vec<_> = of
                .iter()
                .filter_map(|role| Some((role.clone(), termination_of(role)?.clone())))
                .collect();
            let missing = of.len() - found.len();
            Ok(match missing {
                0 => Ok(found),
                _ => Err(format!("{missing} were not reported: {}", self.service.log())),
            })
        })
    }

    fn listed(&self) -> anyhow::Result<Vec<Value>> {
        let list = ["list", "--output", "json", "--since", "1d", "--journal", &self.journal];
        let listed = run(self.epitaph.command(), list)?;
        ensure!(listed.code.is_some_and(|code| code < 2), "{}", listed.err);
        let lines: Vec<Value> = listed.out.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let forged = lines.iter().find(|line| line["subject"]["pod_uid"] == FORGED_POD);
        ensure!(forged.is_none(), "a container forged another pod's termination: {forged:?}");
        Ok(lines)
    }
}

/// What is compared of a termination.
const AXES: [&str; 4] = ["verdict", "cause", "exit", "traffic"];

/// Plays `names` in turn, so many in all and some at a time: the roles, each with what was not as its story says.
fn play(players: &Players, names: &[&str], count: usize) -> anyhow::Result<Vec<(Role, Vec<String>)>> {
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
            let differs = players.play(&role)?.differs(&role);
            locked(&played).push((role, differs));
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

/// Plays `count` victims while the attackers act, with an agent of the program `epitaph` and its journal in `directory`; `players` is the
/// directory of the programs.
///
/// # Errors
/// Something could not be played, or a termination was not reported at all.
pub fn play_under(
    players: &Path,
    epitaph: &Path,
    directory: &Path,
    attackers: &[(Attack, Rate)],
    names: &[&str],
    count: usize,
) -> anyhow::Result<Outcome> {
    let actors = Players::new(players)?;
    let mut watch = Watch::start(epitaph, directory)?;
    let agent = watch.address();
    let alone = play(&actors, names, names.len())?;
    for (role, differs) in &alone {
        ensure!(
            differs.is_empty(),
            "without an attacker: {}: {}",
            role.story.name,
            differs.join("\n")
        );
    }
    let alone: Vec<Role> = alone.into_iter().map(|(role, _)| role).collect();
    let alone = watch.terminations(&alone)?;
    for (role, termination) in &alone {
        let unknown = AXES.iter().any(|&axis| termination[axis] == "unknown");
        ensure!(!unknown, "without an attacker, too: {}: {termination}", role.story.name);
    }

    let done = AtomicBool::new(false);
    let (victims, per_second) = thread::scope(|scope| {
        let attacks: Vec<_> = attackers
            .iter()
            .map(|&(attack, rate)| {
                let done = &done;
                scope.spawn(move || act_until(players, attack, rate, agent, done))
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
    let (mut other, mut left_out) = (Vec::new(), Vec::new());
    let (victims, differs): (Vec<Role>, Vec<Vec<String>>) = victims.into_iter().unzip();
    // In the order of the victims, and of all of them: one that was not played as written is reported, too.
    for ((role, termination), differs) in watch.terminations(&victims)?.into_iter().zip(differs) {
        if !differs.is_empty() {
            left_out.push(format!("{}: {}", role.story.name, differs.join("; ")));
            continue;
        }
        let same = alone.iter().find(|(known, _)| known.story.name == role.story.name);
        let (_, same) = same.context("every victim was played alone")?;
        if AXES.iter().any(|&axis| same[axis] != termination[axis]) {
            other.push(format!("{}: {termination}", role.story.name));
        }
    }
    ensure!(watch.service.end(TO_END)?.success(), "{}", watch.service.log());
    Ok(Outcome {
        victims: victims.len() - left_out.len(),
        left_out,
        other,
        per_second,
    })
}

/// What it did in a second.
fn act_until(players: &Path, attack: Attack, rate: Rate, agent: SocketAddr, done: &AtomicBool) -> anyhow::Result<f64> {
    let at_once = match rate {
        Rate::PerSecond(rate) => (rate / (Duration::from_secs(1).as_millis() / STEP.as_millis()) as u32).max(1),
        Rate::Full(at_once) => at_once,
    };
    let mut attacker = Attacker::start(players, attack, at_once, agent)?;
    #[expect(clippy::disallowed_methods, reason = "an attacker's own clock")]
    let begin = Instant::now();
    let mut orders = 0;
    while orders < ORDERS && !done.load(Ordering::Relaxed) {
        attacker.act()?;
        orders += 1;
        if let Rate::PerSecond(rate) = rate {
            let due = Duration::from_secs_f64(orders as f64 * f64::from(at_once) / f64::from(rate));
            // The subject is time: the rate.
            thread::sleep(due.saturating_sub(begin.elapsed()));
        }
    }
    Ok(orders as f64 * f64::from(at_once) / begin.elapsed().as_secs_f64())
}
