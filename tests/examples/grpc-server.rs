//! A gRPC server on tonic, and how it ends at SIGTERM: the counterpart of `tests/traffic-go`, whose clients call it.
//!
//! `grpc-server serve grpc WAY ADDRESS`: with `exit` at once, with `close` by a return from main, with `graceful` when all calls are done.

use std::error::Error;
use std::io::Write as _;
use std::pin::Pin;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// As in `tests/traffic-go/server.go`.
const SLOW: Duration = Duration::from_secs(3);

struct Service;

type Answer = Result<HealthCheckResponse, Status>;

fn serving() -> HealthCheckResponse {
    HealthCheckResponse {
        status: ServingStatus::Serving.into(),
    }
}

async fn work() {
    // The subject is time: slow work.
    tokio::time::sleep(SLOW).await;
}

#[tonic::async_trait]
impl Health for Service {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        if request.get_ref().service == "slow" {
            work().await;
        }
        Ok(Response::new(serving()))
    }

    type WatchStream = Pin<Box<dyn tokio_stream::Stream<Item = Answer> + Send>>;

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (to, from) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            let _ = to.send(Ok(serving())).await;
            work().await;
            let _ = to.send(Ok(serving())).await;
        });
        Ok(Response::new(Box::pin(tokio_stream::wrappers::ReceiverStream::new(from))))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [verb, protocol, way, address] = args.as_slice() else {
        return Err("usage: grpc-server serve grpc exit|close|graceful ADDRESS".into());
    };
    if (verb.as_str(), protocol.as_str()) != ("serve", "grpc") {
        return Err(format!("no {verb} {protocol} here").into());
    }
    let mut stop = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(address).await?;
    writeln!(std::io::stdout(), "ready {}", listener.local_addr()?)?;
    let server = Server::builder().add_service(HealthServer::new(Service));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let stopped = async move {
        stop.recv().await;
    };
    match way.as_str() {
        "graceful" => server.serve_with_incoming_shutdown(incoming, stopped).await?,
        "close" | "exit" => {
            tokio::select! {
                ended = server.serve_with_incoming(incoming) => ended?,
                () = stopped => {}
            }
            if way == "exit" {
                std::process::exit(0);
            }
        }
        _ => return Err(format!("no way to end named `{way}`").into()),
    }
    Ok(())
}
