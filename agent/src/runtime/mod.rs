//! Joins the rooms: sources, the core, the sinks, and the order in which they start and stop.
