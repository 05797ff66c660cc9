//! Where and how to send. [`crate::config`] makes it, out of the settings of OpenTelemetry.

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
    /// With its scheme, and with http/protobuf the signal's path.
    pub url: Uri,
    pub protocol: Protocol,
    /// Values are marked sensitive.
    pub headers: HeaderMap,
    /// For one attempt.
    pub timeout: Duration,
    pub compression: Compression,
    /// PEM file: the authorities to trust in place of the system's.
    pub authorities: Option<PathBuf>,
    pub identity: Option<Identity>,
}

/// PEM files for mutual TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// What stands between the agent and a destination of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Traces that wait, at most.
    pub queue: usize,
    /// Traces in one request, at most.
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

/// Waits between attempts double from `first` to `most`; each is cut at random to between half and all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub most: Duration,
}
