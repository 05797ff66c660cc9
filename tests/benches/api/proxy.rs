//! The way of all agents to the API server, with a count of its bytes: those of TLS, as a network carries them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub struct Proxy {
    address: SocketAddr,
    bytes: Arc<Bytes>,
}

#[derive(Default)]
struct Bytes {
    to_server: AtomicU64,
    to_agents: AtomicU64,
}

impl Proxy {
    /// Forwards to a port of the loopback, for as long as the runtime runs.
    pub async fn start(port: u16) -> anyhow::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let bytes = Arc::new(Bytes::default());
        let counted = bytes.clone();
        tokio::spawn(async move {
            while let Ok((agent, _)) = listener.accept().await {
                let bytes = counted.clone();
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
                        return;
                    };
                    let (from_agent, to_agent) = agent.into_split();
                    let (from_server, to_server) = server.into_split();
                    tokio::join!(
                        carry(from_agent, to_server, &bytes.to_server),
                        carry(from_server, to_agent, &bytes.to_agents),
                    );
                });
            }
        });
        Ok(Proxy { address, bytes })
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// To the API server and to the agents, since the start.
    pub fn bytes(&self) -> (u64, u64) {
        let Bytes { to_server, to_agents } = &*self.bytes;
        (to_server.load(Ordering::Relaxed), to_agents.load(Ordering::Relaxed))
    }
}

async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, count: &AtomicU64) {
    let mut buffer = vec![0; 4 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        count.fetch_add(length as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
