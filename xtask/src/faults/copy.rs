//! The copy of the checkout, with a target directory of its own, which stays between the runs.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::shell;

/// What cargo builds in the copy.
const TARGET: &str = "target";

/// Makes `to` the same as the checkout: what git tracks, and what git would track. A file that is the same keeps its time, so that cargo
/// builds only what changed.
pub fn update(to: &Path) -> Result<()> {
    let mut git = Command::new("git");
    git.current_dir(shell::root())
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = shell::read(&mut git)?;
    let files: BTreeSet<PathBuf> = listed
        .split('\0')
        .filter(|file| !file.is_empty())
        .map(PathBuf::from)
        .filter(|file| shell::root().join(file).is_file())
        .collect();
    shell::log(format_args!("copying {} files to {}", files.len(), to.display()));
    mirror(&shell::root(), &files, to).with_context(|| format!("copying the checkout to {}", to.display()))
}

fn mirror(from: &Path, files: &BTreeSet<PathBuf>, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    remove_others(to, Path::new(""), files)?;
    for file in files {
        let (source, copy) = (from.join(file), to.join(file));
        let is_same = fs::read(&copy).is_ok_and(|known| fs::read(&source).is_ok_and(|new| new == known));
        if is_same {
            continue;
        }
        if let Some(directory) = copy.parent() {
            fs::create_dir_all(directory)?;
        }
        // With its mode. The time is of now: cargo compares it with that of the last build.
        fs::copy(&source, &copy)?;
    }
    Ok(())
}

/// Removes what is not in the checkout any more.
fn remove_others(to: &Path, below: &Path, files: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(to.join(below))? {
        let entry = entry?;
        let place = below.join(entry.file_name());
        if place == Path::new(TARGET) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            remove_others(to, &place, files)?;
        } else if !files.contains(&place) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_follows_the_checkout_and_keeps_what_is_built() {
        let directory = std::env::temp_dir().join(format!("epitaph-copy-{}", std::process::id()));
        let (from, to) = (directory.join("from"), directory.join("to"));
        let write = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let files = |names: &[&str]| -> BTreeSet<PathBuf> { names.iter().map(PathBuf::from).collect() };
        let all = ["a/same.rs", "a/changed.rs", "gone.rs"];
        all.iter().for_each(|name| write(&from.join(name), "first"));
        mirror(&from, &files(&all), &to).unwrap();
        write(&to.join("target/built"), "kept");
        let time = |name: &str| fs::metadata(to.join(name)).unwrap().modified().unwrap();
        let before = time("a/same.rs");

        // The second is of a fault that was not taken out again.
        write(&from.join("new/file.rs"), "second");
        write(&to.join("a/changed.rs"), "fault");
        mirror(&from, &files(&["a/same.rs", "a/changed.rs", "new/file.rs"]), &to).unwrap();
        let text = |name: &str| fs::read_to_string(to.join(name)).ok();
        assert_eq!(text("a/changed.rs").as_deref(), Some("first"));
        assert_eq!(text("new/file.rs").as_deref(), Some("second"));
        assert_eq!((text("gone.rs"), text("target/built").as_deref()), (None, Some("kept")));
        assert_eq!(time("a/same.rs"), before);
        fs::remove_dir_all(&directory).unwrap();
    }
}
