//! Destination and delivery of an export. [`crate::config`] makes both from the settings of OpenTelemetry.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, Uri};
use serde::{Deserialize, Serialize};

/// <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    #[serde(rename = "grpc")]
    Grpc,
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    #[default]
    None,
    Gzip,
}

/// A collector, for one signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// URL with its scheme; for http/protobuf with the signal's path.
    pub url: Uri,
    pub protocol: Protocol,
    /// Values are marked sensitive.
    pub headers: HeaderMap,
    /// Limit of one attempt.
    pub timeout: Duration,
    pub compression: Compression,
    /// PEM file with the trusted authorities, in place of the system's.
    pub authorities: Option<PathBuf>,
    pub identity: Option<Identity>,
}

/// PEM files for mutual TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Queue, batches and retries on the way to a destination of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Most traces in the queue.
    pub queue: usize,
    /// Most traces in one request.
    pub batch: usize,
    pub backoff: Backoff,
}

impl Delivery {
    pub fn with_queue(queue: usize) -> Delivery {
        Delivery {
            queue,
            batch: 64,
            backoff: Backoff {
                first: Duration::from_secs(1),
                most: Duration::from_secs(30),
            },
        }
    }
}

/// Waits between attempts double from `first` to `most`; each wait is a random part of the value between half and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub most: Duration,
}
