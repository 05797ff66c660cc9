//! The core: a pure state machine per termination.
