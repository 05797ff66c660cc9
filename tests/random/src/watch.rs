//! `epitaph watch --output json`, and what it reports: the product's public output, read as docs/json.md describes it.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use nix::libc::{SIGCONT, SIGSTOP, SIGTERM};
use serde_json::Value;

use crate::sys::{boot_now, kill};

/// The agent, and what it has reported so far.
#[derive(Debug)]
pub struct Watch {
    child: Child,
    heard: Arc<Heard>,
    readers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Heard {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    observes: bool,
    ended: bool,
    reports: HashMap<String, Vec<Value>>,
    /// Lines that are not JSON, and losses.
    odd: Vec<String>,
    log: Vec<String>,
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until `is`; false after `time`.
    fn wait(&self, time: Duration, is: impl Fn(&State) -> bool) -> bool {
        let until = boot_now() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2);
        let mut state = self.lock();
        while !is(&state) {
            let left = until.saturating_sub(boot_now());
            if left == 0 {
                return false;
            }
            let waited = self.changed.wait_timeout(state, Duration::from_nanos(left));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Watch {
    /// Starts `program` and waits until its observation is complete.
    ///
    /// # Errors
    /// It cannot be started, or it ends.
    pub fn start(program: &Path) -> Result<Watch> {
        let mut child = Command::new(program)
            .args(["watch", "--output", "json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let heard = Arc::new(Heard::default());
        let (out, log) = (child.stdout.take(), child.stderr.take());
        let (out, log) = (out.context("no output")?, log.context("no log")?);
        let (to_out, to_log) = (Arc::clone(&heard), Arc::clone(&heard));
        let watch = Watch {
            child,
            heard,
            readers: vec![
                std::thread::spawn(move || listen(out, &to_out)),
                std::thread::spawn(move || {
                    for line in BufReader::new(log).lines().map_while(Result::ok) {
                        to_log.change(|state| state.log.push(line));
                    }
                }),
            ],
        };
        watch
            .heard
            .wait(Duration::from_secs(120), |state| state.observes || state.ended);
        let (observes, log) = {
            let state = watch.heard.lock();
            (state.observes, state.log.join("\n"))
        };
        ensure!(observes, "{} does not observe:\n{log}", program.display());
        Ok(watch)
    }

    /// Stops and continues the agent at random until `over`: it gets no processor for up to 2 s.
    pub fn starve(&self, seed: u64, over: &AtomicBool) {
        let mut rng = Rng::with_seed(seed);
        while !over.load(Ordering::Relaxed) {
            for (signal, most_ms) in [(SIGSTOP, 2_000), (SIGCONT, 1_000)] {
                // An agent that is gone is found elsewhere.
                let _ = kill(self.child.id(), signal);
                // The subject is time: how long the agent has no processor, and how long it has one.
                std::thread::sleep(Duration::from_millis(rng.u64(50..most_ms)));
            }
        }
    }

    /// The reports on `container`, as soon as there is one; none after `time`.
    pub fn reports(&self, container: &str, time: Duration) -> Vec<Value> {
        self.heard
            .wait(time, |state| state.ended || state.reports.contains_key(container));
        self.heard.lock().reports.get(container).cloned().unwrap_or_default()
    }

    /// What the agent printed that is not a report: losses, and lines that are not JSON.
    pub fn odd(&self) -> Vec<String> {
        self.heard.lock().odd.clone()
    }

    /// SIGTERM; an agent that does not exit with 0 is an error.
    ///
    /// # Errors
    /// As said.
    pub fn end(&mut self) -> Result<()> {
        kill(self.child.id(), SIGTERM)?;
        let status = self.child.wait()?;
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        if !status.success() {
            bail!("the agent ended with {status}:\n{}", self.heard.lock().log.join("\n"));
        }
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn listen(out: impl Read, heard: &Heard) {
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        let Ok(object) = serde_json::from_str::<Value>(&line) else {
            heard.change(|state| state.odd.push(line));
            continue;
        };
        match object["type"].as_str() {
            Some("observing") => heard.change(|state| state.observes = true),
            Some("lost") => heard.change(|state| state.odd.push(line)),
            Some("termination") => {
                if let Some(id) = object["subject"]["id"].as_str().map(str::to_owned) {
                    heard.change(|state| state.reports.entry(id).or_default().push(object));
                }
            }
            _ => {}
        }
    }
    heard.change(|state| state.ended = true);
}
