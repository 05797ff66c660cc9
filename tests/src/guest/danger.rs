//! Events that panic a kernel whose probes are careless: group exits (the kernel delivers a signal without a siginfo), the exit
//! of a namespace's init with children and an OOM kill (its signal's siginfo is the number 1). Each happens inside a cgroup
//! that the agent takes for a container's, and more than once: on the kernels that panic, one of these is enough.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::libc::{SIGABRT, SIGKILL, SIGTERM};
use nix::sched::{CloneFlags, unshare};

use crate::cgroup::{Mounts, Scope};
use crate::sys::kill;

const TIMES: u32 = 10;
const THREADS: usize = 8;
/// Time for children to start: the exit of a namespace's init kills them in any state, so the exact time does not matter.
const SETTLE: Duration = Duration::from_millis(100);
/// Bytes; for a process that is small and stops at nothing.
const MEMORY: u64 = 24 << 20;

pub struct Danger {
    pub name: &'static str,
    how: &'static str,
    end: End,
}

enum End {
    ItsOwn,
    /// Sent once it is ready.
    Signal(i32),
    /// The limit of its cgroup, which takes all that is in there.
    MemoryLimit,
    /// The machine has no memory left, or the OOM killer is called as if it had none.
    OutOfMemory,
}

pub const ALL: [Danger; 8] = [
    Danger {
        name: "a process of many threads exits",
        how: "threads-exit",
        end: End::ItsOwn,
    },
    Danger {
        name: "a process of many threads is terminated",
        how: "threads-wait",
        end: End::Signal(SIGTERM),
    },
    Danger {
        name: "a process of many threads is killed",
        how: "threads-wait",
        end: End::Signal(SIGKILL),
    },
    Danger {
        name: "a process of many threads aborts",
        how: "threads-wait",
        end: End::Signal(SIGABRT),
    },
    Danger {
        name: "init of a pid namespace exits before its children",
        how: "init-exits",
        end: End::ItsOwn,
    },
    Danger {
        name: "init of a pid namespace is killed before its children",
        how: "init-waits",
        end: End::Signal(SIGKILL),
    },
    Danger {
        name: "a container of several processes is out of memory",
        how: "eats-with-children",
        end: End::MemoryLimit,
    },
    Danger {
        name: "the machine is out of memory",
        how: "threads-wait",
        end: End::OutOfMemory,
    },
];

impl Danger {
    /// # Errors
    /// Something could not be played. A kernel that panics prints nothing any more.
    pub fn play(&self) -> anyhow::Result<()> {
        for _ in 0..TIMES {
            let scope = Container::new(&crate::sys::random_hex(32)?, self.limit())?;
            let mut victim = start(self.how, Stdio::piped())?;
            scope.0.join(victim.id())?;
            // It begins when it is where it belongs.
            drop(victim.stdin.take());
            match self.end {
                End::ItsOwn | End::MemoryLimit => {}
                End::Signal(signal) => {
                    let target = ready(&mut victim)?;
                    kill(target, signal).with_context(|| format!("send signal {signal} to {target}"))?;
                }
                End::OutOfMemory => {
                    let target = ready(&mut victim)?;
                    fs::write(format!("/proc/{target}/oom_score_adj"), "1000").context("make it the first to go")?;
                    fs::write("/proc/sysrq-trigger", "f").context("call the OOM killer")?;
                }
            }
            let status = victim.wait()?;
            if matches!(self.end, End::MemoryLimit | End::OutOfMemory) {
                ensure!(status.signal() == Some(SIGKILL), "the OOM killer left it alone: {status}");
            }
        }
        Ok(())
    }

    fn limit(&self) -> Option<u64> {
        matches!(self.end, End::MemoryLimit).then_some(MEMORY)
    }
}

/// One process of a container, which ends by itself.
///
/// # Errors
/// It cannot be played.
pub fn one_termination(id: &str) -> anyhow::Result<()> {
    let scope = Container::new(id, None)?;
    let mut victim = start("init-exits", Stdio::piped())?;
    scope.0.join(victim.id())?;
    drop(victim.stdin.take());
    victim.wait()?;
    Ok(())
}

/// The process that exits. Exit code.
pub fn victim(how: &str) -> i32 {
    // Until it has been moved into its cgroup.
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    let threads = || {
        for _ in 0..THREADS {
            std::thread::spawn(|| {
                loop {
                    std::thread::park();
                }
            });
        }
        println!("{}", std::process::id());
    };
    match how {
        "threads-exit" => {
            threads();
            // exit_group, with all of them alive.
            std::process::exit(3)
        }
        "threads-wait" => threads(),
        "init-exits" | "init-waits" => return namespace(how),
        "leave" => {
            children();
            return 0;
        }
        "eats-with-children" => {
            children();
            allocate_all()
        }
        "serve" => return super::outside::serve(),
        "stay" => children(),
        "child" => {}
        how => {
            eprintln!("guest: unknown victim {how}");
            return 64;
        }
    }
    loop {
        std::thread::park();
    }
}

/// Makes a pid namespace and waits for its init, which leaves children behind.
fn namespace(how: &str) -> i32 {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWPID) {
        eprintln!("guest: unshare: {error}");
        return 1;
    }
    match start(if how == "init-exits" { "leave" } else { "stay" }, Stdio::null()) {
        Ok(mut init) => {
            if how == "init-waits" {
                settle();
                println!("{}", init.id());
            }
            init.wait().map_or(1, |_| 0)
        }
        Err(error) => {
            eprintln!("guest: {error:#}");
            1
        }
    }
}

/// Allocates memory until the OOM killer acts.
fn allocate_all() -> ! {
    let mut taken = Vec::new();
    loop {
        taken.push(vec![1_u8; 1 << 20]);
        std::hint::black_box(&taken);
    }
}

fn children() {
    for _ in 0..3 {
        if let Err(error) = start("child", Stdio::null()) {
            eprintln!("guest: {error:#}");
        }
    }
    settle();
}

fn settle() {
    // The subject is time: the children run meanwhile. The agent's result does not depend on it.
    sleep(SETTLE);
}

pub(super) fn start(how: &str, stdin: Stdio) -> anyhow::Result<Child> {
    // Not current_exe: in a pid namespace without its own /proc that is another program.
    Command::new("/bin/guest")
        .args(["victim", how])
        .stdin(stdin)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start the victim ({how})"))
}

/// The target of the signal: the pid that the victim prints when it is ready.
fn ready(victim: &mut Child) -> anyhow::Result<i32> {
    use std::io::BufRead;
    let mut line = String::new();
    let out = victim.stdout.take().context("its output is not a pipe")?;
    std::io::BufReader::new(out).read_line(&mut line)?;
    ensure!(!line.is_empty(), "it ended before it was ready");
    line.trim().parse().with_context(|| format!("it printed {line}"))
}

/// A cgroup that looks like a container's; gone when dropped.
pub(super) struct Container(Scope);

impl Container {
    /// With a limit of memory, in bytes, all of it goes where one process of it has to.
    pub(super) fn new(id: &str, limit: Option<u64>) -> anyhow::Result<Container> {
        let mounts = Mounts::find().context("find the cgroups")?;
        let name = format!("cri-containerd-{id}.scope");
        let scope = Container(Scope::create(&mounts, &name, limit).context("make a container's cgroup")?);
        // cgroup v1 has no such thing.
        let all = scope.0.home().join("memory.oom.group");
        if limit.is_some() && all.exists() {
            fs::write(all, "1").context("tie the container's processes together")?;
        }
        Ok(scope)
    }

    pub(super) fn join(&self, pid: u32) -> anyhow::Result<()> {
        self.0.join(pid).context("move a process into the container")
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Err(error) = self.0.remove() {
            eprintln!("guest: {error}");
        }
    }
}
