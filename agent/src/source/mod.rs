//! Where evidence comes from.

pub mod kernel;
pub mod procfs;
