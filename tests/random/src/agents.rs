//! Agents that are killed and started again while histories run, one after the other with the same journal; what they have reported is
//! read from the journal by `epitaph list`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use nix::libc::SIGTERM;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, getsockname, setsockopt, socket, sockopt};
use serde_json::Value;

use crate::sys::{boot_now, found_within, kill};

/// Times of `CLOCK_BOOTTIME`, nanoseconds: when an agent was ready, and until when it surely had everything in its journal.
#[derive(Clone, Debug, Default)]
pub struct Runs(Vec<(u64, u64)>);

/// Between what happens and its frame in the journal. On a busy machine the agent waits for its turn, as it did when it started: so
/// much longer.
const MARGIN_NS: u64 = 1_000_000_000;
/// How long an agent runs once it is ready.
const RUNS_MS: std::ops::Range<u64> = 4_000..9_000;
/// The last reports come some seconds after their terminations.
const LAST: Duration = Duration::from_secs(15);
/// On a loaded machine.
const TO_START: Duration = Duration::from_secs(120);

impl Runs {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Some agent observed at a moment of that time. The journal makes the rest whole.
    pub fn met(&self, begin: u64, end: u64) -> bool {
        self.0.iter().any(|(ready, until)| *ready <= end && begin <= *until)
    }
}

/// What all agents have, one after the other.
#[derive(Debug)]
struct Place {
    program: PathBuf,
    directory: PathBuf,
    address: SocketAddr,
    /// Nobody else gets the port while no agent listens there.
    _port: OwnedFd,
}

#[derive(Debug)]
pub struct Agents {
    place: Arc<Place>,
    over: Arc<AtomicBool>,
    killing: JoinHandle<Result<Runs>>,
}

impl Agents {
    /// Returns once the first agent is ready.
    ///
    /// # Errors
    /// It cannot be started, or it ends.
    pub fn start(program: &Path, directory: &Path, seed: u64) -> Result<Agents> {
        let over = Arc::new(AtomicBool::new(false));
        let (port, address) = reserved()?;
        let place = Arc::new(Place {
            program: program.to_owned(),
            directory: directory.to_owned(),
            address: address.into(),
            _port: port,
        });
        let first = Agent::start(&place)?;
        let killing = {
            let (place, over) = (Arc::clone(&place), Arc::clone(&over));
            std::thread::spawn(move || kill_and_start(first, &place, &over, Rng::with_seed(seed)))
        };
        Ok(Agents { place, over, killing })
    }

    /// Lets the last agent finish, and returns all that was reported, by container, and when agents observed.
    ///
    /// # Errors
    /// An agent did not start or did not end as it should, or the journal cannot be listed.
    pub fn end(self) -> Result<(HashMap<String, Vec<Value>>, Runs)> {
        self.over.store(true, Ordering::Relaxed);
        let killing = self.killing.join();
        let runs = killing.map_err(|_| anyhow::anyhow!("the thread with the agents panicked"))??;
        let listed = Command::new(&self.place.program)
            .args(["list", "--output", "json", "--journal"])
            .arg(journal(&self.place.directory))
            .output()?;
        ensure!(listed.status.success(), "list: {}", String::from_utf8_lossy(&listed.stderr));
        let mut reports: HashMap<String, Vec<Value>> = HashMap::new();
        for line in String::from_utf8_lossy(&listed.stdout).lines() {
            let object: Value = serde_json::from_str(line)?;
            if let Some(id) = object["subject"]["id"].as_str().map(str::to_owned) {
                reports.entry(id).or_default().push(object);
            }
        }
        Ok((reports, runs))
    }
}

fn kill_and_start(first: Agent, place: &Place, over: &AtomicBool, mut rng: Rng) -> Result<Runs> {
    let mut runs = Runs::default();
    let mut agent = first;
    loop {
        let ready = boot_now();
        let margin = MARGIN_NS + (ready - agent.started);
        let runs_for = Duration::from_millis(rng.u64(RUNS_MS));
        let is_over = found_within(runs_for, || anyhow::Ok(over.load(Ordering::Relaxed).then_some(())))?;
        if is_over.is_some() {
            // The subject is time: the agent's own waits.
            sleep(LAST);
            runs.0.push((ready, boot_now() - margin));
            agent.end()?;
            return Ok(runs);
        }
        let killed = boot_now();
        agent.child.kill()?;
        agent.child.wait()?;
        runs.0.push((ready, killed - margin));
        agent = Agent::start(place)?;
    }
}

#[derive(Debug)]
struct Agent {
    child: Child,
    started: u64,
    log: PathBuf,
}

impl Agent {
    fn start(place: &Place) -> Result<Agent> {
        let log = place.directory.join("agent.log");
        let started = boot_now();
        let child = Command::new(&place.program)
            .args(["agent", "--listen", &place.address.to_string(), "--set"])
            .arg(format!("journal.directory={}", journal(&place.directory).display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::options().create(true).append(true).open(&log)?)
            .spawn()
            .context("starting the agent")?;
        let mut agent = Agent { child, started, log };
        let ready = found_within(TO_START, || {
            if let Some(status) = agent.child.try_wait()? {
                bail!("the agent ended with {status}: {}", agent.log());
            }
            Ok(is_ready(place.address).then_some(()))
        })?;
        ensure!(ready.is_some(), "the agent is not ready: {}", agent.log());
        Ok(agent)
    }

    fn end(&mut self) -> Result<()> {
        kill(self.child.id(), SIGTERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the agent ended with {status}: {}", self.log());
        Ok(())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A socket that is bound and does not listen, so that the kernel gives its port to nobody; with SO_REUSEADDR from then on, so that an agent
/// can listen there all the same.
fn reserved() -> Result<(OwnedFd, SocketAddrV4)> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let any = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    bind(socket.as_raw_fd(), &any)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    let address = getsockname::<SockaddrIn>(socket.as_raw_fd())?.into();
    Ok((socket, address))
}

fn journal(directory: &Path) -> PathBuf {
    directory.join("journal")
}

fn is_ready(address: SocketAddr) -> bool {
    let asked = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    asked().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_saw_a_part_has_met_it() {
        let runs = Runs(vec![(10, 20), (30, 40)]);
        assert!(runs.met(5, 10) && runs.met(20, 25) && runs.met(15, 35) && runs.met(0, 50));
        assert!(!runs.met(21, 29) && !runs.met(0, 9) && !runs.met(41, 50));
        // Killed within the margin of its start: nothing is sure to be in its journal.
        assert!(!Runs(vec![(10, 8)]).met(9, 9));
    }
}
