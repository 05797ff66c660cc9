//! Faults that are known and not yet mended. The list only gets shorter: a kind that is mended leaves it, and a finding of no kind
//! fails the run. Every run prints how often it met each.

use crate::play::Played;
use crate::score::Class;

pub struct Known {
    pub name: &'static str,
    pub class: Class,
    /// What is wrong.
    pub what: &'static str,
    pub is: fn(&Played) -> bool,
}

pub const KNOWN: &[Known] = &[Known {
    name: "connected-at-the-end",
    class: Class::WrongCount,
    what: "a client connects in the moment in which the program exits, and its cut request is not counted: once in some thousand histories",
    is: |played| played.truth.was_cut_at_once(),
}];

/// The kind of a finding of `class`.
pub fn kind(class: Class, played: &Played) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.class == class && (known.is)(played))
}
