//! The beginning of a segment: written twice, so that no single fault of the disk takes more than a frame.

use std::io::Read;

use serde::Deserialize;

use super::format::{SegmentHeader, TAG_HEADER, VERSION, first_version, is_numbered};
use crate::recording::frames::{BEGINNING, Frames, Numbers, PREFIX, STAMP, append, append_header, stamp, stamped};
use crate::recording::{ReadError, WriteError};

/// Where the header's copy is searched, bytes: far more than a header has. Both and the next frame's begin are within what is read at once.
const SEARCHED: usize = 8 << 10;

/// What is known of a segment before its frames.
#[derive(Debug)]
pub(crate) struct Beginning {
    /// None: damaged, and there is no copy. The frames are read all the same; whose evidence they are is not known.
    pub header: Option<SegmentHeader>,
    /// Bytes before the next frame that are damaged.
    pub damaged: u64,
}

pub(crate) fn append_beginning(out: &mut Vec<u8>, header: &SegmentHeader) -> Result<(), WriteError> {
    append_header(out, VERSION, header)?;
    // Without a number, as the header.
    let copy = serde_json::to_vec(header).map_err(WriteError::Json)?;
    append(out, &stamp(header.observation.since, TAG_HEADER), &[&copy])
}

/// Reads the beginning of a segment.
///
/// # Errors
/// The segment is of a newer version, is empty, or cannot be read. Damage is not an error.
pub(crate) fn read_beginning<R: Read>(frames: &mut Frames<R>) -> Result<Beginning, ReadError> {
    let beginning = frames.beginning().map_err(ReadError::Read)?;
    let read = find_header(frames, beginning)?;
    frames.set_numbers(match (&read.header, beginning) {
        (Some(header), _) => header.numbers(),
        (None, Some((true, version))) if !is_numbered(version) => Numbers::None,
        // Of this version, as most are.
        (None, _) => Numbers::Any,
    });
    Ok(read)
}

/// `beginning`: as the file has it.
fn find_header<R: Read>(frames: &mut Frames<R>, beginning: Option<(bool, u32)>) -> Result<Beginning, ReadError> {
    if frames.is_empty() {
        return Err(ReadError::NotARecording);
    }
    if let Some(payload) = frames.peek(BEGINNING) {
        let end = BEGINNING + PREFIX + payload.len();
        // Much longer: not a header.
        let read = if payload.len() > SEARCHED { None } else { parse(payload)? };
        match (read, beginning) {
            (Some(header), _) => {
                let is_whole = beginning == Some((true, header.version));
                let (copy, damaged) = copy_after(frames, end);
                frames.skip(end + copy);
                return Ok(Beginning {
                    header: Some(header),
                    damaged: if is_whole { damaged } else { BEGINNING as u64 + damaged },
                });
            }
            // A header that this version does not understand, and whole.
            (None, Some((true, found))) if found > VERSION => return Err(ReadError::Newer { found }),
            (None, _) => {}
        }
    }
    for at in 0..SEARCHED {
        let Some(payload) = frames.peek(at).filter(|payload| payload.len() >= STAMP) else {
            continue;
        };
        let end = at + PREFIX + payload.len();
        let (_, tag, body) = stamped(payload);
        if tag != TAG_HEADER {
            break;
        }
        let Some(header) = parse(body)? else { break };
        frames.skip(end);
        return Ok(Beginning {
            header: Some(header),
            damaged: at as u64,
        });
    }
    Ok(Beginning {
        header: None,
        damaged: 0,
    })
}

/// Bytes of the copy after the header that ends there, and those of them that are damaged. A damaged copy is not missing evidence.
fn copy_after<R: Read>(frames: &mut Frames<R>, end: usize) -> (usize, u64) {
    // The header's frame and the stamp.
    let copy = end - BEGINNING + STAMP;
    if let Some(payload) = frames.peek(end) {
        let is_copy = payload.len() >= STAMP && stamped(payload).1 == TAG_HEADER;
        // The first builds wrote none.
        return (if is_copy { PREFIX + payload.len() } else { 0 }, 0);
    }
    match frames.peek(end + copy).is_some() || frames.ends(end + copy) {
        true => (copy, copy as u64),
        // Torn.
        false => (0, 0),
    }
}

/// None: not a header.
fn parse(json: &[u8]) -> Result<Option<SegmentHeader>, ReadError> {
    #[derive(Deserialize)]
    struct Versioned {
        #[serde(default = "first_version")]
        version: u32,
    }
    match serde_json::from_slice(json) {
        Ok(Versioned { version }) if version > VERSION => Err(ReadError::Newer { found: version }),
        Ok(_) => Ok(serde_json::from_slice(json).ok()),
        Err(_) => Ok(None),
    }
}
