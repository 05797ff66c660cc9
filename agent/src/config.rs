//! One typed configuration, from flags, environment and file.
