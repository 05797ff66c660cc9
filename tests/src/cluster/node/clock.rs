//! The node's wall clock against the host's: a guest's is off by up to a second after its boot, and stops during a pause.

use std::io::{BufRead as _, BufReader, Write as _};

use anyhow::{Context as _, bail};
use nix::time::{ClockId, clock_gettime};

use super::Shell;

/// Seconds: a smaller difference is accepted.
const RIGHT: f64 = 0.05;
const SAMPLES: usize = 5;
const ATTEMPTS: u32 = 20;

/// How far the node is ahead, in seconds: of several samples the fastest, minus half its round trip.
pub fn ahead(shell: &Shell) -> anyhow::Result<f64> {
    // No process per question: to start one takes longer than the question.
    let mut child = shell.spawn("exec bash -c 'while read -r _; do echo $EPOCHREALTIME; done'")?;
    let mut questions = child.stdin.take().context("ssh has no stdin")?;
    let mut answers = BufReader::new(child.stdout.take().context("ssh has no stdout")?);
    let mut best: Option<(f64, f64)> = None;
    for _ in 0..SAMPLES {
        let before = now();
        questions.write_all(b"?\n").context("ask the node's clock")?;
        let mut line = String::new();
        answers.read_line(&mut line).context("read the node's clock")?;
        let after = now();
        let node: f64 = line
            .trim()
            .parse()
            .with_context(|| format!("parse the node's clock {line:?}"))?;
        let way = after - before;
        if best.is_none_or(|(least, _)| way < least) {
            best = Some((way, node - f64::midpoint(before, after)));
        }
    }
    drop(questions);
    child.wait().context("wait for ssh")?;
    best.map(|(_, ahead)| ahead).context("no sample of the node's clock")
}

pub fn set(shell: &Shell) -> anyhow::Result<f64> {
    let mut off = ahead(shell)?;
    for _ in 0..ATTEMPTS {
        if off.abs() < RIGHT {
            return Ok(off);
        }
        // date reads and sets in one process, so that the round trip does not count.
        shell.run(&format!("date --set 'now {:+.6} sec'", -off))?;
        off = ahead(shell)?;
    }
    if off.abs() < RIGHT {
        return Ok(off);
    }
    bail!("the node's clock stays {off:+.3} s off after {ATTEMPTS} attempts to set it")
}

/// Seconds since the epoch.
fn now() -> f64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0.0, |t| t.tv_sec() as f64 + t.tv_nsec() as f64 / 1e9)
}
