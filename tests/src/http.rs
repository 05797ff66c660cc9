//! HTTP on the loopback: one GET, and the server's side of one request.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Context as _;

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
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(last)
}
