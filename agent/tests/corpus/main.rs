//! The corpus: recorded evidence of every demo story and of the text timelines, replayed, and compared with what was judged before.
//!
//! Each judgement is also shown as `epitaph why` and `list` show it (`looked_back`).
//!
//! `tests/corpus/*/NAME.epitaph` is a recording, `NAME.expected` beside it what its replay gives: verdicts, axes, ids and times,
//! without sentences. `UPDATE_EXPECT=1` writes the expected files anew; `EPITAPH_CORPUS=DIRECTORY` makes recordings first, for
//! `cargo xtask corpus`.
//!
//! A change touches an expected line only with the reason in the same commit, and replaces a recording only where the story or timeline
//! itself has changed: old recordings also prove that old records stay readable.

mod cut;
mod difference;
mod judged;
mod links;
mod looked_back;
mod monotone;
mod record;
mod rests;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// `tests/corpus` of the workspace.
fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus")
}

/// Directories of the corpus: what was really played, and what text timelines fed.
const ROOMS: [&str; 2] = ["stories", "timelines"];

#[test]
fn every_recording_gives_what_was_judged_before() {
    if let Some(collected) = switch("EPITAPH_CORPUS") {
        record::record(collected.as_ref());
    }
    let update = switch("UPDATE_EXPECT").is_some();
    let mut problems = Vec::new();
    for room in ROOMS {
        let room = corpus().join(room);
        let (recordings, expected) = (stems(&room, "epitaph"), stems(&room, "expected"));
        assert!(!recordings.is_empty(), "no recording in {}", room.display());
        for orphan in expected.difference(&recordings) {
            let file = room.join(format!("{orphan}.expected"));
            match update {
                true => std::fs::remove_file(&file).unwrap(),
                false => problems.push(format!("{} has no recording", file.display())),
            }
        }
        problems.extend(in_parallel(recordings, |name| check(&room, name, update)));
    }
    assert!(
        problems.is_empty(),
        "{} recordings are not judged as before; where that is meant, UPDATE_EXPECT=1 writes the new judgement, and the commit gives the \
         reason\n\n{}",
        problems.len(),
        problems.join("\n")
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test's own switch: there is no configuration to read it in"
)]
fn switch(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// What is wrong with one recording.
fn check(room: &Path, name: &str, update: bool) -> Option<String> {
    let recording = room.join(format!("{name}.epitaph"));
    let file = room.join(format!("{name}.expected"));
    let judged = judged::replayed(&recording).and_then(|objects| {
        looked_back::check(&recording, &objects)?;
        judged::judged(&recording, &objects)
    });
    let judged = match judged {
        Ok(judged) if judged.is_empty() => return Some(format!("{name}: nothing was judged")),
        Ok(judged) => judged,
        Err(error) => return Some(format!("{name}: {error}")),
    };
    if update {
        std::fs::write(&file, judged).unwrap();
        return None;
    }
    match std::fs::read_to_string(&file) {
        Ok(expected) if expected == judged => None,
        Ok(expected) => Some(format!("{name}:\n{}", difference::of(&expected, &judged))),
        Err(error) => Some(format!("{name}: no expected file {}: {error}", file.display())),
    }
}

/// Names, without the extension, of the files in `directory` that have it.
fn stems(directory: &Path, extension: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter_map(|name| Some(name.strip_suffix(extension)?.strip_suffix('.')?.to_owned()))
        .collect()
}

/// The answers, in the order of the names.
fn in_parallel<T: Send>(names: BTreeSet<String>, ask: impl Fn(&str) -> Option<T> + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(2, |threads| threads.get());
    let waiting = Mutex::new(names.into_iter().rev().collect::<Vec<_>>());
    let answers = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some(name) = waiting.lock().unwrap().pop() else { return };
                    if let Some(answer) = ask(&name) {
                        answers.lock().unwrap().push((name, answer));
                    }
                }
            });
        }
    });
    let mut answers = answers.into_inner().unwrap();
    answers.sort_by(|(one, _), (other, _)| one.cmp(other));
    answers.into_iter().map(|(_, answer)| answer).collect()
}
