//! The machine's own kernel, with nothing around it: the probes' tests and the stories as `cargo xtask test` plays them, and not
//! what could take a machine down that others need.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};

use super::{
    count_line,
    page::RUNNING,
    row::Row,
    table::{Measured, Total},
};
use crate::shell;

/// `programs`: as they were built for the guests.
///
/// # Errors
/// A program is missing or cannot be started.
pub fn play(programs: &[PathBuf], stories: &[String]) -> Result<Measured> {
    println!("\nkernel {RUNNING}: this machine");
    let mut measured = Measured {
        name: RUNNING.to_owned(),
        total: Total::default(),
        row: Row::default(),
    };
    if !shell::is_root() {
        println!("  skip {RUNNING}: probes, cgroups and pid namespaces need root");
        measured.total.skipped += 1;
        return Ok(measured);
    }
    let find = |is_it: &dyn Fn(&str) -> bool| {
        let named = |path: &&PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(is_it);
        programs.iter().find(named).context("cargo reported no such program")
    };
    let mut command = Command::new(find(&|name| name == "guest")?);
    command
        .arg(find(&|name| name == "epitaph")?)
        .args(["--native", "--tests"])
        .arg(find(&|name| name.starts_with("probes-"))?)
        .args(stories)
        .env("PATH", shell::path())
        .current_dir(Path::new("/"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut guest = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let output = guest.stdout.take().context("the pipe that was just asked for")?;
    // Not always UTF-8: a process of a story writes any bytes.
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("reading the output of the guest's program")?;
        count_line(&String::from_utf8_lossy(&line), &mut measured.total, &mut measured.row);
    }
    let status = guest.wait().context("waiting for the guest's program")?;
    if !status.success() && measured.total.failed == 0 {
        println!("  fail the guest's program succeeds: {status}");
        measured.total.failed += 1;
    }
    Ok(measured)
}
