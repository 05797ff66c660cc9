//! An HTTP/1.1 server, and how it goes at its stop signal: at once, as one that stops listening and finishes, or as one that
//! goes on accepting until clients have been sent elsewhere. One thread, one poll(2).

use std::io::{ErrorKind, PipeReader, Read, Result, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{OVER, handle, known, next, option, ready};
use crate::sys::boot_now;

const MS: u64 = 1_000_000;
/// Longest sleep of the loop, milliseconds.
const ROUND: u64 = 20;
/// How long `--in-hand` waits for a request.
const NEXT_REQUEST: u64 = 10_000 * MS;
/// Longer than any client's request.
const REQUEST: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Ends at once, with all that it has open.
    Abrupt,
    /// Closes its listener at once, finishes the requests in hand, ends.
    CloseAndDrain,
    /// Goes on for the time to drain, asking each client to connect anew; then does as the one before.
    AcceptAndDrain,
}

/// Serves `address` (port 0: any) until the stop signal, then as `mode` requires; the exit code. `GET /ready` is answered at
/// once, any other path after the work is done.
///
/// Options: `--work-ms=N` of each request (30), `--drain-ms=N` (5000): with `accept-and-drain` how long it goes on accepting,
/// with `close-and-drain` how long it waits for requests in hand; `--linger-ms=N` (0): it exits no earlier after its listener has closed;
/// `--until-over`: with `accept-and-drain`, it goes on accepting at least until there is a file [`OVER`] in its working directory;
/// `--stay-ready`: `/ready` answers 200 after the stop signal too, not 503; `--unavailable`: after the stop signal every path answers 503;
/// `--in-hand`: with `abrupt`, exits only once it has a request in hand (clients can happen to pause all at once), ten seconds later at most.
///
/// # Errors
/// An unknown option; the address cannot be bound; a socket fails in a way that is not in the story.
pub fn serve(mode: &str, address: &str, options: &[&str]) -> Result<i32> {
    known(
        options,
        &[
            "--work-ms",
            "--drain-ms",
            "--linger-ms",
            "--stay-ready",
            "--unavailable",
            "--in-hand",
            "--until-over",
        ],
    )?;
    let mode = match mode {
        "abrupt" => Mode::Abrupt,
        "close-and-drain" => Mode::CloseAndDrain,
        "accept-and-drain" => Mode::AcceptAndDrain,
        _ => return Err(std::io::Error::other(format!("no way to go named `{mode}`"))),
    };
    let work = option(options, "--work-ms", 30)? * MS;
    let drain = option(options, "--drain-ms", 5000)? * MS;
    let linger = option(options, "--linger-ms", 0)? * MS;
    let until_over = options.contains(&"--until-over");
    let mut handled = handle()?;
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    ready(&listener.local_addr()?.to_string())?;
    let mut server = Server {
        listener: Some(listener),
        connections: Vec::new(),
        work,
        stay_ready: options.contains(&"--stay-ready"),
        unavailable: options.contains(&"--unavailable"),
        stopping: false,
    };
    let (mut drained_at, mut closed_at) = (None, None);
    loop {
        if server.wait(&handled)? {
            next(&mut handled)?;
            server.stopping = true;
            match mode {
                Mode::Abrupt => server.exit_abruptly(options.contains(&"--in-hand"), &handled)?,
                Mode::CloseAndDrain => server.stop_listening(),
                Mode::AcceptAndDrain => {}
            }
            drained_at.get_or_insert(boot_now() + drain);
        }
        server.turn()?;
        let over = drained_at.is_some_and(|at| boot_now() >= at);
        if over && server.listener.is_some() && (!until_over || Path::new(OVER).exists()) {
            // A client in the queue came in time.
            server.accept()?;
            server.stop_listening();
            drained_at = Some(boot_now() + drain);
        } else if server.listener.is_none() && (over || server.connections.is_empty()) {
            let closed = *closed_at.get_or_insert_with(boot_now);
            if boot_now() >= closed + linger {
                return Ok(0);
            }
        }
    }
}

struct Server {
    listener: Option<TcpListener>,
    connections: Vec<Connection>,
    work: u64,
    stay_ready: bool,
    unavailable: bool,
    stopping: bool,
}

struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
    answer: Option<Answer>,
    /// Requests answered.
    answered: u64,
    /// Answered for the last time: waiting for the client's end.
    closing: bool,
    over: bool,
}

struct Answer {
    due: u64,
    status: &'static str,
    last: bool,
}

impl Server {
    /// Waits until there is something to do; whether a signal was handled.
    fn wait(&self, handled: &PipeReader) -> Result<bool> {
        let due = self.connections.iter().filter_map(|c| Some(c.answer.as_ref()?.due)).min();
        let ms = due.map_or(ROUND, |due| due.saturating_sub(boot_now()).div_ceil(MS).min(ROUND));
        let mut fds = vec![PollFd::new(handled.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.listener.as_ref().map(|l| PollFd::new(l.as_fd(), PollFlags::POLLIN)));
        fds.extend(
            self.connections
                .iter()
                .map(|c| PollFd::new(c.stream.as_fd(), PollFlags::POLLIN)),
        );
        match poll(&mut fds, PollTimeout::try_from(ms).unwrap_or(PollTimeout::ZERO)) {
            Ok(_) => Ok(fds[0].any().unwrap_or(false)),
            Err(Errno::EINTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn turn(&mut self) -> Result<()> {
        self.accept()?;
        let status = |path: &str| match path {
            _ if self.stopping && self.unavailable => "503 Service Unavailable",
            "/ready" if self.stopping && !self.stay_ready => "503 Service Unavailable",
            _ => "200 OK",
        };
        for connection in &mut self.connections {
            connection.turn(self.work, self.stopping, status)?;
        }
        // An idle kept connection is closed as servers do: a client that sends a request at that moment is reset.
        let idle = |c: &Connection| c.answered > 0 && c.answer.is_none() && c.read.is_empty() && !c.closing;
        let listening = self.listener.is_some();
        self.connections.retain(|c| !c.over && (listening || !idle(c)));
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    self.connections.push(Connection {
                        stream,
                        read: Vec::new(),
                        answer: None,
                        answered: 0,
                        closing: false,
                        over: false,
                    });
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// As exit(3) does it: the sockets are open when the process ends. Returning would close them one by one.
    fn exit_abruptly(&mut self, in_hand: bool, handled: &PipeReader) -> Result<()> {
        let until = boot_now() + if in_hand { NEXT_REQUEST } else { 0 };
        while boot_now() < until && self.connections.iter().all(|c| c.answer.is_none()) {
            self.wait(handled)?;
            self.turn()?;
        }
        std::process::exit(0)
    }

    fn stop_listening(&mut self) {
        self.listener = None;
    }
}

impl Connection {
    fn turn(&mut self, work: u64, stopping: bool, status: impl Fn(&str) -> &'static str) -> Result<()> {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.over = true,
                Ok(_) if self.closing => continue,
                Ok(n) => {
                    self.read.extend_from_slice(&bytes[..n]);
                    if self.read.len() <= REQUEST {
                        continue;
                    }
                    self.over = true;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == ErrorKind::ConnectionReset => self.over = true,
                Err(e) => return Err(e),
            }
            break;
        }
        if self.over || self.closing {
            return Ok(());
        }
        if self.answer.is_none()
            && let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n")
        {
            let head = String::from_utf8_lossy(&self.read[..end]).into_owned();
            self.read.drain(..end + 4);
            let path = head.split(' ').nth(1).unwrap_or("/");
            self.answer = Some(Answer {
                due: boot_now() + if path == "/ready" { 0 } else { work },
                status: status(path),
                last: head.to_ascii_lowercase().contains("connection: close"),
            });
        }
        if let Some(answer) = self.answer.take_if(|answer| boot_now() >= answer.due) {
            let last = answer.last || stopping;
            let connection = if last { "close" } else { "keep-alive" };
            let text = format!(
                "HTTP/1.1 {}\r\nContent-Length: 3\r\nConnection: {connection}\r\n\r\nok\n",
                answer.status
            );
            match self.stream.write_all(text.as_bytes()).and_then(|()| {
                self.answered += 1;
                self.closing = last;
                if last { self.stream.shutdown(Shutdown::Write) } else { Ok(()) }
            }) {
                Ok(()) => {}
                // The client is gone.
                Err(_) => self.over = true,
            }
        }
        Ok(())
    }
}
