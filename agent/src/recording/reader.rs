use std::collections::VecDeque;
use std::io::Read;

use epitaph_core::event::{Event, Kind};
use epitaph_core::input::Input;
use epitaph_core::stored::StoredInput;
use epitaph_core::time::Boot;

use super::frames::{Frames, Next, stamped};
use super::{Header, ReadError, TAG_INPUT, TAG_KERNEL, read_header};

/// What was read and what was lost; complete once the iterator has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Returned inputs, including the [`Input::Lost`] of damaged places.
    pub inputs: u64,
    /// Damaged places before the end, and their bytes: for each, the core got an [`Input::Lost`] of every kind.
    pub damaged: u64,
    pub damaged_bytes: u64,
    /// Complete inputs that the file does not have, by the numbers of those around them; the time of the first such place. For each place, the
    /// core got the same.
    pub missing: u64,
    pub missing_between: Option<(Boot, Boot)>,
    /// Bytes at the end without a complete input: the recorder was stopped during a write, or the end is damaged.
    pub tail_bytes: u64,
    /// Complete inputs of a kind that this version does not know.
    pub unknown_inputs: u64,
    /// Complete kernel records that this version cannot decode: for each of a kind that is known, the core got an
    /// [`Input::Lost`] of that kind.
    pub undecodable: u64,
    /// Why reading stopped before the end of the file.
    pub error: Option<String>,
}

/// Reads a recording from its beginning, once, in constant memory.
pub struct Reader<R, D> {
    frames: Frames<R>,
    decode: D,
    header: Header,
    ready: VecDeque<(Boot, Input)>,
    /// Time of the last complete input.
    last: Boot,
    report: Report,
}

impl<R, D> Reader<R, D> {
    pub fn header(&self) -> &Header {
        &self.header
    }

    pub fn report(&self) -> &Report {
        &self.report
    }
}

impl<R, D, E> Reader<R, D>
where
    R: Read,
    D: FnMut(&[u8]) -> Result<(Boot, Event), E>,
{
    /// `decode`: decodes a kernel record.
    pub fn new(file: R, decode: D) -> Result<Reader<R, D>, ReadError> {
        let mut frames = Frames::new(file);
        let header: Header = read_header(&mut frames)?;
        Ok(Reader::after(frames, header, decode))
    }

    /// `frames`: after the header.
    pub(crate) fn after(frames: Frames<R>, header: Header, decode: D) -> Reader<R, D> {
        let last = header.observation.since;
        Reader {
            frames,
            decode,
            header,
            ready: VecDeque::new(),
            last,
            report: Report::default(),
        }
    }

    /// Takes the next complete frame, and the damage before it. False at the end.
    fn read(&mut self) -> bool {
        match self.frames.next() {
            Next::End { tail, error } => {
                self.report.tail_bytes += tail;
                self.report.error = self.report.error.take().or(error);
                false
            }
            Next::Frame {
                skipped,
                missing,
                at,
                length,
            } => {
                let (now, tag, body) = stamped(self.frames.payload(at, length));
                self.report.damaged += u64::from(skipped > 0);
                self.report.damaged_bytes += skipped;
                if missing > 0 {
                    self.report.missing += missing;
                    self.report.missing_between.get_or_insert((self.last, now));
                }
                if skipped > 0 || missing > 0 {
                    let since = self.last;
                    // The content is unknown: at least one input, of any kind.
                    self.ready
                        .extend(Input::part_missing(since).into_iter().map(|lost| (now, lost)));
                }
                match tag {
                    TAG_KERNEL => match (self.decode)(body) {
                        Ok((at, event)) => self.ready.push_back((now, Input::Kernel { at, event })),
                        Err(_) => {
                            self.report.undecodable += 1;
                            let kind = body.first_chunk().and_then(|kind| Kind::from_u16(u16::from_le_bytes(*kind)));
                            let since = self.last;
                            self.ready
                                .extend(kind.map(|kind| (now, Input::lost_by_machine(kind, since, 1))));
                        }
                    },
                    TAG_INPUT => match serde_json::from_slice(body).ok().and_then(StoredInput::input) {
                        Some(input) => self.ready.push_back((now, input)),
                        None => self.report.unknown_inputs += 1,
                    },
                    _ => self.report.unknown_inputs += 1,
                }
                self.last = now;
                true
            }
        }
    }
}

/// Inputs with the `now` at which the core got them. Never fails: damage is reported as [`Input::Lost`] and counted.
impl<R, D, E> Iterator for Reader<R, D>
where
    R: Read,
    D: FnMut(&[u8]) -> Result<(Boot, Event), E>,
{
    type Item = (Boot, Input);

    fn next(&mut self) -> Option<(Boot, Input)> {
        while self.ready.is_empty() {
            if !self.read() {
                return None;
            }
        }
        self.report.inputs += 1;
        self.ready.pop_front()
    }
}
