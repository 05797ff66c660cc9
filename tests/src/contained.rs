//! One container of the stand-in runtime, for tests whose programs are in no story.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::libc::SIGTERM;

use crate::cgroup::Mounts;
use crate::runtime::{Did, Kill, Others, Spec, Stop};
use crate::sys::random_hex;

/// What to start, and how it is stopped.
#[derive(Clone, Debug)]
pub struct Container {
    /// PID 1 and its arguments.
    pub command: Vec<String>,
    /// It is ready once connections to this address are accepted; None: once it prints so.
    pub listens: Option<SocketAddr>,
    pub signal: i32,
    /// From the signal to SIGKILL.
    pub grace: Duration,
}

impl Container {
    /// A program that prints when it is ready, stopped by SIGTERM.
    pub fn new(command: Vec<String>, grace: Duration) -> Container {
        Container {
            command,
            listens: None,
            signal: SIGTERM,
            grace,
        }
    }
}

/// Ended by the runtime when dropped.
#[derive(Debug)]
pub struct Contained {
    /// As the agent names the container.
    pub id: String,
    runtime: Child,
    /// None once the container is on its own: the runtime ends the container where its orders end.
    orders: Option<ChildStdin>,
    out: Lines<BufReader<ChildStdout>>,
}

impl Contained {
    /// Starts `container`; `players` has the stand-in runtime, `directory` is where the program works.
    ///
    /// # Errors
    /// There is no cgroup mount, or the runtime cannot be started.
    pub fn start(players: &Path, directory: &Path, container: Container) -> anyhow::Result<Contained> {
        let id = random_hex(32)?;
        let spec = Spec {
            scope: format!("docker-{id}.scope"),
            command: container.command,
            pid_namespace: true,
            memory_limit: None,
            stop: Stop::Signal {
                signal: container.signal,
                grace: container.grace,
                frozen: false,
                kill: Kill::Main,
                others: Others::Nothing,
            },
            mounts: Mounts::find()?,
            listens: container.listens,
            directory: directory.to_path_buf(),
        };
        let mut runtime = Command::new(players.join("stand-in-runtime"))
            .arg("run")
            .arg(serde_json::to_string(&spec)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = runtime.stdin.take();
        let out = BufReader::new(runtime.stdout.take().context("its output is not a pipe")?).lines();
        Ok(Contained {
            id,
            runtime,
            orders,
            out,
        })
    }

    /// The address that the program serves, as its line `ready ADDRESS` has it.
    ///
    /// # Errors
    /// The container ended, or the program printed no address.
    pub fn ready(&mut self) -> anyhow::Result<SocketAddr> {
        loop {
            if let Did::Ready { address, .. } = self.did()? {
                return Ok(address.context("it serves no address")?.parse()?);
            }
        }
    }

    /// Sends the stop signal.
    ///
    /// # Errors
    /// The container ended before.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.orders.as_mut().context("no orders")?.write_all(b"stop\n")?;
        while !matches!(self.did()?, Did::Signalled { .. }) {}
        Ok(())
    }

    /// Waits for the exit of the main process.
    ///
    /// # Errors
    /// The container failed.
    pub fn ended(&mut self) -> anyhow::Result<()> {
        while !matches!(self.did()?, Did::Ended { .. }) {}
        Ok(())
    }

    /// Waits until the container is gone.
    ///
    /// # Errors
    /// The runtime's output cannot be read.
    pub fn removed(&mut self) -> anyhow::Result<()> {
        for line in self.out.by_ref() {
            line?;
        }
        self.runtime.wait()?;
        Ok(())
    }

    fn did(&mut self) -> anyhow::Result<Did> {
        match serde_json::from_str(&self.out.next().context("the runtime ended")??)? {
            Did::Failed { what } => bail!("the container: {what}"),
            did => Ok(did),
        }
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.removed();
    }
}
