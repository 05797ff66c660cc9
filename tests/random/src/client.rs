//! The clients of one history: a process in the server's network, outside of its cgroup, a thread for each client. Each attempt is
//! a line: what the client wanted, and what became of it.

use std::fs::File;
use std::io::{BufRead as _, ErrorKind, Read as _, Result, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use serde::{Deserialize, Serialize};

use crate::history::Client;
use crate::sockets::{Address, Stream};
use crate::sys::{boot_now, emit};
use crate::udp;

/// The server's network, and what to do there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// A process in the network namespace.
    pub network_of: u32,
    /// One client after the other has one of these.
    pub servers: Vec<Address>,
    pub clients: Vec<Client>,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The client is where its part begins: it has its first answer, or an open connection.
    Settled {
        client: usize,
    },
    Attempt(Attempt),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub client: usize,
    /// Of the client's socket; 0 if it never connected.
    pub port: u16,
    /// `CLOCK_BOOTTIME`, nanoseconds.
    pub begin: u64,
    pub end: u64,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Answered,
    Refused,
    /// With a request, or a part of one, under way.
    Reset,
    /// The same, by the server's FIN.
    Cut,
    /// A datagram without an answer.
    Unanswered,
    /// The connection waited for the next request, or had none.
    IdleClosed,
    IdleReset,
    /// The client itself ended it, as all clients do at the end of the history.
    GaveUp,
    /// Some other error: no history has one.
    Failed,
}

/// How often a waiting client looks whether the history has ended.
const LOOK: Duration = Duration::from_millis(50);
/// A datagram that is not answered so long after its answer was due is lost.
const UNANSWERED: Duration = Duration::from_millis(250);
/// Longer than any history.
const LONG_MS: u32 = 60_000;

/// Plays `order` until standard input ends.
///
/// # Errors
/// The network cannot be entered.
pub fn main(order: &str) -> Result<i32> {
    let order: Order = serde_json::from_str(order)?;
    // Where the runtime is gone, the history ended before its clients began.
    let Ok(network) = File::open(format!("/proc/{}/ns/net", order.network_of)) else {
        return Ok(0);
    };
    setns(network, CloneFlags::CLONE_NEWNET)?;
    let over = Arc::new(AtomicBool::new(false));
    let players: Vec<_> = order
        .clients
        .iter()
        .enumerate()
        .map(|(index, &client)| {
            let player = Player {
                index,
                server: order.servers[index % order.servers.len()].clone(),
                over: Arc::clone(&over),
                settled: false,
            };
            std::thread::spawn(move || player.play(client))
        })
        .collect();
    for line in std::io::stdin().lock().lines() {
        line?;
    }
    over.store(true, Ordering::Relaxed);
    for player in players {
        let _ = player.join();
    }
    Ok(0)
}

struct Player {
    index: usize,
    server: Address,
    over: Arc<AtomicBool>,
    settled: bool,
}

/// What a client reads next.
enum Heard {
    Answer { is_kept: bool },
    End,
    Reset,
    Nothing,
    Failed,
}

impl Player {
    fn play(mut self, client: Client) {
        if let Address::Udp(server) = self.server {
            return match client {
                Client::Short { every_ms, answer_ms } | Client::KeepAlive { every_ms, answer_ms } => {
                    self.datagrams(server, every_ms, answer_ms);
                }
                _ => self.datagrams(server, 50, 0),
            };
        }
        match client {
            Client::Short { every_ms, answer_ms } => self.short(every_ms, answer_ms),
            Client::KeepAlive { every_ms, answer_ms } => self.keep_alive(every_ms, answer_ms),
            Client::Kept => self.hold(Some(0), &request(0, true)),
            Client::Silent => self.hold(None, ""),
            Client::Long => self.hold(None, &request(LONG_MS, false)),
            Client::Half => self.hold(None, "GET /0 HTTP/1.1\r\nHost:"),
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn settle(&mut self) {
        if !self.settled {
            self.settled = true;
            emit(&Event::Settled { client: self.index });
        }
    }

    fn log(&self, stream: Option<&Stream>, begin: u64, outcome: Outcome) {
        self.log_of(stream.map_or(0, Stream::port), begin, outcome);
    }

    fn log_of(&self, port: u16, begin: u64, outcome: Outcome) {
        emit(&Event::Attempt(Attempt {
            client: self.index,
            port,
            begin,
            end: boot_now(),
            outcome,
        }));
    }

    /// None: refused, and logged.
    fn connect(&self, begin: u64) -> Option<Stream> {
        match Stream::connect(&self.server) {
            Ok(stream) => {
                let _ = stream.set_read_timeout(LOOK);
                Some(stream)
            }
            Err(e) => {
                let outcome = match e.kind() {
                    ErrorKind::ConnectionRefused => Outcome::Refused,
                    // The server's files are gone with the history.
                    ErrorKind::NotFound => Outcome::GaveUp,
                    ErrorKind::ConnectionReset => Outcome::Reset,
                    _ => Outcome::Failed,
                };
                self.log(None, begin, outcome);
                None
            }
        }
    }

    fn datagrams(&mut self, server: SocketAddr, every_ms: u32, answer_ms: u32) {
        while !self.is_over() {
            let begin = boot_now();
            let longest = UNANSWERED + Duration::from_millis(answer_ms.into());
            let (port, outcome) = udp::ask(server, answer_ms, longest);
            self.log_of(port, begin, outcome);
            if outcome == Outcome::Answered {
                self.settle();
            }
            pause(every_ms);
        }
    }

    fn short(&mut self, every_ms: u32, answer_ms: u32) {
        while !self.is_over() {
            let begin = boot_now();
            if let Some(mut stream) = self.connect(begin) {
                let outcome = self.ask(&mut stream, &request(answer_ms, false)).0;
                self.log(Some(&stream), begin, outcome);
                if outcome == Outcome::Answered {
                    self.settle();
                }
            }
            pause(every_ms);
        }
    }

    fn keep_alive(&mut self, every_ms: u32, answer_ms: u32) {
        let mut connection: Option<Stream> = None;
        while !self.is_over() {
            let begin = boot_now();
            // As clients do: a connection that the server has closed meanwhile is not used.
            if let Some(stream) = &mut connection
                && let Some(outcome) = closed_while_idle(stream)
            {
                self.log(Some(stream), begin, outcome);
                connection = None;
            }
            if connection.is_none() {
                connection = self.connect(begin);
            }
            if let Some(stream) = &mut connection {
                let (outcome, is_kept) = self.ask(stream, &request(answer_ms, true));
                self.log(Some(stream), begin, outcome);
                if outcome == Outcome::Answered {
                    self.settle();
                }
                if !is_kept {
                    connection = None;
                }
            }
            pause(every_ms);
        }
    }

    /// Sends `text` and holds the connection open. With `answers`, the request is answered first, and the connection is idle then.
    fn hold(&mut self, answers: Option<u32>, text: &str) {
        let begin = boot_now();
        let Some(mut stream) = self.connect(begin) else { return };
        let is_idle = answers.is_some() || text.is_empty();
        if answers.is_some() {
            let (outcome, is_kept) = self.ask(&mut stream, text);
            self.log(Some(&stream), begin, outcome);
            if !is_kept {
                return;
            }
        } else if stream.write_all(text.as_bytes()).is_err() {
            self.log(Some(&stream), begin, Outcome::Reset);
            return;
        }
        self.settle();
        let begin = boot_now();
        let outcome = loop {
            match listen(&mut stream, &mut Vec::new()) {
                Heard::Nothing if self.is_over() => break Outcome::GaveUp,
                Heard::Nothing => {}
                Heard::Answer { .. } => break Outcome::Answered,
                Heard::End if is_idle => break Outcome::IdleClosed,
                Heard::Reset if is_idle => break Outcome::IdleReset,
                Heard::End => break Outcome::Cut,
                Heard::Reset => break Outcome::Reset,
                Heard::Failed => break Outcome::Failed,
            }
        };
        self.log(Some(&stream), begin, outcome);
    }

    /// One request and what comes of it; whether the connection is kept.
    fn ask(&self, stream: &mut Stream, request: &str) -> (Outcome, bool) {
        if let Err(e) = stream.write_all(request.as_bytes()) {
            let is_reset = matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
            return (if is_reset { Outcome::Reset } else { Outcome::Failed }, false);
        }
        let mut text = Vec::new();
        loop {
            match listen(stream, &mut text) {
                Heard::Answer { is_kept } => return (Outcome::Answered, is_kept),
                Heard::End => return (Outcome::Cut, false),
                Heard::Reset => return (Outcome::Reset, false),
                Heard::Failed => return (Outcome::Failed, false),
                Heard::Nothing if self.is_over() => return (Outcome::GaveUp, false),
                Heard::Nothing => {}
            }
        }
    }
}

/// Between two requests.
fn pause(ms: u32) {
    // The subject is time: the client's pace.
    sleep(Duration::from_millis(ms.into()));
}

fn request(answer_ms: u32, is_kept: bool) -> String {
    let close = if is_kept { "" } else { "Connection: close\r\n" };
    format!("GET /{answer_ms} HTTP/1.1\r\nHost: a\r\n{close}\r\n")
}

/// Reads into `text` until an answer is whole.
fn listen(stream: &mut Stream, text: &mut Vec<u8>) -> Heard {
    let mut bytes = [0; 2048];
    match stream.read(&mut bytes) {
        Ok(0) => Heard::End,
        Ok(count) => {
            text.extend_from_slice(&bytes[..count]);
            if text.ends_with(b"\r\n\r\nok") {
                let is_kept = !String::from_utf8_lossy(text).contains("Connection: close");
                return Heard::Answer { is_kept };
            }
            Heard::Nothing
        }
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => Heard::Nothing,
        Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => Heard::Reset,
        Err(_) => Heard::Failed,
    }
}

/// How the server ended a connection that waits for the next request; None: it has not.
fn closed_while_idle(stream: &mut Stream) -> Option<Outcome> {
    let _ = stream.set_nonblocking(true);
    let heard = listen(stream, &mut Vec::new());
    let _ = stream.set_nonblocking(false);
    match heard {
        Heard::End => Some(Outcome::IdleClosed),
        Heard::Reset => Some(Outcome::IdleReset),
        Heard::Failed => Some(Outcome::Failed),
        Heard::Nothing | Heard::Answer { .. } => None,
    }
}
