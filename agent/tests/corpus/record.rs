//! Recordings for the corpus, out of what `cargo xtask corpus` collected in a directory: `timelines/NAME.jsonl`, which
//! text timelines were fed, and `stories/*.epitaph` with `.played`, in which the demo says which stories went as they should.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use epitaph_core::input::Input;
use epitaph_core::stored::StoredInput;
use epitaph_core::time::Boot;
use serde::Deserialize;
use serde_json::Value;

use crate::cut::Evidence;
use crate::{corpus, judged, stems};

/// The longest recording, bytes.
const LONGEST: usize = 256 * 1024;

/// Overwrites the recordings of what is in `collected`.
pub fn record(collected: &Path) {
    for room in crate::ROOMS {
        fs::create_dir_all(corpus().join(room)).unwrap();
    }
    timelines(&collected.join("timelines"));
    stories(&collected.join("stories"));
}

/// A line of `correlate/tests/recorded.rs`.
#[derive(Deserialize)]
struct Line {
    now: Boot,
    record: Option<String>,
    input: Option<StoredInput>,
}

fn timelines(collected: &Path) {
    let names = stems(collected, "jsonl");
    let room = corpus().join("timelines");
    // Tests share scripts.
    let kept = stems(&room, "epitaph").into_iter().filter(|name| !names.contains(name));
    let mut seen: BTreeSet<Vec<u8>> = kept
        .map(|name| fs::read(room.join(format!("{name}.epitaph"))).unwrap())
        .collect();
    let (mut written, mut same, mut silent, mut long) = (0, 0, 0, Vec::new());
    for name in names {
        let text = fs::read_to_string(collected.join(format!("{name}.jsonl"))).unwrap();
        let recording = of_lines(&text);
        let file = room.join(format!("{name}.epitaph"));
        if recording.len() > LONGEST {
            long.push(name);
        } else if !seen.insert(recording.clone()) {
            same += 1;
        } else {
            fs::write(&file, recording).unwrap();
            if judged::judged(&file, &judged::replayed(&file).unwrap()).unwrap().is_empty() {
                fs::remove_file(&file).unwrap();
                silent += 1;
            } else {
                written += 1;
            }
        }
    }
    println!("timelines: {written} recorded; {same} are another's, {silent} end without a word, {long:?} are too long");
}

fn of_lines(text: &str) -> Vec<u8> {
    let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let inputs = lines.into_iter().map(|line| match (line.record, line.input) {
        (Some(hex), None) => {
            let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
            let record: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
            let (at, event) = epitaph_core::decode::decode(&record).unwrap();
            (line.now, Input::Kernel { at, event }, Some(record))
        }
        (None, Some(input)) => (line.now, input.input().unwrap(), None),
        _ => panic!("a line is a record or an input"),
    });
    let inputs: Vec<_> = inputs.collect();
    let observation = inputs.iter().find_map(|(_, input, _)| match input {
        Input::Start(observation) => Some(observation.clone()),
        _ => None,
    });
    let evidence = Evidence {
        observation: observation.expect("a start"),
        inputs,
    };
    evidence.written()
}

fn stories(collected: &Path) {
    for name in stems(collected, "epitaph") {
        let whole = collected.join(format!("{name}.epitaph"));
        let played = fs::read_to_string(collected.join(format!("{name}.played"))).unwrap();
        let evidence = Evidence::read(&fs::read(&whole).unwrap());
        let judged = judged::replayed(&whole).unwrap();
        for line in played.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let ["passed", story, subjects @ ..] = &words[..] else {
                continue;
            };
            let recording = evidence.of(subjects).written();
            assert!(recording.len() <= LONGEST, "{story}: {} bytes", recording.len());
            let file = corpus().join("stories").join(format!("{story}.epitaph"));
            fs::write(&file, &recording).unwrap();
            // Nothing that counts was cut away.
            let again = judged::replayed(&file).unwrap();
            let [before, after] = [&judged, &again].map(|objects| evidence.said(&of_subject(objects, subjects[0])));
            assert_eq!(before, after, "{story}");
            println!(
                "{story}: {} bytes of {}",
                recording.len(),
                fs::metadata(&whole).unwrap().len()
            );
        }
    }
}

fn of_subject(objects: &[Value], subject: &str) -> String {
    let is_its = |object: &&Value| {
        ["id", "name"]
            .iter()
            .any(|key| object["subject"][key].as_str() == Some(subject))
    };
    let of: Vec<String> = objects.iter().filter(is_its).map(|object| format!("{object:#}")).collect();
    assert!(!of.is_empty(), "nothing was said of {subject}");
    of.join("\n")
}
