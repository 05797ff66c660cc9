//! Plays one story: runtime, victim, bystanders. Knows nothing of the agent; returns the facts to compare its report with.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use serde::de::DeserializeOwned;

use crate::bystander::{Seen, What};
use crate::cgroup::{Inhabitants, Memory, SLICE, Scope};
use crate::machine::Machine;
use crate::network::{Network, until_read};
use crate::programs::{Place, Ready};
use crate::runtime::{Did, Spec, Stop};
use crate::socket_unit::INHERITED;
use crate::stories::{ANY, ANY_IPV6};
use crate::story::{Bystander, Kind, Need, Program, Story, When, Whence};
use crate::sys::{boot_now, random_hex, until_parents_sleep};
use crate::timeout::TIMEOUT;
use crate::victim::{OVER, Totals};

/// The grace period of what ends before it: all the time that a loaded machine needs, where SIGKILL only ends what hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two calls of a client that keeps calling.
const PERIOD_MS: &str = "50";

/// The players' programs and stage.
#[derive(Debug)]
pub struct Players {
    programs: PathBuf,
    machine: Machine,
    directory: PathBuf,
}

/// A story with the name that its subject has this time.
#[derive(Clone, Debug)]
pub struct Role {
    pub story: &'static Story,
    /// Container id (64 hex digits), or the unit's name.
    pub subject: String,
    pub scope: String,
    /// Id of the bystander's container, if the bystander runs in one.
    pub neighbour: Option<String>,
    /// Whether the subject's sockets can be attributed: if not, nothing can be reported of its clients.
    pub sockets_attributable: bool,
}

/// What happened, by the players' own account.
#[derive(Clone, Debug)]
pub struct Played {
    pub did: Vec<Did>,
    pub seen: Vec<Seen>,
    /// What the clients of a load saw, and what the kubelet's probes did.
    pub load: Option<Box<Totals>>,
    pub probes: Option<Box<Totals>>,
}

impl Players {
    /// `programs`: the directory that holds `stand-in-runtime`, `victim` and `bystander`.
    ///
    /// # Errors
    /// Not root, no cgroups, a program is missing.
    pub fn new(programs: &Path) -> anyhow::Result<Players> {
        Players::on(programs, Machine::survey(Inhabitants::AsFound)?)
    }

    /// As [`Players::new`], on a machine that was surveyed.
    ///
    /// # Errors
    /// As [`Players::new`].
    pub fn on(programs: &Path, machine: Machine) -> anyhow::Result<Players> {
        let programs = programs
            .canonicalize()
            .with_context(|| format!("find the players in {}", programs.display()))?;
        for name in ["stand-in-runtime", "victim", "bystander"] {
            let path = programs.join(name);
            ensure!(
                path.is_file(),
                "{} is missing: build it with cargo build -p epitaph-tests --bins",
                path.display()
            );
        }
        let directory = std::env::temp_dir().join(format!("epitaph-demo-{}", random_hex(8)?));
        std::fs::create_dir(&directory).with_context(|| format!("make {}", directory.display()))?;
        Ok(Players {
            programs,
            machine,
            directory,
        })
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// # Errors
    /// No randomness.
    pub fn cast(&self, story: &'static Story) -> anyhow::Result<Role> {
        let neighbour = match story.bystander {
            Bystander::Signals {
                from: Whence::Container, ..
            } => Some(random_hex(32)?),
            _ => None,
        };
        let (scope, subject) = match story.subject {
            Kind::Container => {
                let subject = random_hex(32)?;
                (format!("cri-containerd-{subject}.scope"), subject)
            }
            Kind::Unit => {
                let subject = format!("epitaph-demo-{}.service", random_hex(6)?);
                (subject.clone(), subject)
            }
        };
        Ok(Role {
            story,
            sockets_attributable: self.machine.mounts.sockets_attributable(&scope),
            scope,
            subject,
            neighbour,
        })
    }

    /// A story whose container gets SIGKILL by an order, and not by a clock: a test that does something within the grace period has all the
    /// time that a loaded machine needs for it.
    ///
    /// # Errors
    /// No randomness; the story's container gets no stop signal.
    pub fn cast_for_an_order(&self, story: &Story) -> anyhow::Result<Role> {
        let mut story = *story;
        let Stop::Signal { grace, .. } = &mut story.stop else {
            bail!("{} has no grace period", story.name)
        };
        *grace = Duration::ZERO;
        self.cast(Box::leak(Box::new(story)))
    }

    /// Plays the story to its end; the subject's cgroups are removed afterwards in any case.
    ///
    /// # Errors
    /// A player could not start or failed. A difference between the facts and the story is not an error: see [`Played::differs`].
    pub fn play(&self, role: &Role) -> anyhow::Result<Played> {
        self.play_with(role, None)
    }

    /// The same of a role of [`Players::cast_for_an_order`]: the runtime sends SIGKILL once `order` has something.
    ///
    /// # Errors
    /// As [`Players::play`]; there is no order.
    pub fn play_to_an_order(&self, role: &Role, order: &Receiver<()>) -> anyhow::Result<Played> {
        self.play_with(role, Some(order))
    }

    fn play_with(&self, role: &Role, order: Option<&Receiver<()>>) -> anyhow::Result<Played> {
        let result = self.act(role, order).with_context(|| format!("play {}", role.story.name));
        let swept = Scope::at(&self.machine.mounts, &role.scope).remove();
        let played = result?;
        swept?;
        Ok(played)
    }

    fn act(&self, role: &Role, order: Option<&Receiver<()>>) -> anyhow::Result<Played> {
        let story = role.story;
        // Stories of one name play side by side.
        let directory = self.directory.join(format!("{}-{}", story.name, random_hex(4)?));
        std::fs::create_dir(&directory)?;
        // What the container's program waits for, if it does.
        let over = || std::fs::write(directory.join(OVER), "");
        let network = story
            .network_namespace
            .then(|| Network::create(story.needs().contains(&Need::Ipv6)))
            .transpose()?;
        let mut runtime = Player::<Did>::start(self.program("stand-in-runtime").arg("run").arg(serde_json::to_string(
            &self.spec(role, network.as_ref(), order.is_some(), &directory)?,
        )?))?;
        let mut did = Vec::new();
        let started = runtime.until(&mut did, |d| matches!(d, Did::Started { .. }))?;
        let Did::Started { pid, .. } = started else {
            bail!("not started")
        };
        let Did::Ready { address, .. } = runtime.until(&mut did, |d| matches!(d, Did::Ready { .. }))? else {
            bail!("not ready")
        };
        let scope = Scope::at(&self.machine.mounts, &role.scope);
        until_parents_sleep(|| scope.processes())?;
        let address = address.map(|address| called_at(story, address)).transpose()?;
        let mut seen = Vec::new();
        let mut client = self.before_stop(role, pid, address.as_deref(), &mut seen)?;
        let load = self.load(role, address.as_deref())?;
        // Of a load each client's first answer was awaited.
        if let (Some(address), None, true) = (&address, &load, client.is_some() && reads(story)) {
            let address: SocketAddr = address.parse().with_context(|| address.clone())?;
            until_read(pid, address.port())?;
        }
        // A container runs for a while before it is stopped.
        pass(if load.is_some() { 600 } else { 200 });
        if let Bystander::Unheard { loss, .. } = story.bystander {
            let network = network.as_ref().context("only a network namespace of its own can be lost")?;
            network.lose(loss)?;
        }
        match story.stop {
            Stop::Wait => over()?,
            _ => runtime.order("stop")?,
        }
        if let Some(order) = order {
            order.recv().context("the order to kill did not come")?;
            runtime.order("kill")?;
        }
        if let Bystander::Signals {
            name,
            signal,
            when: When::WithinGrace,
            ..
        } = story.bystander
        {
            runtime.until(&mut did, |d| matches!(d, Did::Signalled { .. }))?;
            // A moment within the grace period.
            pass(500);
            self.signal(role, name, pid, signal)?;
        }
        if let Bystander::Rejected { count } = story.bystander {
            runtime.until(&mut did, |d| matches!(d, Did::Signalled { .. }))?;
            let address = address.as_deref().context("the server did not print its address")?;
            let network = network.as_ref().context("only a network namespace of its own can reject")?;
            seen.extend(self.calls("request", address, 1)?);
            network.reject()?;
            seen.extend(self.calls("connect", address, count)?);
            over()?;
        }
        let [load, probes] = match (load, story.bystander) {
            (Some(load), Bystander::Load { goes_on_ms, .. }) => {
                runtime.until(&mut did, |d| matches!(d, Did::Signalled { .. }))?;
                pass(goes_on_ms);
                let totals = load.end()?;
                over()?;
                totals
            }
            _ => [None, None],
        };
        if let Some(client) = client.as_mut().filter(|_| is_socket_unit(story)) {
            runtime.until(&mut did, |d| matches!(d, Did::Ended { .. }))?;
            // It calls while the service is down.
            pass(200);
            client.close();
            seen.extend(client.rest()?);
            runtime.close();
        }
        did.extend(runtime.rest()?);
        if let Some(client) = client.as_mut().filter(|_| !is_socket_unit(story)) {
            if matches!(story.bystander, Bystander::KeepsCalling | Bystander::Unheard { .. }) {
                // It calls after the end, too, or hears nothing of it.
                pass(200);
            }
            if story.bystander == Bystander::KeepsCalling && story.expected.traffic == "refused" {
                client.until(&mut seen, |call| call.what == What::Refused)?;
            }
            if let Bystander::Unheard { .. } = story.bystander {
                // The clients of a network that is gone wait for minutes.
                seen.extend(client.so_far()?);
            } else {
                client.close();
                seen.extend(client.rest()?);
            }
        }
        Ok(Played { did, seen, load, probes })
    }

    fn spec(&self, role: &Role, network: Option<&Network>, by_order: bool, directory: &Path) -> anyhow::Result<Spec> {
        let story = role.story;
        let victim = self
            .programs
            .join("victim")
            .to_str()
            .context("the players' directory is not UTF-8")?
            .to_owned();
        let mut stop = story.stop;
        if let Stop::Signal { grace, .. } = &mut stop {
            *grace = match by_order {
                true => Duration::MAX,
                false if story.is_ended_by_the_kill() => *grace,
                false => PATIENCE.max(*grace),
            };
        }
        let mut listens = None;
        let command = match story.program {
            Program::Victim(args) => {
                let place = |arg: &str| match network {
                    Some(network) if [ANY, ANY_IPV6].contains(&arg) => network.address().to_string(),
                    _ => arg.to_owned(),
                };
                let command = [victim].into_iter().chain(args.iter().map(|&a| place(a))).collect();
                network.map_or_else(|| Vec::clone(&command), |network| network.command(command.clone()))
            }
            Program::Shell(script) => {
                vec![
                    "/bin/sh".into(),
                    "-c".into(),
                    script.replace("$VICTIM", &format!("'{}'", victim.replace('\'', r"'\''"))),
                ]
            }
            Program::Installed(program) => {
                let place = Place::new(directory, &victim)?;
                listens = (program.ready == Ready::Listens).then(|| place.address());
                place.prepare(&program)?
            }
        };
        Ok(Spec {
            scope: role.scope.clone(),
            command,
            pid_namespace: story.pid_namespace,
            memory_limit: story.memory_limit,
            stop,
            mounts: self.machine.mounts.clone(),
            listens,
            directory: directory.to_owned(),
        })
    }

    fn before_stop(
        &self,
        role: &Role,
        pid: u32,
        address: Option<&str>,
        seen: &mut Vec<Seen>,
    ) -> anyhow::Result<Option<Player<Seen>>> {
        let address = || address.context("the server did not print its address");
        let (args, first, known): (Vec<String>, usize, What) = match role.story.bystander {
            Bystander::None
            | Bystander::Load { .. }
            | Bystander::Rejected { .. }
            | Bystander::Signals {
                when: When::WithinGrace, ..
            } => return Ok(None),
            Bystander::Signals {
                name,
                signal,
                when: When::BeforeStop,
                ..
            } => {
                self.signal(role, name, pid, signal)?;
                return Ok(None);
            }
            Bystander::Stops { name, grace_ms } => {
                self.signal(role, name, pid, nix::libc::SIGTERM)?;
                pass(grace_ms);
                self.signal(role, name, pid, nix::libc::SIGKILL)?;
                return Ok(None);
            }
            Bystander::Debugs { name } => {
                let mut bystander = self.program("bystander");
                let status = bystander.args(["debug", name, &pid.to_string()]).status()?;
                ensure!(status.success(), "the debugger could not attach: {status}");
                return Ok(None);
            }
            Bystander::Client { verb, count } | Bystander::Unheard { verb, count, .. } => {
                let known = if verb == "keep-alive" {
                    What::AnsweredAndKept
                } else {
                    What::Connected
                };
                (vec![verb.into(), address()?.into(), count.to_string()], count, known)
            }
            Bystander::KeepsCalling => (vec!["every".into(), address()?.into(), PERIOD_MS.into()], 3, What::Answered),
        };
        let mut client = Player::start(self.program("bystander").args(args))?;
        for _ in 0..first {
            let line = client.until(seen, |_| true)?;
            ensure!(
                line.what == known,
                "before the stop signal a client saw {:?}, not {known:?}",
                line.what
            );
        }
        Ok(Some(client))
    }

    /// So many, to their end.
    fn calls(&self, verb: &str, address: &str, count: usize) -> anyhow::Result<Vec<Seen>> {
        let mut bystander = self.program("bystander");
        Player::start(bystander.args([verb, address, &count.to_string()]))?.rest()
    }

    fn load(&self, role: &Role, address: Option<&str>) -> anyhow::Result<Option<Load>> {
        let Bystander::Load { keep_alive, probed, .. } = role.story.bystander else {
            return Ok(None);
        };
        let address = address.context("the server did not print its address")?;
        // A load without an answer before the stop signal is none: on a busy machine a single client may take a second to its first one.
        let start = |options: &[&str]| {
            let mut victim = self.program("victim");
            let mut clients: Player<Totals> =
                Player::start(victim.args(["load", address, "--until-stdin-closes"]).args(options))?;
            clients.until(&mut Vec::new(), |totals| totals.ok > 0)?;
            Ok::<_, anyhow::Error>(clients)
        };
        let mut options = vec!["--clients=10"];
        options.extend(keep_alive.then_some("--keep-alive"));
        let home = probed
            .then(|| {
                Scope::create(
                    &self.machine.mounts,
                    &format!("epitaph-{}.slice/kubelet.service", random_hex(4)?),
                    None,
                )
            })
            .transpose()?;
        Ok(Some(Load {
            clients: start(&options)?,
            kubelet: home
                .map(|home| {
                    let cgroup = format!("--cgroup={}", home.home().display());
                    Ok::<_, anyhow::Error>((start(&["--clients=1", "--pause-ms=50", "--path=/ready", &cgroup])?, home))
                })
                .transpose()?,
        }))
    }

    fn signal(&self, role: &Role, name: &str, pid: u32, signal: i32) -> anyhow::Result<()> {
        let home = match &role.neighbour {
            Some(id) => Some(Scope::create(
                &self.machine.mounts,
                &format!("cri-containerd-{id}.scope"),
                None,
            )?),
            None => None,
        };
        let mut bystander = self.program("bystander");
        match &home {
            Some(scope) => bystander.arg("kill-from").arg(scope.home()),
            None => bystander.arg("kill"),
        };
        let status = bystander.args([name, &pid.to_string(), &signal.to_string()]).status();
        if let Some(scope) = home {
            scope.remove()?;
        }
        let status = status?;
        ensure!(status.success(), "the bystander could not send signal {signal}: {status}");
        Ok(())
    }

    fn program(&self, name: &str) -> Command {
        Command::new(self.programs.join(name))
    }
}

impl Drop for Players {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
        let mounts = &self.machine.mounts;
        for mount in mounts.v2.iter().chain(&mounts.v1).chain(self.memory_mount()) {
            // Kept where another demo still uses it.
            let _ = std::fs::remove_dir(mount.join(SLICE));
        }
    }
}

impl Players {
    fn memory_mount(&self) -> Option<&PathBuf> {
        match &self.machine.mounts.memory {
            Memory::V1(mount) => Some(mount),
            _ => None,
        }
    }
}

/// Whether the story's server accepts and reads what its clients send before it is stopped.
fn reads(story: &Story) -> bool {
    let never = |args: &[&str]| args.contains(&"accept-never") || args.contains(&"read-never");
    !matches!(story.program, Program::Victim(args) if never(args))
}

/// Its manager holds the listener.
fn is_socket_unit(story: &Story) -> bool {
    matches!(story.program, Program::Victim(args) if args.contains(&INHERITED))
}

/// The address that clients call, from the address that the server printed.
fn called_at(story: &Story, address: String) -> anyhow::Result<String> {
    let Some(ip) = story.called_at else { return Ok(address) };
    let served: SocketAddr = address.parse().with_context(|| address.clone())?;
    Ok(SocketAddr::new(ip, served.port()).to_string())
}

/// Clients under way.
struct Load {
    clients: Player<Totals>,
    /// With its cgroup.
    kubelet: Option<(Player<Totals>, Scope)>,
}

impl Load {
    /// Sends them elsewhere: what they saw.
    fn end(mut self) -> anyhow::Result<[Option<Box<Totals>>; 2]> {
        self.clients.close();
        let clients = self.clients.rest()?.pop().map(Box::new);
        let Some((mut kubelet, home)) = self.kubelet else {
            return Ok([clients, None]);
        };
        kubelet.close();
        let probes = kubelet.rest()?.pop().map(Box::new);
        home.remove()?;
        Ok([clients, probes])
    }
}

/// A process that prints JSON lines on stdout. Closing its stdin makes it exit.
struct Player<T> {
    child: Child,
    lines: Receiver<anyhow::Result<T>>,
}

impl<T: DeserializeOwned + Clone + Send + 'static> Player<T> {
    fn start(command: &mut Command) -> anyhow::Result<Player<T>> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("no stdout")?;
        let (to, lines) = channel();
        let read = move |stdout: ChildStdout| {
            for line in BufReader::new(stdout).lines() {
                let parsed = line
                    .map_err(Into::into)
                    .and_then(|l| serde_json::from_str(&l).with_context(|| l.clone()));
                if to.send(parsed).is_err() {
                    return;
                }
            }
        };
        std::thread::spawn(move || read(stdout));
        Ok(Player { child, lines })
    }

    /// Keeps lines in `kept` up to and with the one that is `wanted`.
    fn until(&mut self, kept: &mut Vec<T>, wanted: impl Fn(&T) -> bool) -> anyhow::Result<T>
    where
        T: std::fmt::Debug,
    {
        let end = boot_now() + TIMEOUT.as_nanos() as u64;
        loop {
            match self.lines.recv_timeout(Duration::from_nanos(end.saturating_sub(boot_now()))) {
                Ok(line) => {
                    let line = line?;
                    kept.push(line.clone());
                    if wanted(&line) {
                        return Ok(line);
                    }
                }
                Err(e) => bail!("a player did not say it in time ({e}) after {kept:?}"),
            }
        }
    }

    /// What it has printed meanwhile.
    fn so_far(&mut self) -> anyhow::Result<Vec<T>> {
        self.lines.try_iter().collect()
    }

    /// The remaining lines, up to its exit.
    fn rest(&mut self) -> anyhow::Result<Vec<T>> {
        let mut rest = Vec::new();
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                Ok(line) => rest.push(line?),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => bail!("a player did not exit"),
            }
        }
        let status = self.child.wait()?;
        ensure!(status.success(), "a player failed: {status}");
        Ok(rest)
    }

    fn order(&mut self, order: &str) -> anyhow::Result<()> {
        let stdin = self.child.stdin.as_mut().ok_or_else(|| anyhow!("stdin is closed"))?;
        Ok(writeln!(stdin, "{order}")?)
    }

    fn close(&mut self) {
        self.child.stdin = None;
    }
}

impl<T> Drop for Player<T> {
    fn drop(&mut self) {
        self.child.stdin = None;
        // The runtime's launcher has ended long ago; its shim ends when stdin closes.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Of a story.
fn pass(milliseconds: u64) {
    // The subject is time: the story's own.
    sleep(Duration::from_millis(milliseconds));
}
