//! Clock, signals, and lines of JSON between the players.

use std::fs::File;
use std::io::{Error, Read as _, Result, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::thread::sleep;
use std::time::Duration;

use nix::libc;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// `CLOCK_BOOTTIME`, nanoseconds: the clock of the reports, too.
pub fn boot_now() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |t| {
        u64::try_from(t.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec()).unwrap_or(0)
    })
}

/// As a runtime leaves a container's signals. A shell starts what runs in the background with SIGINT and SIGQUIT ignored, and a program
/// inherits that.
///
/// # Errors
/// As sigaction(2).
pub fn default_interrupts() -> Result<()> {
    use nix::sys::signal::{SigHandler, Signal, signal};
    for interrupt in [Signal::SIGINT, Signal::SIGQUIT] {
        #[expect(unsafe_code, reason = "nix's signal is unsafe for handlers")]
        // SAFETY: no handler of ours is set, or was before.
        unsafe {
            signal(interrupt, SigHandler::SigDfl)?;
        }
    }
    Ok(())
}

/// Takes memory until the kernel kills for it.
pub fn eat() -> ! {
    let mut taken = Vec::new();
    loop {
        // Written to, so that there are pages behind it.
        taken.push(vec![1_u8; 1 << 20]);
        std::hint::black_box(&mut taken);
    }
}

/// kill(2).
///
/// # Errors
/// As kill(2); `pid` must be above 0.
pub fn kill(pid: u32, signal: i32) -> Result<()> {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0);
    let pid = pid.ok_or_else(|| Error::from_raw_os_error(libc::EINVAL))?;
    #[expect(unsafe_code, reason = "nix's kill takes an enum of signals")]
    // SAFETY: kill(2) takes two integers and touches no memory of ours.
    let done = unsafe { libc::kill(pid, signal) };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// A child that is reaped elsewhere: its number may be another process's by then.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// # Errors
    /// As pidfd_open(2). `pid` must be a child that is not reaped yet.
    pub fn of(pid: u32) -> Result<Process> {
        #[expect(unsafe_code, reason = "nix has no pidfd_open")]
        // SAFETY: the call takes two integers; the descriptor that it returns is nobody else's.
        let fd = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            if fd < 0 {
                return Err(Error::last_os_error());
            }
            OwnedFd::from_raw_fd(i32::try_from(fd).map_err(Error::other)?)
        };
        Ok(Process(fd))
    }

    /// SIGKILL, if it still exists.
    ///
    /// # Errors
    /// As pidfd_send_signal(2).
    pub fn kill(&self) -> Result<()> {
        let none = std::ptr::null::<libc::siginfo_t>();
        #[expect(unsafe_code, reason = "nix has no pidfd_send_signal")]
        // SAFETY: the descriptor is open, and no siginfo is as for kill(2).
        let done = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), libc::SIGKILL, none, 0) };
        match Error::last_os_error() {
            error if done != 0 && error.raw_os_error() != Some(libc::ESRCH) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Looks again and again until something is found; None: not within `limit`. The only loop here that polls.
///
/// # Errors
/// `look` failed.
pub fn found_within<T, E>(
    limit: Duration,
    mut look: impl FnMut() -> std::result::Result<Option<T>, E>,
) -> std::result::Result<Option<T>, E> {
    const PAUSE: Duration = Duration::from_millis(5);
    let begin = boot_now();
    loop {
        let found = look()?;
        if found.is_some() || Duration::from_nanos(boot_now() - begin) >= limit {
            return Ok(found);
        }
        sleep(PAUSE);
    }
}

/// `bytes` random bytes as lower-case hex.
///
/// # Errors
/// `/dev/urandom` is not readable.
pub fn random_hex(bytes: usize) -> Result<String> {
    let mut raw = vec![0; bytes];
    File::open("/dev/urandom")?.read_exact(&mut raw)?;
    Ok(raw.iter().map(|b| format!("{b:02x}")).collect())
}

/// One line of JSON on standard output, in one write. A reader that is gone is not an error: the player's own end matters then.
pub fn emit(event: &impl Serialize) {
    if let Ok(mut line) = serde_json::to_string(event) {
        line.push('\n');
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }
}
