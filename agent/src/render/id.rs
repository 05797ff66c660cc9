//! Derived trace and span ids.
