use std::collections::HashSet;
use std::io;
use std::sync::mpsc;

use bytes::Bytes;
use epitaph_core::fixtures::terminations::{clean, ignored, observation};
use opentelemetry::trace::SpanId;
use tonic::Code;

use super::collector::{Collector, Reply, free_port};
use super::*;
use crate::config::OtlpSettings;
use crate::error::lines;
use crate::render::span::{Options, trace};
use crate::waiting::until_task;

const BOTH: [Protocol; 2] = [Protocol::Grpc, Protocol::HttpProtobuf];

fn to(protocol: Protocol, port: u16) -> Destination {
    traces(OtlpSettings {
        endpoint: Some(format!("http://127.0.0.1:{port}").parse().expect("an endpoint")),
        protocol: Some(protocol),
        ..OtlpSettings::default()
    })
}

fn traces(settings: OtlpSettings) -> Destination {
    let destinations = settings.destinations().expect("valid settings");
    destinations.traces.expect("an endpoint")
}

fn quick() -> Delivery {
    Delivery {
        backoff: Backoff {
            first: Duration::from_millis(1),
            most: Duration::from_millis(20),
        },
        ..Delivery::with_queue(2_048)
    }
}

/// Spans of an [`ignored_stop`].
const SPANS: u64 = 6;

fn ignored_stop(n: u64) -> Trace {
    trace(&ignored(n), &observation(), &Options::default())
}

/// Ids of all accepted spans: a span that came twice is listed twice.
fn ids(received: &[collector::Received]) -> Vec<SpanId> {
    let spans = received.iter().flat_map(|r| r.spans());
    spans
        .map(|s| SpanId::from_bytes(s.span_id.try_into().expect("8 bytes")))
        .collect()
}

fn expected(traces: &[Trace]) -> HashSet<SpanId> {
    traces
        .iter()
        .flat_map(|t| t.spans.iter().map(|s| s.span_context.span_id()))
        .collect()
}

#[tokio::test]
async fn a_collector_that_starts_late_gets_every_span_once() {
    for protocol in BOTH {
        let port = free_port();
        let (sink, worker) = start(Signal::Traces, to(protocol, port), quick()).expect("a sink");
        let traces: Vec<Trace> = (1..=200).map(ignored_stop).collect();
        for trace in &traces {
            assert_eq!(sink.offer(trace, "ignored-stop-signal"), Offer::Queued);
        }
        until_task("attempts at a closed port", || sink.stats().retries() >= 3).await;
        let collector = Collector::start_at(port, |_, _| Reply::Take).await;
        until_task("everything exported", || sink.stats().exported() == 200 * SPANS).await;
        let came = ids(&collector.received());
        assert_eq!(came.len() as u64, 200 * SPANS, "once each");
        assert_eq!(came.into_iter().collect::<HashSet<_>>(), expected(&traces));
        worker.shutdown(Duration::from_secs(60)).await;
        assert_eq!(SpanDropReason::ALL.map(|r| sink.stats().dropped(r)), [0; 5]);
        // The queue is closed, not full.
        assert_eq!(sink.offer(&ignored_stop(1), "ignored-stop-signal"), Offer::Closed);
        assert_eq!(sink.stats().dropped(SpanDropReason::Shutdown), SPANS);
    }
}

/// On disk: there, or removed by a full journal.
struct OnDisk(bool);

impl Kept for OnDisk {
    fn read(&self) -> io::Result<Bytes> {
        Err(io::ErrorKind::NotFound.into())
    }
    fn is_there(&self) -> bool {
        self.0
    }
    fn answered(&self) {}
}

#[tokio::test]
async fn what_comes_after_the_shutdown_is_on_disk_or_counted() {
    let (sink, worker) = start(Signal::Traces, to(Protocol::HttpProtobuf, free_port()), quick()).expect("a sink");
    worker.shutdown(Duration::ZERO).await;
    let offer = |kept: Option<bool>| {
        let mut parcel = Parcel::of(&ignored_stop(1), "ignored-stop-signal");
        parcel.kept = kept.map(|is_there| Arc::new(OnDisk(is_there)) as Arc<dyn Kept>);
        assert_eq!(sink.push(parcel), Offer::Closed);
        [SpanDropReason::JournalFull, SpanDropReason::Shutdown].map(|reason| sink.stats().dropped(reason))
    };
    assert_eq!(offer(Some(true)), [0, 0]);
    assert_eq!(offer(Some(false)), [SPANS, 0]);
    assert_eq!(offer(None), [SPANS, SPANS]);
}

/// On a disk in trouble: so many reads fail before the next succeeds.
struct InTrouble {
    left: AtomicU64,
    error: io::ErrorKind,
    /// A read that fails hangs until its sender is dropped.
    hangs: Option<Mutex<mpsc::Receiver<()>>>,
    request: Bytes,
}

impl Kept for InTrouble {
    fn read(&self) -> io::Result<Bytes> {
        let is_over = |left: u64| left.checked_sub(1);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_over).is_err() {
            return Ok(self.request.clone());
        }
        if let Some(hangs) = &self.hangs {
            let _ = hangs.lock().unwrap().recv();
        }
        Err(self.error.into())
    }
    fn is_there(&self) -> bool {
        true
    }
    fn answered(&self) {}
}

fn in_journal(trace: &Trace) -> Parcel {
    let mut parcel = Parcel::of(trace, "ignored-stop-signal");
    parcel.kept = Some(Arc::new(InTrouble {
        left: AtomicU64::new(0),
        error: io::ErrorKind::Other,
        hangs: None,
        request: parcel.request.clone().expect("encoded"),
    }));
    parcel
}

#[tokio::test]
async fn a_disk_in_trouble_delays_its_own_traces_only_and_loses_none() {
    let collector = Collector::start(|_, _| Reply::Take).await;
    let (sink, worker) = start(Signal::Traces, to(Protocol::HttpProtobuf, collector.address.port()), quick()).expect("a sink");
    let traces: Vec<Trace> = (1..=4).map(ignored_stop).collect();
    let offer = |trace: &Trace, left, error, hangs: Option<mpsc::Receiver<()>>| {
        let mut parcel = Parcel::of(trace, "ignored-stop-signal");
        let request = parcel.request.take().expect("encoded");
        let (left, hangs) = (AtomicU64::new(left), hangs.map(Mutex::new));
        let in_trouble = InTrouble {
            left,
            error,
            hangs,
            request,
        };
        parcel.kept = Some(Arc::new(in_trouble));
        assert_eq!(sink.push(parcel), Offer::Queued);
    };
    let (answers, hangs) = mpsc::channel();
    offer(&traces[0], 3, io::ErrorKind::Interrupted, Some(hangs));
    offer(&traces[1], 3, io::ErrorKind::Other, None);
    offer(&traces[2], 1, io::ErrorKind::InvalidData, None);
    sink.offer(&traces[3], "ignored-stop-signal");
    until_task("what the disk does not hold up", || sink.stats().exported() == SPANS).await;
    drop(answers);
    until_task("all but the damaged one", || sink.stats().exported() == 3 * SPANS).await;
    // Read for the last time at any moment.
    until_task("the damaged one", || {
        sink.stats().dropped(SpanDropReason::JournalUnreadable) == SPANS
    })
    .await;
    let came = ids(&collector.received());
    assert_eq!(came.len() as u64, 3 * SPANS, "once each");
    let first: HashSet<SpanId> = came[..SPANS as usize].iter().copied().collect();
    assert_eq!(first, expected(&traces[3..]), "what the disk does not hold up comes first");

    // Of what is on the disk nothing is lost by a shutdown.
    offer(&traces[0], u64::MAX, io::ErrorKind::Other, None);
    worker.shutdown(Duration::from_secs(60)).await;
    assert_eq!(sink.stats().dropped(SpanDropReason::Shutdown), 0);
    assert_eq!(sink.stats().dropped(SpanDropReason::JournalFull), 0);
}

/// An expired token, or a proxy without its backend, for a while.
#[tokio::test]
async fn what_the_journal_has_waits_until_the_credentials_are_right() {
    let collector = Collector::start(|_, n| match n {
        0..3 => Reply::Refuse(Code::Unauthenticated),
        _ => Reply::Take,
    })
    .await;
    let (sink, worker) = start(Signal::Traces, to(Protocol::HttpProtobuf, collector.address.port()), quick()).expect("a sink");
    assert_eq!(sink.push(in_journal(&ignored_stop(1))), Offer::Queued);
    until_task("exported", || sink.stats().exported() == SPANS).await;
    assert_eq!((sink.stats().retries(), collector.received().len()), (3, 4));
    assert_eq!(SpanDropReason::ALL.map(|reason| sink.stats().dropped(reason)), [0; 5]);
    worker.shutdown(Duration::from_secs(60)).await;
}

/// A proxy that lets one of many requests not through, for its size or its words.
#[tokio::test]
async fn a_request_that_a_proxy_refuses_holds_no_other_up() {
    let collector = Collector::start(|received, _| match received.spans().len() as u64 > SPANS {
        true => Reply::Refuse(Code::Unauthenticated),
        false => Reply::Take,
    })
    .await;
    let (sink, worker) = start(Signal::Traces, to(Protocol::HttpProtobuf, collector.address.port()), quick()).expect("a sink");
    let traces: Vec<Trace> = (1..=5).map(ignored_stop).collect();
    for trace in &traces {
        assert_eq!(sink.push(in_journal(trace)), Offer::Queued);
    }
    until_task("all, one by one", || sink.stats().exported() == 5 * SPANS).await;
    assert_eq!(SpanDropReason::ALL.map(|reason| sink.stats().dropped(reason)), [0; 5]);
    worker.shutdown(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_retry_is_byte_identical() {
    for protocol in BOTH {
        let collector = Collector::start(|_, n| if n < 3 { Reply::Busy } else { Reply::Take }).await;
        let (sink, _worker) = start(Signal::Traces, to(protocol, collector.address.port()), quick()).expect("a sink");
        sink.offer(&ignored_stop(1), "ignored-stop-signal");
        until_task("exported", || sink.stats().exported() == SPANS).await;
        let bodies: Vec<_> = collector.received().into_iter().map(|r| r.body).collect();
        assert_eq!(bodies.len(), 4);
        assert!(bodies.iter().all(|b| *b == bodies[0]));
        assert_eq!(sink.stats().retries(), 3);
    }
}

#[test]
fn a_requested_pause_of_zero_uses_our_backoff() {
    let own = Duration::from_secs(1);
    for (asked, pause) in [(None, 1), (Some(0), 1), (Some(7), 7), (Some(120), 120), (Some(3600), 600)] {
        let asked = asked.map(Duration::from_secs);
        assert_eq!(worker::pause(asked, own), Duration::from_secs(pause), "{asked:?}");
    }
}

/// `Reply::Busy` asks for a pause of 0 s.
#[tokio::test]
async fn a_busy_collector_gets_no_retry_loop() {
    let collector = Collector::start(|_, _| Reply::Busy).await;
    let minute = Duration::from_secs(60);
    let delivery = Delivery {
        backoff: Backoff {
            first: minute,
            most: minute,
        },
        ..quick()
    };
    let (sink, _worker) =
        start(Signal::Traces, to(Protocol::HttpProtobuf, collector.address.port()), delivery).expect("a sink");
    sink.offer(&ignored_stop(1), "ignored-stop-signal");
    until_task("the first answer", || sink.stats().retries() > 0).await;
    // The subject is time: a loop without a pause asks many times within it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(collector.received().len(), 1);
}

/// Another process, or this one after a restart, encodes the same termination as the same request.
#[test]
fn encoding_again_gives_the_same_bytes() {
    let options = Options {
        resource_attributes: (0..8).map(|n| (format!("team.{n}"), "blue".to_owned())).collect(),
        ..Options::default()
    };
    let ignored_stop = |n| trace(&ignored(n), &observation(), &options);
    let first = [1, 2].map(|n| encode(&ignored_stop(n)));
    for _ in 0..50 {
        assert_eq!([1, 2].map(|n| encode(&ignored_stop(n))), first);
    }
}

#[tokio::test]
async fn a_silent_collector_fills_only_the_bounded_queue() {
    for protocol in BOTH {
        let collector = Collector::start(|_, _| Reply::Silence).await;
        let mut to = to(protocol, collector.address.port());
        to.timeout = Duration::from_millis(30);
        let delivery = Delivery {
            queue: 10,
            batch: 1,
            ..quick()
        };
        let (sink, worker) = start(Signal::Traces, to, delivery).expect("a sink");
        sink.offer(&ignored_stop(0), "ignored-stop-signal");
        until_task("the first trace to be sent", || sink.queued() == 0).await;
        for n in 1..=10 {
            assert_eq!(sink.offer(&ignored_stop(n), "ignored-stop-signal"), Offer::Queued);
        }
        for n in 11..=25 {
            assert_eq!(
                sink.offer(&ignored_stop(n), "ignored-stop-signal"),
                Offer::OldestDropped { items: SPANS }
            );
        }
        assert_eq!(sink.queued(), 10);
        assert_eq!(sink.stats().dropped(SpanDropReason::QueueFull), 15 * SPANS);
        until_task("timeouts", || sink.stats().retries() >= 2).await;
        worker.shutdown(Duration::from_millis(50)).await;
        // The trace in flight and the queued ones.
        assert_eq!(sink.stats().dropped(SpanDropReason::Shutdown), 11 * SPANS);
        assert_eq!(sink.stats().exported(), 0);
    }
}

#[tokio::test]
async fn unavailable_is_retried() {
    for protocol in BOTH {
        let collector = Collector::start(|_, n| {
            if n == 0 {
                Reply::Refuse(Code::Unavailable)
            } else {
                Reply::Take
            }
        })
        .await;
        let (sink, worker) = start(Signal::Traces, to(protocol, collector.address.port()), quick()).expect("a sink");
        sink.offer(&ignored_stop(1), "ignored-stop-signal");
        worker.shutdown(Duration::from_secs(60)).await;
        assert_eq!((sink.stats().exported(), sink.stats().retries()), (SPANS, 1));
    }
}

#[tokio::test]
async fn an_invalid_request_is_counted_and_not_retried() {
    for (protocol, code) in BOTH
        .into_iter()
        .flat_map(|p| [(p, Code::InvalidArgument), (p, Code::Unauthenticated)])
    {
        let collector = Collector::start(move |_, _| Reply::Refuse(code)).await;
        let (sink, worker) = start(Signal::Traces, to(protocol, collector.address.port()), quick()).expect("a sink");
        sink.offer(&ignored_stop(1), "ignored-stop-signal");
        worker.shutdown(Duration::from_secs(60)).await;
        assert_eq!(collector.received().len(), 1);
        assert_eq!(
            (sink.stats().retries(), sink.stats().dropped(SpanDropReason::Rejected)),
            (0, SPANS)
        );
        assert_eq!(sink.stats().dropped(SpanDropReason::Shutdown), 0);
    }
}

#[tokio::test]
async fn a_page_with_the_status_200_is_not_a_delivery() {
    let collector = Collector::start(|_, _| Reply::Page).await;
    let (sink, worker) = start(Signal::Traces, to(Protocol::HttpProtobuf, collector.address.port()), quick()).expect("a sink");
    sink.offer(&ignored_stop(1), "ignored-stop-signal");
    worker.shutdown(Duration::from_secs(60)).await;
    let stats = sink.stats();
    assert_eq!((stats.exported(), stats.dropped(SpanDropReason::Rejected)), (0, SPANS));
    let reason = stats.last_failure().expect("a reason");
    assert_eq!(reason.why, "HTTP 200 OK, but its answer is text/html");
}

/// The collector refuses any request with the spans of one certain trace.
#[tokio::test]
async fn one_refused_trace_does_not_affect_the_others() {
    for protocol in BOTH {
        let bad: HashSet<_> = expected(&[ignored_stop(7)]);
        let port = free_port();
        let (sink, worker) = start(Signal::Traces, to(protocol, port), quick()).expect("a sink");
        sink.offer(&ignored_stop(100), "ignored-stop-signal");
        until_task("an attempt for the first trace", || sink.stats().retries() > 0).await;
        for n in 1..=20 {
            sink.offer(&ignored_stop(n), "ignored-stop-signal");
        }
        let collector = Collector::start_at(port, move |r, _| {
            let hit = ids(std::slice::from_ref(r)).iter().any(|id| bad.contains(id));
            if hit {
                Reply::Refuse(Code::InvalidArgument)
            } else {
                Reply::Take
            }
        })
        .await;
        worker.shutdown(Duration::from_secs(60)).await;
        assert_eq!(sink.stats().exported(), 20 * SPANS);
        assert_eq!(sink.stats().dropped(SpanDropReason::Rejected), SPANS);
        assert_eq!(
            collector.received().len(),
            1 + 1 + 20,
            "the first, the batch, each of the batch"
        );
    }
}

#[tokio::test]
async fn partial_success_counts_what_was_refused() {
    for protocol in BOTH {
        let collector = Collector::start(|_, _| Reply::TakeAllBut(2)).await;
        let (sink, worker) = start(Signal::Traces, to(protocol, collector.address.port()), quick()).expect("a sink");
        sink.offer(&ignored_stop(1), "ignored-stop-signal");
        worker.shutdown(Duration::from_secs(60)).await;
        assert_eq!(
            (sink.stats().exported(), sink.stats().dropped(SpanDropReason::Rejected)),
            (SPANS - 2, 2)
        );
        assert_eq!(collector.received().len(), 1, "partial success is not retried");
    }
}

#[tokio::test]
async fn headers_paths_and_compression_arrive() {
    for (protocol, path) in [
        (Protocol::Grpc, "/opentelemetry.proto.collector.trace.v1.TraceService/Export"),
        (Protocol::HttpProtobuf, "/v1/traces"),
    ] {
        let collector = Collector::start(|_, _| Reply::Take).await;
        let mut to = to(protocol, collector.address.port());
        to.headers.insert("authorization", "Bearer x".parse().expect("a value"));
        to.compression = Compression::Gzip;
        let (sink, worker) = start(Signal::Traces, to, quick()).expect("a sink");
        sink.offer(&trace(&clean(1), &observation(), &Options::default()), "clean");
        worker.shutdown(Duration::from_secs(60)).await;
        let [received] = &collector.received()[..] else {
            panic!("expected exactly one request")
        };
        assert_eq!(received.path, path);
        assert_eq!(received.headers["authorization"], "Bearer x");
        assert!(received.headers["user-agent"].to_str().expect("text").starts_with("epitaph/"));
        assert!(received.compressed);
        assert_eq!(received.spans().len(), 2);
    }
}

/// A private certificate authority, its certificate for 127.0.0.1, and one for a client.
struct Pki {
    directory: tempfile::TempDir,
    server: rustls::ServerConfig,
}

impl Pki {
    fn new() -> Pki {
        let key = || rcgen::KeyPair::generate().expect("a key");
        let (ca_key, server_key, client_key) = (key(), key(), key());
        let mut ca = rcgen::CertificateParams::new(vec![]).expect("parameters");
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_pem = ca.self_signed(&ca_key).expect("a certificate");
        let issuer = rcgen::Issuer::new(ca, &ca_key);
        let server = rcgen::CertificateParams::new(vec!["127.0.0.1".into()]).expect("parameters");
        let server = server.signed_by(&server_key, &issuer).expect("a certificate");
        let mut client = rcgen::CertificateParams::new(vec!["agent".into()]).expect("parameters");
        client.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let client = client.signed_by(&client_key, &issuer).expect("a certificate");

        let directory = tempfile::tempdir().expect("a directory");
        for (name, pem) in [
            ("ca.pem", ca_pem.pem()),
            ("client.pem", client.pem()),
            ("client.key", client_key.serialize_pem()),
        ] {
            std::fs::write(directory.path().join(name), pem).expect("written");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(ca_pem.der().clone()).expect("an authority");
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let mut server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier.build().expect("a verifier"))
            .with_single_cert(
                vec![server.der().clone()],
                server_key.serialize_der().try_into().expect("a key"),
            )
            .expect("a server");
        server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Pki { directory, server }
    }

    fn to(&self, protocol: Protocol, port: u16, own_authority: bool) -> Destination {
        let path = |name| Some(self.directory.path().join(name));
        traces(OtlpSettings {
            endpoint: Some(format!("https://127.0.0.1:{port}").parse().expect("an endpoint")),
            protocol: Some(protocol),
            certificate: if own_authority { path("ca.pem") } else { path("client.pem") },
            client_certificate: path("client.pem"),
            client_key: path("client.key"),
            ..OtlpSettings::default()
        })
    }
}

#[tokio::test]
async fn tls_with_a_private_authority_and_a_client_certificate() {
    let pki = Pki::new();
    for protocol in BOTH {
        let collector = Collector::start_tls(pki.server.clone()).await;
        let (sink, worker) = start(Signal::Traces, pki.to(protocol, collector.address.port(), true), quick()).expect("a sink");
        sink.offer(&ignored_stop(1), "ignored-stop-signal");
        worker.shutdown(Duration::from_secs(60)).await;
        assert_eq!((sink.stats().exported(), sink.stats().retries()), (SPANS, 0));
        assert_eq!(ids(&collector.received()).len() as u64, SPANS);
    }
}

#[tokio::test]
async fn a_server_of_an_unknown_authority_gets_nothing() {
    let pki = Pki::new();
    for protocol in BOTH {
        let collector = Collector::start_tls(pki.server.clone()).await;
        let (sink, worker) = start(Signal::Traces, pki.to(protocol, collector.address.port(), false), quick()).expect("a sink");
        sink.offer(&ignored_stop(1), "ignored-stop-signal");
        until_task("refused handshakes", || sink.stats().retries() >= 2).await;
        worker.shutdown(Duration::ZERO).await;
        assert_eq!(
            (collector.received().len(), sink.stats().dropped(SpanDropReason::Shutdown)),
            (0, SPANS)
        );
    }
}

#[tokio::test]
async fn a_server_without_tls_is_named_with_the_remedy() {
    let pki = Pki::new();
    for protocol in BOTH {
        let collector = Collector::start(|_, _| Reply::Take).await;
        let (sink, worker) = start(Signal::Traces, pki.to(protocol, collector.address.port(), true), quick()).expect("a sink");
        sink.offer(&ignored_stop(1), "ignored-stop-signal");
        until_task("refused handshakes", || sink.stats().retries() >= 1).await;
        worker.shutdown(Duration::ZERO).await;
        let reason = sink.stats().last_failure().expect("a reason");
        assert!(
            reason.why.contains("does not speak TLS") && reason.remedy.starts_with("write http:// instead of https://"),
            "{reason:?}"
        );
    }
}

#[tokio::test]
async fn a_certificate_that_cannot_be_read_is_named() {
    let mut to = to(Protocol::Grpc, 1);
    to.authorities = Some("/nonexistent/ca.pem".into());
    let error = lines(&start(Signal::Traces, to, quick()).expect_err("no such file"));
    assert!(
        error.contains("certificate authorities /nonexistent/ca.pem")
            && error.contains("\nremedy: name a PEM file that this user can read with otlp.certificate;"),
        "{error}"
    );
}
