//! The program's and the client's side of a service of datagrams: the request is the number of milliseconds that the answer takes.

use std::io::{Error, ErrorKind, Result};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::client::Outcome;
use crate::sys::boot_now;

#[derive(Debug)]
pub struct Datagrams {
    socket: UdpSocket,
    /// Answers, with the time at which they are due.
    due: Vec<(u64, SocketAddr)>,
}

impl Datagrams {
    /// # Errors
    /// As fcntl(2).
    pub fn new(socket: UdpSocket) -> Result<Datagrams> {
        socket.set_nonblocking(true)?;
        Ok(Datagrams { socket, due: Vec::new() })
    }

    /// Sends what is due, and reads what is there if it `reads`.
    ///
    /// # Errors
    /// The socket fails in a way that is in no history.
    pub fn turn(&mut self, reads: bool) -> Result<()> {
        if reads {
            self.read()?;
        }
        let now = boot_now();
        for (_, to) in self.due.extract_if(.., |(at, _)| *at <= now) {
            match self.socket.send_to(b"ok", to) {
                Err(e) if !is_icmp(&e) => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        let mut bytes = [0; 64];
        loop {
            match self.socket.recv_from(&mut bytes) {
                Ok((count, from)) => {
                    let text = String::from_utf8_lossy(&bytes[..count]);
                    self.due
                        .push((boot_now() + text.parse::<u64>().unwrap_or(0) * 1_000_000, from));
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if is_icmp(&e) => {}
                Err(e) => return Err(e),
            }
        }
    }

    pub fn unanswered(&self) -> usize {
        self.due.len()
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn is_icmp(error: &Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
}

/// A client's request; no answer within `longest` is one that was lost.
pub fn ask(server: SocketAddr, answer_ms: u32, longest: Duration) -> (u16, Outcome) {
    let asked = || -> Result<UdpSocket> {
        let socket = UdpSocket::bind(if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" })?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(longest))?;
        socket.send(answer_ms.to_string().as_bytes())?;
        Ok(socket)
    };
    let Ok(socket) = asked() else { return (0, Outcome::Failed) };
    let port = socket.local_addr().map_or(0, |address| address.port());
    let outcome = match socket.recv(&mut [0; 16]) {
        Ok(_) => Outcome::Answered,
        Err(e) => match e.kind() {
            ErrorKind::ConnectionRefused => Outcome::Refused,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Outcome::Unanswered,
            _ => Outcome::Failed,
        },
    };
    (port, outcome)
}
