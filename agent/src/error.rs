//! Errors in words: what failed, and apart from it what to do about it.
//!
//! An error's `Display` says what failed, lowercase, with action and object; [`HasRemedy::remedy`] says what to do. Nothing looks
//! for one of them in the text of the other.

use std::borrow::Cow;
use std::error::Error;

pub type Remedy = Cow<'static, str>;

pub trait HasRemedy: Error {
    /// What a person can do about it, as a command; None where nothing is known to help.
    fn remedy(&self) -> Option<Remedy>;
}

/// In one line, for a log or a field: `what failed: its cause; remedy`.
pub fn line(error: &(impl HasRemedy + 'static)) -> String {
    with_remedy(chain(error), error.remedy(), "; ")
}

/// For a person at a terminal: what failed, and the remedy in a line of its own. Without a newline at the end.
pub fn lines(error: &(impl HasRemedy + 'static)) -> String {
    with_remedy(chain(error), error.remedy(), "\nremedy: ")
}

/// An error and what it came from, in one line, nothing twice.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |&error| error.source()) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn with_remedy(mut text: String, remedy: Option<Remedy>, separator: &str) -> String {
    if let Some(remedy) = remedy {
        text.push_str(separator);
        text.push_str(&remedy);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read {file}")]
    struct Unreadable {
        file: &'static str,
        source: io::Error,
        remedy: Option<Remedy>,
    }

    impl HasRemedy for Unreadable {
        fn remedy(&self) -> Option<Remedy> {
            self.remedy.clone()
        }
    }

    #[test]
    fn the_cause_and_the_remedy_follow() {
        let mut error = Unreadable {
            file: "a",
            source: io::Error::other("disk gone"),
            remedy: Some("name another file".into()),
        };
        assert_eq!(line(&error), "cannot read a: disk gone; name another file");
        assert_eq!(lines(&error), "cannot read a: disk gone\nremedy: name another file");
        error.remedy = None;
        assert_eq!((line(&error), lines(&error)), (chain(&error), chain(&error)));
    }
}
