//! The probes, live on the running kernel. As root; a test that the machine cannot run is skipped, with the reason.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus as Status, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use epitaph::clock;
use epitaph::source::kernel::{Kernel, Loss, Options, announcement};
use epitaph_core::decode::decode;
use epitaph_core::event::{
    Armed, Client, Disposition, Event, ExitStatus, ProcessExit, SignalGenerate, SignalResult, Tcp, TcpOp, TcpState,
    UnseenSockets, si_code,
};
use epitaph_core::ids::{CallAbi, CgroupId, Pid, Signal, SystemCall};
use epitaph_core::input::{LossScope, ProbeState, SeenClients};
use epitaph_core::time::Boot;
use epitaph_ebpf::{Kind, watch};
use epitaph_tests::http::free_port;
use epitaph_tests::skip::skip;
use epitaph_tests::sys::after_name;
use epitaph_tests::timeout::until;
use nix::libc;
use nix::sys::signal::{self, kill};
use nix::time::{ClockId, clock_gettime};

const UNIFIED: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// Ends the test where it cannot run here.
macro_rules! need {
    ($what:expr, $reason:expr) => {
        match $what {
            Some(what) => what,
            None => {
                skip(&$crate::test_name(), $reason);
                return;
            }
        }
    };
}

// Behind the macro, which they use.
mod budgets;
mod depth;
mod ends;
mod loading;
mod moves;
mod refusals;
mod signals;
mod sockets;
mod v1;

/// Held by every test while its probes are loaded: shared, or exclusive by a test that must see no exits of others.
static MACHINE: RwLock<()> = RwLock::new(());

#[expect(dead_code, reason = "held, not read")]
enum Held {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// The probes and their records so far.
struct Probes {
    kernel: Kernel,
    seen: Vec<(Boot, Event)>,
    _machine: Held,
}

impl Probes {
    fn load() -> Option<Probes> {
        Self::with(&Options::default())
    }

    /// While no other test of this program runs: the probes see the whole machine, and each stop signal of another's arms.
    fn alone() -> Option<Probes> {
        Self::alone_with(&Options::default())
    }

    fn alone_with(options: &Options) -> Option<Probes> {
        let machine = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        Self::holding(Held::Alone(machine), options)
    }

    fn oldest() -> Option<Probes> {
        Self::with(&Options {
            oldest: true,
            ..Options::default()
        })
    }

    fn with(options: &Options) -> Option<Probes> {
        let machine = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        Self::holding(Held::Shared(machine), options)
    }

    fn holding(machine: Held, options: &Options) -> Option<Probes> {
        if !nix::unistd::geteuid().is_root() {
            return None;
        }
        let kernel = Kernel::load(options).unwrap_or_else(|error| panic!("{error}"));
        Some(Probes {
            kernel,
            seen: Vec::new(),
            _machine: machine,
        })
    }

    /// Of which clients these probes show that they were refused.
    fn clients(&self) -> SeenClients {
        let mut states = self.kernel.probes().iter();
        let found = states.find_map(|(name, state)| (name == ProbeState::REFUSALS).then(|| state.clients()));
        found.unwrap_or(SeenClients::None)
    }

    fn drain(&mut self) {
        let seen = &mut self.seen;
        self.kernel
            .drain(|bytes| seen.push(decode(bytes).unwrap_or_else(|error| panic!("{error}: {bytes:?}"))));
    }

    /// The first event that `pick` takes, of those seen and those to come.
    fn wait<T>(&mut self, what: &str, pick: impl Fn(&Event) -> Option<T>) -> T {
        let found = until(what, || {
            self.drain();
            let found = self.seen.iter().find_map(|(_, event)| pick(event));
            // Not the losses: who reads them takes them.
            Ok(found.ok_or_else(|| format!("of {} events the last: {:?}", self.seen.len(), self.seen.last())))
        });
        found.unwrap_or_else(|error| panic!("{error:#}"))
    }

    fn signal_to(&mut self, pid: u32, number: i32) -> SignalGenerate {
        self.wait(&format!("signal {number} to {pid}"), |event| match event {
            Event::SignalGenerate(s) if s.target.tgid == Pid(pid) && i32::from(s.signal.number()) == number => Some(*s),
            _ => None,
        })
    }

    fn exit_of(&mut self, pid: u32) -> ProcessExit {
        self.wait(&format!("the end of {pid}"), |event| exit_of(event, pid))
    }

    fn tcp(&mut self, what: &str, pick: impl Fn(&Tcp) -> bool) -> Tcp {
        self.wait(what, |event| match event {
            Event::Tcp(tcp) if pick(tcp) => Some(*tcp),
            _ => None,
        })
    }

    /// Everything until now: an event of our own making is the mark.
    fn settle(&mut self) {
        let mark = Command::new("true").spawn().and_then(|mut child| {
            kill(pid(child.id()), signal::Signal::SIGUSR1)?;
            child.wait()?;
            Ok(child.id())
        });
        let mark = mark.expect("spawn the mark");
        self.signal_to(mark, 10);
    }

    fn count(&self, pick: impl Fn(&Event) -> bool) -> usize {
        self.seen.iter().filter(|(_, event)| pick(event)).count()
    }
}

fn exit_of(event: &Event, pid: u32) -> Option<ProcessExit> {
    match event {
        Event::ProcessExit(exit) if exit.task.tgid == Pid(pid) => Some(*exit),
        _ => None,
    }
}

/// A cgroup that is removed at the end of the test.
struct Cgroup(PathBuf);

impl Cgroup {
    fn v2() -> Option<Cgroup> {
        let root = UNIFIED
            .iter()
            .map(Path::new)
            .find(|root| root.join("cgroup.controllers").exists())?;
        Some(Self::at(root))
    }

    fn v1(controller: &str) -> Option<Cgroup> {
        let root = Path::new("/sys/fs/cgroup").join(controller);
        root.join("cgroup.procs").exists().then(|| Self::at(&root))
    }

    fn at(root: &Path) -> Cgroup {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let dir = root.join(format!(
            "epitaph-probes-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir(&dir).expect("make a cgroup");
        Cgroup(dir)
    }

    fn child(&self, name: &str) -> Cgroup {
        let dir = self.0.join(name);
        fs::create_dir(&dir).expect("make a cgroup");
        Cgroup(dir)
    }

    fn id(&self) -> CgroupId {
        CgroupId::v2(fs::metadata(&self.0).expect("stat a cgroup").ino())
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap_or_else(|error| panic!("write {file}: {error}"));
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let removed = until(&format!("{} to be empty", self.0.display()), || {
            Ok(fs::remove_dir(&self.0).map_err(|error| error.to_string()))
        });
        if let Err(error) = removed {
            eprintln!("left behind: {error:#}");
        }
    }
}

/// A `probe-player`; killed and waited for at the end.
struct Player {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Player {
    fn start(args: &[&str]) -> Player {
        let mut child = Command::new(env!("CARGO_BIN_EXE_probe-player"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the player");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Player { child, out }
    }

    /// A player that printed `ready`, with the rest of that line.
    fn ready(args: &[&str]) -> (Player, String) {
        let mut player = Self::start(args);
        let line = player.line();
        let rest = line
            .strip_prefix("ready")
            .unwrap_or_else(|| panic!("player printed {line:?}"))
            .trim()
            .to_owned();
        (player, rest)
    }

    fn in_cgroup(cgroup: &Cgroup, role: &str) -> Player {
        Self::ready(&["--cgroup", cgroup.0.to_str().expect("utf-8"), role]).0
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("read the player");
        line
    }

    fn order(&mut self) {
        self.child
            .stdin
            .as_mut()
            .expect("piped")
            .write_all(b"\n")
            .expect("write to the player");
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn kill(&self, signal: signal::Signal) {
        kill(pid(self.pid()), signal).expect("send a signal");
    }

    fn wait(&mut self) -> Status {
        self.child.wait().expect("wait for the player")
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In full, as the list of allowed skips has it.
fn test_name() -> String {
    std::thread::current().name().unwrap_or("probes").to_owned()
}

fn pid(pid: u32) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(pid.cast_signed())
}

/// As wait(2) returned the status to its parent.
fn as_event(status: Status) -> ExitStatus {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitStatus::Exited(u8::try_from(code).expect("8 bits")),
        (_, Some(number)) => ExitStatus::Signaled {
            signal: Signal::new(number.cast_unsigned()).expect("a signal"),
            core_dumped: status.core_dumped(),
        },
        _ => panic!("neither exited nor signalled: {status:?}"),
    }
}

fn own_cgroup_is_root() -> bool {
    fs::read_to_string("/proc/self/cgroup").is_ok_and(|text| text.lines().any(|line| line == "0::/"))
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let found = until(what, || Ok(look().ok_or_else(|| "nothing".to_owned())));
    found.unwrap_or_else(|error| panic!("{error:#}"))
}

fn descendant(of: u32) -> u32 {
    wait_for("a child", || children_of(of).first().copied())
}

fn children_of(of: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        after_name(&stat)?.split(' ').nth(1)?.parse().ok()
    };
    let pids = fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| parent(pid) == Some(of)).collect()
}
