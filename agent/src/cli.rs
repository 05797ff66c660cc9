//! The command line: parsing and the commands that need no runtime.
