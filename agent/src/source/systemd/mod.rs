//! systemd and logind by their files: the configured inhibitor delay and the file that sets it, the locks held, the version. For
//! `epitaph doctor`, on a machine, on a mounted image, and where the bus is not reachable; what logind has in force is on the bus.
//!
//! Read-only and bounded. No program is started.

pub mod conf;
pub mod inhibit;
mod timespan;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use epitaph_core::node::Inhibitor;

use crate::source::files::{Directory, Entry, FileError};

use conf::{ConfFile, ConfState, LogindConf, Parsed};
pub use timespan::TimeSpan;

/// Of one file of logind's configuration. A file of a package has a few kilobytes.
const MOST: u64 = 256 << 10;
/// Files in one directory.
const FILES: usize = 256;
/// Locks.
const LOCKS: usize = 512;

/// Reads logind.conf and its drop-ins. `version`: systemd's, where it is known.
pub fn logind_conf(root: &Directory, version: Option<u32>) -> LogindConf {
    let mut files: Vec<ConfFile> = main(root, version).into_iter().collect();
    files.extend(drop_ins(root));
    LogindConf { files }
}

/// The first main file that exists; the others are not read.
fn main(root: &Directory, version: Option<u32>) -> Option<ConfFile> {
    let directories = match version {
        Some(version) if version < conf::MAIN_ANYWHERE => &conf::DIRECTORIES[..1],
        _ => &conf::DIRECTORIES[..4],
    };
    directories.iter().find_map(|directory| {
        let path = Path::new(directory).join(conf::MAIN);
        match root.entry(&path) {
            Ok(Entry::Missing) => None,
            Ok(Entry::Null) => Some(ConfFile {
                path,
                state: ConfState::Masked,
            }),
            Ok(_) => read(root, path),
            Err(error) => Some(unreadable(path, &error)),
        }
    })
}

/// Sorted by name over all directories; a hidden file stands behind the one that hides it.
fn drop_ins(root: &Directory) -> Vec<ConfFile> {
    let mut by_name: BTreeMap<OsString, Vec<ConfFile>> = BTreeMap::new();
    for directory in conf::DIRECTORIES {
        let directory = Path::new(directory).join(conf::DROP_INS);
        let names = match root.list(&directory, FILES + 1) {
            Ok(names) => names.unwrap_or_default(),
            Err(error) => {
                // Sorts before every file: what is there could be any name.
                by_name
                    .entry(OsString::new())
                    .or_default()
                    .push(unreadable(directory, &error));
                continue;
            }
        };
        if names.len() > FILES {
            let reason = format!("{} has more than {FILES} files", directory.display());
            let remedy = "remove what does not belong there";
            let state = ConfState::Unreadable { reason, remedy };
            by_name
                .entry(OsString::new())
                .or_default()
                .push(ConfFile { path: directory, state });
            continue;
        }
        for name in names.into_iter().filter(is_drop_in) {
            let path = directory.join(&name);
            let of_name = by_name.entry(name).or_default();
            let file = match of_name.first() {
                // `/lib` and `/usr/lib` can be one directory.
                Some(_) if directory.starts_with("/lib") && root.is_same(Path::new("/lib"), Path::new("/usr/lib")) => continue,
                Some(first) => ConfFile {
                    state: ConfState::Hidden { by: first.path.clone() },
                    path,
                },
                None => drop_in(root, path),
            };
            of_name.push(file);
        }
    }
    by_name.into_values().flatten().collect()
}

/// Of a unit, too.
pub(super) fn is_drop_in(name: &OsString) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    name.as_bytes().ends_with(b".conf") && !name.as_bytes().starts_with(b".")
}

fn drop_in(root: &Directory, path: PathBuf) -> ConfFile {
    match root.entry(&path) {
        Ok(Entry::Null) => ConfFile {
            path,
            state: ConfState::Masked,
        },
        // A link to nowhere has nothing, and hides the files of its name all the same.
        Ok(_) => read(root, path.clone()).unwrap_or_else(|| ConfFile {
            path,
            state: ConfState::Read(Parsed::default()),
        }),
        Err(error) => unreadable(path, &error),
    }
}

/// None if there is no file (any more).
fn read(root: &Directory, path: PathBuf) -> Option<ConfFile> {
    let state = match root.read(&path, MOST) {
        Ok(bytes) => ConfState::Read(Parsed::read(&bytes?)),
        Err(FileError::NotAFile { .. }) => ConfState::Read(Parsed::broken("not an ordinary file")),
        Err(error) => return Some(unreadable(path, &error)),
    };
    Some(ConfFile { path, state })
}

fn unreadable(path: PathBuf, error: &FileError) -> ConfFile {
    ConfFile {
        path,
        state: ConfState::Unreadable {
            reason: error.to_string(),
            remedy: match error {
                error if error.is_permission() => "run as root",
                FileError::TooLarge { .. } => "make the file shorter: epitaph does not read it",
                _ => "make it an ordinary file that can be read",
            },
        },
    }
}

/// The locks in `/run/systemd/inhibit`.
///
/// # Errors
/// As text, why they are not known: logind does not run here, its files are not readable, or have another form.
pub fn inhibitors(root: &Directory) -> Result<Vec<Inhibitor>, String> {
    const DIRECTORY: &str = "/run/systemd/inhibit";
    let directory = Path::new(DIRECTORY);
    let names = match root.list(directory, LOCKS) {
        Ok(Some(names)) => names,
        Ok(None) => return Err(format!("{DIRECTORY} does not exist")),
        Err(error) => return Err(error.to_string()),
    };
    if names.len() == LOCKS {
        return Err(format!("{DIRECTORY} has {LOCKS} files or more"));
    }
    let mut locks = Vec::new();
    // `3.ref` is the FIFO that keeps lock `3`.
    for name in names
        .iter()
        .filter(|name| name.to_str().is_some_and(|name| !name.contains('.')))
    {
        let path = directory.join(name);
        match root.read(&path, MOST) {
            Ok(Some(bytes)) => {
                locks.push(inhibit::parse(&bytes).ok_or_else(|| format!("{} has an unknown form", path.display()))?)
            }
            // Released meanwhile.
            Ok(None) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    locks.sort();
    Ok(locks)
}

/// systemd's version, by the name of its shared library or by the package's entry. The running systemd can be older than its files.
pub fn version(root: &Directory) -> Option<u32> {
    const LIBRARIES: [&str; 6] = [
        "/usr/lib/systemd",
        "/usr/lib64/systemd",
        "/usr/lib/x86_64-linux-gnu/systemd",
        "/usr/lib/aarch64-linux-gnu/systemd",
        "/lib/systemd",
        "/lib64/systemd",
    ];
    let of_library = LIBRARIES.iter().find_map(|directory| {
        let names = root.list(Path::new(directory), 4 * FILES).ok()??;
        names.iter().filter_map(|name| library_version(name.to_str()?)).max()
    });
    of_library.or_else(|| leading_number(&package_version(root, "systemd")?))
}

/// `libsystemd-shared-252.so`, `libsystemd-shared-252.22-1.fc37.so`.
fn library_version(name: &str) -> Option<u32> {
    leading_number(name.strip_prefix("libsystemd-shared-")?)
}

fn leading_number(text: &str) -> Option<u32> {
    text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The version of an installed Debian package.
pub fn package_version(root: &Directory, package: &str) -> Option<String> {
    const STATUS: u64 = 64 << 20;
    let bytes = root.read(Path::new("/var/lib/dpkg/status"), STATUS).ok()??;
    let text = String::from_utf8_lossy(&bytes);
    let entry = text.split("\n\n").find(|entry| {
        let name = entry.lines().find_map(|line| line.strip_prefix("Package: "));
        name.is_some_and(|name| name.trim() == package)
    })?;
    let field = |name: &str| entry.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()));
    field("Status: ").filter(|status| status.ends_with(" installed"))?;
    Some(crate::source::bounded(field("Version: ")?, 64))
}

#[cfg(test)]
#[path = "fuzz_tests.rs"]
mod fuzz;
#[cfg(test)]
mod tests;
