//! Feeds a recording to the same core, as fast as the file can be read.

use std::io::Read;
use std::path::Path;

use epitaph_core::correlate::Correlator;
use epitaph_core::decode::{DecodeError, decode};
use epitaph_core::event::Event;
use epitaph_core::input::{Input, Observation};
use epitaph_core::time::{Boot, Wall, WallOffset};
use epitaph_story::story;

use crate::cli::SysExit;
use crate::recording::{ReadError, Reader, Report};

use super::input::{self, Expected, Given};
use super::pipeline::Pipeline;
use super::sinks::Sinks;
use super::{RuntimeError, counted, privileges};

const EXPECTED: Expected = Expected {
    file: "a file from `epitaph record` or `epitaph export`",
    journal: |path| {
        let path = path.display();
        format!("`epitaph export --journal {path} FILE` copies the journal of an agent into a recording")
    },
};

/// Judges the evidence in `path` again.
pub fn replay(path: &Path, core: Correlator, sinks: Sinks) -> Result<(), RuntimeError> {
    let Given { name, bytes } = input::open(path, EXPECTED)?;
    // A recording is untrusted input: it is read without capabilities.
    if let Err(error) = privileges::drop_all_but(&mut []) {
        tracing::warn!("{error}; running with more privileges than needed");
    }
    let mut recorded = Recorded::new(bytes, &name)?;
    let mut pipeline = Pipeline::new(core, recorded.observation().clone(), None, sinks);
    for (now, input) in recorded.by_ref() {
        pipeline.handle(now, input)?;
        if pipeline.sinks().reader_gone {
            return Ok(());
        }
    }
    pipeline.sinks().finish()?;
    if let Some(error) = &recorded.report().error {
        return Err(RuntimeError::new(
            SysExit::NoInput,
            format!("cannot read all of {name}: {error}"),
        ));
    }
    match recorded.not_whole(&name) {
        Some(error) => Err(error),
        None => {
            if let Some(note) = recorded.unended(&name) {
                tracing::info!("{note}");
            }
            Ok(())
        }
    }
}

/// The inputs of a recording, and at the end the cut of one that was not ended.
pub(super) struct Recorded<R> {
    reader: Reader<R, Decode>,
    last: Boot,
    ended: bool,
    cut: bool,
    /// Of the inputs that are read.
    clock: WallOffset,
    /// The first place at which inputs are missing.
    missing_between: Option<(Wall, Wall)>,
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
            clock: reader.header().observation.wall_offset,
            missing_between: None,
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

    /// What is missing, each kind with its number.
    pub fn missing(&self) -> Vec<String> {
        let report = self.report();
        let between = self.missing_between.map(|(from, to)| {
            let (from, to) = (story::moment(from), story::moment(to));
            format!(
                "{} between {from} and {to} UTC",
                story::many(report.missing, "missing record")
            )
        });
        let others = counted([
            (report.damaged, "damaged place", "damaged places"),
            (report.unknown_inputs, "unknown input", "unknown inputs"),
            (
                report.undecodable,
                "kernel record of an unknown version",
                "kernel records of an unknown version",
            ),
            (report.tail_bytes, "byte of an incomplete end", "bytes of an incomplete end"),
            (
                report.error.is_some().into(),
                "part that cannot be read",
                "parts that cannot be read",
            ),
        ]);
        between.into_iter().chain(others).collect()
    }

    /// None if everything could be read.
    pub fn not_whole(&self, name: &str) -> Option<RuntimeError> {
        let missing = self.missing();
        let report = self.report();
        let remedy = match report.unknown_inputs + report.undecodable {
            0 => "copy or export the file again; the evidence that a recorder did not finish to write is lost",
            _ => "replay it with the epitaph that recorded it, or a newer one",
        };
        let problem = format!(
            "{name} is not whole: {}; verdicts that may depend on the missing part are unknown, and counts are minimum numbers",
            missing.join(", ")
        );
        (!missing.is_empty()).then(|| RuntimeError::new(SysExit::Data, problem).with_remedy(remedy))
    }

    /// None if the recorder wrote the end, or the end was not reached yet. An export has no end, nor has a recorder that was killed, and
    /// the end of a file may be lost.
    pub fn unended(&self, name: &str) -> Option<String> {
        self.cut.then(|| {
            format!(
                "{name} has no end record: it is an export, or its recorder was killed, or the end of the file is lost; what happened \
                 afterwards is unknown, and counts of what was still going on are minimum numbers"
            )
        })
    }
}

impl<R: Read> Iterator for Recorded<R> {
    type Item = (Boot, Input);

    fn next(&mut self) -> Option<(Boot, Input)> {
        if let Some((now, input)) = self.reader.next() {
            self.last = now;
            self.ended = input == Input::End;
            match &input {
                Input::Start(observation) => self.clock = observation.wall_offset,
                Input::Clock(offset) => self.clock = *offset,
                _ => {}
            }
            let between = self.reader.report().missing_between;
            if self.missing_between.is_none() {
                self.missing_between = between.map(|(from, to)| (self.clock.wall(from), self.clock.wall(to)));
            }
            return Some((now, input));
        }
        if self.ended || std::mem::replace(&mut self.cut, true) {
            return None;
        }
        // What followed is unknown, but nothing proves that the kernel's records were lost.
        Some((self.last, Input::Cut))
    }
}
