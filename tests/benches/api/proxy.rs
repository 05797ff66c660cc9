//! The way of all agents to the API server, with a count of its bytes: those of TLS, as a network carries them.
//!
//! In a process of its own: both ends of thousands of connections do not fit into one process's limit of open files.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The first argument of the process.
pub const ROLE: &str = "proxy";

pub struct Proxy {
    process: Child,
    io: RefCell<(ChildStdin, BufReader<ChildStdout>)>,
    address: SocketAddr,
}

impl Proxy {
    /// Forwards to a port of the loopback until the proxy is dropped.
    pub fn start(port: u16) -> anyhow::Result<Proxy> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([ROLE, &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = process.stdin.take().context("piped")?;
        let mut output = BufReader::new(process.stdout.take().context("piped")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| format!("the proxy printed {line:?}"))?;
        Ok(Proxy {
            process,
            io: RefCell::new((input, output)),
            address,
        })
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// To the API server and to the agents, since the start.
    pub fn bytes(&self) -> anyhow::Result<(u64, u64)> {
        let (input, output) = &mut *self.io.borrow_mut();
        input.write_all(b"\n")?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        let (to_server, to_agents) = line
            .trim()
            .split_once(' ')
            .with_context(|| format!("the proxy printed {line:?}"))?;
        Ok((to_server.parse()?, to_agents.parse()?))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Default)]
struct Bytes {
    to_server: AtomicU64,
    to_agents: AtomicU64,
}

/// The proxy's process: prints the address, then both counts for each line of standard input.
pub fn run(port: u16) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?)?;
    let bytes = Arc::new(Bytes::default());
    runtime.spawn(forward(listener, port, bytes.clone()));
    for line in std::io::stdin().lock().lines() {
        line?;
        let Bytes { to_server, to_agents } = &*bytes;
        writeln!(
            out,
            "{} {}",
            to_server.load(Ordering::Relaxed),
            to_agents.load(Ordering::Relaxed)
        )?;
    }
    Ok(())
}

async fn forward(listener: TcpListener, port: u16, bytes: Arc<Bytes>) {
    while let Ok((agent, _)) = listener.accept().await {
        let bytes = bytes.clone();
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
                return;
            };
            let (from_agent, to_agent) = agent.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::join!(
                carry(from_agent, to_server, &bytes.to_server),
                carry(from_server, to_agent, &bytes.to_agents),
            );
        });
    }
}

async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, count: &AtomicU64) {
    let mut buffer = vec![0; 4 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        count.fetch_add(length as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
