//! Recordings as seeds: those of `tests/corpus`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::mutation::Mutations;

/// Magic and version before the first frame.
const BEGIN: usize = 12;
/// Where the format's version stands.
const VERSION: usize = 8;
/// The number of a frame, from version 2 on.
const NUMBER: usize = 4;
/// Length and checksum of a frame.
const PREFIX: usize = 8;
/// Time and tag of an input.
const STAMP: usize = 9;
const TAG_KERNEL: u8 = 0;

/// Most bytes of a seed: a mutation of a shorter one hits more often.
const SMALL: usize = 16 << 10;

/// Recorded stories and timelines.
pub fn small() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for room in ["stories", "timelines"] {
        let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus").join(room);
        let entries = std::fs::read_dir(directory).expect("the corpus");
        files.extend(entries.map(|entry| entry.expect("a directory entry").path()));
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "epitaph"));
    files.sort();
    let mut seeds: Vec<_> = files.iter().map(|file| std::fs::read(file).expect("a recording")).collect();
    seeds.retain(|seed| seed.len() <= SMALL);
    assert!(seeds.len() > 100, "the corpus has {} small recordings", seeds.len());
    seeds
}

/// The same as the first version of the format has them, as segments of the journal are: their frames have no numbers.
pub fn unnumbered() -> Vec<Vec<u8>> {
    let of = |seed: Vec<u8>| {
        if seed[VERSION] == 1 {
            return seed;
        }
        let payloads = frames(&seed).unwrap_or_default();
        let payloads = payloads.into_iter().enumerate().map(|(at, mut payload)| {
            // Not the header.
            payload.drain(..if at == 0 { 0 } else { NUMBER });
            payload
        });
        let mut begin = seed[..BEGIN].to_vec();
        begin[VERSION] = 1;
        with_frames(begin, payloads)
    };
    small().into_iter().map(of).collect()
}

/// One record of each kind, version and length.
pub fn kernel_records() -> Vec<Vec<u8>> {
    let mut seen = BTreeSet::new();
    let mut records = Vec::new();
    for recording in unnumbered() {
        for payload in frames(&recording).unwrap_or_default() {
            if payload.get(STAMP - 1) == Some(&TAG_KERNEL)
                && seen.insert((payload[STAMP..].first_chunk::<4>().copied(), payload.len()))
            {
                records.push(payload[STAMP..].to_vec());
            }
        }
    }
    records
}

/// The recording with changed inputs and valid checksums: the changes pass the reader and reach the core.
pub fn mutate_inputs(recording: &[u8], mutations: &Mutations, _: &[Vec<u8>]) -> Vec<u8> {
    let Some(mut payloads) = frames(recording) else {
        return recording.to_vec();
    };
    let mut inputs = payloads.split_off(payloads.len().min(1));
    mutations.apply_to_parts(&mut inputs);
    payloads.extend(inputs);
    with_frames(recording[..BEGIN].to_vec(), payloads.into_iter())
}

fn with_frames(mut out: Vec<u8>, payloads: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    for payload in payloads {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut crc = crc32fast::Hasher::new();
        crc.update(&length);
        crc.update(&payload);
        out.extend(length);
        out.extend(crc.finalize().to_le_bytes());
        out.extend(payload);
        if out.len() > super::mutation::LONGEST {
            break;
        }
    }
    out
}

/// The payloads of an undamaged recording.
fn frames(recording: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = recording.get(BEGIN..)?;
    let mut payloads = Vec::new();
    while let Some(prefix) = rest.first_chunk::<4>() {
        let end = PREFIX + u32::from_le_bytes(*prefix) as usize;
        payloads.push(rest.get(PREFIX..end)?.to_vec());
        rest = &rest[end..];
    }
    Some(payloads)
}
