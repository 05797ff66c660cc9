//! Finished terminations for people, wherever these ask: `epitaph why` on a node reads the agent's journal, `kubectl epitaph why` the
//! custom resource. Pure: no clock, no file, no network. See ARCHITECTURE.md.

#![warn(unused_crate_dependencies)]

pub mod color;
pub mod history;
pub mod resource;
pub mod story;
pub mod when;
