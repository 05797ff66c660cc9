//! `docs/traffic.md`: the cases with what one run measured. A run differs within the bounds only: the page's rows must be the cases'.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::Outcome;
use super::cases::{CASES, Case};

const HEAD: &str = "\
# Lost connections, measured

This page answers: which connections count as lost when a server exits, and which are `undecided`?

When a server exits, the kernel knows of each of its open connections who sent the last bytes, how many bytes there were, and whether the
other side has acknowledged them. This proves some losses, not all:

| At the exit, or at a close as a part of it | Counts as |
|---|---|
| the client has sent bytes, and the server none | cut |
| the last bytes are the client's, more than three ticks (3 to 30 ms) later than the server's | cut |
| bytes were not read, or came after the close | reset |
| in the accept queue at the close of the listener | reset. If the client had closed first: undecided if the client had sent bytes, otherwise no loss |
| aborted by the server (SO_LINGER 0) with all bytes read, while bytes that the server had written were not sent yet | reset; undecided if the client had closed first |
| aborted by the server (SO_LINGER 0) with all bytes read, and the last bytes are the server's | undecided |
| neither side has ever sent a byte | idle: no loss. Undecided if the connection was established at most a second earlier: the client may wait for the server's greeting |
| the client had closed first, and has its answer, or has never sent a byte | no loss |
| the client's socket is the container's own (a gateway to its own listener) | not a client |
| the server closed the connection with shutdown(2), or within a tick of its last bytes, or went on serving for long | no loss |
| the server closed the connection as in the row above, but possibly in the middle of a long answer: more than 64 KiB were unacknowledged; or the server had sent more than 16 KiB per data segment of the client, its last bytes came more than 0.1 s after the client's, and they were unacknowledged or, without shutdown(2), sent at most a second before the close | undecided |
| 2 s after the exit the client has not acknowledged the server's close: the client or the network to it is gone | undecided, whatever the close was |
| all else: mostly, the last bytes are the server's | undecided |

An idle keep-alive connection of HTTP/1.1, a stream of HTTP/2 that waits for its answer (the server has acknowledged the client's settings, so
its bytes are the last), a download between two segments, and a subscriber that waits for the next message are the same to the kernel, with
TLS or without. Epitaph does not read payload. Each is `undecided`: not `quiet`, and not a loss either. The severity is info; no Event and
no alert follows. A request that came within three ticks of the last answer is `undecided`, too, because clients of HTTP/2
acknowledge an answer within that time. Where such a client does so later (it is far away, or has no CPU time), its idle connection counts as
cut, although nothing is lost. The test therefore gives its clients of `idle-large` real-time priority.

Bytes that come after the server's close are reset by the kernel. If the client had not yet acknowledged the close, they were on their way,
and count as reset. Otherwise they are undecided: clients of TLS and of HTTP/2 send a closing message (close_notify, GOAWAY). A
client's closing message that arrives after the server's closing message and before the server's close counts as reset,
although nothing is lost. This happens in about one run of twelve, to one connection. The test allows it for protocols with such a message,
three times in a run.

On kernels before 6.10, resets without a full socket (after TIME_WAIT, or for a close that overtook the handshake) are reported by programs
at two functions of the kernel. Where the kernel refuses these programs, such a reset is not counted, and the traffic is `unknown` where a
listener closed ([limits.md](limits/kernels.md#kernels-before-610)). All else is the same on every kernel.

A server that finishes its requests and closes its connections leaves few or none. Some stay undecided although nothing is
lost. Most often an HTTP/1.1 server without requests in flight, with TLS or without, closes its idle connections with close(2) and exits at once.
A long answer that was just finished can be another (the row above). A runtime that closes
all connections because the program returns from main looks the same to the kernel, although it may lose requests.

Of the 120 requests and streams that the table's clients lost, 48 are counted. Bytes that the server had written and the kernel had not
sent count only in the row of SO_LINGER 0 above: in this table they decide nothing, because each server exits, or closes with close(2) or
shutdown(2), and the kernel then still sends what is in the queue. A queue that stayed full until then would prove a cut answer, but the kernel's
mark for it (SOCK_NOSPACE) does not: poll(2) sets the same mark for a server that had written its whole answer.

The table is written by `tests/tests/traffic`: real servers with three clients each, one connection a client. The clients log what they
lose: a request without its whole answer, or a stream that was not ended. *Counted* (refused, reset and cut) is never more than
*lost*, except for early closing messages (above), and *lost* never more than *counted* and *undecided* together. The column *At most* is the test's limit for *undecided* in each run.
Connections: `idle` after an answered request, `idle-large` after an answer of 1 MiB; `first` request unanswered; `next` request
unanswered, sent 50 ms after the previous answer; `at-once` the same, sent immediately after the previous answer; `stream` with the first
message read, the next awaited; `download` under way; `websocket` waiting for a message; `websocket-slow` waiting for an answer. Ends:
`exit` at once; `close`: the program closes its connections (Go: `Close`, `Stop`; Rust: returns from main), then exits; `graceful`: the
program finishes its requests first (`Shutdown`, `GracefulStop`).

The other servers are Debian's packages. nginx, Apache httpd and HAProxy are proxies of the Go server. Redis: `next` and `at-once` are BLPOP,
`stream` is SUBSCRIBE. PostgreSQL: `next` and `at-once` are a query of 30 seconds; an error that the server reports is an answer. These
servers end by the stop signal; PostgreSQL waits for its clients at SIGTERM, until SIGKILL 8 seconds later.

| Server | Protocol | Connections | End | Lost | Counted | Undecided | At most | Verdict |
|---|---|---|---|---|---|---|---|---|
";

const NEXT: &str = "
Next: [why a rollout gives 502](start/rollout-502.md), or [clients that are not counted](limits/clients.md).
";

/// Compares, or writes the page with `UPDATE_EXPECT=1`.
pub fn check<'a>(played: impl Iterator<Item = (&'a Case, &'a Outcome)>) -> anyhow::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/traffic.md");
    let played: Vec<_> = played.collect();
    #[expect(clippy::disallowed_methods, reason = "as in expect-test")]
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let mut text = HEAD.to_owned();
        ensure!(
            played.len() == CASES.len(),
            "the page needs every program: `cargo xtask test` installs them"
        );
        for (case, outcome) in played {
            writeln!(
                text,
                "{} {} | {} | {} | {} | {} |",
                start(case),
                outcome.lost,
                outcome.counted,
                outcome.undecided,
                case.undecided,
                outcome.verdict
            )?;
        }
        text.push_str(NEXT);
        return fs::write(&path, text).with_context(|| format!("writing {}", path.display()));
    }
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let rows = text
        .strip_prefix(HEAD)
        .and_then(|rows| rows.strip_suffix(NEXT))
        .context("docs/traffic.md has another text; write it with UPDATE_EXPECT=1")?;
    let rows: Vec<&str> = rows.lines().collect();
    let is_of = |row: &str, case: &Case| {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        row.starts_with(&start(case)) && columns.get(8) == Some(&case.undecided.to_string().as_str())
    };
    let same = rows.len() == CASES.len() && rows.iter().zip(CASES).all(|(row, case)| is_of(row, case));
    ensure!(same, "docs/traffic.md has other cases; write it with UPDATE_EXPECT=1");
    Ok(())
}

fn start(case: &Case) -> String {
    let server = case.server.name();
    let protocol = match case.protocol {
        "http" => "HTTP/1.1",
        "https12" => "HTTP/1.1, TLS 1.2",
        "https13" => "HTTP/1.1, TLS 1.3",
        "h2c" => "HTTP/2",
        "h2" => "HTTP/2, TLS 1.3",
        "grpc" => "gRPC",
        "redis" => "Redis",
        "postgres" => "PostgreSQL",
        other => other,
    };
    format!("| {server} | {protocol} | {} | {} |", case.usage, case.way)
}
