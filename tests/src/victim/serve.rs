//! TCP servers and how they go. One thread, one poll(2): what happens to each connection at the stop signal is exact.
//!
//! A request is one line, an answer is `ok`. A mode with `-until-over` at its end goes on after the stop signal until there is a file
//! [`OVER`] in its working directory: a test has all the time that a loaded machine needs.

use std::io::{Error, ErrorKind, PipeReader, Read, Result, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};

use super::{ANY_PORT, handle, handle_with_reload, next, ready, run_on};
use crate::socket_unit::FD;
use crate::sys::{self, boot_now};

/// How long a request takes with `drain`, and with `drain-slowly`.
const WORK_NS: u64 = 1_000_000_000;
const LONG_WORK_NS: u64 = 4_000_000_000;
/// What is left to do after the stop signal with `close-listener` and `accept-on`.
const AFTERMATH_NS: u64 = 2_000_000_000;
/// How long the next client may let itself be waited for with `close-listener`.
const NEXT_CLIENT_NS: u64 = 1_000_000_000;

/// See the module.
pub const OVER: &str = "over";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Answers and closes each connection; at the signal closes its listener, and ends 2 s later.
    CloseListener,
    /// Answers and closes each connection, for 2 s after the signal too.
    AcceptOn,
    /// Never accepts; ends at the signal.
    AcceptNever,
    /// Accepts and never reads; ends at the signal.
    ReadNever,
    /// Reads and never answers; ends at the signal.
    AnswerNever,
    /// Reads and never answers; at the signal closes its sockets one by one, and ends.
    HangUp,
    /// Reads and never answers; exits with 7 by itself once there is a file [`OVER`].
    GiveUp,
    /// Answers and keeps the connection; ends at the signal.
    KeepAlive,
    /// Answers with more than the client takes; at the signal aborts what it has, and ends.
    Abort,
    /// Answers after a second, closes; at the signal finishes what it has, then ends.
    Drain,
    /// Reads; at the signal answers, closes by shutdown(2), and ends.
    AnswerLast,
    /// The same, after four seconds.
    DrainSlowly,
    /// Answers and closes each connection, also after SIGHUP, which means "reload"; ends at SIGTERM.
    Reload,
}

impl Mode {
    fn parse(mode: &str) -> Result<Mode> {
        Ok(match mode {
            "close-listener" => Mode::CloseListener,
            "accept-on" => Mode::AcceptOn,
            "accept-never" => Mode::AcceptNever,
            "read-never" => Mode::ReadNever,
            "answer-never" => Mode::AnswerNever,
            "hang-up" => Mode::HangUp,
            "give-up" => Mode::GiveUp,
            "keep-alive" => Mode::KeepAlive,
            "abort" => Mode::Abort,
            "drain" => Mode::Drain,
            "answer-last" => Mode::AnswerLast,
            "drain-slowly" => Mode::DrainSlowly,
            "reload" => Mode::Reload,
            _ => return Err(Error::other(format!("no mode `{mode}`"))),
        })
    }
}

struct Connection {
    stream: TcpStream,
    /// When the answer to the request in hand is due.
    due: Option<u64>,
    /// Answered and half closed: waiting for the client's end.
    closing: bool,
    over: bool,
}

/// Serves `address` (port 0: any) until the stop signal, then as `mode` requires; the exit code.
///
/// # Errors
/// The address cannot be bound, or a socket fails in a way that is not in the story.
pub fn serve(mode: &str, address: &str) -> Result<i32> {
    let (mode, until_over) = match mode.strip_suffix("-until-over") {
        Some(mode) => (mode, true),
        None => (mode, false),
    };
    let mode = Mode::parse(mode)?;
    let aftermath = if until_over { 0 } else { AFTERMATH_NS };
    let mut handled = match mode {
        Mode::Reload => handle_with_reload()?,
        _ => handle()?,
    };
    let listener = match address.strip_prefix(FD) {
        Some(fd) => sys::inherited(fd.parse().map_err(Error::other)?)?,
        None => TcpListener::bind(address)?,
    };
    listener.set_nonblocking(true)?;
    ready(&listener.local_addr()?.to_string())?;
    let mut listener = Some(listener);
    let mut connections: Vec<Connection> = Vec::new();
    // When the work in hand at the stop signal is done, except for the connections.
    let mut over_at = None;
    loop {
        if wait(
            &handled,
            listener.as_ref().filter(|_| mode != Mode::AcceptNever),
            &connections,
            mode,
        )? {
            let signal = next(&mut handled)?;
            match mode {
                Mode::Reload if signal == libc::SIGHUP => {}
                Mode::CloseListener => {
                    // Closed right after one client, who is answered; the next comes 50 ms later. A client in the queue at
                    // the close would be reset: that is another story.
                    if let Some(listener) = listener.take() {
                        let (known, until) = (connections.len(), boot_now() + NEXT_CLIENT_NS);
                        while connections.len() == known && boot_now() < until {
                            let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
                            let _ = poll(&mut fds, PollTimeout::from(20u16));
                            accept(&listener, &mut connections)?;
                        }
                    }
                    over_at = Some(boot_now() + aftermath);
                }
                Mode::AcceptOn => over_at = Some(boot_now() + aftermath),
                Mode::Reload => over_at = Some(boot_now()),
                // As exit(3) does it: the sockets are open when the process ends. Returning would close them one by one.
                Mode::AcceptNever | Mode::ReadNever | Mode::AnswerNever | Mode::KeepAlive => std::process::exit(0),
                Mode::HangUp => return Ok(0),
                Mode::Abort => {
                    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
                    for connection in &connections {
                        setsockopt(&connection.stream, sockopt::Linger, &at_once)?;
                    }
                    return Ok(0);
                }
                Mode::AnswerLast => {
                    for connection in &mut connections {
                        connection.stream.write_all(b"ok\n")?;
                        connection.stream.shutdown(Shutdown::Write)?;
                    }
                    return Ok(0);
                }
                Mode::GiveUp => run_on(),
                Mode::Drain | Mode::DrainSlowly => over_at = Some(boot_now()),
            }
        }
        if let Some(listener) = listener.as_ref().filter(|_| mode != Mode::AcceptNever) {
            accept(listener, &mut connections)?;
        }
        if mode == Mode::GiveUp && Path::new(OVER).exists() {
            std::process::exit(7);
        }
        if mode != Mode::ReadNever {
            for connection in &mut connections {
                connection.turn(mode)?;
            }
            connections.retain(|c| !c.over);
        }
        let is_over = || !until_over || Path::new(OVER).exists();
        if connections.is_empty() && over_at.is_some_and(|at| boot_now() >= at) && is_over() {
            return Ok(0);
        }
    }
}

/// A server of datagrams, which has answered a client; it exits at the stop signal with its socket open.
pub fn udp() -> Result<i32> {
    let mut handled = handle()?;
    let [server, client] = [UdpSocket::bind(ANY_PORT)?, UdpSocket::bind(ANY_PORT)?];
    client.connect(server.local_addr()?)?;
    client.send(b"request")?;
    let (_, from) = server.recv_from(&mut [0; 16])?;
    server.send_to(b"ok", from)?;
    client.recv(&mut [0; 16])?;
    ready("")?;
    next(&mut handled)?;
    std::process::exit(0)
}

/// A server on a path, with a client; it exits at the stop signal with its sockets open.
pub fn unix(path: &str) -> Result<i32> {
    let mut handled = handle()?;
    let listener = UnixListener::bind(path)?;
    let _client = UnixStream::connect(path)?;
    let _accepted = listener.accept()?;
    ready("")?;
    next(&mut handled)?;
    std::process::exit(0)
}

/// Waits until there is something to do, 20 ms at most; whether a signal was handled.
fn wait(handled: &PipeReader, listener: Option<&TcpListener>, connections: &[Connection], mode: Mode) -> Result<bool> {
    let mut fds = vec![PollFd::new(handled.as_fd(), PollFlags::POLLIN)];
    fds.extend(listener.map(|l| PollFd::new(l.as_fd(), PollFlags::POLLIN)));
    if mode != Mode::ReadNever {
        fds.extend(connections.iter().map(|c| PollFd::new(c.stream.as_fd(), PollFlags::POLLIN)));
    }
    match poll(&mut fds, PollTimeout::from(20u16)) {
        Ok(_) => Ok(fds[0].any().unwrap_or(false)),
        Err(Errno::EINTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

fn accept(listener: &TcpListener, connections: &mut Vec<Connection>) -> Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                connections.push(Connection {
                    stream,
                    due: None,
                    closing: false,
                    over: false,
                });
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e),
        }
    }
}

impl Connection {
    fn turn(&mut self, mode: Mode) -> Result<()> {
        let mut bytes = [0; 512];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.over = true,
            Ok(_) if matches!(mode, Mode::AnswerNever | Mode::HangUp | Mode::GiveUp | Mode::AnswerLast) => {}
            Ok(_) => {
                let work = match mode {
                    Mode::Drain => WORK_NS,
                    Mode::DrainSlowly => LONG_WORK_NS,
                    _ => 0,
                };
                self.due = Some(boot_now() + work);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) if e.kind() == ErrorKind::ConnectionReset => self.over = true,
            Err(e) => return Err(e),
        }
        if let Some(due) = self.due
            && boot_now() >= due
            && !self.closing
        {
            self.due = None;
            if mode == Mode::Abort {
                return self.fill();
            }
            self.stream.write_all(b"ok\n")?;
            if mode != Mode::KeepAlive {
                self.stream.shutdown(Shutdown::Write)?;
                self.closing = true;
            }
        }
        Ok(())
    }

    /// Both sides' buffers, until not another byte fits.
    fn fill(&mut self) -> Result<()> {
        loop {
            match self.stream.write(&[0; 1 << 16]) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }
}
