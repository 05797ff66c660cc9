//! A minimal Debian root with what the README's first lines name, and a clone of the checkout.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::settings;
use crate::{kernels::packages, shell};

/// The README's prerequisites that Debian packages. gcc recommends libc6-dev and cannot link without it; git recommends
/// ca-certificates, and rustup's own download needs them.
const PACKAGES: [&str; 4] = ["git", "gcc", "libc6-dev", "ca-certificates"];
const ENTER: &str = include_str!("enter.sh");
const PATH: &str = "/root/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// rustup's proxies in `~/.cargo/bin`.
const PROXIES: [&str; 8] = [
    "cargo",
    "rustc",
    "rustdoc",
    "rustfmt",
    "cargo-fmt",
    "cargo-clippy",
    "clippy-driver",
    "rust-gdb",
];

pub struct Root {
    dir: PathBuf,
    toolchain: Toolchain,
    /// This machine's network settings.
    network: Vec<(OsString, OsString)>,
    /// `Debian GNU/Linux 12 (bookworm)`
    pub name: String,
}

/// This machine's stable toolchain: stands in for rustup's download.
struct Toolchain {
    rustup: PathBuf,
    dir: PathBuf,
    name: String,
}

/// The commit to clone.
///
/// # Errors
/// There are uncommitted changes: the clone would lack them.
pub fn committed() -> Result<String> {
    let git = |args: &[&str]| shell::read(Command::new("git").args(args).current_dir(shell::root()));
    let changed = git(&["status", "--porcelain"])?;
    if let Some(first) = changed.lines().next() {
        bail!(
            "the fresh root gets a clone of HEAD, and {} files here have uncommitted changes (first: {}): commit or stash them",
            changed.lines().count(),
            first.trim()
        );
    }
    git(&["rev-parse", "HEAD"])
}

impl Root {
    /// Makes the root in the empty directory `dir`.
    ///
    /// # Errors
    /// No Debian archive among the machine's apt sources, no rustup with a stable toolchain, or a step fails.
    pub fn make(dir: &Path, commit: &str) -> Result<Root> {
        let toolchain = Toolchain::of_this_machine()?;
        bootstrap(dir)?;
        reach_the_network(dir)?;
        toolchain.install(dir)?;
        clone(dir, commit)?;
        let release = fs::read_to_string(dir.join("etc/os-release")).context("reading the fresh root's os-release")?;
        let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        Ok(Root {
            dir: dir.to_owned(),
            toolchain,
            network: settings::environment(),
            name: name.unwrap_or("Debian").trim_matches('"').to_owned(),
        })
    }

    /// A command that runs `words` in the root, in the clone.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--uts", "--propagation", "private", "--", "sh", "-c", ENTER, "sh"])
            .args([&self.dir, &self.toolchain.dir, &Path::new("/").join(self.toolchain.place())])
            .args(words);
        command
            .env_clear()
            .envs(self.network.iter().map(|(name, value)| (name, value)))
            .envs([
                ("PATH", PATH),
                ("HOME", "/root"),
                ("USER", "root"),
                ("LANG", "C.UTF-8"),
                ("SHELL", "/bin/bash"),
            ])
            .envs(shell::env("TERM").map(|term| ("TERM", term)));
        command
    }
}

fn bootstrap(dir: &Path) -> Result<()> {
    let release = fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite
        .context("/etc/os-release names no VERSION_CODENAME: this task needs Debian")?
        .trim_matches('"');
    let sources = packages::sources(&[suite, &format!("{suite}-updates")], &[&format!("{suite}-security")])?;
    let settings = settings::apt()?;
    let mut mmdebstrap = Command::new("unshare");
    // A mount namespace of its own: mounts for the packages' scripts disappear with it.
    mmdebstrap
        .args([
            "--mount",
            "mmdebstrap",
            "--mode=root",
            "--variant=minbase",
            "--format=directory",
        ])
        .arg(format!("--include={}", PACKAGES.join(",")))
        .args(["--aptopt=APT::Install-Recommends \"false\"", "--dpkgopt=force-unsafe-io"])
        .args(settings.iter().map(|line| format!("--aptopt={line}")))
        .arg(suite)
        .arg(dir)
        .args(sources.lines())
        .env("PATH", shell::path())
        .env_remove("LD_LIBRARY_PATH");
    shell::run_quietly(
        &mut mmdebstrap,
        &format!("making a minimal Debian ({suite}) with {} (a minute)", PACKAGES.join(", ")),
    )?;
    // Of the settings above only the access to the archive stays: the rest is Debian's default again.
    for (file, text) in [
        ("etc/apt/apt.conf.d/99mmdebstrap", settings.join("\n") + "\n"),
        ("etc/dpkg/dpkg.cfg.d/99mmdebstrap", String::new()),
    ] {
        fs::write(dir.join(file), text).with_context(|| format!("writing the fresh root's {file}"))?;
    }
    Ok(())
}

fn reach_the_network(dir: &Path) -> Result<()> {
    settings::certificates(dir)?;
    for file in ["etc/resolv.conf", "etc/hosts"] {
        let target = dir.join(file);
        // It may be a symbolic link.
        let _ = fs::remove_file(&target);
        fs::copy(Path::new("/").join(file), &target).with_context(|| format!("copying /{file} into the fresh root"))?;
    }
    fs::write(dir.join("etc/hostname"), "fresh\n").context("naming the fresh machine")?;
    let hosts = dir.join("etc/hosts");
    let known = fs::read_to_string(&hosts).context("reading the fresh root's hosts")?;
    fs::write(&hosts, format!("{}\n127.0.1.1 fresh\n", known.trim_end())).context("naming the fresh machine")
}

impl Toolchain {
    fn of_this_machine() -> Result<Toolchain> {
        let rustup = shell::which("rustup").context("no rustup in PATH, which the README requires (https://rustup.rs)")?;
        let sysroot = shell::read(
            Command::new(&rustup)
                .args(["run", "stable", "rustc", "--print", "sysroot"])
                .env("PATH", shell::path()),
        )
        .context("the README requires rustup's stable toolchain: rustup toolchain install stable")?;
        let dir = fs::canonicalize(&sysroot).with_context(|| format!("looking for {sysroot}"))?;
        let name = dir
            .file_name()
            .with_context(|| format!("{sysroot} is not a directory of a toolchain"))?;
        let name = name.to_string_lossy().into_owned();
        ensure!(dir.join("bin/cargo").is_file(), "{} holds no cargo", dir.display());
        Ok(Toolchain { rustup, dir, name })
    }

    /// Its directory, relative to the root.
    fn place(&self) -> PathBuf {
        Path::new("root/.rustup/toolchains").join(&self.name)
    }

    /// Installs rustup as its installer does. The toolchain's directory stays empty: `enter.sh` mounts the toolchain there, read-only.
    fn install(&self, root: &Path) -> Result<()> {
        shell::log(format_args!(
            "adding rustup and its toolchain {}; cargo's registry cache is empty",
            self.name
        ));
        let place = root.join(self.place());
        fs::create_dir_all(&place).with_context(|| format!("creating {}", place.display()))?;
        let settings = format!(
            "version = \"12\"\ndefault_toolchain = \"{}\"\nprofile = \"default\"\n",
            self.name
        );
        fs::write(root.join("root/.rustup/settings.toml"), settings).context("writing rustup's settings")?;
        let bin = root.join("root/.cargo/bin");
        fs::create_dir_all(&bin).with_context(|| format!("creating {}", bin.display()))?;
        fs::copy(&self.rustup, bin.join("rustup")).with_context(|| format!("copying {}", self.rustup.display()))?;
        for proxy in PROXIES {
            symlink("rustup", bin.join(proxy)).with_context(|| format!("linking {proxy}"))?;
        }
        let config = settings::cargo();
        if !config.is_empty() {
            fs::write(root.join("root/.cargo/config.toml"), config).context("writing cargo's configuration")?;
        }
        Ok(())
    }
}

fn clone(root: &Path, commit: &str) -> Result<()> {
    let target = root.join("root/epitaph");
    let mut clone = Command::new("git");
    clone
        .args(["clone", "--quiet", "--no-hardlinks", "--no-checkout"])
        .arg(shell::root())
        .arg(&target);
    shell::run_quietly(&mut clone, &format!("cloning commit {commit}"))?;
    let mut checkout = Command::new("git");
    checkout
        .args(["checkout", "--quiet", "--detach", commit])
        .current_dir(&target);
    shell::run_quietly(&mut checkout, "checking it out")
}
