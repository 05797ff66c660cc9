//! The only room that reads clocks.
