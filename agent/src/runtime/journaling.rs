//! The journal within the pipeline: finished reports go to it before they go to the collector.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use epitaph_core::input::Observation;
use epitaph_core::render::json;
use epitaph_core::report::Report;
use epitaph_core::time::{Boot, Wall};
use sha2::{Digest as _, Sha256};

use crate::clock;
use crate::config::Config;
use crate::journal::{self, Finished, Journal, JournalThread, KeptRequest, Opened, Past, ReportId, Requests, Troubled};
use crate::render::span::Trace;
use crate::sink::epitaphs;
use crate::sink::http::{Health, JournalState};
use crate::sink::metrics::{Metrics, NOT_CONFIGURED};
use crate::sink::otlp::{self, Exporters, Kept, Parcel, Signal, Sink};
use crate::source::procfs::own_pid;

use super::RuntimeError;

/// Time for the last frames at the end.
const CLOSE: Duration = Duration::from_millis(500);

/// Of the span that says how long a node was down: it has no verdict.
pub const DOWN: &str = "down";

/// The journal of this run.
pub struct Journaling {
    journal: Journal,
    requests: Requests,
    removed: u64,
}

/// Opens the journal, if one is configured. `stops`: as in [`journal::open`].
pub fn open(
    config: &Config,
    observation: &Observation,
    metrics: &Metrics,
    stops: &dyn Fn() -> bool,
) -> Result<Option<Opened>, RuntimeError> {
    let Some(directory) = &config.journal.directory else {
        return Ok(None);
    };
    let options = journal::Options {
        directory: directory.clone(),
        group: config.journal.group,
        max_bytes: config.journal.max_bytes,
        pid: own_pid(&config.host.proc).0,
    };
    let opened = journal::open(&options, observation, stops)?;
    metrics.follow_journal(&opened.journal.stats());
    log(&opened.past);
    Ok(Some(opened))
}

/// An agent without a directory for its journal: said once, shown always.
pub fn not_configured(metrics: &Metrics, health: &Health) {
    const REMEDY: &str = "set `journal.directory`, for example to /var/lib/epitaph/journal";
    tracing::info!(
        remedy = REMEDY,
        "the journal is in memory only: `journal.directory` is not set; a restart loses what is not delivered, and `epitaph why` and \
         `list` find nothing"
    );
    metrics.no_journal();
    health.journal(JournalState {
        state: MEMORY_ONLY,
        reason: Some(NOT_CONFIGURED),
        error: None,
        remedy: Some(REMEDY.into()),
    });
}

const MEMORY_ONLY: &str = "memory_only";
/// What is written is safe only when the slow disk has confirmed it.
const LATE: &str = "late";

/// For `/readyz`.
fn state(trouble: Option<Troubled>) -> JournalState {
    match trouble {
        None => JournalState {
            state: "written",
            reason: None,
            error: None,
            remedy: None,
        },
        Some(Troubled { kind, error, remedy }) => JournalState {
            state: if kind.is_memory_only() { MEMORY_ONLY } else { LATE },
            reason: Some(kind.name()),
            error: Some(error),
            remedy: Some(remedy),
        },
    }
}

fn log(past: &Past) {
    let skipped = &past.skipped;
    tracing::debug!(
        finished = past.finished.len(),
        pending = past.pending.len(),
        "the journal is open"
    );
    if !skipped.is_nothing() {
        tracing::warn!(
            missing = skipped.missing,
            torn = skipped.torn,
            torn_bytes = skipped.torn_bytes,
            damaged = skipped.damaged,
            damaged_bytes = skipped.damaged_bytes,
            newer = ?skipped.newer,
            unreadable = skipped.unreadable,
            error = skipped.error,
            unknown = skipped.unknown,
            "parts of the journal could not be read, and are left out"
        );
    }
}

/// Writes what is left, for half a second at most.
pub fn close(thread: JournalThread) {
    thread.close(CLOSE);
}

impl Journaling {
    pub fn new(opened: &Opened) -> Journaling {
        Journaling {
            journal: opened.journal.clone(),
            requests: opened.requests(),
            removed: 0,
        }
    }

    /// False: in memory only.
    pub fn is_written(&self) -> bool {
        !self.journal.stats().is_memory_only()
    }

    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Queues the reports of earlier runs that the collector has not answered.
    pub fn send_pending(&self, past: &Past, exporters: &Exporters) {
        for pending in &past.pending {
            let Some(kept) = self.requests.pending(pending) else {
                continue;
            };
            let verdict: Arc<str> = pending.verdict.as_deref().unwrap_or(DOWN).into();
            let parcels = exporters.iter().filter_map(|sink| {
                let signal = sink.signal();
                let items = match (signal, &pending.verdict) {
                    (Signal::Traces, _) => pending.spans,
                    (Signal::Logs, Some(_)) => 1,
                    (Signal::Logs, None) => return None,
                };
                let parcel = Parcel {
                    items,
                    verdict: verdict.clone(),
                    request: None,
                    kept: None,
                };
                (pending.answered & signal.bit() == 0).then(|| (sink.clone(), parcel))
            });
            push(parcels.collect(), Some(kept));
        }
    }

    /// Writes a finished report; its request goes to the collector once it is on the disk.
    pub fn report(&self, now: Boot, finished: &FinishedReport, exporters: &Exporters) {
        let FinishedReport {
            id,
            wall,
            json,
            spans,
            verdict,
            request,
        } = finished;
        let frame = Finished {
            wall: *wall,
            id: *id,
            spans: *spans,
            json: json.as_bytes(),
            request: request.as_deref().unwrap_or_default(),
        };
        let requests = self.requests.clone();
        let parcels = match request {
            Some(request) => exporters.parcels(request, u64::from(*spans), verdict),
            None => Vec::new(),
        };
        let id = *id;
        self.journal.report(
            now,
            &frame,
            Box::new(move |place| push(parcels, place.and_then(|place| requests.at(place, id)))),
        );
    }

    /// Keeps a custom resource until what is returned is called.
    pub fn keep(&self, now: Boot, resource: &[u8]) -> epitaphs::Done {
        let id = of_resource(resource);
        self.journal.resource(now, id, resource);
        self.done(id)
    }

    /// For a custom resource that an earlier run kept.
    pub fn done(&self, id: ReportId) -> epitaphs::Done {
        let journal = self.journal.clone();
        Arc::new(move || journal.resource_answered(clock::now(), id))
    }

    /// One iteration of the loop is done.
    pub fn tick(&mut self, now: Boot, health: &Health, exporters: &Exporters) {
        self.journal.tick(now);
        let stats = self.journal.stats();
        health.journal(state(stats.troubled()));
        let removed = stats.removed_segments();
        if removed > std::mem::replace(&mut self.removed, removed) {
            exporters.remove_lost();
        }
    }
}

/// A finished report with its request.
pub struct FinishedReport {
    pub id: ReportId,
    wall: Wall,
    json: String,
    spans: u32,
    verdict: &'static str,
    request: Option<Bytes>,
}

impl FinishedReport {
    /// None: not a termination. `send`: the collector gets it.
    pub fn of(report: &Report, trace: &Trace, observation: &Observation, send: bool) -> Option<FinishedReport> {
        let clock = observation.wall_offset;
        let (json, wall, headline) = match report {
            Report::Terminated(t) => (
                json::line(&json::termination(t, observation)),
                clock.wall(t.end),
                t.verdict.headline,
            ),
            Report::PodTerminated(p) => (
                json::line(&json::pod_termination(p, observation)),
                clock.wall(p.end),
                p.verdict.headline,
            ),
            // By its own clock: the report may come from the next boot.
            Report::NodeShutdown(s) => (json::line(&json::node_shutdown(s)), s.clock.wall(s.end), s.verdict.headline),
            Report::NodeDown(d) => (json::line(&json::node_down(d)), d.clock.wall(d.end), DOWN),
            _ => return None,
        };
        Some(FinishedReport {
            id: id(trace)?,
            wall,
            json,
            spans: u32::try_from(trace.spans.len()).unwrap_or(u32::MAX),
            verdict: headline,
            request: send.then(|| otlp::encode(trace)),
        })
    }
}

/// By its content: the same resource is kept once.
fn of_resource(resource: &[u8]) -> ReportId {
    let digest = Sha256::digest(resource);
    ReportId {
        trace: std::array::from_fn(|at| digest[at]),
        span: std::array::from_fn(|at| digest[16 + at]),
    }
}

/// Of the trace's first span.
pub fn id(trace: &Trace) -> Option<ReportId> {
    let root = &trace.spans.first()?.span_context;
    Some(ReportId {
        trace: root.trace_id().to_bytes(),
        span: root.span_id().to_bytes(),
    })
}

/// To each sink its parcel; the journal has the request until all of them are answered.
fn push(parcels: Vec<(Sink, Parcel)>, kept: Option<KeptRequest>) {
    let open = parcels.iter().fold(0, |open, (sink, _)| open | sink.signal().bit());
    let kept = kept.map(|request| {
        Arc::new(InJournal {
            request,
            open: AtomicU8::new(open),
        })
    });
    for (sink, mut parcel) in parcels {
        let signal = sink.signal();
        parcel.kept = kept.clone().map(|kept| Arc::new(OfSignal { kept, signal }) as Arc<dyn Kept>);
        sink.push(parcel);
    }
}

struct InJournal {
    request: KeptRequest,
    /// The signals that are not answered yet.
    open: AtomicU8,
}

/// The request as one signal has it.
struct OfSignal {
    kept: Arc<InJournal>,
    signal: Signal,
}

impl Kept for OfSignal {
    fn read(&self) -> io::Result<Bytes> {
        let request = self.kept.request.read()?;
        match self.signal {
            Signal::Traces => Ok(request),
            Signal::Logs => {
                let record =
                    otlp::logs::of_spans(&request).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                record.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the report has no verdict"))
            }
        }
    }
    fn is_there(&self) -> bool {
        self.kept.request.is_there()
    }
    fn answered(&self) {
        let bit = self.signal.bit();
        match self.kept.open.fetch_and(!bit, Ordering::Relaxed) & !bit {
            0 => self.kept.request.answered(),
            _ => self.kept.request.answered_in_part(bit),
        }
    }
}
