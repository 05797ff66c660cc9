//! The corpus of recordings, `tests/corpus`: what the rules are held to (`agent/tests/corpus/main.rs`).

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{agent::Built, bpf, shell};

/// A busy machine spoils a story now and then: only one that was judged as expected is kept.
const ATTEMPTS: usize = 4;

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let all = args.contains("--all");
    let without_stories = args.contains("--timelines");
    let wanted: Vec<String> = args
        .finish()
        .into_iter()
        .map(|name| {
            name.into_string()
                .map_err(|name| anyhow::anyhow!("{} is not a story", name.display()))
        })
        .collect::<Result<_>>()?;
    if let Some(flag) = wanted.iter().find(|name| name.starts_with('-')) {
        bail!("unexpected flag `{flag}`; `cargo xtask` lists the tasks and their flags");
    }
    if !without_stories && !shell::is_root() {
        bail!("the stories are really played: run it as root, or with --timelines, which leaves them out");
    }
    let collected = shell::root().join("target/xtask/corpus");
    if collected.exists() {
        fs::remove_dir_all(&collected).with_context(|| format!("removing {}", collected.display()))?;
    }
    for room in ["stories", "timelines"] {
        let dir = collected.join(room);
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    bpf::build()?;
    let missing = match without_stories {
        true => BTreeSet::new(),
        false => stories(&collected.join("stories"), &wanted, all)?,
    };
    if wanted.is_empty() {
        timelines(&collected.join("timelines"), all)?;
    }
    let mut cargo = shell::cargo();
    cargo.args(["test", "--package", "epitaph", "--test", "corpus", "--", "--nocapture"]);
    cargo.env("EPITAPH_CORPUS", &collected).env("UPDATE_EXPECT", "1");
    shell::run(&mut cargo, "writing recordings, and what replay gives of them")?;
    if !missing.is_empty() {
        bail!("not judged as expected in {ATTEMPTS} attempts, so not recorded: {missing:?}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Plays those that are wanted, else those without a recording, together, again and again; which never went as they should.
fn stories(collected: &Path, wanted: &[String], all: bool) -> Result<BTreeSet<String>> {
    let selection = ["--package", "epitaph", "--package", "epitaph-tests", "--bins"];
    let built = Built::of(&selection, "building the agent and the players")?;
    let (epitaph, demo) = (built.bin("epitaph")?, built.bin("demo")?);
    let listed = shell::read(Command::new(&demo).arg("--list"))?;
    let listed = listed.lines().filter_map(|line| line.split_whitespace().next());
    let mut open: BTreeSet<String> = match wanted {
        [] => listed
            .filter(|name| all || !recording("stories", name).exists())
            .map(str::to_owned)
            .collect(),
        wanted => wanted.iter().cloned().collect(),
    };
    for attempt in 1..=ATTEMPTS {
        if open.is_empty() {
            break;
        }
        shell::log(format_args!(
            "playing {} stories, attempt {attempt} of {ATTEMPTS}",
            open.len()
        ));
        let file = collected.join(format!("{attempt}.epitaph"));
        let mut command = Command::new(&demo);
        command
            .arg(&epitaph)
            .arg("--record")
            .arg(&file)
            .args(["--at-once", "3"])
            .args(&open);
        command.env("PATH", shell::path()).stdin(Stdio::null());
        // It fails where a story does.
        command.status().with_context(|| format!("running {}", demo.display()))?;
        let played = file.with_extension("played");
        let played = fs::read_to_string(&played).with_context(|| format!("reading {}", played.display()))?;
        for line in played.lines() {
            if let ["passed", name, ..] = line.split_whitespace().collect::<Vec<_>>()[..] {
                open.remove(name);
            }
        }
    }
    Ok(open)
}

/// Runs the tests that feed text timelines; their inputs stay where `all`, else only those that have no recording.
fn timelines(collected: &Path, all: bool) -> Result<()> {
    let mut cargo = shell::cargo();
    cargo.args(["test", "--package", "epitaph-core", "--lib", "correlate::tests"]);
    // A test's name is its thread's, and a single thread of tests has none.
    cargo.env("EPITAPH_CORPUS", collected).env("RUST_TEST_THREADS", "2");
    shell::run_quietly(&mut cargo, "running the text timelines")?;
    for entry in fs::read_dir(collected).with_context(|| format!("reading {}", collected.display()))? {
        let file = entry?.path();
        let name = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if !all && recording("timelines", name).exists() {
            fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
        }
    }
    Ok(())
}

fn recording(room: &str, name: &str) -> PathBuf {
    shell::root().join("tests/corpus").join(room).join(format!("{name}.epitaph"))
}
