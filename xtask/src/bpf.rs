//! The probes' object, which the agent's build script embeds: `target/bpf/probes`, and for optimised builds `target/bpf/shipped`, which has no
//! lines of source for the verifier's log.
//!
//! The BPF target has no prebuilt core library, so its source must match the compiler: a nightly with rust-src, or Debian's
//! pair of packages. The linker must match the compiler's LLVM; it is built once per machine.

pub mod elf;
mod linker;
mod toolchain;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

pub use self::toolchain::{DEBIAN_RUSTC, debian_compiler};

use self::toolchain::Toolchain;
use crate::{
    done,
    shell::{self, Content},
};

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let lint = args.contains("--clippy");
    done(args)?;
    println!("{}", build()?.display());
    if lint {
        clippy()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What an optimised build embeds.
const SHIPPED: &str = "shipped";

/// Builds the object and the one that is shipped, unless those that are there came from the same sources, lock file and tools; the path of
/// the first.
pub fn build() -> Result<PathBuf> {
    build_with(None)
}

/// Another object, of which a profile can run parts.
pub fn build_parts() -> Result<PathBuf> {
    build_with(Some("parts"))
}

fn build_with(feature: Option<&str>) -> Result<PathBuf> {
    let toolchain = toolchain::choose()?;
    let object = shell::root().join("target/bpf").join(feature.unwrap_or("probes"));
    let stamp = object.with_extension("content");
    let content = content(&toolchain)?;
    let shipped = feature.is_none().then(|| object.with_file_name(SHIPPED));
    let is_there = object.is_file() && shipped.as_ref().is_none_or(|shipped| shipped.is_file());
    if is_there && fs::read_to_string(&stamp).is_ok_and(|built| built == content) {
        shell::log("the probes are up to date");
        return Ok(object);
    }
    let mut cargo = toolchain.cargo("build");
    shell::run(
        cargo
            .args(["--bin", "probes"])
            .args(feature.map(|feature| format!("--features={feature}"))),
        &format!("building the probes with {toolchain}"),
    )?;

    let built = toolchain.target_dir().join(toolchain::TARGET).join("release/probes");
    let bytes = toolchain.without_dwarf(&built)?;
    for section in [".BTF", ".BTF.ext"] {
        if elf::section(&bytes, section).is_none() {
            bail!(
                "{} has no section {section}: the linker did not write BTF, or the object has no program",
                built.display()
            );
        }
    }
    let calling = elf::calling(&bytes);
    if !calling.is_empty() {
        bail!(
            "{} calls a function of the object, which the verifiers of kernels up to 6.1 process at a hundred times the cost: mark the \
             function `#[inline(always)]`, or, if `llvm-objdump -dr {}` shows a call of memset or memcpy, write by `write_volatile`",
            calling.join(", "),
            built.display()
        );
    }
    // The stamp goes first and comes last: an interrupted copy is not taken for a whole one.
    let _ = fs::remove_file(&stamp);
    if let Some(shipped) = shipped {
        write(&shipped, &toolchain.without_lines(&built)?)?;
    }
    write(&object, &bytes)?;
    fs::write(&stamp, content).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(object)
}

/// A new time makes cargo build anew.
fn write(object: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(object).is_ok_and(|written| written == bytes) {
        return Ok(());
    }
    fs::write(object, bytes).with_context(|| format!("writing {}", object.display()))
}

/// Clippy on the probes, where the toolchain has one of its own or Debian does.
pub fn clippy() -> Result<()> {
    let toolchain = toolchain::choose()?;
    let mut cargo = toolchain.clippy()?;
    shell::run(
        cargo.args(["--bin", "probes", "--", "-D", "warnings"]),
        "clippy on the probes, for the BPF target",
    )
}

fn content(toolchain: &Toolchain) -> Result<String> {
    let root = shell::root();
    let mut content = Content::default();
    content.part("toolchain", toolchain.identity().as_bytes());
    content.part("flags", toolchain::rustflags().as_encoded_bytes());
    content.part("dwarf", b"removed");
    for file in ["Cargo.toml", "Cargo.lock"] {
        content.file(&root.join(file))?;
    }
    content.tree(&root.join("agent-ebpf"))?;
    Ok(content.hex())
}
