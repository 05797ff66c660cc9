//! Finished terminations and shutdowns of the node, read back: the JSON lines of docs/json.md, from a file, a pipe or the journal.
//!
//! Tolerant: unknown objects and fields are skipped, and a damaged line is counted. Streaming: one line in memory at a time.
//! Every text of a report is bounded and escaped when it is read ([`Text`]).

mod count;
mod find;
mod lines;
mod lists;
mod model;
mod node;
mod value;

pub use count::{Counted, Counts, Group};
pub use find::{Found, Match, Search, Wanted};
pub use lines::{Line, Lines, MAX_LINE, Skipped, parse};
pub use model::{
    Advice, Asked, Connections, Container, Disagreement, Gaps, Gone, Kill, Kubernetes, Listener, Main, Oom, Pod, PreStop,
    Report, Reported, Request, Sender, Shortened, Status, Stop, Subject, Unobserved, Unseen, Workload,
};
pub use node::{Cut, Delay, Lock, Phase, PodInShutdown, Signs, Spoofed};
pub use value::{At, Text};

#[cfg(test)]
mod process_tests;
#[cfg(test)]
mod tests;
