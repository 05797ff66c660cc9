//! Frames: length, checksum and payload, one after the other in a file. Recordings and the journal's segments consist of them.

use std::io::{ErrorKind, Read};

use epitaph_core::time::Boot;

use super::{MAX_PAYLOAD, NUMBERED, ReadError, VERSION, WriteError};

/// Begin of every file of frames.
pub(super) const MAGIC: [u8; 8] = *b"EPITAPH\n";

/// Of the format: more than there will be.
const MOST_VERSIONS: u32 = 1_000;

/// Magic and version: where the header's frame begins.
pub(crate) const BEGINNING: usize = MAGIC.len() + 4;

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Length and checksum.
pub(crate) const PREFIX: usize = 8;

/// `now` and the tag.
pub(crate) const STAMP: usize = 9;

/// The frame's number, before the stamp.
pub(crate) const NUMBER: usize = 4;

/// Appends the frame of a payload: the stamp, if there is one, and the parts of the body.
///
/// # Errors
/// The payload is too long; nothing was appended.
pub(crate) fn append(out: &mut Vec<u8>, stamp: &[u8], body: &[&[u8]]) -> Result<(), WriteError> {
    lay_out(out, &[], stamp, body).map(seal)
}

/// The same of a numbered frame.
pub(crate) fn append_numbered(out: &mut Vec<u8>, number: u32, stamp: &[u8], body: &[&[u8]]) -> Result<(), WriteError> {
    lay_out(out, &number.to_le_bytes(), stamp, body).map(seal)
}

/// The same without a number and a checksum yet: see [`number`].
pub(crate) fn append_to_number(out: &mut Vec<u8>, stamp: &[u8], body: &[&[u8]]) -> Result<(), WriteError> {
    lay_out(out, &[0; NUMBER], stamp, body).map(drop)
}

/// Without the checksum. Returns the frame.
fn lay_out<'a>(out: &'a mut Vec<u8>, number: &[u8], stamp: &[u8], body: &[&[u8]]) -> Result<&'a mut [u8], WriteError> {
    let length = stamp.len() + body.iter().map(|part| part.len()).sum::<usize>();
    if length > MAX_PAYLOAD {
        return Err(WriteError::TooLong(length));
    }
    let length = ((number.len() + length) as u32).to_le_bytes();
    let begin = out.len();
    out.extend_from_slice(&length);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(number);
    out.extend_from_slice(stamp);
    body.iter().for_each(|part| out.extend_from_slice(part));
    Ok(&mut out[begin..])
}

/// Writes the checksum of a frame.
fn seal(frame: &mut [u8]) {
    let length = [frame[0], frame[1], frame[2], frame[3]];
    let crc = checksum(length, &frame[PREFIX..]);
    frame[4..PREFIX].copy_from_slice(&crc.to_le_bytes());
}

/// Numbers whole frames, which have any number and any checksum, from `next` on.
pub(crate) fn number(mut frames: &mut [u8], next: &mut u32) {
    while !frames.is_empty() {
        let (frame, rest) = frames.split_at_mut(frame_length(frames));
        frame[PREFIX..PREFIX + NUMBER].copy_from_slice(&next.to_le_bytes());
        seal(frame);
        *next = next.wrapping_add(1);
        frames = rest;
    }
}

/// Of the frame at the beginning, with its prefix; never more than there is.
pub(crate) fn frame_length(frames: &[u8]) -> usize {
    let length = frames.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    (PREFIX + length).min(frames.len())
}

/// The stamp's time and tag, and the body of a whole frame that is numbered.
pub(crate) fn of_numbered(frame: &[u8]) -> (Boot, u8, &[u8]) {
    stamped(&frame[PREFIX + NUMBER..])
}

/// Appends the beginning of a file: magic, version, and the frame of the header.
pub(crate) fn append_header(out: &mut Vec<u8>, version: u32, header: &impl serde::Serialize) -> Result<(), WriteError> {
    let header = serde_json::to_vec(header).map_err(WriteError::Json)?;
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&version.to_le_bytes());
    append(out, &[], &[&header])
}

pub(crate) fn stamp(now: Boot, tag: u8) -> [u8; STAMP] {
    let mut stamp = [0; STAMP];
    stamp[..8].copy_from_slice(&now.0.to_le_bytes());
    stamp[8] = tag;
    stamp
}

/// The stamp's time and tag, and the body.
///
/// # Panics
/// For less than a stamp, which [`Frames::next`] never returns.
pub(crate) fn stamped(payload: &[u8]) -> (Boot, u8, &[u8]) {
    let (stamp, body) = payload.split_at(STAMP);
    let now = Boot(u64::from_le_bytes([
        stamp[0], stamp[1], stamp[2], stamp[3], stamp[4], stamp[5], stamp[6], stamp[7],
    ]));
    (now, stamp[8], body)
}

fn checksum(length: [u8; 4], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&length);
    crc.update(payload);
    crc.finalize()
}

/// Reads the beginning of a recording, or of another one where the last has ended.
pub(crate) fn read_header<R: Read, H: serde::de::DeserializeOwned>(frames: &mut Frames<R>) -> Result<H, ReadError> {
    let Some((true, version)) = frames.beginning().map_err(ReadError::Read)? else {
        return Err(ReadError::NotARecording);
    };
    if version > VERSION {
        return Err(ReadError::Newer { found: version });
    }
    if version == 0 {
        return Err(ReadError::DamagedHeader);
    }
    frames.at += BEGINNING;
    let length = frames.whole(0).ok_or(ReadError::DamagedHeader)?;
    let json = &frames.ahead()[PREFIX..PREFIX + length];
    let header = serde_json::from_slice(json).map_err(|_| ReadError::DamagedHeader)?;
    frames.at += PREFIX + length;
    if version >= NUMBERED {
        frames.numbers = Numbers::From(0);
    }
    frames.is_recording = true;
    Ok(header)
}

/// Most bytes that are checksummed in search of the next frame. Damage costs far less. Every byte of a file that is made for it can
/// look like the begin of a long frame, and a megabyte of such a file would cost hours.
const MAX_SEARCHED: usize = 256 << 20;

/// The numbers of the frames in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    None,
    /// The next one has this.
    From(u32),
    /// Which one is next is never known.
    Any,
}

impl Numbers {
    /// How many frames are missing if the next one has this number; None: it was read before.
    pub(crate) fn missing_before(self, number: u32) -> Option<u64> {
        let Numbers::From(expected) = self else { return Some(0) };
        let ahead = number.wrapping_sub(expected);
        (ahead <= u32::MAX / 2).then_some(ahead.into())
    }
}

/// Finds complete frames in a stream of bytes.
#[derive(Debug)]
pub(crate) struct Frames<R> {
    file: R,
    /// Read and unused bytes are `buffer[at..]`.
    buffer: Vec<u8>,
    at: usize,
    /// Checksummed in search of a frame, bytes.
    searched: usize,
    /// Bytes of the file before the buffer.
    before: u64,
    ended: bool,
    error: Option<std::io::Error>,
    numbers: Numbers,
    /// Frames whose number was read before, and were left out.
    repeated: u64,
    /// Ends where another file of frames begins.
    is_recording: bool,
}

pub(crate) enum Next {
    /// Payload `buffer[at..at + length]`, after `skipped` damaged bytes, and after `missing` frames that the file does not have.
    Frame {
        skipped: u64,
        missing: u64,
        at: usize,
        length: usize,
    },
    End {
        tail: u64,
        error: Option<String>,
    },
}

impl<R: Read> Frames<R> {
    pub(crate) fn new(file: R) -> Frames<R> {
        Frames {
            file,
            buffer: Vec::new(),
            at: 0,
            searched: 0,
            before: 0,
            ended: false,
            error: None,
            numbers: Numbers::None,
            repeated: 0,
            is_recording: false,
        }
    }

    /// The next complete frame with at least a stamp, and the damage before it.
    pub(crate) fn next(&mut self) -> Next {
        let mut skipped = 0;
        loop {
            let of_number = self.bytes_of_number();
            if let Some(length) = self.whole(0).filter(|length| *length >= STAMP + of_number) {
                let missing = self.missing_here();
                let at = self.at + PREFIX;
                self.at = at + length;
                let Some(missing) = missing else {
                    self.repeated += 1;
                    continue;
                };
                return Next::Frame {
                    skipped,
                    missing,
                    at: at + of_number,
                    length: length - of_number,
                };
            }
            if !self.fill(1) || self.is_recording && self.another_begins() {
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

    /// Of a frame's number, bytes.
    pub(crate) fn bytes_of_number(&self) -> usize {
        if self.numbers == Numbers::None { 0 } else { NUMBER }
    }

    /// How many frames are missing before the complete one that begins here; None: its number was read before. Parts of the file are there
    /// twice, or in another order: then what was missing stays so.
    fn missing_here(&mut self) -> Option<u64> {
        let number = match self.numbers {
            Numbers::None => return Some(0),
            Numbers::From(_) | Numbers::Any => self.number(PREFIX),
        };
        let ahead = self.numbers.missing_before(number)?;
        // Where the begin is not known, the first frame need not be one: no number leaves others out.
        if self.numbers != Numbers::Any {
            self.numbers = Numbers::From(number.wrapping_add(1));
        }
        Some(ahead)
    }

    /// Of a file without a header of a recording: its frames have these numbers.
    pub(crate) fn set_numbers(&mut self, numbers: Numbers) {
        self.numbers = numbers;
    }

    pub(crate) fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Whether a file's beginning stands here; its header may be damaged.
    pub(crate) fn another_begins(&mut self) -> bool {
        let is_version = |version: u32| (1..=MOST_VERSIONS).contains(&version);
        self.fill(BEGINNING) && self.ahead()[..MAGIC.len()] == MAGIC && is_version(self.number(MAGIC.len()))
    }

    /// Frames that were left out so far, because their number was read before.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Magic and version, as they stand at the beginning; nothing is used up. None: the file is shorter.
    pub(crate) fn beginning(&mut self) -> std::io::Result<Option<(bool, u32)>> {
        let whole = self.fill(BEGINNING);
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        Ok(whole.then(|| (self.ahead()[..MAGIC.len()] == MAGIC, self.number(MAGIC.len()))))
    }

    /// The payload of a complete frame that begins so many bytes ahead; nothing is used up. At the beginning of a file only.
    pub(crate) fn peek(&mut self, ahead: usize) -> Option<&[u8]> {
        debug_assert!(self.at == 0 && self.before == 0 && ahead <= CHUNK);
        if !self.fill(ahead) || self.searched > MAX_SEARCHED {
            return None;
        }
        let length = self.whole(ahead);
        let payload = ahead + PREFIX;
        Some(&self.buffer[payload..payload + length?])
    }

    /// Whether the file ends so many bytes ahead.
    pub(crate) fn ends(&mut self, ahead: usize) -> bool {
        self.fill(ahead) && !self.fill(ahead + 1)
    }

    /// Uses up what [`Frames::peek`] has seen.
    pub(crate) fn skip(&mut self, count: usize) {
        self.at += count;
    }

    /// Nothing of the file was read, and there is nothing more.
    pub(crate) fn is_empty(&self) -> bool {
        self.before == 0 && self.buffer.is_empty() && self.ended
    }

    /// Of the frame that was just found.
    pub(crate) fn payload(&self, at: usize, length: usize) -> &[u8] {
        &self.buffer[at..at + length]
    }

    /// Bytes of the buffer.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> usize {
        self.buffer.capacity()
    }

    /// Where the file is read next, bytes from its beginning: after the last found frame.
    pub(crate) fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// The payload's length of a complete frame that begins so many bytes ahead.
    fn whole(&mut self, ahead: usize) -> Option<usize> {
        if !self.fill(ahead + PREFIX) {
            return None;
        }
        let length = self.number(ahead) as usize;
        if length > MAX_PAYLOAD + self.bytes_of_number() || !self.fill(ahead + PREFIX + length) {
            return None;
        }
        self.searched += length;
        let (frame, crc) = (&self.ahead()[ahead..], self.number(ahead + 4));
        let prefix = [frame[0], frame[1], frame[2], frame[3]];
        if checksum(prefix, &frame[PREFIX..PREFIX + length]) != crc {
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
        while self.buffer.len() - self.at < count && !self.ended {
            if self.at > CHUNK {
                self.buffer.drain(..self.at);
                self.before += self.at as u64;
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
