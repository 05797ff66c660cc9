//! The role's end of the socket.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::time::Duration;

use epitaph_core::node::NodeEvent;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio::time::{interval, sleep, timeout};

use super::outbox::Outbox;
use super::session::FromLink;
use super::wire::{self, Frames, FromAgent, FromRole};
use crate::clock;

/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// The agent knows by these messages that the role is there.
pub(super) const ALIVE: Duration = Duration::from_secs(5);

/// An agent that reads nothing for so long is connected to again.
const WRITE: Duration = Duration::from_secs(10);

/// Connects to the agent, again and again, and sends what the outbox has.
pub(super) async fn send(socket: &Path, outbox: &Outbox, session: mpsc::Sender<FromLink>) -> Infallible {
    let mut is_logged = false;
    loop {
        let ended = match UnixStream::connect(socket).await {
            Ok(stream) => {
                outbox.link(true);
                let mut welcome = false;
                let ended = serve(stream, outbox, &session, &mut welcome).await;
                outbox.link(false);
                let _ = session.send(FromLink::Gone).await;
                is_logged &= !welcome;
                ended
            }
            Err(error) => Err(error),
        };
        // Once for each connection that worked: the attempts go on.
        if !std::mem::replace(&mut is_logged, true) {
            let problem = ended.map_or_else(
                |error| error.to_string(),
                |()| "the agent has closed the connection".to_owned(),
            );
            tracing::warn!(
                socket = %socket.display(),
                remedy = "start the agent with the same `logind.socket`, and with this role's user in `logind.uid`",
                "not connected to the agent: {problem}; retried"
            );
        }
        sleep(PAUSE).await;
    }
}

/// Waits until no agent is connected.
pub(super) async fn gone(outbox: &Outbox) {
    while outbox.is_linked() {
        sleep(PAUSE / 10).await;
    }
}

async fn serve(stream: UnixStream, outbox: &Outbox, session: &mpsc::Sender<FromLink>, welcome: &mut bool) -> io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    let hello = FromRole::Hello {
        protocol: wire::PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    write(&mut writer, &hello).await?;
    let mut frames = Frames::default();
    let mut buffer = vec![0; 4 << 10];
    let mut alive = interval(ALIVE);
    loop {
        tokio::select! {
            read = reader.read(&mut buffer) => {
                let count = read?;
                if count == 0 {
                    return Ok(());
                }
                frames.push(&buffer[..count]);
                while let Some(message) = frames.take::<FromAgent>() {
                    let (message, _) = message.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                    match message {
                        FromAgent::Hello { stays, .. } => {
                            outbox.agent_stays(stays);
                            if !std::mem::replace(welcome, true) {
                                tracing::info!("connected to the agent");
                                let _ = session.send(FromLink::Connected).await;
                                let events = outbox.begin(clock::now());
                                send_all(&mut writer, outbox, events).await?;
                            }
                        }
                        FromAgent::Release => {
                            let _ = session.send(FromLink::Release).await;
                        }
                    }
                }
            }
            // Before the agent has answered, what happens waits for the next agent.
            () = outbox.changed(), if *welcome => {
                let events = outbox.take(clock::now());
                send_all(&mut writer, outbox, events).await?;
            }
            _ = alive.tick() => {
                if *welcome {
                    // Losses alone do not wake.
                    let events = outbox.take(clock::now());
                    send_all(&mut writer, outbox, events).await?;
                }
                write(&mut writer, &FromRole::Alive).await?;
            }
        }
    }
}

async fn send_all(writer: &mut OwnedWriteHalf, outbox: &Outbox, events: Vec<NodeEvent>) -> io::Result<()> {
    for node in events {
        write(writer, &FromRole::Event { node }).await?;
    }
    outbox.written();
    Ok(())
}

pub(super) async fn write(writer: &mut OwnedWriteHalf, message: &impl Serialize) -> io::Result<()> {
    match timeout(WRITE, writer.write_all(&wire::frame(message))).await {
        Ok(written) => written,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
