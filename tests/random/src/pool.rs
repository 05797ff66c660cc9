//! The program's pool: processes that it forks, and that never execute another program.

use std::fs::File;
use std::io::{Error, PipeReader, PipeWriter, Result};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

use crate::history::{Eater, Master, Pool};
use crate::program::{self, Doing, End, Event, GO, Order, say, serve_for};
use crate::sockets::Listener;
use crate::sys::{boot_now, eat};

/// How many processes a pool has.
const WORKERS: u8 = 2;
/// A job: so many turns of computing and of sleeping.
const TURNS: u32 = 25;
const COMPUTES_NS: u64 = 1_000_000;
const WAITS: Duration = Duration::from_millis(3);

#[derive(Debug, Default)]
pub struct Workers {
    pids: Vec<Pid>,
    /// The workers finish when it is closed.
    open: Option<PipeWriter>,
    master: Option<Master>,
}

impl Workers {
    /// Before the program has threads or handlers. A pool that serves has the `listener`.
    ///
    /// # Errors
    /// As fork(2).
    pub fn fork(order: &Order, directory: &Path, listener: Option<&Listener>, log: &File) -> Result<Workers> {
        let pool = order.program.pool;
        if pool == Pool::None {
            return Ok(Workers::default());
        }
        let mut pids = Vec::new();
        let (until, open) = std::io::pipe()?;
        for number in 0..WORKERS {
            #[expect(unsafe_code, reason = "a pool's process executes nothing: std cannot start one")]
            // SAFETY: this process has one thread.
            match unsafe { fork() }? {
                ForkResult::Parent { child } => pids.push(child),
                ForkResult::Child => {
                    drop(open);
                    let log = log.try_clone()?;
                    let result = match listener {
                        Some(listener) => serve_for(order, listener.try_clone()?, number, until, log),
                        None => work(order, directory, number, &until, log),
                    };
                    std::process::exit(i32::from(result.is_err()));
                }
            }
        }
        let master = match pool {
            Pool::Serving { master, .. } => Some(master),
            _ => None,
        };
        Ok(Workers {
            pids,
            open: Some(open),
            master,
        })
    }

    /// Waits until each has finished its job, or was ended; but see [`Master`].
    ///
    /// # Errors
    /// As waitpid(2).
    pub fn finish(&mut self) -> Result<()> {
        match self.master {
            Some(Master::Forgets) => return Ok(()),
            Some(Master::Forwards) => {
                for pid in &self.pids {
                    // One that has ended is a zombie until it is waited for.
                    kill(*pid, Signal::SIGTERM)?;
                }
            }
            Some(Master::Exits) | None => self.open = None,
        }
        for pid in self.pids.drain(..) {
            waitpid(pid, None).map_err(Error::from)?;
        }
        Ok(())
    }
}

fn work(order: &Order, directory: &Path, number: u8, until: &PipeReader, mut log: File) -> Result<()> {
    let eats = order.end == Some(End::Eat(Eater::Worker)) && number == 0;
    let is_over = |timeout: PollTimeout| {
        let mut fds = [PollFd::new(until.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut fds, timeout), Ok(1))
    };
    let say = |log: &mut File, does| say(log, &Event::Worker { number, does });
    if order.program.pool == Pool::Idle {
        say(&mut log, Doing::Nothing)?;
        while !is_over(PollTimeout::NONE) {}
    } else {
        say(&mut log, Doing::Job)?;
        while !is_over(PollTimeout::ZERO) {
            if eats && directory.join(GO).exists() {
                program::say(&mut log, &Event::Eating)?;
                eat();
            }
            job();
        }
    }
    say(&mut log, Doing::Leaves)
}

fn job() {
    for _ in 0..TURNS {
        let until = boot_now() + COMPUTES_NS;
        while boot_now() < until {}
        // The subject is time: what a job waits for.
        sleep(WAITS);
    }
}
