//! The shutdown of the node, as logind and systemd announce it on the system bus.
//!
//! systemd authorises callers of the bus by their uid: a process of uid 0 with the bus is root on the machine. So the agent, which needs
//! uid 0 in a pod, has no bus. The **role** (`epitaph logind`, the same binary as another process, of another user and without
//! capabilities) observes the bus and writes events to a socket of the agent; the **agent** reads them as those of a stranger:
//!
//! ```text
//! bus → gate → inbox → session → outbox → link ──socket──▶ listen → Input::Node
//! ```
//!
//! Nothing of it is needed: without a role, a bus or logind the agent goes on, and says so.

mod bounds;
mod bus;
mod drops;
mod error;
mod gate;
mod inbox;
mod link;
mod listen;
mod lock;
mod outbox;
mod process;
mod session;
mod wire;

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use epitaph_core::node::NodeEvent;
use tokio::sync::{mpsc, oneshot};

use crate::clock;
use outbox::Outbox;
use session::FromLink;

pub use drops::LogindDropReason;
pub use error::ListenError;
pub use listen::{AgentOptions, LinkState, Logind, LogindCounters};

/// Where the bus is on every distribution.
pub const BUS: &str = "/run/dbus/system_bus_socket";

/// `nobody`: the user of the role in the chart.
pub const NOBODY: u32 = 65_534;

/// In a node shutdown the kubelet ends the role with the agent: the role goes on until the agent is gone, for so long at most.
const LINGER: Duration = Duration::from_secs(25);

/// What the bus has sent by the stop signal is with the agent within this time, on a busy machine too. Nearly always it takes milliseconds.
const SETTLE: Duration = Duration::from_secs(5);

/// systemd's job for the shutdown that logind announced, which has stopped the role, is on the bus within this time.
const JOB: Duration = Duration::from_secs(5);

/// Losses are shown at the latest after so long.
const SHOW: Duration = Duration::from_secs(1);

/// What the role needs.
#[derive(Clone, Debug)]
pub struct RoleOptions {
    /// Socket of the system bus.
    pub bus: PathBuf,
    /// Take a delay lock of our own.
    pub lock: bool,
    /// `/proc`, for the processes behind forged signals.
    pub proc: PathBuf,
}

/// Observes the bus and sends the events to the agent that listens at `socket`, until `stop`.
pub async fn run(options: &RoleOptions, socket: &std::path::Path, stop: impl Future<Output = ()>) {
    let outbox = Outbox::new();
    let (to_session, from_link) = mpsc::channel(16);
    let to_settle = to_session.clone();
    let stopped = async {
        stop.await;
        end(&outbox, &to_settle).await;
    };
    tokio::select! {
        never = session::observe(options, &outbox, from_link) => match never {},
        never = link::send(socket, &outbox, to_session) => match never {},
        () = stopped => {}
    }
}

/// After the stop signal: what the agent is still to learn.
async fn end(outbox: &Outbox, session: &mpsc::Sender<FromLink>) {
    // Without a lock that delays the shutdown, its announcement and the stop signal come at the same moment.
    let settled = async {
        let (done, settled) = oneshot::channel();
        let _ = session.send(FromLink::Settle(done)).await;
        // Also an error: of a session that has no bus.
        let _ = settled.await;
        outbox.is_with_agent().await;
    };
    let _ = tokio::time::timeout(SETTLE, settled).await;
    if !outbox.is_preparing() || !outbox.is_linked() {
        return;
    }
    if outbox.stays() {
        tracing::info!("a shutdown is under way: observing until the agent is gone");
        let _ = tokio::time::timeout(LINGER, link::gone(outbox)).await;
        return;
    }
    // On a busy machine systemd's stop signal is faster than its message on the bus.
    let told = async {
        outbox.has_job().await;
        outbox.is_with_agent().await;
    };
    let _ = tokio::time::timeout(JOB, told).await;
}

/// Observes the bus and hands each event to `show`, until it fails.
///
/// # Errors
/// The error of `show`.
pub async fn follow<E>(options: &RoleOptions, mut show: impl FnMut(NodeEvent) -> Result<(), E>) -> Result<Infallible, E> {
    let outbox = Outbox::new();
    // A person reads: the lock is held for nobody.
    let (to_session, from_link) = mpsc::channel(1);
    drop(to_session);
    let shown = async {
        loop {
            // Losses alone do not wake.
            let _ = tokio::time::timeout(SHOW, outbox.changed()).await;
            for event in outbox.take(clock::now()) {
                show(event)?;
            }
        }
    };
    tokio::select! {
        never = session::observe(options, &outbox, from_link) => match never {},
        shown = shown => shown,
    }
}

#[cfg(test)]
#[path = "fuzz_tests.rs"]
mod fuzz;
#[cfg(test)]
mod tests;
