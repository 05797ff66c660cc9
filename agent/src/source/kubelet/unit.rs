//! The kubelet's unit in the files of a machine on which no kubelet runs: the flags that systemd would start it with.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::flags::Flags;
use super::process::COMMAND;
use crate::source::bounded;
use crate::source::files::{Directory, Entry, FileError};
use crate::source::systemd::{conf, is_drop_in};

pub const UNIT: &str = "kubelet.service";

/// The highest first.
const DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Of one file.
const MOST: u64 = 256 << 10;
/// Files in one directory.
const DROP_INS: usize = 256;

/// None if there is no unit, or it is masked.
///
/// # Errors
/// As text: there is one, and why its flags are not known.
pub fn flags(root: &Directory) -> Result<Option<Flags>, String> {
    let units = DIRECTORIES.map(|directory| Path::new(directory).join(UNIT));
    let Some(unit) = units.iter().find(|path| !matches!(root.entry(path), Ok(Entry::Missing))) else {
        return Ok(None);
    };
    if matches!(root.entry(unit), Ok(Entry::Null)) {
        return Ok(None);
    }
    let mut service = Service::default();
    service.read(&read(root, unit)?.ok_or_else(|| format!("{} leads to no file", unit.display()))?);
    for path in drop_ins(root)? {
        service.read(&read(root, &path)?.unwrap_or_default());
    }
    service.flags(root).map(Some)
}

/// Sorted by name over all directories; of one name, that of the highest.
fn drop_ins(root: &Directory) -> Result<Vec<PathBuf>, String> {
    let mut by_name: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    for directory in DIRECTORIES {
        let directory = Path::new(directory).join(format!("{UNIT}.d"));
        let names = root.list(&directory, DROP_INS + 1).map_err(|error| error.to_string())?;
        let names = names.unwrap_or_default();
        if names.len() > DROP_INS {
            return Err(format!("{} has more than {DROP_INS} files", directory.display()));
        }
        for name in names.into_iter().filter(is_drop_in) {
            by_name.entry(name).or_insert_with_key(|name| directory.join(name));
        }
    }
    let is_masked = |path: &PathBuf| matches!(root.entry(path), Ok(Entry::Null));
    Ok(by_name.into_values().filter(|path| !is_masked(path)).collect())
}

fn read(root: &Directory, path: &Path) -> Result<Option<Vec<u8>>, String> {
    root.read(path, MOST).map_err(|error: FileError| error.to_string())
}

/// What matters of `[Service]`.
#[derive(Default)]
pub(super) struct Service {
    start: Option<String>,
    environment: BTreeMap<String, String>,
    environment_files: Vec<String>,
}

impl Service {
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let mut is_service = false;
        for (_, line) in conf::lines(bytes) {
            let line = String::from_utf8_lossy(&line);
            let line = line.trim();
            if line.starts_with('[') {
                is_service = line == "[Service]";
            }
            let Some((key, value)) = line.split_once('=').filter(|_| is_service) else {
                continue;
            };
            // An empty value takes back those before.
            let value = value.trim();
            match (key.trim(), value.is_empty()) {
                ("ExecStart", is_empty) => self.start = (!is_empty).then(|| value.to_owned()),
                ("Environment", true) => self.environment.clear(),
                ("Environment", false) => self
                    .environment
                    .extend(words(value).iter().filter_map(|word| assignment(word))),
                ("EnvironmentFile", true) => self.environment_files.clear(),
                ("EnvironmentFile", false) => self.environment_files.push(value.to_owned()),
                _ => {}
            }
        }
    }

    pub(super) fn flags(&self, root: &Directory) -> Result<Flags, String> {
        let start = self.start.as_deref().ok_or_else(|| format!("{UNIT} has no ExecStart="))?;
        let mut environment = self.environment.clone();
        let mut is_whole = true;
        for file in &self.environment_files {
            let path = file.strip_prefix('-').unwrap_or(file);
            match read(root, Path::new(path))? {
                Some(bytes) => {
                    let lines = conf::lines(&bytes);
                    let lines = lines.iter().map(|(_, line)| String::from_utf8_lossy(line));
                    let unquoted = lines
                        .filter_map(|line| assignment(&line))
                        .map(|(name, value)| (name, words(&value).join(" ")));
                    environment.extend(unquoted);
                }
                // Its package or kubeadm can leave it out. What will be in /run, or in a file without which the unit does not start, is
                // not known.
                None if file.starts_with('-') && !path.starts_with("/run/") => is_whole = false,
                None => return Err(format!("{UNIT} has flags in {}, which does not exist", bounded(path, 256))),
            }
        }
        let spent = Cell::new(0);
        let value = |name: &str| {
            let value = match environment.get(name) {
                Some(value) => value.as_str(),
                None if is_whole => return Err(format!("nothing sets ${} of {UNIT}", bounded(name, 64))),
                None => "",
            };
            spent.set(spent.get() + value.len());
            match spent.get() > COMMAND {
                true => Err(format!("the command line of {UNIT} is longer than {COMMAND} bytes")),
                false => Ok(value),
            }
        };
        let mut arguments = Vec::new();
        for word in words(start) {
            match word.strip_prefix('$').filter(|name| !name.starts_with(['{', '$'])) {
                Some(name) => arguments.extend(words(value(name)?)),
                None => arguments.push(expanded(&word, value)?),
            }
        }
        let mut programs = arguments.iter().take_while(|argument| !argument.starts_with("--"));
        if !programs.any(|program| Path::new(program).ends_with("kubelet")) {
            return Err(format!("ExecStart= of {UNIT} does not start the kubelet itself"));
        }
        let flags = Flags::parse(arguments.iter().map(String::as_str));
        let paths = [&flags.config, &flags.config_directory].into_iter().flatten();
        let gates = flags.feature_gates.as_deref().map(Into::into);
        if paths
            .map(|path| path.to_string_lossy())
            .chain(gates)
            .any(|value| value.contains('%'))
        {
            return Err(format!("a flag in {UNIT} has a specifier of systemd (%)"));
        }
        Ok(flags)
    }
}

fn assignment(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    Some((name.trim().to_owned(), value.to_owned()))
}

/// With the values of `${NAME}`.
fn expanded<'a>(word: &str, value: impl Fn(&str) -> Result<&'a str, String>) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), word);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        rest = match after.strip_prefix('{').and_then(|after| after.split_once('}')) {
            Some((name, after)) => {
                out.push_str(value(name)?);
                after
            }
            None => {
                out.push('$');
                after.strip_prefix('$').unwrap_or(after)
            }
        };
    }
    out.push_str(rest);
    Ok(out)
}

/// The words of a command line or a list, with quotes and backslashes as in systemd.syntax(7).
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match quote {
            _ if c == '\\' => word.get_or_insert_default().extend(chars.next()),
            Some(open) if c == open => quote = None,
            None if matches!(c, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
