//! Feeds a recording to the same core, as fast as the file can be read.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use epitaph_core::correlate::Correlator;
use epitaph_core::decode::decode;
use epitaph_core::input::Input;
use epitaph_core::time::Boot;

use crate::cli::SysExit;
use crate::recording::{ReadError, Reader};

use super::pipeline::Pipeline;
use super::sinks::Sinks;
use super::{RuntimeError, privileges};

/// Judges the evidence in `path` again.
pub fn replay(path: &Path, core: Correlator, sinks: Sinks) -> Result<(), RuntimeError> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| {
        RuntimeError::new(SysExit::NoInput, format!("cannot open recording {shown}: {error}"))
            .with_remedy("give a file that `epitaph record` wrote")
    })?;
    // A recording is untrusted input: it is read without capabilities.
    if let Err(error) = privileges::drop_all_but(&mut []) {
        tracing::warn!("{error}; running with more privileges than needed");
    }
    let mut reader = Reader::new(BufReader::new(file), decode).map_err(|error| {
        let code = match error {
            ReadError::Read(_) => SysExit::NoInput,
            _ => SysExit::Data,
        };
        RuntimeError::of(code, &error).at(&shown)
    })?;
    let mut pipeline = Pipeline::new(core, reader.header().observation.clone(), None, sinks);
    let mut last = Boot::default();
    let mut ended = false;
    for (now, input) in reader.by_ref() {
        last = now;
        ended = input == Input::End;
        pipeline.handle(now, input)?;
        if pipeline.sinks().reader_gone {
            return Ok(());
        }
    }
    if !ended {
        // The recorder was stopped in the middle, or the end of the file is lost: what followed is unknown, but nothing proves
        // that the kernel's records were lost.
        pipeline.handle(last, Input::Cut)?;
    }
    pipeline.sinks().finish()?;
    let report = reader.report();
    if let Some(error) = &report.error {
        return Err(RuntimeError::new(
            SysExit::NoInput,
            format!("cannot read all of {shown}: {error}"),
        ));
    }
    if !ended || report.tail_bytes + report.damaged + report.unknown_inputs + report.undecodable > 0 {
        tracing::warn!(
            ended,
            tail_bytes = report.tail_bytes,
            damaged = report.damaged,
            damaged_bytes = report.damaged_bytes,
            unknown_inputs = report.unknown_inputs,
            undecodable = report.undecodable,
            "{shown} is not whole: verdicts that may depend on the missing part are unknown"
        );
    }
    Ok(())
}
