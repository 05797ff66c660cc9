//! What people install: the optimised binary, its debug information in a file of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{agent, arm64, bpf, debian, shell};

/// By the name of Debian and of OCI images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    /// This machine's.
    pub fn host() -> Result<Arch> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Arch::Amd64),
            "aarch64" => Ok(Arch::Arm64),
            other => anyhow::bail!("Epitaph is built on amd64 and arm64, not on {other}"),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Arch::Amd64 => "amd64",
            Arch::Arm64 => "arm64",
        }
    }

    pub fn target(self) -> &'static str {
        match self {
            Arch::Amd64 => "x86_64-unknown-linux-gnu",
            Arch::Arm64 => arm64::TARGET,
        }
    }
}

pub struct Dist {
    /// Without debug information; names the file that has it.
    pub program: PathBuf,
    /// `epitaph.debug`, which belongs beside the program; debuggers and profilers find it there.
    pub debug: PathBuf,
}

/// Builds the optimised binary for `arch`, and takes it apart.
pub fn build(arch: Arch) -> Result<Dist> {
    apart(&whole(arch, true)?, arch, arch.name())
}

/// Builds the optimised binary for pods, and takes it apart. What a pod does not need is not in it: docs/install.md has the size of each part.
pub fn build_for_pods(arch: Arch) -> Result<Dist> {
    bpf::build()?;
    let mut cargo = if arch == Arch::host()? {
        shell::cargo()
    } else {
        arm64::cargo()?
    };
    // They would take the place of the flags below.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    // Other flags than the person's own build: in the same directory, each would undo the other's work.
    let dir = shell::root().join("target/pods");
    cargo.args(["build", "--release", "--package", "epitaph", "--bins"]);
    cargo
        .args(FOR_PODS)
        .args(["--target", arch.target(), "--target-dir"])
        .arg(&dir);
    cargo.args(["--config", &format!("target.{}.rustflags = {POD_FLAGS:?}", arch.target())]);
    shell::run(&mut cargo, &format!("building epitaph for pods ({})", arch.name()))?;
    let built = dir.join(arch.target()).join("release/epitaph");
    apart(&built, arch, &format!("{}-pods", arch.name()))
}

/// Features of the program in the image: a pod has a ServiceAccount, and no kubeconfig.
pub const FOR_PODS: [&str; 1] = ["--no-default-features"];

/// The image has the builder's libc, so its relocations may have the form that glibc knows from 2.36 on, Debian 12's; a linker without it
/// ignores the flag. Not `-Cforce-unwind-tables=no`: as long as the profile has debug information, `.eh_frame` stays as large.
const POD_FLAGS: [&str; 1] = ["-Clink-arg=-Wl,-z,pack-relative-relocs"];

/// Builds the binary with its debug information in it.
pub fn whole(arch: Arch, release: bool) -> Result<PathBuf> {
    if arch == Arch::host()? {
        agent::build(release)
    } else {
        arm64::build(release)
    }
}

/// `name`: of the directory.
fn apart(built: &Path, arch: Arch, name: &str) -> Result<Dist> {
    let objcopy = objcopy(arch)?;
    let dir = shell::root().join("target/dist").join(name);
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let (program, debug) = (dir.join("epitaph"), dir.join("epitaph.debug"));
    let mut extract = Command::new(objcopy);
    extract
        .args(["--only-keep-debug", "--compress-debug-sections"])
        .arg(built)
        .arg(&debug);
    shell::run_quietly(
        &mut extract,
        &format!("taking the debug information out of {}", built.display()),
    )?;
    // The name of the file and its checksum, not its path.
    let mut strip = Command::new(objcopy);
    strip
        .current_dir(&dir)
        .args(["--strip-all", "--add-gnu-debuglink=epitaph.debug"]);
    shell::run_quietly(strip.arg(built).arg(&program), "stripping the binary")?;
    Ok(Dist { program, debug })
}

/// A copy of `program` in the file `to`, without symbols and debug information. `program` itself stays whole: its build goes on with it.
pub fn strip(arch: Arch, program: &Path, to: &Path) -> Result<()> {
    let what = format!("stripping {}", program.display());
    shell::run_quietly(Command::new(objcopy(arch)?).arg("--strip-all").arg(program).arg(to), &what)
}

fn objcopy(arch: Arch) -> Result<&'static str> {
    let (package, program) = if arch == Arch::host()? {
        ("binutils", "objcopy")
    } else {
        (arm64::BINUTILS, arm64::OBJCOPY)
    };
    debian::ensure(&[package], "stripping programs")?;
    Ok(program)
}

/// `1.2.3`: of the workspace.
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// What the outputs bear for a time, in seconds since 1970: SOURCE_DATE_EPOCH, else the time of the commit.
pub fn epoch() -> Result<i64> {
    let text = match shell::env("SOURCE_DATE_EPOCH") {
        Some(value) => value.to_string_lossy().into_owned(),
        None => git(&["log", "-1", "--format=%ct"]).context(
            "the outputs bear the time of the commit, and git gives none here: name a time in SOURCE_DATE_EPOCH, in seconds \
             since 1970",
        )?,
    };
    text.trim()
        .parse()
        .with_context(|| format!("the time `{}` is not a number of seconds since 1970", text.trim()))
}

/// The commit, with `-dirty` if files differ from it. None outside a git checkout.
pub fn revision() -> Option<String> {
    revision_of(&shell::root())
}

pub fn revision_of(checkout: &Path) -> Option<String> {
    let commit = git_in(checkout, &["rev-parse", "--verify", "HEAD"]).ok()?;
    let changed = git_in(checkout, &["status", "--porcelain", "--untracked-files=no"]).is_ok_and(|files| !files.is_empty());
    Some(if changed { format!("{commit}-dirty") } else { commit })
}

/// Files below that directory that are in no commit, and not ignored.
pub fn untracked(checkout: &Path, below: &str) -> Result<String> {
    git_in(checkout, &["ls-files", "--others", "--exclude-standard", "--", below])
}

/// The commit of the tag `v<version>`.
pub fn tagged(checkout: &Path, version: &str) -> Option<String> {
    let tag = format!("refs/tags/v{version}^{{commit}}");
    git_in(checkout, &["rev-parse", "--verify", "--quiet", &tag]).ok()
}

/// The remote that the checkout came from, if its address is public: https, and without a user's name or password.
pub fn source() -> Option<String> {
    let url = git(&["remote", "get-url", "origin"]).ok()?;
    (url.starts_with("https://") && !url.contains('@')).then_some(url)
}

pub fn git(args: &[&str]) -> Result<String> {
    git_in(&shell::root(), args)
}

fn git_in(checkout: &Path, args: &[&str]) -> Result<String> {
    shell::read(Command::new("git").current_dir(checkout).args(args))
}
