//! `kubectl epitaph`: an archive for each platform, and krew's manifest with the address and the checksum of each.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::{Options, archive, copy, digest, write};
use crate::{
    agent::Built,
    arm64,
    dist::{self, Arch},
    go, platforms, shell,
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
    os: &'static str,
    arch: &'static str,
    /// Of the program in the archive.
    bin: String,
    file: String,
    sha256: String,
}

/// Builds the program for each of the platforms, packs it, and writes the manifest.
pub fn artefacts(options: &Options, arches: &[Arch], out: &Path, epoch: i64) -> Result<()> {
    let (dev, address) = (options.dev, options.krew.as_deref());
    let mut platforms = Vec::new();
    for arch in arches {
        let built = build(*arch, !dev)?;
        let strip = |to: &Path| dist::strip(*arch, &built, to);
        platforms.push(packed("linux", arch.name(), PROGRAM, dev, (out, epoch), &strip)?);
    }
    if options.windows {
        let built = platforms::windows(!dev)?;
        let name = format!("{PROGRAM}.exe");
        // The linker has stripped it.
        let copied = |to: &Path| {
            fs::copy(&built, to)
                .map(drop)
                .with_context(|| format!("copying {}", built.display()))
        };
        platforms.push(packed("windows", Arch::Amd64.name(), &name, dev, (out, epoch), &copied)?);
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

/// The archive of a program, which `put` writes.
fn packed(
    os: &'static str,
    arch: &'static str,
    bin: &str,
    dev: bool,
    (out, epoch): (&Path, i64),
    put: &dyn Fn(&Path) -> Result<()>,
) -> Result<Platform> {
    let dir = shell::root()
        .join("target/release-artefacts/tree")
        .join(format!("{PROGRAM}-{os}-{arch}"));
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    put(&dir.join(bin))?;
    let size = fs::metadata(dir.join(bin))
        .with_context(|| format!("reading the size of {bin}"))?
        .len();
    ensure!(dev || size <= MOST, "{bin} for {os}-{arch} has {size} bytes, at most {MOST}");
    copy(&shell::root().join("LICENSE"), &dir)?;
    let file = format!("{PROGRAM}-{}-{os}-{arch}.tar.gz", dist::version());
    archive(&dir, &[bin, "LICENSE"], &out.join(&file), epoch, &[])?;
    Ok(Platform {
        os,
        arch,
        bin: bin.to_owned(),
        sha256: digest(&out.join(&file))?,
        file,
    })
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
    for Platform {
        os,
        arch,
        bin,
        file,
        sha256,
    } in platforms
    {
        let _ = write!(
            out,
            "    - selector: {{matchLabels: {{os: {os}, arch: {arch}}}}}\n      uri: {}/{file}\n      sha256: \"{sha256}\"\n      bin: {bin}\n      \
             files:\n        - {{from: {bin}, to: .}}\n        - {{from: LICENSE, to: .}}\n",
            address.trim_end_matches('/')
        );
    }
    Ok(out)
}

/// krew takes the manifest, compares the checksum of the archive, and the program runs from where krew puts it.
pub fn installs(out: &Path, dir: &Path) -> Result<()> {
    let module = shell::root().join("xtask/krew");
    let krew = go::build(&module, "sigs.k8s.io/krew/cmd/krew", "half a minute on two cores")?;
    let manifest = out.join("kubectl-epitaph.krew.yaml");
    let archive = out.join(format!(
        "kubectl-epitaph-{}-linux-{}.tar.gz",
        dist::version(),
        Arch::host()?.name()
    ));
    let install = |root: &Path, manifest: &Path, what: &str| {
        let mut install = Command::new(&krew);
        install
            .env("KREW_ROOT", root)
            .env("KREW_NO_UPGRADE_CHECK", "1")
            .arg("install")
            .arg(format!("--manifest={}", manifest.display()))
            .arg(format!("--archive={}", archive.display()));
        shell::run_quietly(&mut install, what)
    };
    let root = dir.join("krew");
    install(&root, &manifest, "installing kubectl epitaph by krew")?;
    let mut run = Command::new(root.join("bin/kubectl-epitaph"));
    run.arg("--version");
    let shown = shell::read(&mut run)?;
    ensure!(shown.contains(dist::version()), "what krew installed says {shown}");
    let text = fs::read_to_string(&manifest)?;
    let other = dir.join("other.krew.yaml");
    let (before, sum) = text.split_once("sha256: \"").context("no checksum in krew's manifest")?;
    let digit = if sum.starts_with('0') { '1' } else { '0' };
    fs::write(
        &other,
        format!("{before}sha256: \"{digit}{}", sum.get(1..).unwrap_or_default()),
    )?;
    let forged = install(
        &dir.join("other-krew"),
        &other,
        "installing another archive by krew, which must fail",
    );
    ensure!(forged.is_err(), "krew installs an archive of another checksum");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> String {
        fs::read_to_string(shell::root().join(MANIFEST)).expect("the template")
    }

    #[test]
    fn a_manifest_has_address_and_checksum_of_each_archive() {
        let platforms = [
            ("linux", "amd64", "kubectl-epitaph"),
            ("linux", "arm64", "kubectl-epitaph"),
            ("windows", "amd64", "kubectl-epitaph.exe"),
        ];
        let platforms = platforms.map(|(os, arch, bin)| Platform {
            os,
            arch,
            bin: bin.to_owned(),
            file: format!("kubectl-epitaph-1.2.3-{os}-{arch}.tar.gz"),
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
            "{os: windows, arch: amd64}",
            "      bin: kubectl-epitaph.exe\n",
            "- {from: kubectl-epitaph.exe, to: .}\n",
            "- {from: LICENSE, to: .}\n",
        ] {
            assert!(manifest.contains(part), "{part} is not in {manifest}");
        }
        assert_eq!(manifest.matches("selector:").count(), 3);
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
