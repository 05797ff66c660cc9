//! Sources of evidence.

mod api_error;
pub mod cluster;
pub mod kernel;
pub mod pods;
pub mod procfs;
mod watch;

pub use api_error::{ApiError, FailureReason};
pub use watch::WatchCounters;
