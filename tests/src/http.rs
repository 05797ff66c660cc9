//! HTTP on the loopback: one GET, and the server's side of one request.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};

use anyhow::Context as _;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, getsockname, setsockopt, socket, sockopt};

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

/// A port on which nothing listens, for a server that is started with its number. The port stays reserved while this process runs: the
/// kernel gives it to no other socket that asks for any port, to no client, and to no other caller of this function.
///
/// A server can listen there all the same, again and again, because it binds with SO_REUSEADDR, as servers do.
///
/// # Errors
/// There is none left.
pub fn free_port() -> std::io::Result<u16> {
    let (socket, port) = reserve()?;
    // Until this process ends. A child that another thread is forking has the socket until its `exec`.
    std::mem::forget(socket);
    Ok(port)
}

/// A socket that is bound and does not listen. Bound without SO_REUSEADDR, so that the port is nobody else's, and with it from then on, so
/// that a server that has it, too, can listen.
fn reserve() -> nix::Result<(OwnedFd, u16)> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    bind(
        socket.as_raw_fd(),
        &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)),
    )?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    let port = getsockname::<SockaddrIn>(socket.as_raw_fd())?.port();
    Ok((socket, port))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::TcpListener;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

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
            let bound = (0..2_000).try_for_each(|_| {
                let (_reserved, port) = reserve()?;
                TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(drop)
            });
            is_done.store(true, Ordering::Relaxed);
            bound.unwrap();
        });
    }

    /// So many that a choice at random would meet one of them.
    #[test]
    fn a_reserved_port_is_given_to_nobody_else_and_can_be_listened_on_again_and_again() {
        let reserved: Vec<_> = (0..800).map(|_| reserve().unwrap()).collect();
        let ports: HashSet<u16> = reserved.iter().map(|(_, port)| *port).collect();
        assert_eq!(ports.len(), reserved.len());
        for _ in 0..500 {
            let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let client = TcpStream::connect(any.local_addr().unwrap()).unwrap();
            for port in [any.local_addr(), client.local_addr()].map(|address| address.unwrap().port()) {
                assert!(!ports.contains(&port), "{port} is reserved");
            }
        }
        let port = reserved[0].1;
        for _ in 0..2 {
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect_err("nothing listens");
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
            let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            // Closed by the server first: its port is in TIME_WAIT.
            drop(listener.accept().unwrap());
            drop(client);
        }
    }
}
