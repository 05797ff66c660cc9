//! Errors as text: what failed, and separately the remedy.
//!
//! An error's `Display` is what failed, lowercase, with action and object; [`HasRemedy::remedy`] is what to do. No code extracts one
//! from the text of the other.

use std::borrow::Cow;
use std::error::Error;

pub(crate) use epitaph_core::text::chain;

pub type Remedy = Cow<'static, str>;

pub trait HasRemedy: Error {
    /// What the user can do, as a command; None if no remedy is known.
    fn remedy(&self) -> Option<Remedy>;
}

/// In one line, for a log or a field: `what failed: cause; remedy`.
pub fn line(error: &(impl HasRemedy + 'static)) -> String {
    with_remedy(chain(error), error.remedy(), "; ")
}

/// For a terminal: what failed, and the remedy in a separate line. Without a newline at the end.
pub fn lines(error: &(impl HasRemedy + 'static)) -> String {
    with_remedy(chain(error), error.remedy(), "\nremedy: ")
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
