//! Where evidence comes from.

pub mod kernel;
pub mod pods;
pub mod procfs;
