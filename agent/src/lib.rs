//! Epitaph: when it died, whether it died well, and if not, why, with proof from the kernel. See ARCHITECTURE.md.

#![warn(unused_crate_dependencies)]

// Only the example that writes the manual pages needs this, and an example has the dependencies of tests.
#[cfg(test)]
use clap_mangen as _;

mod bucket;
mod cache;
pub mod cli;
pub mod clock;
pub mod config;
pub mod doctor;
pub mod error;
#[cfg(test)]
mod fuzz;
pub mod journal;
#[cfg(test)]
mod mock_api;
pub mod recording;
pub mod render;
pub mod rights;
pub mod runtime;
pub mod sink;
pub mod source;
#[cfg(test)]
mod waiting;
