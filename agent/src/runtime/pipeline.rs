//! The one loop's body: an input is written down, handed to the core, and what the core says goes to the sinks.

use crate::correlate::Correlator;
use crate::event::{Boot, CgroupId, Input, Observation};
use crate::recording;
use crate::termination::Output;

use super::sinks::Sinks;

/// The core between one source and the sinks. Live and replay differ only in who calls [`Pipeline::feed`].
pub struct Pipeline {
    core: Correlator,
    observation: Option<Observation>,
    recorder: Option<Recorder>,
    sinks: Sinks,
}

pub type Recorder = recording::Writer<std::io::BufWriter<std::fs::File>>;

impl Pipeline {
    pub fn new(core: Correlator, recorder: Option<Recorder>, sinks: Sinks) -> Self {
        Pipeline { core, observation: None, recorder, sinks }
    }

    pub fn core(&self) -> &Correlator {
        &self.core
    }

    pub fn sinks(&self) -> &Sinks {
        &self.sinks
    }

    /// Takes an input that is not a kernel record. Answers the cgroups that are over.
    pub fn feed(&mut self, now: Boot, input: Input) -> Result<Vec<CgroupId>, recording::WriteError> {
        if let Some(recorder) = &mut self.recorder {
            recorder.input(now, &input)?;
        }
        Ok(self.handle(now, input))
    }

    /// Takes a kernel record with the bytes it was decoded from: evidence is kept as it was written.
    pub fn feed_record(&mut self, now: Boot, bytes: &[u8], input: Input) -> Result<Vec<CgroupId>, recording::WriteError> {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(now, bytes)?;
        }
        Ok(self.handle(now, input))
    }

    /// Takes an input that needs no writing down.
    pub fn handle(&mut self, now: Boot, input: Input) -> Vec<CgroupId> {
        match &input {
            Input::Start(observation) => self.observation = Some(observation.clone()),
            Input::Clock(offset) => {
                if let Some(observation) = &mut self.observation {
                    observation.wall_offset = *offset;
                }
            }
            Input::Lost { kind, count, .. } => self.sinks.lost(*kind, *count),
            Input::Probe { name, state } => self.sinks.probe(name, state),
            _ => {}
        }
        let mut over = Vec::new();
        for output in self.core.handle(now, input) {
            match output {
                Output::Forget(cgroup) => over.push(cgroup),
                Output::Dropped { reason, count } => self.sinks.dropped(reason.name(), count),
                output => {
                    // Nothing can end before the observation has started: `Start` is the first input of every run.
                    if let Some(observation) = &self.observation {
                        self.sinks.send(output, observation);
                    }
                }
            }
        }
        over
    }

    /// Writes what the recorder still holds.
    pub fn flush(&mut self) -> Result<(), recording::WriteError> {
        self.recorder.as_mut().map_or(Ok(()), |r| r.flush())
    }
}
