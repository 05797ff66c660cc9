//! `docs/programs.md`.

use std::fmt::Write as _;

use super::{all, installed};
use crate::report::name;
use crate::runtime::Stop;
use crate::story::{End, Story};

const HEAD: &str = "\
# Real programs

This page answers: what do real programs do on a stop signal, and which verdict do they get?

The programs are those of Debian's packages. Each row is a test: the program runs as a container, gets
the signal (if the row has one), and SIGKILL, to what does not exit, after a grace period of 2 seconds (supervisord and servers up to 8, Celery 30). The verdict must be the one in the row. `cargo xtask test` plays the inits, the language
runtimes and most servers under load (Java needs a JDK), `cargo xtask test programs` also the other servers. `UPDATE_EXPECT=1 cargo test -p epitaph-tests --lib programs` writes this page from
the table of the tests (`tests/src/programs`).

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
