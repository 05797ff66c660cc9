//! Feeds a recording to the same core, as fast as the file can be read.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use epitaph_core::correlate::Correlator;
use epitaph_core::decode::{DecodeError, decode};
use epitaph_core::event::Event;
use epitaph_core::input::{Input, Observation};
use epitaph_core::time::Boot;

use crate::cli::SysExit;
use crate::recording::{ReadError, Reader, Report};

use super::pipeline::Pipeline;
use super::sinks::Sinks;
use super::{RuntimeError, privileges};

/// Judges the evidence in `path` again.
pub fn replay(path: &Path, core: Correlator, sinks: Sinks) -> Result<(), RuntimeError> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| {
        RuntimeError::new(SysExit::NoInput, format!("cannot open recording {shown}: {error}"))
            .with_remedy("give a file from `epitaph record` or `epitaph export`")
    })?;
    // A recording is untrusted input: it is read without capabilities.
    if let Err(error) = privileges::drop_all_but(&mut []) {
        tracing::warn!("{error}; running with more privileges than needed");
    }
    let mut recorded = Recorded::new(BufReader::new(file), &shown)?;
    let mut pipeline = Pipeline::new(core, recorded.observation().clone(), None, sinks);
    for (now, input) in recorded.by_ref() {
        pipeline.handle(now, input)?;
        if pipeline.sinks().reader_gone {
            return Ok(());
        }
    }
    pipeline.sinks().finish()?;
    let report = recorded.report();
    if let Some(error) = &report.error {
        return Err(RuntimeError::new(
            SysExit::NoInput,
            format!("cannot read all of {shown}: {error}"),
        ));
    }
    if report.tail_bytes + report.damaged + report.unknown_inputs + report.undecodable > 0 {
        tracing::warn!(
            remedy = "copy or export the file again, if it is a copy or an export",
            ended = recorded.ended(),
            tail_bytes = report.tail_bytes,
            damaged = report.damaged,
            damaged_bytes = report.damaged_bytes,
            unknown_inputs = report.unknown_inputs,
            undecodable = report.undecodable,
            "{shown} is not whole: verdicts that may depend on the missing part are unknown"
        );
    } else if !recorded.ended() {
        tracing::info!(
            "{shown} has no end record: it is an export, or its recorder was killed; what happened afterwards is unknown"
        );
    }
    Ok(())
}

/// The inputs of a recording, and at the end the cut of one that was not ended.
pub(super) struct Recorded<R> {
    reader: Reader<R, Decode>,
    last: Boot,
    ended: bool,
    cut: bool,
}

type Decode = fn(&[u8]) -> Result<(Boot, Event), DecodeError>;

impl<R: Read> Recorded<R> {
    /// `name`: of the file, for people.
    pub fn new(file: R, name: &dyn std::fmt::Display) -> Result<Recorded<R>, RuntimeError> {
        let reader = Reader::new(file, decode as Decode).map_err(|error| {
            let code = match error {
                ReadError::Read(_) => SysExit::NoInput,
                _ => SysExit::Data,
            };
            RuntimeError::of(code, &error).at(&name)
        })?;
        Ok(Recorded {
            reader,
            last: Boot::default(),
            ended: false,
            cut: false,
        })
    }

    pub fn observation(&self) -> &Observation {
        &self.reader.header().observation
    }

    /// Complete once the inputs are.
    pub fn report(&self) -> &Report {
        self.reader.report()
    }

    /// Whether the recorder wrote the end: false if it was killed, or the end of the file is lost.
    pub fn ended(&self) -> bool {
        self.ended
    }
}

impl<R: Read> Iterator for Recorded<R> {
    type Item = (Boot, Input);

    fn next(&mut self) -> Option<(Boot, Input)> {
        if let Some((now, input)) = self.reader.next() {
            self.last = now;
            self.ended = input == Input::End;
            return Some((now, input));
        }
        if self.ended || std::mem::replace(&mut self.cut, true) {
            return None;
        }
        // What followed is unknown, but nothing proves that the kernel's records were lost.
        Some((self.last, Input::Cut))
    }
}
