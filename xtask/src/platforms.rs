//! `kubectl epitaph` for those who run kubectl elsewhere: built for Windows, checked for macOS, whose linker and libraries are Apple's.
//!
//! The standard library of either is compiled from Debian's source, as the probes' core library is.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, ensure};
use pico_args::Arguments;

use crate::{bpf, debian, done, shell};

const PROGRAM: &str = "kubectl-epitaph";
/// Below target/, with a directory for each target.
pub const DIRECTORY: &str = "platforms";
pub const WINDOWS: &str = "x86_64-pc-windows-gnu";
const MACOS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-apple-darwin"];
/// The oldest version for both of Rust's targets.
const OLDEST_MACOS: &str = "11.0";
const MINGW: &str = "x86_64-w64-mingw32-gcc";

/// `cargo xtask test platforms`.
pub fn test(args: Arguments) -> Result<ExitCode> {
    done(args)?;
    let program = windows(false)?;
    let begin = fs::read(&program).with_context(|| format!("reading {}", program.display()))?;
    ensure!(begin.starts_with(b"MZ"), "{} is not a program of Windows", program.display());
    let compiler = no_compiler()?;
    for target in MACOS {
        let mut cargo = cargo(target)?;
        cargo
            .args(["check", "--locked", "--package", PROGRAM, "--bins"])
            .args(to(target));
        // A check needs no object of C; Apple's headers are on no Debian. Where the SDK is, is never asked.
        let name = target.replace('-', "_");
        cargo
            .env(format!("CC_{name}"), &compiler)
            .env(format!("AR_{name}"), &compiler)
            .env("SDKROOT", "/")
            // Otherwise Apple's tools are asked for it.
            .env("MACOSX_DEPLOYMENT_TARGET", OLDEST_MACOS);
        shell::run(&mut cargo, &format!("checking {PROGRAM} for {target}"))?;
    }
    println!("{} passed, 0 failed", 1 + MACOS.len());
    Ok(ExitCode::SUCCESS)
}

/// The program for Windows, without debug information.
pub fn windows(release: bool) -> Result<PathBuf> {
    debian::ensure(&["gcc-mingw-w64-x86-64"], "building for Windows")?;
    let mut cargo = cargo(WINDOWS)?;
    cargo
        .args(["build", "--locked", "--package", PROGRAM, "--bins"])
        .args(release.then_some("--release"))
        .args(to(WINDOWS));
    cargo
        .env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER", MINGW)
        .env("CC_x86_64_pc_windows_gnu", MINGW)
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        // The linker would write the time of the build into the program.
        .env(
            "CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUSTFLAGS",
            "-Clink-arg=-Wl,--no-insert-timestamp",
        );
    shell::run(&mut cargo, &format!("building {PROGRAM} for Windows"))?;
    let profile = if release { "release" } else { "debug" };
    Ok(dir(WINDOWS).join(WINDOWS).join(profile).join(format!("{PROGRAM}.exe")))
}

/// Cargo with Debian's compiler, which builds the standard library of `target`, too.
fn cargo(target: &str) -> Result<Command> {
    bpf::debian_compiler().with_context(|| format!("a standard library for {target}"))?;
    let mut cargo = shell::cargo();
    shell::clean_rust_env(&mut cargo);
    // A stable compiler builds the library only with RUSTC_BOOTSTRAP.
    cargo.env("RUSTC", bpf::DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1");
    Ok(cargo)
}

fn to(target: &str) -> [OsString; 6] {
    [
        "-Z".into(),
        "build-std=std,panic_abort".into(),
        "--target".into(),
        target.into(),
        "--target-dir".into(),
        dir(target).into(),
    ]
}

fn dir(target: &str) -> PathBuf {
    shell::root().join("target").join(DIRECTORY).join(target)
}

/// A program that makes an empty file of the name after `-o`, or of the archive that is named.
fn no_compiler() -> Result<PathBuf> {
    const SCRIPT: &str =
        "#!/bin/sh\nwhile [ $# -gt 0 ]; do\n  case $1 in -o) : >\"$2\" ;; *.a) : >\"$1\" ;; esac\n  shift\ndone\n";
    let file = shell::root().join("target").join(DIRECTORY).join("no-compiler");
    let parent = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    fs::write(&file, SCRIPT).with_context(|| format!("writing {}", file.display()))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("making {} a program", file.display()))?;
    Ok(file)
}
