//! The demo: starts the agent, plays the stories, prints each termination as the agent reports it, compares.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::agent::Agent;
use crate::cgroup::Inhabitants;
use crate::machine::Machine;
use crate::play::{Played, Players, Role};
use crate::programs;
use crate::report::{Case, Kind, Report};
use crate::stories::{all, stories};
use crate::story::Story;
use crate::sys::{locked, random_hex};
use crate::timeout::{TIMEOUT, TO_END};

/// What to play, with what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `epitaph` binary.
    pub agent: PathBuf,
    /// Directory of `stand-in-runtime`, `victim` and `bystander`: cargo's directory of this package's binaries.
    pub players: PathBuf,
    /// Handed to the agent as `--otlp URL`.
    pub otlp: Option<String>,
    /// The agent is `record FILE`, not `watch`; next to it, [`demo`] writes the subject of each story, as `.played`.
    pub record: Option<PathBuf>,
    /// Names of stories; the demo's where it is empty.
    pub only: Vec<String>,
    /// Stories that play at the same time.
    pub at_once: usize,
    /// Keep the agent's unchanged output in a file, and print its path.
    pub keep: bool,
    /// What runs in cgroup v1.
    pub inhabitants: Inhabitants,
    /// How long the agent may take from the end of the last story to its last termination.
    pub to_judge: Duration,
}

impl Options {
    /// The demo's stories, six at once, a minute for the last verdict.
    pub fn new(agent: PathBuf, players: PathBuf) -> Options {
        Options {
            agent,
            players,
            otlp: None,
            record: None,
            only: Vec::new(),
            keep: false,
            at_once: 6,
            inhabitants: Inhabitants::AsFound,
            to_judge: Duration::from_secs(60),
        }
    }
}

/// Time for a second report of the same termination, which must not come.
const TO_REPEAT: Duration = Duration::from_secs(2);

/// Plays, and prints to stdout: each sentence on arrival, then the table. The caller judges by [`Report::passed`].
///
/// # Errors
/// Not root, a program is missing, the agent does not start to observe or exits too early.
pub fn demo(options: &Options) -> anyhow::Result<Report> {
    let report = run(options, &mut |line| println!("{line}"))?;
    println!("\n{report}");
    if options.keep {
        let path = std::env::temp_dir().join(format!("epitaph-demo-{}.jsonl", random_hex(4)?));
        std::fs::write(&path, report.lines.join("\n") + "\n").with_context(|| format!("write {}", path.display()))?;
        println!("the agent's output: {}", path.display());
    }
    if let Some(recording) = &options.record {
        let path = recording.with_extension("played");
        std::fs::write(&path, played(&report)).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(report)
}

/// A line per story: `passed` or `failed`, its name, its subject, and the container of its bystander where there is one.
fn played(report: &Report) -> String {
    let line = |case: &Case| {
        let result = if case.differs().is_empty() { "passed" } else { "failed" };
        let role = &case.role;
        let neighbour = role.neighbour.as_deref().unwrap_or_default();
        format!("{result} {} {} {neighbour}\n", role.story.name, role.subject)
    };
    report.cases.iter().map(line).collect()
}

/// As [`demo`], but every line that is to be shown on arrival goes to `print`.
///
/// # Errors
/// As [`demo`].
pub fn run(options: &Options, print: &mut dyn FnMut(&str)) -> anyhow::Result<Report> {
    for name in &options.only {
        ensure!(
            all().chain(programs::all()).any(|s| s.name == name),
            "unknown story `{name}`; the stories are: {}",
            names()
        );
    }
    let players = Players::on(&options.players, Machine::survey(options.inhabitants)?)?;
    let mut report = Report::default();
    let wanted: Vec<&'static Story> = match &options.only[..] {
        [] => stories().collect(),
        only => all()
            .chain(programs::all())
            .filter(|s| only.iter().any(|n| n == s.name))
            .collect(),
    };
    for story in wanted {
        match players.machine().can_play(story) {
            Ok(()) => report.cases.push(Case::new(players.cast(story)?)),
            Err(reason) => report.unplayable.push((story.name, reason)),
        }
    }
    let (to, messages) = channel();
    let mut agent = Agent::start(
        &options.agent,
        options.record.as_deref(),
        options.otlp.as_deref(),
        lines_to(to.clone()),
    )?;
    report.observing = observing(&mut agent, &messages)?;
    print(&format!(
        "the agent observes (pid {}) and knows nothing about the stories; {} stories start",
        agent.pid(),
        report.cases.len()
    ));
    for (story, reason) in &report.unplayable {
        print(&format!("not played: {story}: {reason}"));
    }
    let roles: Vec<Role> = report.cases.iter().map(|c| c.role.clone()).collect();
    let mut table = Table {
        report,
        messages,
        place: 0,
        agent_ended: false,
        to_judge: options.to_judge,
    };
    let waiting = Mutex::new(roles.iter().enumerate().collect::<VecDeque<_>>());
    std::thread::scope(|scope| {
        let waiting = &waiting;
        for _ in 0..options.at_once.max(1) {
            let (players, to) = (&players, to.clone());
            scope.spawn(move || {
                loop {
                    let Some((index, role)) = locked(waiting).pop_front() else {
                        return;
                    };
                    let played = players.play(role).map_err(|e| format!("{e:#}"));
                    let _ = to.send(Message::Played(index, played));
                }
            });
        }
        drop(to);
        table.listen(print);
        // Without an agent there is nothing to play for.
        if table.agent_ended {
            locked(waiting).clear();
        }
    });
    if table.agent_ended {
        let status = agent.end(Duration::ZERO)?;
        bail!(
            "the agent exited by itself ({status}); the log of the agent:\n{}",
            agent.log()
        );
    }
    let status = agent.end(TO_END).context("end the agent")?;
    table.rest(print);
    let mut report = table.report;
    if !status.success() {
        report.problems.push(format!(
            "after SIGTERM the agent exited with {status}; the log of the agent:\n{}",
            agent.log()
        ));
    }
    Ok(report)
}

enum Message {
    Line(String),
    AgentEnded,
    Played(usize, Result<Played, String>),
}

fn names() -> String {
    all().map(|s| s.name).collect::<Vec<_>>().join(", ")
}

/// The agent's lines into the common channel.
fn lines_to(to: Sender<Message>) -> Sender<Option<String>> {
    let (lines, from) = channel::<Option<String>>();
    std::thread::spawn(move || {
        for line in from {
            let _ = to.send(line.map_or(Message::AgentEnded, Message::Line));
        }
    });
    lines
}

fn observing(agent: &mut Agent, messages: &Receiver<Message>) -> anyhow::Result<Value> {
    match messages.recv_timeout(TIMEOUT) {
        Ok(Message::Line(line)) => {
            let value: Value =
                serde_json::from_str(&line).with_context(|| format!("the agent's first line is not JSON: {line}"))?;
            ensure!(
                value["type"] == "observing",
                "the agent's first line is not of type observing: {line}"
            );
            Ok(value)
        }
        Ok(_) => {
            let status = agent.end(Duration::ZERO)?;
            bail!(
                "the agent exited before it observed ({status}); the log of the agent:\n{}",
                agent.log()
            )
        }
        Err(_) => bail!(
            "the agent did not observe within {} s; the log of the agent:\n{}",
            TIMEOUT.as_secs(),
            agent.log()
        ),
    }
}

struct Table {
    report: Report,
    messages: Receiver<Message>,
    /// Lines of the agent so far.
    place: u64,
    agent_ended: bool,
    to_judge: Duration,
}

impl Table {
    /// Until every story is played and judged, or the agent is given up.
    fn listen(&mut self, print: &mut dyn FnMut(&str)) {
        loop {
            let played = self.report.cases.iter().all(|c| c.played.is_some());
            let judged = self.report.cases.iter().all(|c| !c.terminations.is_empty());
            let timeout = match (played, judged) {
                (true, true) => TO_REPEAT,
                (true, false) => self.to_judge,
                // The players have timeouts of their own.
                (false, _) => Duration::from_secs(600),
            };
            match self.messages.recv_timeout(timeout) {
                Ok(Message::AgentEnded) => {
                    self.agent_ended = true;
                    return;
                }
                Ok(message) => self.take(message, print),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Reads the agent's remaining output up to its exit.
    fn rest(&mut self, print: &mut dyn FnMut(&str)) {
        while let Ok(message) = self.messages.recv_timeout(TO_END) {
            if matches!(message, Message::AgentEnded) {
                return;
            }
            self.take(message, print);
        }
    }

    fn take(&mut self, message: Message, print: &mut dyn FnMut(&str)) {
        match message {
            Message::AgentEnded => {}
            Message::Played(index, played) => {
                if let Err(e) = &played {
                    print(&format!(
                        "  {}: a player failed: {e}",
                        self.report.cases[index].role.story.name
                    ));
                }
                self.report.cases[index].played = Some(played);
            }
            Message::Line(line) => {
                self.place += 1;
                self.report.lines.push(line.clone());
                match serde_json::from_str::<Value>(&line) {
                    Ok(value) => {
                        if let Some((index, kind)) = self.report.take_line(self.place, &value) {
                            print_case(&self.report.cases[index], kind, &value, print);
                        }
                    }
                    Err(e) => self
                        .report
                        .problems
                        .push(format!("the agent's output is not JSON ({e}): {line}")),
                }
            }
        }
    }
}

fn print_case(case: &Case, kind: Kind, line: &Value, print: &mut dyn FnMut(&str)) {
    let story = case.role.story;
    let sentence = shown(line["sentence"].as_str().unwrap_or("(no sentence)"));
    match kind {
        Kind::Early => print(&format!("\n{} (early): {sentence}", story.name)),
        Kind::Termination => {
            print(&format!("\n{}: {}", story.name, story.what));
            print(&format!(
                "  {}: {sentence}",
                line["verdict"].as_str().unwrap_or("(no verdict)")
            ));
            if let Some(remedy) = line["remedy"].as_str() {
                print(&format!("  remedy: {}", shown(remedy)));
            }
        }
    }
}

/// The agent escapes what processes chose; should it ever fail to, the terminal is not what suffers.
fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}
