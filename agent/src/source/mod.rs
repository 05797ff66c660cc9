//! Sources of evidence.

mod api_error;
pub mod cluster;
pub mod epitaphs;
pub mod files;
mod in_cluster;
pub mod kernel;
pub mod kubelet;
pub mod logind;
pub mod pods;
pub mod procfs;
pub mod rollouts;
pub mod runtimes;
pub mod systemd;
mod watch;

pub use api_error::{ApiError, FailureReason};
pub use watch::WatchCounters;

/// Text from outside epitaph, made safe by [`epitaph_core::text::bounded`].
fn bounded(text: &str, max: usize) -> String {
    epitaph_core::text::bounded(text, max).into_owned()
}
