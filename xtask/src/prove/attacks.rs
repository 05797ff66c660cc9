//! The rows of the threat model's table of attacks are claims: each names its tests, in the page itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::claims::{Claim, Proof, THREATS, Test};

/// All tests of the checkout: the programs of tests in which each name is.
pub struct Tests(BTreeMap<String, BTreeSet<String>>);

impl Tests {
    /// # Errors
    /// A source cannot be read.
    pub fn read(root: &Path) -> Result<Tests> {
        let mut all = Tests(BTreeMap::new());
        for directory in ["agent", "tests", "xtask"] {
            all.walk(root, &root.join(directory))?;
        }
        ensure!(all.0.len() > 1_000, "{} names of tests", all.0.len());
        Ok(all)
    }

    fn walk(&mut self, root: &Path, directory: &Path) -> Result<()> {
        for entry in fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "target") {
                    self.walk(root, &path)?;
                }
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && let Some(program) = program(&path.strip_prefix(root)?.to_string_lossy())
            {
                for name in names(&fs::read_to_string(&path)?) {
                    self.0.entry(name.to_owned()).or_default().insert(program.clone());
                }
            }
        }
        Ok(())
    }

    pub fn has(&self, test: &Test) -> bool {
        self.0
            .get(&test.name)
            .is_some_and(|programs| programs.contains(&test.program))
    }

    /// The test of that name in one of `programs`, or if there are none, anywhere.
    fn find(&self, name: &str, programs: &BTreeSet<String>) -> Result<Test> {
        let known = self.0.get(name).with_context(|| format!("no test {name}"))?;
        let fitting: Vec<&String> = known
            .iter()
            .filter(|program| programs.is_empty() || programs.contains(*program))
            .collect();
        let [program] = fitting[..] else {
            bail!("test {name} is in {known:?}, and the row has {programs:?}");
        };
        Ok(Test {
            program: program.clone(),
            name: name.to_owned(),
        })
    }
}

/// As `cargo xtask test --only` names the program of tests that a source is in.
pub fn program(source: &str) -> Option<String> {
    let named = |rest: &str| rest.split(['/', '.']).next().map(str::to_owned);
    for (directory, library) in [
        ("agent/core/src/", "epitaph_core (lib)"),
        ("agent/story/src/", "epitaph_story (lib)"),
        ("agent/kubectl/src/", "kubectl_epitaph (lib)"),
        ("agent/src/", "epitaph (lib)"),
    ] {
        if source.starts_with(directory) {
            return Some(library.to_owned());
        }
    }
    let tests = ["tests/tests/", "agent/tests/", "agent/core/tests/", "agent/kubectl/tests/"];
    tests.iter().find_map(|directory| named(source.strip_prefix(directory)?))
}

/// The functions behind an attribute of a test.
fn names(source: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    source.lines().map(str::trim_start).filter_map(move |line| {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if is_test && !line.starts_with("#[") {
            is_test = false;
            return line.trim_start_matches("async ").strip_prefix("fn ")?.split('(').next();
        }
        None
    })
}

/// # Errors
/// A row names no test that there is, and does not state that there is none.
pub fn claims(page: &str, tests: &Tests) -> Result<Vec<Claim>> {
    let (_, rest) = page
        .split_once("\n| Attack | What stops it | Test |\n")
        .context("no table of attacks")?;
    let mut claims: Vec<Claim> = Vec::new();
    for row in rest.lines().skip(1).take_while(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [attack, _, test] = cells[..] else {
            bail!("not three cells: {row}")
        };
        let proof = match test {
            "the same test" => claims.last().context("no row before")?.proof.clone(),
            _ if test.starts_with("none: ") => Proof::ByHand,
            "`cargo xtask deny`" => Proof::command("deny", true),
            _ => Proof::Tests(named(test, tests).with_context(|| format!("the attack: {attack}"))?),
        };
        claims.push(Claim {
            page: THREATS,
            text: attack.to_owned(),
            proof,
        });
    }
    Ok(claims)
}

/// `file`: `test`, `test`; `file`: `test`. A file counts for the tests behind it.
fn named(cell: &str, tests: &Tests) -> Result<Vec<Test>> {
    let (mut programs, mut found, mut is_behind) = (BTreeSet::new(), Vec::new(), false);
    for word in cell.split('`').skip(1).step_by(2) {
        if word.ends_with(".rs") {
            if is_behind {
                programs.clear();
            }
            is_behind = false;
            programs.extend(program(word));
        } else if word.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
            is_behind = true;
            // Two files, each with a test of that name.
            for program in &programs {
                let one = BTreeSet::from([program.clone()]);
                found.extend(tests.find(word, &one));
            }
            if !found.iter().any(|test| test.name == word) {
                found.push(tests.find(word, &programs)?);
            }
        }
    }
    ensure!(!found.is_empty(), "no test is named");
    Ok(found)
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn a_source_is_in_the_program_that_is_named_after_it() {
        let program = |source| program(source).unwrap_or_default();
        assert_eq!(program("agent/core/src/ledger/tests.rs"), "epitaph_core (lib)");
        assert_eq!(program("agent/src/fuzz.rs"), "epitaph (lib)");
        assert_eq!(program("tests/tests/probes/budgets.rs"), "probes");
        assert_eq!(program("agent/core/tests/memory.rs"), "memory");
        assert_eq!(program("tests/src/guest/outside.rs"), "");
    }

    #[test]
    fn a_test_is_the_function_behind_its_attribute() {
        let source = "#[test]\n#[ignore]\nfn a() {}\n    #[tokio::test(start_paused = true)]\n    async fn b() {\nfn c() {}\n";
        assert_eq!(names(source).collect::<Vec<_>>(), ["a", "b"]);
    }
}
