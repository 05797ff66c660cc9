//! Faults that are known and not yet mended. The list only gets shorter: a kind that is mended leaves it, and a finding of no kind
//! fails the run. Every run prints how often it met each.

use crate::play::Played;
use crate::score::Class;
use crate::truth::Truth;

pub struct Known {
    pub name: &'static str,
    pub class: Class,
    /// What is wrong.
    pub what: &'static str,
    pub is: fn(&Truth) -> bool,
}

pub const KNOWN: &[Known] = &[
    Known {
        name: "unasked-below-a-wrapper",
        class: Class::FalseQuiet,
        what: "the sockets of a program below the first process are not observed when the program ends without a stop",
        is: |truth| !truth.is_main() && !truth.was_asked(),
    },
    Known {
        name: "the-first-process-leaves",
        class: Class::FalseClean,
        what: "the first process exits by itself, and the program below it is killed",
        is: |truth| !truth.is_main() && truth.code.is_some(),
    },
];

/// The kind of a finding of `class`.
pub fn kind(class: Class, played: &Played) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.class == class && (known.is)(&played.truth))
}
