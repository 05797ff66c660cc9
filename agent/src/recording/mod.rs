//! The evidence file: versioned, checksummed, readable by later versions.
//!
//! ```text
//! file   = magic "EPITAPH\n" | format version, u32 | frame (header, JSON) | frame*
//! frame  = length of the payload, u32 | CRC-32 of length and payload, u32 | payload
//! payload of all but the header = number | now, CLOCK_BOOTTIME ns, u64 | 0, a kernel record's bytes
//!                                                                      | 1, any other input, JSON
//! number = from 0 on, u32; not in format version 1
//! ```
//! Little endian. By the numbers a reader notices frames that were cut out of the middle, and leaves out those that are there twice. Kernel
//! records are kept as the probes wrote them, with their own version, and are decoded at replay: a better decoder also improves old
//! recordings. A reader ignores unknown JSON fields and counts unknown inputs. It stops where another recording begins: that one may be of
//! another machine.

pub(crate) mod frames;
mod reader;
mod writer;

use epitaph_core::input::Observation;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

use crate::error::{HasRemedy, Remedy};

use frames::read_header;
pub use reader::{Another, Missing, Reader, Report, lost_in};
pub(crate) use writer::input_json;
pub use writer::{Writer, create};

/// Raised only if an older reader would misread the file; not for new inputs and fields.
pub(crate) const VERSION: u32 = 2;

/// From this version on, frames have numbers.
const NUMBERED: u32 = 2;

/// Longest payload. The length's top byte is therefore 0 on the wire: text (cgroup names and comms come from any process, but
/// have no NUL) cannot look like a frame to a reader that searches for the next frame.
pub(crate) const MAX_PAYLOAD: usize = 1 << 20;

/// Tags of payloads. The journal's segments have more ([`crate::journal`]).
pub(crate) const TAG_KERNEL: u8 = 0;
pub(crate) const TAG_INPUT: u8 = 1;
/// Frames that only a journal has.
pub(crate) const OF_JOURNAL: RangeInclusive<u8> = 2..=7;

/// First frame of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the epitaph that wrote it.
    pub epitaph: String,
    pub observation: Observation,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the file is not a recording")]
    NotARecording,
    #[error("the recording has format version {found}, and this epitaph reads up to {VERSION}")]
    Newer { found: u32 },
    #[error("the header of the recording is damaged: the machine and the start are not known")]
    DamagedHeader,
    #[error("cannot read the recording: {0}")]
    Read(std::io::Error),
}

impl HasRemedy for ReadError {
    fn remedy(&self) -> Option<Remedy> {
        let remedy = match self {
            ReadError::NotARecording => "give a file from `epitaph record` or `epitaph export`",
            ReadError::Newer { .. } => "replay it with the epitaph that wrote it, or a newer one",
            ReadError::DamagedHeader => "record, export or copy it again",
            ReadError::Read(_) => return None,
        };
        Some(remedy.into())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("cannot write the recording: {0}")]
    Write(std::io::Error),
    #[error("cannot record an input of {0} bytes, the limit of the format is {MAX_PAYLOAD}")]
    TooLong(usize),
    #[error("cannot record a kernel event without the bytes of its record")]
    KernelWithoutBytes,
    #[error("cannot record an input as JSON: {0}")]
    Json(serde_json::Error),
}

impl HasRemedy for WriteError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            WriteError::Write(_) => Some("free space, or record to another file".into()),
            WriteError::TooLong(_) | WriteError::KernelWithoutBytes | WriteError::Json(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
