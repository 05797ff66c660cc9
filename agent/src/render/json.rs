//! Terminations to JSON lines.
