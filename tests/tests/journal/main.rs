//! The journal of a real agent: killed at any moment, without its collector, on a disk in trouble, and cut from its power.

mod boots;
mod faults;
mod kills;
mod power_cuts;
mod restarts;
mod stage;
