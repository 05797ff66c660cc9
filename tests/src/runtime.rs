//! The stand-in for a container runtime: one small process per container, as a containerd shim is.
//!
//! `run` starts the shim and exits, so the shim's parent is the machine's init (or a subreaper), as in production: the process
//! that plays the stories is not an ancestor of the shim. The shim makes the cgroup, starts the main process in it (in its own
//! pid namespace if the story wants one) the way runc does: an init that waits until it has been moved into the cgroup, then
//! executes. The shim reads orders on stdin (`stop`; `kill`, for the SIGKILL that its grace period would bring later), prints its
//! actions on stdout, one JSON object per line, and ends the container when stdin closes. The shim is single-threaded: a process
//! that has unshared its pid namespace can make no threads.

use std::fs::File;
use std::io::{Error, PipeReader, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::cgroup::{Mounts, Scope};
use crate::socket_unit::{INHERITED, SocketUnit};
use crate::sys::{boot_now, kill, set_default};

/// What to run, and how to stop it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Name of the cgroup below the slice: `cri-containerd-<64 hex>.scope`, `<name>.service`.
    pub scope: String,
    /// Program and arguments.
    pub command: Vec<String>,
    pub pid_namespace: bool,
    /// Bytes.
    pub memory_limit: Option<u64>,
    pub stop: Stop,
    pub mounts: Mounts,
    /// The main process is ready once connections to this address are accepted; None: once it prints so.
    pub listens: Option<SocketAddr>,
    /// Working directory of the main process: where a core would go.
    pub directory: PathBuf,
}

/// What `stop` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    /// Nothing: the container exits by itself, or another process ends it.
    Wait,
    /// The stop signal, then the kill.
    Signal {
        signal: i32,
        /// From the signal to the kill.
        grace: Duration,
        /// Freeze the cgroup before the signal, thaw it after the kill.
        frozen: bool,
        kill: Kill,
        others: Others,
    },
    /// The kill at once.
    Force(Kill),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kill {
    /// SIGKILL to the main process.
    Main,
    /// `cgroup.kill`.
    Cgroup,
}

/// What the processes other than the main one get in a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Others {
    /// Nothing, from a container's runtime.
    Nothing,
    /// The stop signal, just after the main process; the grace is theirs, too: systemd, with `KillMode=control-group`.
    Signal,
    /// SIGKILL once the main process has exited: systemd, with `KillMode=mixed`.
    Kill,
}

/// What the shim did, in order. Times are `CLOCK_BOOTTIME` nanoseconds, taken before the deed where it is the shim's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Did {
    Created {
        at: u64,
        shim: u32,
        cgroup_id: u64,
        cgroup: String,
    },
    /// The main process was moved into the cgroup and may execute. `membership` is its `/proc/PID/cgroup`, `ns_pid` the last
    /// of its NSpid: what it sees itself.
    Started {
        at: u64,
        pid: u32,
        ns_pid: u32,
        membership: String,
    },
    /// The main process (or its child) is ready; with the address that it serves, if any.
    Ready {
        at: u64,
        address: Option<String>,
    },
    Frozen {
        at: u64,
    },
    Signalled {
        at: u64,
        signal: i32,
        sender: u32,
    },
    Killed {
        at: u64,
        by: Kill,
        sender: u32,
    },
    /// The main process was reaped. Exactly one of `code` and `signal`.
    Ended {
        at: u64,
        code: Option<i32>,
        signal: Option<i32>,
        core_dumped: bool,
    },
    /// Another process was reaped, whose parent had exited.
    OtherEnded {
        at: u64,
        pid: u32,
        code: Option<i32>,
        signal: Option<i32>,
    },
    Removed {
        at: u64,
    },
    Failed {
        what: String,
    },
}

/// Longest runtime of a container, even if its player hangs: longer than any wait of a test for an event.
const LIFETIME_NS: u64 = 180_000_000_000;
const ROUND: u16 = 5;

/// As a runtime leaves a container's signals. A shell starts what runs in the background with SIGINT and SIGQUIT ignored, and a program
/// inherits that.
fn default_interrupts() -> Result<()> {
    [libc::SIGINT, libc::SIGQUIT].into_iter().try_for_each(set_default)
}

/// Entry point of the `stand-in-runtime` binary; its exit code.
pub fn main(args: &[String]) -> i32 {
    let result = match args {
        [verb, spec] if verb == "run" => run(spec),
        [verb, spec] if verb == "shim" => {
            let result = serde_json::from_str(spec).map_err(Error::from).and_then(|spec: Spec| {
                default_interrupts()?;
                Shim::new(spec)?.live()
            });
            if let Err(e) = &result {
                emit(&Did::Failed { what: e.to_string() });
            }
            result
        }
        [verb, directory, command @ ..] if verb == "init" && !command.is_empty() => Err(init(directory, command)),
        _ => Err(Error::other(
            "usage: stand-in-runtime run SPEC (JSON, see epitaph_tests::runtime::Spec)",
        )),
    };
    match result {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("stand-in-runtime: {e}");
            1
        }
    }
}

fn run(spec: &str) -> Result<()> {
    // A process group of its own: Ctrl-C at the player's terminal reaches the shim as the end of stdin, which it can tidy after.
    Command::new(std::env::current_exe()?)
        .args(["shim", spec])
        .process_group(0)
        .spawn()
        .map(drop)
}

/// Waits until the shim has moved this process into its cgroup, then becomes the container's program.
fn init(directory: &str, command: &[String]) -> Error {
    let mut go = [0];
    if let Err(e) = std::io::stdin().read_exact(&mut go) {
        return Error::new(e.kind(), format!("start {}: the shim never sent `go`: {e}", command[0]));
    }
    Command::new(&command[0])
        .args(&command[1..])
        .current_dir(directory)
        .stdin(Stdio::null())
        .exec()
}

struct Shim {
    spec: Spec,
    scope: Scope,
    main: Child,
    /// The main process's stdout; None once it is closed.
    output: Option<Lines>,
    orders: Option<Lines>,
    /// When to kill, after the stop signal.
    kill_at: Option<(u64, Kill)>,
    frozen: bool,
    ready: bool,
    socket: Option<SocketUnit>,
}

impl Shim {
    fn new(spec: Spec) -> Result<Shim> {
        let socket = spec.command.iter().any(|word| word == INHERITED);
        let socket = socket.then(SocketUnit::listen).transpose()?;
        let scope = Scope::create(&spec.mounts, &spec.scope, spec.memory_limit)?;
        match Shim::start(&spec, &scope, socket.as_ref()) {
            Ok((main, output)) => Ok(Shim {
                spec,
                scope,
                main,
                output: Some(Lines::new(output.into())),
                orders: Some(Lines::new(std::io::stdin().as_fd().try_clone_to_owned()?)),
                kill_at: None,
                frozen: false,
                ready: false,
                socket,
            }),
            Err(e) => {
                let _ = scope.remove();
                Err(e)
            }
        }
    }

    fn start(spec: &Spec, scope: &Scope, socket: Option<&SocketUnit>) -> Result<(Child, PipeReader)> {
        emit(&Did::Created {
            at: boot_now(),
            shim: std::process::id(),
            cgroup_id: scope.id()?,
            cgroup: scope.path(),
        });
        // As containerd's shim and conmon: orphans without an init of their own become its children.
        prctl::set_child_subreaper(true)?;
        if spec.pid_namespace {
            unshare(CloneFlags::CLONE_NEWPID).map_err(|e| Error::other(format!("unshare the pid namespace: {e}")))?;
        }
        let (output, stdout) = std::io::pipe()?;
        let command = socket.map_or_else(|| spec.command.clone(), |socket| socket.handed_to(&spec.command));
        let mut main = Command::new(std::env::current_exe()?)
            .arg("init")
            .arg(&spec.directory)
            .args(command)
            .stdin(Stdio::piped())
            .stdout(stdout)
            .spawn()?;
        let pid = main.id();
        let go = scope.join(pid).and_then(|()| {
            let membership = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
            emit(&Did::Started {
                at: boot_now(),
                pid,
                ns_pid: ns_pid(&status),
                membership,
            });
            main.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(b"g"))
        });
        if let Err(e) = go {
            let _ = main.kill();
            let _ = main.wait();
            return Err(e);
        }
        Ok((main, output))
    }

    fn live(mut self) -> Result<()> {
        let result = self.watch().and_then(|()| match &self.socket {
            Some(socket) => socket.serve_until_closed(std::io::stdin().as_fd()),
            None => Ok(()),
        });
        if result.is_err() {
            let _ = self.main.kill();
            if self.frozen {
                let _ = self.scope.freeze(false);
            }
            let _ = self.main.wait();
        }
        self.scope.remove()?;
        emit(&Did::Removed { at: boot_now() });
        result
    }

    fn watch(&mut self) -> Result<()> {
        let start = boot_now();
        let pid = Pid::from_raw(self.main.id().cast_signed());
        loop {
            match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => {}
                Ok(status) => {
                    // Its last output may still be in the pipe.
                    self.receive(PollTimeout::ZERO)?;
                    emit(&ended(status));
                    return self.stop_others();
                }
                Err(e) => return Err(Error::other(format!("wait for the main process: {e}"))),
            }
            self.receive(PollTimeout::from(ROUND))?;
            if let Some(address) = self.spec.listens.filter(|_| !self.ready)
                && TcpStream::connect(address).is_ok()
            {
                self.take_line(&format!("ready {address}"));
            }
            if let Some((at, by)) = self.kill_at
                && boot_now() >= at
            {
                self.kill_at = None;
                self.kill(by)?;
            }
            if boot_now() - start > LIFETIME_NS {
                return Err(Error::other(
                    "the container still runs long after its story: no player stopped it",
                ));
            }
        }
    }

    /// Takes in orders and the container's output, or lets `timeout` pass.
    fn receive(&mut self, timeout: PollTimeout) -> Result<()> {
        let (mut order, mut printed) = (false, false);
        {
            let fds = [self.orders.as_ref().map(Lines::fd), self.output.as_ref().map(Lines::fd)];
            let mut polled: Vec<PollFd> = fds.iter().flatten().map(|&fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            match poll(&mut polled, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            let mut any = polled.iter().map(|p| p.any().unwrap_or(false));
            if fds[0].is_some() {
                order = any.next().unwrap_or(false);
            }
            if fds[1].is_some() {
                printed = any.next().unwrap_or(false);
            }
        }
        if printed && let Some(output) = &mut self.output {
            match output.read()? {
                None => self.output = None,
                Some(lines) => {
                    for line in lines {
                        self.take_line(&line);
                    }
                }
            }
        }
        if order && let Some(orders) = &mut self.orders {
            match orders.read()? {
                None => return Err(Error::other("the player is gone: ending the container")),
                Some(lines) => {
                    for line in lines {
                        match &*line {
                            "stop" => self.stop()?,
                            "kill" => self.kill_now()?,
                            _ => {}
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn take_line(&mut self, line: &str) {
        if let Some(address) = line.strip_prefix("ready")
            && !self.ready
        {
            self.ready = true;
            let address = address.trim();
            emit(&Did::Ready {
                at: boot_now(),
                address: (!address.is_empty()).then(|| address.to_owned()),
            });
        }
    }

    fn stop(&mut self) -> Result<()> {
        match self.spec.stop {
            Stop::Wait => Ok(()),
            Stop::Force(by) => self.kill(by),
            Stop::Signal {
                signal,
                grace,
                frozen,
                kill: by,
                others,
            } => {
                if frozen {
                    self.scope.freeze(true)?;
                    self.frozen = true;
                    emit(&Did::Frozen { at: boot_now() });
                }
                let at = boot_now();
                self.kill_at = Some((at + u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX / 2), by));
                kill(self.main.id().cast_signed(), signal)?;
                if others == Others::Signal {
                    self.signal_others(signal)?;
                }
                // After the signal: a test that waits for this line acts on a container that has it.
                emit(&Did::Signalled {
                    at,
                    signal,
                    sender: std::process::id(),
                });
                Ok(())
            }
        }
    }

    /// The end of the grace period, if the stop signal was sent.
    fn kill_now(&mut self) -> Result<()> {
        match self.kill_at.take() {
            Some((_, by)) => self.kill(by),
            None => Ok(()),
        }
    }

    fn signal_others(&self, signal: i32) -> Result<()> {
        let main = self.main.id();
        for pid in self.scope.processes()?.into_iter().filter(|pid| *pid != main) {
            match kill(pid.cast_signed(), signal) {
                // It has exited meanwhile.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// What systemd does, once the main process has exited, with the others, which are children of this process then.
    fn stop_others(&mut self) -> Result<()> {
        let others = match self.spec.stop {
            Stop::Signal { others, .. } => others,
            Stop::Wait | Stop::Force(_) => Others::Nothing,
        };
        match others {
            Others::Nothing => return Ok(()),
            Others::Signal => {}
            Others::Kill => self.signal_others(libc::SIGKILL)?,
        }
        loop {
            match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => {}
                Ok(status) => {
                    emit(&other_ended(status));
                    continue;
                }
                Err(Errno::ECHILD) => return Ok(()),
                Err(e) => return Err(Error::other(format!("wait for the other processes: {e}"))),
            }
            if self.kill_at.take_if(|(at, _)| boot_now() >= *at).is_some() {
                self.signal_others(libc::SIGKILL)?;
            }
            self.receive(PollTimeout::from(ROUND))?;
        }
    }

    fn kill(&mut self, by: Kill) -> Result<()> {
        let at = boot_now();
        match by {
            Kill::Main => kill(self.main.id().cast_signed(), libc::SIGKILL)?,
            Kill::Cgroup => self.scope.kill()?,
        }
        emit(&Did::Killed {
            at,
            by,
            sender: std::process::id(),
        });
        if self.frozen {
            self.scope.freeze(false)?;
            self.frozen = false;
        }
        Ok(())
    }
}

fn ended(status: WaitStatus) -> Did {
    let at = boot_now();
    match status {
        WaitStatus::Exited(_, code) => Did::Ended {
            at,
            code: Some(code),
            signal: None,
            core_dumped: false,
        },
        WaitStatus::Signaled(_, signal, core_dumped) => Did::Ended {
            at,
            code: None,
            signal: Some(signal as i32),
            core_dumped,
        },
        other => Did::Failed {
            what: format!("wait for the main process: unexpected {other:?}"),
        },
    }
}

fn other_ended(status: WaitStatus) -> Did {
    let pid = status.pid().map_or(0, |pid| pid.as_raw().cast_unsigned());
    match ended(status) {
        Did::Ended { at, code, signal, .. } => Did::OtherEnded { at, pid, code, signal },
        other => other,
    }
}

/// Last number of `NSpid`: the pid in the process's own namespace; 0 if the kernel does not report it.
fn ns_pid(status: &str) -> u32 {
    let line = status.lines().find_map(|l| l.strip_prefix("NSpid:"));
    line.and_then(|l| l.split_whitespace().last())
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

fn emit(did: &Did) {
    if let Ok(line) = serde_json::to_string(did) {
        // The player may be gone; the container's end is what matters then.
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}

/// Lines from a file descriptor that is read only if poll(2) reports data.
struct Lines {
    from: File,
    rest: String,
}

impl Lines {
    fn new(from: OwnedFd) -> Lines {
        Lines {
            from: File::from(from),
            rest: String::new(),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }

    /// The lines completed by what is there; None at the end.
    fn read(&mut self) -> Result<Option<Vec<String>>> {
        let mut bytes = [0; 4096];
        let len = self.from.read(&mut bytes)?;
        if len == 0 {
            return Ok(None);
        }
        self.rest.push_str(&String::from_utf8_lossy(&bytes[..len]));
        let mut lines: Vec<String> = self.rest.split('\n').map(str::to_owned).collect();
        self.rest = lines.pop().unwrap_or_default();
        Ok(Some(lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_pid_is_the_last() {
        assert_eq!(ns_pid("Name:\tx\nNSpid:\t4711\t12\t1\n"), 1);
        assert_eq!(ns_pid("Name:\tx\n"), 0);
    }
}
