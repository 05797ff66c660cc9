//! logind.conf and its drop-ins: which of the files sets `InhibitDelayMaxSec`. Pure: the files' bytes come as values.
//!
//! As systemd reads them (logind.conf(5), `config_parse_standard_file_with_dropins`): one main file, then the drop-ins of all
//! directories together, sorted by file name; of two drop-ins with one name, that of the higher directory; the last assignment counts.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::TimeSpan;
use super::timespan::BLANKS;

/// logind's own value without a setting.
pub const DEFAULT_DELAY: Duration = Duration::from_secs(5);

/// The setting.
pub const KEY: &str = "InhibitDelayMaxSec";

/// Directories of the configuration, the highest first. `/lib` is a directory of its own where /usr is not merged.
pub const DIRECTORIES: [&str; 5] = [
    "/etc/systemd",
    "/run/systemd",
    "/usr/local/lib/systemd",
    "/usr/lib/systemd",
    "/lib/systemd",
];

pub const MAIN: &str = "logind.conf";
pub const DROP_INS: &str = "logind.conf.d";

/// The drop-in that the kubelet writes into `/etc` where the delay is too short for its periods.
pub const KUBELETS: &str = "99-kubelet.conf";

/// From this version on the main file may also stand below `/run` and `/usr`.
pub const MAIN_ANYWHERE: u32 = 256;

/// One file of logind's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfFile {
    /// As the machine has it.
    pub path: PathBuf,
    pub state: ConfState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfState {
    /// `/dev/null` or a link to it: nothing is set, and files of the same name in lower directories are not read.
    Masked,
    /// A higher directory has a file of this name.
    Hidden {
        by: PathBuf,
    },
    Read(Parsed),
    /// Not readable for epitaph. What logind reads there is not known.
    Unreadable {
        reason: String,
        remedy: &'static str,
    },
}

/// What is relevant in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Assignments to [`KEY`] in `[Login]`, in their order.
    pub assignments: Vec<Assignment>,
    /// Lines from 1 that are meant for [`KEY`] and do not set it, and why.
    pub misplaced: Vec<(usize, &'static str)>,
    /// systemd reads no further here, neither this file nor those after it.
    pub broken: Option<Broken>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// From 1.
    pub line: usize,
    /// None: not a time span, also an empty one; systemd warns and ignores it.
    pub value: Option<TimeSpan>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// From 1; 0: the whole file.
    pub line: usize,
    pub reason: &'static str,
}

/// All files, in the order in which logind reads them; hidden ones stand after the file that hides them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogindConf {
    pub files: Vec<ConfFile>,
}

/// `InhibitDelayMaxSec` as the files set it. What logind has in force may be older than the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfiguredDelay {
    /// No file sets it: [`DEFAULT_DELAY`].
    Default,
    Set {
        value: TimeSpan,
        file: PathBuf,
        line: usize,
    },
    Unknown {
        reason: String,
        remedy: &'static str,
    },
}

/// Why the kubelet cannot raise the delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle<'a> {
    /// systemd stops reading before it comes to the kubelet's drop-in.
    Broken { path: &'a Path, line: usize },
    /// The drop-in is a link to `/dev/null`, or not a file: what the kubelet writes is lost.
    Lost { path: &'a Path, is_directory: bool },
    /// Read after the drop-in, and with another value.
    Over {
        path: &'a Path,
        /// Without this file, one of its name in a lower directory counts.
        hides: bool,
    },
}

impl ConfiguredDelay {
    /// None if it is not known.
    pub fn value(&self) -> Option<TimeSpan> {
        match self {
            ConfiguredDelay::Default => Some(TimeSpan::Finite(DEFAULT_DELAY)),
            ConfiguredDelay::Set { value, .. } => Some(*value),
            ConfiguredDelay::Unknown { .. } => None,
        }
    }
}

impl LogindConf {
    /// The last valid assignment wins.
    pub fn delay(&self) -> ConfiguredDelay {
        let mut winner = ConfiguredDelay::Default;
        for file in &self.files {
            match &file.state {
                ConfState::Masked | ConfState::Hidden { .. } => {}
                ConfState::Unreadable { reason, remedy } => {
                    let reason = reason.clone();
                    return ConfiguredDelay::Unknown { reason, remedy };
                }
                ConfState::Read(parsed) => {
                    let valid = parsed.assignments.iter().rev().find_map(|a| Some((a.line, a.value?)));
                    if let Some((line, value)) = valid {
                        let file = file.path.clone();
                        winner = ConfiguredDelay::Set { value, file, line };
                    }
                    if parsed.broken.is_some() {
                        break;
                    }
                }
            }
        }
        winner
    }

    /// The file at which systemd stops reading, and how many files come after it.
    pub fn broken(&self) -> Option<(&Path, &Broken, usize)> {
        let (at, file, broken) = self.files.iter().enumerate().find_map(|(at, file)| match &file.state {
            ConfState::Read(Parsed {
                broken: Some(broken), ..
            }) => Some((at, file, broken)),
            _ => None,
        })?;
        let after = self.files[at + 1..]
            .iter()
            .filter(|file| matches!(file.state, ConfState::Read(_)));
        Some((&file.path, broken, after.count()))
    }

    /// Lines that systemd ignores, and why; of the files that it reads.
    pub fn ignored(&self) -> Vec<(&Path, usize, &'static str)> {
        let mut found = Vec::new();
        for file in &self.files {
            let ConfState::Read(parsed) = &file.state else { continue };
            let bad = parsed.assignments.iter().filter(|assignment| assignment.value.is_none());
            let mut lines: Vec<_> = bad.map(|assignment| (assignment.line, "not a time span")).collect();
            lines.extend(&parsed.misplaced);
            lines.sort_unstable();
            found.extend(lines.into_iter().map(|(line, reason)| (file.path.as_path(), line, reason)));
            if parsed.broken.is_some() {
                break;
            }
        }
        found
    }

    /// Files because of which the kubelet cannot raise the delay to `need`. It reads `infinity` as a negative number.
    pub fn obstacles(&self, need: Duration) -> Vec<Obstacle<'_>> {
        let mut found = Vec::new();
        for file in &self.files {
            let path = file.path.as_path();
            match (&file.state, file.against_kubelets()) {
                (ConfState::Masked, Ordering::Equal) if path.starts_with("/etc") => {
                    let is_directory = false;
                    found.push(Obstacle::Lost { path, is_directory });
                }
                // A file with a broken line is written anew.
                (ConfState::Read(parsed), Ordering::Equal)
                    if path.starts_with("/etc") && parsed.broken.as_ref().is_some_and(|broken| broken.line == 0) =>
                {
                    let is_directory = true;
                    found.push(Obstacle::Lost { path, is_directory });
                }
                (ConfState::Read(parsed), Ordering::Less) => {
                    let line = parsed.broken.as_ref().map(|broken| broken.line);
                    found.extend(line.map(|line| Obstacle::Broken { path, line }));
                }
                (ConfState::Read(parsed), Ordering::Greater) => {
                    let last = parsed.assignments.iter().rev().find_map(|assignment| assignment.value);
                    if last.is_some_and(|value| value == TimeSpan::Infinity || value < TimeSpan::Finite(need)) {
                        let is_by = |file: &ConfFile| matches!(&file.state, ConfState::Hidden { by } if by == path);
                        let hides = self.files.iter().any(is_by);
                        found.push(Obstacle::Over { path, hides });
                    }
                    if parsed.broken.is_some() {
                        break;
                    }
                }
                _ => {}
            }
        }
        found
    }
}

impl ConfFile {
    /// Whether systemd reads this file before or after the kubelet's drop-in: the main file before.
    fn against_kubelets(&self) -> Ordering {
        let is_drop_in = self.path.parent().is_some_and(|parent| parent.ends_with(DROP_INS));
        let name = self.path.file_name().filter(|_| is_drop_in);
        name.map_or(Ordering::Less, |name| name.cmp(OsStr::new(KUBELETS)))
    }
}

impl Parsed {
    /// A whole file that systemd cannot read.
    pub fn broken(reason: &'static str) -> Parsed {
        Parsed {
            broken: Some(Broken { line: 0, reason }),
            ..Parsed::default()
        }
    }

    /// The bytes of one file.
    pub fn read(bytes: &[u8]) -> Parsed {
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        let mut parsed = Parsed::default();
        let mut section = String::new();
        for (at, line) in lines(bytes) {
            if let Err(reason) = parsed.line(at, &line, &mut section) {
                parsed.broken = Some(Broken { line: at, reason });
                break;
            }
        }
        parsed
    }

    fn line(&mut self, line: usize, bytes: &[u8], section: &mut String) -> Result<(), &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "the line is not UTF-8")?;
        let text = text.trim_matches(BLANKS);
        if let Some(header) = text.strip_prefix('[') {
            let name = header.strip_suffix(']').ok_or("a section's name has no `]`")?;
            name.clone_into(section);
            return Ok(());
        }
        let Some((key, value)) = text.split_once('=') else {
            return Ok(());
        };
        let key = key.trim_matches(BLANKS);
        if !key.eq_ignore_ascii_case(KEY) || section.starts_with("X-") {
            return Ok(());
        }
        if section != "Login" {
            self.misplaced.push((line, "not in the section [Login]"));
        } else if key != KEY {
            self.misplaced
                .push((line, "not a key of logind, which minds capital letters"));
        } else {
            let value = TimeSpan::parse(value);
            self.assignments.push(Assignment { line, value });
        }
        Ok(())
    }
}

/// The lines of a file as systemd joins them at a `\` at the end, each with the number of its last one, from 1. Comments are left out,
/// also those between the parts of a line.
pub fn lines(bytes: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let (mut rest, mut at) = (bytes, 0);
    let mut lines = Vec::new();
    let mut whole = Vec::new();
    while !rest.is_empty() {
        at += 1;
        let (line, after) = first_line(rest);
        rest = after;
        if matches!(line.trim_ascii_start(), [b'#' | b';', ..]) {
            continue;
        }
        whole.extend_from_slice(line);
        // An odd number of backslashes.
        if whole.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1 {
            whole.pop();
            whole.push(b' ');
            continue;
        }
        lines.push((at, std::mem::take(&mut whole)));
    }
    if !whole.is_empty() {
        lines.push((at, whole));
    }
    lines
}

/// A line ends at `\n`, `\r` or NUL, and at a row of different ones (systemd's `read_line`). Also the bytes after its end.
fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r' | 0);
    let (line, after) = bytes.split_at(bytes.iter().position(is_end).unwrap_or(bytes.len()));
    let is_same_end = |at: &usize| {
        let before = &after[..*at];
        is_end(&after[*at]) && !before.contains(&after[*at]) && !before.contains(&0)
    };
    let ends = (0..after.len()).take_while(is_same_end).count();
    (line, &after[ends..])
}
