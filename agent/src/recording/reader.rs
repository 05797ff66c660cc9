use std::collections::VecDeque;
use std::io::Read;

use epitaph_core::correlate::Limits;
use epitaph_core::event::{Event, Kind};
use epitaph_core::input::Input;
use epitaph_core::stored::StoredInput;
use epitaph_core::time::Boot;

use super::frames::{Frames, Next, Numbers, stamped};
use super::{Header, OF_JOURNAL, ReadError, TAG_INPUT, TAG_KERNEL, read_header};

/// What was read and what was lost; complete once the iterator has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Returned inputs, including the [`Input::Lost`] of damaged places.
    pub inputs: u64,
    /// Damaged places before the end, and their bytes: for each, the core got an [`Input::Lost`] of every kind.
    pub damaged: u64,
    pub damaged_bytes: u64,
    /// The first places at which complete inputs are missing, by the numbers of those around them. For each place, also of those that are not
    /// here, the core got the same.
    pub missing: Vec<Missing>,
    /// How many more places there are, and the inputs that are missing there.
    pub more_missing: (u64, u64),
    /// Complete inputs that are there again, or after later ones: not returned.
    pub repeated: u64,
    /// Where another recording begins: it is not read.
    pub another: Option<Another>,
    /// Bytes at the end without a complete input: the recorder was stopped during a write, or the end is damaged.
    pub tail_bytes: u64,
    /// Complete inputs of a kind that this version does not know: for each that may be evidence, the core got an [`Input::Lost`] of every
    /// kind.
    pub unknown_inputs: u64,
    /// Complete kernel records that this version cannot decode: for each of a kind that is known, the core got an
    /// [`Input::Lost`] of that kind.
    pub undecodable: u64,
    /// Why reading stopped before the end of the file.
    pub error: Option<String>,
}

/// So many inputs that the file does not have, between two that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    pub count: u64,
    pub from: Boot,
    pub to: Boot,
}

/// A recording behind the first one of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Another {
    /// Bytes before it.
    pub at: u64,
    /// None: this version cannot read its header.
    pub header: Option<Header>,
}

/// Most places that are kept one by one.
const PLACES: usize = 8;

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

impl Report {
    fn misses(&mut self, missing: Missing) {
        if self.missing.len() < PLACES {
            self.missing.push(missing);
        } else {
            self.more_missing.0 += 1;
            self.more_missing.1 += missing.count;
        }
    }
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

    /// Of the frames to come.
    pub(crate) fn numbers(&self) -> Numbers {
        self.frames.numbers()
    }

    /// An input that may have been evidence of anything.
    fn unknown(&mut self, now: Boot) {
        self.report.unknown_inputs += 1;
        let lost = Input::part_missing(self.last).into_iter();
        self.ready.extend(lost.map(|lost| (now, lost)));
    }

    /// Takes the next complete frame, and the damage before it. False at the end.
    fn read(&mut self) -> bool {
        if self.report.another.is_some() {
            return false;
        }
        match self.frames.next() {
            Next::End { tail, error } => {
                self.report.tail_bytes += tail;
                self.report.repeated = self.frames.repeated();
                if self.frames.another_begins() {
                    let at = self.frames.offset();
                    let header = read_header(&mut self.frames).ok();
                    self.report.another = Some(Another { at, header });
                }
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
                    self.report.misses(Missing {
                        count: missing,
                        from: self.last,
                        to: now,
                    });
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
                            let lost = lost_in(body, self.last.minus(Limits::default().reorder), now);
                            self.ready.extend(lost.map(|lost| (now, lost)));
                        }
                    },
                    TAG_INPUT => match serde_json::from_slice(body).ok().and_then(StoredInput::input) {
                        Some(input) => self.ready.push_back((now, input)),
                        None => self.unknown(now),
                    },
                    // What the agent did with its reports is evidence of nothing.
                    tag if OF_JOURNAL.contains(&tag) => self.report.unknown_inputs += 1,
                    _ => self.unknown(now),
                }
                self.last = now;
                true
            }
        }
    }
}

/// The loss that an undecodable record means to the core; kind and time come from the record's header. `floor`: no record that comes now
/// is older.
pub fn lost_in(bytes: &[u8], floor: Boot, now: Boot) -> Option<Input> {
    let kind = Kind::from_u16(u16::from_le_bytes(*bytes.first_chunk()?))?;
    let at = bytes.get(8..16).and_then(|at| at.first_chunk());
    let since = at.map_or(floor, |at| Boot(u64::from_le_bytes(*at)).max(floor).min(now));
    Some(Input::lost_by_machine(kind, since, 1))
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
