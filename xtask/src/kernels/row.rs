//! One kernel's row: what the guest reported of each probe, each story and the lost records, and the difference from another row.

use std::{collections::BTreeMap, fmt};

/// Up to this number of lost records of a kind is not a difference: interrupts hit a probe by chance.
const BY_CHANCE: u64 = 32;

/// All cells are text as written in `docs/kernels.md`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The exact version that was run.
    pub release: String,
    /// By tracepoint: `active`, `substituted by PROBE (what of it)`, `unsupported: why`.
    pub probes: BTreeMap<String, String>,
    /// By story: its verdict and axes, or `not played: why`.
    pub stories: BTreeMap<String, String>,
    /// Records, by kind.
    pub lost: BTreeMap<String, u64>,
    /// The guest completed: nothing is missing above.
    pub complete: bool,
}

pub const ACTIVE: &str = "active";
const NOT_PLAYED: &str = "not played: ";

/// What was played of what a row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Played {
    All,
    /// Some stories were selected by name.
    Some,
    /// By a machine that may lack what the emulated ones have.
    Elsewhere,
}

impl Row {
    /// Takes a line of the guest's report (`tests/src/guest/row.rs`), without its `row `.
    pub fn read_line(&mut self, line: &str) {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default();
        match (word(), word(), word(), word()) {
            ("kernel", release, ..) => release.clone_into(&mut self.release),
            ("probe", name, state, text) => {
                let cell = match (state, text) {
                    (state, "") => state.to_owned(),
                    ("substituted", by) => format!("substituted by {by}"),
                    (state, why) => format!("{state}: {why}"),
                };
                self.probes.insert(name.to_owned(), plain(&cell));
            }
            ("story", name, headline, axes) => drop(self.stories.insert(name.to_owned(), plain(&format!("{headline} {axes}")))),
            ("unplayable", name, first, rest) => {
                let cell = format!("{NOT_PLAYED}{first} {rest}");
                self.stories.insert(name.to_owned(), plain(cell.trim_end()));
            }
            ("lost", kind, count, _) => drop(self.lost.insert(kind.to_owned(), count.parse().unwrap_or(0))),
            ("complete", ..) => self.complete = true,
            _ => {}
        }
    }

    /// Each cell that is not as `expected` has it.
    pub fn differences(&self, expected: &Row, played: Played) -> Vec<String> {
        let mut found = Vec::new();
        for name in expected
            .probes
            .keys()
            .chain(self.probes.keys().filter(|name| !expected.probes.contains_key(*name)))
        {
            differ(&mut found, name, expected.probes.get(name), self.probes.get(name));
        }
        for (name, cell) in &self.stories {
            let there = expected.stories.get(name);
            let both = Row::is_played(cell) && there.is_none_or(|cell| Row::is_played(cell));
            if both || played != Played::Elsewhere {
                differ(&mut found, name, there, Some(cell));
            }
        }
        if played != Played::Some {
            for (name, cell) in expected.stories.iter().filter(|(name, _)| !self.stories.contains_key(*name)) {
                differ(&mut found, name, Some(cell), None);
            }
        }
        // Other load on a person's own machine can lose records, too.
        for (kind, is) in self.lost.iter().filter(|_| played != Played::Elsewhere) {
            let was = expected.lost.get(kind).unwrap_or(&0);
            if *is > BY_CHANCE.max(*was) {
                found.push(format!("{kind} records lost: expected about {was}, measured {is}"));
            }
        }
        found
    }

    /// The number of stories by headline, and of those that were not played.
    pub fn headlines(&self) -> String {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for cell in self.stories.values() {
            let headline = if cell.starts_with(NOT_PLAYED) {
                "not played"
            } else {
                cell.split(" (").next().unwrap_or(cell)
            };
            *counts.entry(headline).or_default() += 1;
        }
        list(counts.iter().map(|(headline, count)| format!("{count} {headline}")))
    }

    pub fn is_played(cell: &str) -> bool {
        !cell.starts_with(NOT_PLAYED)
    }
}

impl fmt::Display for Row {
    /// In one line; what is the same everywhere is the caller's to leave out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let active: Vec<&str> = self
            .probes
            .iter()
            .filter(|(_, cell)| *cell == ACTIVE)
            .map(|(name, _)| name.as_str())
            .collect();
        write!(f, "{} active ({})", active.len(), active.join(", "))?;
        for (name, cell) in self.probes.iter().filter(|(_, cell)| *cell != ACTIVE) {
            write!(f, "; {name} {cell}")?;
        }
        write!(f, " | {} | lost: {}", self.headlines(), lost(&self.lost))
    }
}

/// `none`, or counts by kind.
pub fn lost(lost: &BTreeMap<String, u64>) -> String {
    list(lost.iter().map(|(kind, count)| format!("{count} {kind}")))
}

/// Comma between, `none` where there is nothing.
pub fn list(items: impl Iterator<Item = String>) -> String {
    let text = items.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "none".to_owned() } else { text }
}

fn differ(found: &mut Vec<String>, name: &str, expected: Option<&String>, measured: Option<&String>) {
    if expected != measured {
        let shown = |cell: Option<&String>| cell.map_or("nothing", String::as_str).to_owned();
        found.push(format!("{name}: expected {}, measured {}", shown(expected), shown(measured)));
    }
}

/// A cell must not end its table.
fn plain(text: &str) -> String {
    text.replace('|', "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(lines: &[&str]) -> Row {
        let mut row = Row::default();
        lines.iter().for_each(|line| row.read_line(line));
        row
    }

    const OLD: [&str; 6] = [
        "kernel 5.10.0-43-cloud-amd64",
        "probe signal_generate active",
        "probe tcp_send_reset substituted inet_sock_set_state (a refused SYN)",
        "story exits clean (stopped, clean, quiet)",
        "unplayable cgroup-kill no cgroup.kill: the kernel is older than 5.14",
        "complete",
    ];

    #[test]
    fn a_row_has_what_the_guest_reports() {
        let row = row(&OLD);
        assert!(row.complete);
        assert_eq!(row.release, "5.10.0-43-cloud-amd64");
        assert_eq!(
            row.probes["tcp_send_reset"],
            "substituted by inet_sock_set_state (a refused SYN)"
        );
        assert_eq!(row.stories["exits"], "clean (stopped, clean, quiet)");
        assert_eq!(
            row.stories["cgroup-kill"],
            "not played: no cgroup.kill: the kernel is older than 5.14"
        );
        assert_eq!(
            row.to_string(),
            "1 active (signal_generate); tcp_send_reset substituted by inet_sock_set_state (a refused SYN) | 1 clean, 1 not \
             played | lost: none"
        );
    }

    #[test]
    fn every_other_cell_is_a_difference() {
        let old = row(&OLD);
        assert_eq!(old.differences(&old, Played::All), Vec::<String>::new());
        let new = row(&[
            "probe signal_generate active",
            "probe tcp_send_reset active",
            "story exits unknown (unknown, unknown, quiet)",
            "lost tcp 33",
            "complete",
        ]);
        let differences = |row: &Row, played| row.differences(&old, played).join("\n");
        let played = "\
tcp_send_reset: expected substituted by inet_sock_set_state (a refused SYN), measured active
exits: expected clean (stopped, clean, quiet), measured unknown (unknown, unknown, quiet)";
        let missing = "cgroup-kill: expected not played: no cgroup.kill: the kernel is older than 5.14, measured nothing";
        let lost = "tcp records lost: expected about 0, measured 33";
        assert_eq!(differences(&new, Played::All), format!("{played}\n{missing}\n{lost}"));
        assert_eq!(differences(&new, Played::Some), format!("{played}\n{lost}"));
        // The other way round: a probe, or a story, that the page does not have.
        assert_eq!(old.differences(&Row::default(), Played::All).len(), 4);
    }

    #[test]
    fn a_story_that_the_machine_cannot_play_is_not_a_difference() {
        let (mut here, there) = (row(&OLD), row(&OLD));
        here.read_line("unplayable exits no memory controller");
        here.read_line("story cgroup-kill force-killed (killed, killed, quiet)");
        assert_eq!(here.differences(&there, Played::Elsewhere), Vec::<String>::new());
        assert_eq!(here.differences(&there, Played::All).len(), 2);
    }
}
