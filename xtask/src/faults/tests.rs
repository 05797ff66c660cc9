use std::collections::BTreeSet;

use super::*;
use crate::suites;

/// So that the table follows the code.
#[test]
fn every_fault_changes_one_place_of_the_product() {
    for fault in FAULTS {
        let path = shell::root().join(fault.file);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", fault.file));
        let applied = fault.applied(&text).unwrap();
        assert_ne!(applied, text, "{}", fault.name);
        assert!(!fault.file.contains("test"), "{}: not of the product", fault.name);
    }
    let names: BTreeSet<&str> = FAULTS.iter().map(|fault| fault.name).collect();
    assert_eq!(names.len(), FAULTS.len(), "two faults of a name");
}

#[test]
fn every_fault_names_the_tests_that_look_for_it() {
    let sources = ["agent", "agent-ebpf", "tests/tests"].map(|directory| texts(&shell::root().join(directory)));
    let sources = sources.concat();
    for fault in FAULTS {
        assert!(!fault.suites.is_empty() && !fault.tests.is_empty(), "{}", fault.name);
        for test in fault.tests {
            let function = format!("fn {test}(");
            let count = sources.iter().filter(|text| text.contains(&function)).count();
            assert_eq!(count, 1, "{}: {function}", fault.name);
        }
    }
}

/// The tests that wait for markers: faults that a unit test finds prove nothing about them.
#[test]
fn live_tests_have_faults_of_their_own() {
    let suites = FAULTS.iter().flat_map(|fault| fault.suites).copied();
    let live: BTreeSet<&str> = suites.filter(|suite| !suites::is_pure(suite)).collect();
    assert!(live.len() >= 4, "{live:?}");
}

/// All sources below.
fn texts(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(texts(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(fs::read_to_string(&path).unwrap());
        }
    }
    found
}

fn fault() -> Fault {
    Fault {
        name: "example",
        what: "an example",
        file: "a.rs",
        find: "count += 1",
        replace: "count += 2",
        suites: &["probes"],
        tests: &["a_count"],
    }
}

#[test]
fn a_text_that_is_not_there_once_is_an_error() {
    assert_eq!(fault().applied("x; count += 1;").unwrap(), "x; count += 2;");
    for text in ["count += 3;", "count += 1; count += 1;"] {
        assert!(fault().applied(text).is_err());
    }
}

fn seen(printed: &str) -> Seen {
    let mut seen = Seen::default();
    printed.lines().for_each(|line| seen.line(line));
    seen
}

#[test]
fn only_a_failure_of_a_test_that_looks_for_the_fault_finds_it() {
    let outcome = |printed: &str| fault().outcome(seen(printed));
    let closing = "test result: FAILED. 1 passed; 1 failed; 0 ignored\n1 passed, 1 failed, 0 skipped";
    let failed = |test: &str| outcome(&format!("test {test} ... FAILED\n{closing}"));
    assert_eq!(failed("deep::a_count"), Outcome::Found(vec!["deep::a_count".to_owned()]));
    assert_eq!(failed("by_chance"), Outcome::NotFound(vec!["by_chance".to_owned()]));
    assert_eq!(
        outcome("test a_count ... ok\n1 passed, 0 failed, 0 skipped"),
        Outcome::NotFound(Vec::new())
    );
    // A program that was cut off is no proof, nor is one that was not built.
    assert_eq!(outcome("test a_count ... FAILED"), Outcome::NotBuilt);
}

#[test]
fn a_skipped_test_is_known_by_its_function() {
    let seen = seen("SKIP deep::a_count: no kernel: none (allowed: root)\n0 passed, 0 failed, 1 skipped");
    assert!(seen.skipped.contains("a_count"));
}
