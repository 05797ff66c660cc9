//! Epitaph: when it died, whether it died well, and if not, why, with proof from the kernel. See ARCHITECTURE.md.

#![warn(unused_crate_dependencies)]

// Test fixtures name this crate as `tests` does.
#[cfg(test)]
extern crate self as epitaph;

pub mod attribute;
pub mod cli;
pub mod clock;
pub mod config;
pub mod correlate;
pub mod decode;
pub mod doctor;
pub mod duration;
pub mod error;
pub mod event;
pub mod kubernetes;
pub mod neighbours;
pub mod observe;
pub mod pod;
pub mod recording;
pub mod render;
pub mod runtime;
pub mod sink;
pub mod source;
pub mod termination;
pub mod text;
pub mod verdict;
