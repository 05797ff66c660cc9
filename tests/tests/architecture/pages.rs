//! The pages for people: links lead somewhere, the first pages are short, and every page is reached from the index.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use super::{files_but, root};

/// Two lines of 140 characters: who looks for an answer reads the rows, and details are in sections below.
#[test]
fn the_rows_of_limits_are_short() {
    const MOST: usize = 280;
    /// Of the first page: what fits on a screen.
    const FIRST: std::ops::RangeInclusive<usize> = 15..=25;
    let first = fs::read_to_string(root().join("docs/limits.md")).expect("docs/limits.md");
    let table = first.split("\n## ").next().unwrap_or_default();
    let count = table.lines().filter(|line| line.starts_with("| ")).count() - 1;
    assert!(
        FIRST.contains(&count),
        "{count} rows before the first heading of docs/limits.md"
    );
    let pages = files_but(&root().join("docs/limits"), |_| false, "md");
    let text: Vec<String> = pages.iter().map(|page| fs::read_to_string(page).expect("a page")).collect();
    let rows = || text.iter().chain([&first]).flat_map(|page| page.lines());
    let long: Vec<&str> = rows()
        .filter(|line| line.starts_with('|') && line.chars().count() > MOST)
        .collect();
    assert!(rows().filter(|line| line.starts_with("| ")).count() > 150);
    assert!(long.is_empty(), "rows of limits over {MOST} characters:\n{}", long.join("\n"));
}

/// One page for people who have never seen the project.
#[test]
fn the_first_page_is_short() {
    let lines = fs::read_to_string(root().join("README.md"))
        .expect("README.md")
        .lines()
        .count();
    assert!(lines <= 120, "README.md has {lines} lines, at most 120");
}

/// A link in a page leads to a file, and to a heading of that file.
#[test]
fn the_links_of_the_pages_lead_somewhere() {
    let pages = pages();
    let mut dead = Vec::new();
    let mut count = 0;
    for (page, text) in &pages {
        for link in links(text) {
            count += 1;
            let (path, heading) = link
                .split_once('#')
                .map_or((link, None), |(path, heading)| (path, Some(heading)));
            let target = match path {
                "" => page.clone(),
                path => page.parent().expect("a directory").join(path),
            };
            let Ok(target) = target.canonicalize() else {
                dead.push(format!("{}: {link}", page.display()));
                continue;
            };
            let has_heading = |heading: &str| pages.get(&target).is_some_and(|text| headings(text).contains(heading));
            if heading.is_some_and(|heading| !has_heading(heading)) {
                dead.push(format!("{}: {link} has no such heading", page.display()));
            }
        }
    }
    assert!(count > 200, "{count} links");
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

/// From docs/README.md a reader finds every page, by links alone; each page opens with what it answers and ends with the next one.
#[test]
fn every_page_is_reached_from_the_index() {
    let pages = pages();
    let mut open = vec![root().join("docs/README.md").canonicalize().expect("docs/README.md")];
    let mut reached: BTreeSet<PathBuf> = BTreeSet::new();
    while let Some(page) = open.pop() {
        let Some(text) = pages.get(&page).filter(|_| reached.insert(page.clone())) else {
            continue;
        };
        let targets = links(text).map(|link| {
            page.parent()
                .expect("a directory")
                .join(link.split('#').next().unwrap_or_default())
        });
        open.extend(targets.filter_map(|target| target.canonicalize().ok()));
    }
    let docs = root().join("docs").canonicalize().expect("docs");
    let lost: Vec<_> = pages
        .keys()
        .filter(|page| page.starts_with(&docs) && !reached.contains(*page))
        .collect();
    assert!(lost.is_empty(), "no link leads to {lost:?}");
    // The index leads everywhere.
    let read_alone = |page: &PathBuf| page.starts_with(&docs) && *page != docs.join("README.md");
    for (page, text) in pages.iter().filter(|(page, _)| read_alone(page)) {
        let answers = text.lines().take(6).any(|line| line.starts_with("This page answers"));
        // The last paragraph.
        let next = text
            .trim_end()
            .rsplit("\n\n")
            .next()
            .is_some_and(|last| last.starts_with("Next: "));
        let is_short = !page.starts_with(docs.join("start")) || text.lines().count() <= 60;
        assert!(
            is_short && answers && next,
            "{} is a beginning and longer than a screen, or has no question or no next page",
            page.display()
        );
    }
}

/// The pages for people, by their path.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut files = files_but(&root().join("docs"), |_| false, "md");
    files.extend(files_but(&root().join("deploy"), |_| false, "md"));
    files.extend(["README.md", "ARCHITECTURE.md", "SECURITY.md"].map(|name| root().join(name)));
    files
        .into_iter()
        .map(|file| {
            let text = fs::read_to_string(&file).expect("a page");
            (file.canonicalize().expect("it exists"), text)
        })
        .collect()
}

/// Targets within the repository, outside of code.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    let targets = prose.flat_map(|text| {
        text.split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
    });
    targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace))
}

/// As GitHub names headings: small letters, digits, hyphens for spaces; a second one of a name has a number.
fn headings(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let prose = text.split("```").step_by(2);
    let lines = prose.flat_map(str::lines).filter_map(|line| {
        line.trim_start_matches('#')
            .strip_prefix(' ')
            .filter(|_| line.starts_with('#'))
    });
    lines
        .map(|heading| {
            let kept = heading.to_lowercase();
            let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            let slug = kept.collect::<String>().replace(' ', "-");
            let count = seen.entry(slug.clone()).or_default();
            *count += 1;
            if *count > 1 { format!("{slug}-{}", *count - 1) } else { slug }
        })
        .collect()
}
