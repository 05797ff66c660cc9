//! The body of the one loop: an input is recorded and handed to the core, and the core's reports go to the sinks.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;

use epitaph_core::correlate::Correlator;
use epitaph_core::event::Kind;
use epitaph_core::ids::ContainerId;
use epitaph_core::input::{Input, LossScope, Observation, ProbeState};
use epitaph_core::pod::{PodEventsState, PodIdentity};
use epitaph_core::report::{Answers, Command, Report};
use epitaph_core::time::Boot;

use crate::journal::{Past, ReportId};
use crate::recording::Writer;

use super::RuntimeError;
use super::evidence::{Evidence, Taken};
use super::nested::Nested;
use super::sinks::Sinks;

pub type Recorder = Writer<BufWriter<File>>;

/// The core between one source and the sinks. Live and replay differ only in the caller.
pub struct Pipeline {
    core: Correlator,
    recorder: Option<Recorder>,
    sinks: Sinks,
    observations: Observations,
    /// The evidence that goes to the journal; None without one.
    evidence: Option<Evidence>,
    /// The inputs are those of earlier runs: what these reported is not reported again.
    replaying: Option<HashSet<ReportId>>,
    /// The current input is one of an earlier run, which the sinks got then.
    is_past: bool,
    /// States of probes until the first other input, which sends them to the sinks; None afterwards.
    probes: Option<Vec<(String, ProbeState)>>,
    /// None with the setting for nodes that are containers.
    nested: Option<Nested>,
}

impl Pipeline {
    pub fn new(core: Correlator, observation: Observation, recorder: Option<Recorder>, sinks: Sinks) -> Self {
        Pipeline {
            core,
            recorder,
            nested: (!observation.nodes_in_containers).then(Nested::default),
            evidence: sinks.journal.as_ref().map(|journal| Evidence::new(journal.journal().clone())),
            replaying: None,
            is_past: false,
            sinks,
            observations: Observations::new(observation),
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

    /// One iteration of the loop is done.
    pub fn alive(&mut self, now: Boot) -> Result<(), RuntimeError> {
        self.sinks.alive(now, self.core.shutdown_in_progress())
    }

    pub fn sinks(&mut self) -> &mut Sinks {
        &mut self.sinks
    }

    /// Takes an input that is not a kernel record. Returns the core's commands for the kernel.
    pub fn feed(&mut self, now: Boot, input: Input) -> Result<Vec<Command>, RuntimeError> {
        if let Some(recorder) = &mut self.recorder {
            recorder.input(now, &input)?;
        }
        let noted = self.evidence.as_mut().map(|evidence| evidence.before(&self.core, &input));
        let copy = noted.as_ref().and_then(|noted| noted.copy(&input));
        let is_scanned = matches!(input, Input::Scanned);
        let (taken, commands) = self.take(now, input)?;
        if let Some(evidence) = self.evidence.as_mut().filter(|_| is_scanned) {
            evidence.scanned(&self.core, now);
        }
        if let (Some(evidence), Some(noted)) = (&mut self.evidence, noted) {
            evidence.after(&self.core, now, noted, copy.as_ref(), taken);
        }
        Ok(commands)
    }

    /// Takes a kernel record with its original bytes, which are recorded unchanged.
    pub fn feed_record(&mut self, now: Boot, bytes: &[u8], input: Input) -> Result<Vec<Command>, RuntimeError> {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(now, bytes)?;
        }
        let noted = self.evidence.as_mut().map(|evidence| evidence.before(&self.core, &input));
        let (taken, commands) = self.take(now, input)?;
        if let (Some(evidence), Some(noted)) = (&mut self.evidence, noted) {
            evidence.after_record(&self.core, now, noted, bytes, taken);
        }
        Ok(commands)
    }

    /// Time passed. Recorded only if the core answers: a replay then answers at the same place.
    pub fn tick(&mut self, now: Boot) -> Result<Vec<Command>, RuntimeError> {
        self.before(&Input::Tick)?;
        let answers = self.core.handle(now, Input::Tick);
        if let Some(recorder) = self.recorder.as_mut().filter(|_| !answers.is_empty()) {
            recorder.input(now, &Input::Tick)?;
        }
        let noted = self
            .evidence
            .as_mut()
            .map(|evidence| evidence.before(&self.core, &Input::Tick));
        let taken = Taken::of(&answers);
        let commands = self.send(now, answers)?;
        if let (Some(evidence), Some(noted)) = (&mut self.evidence, noted) {
            evidence.after(&self.core, now, noted, Some(&Input::Tick), taken);
            evidence.tick(&self.core, now);
        }
        Ok(commands)
    }

    /// The agent ends, and a successor takes over: the gap begins here.
    pub fn hand_over(&mut self, now: Boot) {
        if let Some(evidence) = &mut self.evidence {
            evidence.beat(now);
        }
    }

    /// Takes an input that is recorded already.
    pub fn handle(&mut self, now: Boot, input: Input) -> Result<Vec<Command>, RuntimeError> {
        Ok(self.take(now, input)?.1)
    }

    /// Takes the inputs of earlier runs: reports that these had finished are left out. Returns the commands that still hold. `current`: of
    /// this run.
    pub fn resume(&mut self, past: &Past, current: &Observation) -> Result<Vec<Command>, RuntimeError> {
        self.replaying = Some(past.finished.clone());
        self.is_past = true;
        self.core.reads_journal(true);
        let mut watched = BTreeSet::new();
        let mut unanswered = Vec::new();
        let mut last = None;
        past.replay(|now, input| {
            if let Input::PodEvents(update) = &input
                && update.state != PodEventsState::Asked
            {
                unanswered.retain(|pod: &Arc<PodIdentity>| pod.uid != update.uid);
            }
            if let (Input::Start(_), Some(last)) = (&input, last) {
                self.handle(last, Input::lost_by_machine(Kind::Tcp, Boot(0), 1))?;
            }
            last = Some(now);
            for command in self.handle(now, input)? {
                match command {
                    Command::Watch(cgroup) => {
                        watched.insert(cgroup);
                    }
                    Command::Forget(cgroup) => {
                        watched.remove(&cgroup);
                    }
                    Command::ListEvents(pod) => unanswered.push(pod),
                }
            }
            Ok::<_, RuntimeError>(())
        })?;
        // The connects of clients are not kept.
        if let Some(last) = last {
            self.handle(last, Input::lost_by_machine(Kind::Tcp, Boot(0), 1))?;
            if self.observations.current().boot_id == current.boot_id {
                // No longer than this: an agent that was killed had written its last frame some time before.
                let gap_at_most = current.since.since(last);
                tracing::info!(
                    ?gap_at_most,
                    "observing again: what began and ended in the gap is not reported"
                );
            }
        }
        self.is_past = false;
        self.core.reads_journal(false);
        if let Some(evidence) = &mut self.evidence {
            evidence.resumed(&self.core);
        }
        let watched = watched.into_iter().map(Command::Watch);
        Ok(watched.chain(unanswered.into_iter().map(Command::ListEvents)).collect())
    }

    /// The gap after [`Pipeline::resume`] is closed: from now on all is reported but what an earlier run has finished.
    pub fn resumed(&mut self) {
        self.sinks.resumed = self.replaying.take().unwrap_or_default();
    }

    /// How the core took the input, and its commands.
    fn take(&mut self, now: Boot, input: Input) -> Result<(Taken, Vec<Command>), RuntimeError> {
        self.observations.take(&input);
        if let (Input::Clock(_), Some(journal), false) = (&input, &self.sinks.journal, self.is_past) {
            journal.journal().observation(self.observations.current());
        }
        self.before(&input)?;
        let answers = self.core.handle(now, input);
        Ok((Taken::of(&answers), self.send(now, answers)?))
    }

    /// Passes to the sinks what they need of the input itself.
    fn before(&mut self, input: &Input) -> Result<(), RuntimeError> {
        if self.is_past {
            return Ok(());
        }
        if let Some(nested) = &mut self.nested {
            nested.take(input);
        }
        match input {
            // The states of the probes follow, of a later run in a recording, too.
            Input::Start(_) => {
                self.probes.get_or_insert_default();
            }
            Input::Probe { name, state } => match &mut self.probes {
                Some(probes) => probes.push((name.clone(), state.clone())),
                None => self
                    .sinks
                    .observing(self.observations.current(), &[(name.clone(), state.clone())])?,
            },
            _ => {
                if let Some(probes) = self.probes.take() {
                    self.sinks.observing(self.observations.current(), &probes)?;
                }
            }
        }
        match input {
            Input::Pods(state) => self.sinks.pods(state),
            Input::ApiClock(clock) => self.sinks.api_clock(clock),
            // What a recording or a journal does not have, the kernel did not lose.
            Input::Lost {
                scope: LossScope::NotRecorded | LossScope::Damaged,
                ..
            } => {}
            Input::Lost { kind, count, .. } => self.sinks.lost(*kind, *count)?,
            Input::Node(event) => self.sinks.node(event),
            _ => {}
        }
        Ok(())
    }

    fn send(&mut self, now: Boot, answers: Answers) -> Result<Vec<Command>, RuntimeError> {
        // What is shown must be in the file, however the recorder ends.
        if !answers.reports.is_empty() {
            self.flush()?;
        }
        for report in &answers.reports {
            if let Some(finished) = &self.replaying
                && !self.sinks.is_new(report, self.observations.of(report), finished)
            {
                continue;
            }
            let path = match report {
                Report::StopSignalIgnored(early) => self.core.index().path(early.key.cgroup),
                _ => None,
            };
            self.sinks.send(now, report, self.observations.of(report), path)?;
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

/// The observation of this boot and, for what the API of this boot shows late, that of the boot before.
#[derive(Debug)]
pub(super) struct Observations {
    current: Observation,
    previous: Option<Observation>,
}

impl Observations {
    pub fn new(current: Observation) -> Observations {
        Observations { current, previous: None }
    }

    pub fn current(&self) -> &Observation {
        &self.current
    }

    /// Takes over what the input reports about the observation.
    pub fn take(&mut self, input: &Input) {
        match input {
            Input::Start(new) => {
                let old = std::mem::replace(&mut self.current, new.clone());
                if old.boot_id != new.boot_id {
                    self.previous = Some(old);
                }
            }
            Input::Clock(offset) => self.current.wall_offset = *offset,
            _ => {}
        }
    }

    /// A termination has the clock of its own boot.
    pub fn of(&self, report: &Report) -> &Observation {
        let boot_id = match report {
            Report::Terminated(of) => &of.facts.key.boot_id,
            Report::PodTerminated(of) => &of.facts.boot_id,
            _ => return &self.current,
        };
        let previous = self.previous.as_ref().filter(|of| of.boot_id == *boot_id);
        previous.unwrap_or(&self.current)
    }
}
