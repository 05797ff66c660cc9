//! The recording of the stories, judged again: by an unprivileged user, and damaged.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use epitaph_tests::epitaph::{CommandOutput, run};
use libtest_mimic::Failed;
use serde_json::Value;

use crate::traces::terminations;
use crate::{Ran, Shared};

/// From a termination to its verdict: 10 s where a busy machine removes the cgroup late, the default linger and reorder window, and a few
/// ticks.
const TO_JUDGE_NS: u64 = 13_000_000_000;

/// Line for line what the recorder reported, on any machine and without root.
pub fn any_user_gets_the_same_lines(shared: &Shared) -> Result<(), Failed> {
    let ran = shared.ran()?;
    let output = replay(ran, &ran.recording, 0)?;
    let first = serde_json::from_str::<Value>(output.lines().first().ok_or("it printed nothing")?)?;
    if first != ran.report.observing {
        return Err(format!("first line: recorded {}, replayed {first}", ran.report.observing).into());
    }
    let replayed = &output.lines()[1..];
    for (place, (recorded, replayed)) in ran.report.lines.iter().zip(replayed).enumerate() {
        if recorded != replayed {
            return Err(format!("line {}:\nrecorded {recorded}\nreplayed {replayed}", place + 2).into());
        }
    }
    if replayed.len() != ran.report.lines.len() {
        return Err(format!("recorded {} lines, replayed {}", ran.report.lines.len(), replayed.len()).into());
    }
    if output.err.contains("not whole") {
        return Err(output.err.into());
    }
    Ok(())
}

/// What was judged before the cut is unchanged; a termination under way is not called clean.
pub fn truncated_it_loses_its_tail(shared: &Shared) -> Result<(), Failed> {
    let ran = shared.ran()?;
    let whole = fs::read(&ran.recording)?;
    let recorded = terminations(&ran.report.lines)?;
    for part in [1, 2, 5, 7, 9, 10] {
        // Within a frame, and at the edge of one: then only the end of the recording is not there.
        let frames = frames(&whole);
        let last = &frames[frames.len() * part / 10 - 1];
        let cut = if part == 5 { last.end } else { last.end - 1 };
        let judged_at = frames[..frames.len() * part / 10 - 1].last().map_or(0, |f| f.now);
        let (code, stated) = if part == 5 {
            (0, "has no end record")
        } else {
            (65, "not whole")
        };
        let output = replay_bytes(ran, &format!("cut-{part}"), &whole[..cut], code)?;
        if !output.err.contains(stated) {
            return Err(format!("cut to {cut} bytes, no warning: {}", output.err).into());
        }
        let left = terminations(&output.lines().iter().map(|&l| l.to_owned()).collect::<Vec<_>>())?;
        for original in &recorded {
            let over = original["end_boot_ns"].as_u64().unwrap_or(0) + TO_JUDGE_NS < judged_at;
            let again = left.iter().find(|d| d["trace_id"] == original["trace_id"]);
            match again {
                None if over => return Err(format!("cut to {cut} bytes, this is missing: {original}").into()),
                Some(again) if over && again != original => {
                    return Err(format!("cut to {cut} bytes:\nbefore {original}\nafter {again}").into());
                }
                Some(again) => no_better(original, again, &format!("cut to {cut} bytes"))?,
                None => {}
            }
        }
    }
    Ok(())
}

/// Damage makes those terminations unknown that it may have touched, never better than they were.
pub fn corrupted_it_claims_nothing(shared: &Shared) -> Result<(), Failed> {
    let ran = shared.ran()?;
    let whole = fs::read(&ran.recording)?;
    let recorded = terminations(&ran.report.lines)?;
    let frames = frames(&whole);
    let mut touched = 0;
    for part in 1..10 {
        // Past the header, a byte of one record in the middle.
        let frame = &frames[frames.len() * part / 10];
        let mut bytes = whole.clone();
        bytes[frame.end - 5] ^= 0x55;
        let output = replay_bytes(ran, &format!("flipped-{part}"), &bytes, 65)?;
        if !output.err.contains("not whole") {
            return Err(format!("byte {} flipped, no warning: {}", frame.end - 5, output.err).into());
        }
        let left = terminations(&output.lines().iter().map(|&l| l.to_owned()).collect::<Vec<_>>())?;
        for again in &left {
            let what = format!("byte {} flipped", frame.end - 5);
            match recorded.iter().find(|d| d["trace_id"] == again["trace_id"]) {
                Some(original) => no_better(original, again, &what)?,
                // The damage may be in the subject itself: then no good verdict may be given.
                None if again["verdict"] == "clean" => return Err(format!("{what}: {again}").into()),
                None => {}
            }
            touched += u64::from(again["gaps"]["lost"].as_object().is_some_and(|lost| !lost.is_empty()));
        }
    }
    if touched == 0 {
        return Err("no termination reports the damage".into());
    }
    Ok(())
}

/// Evidence that is gone makes no verdict better, and none worse.
fn no_better(original: &Value, again: &Value, what: &str) -> Result<(), Failed> {
    let verdict = again["verdict"].as_str().unwrap_or_default();
    if again["verdict"] == original["verdict"] || ["unknown", "clean-exit"].contains(&verdict) {
        return Ok(());
    }
    Err(format!("{what}, a verdict changed:\nbefore {original}\nafter {again}").into())
}

fn replay_bytes(ran: &Ran, name: &str, bytes: &[u8], code: i32) -> Result<CommandOutput, Failed> {
    let path = ran.recording.with_file_name(name);
    fs::write(&path, bytes)?;
    let output = replay(ran, &path, code)?;
    fs::remove_file(&path)?;
    Ok(output)
}

/// As user `nobody`.
fn replay(ran: &Ran, file: &Path, code: i32) -> Result<CommandOutput, Failed> {
    fs::set_permissions(file, fs::Permissions::from_mode(0o644))?;
    let args = ["replay".as_ref(), file.as_os_str(), "--output".as_ref(), "json".as_ref()];
    let output = run(ran.epitaph.as_nobody(""), args).map_err(|e| format!("{e:#}"))?;
    if output.code != Some(code) {
        return Err(format!("replay of {} ended with {:?}: {}", file.display(), output.code, output.err).into());
    }
    Ok(output)
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
            // After length, checksum and number.
            let now = bytes[at + 12..at + 20]
                .iter()
                .rev()
                .fold(0, |now, &b| now << 8 | u64::from(b));
            frames.push(Frame { end, now });
        }
        at = end;
    }
    frames
}
