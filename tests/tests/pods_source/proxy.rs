//! A way to the API server that can be cut.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Proxy {
    address: SocketAddr,
    open: watch::Sender<bool>,
}

impl Proxy {
    /// Forwards to a port of the loopback, for as long as the runtime runs.
    pub async fn start(port: u16) -> anyhow::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (open, is_open) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut cut = is_open.clone();
                // Accepted and closed: no client gets through.
                if *cut.borrow() {
                    tokio::spawn(async move {
                        tokio::select! {
                            () = carry(client, port) => {}
                            _ = cut.wait_for(|open| !open) => {}
                        }
                    });
                }
            }
        });
        Ok(Proxy { address, open })
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Every connection ends, and new ones do at once.
    pub fn cut(&self) {
        self.open.send_replace(false);
    }

    pub fn mend(&self) {
        self.open.send_replace(true);
    }
}

async fn carry(mut client: TcpStream, port: u16) {
    if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}
