//! What is in Epitaph's image: the program, and exactly what it reads at run time.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::{Arch, Layer, Root, debian, sbom};

/// The certificates of public authorities, on Debian from the package ca-certificates.
pub const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// root for the agent, which the DaemonSet names; nobody for the observer; nonroot is the image's default user.
const PASSWD: &str = "root:x:0:0:root:/:/sbin/nologin
nobody:x:65534:65534:nobody:/:/sbin/nologin
nonroot:x:65532:65532:nonroot:/:/sbin/nologin
";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\nnonroot:x:65532:\n";
/// glibc reads /etc/hosts and asks the servers of /etc/resolv.conf, which the container runtime writes. Both ways are in libc
/// itself since glibc 2.34, without a library of their own.
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// The files of an image.
#[derive(Clone, Debug)]
pub struct Parts {
    pub arch: Arch,
    pub program: PathBuf,
    pub certificates: PathBuf,
    /// The text of Epitaph's own licence, where there is one.
    pub licence: Option<PathBuf>,
    /// The crates of the program, a CycloneDX document of `cargo cyclonedx`.
    pub crates: Option<PathBuf>,
    /// The checkout that the program was built in: its path is not in the image.
    pub checkout: String,
}

/// Made of [`Parts`].
pub struct Contents {
    /// Two: what changes with the builder's Debian, and what changes with each build.
    pub layers: Vec<Layer>,
    /// The bill of materials, which the image has too: crates and packages.
    pub sbom: Option<Vec<u8>>,
}

///
/// # Errors
/// The program or a library is missing, or no certificates are there.
pub fn contents(parts: &Parts) -> Result<Contents> {
    ensure!(
        parts.certificates.is_file(),
        "no certificates in {}: install the package ca-certificates",
        parts.certificates.display()
    );
    let mut system = Layer::default();
    let mut files = system.libraries(&parts.program, &Root::of(parts.arch)?)?;
    system.file(CERTIFICATES, &parts.certificates, 0o644);
    system.text("/etc/passwd", PASSWD, 0o644);
    system.text("/etc/group", GROUP, 0o644);
    system.text("/etc/nsswitch.conf", NSSWITCH, 0o644);
    // dpkg does not know the bundle, which a script of the package writes.
    files.push("/usr/sbin/update-ca-certificates".into());
    let packages = debian::owners(&files);
    for package in &packages {
        let name = &package.name;
        system.text(format!("/var/lib/dpkg/status.d/{name}"), package.status.clone(), 0o644);
        if let Some(copyright) = &package.copyright {
            system.file(format!("/usr/share/doc/{name}/copyright"), copyright, 0o644);
        }
    }

    let mut own = Layer::default();
    own.file("/epitaph", &parts.program, 0o755);
    let documents = Path::new("/usr/share/doc/epitaph");
    if let Some(licence) = &parts.licence {
        own.file(documents.join("LICENSE"), licence, 0o644);
    }
    let mut sbom = None;
    if let Some(crates) = &parts.crates {
        let bytes = fs::read(crates).with_context(|| format!("reading {}", crates.display()))?;
        let document = sbom::complete(&bytes, &packages, &parts.checkout)?;
        own.text(documents.join("epitaph.cdx.json"), document.clone(), 0o644);
        sbom = Some(document);
    }
    Ok(Contents {
        layers: vec![system, own],
        sbom,
    })
}
