//! The agent for arm64, built on amd64 with Debian's cross compiler.
//!
//! With rustup's standard library for the target if that is installed; otherwise with Debian's own, which belongs to the compiler that
//! also builds the probes.

use std::{ffi::OsString, fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{bpf, debian, dist::Arch, kernels::packages::Apt, shell};

pub const TARGET: &str = "aarch64-unknown-linux-gnu";
pub const OBJCOPY: &str = "aarch64-linux-gnu-objcopy";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const PACKAGES: [&str; 2] = ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];

/// Builds the optimised binary; the probes are built already. Their object is the same for both: the byte order is the same, and no
/// program knows an offset.
pub fn build() -> Result<PathBuf> {
    let mut cargo = cargo()?;
    cargo
        .args(["build", "--release", "--package", "epitaph", "--bins"])
        .args(target());
    shell::run(&mut cargo, "building epitaph for arm64")?;
    Ok(target_dir().join(TARGET).join("release/epitaph"))
}

/// What names target and directory of a build with [`cargo`].
pub fn target() -> [OsString; 4] {
    ["--target".into(), TARGET.into(), "--target-dir".into(), target_dir().into()]
}

/// Beside the machine's own: another compiler would build what both share anew at every turn.
fn target_dir() -> PathBuf {
    shell::root().join("target/arm64")
}

/// Cargo with a compiler, a standard library and a linker for arm64.
pub fn cargo() -> Result<Command> {
    if cfg!(not(target_arch = "x86_64")) {
        bail!("arm64 is cross-built on amd64, or built on arm64 itself");
    }
    debian::ensure(&PACKAGES, "cross-building for arm64")?;
    let mut cargo = shell::cargo();
    // A CPU's name or a linker's flag for this machine is not one for the other.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env("CC_aarch64_unknown_linux_gnu", LINKER);
    if !has_standard_library()? {
        shell::log(format_args!(
            "this toolchain has no standard library for {TARGET} (`rustup target add {TARGET}` installs one): Debian's is used"
        ));
        let library = debian_library().context("cross-building for arm64 without rustup's standard library")?;
        cargo.env("RUSTC", bpf::DEBIAN_RUSTC);
        cargo.env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
            format!("--sysroot={}", library.display()),
        );
    }
    Ok(cargo)
}

fn has_standard_library() -> Result<bool> {
    let dir = shell::read(
        Command::new("rustc")
            .current_dir(shell::root())
            .env("PATH", shell::path())
            .args(["--print", "target-libdir", "--target", TARGET]),
    )?;
    Ok(fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()))
}

/// Debian's standard library for arm64, of the same version as its compiler here: taken out of its package, not installed. The
/// directory is the compiler's sysroot.
fn debian_library() -> Result<PathBuf> {
    bpf::debian_compiler()?;
    let version = shell::read(Command::new("dpkg-query").args(["--show", "--showformat=${Version}", "rustc-web"]))?;
    let dir = shell::cache().join(format!("rust-arm64-{version}"));
    let sysroot = dir.join("usr");
    if sysroot.is_dir() {
        return Ok(sysroot);
    }
    let partial = dir.with_extension(std::process::id().to_string());
    fs::create_dir_all(&partial).with_context(|| format!("creating {}", partial.display()))?;
    let package = format!("libstd-rust-web-dev={version}");
    let extracted = apt()?.unpack(&[package], &partial);
    let result = extracted.and_then(|()| {
        let library = partial.join("usr/lib/rustlib").join(TARGET);
        ensure!(library.is_dir(), "Debian's package has no {}", library.display());
        fs::rename(&partial, &dir).with_context(|| format!("renaming to {}", dir.display()))
    });
    if partial.is_dir() {
        fs::remove_dir_all(&partial).with_context(|| format!("removing {}", partial.display()))?;
    }
    result.map(|()| sysroot)
}

/// Debian's packages for arm64, which this machine's own apt does not know. Nothing is installed.
pub fn apt() -> Result<Apt> {
    Apt::open(&shell::cache().join("kernels-arm64"), Arch::Arm64)
}
