//! The recording of the stories, judged again: by somebody who may do nothing, and damaged.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use epitaph_tests::epitaph::{Said, run};
use libtest_mimic::Failed;
use serde_json::Value;

use crate::traces::terminations;
use crate::{Ran, Shared};

/// From the end of a death to its verdict: the default linger and reorder window, and a few ticks.
const TO_JUDGE_NS: u64 = 3_000_000_000;

/// Line for line what the recorder said, on any machine and without root.
pub fn anybody_gets_the_same_words(shared: &Shared) -> Result<(), Failed> {
    let ran = shared.ran()?;
    let said = replay(ran, &ran.recording)?;
    let first = serde_json::from_str::<Value>(said.lines().first().ok_or("it said nothing")?)?;
    if first != ran.report.observing {
        return Err(format!("first line: recorded {}, replayed {first}", ran.report.observing).into());
    }
    let replayed = &said.lines()[1..];
    for (place, (recorded, replayed)) in ran.report.lines.iter().zip(replayed).enumerate() {
        if recorded != replayed {
            return Err(format!("line {}:\nrecorded {recorded}\nreplayed {replayed}", place + 2).into());
        }
    }
    if replayed.len() != ran.report.lines.len() {
        return Err(format!("recorded {} lines, replayed {}", ran.report.lines.len(), replayed.len()).into());
    }
    if said.err.contains("not whole") {
        return Err(said.err.into());
    }
    Ok(())
}

/// What was judged before the cut is there word for word; what was under way is not called clean.
pub fn truncated_it_loses_its_tail(shared: &Shared) -> Result<(), Failed> {
    let ran = shared.ran()?;
    let whole = fs::read(&ran.recording)?;
    let deaths = terminations(&ran.report.lines)?;
    for part in [1, 2, 5, 7, 9, 10] {
        // Within a frame, and at the edge of one: then only the end of the recording is not there.
        let frames = frames(&whole);
        let last = &frames[frames.len() * part / 10 - 1];
        let cut = if part == 5 { last.end } else { last.end - 1 };
        let judged_at = frames[..frames.len() * part / 10 - 1].last().map_or(0, |f| f.now);
        let said = replay_bytes(ran, &format!("cut-{part}"), &whole[..cut])?;
        if !said.err.contains("not whole") {
            return Err(format!("cut to {cut} bytes, no warning: {}", said.err).into());
        }
        let left = terminations(&said.lines().iter().map(|&l| l.to_owned()).collect::<Vec<_>>())?;
        for death in &deaths {
            let over = death["end_boot_ns"].as_u64().unwrap_or(0) + TO_JUDGE_NS < judged_at;
            let again = left.iter().find(|d| d["trace_id"] == death["trace_id"]);
            match again {
                None if over => return Err(format!("cut to {cut} bytes, this is missing: {death}").into()),
                Some(again) if over && again != death => {
                    return Err(format!("cut to {cut} bytes:\nbefore {death}\nafter {again}").into());
                }
                Some(again) => no_better(death, again, &format!("cut to {cut} bytes"))?,
                None => {}
            }
        }
    }
    Ok(())
}

/// A damaged place makes the deaths unknown that it may have touched, never better than they were.
pub fn corrupted_it_claims_nothing(shared: &Shared) -> Result<(), Failed> {
    let ran = shared.ran()?;
    let whole = fs::read(&ran.recording)?;
    let deaths = terminations(&ran.report.lines)?;
    let frames = frames(&whole);
    let mut touched = 0;
    for part in 1..10 {
        // Past the header, a byte of one record in the middle.
        let frame = &frames[frames.len() * part / 10];
        let mut bytes = whole.clone();
        bytes[frame.end - 5] ^= 0x55;
        let said = replay_bytes(ran, &format!("flipped-{part}"), &bytes)?;
        if !said.err.contains("not whole") {
            return Err(format!("byte {} flipped, no warning: {}", frame.end - 5, said.err).into());
        }
        let left = terminations(&said.lines().iter().map(|&l| l.to_owned()).collect::<Vec<_>>())?;
        for again in &left {
            let what = format!("byte {} flipped", frame.end - 5);
            match deaths.iter().find(|d| d["trace_id"] == again["trace_id"]) {
                Some(death) => no_better(death, again, &what)?,
                // Who died may be what was damaged: then nothing good may be said.
                None if again["verdict"] == "clean" => return Err(format!("{what}: {again}").into()),
                None => {}
            }
            touched += u64::from(again["gaps"]["lost"].as_object().is_some_and(|lost| !lost.is_empty()));
        }
    }
    if touched == 0 {
        return Err("no death knows of the damage".into());
    }
    Ok(())
}

/// Evidence that is gone makes no verdict better, and none worse.
fn no_better(death: &Value, again: &Value, what: &str) -> Result<(), Failed> {
    let verdict = again["verdict"].as_str().unwrap_or_default();
    if again["verdict"] == death["verdict"] || ["unknown", "clean-exit"].contains(&verdict) {
        return Ok(());
    }
    Err(format!("{what}, a verdict changed:\nbefore {death}\nafter {again}").into())
}

fn replay_bytes(ran: &Ran, name: &str, bytes: &[u8]) -> Result<Said, Failed> {
    let path = ran.recording.with_file_name(name);
    fs::write(&path, bytes)?;
    let said = replay(ran, &path)?;
    fs::remove_file(&path)?;
    Ok(said)
}

/// As nobody.
fn replay(ran: &Ran, file: &Path) -> Result<Said, Failed> {
    fs::set_permissions(file, fs::Permissions::from_mode(0o644))?;
    let args = ["replay".as_ref(), file.as_os_str(), "--output".as_ref(), "json".as_ref()];
    let said = run(ran.epitaph.as_nobody(""), args).map_err(|e| format!("{e:#}"))?;
    if said.code != Some(0) {
        return Err(format!("replay of {} ended with {:?}: {}", file.display(), said.code, said.err).into());
    }
    Ok(said)
}

struct Frame {
    end: usize,
    now: u64,
}

/// Those after the header, by the format that agent/src/recording/mod.rs describes.
fn frames(bytes: &[u8]) -> Vec<Frame> {
    let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize;
    let mut at = 12;
    let mut frames = Vec::new();
    while at + 8 <= bytes.len() {
        let end = at + 8 + number(at);
        if at > 12 {
            let now = bytes[at + 8..at + 16].iter().rev().fold(0, |now, &b| now << 8 | u64::from(b));
            frames.push(Frame { end, now });
        }
        at = end;
    }
    frames
}
