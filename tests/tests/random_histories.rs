//! The everyday part of `cargo xtask test random`: the same histories each day, whatever they find.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use epitaph_tests::cgroup::Mounts;
use epitaph_tests::machine::is_root;
use epitaph_tests::{agent, skip::skip};

#[test]
fn two_hundred_random_histories_are_judged_as_they_happened() -> Result<()> {
    play("two_hundred_random_histories_are_judged_as_they_happened", &["200"])
}

/// An oracle that finds nothing in a wrong truth proves nothing.
#[test]
fn swapped_truths_are_found() -> Result<()> {
    play("swapped_truths_are_found", &["80", "--self-test"])
}

fn play(test: &str, args: &[&str]) -> Result<()> {
    let lacks = if !is_root() {
        Some("containers and probes need root")
    } else if Mounts::find()?.v2.is_none() {
        Some("there is no cgroup v2")
    } else if Command::new("ip").arg("-V").output().is_err() {
        Some("there is no `ip` to start a network namespace with")
    } else {
        None
    };
    if let Some(lacks) = lacks {
        skip(test, lacks);
        return Ok(());
    }
    let players = Path::new(env!("CARGO_BIN_EXE_victim"))
        .parent()
        .context("the players' directory")?;
    let program = players.join("random-histories");
    ensure!(
        program.is_file(),
        "{} is missing: cargo build -p random-histories",
        program.display()
    );
    let done = Command::new(program)
        .arg("--epitaph")
        .arg(agent::program(players))
        .args(["--seed", "1", "--no-shrink"])
        .args(args)
        .stdin(Stdio::null())
        .output()?;
    let out = String::from_utf8_lossy(&done.stdout);
    println!("{out}");
    ensure!(
        done.status.success(),
        "{}\n{out}\n{}",
        done.status,
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(())
}
