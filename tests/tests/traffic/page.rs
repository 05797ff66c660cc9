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

When a server exits, the kernel knows three things about each open connection of the server: which side sent the last bytes, how many bytes
these were, and whether the other side has acknowledged them. This proves some losses, but not all of them:

| State of the connection at the exit, or when the server closes it as a part of the exit | Counts as |
|---|---|
| the client has sent bytes, and the server has sent none | cut |
| the client sent the last bytes, more than three ticks of the kernel (3 to 30 ms) after the server's last bytes | cut |
| the server had not read all bytes of the client, or bytes came after the server's close | reset |
| the connection was in the accept queue when the listener closed | reset. If the client had closed first: undecided if the client had sent bytes, otherwise no loss |
| the server aborted the connection (SO_LINGER 0) after reading all bytes, and some bytes that the server had written were not sent yet | reset; undecided if the client had closed first |
| the server aborted the connection (SO_LINGER 0) after reading all bytes, and the server sent the last bytes | undecided |
| neither side has ever sent a byte | no loss (idle). Undecided if the connection was established at most a second earlier, because the client may wait for the server's greeting |
| the client had closed first, and had got its answer or had never sent a byte | no loss |
| the client's socket is in the same container (a gateway that connects to its own listener) | not a client |
| the server closed the connection with shutdown(2), or within a tick after its last bytes, or continued to serve for a long time after the close | no loss |
| the server closed the connection in one of the ways of the row above, but possibly in the middle of a long answer. Either more than 64 KiB were unacknowledged. Or the server had sent more than 16 KiB per data segment of the client, the server's last bytes came more than 0.1 s after the client's, and these last bytes were unacknowledged or, without shutdown(2), were sent at most a second before the close | undecided |
| 2 s after the exit the client has not acknowledged the server's close, because the client or the network to it is gone | undecided, for any kind of close |
| any other state; in most of these states the server sent the last bytes | undecided |

Four kinds of connections look the same to the kernel, with TLS or without: an idle keep-alive connection of HTTP/1.1; a stream of HTTP/2
that waits for its answer (the server sent the last bytes, because it acknowledged the client's settings); a download between two segments;
and a subscriber that waits for the next message. Epitaph does not read payload, so each of them is `undecided`: not `quiet`, and not a loss
either. The severity is info; no Event and no alert follows. A request that came within three ticks after the last answer is `undecided`,
too, because clients of HTTP/2 acknowledge an answer within that time. If such a client acknowledges later (it is far away, or has no CPU
time), its idle connection counts as cut, although nothing is lost. The test therefore gives its clients of `idle-large` real-time priority.

If bytes of the client arrive after the server's close, the kernel resets the connection. If the client had not yet acknowledged the close,
its bytes were already on their way, and the connection counts as reset. If the client had acknowledged the close, the connection is
undecided, because clients of TLS and of HTTP/2 then send a closing message (close_notify, GOAWAY). If a client's closing message arrives
after the server's closing message and before the server's close, the connection counts as reset, although nothing is lost. This happens
to one connection in about one run of twelve. The test allows it three times in a run, for protocols with such a message.

On kernels before 6.10, Epitaph needs eBPF programs at two functions of the kernel to see resets without a full socket (after TIME_WAIT, or
for a close that overtook the handshake). If the kernel refuses these programs, such resets are not counted, and the traffic is `unknown` if
a listener closed ([limits.md](limits/kernels.md#kernels-before-610)). Everything else on this page is the same on every kernel.

A server that finishes its requests and closes its connections leaves few or no undecided connections. Some connections stay undecided
although nothing is lost. Most often the reason is an HTTP/1.1 server without requests in flight (with TLS or without) that closes its idle
connections with close(2) and exits at once. Another reason can be a long answer that was just finished (see the table). To the kernel, a
runtime that closes all connections because the program returns from main looks the same, although this runtime may lose requests.

Of the 120 requests and streams that the table's clients lost, 48 are counted. Bytes that the server had written and the kernel had not
sent count only in the row of SO_LINGER 0 above: in this table they decide nothing, because each server exits, or closes with close(2) or
shutdown(2), and the kernel then still sends what is in the queue. A queue that stayed full until then would prove a cut answer, but the kernel's
mark for it (SOCK_NOSPACE) does not: poll(2) sets the same mark for a server that had written its whole answer.

The test `tests/tests/traffic` writes the table below. It runs real servers with three clients each; each client has one connection. The
clients log what they lose: a request without its whole answer, or a stream that was not ended.

The columns with numbers: *Lost* is what the clients logged. *Counted* (refused, reset and cut) is never more than *Lost*, except for early
closing messages (see above). *Lost* is never more than *Counted* and *Undecided* together. *At most* is the test's limit for *Undecided* in
each run.

The column *Connections* says what the clients' connections do at the exit:

- `idle`: the request was answered; `idle-large`: it was answered with 1 MiB.
- `first`: the first request has no answer yet.
- `next`: a later request, sent 50 ms after the previous answer, has no answer yet; `at-once`: it was sent immediately after that answer.
- `stream`: the client has read the first message and waits for the next one.
- `download`: a download is under way.
- `websocket`: the client waits for a message; `websocket-slow`: the client waits for an answer.

The column *End* says how the server ends: `exit`: it exits at once; `close`: the program closes its connections (Go: `Close`, `Stop`; Rust:
returns from main), then exits; `graceful`: the program finishes its requests first (`Shutdown`, `GracefulStop`).

The servers other than Go's and Rust's are Debian's packages, and end by the stop signal. nginx, Apache httpd and HAProxy are proxies of the
Go server. For Redis, `next` and `at-once` are BLPOP, and `stream` is SUBSCRIBE. For PostgreSQL, `next` and `at-once` are a query of 30
seconds; an error that the server reports counts as an answer. At SIGTERM PostgreSQL waits for its clients, until SIGKILL 8 seconds later.

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
