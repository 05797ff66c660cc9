//! Terminations to spans.
