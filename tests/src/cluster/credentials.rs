//! Certificates and keys, made here, for this cluster alone, in files that only their owner can read.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::json;

/// A certificate and its key, both PEM.
#[derive(Clone, Debug)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Pair {
    /// Writes NAME.crt and NAME.key into `directory`.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write(&self, directory: &Path, name: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
        let files = (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")));
        write_private(&files.0, self.certificate.as_bytes())?;
        write_private(&files.1, self.key.as_bytes())?;
        Ok(files)
    }
}

/// Signs the certificates of one group of programs. API server and etcd have one each: a client of the first must not reach
/// the store behind it.
pub struct Authority {
    /// The file of its own certificate.
    pub file: PathBuf,
    /// Its own certificate, PEM.
    pub certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// The authority in `directory` under `name`, else a new one.
    ///
    /// # Errors
    /// Its files cannot be read or written.
    pub fn open(directory: &Path, name: &str) -> anyhow::Result<Authority> {
        let file = directory.join(format!("{name}.crt"));
        let key_file = directory.join(format!("{name}.key"));
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("epitaph-{name}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = match read(&key_file)? {
            Some(pem) => KeyPair::from_pem(&pem).with_context(|| format!("read {}", key_file.display()))?,
            None => KeyPair::generate().with_context(|| format!("make the key of {name}"))?,
        };
        let certificate = match read(&file)? {
            Some(pem) => pem,
            None => {
                let made = params.self_signed(&key).with_context(|| format!("sign {name}"))?.pem();
                write_private(&key_file, key.serialize_pem().as_bytes())?;
                write_private(&file, made.as_bytes())?;
                made
            }
        };
        Ok(Authority {
            file,
            certificate,
            issuer: Issuer::new(params, key),
        })
    }

    /// For a server with these `names` (DNS names or addresses), which is also a client in its group.
    ///
    /// # Errors
    /// A name is neither a DNS name nor an address.
    pub fn server(&self, user: &str, names: &[&str]) -> anyhow::Result<Pair> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).with_context(|| format!("name the server {user}"))?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, user, None)
    }

    /// For a Kubernetes user: its name, and the one group that a certificate of ours can hold.
    ///
    /// # Errors
    /// The certificate cannot be signed.
    pub fn client(&self, user: &str, group: Option<&str>) -> anyhow::Result<Pair> {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, user, group)
    }

    fn sign(&self, mut params: CertificateParams, user: &str, group: Option<&str>) -> anyhow::Result<Pair> {
        let what = || format!("sign the certificate of {user}");
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        let key = KeyPair::generate().with_context(what)?;
        Ok(Pair {
            certificate: params.signed_by(&key, &self.issuer).with_context(what)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// A client's credentials.
pub enum Proof<'a> {
    Certificate(&'a Pair),
    Token(&'a str),
}

/// A kubeconfig that holds all it needs, as JSON, which is YAML too. `server` is a URL.
pub fn kubeconfig(server: &str, authority: &str, proof: &Proof<'_>) -> String {
    let encoded = |pem: &str| STANDARD.encode(pem);
    let user = match proof {
        Proof::Certificate(pair) => json!({
            "client-certificate-data": encoded(&pair.certificate),
            "client-key-data": encoded(&pair.key),
        }),
        Proof::Token(token) => json!({ "token": token }),
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "epitaph", "cluster": {"server": server, "certificate-authority-data": encoded(authority)}}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "epitaph", "context": {"cluster": "epitaph", "user": "user"}}],
        "current-context": "epitaph",
    });
    format!("{config:#}\n")
}

/// The key pair with which the API server signs the tokens of ServiceAccounts: the private and the public half's file.
///
/// # Errors
/// They cannot be read or written.
pub fn token_key(directory: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let (private, public) = (directory.join("service-account.key"), directory.join("service-account.pub"));
    if read(&private)?.is_none() || read(&public)?.is_none() {
        let key = KeyPair::generate().context("make the key for tokens")?;
        write_private(&private, key.serialize_pem().as_bytes())?;
        write_private(&public, key.public_key_pem().as_bytes())?;
    }
    Ok((private, public))
}

/// Writes a file that only its owner can read, under another name until it is whole.
///
/// # Errors
/// It cannot be written.
pub fn write_private(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let what = || format!("write {}", file.display());
    let mut partial = file.as_os_str().to_owned();
    partial.push(format!(".{}", std::process::id()));
    let mut options = fs::OpenOptions::new();
    let mut opened = options
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&partial)
        .with_context(what)?;
    opened.write_all(bytes).with_context(what)?;
    fs::rename(&partial, file).with_context(what)
}

fn read(file: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_authority_stays_the_same_and_its_key_private() {
        let directory = tempfile::tempdir().unwrap();
        let first = Authority::open(directory.path(), "ca").unwrap();
        let again = Authority::open(directory.path(), "ca").unwrap();
        assert_eq!(first.certificate, again.certificate);
        for file in fs::read_dir(directory.path()).unwrap() {
            let file = file.unwrap();
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", file.path());
        }
    }
}
