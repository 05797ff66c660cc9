//! Terminations to what leaves the process: spans, JSON, text.

pub mod attributes;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod id;
pub mod json;
#[cfg(test)]
pub(crate) mod sample;
pub mod span;
pub mod text;
