pub mod skip;
