//! A collector for tests: a real HTTP/1 and HTTP/2 server on the loopback, optionally with TLS, that answers by a script.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;

/// How a request is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    Take,
    /// Accepts all but so many spans.
    TakeAllBut(i64),
    /// A gRPC status, or the HTTP status that means the same.
    Refuse(tonic::Code),
    /// Asks for a retry; by HTTP with `Retry-After: 0`.
    Busy,
    Silence,
    /// A page with the status 200, by HTTP: a login, a user interface.
    Page,
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub path: String,
    pub headers: HeaderMap,
    /// The body on the wire, without gRPC's frame.
    pub body: Bytes,
    pub compressed: bool,
}

impl Received {
    pub(crate) fn request(&self) -> ExportTraceServiceRequest {
        let mut plain = Vec::new();
        if self.compressed {
            let mut decoder = flate2::read::GzDecoder::new(&self.body[..]);
            std::io::Read::read_to_end(&mut decoder, &mut plain).expect("gzip");
        } else {
            plain.extend_from_slice(&self.body);
        }
        ExportTraceServiceRequest::decode(&plain[..]).expect("an OTLP request")
    }
    pub(crate) fn spans(&self) -> Vec<Span> {
        let scopes = self.request().resource_spans.into_iter().flat_map(|r| r.scope_spans);
        scopes.flat_map(|s| s.spans).collect()
    }
}

pub(crate) struct Collector {
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

type Script = Arc<dyn Fn(&Received, usize) -> Reply + Send + Sync>;

impl Collector {
    /// `script` gets each request and its number, from 0.
    pub(crate) async fn start(script: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Collector {
        Self::serve(loopback(0).await, None, Arc::new(script))
    }

    /// Starts on a port that was free a moment ago.
    pub(crate) async fn start_at(port: u16, script: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Collector {
        Self::serve(loopback(port).await, None, Arc::new(script))
    }

    pub(crate) async fn start_tls(config: rustls::ServerConfig) -> Collector {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self::serve(loopback(0).await, Some(acceptor), Arc::new(|_, _| Reply::Take))
    }

    fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, script: Script) -> Collector {
        let address = listener.local_addr().expect("an address");
        let received = Arc::new(Mutex::new(Vec::new()));
        let log = received.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, log, script) = (tls.clone(), log.clone(), script.clone());
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(move |call| answer(call, log.clone(), script.clone()));
                    let server = auto::Builder::new(TokioExecutor::new());
                    match tls {
                        None => drop(server.serve_connection(TokioIo::new(stream), service).await),
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                drop(server.serve_connection(TokioIo::new(stream), service).await);
                            }
                        }
                    }
                });
            }
        });
        Collector { address, received }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no panic while held").clone()
    }
}

async fn loopback(port: u16) -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.expect("a loopback port")
}

/// A port without a listener, reserved until this process ends: bound, so that the kernel gives the port to nobody else, and with
/// SO_REUSEADDR from then on, so that a listener, which has it, too, can have the port. As `tests/src/http.rs`.
pub(crate) fn free_port() -> u16 {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a loopback port");
    socket.set_reuseaddr(true).expect("an option of every socket");
    let port = socket.local_addr().expect("its address").port();
    std::mem::forget(socket);
    port
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

async fn answer(call: Request<Incoming>, log: Arc<Mutex<Vec<Received>>>, script: Script) -> Result<Answer, Infallible> {
    let (head, body) = call.into_parts();
    let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let grpc = head.headers.get("content-type").is_some_and(|t| t == "application/grpc");
    let received = if grpc {
        let compressed = body[0] == 1;
        let length = u32::from_be_bytes(body[1..5].try_into().expect("4 bytes")) as usize;
        assert_eq!(body.len(), 5 + length, "one message");
        Received {
            path: head.uri.path().into(),
            headers: head.headers,
            body: body.slice(5..),
            compressed,
        }
    } else {
        let compressed = head.headers.get("content-encoding").is_some_and(|e| e == "gzip");
        Received {
            path: head.uri.path().into(),
            headers: head.headers,
            body,
            compressed,
        }
    };
    let number = {
        let mut log = log.lock().expect("no panic while held");
        log.push(received.clone());
        log.len() - 1
    };
    let reply = script(&received, number);
    if matches!(reply, Reply::Silence) {
        std::future::pending::<()>().await;
    }
    Ok(if grpc { grpc_answer(reply) } else { http_answer(reply) })
}

fn message(reply: Reply) -> Bytes {
    let partial_success = match reply {
        Reply::TakeAllBut(rejected_spans) => Some(ExportTracePartialSuccess {
            rejected_spans,
            error_message: "too odd".into(),
        }),
        _ => None,
    };
    ExportTraceServiceResponse { partial_success }.encode_to_vec().into()
}

fn grpc_answer(reply: Reply) -> Answer {
    let code = match reply {
        Reply::Refuse(code) => code,
        Reply::Busy => tonic::Code::Unavailable,
        _ => tonic::Code::Ok,
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(code as i32));
    let mut frames = Vec::new();
    if code == tonic::Code::Ok {
        let message = message(reply);
        let mut framed = vec![0];
        framed.extend_from_slice(&u32::try_from(message.len()).expect("short").to_be_bytes());
        framed.extend_from_slice(&message);
        frames.push(Frame::data(Bytes::from(framed)));
    }
    frames.push(Frame::trailers(trailers));
    let frames = body_of(frames);
    Response::builder()
        .header("content-type", "application/grpc")
        .body(frames)
        .expect("a response")
}

fn body_of(frames: Vec<Frame<Bytes>>) -> UnsyncBoxBody<Bytes, Infallible> {
    struct Frames(std::vec::IntoIter<Frame<Bytes>>);
    impl hyper::body::Body for Frames {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            std::task::Poll::Ready(self.0.next().map(Ok))
        }
    }
    UnsyncBoxBody::new(Frames(frames.into_iter()))
}

fn http_answer(reply: Reply) -> Answer {
    let status = match reply {
        Reply::Refuse(tonic::Code::InvalidArgument) => 400,
        Reply::Refuse(tonic::Code::Unauthenticated) => 401,
        Reply::Refuse(tonic::Code::NotFound) => 404,
        Reply::Refuse(_) | Reply::Busy => 503,
        _ => 200,
    };
    let is_page = matches!(reply, Reply::Page);
    let kind = if is_page { "text/html" } else { "application/x-protobuf" };
    let mut response = Response::builder().status(status).header("content-type", kind);
    if matches!(reply, Reply::Busy) {
        response = response.header("retry-after", "0");
    }
    let body = if is_page {
        Bytes::from_static(b"<html>Please log in</html>")
    } else {
        message(reply)
    };
    response.body(UnsyncBoxBody::new(Full::new(body))).expect("a response")
}
