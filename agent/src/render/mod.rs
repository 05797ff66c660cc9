//! Terminations to what leaves the process: spans, JSON, text.

pub mod id;
pub mod json;
pub mod span;
pub mod text;
