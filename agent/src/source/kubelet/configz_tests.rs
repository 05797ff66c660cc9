use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::source::kubelet::KubeletFiles;

const ANSWER: &str =
    r#"{"kubeletconfig":{"shutdownGracePeriod":"1m0s","shutdownGracePeriodCriticalPods":"20s","featureGates":{"A":true}}}"#;

/// A server with a certificate of an authority, which keeps the requests that it gets.
struct Kubelet {
    address: Address,
    requests: Arc<Mutex<Vec<String>>>,
    /// PEM.
    authority: String,
}

impl Kubelet {
    async fn start(status: &'static str, body: &'static str) -> Kubelet {
        let key = || rcgen::KeyPair::generate().unwrap();
        let (ca_key, server_key) = (key(), key());
        let mut ca = rcgen::CertificateParams::new(vec![]).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = ca.self_signed(&ca_key).unwrap().pem();
        let issuer = rcgen::Issuer::new(ca, &ca_key);
        let server = rcgen::CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
        let server = server.signed_by(&server_key, &issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![server.der().clone()], server_key.serialize_der().try_into().unwrap())
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address(listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = requests.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => request.push(byte),
                        Err(_) => break,
                    }
                }
                log.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
                let length = body.len();
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Kubelet {
            address,
            requests,
            authority,
        }
    }

    /// Asked by a pod whose cluster has this authority.
    async fn asked(&self, authority: &str) -> Result<KubeletShutdown, ConfigzError> {
        Account::new(authority).configz(self.address)?.ask().await
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// A pod's ServiceAccount: its files, which the kubelet replaces.
struct Account(tempfile::TempDir);

impl Account {
    fn new(authority: &str) -> Account {
        let account = Account(tempfile::tempdir().unwrap());
        account.replace("token", "secret-token");
        account.replace("ca.crt", authority);
        account
    }

    fn replace(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn configz(&self, address: Address) -> Result<Configz, ConfigzError> {
        let mut config = kube::Config::new("https://kubernetes.default.svc".parse().unwrap());
        config.root_cert_file = Some(self.0.path().join("ca.crt"));
        config.auth_info.token_file = Some(self.0.path().join("token").to_str().unwrap().to_owned());
        Configz::new(address, config)
    }
}

#[tokio::test]
async fn a_kubelet_of_the_cluster_is_asked_for_its_configuration_with_the_token() {
    let kubelet = Kubelet::start("200 OK", ANSWER).await;
    let config = kubelet.asked(&kubelet.authority).await.unwrap();
    assert_eq!(
        (config.total, config.critical),
        (Duration::from_secs(60), Duration::from_secs(20))
    );
    assert_eq!(config.source, format!("https://{}/configz", kubelet.address));
    let requests = kubelet.requests();
    assert!(
        requests.len() == 1 && requests[0].starts_with("GET /configz HTTP/1.1\r\n"),
        "{requests:?}"
    );
    assert!(requests[0].contains("authorization: Bearer secret-token"), "{requests:?}");
}

/// A stranger on the node's port must not get the token: kubeadm's kubelets have certificates that they signed themselves.
#[tokio::test]
async fn a_server_without_a_certificate_of_the_cluster_gets_no_request() {
    let (kubelet, other) = tokio::join!(Kubelet::start("200 OK", ANSWER), Kubelet::start("200 OK", ANSWER));
    let error = kubelet.asked(&other.authority).await.unwrap_err();
    assert!(matches!(error, ConfigzError::Certificate { .. }), "{error:?}");
    let remedy = error.remedy().unwrap();
    assert!(
        remedy.contains("serverTLSBootstrap") && remedy.contains("agent.kubelet.config"),
        "{remedy:?}"
    );
    assert_eq!(kubelet.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_replaced_token_and_authority_are_used_without_a_restart() {
    let (kubelet, other) = tokio::join!(Kubelet::start("200 OK", ANSWER), Kubelet::start("200 OK", ANSWER));
    let account = Account::new(&other.authority);
    let configz = account.configz(kubelet.address).unwrap();
    assert!(matches!(configz.ask().await, Err(ConfigzError::Certificate { .. })));
    account.replace("token", "next-token\n");
    account.replace("ca.crt", &kubelet.authority);
    configz.ask().await.unwrap();
    // What cannot be used replaces nothing.
    account.replace("token", "two\nlines");
    account.replace("ca.crt", "-----BEGIN CERTIFICATE-----\n");
    configz.ask().await.unwrap();
    let requests = kubelet.requests();
    let with_token = |request: &String| request.contains("authorization: Bearer next-token");
    assert!(requests.len() == 2 && requests.iter().all(with_token), "{requests:?}");
}

#[tokio::test]
async fn every_refusal_names_the_value_to_set() {
    for (status, body, expected) in [
        ("403 Forbidden", "Forbidden (user=epitaph, verb=get)", "answers 403 Forbidden"),
        ("401 Unauthorized", "Unauthorized", "answers 401 Unauthorized"),
        ("200 OK", "{}", "the answer is not a KubeletConfiguration"),
        ("200 OK", "<html>", "the answer is not a KubeletConfiguration"),
        (
            "200 OK",
            r#"{"kubeletconfig":{"shutdownGracePeriod":7}}"#,
            "`shutdownGracePeriod` is not text",
        ),
    ] {
        let kubelet = Kubelet::start(status, body).await;
        let error = kubelet.asked(&kubelet.authority).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.remedy().unwrap().contains("agent.kubelet.config"), "{error}");
        assert_eq!(error.remedy().unwrap().contains("nodes/configz"), status.starts_with("403"));
    }
}

#[test]
fn only_a_kubelet_that_answered_before_becomes_unknown() {
    let away = || {
        let url = "https://10.0.0.1:10250/configz".to_owned();
        let reason = "gone".to_owned();
        Err(ConfigzError::Away { url, reason })
    };
    let periods = |seconds| {
        Ok(KubeletShutdown {
            total: Duration::from_secs(seconds),
            ..KubeletShutdown::default()
        })
    };
    let mut said = Said::default();
    for _ in 0..9 {
        assert_eq!(said.next(away()), None);
    }
    assert!(matches!(said.next(periods(60)), Some(NodeEvent::Kubelet { config: Ok(_) })));
    assert_eq!(said.next(periods(60)), None);
    assert_eq!((said.next(away()), said.next(away())), (None, None));
    assert!(matches!(said.next(away()), Some(NodeEvent::Kubelet { config: Err(_) })));
    assert_eq!(said.next(away()), None);
    assert!(matches!(said.next(periods(60)), Some(NodeEvent::Kubelet { config: Ok(_) })));
    assert!(matches!(said.next(periods(30)), Some(NodeEvent::Kubelet { config: Ok(_) })));
}

#[test]
fn the_file_counts_while_the_kubelet_does_not_answer() {
    let away = || {
        let url = "https://10.0.0.1:10250/configz".to_owned();
        let reason = "gone".to_owned();
        Err(ConfigzError::Away { url, reason })
    };
    let periods = |seconds| KubeletShutdown {
        total: Duration::from_secs(seconds),
        ..KubeletShutdown::default()
    };
    let event = |seconds| {
        Some(NodeEvent::Kubelet {
            config: Ok(periods(seconds)),
        })
    };
    let mut said = Said::new(true);
    assert!(!said.is_without_answer());
    assert_eq!((said.next(away()), said.is_without_answer()), (None, true));
    assert_eq!(said.file(Ok(periods(60))), event(60));
    assert_eq!(said.file(Ok(periods(60))), None);
    // The answer wins, until it may be of another time.
    assert_eq!((said.next(Ok(periods(30))), said.is_without_answer()), (event(30), false));
    for _ in 1..FAILURES {
        assert_eq!((said.next(away()), said.is_without_answer()), (None, false));
    }
    assert_eq!((said.next(away()), said.is_without_answer()), (None, true));
    assert_eq!(said.file(Ok(periods(60))), event(60));
    let missing = KubeletError::Missing {
        path: "/config.yaml".into(),
    };
    let Some(NodeEvent::Kubelet { config: Err(reason) }) = said.file(Err(missing)) else {
        panic!("a file that is gone is no configuration");
    };
    assert_eq!(reason, "/config.yaml does not exist");
}

/// In the settings the file stood before the answer.
#[tokio::test]
async fn a_kubelet_is_asked_before_its_file_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    std::fs::write(&file, "shutdownGracePeriod: 20s\n").unwrap();
    for (status, body, expected) in [("200 OK", ANSWER, 60), ("403 Forbidden", "Forbidden", 20)] {
        let kubelet = Kubelet::start(status, body).await;
        let account = Account::new(&kubelet.authority);
        let configz = account.configz(kubelet.address).unwrap();
        let paths = Paths {
            config: Some(file.clone()),
            ..Paths::default()
        };
        // A directory without processes.
        let running = Running::new(directory.path(), &[]);
        let mut files = KubeletFiles::start(paths, Some((configz, running))).unwrap();
        let Some(Input::Node(NodeEvent::Kubelet { config: Ok(config) })) = files.inputs.recv().await else {
            panic!("{status}: nothing is known");
        };
        assert_eq!(config.total, Duration::from_secs(expected), "{status}");
    }
}

/// A kubelet that was restarted with other periods was judged by the old ones for ten minutes.
#[test]
fn a_kubelet_that_took_the_place_of_another_is_asked_at_once_until_it_answers() {
    let mut turns = Turns::default();
    let looks = |turns: &mut Turns| (1..).find(|_| turns.is_due(false)).unwrap();
    turns.asked(true);
    assert_eq!(LOOK * looks(&mut turns), EVERY);
    turns.asked(true);
    assert!(!turns.is_due(false));
    assert!(turns.is_due(true));
    for _ in 1..STARTING {
        turns.asked(false);
        assert!(turns.is_due(false));
    }
    turns.asked(false);
    assert!(!turns.is_due(false), "a kubelet that refuses is not asked so often for ever");
    assert!(turns.is_due(true));
    turns.asked(true);
    assert_eq!(LOOK * looks(&mut turns), EVERY);
}

#[test]
fn an_address_has_the_kubelets_port_unless_it_has_its_own() {
    let read = |text: &str| text.parse::<Address>().map(|address| address.to_string());
    assert_eq!(read("10.0.0.1").as_deref(), Ok("10.0.0.1:10250"));
    assert_eq!(read("fd00::1").as_deref(), Ok("[fd00::1]:10250"));
    assert_eq!(read("10.0.0.1:10350").as_deref(), Ok("10.0.0.1:10350"));
    for wrong in ["", "node-1", "https://10.0.0.1", "10.0.0.1:x"] {
        assert_eq!(read(wrong), Err(NotAnAddress), "{wrong}");
    }
}
