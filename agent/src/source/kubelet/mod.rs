//! The kubelet's files: its configuration of graceful node shutdown, as the running kubelet was told to read it or where its
//! distribution keeps it, and the times of the last shutdown that it managed. Read-only and bounded; no program is started and no
//! text of a file is repeated in a message.

pub mod config;
mod configz;
pub mod flags;
pub mod period;
pub mod places;
pub mod process;
pub mod state;
pub mod unit;
mod watch;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use epitaph_core::ids::Pid;
use epitaph_core::node::{KubeletShutdown, KubeletState};
use epitaph_core::time::{Boot, Wall};

use crate::error::{HasRemedy, Remedy};
use crate::source::files::{Directory, Entry, FileError};

use config::{Invalid, Merged, Shutdown};
pub use configz::{Address, Configz, ConfigzError, NotAnAddress};
use flags::Flags;
use places::{PLACES, Place};
pub use process::{KubeletProcess, Running};
pub use watch::{KubeletFiles, Paths};

/// A configuration has a few kilobytes.
const MOST: u64 = 512 << 10;
/// Files of a drop-in directory, with its directories below.
const DROP_INS: usize = 256;
const DEPTH: usize = 8;

/// Where packages and installers put a program with a kubelet inside.
const PROGRAMS: [&str; 7] = [
    "/usr/bin/kubelet",
    "/usr/local/bin/kubelet",
    "/opt/bin/kubelet",
    "/home/kubernetes/bin/kubelet",
    "/usr/local/bin/k3s",
    "/usr/local/bin/rke2",
    "/usr/local/bin/k0s",
];

/// Which kubelet, and which files it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    pub flags: Flags,
    pub origin: Origin,
    /// By its files; the running kubelet's own where they are as its distribution has them.
    pub place: Option<&'static Place>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line of this process.
    Process { pid: Pid, start: Boot, unit: Option<String> },
    /// The flags of its unit, or a distribution's defaults: no process.
    Defaults,
    /// The settings of epitaph.
    Settings,
    /// What the kubelet itself answers: no file was read.
    Answer,
}

impl Origin {
    pub fn of(process: &KubeletProcess) -> Origin {
        Origin::Process {
            pid: process.pid,
            start: process.start,
            unit: process.unit.clone(),
        }
    }
}

/// The configuration as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured {
    /// In the order of merging: the file, then the drop-ins.
    pub files: Vec<PathBuf>,
    /// The latest change of one of them.
    pub modified: Option<(PathBuf, Wall)>,
    pub shutdown: Shutdown,
}

impl Configured {
    /// As the core has it.
    pub fn protection(&self) -> KubeletShutdown {
        let files: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        match files.is_empty() {
            true => self.shutdown.protection("no file"),
            false => self.shutdown.protection(&files.join(", ")),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path} does not exist", path = path.display())]
    Missing { path: PathBuf },
    #[error("{path} is not an absolute path: the kubelet's working directory is not known", path = path.display())]
    Relative { path: PathBuf },
    #[error("{path} has more than 256 files or 8 levels", path = path.display())]
    TooMany { path: PathBuf },
    #[error("{path} is {source}", path = path.display())]
    Invalid { path: PathBuf, source: Invalid },
    #[error("the merged configuration is wrong: {0}")]
    Merged(Invalid),
    #[error("the kubelet does not start with its configuration: {0}")]
    Refused(&'static str),
    #[error("{path}: {reason}", path = path.display())]
    State { path: PathBuf, reason: String },
}

impl KubeletError {
    /// Not a fault of the file: epitaph may not read it.
    pub fn is_permission(&self) -> bool {
        matches!(self, KubeletError::File(error) if error.is_permission())
    }
}

impl HasRemedy for KubeletError {
    fn remedy(&self) -> Option<Remedy> {
        Some(match self {
            KubeletError::File(_) if self.is_permission() => "run as root, or give the file in `kubelet.config`".into(),
            KubeletError::File(_) | KubeletError::TooMany { .. } => "make it an ordinary file as the kubelet reads it".into(),
            KubeletError::Missing { .. } => {
                "give the kubelet's file in `kubelet.config`, and its drop-ins in `kubelet.config_directory`".into()
            }
            KubeletError::Relative { .. } => "start the kubelet with absolute paths".into(),
            KubeletError::Invalid { .. } | KubeletError::Merged(_) | KubeletError::Refused(_) => {
                "correct the file: a kubelet that restarts with it does not start".into()
            }
            KubeletError::State { .. } => return None,
        })
    }
}

/// The kubelet that runs, by `process`; without one, its unit or the first distribution whose files exist below `root`.
///
/// # Errors
/// As text: there is a kubelet, and why the files that it reads are not known.
pub fn locate(root: &Directory, process: Option<&KubeletProcess>) -> Result<Option<Located>, String> {
    let Some(process) = process else {
        return by_files(root);
    };
    let mut flags = process.flags.clone();
    let mut place = place_of(&flags);
    if let Some(file) = &flags.arguments_file {
        // kubelite has many components; only the kubelet's own file counts.
        let text = root.read(file, MOST).ok().flatten().unwrap_or_default();
        let data = file.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        flags = Flags::parse_file(&String::from_utf8_lossy(&text), data);
    } else if process.name.starts_with("k3s") {
        // k3s gives the kubelet inside its flags in memory.
        place = PLACES.iter().find(|place| place.name == "k3s");
        flags = place.map(Place::flags).unwrap_or_default();
    }
    Ok(Some(Located {
        flags,
        origin: Origin::of(process),
        place,
    }))
}

fn by_files(root: &Directory) -> Result<Option<Located>, String> {
    // What cannot be looked at is not "no kubelet": reading it says why.
    let is_missing = |path: &Path| matches!(root.entry(path), Ok(Entry::Missing | Entry::Null | Entry::Other));
    let has_files = |place: &&Place| {
        let mut files = [place.config, place.config_directory].into_iter().flatten();
        files.any(|path| !is_missing(Path::new(path)))
    };
    let (flags, place) = match unit::flags(root)? {
        Some(flags) if flags.config.is_none() && flags.config_directory.is_none() => {
            return Err(format!("{} starts the kubelet without --config and --config-dir", unit::UNIT));
        }
        Some(flags) => {
            let place = place_of(&flags);
            (flags, place)
        }
        None => match PLACES.iter().find(has_files) {
            Some(place) => (place.flags(), Some(place)),
            None => {
                let program = PROGRAMS.iter().find(|path| !is_missing(Path::new(path)));
                let without = |path| {
                    format!(
                        "{path} is there, and neither {} nor a known distribution's configuration",
                        unit::UNIT
                    )
                };
                return program.map_or(Ok(None), |path| Err(without(path)));
            }
        },
    };
    // Written when the node joins or boots. A link to nowhere is another matter.
    match &flags.config {
        Some(config) if is_missing(config) => {
            Err(format!("the kubelet's configuration {} does not exist yet", config.display()))
        }
        _ => Ok(Some(Located {
            flags,
            origin: Origin::Defaults,
            place,
        })),
    }
}

fn place_of(flags: &Flags) -> Option<&'static Place> {
    PLACES.iter().find(|place| {
        let is = |given: &Option<PathBuf>, own: Option<&str>| own.is_some() && given.as_deref() == own.map(Path::new);
        is(&flags.config, place.config) || is(&flags.config_directory, place.config_directory)
    })
}

/// Reads and merges what the flags name.
///
/// # Errors
/// A file is missing, not readable, or not a configuration: then nothing is known.
pub fn configured(root: &Directory, flags: &Flags) -> Result<Configured, KubeletError> {
    let mut merged = Merged::default();
    let mut files = Vec::new();
    let mut modified: Option<(PathBuf, Wall)> = None;
    let mut take = |path: PathBuf, is_drop_in: bool| {
        let content = root
            .content(&path, MOST)?
            .ok_or_else(|| KubeletError::Missing { path: path.clone() })?;
        merged
            .merge(&content.bytes, is_drop_in)
            .map_err(|source| KubeletError::Invalid {
                path: path.clone(),
                source,
            })?;
        if modified.as_ref().is_none_or(|(_, latest)| *latest < content.modified) {
            modified = Some((path.clone(), content.modified));
        }
        files.push(path);
        Ok::<_, KubeletError>(())
    };
    if let Some(config) = &flags.config {
        take(absolute(config)?, false)?;
    }
    if let Some(directory) = &flags.config_directory {
        for path in drop_ins(root, absolute(directory)?)? {
            take(path, true)?;
        }
    }
    if let Some(gates) = &flags.feature_gates {
        merged.set_gates(gates);
    }
    let shutdown = merged.shutdown().map_err(KubeletError::Merged)?;
    Ok(Configured {
        files,
        modified,
        shutdown,
    })
}

fn absolute(path: &Path) -> Result<PathBuf, KubeletError> {
    match path.is_absolute() {
        true => Ok(path.to_owned()),
        false => Err(KubeletError::Relative { path: path.to_owned() }),
    }
}

/// The `.conf` files below a directory, as Go walks it: names in order, a directory's files in its place.
fn drop_ins(root: &Directory, directory: PathBuf) -> Result<Vec<PathBuf>, KubeletError> {
    let too_many = || KubeletError::TooMany { path: directory.clone() };
    let mut found = Vec::new();
    let mut seen = 0;
    // The next path is at the end.
    let mut open = vec![(directory.clone(), 0)];
    while let Some((path, depth)) = open.pop() {
        // Links are files to Go, whatever they lead to.
        let is_directory = depth == 0 || root.entry(&path)? == Entry::Directory;
        if !is_directory {
            if path.as_os_str().as_encoded_bytes().ends_with(b".conf") {
                found.push(path);
            }
            continue;
        }
        let names = root.list(&path, DROP_INS + 1)?;
        let mut names: Vec<OsString> = names.ok_or_else(|| KubeletError::Missing { path: path.clone() })?;
        seen += names.len();
        if seen > DROP_INS || depth == DEPTH {
            return Err(too_many());
        }
        names.sort_unstable_by(|a, b| b.cmp(a));
        open.extend(names.into_iter().map(|name| (path.join(name), depth + 1)));
    }
    Ok(found)
}

/// The times of the last shutdown; none of them if the kubelet has not managed one yet.
///
/// # Errors
/// The file is not readable, or not what the kubelet writes.
pub fn shutdown_state(root: &Directory, path: &Path) -> Result<KubeletState, KubeletError> {
    let Some(bytes) = root.read(path, 4 << 10)? else {
        return Ok(KubeletState::default());
    };
    state::parse(&bytes).map_err(|reason| KubeletError::State {
        path: path.to_owned(),
        reason,
    })
}

#[cfg(test)]
#[path = "fuzz_tests.rs"]
mod fuzz;
#[cfg(test)]
mod tests;
