//! Terminations to exported data: spans here; ids, JSON and text in the core.

pub mod attributes;
pub mod span;
