//! The journal as the pipeline uses it: when evidence is safe, and what a collector gets that was away for long.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use epitaph_core::correlate::{Correlator, Limits};
use epitaph_core::decode::encode::encode;
use epitaph_core::fixtures::terminations::{clean, ignored, observation};
use epitaph_core::fixtures::{pods, script};
use epitaph_core::input::Input;
use epitaph_core::report::{Report, Termination};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use prost::Message as _;

use super::export::Export;
use super::journaling::{self, Journaling};
use super::pipeline::Pipeline;
use super::sinks::Sinks;
use crate::clock;
use crate::config::Config;
use crate::journal::{JournalThread, Opened};
use crate::mock_api::{self, Answer};
use crate::render::span;
use crate::sink::epitaphs::{self, EpitaphOutcome};
use crate::sink::otlp::collector::{Collector, Reply, free_port};
use crate::sink::otlp::{self, Protocol};
use crate::waiting::{until, until_task};

/// A guard against a hang, not a measure.
const LONG: Duration = Duration::from_secs(60);

/// An agent without sources: its exporters, its sinks, its journal.
struct Agent {
    export: Export,
    sinks: Sinks,
    opened: Opened,
    /// In this run.
    reported: u64,
}

impl Agent {
    fn start(config: &Config) -> Agent {
        let export = Export::start(config).unwrap();
        let opened = journaling::open(config, &observation(), &export.metrics, &|| false)
            .unwrap()
            .unwrap();
        let mut sinks = Sinks::new(config, &export, None, Arc::default());
        let journal = Journaling::new(&opened);
        journal.send_pending(&opened.past, &sinks.exporters);
        sinks.journal = Some(journal);
        Agent {
            export,
            sinks,
            opened,
            reported: 0,
        }
    }

    fn traces(&self) -> otlp::Sink {
        self.sinks.exporters.of(otlp::Signal::Traces).cloned().unwrap()
    }

    /// As the loop: one iteration for a few reports.
    async fn report(&mut self, numbers: std::ops::Range<u64>) {
        for n in numbers {
            let report = Report::Terminated(Box::new(termination(n)));
            self.sinks.send(clock::now(), &report, &observation(), None).unwrap();
            self.reported += 1;
            if n % 16 == 0 {
                let (stats, reported) = (self.opened.journal.stats(), self.reported);
                self.until("the journal", || stats.frames() >= reported).await;
            }
        }
    }

    /// Iterations of the loop until it is so.
    async fn until(&mut self, what: &str, mut is_so: impl FnMut() -> bool) {
        until_task(what, || {
            self.sinks.alive(clock::now(), None).unwrap();
            is_so()
        })
        .await;
    }

    /// As at the end of `epitaph agent`.
    async fn end(self) {
        let Agent {
            export, sinks, opened, ..
        } = self;
        let thread: JournalThread = opened.thread;
        thread.flush(LONG);
        drop(sinks);
        export.finish(Duration::from_millis(100)).await;
        thread.close(LONG);
    }
}

/// The nth to end. Every third one was clean.
fn termination(n: u64) -> Termination {
    match n % 3 {
        0 => clean(1_000 + n),
        _ => ignored(1_000 + n),
    }
}

fn headline(n: u64) -> &'static str {
    termination(n).verdict.headline
}

/// Trace id → number.
fn numbers(until: u64) -> BTreeMap<Vec<u8>, u64> {
    let id = |n| {
        let trace = span::trace(&termination(n), &observation(), &span::Options::default());
        journaling::id(&trace).unwrap().trace.to_vec()
    };
    (0..until).map(|n| (id(n), n)).collect()
}

fn config(journal: &Path, port: u16) -> Config {
    let mut config = Config::default();
    config.journal.directory = Some(journal.to_owned());
    config.otlp.endpoint = Some(format!("http://127.0.0.1:{port}").parse().unwrap());
    config.otlp.protocol = Some(Protocol::HttpProtobuf);
    config.otlp.metrics = false;
    config
}

type GivenUp = BTreeMap<(&'static str, String), u64>;

fn given_up(traces: &otlp::Sink) -> GivenUp {
    let all = traces.stats().given_up().into_iter();
    all.map(|(reason, verdict, count)| ((reason, verdict.to_string()), count))
        .collect()
}

/// The collector is away for as long as it takes to fill the journal several times, and the agent restarts meanwhile. The journal is the
/// queue: what no longer fits is counted by its verdict, and all the rest comes, once, in the order of the ends, as it was stored.
#[tokio::test]
async fn a_collector_that_was_away_gets_what_the_journal_holds_in_order_and_the_rest_is_counted() {
    const BEFORE: u64 = 2_400;
    const ALL: u64 = 3_000;
    const BYTES: u64 = 4 << 20;
    const QUEUE: usize = 100;
    // In memory: a slow disk is another test's.
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let port = free_port();
    let mut config = config(&directory.path().join("journal"), port);
    config.journal.max_bytes = BYTES;
    config.limits.export_queue = QUEUE;

    let mut first = Agent::start(&config);
    let (traces, stats) = (first.traces(), first.opened.journal.stats());
    first.report(0..BEFORE).await;
    first.opened.thread.flush(LONG);
    assert!(stats.size() <= BYTES, "{} bytes", stats.size());
    assert!(stats.removed_segments() > 16, "{} segments", stats.removed_segments());
    assert!(traces.held() <= QUEUE, "{} in memory", traces.held());
    first.end().await;
    let lost_by_first = given_up(&traces);

    let mut second = Agent::start(&config);
    let traces = second.traces();
    // Nothing is lost without a count.
    let pending = second.opened.past.pending.len() as u64;
    assert_eq!(pending + lost_by_first.values().sum::<u64>(), BEFORE, "{lost_by_first:?}");
    second.report(BEFORE..ALL).await;
    // Comes back, and is busy at first.
    let collector = Collector::start_at(port, |_, n| if n == 0 { Reply::Busy } else { Reply::Take }).await;
    let numbers = numbers(ALL);
    let mut lost = lost_by_first.clone();
    let is_sent = || traces.queued() == 0 && traces.in_flight() == 0;
    second.until("all to be sent", is_sent).await;
    for (what, count) in given_up(&traces) {
        *lost.entry(what).or_default() += count;
    }
    let bodies: Vec<_> = collector.received().into_iter().skip(1).collect();
    let mut came = Vec::new();
    for received in &bodies {
        let spans = received.spans();
        let mut of_body: Vec<u64> = spans.iter().map(|span| numbers[&span.trace_id]).collect();
        of_body.dedup();
        let requests = of_body
            .iter()
            .map(|n| otlp::encode(&span::trace(&termination(*n), &observation(), &span::Options::default())));
        let stored: Vec<u8> = requests.flatten().collect();
        assert!(received.body == stored, "not as it was stored: {of_body:?}");
        came.extend(of_body);
    }
    assert!(
        came.is_sorted_by(|a, b| a < b),
        "not in the order of the ends, or twice: {came:?}"
    );
    assert_eq!(came.last(), Some(&(ALL - 1)));
    assert!(came.len() as u64 > ALL - BEFORE, "{} came", came.len());
    let mut expected = GivenUp::new();
    for n in (0..ALL).filter(|n| !came.contains(n)) {
        *expected.entry(("journal_full", headline(n).to_owned())).or_default() += 1;
    }
    // What the first agent was sending at its end, and the journal had removed, is lost by the one or by the other.
    let mut found = GivenUp::new();
    for ((why, verdict), count) in lost {
        let why = if why == "shutdown" { "journal_full" } else { why };
        *found.entry((why, verdict)).or_default() += count;
    }
    assert_eq!(found, expected);
    second.end().await;

    let third = Agent::start(&config);
    assert!(third.opened.past.pending.is_empty(), "{:?}", third.opened.past.pending);
    third.end().await;
}

/// Traces and log records have a destination each: what one of the two has answered is not sent to it again after a restart.
#[tokio::test]
async fn after_a_restart_only_the_signal_that_was_not_answered_is_sent() {
    const ALL: u64 = 10;
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let takes_logs = Arc::new(AtomicBool::new(false));
    let switch = takes_logs.clone();
    let collector = Collector::start(move |received, _| match received.path.as_str() {
        "/v1/logs" if !switch.load(Ordering::SeqCst) => Reply::Busy,
        _ => Reply::Take,
    })
    .await;
    let mut config = config(&directory.path().join("journal"), collector.address.port());
    config.otlp.logs = true;
    let sink = |agent: &Agent, signal| agent.sinks.exporters.of(signal).cloned().unwrap();

    let mut first = Agent::start(&config);
    let (traces, logs) = (sink(&first, otlp::Signal::Traces), sink(&first, otlp::Signal::Logs));
    first.report(0..ALL).await;
    first.opened.thread.flush(LONG);
    let are_traces_sent = || traces.queued() + traces.in_flight() == 0 && traces.stats().exported() > 0;
    let is_answered = || are_traces_sent() && logs.stats().retries() > 0;
    first.until("the traces to be sent, and the logs refused", is_answered).await;
    first.end().await;
    assert_eq!((logs.stats().exported(), given_up(&logs)), (0, GivenUp::new()));
    let before = collector.received().len();

    takes_logs.store(true, Ordering::SeqCst);
    let mut second = Agent::start(&config);
    let answered: Vec<u8> = second.opened.past.pending.iter().map(|pending| pending.answered).collect();
    assert_eq!(answered, [otlp::Signal::Traces.bit(); ALL as usize]);
    let logs = sink(&second, otlp::Signal::Logs);
    second.until("the logs", || logs.stats().exported() >= ALL).await;
    second.end().await;
    let received = collector.received();
    let mut came = Vec::new();
    for request in &received[before..] {
        assert_eq!(request.path, "/v1/logs", "the traces were answered");
        let logs = ExportLogsServiceRequest::decode(request.body.clone()).unwrap();
        let scopes = logs.resource_logs.into_iter().flat_map(|resource| resource.scope_logs);
        came.extend(scopes.flat_map(|scope| scope.log_records).map(|record| record.trace_id));
    }
    let numbers = numbers(ALL);
    let came: Vec<u64> = came.iter().map(|id| numbers[id]).collect();
    assert_eq!(came, Vec::from_iter(0..ALL));
    let third = Agent::start(&config);
    assert!(third.opened.past.pending.is_empty(), "{:?}", third.opened.past.pending);
    third.end().await;
}

/// The API server is away until the agent ends: the next agent writes what this one could not, once.
#[tokio::test]
async fn an_epitaph_that_could_not_be_written_is_written_by_the_next_agent() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut config = Config::default();
    config.journal.directory = Some(directory.path().join("journal"));
    let settings = epitaphs::Settings {
        pause: Duration::from_millis(5),
        longest_pause: Duration::from_millis(20),
        ..epitaphs::Settings::default()
    };
    let pod = || Report::PodTerminated(Box::new(pods::pod(1)));

    let mut away = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    away.default_retry = false;
    let away = kube::Client::try_from(away).unwrap();
    let (sink, worker) = epitaphs::start(away, settings.clone(), clock::now);
    let mut first = Agent::start(&config);
    first.sinks.epitaphs = Some(sink.clone());
    first.sinks.send(clock::now(), &pod(), &observation(), None).unwrap();
    worker.shutdown(Duration::from_millis(50)).await;
    assert_eq!(sink.stats().get(EpitaphOutcome::Shutdown), 1);
    first.end().await;

    let (client, received) = mock_api::start(|request| std::future::ready(Answer::Json(201, request.body)));
    let (sink, worker) = epitaphs::start(client, settings, clock::now);
    let mut second = Agent::start(&config);
    assert_eq!(second.opened.past.resources.iter().count(), 1);
    second.sinks.epitaphs = Some(sink.clone());
    second.sinks.offer_kept(&second.opened.past, clock::now());
    until_task("the Epitaph to be written", || sink.stats().get(EpitaphOutcome::Written) == 1).await;
    worker.shutdown(LONG).await;
    second.end().await;
    let requests = received.lock().unwrap().clone();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert_eq!(requests[0].body["report"]["verdict"], pods::pod(1).verdict.headline);

    let third = Agent::start(&config);
    assert_eq!(third.opened.past.resources.iter().count(), 0);
    third.end().await;
}

/// Without an iteration of the loop in between: the next one may be a fifth of a second later.
#[tokio::test]
async fn the_first_evidence_of_a_termination_is_synced_at_once() {
    const SCRIPT: &str = "
        +0 mkdir app
        proc main in=app pid=100 ns=1 start=+0 parent=shim comm=app
        +0.001 exec main
        +1 TERM runc -> main handler
    ";
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.journal.directory = Some(directory.path().join("journal"));
    let Agent {
        export, sinks, opened, ..
    } = Agent::start(&config);
    let mut pipeline = Pipeline::new(Correlator::new(Limits::default()), observation(), None, sinks);
    let mut inputs = script::parse(SCRIPT).inputs;
    let (at, stop) = inputs.pop().unwrap();
    let feed = |pipeline: &mut Pipeline, at, input: Input| {
        match &input {
            Input::Kernel { event, .. } => pipeline.feed_record(at, &encode(at.0, event), input),
            _ => pipeline.feed(at, input),
        }
        .unwrap();
    };
    for (at, input) in inputs {
        feed(&mut pipeline, at, input);
    }
    pipeline.tick(at).unwrap();
    assert!(!opened.journal.is_in_progress());
    assert!(matches!(stop, Input::Kernel { .. }));
    feed(&mut pipeline, at, stop);
    // The tests of the journal's thread have the times.
    assert!(opened.journal.is_in_progress());
    drop(pipeline);
    export.finish(Duration::ZERO).await;
    opened.thread.close(LONG);
}

/// The wall times of a segment's evidence come from the segment's own header.
#[tokio::test]
async fn the_segments_after_a_step_of_the_wall_clock_have_the_new_one() {
    use crate::journal::reader::{Evidence, Reader};
    use epitaph_core::time::WallOffset;
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.journal.directory = Some(directory.path().join("journal"));
    let Agent {
        export, sinks, opened, ..
    } = Agent::start(&config);
    let mut pipeline = Pipeline::new(Correlator::new(Limits::default()), observation(), None, sinks);
    let now = observation().since;
    opened.journal.input(now, &Input::Tick);
    until("a frame", || opened.journal.stats().frames() > 0);
    pipeline.feed(now, Input::Clock(WallOffset(7))).unwrap();
    // More than a segment, and more than the journal's thread may be behind.
    for _ in 0..5 {
        let before = opened.journal.stats().frames();
        opened.journal.record(now, &vec![7; 1_000_000]);
        until("the next frame", || opened.journal.stats().frames() > before);
    }
    drop(pipeline);
    export.finish(Duration::ZERO).await;
    opened.thread.close(LONG);
    let mut reader = Reader::open(&directory.path().join("journal")).unwrap();
    let mut offsets = Vec::new();
    while let Some(evidence) = reader.next_evidence() {
        if let Evidence::Began { header, .. } = evidence {
            offsets.push(header.observation.wall_offset);
        }
    }
    assert_eq!(offsets, [observation().wall_offset, WallOffset(7)]);
}
