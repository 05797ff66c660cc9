//! logind.conf and its drop-ins: which of the files sets `InhibitDelayMaxSec`. Pure: the files' bytes come as values.
//!
//! As systemd reads them (logind.conf(5), `config_parse_standard_file_with_dropins`): one main file, then the drop-ins of all
//! directories together, sorted by file name; of two drop-ins with one name, that of the higher directory; the last assignment counts.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::TimeSpan;

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
    },
}

/// What is relevant in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Assignments to [`KEY`] in `[Login]`, in their order.
    pub assignments: Vec<Assignment>,
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
                ConfState::Unreadable { reason } => return ConfiguredDelay::Unknown { reason: reason.clone() },
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

    /// Assignments that systemd ignores because they are not time spans.
    pub fn ignored(&self) -> impl Iterator<Item = (&Path, usize)> {
        self.files.iter().flat_map(|file| {
            let parsed = match &file.state {
                ConfState::Read(parsed) => parsed.assignments.as_slice(),
                _ => &[],
            };
            let bad = parsed.iter().filter(|assignment| assignment.value.is_none());
            bad.map(|assignment| (file.path.as_path(), assignment.line))
        })
    }

    /// Files because of which the kubelet cannot raise the delay to `need`: read after the drop-in that it writes, and with another
    /// value. It reads `infinity` as a negative number.
    pub fn over_kubelets(&self, need: Duration) -> Vec<&Path> {
        let blocks = |file: &&ConfFile| match &file.state {
            ConfState::Read(parsed) if file.is_after_kubelets() => {
                let last = parsed.assignments.iter().rev().find_map(|assignment| assignment.value);
                last.is_some_and(|value| value == TimeSpan::Infinity || value < TimeSpan::Finite(need))
            }
            _ => false,
        };
        self.files.iter().filter(blocks).map(|file| file.path.as_path()).collect()
    }
}

impl ConfFile {
    /// Whether systemd reads this drop-in after the kubelet's.
    fn is_after_kubelets(&self) -> bool {
        let is_drop_in = self.path.parent().is_some_and(|parent| parent.ends_with(DROP_INS));
        is_drop_in && self.path.file_name().is_some_and(|name| name > OsStr::new(KUBELETS))
    }
}

impl Parsed {
    /// A whole file that systemd cannot read.
    pub fn broken(reason: &'static str) -> Parsed {
        Parsed {
            assignments: Vec::new(),
            broken: Some(Broken { line: 0, reason }),
        }
    }

    /// The bytes of one file.
    pub fn read(bytes: &[u8]) -> Parsed {
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        let mut parsed = Parsed::default();
        let mut is_login = false;
        let mut continued = String::new();
        for (at, line) in bytes.split(|byte| *byte == b'\n' || *byte == 0).enumerate() {
            // systemd skips a line that is not UTF-8.
            let Ok(text) = std::str::from_utf8(line) else {
                continue;
            };
            // Comments can stand between the lines of a continued one.
            if text.trim_start().starts_with(['#', ';']) {
                continue;
            }
            continued.push_str(text.trim_end_matches('\r'));
            if ends_escaped(&continued) {
                continued.pop();
                continued.push(' ');
                continue;
            }
            let whole = std::mem::take(&mut continued);
            if let Err(broken) = parsed.line(at + 1, whole.trim(), &mut is_login) {
                parsed.broken = Some(broken);
                return parsed;
            }
        }
        let last = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
        if let Err(broken) = parsed.line(last, continued.trim(), &mut is_login) {
            parsed.broken = Some(broken);
        }
        parsed
    }

    fn line(&mut self, line: usize, text: &str, is_login: &mut bool) -> Result<(), Broken> {
        if let Some(header) = text.strip_prefix('[') {
            let section = header.strip_suffix(']').ok_or(Broken {
                line,
                reason: "a section's name has no `]`",
            })?;
            *is_login = section == "Login";
            return Ok(());
        }
        if let (true, Some((key, value))) = (*is_login, text.split_once('='))
            && key.trim() == KEY
        {
            let value = TimeSpan::parse(value.trim());
            self.assignments.push(Assignment { line, value });
        }
        Ok(())
    }
}

/// An odd number of backslashes at the end.
fn ends_escaped(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}
