//! The evidence file: versioned, checksummed, readable by later versions.
