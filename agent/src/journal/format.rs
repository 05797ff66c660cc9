//! The frames that only the journal has, the header of a segment, and the names of segments.

use epitaph_core::input::Observation;
use epitaph_core::time::{Boot, Wall};
use serde::{Deserialize, Serialize};

use crate::recording::OF_JOURNAL;
use crate::recording::WriteError;
use crate::recording::frames::{Numbers, append_to_number, stamp};

/// Of a segment's format, which is that of a recording of the same version: from 2 on, frames have numbers.
pub(crate) const VERSION: u32 = 2;
const NUMBERED: u32 = 2;

pub(crate) const TAG_REPORT: u8 = 2;
pub(crate) const TAG_ANSWERED: u8 = 3;
/// The header once more. Older readers do not know the tag, and leave the frame out.
pub(crate) const TAG_HEADER: u8 = 4;

/// Finished reports that the journal does not have.
pub(crate) const TAG_LOST: u8 = 5;

/// Reports that the collector answered for some of the signals that they are sent as.
pub(crate) const TAG_ANSWERED_IN_PART: u8 = 6;

/// A custom resource that the API server has to get.
pub(crate) const TAG_RESOURCE: u8 = 7;

const _: () = assert!(*OF_JOURNAL.start() == TAG_REPORT && *OF_JOURNAL.end() == TAG_RESOURCE);

/// Of the API server, among the signals of [`TAG_ANSWERED_IN_PART`]: the resource is written, or never will be.
pub(crate) const RESOURCE: u8 = 4;

/// Wall time, trace, root span, number of spans, length of the JSON.
const FIXED: usize = 8 + ID + 4 + 4;
const ID: usize = 16 + 8;

/// First frame of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentHeader {
    /// Of the format. The same stands before the header, where no checksum protects it.
    #[serde(default = "first_version")]
    pub version: u32,
    /// Version of the epitaph that wrote it.
    pub epitaph: String,
    /// Of the agent's run: its boot id and `since` identify the run.
    pub observation: Observation,
    /// The first segment of the run: no evidence of the run was in an earlier one.
    #[serde(default)]
    pub first: bool,
    /// Of the segment's first frame: the numbers of a run go on from segment to segment.
    #[serde(default)]
    pub number: u32,
}

/// Of segments whose header does not say.
pub(super) const fn first_version() -> u32 {
    1
}

/// Appends a frame. Its number and its checksum follow when it is written to a segment.
pub(crate) fn append(out: &mut Vec<u8>, stamp: &[u8], body: &[&[u8]]) -> Result<(), WriteError> {
    append_to_number(out, stamp, body)
}

/// Whether the frames of a segment of that version have numbers.
pub(super) const fn is_numbered(version: u32) -> bool {
    version >= NUMBERED
}

impl SegmentHeader {
    /// Of the frames.
    pub(crate) fn numbers(&self) -> Numbers {
        match is_numbered(self.version) {
            true => Numbers::From(self.number),
            false => Numbers::None,
        }
    }

    /// Whether the segment is of that run.
    pub(crate) fn is_of(&self, run: &Observation) -> bool {
        run.boot_id == self.observation.boot_id && run.since == self.observation.since
    }
}

/// Identifies a finished report: its trace and its root span, as exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReportId {
    pub trace: [u8; 16],
    pub span: [u8; 8],
}

impl ReportId {
    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.trace);
        out.extend_from_slice(&self.span);
    }

    fn read(bytes: &[u8]) -> Option<ReportId> {
        let (trace, rest) = bytes.split_first_chunk()?;
        Some(ReportId {
            trace: *trace,
            span: *rest.first_chunk()?,
        })
    }
}

/// A finished report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished<'a> {
    /// When the termination ended.
    pub wall: Wall,
    pub id: ReportId,
    /// Number of spans in the request.
    pub spans: u32,
    /// An object of docs/json.md.
    pub json: &'a [u8],
    /// The encoded OTLP request; empty if there is nothing to send.
    pub request: &'a [u8],
}

impl<'a> Finished<'a> {
    /// Appends the report's frame.
    ///
    /// # Errors
    /// The report is longer than a frame; nothing was appended.
    pub(crate) fn append(&self, out: &mut Vec<u8>, now: Boot) -> Result<(), WriteError> {
        let mut fixed = Vec::with_capacity(FIXED);
        fixed.extend_from_slice(&self.wall.0.to_le_bytes());
        self.id.write(&mut fixed);
        fixed.extend_from_slice(&self.spans.to_le_bytes());
        // Longer than a frame, and refused as such, if the length does not fit.
        fixed.extend_from_slice(&u32::try_from(self.json.len()).unwrap_or(u32::MAX).to_le_bytes());
        append(out, &stamp(now, TAG_REPORT), &[&fixed, self.json, self.request])
    }

    /// None: not a report.
    pub(crate) fn read(body: &'a [u8]) -> Option<Finished<'a>> {
        let (wall, rest) = body.split_first_chunk()?;
        let id = ReportId::read(rest)?;
        let (spans, rest) = rest.get(ID..)?.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (json, request) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        Some(Finished {
            wall: Wall(u64::from_le_bytes(*wall)),
            id,
            spans: u32::from_le_bytes(*spans),
            json,
            request,
        })
    }
}

/// Finished reports that are not in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LostReports {
    pub reports: u64,
    /// When the first and the last of them ended, nanoseconds since the Unix epoch.
    pub first: Wall,
    pub last: Wall,
    /// The state of the journal ([`super::Trouble::name`]); None: the disk did not keep up, or a report was too long.
    #[serde(default)]
    pub why: Option<String>,
}

impl LostReports {
    pub fn append(&self, out: &mut Vec<u8>, now: Boot) -> Result<(), WriteError> {
        let json = serde_json::to_vec(self).map_err(WriteError::Json)?;
        append(out, &stamp(now, TAG_LOST), &[&json])
    }

    pub fn read(tag: u8, body: &[u8]) -> Option<LostReports> {
        serde_json::from_slice(body).ok().filter(|_| tag == TAG_LOST)
    }
}

/// Appends the frame of answered reports.
pub(crate) fn append_answered(out: &mut Vec<u8>, now: Boot, ids: &[ReportId]) -> Result<(), WriteError> {
    let mut body = Vec::with_capacity(ids.len() * ID);
    ids.iter().for_each(|id| id.write(&mut body));
    append(out, &stamp(now, TAG_ANSWERED), &[&body])
}

/// Appends the frame of a custom resource.
pub(crate) fn append_resource(out: &mut Vec<u8>, now: Boot, id: ReportId, resource: &[u8]) -> Result<(), WriteError> {
    let mut body = Vec::with_capacity(ID);
    id.write(&mut body);
    append(out, &stamp(now, TAG_RESOURCE), &[&body, resource])
}

pub(crate) fn read_resource(body: &[u8]) -> Option<(ReportId, &[u8])> {
    Some((ReportId::read(body)?, body.get(ID..)?))
}

/// Appends the frame of reports that are answered for these signals only.
pub(crate) fn append_answered_in_part(out: &mut Vec<u8>, now: Boot, signals: u8, ids: &[ReportId]) -> Result<(), WriteError> {
    let mut body = vec![signals];
    ids.iter().for_each(|id| id.write(&mut body));
    append(out, &stamp(now, TAG_ANSWERED_IN_PART), &[&body])
}

/// The signals, and the reports.
pub(crate) fn read_answered_in_part(body: &[u8]) -> Option<(u8, impl Iterator<Item = ReportId>)> {
    let (signals, ids) = body.split_first()?;
    Some((*signals, read_answered(ids)))
}

pub(crate) fn read_answered(body: &[u8]) -> impl Iterator<Item = ReportId> {
    body.chunks_exact(ID).filter_map(ReportId::read)
}

const SEGMENT: &str = ".journal";
/// Of a segment that a newer epitaph wrote: out of the way of this one, and there for that one.
const NEWER: &str = ".journal.newer";

/// The file name of a segment; names sort like numbers.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:016}{SEGMENT}")
}

pub(crate) fn newer_name(number: u64) -> String {
    format!("{number:016}{NEWER}")
}

/// What a file of the directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileKind {
    Segment(u64),
    Newer(u64),
}

impl FileKind {
    pub fn number(self) -> u64 {
        match self {
            FileKind::Segment(number) | FileKind::Newer(number) => number,
        }
    }

    pub fn name(self) -> String {
        match self {
            FileKind::Segment(number) => segment_name(number),
            FileKind::Newer(number) => newer_name(number),
        }
    }
}

/// None: not a file of the journal.
pub(crate) fn kind_of(name: &str) -> Option<FileKind> {
    let number = |digits: &str| {
        let is_number = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| is_number)
    };
    if let Some(digits) = name.strip_suffix(NEWER) {
        return number(digits).map(FileKind::Newer);
    }
    number(name.strip_suffix(SEGMENT)?).map(FileKind::Segment)
}
