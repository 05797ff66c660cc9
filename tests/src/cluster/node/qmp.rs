//! The machine's control socket: QEMU's QMP, one question per connection.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

pub const SOCKET: &str = "qmp.sock";
const TIMEOUT: Duration = Duration::from_secs(60);

/// What QEMU returns for `command`.
///
/// # Errors
/// No machine runs in `dir`, or it refuses.
pub fn ask(dir: &Path, command: &str, arguments: &Value) -> anyhow::Result<Value> {
    let mut stream = connect(dir)?;
    answer(&mut stream, "qmp_capabilities", &json!({}))?;
    answer(&mut stream, command, arguments).with_context(|| format!("ask the machine in {} to {command}", dir.display()))
}

fn connect(dir: &Path) -> anyhow::Result<UnixStream> {
    // A socket's path has at most 107 bytes; through a file descriptor a directory of any length works.
    let held = File::open(dir).with_context(|| format!("open {}", dir.display()))?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", held.as_raw_fd());
    let stream = UnixStream::connect(path).with_context(|| format!("no machine answers in {}", dir.display()))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut greeting = String::new();
    read_line(&stream, &mut greeting)?;
    Ok(stream)
}

fn answer(stream: &mut UnixStream, command: &str, arguments: &Value) -> anyhow::Result<Value> {
    writeln!(stream, "{}", json!({ "execute": command, "arguments": arguments }))?;
    loop {
        let mut line = String::new();
        read_line(stream, &mut line)?;
        let answer: Value = serde_json::from_str(&line).with_context(|| format!("parse QEMU's answer {line}"))?;
        // Events come in between.
        if let Some(error) = answer.get("error") {
            bail!("QEMU refuses {command}: {error}");
        }
        if let Some(value) = answer.get("return") {
            return Ok(value.clone());
        }
    }
}

/// Byte by byte, so that nothing of the next line is consumed.
fn read_line(mut stream: &UnixStream, line: &mut String) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while bytes.last() != Some(&b'\n') {
        stream.read_exact(&mut byte).context("read QEMU's answer")?;
        bytes.push(byte[0]);
    }
    line.push_str(&String::from_utf8_lossy(&bytes));
    Ok(())
}
