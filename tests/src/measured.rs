//! Results of earlier runs of `cargo xtask bench`, which lie in the repository: `tests/benches/cost/results.tsv`. A line has the commit, the
//! machine, what was measured, and the result as the table shows it. Only results of the same machine compare.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Results that are shown beside a new one.
const SHOWN: usize = 3;
/// A result that is worse by more than this part is named.
const NAMED: f64 = 0.05;

pub struct Earlier {
    file: PathBuf,
    machine: String,
    /// Oldest first.
    results: Vec<(String, String)>,
}

/// Which of two numbers is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Less,
    More,
}

impl Better {
    /// By a goal as the table has it: `<= 1.2x`, `>= 1 M/s`. None: no number.
    pub fn of_goal(goal: &str) -> Option<Better> {
        match goal.chars().next()? {
            '<' => Some(Better::Less),
            '>' => Some(Better::More),
            _ => None,
        }
    }
}

impl Earlier {
    /// # Errors
    /// If the file is there and cannot be read, or has a line of another form.
    pub fn read(file: &Path, machine: &str) -> io::Result<Earlier> {
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let mut results = Vec::new();
        for line in text.lines() {
            let [_, of, what, reached] = line.split('\t').collect::<Vec<_>>()[..] else {
                let problem = format!("{}: not four columns: {line}", file.display());
                return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
            };
            if of == machine {
                results.push((what.to_owned(), reached.to_owned()));
            }
        }
        Ok(Earlier {
            file: file.to_owned(),
            machine: machine.to_owned(),
            results,
        })
    }

    /// The last results, newest first.
    pub fn last(&self, what: &str) -> Vec<&str> {
        let of = self.results.iter().rev().filter(|(known, _)| known == what);
        of.map(|(_, reached)| &**reached).take(SHOWN).collect()
    }

    /// By how many percent `reached` is worse than the median of the last results, if that is much.
    pub fn worse(&self, what: &str, goal: &str, reached: &str) -> Option<f64> {
        let better = Better::of_goal(goal)?;
        let mut last: Vec<f64> = self.last(what).into_iter().filter_map(number).collect();
        last.sort_by(f64::total_cmp);
        // Of two the better one.
        let middle = match (better, last.len()) {
            (_, 0) => return None,
            (Better::Less, len) => last[(len - 1) / 2],
            (Better::More, len) => last[len / 2],
        };
        let now = number(reached)?;
        let by = match better {
            Better::Less => now / middle - 1.0,
            Better::More => middle / now - 1.0,
        };
        (by > NAMED).then_some(100.0 * by)
    }

    /// # Errors
    /// If the file cannot be written.
    pub fn add<'a>(&self, commit: &str, results: impl Iterator<Item = (&'a str, &'a str)>) -> io::Result<()> {
        let lines: String = results
            .map(|(what, reached)| format!("{commit}\t{}\t{what}\t{reached}\n", self.machine))
            .collect();
        let mut file = OpenOptions::new().create(true).append(true).open(&self.file)?;
        file.write_all(lines.as_bytes())
    }
}

/// The number that a result begins with: `7.03x`, `31.5 MiB`, `0.20 %`. None of a result with several: `62 µs; 3 µs`.
fn number(reached: &str) -> Option<f64> {
    let end = reached
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(reached.len());
    let (number, unit) = reached.split_at(end);
    let is_one = !unit.contains(|c: char| c.is_ascii_digit());
    number.parse().ok().filter(|_| is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_compared_with_the_last_three_of_its_machine() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("results.tsv");
        let earlier = Earlier::read(&file, "one").unwrap();
        assert!(earlier.last("ratio").is_empty() && earlier.worse("ratio", "<= 5x", "9.00x").is_none());
        for ratio in ["1.00x", "5.00x", "4.00x", "4.20x"] {
            let all = [("ratio", ratio), ("speed", "2.40 M/s"), ("both", "62 µs; 3 µs")];
            earlier.add("abcdef0", all.into_iter()).unwrap();
        }
        let other = Earlier::read(&file, "other").unwrap();
        other.add("abcdef0", [("ratio", "9.00x")].into_iter()).unwrap();

        let earlier = Earlier::read(&file, "one").unwrap();
        assert_eq!(earlier.last("ratio"), ["4.20x", "4.00x", "5.00x"]);
        let worse = |what, goal, reached| earlier.worse(what, goal, reached).map(|by| format!("{by:.0}"));
        assert_eq!(worse("ratio", "<= 5x", "4.40x"), None, "within 5 % of 4.20");
        assert_eq!(worse("ratio", "<= 5x", "4.62x").as_deref(), Some("10"));
        assert_eq!(worse("ratio", "<= 5x", "1.00x"), None);
        assert_eq!(worse("speed", ">= 1 M/s", "2.00 M/s").as_deref(), Some("20"));
        assert_eq!(worse("speed", ">= 1 M/s", "5.00 M/s"), None);
        assert_eq!(worse("both", "<= 1 µs", "99 µs; 3 µs"), None, "two numbers");
        assert_eq!(worse("ratio", "none lost", "9.00x"), None, "no number to reach");
        assert_eq!(other.last("ratio").len(), 0, "read before");

        fs::write(&file, "abcdef0\tone\tratio\n").unwrap();
        assert!(Earlier::read(&file, "one").is_err());
    }
}
