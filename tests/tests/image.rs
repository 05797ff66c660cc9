//! The container image: exactly these files, and a program that runs with them alone.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use epitaph_image::{Arch, Contents, Parts, contents};
use epitaph_tests::agent::program;
use epitaph_tests::machine::is_root;
use epitaph_tests::skip::skip;

/// Besides libraries, and the records of the packages that these come from.
const FILES: [&str; 7] = [
    "epitaph",
    "etc/group",
    "etc/nsswitch.conf",
    "etc/passwd",
    "etc/ssl/certs/ca-certificates.crt",
    "usr/share/doc/epitaph/LICENSE",
    "usr/share/doc/epitaph/epitaph.cdx.json",
];
const LIBRARIES: [&str; 3] = ["libc.so.6", "libgcc_s.so.1", "libm.so.6"];
const PACKAGES: [&str; 3] = ["ca-certificates", "libc6", "libgcc-s1"];

/// The image of the unoptimised binary, with stand-ins for the machine's certificates and the list of crates.
fn image(dir: &Path) -> anyhow::Result<Contents> {
    let mut binaries = PathBuf::from(env!("CARGO_BIN_EXE_victim"));
    binaries.pop();
    let (certificates, crates) = (dir.join("certificates"), dir.join("crates"));
    fs::write(&certificates, "-----BEGIN CERTIFICATE-----\n")?;
    fs::write(&crates, r#"{"bomFormat": "CycloneDX", "components": []}"#)?;
    contents(&Parts {
        arch: Arch::host()?,
        program: program(&binaries),
        root: None,
        certificates,
        licence: Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("../LICENSE")),
        crates: Some(crates),
        checkout: "/src".into(),
    })
}

/// A root file system of all layers.
fn unpacked(image: &Contents, dir: &Path) -> anyhow::Result<PathBuf> {
    let root = dir.join("root");
    fs::create_dir(&root)?;
    fs::set_permissions(&root, Permissions::from_mode(0o755))?;
    for layer in &image.layers {
        tar::Archive::new(&layer.tar()?[..]).unpack(&root).context("unpack a layer")?;
    }
    Ok(root)
}

fn files(root: &Path, dir: &Path, found: &mut BTreeSet<String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.symlink_metadata()?.is_dir() {
            files(root, &path, found)?;
        } else {
            found.insert(path.strip_prefix(root)?.display().to_string());
        }
    }
    Ok(())
}

#[test]
fn the_image_has_the_program_and_exactly_what_it_reads() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let image = image(dir.path())?;
    let root = unpacked(&image, dir.path())?;
    let mut found = BTreeSet::new();
    files(&root, &root, &mut found)?;
    for file in FILES {
        assert!(found.remove(file), "{file} is missing");
    }
    let name = |file: &str| file.rsplit('/').next().unwrap_or_default().to_owned();
    let (libraries, rest): (Vec<String>, Vec<String>) = found
        .into_iter()
        .partition(|file| file.contains("lib") && file.contains(".so"));
    let (loaders, libraries): (Vec<String>, Vec<String>) =
        libraries.into_iter().partition(|file| name(file).starts_with("ld-"));
    assert_eq!(loaders.len(), 1, "{loaders:?}");
    assert_eq!(
        libraries.iter().map(|file| name(file)).collect::<BTreeSet<_>>(),
        BTreeSet::from(LIBRARIES.map(str::to_owned))
    );
    let is_record = |file: &String| {
        PACKAGES.iter().any(|package| {
            *file == format!("var/lib/dpkg/status.d/{package}") || *file == format!("usr/share/doc/{package}/copyright")
        })
    };
    let strange: Vec<&String> = rest.iter().filter(|file| !is_record(file)).collect();
    assert!(strange.is_empty(), "not listed: {strange:?}");

    // The bill of materials is the one that is kept beside the archive.
    let inside = fs::read(root.join("usr/share/doc/epitaph/epitaph.cdx.json"))?;
    assert_eq!(Some(inside), image.sbom);

    if !is_root() {
        skip("the_image_has_the_program_and_exactly_what_it_reads", "chroot needs root");
        return Ok(());
    }
    let ran = Command::new("chroot")
        .arg("--userspec=65532:65532")
        .arg(&root)
        .args(["/epitaph", "--version"])
        .output()?;
    let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
    ensure!(
        ran.status.success(),
        "{}: {}",
        ran.status,
        String::from_utf8_lossy(&ran.stderr)
    );
    assert!(shown.starts_with("epitaph "), "{shown}");
    Ok(())
}
