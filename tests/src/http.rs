//! HTTP on the loopback: one GET, and the server's side of one request.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Context as _;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt};

/// Status and body.
///
/// # Errors
/// Nothing listens there, or the server does not answer in HTTP.
pub fn get(port: u16, path: &str) -> anyhow::Result<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    // HTTP/1.0: the answer ends with the connection, in no chunks.
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    // At once: who sorts connections by their first bytes (Jaeger's) can end one that begins with less.
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the header")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, body.to_owned()))
}

/// What a client sent to a server of a test.
#[derive(Debug)]
pub struct Request {
    /// In lower case, with the empty line at its end.
    pub head: String,
    pub body: Vec<u8>,
}

/// The next request of a connection; None at its end, or if it is none with a length.
pub fn request(stream: &mut TcpStream) -> Option<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    let mut body = vec![0; length.trim().parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    Some(Request { head, body })
}

/// A port on which nothing listens. From below the kernel's ephemeral ports (32768 and up): the caller may use the port later,
/// and a test that runs at the same time must not have got it meanwhile.
///
/// The socket that tries a port does not listen: a child that another thread is forking has it until its `exec`, and a port that is
/// only bound can be bound again.
///
/// # Errors
/// There is none left.
pub fn free_port() -> std::io::Result<u16> {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id().wrapping_mul(97) % u32::from(COUNT)) as u16;
    let mut last = std::io::Error::other("no free port");
    for _ in 0..COUNT {
        let port = FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        match try_port(port) {
            Ok(()) => return Ok(port),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

fn try_port(port: u16) -> nix::Result<()> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    bind(
        socket.as_raw_fd(),
        &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)),
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::Command;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_port_is_free_although_others_fork() {
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    assert!(Command::new("true").status().unwrap().success());
                }
            });
            let bound = (0..2_000).try_for_each(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, free_port()?)).map(drop));
            is_done.store(true, Ordering::Relaxed);
            bound.unwrap();
        });
    }
}
