//! The terminal and JSON lines on standard output.
