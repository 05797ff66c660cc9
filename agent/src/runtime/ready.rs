//! `epitaph ready`: asks agents and observers for /readyz. For `helm test` and other checks in an image without a shell.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use epitaph_core::input::ProbeState;
use epitaph_core::text::bounded;
use http::{StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;

use super::RuntimeError;
use crate::cli::{self, SysExit};
use crate::config::Config;
use crate::error::chain;

/// Limit of one question.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before all are asked again.
const PAUSE: Duration = Duration::from_millis(500);
/// A name without an address is asked again for so long: the cluster's DNS may be restarting.
const UNRESOLVED: Duration = Duration::from_secs(15);
/// An agent's answer has a line per probe.
const MAX_ANSWER: usize = 64 * 1024;
/// Of an answer in an error, bytes.
const MAX_SHOWN: usize = 2048;

/// Where the agent or observer of this machine answers.
pub(super) fn own(config: &Config) -> Result<SocketAddr, RuntimeError> {
    let listen = config.health_listen.unwrap_or(config.listen);
    let mut address = listen.address().ok_or_else(|| {
        RuntimeError::new(SysExit::Config, "`listen` is off: nothing answers on this machine")
            .with_remedy("set `health_listen`, or give HOST:PORT")
    })?;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(address)
}

/// Returns when every address of every target, and of every name of `each` that has one, is ready, or `wait` is over.
pub(super) async fn ready(targets: &[String], each: &[String], wait: Duration) -> Result<(), RuntimeError> {
    let lookup = async |name: &str| Ok(tokio::net::lookup_host(name).await?.collect());
    let answers = answers(targets, each, wait, lookup).await?;
    cli::print(&answers.concat()).map_err(RuntimeError::os("write to standard output"))
}

/// The lines of the last round of questions, `lookup` being the resolver.
async fn answers(
    targets: &[String],
    each: &[String],
    wait: Duration,
    lookup: impl AsyncFn(&str) -> io::Result<Vec<SocketAddr>>,
) -> Result<Vec<String>, RuntimeError> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    if wait.is_zero() {
        return Ok(all(&client, targets, each, &lookup).await?.lines);
    }
    let mut last = Err(RuntimeError::new(SysExit::Unavailable, "no answer in time"));
    let until_ready = async {
        let mut unresolved: Option<Instant> = None;
        loop {
            let round = all(&client, targets, each, &lookup).await;
            let is_last = match &round {
                Ok(ready) if ready.has_unresolved => unresolved.get_or_insert_with(Instant::now).elapsed() >= UNRESOLVED,
                Ok(_) => true,
                Err(_) => {
                    unresolved = None;
                    false
                }
            };
            last = round;
            if is_last {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    // What the last round found counts, too, if the time is over.
    let _ = tokio::time::timeout(wait, until_ready).await;
    Ok(last?.lines)
}

type HttpClient = Client<HttpConnector, Empty<Bytes>>;

/// All that were asked are ready.
#[derive(Debug)]
struct Ready {
    /// A text for each address, and for each name of `each`.
    lines: Vec<String>,
    /// A name of `each` had no address.
    has_unresolved: bool,
}

async fn all(
    client: &HttpClient,
    targets: &[String],
    each: &[String],
    lookup: &impl AsyncFn(&str) -> io::Result<Vec<SocketAddr>>,
) -> Result<Ready, RuntimeError> {
    let (mut lines, mut has_unresolved) = (Vec::new(), false);
    for target in targets {
        let unknown = |why: String| {
            RuntimeError::new(SysExit::Unavailable, format!("cannot find {target}: {why}"))
                .with_remedy("give HOST:PORT, such as 127.0.0.1:9464 or the name of a Service with its port")
        };
        let addresses = lookup(target).await.map_err(|error| unknown(error.to_string()))?;
        if addresses.is_empty() {
            return Err(unknown("the name has no address".to_owned()));
        }
        for address in addresses {
            lines.push(one(client, address).await?);
        }
    }
    // Last: a cluster without DNS answers this question late.
    for name in each {
        let addresses = lookup(name).await.unwrap_or_default();
        has_unresolved |= addresses.is_empty();
        let asked = match addresses.len() {
            0 => format!("{name} has no address here (no DNS?): not every agent was asked\n"),
            // How many there should be is not known here.
            count => format!("{name}: {count} asked, all ready\n"),
        };
        for address in addresses {
            lines.push(one(client, address).await?);
        }
        lines.push(asked);
    }
    Ok(Ready { lines, has_unresolved })
}

async fn one(client: &HttpClient, address: SocketAddr) -> Result<String, RuntimeError> {
    let asked = tokio::time::timeout(TIMEOUT, ask(client, address)).await;
    let problem = match asked {
        Ok(Ok((StatusCode::OK, body))) => {
            let unseen = unseen(&body).map(|line| format!("{address}: {line}\n"));
            return Ok(format!("{address} is ready\n{}", unseen.unwrap_or_default()));
        }
        Ok(Ok((status, body))) => {
            let problem = format!("{address} is not ready: {status} {}", bounded(body.trim(), MAX_SHOWN));
            return Err(RuntimeError::new(SysExit::Unavailable, problem)
                .with_remedy("`epitaph doctor` on that machine, and the log of that process, have the reason"));
        }
        Ok(Err(why)) => why,
        Err(_) => format!("no answer within {} s", TIMEOUT.as_secs()),
    };
    Err(
        RuntimeError::new(SysExit::Unavailable, format!("cannot ask {address}: {problem}"))
            .with_remedy("start an agent or an observer there, and check its setting `listen` and the network policies"),
    )
}

/// The clients that an agent does not see on its kernel, and the remedy; None for an observer, and for an agent that sees all.
fn unseen(body: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Ready {
        probes: Vec<Probe>,
    }
    #[derive(serde::Deserialize)]
    struct Probe {
        name: String,
        reason: Option<String>,
        remedy: Option<String>,
    }
    let ready: Ready = serde_json::from_str(body).ok()?;
    // No other probe shows them, whatever the state of this one is.
    let probe = ready.probes.into_iter().find(|probe| probe.name == ProbeState::REFUSALS)?;
    let (reason, remedy) = probe.reason.zip(probe.remedy)?;
    Some(format!("{reason}; remedy: {remedy}"))
}

async fn ask(client: &HttpClient, address: SocketAddr) -> Result<(StatusCode, String), String> {
    let url = format!("http://{address}/readyz").parse::<Uri>();
    let url = url.map_err(|error| error.to_string())?;
    let answer = client.get(url).await.map_err(|error| chain(&error))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use epitaph_core::input::SeenClients;
    use epitaph_core::render::json::probes_object;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::error::lines;

    /// Answers each connection with the next of `answers`, the last one again and again.
    async fn server(answers: &'static [&'static str]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        tokio::spawn(async move {
            for n in 0.. {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut request = [0; 1024];
                let length = stream.read(&mut request).await.expect("a request");
                assert!(request[..length].starts_with(b"GET /readyz HTTP/1.1\r\n"));
                let answer = answers[n.min(answers.len() - 1)];
                let head = format!("HTTP/1.1 {answer}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
                stream.write_all(head.as_bytes()).await.expect("an answer");
            }
        });
        address
    }

    #[test]
    fn without_a_target_the_configured_address_is_asked() {
        let asked = |listen: &str, health_listen: Option<&str>| {
            let config = Config {
                listen: listen.parse().expect("an address"),
                health_listen: health_listen.map(|listen| listen.parse().expect("an address")),
                ..Config::default()
            };
            own(&config).map_err(|error| lines(&error)).map(|address| address.to_string())
        };
        assert_eq!(asked("127.0.0.1:9464", None).as_deref(), Ok("127.0.0.1:9464"));
        assert_eq!(asked("[::]:9000", None).as_deref(), Ok("[::1]:9000"));
        assert_eq!(asked("off", Some("0.0.0.0:9001")).as_deref(), Ok("127.0.0.1:9001"));
        let error = asked("off", None).expect_err("nothing answers");
        assert!(error.contains("\nremedy: set `health_listen`"), "{error}");
    }

    #[tokio::test]
    async fn all_targets_must_be_ready() {
        let (good, bad) = (server(&["200 OK"]).await, server(&["503 Service Unavailable"]).await);
        ready(std::slice::from_ref(&good), &[], Duration::ZERO).await.expect("ready");
        let error = ready(&[good.clone(), bad.clone()], &[], Duration::ZERO)
            .await
            .expect_err("one is not ready");
        assert_eq!(error.code, SysExit::Unavailable);
        assert_eq!(
            lines(&error),
            format!(
                "{bad} is not ready: 503 Service Unavailable {{}}\nremedy: `epitaph doctor` on that machine, and the log of that \
                 process, have the reason"
            )
        );
        ready(std::slice::from_ref(&good), std::slice::from_ref(&bad), Duration::ZERO)
            .await
            .expect_err("an address of a name is not ready");
    }

    #[tokio::test]
    async fn a_name_without_an_address_is_left_out_and_named() {
        let good = server(&["200 OK"]).await;
        let lines = async |targets: &[&String], each: &str| {
            let targets: Vec<String> = targets.iter().copied().cloned().collect();
            let lookup = async |name: &str| name.parse().map(|address| vec![address]).map_err(io::Error::other);
            let lines = answers(&targets, &[each.to_owned()], Duration::ZERO, lookup).await;
            lines.expect("ready").concat()
        };
        assert_eq!(
            lines(&[&good], "agents.epitaph.svc:9464").await,
            format!("{good} is ready\nagents.epitaph.svc:9464 has no address here (no DNS?): not every agent was asked\n")
        );
        assert_eq!(
            lines(&[], &good).await,
            format!("{good} is ready\n{good}: 1 asked, all ready\n")
        );
    }

    /// A name that has no address at first may have an agent that is not ready: CoreDNS was restarting.
    #[tokio::test]
    async fn a_name_that_has_an_address_later_is_asked() {
        let agent = server(&["503 Service Unavailable", "200 OK"]).await;
        let attempts = Cell::new(0);
        let lookup = async |_: &str| {
            attempts.set(attempts.get() + 1);
            match attempts.get() {
                1 => Err(io::Error::other("no answer of the resolver")),
                _ => Ok(vec![agent.parse().expect("an address")]),
            }
        };
        let each = ["agents.epitaph.svc:9464".to_owned()];
        let lines = answers(&[], &each, Duration::from_secs(60), lookup).await.expect("ready");
        assert_eq!(
            lines.concat(),
            format!("{agent} is ready\nagents.epitaph.svc:9464: 1 asked, all ready\n")
        );
        assert_eq!(attempts.get(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_without_dns_is_waited_for_a_short_time() {
        for (wait, expected) in [(60, UNRESOLVED), (5, Duration::from_secs(5))] {
            let lookup = async |_: &str| Err(io::Error::other("no resolver"));
            let (each, began) = (["agents.epitaph.svc:9464".to_owned()], Instant::now());
            let lines = answers(&[], &each, Duration::from_secs(wait), lookup).await.expect("ready");
            assert!(lines.concat().ends_with("not every agent was asked\n"), "{lines:?}");
            assert_eq!(began.elapsed().as_secs(), expected.as_secs());
        }
    }

    #[test]
    fn the_answer_of_an_agent_that_does_not_see_all_clients_has_a_second_line() {
        let by = "inet_sock_set_state (a refused SYN, by the error of a client on this machine)".to_owned();
        let substituted = |clients| ProbeState::Substituted { by: by.clone(), clients };
        let answer = |state| {
            let probes = probes_object(&[
                ("signal_generate".to_owned(), ProbeState::Active),
                ("tcp_send_reset".to_owned(), state),
            ]);
            serde_json::json!({"ready": true, "probes": probes}).to_string()
        };
        let of = unseen(&answer(substituted(SeenClients::OfThisMachine))).expect("a line");
        assert!(
            of.starts_with("refused clients of other machines and of Services are not seen")
                && of.contains("; remedy: run kernel 6.10 or newer"),
            "{of}"
        );
        let unsupported = ProbeState::Unsupported(ProbeState::NO_SOCKETS.to_owned());
        let of = unseen(&answer(unsupported)).expect("a line");
        assert!(of.contains("; remedy: boot with cgroup v2"), "{of}");
        let of = unseen(&answer(ProbeState::Failed("EPERM".to_owned()))).expect("a line");
        assert!(of.starts_with("EPERM; remedy: "), "{of}");
        assert_eq!(unseen(&answer(substituted(SeenClients::All))), None);
        assert_eq!(unseen(&answer(ProbeState::Active)), None);
        assert_eq!(unseen(r#"{"ready":true,"role":"active"}"#), None);
    }

    #[tokio::test]
    async fn a_target_may_become_ready_in_time() {
        let late = server(&["503 Service Unavailable", "200 OK"]).await;
        ready(&[late], &[], Duration::from_secs(30)).await.expect("ready");
    }

    #[tokio::test]
    async fn a_target_that_is_not_there_is_named_with_the_remedy() {
        // Bound, so that nobody else gets the port, and not listening.
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let address = socket.local_addr().expect("its address").to_string();
        let error = lines(
            &ready(std::slice::from_ref(&address), &[], Duration::ZERO)
                .await
                .expect_err("nobody"),
        );
        assert!(
            error.starts_with(&format!("cannot ask {address}: ")) && error.contains("refused"),
            "{error}"
        );
        assert!(error.contains("\nremedy: start an agent"), "{error}");
        let error = lines(&ready(&["no-port".into()], &[], Duration::ZERO).await.expect_err("no port"));
        assert!(error.contains("\nremedy: give HOST:PORT"), "{error}");
    }
}
