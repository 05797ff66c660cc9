//! ARCHITECTURE.md is a map: short, and every file and test that it names exists.

use std::collections::BTreeSet;
use std::fs;

use super::{MAP, ROOMS, files_but, page, quoted, root};

/// A map that is read in five minutes. What is not a map is in a module's comment, docs/rooms.md or docs/development.md.
#[test]
fn the_map_is_short() {
    const MOST: usize = 14_000;
    let bytes = page(MAP).len();
    assert!(bytes <= MOST, "{MAP} has {bytes} bytes, at most {MOST}");
}

#[test]
fn every_file_that_the_pages_name_exists() {
    for (name, least) in [(MAP, 50), (ROOMS, 5), ("docs/development.md", 50)] {
        let page = page(name);
        let named: Vec<&str> = quoted(&page).filter(|text| is_path(text)).collect();
        let missing: Vec<_> = named.iter().filter(|path| !root().join(path).exists()).collect();
        assert!(missing.is_empty(), "{name} names what does not exist: {missing:?}");
        assert!(named.len() >= least, "{name} names files: {named:?}");
    }
}

/// An invariant is what its proof holds. A word in backticks with two underscores or more is the name of a test.
#[test]
fn every_invariant_names_a_proof_that_exists() {
    let (page, tests) = (page(MAP), names_of_tests());
    let is_name = |text: &&str| {
        let of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        text.chars().all(of_name) && text.matches('_').count() >= 2
    };
    let missing: Vec<&str> = quoted(&page).filter(is_name).filter(|name| !tests.contains(*name)).collect();
    assert!(missing.is_empty(), "{MAP} names tests that do not exist: {missing:?}");

    let section = page.split("\n## ").find(|section| section.starts_with("Invariants"));
    let rows = section
        .expect("the invariants")
        .lines()
        .filter(|line| line.starts_with("| **"));
    let proofs: Vec<&str> = rows.filter_map(|row| row.split(" | ").nth(1)).collect();
    assert!(proofs.len() >= 20, "{} invariants", proofs.len());
    for proof in proofs {
        assert!(
            quoted(proof).any(|text| is_name(&text) || is_path(text)),
            "{proof}: no test and no file"
        );
    }
}

/// All functions with an attribute that makes them a test.
fn names_of_tests() -> BTreeSet<String> {
    let dirs = ["agent", "agent-ebpf", "tests", "xtask"];
    let files = dirs
        .iter()
        .flat_map(|dir| files_but(&root().join(dir), |name| name == "target", "rs"));
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a file of ours");
        let mut is_test = false;
        for line in text.lines().map(str::trim_start) {
            if line.starts_with("#[") {
                is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            } else if let Some(function) = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ") {
                let name = function.split(['(', '<']).next().unwrap_or_default();
                if is_test {
                    names.insert(name.to_owned());
                }
                is_test = false;
            }
        }
    }
    assert!(names.len() > 1_000, "{} tests", names.len());
    names
}

fn is_path(text: &str) -> bool {
    const TOP: [&str; 7] = ["agent/", "agent-ebpf/", "tests/", "xtask/", "deploy/", "docs/", ".ci/"];
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    is_plain && TOP.iter().any(|top| text.starts_with(top))
}
