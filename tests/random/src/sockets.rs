//! Stream sockets of two families behind one type: HTTP/1.1 over TCP, and over a path.

use std::io::{Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where the server is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
    Udp(SocketAddr),
}

#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    /// # Errors
    /// As dup(2).
    pub fn try_clone(&self) -> Result<Listener> {
        Ok(match self {
            Listener::Tcp(listener) => Listener::Tcp(listener.try_clone()?),
            Listener::Unix(listener) => Listener::Unix(listener.try_clone()?),
        })
    }

    /// The next connection, as a stream that does not block.
    ///
    /// # Errors
    /// As accept(2); `WouldBlock` if there is none.
    pub fn accept(&self) -> Result<Stream> {
        let stream = match self {
            Listener::Tcp(listener) => Stream::Tcp(listener.accept()?.0),
            Listener::Unix(listener) => Stream::Unix(listener.accept()?.0),
        };
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

impl Stream {
    /// # Errors
    /// As connect(2).
    pub fn connect(to: &Address) -> Result<Stream> {
        match to {
            Address::Tcp(address) | Address::Udp(address) => TcpStream::connect(address).map(Stream::Tcp),
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
        }
    }

    /// # Errors
    /// As fcntl(2).
    pub fn set_nonblocking(&self, is: bool) -> Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(is),
            Stream::Unix(stream) => stream.set_nonblocking(is),
        }
    }

    /// # Errors
    /// As setsockopt(2).
    pub fn set_read_timeout(&self, time: Duration) -> Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(time)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(time)),
        }
    }

    /// Nothing more will be sent.
    ///
    /// # Errors
    /// As shutdown(2).
    pub fn end(&self) -> Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// The own port; 0 for a path.
    pub fn port(&self) -> u16 {
        match self {
            Stream::Tcp(stream) => stream.local_addr().map_or(0, |address| address.port()),
            Stream::Unix(_) => 0,
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(bytes),
            Stream::Unix(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
