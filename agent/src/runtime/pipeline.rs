//! The body of the one loop: an input is recorded and handed to the core, and the core's reports go to the sinks.

use std::fs::File;
use std::io::BufWriter;

use epitaph_core::correlate::Correlator;
use epitaph_core::ids::ContainerId;
use epitaph_core::input::{Input, Observation, ProbeState};
use epitaph_core::report::{Answers, Command, Report};
use epitaph_core::time::Boot;

use crate::recording::Writer;

use super::RuntimeError;
use super::sinks::Sinks;

pub type Recorder = Writer<BufWriter<File>>;

/// The core between one source and the sinks. Live and replay differ only in the caller.
pub struct Pipeline {
    core: Correlator,
    recorder: Option<Recorder>,
    sinks: Sinks,
    observation: Observation,
    /// States of probes until the first other input, which sends them to the sinks; None afterwards.
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

    /// See [`Correlator::take_undescribed`].
    pub fn take_undescribed(&mut self) -> impl Iterator<Item = ContainerId> + use<> {
        self.core.take_undescribed()
    }

    pub fn sinks(&mut self) -> &mut Sinks {
        &mut self.sinks
    }

    /// Takes an input that is not a kernel record. Returns the core's commands for the kernel.
    pub fn feed(&mut self, now: Boot, input: Input) -> Result<Vec<Command>, RuntimeError> {
        if let Some(recorder) = &mut self.recorder {
            recorder.input(now, &input)?;
        }
        self.handle(now, input)
    }

    /// Takes a kernel record with its original bytes, which are recorded unchanged.
    pub fn feed_record(&mut self, now: Boot, bytes: &[u8], input: Input) -> Result<Vec<Command>, RuntimeError> {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(now, bytes)?;
        }
        self.handle(now, input)
    }

    /// Time passed. Recorded only if the core answers: a replay then answers at the same place.
    pub fn tick(&mut self, now: Boot) -> Result<Vec<Command>, RuntimeError> {
        self.before(&Input::Tick)?;
        let answers = self.core.handle(now, Input::Tick);
        if let Some(recorder) = self.recorder.as_mut().filter(|_| !answers.is_empty()) {
            recorder.input(now, &Input::Tick)?;
        }
        self.send(now, answers)
    }

    /// Takes an input that is recorded already.
    pub fn handle(&mut self, now: Boot, input: Input) -> Result<Vec<Command>, RuntimeError> {
        self.before(&input)?;
        let answers = self.core.handle(now, input);
        self.send(now, answers)
    }

    /// Passes to the sinks what they need of the input itself.
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

    /// Writes the recorder's buffer.
    pub fn flush(&mut self) -> Result<(), RuntimeError> {
        match &mut self.recorder {
            Some(recorder) => Ok(recorder.flush()?),
            None => Ok(()),
        }
    }
}
