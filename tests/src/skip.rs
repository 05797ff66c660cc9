//! A test that this machine cannot run is reported and counted: never omitted in silence, never counted as passed.

use std::{fs::OpenOptions, io::Write as _};

/// Reports that `name` is not run here, and why. `name` is the test's own (its last path segment: then the test counts as
/// skipped, not as passed, and returns right after this) or that of a part of it.
///
/// `tests/allowed-skips.txt` lists the names that may be skipped, and where; `cargo xtask test` fails on any other.
///
/// # Panics
/// If the file that `cargo xtask test` names in `EPITAPH_SKIPS` cannot be appended to: a skip would be lost.
pub fn skip(name: &str, reason: &str) {
    let line = format!("{}\t{}\n", one_line(name), one_line(reason));
    println!("SKIP {}", line.trim_end().replacen('\t', ": ", 1));
    #[expect(clippy::disallowed_methods, reason = "set by cargo xtask test for this function alone")]
    let Some(file) = std::env::var_os("EPITAPH_SKIPS") else {
        return;
    };
    // One append of one line: tests run side by side.
    let written = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&file)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("recording the skip of {name} in {}: {error}", file.display());
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
