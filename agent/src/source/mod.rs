//! Where evidence comes from.

pub mod cluster;
pub mod kernel;
pub mod pods;
pub mod procfs;
