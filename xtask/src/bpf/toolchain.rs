//! Which compiler builds the probes, and how it is called.

use std::{
    ffi::OsString,
    fmt::{self, Display, Formatter},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::linker;
use crate::{debian, shell};

pub const TARGET: &str = if cfg!(target_endian = "big") {
    "bpfeb-unknown-none"
} else {
    "bpfel-unknown-none"
};

const DEBIAN_PACKAGES: [&str; 2] = ["rustc-web", "rust-web-src"];
pub const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_LIBRARY: &str = "/usr/lib/rustlib/src/rust/library";

pub struct Toolchain {
    compiler: Compiler,
    /// The output of `rustc -vV`.
    version: String,
    linker: PathBuf,
}

enum Compiler {
    /// A rustup toolchain, by name.
    Nightly(String),
    /// Debian's rustc and library source, driven by the cargo that runs this task. A stable compiler builds the core library
    /// only with RUSTC_BOOTSTRAP.
    Debian,
}

/// A nightly with rust-src, if it runs and its LLVM can be had for the linker; else Debian's packages; else both remedies.
pub fn choose() -> Result<Toolchain> {
    let mut refused = Vec::new();
    for name in nightlies_with_source() {
        match nightly_compiler(&name) {
            Ok((version, linker)) => {
                return Ok(Toolchain {
                    compiler: Compiler::Nightly(name),
                    version,
                    linker,
                });
            }
            Err(why) => {
                shell::log(format_args!("rustup's {name} cannot build the probes: {why:#}"));
                refused.push(format!("rustup's {name}: {why:#}"));
            }
        }
    }
    match debian_compiler() {
        Ok(version) => {
            let linker = linker::ready(llvm_major(&version)?)?;
            Ok(Toolchain {
                compiler: Compiler::Debian,
                version,
                linker,
            })
        }
        Err(why) => {
            refused.push(format!("Debian's: {why:#}"));
            bail!(
                "no toolchain for the probes. Run `rustup toolchain install nightly --component rust-src`, or on Debian 12 `apt-get \
                 install {}`. Tried: {}",
                DEBIAN_PACKAGES.join(" "),
                refused.join("; ")
            )
        }
    }
}

impl Toolchain {
    /// `cargo SUBCOMMAND` for the probes' package and target, untouched by the person's own Rust settings.
    pub fn cargo(&self, subcommand: &str) -> Command {
        let mut command = match &self.compiler {
            Compiler::Nightly(name) => rustup_run(name, "cargo"),
            Compiler::Debian => Command::new(shell::cargo_path()),
        };
        self.finish(&mut command, subcommand);
        command
    }

    /// `cargo clippy`, by the clippy that belongs to the compiler.
    pub fn clippy(&self) -> Result<Command> {
        if let Compiler::Nightly(_) = self.compiler {
            return Ok(self.cargo("clippy"));
        }
        debian::ensure(&["rust-web-clippy"], "clippy on the probes")?;
        let mut command = Command::new("/usr/bin/cargo-clippy");
        self.finish(&mut command, "clippy");
        // cargo-clippy runs the clippy-driver of its own directory, and the cargo in CARGO.
        command.env("CARGO", shell::cargo_path());
        Ok(command)
    }

    /// The object without the DWARF from which the linker made BTF: the kernel reads BTF only, and DWARF would be half of the object.
    pub fn without_dwarf(&self, object: &Path) -> Result<Vec<u8>> {
        self.without(object, &[])
    }

    /// The same without the places of instructions in the source either, more than a half of the object. Only the verifier's log has them: a
    /// program that calls no function needs no names of functions, and no program asks for relocations by BTF.
    pub fn without_lines(&self, object: &Path) -> Result<Vec<u8>> {
        self.without(object, &["--remove-section=.BTF.ext", "--remove-section=.rel.BTF.ext"])
    }

    fn without(&self, object: &Path, more: &[&str]) -> Result<Vec<u8>> {
        let to = object.with_extension("stripped");
        let mut objcopy = Command::new(linker::objcopy(llvm_major(&self.version)?)?);
        objcopy.arg("--strip-debug").args(more).arg(object).arg(&to);
        shell::run_quietly(&mut objcopy, "taking the DWARF out of the probes")?;
        fs::read(&to).with_context(|| format!("reading {}", to.display()))
    }

    pub fn target_dir(&self) -> PathBuf {
        shell::root().join("target/bpf/cargo")
    }

    /// Identifies the tools of a build.
    pub fn identity(&self) -> String {
        format!("{}\n{}", self.version, self.linker.display())
    }

    fn finish(&self, command: &mut Command, subcommand: &str) {
        shell::clean_rust_env(command);
        command.current_dir(shell::root()).env("CARGO_ENCODED_RUSTFLAGS", rustflags());
        command.env(
            format!("CARGO_TARGET_{}_LINKER", TARGET.to_uppercase().replace('-', "_")),
            &self.linker,
        );
        if let Compiler::Debian = self.compiler {
            command.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1");
        }
        command.args([
            subcommand,
            "--locked",
            "--package",
            "epitaph-ebpf",
            "--release",
            "--target",
            TARGET,
        ]);
        command.args(["-Z", "build-std=core", "--target-dir"]).arg(self.target_dir());
    }
}

impl Display for Toolchain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let first = self.version.lines().next().unwrap_or_default();
        match &self.compiler {
            Compiler::Nightly(name) => write!(f, "rustup's {name} ({first})"),
            Compiler::Debian => write!(f, "Debian's {first}"),
        }
    }
}

/// The same flags as aya-build's, debug information for BTF included.
pub fn rustflags() -> OsString {
    let arch = std::env::consts::ARCH;
    [
        "--cfg=bpf_target_arch=\"".to_owned() + arch + "\"",
        "-Cdebuginfo=2".into(),
        "-Clink-arg=--btf".into(),
    ]
    .join("\x1f")
    .into()
}

fn nightlies_with_source() -> Vec<String> {
    let Ok(list) = shell::read(Command::new("rustup").args(["toolchain", "list"]).env("PATH", shell::path())) else {
        return Vec::new();
    };
    let names = list
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| name.starts_with("nightly"));
    let with_source = names.filter(|name| {
        let sysroot = shell::read(rustup_run(name, "rustc").args(["--print", "sysroot"]));
        sysroot.is_ok_and(|dir| Path::new(&dir).join("lib/rustlib/src/rust/library/Cargo.lock").is_file())
    });
    with_source.map(str::to_owned).collect()
}

/// The toolchain's version, and a linker for its LLVM.
fn nightly_compiler(name: &str) -> Result<(String, PathBuf)> {
    let version = shell::read(rustup_run(name, "rustc").arg("-vV"))?;
    let linker = linker::ready(llvm_major(&version)?)?;
    Ok((version, linker))
}

fn rustup_run(toolchain: &str, program: &str) -> Command {
    let mut command = Command::new("rustup");
    shell::clean_rust_env(&mut command);
    command.args(["run", toolchain, program]);
    command
}

/// Makes sure of Debian's compiler and its library source; its version.
pub fn debian_compiler() -> Result<String> {
    let here = || DEBIAN_PACKAGES.iter().all(|package| debian::installed(package));
    if !here() {
        if let Some(package) = DEBIAN_PACKAGES.iter().find(|package| !debian::offered(package)) {
            bail!("apt-get offers no {package} here");
        }
        debian::ensure(&DEBIAN_PACKAGES, "Debian's Rust compiler")?;
    }
    if !Path::new(DEBIAN_LIBRARY).is_dir() {
        bail!("{DEBIAN_LIBRARY} is missing although rust-web-src is installed");
    }
    let mut rustc = Command::new(DEBIAN_RUSTC);
    shell::clean_rust_env(&mut rustc);
    shell::read(rustc.arg("-vV"))
}

fn llvm_major(version: &str) -> Result<u32> {
    let line = version.lines().find_map(|line| line.strip_prefix("LLVM version: "));
    let major = line.and_then(|version| version.split('.').next()?.parse().ok());
    major.with_context(|| format!("no LLVM version in the output of rustc -vV: {version}"))
}

#[cfg(test)]
mod tests {
    use super::llvm_major;

    #[test]
    fn the_linker_follows_the_compilers_llvm() {
        assert_eq!(
            llvm_major("rustc 1.96.0\nhost: x86_64-unknown-linux-gnu\nLLVM version: 22.1.8").unwrap(),
            22
        );
        assert!(llvm_major("rustc 1.96.0").is_err());
        assert!(llvm_major("LLVM version: next").is_err());
    }
}
