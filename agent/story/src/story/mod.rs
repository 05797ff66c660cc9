//! A finished termination for people who look after the fact: the timeline, settings to paste, and the report as text, Markdown, a
//! picture and JSON; also the lines and the summary of a list. Pure: sizes and colours are arguments.
//!
//! *Invariant*: the output has no control sequence except our own colours; texts of a report are escaped when they are read
//! (`history::Text`).

mod draw;
mod json;
mod list;
mod markdown;
mod picture;
mod setting;
mod snippet;
mod text;
mod timeline;
mod words;

pub use json::{Brief, summary_object, why_object};
pub use list::{Hidden, List, safe, summary};
pub use markdown::markdown;
pub use picture::picture;
pub use snippet::{Snippet, snippets};
pub use text::{Columns, text};
pub use timeline::{Mark, Part, Row, timeline};
pub use words::{cell, columns, cut, many, moment, paragraph};

use crate::history::{Found, Report};

/// [`Story::program`] of those who ask on a node.
pub const NODE_PROGRAM: &str = "epitaph";

/// What `epitaph why` shows.
#[derive(Debug)]
pub struct Story {
    pub report: Report,
    pub found: Found,
    /// Older terminations with the same name, the newest first.
    pub others: Vec<Brief>,
    /// How many older ones there are, including those of `others`.
    pub more: u64,
    /// Seconds by which clocks of the reader are ahead of UTC, at the end of the report.
    pub ahead: i64,
    /// The program that the reader asked, for what the text says to ask next.
    pub program: &'static str,
}

impl Story {
    /// The container that was asked for, otherwise the whole report.
    pub fn shown(&self) -> &Report {
        let container = self.found.container.and_then(|at| self.report.containers.get(at));
        container.unwrap_or(&self.report)
    }
}

#[cfg(test)]
mod node_tests;
#[cfg(test)]
mod tests;
