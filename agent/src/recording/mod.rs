//! The evidence file: versioned, checksummed, readable by later versions.
//!
//! ```text
//! file   = magic "EPITAPH\n" | format version, u32 | frame (header, JSON) | frame*
//! frame  = length of the payload, u32 | CRC-32 of length and payload, u32 | payload
//! payload of all but the header = now, CLOCK_BOOTTIME ns, u64 | 0, a kernel record's bytes
//!                                                             | 1, any other input, JSON
//! ```
//! Little endian. Kernel records stay the bytes that the probes wrote, with their own version, and are decoded at replay: a
//! better decoder makes old recordings better. JSON fields that a reader does not know are ignored, inputs that it does not
//! know are counted.

mod reader;
mod writer;

use serde::{Deserialize, Serialize};

use std::sync::Arc;

use crate::event::Kind;
use crate::input::{CgroupFact, Input, Observation, ProbeState, ProcessFact};
use crate::pod::{ApiClock, PodFact, PodGone, PodHint, PodHints, PodsState};
use crate::time::{Boot, WallOffset};

pub use reader::{Reader, Report};
pub use writer::Writer;

const MAGIC: [u8; 8] = *b"EPITAPH\n";

/// Raised only where an older reader would misread the file; new inputs and new fields do not.
const VERSION: u32 = 1;

/// Longest payload. Its top byte is 0 on the wire, so no text (cgroup names and comms are chosen by anybody, but hold no NUL)
/// can pass for a frame to a reader that looks for the next one.
const MAX_PAYLOAD: usize = 1 << 20;

/// Length and checksum.
const PREFIX: usize = 8;

/// `now` and the tag.
const STAMP: usize = 9;
const TAG_KERNEL: u8 = 0;
const TAG_INPUT: u8 = 1;

/// First frame of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the epitaph that wrote it.
    pub epitaph: String,
    pub observation: Observation,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("file is no epitaph recording; give a file that `epitaph record` has written")]
    NotARecording,
    #[error(
        "recording has format version {found}, this epitaph reads up to {VERSION}; replay it with the epitaph that wrote it, or a newer one"
    )]
    Newer { found: u32 },
    #[error("recording's header is damaged, so its machine and start are not known; record again")]
    DamagedHeader,
    #[error("cannot read recording: {0}")]
    Read(std::io::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("cannot write recording: {0}; free space or record to another file")]
    Write(std::io::Error),
    #[error("cannot record an input of {0} bytes, the format's limit is {MAX_PAYLOAD}")]
    TooLong(usize),
    #[error("cannot record a kernel event without its record's bytes; use Writer::record")]
    KernelWithoutBytes,
    #[error("cannot record an input as JSON: {0}")]
    Json(serde_json::Error),
}

/// An input on disk: all but kernel records.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
enum Stored {
    Start(Observation),
    Probe {
        name: String,
        state: ProbeState,
    },
    Cgroup(CgroupFact),
    Process(ProcessFact),
    Pods {
        state: PodsState,
    },
    Pod {
        pod: PodFact,
    },
    PodGone(PodGone),
    PodHint(PodHint),
    PodHints(PodHints),
    ApiClock(ApiClock),
    Lost {
        /// [`Kind::name`].
        kind: String,
        since: Boot,
        count: u64,
    },
    Clock {
        offset: WallOffset,
    },
    Tick,
    End,
}

impl Stored {
    /// None for a kernel event: it is kept as bytes.
    fn new(input: &Input) -> Option<Stored> {
        Some(match input.clone() {
            Input::Kernel { .. } => return None,
            Input::Start(observation) => Stored::Start(observation),
            Input::Probe { name, state } => Stored::Probe { name, state },
            Input::Cgroup(fact) => Stored::Cgroup(fact),
            Input::Process(fact) => Stored::Process(fact),
            Input::Pods(state) => Stored::Pods { state },
            Input::Pod(pod) => Stored::Pod {
                pod: Arc::unwrap_or_clone(pod),
            },
            Input::PodGone(gone) => Stored::PodGone(gone),
            Input::PodHint(hint) => Stored::PodHint(hint),
            Input::PodHints(hints) => Stored::PodHints(hints),
            Input::ApiClock(clock) => Stored::ApiClock(clock),
            Input::Lost { kind, since, count } => Stored::Lost {
                kind: kind.name().to_owned(),
                since,
                count,
            },
            Input::Clock(offset) => Stored::Clock { offset },
            Input::Tick => Stored::Tick,
            Input::End => Stored::End,
        })
    }

    /// None where it speaks of a kind of evidence that this version does not know.
    fn input(self) -> Option<Input> {
        Some(match self {
            Stored::Start(observation) => Input::Start(observation),
            Stored::Probe { name, state } => Input::Probe { name, state },
            Stored::Cgroup(fact) => Input::Cgroup(fact),
            Stored::Process(fact) => Input::Process(fact),
            Stored::Pods { state } => Input::Pods(state),
            Stored::Pod { pod } => Input::Pod(Arc::new(pod)),
            Stored::PodGone(gone) => Input::PodGone(gone),
            Stored::PodHint(hint) => Input::PodHint(hint),
            Stored::PodHints(hints) => Input::PodHints(hints),
            Stored::ApiClock(clock) => Input::ApiClock(clock),
            Stored::Lost { kind, since, count } => Input::Lost {
                kind: Kind::ALL.into_iter().find(|k| k.name() == kind)?,
                since,
                count,
            },
            Stored::Clock { offset } => Input::Clock(offset),
            Stored::Tick => Input::Tick,
            Stored::End => Input::End,
        })
    }
}

fn checksum(length: [u8; 4], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&length);
    crc.update(payload);
    crc.finalize()
}

#[cfg(test)]
mod tests;
