//! The program that terminates: a server of HTTP/1.1 in one thread around one poll(2). It logs its own life to a FIFO, a line for
//! each event, and above all `exiting` right before every exit of its own: without that line, it was ended.

use std::fs::File;
use std::io::{Error, ErrorKind, PipeReader, Read as _, Result, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use crate::handling;
use crate::history::{Closes, Handling, Program, Reaction};
use crate::pool::Workers;
use crate::sockets::{Address, Listener, Stream};
use crate::sys::boot_now;
use crate::udp::Datagrams;

/// The program's whole order, in the file `program.json` of the history's directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub program: Program,
    /// The signals that ask it to stop.
    pub signals: Vec<i32>,
    pub listen: Address,
    pub end: Option<End>,
}

/// What it does once the file `go` is in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    Exit,
    Fault,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A life begins.
    Starting,
    /// The listener is open. `pid` is the host's number.
    Listening {
        pid: u32,
    },
    /// It read a stop signal, or its handler was entered.
    Signal,
    /// It closed its listener.
    Closed,
    Exiting {
        code: i32,
        unanswered: usize,
    },
    Crashing,
    /// A process of the pool, by its number.
    Worker {
        number: u8,
        does: Doing,
    },
    /// Something that is in no history.
    Failed {
        what: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doing {
    Job,
    Nothing,
    /// It has finished, and exits.
    Leaves,
}

pub const LOG: &str = "log";
pub const ORDER: &str = "program.json";
pub const GO: &str = "go";
/// There once it listens.
pub const READY: &str = "ready";

/// How often it looks for the file `go`.
const LOOK_MS: u16 = 10;
/// When a late handler is installed, after the start.
const LATE_NS: u64 = 100_000_000;

/// Plays what `directory` orders; the exit code.
///
/// # Errors
/// The order cannot be read, the address cannot be bound, or a socket fails in a way that is in no history. The log has it, too.
pub fn main(directory: &Path) -> Result<i32> {
    let mut log = File::options().append(true).open(directory.join(LOG))?;
    let result = serve(directory, log.try_clone()?);
    if let Err(e) = &result {
        say(&mut log, &Event::Failed { what: e.to_string() })?;
    }
    result
}

fn serve(directory: &Path, mut log: File) -> Result<i32> {
    let order: Order = serde_json::from_reader(File::open(directory.join(ORDER))?)?;
    say(&mut log, &Event::Starting)?;
    let pool = Workers::fork(order.program.pool, &log)?;
    let is_late = order.program.handling == Handling::LateHandler;
    let signals = match is_late {
        true => None,
        false => handling::install(&order.program, &order.signals, &log)?,
    };
    let (mut listener, mut datagrams) = (None, None);
    match &order.listen {
        Address::Tcp(address) => {
            let tcp = TcpListener::bind(address)?;
            tcp.set_nonblocking(true)?;
            listener = Some(Listener::Tcp(tcp));
        }
        Address::Unix(path) => {
            let unix = UnixListener::bind(path)?;
            unix.set_nonblocking(true)?;
            listener = Some(Listener::Unix(unix));
        }
        Address::Udp(address) => datagrams = Some(Datagrams::new(UdpSocket::bind(address)?)?),
    }
    let pid = std::fs::read_link("/proc/self")?.to_string_lossy().parse().unwrap_or(0);
    say(&mut log, &Event::Listening { pid })?;
    File::create(directory.join(READY))?;
    let mut server = Server {
        order,
        directory: directory.to_owned(),
        log,
        signals,
        install_at: is_late.then(|| boot_now() + LATE_NS),
        seen: 0,
        phase: Phase::Serving,
        listener,
        datagrams,
        pool,
        connections: Vec::new(),
    };
    loop {
        if let Some(code) = server.turn()? {
            return Ok(code);
        }
    }
}

/// Appends `event` in one write.
///
/// # Errors
/// The reader is gone.
pub fn say(log: &mut File, event: &Event) -> Result<()> {
    let mut line = serde_json::to_string(event)?;
    line.push('\n');
    log.write_all(line.as_bytes())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Serves until then, and finishes.
    Until(u64),
    /// No listener any more; answers what it has read.
    Finishing,
}

struct Server {
    order: Order,
    directory: PathBuf,
    log: File,
    /// A byte for each signal that was read.
    signals: Option<PipeReader>,
    /// When a late handler is.
    install_at: Option<u64>,
    seen: u32,
    phase: Phase,
    listener: Option<Listener>,
    datagrams: Option<Datagrams>,
    pool: Workers,
    connections: Vec<Connection>,
}

struct Connection {
    stream: Stream,
    read: Vec<u8>,
    /// When the answer to the request in hand is due, and whether the connection is kept after it.
    due: Option<(u64, bool)>,
    /// Answered and half closed: waits for the client's end.
    closing: bool,
    over: bool,
}

impl Server {
    /// One loop iteration; the exit code once the program has finished.
    fn turn(&mut self) -> Result<Option<i32>> {
        self.wait()?;
        if self.install_at.is_some_and(|at| boot_now() >= at) {
            self.install_at = None;
            self.signals = handling::install(&self.order.program, &self.order.signals, &self.log)?;
        }
        if self.read_signals()? && self.react()? {
            return Ok(Some(self.exit()?));
        }
        if self.order.end.is_some() && self.directory.join(GO).exists() {
            if self.order.end == Some(End::Fault) {
                say(&mut self.log, &Event::Crashing)?;
                handling::fault();
            }
            return Ok(Some(self.exit()?));
        }
        self.accept()?;
        for connection in &mut self.connections {
            connection.turn()?;
        }
        self.connections.retain(|connection| !connection.over);
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.turn(self.phase != Phase::Finishing)?;
        }
        if matches!(self.phase, Phase::Until(at) if boot_now() >= at) {
            self.finish()?;
        }
        if self.phase == Phase::Finishing && self.unanswered() == 0 {
            return Ok(Some(self.close_and_exit()?));
        }
        Ok(None)
    }

    fn wait(&self) -> Result<()> {
        let mut fds = Vec::new();
        fds.extend(
            self.datagrams
                .iter()
                .map(|datagrams| PollFd::new(datagrams.as_fd(), PollFlags::POLLIN)),
        );
        fds.extend(self.signals.iter().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
        fds.extend(
            self.listener
                .iter()
                .map(|listener| PollFd::new(listener.as_fd(), PollFlags::POLLIN)),
        );
        fds.extend(
            self.connections
                .iter()
                .map(|c| PollFd::new(c.stream.as_fd(), PollFlags::POLLIN)),
        );
        match poll(&mut fds, PollTimeout::from(LOOK_MS)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether a signal was read. A signal that arrives twice before the next round is two.
    fn read_signals(&mut self) -> Result<bool> {
        let Some(pipe) = &mut self.signals else { return Ok(false) };
        let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        if !matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1)) {
            return Ok(false);
        }
        let mut bytes = [0; 64];
        let read = pipe.read(&mut bytes)?;
        self.seen += u32::try_from(read).unwrap_or(1);
        // In a handler, the handler itself logs: what follows may be its last instruction.
        if !handling::logs_itself(self.order.program.handling) {
            say(&mut self.log, &Event::Signal)?;
        }
        Ok(true)
    }

    /// Whether it exits at once.
    fn react(&mut self) -> Result<bool> {
        match self.order.program.reaction {
            Reaction::AtOnce => return Ok(true),
            Reaction::Slow { ms } if self.phase == Phase::Serving => {
                self.phase = Phase::Until(boot_now() + u64::from(ms) * 1_000_000);
            }
            Reaction::Slow { .. } => {}
            Reaction::Second if self.seen < 2 => {}
            _ => self.finish()?,
        }
        Ok(false)
    }

    fn finish(&mut self) -> Result<()> {
        if self.phase == Phase::Finishing {
            return Ok(());
        }
        if self.order.program.drains {
            self.accept()?;
            if let Some(datagrams) = &mut self.datagrams {
                datagrams.turn(true)?;
            }
        }
        self.phase = Phase::Finishing;
        self.listener = None;
        say(&mut self.log, &Event::Closed)?;
        // What clients have sent by now is read: their requests count.
        for connection in &mut self.connections {
            connection.turn()?;
        }
        Ok(())
    }

    fn close_and_exit(&mut self) -> Result<i32> {
        match self.order.program.closes {
            Closes::Exit => return self.exit(),
            Closes::Close => self.connections.clear(),
            Closes::Shutdown => {
                for connection in self.connections.drain(..) {
                    // A client that has closed is not an error.
                    let _ = connection.stream.end();
                }
            }
        }
        self.exit()
    }

    fn exit(&mut self) -> Result<i32> {
        let code = self.order.program.code;
        self.pool.finish()?;
        let unanswered = self.unanswered();
        say(&mut self.log, &Event::Exiting { code, unanswered })?;
        // With the sockets open, as exit(3) does it: a return would close them one by one.
        std::process::exit(code);
    }

    /// Requests that were read.
    fn unanswered(&self) -> usize {
        let datagrams = self.datagrams.as_ref().map_or(0, Datagrams::unanswered);
        datagrams + self.connections.iter().filter(|connection| connection.due.is_some()).count()
    }

    fn accept(&mut self) -> Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        loop {
            match listener.accept() {
                Ok(stream) => {
                    self.connections.push(Connection {
                        stream,
                        read: Vec::new(),
                        due: None,
                        closing: false,
                        over: false,
                    });
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl Connection {
    fn turn(&mut self) -> Result<()> {
        let mut bytes = [0; 2048];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.over = true,
            Ok(count) => self.read.extend_from_slice(&bytes[..count]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) if is_gone(&e) => self.over = true,
            Err(e) => return Err(e),
        }
        if self.due.is_none()
            && !self.closing
            && let Some(end) = self.read.windows(4).position(|at| at == b"\r\n\r\n")
        {
            let request: Vec<u8> = self.read.drain(..end + 4).collect();
            let request = String::from_utf8_lossy(&request);
            let answer_ms: u64 = request
                .strip_prefix("GET /")
                .and_then(|rest| rest.split(' ').next()?.parse().ok())
                .unwrap_or(0);
            let is_kept = !request.contains("Connection: close");
            self.due = Some((boot_now() + answer_ms * 1_000_000, is_kept));
        }
        if let Some((at, is_kept)) = self.due
            && boot_now() >= at
        {
            self.due = None;
            self.answer(is_kept)?;
        }
        Ok(())
    }

    fn answer(&mut self, is_kept: bool) -> Result<()> {
        let close = if is_kept { "" } else { "Connection: close\r\n" };
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{close}\r\nok");
        match self.stream.write_all(answer.as_bytes()) {
            Err(e) if is_gone(&e) => self.over = true,
            Err(e) => return Err(e),
            Ok(()) if is_kept => {}
            Ok(()) => {
                self.closing = true;
                let _ = self.stream.end();
            }
        }
        Ok(())
    }
}

fn is_gone(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::NotConnected
    )
}
