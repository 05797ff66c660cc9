//! `kubectl epitaph`: an archive for each platform, and krew's manifest with the address and the checksum of each.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use super::{archive, copy, digest, write};
use crate::{
    agent::Built,
    arm64,
    dist::{self, Arch},
    shell,
};

const PROGRAM: &str = "kubectl-epitaph";
const MANIFEST: &str = "deploy/krew/epitaph.yaml";
const PLATFORMS: &str = "  platforms:\n";
/// Of the stripped program, bytes: what a person downloads as a plugin.
const MOST: u64 = 8 << 20;
/// Where no address is named: of no host.
const NOWHERE: &str = "https://releases.invalid";

/// An archive of the program.
#[derive(Debug, PartialEq, Eq)]
struct Platform {
    arch: &'static str,
    file: String,
    sha256: String,
}

/// Builds the program for each of the platforms, packs it, and writes the manifest. `address`: of the directory in which the archives will be
/// found.
pub fn artefacts(arches: &[Arch], dev: bool, address: Option<&str>, out: &Path, epoch: i64) -> Result<()> {
    let mut platforms = Vec::new();
    for arch in arches {
        let dir = shell::root()
            .join("target/release-artefacts/tree")
            .join(format!("{PROGRAM}-{}", arch.name()));
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
        }
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        dist::strip(*arch, &build(*arch, !dev)?, &dir.join(PROGRAM))?;
        let size = fs::metadata(dir.join(PROGRAM))
            .with_context(|| format!("reading the size of {PROGRAM}"))?
            .len();
        ensure!(
            dev || size <= MOST,
            "{PROGRAM} for {} has {size} bytes, at most {MOST}",
            arch.name()
        );
        copy(&shell::root().join("LICENSE"), &dir)?;
        let file = format!("{PROGRAM}-{}-linux-{}.tar.gz", dist::version(), arch.name());
        archive(&dir, &[PROGRAM, "LICENSE"], &out.join(&file), epoch, &[])?;
        platforms.push(Platform {
            arch: arch.name(),
            sha256: digest(&out.join(&file))?,
            file,
        });
    }
    let template = shell::root().join(MANIFEST);
    let template = fs::read_to_string(&template).with_context(|| format!("reading {}", template.display()))?;
    if address.is_none() {
        shell::log(format_args!(
            "the manifest for krew has addresses of no host: --krew URL names the directory in which {PROGRAM}'s archives will be found"
        ));
    }
    let manifest = manifest(&template, dist::version(), address.unwrap_or(NOWHERE), &platforms)?;
    write(&out.join("kubectl-epitaph.krew.yaml"), &manifest)
}

fn build(arch: Arch, release: bool) -> Result<PathBuf> {
    let selection = ["--package", PROGRAM, "--bins"];
    if arch == Arch::host()? {
        let mut selection = Vec::from(selection);
        selection.extend(release.then_some("--release"));
        return Built::of(&selection, "building kubectl-epitaph")?.bin(PROGRAM);
    }
    arm64::build_bin(&selection, PROGRAM, release)
}

/// # Errors
/// The template is of another version, or has no platforms.
fn manifest(template: &str, version: &str, address: &str, platforms: &[Platform]) -> Result<String> {
    let line = format!("  version: v{version}\n");
    ensure!(template.contains(&line), "{MANIFEST} has no `{}`", line.trim());
    let (head, _) = template
        .split_once(PLATFORMS)
        .with_context(|| format!("{MANIFEST} has no platforms"))?;
    // The comment is about the template.
    let mut out: String = head
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    out.push_str(PLATFORMS);
    for Platform { arch, file, sha256 } in platforms {
        let _ = write!(
            out,
            "    - selector: {{matchLabels: {{os: linux, arch: {arch}}}}}\n      uri: {}/{file}\n      sha256: \"{sha256}\"\n      bin: {PROGRAM}\n      \
             files:\n        - {{from: {PROGRAM}, to: .}}\n        - {{from: LICENSE, to: .}}\n",
            address.trim_end_matches('/')
        );
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> String {
        fs::read_to_string(shell::root().join(MANIFEST)).expect("the template")
    }

    #[test]
    fn a_manifest_has_address_and_checksum_of_each_archive() {
        let platforms = ["amd64", "arm64"].map(|arch| Platform {
            arch,
            file: format!("kubectl-epitaph-1.2.3-linux-{arch}.tar.gz"),
            sha256: format!("{arch}0f"),
        });
        let template = template().replace(&format!("v{}\n", dist::version()), "v1.2.3\n");
        let manifest = manifest(&template, "1.2.3", "https://example.org/v1.2.3/", &platforms).expect("a manifest");
        assert!(
            manifest.starts_with("apiVersion: krew.googlecontainertools.github.com/v1alpha2\nkind: Plugin\n"),
            "{manifest}"
        );
        for part in [
            "  version: v1.2.3\n",
            "      uri: https://example.org/v1.2.3/kubectl-epitaph-1.2.3-linux-arm64.tar.gz\n      sha256: \"arm640f\"\n",
            "{os: linux, arch: amd64}",
            "- {from: LICENSE, to: .}\n",
        ] {
            assert!(manifest.contains(part), "{part} is not in {manifest}");
        }
        assert_eq!(manifest.matches("selector:").count(), 2);
        assert!(!manifest.contains("releases.invalid"), "{manifest}");
    }

    /// What krew requires of a manifest.
    #[test]
    fn the_committed_template_is_one_of_this_version() {
        let template = template();
        manifest(&template, dist::version(), NOWHERE, &[]).expect("of this version");
        for field in ["name: epitaph\n", "shortDescription: ", "description: |", "platforms:"] {
            assert!(template.contains(field), "{field}");
        }
    }
}
