//! The agent for arm64, built on amd64 with Debian's cross compiler.
//!
//! With rustup's standard library for the target if that is installed; otherwise the standard library is built from Debian's source
//! by Debian's compiler, the pair that also builds the probes.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result, bail};

use crate::{bpf, debian, shell};

pub const TARGET: &str = "aarch64-unknown-linux-gnu";
pub const OBJCOPY: &str = "aarch64-linux-gnu-objcopy";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const PACKAGES: [&str; 2] = ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];

/// Builds the optimised binary; the probes are built already. Their object is the same for both: the byte order is the same, and no
/// program knows an offset.
pub fn build() -> Result<PathBuf> {
    if cfg!(not(target_arch = "x86_64")) {
        bail!("arm64 is cross-built on amd64, or built on arm64 itself");
    }
    debian::ensure(&PACKAGES, "cross-building for arm64")?;
    let target_dir = shell::root().join("target/arm64");
    let mut cargo = if has_standard_library()? {
        shell::cargo()
    } else {
        shell::log(format_args!(
            "this toolchain has no standard library for {TARGET} (`rustup target add {TARGET}` installs one): Debian's is built"
        ));
        bpf::debian_compiler().context("cross-building for arm64 without rustup's standard library")?;
        let mut cargo = shell::cargo();
        cargo.env("RUSTC", bpf::DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1");
        cargo.args(["-Z", "build-std=std,panic_abort"]);
        cargo
    };
    // A CPU's name or a linker's flag for this machine is not one for the other.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env("CC_aarch64_unknown_linux_gnu", LINKER)
        .args([
            "build",
            "--release",
            "--package",
            "epitaph",
            "--bins",
            "--target",
            TARGET,
            "--target-dir",
        ])
        .arg(&target_dir);
    shell::run(&mut cargo, "building epitaph for arm64")?;
    Ok(target_dir.join(TARGET).join("release/epitaph"))
}

fn has_standard_library() -> Result<bool> {
    let dir = shell::read(
        Command::new("rustc")
            .current_dir(shell::root())
            .env("PATH", shell::path())
            .args(["--print", "target-libdir", "--target", TARGET]),
    )?;
    Ok(std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()))
}
