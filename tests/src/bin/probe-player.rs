//! A process that does one thing for the probes' tests: `probe-player [--cgroup DIR]... [--network FILE] ROLE`. The process prints `ready` (and
//! other values that the test needs) on its standard output, and exits when done or when its standard input closes.
#![expect(unsafe_code, reason = "signal handlers and single threads that exit have no safe form")]

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd, FromRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, fs, io, thread};

use anyhow::Context as _;
use epitaph_tests::segments::Segments;
use epitaph_tests::sys::{handle, until_alone};
use epitaph_tests::timeout::until;
use epitaph_tests::victim::OVER;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction, signal};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, listen as listen_at, setsockopt, socket, sockopt,
};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, setsid};

fn main() -> anyhow::Result<()> {
    let mut args = env::args().skip(1);
    let mut role = args.next().unwrap_or_default();
    while role.starts_with("--") {
        let place = args.next().unwrap_or_default();
        match role.as_str() {
            "--network" => setns(fs::File::open(place)?, CloneFlags::CLONE_NEWNET)?,
            _ => fs::write(format!("{place}/cgroup.procs"), "0")?,
        }
        role = args.next().unwrap_or_default();
    }
    match role.as_str() {
        "default" => wait(),
        "ignore" => {
            // SAFETY: SIG_IGN runs no code.
            unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) }?;
            wait()
        }
        "handler" => {
            let _held: Vec<OwnedFd> = match args.next().as_deref() {
                Some("unix") => vec![unix_listener()?.into()],
                Some("udp") => vec![UdpSocket::bind("127.0.0.1:0")?.into()],
                Some("tcp") => vec![TcpListener::bind("127.0.0.1:0")?.into()],
                Some("udp-after-100") => after_files(100, UdpSocket::bind("127.0.0.1:0")?)?,
                Some("udp-at-100") => vec![moved_to(100, UdpSocket::bind("127.0.0.1:0")?)?],
                _ => Vec::new(),
            };
            handle_with_nothing(Signal::SIGTERM)?;
            wait()
        }
        "block" => {
            SigSet::from(Signal::SIGTERM).thread_block()?;
            wait()
        }
        "sigwait" => {
            // Always blocks both signals, and waits for one of them.
            let awaited = args.next().map_or(Ok(Signal::SIGTERM), |name| name.parse())?;
            SigSet::from_iter([Signal::SIGTERM, Signal::SIGHUP]).thread_block()?;
            emit("ready")?;
            SigSet::from(awaited).wait()?;
            emit("read")?;
            io::stdin().lock().lines().for_each(drop);
            Ok(())
        }
        "raise-again" => {
            extern "C" fn again(number: libc::c_int) {
                // SAFETY: async-signal-safe. Blocked until the handler returns.
                unsafe { libc::raise(number) };
            }
            // SAFETY: the handler only raises.
            unsafe {
                sigaction(
                    Signal::SIGTERM,
                    &SigAction::new(
                        SigHandler::Handler(again),
                        SaFlags::SA_RESTART | SaFlags::SA_RESETHAND,
                        SigSet::empty(),
                    ),
                )
            }?;
            wait()
        }
        "no-queue" => {
            setrlimit(Resource::RLIMIT_SIGPENDING, 0, 0)?;
            wait()
        }
        "queue" => {
            let mut number = || anyhow::Ok(args.next().unwrap_or_default().parse::<i32>()?);
            let (pid, signal) = (number()?, number()?);
            // SAFETY: reads its arguments only.
            let result = unsafe {
                let value: libc::sigval = std::mem::zeroed();
                libc::sigqueue(pid, signal, value)
            };
            anyhow::ensure!(result == 0, "sigqueue: {}", io::Error::last_os_error());
            Ok(())
        }
        "comm" => {
            fs::write("/proc/self/comm", b"a\x1b[31m\xff\\z")?;
            wait()
        }
        "announce" => {
            // As an agent does.
            queue_to_itself(libc::SIGWINCH, args.next().unwrap_or_default().parse()?)?;
            wait()
        }
        "forge-kernel-kill" => {
            const SI_KERNEL: i32 = 128;
            queue_to_itself(libc::SIGKILL, SI_KERNEL)?;
            wait()
        }
        "cpu-limit" => {
            // Both limits: the kernel sends SIGKILL, not SIGXCPU.
            setrlimit(Resource::RLIMIT_CPU, 1, 1)?;
            loop {
                std::hint::spin_loop();
            }
        }
        "seccomp" => {
            let action = match args.next().as_deref() {
                Some("trap") => libc::SECCOMP_RET_TRAP,
                _ => libc::SECCOMP_RET_KILL_PROCESS,
            };
            refuse_getppid(action)?;
            emit("ready")?;
            // SAFETY: takes nothing.
            unsafe { libc::getppid() };
            anyhow::bail!("getppid(2) was not refused")
        }
        "leader-first" => {
            thread::spawn(|| {
                let _ = until_alone();
                exit_thread(0)
            });
            exit_thread(4)
        }
        "leader-last" => {
            for _ in 0..4 {
                thread::spawn(|| exit_thread(9));
            }
            until_alone()?;
            exit_thread(5)
        }
        "exit-group" => {
            for _ in 0..8 {
                thread::spawn(|| {
                    loop {
                        thread::park();
                    }
                });
            }
            thread::spawn(|| std::process::exit(7));
            loop {
                thread::park();
            }
        }
        "abort" => std::process::abort(),
        "hog" => {
            let mut held = Vec::new();
            loop {
                held.push(vec![1_u8; 1 << 20]);
            }
        }
        "serve" => serve(args.next()),
        "listen" => listen(&args.next().unwrap_or_default()),
        "share" => share(args.next().unwrap_or_default().parse()?),
        "connect" => args.try_for_each(|to| {
            // In both cases the kernel's result counts.
            let result = TcpStream::connect(to).map_or_else(|error| error.kind().to_string(), |_| "connected".to_owned());
            Ok(emit(&result)?)
        }),
        "storm" => {
            let count = args.next().unwrap_or_default().parse()?;
            storm(count, &args.collect::<Vec<_>>())
        }
        "exits" => {
            let count = args.next().unwrap_or_default().parse()?;
            // Each child has them, too, and has executed nothing.
            let _held = match args.next().as_deref() {
                Some("server") => server_with_files()?,
                _ => Vec::new(),
            };
            at_each_line(|| exits(count))
        }
        "holds" => {
            let kept = TcpListener::bind("127.0.0.1:0")?;
            emit("ready")?;
            for (line, what) in io::stdin().lock().lines().zip(args) {
                line?;
                emit(&holds(&what, &kept)?.to_string())?;
            }
            Ok(())
        }
        "churn" => {
            let count: u32 = args.next().unwrap_or_default().parse()?;
            at_each_line(|| (0..count).try_for_each(|_| Ok(TcpListener::bind("127.0.0.1:0").map(drop)?)))
        }
        "connects" => {
            let count: u32 = args.next().unwrap_or_default().parse()?;
            let to = args.next().unwrap_or_default();
            at_each_line(|| {
                (0..count).try_for_each(|_| match TcpStream::connect(&to) {
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
                    other => anyhow::bail!("a connect to {to}: {other:?}"),
                })
            })
        }
        "segments" => {
            let count: u32 = args.next().unwrap_or_default().parse()?;
            let mut segments = Segments::to(args.next().unwrap_or_default().parse()?)?;
            at_each_line(|| segments.send(count))
        }
        "aborts" => {
            let count: u32 = args.next().unwrap_or_default().parse()?;
            let listener = TcpListener::bind("127.0.0.1:0")?;
            at_each_line(|| (0..count).try_for_each(|_| abort_a_connection(&listener)))
        }
        "cgroups" => {
            let (count, path): (u32, _) = (args.next().unwrap_or_default().parse()?, args.next().unwrap_or_default());
            at_each_line(|| (0..count).try_for_each(|number| cgroup_with_an_exit(&format!("{path}{number:04}"))))
        }
        "inits" => {
            let count: u32 = args.next().unwrap_or_default().parse()?;
            at_each_line(|| (0..count).try_for_each(|_| init_with_a_child()))
        }
        "pretends" => {
            let count: u32 = args.next().unwrap_or_default().parse()?;
            fs::write("/proc/self/comm", "containerd-shim")?;
            at_each_line(|| (0..count).try_for_each(|_| stop_as_a_runtime()))
        }
        "requests" => {
            let count: usize = args.next().unwrap_or_default().parse()?;
            requests(count, &args.next().unwrap_or_default())
        }
        "hang-up" => hang_up(),
        "resize" => resize(args.next().is_some_and(|how| how == "handler")),
        other => anyhow::bail!("no role {other}"),
    }
}

fn wait() -> anyhow::Result<()> {
    emit("ready")?;
    io::stdin().lock().lines().for_each(drop);
    Ok(())
}

/// Prints `ready`, and `done` after each line that it was sent.
fn at_each_line(mut act: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    emit("ready")?;
    for line in io::stdin().lock().lines() {
        line?;
        act()?;
        emit("done")?;
    }
    Ok(())
}

/// At each line so many signals to children that ignore them, at full speed: one in each of the cgroups, or one in its own.
fn storm(count: usize, cgroups: &[String]) -> anyhow::Result<()> {
    let ignoring = |cgroup: Option<&String>| -> anyhow::Result<Child> {
        let mut command = Command::new(env::current_exe()?);
        if let Some(dir) = cgroup {
            command.args(["--cgroup", dir]);
        }
        let mut child = command.arg("ignore").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("piped")?).read_line(&mut line)?;
        anyhow::ensure!(line == "ready\n", "a child printed {line:?}");
        Ok(child)
    };
    let mut children = match cgroups {
        [] => vec![ignoring(None)?],
        some => some.iter().map(|dir| ignoring(Some(dir))).collect::<Result<_, _>>()?,
    };
    let pids: Vec<i32> = children.iter().map(|child| child.id().cast_signed()).collect();
    let ids: Vec<String> = pids.iter().map(i32::to_string).collect();
    emit(&format!("ready {}", ids.join(" ")))?;
    for line in io::stdin().lock().lines() {
        line?;
        pids.iter()
            .cycle()
            .take(count)
            .try_for_each(|&pid| epitaph_tests::sys::kill(pid, libc::SIGTERM))?;
        emit("done")?;
    }
    for child in &mut children {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

/// At each line so many requests to this address, which stay open: half of them with a head that never ends, half of them with an
/// answer that is not read.
fn requests(count: usize, to: &str) -> anyhow::Result<()> {
    /// Below the usual limit of open files.
    const OPEN: usize = 800;
    let endless = format!("GET /metrics HTTP/1.1\r\nx: {}", "a".repeat(400 << 10));
    let mut open = VecDeque::with_capacity(OPEN);
    let mut texts = [endless.as_str(), "GET /metrics HTTP/1.1\r\nhost: agent\r\n\r\n"]
        .into_iter()
        .cycle();
    at_each_line(|| {
        for text in texts.by_ref().take(count) {
            let mut stream = TcpStream::connect(to)?;
            stream.set_nonblocking(true)?;
            // The server may close the connection at any time.
            let _ = stream.write(text.as_bytes());
            if open.len() == OPEN {
                open.pop_front();
            }
            open.push_back(stream);
        }
        Ok(())
    })
}

/// Both ends abort. The server's end has a byte that was not read.
fn abort_a_connection(listener: &TcpListener) -> anyhow::Result<()> {
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    client.write_all(b"x")?;
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    [server, client]
        .iter()
        .try_for_each(|end| Ok(setsockopt(end, sockopt::Linger, &at_once)?))
}

fn exits(count: u32) -> anyhow::Result<()> {
    for _ in 0..count {
        // SAFETY: this process has one thread, and the child only exits.
        let _ = match unsafe { fork() }? {
            // SAFETY: as above.
            ForkResult::Child => unsafe { libc::_exit(0) },
            ForkResult::Parent { child } => waitpid(child, None)?,
        };
    }
    Ok(())
}

/// A child that exits with open sockets; its process id.
fn holds(what: &str, kept: &TcpListener) -> anyhow::Result<i32> {
    let at = kept.local_addr()?;
    // SAFETY: this process has one thread, so the child may do what this one may.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let held = open_files(what, kept, at);
            let code = i32::from(held.is_err());
            std::mem::forget(held);
            // SAFETY: as above.
            unsafe { libc::_exit(code) }
        }
    };
    anyhow::ensure!(
        waitpid(child, None)? == WaitStatus::Exited(child, 0),
        "a child that holds {what}"
    );
    Ok(child.as_raw())
}

/// Without a file of its own.
fn unix_listener() -> anyhow::Result<UnixListener> {
    let name = format!("epitaph-{}", std::process::id());
    Ok(UnixListener::bind_addr(&UnixAddress::from_abstract_name(name)?)?)
}

/// Behind so many files.
fn after_files(files: usize, socket: impl Into<OwnedFd>) -> io::Result<Vec<OwnedFd>> {
    let mut held: Vec<OwnedFd> = Vec::new();
    for _ in 0..files {
        held.push(fs::File::open("/dev/null")?.into());
    }
    // The socket was there before, at a lower descriptor.
    held.push(moved_to(0, socket)?);
    Ok(held)
}

/// At the first free descriptor from `least` on.
fn moved_to(least: i32, file: impl Into<OwnedFd>) -> io::Result<OwnedFd> {
    let file: OwnedFd = file.into();
    // SAFETY: takes descriptors only, and returns a new one, which nobody else owns.
    let moved = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    match moved {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: as above.
        moved => Ok(unsafe { OwnedFd::from_raw_fd(moved) }),
    }
}

/// What makes a look at the open files of an exit as long as it gets.
fn server_with_files() -> io::Result<Vec<OwnedFd>> {
    after_files(128, TcpListener::bind("127.0.0.1:0")?)
}

fn open_files(what: &str, kept: &TcpListener, at: SocketAddr) -> io::Result<Vec<OwnedFd>> {
    let mut held: Vec<OwnedFd> = Vec::new();
    match what {
        "client" => held.push(TcpStream::connect(at)?.into()),
        "accepted" => held.extend([TcpStream::connect(at)?.into(), kept.accept()?.0.into()]),
        "listener" => held.push(TcpListener::bind("127.0.0.1:0")?.into()),
        "last-of-100" | "last-of-200" | "300" => {
            let files = what.trim_start_matches("last-of-").parse().unwrap_or(0);
            held = after_files(files, TcpListener::bind("127.0.0.1:0")?)?;
        }
        "udp" => held.push(UdpSocket::bind("127.0.0.1:0")?.into()),
        "udp-after-200" => held = after_files(200, UdpSocket::bind("127.0.0.1:0")?)?,
        "udp-at-300" => held.push(moved_to(300, UdpSocket::bind("127.0.0.1:0")?)?),
        // As a shell's script and its lock.
        "files-at-130-140-and-255" => {
            for to in [130, 140, 255] {
                held.push(moved_to(to, fs::File::open("/dev/null")?)?);
            }
        }
        "unix-listener" => held.push(unix_listener().map_err(io::Error::other)?.into()),
        "unix-accepted" => {
            let listener = unix_listener().map_err(io::Error::other)?;
            let client = UnixStream::connect_addr(&listener.local_addr()?)?;
            held.extend([client.into(), listener.accept()?.0.into()]);
        }
        _ => {}
    }
    // The parent's own stays open.
    // SAFETY: the child uses the descriptor no more.
    unsafe { libc::close(kept.as_raw_fd()) };
    Ok(held)
}

/// A new cgroup, in which a process exits.
fn cgroup_with_an_exit(dir: &str) -> anyhow::Result<()> {
    fs::create_dir(dir).with_context(|| format!("make {dir}"))?;
    in_a_child(|| fs::write(format!("{dir}/cgroup.procs"), "0").map_or(1, |()| 0))?;
    // The kernel empties the cgroup a little later, on a loaded machine much later.
    until(&format!("{dir} to be empty"), || match fs::remove_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(Err(error.to_string())),
        result => Ok(Ok(result.with_context(|| format!("remove {dir}"))?)),
    })
}

/// The init of a new pid namespace exits before its child, which the kernel kills.
fn init_with_a_child() -> anyhow::Result<()> {
    in_a_child(|| {
        if unshare(CloneFlags::CLONE_NEWPID).is_err() {
            return 1;
        }
        let init = in_a_child(|| {
            // SAFETY: as in `in_a_child`; this child waits for its end.
            match unsafe { fork() } {
                Ok(ForkResult::Child) => loop {
                    thread::park();
                },
                Ok(ForkResult::Parent { .. }) => 0,
                Err(_) => 1,
            }
        });
        i32::from(init.is_err())
    })
}

/// What a runtime does: SIGTERM, which is ignored, and SIGKILL.
fn stop_as_a_runtime() -> anyhow::Result<()> {
    // SAFETY: this process has one thread, and the child only waits.
    let child = match unsafe { fork() }? {
        ForkResult::Child => {
            // SAFETY: SIG_IGN runs no code.
            let _ = unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) };
            loop {
                thread::park();
            }
        }
        ForkResult::Parent { child } => child,
    };
    for number in [libc::SIGTERM, libc::SIGKILL] {
        epitaph_tests::sys::kill(child.as_raw(), number)?;
    }
    waitpid(child, None)?;
    Ok(())
}

/// Runs `act` in a child, whose exit code it returns; an error if the code is not 0.
fn in_a_child(act: impl FnOnce() -> i32) -> anyhow::Result<()> {
    // SAFETY: this process has one thread, so the child may do what this one may.
    match unsafe { fork() }? {
        // SAFETY: as above.
        ForkResult::Child => unsafe { libc::_exit(act()) },
        ForkResult::Parent { child } => match waitpid(child, None)? {
            WaitStatus::Exited(_, 0) => Ok(()),
            other => anyhow::bail!("a child: {other:?}"),
        },
    }
}

fn handle_with_nothing(signal: Signal) -> nix::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(signal, &action) }.map(drop)
}

/// At a line, the process loses its terminal: the kernel makes a SIGHUP, which it ignores.
fn hang_up() -> anyhow::Result<()> {
    // SAFETY: SIG_IGN runs no code.
    unsafe { signal(Signal::SIGHUP, SigHandler::SigIgn) }?;
    let (master, _terminal) = own_terminal()?;
    let mut master = Some(master);
    at_each_line(|| {
        drop(master.take());
        Ok(())
    })
}

/// At each line, the process's terminal gets another size: the kernel makes a SIGWINCH.
fn resize(with_handler: bool) -> anyhow::Result<()> {
    if with_handler {
        handle_with_nothing(Signal::SIGWINCH)?;
    }
    let (master, _terminal) = own_terminal()?;
    let mut rows = 24;
    at_each_line(|| {
        rows += 1;
        let size = libc::winsize {
            ws_row: rows,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: takes a pointer to a size of ours.
        let result = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        anyhow::ensure!(result == 0, "resize a terminal: {}", io::Error::last_os_error());
        Ok(())
    })
}

/// Both ends of the terminal of a new session, whose leader this process is.
fn own_terminal() -> anyhow::Result<(fs::File, fs::File)> {
    setsid()?;
    let master = fs::OpenOptions::new().read(true).write(true).open("/dev/ptmx")?;
    let (mut number, mut unlock): (libc::c_int, libc::c_int) = (0, 0);
    // SAFETY: both take a pointer to an int of ours.
    let results = unsafe {
        [
            libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw mut unlock),
            libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &raw mut number),
        ]
    };
    anyhow::ensure!(results == [0, 0], "a terminal: {}", io::Error::last_os_error());
    // The first terminal that a session's leader opens is the session's own.
    let terminal = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/dev/pts/{number}"))?;
    Ok((master, terminal))
}

fn emit(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// By a seccomp filter: `action` for getppid(2), all else is allowed.
fn refuse_getppid(action: u32) -> anyhow::Result<()> {
    let number = u32::try_from(libc::SYS_getppid)?;
    // BPF_LD | BPF_W | BPF_ABS of `seccomp_data.nr`, BPF_JMP | BPF_JEQ, and two BPF_RET.
    let op = |code: u16, jt: u8, jf: u8, k: u32| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        op(0x20, 0, 0, 0),
        op(0x15, 0, 1, number),
        op(0x06, 0, 0, action),
        op(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    nix::sys::prctl::set_no_new_privs()?;
    // SAFETY: the kernel copies the filter during the call.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    anyhow::ensure!(result == 0, "prctl: {}", io::Error::last_os_error());
    Ok(())
}

/// A signal to this process, with a `si_code` of its own choice.
fn queue_to_itself(signal: i32, code: i32) -> io::Result<()> {
    // SAFETY: all-zero bytes are a siginfo_t, which lives until the call returns.
    let result = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        info.si_code = code;
        libc::syscall(libc::SYS_rt_sigqueueinfo, std::process::id(), signal, &raw const info)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Exits this thread only; the other threads go on.
fn exit_thread(status: libc::c_long) -> ! {
    // SAFETY: nothing of this thread is used afterwards.
    unsafe { libc::syscall(libc::SYS_exit, status) };
    unreachable!("the thread has ended")
}

/// Listens until the first line.
fn listen(address: &str) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)?;
    emit(&format!("ready {}", listener.local_addr()?))?;
    let mut lines = io::stdin().lock().lines();
    lines.next();
    drop(listener);
    emit("closed")?;
    lines.for_each(drop);
    Ok(())
}

/// Answers each client on a port that others may listen on, too, until SIGTERM; exits once there is a file [`OVER`] in its working directory:
/// the server outlives its listener.
fn share(address: SocketAddrV4) -> anyhow::Result<()> {
    let stopped = handle(&[libc::SIGTERM])?;
    let listener = shared_listener(address)?;
    listener.set_nonblocking(true)?;
    emit(&format!("ready {}", listener.local_addr()?))?;
    loop {
        let mut fds = [stopped.as_fd(), listener.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            ready => ready?,
        };
        if fds[0].any().unwrap_or(false) {
            break;
        }
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                BufReader::new(&stream).read_line(&mut String::new())?;
                (&stream).write_all(b"ok\n")?;
            }
            // The connection is gone, or the neighbour has it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    drop(listener);
    until("the end", || {
        let is_over = Path::new(OVER).exists();
        Ok(is_over.then_some(()).ok_or_else(|| "no order".to_owned()))
    })
}

/// With SO_REUSEPORT, which the standard library has not.
fn shared_listener(address: SocketAddrV4) -> anyhow::Result<TcpListener> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::ReusePort, &true)?;
    bind(socket.as_raw_fd(), &SockaddrIn::from(address))?;
    listen_at(&socket, Backlog::new(128)?)?;
    Ok(socket.into())
}

/// Listens on both loopbacks, accepts one client each and answers nothing. Any line closes the listeners; the end of the input
/// ends the process, which closes the rest. With a cgroup, the process moves there once it has the listeners.
fn serve(cgroup: Option<String>) -> anyhow::Result<()> {
    let listeners = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("[::1]:0")?];
    if let Some(dir) = cgroup {
        fs::write(format!("{dir}/cgroup.procs"), "0")?;
    }
    emit(&format!(
        "ready {} {}",
        listeners[0].local_addr()?.port(),
        listeners[1].local_addr()?.port()
    ))?;
    let clients = listeners
        .iter()
        .map(|listener| Ok(listener.accept()?.0))
        .collect::<io::Result<Vec<TcpStream>>>()?;
    emit("accepted")?;
    let mut lines = io::stdin().lock().lines();
    if lines.next().is_some() {
        drop(listeners);
        emit("closed")?;
        lines.for_each(drop);
    }
    std::process::exit(clients.len() as i32)
}
