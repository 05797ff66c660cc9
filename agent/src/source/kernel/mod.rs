//! The probes: loading, attaching, draining.
