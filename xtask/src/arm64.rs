//! The agent for arm64, built on amd64 with Debian's cross compiler.
//!
//! With rustup's standard library for the target if that is installed; otherwise with Debian's own, which belongs to the compiler that
//! also builds the probes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

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
            "this toolchain has no standard library for {TARGET} (`rustup target add {TARGET}` installs one): Debian's is used"
        ));
        let library = debian_library().context("cross-building for arm64 without rustup's standard library")?;
        let mut cargo = shell::cargo();
        cargo.env("RUSTC", bpf::DEBIAN_RUSTC);
        cargo.env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
            format!("--sysroot={}", library.display()),
        );
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
    let extracted = extract(&version, &partial);
    let result = extracted
        .and_then(|()| fs::rename(partial.join("root"), &dir).with_context(|| format!("renaming to {}", dir.display())));
    fs::remove_dir_all(&partial).with_context(|| format!("removing {}", partial.display()))?;
    result.map(|()| sysroot)
}

/// Fetches the package by an apt of its own: the machine's does not know the packages of another architecture.
fn extract(version: &str, dir: &Path) -> Result<()> {
    for sub in ["lists/partial", "archives/partial", "root"] {
        fs::create_dir_all(dir.join(sub)).with_context(|| format!("creating {}", dir.display()))?;
    }
    let status = dir.join("status");
    fs::write(&status, "").with_context(|| format!("writing {}", status.display()))?;
    let apt = |words: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.current_dir(dir).env("PATH", shell::path());
        for (option, value) in [
            ("Dir::State::lists", dir.join("lists")),
            ("Dir::State::status", status.clone()),
            ("Dir::Cache", dir.to_owned()),
            ("APT::Architecture", "arm64".into()),
            ("APT::Architectures", "arm64".into()),
            ("APT::Sandbox::User", "root".into()),
            ("Acquire::Languages", "none".into()),
        ] {
            apt.arg(format!("-o{option}={}", value.display()));
        }
        apt.args(words);
        apt
    };
    shell::run_quietly(&mut apt(&["update"]), "reading the list of Debian's packages for arm64")?;
    let package = format!("libstd-rust-web-dev={version}");
    shell::run_quietly(&mut apt(&["download", &package]), &format!("fetching {package} for arm64"))?;
    let mut debs = fs::read_dir(dir)?.filter_map(|entry| Some(entry.ok()?.path()));
    let deb = debs.find(|file| file.extension().is_some_and(|extension| extension == "deb"));
    let deb = deb.context("apt-get download left no package")?;
    let root = dir.join("root");
    shell::run_quietly(Command::new("dpkg-deb").arg("--extract").arg(deb).arg(&root), "unpacking it")?;
    ensure!(
        root.join("usr/lib/rustlib").join(TARGET).is_dir(),
        "{package} has no library for {TARGET}"
    );
    Ok(())
}
