//! Clients outside of the machine, and clients by IPv6: what a server that closes its listener lost of them, counted by both sides, while a
//! neighbour has segments to closed ports answered as fast as it can; and what one of those costs its sender meanwhile.
//!
//! The host's part (`xtask/src/kernels/outside.rs`): for a line `clients N` it connects N times to [`SERVICE`], and sends the number of
//! clients that got no answer to [`CONTROL`].

use std::fmt::{self, Display, Formatter};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::libc::SIGTERM;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;

use super::danger::{Container, start};
use super::{TO_END, TO_JUDGE, TO_OBSERVE, check, row};
use crate::agent::Agent;
use crate::segments::Segments;
use crate::sys::{Blocked, kill, random_hex};

const SERVICE: u16 = 7_000;
const CONTROL: u16 = 7_001;
const CLOSED: u16 = 7_002;
/// As QEMU's own network gives it to its only guest.
const ADDRESS: &str = "10.0.2.15/24";
const CARD: &str = "eth0";
const SERVED: u64 = 20;
const REFUSED: u64 = 50;
/// By IPv6, which QEMU forwards nothing of.
const REFUSED_BY_IPV6: u64 = 10;

/// # Errors
/// It cannot be played.
pub fn play(program: &Path, lost: &mut row::Lost) -> anyhow::Result<u32> {
    if !Path::new("/sys/class/net").join(CARD).exists() {
        println!("skip clients outside of the machine: it has no network card; the kernel's package has no module virtio_net");
        return Ok(0);
    }
    network()?;
    let (to, lines) = channel();
    let mut agent = Agent::start(program, None, None, to)?;
    match lines.recv_timeout(TO_OBSERVE) {
        Ok(Some(_)) => {}
        _ => anyhow::bail!("the agent does not observe; its log:\n{}", agent.log()),
    }
    let id = random_hex(32)?;
    let mut costs = Costs::default();
    let failed = lose(&id, &mut costs)?;
    let judged = loop {
        match lines.recv_timeout(TO_JUDGE) {
            Ok(Some(line)) => {
                let line: Value = serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))?;
                lost.take_line(&line);
                if line["type"] == "termination" && line["subject"]["id"] == id.as_str() {
                    break line;
                }
            }
            _ => anyhow::bail!("no termination of the server; the agent's log:\n{}", agent.log()),
        }
    };
    agent.end(TO_END)?;
    costs.without_agent = cost()?;
    println!("note {costs}");
    Ok(check(
        "clients outside of the machine and by IPv6: refused is what they count",
        compare(&judged, failed),
    ))
}

fn network() -> anyhow::Result<()> {
    for arguments in [&["addr", "add", ADDRESS, "dev", CARD][..], &["link", "set", CARD, "up"]] {
        let status = Command::new("ip").args(arguments).status().context("run ip")?;
        ensure!(status.success(), "ip {}: {status}", arguments.join(" "));
    }
    Ok(())
}

/// Plays the server's stop; how many clients got no answer, by their own count.
fn lose(id: &str, costs: &mut Costs) -> anyhow::Result<u64> {
    let control = TcpListener::bind(("0.0.0.0", CONTROL)).context("listen for the host's counts")?;
    let scope = Container::new(id, None)?;
    let mut server = start("serve", Stdio::piped())?;
    scope.join(server.id())?;
    drop(server.stdin.take());
    let mut said = BufReader::new(server.stdout.take().context("the server's output is not a pipe")?).lines();
    let mut expect = |word: &str| -> anyhow::Result<()> {
        let line = said.next().transpose()?.unwrap_or_default();
        ensure!(line == word, "the server printed `{line}` in place of `{word}`");
        Ok(())
    };
    expect("listening")?;
    let served = clients(&control, SERVED)?;
    ensure!(
        served == 0,
        "{served} of {SERVED} clients of a server that listens got no answer"
    );
    let pid = i32::try_from(server.id())?;
    costs.observed = cost()?;
    let storm = Storm::begin()?;
    kill(pid, SIGTERM).context("stop the server")?;
    expect("closed")?;
    let mut failed = clients(&control, REFUSED)?;
    for _ in 0..REFUSED_BY_IPV6 {
        failed += u64::from(TcpStream::connect((Ipv6Addr::LOCALHOST, SERVICE)).is_err());
    }
    costs.meanwhile = storm.end()?;
    costs.terminating = cost()?;
    kill(pid, SIGTERM).context("have the server exit")?;
    server.wait()?;
    ensure!(
        failed == REFUSED + REFUSED_BY_IPV6,
        "{failed} clients got no answer after the listener had closed"
    );
    Ok(failed)
}

/// Has the host connect so many clients; how many of them got no answer.
fn clients(control: &TcpListener, count: u64) -> anyhow::Result<u64> {
    println!("clients {count}");
    let (mut host, _) = control.accept().context("wait for the host's count")?;
    let mut text = String::new();
    host.read_to_string(&mut text)?;
    text.trim().parse().with_context(|| format!("the host sent {text}"))
}

/// A neighbour that sends segments to a closed port as fast as it can: none of that is the server's.
struct Storm {
    is_over: Arc<AtomicBool>,
    sending: JoinHandle<anyhow::Result<u32>>,
}

impl Storm {
    fn begin() -> anyhow::Result<Storm> {
        const AT_ONCE: u32 = 100;
        let is_over = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&is_over);
        let mut segments = Segments::to(CLOSED)?;
        let sending = std::thread::spawn(move || {
            let mut count = 0;
            while !asked.load(Ordering::Relaxed) {
                segments.send(AT_ONCE)?;
                count += AT_ONCE;
            }
            Ok(count)
        });
        Ok(Storm { is_over, sending })
    }

    /// How many it sent.
    fn end(self) -> anyhow::Result<u32> {
        self.is_over.store(true, Ordering::Relaxed);
        self.sending.join().map_err(|_| anyhow::anyhow!("the storm panicked"))?
    }
}

/// Processor time of one segment to a closed port with its answer, as the sender pays it.
#[derive(Default)]
struct Costs {
    without_agent: Duration,
    /// While nothing terminates.
    observed: Duration,
    /// While a container does that had closed another port.
    terminating: Duration,
    /// Segments that the storm sent while the server's clients were refused.
    meanwhile: u32,
}

impl Display for Costs {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let nanos = |cost: Duration| cost.as_nanos();
        write!(
            f,
            "{} segments to another closed port meanwhile; processor time of one with its answer, emulated: {} ns without the agent, {} ns \
             with it, {} ns while a container terminates",
            self.meanwhile,
            nanos(self.without_agent),
            nanos(self.observed),
            nanos(self.terminating)
        )
    }
}

/// The least of several, because an emulating host does other things, too.
fn cost() -> anyhow::Result<Duration> {
    const TIMES: usize = 9;
    const SEGMENTS: u32 = 1_000;
    let mut segments = Segments::to(CLOSED)?;
    let costs: Vec<Duration> = (0..TIMES).map(|_| segments.cost(SEGMENTS)).collect::<Result<_, _>>()?;
    costs.into_iter().min().context("nothing was measured")
}

fn compare(judged: &Value, failed: u64) -> anyhow::Result<()> {
    let connections = &judged["connections"];
    let found = (
        judged["traffic"].as_str(),
        connections["refused"].as_u64(),
        connections["refused_known_by"].as_str(),
        connections["observed"].as_bool(),
    );
    let expected = (Some("refused"), Some(failed), Some("server-reset"), Some(true));
    ensure!(found == expected, "{found:?} in place of {expected:?}: {judged}");
    Ok(())
}

/// Answers each client until the first SIGTERM, then closes its listener, and exits at the second. Exit code.
pub fn serve() -> i32 {
    match served() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("guest: serve: {error:#}");
            1
        }
    }
}

fn served() -> anyhow::Result<()> {
    let signals = Blocked::new(SIGTERM)?;
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, SERVICE))?;
    listener.set_nonblocking(true)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_over);
    let accepting = std::thread::spawn(move || -> std::io::Result<()> {
        while !asked.load(Ordering::Relaxed) {
            let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(20_u16))?;
            while let Ok((mut client, _)) = listener.accept() {
                client.write_all(b"served")?;
            }
        }
        Ok(())
    });
    println!("listening");
    signals.wait()?;
    is_over.store(true, Ordering::Relaxed);
    accepting
        .join()
        .map_err(|_| anyhow::anyhow!("the accepting thread panicked"))??;
    println!("closed");
    signals.wait()?;
    Ok(())
}
