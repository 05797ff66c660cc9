//! A connection of the program: HTTP/1.1, one request after the other.

use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::fd::{AsFd, BorrowedFd};

use crate::sockets::Stream;
use crate::sys::boot_now;

/// A client's connection.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    read: Vec<u8>,
    /// When the answer to the request in hand is due, and whether the connection is kept after it.
    due: Option<(u64, bool)>,
    /// Answered and half closed: waits for the client's end.
    closing: bool,
    over: bool,
}

impl Connection {
    pub fn new(stream: Stream) -> Connection {
        Connection {
            stream,
            read: Vec::new(),
            due: None,
            closing: false,
            over: false,
        }
    }

    pub fn is_over(&self) -> bool {
        self.over
    }

    /// A request was read, and is not answered.
    pub fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// Nothing more will be sent.
    ///
    /// # Errors
    /// As shutdown(2).
    pub fn end(&self) -> Result<()> {
        self.stream.end()
    }

    /// Reads what is there, and answers what is due.
    ///
    /// # Errors
    /// The socket fails in a way that is in no history.
    pub fn turn(&mut self) -> Result<()> {
        let mut bytes = [0; 2048];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.over = true,
            Ok(count) => self.read.extend_from_slice(&bytes[..count]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) if is_gone(&e) => self.over = true,
            Err(e) => return Err(e),
        }
        if self.due.is_none()
            && !self.closing
            && let Some(end) = self.read.windows(4).position(|at| at == b"\r\n\r\n")
        {
            let request: Vec<u8> = self.read.drain(..end + 4).collect();
            let request = String::from_utf8_lossy(&request);
            let answer_ms: u64 = request
                .strip_prefix("GET /")
                .and_then(|rest| rest.split(' ').next()?.parse().ok())
                .unwrap_or(0);
            let is_kept = !request.contains("Connection: close");
            self.due = Some((boot_now() + answer_ms * 1_000_000, is_kept));
        }
        if let Some((at, is_kept)) = self.due
            && boot_now() >= at
        {
            self.due = None;
            self.answer(is_kept)?;
        }
        Ok(())
    }

    fn answer(&mut self, is_kept: bool) -> Result<()> {
        let close = if is_kept { "" } else { "Connection: close\r\n" };
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{close}\r\nok");
        match self.stream.write_all(answer.as_bytes()) {
            Err(e) if is_gone(&e) => self.over = true,
            Err(e) => return Err(e),
            Ok(()) if is_kept => {}
            Ok(()) => {
                self.closing = true;
                let _ = self.stream.end();
            }
        }
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn is_gone(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::NotConnected
    )
}
