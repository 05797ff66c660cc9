//! Feeds a recording to the same core, as fast as the file can be read.

use std::io::Read;
use std::path::Path;

use epitaph_core::correlate::Correlator;
use epitaph_core::decode::{DecodeError, decode};
use epitaph_core::event::Event;
use epitaph_core::input::{Input, Observation};
use epitaph_core::text::bounded;
use epitaph_core::time::{Boot, Wall, WallOffset};
use epitaph_story::story;

use crate::cli::SysExit;
use crate::recording::{Header, Missing, ReadError, Reader, Report};

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
            for note in recorded.notes(&name) {
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
    /// The times of the places at which inputs are missing, as the reader has them.
    missing_between: Vec<(Wall, Wall)>,
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
            missing_between: Vec::new(),
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
        let records = |count: u64| story::many(count, "missing record");
        let places = report.missing.iter().zip(&self.missing_between).map(|(missing, (from, to))| {
            let (from, to) = (story::moment(*from), story::moment(*to));
            format!("{} between {from} and {to} UTC", records(missing.count))
        });
        let (more, count) = report.more_missing;
        let more = (more > 0).then(|| format!("{} at {}", records(count), story::many(more, "later place")));
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
        places.chain(more).chain(others).collect()
    }

    /// None if everything could be read.
    pub fn not_whole(&self, name: &str) -> Option<RuntimeError> {
        let mut missing = self.missing();
        let report = self.report();
        if !missing.is_empty() && report.repeated > 0 {
            let records = story::many(report.repeated, "record");
            missing.push(format!("{records} twice or behind later ones, which are left out"));
        }
        let not_whole = (!missing.is_empty()).then(|| {
            format!(
                "{name} is not whole: {}; verdicts that may depend on the missing part are unknown, and counts are minimum numbers",
                missing.join(", ")
            )
        });
        let another = report.another.as_ref().map(|another| {
            format!(
                "{name} has another recording{} behind the first one, from byte {} on: it was not read",
                of(another.header.as_ref()),
                another.at
            )
        });
        let remedy = match &report.another {
            // `tail` counts from 1.
            Some(another) => format!(
                "give one recording at a time: `tail -c +{} FILE` prints FILE without the first one",
                another.at + 1
            ),
            None if report.unknown_inputs + report.undecodable == 0 => {
                "copy or export the file again; the evidence that a recorder did not finish to write is lost".to_owned()
            }
            None => "replay it with the epitaph that recorded it, or a newer one".to_owned(),
        };
        let problems: Vec<String> = another.into_iter().chain(not_whole).collect();
        (!problems.is_empty()).then(|| RuntimeError::new(SysExit::Data, problems.join("; ")).with_remedy(remedy))
    }

    /// Of a recording that is whole.
    pub fn notes(&self, name: &str) -> Vec<String> {
        let repeated = self.report().repeated;
        let repeated =
            (repeated > 0).then(|| format!("{name} has {} twice: each was used once", story::many(repeated, "record")));
        repeated.into_iter().chain(self.unended(name)).collect()
    }

    /// None if the recorder wrote the end, or the end was not reached yet. An export has no end, nor has a recorder that was killed, and
    /// the end of a file may be lost.
    fn unended(&self, name: &str) -> Option<String> {
        self.cut.then(|| {
            format!(
                "{name} has no end record: it is an export, or its recorder was killed, or the end of the file is lost; what happened \
                 afterwards is unknown, and counts of what was still going on are minimum numbers"
            )
        })
    }
}

/// Most bytes of a host's name in a file that anybody may have made.
const HOST: usize = 64;

/// ` (of node-1, begun at 2026-11-29 13:00:00 UTC)`.
fn of(header: Option<&Header>) -> String {
    header.map_or(String::new(), |Header { observation, .. }| {
        let begun = story::moment(observation.wall_offset.wall(observation.since));
        format!(" (of {}, begun at {begun} UTC)", bounded(&observation.host, HOST))
    })
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
            for Missing { from, to, .. } in &self.reader.report().missing[self.missing_between.len()..] {
                self.missing_between.push((self.clock.wall(*from), self.clock.wall(*to)));
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
