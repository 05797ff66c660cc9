//! Programs that a signal of the kernel ends, which no other process sends: an alarm, a pipe without a reader, a limit, a filter. Each does
//! what its remedy asks for, too.

use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write};
use std::path::Path;
use std::time::Duration;

use nix::libc::{SIGALRM, SIGPIPE, SYS_getsid};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{alarm, getsid};

use super::{next, no_core, ready, run_a_while, run_for};
use crate::sys;

/// From its start to the alarm.
const ALARM_S: u32 = 1;

/// Writes to a pipe that nobody reads. std ignores SIGPIPE.
pub fn write_to_nobody(ignores: bool) -> Result<i32> {
    if !ignores {
        sys::set_default(SIGPIPE)?;
    }
    let (reader, mut writer) = std::io::pipe()?;
    ready("")?;
    run_a_while();
    drop(reader);
    match writer.write_all(b"lines") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(0),
        result => Err(Error::other(format!("a pipe without a reader took them: {result:?}"))),
    }
}

/// Starts a timer, and exits with 0 when it has expired.
pub fn sleep_by_alarm(handles: bool) -> Result<i32> {
    let handled = handles.then(|| sys::handle(&[SIGALRM])).transpose()?;
    alarm::set(ALARM_S);
    ready("")?;
    match handled {
        Some(mut handled) => next(&mut handled).map(|_| 0),
        None => run_for("60").map(|()| 0),
    }
}

/// Takes that much time of a processor.
pub fn spin(milliseconds: &str) -> Result<i32> {
    let enough = Duration::from_millis(milliseconds.parse().map_err(Error::other)?);
    while Duration::from(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?) < enough {}
    Ok(0)
}

/// So many KiB.
pub fn write_file(path: &str, kibibytes: &str) -> Result<i32> {
    let mut file = File::create(Path::new(path))?;
    for _ in 0..kibibytes.parse::<u32>().map_err(Error::other)? {
        file.write_all(&[1; 1 << 10])?;
    }
    Ok(0)
}

/// Makes a system call that its own seccomp filter refuses, or allows.
pub fn filtered(refuses: bool) -> Result<i32> {
    no_core()?;
    if refuses {
        sys::kill_at(SYS_getsid)?;
    }
    ready("")?;
    run_a_while();
    getsid(None)?;
    Ok(0)
}
