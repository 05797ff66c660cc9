//! Debian's packages: what a task needs is installed when it is missing, and only then.

use std::{fs, path::Path, process::Command, sync::OnceLock};

use anyhow::{Context as _, Result, bail, ensure};

use crate::shell;

/// Installs those of `packages` that are missing; `why` names the purpose.
pub fn ensure(packages: &[&str], why: &str) -> Result<()> {
    let missing: Vec<&str> = packages.iter().copied().filter(|package| !installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !available() {
        bail!("{why} needs Debian's packages {list}, but this machine has no apt-get; install the programs by other means");
    }
    if !shell::is_root() {
        bail!("{why} needs packages; run: sudo apt-get install --no-install-recommends {list}");
    }
    update();
    // --no-remove: an error is better than the removal of an installed compiler.
    let mut apt = apt(&["install", "--yes", "--no-install-recommends", "--no-remove"]);
    shell::run_quietly(apt.args(&missing), &format!("installing {list}, for {why}"))
}

/// Installs `package` if `program` is missing. Goes on without it where that is impossible: for what only a part of a task needs.
pub fn ensure_optional(program: &str, package: &str, why: &str) {
    if shell::which(program).is_none()
        && let Err(error) = ensure(&[package], why)
    {
        shell::log(format_args!("going on without {program}: {error:#}"));
    }
}

/// Whether apt offers `package` or has it, after at most one refresh of the lists.
pub fn offered(package: &str) -> bool {
    let known = || {
        let policy = shell::read(Command::new("apt-cache").args(["policy", package]).env("LC_ALL", "C"));
        policy.is_ok_and(|text| {
            text.lines()
                .any(|line| line.trim().starts_with("Candidate:") && !line.contains("(none)"))
        })
    };
    if installed(package) {
        return true;
    }
    if !available() {
        return false;
    }
    if !known() && shell::is_root() {
        update();
    }
    known()
}

pub fn installed(package: &str) -> bool {
    let status = shell::read(Command::new("dpkg-query").args(["--show", "--showformat=${db:Status-Abbrev}", package]));
    status.is_ok_and(|status| status.starts_with("ii"))
}

fn available() -> bool {
    shell::which("apt-get").is_some() && shell::which("dpkg-query").is_some()
}

/// Once per run. A source that does not answer is not fatal: the package may come from another.
fn update() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        if let Err(error) = shell::run_quietly(&mut apt(&["update"]), "refreshing the package lists") {
            shell::log(format_args!("continuing with the old package lists: {error}"));
        }
    });
}

fn apt(args: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(["--quiet", "-oDPkg::Lock::Timeout=600"]);
    // A machine for one run need not survive a power cut: rust-web-src's many files are unpacked three times as fast.
    command.args(shell::env("CI").map(|_| "-oDPkg::Options::=--force-unsafe-io"));
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        // A package's own service is not started: the tests run its program.
        .env("RUNLEVEL", "1")
        .env("SYSTEMD_OFFLINE", "1")
        .env("PATH", shell::path())
        .env_remove("LD_LIBRARY_PATH");
    command.args(args);
    command
}

/// The bytes of a kernel module. Busybox would unpack it at every boot, under emulation.
///
/// # Errors
/// The file cannot be read or unpacked, or xz not be installed.
pub fn unpacked_module(module: &Path) -> Result<Vec<u8>> {
    if module.extension().is_none_or(|extension| extension != "xz") {
        return fs::read(module).with_context(|| format!("reading {}", module.display()));
    }
    ensure(&["xz-utils"], "unpacking kernel modules")?;
    let done = Command::new("xz")
        .args(["--decompress", "--stdout"])
        .arg(module)
        .output()
        .context("running xz")?;
    ensure!(done.status.success(), "xz cannot unpack {}", module.display());
    Ok(done.stdout)
}
