//! What crosses rooms: the stories that the demo plays and the tests assert, the small container runtime that plays them,
//! the processes that terminate in them, and the bystanders (clients, killers).
//!
//! *Architecture invariant*: nothing here depends on crate `epitaph`. The agent is a separate process that knows nothing of the
//! stories: its reports are compared with what the players themselves know.
//!
//! Entry points: [`demo::demo`] for people, `tests/players.rs` (the players alone) and `tests/stories.rs` (with the agent).

// Not of the library's own tests, which Cargo gives the dependencies of all tests of the package.
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod agent;
pub mod attack;
pub mod bpf;
pub mod bus;
pub mod bystander;
pub mod cgroup;
pub mod cluster;
pub mod contained;
pub mod demo;
pub mod disk;
pub mod epitaph;
pub mod ground_truth;
pub mod guest;
pub mod http;
pub mod jaeger;
pub mod machine;
pub mod measured;
pub mod monitoring;
pub mod network;
pub mod play;
pub mod privileges;
pub mod programs;
pub mod report;
pub mod runtime;
pub mod segments;
pub mod service;
pub mod shutdowns;
pub mod skip;
pub mod socket_unit;
pub mod stories;
pub mod story;
pub mod sys;
pub mod timeout;
pub mod traces;
pub mod victim;
pub mod watch;
