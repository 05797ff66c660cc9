//! Container images without a daemon: reproducible layers, OCI layouts and archives.
//!
//! The same files, the same time and the same revision give the same bytes, and so the same digests. `cargo xtask image` runs the
//! program of this crate; the test cluster uses the library.

#![warn(unused_crate_dependencies)]

pub mod command;
mod contents;
mod debian;
mod elf;
mod layer;
mod layout;
mod sbom;

pub use contents::{CERTIFICATES, Contents, Parts, contents};
pub use elf::{Root, libraries};
pub use layer::{Layer, append};
pub use layout::{Image, Labels, Layout};

/// The processor architectures that Epitaph has images for, by their names in OCI images and Debian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    pub const ALL: [Arch; 2] = [Arch::Amd64, Arch::Arm64];

    pub fn name(self) -> &'static str {
        match self {
            Arch::Amd64 => "amd64",
            Arch::Arm64 => "arm64",
        }
    }

    /// # Errors
    /// Another name.
    pub fn of(name: &str) -> anyhow::Result<Arch> {
        let arch = Arch::ALL.into_iter().find(|arch| arch.name() == name);
        anyhow::Context::with_context(arch, || format!("no architecture `{name}`; there are amd64 and arm64"))
    }

    /// This machine's.
    ///
    /// # Errors
    /// There are no images for it.
    pub fn host() -> anyhow::Result<Arch> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Arch::Amd64),
            "aarch64" => Ok(Arch::Arm64),
            other => anyhow::bail!("no images for {other}: Epitaph is built for amd64 and arm64"),
        }
    }

    /// The name of Debian's directories for libraries.
    pub fn triplet(self) -> &'static str {
        match self {
            Arch::Amd64 => "x86_64-linux-gnu",
            Arch::Arm64 => "aarch64-linux-gnu",
        }
    }
}
