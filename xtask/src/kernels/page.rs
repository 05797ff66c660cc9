//! `docs/kernels.md`: the rows as measured, for people, and read back as what the next run must measure again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::PathBuf,
};

use anyhow::{Context as _, Result, bail};

use super::row::{ACTIVE, Row, list, lost};
use crate::shell;

/// The row of the machine that ran the others.
pub const RUNNING: &str = "running";

const HEAD: &str = "\
# Kernels

Made by `UPDATE_EXPECT=1 cargo xtask test kernels`, which also fails where a kernel does not do what stands here; do not edit.

The same binary, with the same probes in it, on each of these kernels: Debian's, unpacked from its packages and booted in an
emulated machine (QEMU without KVM, x86_64, two CPUs, cgroup v2), and `running`, the kernel of the machine that ran the others. In
each the agent stood all of its probes while processes of many threads ended, were killed and aborted, inits of pid namespaces
died before their children, a container and the whole machine ran out of memory (`running` is spared these: a kernel that does not
stand them takes the machine with it); then the probes were tested one by one, and the deaths of `cargo xtask demo` were played and
judged. Each machine lived to its end, and its kernel complained of nothing.

    cargo xtask test kernels              all of them; root for `running`, some three minutes per emulated kernel
    cargo xtask test kernels 5.10 6.1     these
    cargo xtask test kernels running      this machine's own
    cargo xtask kernels --list            what Debian has today; any of it can be named

A kernel that has no row yet is held to the row of the nearest older series, and a line says so.

Not run: 5.14 (RHEL 9), 5.15 (Ubuntu 22.04), 6.6 and 6.8 (Ubuntu 24.04), for no suite of Debian's archive has a package of them; kernels of other
distributions, whose patches can change what stands here; arm64; real network cards.
";

const PROBES: &str = "
## Probes

`active` tells all that it is there for. `substituted` tells less on that kernel, or nothing, and the probe that is named tells it instead;
verdicts and evidence say so where they rest on it. `unsupported` is not there, and verdicts that would need it are `unknown`.

| probe | state | kernels |
|---|---|---|
";

const STORIES: &str = "
## Deaths

How each was told: headline and, in brackets, cause, exit and traffic ([docs/verdicts.md](verdicts.md)). `known by` says how refused
clients were known: `server-reset` by the server's own answers, `client-error` by what clients on the same machine got. Where a client's
moment decides, both that it can be are named.
";

const TABLE: &str = "
| death | told as | kernels |
|---|---|---|
";

/// Rows by kernel series, oldest first, `running` last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    rows: BTreeMap<Series, Row>,
}

/// `5.10`, or `running`. Ordered as versions are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Series(Vec<u32>, String);

impl Series {
    fn new(name: &str) -> Series {
        let numbers: Option<Vec<u32>> = name.split('.').map(|part| part.parse().ok()).collect();
        Series(numbers.unwrap_or_else(|| vec![u32::MAX]), name.to_owned())
    }
}

impl Page {
    pub fn path() -> PathBuf {
        shell::root().join("docs/kernels.md")
    }

    /// The committed page; empty where there is none.
    ///
    /// # Errors
    /// It cannot be read, or is not as [`Page::write`] leaves it.
    pub fn read() -> Result<Page> {
        let path = Page::path();
        if !path.exists() {
            return Ok(Page::default());
        }
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        parse(&text).with_context(|| format!("reading the tables of {}", path.display()))
    }

    pub fn write(&self) -> Result<()> {
        let path = Page::path();
        fs::write(&path, self.text()).with_context(|| format!("writing {}", path.display()))
    }

    pub fn insert(&mut self, name: &str, row: Row) {
        self.rows.insert(Series::new(name), row);
    }

    /// What a kernel is held to: its series' row, else that of the nearest older one (a new kernel is expected to do what the last
    /// did; the day of Debian's next upload must not break anybody's run). `running`, of this `release`, has a row of its own only
    /// where that was measured on its series.
    pub fn expected(&self, name: &str, release: &str) -> Option<(&str, &Row)> {
        let of = |name: &str| self.rows.get_key_value(&Series::new(name));
        let found = if name == RUNNING {
            let series = series(release);
            of(RUNNING)
                .filter(|(_, row)| self::series(&row.release) == series)
                .or_else(|| self.nearest(&series))
        } else {
            self.nearest(name)
        };
        found.map(|(key, row)| (key.1.as_str(), row))
    }

    fn nearest(&self, series: &str) -> Option<(&Series, &Row)> {
        self.rows.range(..=Series::new(series)).next_back()
    }

    /// The cells of most rows.
    pub fn common(&self, cells: impl Fn(&Row) -> &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let groups = self.groups(cells);
        let mut common: BTreeMap<String, (usize, String)> = BTreeMap::new();
        for (name, cell, kernels) in groups {
            // Of as many, the newer kernels'.
            if common.get(&name).is_none_or(|(most, _)| kernels.len() >= *most) {
                common.insert(name, (kernels.len(), cell));
            }
        }
        common.into_iter().map(|(name, (_, cell))| (name, cell)).collect()
    }

    /// Name, cell, and the kernels that have it, in the order of names and then of the first kernel.
    fn groups(&self, cells: impl Fn(&Row) -> &BTreeMap<String, String>) -> Vec<(String, String, Vec<&str>)> {
        let names: BTreeSet<&String> = self.rows.values().flat_map(|row| cells(row).keys()).collect();
        let mut groups: Vec<(String, String, Vec<&str>)> = Vec::new();
        for name in names {
            for (key, row) in &self.rows {
                let Some(cell) = cells(row).get(name) else { continue };
                match groups.iter_mut().find(|(n, c, _)| n == name && c == cell) {
                    Some((_, _, kernels)) => kernels.push(&key.1),
                    None => groups.push((name.clone(), cell.clone(), vec![&key.1])),
                }
            }
        }
        groups
    }

    fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        text += "\n| kernel | tested | probes active | substituted | unsupported | deaths told | not played | records lost, deaths played again for that |\n\
                 |---|---|---|---|---|---|---|---|\n";
        for (key, row) in &self.rows {
            let in_state = |word: &str| {
                let of = row.probes.iter().filter(|(_, cell)| cell.starts_with(word));
                list(of.map(|(name, _)| format!("`{name}`")))
            };
            let active = row.probes.values().filter(|cell| *cell == ACTIVE).count();
            let played = row.stories.values().filter(|cell| Row::is_played(cell)).count();
            let _ = writeln!(
                text,
                "| {} | {} | {active} | {} | {} | {played} | {} | {} |",
                key.1,
                row.release,
                in_state("substituted"),
                in_state("unsupported"),
                row.stories.len() - played,
                lost(&row.lost)
            );
        }
        text += PROBES;
        let all = self.rows.len();
        let line = |text: &mut String, (name, cell, kernels): &(String, String, Vec<&str>)| {
            let kernels = if kernels.len() == all {
                "all".to_owned()
            } else {
                kernels.join(", ")
            };
            let _ = writeln!(text, "| `{name}` | {cell} | {kernels} |");
        };
        self.groups(|row| &row.probes).iter().for_each(|group| line(&mut text, group));
        text += STORIES;
        let (same, other): (Vec<_>, Vec<_>) = self
            .groups(|row| &row.stories)
            .into_iter()
            .partition(|(_, _, kernels)| kernels.len() == all);
        for (what, groups) in [("Not the same on all:", other), ("The same on all:", same)] {
            if !groups.is_empty() {
                let _ = write!(text, "\n{what}\n{TABLE}");
                groups.iter().for_each(|group| line(&mut text, group));
            }
        }
        text
    }
}

/// `6.18` of `6.18.44-cloud-amd64`.
fn series(release: &str) -> String {
    release.split(['.', '-', '~', '+']).take(2).collect::<Vec<_>>().join(".")
}

fn parse(text: &str) -> Result<Page> {
    let mut page = Page::default();
    let mut table = "";
    for line in text.lines() {
        let Some(line) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else {
            continue;
        };
        let cells: Vec<&str> = line.split(" | ").collect();
        match (table, cells.as_slice()) {
            (_, ["kernel" | "probe" | "death", ..]) => table = cells[0],
            ("kernel", [name, release, .., losses]) => {
                let row = Row {
                    release: (*release).to_owned(),
                    lost: parse_lost(losses)?,
                    complete: true,
                    ..Row::default()
                };
                page.insert(name, row);
            }
            ("probe" | "death", [name, cell, kernels]) => {
                let name = name.trim_matches('`');
                for (key, row) in &mut page.rows {
                    if *kernels == "all" || kernels.split(", ").any(|kernel| kernel == key.1) {
                        let cells = if table == "probe" { &mut row.probes } else { &mut row.stories };
                        cells.insert(name.to_owned(), (*cell).to_owned());
                    }
                }
            }
            _ => bail!("no such line: {line}"),
        }
    }
    Ok(page)
}

fn parse_lost(text: &str) -> Result<BTreeMap<String, u64>> {
    let one = |item: &str| {
        let (count, kind) = item.split_once(' ').with_context(|| format!("no count and kind: {item}"))?;
        Ok((kind.to_owned(), count.parse()?))
    };
    text.split(", ").filter(|item| *item != "none").map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(release: &str, lines: &[&str]) -> Row {
        let mut row = Row::default();
        lines.iter().for_each(|line| row.hear(line));
        row.hear("complete");
        row.release = release.to_owned();
        row
    }

    fn page() -> Page {
        let mut page = Page::default();
        page.insert(
            "6.12",
            row("6.12.117", &["probe a active", "probe b active", "story s clean (x, y, z)"]),
        );
        page.insert(
            "running",
            row("6.18.44-a", &["probe a active", "probe b active", "unplayable s not here"]),
        );
        page.insert(
            "5.10",
            row(
                "5.10.262",
                &[
                    "probe a active",
                    "probe b substituted a (in part)",
                    "story s clean (x, y, z)",
                    "lost tcp 2",
                ],
            ),
        );
        page
    }

    #[test]
    fn the_page_is_read_back_as_it_was_written() {
        let page = page();
        let text = page.text();
        assert_eq!(parse(&text).unwrap(), page);
        for line in [
            "| 5.10 | 5.10.262 | 1 | `b` | none | 1 | 0 | 2 tcp |",
            "| running | 6.18.44-a | 2 | none | none | 0 | 1 | none |",
            "| `a` | active | all |",
            "| `b` | substituted by a (in part) | 5.10 |",
            "| `s` | clean (x, y, z) | 5.10, 6.12 |",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "no {line} in {text}");
        }
    }

    #[test]
    fn a_kernel_without_a_row_is_held_to_the_nearest_older_one() {
        let page = page();
        let expected = |name, release| page.expected(name, release).map(|(key, _)| key);
        assert_eq!(expected("6.12", ""), Some("6.12"));
        assert_eq!(expected("6.2", ""), Some("5.10"));
        assert_eq!(expected("7.4", ""), Some("6.12"));
        assert_eq!(expected("5.4", ""), None);
        assert_eq!(expected("running", "6.18.7-b"), Some("running"));
        assert_eq!(expected("running", "7.1.2-b"), Some("6.12"));
    }

    #[test]
    fn the_committed_page_is_what_its_rows_make() {
        let page = Page::read().unwrap();
        if !page.rows.is_empty() {
            assert_eq!(
                fs::read_to_string(Page::path()).unwrap(),
                page.text(),
                "UPDATE_EXPECT=1 cargo xtask test kernels"
            );
        }
    }
}
