//! Terminations to exported data: spans here; ids, JSON and text in the core.

pub mod attributes;
pub mod span;

pub use epitaph_core::render::{id, json, text};
