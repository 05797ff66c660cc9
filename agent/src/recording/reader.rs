use std::collections::VecDeque;
use std::io::{ErrorKind, Read};

use epitaph_core::event::{Event, Kind};
use epitaph_core::input::Input;
use epitaph_core::stored::StoredInput;
use epitaph_core::time::Boot;

use super::{Header, MAGIC, MAX_PAYLOAD, PREFIX, ReadError, STAMP, TAG_INPUT, TAG_KERNEL, VERSION, checksum};

/// What was read and what was lost; complete once the iterator has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Returned inputs, including the [`Input::Lost`] of damaged places.
    pub inputs: u64,
    /// Damaged places before the end, and their bytes: for each, the core got an [`Input::Lost`] of every kind.
    pub damaged: u64,
    pub damaged_bytes: u64,
    /// Bytes at the end without a complete input: the recorder was stopped during a write, or the end is damaged.
    pub tail_bytes: u64,
    /// Complete inputs of a kind that this version does not know.
    pub unknown_inputs: u64,
    /// Complete kernel records that this version cannot decode: for each, the core got an [`Input::Lost`] of its kind.
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
        let header = read_header(&mut frames)?;
        let last = header.observation.since;
        Ok(Reader {
            frames,
            decode,
            header,
            ready: VecDeque::new(),
            last,
            report: Report::default(),
        })
    }

    /// Takes the next complete frame, and the damage before it. False at the end.
    fn read(&mut self) -> bool {
        match self.frames.next() {
            Next::End { tail, error } => {
                self.report.tail_bytes += tail;
                self.report.error = self.report.error.take().or(error);
                false
            }
            Next::Frame { skipped, at, length } => {
                let payload = &self.frames.buffer[at..at + length];
                let (stamp, body) = payload.split_at(STAMP);
                let now = Boot(u64::from_le_bytes([
                    stamp[0], stamp[1], stamp[2], stamp[3], stamp[4], stamp[5], stamp[6], stamp[7],
                ]));
                if skipped > 0 {
                    self.report.damaged += 1;
                    self.report.damaged_bytes += skipped;
                    let since = self.last;
                    // The content is unknown: at least one input, of any kind.
                    self.ready
                        .extend(Kind::ALL.map(|kind| (now, Input::lost_by_machine(kind, since, 1))));
                }
                match stamp[8] {
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

fn read_header<R: Read>(frames: &mut Frames<R>) -> Result<Header, ReadError> {
    let whole = frames.fill(MAGIC.len() + 4);
    if let Some(error) = frames.error.take() {
        return Err(ReadError::Read(error));
    }
    if !whole || frames.ahead()[..MAGIC.len()] != MAGIC {
        return Err(ReadError::NotARecording);
    }
    let version = frames.number(MAGIC.len());
    if version > VERSION {
        return Err(ReadError::Newer { found: version });
    }
    if version == 0 {
        return Err(ReadError::DamagedHeader);
    }
    frames.at += MAGIC.len() + 4;
    let length = frames.whole().ok_or(ReadError::DamagedHeader)?;
    let json = &frames.ahead()[PREFIX..PREFIX + length];
    let header = serde_json::from_slice(json).map_err(|_| ReadError::DamagedHeader)?;
    frames.at += PREFIX + length;
    Ok(header)
}

/// Most bytes that are checksummed in search of the next frame. Damage costs far less. Every byte of a file that is made for it can
/// look like the begin of a long frame, and a megabyte of such a file would cost hours.
const MAX_SEARCHED: usize = 256 << 20;

/// Finds complete frames in a stream of bytes.
struct Frames<R> {
    file: R,
    /// Read and unused bytes are `buffer[at..]`.
    buffer: Vec<u8>,
    at: usize,
    /// Checksummed in search of a frame, bytes.
    searched: usize,
    ended: bool,
    error: Option<std::io::Error>,
}

enum Next {
    /// Payload `buffer[at..at + length]`, after `skipped` damaged bytes.
    Frame {
        skipped: u64,
        at: usize,
        length: usize,
    },
    End {
        tail: u64,
        error: Option<String>,
    },
}

impl<R: Read> Frames<R> {
    fn new(file: R) -> Frames<R> {
        Frames {
            file,
            buffer: Vec::new(),
            at: 0,
            searched: 0,
            ended: false,
            error: None,
        }
    }

    fn next(&mut self) -> Next {
        let mut skipped = 0;
        loop {
            if let Some(length) = self.whole().filter(|length| *length >= STAMP) {
                let at = self.at + PREFIX;
                self.at = at + length;
                return Next::Frame { skipped, at, length };
            }
            if !self.fill(1) {
                return Next::End {
                    tail: skipped,
                    error: self.error.take().map(|error| error.to_string()),
                };
            }
            if self.searched > MAX_SEARCHED {
                return Next::End {
                    tail: skipped,
                    error: Some("too much of the file is damaged to find the next input".to_owned()),
                };
            }
            self.at += 1;
            skipped += 1;
        }
    }

    /// The payload's length of a complete frame that begins here.
    fn whole(&mut self) -> Option<usize> {
        if !self.fill(PREFIX) {
            return None;
        }
        let length = self.number(0) as usize;
        if length > MAX_PAYLOAD || !self.fill(PREFIX + length) {
            return None;
        }
        self.searched += length;
        let (ahead, crc) = (self.ahead(), self.number(4));
        let prefix = [ahead[0], ahead[1], ahead[2], ahead[3]];
        if checksum(prefix, &ahead[PREFIX..PREFIX + length]) != crc {
            return None;
        }
        // Of a whole frame, nothing is searched.
        self.searched -= length;
        Some(length)
    }

    fn ahead(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    fn number(&self, offset: usize) -> u32 {
        let b = &self.ahead()[offset..offset + 4];
        u32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }

    /// True if `count` bytes are available.
    fn fill(&mut self, count: usize) -> bool {
        const CHUNK: usize = 64 * 1024;
        while self.buffer.len() - self.at < count && !self.ended {
            if self.at > CHUNK {
                self.buffer.drain(..self.at);
                self.at = 0;
            }
            let end = self.buffer.len();
            self.buffer.resize(end + CHUNK, 0);
            let read = self.file.read(&mut self.buffer[end..]);
            self.buffer.truncate(end + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.error = Some(error);
                    self.ended = true;
                }
            }
        }
        self.buffer.len() - self.at >= count
    }
}
