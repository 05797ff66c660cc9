//! Waits for a process of ours with a timeout: a test that hangs gives no reason.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::channel;
use std::thread::{sleep, spawn};
use std::time::Duration;

use anyhow::Context as _;

/// For a loaded machine of two cores.
pub const TIMEOUT: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(20);

/// How it ended; killed if it does not exit within [`TIMEOUT`].
///
/// # Errors
/// It did not end, or cannot be waited for.
pub fn ended(child: &mut Child) -> anyhow::Result<ExitStatus> {
    let mut waited = Duration::ZERO;
    while waited < TIMEOUT {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        sleep(STEP);
        waited += STEP;
    }
    let pid = child.id();
    child.kill()?;
    child.wait()?;
    anyhow::bail!("process {pid} did not end within {} s and was killed", TIMEOUT.as_secs())
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
