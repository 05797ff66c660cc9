//! Programs of two processes, of which the second executes nothing.

use std::fs::{read_link, read_to_string};
use std::io::{Error, Result, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use nix::libc::{SIGQUIT, SIGTERM};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::waitpid;

use super::{FOREVER, handle, idle, next, no_core, parse, ready, run_for, run_on};
use crate::sys;
use crate::timeout::{holds, until};

/// As Celery's worker or PHP-FPM: the process that it has forked has no handler. At SIGQUIT it lets that one finish; at any other stop
/// signal it only waits for its end.
pub fn pool() -> Result<i32> {
    no_core()?;
    let (jobs, mut giver) = std::io::pipe()?;
    let limit = PollTimeout::try_from(FOREVER).map_err(Error::other)?;
    let worker = sys::fork(|| {
        // Whoever started this program may ignore it.
        let _ = sys::set_default(SIGQUIT);
        let _ = poll(&mut [PollFd::new(jobs.as_fd(), PollFlags::POLLIN)], limit);
    })?;
    let mut handled = handle()?;
    ready("")?;
    if next(&mut handled)? == SIGQUIT {
        giver.write_all(b"finish")?;
    }
    waitpid(worker, None)?;
    Ok(0)
}

/// The same without a handler.
pub fn idle_pool() -> Result<i32> {
    no_core()?;
    sys::set_default(SIGQUIT)?;
    sys::fork(run_on)?;
    idle()
}

/// As `handle`, but a child holds this process in the kernel until so many seconds after its stop signal, as a disk that hangs does: SIGKILL
/// alone ends it there.
pub fn held(seconds: &str, code: &str) -> Result<i32> {
    let mut handled = handle()?;
    // In the pid namespace of /proc, whichever this is.
    let status = Path::new("/proc").join(read_link("/proc/self")?).join("status");
    sys::wait_for(|| {
        let _ = ready("")
            .and_then(|()| until_pending(&status))
            .and_then(|()| run_for(seconds));
    })?;
    next(&mut handled)?;
    parse(code)
}

fn until_pending(status: &Path) -> Result<()> {
    let pending = until("the stop signal to be pending", || {
        let text = read_to_string(status)?;
        let is_pending = pending(&text).is_some_and(|signals| signals >> (SIGTERM - 1) & 1 == 1);
        Ok(holds(is_pending, || text))
    });
    pending.map_err(Error::other)
}

/// The signals that wait for a process, from its `/proc/PID/status`.
fn pending(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_signals_are_of_the_process() {
        assert_eq!(
            pending("SigPnd:\t0000000000000001\nShdPnd:\t0000000000004000\n"),
            Some(1 << 14)
        );
        assert_eq!(pending("Name:\tx\n"), None);
    }
}
