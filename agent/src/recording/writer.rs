use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use epitaph_core::input::{Input, Observation};
use epitaph_core::stored::StoredInput;
use epitaph_core::time::Boot;

use super::{Header, MAGIC, MAX_PAYLOAD, STAMP, TAG_INPUT, TAG_KERNEL, VERSION, WriteError, checksum};

/// A new file for a recording: of its owner only (0600) from the first moment, because names, command lines and addresses of all
/// tenants of the machine are in it.
///
/// # Errors
/// The name exists, also as a symbolic link to anywhere: evidence is never overwritten, and no link is followed.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Writes evidence in the order in which the core gets it. Each input is one `write`: use a buffered writer.
pub struct Writer<W: Write> {
    pub(super) out: W,
    /// Buffer for a frame, reused to avoid an allocation per input.
    pub(super) frame: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W, observation: &Observation) -> Result<Writer<W>, WriteError> {
        let mut writer = Writer {
            out,
            frame: Vec::with_capacity(1024),
        };
        let header = Header {
            epitaph: env!("CARGO_PKG_VERSION").to_owned(),
            observation: observation.clone(),
        };
        let header = serde_json::to_vec(&header).map_err(WriteError::Json)?;
        writer.out.write_all(&MAGIC).map_err(WriteError::Write)?;
        writer.out.write_all(&VERSION.to_le_bytes()).map_err(WriteError::Write)?;
        writer.write(&[], &header)?;
        Ok(writer)
    }

    /// A kernel record's bytes, as the ring buffer gave them.
    pub fn record(&mut self, now: Boot, record: &[u8]) -> Result<(), WriteError> {
        self.write(&stamp(now, TAG_KERNEL), record)
    }

    /// Any other input.
    pub fn input(&mut self, now: Boot, input: &Input) -> Result<(), WriteError> {
        let stored = StoredInput::new(input).ok_or(WriteError::KernelWithoutBytes)?;
        let json = serde_json::to_vec(&stored).map_err(WriteError::Json)?;
        self.write(&stamp(now, TAG_INPUT), &json)
    }

    /// Writes all buffers to the operating system.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.out.flush().map_err(WriteError::Write)
    }

    pub fn into_inner(self) -> W {
        self.out
    }

    pub(super) fn write(&mut self, stamp: &[u8], body: &[u8]) -> Result<(), WriteError> {
        let length = stamp.len() + body.len();
        if length > MAX_PAYLOAD {
            return Err(WriteError::TooLong(length));
        }
        let length = (length as u32).to_le_bytes();
        self.frame.clear();
        self.frame.extend_from_slice(&length);
        self.frame.extend_from_slice(&[0; 4]);
        self.frame.extend_from_slice(stamp);
        self.frame.extend_from_slice(body);
        let crc = checksum(length, &self.frame[8..]);
        self.frame[4..8].copy_from_slice(&crc.to_le_bytes());
        self.out.write_all(&self.frame).map_err(WriteError::Write)
    }
}

pub(super) fn stamp(now: Boot, tag: u8) -> [u8; STAMP] {
    let mut stamp = [0; STAMP];
    stamp[..8].copy_from_slice(&now.0.to_le_bytes());
    stamp[8] = tag;
    stamp
}
