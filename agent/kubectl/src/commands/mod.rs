//! A file for each command.

pub mod complete;
pub mod doctor;
mod events;
pub mod list;
pub mod node;
pub mod rollout;
pub mod watch;
pub mod why;
