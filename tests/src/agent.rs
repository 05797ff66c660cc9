//! The agent as a process: started, read, stopped. Its arguments are an output format and, if wanted, a collector and a file
//! to record to. The agent receives nothing about the stories.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use nix::libc::{SIGKILL, SIGTERM};

use crate::sys::{kill, locked};
use crate::timeout::exit_within;

/// Lines of the agent's log that are kept for an error message.
const LOG_LINES: usize = 60;

/// The `epitaph` that tests use: `EPITAPH_BIN`, else the binary in `players`, the directory of this package's own binaries.
pub fn program(players: &Path) -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "a test's own setting: no configuration file holds it")]
    let named = std::env::var_os("EPITAPH_BIN");
    named.map_or_else(|| players.join("epitaph"), PathBuf::from)
}

/// A running `epitaph watch --output json`, or `record`. Killed when dropped.
pub struct Agent {
    child: Child,
    log: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Agent {
    /// Starts `program`; every line of its output goes to `lines`, and None at its end.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(
        program: &Path,
        record: Option<&Path>,
        otlp: Option<&str>,
        lines: Sender<Option<String>>,
    ) -> anyhow::Result<Agent> {
        Agent::start_by(Command::new(program), record, otlp, lines)
    }

    /// The same by a command that has the program, and settings in its environment.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start_by(
        mut command: Command,
        record: Option<&Path>,
        otlp: Option<&str>,
        lines: Sender<Option<String>>,
    ) -> anyhow::Result<Agent> {
        match record {
            Some(file) => command.arg("record").arg(file),
            None => command.arg("watch"),
        };
        command.args(["--output", "json"]);
        if let Some(url) = otlp {
            command.args(["--otlp", url]);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| {
                let program = command.get_program().display();
                format!("start the agent {program}: build it with cargo build -p epitaph")
            })?;
        let stdout = BufReader::new(child.stdout.take().context("the agent has no stdout")?);
        let stderr = BufReader::new(child.stderr.take().context("the agent has no stderr")?);
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&log);
        let readers = vec![
            std::thread::spawn(move || {
                for line in stdout.lines().map_while(Result::ok) {
                    let _ = lines.send(Some(line));
                }
                let _ = lines.send(None);
            }),
            std::thread::spawn(move || {
                for line in stderr.lines().map_while(Result::ok) {
                    let mut log = locked(&kept);
                    if log.len() == LOG_LINES {
                        log.pop_front();
                    }
                    log.push_back(line);
                }
            }),
        ];
        Ok(Agent { child, log, readers })
    }

    /// The last lines of its log.
    pub fn log(&self) -> String {
        let log = locked(&self.log);
        log.iter().map(|line| format!("    {line}\n")).collect()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM, then SIGKILL if the agent does not exit within `timeout`; its exit status.
    ///
    /// # Errors
    /// The agent cannot be signalled or waited for.
    pub fn end(&mut self, timeout: Duration) -> anyhow::Result<ExitStatus> {
        if self.child.try_wait()?.is_none() {
            self.signal(SIGTERM)?;
        }
        let status = match exit_within(&mut self.child, timeout)? {
            Some(status) => status,
            None => {
                self.signal(SIGKILL)?;
                self.child.wait()?
            }
        };
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        Ok(status)
    }

    fn signal(&self, signal: i32) -> anyhow::Result<()> {
        Ok(kill(self.child.id().cast_signed(), signal)?)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
