//! Commands, the environment they get, and where things are.

use std::{
    ffi::{OsStr, OsString},
    fmt::Display,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::times::Stopwatch;

/// Prints what is being done, on standard error: a task's standard output is its result.
pub fn log(line: impl Display) {
    eprintln!("xtask: {line}");
}

/// Runs `command` with its output in view. `what` names the step, for the person and for the error.
pub fn run(command: &mut Command, what: &str) -> Result<()> {
    log(what);
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("{what}: cannot run {}", shown(command)))?;
    if !status.success() {
        bail!("{what}: {status} from {}", shown(command));
    }
    Ok(())
}

/// Runs `command` and shows its output only if it fails.
pub fn run_quietly(command: &mut Command, what: &str) -> Result<()> {
    log(what);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{what}: cannot run {}", shown(command)))?;
    if !output.status.success() {
        eprint!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        bail!("{what}: {} from {}", output.status, shown(command));
    }
    Ok(())
}

/// The standard output of `command`, trimmed; an error if it fails.
pub fn read(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    if !output.status.success() {
        bail!(
            "{}: {}: {}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Looks again and again until something is found; None: not within `limit`. The only loop of xtask that polls.
pub fn found_within<T>(limit: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    const PAUSE: Duration = Duration::from_millis(20);
    let begin = Stopwatch::start();
    loop {
        let found = look()?;
        if found.is_some() || begin.elapsed() >= limit {
            return Ok(found);
        }
        thread::sleep(PAUSE);
    }
}

/// Whether `command` can be run and succeeds; its output is dropped.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A task's own, if it is that of the program which it runs last.
pub fn exit_code(of: ExitStatus) -> ExitCode {
    if of.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn shown(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

#[expect(clippy::disallowed_methods, reason = "the one place of xtask that reads the environment")]
pub fn env(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The cargo that runs this task, for the workspace, as a person would call it: what `cargo run` put into the environment is
/// taken out again, so that nothing is rebuilt, or linked, for its sake.
pub fn cargo() -> Command {
    let mut command = Command::new(cargo_path());
    as_called_by_a_person(&mut command);
    command.current_dir(root());
    command
}

/// Without what `cargo run` put into the environment of this task.
pub fn as_called_by_a_person(command: &mut Command) {
    command.env("PATH", path());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if [
            "CARGO_MANIFEST_",
            "CARGO_PKG_",
            "CARGO_BIN_",
            "CARGO_CRATE_",
            "CARGO_PRIMARY_",
        ]
        .iter()
        .any(|p| text.starts_with(p))
        {
            command.env_remove(&name);
        }
    }
    clean_library_path(command);
}

/// Makes `command` independent of the person's own Rust settings: flags, wrappers, targets and profiles are theirs for the
/// host, not for the probes. What reaches the registry is kept; and so is RUSTUP_TOOLCHAIN, which `rustup run` replaces, and
/// without which rustup would obey the rust-toolchain.toml that some crates ship, and fetch theirs.
pub fn clean_rust_env(command: &mut Command) {
    const KEPT: &[&str] = &["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_TERM_"];
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let rust = text == "CARGO" || text.starts_with("CARGO_") || text.starts_with("RUSTC") || text.starts_with("AYA_BUILD");
        let ours = rust || ["RUSTFLAGS", "RUSTDOCFLAGS"].contains(&&*text);
        if ours && !KEPT.iter().any(|kept| text.starts_with(kept)) {
            command.env_remove(&name);
        }
    }
    // An empty value overrides a configuration file.
    command
        .env("RUSTC_WRAPPER", "")
        .env("RUSTC_WORKSPACE_WRAPPER", "")
        .env("PATH", path());
    clean_library_path(command);
}

/// rustup and `cargo run` put their toolchain's and target's libraries first: another compiler would find the wrong ones.
fn clean_library_path(command: &mut Command) {
    const NAME: &str = "LD_LIBRARY_PATH";
    let Some(value) = env(NAME) else { return };
    let rustup = env("RUSTUP_HOME")
        .map(PathBuf::from)
        .unwrap_or_else(|| home().join(".rustup"));
    let alien = |dir: &Path| {
        dir.starts_with(&rustup) || dir.starts_with(root()) || dir.components().any(|c| c.as_os_str() == "rustlib")
    };
    let kept: Vec<PathBuf> = std::env::split_paths(&value).filter(|dir| !alien(dir)).collect();
    match std::env::join_paths(&kept) {
        Ok(joined) if !joined.is_empty() => command.env(NAME, joined),
        _ => command.env_remove(NAME),
    };
}

pub fn cargo_path() -> PathBuf {
    env("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// PATH with the system directories that a bare environment lacks: dpkg and network tools live there.
pub fn path() -> OsString {
    let mut dirs: Vec<PathBuf> = env("PATH")
        .map(|value| std::env::split_paths(&value).collect())
        .unwrap_or_default();
    for dir in ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"] {
        if !dirs.iter().any(|known| known == Path::new(dir)) {
            dirs.push(dir.into());
        }
    }
    std::env::join_paths(dirs).unwrap_or_default()
}

/// Where `program` is, by PATH and the system directories.
pub fn which(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&path())
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// The workspace's root. Cargo provides this package's directory at run time, so a moved checkout works.
pub fn root() -> PathBuf {
    let package = env("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Directory of what is built once per machine, outside the checkout.
pub fn cache() -> PathBuf {
    env("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .unwrap_or_else(|| home().join(".cache"))
        .join("epitaph")
}

pub fn home() -> PathBuf {
    env("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from)
}

pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// A hex SHA-256 over labelled parts. Lengths are hashed too, so no two lists of parts meet.
#[derive(Default)]
pub struct Content(Sha256);

impl Content {
    pub fn part(&mut self, label: impl AsRef<OsStr>, bytes: &[u8]) {
        let label = label.as_ref().as_encoded_bytes();
        for field in [label, bytes] {
            self.0.update((field.len() as u64).to_le_bytes());
            self.0.update(field);
        }
    }

    pub fn file(&mut self, path: &Path) -> Result<()> {
        let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        self.part(path.strip_prefix(root()).unwrap_or(path), &bytes);
        Ok(())
    }

    /// Every file below `dir`, in the order of their names.
    pub fn tree(&mut self, dir: &Path) -> Result<()> {
        let entries = fs::read_dir(dir).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let mut entries = entries.with_context(|| format!("listing {}", dir.display()))?;
        entries.sort_by_key(|entry| entry.file_name());
        for entry in entries {
            if entry.path().is_dir() {
                self.tree(&entry.path())?
            } else {
                self.file(&entry.path())?
            }
        }
        Ok(())
    }

    pub fn hex(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_not_confused() {
        let key = |parts: &[(&str, &str)]| {
            let mut content = Content::default();
            parts.iter().for_each(|(label, bytes)| content.part(label, bytes.as_bytes()));
            content.hex()
        };
        assert_ne!(key(&[("a", "bc")]), key(&[("ab", "c")]));
        assert_eq!(key(&[("a", "bc")]), key(&[("a", "bc")]));
        assert_eq!(key(&[]).len(), 64);
    }

    #[test]
    fn the_root_is_the_workspace() {
        assert!(root().join("Cargo.lock").is_file());
    }
}
