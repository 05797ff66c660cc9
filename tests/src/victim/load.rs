//! Clients of an HTTP server, each asking, waiting for the answer, pausing, and asking again; and their own log of what came of it.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep, spawn};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{handle, known, next, option};
use crate::sys::{boot_now, wall_offset};

/// Failures that are listed; the rest is only counted.
const LISTED: usize = 20_000;
/// Most unexpected errors of one client that are named.
const NAMED: usize = 3;

/// What all clients saw: one JSON object on stdout, at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Whole answers with status 200.
    pub ok: u64,
    /// Whole answers with status 503.
    pub unavailable: u64,
    /// ECONNREFUSED at connect.
    pub refused: u64,
    /// ECONNRESET or EPIPE, at any time before the whole answer.
    pub reset: u64,
    /// The end of the connection before the whole answer.
    pub cut: u64,
    /// EHOSTUNREACH, ENETUNREACH, EACCES.
    pub unreachable: u64,
    pub timeout: u64,
    pub other: u64,
    /// What the first of those were.
    #[serde(default)]
    pub others: Vec<String>,
    /// Kept connections that were found closed before asking again: no loss.
    pub found_closed: u64,
    /// Each request without a complete answer, in order of time.
    pub failures: Vec<Failure>,
    /// `CLOCK_REALTIME` minus `CLOCK_BOOTTIME`, nanoseconds.
    pub wall_offset: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// `CLOCK_BOOTTIME` nanoseconds: when it was known.
    pub at: u64,
    pub what: What,
    /// On a connection that had answered before.
    pub kept: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Refused,
    Reset,
    Cut,
    Unreachable,
    Timeout,
    Other,
}

static OVER: AtomicBool = AtomicBool::new(false);
/// A client got its answer.
static ANSWERED: AtomicBool = AtomicBool::new(false);

/// Sends requests until SIGTERM, until stdin closes (`--until-stdin-closes`), or for so long (`--for-ms=N`); then no client
/// sends a new request, and a client that waits for an answer still gets it. With `--until-stdin-closes` a line of totals comes
/// first, at the first answer: whoever started the load waits for that. The exit code.
///
/// `--cgroup=DIR` moves there first, to be taken for another process's client.
///
/// Options: `--clients=N` (8), `--pause-ms=N` between an answer and the next request (20), `--keep-alive`, `--path=P` (`/`),
/// `--timeout-ms=N` of a connect and of an answer (10000).
///
/// # Errors
/// An unknown option, or a name that is not resolved.
pub fn load(address: &str, options: &[&str]) -> Result<i32> {
    let names = [
        "--clients",
        "--pause-ms",
        "--keep-alive",
        "--path",
        "--timeout-ms",
        "--until-stdin-closes",
        "--for-ms",
        "--cgroup",
    ];
    known(options, &names)?;
    if let Some(cgroup) = options.iter().find_map(|option| option.strip_prefix("--cgroup=")) {
        std::fs::write(format!("{cgroup}/cgroup.procs"), "0")?;
    }
    let mut handled = handle()?;
    let asker = Asker {
        address: address
            .to_socket_addrs()?
            .next()
            .ok_or_else(|| Error::other(format!("`{address}` is not an address")))?,
        host: address.to_owned(),
        path: option(options, "--path", "/".to_owned())?,
        keep: options.contains(&"--keep-alive"),
        pause: Duration::from_millis(option(options, "--pause-ms", 20)?),
        timeout: Duration::from_millis(option(options, "--timeout-ms", 10_000)?),
        announces: options.contains(&"--until-stdin-closes"),
    };
    let end = boot_now() + option(options, "--for-ms", u64::MAX >> 22)? * 1_000_000;
    let clients: u64 = option(options, "--clients", 8)?;
    spawn(move || {
        let _ = next(&mut handled);
        OVER.store(true, Ordering::Relaxed);
    });
    if asker.announces {
        spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            OVER.store(true, Ordering::Relaxed);
        });
    }
    let mut totals = Totals::default();
    scope(|scope| {
        let asked: Vec<_> = (0..clients)
            .map(|i| {
                let asker = &asker;
                scope.spawn(move || {
                    // Not all in step.
                    let first = asker.pause * u32::try_from(i).unwrap_or(0) / u32::try_from(clients).unwrap_or(1);
                    asker.ask_on(first, end)
                })
            })
            .collect();
        for log in asked.into_iter().filter_map(|client| client.join().ok()) {
            totals.add(log);
        }
    });
    totals.failures.sort_by_key(|failure| failure.at);
    totals.failures.truncate(LISTED);
    totals.wall_offset = wall_offset();
    totals.print()?;
    Ok(0)
}

struct Asker {
    address: SocketAddr,
    host: String,
    path: String,
    keep: bool,
    pause: Duration,
    timeout: Duration,
    /// The first answer is printed.
    announces: bool,
}

impl Asker {
    fn ask_on(&self, first: Duration, end: u64) -> Totals {
        let mut totals = Totals::default();
        let mut kept: Option<BufReader<TcpStream>> = None;
        let mut pause = first;
        loop {
            // The subject is time: the period.
            sleep(pause);
            pause = self.pause;
            if OVER.load(Ordering::Relaxed) || boot_now() >= end {
                return totals;
            }
            let usable = kept.take().filter(|stream| {
                let open = is_open(stream);
                totals.found_closed += u64::from(!open);
                open
            });
            let was_kept = usable.is_some();
            match self.ask(usable) {
                Ok((status, stream)) => {
                    totals.answered(status);
                    kept = stream;
                    if self.announces && totals.ok > 0 && !ANSWERED.swap(true, Ordering::Relaxed) {
                        // Who does not read it learns the same from the totals.
                        let _ = totals.print();
                    }
                }
                Err(error) => totals.failed(&error, was_kept),
            }
        }
    }

    /// Status of the answer, and the connection where it stays.
    fn ask(&self, kept: Option<BufReader<TcpStream>>) -> Result<(u16, Option<BufReader<TcpStream>>)> {
        let mut stream = match kept {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect_timeout(&self.address, self.timeout)?;
                stream.set_read_timeout(Some(self.timeout))?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        let connection = if self.keep { "keep-alive" } else { "close" };
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: {connection}\r\n\r\n",
            self.path, self.host
        );
        stream.get_mut().write_all(request.as_bytes())?;
        let (mut status, mut length, mut stays) = (None, 0, self.keep);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            match (status, line.split_once(": ")) {
                (None, _) => status = Some(line.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0)),
                (Some(_), Some(("content-length", n))) => length = n.parse().map_err(Error::other)?,
                (Some(_), Some(("connection", "close"))) => stays = false,
                (Some(status), None) if line.is_empty() => {
                    let mut body = vec![0; length];
                    stream.read_exact(&mut body)?;
                    return Ok((status, stays.then_some(stream)));
                }
                _ => {}
            }
        }
    }
}

/// What a careful client looks at before it asks again.
fn is_open(stream: &BufReader<TcpStream>) -> bool {
    let stream = stream.get_ref();
    let mut byte = [0];
    let _ = stream.set_nonblocking(true);
    let would_block = matches!(stream.peek(&mut byte), Err(e) if e.kind() == ErrorKind::WouldBlock);
    let _ = stream.set_nonblocking(false);
    would_block
}

impl Totals {
    fn answered(&mut self, status: u16) {
        match status {
            200 => self.ok += 1,
            503 => self.unavailable += 1,
            _ => self.other += 1,
        }
    }

    fn failed(&mut self, error: &Error, kept: bool) {
        let (what, count) = match error.kind() {
            ErrorKind::ConnectionRefused => (What::Refused, &mut self.refused),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => (What::Reset, &mut self.reset),
            ErrorKind::UnexpectedEof => (What::Cut, &mut self.cut),
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::PermissionDenied => {
                (What::Unreachable, &mut self.unreachable)
            }
            ErrorKind::TimedOut | ErrorKind::WouldBlock => (What::Timeout, &mut self.timeout),
            _ => {
                if self.others.len() < NAMED {
                    self.others.push(error.to_string());
                }
                (What::Other, &mut self.other)
            }
        };
        *count += 1;
        if self.failures.len() < LISTED {
            self.failures.push(Failure {
                at: boot_now(),
                what,
                kept,
            });
        }
    }

    /// Requests lost in the ways that the kernel can see.
    pub fn lost(&self) -> u64 {
        self.refused + self.reset + self.cut
    }

    /// The same until a time since the epoch: refused, reset, cut.
    pub fn lost_before(&self, until: Duration) -> [u64; 3] {
        let is_before = |failure: &&Failure| {
            let at = i128::from(failure.at) + i128::from(self.wall_offset);
            at <= i128::try_from(until.as_nanos()).unwrap_or(i128::MAX)
        };
        [What::Refused, What::Reset, What::Cut].map(|what| {
            let of_it = self.failures.iter().filter(is_before).filter(|failure| failure.what == what);
            of_it.count() as u64
        })
    }

    /// Whether there was a load, and this was the worst that came of it, by the clients' own account.
    pub fn is_as_told(&self, traffic: &str) -> bool {
        let others = self.unavailable + self.unreachable + self.timeout + self.other;
        let worst = match traffic {
            "quiet" => self.lost() == 0,
            "refused" => self.refused > 0,
            "cut" => self.cut > 0,
            _ => false,
        };
        self.ok > 0 && others == 0 && worst
    }

    fn print(&self) -> Result<()> {
        writeln!(std::io::stdout(), "{}", serde_json::to_string(self)?)
    }

    fn add(&mut self, other: Totals) {
        for (to, from) in [
            (&mut self.ok, other.ok),
            (&mut self.unavailable, other.unavailable),
            (&mut self.refused, other.refused),
            (&mut self.reset, other.reset),
            (&mut self.cut, other.cut),
            (&mut self.unreachable, other.unreachable),
            (&mut self.timeout, other.timeout),
            (&mut self.other, other.other),
            (&mut self.found_closed, other.found_closed),
        ] {
            *to += from;
        }
        self.others.extend(other.others);
        self.failures.extend(other.failures);
    }
}
