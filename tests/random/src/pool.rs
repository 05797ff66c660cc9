//! The program's pool: processes that it forks, and that never execute another program.

use std::fs::File;
use std::io::{Error, PipeReader, PipeWriter, Result};
use std::os::fd::AsFd as _;
use std::thread::sleep;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

use crate::history::Pool;
use crate::program::{Doing, Event, say};
use crate::sys::boot_now;

/// How many processes a pool has.
const WORKERS: u8 = 2;
/// A job: so many turns of computing and of sleeping.
const TURNS: u32 = 25;
const COMPUTES_NS: u64 = 1_000_000;
const WAITS: Duration = Duration::from_millis(3);

#[derive(Debug)]
pub struct Workers {
    pids: Vec<Pid>,
    /// The workers finish when it is closed.
    open: Option<PipeWriter>,
}

impl Workers {
    /// Before the program has threads, handlers or sockets.
    ///
    /// # Errors
    /// As fork(2).
    pub fn fork(pool: Pool, log: &File) -> Result<Workers> {
        let mut pids = Vec::new();
        if pool == Pool::None {
            return Ok(Workers { pids, open: None });
        }
        let (until, open) = std::io::pipe()?;
        for number in 0..WORKERS {
            #[expect(unsafe_code, reason = "a pool's process executes nothing: std cannot start one")]
            // SAFETY: this process has one thread.
            match unsafe { fork() }? {
                ForkResult::Parent { child } => pids.push(child),
                ForkResult::Child => {
                    drop(open);
                    let result = work(pool, number, &until, log.try_clone()?);
                    std::process::exit(i32::from(result.is_err()));
                }
            }
        }
        Ok(Workers { pids, open: Some(open) })
    }

    /// Waits until each has finished its job, or was ended.
    ///
    /// # Errors
    /// As waitpid(2).
    pub fn finish(&mut self) -> Result<()> {
        self.open = None;
        for pid in self.pids.drain(..) {
            waitpid(pid, None).map_err(Error::from)?;
        }
        Ok(())
    }
}

fn work(pool: Pool, number: u8, until: &PipeReader, mut log: File) -> Result<()> {
    let is_over = |timeout: PollTimeout| {
        let mut fds = [PollFd::new(until.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut fds, timeout), Ok(1))
    };
    let mut log = |does| say(&mut log, &Event::Worker { number, does });
    if pool == Pool::Idle {
        log(Doing::Nothing)?;
        while !is_over(PollTimeout::NONE) {}
    } else {
        log(Doing::Job)?;
        while !is_over(PollTimeout::ZERO) {
            job();
        }
    }
    log(Doing::Leaves)
}

fn job() {
    for _ in 0..TURNS {
        let until = boot_now() + COMPUTES_NS;
        while boot_now() < until {}
        // The subject is time: what a job waits for.
        sleep(WAITS);
    }
}
