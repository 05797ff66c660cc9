//! The core's questions about lost nodes, asked: a node's Lease, the claim of a volume, whether an agent answers. Several at once, never
//! more than a bound; each has a limit, and an answer even if it is "no".

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use epitaph_core::observe::{ApiTime, Ask, ClaimKey, ClusterVersion, Input};
use epitaph_core::time::{Boot, Wall};
use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::core::object::NotUsed;
use kube::core::{ApiResource, Object};
use kube::{Api, Client};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::nodes::api_time;
use crate::clock;
use crate::error::line;
use crate::rights;
use crate::source::api_error::{ApiError, Purpose};
use crate::source::bounded;

/// Where every kubelet has its Lease.
const LEASES: &str = "kube-node-lease";

/// Limit of one request to the API server.
const LIMIT: Duration = Duration::from_secs(10);

/// Limit of one request to an agent.
const AGENT_LIMIT: Duration = Duration::from_secs(3);

/// Requests to the API server at once, and to agents.
const AT_ONCE: usize = 4;
const AGENTS_AT_ONCE: usize = 64;

/// Most questions without an answer; further ones are dropped and counted.
const MOST: usize = 4096;

/// How often the cluster's version is read: an upgrade changes it. After a failure sooner.
const VERSION: Duration = Duration::from_secs(3600);
const VERSION_AGAIN: Duration = Duration::from_secs(60);

const MAX_NAME: usize = 253;

/// Longest beginning of an agent's answer that is read.
const ANSWER: usize = 1024;

pub(super) struct Answers {
    client: Client,
    inputs: mpsc::Sender<(Boot, Input)>,
    api: Arc<Semaphore>,
    agents: Arc<Semaphore>,
    failing: Arc<Failing>,
    tasks: JoinSet<()>,
}

/// Kinds of questions to the API server whose last request failed, which is logged once: a lost zone asks thousands.
#[derive(Debug, Default)]
struct Failing {
    renewals: AtomicBool,
    claims: AtomicBool,
}

impl Answers {
    pub fn new(client: Client, inputs: mpsc::Sender<(Boot, Input)>) -> Answers {
        Answers {
            client,
            inputs,
            api: Arc::new(Semaphore::new(AT_ONCE)),
            agents: Arc::new(Semaphore::new(AGENTS_AT_ONCE)),
            failing: Arc::default(),
            tasks: JoinSet::new(),
        }
    }

    /// Asks without waiting; false if too many questions wait already.
    pub fn ask(&mut self, ask: Ask) -> bool {
        while self.tasks.try_join_next().is_some() {}
        if self.tasks.len() >= MOST {
            return false;
        }
        let (client, inputs, failing) = (self.client.clone(), self.inputs.clone(), self.failing.clone());
        let permits = match ask {
            Ask::Agent { .. } => self.agents.clone(),
            Ask::Renewal { .. } | Ask::Claim { .. } => self.api.clone(),
        };
        self.tasks.spawn(async move {
            // The semaphore is never closed.
            let Ok(_permit) = permits.acquire().await else { return };
            let answer = answer(&client, &failing, ask).await;
            // The receiver is gone: so is the question.
            let _ = inputs.send((clock::now(), answer)).await;
        });
        true
    }
}

async fn answer(client: &Client, failing: &Failing, ask: Ask) -> Input {
    match ask {
        Ask::Renewal { node } => {
            let renewed = renewal(client, &failing.renewals, &node).await;
            Input::Renewal { node, renewed }
        }
        Ask::Agent { node, address } => {
            let answer = timeout(AGENT_LIMIT, answers(address)).await;
            let answer = answer.ok().and_then(Result::ok).flatten();
            Input::Agent {
                node,
                answered: answer.is_some(),
                shutdown: answer.and_then(|answer| answer.shutdown),
            }
        }
        Ask::Claim { volume } => {
            let claim = claim(client, &failing.claims, &volume).await;
            Input::Claim { volume, claim }
        }
    }
}

/// An agent's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Healthy {
    /// Number of the node's shutdown in progress.
    shutdown: Option<u32>,
}

/// An agent's own answer proves that its process runs; `/healthz` is 503 if its loop is stuck. A proxy answers 503 for a dead node, too.
async fn answers(address: SocketAddr) -> std::io::Result<Option<Healthy>> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER as u64).read_to_end(&mut answer).await?;
    Ok(healthy(&answer))
}

/// How its bodies begin: `sink/http.rs`.
const OWN: [&str; 3] = ["ok\n", "the event loop has not started", "the last event loop iteration"];

fn healthy(answer: &[u8]) -> Option<Healthy> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    if !head.starts_with("HTTP/1.") || !OWN.iter().any(|own| body.starts_with(own)) {
        return None;
    }
    let mut numbers = body.lines().filter_map(|line| line.strip_prefix("shutdown ")?.parse().ok());
    Some(Healthy {
        shutdown: numbers.next().filter(|ordinal| *ordinal > 0),
    })
}

/// On the kubelet's own clock.
async fn renewal(client: &Client, failing: &AtomicBool, node: &str) -> Option<ApiTime> {
    let purpose = Purpose {
        what: format!("read the Lease of node {node}").into(),
        right: &rights::OBSERVER_NODE_LEASES,
    };
    let leases: Api<coordination::Lease> = Api::namespaced(client.clone(), LEASES);
    let lease = get(&leases, node, &purpose, failing).await?;
    let renewed = lease.spec?.renew_time?;
    let wall = u64::try_from(renewed.0.as_nanosecond()).ok().map(Wall)?;
    Some(api_time(wall, clock::wall_offset()))
}

/// Without the driver's part, which has thirty shapes.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeSpec {
    claim_ref: Option<ClaimRef>,
}

#[derive(Clone, Debug, Deserialize)]
struct ClaimRef {
    namespace: Option<String>,
    name: Option<String>,
}

async fn claim(client: &Client, failing: &AtomicBool, volume: &str) -> Option<ClaimKey> {
    let purpose = Purpose {
        what: format!("read PersistentVolume {volume}").into(),
        right: &rights::OBSERVER_VOLUMES,
    };
    let kind = ApiResource::erase::<PersistentVolume>(&());
    let volumes: Api<Object<Option<VolumeSpec>, NotUsed>> = Api::all_with(client.clone(), &kind);
    let claim = get(&volumes, volume, &purpose, failing).await?.spec?.claim_ref?;
    Some(ClaimKey {
        namespace: bounded(&claim.namespace?, MAX_NAME).into(),
        name: bounded(&claim.name?, MAX_NAME).into(),
    })
}

/// None, with a logged reason, without an answer; None for an object that does not exist. `failing`: of this kind of question.
async fn get<K>(api: &Api<K>, name: &str, purpose: &Purpose, failing: &AtomicBool) -> Option<K>
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let error = match timeout(LIMIT, api.get_opt(name)).await {
        Ok(Ok(found)) => {
            if failing.swap(false, Ordering::Relaxed) {
                tracing::info!("can {} again", purpose.what);
            }
            return found;
        }
        Ok(Err(error)) => ApiError::of(purpose, &error),
        Err(_) => ApiError::timeout(purpose, LIMIT),
    };
    if !failing.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "{}; reports about lost nodes do not include this until a request succeeds",
            line(&error)
        );
    }
    None
}

/// Sends the cluster's version, until the receiver is gone.
pub(super) async fn version(client: Client, inputs: mpsc::Sender<(Boot, Input)>) {
    let mut known = None;
    loop {
        let pause = match timeout(LIMIT, client.apiserver_version()).await {
            Ok(Ok(info)) => {
                let version = parse(&info.major, &info.minor);
                if let Some(version) = version
                    && known.replace(version) != Some(version)
                    && inputs.send((clock::now(), Input::Version(version))).await.is_err()
                {
                    return;
                }
                VERSION
            }
            // The watches report an API server that does not answer.
            Ok(Err(_)) | Err(_) => VERSION_AGAIN,
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = inputs.closed() => return,
        }
    }
}

/// Some providers write `28+`.
fn parse(major: &str, minor: &str) -> Option<ClusterVersion> {
    let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok();
    Some(ClusterVersion {
        major: number(major)?,
        minor: number(minor)?,
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use serde_json::json;
    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::mock_api::{self, Answer};

    #[test]
    fn a_providers_version_is_read() {
        let version = |major, minor| Some(ClusterVersion { major, minor });
        assert_eq!(parse("1", "28+"), version(1, 28));
        assert_eq!(parse("1", "36"), version(1, 36));
        assert_eq!(parse("", "36"), None);
    }

    #[tokio::test]
    async fn each_question_has_an_answer() {
        let (client, _) = mock_api::start(|request| async move {
            match request.path.as_str() {
                "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1" => Answer::Json(
                    200,
                    json!({"metadata": {"name": "n1"}, "spec": {"renewTime": "1970-01-01T00:00:07.500000Z"}}),
                ),
                "/api/v1/persistentvolumes/pv-1" => Answer::Json(
                    200,
                    json!({"metadata": {"name": "pv-1"}, "spec": {"claimRef": {"namespace": "shop", "name": "data-db-0"}}}),
                ),
                _ => mock_api::failure(404, "not found"),
            }
        });
        let failing = AtomicBool::new(false);
        let renewed = renewal(&client, &failing, "n1").await.map(|time| time.wall);
        assert_eq!(renewed, Some(Wall(7_500_000_000)));
        assert_eq!(renewal(&client, &failing, "n2").await, None);
        let claim_of = |volume: &'static str| claim(&client, &failing, volume);
        assert_eq!(claim_of("pv-1").await.map(|claim| claim.name), Some("data-db-0".into()));
        assert_eq!(claim_of("pv-2").await, None);
        // An object that does not exist is an answer.
        assert!(!failing.into_inner());
    }

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_failure_is_logged_once_for_each_kind_of_question_until_a_success() {
        let (client, _) = mock_api::start(|request| async move {
            match request.path.as_str() {
                "/api/v1/persistentvolumes/good" => Answer::Json(200, json!({"metadata": {"name": "good"}})),
                _ => mock_api::failure(403, "forbidden"),
            }
        });
        let paper = Paper::default();
        let writer = paper.clone();
        let layer = fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let _default = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        let failing = Failing::default();
        for volume in ["pv-1", "pv-2", "pv-3", "good", "pv-4", "pv-5"] {
            assert_eq!(claim(&client, &failing.claims, volume).await, None);
            assert_eq!(renewal(&client, &failing.renewals, volume).await, None);
        }
        let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
        let logged = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        assert_eq!(logged("cannot read PersistentVolume pv-1"), 1, "{text}");
        assert_eq!(logged("can read PersistentVolume good again"), 1, "{text}");
        assert_eq!(logged("cannot read PersistentVolume pv-4"), 1, "{text}");
        assert_eq!(logged("cannot read PersistentVolume"), 2, "{text}");
        assert_eq!(logged("cannot read the Lease of node"), 1, "{text}");
    }

    #[tokio::test]
    async fn an_agent_answers_by_http_and_nothing_else_is_one() {
        let serve = |answer: &'static [u8]| async move {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let mut request = [0; 256];
                    let _ = stream.read(&mut request).await;
                    let _ = stream.write_all(answer).await;
                }
            });
            address
        };
        let of = |answer: &'static [u8]| async move { answers(serve(answer).await).await.unwrap() };
        let running = Some(Healthy { shutdown: None });
        assert_eq!(
            of(b"HTTP/1.1 503 Service Unavailable\r\n\r\nthe last event loop iteration was 70.0 s ago; restart the agent\n")
                .await,
            running
        );
        assert_eq!(of(b"HTTP/1.1 200 OK\r\nx: y\r\n\r\nok\n").await, running);
        let shutdown = Some(Healthy { shutdown: Some(2) });
        assert_eq!(of(b"HTTP/1.1 200 OK\r\nx: y\r\n\r\nok\nshutdown 2\n").await, shutdown);
        // Not a number of the agent's, and not in the body.
        assert_eq!(of(b"HTTP/1.1 200 OK\r\n\r\nok\nshutdown 0\nshutdown \xff\n").await, running);
        assert_eq!(of(b"HTTP/1.1 200 OK\r\nshutdown 2\r\n\r\nok\n").await, running);
        assert_eq!(of(b"SSH-2.0-x\r\n").await, None);
        // A proxy in between, which reached nobody.
        assert_eq!(
            of(b"HTTP/1.1 503 Service Unavailable\r\n\r\nupstream connect error").await,
            None
        );
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap();
        assert!(answers(closed).await.is_err());
    }

    #[tokio::test]
    async fn a_question_too_many_is_refused() {
        let (client, _) = mock_api::start(|_| async { Answer::Never });
        let (inputs, _receiver) = mpsc::channel(1);
        let mut all = Answers::new(client, inputs);
        let asked = (0..=MOST).filter(|n| {
            all.ask(Ask::Claim {
                volume: format!("pv-{n}").into(),
            })
        });
        assert_eq!(asked.count(), MOST);
    }
}
