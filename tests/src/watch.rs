//! `epitaph watch --output json` while it observes: its lines in their order, and a marker behind which nothing earlier can come.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::agent::Agent;
use crate::play::Players;
use crate::stories::stories;
use crate::timeout::TIMEOUT;

pub struct Watch {
    pub agent: Agent,
    lines: Receiver<Option<String>>,
}

impl Watch {
    /// Starts `program`, and returns once it observes.
    ///
    /// # Errors
    /// It cannot be started, or does not observe.
    pub fn start(program: &Path) -> anyhow::Result<Watch> {
        Watch::start_by(Command::new(program))
    }

    /// The same by a command that has the program, and settings in its environment.
    ///
    /// # Errors
    /// As [`Watch::start`].
    pub fn start_by(command: Command) -> anyhow::Result<Watch> {
        let (to, lines) = channel();
        let agent = Agent::start_by(command, None, None, to)?;
        let mut watch = Watch { agent, lines };
        watch.next(|line| line["type"] == "observing")?;
        Ok(watch)
    }

    /// The next line that is `wanted`. The lines before it are gone.
    ///
    /// # Errors
    /// There is no such line.
    pub fn next(&mut self, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        self.up_to(wanted).map(|(line, _)| line)
    }

    /// The termination of that container or unit.
    ///
    /// # Errors
    /// It is not reported.
    pub fn termination_of(&mut self, subject: &str) -> anyhow::Result<Value> {
        let termination = self.next(|line| is_termination_of(line, subject));
        termination.with_context(|| format!("the termination of {subject}"))
    }

    /// The next line that is `wanted`, and the lines before it.
    ///
    /// # Errors
    /// There is no such line.
    pub fn up_to(&mut self, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<(Value, Vec<Value>)> {
        let mut before = Vec::new();
        loop {
            let line = match self.lines.recv_timeout(TIMEOUT) {
                Ok(Some(line)) => line,
                Ok(None) => bail!("the agent ended; its log:\n{}", self.agent.log()),
                Err(_) => bail!(
                    "no such line within {} s; the last of {}: {:?}; its log:\n{}",
                    TIMEOUT.as_secs(),
                    before.len(),
                    before.last(),
                    self.agent.log()
                ),
            };
            let line = serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))?;
            if wanted(&line) {
                return Ok((line, before));
            }
            before.push(line);
        }
    }

    /// Plays a termination that takes every step, from the first process to the removal of the cgroup: the lines before its report. What was
    /// over before is reported by then, or never.
    ///
    /// # Errors
    /// The marker cannot be played, or is not reported.
    pub fn before_a_marker(&mut self, players: &Players) -> anyhow::Result<Vec<Value>> {
        let role = players.cast(stories().find(|story| story.name == "completed").context("no such story")?)?;
        let differs = players.play(&role)?.differs(&role);
        ensure!(differs.is_empty(), "the marker: {}", differs.join("\n"));
        let marker = self.up_to(|line| is_termination_of(line, &role.subject));
        Ok(marker.context("wait for the marker's termination")?.1)
    }

    /// Ends the agent: the lines that were left.
    ///
    /// # Errors
    /// It fails, or a line is not JSON.
    pub fn end(mut self) -> anyhow::Result<Vec<Value>> {
        let status = self.agent.end(TIMEOUT)?;
        ensure!(status.success(), "the agent: {status}; its log:\n{}", self.agent.log());
        let lines = self.lines.iter().map_while(|line| line);
        lines
            .map(|line| serde_json::from_str(&line).with_context(|| format!("not JSON: {line}")))
            .collect()
    }
}

/// Whether the line reports the termination of that container or unit.
pub fn is_termination_of(line: &Value, subject: &str) -> bool {
    line["type"] == "termination" && line["subject"]["id"] == subject
}
