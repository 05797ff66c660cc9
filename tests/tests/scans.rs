//! A neighbour that sends SYNs to the closed port of a terminating server, or listens there itself: it can neither inflate what clients
//! needed, nor make a termination unclean that harmed no client, nor hide a refused client.

use std::net::SocketAddr;
use std::ops::RangeFrom;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use epitaph_tests::agent::program;
use epitaph_tests::cgroup::{Mounts, SLICE};
use epitaph_tests::contained::{Contained, Container};
use epitaph_tests::http::free_port;
use epitaph_tests::machine::is_root;
use epitaph_tests::network::Network;
use epitaph_tests::skip::skip;
use epitaph_tests::timeout::{holds, until};
use epitaph_tests::victim::OVER;
use epitaph_tests::watch::Watch;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Until a container is killed that nobody ended.
const GRACE: Duration = Duration::from_secs(120);
/// Who is refused so long after the exit still belongs to the termination: a scanner that begins after the exit has all the time that a loaded
/// machine needs, and the test waits for all of it.
const LINGER: &str = "20s";
const CLIENT: &str = "127.0.0.1:0";
/// Below the ephemeral ports. The kernel may choose an ephemeral port twice, and a second SYN of the same port counts as the
/// retransmission of the first. Each test has its own: they run side by side. From 21,000 on are those of the random histories.
const SCANNER_PORTS: RangeFrom<u16> = 20_000..;
const OTHER_SCANNER_PORTS: RangeFrom<u16> = 17_000..;
/// The same of a client.
const CLIENT_PORTS: RangeFrom<u16> = 18_000..;
const OTHER_CLIENT_PORTS: RangeFrom<u16> = 19_000..;

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
    const SCANS: u32 = 75;
    let mut played = Played::start(&["serve", "close-listener-until-over", "127.0.0.1:0"])?;
    let address = played.container.ready()?;
    ask(CLIENT, address).await?.context("the server does not serve")?;
    played.container.stop()?;
    let mut last_served = Instant::now();
    loop {
        let begin = Instant::now();
        if ask(CLIENT, address).await?.is_none() {
            break;
        }
        last_served = begin;
    }
    // The listener was closed since then: to keep accepting for so many seconds serves the client.
    let needed = last_served.elapsed().as_secs() + 1;
    let goes_on = Duration::from_secs(needed) + Duration::from_millis(500);
    // Not before the client is refused: a scanner that is served is a client.
    for port in SCANNER_PORTS.take(SCANS as usize) {
        ensure!(scan(port, address).await?.is_none(), "the scanner was served");
        // The subject is time: what the scanner would need is half a second more at least.
        tokio::time::sleep(goes_on / SCANS).await;
    }
    played.is_over()?;
    let termination = played.finish()?;
    let connections = &termination["connections"];
    assert_eq!(termination["verdict"], "refused-connections", "{termination:#}");
    assert_eq!(connections["refused_new_peers"], SCANS, "{termination:#}");
    let peers = connections["peers"].as_array().context("no peers")?;
    let known = |ip: &str| {
        peers
            .iter()
            .find(|peer| peer["address"] == ip)
            .map(|peer| peer["had_connected"].clone())
    };
    assert_eq!(known("127.0.0.1"), Some(true.into()), "{termination:#}");
    assert_eq!(known("127.0.0.9"), Some(false.into()), "{termination:#}");
    // Of the client's refusal alone.
    let remedy = termination["remedy"].as_str().context("no remedy")?;
    let is_advised = (1..=needed).any(|seconds| remedy.contains(&format!("keep accepting for {seconds} s")));
    ensure!(is_advised, "more than {needed} s: {termination:#}");
    Ok(())
}

/// Without a network namespace of its own, any process can listen on the port of a closed listener: on another address, or for a
/// moment on the same one.
#[tokio::test]
async fn a_neighbour_that_listens_on_the_same_port_hides_no_refusal() -> anyhow::Result<()> {
    if !can_play("a_neighbour_that_listens_on_the_same_port_hides_no_refusal") {
        return Ok(());
    }
    // Nobody else gets the port between the two listeners.
    let at = format!("127.0.0.1:{}", free_port()?);
    let mut played = Played::start(&["serve", "close-listener-until-over", &at])?;
    let address = played.container.ready()?;
    ask(CLIENT, address).await?.context("the server does not serve")?;
    played.container.stop()?;
    while ask(CLIENT, address).await?.is_some() {}
    let elsewhere = std::net::TcpListener::bind(("127.0.0.9", address.port()))?;
    drop(std::net::TcpListener::bind(address)?);
    for port in CLIENT_PORTS.take(20) {
        ensure!(refused(port, address).await?, "the client was served");
    }
    drop(elsewhere);
    played.is_over()?;
    let termination = played.finish()?;
    assert_eq!(termination["verdict"], "refused-connections", "{termination:#}");
    let refused = termination["connections"]["refused"].as_u64().context("no count")?;
    ensure!(refused >= 20, "{termination:#}");
    Ok(())
}

/// SO_REUSEPORT: two containers of one network namespace, and of one user, listen on the same port. While the neighbour listens, no
/// client is refused.
#[tokio::test]
async fn a_neighbour_that_shares_the_port_is_no_refusal() -> anyhow::Result<()> {
    if !can_play("a_neighbour_that_shares_the_port_is_no_refusal") {
        return Ok(());
    }
    let (mut played, _, neighbour) = served_by_a_neighbour().await?;
    played.is_over()?;
    played.container.ended()?;
    let termination = played.finish()?;
    neighbour.abort();
    assert_eq!(termination["verdict"], "clean", "{termination:#}");
    assert_eq!(termination["traffic"], "quiet", "{termination:#}");
    Ok(())
}

/// The neighbour's listener was the last one, and the port is the terminating server's all the same.
#[tokio::test]
async fn a_neighbour_that_shared_the_port_hides_no_refusal() -> anyhow::Result<()> {
    const REFUSED: usize = 10;
    if !can_play("a_neighbour_that_shared_the_port_hides_no_refusal") {
        return Ok(());
    }
    let (mut played, address, neighbour) = served_by_a_neighbour().await?;
    neighbour.abort();
    ensure!(neighbour.await.is_err_and(|end| end.is_cancelled()), "the neighbour failed");
    for port in OTHER_CLIENT_PORTS.take(REFUSED) {
        ensure!(refused(port, address).await?, "the client was served");
    }
    played.is_over()?;
    played.container.ended()?;
    let termination = played.finish()?;
    assert_eq!(termination["verdict"], "refused-connections", "{termination:#}");
    let refused = termination["connections"]["refused"].as_u64().context("no count")?;
    ensure!(refused >= REFUSED as u64, "{termination:#}");
    Ok(())
}

/// A server that has closed its listener, and a neighbour that serves its port meanwhile.
async fn served_by_a_neighbour() -> anyhow::Result<(Played, SocketAddr, JoinHandle<anyhow::Result<()>>)> {
    let mut played = Played::of(None, "probe-player", &["share", CLIENT], &[])?;
    let address = played.container.ready()?;
    ask(CLIENT, address).await?.context("the server does not serve")?;
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    let listener = socket.listen(128)?;
    played.container.stop()?;
    // Until the server has closed its listener. A client in the queue at the close would be reset: another story.
    until("the server to close its listener", || {
        let count = listeners_at(address)?;
        Ok(holds(count <= 1, || format!("{count} listeners")))
    })?;
    let neighbour = tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await?;
            let mut request = [0; 7];
            client.read_exact(&mut request).await?;
            client.write_all(b"ok\n").await?;
        }
    });
    for _ in 0..20 {
        ask(CLIENT, address).await?.context("the neighbour does not serve")?;
    }
    Ok((played, address, neighbour))
}

/// Each client is served until it stops by itself; then a scanner is refused.
#[tokio::test]
async fn a_scanner_alone_is_no_client() -> anyhow::Result<()> {
    if !can_play("a_scanner_alone_is_no_client") {
        return Ok(());
    }
    let mut played = Played::lingering(None, &["serve", "accept-on-until-over", "127.0.0.1:0"])?;
    let address = played.container.ready()?;
    played.container.stop()?;
    for _ in 0..24 {
        ask(CLIENT, address).await?.context("a client was refused")?;
    }
    played.is_over()?;
    played.container.ended()?;
    for port in OTHER_SCANNER_PORTS.take(50) {
        ensure!(scan(port, address).await?.is_none(), "the scanner was served");
    }
    let termination = played.finish()?;
    assert_eq!(termination["verdict"], "refused-new-peers", "{termination:#}");
    assert_eq!(termination["severity"], "warning", "{termination:#}");
    assert_eq!(termination["connections"]["refused_new_peers"], 50, "{termination:#}");
    Ok(())
}

/// As with setns(2): whoever is in the server's own network namespace has an address that no pod network assigned.
#[tokio::test]
async fn a_scanner_within_the_servers_own_network_is_no_client() -> anyhow::Result<()> {
    const SCANS: usize = 50;
    let test = "a_scanner_within_the_servers_own_network_is_no_client";
    if !can_play(test) {
        return Ok(());
    }
    if let Err(why) = Network::available() {
        skip(test, &why);
        return Ok(());
    }
    let network = Network::create(false)?;
    let mut played = Played::lingering(
        Some(&network),
        &["serve", "accept-on-until-over", &network.address().to_string()],
    )?;
    let address = played.container.ready()?;
    played.container.stop()?;
    for _ in 0..24 {
        ask("0.0.0.0:0", address).await?.context("a client was refused")?;
    }
    played.is_over()?;
    played.container.ended()?;
    let mut scanner = vec![players()?.join("probe-player").display().to_string(), "connect".to_owned()];
    scanner.extend(vec![address.to_string(); SCANS]);
    let [program, args @ ..] = &network.command(scanner)[..] else {
        bail!("no command");
    };
    let scanned = Command::new(program).args(args).output()?;
    let scanned = String::from_utf8(scanned.stdout)?;
    let refused = scanned.lines().filter(|line| *line == "connection refused").count();
    ensure!(refused == SCANS, "{scanned}");
    let termination = played.finish()?;
    assert_eq!(termination["verdict"], "refused-new-peers", "{termination:#}");
    assert_eq!(termination["severity"], "warning", "{termination:#}");
    // The kernel may choose a port twice; see `SCANNER_PORTS`.
    let counted = termination["connections"]["refused_new_peers"].as_u64().context("no count")?;
    ensure!((1..=SCANS as u64).contains(&counted), "{termination:#}");
    Ok(())
}

/// How many sockets listen at this address of the loopback.
fn listeners_at(address: SocketAddr) -> anyhow::Result<usize> {
    let local = format!("0100007F:{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    let words = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    Ok(words.filter(|words| words[1] == local && words[3] == "0A").count())
}

async fn scan(from: u16, to: SocketAddr) -> anyhow::Result<Option<()>> {
    ask(&format!("127.0.0.9:{from}"), to).await
}

/// Whether a client is, from that port.
async fn refused(from: u16, to: SocketAddr) -> anyhow::Result<bool> {
    Ok(ask(&format!("127.0.0.1:{from}"), to).await?.is_none())
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
    watch: Watch,
    container: Contained,
    directory: tempfile::TempDir,
}

impl Played {
    fn start(victim: &[&str]) -> anyhow::Result<Played> {
        Played::of(None, "victim", victim, &[])
    }

    /// For those who are refused after the exit.
    fn lingering(network: Option<&Network>, victim: &[&str]) -> anyhow::Result<Played> {
        Played::of(network, "victim", victim, &[("EPITAPH_LIMITS_LINGER", LINGER)])
    }

    fn of(network: Option<&Network>, player: &str, arguments: &[&str], settings: &[(&str, &str)]) -> anyhow::Result<Played> {
        let players = players()?;
        let directory = tempfile::tempdir()?;
        let command: Vec<String> = std::iter::once(players.join(player).display().to_string())
            .chain(arguments.iter().map(|&arg| arg.to_owned()))
            .collect();
        let command = match network {
            Some(network) => network.command(command),
            None => command,
        };
        let mut epitaph = Command::new(program(&players));
        epitaph.envs(settings.iter().copied());
        let watch = Watch::start_by(epitaph)?;
        let container = Contained::start(&players, directory.path(), Container::new(command, GRACE))?;
        Ok(Played {
            watch,
            container,
            directory,
        })
    }

    /// The server exits.
    fn is_over(&self) -> anyhow::Result<()> {
        Ok(std::fs::write(self.directory.path().join(OVER), "")?)
    }

    /// The container's termination.
    fn finish(mut self) -> anyhow::Result<Value> {
        self.container.removed()?;
        let termination = self.watch.termination_of(&self.container.id)?;
        let path = termination["cgroup"].as_str().unwrap_or_default();
        ensure!(path.starts_with(&format!("/{SLICE}/")), "another container: {termination:#}");
        self.watch.end()?;
        Ok(termination)
    }
}

fn players() -> anyhow::Result<PathBuf> {
    let victim = Path::new(env!("CARGO_BIN_EXE_victim"));
    Ok(victim.parent().context("the players lie nowhere")?.to_path_buf())
}
