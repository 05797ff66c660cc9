//! The one loop's body: an input is written down and handed to the core; the core's reports go to the sinks, its commands to the
//! caller.

use std::fs::File;
use std::io::BufWriter;

use crate::cli::SysExit;
use crate::correlate::Correlator;
use crate::input::{Input, Observation, ProbeState};
use crate::recording::{WriteError, Writer};
use crate::report::{Answers, Command, Report};
use crate::time::Boot;

use super::RuntimeError;
use super::sinks::Sinks;

pub type Recorder = Writer<BufWriter<File>>;

/// The core between one source and the sinks. Live and replay differ only in who calls it.
pub struct Pipeline {
    core: Correlator,
    recorder: Option<Recorder>,
    sinks: Sinks,
    observation: Observation,
    /// Collected from the start until anything else comes; then the sinks are told and it is None.
    probes: Option<Vec<(String, ProbeState)>>,
}

impl Pipeline {
    pub fn new(core: Correlator, observation: Observation, recorder: Option<Recorder>, sinks: Sinks) -> Self {
        Pipeline {
            core,
            recorder,
            sinks,
            observation,
            probes: Some(Vec::new()),
        }
    }

    pub fn core(&self) -> &Correlator {
        &self.core
    }

    pub fn sinks(&mut self) -> &mut Sinks {
        &mut self.sinks
    }

    /// Takes an input that is not a kernel record. Answers the core's commands for the kernel.
    pub fn feed(&mut self, now: Boot, input: Input) -> Result<Vec<Command>, RuntimeError> {
        if let Some(recorder) = &mut self.recorder {
            recorder.input(now, &input).map_err(not_recorded)?;
        }
        self.handle(now, input)
    }

    /// Takes a kernel record with the bytes it was decoded from: evidence is kept as it was written.
    pub fn feed_record(&mut self, now: Boot, bytes: &[u8], input: Input) -> Result<Vec<Command>, RuntimeError> {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(now, bytes).map_err(not_recorded)?;
        }
        self.handle(now, input)
    }

    /// Time went by. Written down only where the core had something to say about it: replay then says it in the same place.
    pub fn tick(&mut self, now: Boot) -> Result<Vec<Command>, RuntimeError> {
        self.before(&Input::Tick)?;
        let answers = self.core.handle(now, Input::Tick);
        if let Some(recorder) = self.recorder.as_mut().filter(|_| !answers.is_empty()) {
            recorder.input(now, &Input::Tick).map_err(not_recorded)?;
        }
        self.send(now, answers)
    }

    /// Takes an input that is written down already.
    pub fn handle(&mut self, now: Boot, input: Input) -> Result<Vec<Command>, RuntimeError> {
        self.before(&input)?;
        let answers = self.core.handle(now, input);
        self.send(now, answers)
    }

    /// What the sinks are to know of an input itself.
    fn before(&mut self, input: &Input) -> Result<(), RuntimeError> {
        match input {
            Input::Start(observation) => self.observation = observation.clone(),
            Input::Probe { name, state } => match &mut self.probes {
                Some(probes) => probes.push((name.clone(), state.clone())),
                None => self.sinks.observing(&self.observation, &[(name.clone(), state.clone())])?,
            },
            _ => {
                if let Some(probes) = self.probes.take() {
                    self.sinks.observing(&self.observation, &probes)?;
                }
            }
        }
        match input {
            Input::Pods(state) => self.sinks.pods(state),
            Input::Clock(offset) => self.observation.wall_offset = *offset,
            Input::ApiClock(clock) => self.sinks.api_clock(clock),
            Input::Lost { kind, count, .. } => self.sinks.lost(*kind, *count)?,
            _ => {}
        }
        Ok(())
    }

    fn send(&mut self, now: Boot, answers: Answers) -> Result<Vec<Command>, RuntimeError> {
        for report in &answers.reports {
            let path = match report {
                Report::StopSignalIgnored(early) => self.core.index().path(early.key.cgroup),
                _ => None,
            };
            self.sinks.send(now, report, &self.observation, path)?;
        }
        Ok(answers.commands)
    }

    /// Writes what the recorder still holds.
    pub fn flush(&mut self) -> Result<(), RuntimeError> {
        self.recorder.as_mut().map_or(Ok(()), |r| r.flush().map_err(not_recorded))
    }
}

fn not_recorded(error: WriteError) -> RuntimeError {
    RuntimeError::new(SysExit::CantCreat, error.to_string())
}
