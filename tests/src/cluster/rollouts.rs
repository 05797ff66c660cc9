//! The rollout experiment: a Deployment is rolled under load, and the agent's counts of failed clients are compared with the
//! clients' own log.

pub mod forecast;
pub mod placed;

use std::fmt::{self, Display, Formatter};
use std::sync::Mutex;
use std::thread::{scope, sleep};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::node::quoted;
use super::node_name;
use super::play::{Stage, text, until};
use super::stories::NAMESPACE;
use super::stories::manifest::{container, merge, pod};
use crate::traces::{end, kind_of, tag};
use crate::victim::load::Totals;
use placed::{Called, Client, Placed};

/// Tolerated difference of the agent's count: this, or 2 % of the clients' own.
const SLACK: u64 = 1;
/// Of placed rollouts, whatever the number: the largest measured difference is 2 of 1003, because the window can end while a client connects,
/// and 1 of 781 (docs/kernels.md) since what comes within [`AT_THE_END`] is apart. Fewer than the probes of the kubelet that are refused, which must not count as clients: one each second, of two pods, for
/// [`LINGER`].
const SLACK_OF_PLACED: u64 = 3;
/// How long a server of a placed rollout lives on after its listener has closed: the kubelet goes on with the readiness probe.
const LINGER: Duration = Duration::from_secs(4);
const REPLICAS: usize = 2;
const GRACE: u32 = 12;
/// Longer than kube-proxy and the clients ever need here, and well within the grace period.
const ENOUGH: u32 = 8;
/// The delay of a delayed kube-proxy.
const LATE: Duration = Duration::from_secs(4);
const AT_ONCE: usize = 3;
/// Two emulated nodes on two processors need minutes for a pod.
const TIMEOUT: Duration = Duration::from_secs(900);
/// Clients' errors count for so long after the exit, and longer while the pod is an endpoint.
const COUNTED: Duration = Duration::from_secs(2);
/// From a reset on the servers' node until a client of an emulated node notes its error, and between the clocks of both.
const AT_THE_END: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    None,
    /// The sleep action, so many seconds.
    Seconds(u32),
    /// A hook that never ends.
    Overrunning,
}

#[derive(Clone, Copy, Debug)]
pub struct Rollout {
    /// How the server stops: a mode of `victim http`.
    pub server: &'static str,
    pub sleep: Sleep,
    pub late_proxy: bool,
    /// Otherwise wherever the scheduler puts them, with one client, of the Service.
    pub placed: Option<Placed>,
}

impl Display for Rollout {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sleep = match self.sleep {
            Sleep::None => "no-sleep".to_owned(),
            Sleep::Seconds(seconds) => format!("sleep-{seconds}"),
            Sleep::Overrunning => "overrun".to_owned(),
        };
        let proxy = if self.late_proxy { "late" } else { "prompt" };
        write!(f, "{}-{sleep}-{proxy}", self.server)?;
        self.placed.map_or(Ok(()), |placed| write!(f, "-{placed}"))
    }
}

/// What one rollout gave.
#[derive(Clone, Debug)]
pub struct Row {
    pub rollout: Rollout,
    /// By the clients' log: refused, reset, cut.
    pub clients: [u64; 3],
    pub answered: u64,
    /// By the agent's traces of the stopped pods.
    pub agent: [u64; 3],
    /// Refused probes of the kubelet, by the same traces.
    pub kubelet: u64,
    pub verdicts: Vec<String>,
    /// Lost TCP records, as the agent reports them: on an emulated machine an interrupt can hit a probe now and then.
    pub lost: u64,
    /// Losses of the clients of a pod's address within [`AT_THE_END`] after the last that the agent counted.
    pub at_the_end: u64,
    /// The longest preStop sleep that was advised, seconds.
    pub advised: Option<u64>,
    /// Clients that lost nothing.
    pub unharmed: Vec<String>,
}

impl Row {
    /// The sums agree: the kind of a loss can differ by the observer, the loss itself cannot.
    pub fn agrees(&self) -> bool {
        let (clients, agent): (u64, u64) = (self.clients.iter().sum(), self.agent.iter().sum());
        let slack = match self.rollout.placed {
            Some(_) => SLACK_OF_PLACED,
            None => SLACK.max(clients / 50),
        };
        let (least, most) = (clients, clients + self.at_the_end);
        agent + slack + self.lost >= least && agent <= most + slack + self.lost
    }
}

impl Display for Row {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let advised = self.advised.map_or("none".to_owned(), |seconds| format!("{seconds} s"));
        let sign = if self.agrees() { "ok " } else { "BAD" };
        write!(
            f,
            "{sign} {:32} answered {:5}, refused/reset/cut: clients {:?}, agent {:?}, kubelet {} refused, lost {}; advised sleep {advised}; {}",
            self.rollout.to_string(),
            self.answered,
            self.clients,
            self.agent,
            self.kubelet,
            self.lost,
            self.verdicts.join(", ")
        )
    }
}

const SLEEPS: [Sleep; 3] = [Sleep::None, Sleep::Seconds(ENOUGH), Sleep::Overrunning];
/// Modes of the server.
pub const SERVERS: [&str; 3] = ["abrupt", "close-and-drain", "accept-and-drain"];

/// The experiment, {no sleep, enough sleep, overrunning sleep} × {abrupt, close-and-drain, accept-and-drain}, and after it each
/// server that was advised a sleep, with that sleep.
///
/// # Errors
/// A rollout could not be played.
pub fn all(stage: &Stage, late_proxy: bool) -> anyhow::Result<Vec<Row>> {
    let every = SERVERS.iter().flat_map(|server| {
        SLEEPS.iter().map(move |&sleep| Rollout {
            server,
            sleep,
            late_proxy,
            placed: None,
        })
    });
    let play = || {
        let mut rows = several(stage, every.collect(), AT_ONCE)?;
        // The advised sleep is the longest that any of the pods got.
        let again = SERVERS.iter().filter_map(|&server| {
            let of_server = rows.iter().filter(|row| row.rollout.server == server);
            let seconds = u32::try_from(of_server.filter_map(|row| row.advised).max()?).ok()?;
            Some(Rollout {
                server,
                sleep: Sleep::Seconds(seconds),
                late_proxy,
                placed: None,
            })
        });
        let again = again.collect();
        rows.extend(several(stage, again, AT_ONCE)?);
        Ok(rows)
    };
    match late_proxy {
        true => with_late_proxies(stage, &[1], play),
        false => play(),
    }
}

/// What the rows of [`all`] do not prove, a line each; empty if they prove that the agent counts as the clients do, and that
/// the advised sleep is sufficient.
pub fn unproven(rows: &[Row]) -> Vec<String> {
    let mut problems = Vec::new();
    let (experiment, cures) = rows.split_at(rows.len().min(SERVERS.len() * SLEEPS.len()));
    for row in rows {
        let rollout = row.rollout;
        if !row.agrees() {
            problems.push(format!("{rollout}: the counts of the agent and of the clients differ"));
        }
        // Enough if the proxy is notified at once.
        let is_enough = !rollout.late_proxy && rollout.sleep == Sleep::Seconds(ENOUGH);
        if is_enough && row.clients.iter().sum::<u64>() > 0 {
            problems.push(format!(
                "{rollout}: connections were lost in spite of a preStop sleep of {ENOUGH} s"
            ));
        }
        if row.answered == 0 {
            problems.push(format!("{rollout}: the server answered no client"));
        }
    }
    for row in experiment.iter().filter(|row| row.rollout.sleep == Sleep::None) {
        let rollout = row.rollout;
        let [refused, ..] = row.clients;
        // A server that exits at once under load loses requests; the others only if the proxy is late.
        if rollout.server == "abrupt" && row.clients.iter().sum::<u64>() == 0 {
            problems.push(format!("{rollout}: no connection was lost"));
        }
        // More than the tolerated number.
        if refused > SLACK + row.lost && row.advised.is_none() {
            problems.push(format!(
                "{rollout}: connections were refused, and no preStop sleep was advised"
            ));
        }
    }
    for server in SERVERS {
        let is_its = |row: &&Row| row.rollout.server == server;
        let advised = experiment.iter().filter(is_its).any(|row| row.advised.is_some());
        let mut cures = cures.iter().filter(is_its).peekable();
        if advised && cures.peek().is_none() {
            problems.push(format!("{server}: the advised preStop sleep was not tried"));
        }
        for row in cures.filter(|row| row.clients.iter().sum::<u64>() > 0) {
            problems.push(format!(
                "{}: connections were lost in spite of the advised preStop sleep",
                row.rollout
            ));
        }
    }
    problems
}

/// So many at a time.
fn several(stage: &Stage, rollouts: Vec<Rollout>, at_once: usize) -> anyhow::Result<Vec<Row>> {
    played(rollouts, at_once, |rollout| stage.roll(rollout)).into_iter().collect()
}

/// The row of each rollout, or why there is none: so many at a time.
fn played<R: Display + Send>(
    rollouts: Vec<Rollout>,
    at_once: usize,
    play: impl Fn(Rollout) -> anyhow::Result<R> + Sync,
) -> Vec<anyhow::Result<R>> {
    let count = rollouts.len();
    let queue = Mutex::new(rollouts.into_iter().enumerate());
    let done = Mutex::new(Vec::new());
    scope(|threads| {
        for _ in 0..at_once.min(count) {
            threads.spawn(|| {
                loop {
                    let next = queue.lock().expect("no thread panics with it").next();
                    let Some((place, rollout)) = next else { break };
                    // Once more if nothing was measured: a machine that learns late of a deletion counts none of its clients.
                    let row = play(rollout).or_else(|error| {
                        eprintln!("rollout {rollout}, will be repeated: {}", head(&error));
                        play(rollout)
                    });
                    let row = row.with_context(|| format!("rollout {rollout}"));
                    // A run that is interrupted has reported what it knew.
                    match &row {
                        Ok(row) => eprintln!("{row}"),
                        Err(error) => eprintln!("{error:#}"),
                    }
                    done.lock().expect("no thread panics with it").push((place, row));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("the threads are over");
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, row)| row).collect()
}

/// The first part: an error about a span holds the whole span.
fn head(error: &anyhow::Error) -> String {
    format!("{error:#}").chars().take(200).collect()
}

/// Every change reaches the rules of these nodes up to [`LATE`] later. A unit of the node pauses its kube-proxy, and lets it run for a second
/// in between: commands from here would cost an emulated machine a tenth of a processor.
fn with_late_proxies<T>(stage: &Stage, nodes: &[u8], play: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    const UNIT: &str = "late-proxy";
    let on_each = |script: &str| {
        nodes.iter().try_for_each(|&node| {
            let node = stage.cluster.node(&node_name(node))?;
            node.run(script).map(drop)
        })
    };
    // Its main process alone: a child that it runs may have the lock of iptables, for which the kubelet waits.
    let late = LATE.as_secs();
    let hold = format!("while kill -STOP $0; do sleep {late}; kill -CONT $0; sleep 1; done");
    on_each(&format!(
        "exec systemd-run --quiet --collect --unit={UNIT} sh -c {} $(systemctl show --value --property=MainPID kube-proxy)",
        quoted(&hold)
    ))?;
    let played = play();
    on_each(&format!(
        "systemctl stop {UNIT}; systemctl kill --kill-whom=main --signal=CONT kube-proxy"
    ))?;
    played
}

impl Stage {
    fn roll(&self, rollout: Rollout) -> anyhow::Result<Row> {
        let name = format!("roll-{rollout}");
        let clients = clients(&name, rollout);
        self.deploy(&name, rollout)?;
        let row = self.round(&name, rollout)?;
        self.remove(&name, &clients)?;
        Ok(row)
    }

    /// The Deployment, without clients.
    fn deploy(&self, name: &str, rollout: Rollout) -> anyhow::Result<()> {
        self.remove(name, &clients(name, rollout))?;
        self.apply(&deployment(name, rollout))?;
        let status = ["rollout", "status", &format!("deployment/{name}"), "--timeout=900s"];
        self.kubectl
            .run(&[&["--namespace", NAMESPACE][..], &status].concat())
            .map(drop)
    }

    /// Clients, one rollout, and their logs; the clients' pods stay.
    fn round(&self, name: &str, rollout: Rollout) -> anyhow::Result<Row> {
        let clients = clients(name, rollout);
        let here = |args: &[&str]| self.kubectl.run(&[&["--namespace", NAMESPACE], args].concat());
        let workload = format!("deployment/{name}");
        let called = self.pods(name)?.into_iter().next().context("no pod of the Deployment")?;
        let service = here(&["get", "service", name, "-o", "jsonpath={.spec.clusterIP}"])? + ":80";
        for (client, of) in &clients {
            let address = match of.map(|of| of.called) {
                None | Some(Called::Service) => service.clone(),
                Some(Called::Pod) => format!("{}:8080", text(&called["status"]["podIP"])),
                Some(Called::PodByIpv6) => format!("[{}]:8080", text(&called["status"]["podIPs"][1]["ip"])),
            };
            // Five kinds of clients at once are a load for an emulated machine.
            let pace = if of.is_some() {
                ["--clients=2", "--pause-ms=150"]
            } else {
                ["--clients=4", "--pause-ms=60"]
            };
            let load = [&["load", &address][..], &pace].concat();
            if let Some(of) = of {
                of.until_answered(&self.cluster, &address)?;
            }
            if let Some(far) = of.filter(|of| !of.near) {
                far.start(&self.cluster, client, &load)?;
                continue;
            }
            let mut spec = json!({"restartPolicy": "Never", "containers": [container("app", &load)]});
            if of.is_some() {
                merge(&mut spec, json!({"nodeName": Placed::SERVERS}));
            }
            self.apply(&[pod(client, spec)])?;
        }
        for (client, _) in clients.iter().filter(|(_, of)| of.is_none_or(|of| of.near)) {
            here(&["wait", "--for=condition=Ready", &format!("pod/{client}"), "--timeout=900s"])?;
        }
        calls();
        let before = self.uids(name)?;
        ensure!(before.len() == REPLICAS, "{} pods before the rollout", before.len());
        here(&["rollout", "restart", &workload])?;
        here(&["rollout", "status", &workload, "--timeout=900s"])?;
        until(TIMEOUT, "the old pods to be gone", || {
            let now = self.uids(name)?;
            Ok((!before.iter().any(|uid| now.contains(uid))).then_some(()))
        })?;
        calls();
        let mut logs = Vec::new();
        for (client, of) in &clients {
            let log = match of.filter(|of| !of.near) {
                Some(far) => far.end(&self.cluster, client)?,
                None => {
                    here(&["exec", client, "--", "sh", "-c", "kill -TERM 1"])?;
                    let over = format!("pod/{client}");
                    here(&["wait", "--for=jsonpath={.status.phase}=Succeeded", &over, "--timeout=900s"])?;
                    here(&["logs", client])?
                }
            };
            let log = log.lines().rfind(|line| line.starts_with('{'));
            let log = log.with_context(|| format!("{client} logged nothing"))?;
            let totals: Totals = serde_json::from_str(log).with_context(|| format!("read {client}'s log: {log}"))?;
            let is_by_pod = of.is_some_and(|of| of.called != Called::Service);
            // A pod's address is gone with the pod: nobody answers, also a client of the Service while kube-proxy is late.
            let may_be_gone = is_by_pod || of.is_some() && rollout.late_proxy;
            let is_gone = if may_be_gone { totals.timeout + totals.unreachable } else { 0 };
            ensure!(
                totals.timeout + totals.other + totals.unreachable == is_gone,
                "unexpected result at {client}: {} timeouts, {} unreachable, {} others ({:?})",
                totals.timeout,
                totals.unreachable,
                totals.other,
                totals.others
            );
            logs.push((client, is_by_pod, totals));
        }

        let mut row = Row {
            rollout,
            clients: [0; 3],
            answered: logs.iter().map(|(.., totals)| totals.ok).sum(),
            agent: [0; 3],
            kubelet: 0,
            verdicts: Vec::new(),
            lost: 0,
            at_the_end: 0,
            advised: None,
            unharmed: Vec::new(),
        };
        let mut over = None;
        for uid in &before {
            let (exit, last) = self.add(uid, &mut row)?;
            if *uid == text(&called["metadata"]["uid"]) {
                // Clients that call the pod's address ask on, each every few milliseconds: what is counted until the last of them is the window.
                ensure!(
                    rollout.placed.is_none()
                        || rollout.sleep != Sleep::None
                        || last + Duration::from_millis(500) >= exit + COUNTED,
                    "{rollout}: the last refused connection was {:?} after the exit",
                    last.saturating_sub(exit)
                );
                over = Some(last);
            }
        }
        let over = over.context("the pod that was called is none of the old ones")?;
        for (client, is_by_pod, totals) in &logs {
            let lost = match is_by_pod {
                true => totals.lost_before(over),
                false => [totals.refused, totals.reset, totals.cut],
            };
            if *is_by_pod {
                let later: u64 = totals.lost_before(over + AT_THE_END).iter().sum();
                row.at_the_end += later - lost.iter().sum::<u64>();
            }
            eprintln!("{client}: answered {}, refused/reset/cut {lost:?}", totals.ok);
            if lost.iter().sum::<u64>() == 0 {
                row.unharmed.push((*client).clone());
            }
            for (sum, lost) in row.clients.iter_mut().zip(lost) {
                *sum += lost;
            }
        }
        if !row.agrees() {
            eprintln!("{rollout}: pods {before:?}; the clients: {logs:?}");
        }
        Ok(row)
    }

    /// Adds the counts of the agent's trace of a pod; when its last container had exited, and when the last connection was counted, since the
    /// epoch.
    fn add(&self, uid: &str, row: &mut Row) -> anyhow::Result<(Duration, Duration)> {
        let mut last = Duration::ZERO;
        let stops = until(TIMEOUT, "the trace of a deleted pod", || {
            let traces = self.jaeger.traces_with("k8s.pod.uid", uid)?;
            let spans = traces
                .iter()
                .flat_map(|trace| trace["spans"].as_array().into_iter().flatten());
            let spans: Vec<Value> = spans.cloned().collect();
            let exported = spans.iter().any(|span| kind_of(span) == "pod.termination");
            Ok(exported.then_some(spans))
        })?;
        for span in stops.iter().filter(|span| kind_of(span) == "container.stop") {
            row.verdicts.push(text(&tag(span, "epitaph.verdict")));
            last = last.max(Duration::from_micros(end(span)));
            row.lost += lost(span)?;
            let is_observed = tag(span, "epitaph.connections.observed") == true;
            ensure!(is_observed || row.lost > 0, "the sockets were not observed: {span}");
            // Left out where it is 0.
            row.kubelet += tag(span, "epitaph.kubelet.refused").as_u64().unwrap_or(0);
            for (sum, what) in row.agent.iter_mut().zip(["refused", "reset", "cut"]) {
                let key = format!("epitaph.connections.{what}");
                // If a record was lost the count is not a total, and is compared only with what was seen.
                let seen = || {
                    let of_it = stops
                        .iter()
                        .find(|span| span["operationName"] == format!("{what} connections"));
                    of_it.and_then(|span| tag(span, &key).as_u64())
                };
                // A count of 0 is left out.
                let none = is_observed.then_some(0);
                *sum += tag(span, &key).as_u64().or(none).or_else(seen).unwrap_or(0);
            }
            // Jaeger gives a list of strings as the JSON of it.
            let advice = text(&tag(span, "epitaph.advice"));
            let advice: Vec<String> = serde_json::from_str(&advice).unwrap_or_default();
            for line in advice.iter().filter(|line| line.starts_with("pre-stop-sleep-longer ")) {
                let seconds = line.split(' ').nth(1).and_then(|word| word.parse().ok());
                row.advised = row.advised.max(seconds);
            }
        }
        let exits = stops.iter().filter(|span| text(&span["operationName"]).ends_with("→ exit"));
        let exit = exits
            .map(|span| Duration::from_micros(end(span)))
            .max()
            .context("no exit in the trace")?;
        Ok((exit, last))
    }

    fn uids(&self, name: &str) -> anyhow::Result<Vec<String>> {
        Ok(self.pods(name)?.iter().map(|pod| text(&pod["metadata"]["uid"])).collect())
    }

    fn remove(&self, name: &str, clients: &[(String, Option<Client>)]) -> anyhow::Result<()> {
        let clients = clients.iter().map(|(client, _)| format!("pod/{client}"));
        for object in [format!("deployment/{name}"), format!("service/{name}")]
            .into_iter()
            .chain(clients)
        {
            let args = [
                "delete",
                &object,
                "--namespace",
                NAMESPACE,
                "--ignore-not-found",
                "--grace-period=1",
            ];
            self.kubectl.run(&args)?;
        }
        // Its ReplicaSet deletes them a little later.
        until(TIMEOUT, &format!("the pods of {name} to be gone"), || {
            Ok(self.uids(name)?.is_empty().then_some(()))
        })
    }
}

/// Calls of the clients while no rollout runs.
fn calls() {
    // The subject is time: how long they call.
    sleep(Duration::from_secs(3));
}

/// Names of the clients' pods.
fn clients(name: &str, rollout: Rollout) -> Vec<(String, Option<Client>)> {
    match rollout.placed {
        None => vec![(format!("{name}-client"), None)],
        Some(placed) => placed.clients.iter().map(|&of| (format!("{name}-{of}"), Some(of))).collect(),
    }
}

/// The number of lost TCP records; an error if so many are lost that nothing is measured.
fn lost(span: &Value) -> anyhow::Result<u64> {
    const TOLERABLE: u64 = 2;
    let lost: Vec<String> = serde_json::from_str(&text(&tag(span, "epitaph.lost"))).unwrap_or_default();
    let tcp = lost.iter().find_map(|kind| kind.strip_prefix("tcp="));
    let lost = tcp
        .map_or(Ok(0), str::parse)
        .with_context(|| format!("read the number of lost records: {lost:?}"))?;
    ensure!(lost <= TOLERABLE, "{lost} TCP records were lost");
    Ok(lost)
}

fn deployment(name: &str, rollout: Rollout) -> Vec<Value> {
    let linger = format!("--linger-ms={}", LINGER.as_millis());
    let mut command = vec!["http", rollout.server, "[::]:8080", "--stay-ready"];
    command.extend(rollout.placed.map(|_| linger.as_str()));
    let mut server = container("app", &command);
    let hook = match rollout.sleep {
        Sleep::None => Value::Null,
        Sleep::Seconds(seconds) => json!({"sleep": {"seconds": seconds}}),
        Sleep::Overrunning => json!({"exec": {"command": ["/victim", "hook", "600", "0"]}}),
    };
    merge(
        &mut server,
        json!({"readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 5}}),
    );
    if !hook.is_null() {
        merge(&mut server, json!({"lifecycle": {"preStop": hook}}));
    }
    // The sleep has to fit into the grace period, as the advice requires.
    let grace = match rollout.sleep {
        Sleep::Seconds(seconds) => GRACE.max(seconds + (GRACE - ENOUGH)),
        Sleep::None | Sleep::Overrunning => GRACE,
    };
    let grace = u64::from(grace) + rollout.placed.map_or(0, |_| LINGER.as_secs());
    let mut template = pod(name, json!({"terminationGracePeriodSeconds": grace, "containers": [server]}));
    if rollout.placed.is_some() {
        merge(
            &mut template["spec"],
            json!({"nodeSelector": {"kubernetes.io/hostname": Placed::SERVERS}}),
        );
    }
    let labels = json!({"story": name});
    let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": labels});
    vec![
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": REPLICAS,
                "selector": {"matchLabels": labels},
                "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
                "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
            },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(server: &'static str, sleep: Sleep, clients: [u64; 3], advised: Option<u64>) -> Row {
        Row {
            rollout: Rollout {
                server,
                sleep,
                late_proxy: false,
                placed: None,
            },
            clients,
            answered: 1_000,
            agent: clients,
            kubelet: 0,
            verdicts: Vec::new(),
            lost: 0,
            at_the_end: 0,
            advised,
            unharmed: Vec::new(),
        }
    }

    /// As measured with a prompt proxy.
    fn prompt() -> Vec<Row> {
        let mut rows: Vec<Row> = SERVERS
            .iter()
            .flat_map(|server| SLEEPS.map(|sleep| row(server, sleep, [0; 3], None)))
            .collect();
        rows[0] = row("abrupt", Sleep::None, [25, 0, 0], Some(3));
        rows.push(row("abrupt", Sleep::Seconds(3), [0; 3], None));
        rows
    }

    fn broken(break_it: impl FnOnce(&mut Vec<Row>)) -> Vec<String> {
        let mut rows = prompt();
        break_it(&mut rows);
        unproven(&rows)
    }

    #[test]
    fn rows_that_prove_nothing_do_not_pass() {
        assert_eq!(broken(|_| {}), [""; 0]);
        assert_eq!(
            broken(|rows| {
                rows[0].advised = None;
                rows.truncate(9);
            }),
            ["abrupt-no-sleep-prompt: connections were refused, and no preStop sleep was advised"]
        );
        assert_eq!(
            broken(|rows| {
                rows[0] = row("abrupt", Sleep::None, [0; 3], None);
                rows.truncate(9);
            }),
            ["abrupt-no-sleep-prompt: no connection was lost"]
        );
        assert_eq!(
            broken(|rows| rows[4].answered = 0),
            ["close-and-drain-sleep-8-prompt: the server answered no client"]
        );
        assert_eq!(
            broken(|rows| rows.truncate(9)),
            ["abrupt: the advised preStop sleep was not tried"]
        );
        assert_eq!(
            broken(|rows| rows[9] = row("abrupt", Sleep::Seconds(3), [4, 0, 0], None)),
            ["abrupt-sleep-3-prompt: connections were lost in spite of the advised preStop sleep"]
        );
        assert_eq!(
            broken(|rows| rows[0].agent = [0; 3]),
            ["abrupt-no-sleep-prompt: the counts of the agent and of the clients differ"]
        );
    }
}
