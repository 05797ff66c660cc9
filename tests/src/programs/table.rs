//! `docs/programs.md`.

use std::fmt::Write as _;

use super::{all, installed};
use crate::report::name;
use crate::runtime::Stop;
use crate::story::{End, Story};

const HEAD: &str = "\
# Real programs

This page answers: what do real programs do on a stop signal, and which verdict do they get?

The programs are from Debian's packages. Each row is a test. The program runs as a container and gets the signal of the row, if the row
has one. A program that does not exit gets SIGKILL after a grace period of 2 seconds (supervisord and servers up to 8, Celery 30). The
column *documented* has what the program's own documentation says about the signal. The verdict of Epitaph must be the verdict in the row.

`cargo xtask test` runs the tests of the inits, of the language runtimes and of most servers under load (Java needs a JDK).
`cargo xtask test programs` also runs the tests of the other servers. `UPDATE_EXPECT=1 cargo test -p epitaph-tests --lib programs` writes
this page from the table of the tests (`tests/src/programs`).

| program | case | signal | documented | ends with | verdict |
|---|---|---|---|---|---|
";

/// The whole page.
pub fn table() -> String {
    let mut page = HEAD.to_owned();
    let stories: Vec<&Story> = all().collect();
    let program = |story: &Story| installed(story).map(|program| program.name);
    let first = |story: &Story| stories.iter().position(|other| program(other) == program(story));
    let mut rows = stories.clone();
    rows.sort_by_key(|story| first(story));
    for story in rows {
        row(&mut page, story);
    }
    page += "\nNext: [which connections count as lost](traffic.md), or [what the verdicts mean](verdicts.md).\n";
    page
}

fn row(page: &mut String, story: &Story) {
    let Some(program) = installed(story) else { return };
    let signal = match story.stop {
        Stop::Signal { signal, .. } => name(signal),
        _ => "none".to_owned(),
    };
    let end = match story.expected.end {
        End::Code(code) => format!("code {code}"),
        End::Signal(signal) => name(signal),
    };
    let _ = writeln!(
        page,
        "| {} | {} | {signal} | {} | {end} | `{}` |",
        program.name, story.what, program.documented, story.expected.verdict
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/programs.md");
        expect_test::expect_file![path].assert_eq(&table());
    }

    #[test]
    fn each_row_holds_its_sentence() {
        let unheld: Vec<_> = all()
            .filter(|story| story.expected.sentence.is_empty())
            .map(|story| story.name)
            .collect();
        assert!(unheld.is_empty(), "no words of the sentence: {unheld:?}");
    }
}
