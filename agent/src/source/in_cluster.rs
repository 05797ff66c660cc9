//! The client of a pod: with its ServiceAccount's token, and of the cluster's authorities. The kubelet replaces both files while the pod
//! runs, so they are read again.
//!
//! Not `Client::try_from`, which takes the kubeconfig of a person as well: with its plugins, JSONPath and regular expressions, a tenth of the
//! program.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::header::{AUTHORIZATION, InvalidHeaderValue};
use http::{HeaderValue, Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::Client;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tower::Service;
use tower::util::MapRequestLayer;

use crate::error::chain;

#[derive(Debug, thiserror::Error)]
pub(super) enum AccountError {
    #[error("the ServiceAccount has no {0}")]
    Missing(&'static str),
    #[error("cannot read the ServiceAccount's {what} {}: {source}", path.display())]
    Read {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("the ServiceAccount's token cannot be sent: {0}")]
    Token(#[from] InvalidHeaderValue),
    #[error("the ServiceAccount's authorities are not certificates: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// Of `config`, as [`kube::Config::incluster`] makes it: the address, the namespace, both files and the time limits. No attempt is repeated.
///
/// # Errors
/// If a file is missing or cannot be used.
pub(super) fn client(config: &kube::Config) -> Result<Client, AccountError> {
    let authorities = config.root_cert_file.clone().ok_or(AccountError::Missing("ca.crt"))?;
    let mut connector = TimeoutConnector::new(Connector(Arc::new(Mutex::new(Authorities::read(authorities)?))));
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_write_timeout(config.write_timeout);
    let https: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new()).build(connector);
    let token = config.auth_info.token_file.as_ref().ok_or(AccountError::Missing("token"))?;
    let mut token = Token::read(token.into())?;
    let with_token = move |mut request: Request<Body>| {
        request.headers_mut().insert(AUTHORIZATION, token.header());
        request
    };
    Ok(ClientBuilder::new(https, &*config.default_namespace)
        .with_layer(&MapRequestLayer::new(with_token))
        .with_layer(&config.base_uri_layer())
        .build())
}

/// Read for each request: a few hundred bytes, in memory.
#[derive(Clone)]
struct Token {
    file: PathBuf,
    last: HeaderValue,
}

impl Token {
    fn read(file: PathBuf) -> Result<Token, AccountError> {
        let last = bearer(&file)?;
        Ok(Token { file, last })
    }

    /// The last one that could be used.
    fn header(&mut self) -> HeaderValue {
        if let Ok(header) = bearer(&self.file) {
            self.last = header;
        }
        self.last.clone()
    }
}

fn bearer(file: &Path) -> Result<HeaderValue, AccountError> {
    let token = fs::read_to_string(file).map_err(|source| unreadable("token", file, source))?;
    let token = token.trim();
    if token.is_empty() {
        return Err(AccountError::Missing("token"));
    }
    let mut header = HeaderValue::try_from(format!("Bearer {token}"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Connects to servers that the authorities of the moment vouch for.
#[derive(Clone)]
struct Connector(Arc<Mutex<Authorities>>);

type Https = HttpsConnector<HttpConnector>;

struct Authorities {
    file: PathBuf,
    pem: Vec<u8>,
    https: Https,
    /// Why the file could not be used, as the log has it.
    unusable: Option<String>,
}

impl Authorities {
    fn read(file: PathBuf) -> Result<Authorities, AccountError> {
        let pem = fs::read(&file).map_err(|source| unreadable("authorities", &file, source))?;
        let https = https(&pem)?;
        Ok(Authorities {
            file,
            pem,
            https,
            unusable: None,
        })
    }

    /// By the last authorities that could be used. A change is logged, and once each reason why the file cannot be used: when the servers have
    /// certificates of other authorities, no connection succeeds any more.
    fn https(&mut self) -> Https {
        match self.read_again() {
            Ok(is_new) => {
                self.unusable = None;
                if is_new {
                    let file = self.file.display();
                    tracing::info!(
                        "the cluster's authorities in {file} have changed: from now on each new connection uses the new ones"
                    );
                }
            }
            Err(error) => {
                let error = chain(&error);
                if self.unusable.as_deref() != Some(&*error) {
                    tracing::warn!(
                        remedy = "look at the ConfigMap kube-root-ca.crt of the agent's namespace: its ca.crt must have the cluster's authority",
                        "the cluster's authorities cannot be read again, and new connections still use the ones before: {error}"
                    );
                    self.unusable = Some(error);
                }
            }
        }
        self.https.clone()
    }

    /// True if the file has other authorities now.
    fn read_again(&mut self) -> Result<bool, AccountError> {
        let pem = fs::read(&self.file).map_err(|source| unreadable("authorities", &self.file, source))?;
        if pem == self.pem {
            return Ok(false);
        }
        self.https = https(&pem)?;
        self.pem = pem;
        Ok(true)
    }
}

fn https(pem: &[u8]) -> Result<Https, AccountError> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        return Err(AccountError::Missing("certificate in ca.crt"));
    }
    // Named explicitly, so that a provider which another crate installs as the process's default does not matter.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .wrap_connector(tcp))
}

impl Service<Uri> for Connector {
    type Response = <Https as Service<Uri>>::Response;
    type Error = <Https as Service<Uri>>::Error;
    type Future = <Https as Service<Uri>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let Connector(authorities) = self;
        let mut https = authorities.lock().unwrap_or_else(PoisonError::into_inner).https();
        https.call(to)
    }
}

fn unreadable(what: &'static str, path: &Path, source: io::Error) -> AccountError {
    let path = path.to_owned();
    AccountError::Read { what, path, source }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn authority() -> String {
        let key = KeyPair::generate().unwrap();
        CertificateParams::default().self_signed(&key).unwrap().pem()
    }

    #[test]
    fn a_rotated_authority_is_used_and_one_that_cannot_be_used_is_named_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.crt");
        let write = |text: &str| fs::write(&file, text).unwrap();
        let (first, second) = (authority(), authority());
        write(&first);
        let mut authorities = Authorities::read(file.clone()).unwrap();
        assert!(!authorities.read_again().unwrap(), "nothing has changed");
        // Both for a time, as a rotation has them.
        let both = first + &second;
        write(&both);
        assert!(authorities.read_again().unwrap());
        assert_eq!(authorities.pem, both.as_bytes());

        for unusable in ["", "-----BEGIN CERTIFICATE-----\n"] {
            write(unusable);
            authorities.https();
            assert!(authorities.unusable.is_some(), "{unusable:?}");
            assert_eq!(authorities.pem, both.as_bytes(), "the last that could be used");
        }
        fs::remove_file(&file).unwrap();
        authorities.https();
        let why = authorities.unusable.clone().unwrap();
        assert!(why.contains("ca.crt"), "{why}");
        write(&second);
        authorities.https();
        assert_eq!((authorities.unusable, authorities.pem), (None, second.into_bytes()));
    }
}
