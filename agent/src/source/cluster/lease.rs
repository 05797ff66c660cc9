//! The Lease, read and written for [`epitaph_core::observe::election`].

use std::time::Duration;

use epitaph_core::observe::election::{Answer, Ask, Record, Version};
use epitaph_core::time::Wall;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::{Api, Client};

use super::error;
use crate::error::line;
use crate::source::api_error::{ApiError, Purpose};
use crate::source::bounded;

const MAX_HOLDER: usize = 253;

/// One Lease. Labels and annotations of other writers are kept.
pub struct Lease {
    api: Api<api::Lease>,
    name: String,
    purpose: Purpose,
    /// Of a request that creates the Lease.
    creation: Purpose,
    /// Limit of one request.
    timeout: Duration,
    last: Option<api::Lease>,
    /// The last logged error.
    failing: Option<ApiError>,
}

impl Lease {
    /// `namespace`: None for the namespace of the ServiceAccount or of the kubeconfig's context. `timeout`: of one request.
    pub fn new(client: &Client, namespace: Option<&str>, name: &str, timeout: Duration) -> Lease {
        let namespace = namespace.unwrap_or_else(|| client.default_namespace()).to_owned();
        Lease {
            api: Api::namespaced(client.clone(), &namespace),
            name: name.to_owned(),
            purpose: error::of_lease(&namespace, name),
            creation: error::of_missing_lease(&namespace, name),
            timeout,
            last: None,
            failing: None,
        }
    }

    pub async fn ask(&mut self, ask: Ask) -> Answer {
        let reads = ask == Ask::Read;
        let purpose = match ask {
            Ask::Create(_) => &self.creation,
            Ask::Read | Ask::Replace(_) => &self.purpose,
        };
        let params = PostParams::default();
        let asked = async {
            match ask {
                Ask::Read => self.api.get(&self.name).await,
                Ask::Create(record) => {
                    let mut lease = api::Lease::default();
                    lease.metadata.name = Some(self.name.clone());
                    lease.spec = Some(spec(record));
                    self.api.create(&params, &lease).await
                }
                Ask::Replace(Version { record, version }) => {
                    let mut lease = self.last.clone().unwrap_or_default();
                    lease.metadata.name = Some(self.name.clone());
                    lease.metadata.resource_version = Some(version);
                    lease.spec = Some(spec(record));
                    self.api.replace(&self.name, &params, &lease).await
                }
            }
        };
        let error = match tokio::time::timeout(self.timeout, asked).await {
            Ok(Ok(lease)) => {
                if self.failing.take().is_some() {
                    tracing::info!(lease = %self.name, "the Lease can be read and written again");
                }
                let version = version(&lease);
                self.last = Some(lease);
                return Answer::Is(version);
            }
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() && reads => return Answer::Missing,
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() || status.is_already_exists() => {
                return Answer::Conflict;
            }
            // Deleted between our read and our write; without the Lease's namespace every attempt fails.
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() && self.last.take().is_some() => {
                return Answer::Missing;
            }
            Ok(Err(error)) => ApiError::of(purpose, &error),
            Err(_) => ApiError::timeout(purpose, self.timeout),
        };
        if self.failing.as_ref() != Some(&error) {
            tracing::warn!("{}; the request is repeated", line(&error));
            self.failing = Some(error);
        }
        Answer::Failed
    }
}

fn version(lease: &api::Lease) -> Version {
    let spec = lease.spec.clone().unwrap_or_default();
    Version {
        record: Record {
            // A holder releases the Lease by an empty string.
            holder: spec
                .holder_identity
                .filter(|h| !h.is_empty())
                .map(|h| bounded(&h, MAX_HOLDER)),
            seconds: spec.lease_duration_seconds.and_then(|s| u32::try_from(s).ok()).unwrap_or(0),
            acquired: spec.acquire_time.as_ref().and_then(wall),
            renewed: spec.renew_time.as_ref().and_then(wall),
            transitions: spec.lease_transitions.and_then(|t| u32::try_from(t).ok()).unwrap_or(0),
        },
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

fn spec(record: Record) -> api::LeaseSpec {
    api::LeaseSpec {
        holder_identity: Some(record.holder.unwrap_or_default()),
        lease_duration_seconds: i32::try_from(record.seconds).ok(),
        acquire_time: record.acquired.and_then(micro),
        renew_time: record.renewed.and_then(micro),
        lease_transitions: i32::try_from(record.transitions).ok(),
        ..api::LeaseSpec::default()
    }
}

fn micro(wall: Wall) -> Option<MicroTime> {
    Timestamp::from_nanosecond(wall.0.into()).ok().map(MicroTime)
}

fn wall(time: &MicroTime) -> Option<Wall> {
    u64::try_from(time.0.as_nanosecond()).ok().map(Wall)
}
