//! Faults that are known and not yet mended. The list only gets shorter: a kind that is mended leaves it, and a finding of no kind
//! fails the run. Every run prints how often it met each.

use crate::play::Played;
use crate::score::{Class, Finding};

pub struct Known {
    pub name: &'static str,
    pub class: Class,
    /// What is wrong.
    pub what: &'static str,
    pub is: fn(&Played, &Finding) -> bool,
}

pub const KNOWN: &[Known] = &[Known {
    name: "connected-at-the-end",
    class: Class::WrongCount,
    what: "a client connects in the moment in which the program exits, and its cut request is not counted: once in some thousand histories",
    is: |played, finding| (1..=played.truth.cut_at_once()).contains(&finding.short),
}];

/// The kind of `finding`.
pub fn kind(finding: &Finding, played: &Played) -> Option<&'static Known> {
    KNOWN
        .iter()
        .find(|known| known.class == finding.class && (known.is)(played, finding))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Attempt, Outcome};
    use crate::draw::{self, Draws};
    use crate::truth::Truth;

    /// Only so many as connected in that moment, and never a count that is too high.
    #[test]
    fn a_client_cut_at_once_excuses_one_that_is_missing() {
        let cut = Attempt {
            client: 0,
            port: 4711,
            begin: 1_000_000_000,
            end: 1_000_000_000,
            outcome: Outcome::Cut,
        };
        let played = Played {
            history: draw::history(1, Draws::All, |_| true),
            container: String::new(),
            truth: Truth {
                ended: 1_001_000_000,
                attempts: vec![cut],
                ..Truth::default()
            },
        };
        let is_known = |class, short| {
            let what = String::new();
            kind(&Finding { class, what, short }, &played).is_some()
        };
        assert!(is_known(Class::WrongCount, 1));
        assert!(!is_known(Class::WrongCount, 0));
        assert!(!is_known(Class::WrongCount, 2));
        assert!(!is_known(Class::FalseQuiet, 1));
    }
}
