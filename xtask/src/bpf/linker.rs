//! bpf-linker, built once per machine for each LLVM.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};

use crate::{debian, shell};

const VERSION: &str = "0.13.0";
/// What this version can be built for.
const LLVM: std::ops::RangeInclusive<u32> = 21..=23;

/// A bpf-linker for LLVM `major` that runs here, built if need be.
pub fn ready(major: u32) -> Result<PathBuf> {
    let dir = shell::cache().join(format!("bpf-linker-{VERSION}-llvm-{major}"));
    let program = dir.join("bin/bpf-linker");
    let runs = || shell::succeeds(Command::new(&program).arg("--version").env_remove("LD_LIBRARY_PATH"));
    if runs() {
        return Ok(program);
    }
    if !LLVM.contains(&major) {
        bail!(
            "bpf-linker {VERSION} supports LLVM {} to {}, not {major}",
            LLVM.start(),
            LLVM.end()
        );
    }
    let (llvm, polly) = (format!("llvm-{major}-dev"), format!("libpolly-{major}-dev"));
    let prefix = prefix(major);
    if !prefix.join("bin/llvm-config").is_file() && !debian::offered(&llvm) {
        bail!("the compiler has LLVM {major}, and apt-get offers no {llvm} for the linker");
    }
    // gcc links with the C++ library of LLVM; Debian's gcc alone does not bring it.
    debian::ensure(&[&llvm, &polly, "zlib1g-dev", "libzstd-dev", "g++"], "the BPF linker")?;

    let mut cargo = Command::new(shell::cargo_path());
    shell::clean_rust_env(&mut cargo);
    let mut path = prefix.join("bin").into_os_string();
    path.push(":");
    path.push(shell::path());
    cargo.env("LLVM_PREFIX", &prefix).env("PATH", path);
    cargo.args([
        "install",
        "bpf-linker",
        "--version",
        VERSION,
        "--locked",
        "--force",
        "--no-default-features",
    ]);
    cargo.args(["--features", &format!("llvm-{major}"), "--root"]).arg(&dir);
    shell::run_quietly(
        &mut cargo,
        &format!("building bpf-linker {VERSION} for LLVM {major} (once, about a minute)"),
    )?;
    if !runs() {
        bail!("{} was built but does not run", program.display());
    }
    Ok(program)
}

/// LLVM's objcopy: the one of binutils does not know BPF.
pub fn objcopy(major: u32) -> Result<PathBuf> {
    let program = prefix(major).join("bin/llvm-objcopy");
    if !program.is_file() {
        debian::ensure(&[&format!("llvm-{major}")], "stripping the probes")?;
    }
    Ok(program)
}

/// Where Debian has LLVM `major`.
fn prefix(major: u32) -> PathBuf {
    Path::new("/usr/lib").join(format!("llvm-{major}"))
}
