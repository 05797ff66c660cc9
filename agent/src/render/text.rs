//! Terminations to terminal text.
