//! Plays one history to its end, and collects the truth.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::history::{Bind, Deed, Held, History, Stop, Target, Wrapper};
use crate::program::{End, GO, LOG, ORDER};
use crate::sockets::Address;
use crate::sys::{boot_now, found_within, random_hex};
use crate::truth::{Stranger, Truth};
use crate::{client, entry, program, shim};

/// Clients go on for so long after the exit of the first process.
const GOES_ON: Duration = Duration::from_millis(700);
/// Longest wait for one event of a player on a busy machine.
const LONGEST: Duration = Duration::from_secs(120);
/// From the stop until the runtime ends what nothing else has ended; and from the end of a grace on.
const PATIENCE_MS: u32 = 2_500;
const PATIENCE_AFTER_GRACE_MS: u32 = 1_000;

/// From the moment in which memory is taken to the stop of what is left.
const STOP_AFTER_OOM: Duration = Duration::from_millis(800);

/// What all histories of a run share.
#[derive(Debug)]
pub struct Stage {
    me: PathBuf,
    slice: PathBuf,
    memory: Memory,
    directory: PathBuf,
    /// How many times slower than a usual machine this one is.
    slow: u32,
    keeps: bool,
}

/// A history that was played.
#[derive(Clone, Debug)]
pub struct Played {
    pub history: History,
    /// 64 hexadecimal digits.
    pub container: String,
    pub truth: Truth,
}

enum Line {
    Shim(shim::Event),
    Program(u64, program::Event),
    Client(client::Event),
    Garbage(String),
    /// The shim, the clients, or all processes with the program's log.
    Gone,
}

impl Stage {
    /// # Errors
    /// No cgroup v2, or no room for files.
    pub fn new(slow: u32) -> Result<Stage> {
        let mounts = fs::read_to_string("/proc/self/mounts").context("reading the mounts")?;
        let v2 = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .find(|fields| fields.get(2) == Some(&"cgroup2"))
            .context("no cgroup v2 is mounted")?[1]
            .to_owned();
        let directory = std::env::temp_dir().join(format!("random-histories-{}", random_hex(6)?));
        fs::create_dir(&directory).with_context(|| format!("creating {}", directory.display()))?;
        let slice = Path::new(&v2).join(format!("random-histories-{}.slice", random_hex(4)?));
        fs::create_dir(&slice).with_context(|| format!("creating {}", slice.display()))?;
        let memory = Memory::find(Path::new(&v2), &slice, &mounts)?;
        Ok(Stage {
            me: std::env::current_exe()?,
            slice,
            memory,
            directory,
            slow,
            keeps: false,
        })
    }

    /// The directory stays; where it is.
    pub fn keep(&mut self) -> &Path {
        self.keeps = true;
        &self.directory
    }

    /// For files of the run.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// # Errors
    /// A player cannot be started. What goes wrong later is in the truth.
    pub fn play(&self, history: &History, port: u16) -> Result<Played> {
        let container = random_hex(32)?;
        let directory = self.directory.join(&container[..12]);
        fs::create_dir(&directory)?;
        let mut truth = Truth {
            started: boot_now(),
            ..Truth::default()
        };
        let played = Play::new(self, history, &container, &directory, port).and_then(|mut play| {
            let result = play.act(&mut truth);
            play.end(&mut truth);
            result
        });
        if let Err(e) = played {
            truth.broken.get_or_insert(format!("{e:#}"));
        }
        fs::remove_dir_all(&directory)?;
        Ok(Played {
            history: history.clone(),
            container,
            truth,
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !self.keeps {
            let _ = fs::remove_dir_all(&self.directory);
        }
        let _ = fs::remove_dir(&self.slice);
        if let Memory::V1(slice) = &self.memory {
            let _ = fs::remove_dir(slice);
        }
    }
}

/// Where memory is limited.
#[derive(Debug)]
enum Memory {
    /// In cgroup v2.
    V2,
    /// The run's slice in the memory hierarchy of cgroup v1.
    V1(PathBuf),
    None,
}

impl Memory {
    fn find(v2: &Path, slice: &Path, mounts: &str) -> Result<Memory> {
        let has_memory = |directory: &Path| {
            let controllers = fs::read_to_string(directory.join("cgroup.controllers")).unwrap_or_default();
            controllers.split_whitespace().any(|controller| controller == "memory")
        };
        if has_memory(v2) {
            for directory in [v2, slice] {
                fs::write(directory.join("cgroup.subtree_control"), "+memory").context("enabling the memory controller")?;
            }
            return Ok(Memory::V2);
        }
        let is_memory = |fields: &[&str]| {
            fields.get(2) == Some(&"cgroup") && fields.get(3).is_some_and(|o| o.split(',').any(|o| o == "memory"))
        };
        let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let Some(mount) = mounts.find(|fields| is_memory(fields)) else {
            return Ok(Memory::None);
        };
        let slice = Path::new(mount[1]).join(slice.file_name().context("a slice has a name")?);
        fs::create_dir(&slice).with_context(|| format!("creating {}", slice.display()))?;
        Ok(Memory::V1(slice))
    }

    /// The directory in which the memory of a container is limited, if there is a controller.
    fn of(&self, cgroup: &Path) -> Option<PathBuf> {
        match self {
            Memory::V2 => Some(cgroup.to_owned()),
            Memory::V1(slice) => Some(slice.join(cgroup.file_name()?)),
            Memory::None => None,
        }
    }
}

struct Play<'a> {
    stage: &'a Stage,
    history: &'a History,
    directory: &'a Path,
    called: Vec<Address>,
    shim: Child,
    clients: Option<Child>,
    /// A writer that is there before the program is, and until the container is gone.
    log: Option<fs::File>,
    /// Outputs that have not ended.
    open: u32,
    lines: Receiver<Line>,
    sender: Sender<Line>,
}

impl<'a> Play<'a> {
    fn new(stage: &'a Stage, history: &'a History, container: &str, directory: &'a Path, port: u16) -> Result<Play<'a>> {
        let (v4, v6) = (format!("127.0.0.1:{port}"), format!("[::1]:{port}"));
        let unix = || Address::Unix(directory.join("socket"));
        let (tcp, udp) = (Address::Tcp(v4.parse()?), Address::Udp(v4.parse()?));
        let (listen, also) = match history.bind {
            Bind::V4 => (tcp.clone(), None),
            Bind::V6 => (Address::Tcp(v6.parse()?), None),
            Bind::Any => (Address::Tcp(format!("[::]:{port}").parse()?), None),
            Bind::Unix => (unix(), None),
            Bind::Udp => (udp, None),
            Bind::TcpAndUnix => (tcp.clone(), Some(unix())),
            Bind::TcpAndUdp => (tcp.clone(), Some(udp)),
        };
        // Clients of all addresses go by IPv4.
        let first = if history.bind == Bind::Any { tcp } else { listen.clone() };
        let called: Vec<Address> = [first].into_iter().chain(also.clone()).collect();
        let mut signals = vec![nix::libc::SIGTERM];
        signals.extend(history.stop.signals());
        signals.sort_unstable();
        signals.dedup();
        let order = program::Order {
            program: history.program,
            signals,
            listen,
            also,
            end: match (history.stop, history.stop.deeds().first()) {
                (Stop::Oom(eater), _) => Some(End::Eat(eater)),
                (_, Some(Deed::Exit)) => Some(End::Exit),
                (_, Some(Deed::Fault)) => Some(End::Fault),
                _ => None,
            },
        };
        fs::write(directory.join(ORDER), serde_json::to_vec(&order)?)?;
        let log = directory.join(LOG);
        mkfifo(&log, Mode::from_bits_truncate(0o600))?;
        // First for both: opening a FIFO for one alone waits for the other. The reader's end comes with the last writer's.
        let writer = fs::File::options().read(true).write(true).open(&log)?;
        let reader = fs::File::open(&log)?;
        let (sender, lines) = channel();
        let logged = |line: &str| parsed(line, |program::Line { at, event }| Line::Program(at, event));
        read(reader, &sender, logged, Line::Gone);

        let me = stage.me.to_string_lossy().into_owned();
        let program = vec![me.clone(), "program".into(), directory.to_string_lossy().into_owned()];
        let cgroup = stage.slice.join(format!("docker-{container}.scope"));
        let memory = match history.stop {
            Stop::Oom(_) => Some(stage.memory.of(&cgroup).context("no cgroup has a memory controller")?),
            _ => None,
        };
        let order = shim::Order {
            cgroup,
            memory,
            command: entry::command(&history.entry, &me, directory, program)?,
            pid_namespace: history.pid_namespace,
            own_network: history.own_network,
            stop: history.stop,
            probes: history.probes,
            server: called[0].clone(),
            patience_ms: u32::try_from(LONGEST.as_millis()).unwrap_or(u32::MAX),
        };
        let mut shim = player(&stage.me, "shim", &serde_json::to_string(&order)?)?;
        let out = shim.stdout.take().context("the shim has no output")?;
        read(out, &sender, |line| parsed(line, Line::Shim), Line::Gone);
        Ok(Play {
            stage,
            history,
            directory,
            called,
            shim,
            clients: None,
            log: Some(writer),
            open: 2,
            lines,
            sender,
        })
    }

    fn act(&mut self, truth: &mut Truth) -> Result<()> {
        let is_there = |truth: &Truth| truth.shim_pid != 0 && truth.program_pid != 0 || truth.ended != 0;
        self.until(truth, is_there, "the program's start")?;
        self.start_clients(truth)?;
        let lead = Duration::from_millis(self.history.lead_ms.into());
        if self.within(truth, lead, |truth| truth.ended != 0)? {
            return self.pass(truth, GOES_ON);
        }
        if self.history.held.is_some() && truth.program_pid != 0 {
            self.hold(truth.program_pid, nix::libc::SIGSTOP)?;
        }
        match self.history.stop {
            Stop::Runtime { .. } | Stop::Force(_) | Stop::Inside { .. } | Stop::InsideAll { .. } => self.order("stop")?,
            Stop::Exit | Stop::Fault => fs::write(self.directory.join(GO), "")?,
            Stop::Oom(_) => {
                fs::write(self.directory.join(GO), "")?;
                // What is left is stopped.
                if !self.within(truth, STOP_AFTER_OOM * self.stage.slow, |truth| truth.ended != 0)? {
                    self.order("stop")?;
                }
            }
            Stop::Stranger { signal, target } => self.strike(truth, signal, target)?,
            Stop::Two { first, after_ms, second } => {
                self.perform(truth, first, "first")?;
                if !self.within(truth, Duration::from_millis(after_ms.into()), |truth| truth.ended != 0)? {
                    self.perform(truth, second, "second")?;
                }
            }
        }
        if let Some(Held { until_ms: Some(ms) }) = self.history.held
            && !self.within(truth, Duration::from_millis(ms.into()), |truth| truth.ended != 0)?
        {
            self.hold(truth.program_pid, nix::libc::SIGCONT)?;
        }
        let lingers = |wrapper: &Wrapper| if let Wrapper::Lingers { ms, .. } = wrapper { *ms } else { 0 };
        let lingers: u32 = self.history.entry.iter().map(lingers).sum();
        let grace = match self.history.stop {
            Stop::Runtime { grace_ms, .. } => grace_ms + PATIENCE_AFTER_GRACE_MS,
            _ => 0,
        };
        let patience = Duration::from_millis((PATIENCE_MS.max(grace) + lingers).into());
        if !self.within(truth, patience, |truth| truth.ended != 0)? {
            // Nothing of the history has ended it: the runtime does.
            let _ = self.order("kill");
            self.until(truth, |truth| truth.ended != 0, "the end")?;
        }
        self.pass(truth, GOES_ON)
    }

    /// One of two deeds; `order` is the shim's word for it.
    fn perform(&mut self, truth: &mut Truth, deed: Deed, order: &str) -> Result<()> {
        match deed {
            Deed::Runtime(_) | Deed::Inside(_) => self.order(order),
            Deed::Stranger { signal, target } => self.strike(truth, signal, target),
            Deed::Exit | Deed::Fault => Ok(fs::write(self.directory.join(GO), "")?),
        }
    }

    fn start_clients(&mut self, truth: &mut Truth) -> Result<()> {
        if self.history.clients.is_empty() || truth.ended != 0 {
            return Ok(());
        }
        let order = client::Order {
            network_of: truth.shim_pid,
            servers: self.called.clone(),
            clients: self.history.clients.clone(),
        };
        let mut clients = player(&self.stage.me, "clients", &serde_json::to_string(&order)?)?;
        let out = clients.stdout.take().context("the clients have no output")?;
        read(out, &self.sender, |line| parsed(line, Line::Client), Line::Gone);
        self.clients = Some(clients);
        self.open += 1;
        let mut settled = 0;
        while settled < self.history.clients.len() && truth.ended == 0 {
            match self.lines.recv_timeout(LONGEST) {
                Ok(Line::Client(client::Event::Settled { .. })) => settled += 1,
                Ok(line) => self.take(truth, line)?,
                Err(_) => bail!("the clients are not settled"),
            }
        }
        Ok(())
    }

    /// A process of its own sends the signal: neither the runtime nor a relative of it.
    fn strike(&self, truth: &mut Truth, signal: i32, target: Target) -> Result<()> {
        let pid = match target {
            Target::Main => truth.main_pid,
            Target::Program => truth.program_pid,
        };
        let at = boot_now();
        let mut stranger = player(&self.stage.me, "stranger", &format!("{pid} {signal}"))?;
        let by = stranger.id();
        if stranger.wait()?.success() {
            truth.strangers.push(Stranger {
                at,
                pid: by,
                signal,
                target,
            });
        }
        Ok(())
    }

    /// By a process of its own, as a debugger's user does: no deed that ends anything. Of SIGSTOP returns once every thread has stopped.
    fn hold(&self, program: u32, signal: i32) -> Result<()> {
        player(&self.stage.me, "stranger", &format!("{program} {signal}"))?.wait()?;
        if signal == nix::libc::SIGSTOP {
            found_within(LONGEST, || anyhow::Ok(is_stopped(program).then_some(())))?.context("the program does not stop")?;
        }
        Ok(())
    }

    fn order(&mut self, order: &str) -> Result<()> {
        let stdin = self.shim.stdin.as_mut().context("the shim has no input")?;
        writeln!(stdin, "{order}").context("ordering the shim")
    }

    fn until(&mut self, truth: &mut Truth, is: impl Fn(&Truth) -> bool, what: &str) -> Result<()> {
        match self.within(truth, LONGEST, is)? {
            true => Ok(()),
            false => bail!("waited in vain for {what}"),
        }
    }

    /// Takes in lines until `is`, for `time` at most.
    fn within(&mut self, truth: &mut Truth, time: Duration, is: impl Fn(&Truth) -> bool) -> Result<bool> {
        let until = boot_now() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2);
        while !is(truth) {
            let left = Duration::from_nanos(until.saturating_sub(boot_now()));
            match self.lines.recv_timeout(left) {
                Ok(line) => self.take(truth, line)?,
                Err(RecvTimeoutError::Timeout) if boot_now() < until => {}
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    fn pass(&mut self, truth: &mut Truth, time: Duration) -> Result<()> {
        self.within(truth, time, |_| false).map(drop)
    }

    fn take(&mut self, truth: &mut Truth, line: Line) -> Result<()> {
        match line {
            Line::Shim(event) => truth.take(event),
            Line::Program(_, program::Event::Failed { what }) => bail!("the program: {what}"),
            Line::Program(at, event) => {
                if let program::Event::Listening { pid } = event {
                    truth.program_pid = pid;
                }
                truth.log.push((at, event));
            }
            Line::Client(client::Event::Attempt(attempt)) => truth.attempts.push(attempt),
            Line::Client(client::Event::Settled { .. }) => {}
            Line::Gone => self.open -= 1,
            Line::Garbage(line) => bail!("a player printed `{line}`"),
        }
        Ok(())
    }

    /// Ends the clients and the container, whatever has happened, and takes in what they still say.
    fn end(mut self, truth: &mut Truth) {
        drop(self.shim.stdin.take());
        drop(self.log.take());
        if let Some(clients) = &mut self.clients {
            drop(clients.stdin.take());
        }
        while self.open > 0 {
            match self.lines.recv_timeout(LONGEST) {
                Ok(line) => {
                    if let Err(e) = self.take(truth, line) {
                        truth.broken.get_or_insert(format!("{e:#}"));
                    }
                }
                Err(_) => {
                    truth.broken.get_or_insert("the players do not end".into());
                    break;
                }
            }
        }
        for player in [Some(self.shim), self.clients].into_iter().flatten() {
            end(player);
        }
    }
}

/// Every thread, or the process is gone.
fn is_stopped(program: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{program}/task")) else {
        return true;
    };
    let state = |stat: String| stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    threads
        .flatten()
        .filter_map(|thread| state(fs::read_to_string(thread.path().join("stat")).ok()?))
        .all(|state| matches!(state, 'T' | 'Z' | 'X'))
}

fn end(mut player: Child) {
    // Its output has ended: it is gone, or it hangs.
    if !matches!(player.try_wait(), Ok(Some(_))) {
        let _ = player.wait();
    }
}

fn player(me: &Path, part: &str, order: &str) -> Result<Child> {
    Command::new(me)
        .args([part, order])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {part}"))
}

fn parsed<T: serde::de::DeserializeOwned>(line: &str, into: impl Fn(T) -> Line) -> Line {
    serde_json::from_str(line).map_or_else(|_| Line::Garbage(line.to_owned()), into)
}

/// Every line of `from` goes to `to`, by a thread of its own, and `last` at its end.
fn read(from: impl Read + Send + 'static, to: &Sender<Line>, parse: impl Fn(&str) -> Line + Send + 'static, last: Line) {
    let to = to.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if to.send(parse(&line)).is_err() {
                return;
            }
        }
        let _ = to.send(last);
    });
}
