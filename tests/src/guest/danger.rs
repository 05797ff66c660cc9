//! What panics a kernel whose probes are careless: group exits (the kernel delivers a signal without a siginfo) and the end of a
//! namespace's init with children (it makes one whose siginfo is the number 1). Each happens inside a cgroup that the agent
//! takes for a container's, and more than once: on the kernels that panic, one of these is enough.

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
/// For children to come to rest: a namespace's end takes them with it wherever they are, so nothing hangs on this.
const SETTLE: Duration = Duration::from_millis(100);

pub struct Danger {
    pub name: &'static str,
    how: &'static str,
    /// Sent once it is ready; none where it ends by itself.
    signal: Option<i32>,
}

pub const ALL: [Danger; 6] = [
    Danger {
        name: "a process of many threads exits",
        how: "threads-exit",
        signal: None,
    },
    Danger {
        name: "a process of many threads is told to end",
        how: "threads-wait",
        signal: Some(SIGTERM),
    },
    Danger {
        name: "a process of many threads is killed",
        how: "threads-wait",
        signal: Some(SIGKILL),
    },
    Danger {
        name: "a process of many threads aborts",
        how: "threads-wait",
        signal: Some(SIGABRT),
    },
    Danger {
        name: "init of a pid namespace exits before its children",
        how: "init-exits",
        signal: None,
    },
    Danger {
        name: "init of a pid namespace is killed before its children",
        how: "init-waits",
        signal: Some(SIGKILL),
    },
];

impl Danger {
    /// # Errors
    /// Something could not be played. A kernel that does not stand it says nothing any more.
    pub fn play(&self) -> anyhow::Result<()> {
        for _ in 0..TIMES {
            let scope = Container::new(&crate::sys::random_hex(32)?)?;
            let mut victim = start(self.how, Stdio::piped())?;
            scope.0.join(victim.id())?;
            // It begins when it is where it belongs.
            drop(victim.stdin.take());
            if let Some(signal) = self.signal {
                let target = ready(&mut victim)?;
                kill(target, signal).with_context(|| format!("send signal {signal} to {target}"))?;
            }
            victim.wait()?;
        }
        Ok(())
    }
}

/// One process of a container, which ends by itself.
///
/// # Errors
/// It cannot be played.
pub fn one_death(id: &str) -> anyhow::Result<()> {
    let scope = Container::new(id)?;
    let mut victim = start("init-exits", Stdio::piped())?;
    scope.0.join(victim.id())?;
    drop(victim.stdin.take());
    victim.wait()?;
    Ok(())
}

/// The process that dies. Exit code.
pub fn die(how: &str) -> i32 {
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
        "stay" => children(),
        "child" => {}
        how => {
            eprintln!("guest: no way to die called {how}");
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
                // Long enough for its children, and the agent sees no worse a death where it was not.
                sleep(SETTLE);
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

fn children() {
    for _ in 0..3 {
        if let Err(error) = start("child", Stdio::null()) {
            eprintln!("guest: {error:#}");
        }
    }
    sleep(SETTLE);
}

fn start(how: &str, stdin: Stdio) -> anyhow::Result<Child> {
    // Not current_exe: in a pid namespace without its own /proc that is somebody else.
    Command::new("/bin/guest")
        .args(["die", how])
        .stdin(stdin)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start the one to die ({how})"))
}

/// Who is to get the signal: the pid that the victim prints when it is ready.
fn ready(victim: &mut Child) -> anyhow::Result<i32> {
    use std::io::BufRead;
    let mut line = String::new();
    let out = victim.stdout.take().context("its output is no pipe")?;
    std::io::BufReader::new(out).read_line(&mut line)?;
    ensure!(!line.is_empty(), "it ended before it was ready");
    line.trim().parse().with_context(|| format!("it said {line}"))
}

/// A cgroup that looks like a container's; gone when dropped.
struct Container(Scope);

impl Container {
    fn new(id: &str) -> anyhow::Result<Container> {
        let mounts = Mounts::find().context("find the cgroups")?;
        let scope = Scope::create(&mounts, &format!("cri-containerd-{id}.scope"), None).context("make a container's cgroup")?;
        Ok(Container(scope))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Err(error) = self.0.remove() {
            eprintln!("guest: {error}");
        }
    }
}
