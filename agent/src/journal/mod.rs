//! The journal: what the agent keeps on disk, so that neither a kill nor a power cut loses a termination.
//!
//! A directory of segments. A segment is a file of a recording's frames ([`crate::recording`]): it begins with a header, has the evidence
//! of terminations in progress as a recording has it, and two more kinds of frames:
//!
//! ```text
//! finished report = now, u64 | 2, u8 | wall time of the end, ns, u64 | trace id, 16 bytes | root span id, 8 bytes | spans, u32
//!                   | length of the JSON, u32 | JSON object of docs/json.md | encoded OTLP request, the rest; empty: nothing to send
//! answered        = now, u64 | 3, u8 | (trace id, 16 bytes | root span id, 8 bytes)*: the collector accepted or refused these
//! ```
//!
//! Segments are only appended to. The agent begins a new one at every start, and removes the oldest when the directory is full. An
//! older reader counts the frames that it does not know. A segment of a newer format is kept aside, under another name.
//!
//! *Architecture invariant*: nothing here runs on the event loop but the copy of a frame into a bounded buffer.

mod directory;
mod format;
pub mod reader;

pub use format::{Finished, ReportId};
