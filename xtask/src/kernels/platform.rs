//! The emulated machines, one for each architecture, and the files that programs need in them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::packages::Apt;
use crate::{dist::Arch, shell};

/// What QEMU is called with, and the names that the guest's kernel gives to its serial ports.
pub struct Platform {
    pub arch: Arch,
    pub qemu: &'static str,
    /// Debian's package of `qemu`.
    pub package: &'static str,
    pub machine: &'static [&'static str],
    /// Where the guest's kernel writes its messages.
    pub console: &'static str,
    /// Where the guest's init writes the report.
    pub report: &'static str,
    /// Connects the report to QEMU's standard output.
    pub report_port: &'static [&'static str],
}

/// Emulated 16-byte compare-and-exchange crashes guests now and then; five-level paging makes them slow.
const AMD64: Platform = Platform {
    arch: Arch::Amd64,
    qemu: "qemu-system-x86_64",
    package: "qemu-system-x86",
    machine: &["-cpu", "max,la57=off,-cx16"],
    console: "ttyS0",
    report: "ttyS1",
    report_port: &["-serial", "stdio"],
};

/// The cores of Graviton2. The board has one serial port; the other one is a PCI card.
const ARM64: Platform = Platform {
    arch: Arch::Arm64,
    qemu: "qemu-system-aarch64",
    package: "qemu-system-arm",
    machine: &["-machine", "virt", "-cpu", "neoverse-n1"],
    console: "ttyAMA0",
    report: "ttyS0",
    report_port: &["-chardev", "stdio,id=report", "-device", "pci-serial,chardev=report"],
};

/// What is not in every program's own package: the shells and tools of the stories with their libraries, and those that the agent needs.
const ARM64_PACKAGES: [&str; 14] = [
    "busybox-static",
    "coreutils",
    "dash",
    "libc6",
    "libcap-ng0",
    "libgcc-s1",
    "libgmp10",
    "libpcre2-8-0",
    "libselinux1",
    "libssl3t64",
    "libtinfo6",
    "libzstd1",
    "util-linux",
    "zlib1g",
];
/// A released Debian, so that the packages fit each other.
const SUITE: &str = "trixie";

impl Platform {
    pub fn of(arch: Arch) -> &'static Platform {
        match arch {
            Arch::Amd64 => &AMD64,
            Arch::Arm64 => &ARM64,
        }
    }

    /// The tree with busybox, tools and libraries: this machine's own, or one of Debian's packages unpacked in `cache`.
    ///
    /// # Errors
    /// A package cannot be fetched.
    pub fn files(&self, cache: &Path, apt: &Apt) -> Result<Files> {
        if self.arch == Arch::host()? {
            return Ok(Files { root: "/".into() });
        }
        ensure!(self.arch == Arch::Arm64, "amd64 is emulated on amd64 only");
        let root = cache.join("root");
        if !root.is_dir() {
            let partial = cache.join(format!("root-{}", std::process::id()));
            fs::create_dir_all(&partial).with_context(|| format!("creating {}", partial.display()))?;
            apt.unpack(&ARM64_PACKAGES.map(|name| format!("{name}/{SUITE}")), &partial)?;
            fs::rename(&partial, &root).with_context(|| format!("renaming to {}", root.display()))?;
        }
        Ok(Files { root })
    }
}

/// A tree of files for guests.
pub struct Files {
    root: PathBuf,
}

const PROGRAMS: [&str; 4] = ["bin", "sbin", "usr/bin", "usr/sbin"];

impl Files {
    /// Where `program` is in the tree.
    pub fn which(&self, program: &str) -> Option<PathBuf> {
        if self.root == Path::new("/") {
            return shell::which(program);
        }
        let files = PROGRAMS.iter().map(|dir| self.root.join(dir).join(program));
        files.into_iter().find(|file| file.is_file())
    }

    /// What `program` needs, the loader included: the file here, and its path in the guest. Empty for a static program.
    ///
    /// # Errors
    /// A library is not in the tree.
    pub fn libraries(&self, program: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
        if self.root == Path::new("/") {
            return Ok(of_this_machine(program)?
                .into_iter()
                .map(|path| (path.clone(), path))
                .collect());
        }
        let (mut found, mut left) = (Vec::new(), vec![program.to_owned()]);
        while let Some(file) = left.pop() {
            for name in needed(&file)? {
                let path = self.library(&name)?;
                if !found.iter().any(|(_, known)| *known == path) {
                    let here = self.root.join(path.strip_prefix("/")?);
                    left.push(here.clone());
                    found.push((here, path));
                }
            }
        }
        Ok(found)
    }

    /// The path in the guest: Debian's loader knows these directories.
    fn library(&self, name: &str) -> Result<PathBuf> {
        let dirs = ["lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu"];
        let dir = dirs.iter().find(|dir| self.root.join(dir).join(name).is_file());
        let dir = dir.with_context(|| format!("none of the packages {} has {name}", ARM64_PACKAGES.join(", ")))?;
        // The loader's path is part of each program.
        if name.starts_with("ld-linux") {
            let (there, here) = (Path::new("/lib").join(name), self.root.join("lib").join(name));
            if !here.is_file() {
                fs::create_dir_all(self.root.join("lib"))?;
                fs::copy(self.root.join(dir).join(name), &here).with_context(|| format!("copying to {}", here.display()))?;
            }
            return Ok(there);
        }
        Ok(Path::new("/").join(dir).join(name))
    }
}

/// The libraries that a program or library of another architecture names, and a program's loader.
fn needed(file: &Path) -> Result<Vec<String>> {
    let text = shell::read(
        Command::new("readelf")
            .args(["--wide", "--dynamic", "--program-headers"])
            .arg(file),
    )?;
    let between = |line: &str, from: &str| Some(line.split_once(from)?.1.split_once(']')?.0.to_owned());
    let names = text.lines().filter_map(|line| {
        let loader = between(line, "program interpreter: ").and_then(|path| Some(path.rsplit_once('/')?.1.to_owned()));
        loader.or_else(|| line.contains("(NEEDED)").then(|| between(line, "[")).flatten())
    });
    Ok(names.collect())
}

/// What `ldd` names.
fn of_this_machine(program: &Path) -> Result<Vec<PathBuf>> {
    let done = Command::new("ldd").arg(program).output().context("running ldd")?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr).into_owned() + &text;
        if why.contains("not a dynamic executable") || why.contains("statically linked") {
            return Ok(Vec::new());
        }
        bail!("ldd {} failed: {}", program.display(), why.trim());
    }
    let paths = text.lines().filter_map(|line| {
        let path = line.split_once("=>").map_or(line, |(_, path)| path).trim();
        path.starts_with('/')
            .then(|| PathBuf::from(path.split(' ').next().unwrap_or(path)))
    });
    Ok(paths.collect())
}
