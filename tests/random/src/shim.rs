//! The runtime of one history, one process as a containerd shim is: it makes the cgroup and the namespaces, is the parent of the first
//! process, sends what it is ordered to send, and reports each deed and the result of wait(2), a line of JSON each.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::{SIGKILL, SIGTERM};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use serde::{Deserialize, Serialize};

use crate::history::{Deed, Exec, Kill, Probes, Stop};
use crate::program::READY;
use crate::sockets::{Address, Stream};
use crate::sys::{Process, boot_now, default_interrupts, emit, found_within, kill};

/// For a loaded machine: a guard against a hang, not a measure.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The cgroup's directory; its name is what the agent knows the container by.
    pub cgroup: PathBuf,
    /// Where its memory is limited, if that is: there, or in a hierarchy of cgroup v1.
    pub memory: Option<PathBuf>,
    pub command: Vec<String>,
    pub pid_namespace: bool,
    pub own_network: bool,
    pub stop: Stop,
    pub probes: Option<Probes>,
    /// Which a probe connects to.
    pub server: Address,
    /// From the start until the shim kills what still runs: nothing else has ended the program.
    pub patience_ms: u32,
}

/// A line of the log. Times are `CLOCK_BOOTTIME` nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    Started {
        shim: u32,
        main: u32,
    },
    /// What the shim sent to the first process, or to the whole cgroup.
    Sent {
        at: u64,
        signal: i32,
        /// The first process still existed.
        lives: bool,
    },
    /// A process that the shim started in the container, to signal the first process.
    Inside {
        at: u64,
        pid: u32,
        signal: i32,
    },
    /// Of the first process, by wait(2): exactly one of both.
    Ended {
        at: u64,
        code: Option<i32>,
        signal: Option<i32>,
    },
    /// How many processes of the container the OOM killer killed, by the kernel's count.
    Oom {
        kills: usize,
    },
    Removed {
        at: u64,
    },
    Failed {
        what: String,
    },
}

/// Plays `order`; orders come on standard input: `stop` for the history's stop, `kill` to end what still runs.
///
/// # Errors
/// The container cannot be made.
pub fn main(order: &str) -> Result<i32> {
    let order: Order = serde_json::from_str(order)?;
    default_interrupts()?;
    fs::create_dir_all(&order.cgroup)?;
    let limited = order.memory.as_deref().map_or(Ok(()), limit);
    let result = limited.and_then(|()| Shim::start(&order)).and_then(Shim::live);
    if let Err(e) = &result {
        emit(&Event::Failed { what: e.to_string() });
    }
    if let Some(memory) = &order.memory {
        emit(&Event::Oom {
            kills: oom_kills(memory)?,
        });
    }
    remove(&order.cgroup)?;
    if let Some(memory) = order.memory.as_ref().filter(|memory| **memory != order.cgroup) {
        remove(memory)?;
    }
    emit(&Event::Removed { at: boot_now() });
    result.map(|()| 0)
}

fn limit(memory: &Path) -> Result<()> {
    const BYTES: &str = "67108864";
    fs::create_dir_all(memory)?;
    let (limit, swap) = match is_v1(memory) {
        true => ("memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", BYTES)),
        false => ("memory.max", ("memory.swap.max", "0")),
    };
    fs::write(memory.join(limit), BYTES)?;
    // Absent where there is no swap to escape to.
    let _ = fs::write(memory.join(swap.0), swap.1);
    Ok(())
}

fn is_v1(memory: &Path) -> bool {
    memory.join("memory.limit_in_bytes").exists()
}

fn oom_kills(memory: &Path) -> Result<usize> {
    let file = if is_v1(memory) {
        "memory.oom_control"
    } else {
        "memory.events"
    };
    let text = fs::read_to_string(memory.join(file))?;
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok());
    count.ok_or_else(|| Error::other(format!("no `oom_kill` in {file}")))
}

/// Waits until the shim has moved this process into its cgroup, then becomes the first process.
///
/// # Errors
/// The shim is gone, or the program cannot be executed.
pub fn init(command: &[String]) -> Result<i32> {
    std::io::stdin().read_exact(&mut [0])?;
    Err(Command::new(&command[0]).args(&command[1..]).stdin(Stdio::null()).exec())
}

/// Starts `command` as a daemon does: the parent exits with 0 once the program serves; the program has a session of its own and another
/// parent. The last word of `command` is the history's directory.
///
/// # Errors
/// No process can be made, or the program does not serve.
pub fn double_fork(command: &[String]) -> Result<i32> {
    // `setsid --fork` forks once more than std, and does not wait.
    let mut middle = Command::new("setsid").arg("--fork").args(command).spawn()?;
    middle.wait()?;
    let ready = command.last().map(|directory| Path::new(directory).join(READY));
    let serves = || Ok::<_, Error>(ready.as_ref().is_some_and(|ready| ready.exists()).then_some(0));
    found_within(PATIENCE, serves)?.ok_or_else(|| ErrorKind::TimedOut.into())
}

/// Starts `command` in the container: its first process, or one more from outside.
fn start(order: &Order, command: &[String]) -> Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("init")
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        // Inits warn of where they are.
        .stderr(Stdio::null())
        .spawn()?;
    let join = |cgroup: &Path| fs::write(cgroup.join("cgroup.procs"), child.id().to_string());
    let joined = join(&order.cgroup).and_then(|()| order.memory.as_deref().map_or(Ok(()), join));
    let go = joined.and_then(|()| child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(b"g")));
    if let Err(e) = go {
        let _ = child.kill();
        let _ = child.wait();
        return Err(e);
    }
    Ok(child)
}

/// A probe that connects, as `nc -z` does.
///
/// # Errors
/// Nobody listens.
pub fn probe(server: &str) -> Result<i32> {
    Stream::connect(&serde_json::from_str(server)?)?;
    Ok(0)
}

/// Signals all processes of the pid namespace, as `kill -SIGNAL -1` does. The parent of who came in from outside has no number there: without
/// that this would be the whole machine.
///
/// # Errors
/// The pid namespace is the parent's, too.
pub fn everybody(signal: &str) -> Result<i32> {
    if nix::unistd::getppid().as_raw() != 0 {
        return Err(Error::other("not in a pid namespace of its own"));
    }
    let signal: i32 = signal.parse().map_err(Error::other)?;
    #[expect(unsafe_code, reason = "nix has no real-time signals")]
    // SAFETY: kill(2) takes two integers and touches no memory of ours.
    let done = unsafe { nix::libc::kill(-1, signal) };
    if done == 0 { Ok(0) } else { Err(Error::last_os_error()) }
}

struct Shim<'a> {
    order: &'a Order,
    main: Child,
    exits: SignalFd,
    kill_at: Option<(u64, Kill)>,
    again_at: Option<(u64, i32)>,
    probe_at: Option<u64>,
    /// A command that hangs.
    hanging: Option<Process>,
    give_up_at: u64,
    frozen: bool,
    orders_open: bool,
}

impl Shim<'_> {
    fn start(order: &Order) -> Result<Shim<'_>> {
        prctl::set_child_subreaper(true)?;
        let children: SigSet = [Signal::SIGCHLD].into_iter().collect();
        children.thread_block()?;
        let exits = SignalFd::with_flags(&children, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        if order.own_network {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let up = Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
            if !up.success() {
                return Err(Error::other(format!("ip link set lo up: {up}")));
            }
        }
        if order.pid_namespace {
            unshare(CloneFlags::CLONE_NEWPID)?;
        }
        let main = start(order, &order.command)?;
        emit(&Event::Started {
            shim: std::process::id(),
            main: main.id(),
        });
        Ok(Shim {
            order,
            main,
            exits,
            kill_at: None,
            again_at: None,
            probe_at: order.probes.map(|probes| boot_now() + u64::from(probes.every_ms) * 1_000_000),
            hanging: None,
            give_up_at: boot_now() + u64::from(order.patience_ms) * 1_000_000,
            frozen: false,
            orders_open: true,
        })
    }

    fn live(mut self) -> Result<()> {
        loop {
            if let Some(ended) = self.reap()? {
                if self.frozen {
                    self.freeze(false)?;
                }
                emit(&ended);
                if !self.order.pid_namespace {
                    // As runtimes do where no namespace ends with its first process.
                    self.kill_cgroup(false)?;
                }
                return Ok(());
            }
            let now = boot_now();
            if let Some((_, by)) = self.kill_at.filter(|(at, _)| now >= *at) {
                self.kill_at = None;
                self.kill(by)?;
            }
            if let Some((_, signal)) = self.again_at.filter(|(at, _)| now >= *at) {
                self.again_at = None;
                self.send(now, signal)?;
            }
            if now >= self.give_up_at {
                self.give_up_at = u64::MAX;
                self.kill(Kill::Cgroup)?;
            }
            if let Some(probes) = self.order.probes.filter(|_| self.probe_at.is_some_and(|at| now >= at)) {
                self.probe_at = Some(now + u64::from(probes.every_ms) * 1_000_000);
                self.probe(probes)?;
            }
            let due = [self.kill_at.map(|(at, _)| at), self.again_at.map(|(at, _)| at), self.probe_at];
            self.wait(due.into_iter().flatten().fold(self.give_up_at, u64::min))?;
        }
    }

    /// Until a child exits, an order comes, or it is `until`.
    fn wait(&mut self, until: u64) -> Result<()> {
        let left = until.saturating_sub(boot_now()) / 1_000_000 + 1;
        let timeout = PollTimeout::try_from(left.min(1_000)).unwrap_or(PollTimeout::ZERO);
        let stdin = std::io::stdin();
        let has_order = {
            let mut fds = vec![PollFd::new(self.exits.as_fd(), PollFlags::POLLIN)];
            if self.orders_open {
                fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
            }
            match poll(&mut fds, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            fds.get(1).is_some_and(|fd| fd.any().unwrap_or(false))
        };
        let _ = self.exits.read_signal();
        if has_order {
            let mut line = String::new();
            stdin.read_line(&mut line)?;
            match line.trim() {
                "stop" => self.stop()?,
                "first" | "second" => self.act(line.trim() == "first")?,
                // What nothing has ended; and if the player is gone, so is the history.
                other => {
                    self.orders_open = !other.is_empty();
                    self.kill(Kill::Cgroup)?;
                }
            }
        }
        Ok(())
    }

    /// Reaps what exited; what the first process's end was, if it was among them.
    fn reap(&self) -> Result<Option<Event>> {
        let main = self.main.id().cast_signed();
        loop {
            let mut status = 0;
            #[expect(unsafe_code, reason = "nix has no status of a real-time signal")]
            // SAFETY: the status is valid for the call.
            let pid = unsafe { nix::libc::waitpid(-1, &raw mut status, nix::libc::WNOHANG) };
            let (code, signal) = match pid {
                0 => return Ok(None),
                pid if pid == main && nix::libc::WIFEXITED(status) => (Some(nix::libc::WEXITSTATUS(status)), None),
                pid if pid == main && nix::libc::WIFSIGNALED(status) => (None, Some(nix::libc::WTERMSIG(status))),
                ..0 => {
                    let e = Error::last_os_error();
                    return Err(Error::other(format!("wait for the first process: {e}")));
                }
                _ => continue,
            };
            return Ok(Some(Event::Ended {
                at: boot_now(),
                code,
                signal,
            }));
        }
    }

    fn stop(&mut self) -> Result<()> {
        match self.order.stop {
            Stop::Runtime {
                signal,
                grace_ms,
                kill: by,
                frozen,
                again_ms,
                to_all,
            } => {
                if frozen {
                    self.freeze(true)?;
                }
                let at = boot_now();
                let after = |ms: u32| at + u64::from(ms) * 1_000_000;
                self.kill_at = Some((after(grace_ms), by));
                self.again_at = again_ms.map(|ms| (after(ms), signal));
                self.send(at, signal)?;
                if to_all {
                    self.send_to_others(signal)?;
                }
                Ok(())
            }
            Stop::Force(by) => self.kill(by),
            Stop::Inside { signal } => self.signal_inside(signal, false),
            Stop::InsideAll { signal } => self.signal_inside(signal, true),
            Stop::Oom(_) => {
                let at = boot_now();
                self.kill_at = Some((at + 1_500_000_000, Kill::Cgroup));
                self.send(at, SIGTERM)
            }
            Stop::Stranger { .. } | Stop::Exit | Stop::Fault | Stop::Two { .. } => Ok(()),
        }
    }

    /// One of two deeds.
    fn act(&mut self, is_first: bool) -> Result<()> {
        let Stop::Two { first, second, .. } = self.order.stop else {
            return Ok(());
        };
        match if is_first { first } else { second } {
            Deed::Runtime(SIGKILL) => self.kill(Kill::Main),
            Deed::Runtime(signal) => self.send(boot_now(), signal),
            Deed::Inside(signal) => self.signal_inside(signal, false),
            Deed::Stranger { .. } | Deed::Exit | Deed::Fault => Ok(()),
        }
    }

    /// Starts a process in the container that signals the first one, or all of the pid namespace.
    fn signal_inside(&self, signal: i32, all: bool) -> Result<()> {
        let me = std::env::current_exe()?.to_string_lossy().into_owned();
        let first = if self.order.pid_namespace { 1 } else { self.main.id() };
        let at = boot_now();
        let command = match all && self.order.pid_namespace {
            true => [me, "everybody".into(), signal.to_string()],
            false => [me, "stranger".into(), format!("{first} {signal}")],
        };
        if let Some(child) = self.enter(&command)? {
            emit(&Event::Inside {
                at,
                pid: child.id(),
                signal,
            });
        }
        Ok(())
    }

    /// Starts a process in the container, which is reaped as every other child is. None: the namespace has ended, before the process was there or
    /// just then.
    fn enter(&self, command: &[String]) -> Result<Option<Child>> {
        match start(self.order, command) {
            Ok(child) => Ok(Some(child)),
            Err(e) if matches!(e.kind(), ErrorKind::OutOfMemory | ErrorKind::BrokenPipe) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// As `runc kill --all` does it, but for the first process.
    fn send_to_others(&self, signal: i32) -> Result<()> {
        let pids = fs::read_to_string(self.order.cgroup.join("cgroup.procs"))?;
        for pid in pids
            .lines()
            .filter_map(|pid| pid.parse().ok())
            .filter(|pid| *pid != self.main.id())
        {
            match kill(pid, signal) {
                Err(e) if e.raw_os_error() != Some(nix::libc::ESRCH) => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// The next command in the container, or the end of one that hangs.
    fn probe(&mut self, probes: Probes) -> Result<()> {
        if let Some(hanging) = self.hanging.take() {
            hanging.kill()?;
        }
        let me = std::env::current_exe()?.to_string_lossy().into_owned();
        let command = match probes.does {
            Exec::True => vec!["true".to_owned()],
            Exec::False => vec!["false".to_owned()],
            Exec::Hangs => vec!["sleep".to_owned(), "1000".to_owned()],
            Exec::Connects => vec![me, "probe".into(), serde_json::to_string(&self.order.server)?],
        };
        let child = self.enter(&command)?;
        if probes.does == Exec::Hangs {
            self.hanging = child.map(|child| Process::of(child.id())).transpose()?;
        }
        Ok(())
    }

    fn send(&self, at: u64, signal: i32) -> Result<()> {
        let lives = match kill(self.main.id(), signal) {
            Ok(()) => true,
            Err(e) if e.raw_os_error() == Some(nix::libc::ESRCH) => false,
            Err(e) => return Err(e),
        };
        emit(&Event::Sent { at, signal, lives });
        Ok(())
    }

    fn kill(&mut self, by: Kill) -> Result<()> {
        match by {
            Kill::Main => self.send(boot_now(), SIGKILL)?,
            Kill::Cgroup => self.kill_cgroup(true)?,
        }
        if self.frozen {
            self.freeze(false)?;
        }
        Ok(())
    }

    fn kill_cgroup(&self, lives: bool) -> Result<()> {
        let at = boot_now();
        kill_all(&self.order.cgroup)?;
        emit(&Event::Sent {
            at,
            signal: SIGKILL,
            lives,
        });
        Ok(())
    }

    /// Returns when the kernel confirms that the cgroup is frozen, or thawed.
    fn freeze(&mut self, frozen: bool) -> Result<()> {
        self.frozen = frozen;
        fs::write(self.order.cgroup.join("cgroup.freeze"), if frozen { "1" } else { "0" })?;
        let wanted = if frozen { "frozen 1" } else { "frozen 0" };
        let events = self.order.cgroup.join("cgroup.events");
        let confirmed = || Ok::<_, Error>(fs::read_to_string(&events)?.lines().any(|line| line == wanted).then_some(()));
        let late = || Error::new(ErrorKind::TimedOut, format!("no `{wanted}` in cgroup.events"));
        found_within(PATIENCE, confirmed)?.ok_or_else(late)
    }
}

/// By one write, or before Linux 5.14, which has no file for it, one process after the other as runc does: again until all are gone, because
/// one may fork meanwhile.
fn kill_all(cgroup: &Path) -> Result<()> {
    match fs::write(cgroup.join("cgroup.kill"), "1") {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) && cgroup.exists() => {}
        done => return done,
    }
    let mut killed = BTreeSet::new();
    loop {
        let pids = fs::read_to_string(cgroup.join("cgroup.procs"))?;
        let new: Vec<u32> = pids
            .lines()
            .filter_map(|pid| pid.parse().ok())
            .filter(|pid| killed.insert(*pid))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        for pid in new {
            match kill(pid, SIGKILL) {
                Err(e) if e.raw_os_error() != Some(nix::libc::ESRCH) => return Err(e),
                _ => {}
            }
        }
    }
}

/// Removes the cgroup once it is empty, and the slice with the last one.
fn remove(cgroup: &Path) -> Result<()> {
    let (mut attempt, mut last) = (0, None);
    let removed = found_within(PATIENCE, || {
        match fs::remove_dir(cgroup) {
            Ok(()) => return Ok(Some(())),
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Some(())),
            Err(e) => last = Some(e),
        }
        // Zombies of the host's pid namespace are this process's children.
        while !matches!(
            waitpid(None, Some(WaitPidFlag::WNOHANG)),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD)
        ) {}
        attempt += 1;
        if attempt > 200 {
            let _ = kill_all(cgroup);
        }
        Ok::<_, Error>(None)
    })?;
    match (removed, last) {
        (None, Some(error)) => Err(error),
        _ => Ok(()),
    }
}
