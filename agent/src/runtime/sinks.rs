//! Passes the core's reports to the sinks, one after the other; no sink can block the loop.

use std::collections::HashSet;
use std::sync::Arc;

use epitaph_core::event::Kind;
use epitaph_core::input::{Observation, ProbeState};
use epitaph_core::node::NodeEvent;
use epitaph_core::pod::{ApiClock, PodsState};
use epitaph_core::report::Report;
use epitaph_core::time::Boot;

use crate::cli::SysExit;
use crate::config::Config;
use crate::doctor::node::{Readiness, ReadyState};
use crate::journal::{Past, ReportId};
use crate::render::span::{self, Options};
use crate::sink::epitaphs::{self, Prepared};
use crate::sink::http::Health;
use crate::sink::kubernetes_events;
use crate::sink::metrics::Metrics;
use crate::sink::otlp::Exporters;
use crate::sink::terminal::{self, Background, Flow};

use super::RuntimeError;
use super::export::Export;
use super::journaling::{self, FinishedReport, Journaling};
use super::unclean::{self, UncleanLog};

/// Of a static pod's termination that began while this run observed: an earlier one has the same id.
fn is_of_this_run(report: &Report, observation: &Observation) -> bool {
    match report {
        Report::PodTerminated(p) => p.pod.is_static && p.boot_id == observation.boot_id && p.begin >= observation.since,
        _ => false,
    }
}

/// All sinks; each command uses those that it needs.
pub struct Sinks {
    pub metrics: Arc<Metrics>,
    pub health: Arc<Health>,
    pub terminal: Option<terminal::Sink<Background>>,
    pub exporters: Exporters,
    pub journal: Option<Journaling>,
    /// Reports that earlier runs had finished: not reported again.
    pub resumed: HashSet<ReportId>,
    pub events: Option<kubernetes_events::Sink>,
    pub epitaphs: Option<epitaphs::Sink>,
    /// Of the agent: nobody reads a terminal.
    pub unclean: Option<UncleanLog>,
    readiness: Readiness,
    pub spans: Options,
    /// The reader of the output is gone (EPIPE): the command ends.
    pub reader_gone: bool,
}

impl Sinks {
    pub fn new(config: &Config, export: &Export, terminal: Option<terminal::Sink<Background>>, health: Arc<Health>) -> Sinks {
        let sinks = Sinks {
            metrics: export.metrics.clone(),
            health,
            terminal,
            exporters: export.exporters(),
            journal: None,
            resumed: HashSet::new(),
            events: None,
            epitaphs: None,
            unclean: None,
            // As in `start_pods`: an agent of a node watches the node's pods.
            readiness: Readiness::new(config.kubernetes.node_name.is_some()),
            spans: Options {
                service_name: config.export.service_name.clone(),
                cluster_name: config.export.cluster_name.clone(),
                node_name: config.kubernetes.node_name.clone(),
                resource_attributes: config.export.resource_attributes.clone(),
                unclean_only: config.export.unclean_only,
            },
            reader_gone: false,
        };
        // From the start on: neither the bus nor the kubelet need ever answer.
        sinks.node_ready();
        sinks
    }

    /// Whether a report from the evidence of earlier runs is new. Of these runs' warnings and counts nothing is.
    pub fn is_new(&self, report: &Report, observation: &Observation, finished: &HashSet<ReportId>) -> bool {
        match report {
            Report::Terminated(t) => !t.is_still_ending() && !self.is_finished(report, observation, finished),
            Report::PodTerminated(_) | Report::NodeShutdown(_) | Report::NodeDown(_) => {
                !self.is_finished(report, observation, finished)
            }
            Report::Workload(_) | Report::WorkloadGone(_) => true,
            Report::StopSignalIgnored(_)
            | Report::ChildOomKilled { .. }
            | Report::Stuck(_)
            | Report::PodHeld(_)
            | Report::OptedOut { .. }
            | Report::Dropped { .. } => false,
        }
    }

    fn is_finished(&self, report: &Report, observation: &Observation, finished: &HashSet<ReportId>) -> bool {
        if finished.is_empty() {
            return false;
        }
        let trace = match report {
            Report::Terminated(t) => span::trace(t, observation, &self.spans),
            Report::PodTerminated(p) => span::pod_trace(p, observation, &self.spans),
            Report::NodeShutdown(s) => span::node_trace(s, &self.spans),
            Report::NodeDown(d) => span::node_down(d, &self.spans),
            _ => return false,
        };
        journaling::id(&trace).is_some_and(|id| finished.contains(&id))
    }

    /// Passes on a report of the core. `path`: the cgroup of a container or unit that is still running.
    pub fn send(
        &mut self,
        now: Boot,
        report: &Report,
        observation: &Observation,
        path: Option<&str>,
    ) -> Result<(), RuntimeError> {
        if let Report::Terminated(t) = report
            && t.is_still_ending()
        {
            // Only people see an unfinished termination: every other sink would get it again, with another verdict, from the agent
            // that observes the exit.
            tracing::debug!(subject = %t.subject, "epitaph stopped while this container or unit was still shutting down");
            return self.show(|terminal| terminal.report(report, observation, path));
        }
        if !is_of_this_run(report, observation) && self.is_finished(report, observation, &self.resumed) {
            return Ok(());
        }
        self.metrics.report(observation.wall_offset.wall(now), report);
        self.export(now, report, observation);
        if let Some(events) = &self.events {
            events.offer(report, observation, now);
        }
        if let Some(epitaphs) = &self.epitaphs
            && let Some(prepared) = Prepared::of(report, observation, self.spans.node_name.as_deref())
        {
            let done = self.journal.as_ref().map(|journal| journal.keep(now, &prepared.stored()));
            epitaphs.push(prepared, done, now);
        }
        if let Some(log) = &self.unclean {
            self.metrics.dropped(unclean::DROPPED, log.report(now, report, observation));
        }
        self.show(|terminal| terminal.report(report, observation, path))
    }

    /// Queues the custom resources that earlier runs could not write.
    pub fn offer_kept(&self, past: &Past, now: Boot) {
        let (Some(epitaphs), Some(journal)) = (&self.epitaphs, &self.journal) else {
            return;
        };
        for (id, stored) in past.resources.iter() {
            let done = journal.done(id);
            match Prepared::read(stored) {
                Some(prepared) => epitaphs.push(prepared, Some(done), now),
                // Of another version.
                None => {
                    epitaphs.lost(1);
                    done();
                }
            }
        }
        epitaphs.lost(past.resources.over);
    }

    /// The state of every probe is known: sent first, so that a reader who waits for the start can begin.
    pub fn observing(&mut self, observation: &Observation, probes: &[(String, ProbeState)]) -> Result<(), RuntimeError> {
        for (name, state) in probes {
            self.metrics.probe(name, state);
            self.health.probe(name, state.clone());
        }
        self.show(|terminal| terminal.observing(observation, probes))
    }

    pub fn lost(&mut self, kind: Kind, count: u64) -> Result<(), RuntimeError> {
        self.metrics.lost(kind, count);
        self.show(|terminal| terminal.lost(kind, count))
    }

    /// Whether the evidence of terminations in progress is on disk, for the next run.
    pub fn is_kept(&self) -> bool {
        self.journal.as_ref().is_some_and(Journaling::is_written)
    }

    /// Has the journal synced: its reports are offered to the collector then.
    pub fn sync(&self) {
        if let Some(journal) = &self.journal {
            journal.journal().sync();
        }
    }

    /// State of the connection to the Kubernetes API.
    pub fn pods(&self, state: &PodsState) {
        self.metrics.pods(state);
        self.health.pods(state.clone());
    }

    /// Traces and log records that wait for the collector.
    pub fn unsent(&self) -> usize {
        self.exporters.queued()
    }

    pub fn api_clock(&self, clock: &ApiClock) {
        self.metrics.api_clock(clock);
    }

    /// What is known of the node's shutdown.
    pub fn node(&mut self, event: &NodeEvent) {
        if self.readiness.take(event) {
            self.node_ready();
        }
    }

    fn node_ready(&self) {
        for (check, state) in self.readiness.states().into_iter().flatten() {
            self.metrics
                .node_ready(check.name(), state.name(), ReadyState::ALL.map(ReadyState::name));
        }
    }

    /// How many other epitaphs observe this machine.
    pub fn neighbours(&self, count: usize) {
        self.metrics.neighbours(count);
    }

    /// Bytes that are kept.
    pub fn memory(&self, evidence: usize, probes: u64) {
        self.metrics.memory(evidence as u64, probes);
    }

    /// False if no terminal shows the text: then the caller logs it.
    pub fn note(&mut self, text: &str) -> Result<bool, RuntimeError> {
        let is_live = self.terminal.as_ref().is_some_and(terminal::Sink::is_live);
        if is_live {
            self.show(|terminal| terminal.note(text))?;
        }
        Ok(is_live)
    }

    pub fn dropped(&self, reason: &'static str, count: u64) {
        self.metrics.dropped(reason, count);
    }

    /// One iteration of the loop is done. `shutdown`: number of the node's shutdown in progress.
    pub fn alive(&mut self, now: Boot, shutdown: Option<u32>) -> Result<(), RuntimeError> {
        self.health.alive(now);
        self.health.shutdown(shutdown);
        if let Some(log) = &self.unclean {
            log.overdue(now);
        }
        self.metrics.alive(now);
        if let Some(journal) = &mut self.journal {
            journal.tick(now, &self.health, &self.exporters);
        }
        if let Some(terminal) = &self.terminal {
            self.metrics.dropped("terminal_queue_full", terminal.out().dropped());
        }
        self.show(|terminal| terminal.written())
    }

    pub fn resize(&mut self, columns: u16) -> Result<(), RuntimeError> {
        self.show(|terminal| terminal.resize(columns))
    }

    /// Ends the output, and waits until the terminal's queue is written.
    pub fn finish(&mut self) -> Result<(), RuntimeError> {
        self.show(terminal::Sink::end)
    }

    fn export(&self, now: Boot, report: &Report, observation: &Observation) {
        let (trace, headline, unclean) = match report {
            Report::Terminated(t) => (
                span::trace(t, observation, &self.spans),
                t.verdict.headline,
                t.verdict.unclean,
            ),
            Report::PodTerminated(p) => (
                span::pod_trace(p, observation, &self.spans),
                p.verdict.headline,
                p.verdict.unclean,
            ),
            Report::NodeShutdown(s) => (span::node_trace(s, &self.spans), s.verdict.headline, s.verdict.unclean),
            // Whatever the root's verdict was: the backend has the root, or it has not.
            Report::NodeDown(d) => (span::node_down(d, &self.spans), journaling::DOWN, true),
            _ => return,
        };
        let is_sent = !self.exporters.is_empty() && self.spans.wants_unclean(unclean);
        match &self.journal {
            Some(journal) => {
                let finished = FinishedReport::of(report, &trace, observation, is_sent);
                if let Some(finished) = finished {
                    journal.report(now, &finished, &self.exporters);
                }
                if let Report::PodTerminated(pod) = report {
                    // Reported with the pod: after a restart, not alone.
                    let alone = pod.containers.iter().map(|t| span::trace(t, observation, &self.spans));
                    let ids: Vec<ReportId> = alone.filter_map(|trace| journaling::id(&trace)).collect();
                    journal.journal().answered(now, &ids);
                }
            }
            None => {
                if is_sent {
                    // A full queue drops and counts its oldest trace; the count is on /metrics.
                    self.exporters.offer(&trace, headline);
                }
            }
        }
    }

    fn show(
        &mut self,
        what: impl FnOnce(&mut terminal::Sink<Background>) -> std::io::Result<Flow>,
    ) -> Result<(), RuntimeError> {
        let Some(terminal) = &mut self.terminal else { return Ok(()) };
        match what(terminal) {
            Ok(Flow::Continue) => Ok(()),
            Ok(Flow::ReaderGone) => {
                self.reader_gone = true;
                self.terminal = None;
                Ok(())
            }
            Err(source) => Err(RuntimeError::new(
                SysExit::Os,
                format!("cannot write to standard output: {source}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Mutex;

    use super::*;
    use crate::cli::Filter;
    use crate::sink::terminal::Form;
    use epitaph_core::fixtures::terminations::{ignored, observation};
    use epitaph_core::termination::Open;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A dashboard would show a node without bus and kubelet as ready.
    #[tokio::test]
    async fn the_readiness_of_a_node_about_which_nothing_is_known_is_unknown() {
        let ready = |config: &Config| {
            let export = Export::start(config).unwrap();
            drop(Sinks::new(config, &export, None, Arc::default()));
            let text = export.metrics.text().unwrap();
            let lines = text.lines().filter(|line| line.starts_with("epitaph_node_shutdown_ready{"));
            lines
                .filter(|line| line.ends_with(" 1"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let mut config = Config::default();
        assert_eq!(ready(&config), Vec::<String>::new());
        config.kubernetes.node_name = Some("node-1".to_owned());
        let lines = ready(&config);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines.iter().all(|line| line.contains("state=\"unknown\"")), "{lines:?}");
    }

    #[tokio::test]
    async fn a_termination_without_an_observed_exit_is_shown_but_not_exported() {
        let mut config = Config::default();
        config.otlp.endpoint = Some("http://127.0.0.1:1".parse().unwrap());
        let export = Export::start(&config).unwrap();
        let paper = Paper::default();
        let out = Background::whole(paper.clone()).unwrap();
        let terminal = terminal::Sink::new(out, Form::Json, Filter::default());
        let mut sinks = Sinks::new(&config, &export, Some(terminal), Arc::default());
        let mut exported = Vec::new();
        for (cgroup, open) in [(1, true), (2, false)] {
            let mut t = ignored(cgroup);
            if open {
                t.facts.exit = None;
                t.facts.open = Open::ObservationEnded;
            }
            let report = Report::Terminated(Box::new(t));
            sinks.send(Boot(0), &report, &observation(), None).unwrap();
            let counted = sinks.metrics.text().unwrap();
            let counts = counted.lines().filter(|line| line.starts_with("epitaph_terminations_total{"));
            let counts: u64 = counts
                .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
                .sum();
            // The worker has not run yet: nothing was awaited.
            exported.push((sinks.unsent(), counts));
        }
        drop(sinks);
        assert_eq!(exported, [(0, 0), (1, 1)]);
        assert_eq!(paper.0.lock().unwrap().iter().filter(|byte| **byte == b'\n').count(), 2);
    }
}
