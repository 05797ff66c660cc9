//! The agent for arm64, built on amd64 with Debian's cross compiler.
//!
//! With rustup's standard library for the target if that is installed; otherwise with Debian's own, which belongs to the compiler that
//! also builds the probes.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    bpf, debian,
    dist::Arch,
    kernels::packages::{Apt, codename},
    shell,
};

pub const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Below target/.
pub const DIRECTORY: &str = "arm64";
pub const OBJCOPY: &str = "aarch64-linux-gnu-objcopy";
/// Debian's package of [`OBJCOPY`].
pub const BINUTILS: &str = "binutils-aarch64-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const PACKAGES: [&str; 2] = ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];

/// Builds probes and binary. The probes' object is the same for both architectures: the byte order is the same, and no program knows
/// an offset.
pub fn build(release: bool) -> Result<PathBuf> {
    bpf::build()?;
    build_bin(&["--package", "epitaph", "--bins"], "epitaph", release)
}

/// Builds one program.
pub fn build_bin(selection: &[&str], name: &str, release: bool) -> Result<PathBuf> {
    let mut cargo = cargo()?;
    cargo
        .arg("build")
        .args(selection)
        .args(release.then_some("--release"))
        .args(target());
    shell::run(&mut cargo, &format!("building {name} for arm64"))?;
    let profile = if release { "release" } else { "debug" };
    Ok(target_dir().join(TARGET).join(profile).join(name))
}

/// What names target and directory of a build with [`cargo`].
pub fn target() -> [OsString; 4] {
    ["--target".into(), TARGET.into(), "--target-dir".into(), target_dir().into()]
}

/// Beside the machine's own: another compiler would build what both share anew at every turn.
fn target_dir() -> PathBuf {
    shell::root().join("target").join(DIRECTORY)
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

/// The libraries that the program needs on arm64, and their packages' entries in dpkg's database: of this machine's release of Debian,
/// with its security updates. The cross compiler's own libc is older than these updates.
pub fn system() -> Result<PathBuf> {
    let (apt, codename) = (apt()?, codename()?);
    let mut names = vec![apt.newest("libc6", &codename)?, apt.newest("libgcc-s1", &codename)?];
    let dir = shell::cache()
        .join("system-arm64")
        .join(names.join("-").replace([':', '/'], "_"));
    if dir.is_dir() {
        return Ok(dir);
    }
    let partial = dir.with_file_name(format!("partial-{}", std::process::id()));
    fs::create_dir_all(&partial).with_context(|| format!("creating {}", partial.display()))?;
    let unpacked = unpack(&apt, &names, &partial).and_then(|()| {
        // The licence is in another package, which a link names.
        let documents = partial.join("usr/share/doc");
        if let Ok(target) = fs::read_link(documents.join("libgcc-s1")) {
            let name = target.display().to_string();
            names = vec![apt.newest(&name, &codename)?];
            unpack(&apt, &names, &partial)?;
        }
        fs::rename(&partial, &dir).with_context(|| format!("renaming to {}", dir.display()))
    });
    if partial.is_dir() {
        fs::remove_dir_all(&partial).with_context(|| format!("removing {}", partial.display()))?;
    }
    unpacked.map(|()| dir)
}

/// Unpacks `packages` into `dir`, and enters them into dpkg's database there: no script of a package is run.
fn unpack(apt: &Apt, packages: &[String], dir: &Path) -> Result<()> {
    let database = dir.join("var/lib/dpkg");
    let info = database.join("info");
    fs::create_dir_all(&info).with_context(|| format!("creating {}", info.display()))?;
    for deb in apt.fetch(packages, dir)? {
        let dpkg_deb = |action: &str| {
            let mut command = Command::new("dpkg-deb");
            command.arg(action).arg(&deb);
            command
        };
        let control = shell::read(&mut dpkg_deb("--field"))?;
        let entry = control.replacen('\n', "\nStatus: install ok installed\n", 1);
        let name = control.lines().find_map(|line| line.strip_prefix("Package: "));
        let name = name.with_context(|| format!("{} has no package's name", deb.display()))?;
        let status = fs::read_to_string(database.join("status")).unwrap_or_default() + &entry + "\n\n";
        fs::write(database.join("status"), status).context("writing dpkg's database")?;
        let paths = shell::read(&mut dpkg_deb("--contents"))?;
        let paths = paths.lines().filter_map(|line| {
            let path = line.split_once(" ./")?.1.split(" -> ").next()?.trim_end_matches('/');
            // dpkg refuses the name of the root.
            (!path.is_empty()).then(|| format!("/{path}\n"))
        });
        fs::write(info.join(format!("{name}.list")), paths.collect::<String>()).context("writing dpkg's database")?;
        shell::read(dpkg_deb("--extract").arg(dir))?;
        fs::remove_file(&deb).with_context(|| format!("removing {}", deb.display()))?;
    }
    Ok(())
}

/// Debian's packages for arm64, which this machine's own apt does not know. Nothing is installed.
pub fn apt() -> Result<Apt> {
    Apt::open(&shell::cache().join("kernels-arm64"), Arch::Arm64)
}
