use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use epitaph_core::input::{Input, Observation};
use epitaph_core::stored::StoredInput;
use epitaph_core::time::Boot;

use super::frames::{self, stamp};
use super::{Header, TAG_INPUT, TAG_KERNEL, VERSION, WriteError};

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
    /// Of the next frame.
    pub(super) number: u32,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W, observation: &Observation) -> Result<Writer<W>, WriteError> {
        let mut writer = Writer {
            out,
            frame: Vec::with_capacity(1024),
            number: 0,
        };
        let header = Header {
            epitaph: env!("CARGO_PKG_VERSION").to_owned(),
            observation: observation.clone(),
        };
        frames::append_header(&mut writer.frame, VERSION, &header)?;
        writer.out.write_all(&writer.frame).map_err(WriteError::Write)?;
        Ok(writer)
    }

    /// A kernel record's bytes, as the ring buffer gave them.
    pub fn record(&mut self, now: Boot, record: &[u8]) -> Result<(), WriteError> {
        self.write(&stamp(now, TAG_KERNEL), record)
    }

    /// Any other input.
    pub fn input(&mut self, now: Boot, input: &Input) -> Result<(), WriteError> {
        self.write(&stamp(now, TAG_INPUT), &input_json(input)?)
    }

    /// A frame of another recording or of the journal, as it is there.
    pub(crate) fn frame(&mut self, now: Boot, tag: u8, body: &[u8]) -> Result<(), WriteError> {
        self.write(&stamp(now, tag), body)
    }

    /// Writes all buffers to the operating system.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.out.flush().map_err(WriteError::Write)
    }

    pub fn into_inner(self) -> W {
        self.out
    }

    pub(super) fn write(&mut self, stamp: &[u8], body: &[u8]) -> Result<(), WriteError> {
        self.frame.clear();
        frames::append_numbered(&mut self.frame, self.number, stamp, &[body])?;
        self.number = self.number.wrapping_add(1);
        self.out.write_all(&self.frame).map_err(WriteError::Write)
    }
}

/// Any input but a kernel record, as the body of its frame.
pub(crate) fn input_json(input: &Input) -> Result<Vec<u8>, WriteError> {
    let stored = StoredInput::new(input).ok_or(WriteError::KernelWithoutBytes)?;
    serde_json::to_vec(&stored).map_err(WriteError::Json)
}
