//! The program that terminates: a server of HTTP/1.1 in one thread around one poll(2). It logs its own life to a FIFO, a line for
//! each event, and above all `exiting` right before every exit of its own: without that line, it was ended.

mod connection;

use std::fs::File;
use std::io::{ErrorKind, PipeReader, Read as _, Result, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use connection::Connection;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use crate::handling;
use crate::history::{Closes, Eater, Handling, Pool, Program, Reaction};
use crate::pool::Workers;
use crate::sockets::{Address, Listener};
use crate::sys::{boot_now, eat};
use crate::udp::Datagrams;

/// The program's whole order, in the file `program.json` of the history's directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub program: Program,
    /// The signals that ask it to stop.
    pub signals: Vec<i32>,
    pub listen: Address,
    /// A second address.
    pub also: Option<Address>,
    pub end: Option<End>,
}

/// What it does once the file `go` is in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    Exit,
    Fault,
    /// Memory is taken until the kernel kills for it.
    Eat(Eater),
}

/// A line of the log.
#[derive(Debug, Deserialize)]
pub struct Line {
    /// `CLOCK_BOOTTIME`, nanoseconds, by the process that wrote it.
    pub at: u64,
    #[serde(flatten)]
    pub event: Event,
}

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
    Signal {
        signal: i32,
    },
    /// Its handler raises the signal again.
    Raising,
    /// It closed its listener.
    Closed,
    Exiting {
        code: i32,
        unanswered: usize,
    },
    Crashing,
    /// It takes memory, more than there is.
    Eating,
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
/// When a late handler is installed, after the start, or an early one changed.
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
    let (mut listener, mut datagrams) = (None, None);
    let serves = !matches!(order.program.pool, Pool::Serving { .. });
    if !serves {
        (listener, datagrams) = bind(&order.listen)?;
    }
    let pool = Workers::fork(&order, directory, listener.as_ref(), &log)?;
    let is_late = order.program.handling == Handling::LateHandler;
    let signals = match is_late {
        true => None,
        false => handling::install(&order.program, &order.signals, Some(&log))?,
    };
    let mut second = None;
    if serves {
        (listener, datagrams) = bind(&order.listen)?;
        if let Some(also) = &order.also {
            let more = bind(also)?;
            second = more.0;
            datagrams = more.1.or(datagrams);
        }
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
        change_at: Some(boot_now() + LATE_NS),
        part: if serves { Part::Whole } else { Part::Master },
        read: Vec::new(),
        phase: Phase::Serving,
        listener,
        second,
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

fn bind(to: &Address) -> Result<(Option<Listener>, Option<Datagrams>)> {
    Ok(match to {
        Address::Tcp(address) => {
            let tcp = TcpListener::bind(address)?;
            tcp.set_nonblocking(true)?;
            (Some(Listener::Tcp(tcp)), None)
        }
        Address::Unix(path) => {
            // Of an earlier life.
            let _ = std::fs::remove_file(path);
            let unix = UnixListener::bind(path)?;
            unix.set_nonblocking(true)?;
            (Some(Listener::Unix(unix)), None)
        }
        Address::Udp(address) => (None, Some(Datagrams::new(UdpSocket::bind(address)?)?)),
    })
}

/// The `number`th process of a pool that serves from `listener`, until its signal, or until `open` is closed.
///
/// # Errors
/// A socket fails in a way that is in no history.
pub fn serve_for(order: &Order, listener: Listener, number: u8, open: PipeReader, mut log: File) -> Result<()> {
    let Pool::Serving { drains, .. } = order.program.pool else {
        return Err(ErrorKind::InvalidInput.into());
    };
    let program = Program {
        handling: if drains { Handling::Handler } else { Handling::Default },
        reaction: Reaction::Graceful,
        pool: Pool::None,
        ..order.program
    };
    // The log of signals is the program's own.
    let signals = handling::install(&program, &order.signals, None)?;
    say(
        &mut log,
        &Event::Worker {
            number,
            does: Doing::Nothing,
        },
    )?;
    let mut worker = Server {
        order: Order {
            program,
            end: None,
            ..order.clone()
        },
        directory: PathBuf::new(),
        log,
        signals,
        install_at: None,
        change_at: None,
        part: Part::Worker {
            number,
            open,
            in_job: false,
        },
        read: Vec::new(),
        phase: Phase::Serving,
        listener: Some(listener),
        second: None,
        datagrams: None,
        pool: Workers::default(),
        connections: Vec::new(),
    };
    loop {
        worker.turn()?;
    }
}

/// Appends `event` in one write.
///
/// # Errors
/// The reader is gone.
pub fn say(log: &mut File, event: &Event) -> Result<()> {
    #[derive(Serialize)]
    struct Said<'a> {
        at: u64,
        #[serde(flatten)]
        event: &'a Event,
    }
    let mut line = serde_json::to_string(&Said { at: boot_now(), event })?;
    line.push('\n');
    log.write_all(line.as_bytes())
}

/// Whether the history has come to `end`. Once only: the next life of a supervised program goes on.
pub fn is_time(directory: &Path, end: End) -> bool {
    match end {
        End::Eat(Eater::Worker) => false,
        _ => std::fs::remove_file(directory.join(GO)).is_ok(),
    }
}

pub fn is_readable(pipe: &PipeReader) -> bool {
    let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Serves until then, and finishes.
    Until(u64),
    /// No listener any more; answers what it has read.
    Finishing,
}

/// What a process of the program is.
enum Part {
    /// All of it.
    Whole,
    /// Its pool serves.
    Master,
    /// One of a pool that serves.
    Worker { number: u8, open: PipeReader, in_job: bool },
}

struct Server {
    order: Order,
    directory: PathBuf,
    log: File,
    /// A byte for each signal that was read: its number.
    signals: Option<PipeReader>,
    /// When a late handler is.
    install_at: Option<u64>,
    /// When an early one is changed, by [`handling::change`].
    change_at: Option<u64>,
    part: Part,
    /// The signals that it read.
    read: Vec<i32>,
    phase: Phase,
    listener: Option<Listener>,
    /// At the second address.
    second: Option<Listener>,
    datagrams: Option<Datagrams>,
    pool: Workers,
    connections: Vec<Connection>,
}

impl Server {
    /// One loop iteration; the exit code once the program has finished.
    fn turn(&mut self) -> Result<Option<i32>> {
        self.wait()?;
        if self.install_at.is_some_and(|at| boot_now() >= at) {
            self.install_at = None;
            self.signals = handling::install(&self.order.program, &self.order.signals, Some(&self.log))?;
        }
        if self.change_at.is_some_and(|at| boot_now() >= at) {
            self.change_at = None;
            handling::change(self.order.program.handling, &self.order.signals)?;
        }
        if self.read_signals()? && self.react()? {
            return Ok(Some(self.exit()?));
        }
        if let Some(end) = self.order.end
            && is_time(&self.directory, end)
        {
            match end {
                End::Exit => return Ok(Some(self.exit()?)),
                End::Fault => {
                    say(&mut self.log, &Event::Crashing)?;
                    handling::fault();
                }
                End::Eat(_) => {
                    say(&mut self.log, &Event::Eating)?;
                    eat();
                }
            }
        }
        if let Part::Worker { open, .. } = &self.part
            && is_readable(open)
        {
            self.finish()?;
        }
        self.accept()?;
        for connection in &mut self.connections {
            connection.turn()?;
        }
        self.connections.retain(|connection| !connection.is_over());
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.turn(self.phase != Phase::Finishing)?;
        }
        if matches!(self.phase, Phase::Until(at) if boot_now() >= at) {
            self.finish()?;
        }
        self.say_job()?;
        if self.phase == Phase::Finishing && self.unanswered() == 0 {
            return Ok(Some(self.close_and_exit()?));
        }
        Ok(None)
    }

    /// A job of a pool's process is a request that it has read.
    fn say_job(&mut self) -> Result<()> {
        let has_job = self.unanswered() > 0;
        if let Part::Worker { number, in_job, .. } = &mut self.part
            && *in_job != has_job
        {
            *in_job = has_job;
            let does = if has_job { Doing::Job } else { Doing::Nothing };
            say(&mut self.log, &Event::Worker { number: *number, does })?;
        }
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        let mut fds = Vec::new();
        fds.extend(
            self.datagrams
                .iter()
                .map(|datagrams| PollFd::new(datagrams.as_fd(), PollFlags::POLLIN)),
        );
        fds.extend(self.signals.iter().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
        // What the pool accepts does not wake the master.
        fds.extend(
            self.listener
                .iter()
                .chain(&self.second)
                .filter(|_| !matches!(self.part, Part::Master))
                .map(|listener| PollFd::new(listener.as_fd(), PollFlags::POLLIN)),
        );
        fds.extend(self.connections.iter().map(|c| PollFd::new(c.as_fd(), PollFlags::POLLIN)));
        match poll(&mut fds, PollTimeout::from(LOOK_MS)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether a signal was read. A signal that arrives twice before the next round is two.
    fn read_signals(&mut self) -> Result<bool> {
        let Some(pipe) = &mut self.signals else { return Ok(false) };
        if !is_readable(pipe) {
            return Ok(false);
        }
        let mut bytes = [0; 64];
        let read = pipe.read(&mut bytes)?;
        self.read.extend(bytes[..read].iter().copied().map(i32::from));
        // In a handler, the handler itself logs: what follows may be its last instruction.
        if !handling::logs_itself(self.order.program.handling) {
            for signal in bytes[..read].iter().copied().map(i32::from) {
                say(&mut self.log, &Event::Signal { signal })?;
            }
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
            Reaction::Second if self.read.len() < 2 => {}
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
        (self.listener, self.second) = (None, None);
        if !matches!(self.part, Part::Worker { .. }) {
            say(&mut self.log, &Event::Closed)?;
        }
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
                    let _ = connection.end();
                }
            }
        }
        self.exit()
    }

    fn exit(&mut self) -> Result<i32> {
        if let Part::Worker { number, .. } = self.part {
            say(
                &mut self.log,
                &Event::Worker {
                    number,
                    does: Doing::Leaves,
                },
            )?;
            std::process::exit(0);
        }
        let code = self.order.program.code;
        self.pool.finish()?;
        let unanswered = self.unanswered();
        let raised = self
            .read
            .first()
            .filter(|_| self.order.program.reaction == Reaction::ReRaiseAfter);
        // PID 1 survives the second signal: by docs/verdicts.md the code with which it exits then does not count.
        let shown = raised.map_or(code, |signal| 128 + signal);
        say(&mut self.log, &Event::Exiting { code: shown, unanswered })?;
        if let Some(signal) = raised {
            handling::raise_again(*signal)?;
        }
        // With the sockets open, as exit(3) does it: a return would close them one by one.
        std::process::exit(code);
    }

    /// Requests that were read.
    fn unanswered(&self) -> usize {
        let datagrams = self.datagrams.as_ref().map_or(0, Datagrams::unanswered);
        datagrams + self.connections.iter().filter(|connection| connection.is_due()).count()
    }

    /// The pool's listener is not the master's.
    fn accept(&mut self) -> Result<()> {
        for listener in self
            .listener
            .iter()
            .chain(&self.second)
            .filter(|_| !matches!(self.part, Part::Master))
        {
            loop {
                match listener.accept() {
                    Ok(stream) => self.connections.push(Connection::new(stream)),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }
}
