//! The agent's end of the socket: one role, of one user, read as a stranger.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use epitaph_core::input::Input;
use epitaph_core::node::{BusState, NodeEvent};
use tokio::io::AsyncReadExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::drops::{Drops, LogindDropReason};
use super::error::ListenError;
use super::link::{self, ALIVE};
use super::process;
use super::wire::{self, FrameError, Frames, FromAgent, FromRole};
use crate::bucket::{Bucket, Rate};
use crate::clock;

/// Inputs that wait for the loop. The role waits behind them.
const QUEUE: usize = 64;

/// KiB that the role may write, each begun one counts: some hundred times what a busy node needs. A faster role waits.
const TRAFFIC: Rate = Rate {
    burst: 2_048,
    per_second: 64,
};

/// A role that says nothing for so long is not there.
const SILENCE: Duration = Duration::from_secs(4 * ALIVE.as_secs());

/// Messages that are not the role's, of one connection.
const GARBAGE: u32 = 16;

/// At the start, and between two connections.
const GRACE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);

/// Where the agent listens, and for whom.
#[derive(Debug)]
pub struct AgentOptions {
    /// The socket to make.
    pub socket: PathBuf,
    /// A listening socket that systemd has made already, for the owner of its file. Then neither `socket` nor `uid` counts.
    pub inherited: Option<StdListener>,
    /// The role's user.
    pub uid: u32,
    /// `/proc` of the host.
    pub proc: PathBuf,
}

/// How the events of logind are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// No role is connected.
    Off,
    /// The role has no bus, or no logind on it.
    Unavailable,
    Connected,
}

impl LinkState {
    pub const ALL: [LinkState; 3] = [LinkState::Off, LinkState::Unavailable, LinkState::Connected];

    pub const fn name(self) -> &'static str {
        match self {
            LinkState::Off => "off",
            LinkState::Unavailable => "unavailable",
            LinkState::Connected => "connected",
        }
    }
}

/// State and drops, for `/metrics`.
#[derive(Debug, Default)]
pub struct LogindCounters {
    state: AtomicU8,
    drops: Drops,
}

impl LogindCounters {
    pub fn state(&self) -> LinkState {
        LinkState::ALL[usize::from(self.state.load(Ordering::Relaxed)) % LinkState::ALL.len()]
    }

    pub fn dropped(&self, reason: LogindDropReason) -> u64 {
        self.drops.get(reason)
    }

    fn set(&self, state: &BusState) {
        let state = match state {
            BusState::Off => LinkState::Off,
            BusState::Unavailable { .. } => LinkState::Unavailable,
            BusState::Connected { .. } => LinkState::Connected,
        };
        self.state.store(state as u8, Ordering::Relaxed);
    }
}

/// The agent's side of the source.
pub struct Logind {
    /// [`Input::Node`]s.
    pub inputs: mpsc::Receiver<Input>,
    pub counters: Arc<LogindCounters>,
    release: mpsc::Sender<()>,
    task: JoinHandle<()>,
}

impl Drop for Logind {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Logind {
    /// Listens, within the runtime. The task ends with the value.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn start(options: AgentOptions) -> Result<Logind, ListenError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ListenError { path, source }
        };
        // Of systemd: it stops the role before the agent.
        let stays = options.inherited.is_none();
        let (listener, uid) = match options.inherited {
            Some(listener) => {
                let path = listener.local_addr().ok().and_then(|at| at.as_pathname().map(Path::to_owned));
                let path = path.unwrap_or_default();
                let owner = fs::metadata(&path).map_err(failed(&path))?.uid();
                listener.set_nonblocking(true).map_err(failed(&path))?;
                (UnixListener::from_std(listener).map_err(failed(&path))?, owner)
            }
            None => (bind(&options.socket).map_err(failed(&options.socket))?, options.uid),
        };
        let (to, inputs) = mpsc::channel(QUEUE);
        let (release, released) = mpsc::channel(1);
        let counters = Arc::new(LogindCounters::default());
        let server = Server {
            listener,
            uid,
            stays,
            proc: options.proc,
            to,
            counters: counters.clone(),
            is_logged: AtomicBool::new(false),
        };
        Ok(Logind {
            inputs,
            counters,
            release,
            task: tokio::spawn(server.run(released)),
        })
    }

    /// Lets the role release its delay lock: the evidence is safe.
    pub fn release(&self) {
        // Full: it was asked already.
        let _ = self.release.try_send(());
    }
}

/// Everybody who sees the directory may connect; the kernel says who does. Root without CAP_CHOWN cannot give the file to the role.
fn bind(path: &Path) -> io::Result<UnixListener> {
    // Of an agent that was here before.
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

struct Server {
    listener: UnixListener,
    uid: u32,
    stays: bool,
    proc: PathBuf,
    to: mpsc::Sender<Input>,
    counters: Arc<LogindCounters>,
    /// A refused connection.
    is_logged: AtomicBool,
}

/// Nobody takes the inputs any more.
struct Closed;

impl Server {
    async fn run(self, mut released: mpsc::Receiver<()>) {
        let mut first = Some(GRACE);
        loop {
            let accepted = match first.take() {
                Some(grace) => timeout(grace, self.accept()).await.ok(),
                None => Some(self.accept().await),
            };
            let served = match accepted {
                Some(stream) => self.serve(stream, &mut released).await,
                None => Ok(()),
            };
            let is_off = match served {
                Ok(()) => self.put(NodeEvent::Bus { state: BusState::Off }).await,
                closed => closed,
            };
            if is_off.is_err() {
                return;
            }
            sleep(PAUSE).await;
        }
    }

    /// The next connection of the role's user.
    async fn accept(&self) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => match stream.peer_cred().map(|peer| peer.uid()) {
                    Ok(uid) if uid == self.uid => return stream,
                    uid => self.refuse(&format!(
                        "its user is {}",
                        uid.map_or("unknown".to_owned(), |uid| uid.to_string())
                    )),
                },
                Err(error) => self.refuse(&error.to_string()),
            }
            sleep(PAUSE).await;
        }
    }

    /// While there is a role, it is the only one.
    async fn refuse_others(&self) {
        loop {
            match self.listener.accept().await {
                Ok(_) => self.refuse("the role is connected already"),
                Err(error) => self.refuse(&error.to_string()),
            }
            sleep(PAUSE).await;
        }
    }

    fn refuse(&self, why: &str) {
        self.counters.drops.add(LogindDropReason::Peer, 1);
        if !self.is_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                remedy = "set `logind.uid` to the user that runs `epitaph logind`",
                "a connection to the socket of the logind role is refused: {why}; further ones are counted (epitaph_dropped_total)"
            );
        }
    }

    /// Until the role is gone, silent or talks nonsense.
    async fn serve(&self, stream: UnixStream, released: &mut mpsc::Receiver<()>) -> Result<(), Closed> {
        let (mut reader, mut writer) = stream.into_split();
        while released.try_recv().is_ok() {}
        let mut frames = Frames::default();
        let mut buffer = vec![0; 16 << 10];
        let mut traffic = Bucket::new(TRAFFIC);
        let (mut is_greeted, mut garbage) = (false, 0);
        loop {
            let count = tokio::select! {
                read = timeout(SILENCE, reader.read(&mut buffer)) => match read {
                    Ok(Ok(count)) if count > 0 => count,
                    // Gone or silent.
                    _ => return Ok(()),
                },
                Some(()) = released.recv() => {
                    if link::write(&mut writer, &FromAgent::Release).await.is_err() {
                        return Ok(());
                    }
                    continue;
                }
                () = self.refuse_others() => return Ok(()),
                () = self.to.closed() => return Err(Closed),
            };
            frames.push(&buffer[..count]);
            while let Some(next) = frames.take::<FromRole>() {
                let message = next.and_then(|(message, length)| Ok((wire::admitted(message)?, length)));
                let (message, length) = match message {
                    Ok(message) => message,
                    Err(FrameError::Oversize(_)) => {
                        self.lost(LogindDropReason::Oversize).await?;
                        return Ok(());
                    }
                    Err(FrameError::Undecodable) => {
                        self.lost(LogindDropReason::Undecodable).await?;
                        garbage += 1;
                        if garbage >= GARBAGE {
                            return Ok(());
                        }
                        pay(&mut traffic, 1 << 10).await;
                        continue;
                    }
                };
                pay(&mut traffic, length).await;
                match message {
                    FromRole::Hello { protocol, .. } if protocol == wire::PROTOCOL && !is_greeted => {
                        is_greeted = true;
                        let hello = FromAgent::Hello {
                            protocol: wire::PROTOCOL,
                            stays: self.stays,
                        };
                        if link::write(&mut writer, &hello).await.is_err() {
                            return Ok(());
                        }
                    }
                    FromRole::Event { node } if is_greeted => self.event(node).await?,
                    FromRole::Alive if is_greeted => {}
                    FromRole::Hello { protocol, version } => {
                        self.lost(LogindDropReason::Undecodable).await?;
                        tracing::warn!(
                            protocol,
                            version,
                            remedy = "run the agent and the role from the same image or package",
                            "the logind role speaks another protocol"
                        );
                        return Ok(());
                    }
                    FromRole::Event { .. } | FromRole::Alive => {
                        self.lost(LogindDropReason::Undecodable).await?;
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn event(&self, mut node: NodeEvent) -> Result<(), Closed> {
        match &mut node {
            NodeEvent::Prepare { sender, .. } => process::complete(sender, &self.proc),
            NodeEvent::Lost { reason, count } => {
                let Some(reason) = LogindDropReason::of(reason) else {
                    return Ok(());
                };
                self.counters.drops.add(reason, *count);
                // A stranger's noise puts nothing of logind in doubt.
                if !reason.hides_logind() {
                    return Ok(());
                }
            }
            _ => {}
        }
        // What was read of /proc is a stranger's text, too.
        match super::bounds::event(node) {
            Some(node) => self.put(node).await,
            None => Ok(()),
        }
    }

    async fn lost(&self, reason: LogindDropReason) -> Result<(), Closed> {
        self.counters.drops.add(reason, 1);
        let reason = reason.name().to_owned();
        self.put(NodeEvent::Lost { reason, count: 1 }).await
    }

    async fn put(&self, node: NodeEvent) -> Result<(), Closed> {
        if let NodeEvent::Bus { state } = &node {
            self.counters.set(state);
        }
        self.to.send(Input::Node(node)).await.map_err(|_| Closed)
    }
}

async fn pay(traffic: &mut Bucket, bytes: usize) {
    for _ in 0..bytes.div_ceil(1 << 10) {
        while let Err(wait) = traffic.take(clock::now()) {
            sleep(wait).await;
        }
    }
}
