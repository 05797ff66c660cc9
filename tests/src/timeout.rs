//! The waits of all tests: each for an event, each with a deadline and with what was seen last. A test that hangs gives no reason.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::channel;
use std::thread::{sleep, spawn};
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::sys::boot_now;

/// For a loaded machine of two cores.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// From SIGTERM to the exit of an agent or observer, before SIGKILL. The sinks get two seconds, all at once: the rest is for a loaded
/// machine. A test of those two seconds makes a wait without them longer than this.
pub const TO_END: Duration = Duration::from_secs(60);

/// Between two looks: doubled from the first to the last. After a look that takes long, twice its time.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(25));

/// The deadline expired. Nothing else failed.
#[derive(Debug)]
pub struct Late(String);

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Late {}

/// What one look came to: what was waited for, or the state instead.
pub type Look<T> = Result<T, String>;

/// Looks again and again until the event `what` has happened, for [`TIMEOUT`] at most.
///
/// # Errors
/// `look` failed, which ends the wait at once; or nothing was found in time: the error names `what` and the last state.
pub fn until<T>(what: &str, look: impl FnMut() -> anyhow::Result<Look<T>>) -> anyhow::Result<T> {
    until_within(TIMEOUT, what, look)
}

/// The same with a deadline of its own, for what takes minutes: an emulated machine, a cluster.
///
/// # Errors
/// As [`until`]; the deadline's is [`Late`].
pub fn until_within<T>(limit: Duration, what: &str, look: impl FnMut() -> anyhow::Result<Look<T>>) -> anyhow::Result<T> {
    match look_for(limit, look).with_context(|| format!("wait for {what}"))? {
        Ok(found) => Ok(found),
        Err(last) => bail!(Late(format!("not within {} s: {what}; seen last: {last}", limit.as_secs()))),
    }
}

/// The only loop that polls: what was found, or the last state.
fn look_for<T>(limit: Duration, mut look: impl FnMut() -> anyhow::Result<Look<T>>) -> anyhow::Result<Look<T>> {
    let begin = boot_now();
    let mut pause = PAUSES.0;
    loop {
        let looked = boot_now();
        let found = look()?;
        let now = boot_now();
        if found.is_ok() || Duration::from_nanos(now - begin) >= limit {
            return Ok(found);
        }
        sleep(pause.max(2 * Duration::from_nanos(now - looked)));
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Whether it is so; `state` describes what is so instead.
pub fn holds(is_so: bool, state: impl FnOnce() -> String) -> Look<()> {
    if is_so { Ok(()) } else { Err(state()) }
}

/// How the process exited; None: it still runs after `limit`.
///
/// # Errors
/// It cannot be waited for.
pub fn exit_within(child: &mut Child, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let exited = look_for(limit, || Ok(child.try_wait()?.ok_or_else(String::new)))?;
    Ok(exited.ok())
}

/// How it ended; killed if it does not exit within [`TIMEOUT`].
///
/// # Errors
/// It did not end, or cannot be waited for.
pub fn ended(child: &mut Child) -> anyhow::Result<ExitStatus> {
    if let Some(status) = exit_within(child, TIMEOUT)? {
        return Ok(status);
    }
    let pid = child.id();
    child.kill()?;
    child.wait()?;
    bail!("process {pid} did not end within {} s and was killed", TIMEOUT.as_secs())
}

/// The next line, empty at the end of the output, and the reader again.
///
/// # Errors
/// No line came within [`TIMEOUT`], or the line is not text.
pub fn line<R: Read + Send + 'static>(mut from: BufReader<R>) -> anyhow::Result<(String, BufReader<R>)> {
    let (to, lines) = channel();
    spawn(move || {
        let mut line = String::new();
        let read = from.read_line(&mut line);
        let _ = to.send(read.map(|_| (line, from)));
    });
    let read = lines.recv_timeout(TIMEOUT);
    Ok(read.with_context(|| format!("wait for a line: none within {} s", TIMEOUT.as_secs()))??)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_awaited_is_looked_for_until_it_is_there() {
        let mut looks = 0;
        let found = until("the third look", || {
            looks += 1;
            Ok(if looks == 3 { Ok(looks) } else { Err(format!("look {looks}")) })
        });
        assert_eq!(found.unwrap(), 3);
    }

    #[test]
    fn an_expired_wait_names_what_it_saw_last() {
        let mut looks = 0;
        let error = until_within::<()>(Duration::from_millis(20), "a sign", || {
            looks += 1;
            Ok(Err(format!("look {looks}")))
        });
        assert!(looks > 1, "one look only");
        let error = error.unwrap_err();
        assert!(error.is::<Late>(), "{error:?}");
        assert_eq!(error.to_string(), format!("not within 0 s: a sign; seen last: look {looks}"));
    }

    #[test]
    fn a_look_that_fails_ends_the_wait() {
        let mut looks = 0;
        let error = until::<()>("a sign", || {
            looks += 1;
            bail!("the process ended")
        });
        assert_eq!(
            (looks, format!("{:#}", error.unwrap_err())),
            (1, "wait for a sign: the process ended".to_owned())
        );
    }

    #[test]
    fn a_process_exits_in_time_or_still_runs() {
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert_eq!(exit_within(&mut child, Duration::from_millis(20)).unwrap(), None);
        drop(child.stdin.take());
        assert!(
            exit_within(&mut child, TIMEOUT)
                .unwrap()
                .is_some_and(|status| status.success())
        );
    }
}
