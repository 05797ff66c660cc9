//! Epitaph: when it died, whether it died well, and if not, why, with proof from the kernel. See ARCHITECTURE.md.

pub mod cli;
pub mod clock;
pub mod config;
pub mod doctor;
mod error;
pub mod recording;
pub mod render;
pub mod runtime;
pub mod sink;
pub mod source;

pub use epitaph_core::{
    attribute, axes, correlate, decode, event, ids, input, kubernetes, neighbours, observe, pod, report, termination, time,
    verdict,
};
