//! An API server for unit tests: it answers by a script, without a socket, so that a test can pause the runtime's time. What breaks a
//! real connection is not seen here: `tests/tests/pods_source` cuts one.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc;

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub method: Method,
    pub path: String,
    pub query: String,
    /// Null if the body is not JSON.
    pub body: Value,
}

/// All requests so far.
pub(crate) type Received = Arc<Mutex<Vec<Request>>>;

pub(crate) enum Answer {
    Json(u16, Value),
    /// No answer.
    Never,
    /// Pieces of an answer, until the sender is dropped.
    Stream(mpsc::UnboundedReceiver<String>),
}

/// `script` answers each request.
pub(crate) fn start<F>(script: impl Fn(Request) -> F + Send + Sync + 'static) -> (Client, Received)
where
    F: Future<Output = Answer> + Send + 'static,
{
    let (received, script) = (Received::default(), Arc::new(script));
    let log = received.clone();
    let answer = move |method: Method, uri: Uri, body: Bytes| {
        let request = Request {
            method,
            path: uri.path().to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
        };
        log.lock().unwrap().push(request.clone());
        let answer = script(request);
        async move { response(answer.await).await }
    };
    (Client::new(Router::new().fallback(answer), "default"), received)
}

/// The body of a failure.
pub(crate) fn failure(code: u16, message: &str) -> Answer {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        _ => "",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": message,
    });
    Answer::Json(code, status)
}

async fn response(answer: Answer) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    match answer {
        Answer::Json(code, body) => (StatusCode::from_u16(code).unwrap(), headers, body.to_string()).into_response(),
        Answer::Never => std::future::pending().await,
        Answer::Stream(pieces) => {
            let pieces = futures::stream::unfold(pieces, |mut pieces| async {
                let piece = pieces.recv().await?;
                Some((Ok::<_, Infallible>(piece), pieces))
            });
            (headers, Body::from_stream(pieces)).into_response()
        }
    }
}
