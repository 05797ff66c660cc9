//! `epitaph replay --otlp` at collectors that fail in every way: what it sends, how long it waits, and how it ends.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use epitaph_tests::agent::program;
use epitaph_tests::http::{Request, free_port, request};
use epitaph_tests::timeout::ended;

/// A request with traces of terminations, and when it came.
type Came = Arc<Mutex<Vec<(Instant, Vec<u8>)>>>;

/// A collector by HTTP, which answers its nth request with such traces by the nth of `answers`, and later ones by the last.
/// Metrics are not expected.
fn collector(answers: &'static [&'static [u8]]) -> (u16, Came) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let came = Came::default();
    let kept = came.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let kept = kept.clone();
            // An idle connection holds no other up.
            std::thread::spawn(move || serve(stream, &kept, answers));
        }
    });
    (port, came)
}

fn serve(mut stream: TcpStream, kept: &Came, answers: &[&[u8]]) {
    while let Some((head, body)) = next(&mut stream) {
        // Without an answer the exporter of metrics complains.
        if head.starts_with("post /v1/metrics ") {
            break;
        }
        if !is_of_terminations(&head, &body) {
            let _ = stream.write_all(TAKEN);
            continue;
        }
        let count = {
            let mut kept = kept.lock().unwrap();
            kept.push((now(), body));
            kept.len()
        };
        let answer = answers[(count - 1).min(answers.len() - 1)];
        if stream.write_all(answer).is_err() {
            break;
        }
    }
}

fn next(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let Request { head, body } = request(stream)?;
    Some((head, body))
}

/// Or else spans of epitaph itself.
fn is_of_terminations(head: &str, body: &[u8]) -> bool {
    head.starts_with("post /v1/traces ") && !body.windows(OWN.len()).any(|part| part == OWN)
}

/// Service name of what epitaph reports about itself.
const OWN: &[u8] = b"epitaph-agent";

const TAKEN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const BUSY: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n";
const UNAUTHORIZED: &[u8] = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
const BAD: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/x-protobuf\r\nContent-Length: 3\r\n\r\nbad";
const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 18\r\n\r\n<html>hello</html>";
const PAGE_AS_PROTOBUF: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 18\r\n\r\n<html>hello</html>";
/// `ExportTraceServiceResponse { partial_success: { rejected_spans: 1 } }`.
const ALL_BUT_ONE: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 4\r\n\r\n\x0a\x02\x08\x01";

/// Replays the evidence of a demo story to that collector; also how long it took. Fails if the command does not end.
fn replay(endpoint: &str, timeout: Duration) -> (Output, Duration) {
    let story = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/stories/ignored-without-handler.epitaph");
    let binaries = Path::new(env!("CARGO_BIN_EXE_victim")).parent().unwrap();
    let begin = now();
    let mut child = Command::new(program(binaries))
        .arg("replay")
        .arg(story)
        .args(["--otlp", endpoint, "--otlp-protocol", "http/protobuf"])
        .env_clear()
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", timeout.as_millis().to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // What it prints fits into its pipes.
    ended(&mut child).unwrap();
    (child.wait_with_output().unwrap(), begin.elapsed())
}

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> Instant {
    Instant::now()
}

/// `n` and `m` of "n of m spans sent"; the command must have failed with it, for that reason and with that remedy.
fn not_all_sent(output: &Output, why: &str, remedy: &str) -> (u64, u64) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{error}");
    // Nothing is kept, and there is no next start.
    assert!(!error.contains("next"), "{error}");
    for part in [format!("spans sent: {why}"), format!("remedy: {remedy}")] {
        assert!(error.contains(&part), "{part}: {error}");
    }
    let words: Vec<&str> = error.split_whitespace().collect();
    let at = words
        .windows(2)
        .position(|two| two == ["spans", "sent:"])
        .expect("spans sent");
    (words[at - 3].parse().unwrap(), words[at - 1].parse().unwrap())
}

const OVER: &str = "the time for sending was over";
const START: &str = "start the collector, or correct `otlp.endpoint`";

/// Longer than anything takes.
const FOR_A_LOADED_MACHINE: Duration = Duration::from_secs(60);

#[test]
fn every_span_is_sent_or_the_command_fails() {
    let (port, came) = collector(&[TAKEN]);
    let (output, _) = replay(&format!("http://127.0.0.1:{port}"), FOR_A_LOADED_MACHINE);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(came.lock().unwrap().len(), 1);

    let closed = SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port().unwrap());
    let timeout = Duration::from_secs(3);
    let (output, took) = replay(&format!("http://{closed}"), timeout);
    let (sent, all) = not_all_sent(&output, "", START);
    assert!(sent == 0 && all > 0, "{sent} of {all}");
    // The subject is time.
    assert!(took >= timeout, "it did not wait for a collector that is late: {took:?}");
}

#[test]
fn a_busy_collector_gets_the_same_bytes_after_the_pause_that_it_asked_for() {
    let (port, came) = collector(&[BUSY, TAKEN]);
    let (output, _) = replay(&format!("http://127.0.0.1:{port}"), FOR_A_LOADED_MACHINE);
    assert!(output.status.success(), "{output:?}");
    let came = came.lock().unwrap();
    let [(first, body), (second, again)] = &came[..] else {
        panic!("{} requests", came.len())
    };
    assert_eq!(body, again);
    // The subject is time.
    assert!(*second - *first >= Duration::from_secs(2), "{:?}", *second - *first);
}

#[test]
fn a_partial_success_is_counted_and_not_sent_again() {
    let (port, came) = collector(&[ALL_BUT_ONE]);
    let (output, _) = replay(&format!("http://127.0.0.1:{port}"), FOR_A_LOADED_MACHINE);
    let (sent, all) = not_all_sent(&output, "the collector refused a part", "read the collector's log");
    assert_eq!(all - sent, 1, "{sent} of {all}");
    assert_eq!(came.lock().unwrap().len(), 1);
}

#[test]
fn a_refusal_is_named_with_its_own_remedy() {
    let login = "correct host, port and path";
    for (answer, why, remedy) in [
        (UNAUTHORIZED, "HTTP 401 Unauthorized", "set the credentials"),
        (BAD, "HTTP 400 Bad Request", "read the collector's log"),
        (PAGE, "HTTP 200 OK, but its answer is text/html", login),
        (
            PAGE_AS_PROTOBUF,
            "HTTP 200 OK, but its answer is not one of a collector",
            login,
        ),
    ] {
        let (port, came) = collector(Box::leak(Box::new([answer])));
        let (output, _) = replay(&format!("http://127.0.0.1:{port}"), FOR_A_LOADED_MACHINE);
        assert_eq!(not_all_sent(&output, why, remedy).0, 0);
        assert_eq!(came.lock().unwrap().len(), 1, "{why}");
    }
}

#[test]
fn a_collector_that_hangs_in_tls_is_given_up() {
    // Takes the connection, and never answers.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (output, _) = replay(&format!("https://127.0.0.1:{port}"), Duration::from_secs(2));
    // The limit of the request, or that of the command: the same time, and on a loaded machine either is over first.
    let is_commands = String::from_utf8_lossy(&output.stderr).contains(OVER);
    let (why, remedy) = match is_commands {
        true => (OVER, "raise `otlp.timeout`"),
        false => ("no answer within 2s", START),
    };
    assert_eq!(not_all_sent(&output, why, remedy).0, 0);
    drop(listener);
}

#[test]
fn a_name_that_does_not_resolve_is_given_up() {
    // RFC 2606: no such name is ever registered.
    let (output, _) = replay("http://collector.invalid:4318", Duration::from_secs(2));
    assert_eq!(not_all_sent(&output, "", START).0, 0);
}
