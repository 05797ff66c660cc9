//! The HTTP ports of agent and observer under attack: in a cluster every pod can connect to them.
//!
//! Each attack runs against the real program, with bounded numbers and on the loopback only. During the attack the health endpoints
//! answer, and the memory of the program grows by less than [`HTTP_MEMORY`].

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use epitaph_tests::agent::program;
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::http::free_port;
use epitaph_tests::machine::is_root;
use epitaph_tests::service::Service;
use epitaph_tests::skip::skip;
use epitaph_tests::timeout::{TIMEOUT, TO_END, holds, until};
use tempfile::TempDir;
use tokio::time::Instant;

/// docs/threat-model.md promises this bound, in KiB. The budget of the whole agent in its manifest is 256 MiB.
const HTTP_MEMORY: u64 = 24 * 1024;

/// The kubelet's probes in the manifests allow 5 s. The time in which the agent or this test waits for a processor is not counted.
const PROBE: Duration = Duration::from_secs(5);

/// Of writing to all connections, at most.
const ROUNDS: u32 = 20;

struct Stage {
    service: Service,
    health: u16,
    _directory: TempDir,
}

impl Stage {
    /// None, and a skip, if the test of that name cannot run.
    fn set(test: &str) -> anyhow::Result<Option<Stage>> {
        if !is_root() {
            skip(test, "observing needs root");
            return Ok(None);
        }
        Stage::of(Service::start).map(Some)
    }

    fn of(start: impl Fn(&Epitaph, &Path, &[&str]) -> anyhow::Result<Service>) -> anyhow::Result<Stage> {
        let directory = tempfile::tempdir()?;
        let binaries = Path::new(env!("CARGO_BIN_EXE_victim")).parent().context("no directory")?;
        let epitaph = Epitaph::copied(&program(binaries), directory.path())?;
        let health = free_port()?;
        let address = format!("health_listen=127.0.0.1:{health}");
        let service = start(&epitaph, directory.path(), &["--set", &address])?;
        Ok(Stage {
            service,
            health,
            _directory: directory,
        })
    }

    /// Runs `attack`, which returns the connections that stay open while the agent is checked.
    fn under(&mut self, attack: impl FnOnce(u16) -> Vec<TcpStream>) -> anyhow::Result<()> {
        let pid = self.service.pid();
        // The start of the agent needs more memory than its work: the peak counts from here.
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5").context("resetting the peak of the agent's memory")?;
        let before = memory(pid, "VmRSS")?;
        let asked = [
            ("health port", self.health, "/healthz"),
            ("health port", self.health, "/readyz"),
            ("metrics port", self.service.port, "/healthz"),
            ("metrics port", self.service.port, "/metrics"),
        ];
        let answers = |when: &str| -> anyhow::Result<Vec<u16>> {
            let answer = |(what, port, path): (&str, u16, &str)| {
                let context = || format!("{path} at the {what} {when}");
                let (begin, waited) = (Instant::now(), waited(pid));
                let (status, _) = ask(port, path).with_context(context)?;
                let (took, waited) = (begin.elapsed(), self::waited(pid).saturating_sub(waited));
                let is_in_time = took.saturating_sub(waited) <= PROBE;
                ensure!(
                    is_in_time,
                    "{}: after {took:?}, {waited:?} of them without a processor",
                    context()
                );
                Ok(status)
            };
            asked.into_iter().map(answer).collect()
        };
        // An observer without an API server is not ready, and answers so under attack, too.
        let expected = answers("before the attack")?;
        ensure!(
            [expected[0], expected[2], expected[3]] == [200; 3],
            "{asked:?} answered {expected:?}"
        );
        let held = attack(self.service.port);
        let found = answers(&format!("under {} connections", held.len()))?;
        ensure!(found == expected, "{asked:?} answered {found:?}, {expected:?} before");
        let grown = memory(pid, "VmHWM")?.saturating_sub(before);
        println!("{} connections: the agent's memory grew by {grown} KiB", held.len());
        ensure!(
            grown < HTTP_MEMORY,
            "the agent's memory grew by {grown} KiB from {before} KiB, more than {HTTP_MEMORY} KiB"
        );
        Ok(())
    }

    /// Waits until so many connections are counted as closed for these reasons.
    fn until_closed(&self, least: f64, reasons: &[&str]) -> anyhow::Result<()> {
        let closed = |reason: &&str| {
            let label = format!("reason=\"{reason}\"");
            self.service
                .metric("epitaph_http_connections_closed_total", &["listener=\"metrics\"", &label])
        };
        until(&format!("{least} connections to be closed for {reasons:?}"), || {
            let count: f64 = reasons.iter().map(closed).sum::<anyhow::Result<f64>>()?;
            Ok(holds(count >= least, || count.to_string()))
        })
    }

    fn end(mut self) -> anyhow::Result<()> {
        let status = self.service.end(TO_END)?;
        ensure!(status.success(), "{status}: {}", self.service.log());
        ensure!(!self.service.log().contains("panicked"), "{}", self.service.log());
        Ok(())
    }
}

/// A value of /proc/PID/status, KiB.
fn memory(pid: u32, name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the agent is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = line.and_then(|line| line.trim().strip_suffix(" kB"));
    value
        .with_context(|| format!("no {name}"))?
        .parse()
        .context("a number of KiB")
}

/// How long the threads of the process, and this one, have waited for a processor so far.
fn waited(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let files = tasks.map(|task| task.path()).chain(["/proc/thread-self".into()]);
    // A kernel without the file has no such times: 0.
    let waited = files.filter_map(|task| {
        let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
        times.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    Duration::from_nanos(waited.sum())
}

fn connect(port: u16, limit: Duration) -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), limit)
}

/// Status and body.
fn ask(port: u16, path: &str) -> anyhow::Result<(u16, String)> {
    let begin = Instant::now();
    let mut stream = connect(port, TIMEOUT)?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    let mut part = [0; 65536];
    loop {
        let left = TIMEOUT.checked_sub(begin.elapsed()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.context("no complete answer in time")?))?;
        match stream.read(&mut part)? {
            0 => break,
            read => answer.extend_from_slice(&part[..read]),
        }
    }
    let answer = String::from_utf8(answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the header")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, body.to_owned()))
}

/// The sockets of the process that listen or are bound, as the kernel lists them: `tcp 0100007F:1F90`.
fn listening(pid: u32) -> anyhow::Result<BTreeSet<String>> {
    let mut sockets = BTreeSet::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        // One that is closed meanwhile is not of interest.
        let Ok(target) = std::fs::read_link(entry?.path()) else {
            continue;
        };
        if let Some(inode) = target.to_string_lossy().strip_prefix("socket:[") {
            sockets.insert(inode.trim_end_matches(']').to_owned());
        }
    }
    let mut found = BTreeSet::new();
    for (table, state) in [
        ("tcp", "0A"),
        ("tcp6", "0A"),
        ("udp", "07"),
        ("udp6", "07"),
        ("raw", "07"),
        ("raw6", "07"),
    ] {
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        let rows = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        let of_process = rows.filter(|row| row.len() > 9 && row[3] == state && sockets.contains(row[9]));
        found.extend(of_process.map(|row| format!("{table} {}", row[1])));
    }
    Ok(found)
}

/// Opens `count` connections and writes as much of `bytes` to each as the agent reads. After each round it answers a request that came in
/// behind all of them; the last round is one in which it has read nothing more.
fn flood(port: u16, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let mut open: Vec<(TcpStream, usize)> = Vec::new();
    for _ in 0..2 * count {
        if open.len() == count {
            break;
        }
        // A starved agent takes none for a while: an attacker opens another.
        let Ok(stream) = connect(port, PROBE) else { continue };
        if stream.set_nonblocking(true).is_ok() {
            open.push((stream, 0));
        }
    }
    for _ in 0..ROUNDS {
        let mut is_written = false;
        for (stream, sent) in &mut open {
            while *sent < bytes.len() {
                match stream.write(&bytes[*sent..]) {
                    Ok(written) => {
                        *sent += written;
                        is_written = true;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => *sent = bytes.len(),
                }
            }
        }
        if !is_written {
            break;
        }
        // The attack goes on even if it has made the agent unreachable, which the test then finds.
        let _ = ask(port, "/healthz");
    }
    open.into_iter().map(|(stream, _)| stream).collect()
}

/// docs/threat-model.md: the only listeners of the agent's process for IP.
#[test]
fn nothing_listens_beyond_the_two_ports() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("nothing_listens_beyond_the_two_ports")? else {
        return Ok(());
    };
    let ports = [stage.service.port, stage.health].map(|port| format!("tcp 0100007F:{port:04X}"));
    assert_eq!(listening(stage.service.pid())?, BTreeSet::from(ports));
    stage.end()
}

/// 800 heads of 400 KB without an end: 320 MB if the agent kept them.
#[test]
fn unfinished_heads_are_no_memory_of_the_agent() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("unfinished_heads_are_no_memory_of_the_agent")? else {
        return Ok(());
    };
    let mut head = String::from("GET /metrics HTTP/1.1\r\nHost: node\r\n");
    while head.len() < 400_000 {
        let _ = write!(head, "X-{}: {}\r\n", head.len(), "a".repeat(4_000));
    }
    stage.under(|port| flood(port, 800, head.as_bytes()))?;
    stage.until_closed(700.0, &["head_too_large", "displaced"])?;
    stage.end()
}

#[test]
fn idle_connections_hold_no_place() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("idle_connections_hold_no_place")? else {
        return Ok(());
    };
    stage.under(|port| flood(port, 1_100, b"GET /metrics HTT"))?;
    stage.until_closed(1_000.0, &["displaced"])?;
    stage.end()
}

/// The connections get a complete answer written, and read nothing of it.
#[test]
fn clients_that_read_no_answer_are_no_memory_of_the_agent() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("clients_that_read_no_answer_are_no_memory_of_the_agent")? else {
        return Ok(());
    };
    stage.under(|port| flood(port, 600, b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n"))?;
    stage.end()
}

/// The health port has limits of its own, and is as reachable as the metrics port.
#[test]
fn a_full_health_port_answers_too() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("a_full_health_port_answers_too")? else {
        return Ok(());
    };
    let health = stage.health;
    stage.under(|_| flood(health, 1_100, b"GET /healthz HTT"))?;
    if ask(health, "/metrics")?.0 != 404 {
        bail!("the health port serves /metrics, which costs more than a probe");
    }
    stage.end()
}

/// A connection without a request ends by itself, without another one that needs its place.
#[test]
fn a_silent_connection_is_closed_in_time() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("a_silent_connection_is_closed_in_time")? else {
        return Ok(());
    };
    let mut silent = connect(stage.service.port, TIMEOUT)?;
    silent.set_read_timeout(Some(TIMEOUT))?;
    let mut answer = Vec::new();
    silent
        .read_to_end(&mut answer)
        .context("the agent keeps a silent connection")?;
    stage.service.until(
        "epitaph_http_connections_closed_total",
        &["listener=\"metrics\"", "reason=\"head_timeout\""],
        1.0,
    )?;
    stage.end()
}

#[test]
fn an_observer_bears_unfinished_heads_and_idle_connections() -> anyhow::Result<()> {
    let mut stage = Stage::of(Service::observer_alone)?;
    let head = format!("GET /metrics HTTP/1.1\r\nHost: node\r\nX-Long: {}", "a".repeat(400_000));
    stage.under(|port| flood(port, 800, head.as_bytes()))?;
    stage.until_closed(700.0, &["head_too_large", "displaced"])?;
    stage.under(|port| flood(port, 1_100, b"GET /metrics HTT"))?;
    stage.until_closed(1_000.0, &["displaced"])?;
    stage.end()
}
