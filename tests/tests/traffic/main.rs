//! What clients of real servers lose when the server ends, by their own account, against what the agent counts: never more than that,
//! and never less with the undecided connections, of which each program has a bound.
//!
//! A connection counts once, whatever number of requests it loses.

mod cases;
mod page;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use epitaph_tests::agent::program;
use epitaph_tests::cgroup::Mounts;
use epitaph_tests::contained::{Contained, Container};
use epitaph_tests::machine::is_root;
use epitaph_tests::programs::{Installed, Place};
use epitaph_tests::skip::skip;
use epitaph_tests::watch::Watch;
use serde_json::Value;

use cases::{CASES, CLIENTS, Case, Server};

/// Of the programs that are not ours, and that wait for their clients: more than the slowest answer takes.
const GRACE: Duration = Duration::from_secs(8);
/// Of those that end by themselves, on a loaded machine.
const LONG_GRACE: Duration = Duration::from_secs(120);
/// Containers at once.
const AT_ONCE: usize = 4;
/// Of all [`Case::early_goodbyes`] in one run, at most.
const EARLY_GOODBYES: u64 = 3;
/// A process that runs as soon as it can.
const PROMPT: [&str; 3] = ["chrt", "--fifo", "1"];

/// What a case came to.
struct Outcome {
    /// Connections, by the clients' log.
    lost: u64,
    reasons: Vec<String>,
    /// Refused, reset and cut, by the agent.
    counted: u64,
    undecided: u64,
    verdict: String,
    termination: Value,
}

#[test]
fn clients_lose_what_is_counted_or_undecided() -> anyhow::Result<()> {
    const NAME: &str = "clients_lose_what_is_counted_or_undecided";
    if !is_root() {
        skip(NAME, "playing needs root");
        return Ok(());
    }
    if !Mounts::find().is_ok_and(|mounts| mounts.v2.is_some()) {
        skip(NAME, "no cgroup v2");
        return Ok(());
    }
    #[expect(clippy::disallowed_methods, reason = "set by cargo xtask test")]
    let Some(traffic) = std::env::var_os("EPITAPH_TRAFFIC") else {
        skip(NAME, "no EPITAPH_TRAFFIC: `cargo xtask test` builds the servers");
        return Ok(());
    };
    let cases: Vec<&Case> = CASES.iter().filter(|case| case.is_playable()).collect();
    let outcomes = play(Path::new(&traffic), &cases)?;
    let pairs = || cases.iter().copied().zip(&outcomes);
    let problems: Vec<String> = pairs().flat_map(|(case, outcome)| outcome.differs(case)).collect();
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    let early: u64 = outcomes.iter().map(Outcome::excess).sum();
    println!("{early} connections without a loss count as reset, because the client's goodbye was early");
    ensure!(early <= EARLY_GOODBYES, "{early} connections count as reset without a loss");
    page::check(pairs())
}

impl Outcome {
    /// What is counted and was not lost.
    fn excess(&self) -> u64 {
        self.counted.saturating_sub(self.lost)
    }

    fn differs(&self, case: &Case) -> Vec<String> {
        let mut differs = Vec::new();
        let mut check = |is_so: bool, what: &str| {
            if !is_so {
                differs.push(format!(
                    "{case}: {what}: lost {} {:?}, counted {}, undecided {} (at most {}), verdict {}: {}\n{:#}",
                    self.lost,
                    self.reasons,
                    self.counted,
                    self.undecided,
                    case.undecided,
                    self.verdict,
                    self.termination["sentence"],
                    self.termination["connections"]
                ));
            }
        };
        check(self.lost == case.lost, "the clients lost something else");
        check(
            self.excess() <= case.early_goodbyes(),
            "more is counted than the clients lost",
        );
        check(
            self.excess() == 0 || self.verdict == "reset-connections",
            "a client's goodbye is not a cut connection",
        );
        check(
            self.lost <= self.counted + self.undecided,
            "a loss is neither counted nor undecided",
        );
        check(self.undecided <= case.undecided, "too many are undecided");
        let expected: &[&str] = match (self.counted, self.undecided) {
            _ if case.is_killed => &["killed-after-grace"],
            (0, 0) => &["clean"],
            (0, _) => &["undecided-connections"],
            _ => &["cut-connections", "reset-connections"],
        };
        check(expected.contains(&self.verdict.as_str()), "another verdict");
        differs
    }
}

fn play(traffic: &Path, cases: &[&Case]) -> anyhow::Result<Vec<Outcome>> {
    let victim = Path::new(env!("CARGO_BIN_EXE_victim"));
    let players = victim.parent().context("the players lie nowhere")?;
    let mut watch = Watch::start(&program(players))?;

    let mut upstream = Reading::start(Command::new(traffic).args(["serve", "http", "exit", "127.0.0.1:0"]))?;
    let ready = upstream.line()?;
    let upstream_at: SocketAddr = ready.strip_prefix("ready ").context("no address")?.parse()?;
    let waiting = Mutex::new(cases.iter().enumerate());
    let played = Mutex::new(HashMap::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("no player panics").next();
                    let Some((place, case)) = next else { return };
                    let result = case.play(players, traffic, upstream_at).with_context(|| case.to_string());
                    played.lock().expect("no player panics").insert(place, result);
                }
            });
        }
    });
    let mut played = played.into_inner().expect("no player panics");
    let mut all = Vec::new();
    for place in 0..cases.len() {
        all.push(played.remove(&place).context("a case was not played")??);
    }

    let mut terminations: HashMap<String, Value> = HashMap::new();
    while all.iter().any(|played| !terminations.contains_key(&played.id)) {
        let line = watch.next(|line| line["type"] == "termination")?;
        if let Some(id) = line["subject"]["id"].as_str() {
            terminations.insert(id.to_owned(), line);
        }
    }
    watch.end()?;
    all.into_iter().map(|played| played.outcome(&mut terminations)).collect()
}

/// A container that has ended, and the log of its clients.
struct Played {
    id: String,
    log: Value,
}

impl Played {
    fn outcome(self, terminations: &mut HashMap<String, Value>) -> anyhow::Result<Outcome> {
        let termination = terminations.remove(&self.id).context("no termination")?;
        let count = |what: &str| {
            termination["connections"][what]
                .as_u64()
                .with_context(|| format!("no count {what}"))
        };
        let reasons = self.log["reasons"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(Outcome {
            lost: self.log["lost"].as_u64().context("no count of losses")?,
            reasons: reasons.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            counted: count("refused")? + count("reset")? + count("cut")?,
            undecided: count("undecided")?,
            verdict: termination["verdict"].as_str().unwrap_or_default().to_owned(),
            termination,
        })
    }
}

impl Case {
    /// False, and said, where its program is missing, or clients or server cannot be as prompt as they must be.
    fn is_playable(&self) -> bool {
        let [chrt, how @ ..] = PROMPT;
        let is_prompt = || {
            Command::new(chrt)
                .args(how)
                .arg("true")
                .status()
                .is_ok_and(|status| status.success())
        };
        let needs_prompt = self.needs_prompt_clients() || self.needs_prompt_server();
        let is_here = match self.server {
            _ if needs_prompt && !is_prompt() => Err("no real-time priority: chrt(1)".to_owned()),
            Server::Installed(program) => program.is_here(),
            _ => Ok(()),
        };
        if let Err(missing) = &is_here {
            skip(&format!("clients-of-{self}"), missing);
        }
        is_here.is_ok()
    }

    fn play(&self, players: &Path, traffic: &Path, upstream: SocketAddr) -> anyhow::Result<Played> {
        let directory = tempfile::tempdir()?;
        let mut container = match self.server {
            Server::Go => self.served_by(traffic),
            Server::Rust => self.served_by(&example("grpc-server")?),
            Server::Installed(program) => self.installed(program, directory.path(), upstream)?,
        };
        if self.needs_prompt_server() {
            // PID 1 stays the server: chrt executes it.
            container.command.splice(0..0, PROMPT.map(str::to_owned));
        }
        let mut server = Contained::start(players, directory.path(), container)?;
        let address = server.ready()?;
        let [chrt, how @ ..] = PROMPT;
        let mut command = match self.needs_prompt_clients() {
            true => Command::new(chrt),
            false => Command::new(traffic),
        };
        if self.needs_prompt_clients() {
            command.args(how).arg(traffic);
        }
        let mut clients = Reading::start(
            command
                .args(["call", self.protocol, self.usage])
                .arg(address.to_string())
                .arg(CLIENTS.to_string()),
        )?;
        ensure!(clients.line()? == "in place", "the clients are not in place");
        server.stop()?;
        let log = serde_json::from_str(&clients.line()?)?;
        server.ended()?;
        server.removed()?;
        Ok(Played {
            id: server.id.clone(),
            log,
        })
    }

    fn served_by(&self, program: &Path) -> Container {
        let words = [
            &program.display().to_string(),
            "serve",
            self.protocol,
            self.way,
            "127.0.0.1:0",
        ];
        Container::new(words.map(str::to_owned).to_vec(), LONG_GRACE)
    }

    fn installed(&self, program: &Installed, directory: &Path, upstream: SocketAddr) -> anyhow::Result<Container> {
        // Workers with a user of their own read it.
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))?;
        let place = Place::new(directory, "")?.before(upstream);
        let command = place.prepare(program)?;
        Ok(Container {
            listens: Some(place.address()),
            signal: self.signal(),
            ..Container::new(command, if self.is_killed { GRACE } else { LONG_GRACE })
        })
    }
}

/// Cargo builds the examples of this package with its tests, beside them.
fn example(name: &str) -> anyhow::Result<PathBuf> {
    let victim = Path::new(env!("CARGO_BIN_EXE_victim"));
    let built = victim
        .parent()
        .context("the players lie nowhere")?
        .join("examples")
        .join(name);
    ensure!(
        built.is_file(),
        "no {}: build it with cargo build -p epitaph-tests --examples",
        built.display()
    );
    Ok(built)
}

/// A program that prints lines. Killed when dropped.
struct Reading(Child, BufReader<std::process::ChildStdout>);

impl Reading {
    fn start(command: &mut Command) -> anyhow::Result<Reading> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().context("their output is not a pipe")?;
        Ok(Reading(child, BufReader::new(out)))
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.1.read_line(&mut line)? == 0 {
            bail!("it ended: {}", self.0.wait()?);
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
