//! Bills of materials: for each program that a release has, a CycloneDX document of the crates in it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    crate_tool::CrateTool,
    dist::{self, Arch},
    platforms, shell,
};

/// Writes the list of the crates in a program.
const CYCLONEDX: CrateTool = CrateTool {
    name: "cargo-cyclonedx",
    version: "0.5.9",
    subcommand: "cyclonedx",
};
/// It writes a file for each package of the workspace, beside its Cargo.toml.
const WRITTEN: &str = "epitaph-sbom";
/// Of every crate, with its version.
const PURL: &str = "\"purl\": \"pkg:cargo/";
/// For the target of the probes.
const BPF: &str = "bpfel-unknown-none";

/// A program, as it is built for a target.
#[derive(Debug)]
pub struct Program {
    /// Of the document: `epitaph-sbom-amd64`.
    pub document: String,
    package: &'static str,
    /// Of its Cargo.toml.
    directory: &'static str,
    target: &'static str,
    features: &'static [&'static str],
}

impl Program {
    /// The agent and the observer, in the image.
    pub fn of_pods(arch: Arch) -> Program {
        Program {
            document: format!("epitaph-image-sbom-{}", arch.name()),
            features: &dist::FOR_PODS,
            ..Program::of_hosts(arch)
        }
    }

    /// In the archive and in Debian's package.
    fn of_hosts(arch: Arch) -> Program {
        Program {
            document: format!("epitaph-sbom-{}", arch.name()),
            package: "epitaph",
            directory: "agent",
            target: arch.target(),
            features: &[],
        }
    }

    fn plugin(platform: &str, target: &'static str) -> Program {
        Program {
            document: format!("kubectl-epitaph-sbom-{platform}"),
            package: "kubectl-epitaph",
            directory: "agent/kubectl",
            target,
            features: &[],
        }
    }

    /// In each of `epitaph`.
    fn probes() -> Program {
        Program {
            document: "epitaph-probes-sbom".to_owned(),
            package: "epitaph-ebpf",
            directory: "agent-ebpf",
            target: BPF,
            features: &[],
        }
    }
}

/// Every program of a release but the image's, whose document the image has in it.
pub fn of_release(arches: &[Arch], windows: bool) -> Vec<Program> {
    let of_arch = |arch: &Arch| {
        [
            Program::of_hosts(*arch),
            Program::plugin(&format!("linux-{}", arch.name()), arch.target()),
        ]
    };
    let of_windows = windows.then(|| Program::plugin(&format!("windows-{}", Arch::Amd64.name()), platforms::WINDOWS));
    arches
        .iter()
        .flat_map(of_arch)
        .chain(of_windows)
        .chain([Program::probes()])
        .collect()
}

/// A CycloneDX document of the crates in `program`, in the directory `out`. Two calls write the same bytes.
///
/// # Errors
/// The tool cannot be built or fails, or its list is not that of cargo.
pub fn write(program: &Program, out: &Path, epoch: i64) -> Result<PathBuf> {
    let mut command = CYCLONEDX.command("two minutes")?;
    command
        // Without it, the document has the time of the run and a random serial number.
        .env("SOURCE_DATE_EPOCH", epoch.to_string())
        .arg("--manifest-path")
        .arg(format!("{}/Cargo.toml", program.directory))
        .args(["--format", "json", "--spec-version", "1.5"])
        .args(["--all", "--no-build-deps", "--target", program.target])
        .args(["--override-filename", WRITTEN])
        .args(program.features);
    shell::run_quietly(&mut command, &format!("listing the crates of {}", program.document))?;
    let mut found = None;
    for directory in [
        "agent",
        "agent/core",
        "agent/kubectl",
        "agent/story",
        "agent-ebpf",
        "tests",
        "tests/random",
        "xtask",
        "xtask/image",
    ] {
        let file = shell::root().join(directory).join(format!("{WRITTEN}.json"));
        if let Ok(text) = fs::read_to_string(&file) {
            fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
            if directory == program.directory {
                found = Some(text);
            }
        }
    }
    let text = found.with_context(|| format!("cargo cyclonedx wrote no file for crate {}", program.package))?;
    // The tool names the crates of the workspace by their directories.
    let checkout = shell::root().display().to_string();
    let text = text
        .replace(&format!("file://{checkout}"), "file:///src")
        .replace(&checkout, "/src");
    let (listed, linked) = (listed(&text), linked(program)?);
    let missing: Vec<&String> = linked.difference(&listed).collect();
    ensure!(
        missing.is_empty(),
        "{}: cargo cyclonedx does not list {missing:?}, which cargo tree does",
        program.document
    );
    let to = out.join(format!("{}.json", program.document));
    fs::write(&to, text).with_context(|| format!("writing {}", to.display()))?;
    Ok(to)
}

/// `NAME@VERSION` of each crate in the document.
fn listed(document: &str) -> BTreeSet<String> {
    let purls = document.split(PURL).skip(1);
    let names = purls.filter_map(|rest| rest.split(['"', '?', '#']).next());
    names.map(str::to_owned).collect()
}

/// The same of what cargo links into the program.
fn linked(program: &Program) -> Result<BTreeSet<String>> {
    let mut tree = shell::cargo();
    tree.args(["tree", "--locked", "--package", program.package])
        // A macro runs in the compiler, and is in no program.
        .args(["--target", program.target, "--edges", "normal,no-proc-macro"])
        .args(["--prefix", "none", "--format", "{p}"])
        .args(program.features);
    let text = shell::read(&mut tree)?;
    let all: BTreeSet<String> = text.lines().filter_map(crate_of).collect();
    ensure!(!all.is_empty(), "cargo tree shows no crate of {}", program.package);
    Ok(all)
}

/// A line of cargo tree: `libc v0.2.1`, `epitaph v0.1.0 (/src/agent)`, `libc v0.2.1 (*)`.
fn crate_of(line: &str) -> Option<String> {
    let (name, rest) = line.split_once(" v")?;
    let version = rest.split_whitespace().next()?;
    Some(format!("{name}@{version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_of_a_release_has_a_document() {
        let names = |arches: &[Arch], windows| -> Vec<String> {
            of_release(arches, windows)
                .into_iter()
                .map(|program| program.document)
                .collect()
        };
        assert_eq!(
            names(&[Arch::Amd64, Arch::Arm64], true),
            [
                "epitaph-sbom-amd64",
                "kubectl-epitaph-sbom-linux-amd64",
                "epitaph-sbom-arm64",
                "kubectl-epitaph-sbom-linux-arm64",
                "kubectl-epitaph-sbom-windows-amd64",
                "epitaph-probes-sbom",
            ]
        );
        assert_eq!(names(&[Arch::Amd64], false).len(), 3);
        assert_eq!(Program::of_pods(Arch::Amd64).document, "epitaph-image-sbom-amd64");
    }

    #[test]
    fn crates_are_compared_by_name_and_version() {
        let document = r#"{"purl": "pkg:cargo/libc@0.2.1"}, {"purl": "pkg:cargo/epitaph@0.1.0?download_url=file://.#src"}"#;
        let tree = "epitaph v0.1.0 (/src/agent)\nlibc v0.2.1\nlibc v0.2.1 (*)\n";
        let linked: BTreeSet<String> = tree.lines().filter_map(crate_of).collect();
        assert_eq!(listed(document), linked);
    }
}
