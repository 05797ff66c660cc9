//! Where the version stands, and the changelog's heading. Pure: files come and go as text.

use anyhow::{Context as _, Result, ensure};

/// A file before and after.
#[derive(Debug, PartialEq, Eq)]
pub struct Edit {
    pub path: &'static str,
    before: String,
    pub after: String,
}

impl Edit {
    /// The lines that change, as a diff without context.
    pub fn shown(&self) -> String {
        let mut out = self.path.to_owned();
        let (old, new): (Vec<_>, Vec<_>) = (self.before.lines().collect(), self.after.lines().collect());
        let same_begin = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        let rest = old.len().min(new.len()) - same_begin;
        let same_end = old
            .iter()
            .rev()
            .zip(new.iter().rev())
            .take(rest)
            .take_while(|(old, new)| old == new)
            .count();
        let (old, new) = (&old[same_begin..old.len() - same_end], &new[same_begin..new.len() - same_end]);
        match old.len() == new.len() {
            true => {
                for (old, new) in old.iter().zip(new).filter(|(old, new)| old != new) {
                    out += &format!("\n- {old}\n+ {new}");
                }
            }
            false => {
                out.extend(old.iter().map(|line| format!("\n- {line}")));
                out.extend(new.iter().map(|line| format!("\n+ {line}")));
            }
        }
        out
    }
}

/// Each place with the text around the version: another program's version may be the same number.
const PLACES: [(&str, &[&str]); 10] = [
    ("Cargo.toml", &["\nversion = \"{}\"\n"]),
    (
        "deploy/helm/epitaph/Chart.yaml",
        &["\nversion: {}\n", "\nappVersion: \"{}\"\n"],
    ),
    ("deploy/kubernetes/agent.yaml", &["version: \"{}\"\n", "image: epitaph:{}\n"]),
    (
        "deploy/kubernetes/observer.yaml",
        &["version: \"{}\"\n", "image: epitaph:{}\n"],
    ),
    ("deploy/kubernetes/policy.yaml", &["version: \"{}\"\n"]),
    ("deploy/examples/argo-cd.yaml", &["targetRevision: {}\n"]),
    ("deploy/krew/epitaph.yaml", &["version: v{}\n"]),
    ("deploy/examples/flux.yaml", &["tag: {}}\n"]),
    // Of a test that shows what /metrics has.
    ("agent/src/sink/metrics/tests.rs", &["version=\"{}\"}"]),
    (
        "docs/install.md",
        &[
            "epitaph-{}.oci.tar",
            "`epitaph:{}`",
            "--name epitaph:{}`",
            "epitaph_{}_amd64.deb",
        ],
    ),
];

pub const CHANGELOG: &str = "CHANGELOG.md";
const UNRELEASED: &str = "## Unreleased\n";

/// The changelog has a section of the version: it was released, or is about to be.
pub fn is_cut(changelog: &str, version: &str) -> bool {
    changelog.contains(&format!("\n## {version} - "))
}

/// The places of a later version, and the changelog; of the present version, whose section is missing, the changelog alone.
///
/// # Errors
/// The version is not later, a place has another version, or the changelog has nothing to release.
pub fn edits(old: &str, new: &str, today: &str, read: &dyn Fn(&str) -> Result<String>) -> Result<Vec<Edit>> {
    let (from, to) = (numbers(old)?, numbers(new)?);
    let before = read(CHANGELOG)?;
    let is_first = to == from && !is_cut(&before, new);
    ensure!(to > from || is_first, "{new} is not later than {old}");
    let mut edits = Vec::new();
    for (path, places) in PLACES.into_iter().filter(|_| !is_first) {
        let before = read(path)?;
        let mut after = before.clone();
        for place in places {
            let (was, is) = (place.replace("{}", old), place.replace("{}", new));
            ensure!(after.contains(&was), "{path} has no `{}`", was.trim());
            after = after.replace(&was, &is);
        }
        edits.push(Edit { path, before, after });
    }
    let (head, rest) = before.split_once(UNRELEASED).context("CHANGELOG.md has no `## Unreleased`")?;
    let unreleased = rest.split("\n## ").next().unwrap_or_default();
    ensure!(
        unreleased.lines().any(|line| line.starts_with("- ")),
        "CHANGELOG.md has nothing below `## Unreleased`"
    );
    let after = format!("{head}{UNRELEASED}\n## {new} - {today}\n{rest}");
    edits.push(Edit {
        path: CHANGELOG,
        before,
        after,
    });
    Ok(edits)
}

/// `1.2.3`.
fn numbers(version: &str) -> Result<[u64; 3]> {
    let parts: Vec<&str> = version.split('.').collect();
    let parts: [&str; 3] = parts.try_into().ok().with_context(|| format!("{version} is not as 1.2.3"))?;
    let mut numbers = [0; 3];
    for (number, part) in numbers.iter_mut().zip(parts) {
        let is_plain = part == "0" || !part.starts_with('0') && part.bytes().all(|b| b.is_ascii_digit());
        ensure!(is_plain, "{version} is not as 1.2.3");
        *number = part.parse().with_context(|| format!("{version} is not as 1.2.3"))?;
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::shell;

    /// Of this checkout: a place that has moved fails here, and not at a release.
    fn checkout(path: &str) -> Result<String> {
        Ok(fs::read_to_string(shell::root().join(path))?)
    }

    #[test]
    fn every_place_of_this_checkout_is_found_and_none_keeps_the_old_version() {
        let old = env!("CARGO_PKG_VERSION");
        let all = edits(old, "77.0.0", "2027-01-02", &checkout).unwrap();
        assert_eq!(all.len(), PLACES.len() + 1);
        for edit in &all {
            assert!(edit.after.contains("77.0.0") && edit.after != edit.before, "{}", edit.path);
            assert!(
                edit.shown().contains("+ ") && edit.shown().len() < edit.before.len() + 400,
                "{}",
                edit.shown()
            );
        }
        let manifests = all.iter().filter(|edit| edit.path.starts_with("deploy/"));
        for edit in manifests {
            let left: Vec<&str> = edit.after.lines().filter(|line| line.contains(old)).collect();
            assert!(left.is_empty(), "{}: {left:?}", edit.path);
        }
        let changelog = &all.last().unwrap().after;
        assert!(
            changelog.contains("## Unreleased\n\n## 77.0.0 - 2027-01-02\n\n###"),
            "{changelog}"
        );
    }

    #[test]
    fn a_version_that_is_not_later_and_a_changelog_without_news_are_refused() {
        let refused = |old: &str, new: &str| edits(old, new, "2027-01-02", &checkout).unwrap_err().to_string();
        let current = env!("CARGO_PKG_VERSION");
        let cut = |path: &str| match path {
            CHANGELOG => Ok(format!(
                "# Changelog\n\n## Unreleased\n\n- New.\n\n## {current} - 2026-01-02\n\n- Old.\n"
            )),
            path => checkout(path),
        };
        let error = edits(current, current, "2027-01-02", &cut).unwrap_err().to_string();
        assert!(error.contains("is not later"), "{error}");
        assert!(refused("0.10.0", "0.9.0").contains("is not later"));
        for wrong in ["1.2", "v1.2.3", "1.2.3-rc.1", "01.2.3", "1.2.x", ""] {
            assert!(refused(current, wrong).contains("is not as 1.2.3"), "{wrong}");
        }
        // The number of another program.
        assert!(refused("0.0.9", "9.0.0").contains("Cargo.toml has no `version = \"0.0.9\"`"));
        let empty = |path: &str| match path {
            CHANGELOG => Ok("# Changelog\n\n## Unreleased\n\n## 0.0.1\n\n- Old.\n".to_owned()),
            path => checkout(path),
        };
        let error = edits(current, "77.0.0", "2027-01-02", &empty).unwrap_err().to_string();
        assert!(error.contains("nothing below"), "{error}");
    }

    /// The first release: the checkout has its version from the beginning.
    #[test]
    fn the_present_version_without_a_section_is_cut_from_the_changelog_alone() {
        let current = env!("CARGO_PKG_VERSION");
        let uncut = |path: &str| match path {
            CHANGELOG => Ok("# Changelog\n\n## Unreleased\n\n- New.\n".to_owned()),
            path => checkout(path),
        };
        let all = edits(current, current, "2027-01-02", &uncut).unwrap();
        assert_eq!(all.len(), 1);
        let after = format!("# Changelog\n\n## Unreleased\n\n## {current} - 2027-01-02\n\n- New.\n");
        assert_eq!((all[0].path, all[0].after.as_str()), (CHANGELOG, after.as_str()));
        assert!(is_cut(&after, current) && !is_cut(&all[0].before, current));
    }

    #[test]
    fn a_diff_has_the_lines_that_change() {
        let edit = |before: &str, after: &str| Edit {
            path: "f",
            before: before.to_owned(),
            after: after.to_owned(),
        };
        assert_eq!(edit("a\nb\nc\n", "a\nB\nc\n").shown(), "f\n- b\n+ B");
        assert_eq!(edit("a\nc\n", "a\nb\nc\n").shown(), "f\n+ b");
        assert_eq!(
            edit("v 1\nx\nv 1\n", "v 2\nx\nv 2\n").shown(),
            "f\n- v 1\n+ v 2\n- v 1\n+ v 2"
        );
    }
}
