//! Bytes to events: the only way to make a kernel event.
