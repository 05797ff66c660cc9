//! What the agents of a fleet cost the API server: `cargo xtask bench api`. And the observer: see `observer.rs`; a rollout: see
//! `rollout.rs`; many Epitaphs: see `epitaphs.rs`.
//!
//! kwok plays nodes and pods against a real kube-apiserver on a real etcd. The agents are real but for their probes: see `agent.rs`. All
//! of them run on this machine, so their number and the rate of deletions are what it carries; the requests of one agent and of one
//! termination do not depend on it.

#[path = "../../tests/api_cost/agent.rs"]
mod agent;
mod audit;
mod epitaphs;
mod fleet;
mod kwok;
mod metrics;
mod observer;
mod proxy;
mod rollout;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph::sink::kubernetes_events::Outcome;
use epitaph_core::report::Report;
use epitaph_tests::cluster::Tools;
use epitaph_tests::cluster::control_plane::ControlPlane;
use epitaph_tests::cluster::credentials::{Proof, kubeconfig};
use epitaph_tests::cluster::deploy::as_agent;
use tokio::time::{Instant, sleep};

use agent::Counts;
use fleet::Fleet;
use metrics::Totals;
use proxy::Proxy;

/// Nodes, and deletions per second of the measured minute.
const ROUNDS: [(usize, usize); 3] = [(50, 2), (500, 5), (5_000, 10)];
const PODS_PER_NODE: usize = 2;
/// Agents that reach the API server by one proxy.
const OF_PROXY: usize = 1_000;
/// In the namespace of all pods: an hour of a busy namespace.
const EVENTS: usize = 5_000;
const MEASURED: Duration = Duration::from_secs(60);
/// For terminations of the last second to end and be reported.
const REST: Duration = Duration::from_secs(20);

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args_os().skip(1).filter(|arg| arg != "--bench");
    let usage = "usage: api KWOK [NODES] | api KWOK observer EPITAPH [NODES] | api KWOK rollout EPITAPH [PODS] | api KWOK epitaphs EPITAPH [NUMBER]";
    let kwok = args.next().map(PathBuf::from).context(usage)?;
    if kwok.as_os_str() == proxy::ROLE {
        let port = args.next().context("usage: api proxy PORT")?;
        return proxy::run(port.to_string_lossy().parse()?);
    }
    let mut args = args.peekable();
    let of = args.next_if(|arg| ["observer", "rollout", "epitaphs"].iter().any(|of| arg == of));
    let epitaph = match &of {
        Some(_) => Some(args.next().map(PathBuf::from).context(usage)?),
        None => None,
    };
    let only = args
        .next()
        .map(|nodes| nodes.to_string_lossy().parse::<usize>())
        .transpose()?;
    let tools = Tools::named()?.context("EPITAPH_CLUSTER_TOOLS names no kube-apiserver: `cargo xtask bench api` sets it")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Some(epitaph) = epitaph {
        return match of.as_ref().and_then(|of| of.to_str()) {
            Some("rollout") => runtime.block_on(rollout::measure(&tools, &kwok, &epitaph, only)),
            Some("epitaphs") => runtime.block_on(epitaphs::measure(&tools, &epitaph, only)),
            _ => runtime.block_on(observer::measure(&tools, &kwok, &epitaph, only)),
        };
    }
    println!(
        "| Nodes | Deletions/s | Requests/s idle | Requests/s | Bytes/s idle | Bytes/s | API server CPU idle | CPU | Requests per deletion |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (nodes, rate) in ROUNDS {
        if only.is_none_or(|only| only == nodes) {
            runtime.block_on(round(&tools, &kwok, nodes, rate))?;
        }
    }
    Ok(())
}

struct Interval {
    totals: Totals,
    to_server: f64,
    to_agents: f64,
    seconds: f64,
}

impl Interval {
    fn requests(&self) -> f64 {
        self.totals.requests.values().sum::<f64>() / self.seconds
    }

    fn bytes(&self) -> f64 {
        (self.to_server + self.to_agents) / self.seconds
    }
}

async fn round(tools: &Tools, kwok: &Path, nodes: usize, rate: usize) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let plane = ControlPlane::api_only(tools, directory.path())?;
    let kubectl = plane.kubectl();
    as_agent(&plane)?;
    let token = plane.token("epitaph", "epitaph-agent")?;
    let (mut proxies, mut files) = (Vec::new(), Vec::new());
    for number in 0..nodes.div_ceil(OF_PROXY) {
        let proxy = Proxy::start(plane.port())?;
        let file = directory.path().join(format!("agents-{number}.kubeconfig"));
        std::fs::write(&file, kubeconfig(&proxy.url(), &plane.authority()?, &Proof::Token(&token)))?;
        proxies.push(proxy);
        files.push(file);
    }

    let mut fleet = Fleet::start(kwok, directory.path(), &plane.admin(), nodes, EVENTS).await?;
    fleet.create(nodes * PODS_PER_NODE).await?;
    sleep(Duration::from_secs(10)).await;
    let before = Totals::read(&kubectl)?;
    let begun = Instant::now();
    let (counts, mut reports, _running) = fleet::agents(&files, nodes).await?;
    let synced = || {
        // The list, and the watch.
        counts.iter().filter(|of| of.requested("pods") >= 2).count()
    };
    while synced() < nodes {
        ensure!(
            begun.elapsed() < Duration::from_secs(600),
            "{} of {nodes} agents watch their pods",
            synced()
        );
        sleep(Duration::from_millis(200)).await;
    }
    sleep(REST).await;
    let started = Totals::read(&kubectl)?.since(&before);
    eprintln!(
        "{nodes} nodes: the start took {:.0} s: {:?}",
        begun.elapsed().as_secs_f64(),
        started.requests
    );

    let idle = interval(&kubectl, &proxies, &counts, async {
        sleep(MEASURED).await;
        Ok(())
    })
    .await?;
    let mut deleted = 0;
    let busy = interval(&kubectl, &proxies, &counts, async {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        for _ in 0..MEASURED.as_secs() {
            ticks.tick().await;
            fleet.replace(rate).await?;
            deleted += rate;
        }
        sleep(REST).await;
        Ok(())
    })
    .await?;
    let mut terminated = 0;
    while let Ok(report) = reports.try_recv() {
        terminated += usize::from(matches!(report, Report::PodTerminated(_)));
    }
    let posted = |outcome| counts.iter().map(|of| of.posted(outcome)).sum::<u64>();
    eprintln!(
        "{nodes} nodes: {deleted} deletions in {:.0} s, {terminated} reported; {:?}; {:.0} Events read by lists; posted {}, crowded {}; \
         Epitaphs written {}",
        busy.seconds,
        busy.totals.requests,
        busy.totals.events_read,
        posted(Outcome::Posted),
        posted(Outcome::Crowded),
        counts.iter().map(Counts::written).sum::<u64>(),
    );
    ensure!(
        terminated * 10 >= deleted * 9,
        "only {terminated} of {deleted} deletions were reported"
    );
    let own = busy
        .totals
        .requests
        .iter()
        .filter(|(request, _)| !["GET /version", "WATCH pods"].contains(&request.as_str()));
    let of_deletions: f64 = own.map(|(_, count)| count).sum();
    println!(
        "| {nodes} | {:.1} | {:.2} | {:.2} | {:.0} | {:.0} | {:.1} % | {:.1} % | {:.3} |",
        deleted as f64 / busy.seconds,
        idle.requests(),
        busy.requests(),
        idle.bytes(),
        busy.bytes(),
        100.0 * idle.totals.cpu / idle.seconds,
        100.0 * busy.totals.cpu / busy.seconds,
        of_deletions / deleted as f64,
    );
    Ok(())
}

async fn interval(
    kubectl: &epitaph_tests::cluster::kubectl::Kubectl,
    proxies: &[Proxy],
    counts: &[Counts],
    work: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Interval> {
    // No resource: the API server does not count them apart. By the agents' own count.
    let clocks = || counts.iter().map(|of| of.requested("clock")).sum::<u64>() as f64;
    let bytes = || {
        proxies.iter().try_fold((0, 0), |(to_server, to_agents), proxy| {
            let more = proxy.bytes()?;
            anyhow::Ok((to_server + more.0, to_agents + more.1))
        })
    };
    let (before, bytes_before, begun, clocks_before) = (Totals::read(kubectl)?, bytes()?, Instant::now(), clocks());
    work.await?;
    let (after, bytes) = (Totals::read(kubectl)?, bytes()?);
    let mut totals = after.since(&before);
    totals.requests.insert("GET /version".to_owned(), clocks() - clocks_before);
    Ok(Interval {
        totals,
        to_server: (bytes.0 - bytes_before.0) as f64,
        to_agents: (bytes.1 - bytes_before.1) as f64,
        seconds: begun.elapsed().as_secs_f64(),
    })
}
