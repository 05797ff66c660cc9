//! A neighbour that sends SYNs to the closed port of a terminating server: it can neither inflate what clients needed, nor make a
//! termination unclean that harmed no client.

use std::io::{BufRead, BufReader, Lines, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use epitaph_tests::agent::{Agent, program};
use epitaph_tests::cgroup::{Mounts, SLICE};
use epitaph_tests::machine::is_root;
use epitaph_tests::runtime::{Did, Kill, Spec, Stop};
use epitaph_tests::skip::skip;
use epitaph_tests::sys::random_hex;
use nix::libc::SIGTERM;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::Instant;

const TIMEOUT: Duration = Duration::from_secs(60);
const CLIENT: &str = "127.0.0.1:0";
const SCANNER: &str = "127.0.0.9:0";

fn can_play(test: &str) -> bool {
    if !is_root() {
        skip(test, "playing needs root");
        return false;
    }
    let has_v2 = Mounts::find().is_ok_and(|mounts| mounts.v2.is_some());
    if !has_v2 {
        skip(test, "no cgroup v2");
    }
    has_v2
}

/// The story `refuses` with a scanner: the client stops at its first refusal, the scanner goes on to the end.
#[tokio::test]
async fn a_scanner_does_not_inflate_what_the_client_needed() -> anyhow::Result<()> {
    if !can_play("a_scanner_does_not_inflate_what_the_client_needed") {
        return Ok(());
    }
    let mut played = Played::start(&["serve", "close-listener", "127.0.0.1:0"])?;
    let address = played.ready()?;
    ask(CLIENT, address).await?.context("the server does not serve")?;
    played.stop()?;
    while ask(CLIENT, address).await?.is_some() {}
    // Not before the client is refused: a scanner that is served is a client.
    let mut scanned = 0;
    let until = Instant::now() + Duration::from_millis(1_500);
    while Instant::now() < until {
        ensure!(ask(SCANNER, address).await?.is_none(), "the scanner was served");
        scanned += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let termination = played.finish()?;
    let connections = &termination["connections"];
    assert_eq!(termination["verdict"], "refused-connections", "{termination:#}");
    assert_eq!(connections["refused_new_peers"], scanned, "{termination:#}");
    let peers = connections["peers"].as_array().context("no peers")?;
    let known = |ip: &str| {
        peers
            .iter()
            .find(|peer| peer["address"] == ip)
            .map(|peer| peer["had_connected"].clone())
    };
    assert_eq!(known("127.0.0.1"), Some(true.into()), "{termination:#}");
    assert_eq!(known("127.0.0.9"), Some(false.into()), "{termination:#}");
    // Of the client's refusal alone: the scanner was refused for 1.5 s.
    let remedy = termination["remedy"].as_str().context("no remedy")?;
    ensure!(remedy.contains("preStop sleep of 1 s"), "{termination:#}");
    Ok(())
}

/// Each client is served until it stops by itself; then a scanner is refused.
#[tokio::test]
async fn a_scanner_alone_does_not_make_a_termination_unclean() -> anyhow::Result<()> {
    if !can_play("a_scanner_alone_does_not_make_a_termination_unclean") {
        return Ok(());
    }
    let mut played = Played::start(&["serve", "accept-on", "127.0.0.1:0"])?;
    let address = played.ready()?;
    played.stop()?;
    for _ in 0..24 {
        ask(CLIENT, address).await?.context("a client was refused")?;
    }
    played.ended()?;
    for _ in 0..50 {
        ensure!(ask(SCANNER, address).await?.is_none(), "the scanner was served");
    }
    let termination = played.finish()?;
    assert_eq!(termination["verdict"], "refused-new-peers", "{termination:#}");
    assert_eq!(termination["unclean"], false, "{termination:#}");
    assert_eq!(termination["connections"]["refused_new_peers"], 50, "{termination:#}");
    Ok(())
}

/// A request from this address; None if it was refused.
async fn ask(from: &str, to: SocketAddr) -> anyhow::Result<Option<()>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(from.parse()?)?;
    match socket.connect(to).await {
        Ok(mut stream) => {
            stream.write_all(b"please\n").await?;
            stream.read_to_end(&mut Vec::new()).await?;
            Ok(Some(()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(None),
        Err(error) => Err(error.into()),
    }
}

struct Played {
    agent: Agent,
    lines: Receiver<Option<String>>,
    container: Child,
    orders: ChildStdin,
    out: Lines<BufReader<ChildStdout>>,
    id: String,
    _directory: tempfile::TempDir,
}

impl Played {
    fn start(victim: &[&str]) -> anyhow::Result<Played> {
        let players = players()?;
        let directory = tempfile::tempdir()?;
        let id = random_hex(32)?;
        let program_of_victim = players.join("victim").display().to_string();
        let spec = Spec {
            scope: format!("docker-{id}.scope"),
            command: std::iter::once(program_of_victim)
                .chain(victim.iter().map(|&arg| arg.to_owned()))
                .collect(),
            pid_namespace: true,
            memory_limit: None,
            stop: Stop::Signal {
                signal: SIGTERM,
                grace: TIMEOUT,
                frozen: false,
                kill: Kill::Main,
            },
            mounts: Mounts::find()?,
            listens: None,
            directory: directory.path().to_path_buf(),
        };
        let (to, lines) = channel();
        let agent = Agent::start(&program(&players), None, None, to)?;
        next(&lines, &agent)?;
        let mut container = Command::new(players.join("stand-in-runtime"))
            .arg("run")
            .arg(serde_json::to_string(&spec)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = container.stdin.take().context("its input is not a pipe")?;
        let out = BufReader::new(container.stdout.take().context("its output is not a pipe")?).lines();
        Ok(Played {
            agent,
            lines,
            container,
            orders,
            out,
            id,
            _directory: directory,
        })
    }

    /// The address that the server serves.
    fn ready(&mut self) -> anyhow::Result<SocketAddr> {
        loop {
            if let Did::Ready { address, .. } = self.did()? {
                return Ok(address.context("it serves no address")?.parse()?);
            }
        }
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        self.orders.write_all(b"stop\n")?;
        while !matches!(self.did()?, Did::Signalled { .. }) {}
        Ok(())
    }

    /// Waits for the exit of the main process.
    fn ended(&mut self) -> anyhow::Result<()> {
        while !matches!(self.did()?, Did::Ended { .. }) {}
        Ok(())
    }

    fn did(&mut self) -> anyhow::Result<Did> {
        match serde_json::from_str(&self.out.next().context("the runtime ended")??)? {
            Did::Failed { what } => bail!("the container: {what}"),
            did => Ok(did),
        }
    }

    /// The container's termination.
    fn finish(mut self) -> anyhow::Result<Value> {
        for line in self.out.by_ref() {
            line?;
        }
        self.container.wait()?;
        let termination = loop {
            let line = next(&self.lines, &self.agent)?;
            if line["type"] == "termination" && line["subject"]["id"] == self.id.as_str() {
                break line;
            }
        };
        let path = termination["cgroup"].as_str().unwrap_or_default();
        ensure!(path.starts_with(&format!("/{SLICE}/")), "another container: {termination:#}");
        self.agent.end(TIMEOUT)?;
        Ok(termination)
    }
}

fn next(lines: &Receiver<Option<String>>, agent: &Agent) -> anyhow::Result<Value> {
    match lines.recv_timeout(TIMEOUT) {
        Ok(Some(line)) => Ok(serde_json::from_str(&line)?),
        Ok(None) => bail!("the agent ended; its log:\n{}", agent.log()),
        Err(_) => bail!("nothing more from the agent; its log:\n{}", agent.log()),
    }
}

fn players() -> anyhow::Result<PathBuf> {
    let victim = Path::new(env!("CARGO_BIN_EXE_victim"));
    Ok(victim.parent().context("the players lie nowhere")?.to_path_buf())
}
