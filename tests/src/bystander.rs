//! Processes outside the container and unrelated to its runtime: clients of a server, and processes that kill or debug a foreign process.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::sys::{prctl, ptrace};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::sys::{self, boot_now, kill};

/// What a client saw, one JSON object per line on stdout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// `CLOCK_BOOTTIME` nanoseconds: before connect(2), and after the last answer.
    pub from: u64,
    pub to: u64,
    /// The client's own port; 0 if no connection was made.
    pub port: u16,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Connected, and the request (if any) sent. Printed at once; the next line is the end of the same connection.
    Connected,
    /// An answer, then the end of the connection by FIN.
    Answered,
    /// An answer, and the connection stays.
    AnsweredAndKept,
    /// ECONNREFUSED at connect.
    Refused,
    /// EHOSTUNREACH at connect, of IPv6 EACCES: an ICMP error.
    Unreachable,
    /// ECONNRESET (or EPIPE).
    Reset,
    /// FIN without an answer.
    Eof,
}

/// How long a client waits for the server's next bytes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Entry point of the `bystander` binary; its exit code.
pub fn main(args: &[String]) -> i32 {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["kill", name, pid, signal] => send_kill(name, pid, signal),
        ["kill-from", cgroup, name, pid, signal] => {
            std::fs::write(format!("{cgroup}/cgroup.procs"), "0").and_then(|()| send_kill(name, pid, signal))
        }
        ["debug", name, pid] => debug(name, pid),
        ["connect", address, count] => parallel(address, count, Ask::Nothing),
        ["request", address, count] => parallel(address, count, Ask::Once),
        ["keep-alive", address, count] => parallel(address, count, Ask::AndStay),
        ["stall", address, count] => parallel(address, count, Ask::AndStall),
        ["every", address, milliseconds] => every(address, milliseconds),
        _ => Err(Error::other(
            "usage: bystander kill NAME PID SIGNAL | kill-from CGROUP NAME PID SIGNAL | debug NAME PID | connect|request|keep-alive|stall ADDRESS COUNT | every ADDRESS MS",
        )),
    };
    match result {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("bystander {}: {e}", args.join(" "));
            1
        }
    }
}

fn send_kill(name: &str, pid: &str, signal: &str) -> Result<()> {
    prctl::set_name(&std::ffi::CString::new(name).map_err(Error::other)?)?;
    kill(pid.parse().map_err(Error::other)?, signal.parse().map_err(Error::other)?)
}

/// Attaches a debugger, a process of its own, which lets the process run up to its next signal and holds it from there to its end.
fn debug(name: &str, pid: &str) -> Result<()> {
    prctl::set_name(&std::ffi::CString::new(name).map_err(Error::other)?)?;
    let pid = Pid::from_raw(pid.parse().map_err(Error::other)?);
    let (mut attached, mut tells) = std::io::pipe()?;
    sys::fork(|| {
        let is_attached = ptrace::seize(pid, ptrace::Options::empty()).is_ok();
        let _ = tells.write_all(&[u8::from(is_attached)]);
        while is_attached && matches!(waitpid(pid, Some(WaitPidFlag::__WALL)), Ok(status) if is_running(status)) {}
    })?;
    let mut is_attached = [0];
    attached.read_exact(&mut is_attached)?;
    if is_attached == [1] {
        Ok(())
    } else {
        Err(Error::other(format!("process {pid} takes no debugger")))
    }
}

fn is_running(status: WaitStatus) -> bool {
    !matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    Nothing,
    Once,
    AndStay,
    /// The answer is not read before its connection is over.
    AndStall,
}

/// A client of a younger connection may wait for its server's greeting.
const SPARE: Duration = Duration::from_millis(2_600);

/// The server sends nothing in that time.
fn hear_nothing(stream: &TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(SPARE))?;
    match stream.peek(&mut [0]) {
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => stream.set_read_timeout(None),
        Err(e) => Err(e),
        Ok(_) => Err(Error::other("the server spoke, or closed the connection")),
    }
}

/// `count` connections at once, then the end of each.
fn parallel(address: &str, count: &str, ask: Ask) -> Result<()> {
    let address = parse(address)?;
    let count: usize = count.parse().map_err(Error::other)?;
    let mut open = Vec::new();
    for _ in 0..count {
        let from = boot_now();
        match connect(address, ask) {
            Ok(stream) => {
                let port = stream.local_addr()?.port();
                let answered = ask == Ask::AndStay && read(&stream)?;
                if ask == Ask::AndStall {
                    stream.peek(&mut [0])?;
                }
                if ask == Ask::Nothing && open.len() + 1 == count {
                    hear_nothing(&stream)?;
                }
                let what = if answered { What::AnsweredAndKept } else { What::Connected };
                emit(&Seen {
                    from,
                    to: boot_now(),
                    port,
                    what,
                })?;
                open.push((from, port, stream));
            }
            Err(e) => emit(&Seen {
                from,
                to: boot_now(),
                port: 0,
                what: name(&e)?,
            })?,
        }
    }
    for (from, port, stream) in open {
        if ask == Ask::AndStall {
            until_over(&stream)?;
        }
        let what = end(&stream)?;
        emit(&Seen {
            from,
            to: boot_now(),
            port,
            what,
        })?;
    }
    Ok(())
}

/// A request every so often, each on a connection of its own, until stdin closes.
fn every(address: &str, milliseconds: &str) -> Result<()> {
    static OVER: AtomicBool = AtomicBool::new(false);
    let address = parse(address)?;
    let pause = Duration::from_millis(milliseconds.parse().map_err(Error::other)?);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        OVER.store(true, Ordering::Relaxed);
    });
    while !OVER.load(Ordering::Relaxed) {
        let from = boot_now();
        let (port, what) = match connect(address, Ask::Once) {
            Ok(stream) => (stream.local_addr()?.port(), end(&stream)?),
            Err(e) => (0, name(&e)?),
        };
        emit(&Seen {
            from,
            to: boot_now(),
            port,
            what,
        })?;
        // The subject is time: the period.
        sleep(pause);
    }
    Ok(())
}

fn parse(address: &str) -> Result<SocketAddr> {
    address
        .parse()
        .map_err(|_| Error::other(format!("`{address}` is not an address with a port")))
}

fn connect(address: SocketAddr, ask: Ask) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    if ask != Ask::Nothing {
        stream.write_all(b"please\n")?;
    }
    Ok(stream)
}

/// Reads one answer; false at the end of the connection.
fn read(stream: &TcpStream) -> Result<bool> {
    let mut line = String::new();
    Ok(BufReader::new(stream).read_line(&mut line)? > 0)
}

/// Without a read.
fn until_over(stream: &TcpStream) -> Result<()> {
    let limit = PollTimeout::try_from(TIMEOUT).map_err(Error::other)?;
    match poll(&mut [PollFd::new(stream.as_fd(), PollFlags::empty())], limit)? {
        0 => Err(ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Reads to the end of the connection.
fn end(mut stream: &TcpStream) -> Result<What> {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(0) => Ok(What::Eof),
        Ok(_) => Ok(What::Answered),
        Err(e) => name(&e),
    }
}

fn name(e: &Error) -> Result<What> {
    match e.kind() {
        ErrorKind::ConnectionRefused => Ok(What::Refused),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Ok(What::Reset),
        ErrorKind::HostUnreachable | ErrorKind::PermissionDenied => Ok(What::Unreachable),
        _ => Err(Error::new(e.kind(), format!("neither refused, reset nor rejected: {e}"))),
    }
}

fn emit(seen: &Seen) -> Result<()> {
    writeln!(std::io::stdout(), "{}", serde_json::to_string(seen)?)
}
