//! What is in Epitaph's image: the program, and exactly what it reads at run time.

use std::{
    fs,
    path::{Path, PathBuf},
    slice,
};

use anyhow::{Context as _, Result, ensure};

use crate::{Arch, Layer, Root, debian, sbom};

/// The certificates of public authorities, a file each, of Debian's package ca-certificates. Not the machine's own bundle, which has
/// the authorities that its administrator added.
pub const CERTIFICATES: &str = "/usr/share/ca-certificates/mozilla";
/// Where the agent's TLS library looks.
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

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
    /// The system that the libraries are from: see [`Root::of`].
    pub root: Option<PathBuf>,
    /// A directory of certificates, or a bundle.
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
    let mut system = Layer::default();
    let root = Root::of(parts.arch, parts.root.clone())?;
    let libraries = system.libraries(&parts.program, &root)?;
    system.text(BUNDLE, bundle(&parts.certificates)?, 0o644);
    system.text("/etc/passwd", PASSWD, 0o644);
    system.text("/etc/group", GROUP, 0o644);
    system.text("/etc/nsswitch.conf", NSSWITCH, 0o644);
    let mut packages = debian::owners(&libraries, root.dir());
    packages.extend(debian::owners(slice::from_ref(&parts.certificates), Path::new("/")));
    packages.sort_by(|a, b| a.name.cmp(&b.name));
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

/// The file, or all `.crt` files of the directory in the order of their names.
fn bundle(certificates: &Path) -> Result<Vec<u8>> {
    if certificates.is_file() {
        return fs::read(certificates).with_context(|| format!("reading {}", certificates.display()));
    }
    let entries = fs::read_dir(certificates).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let entries = entries.with_context(|| {
        format!(
            "no certificates in {}: install the package ca-certificates, or name a bundle with --certificates",
            certificates.display()
        )
    })?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "crt"));
    files.sort();
    ensure!(!files.is_empty(), "no certificate in {}", certificates.display());
    let mut bundle = Vec::new();
    for file in files {
        bundle.extend(fs::read(&file).with_context(|| format!("reading {}", file.display()))?);
        if !bundle.ends_with(b"\n") {
            bundle.push(b'\n');
        }
    }
    Ok(bundle)
}

#[cfg(test)]
mod tests {
    use super::bundle;

    #[test]
    fn a_directory_of_certificates_is_one_bundle_in_the_order_of_the_names() {
        let dir = tempfile::tempdir().unwrap();
        assert!(bundle(dir.path()).is_err());
        for (name, text) in [("b.crt", "B"), ("a.crt", "A\n"), ("README", "C")] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        assert_eq!(bundle(dir.path()).unwrap(), b"A\nB\n");
        assert_eq!(bundle(&dir.path().join("b.crt")).unwrap(), b"B");
        let error = bundle(&dir.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("install the package ca-certificates"), "{error}");
    }
}
