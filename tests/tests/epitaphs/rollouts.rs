//! What the observer makes of a rollout on a real API server with controllers: the metric of its last revision, and the Event.

use std::path::Path;

use anyhow::{Context as _, ensure};
use epitaph::sink::epitaphs::EpitaphOutcome;
use epitaph_tests::agent;
use epitaph_tests::cluster::deploy::as_observer;
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::monitoring::{Prometheus, program};
use epitaph_tests::service::Service;
use epitaph_tests::skip::skip;
use epitaph_tests::timeout::{TO_END, holds, until};
use serde_json::Value;

use crate::stage::{Api, TIMEOUT, reported, writing};
use crate::workloads::Workload;

const ARGO: &str = include_str!("../../../deploy/pipelines/argo-rollouts.yaml");
const FLAGGER: &str = include_str!("../../../deploy/pipelines/flagger.yaml");

fn settled(observer: &Service, revision: u32) -> anyhow::Result<()> {
    let series = "epitaph_rollout_settled_timestamp_seconds";
    let labels = [
        r#"epitaph_workload_name="web""#.to_owned(),
        format!("revision=\"{revision}\""),
    ];
    let labels = labels.each_ref().map(String::as_str);
    until(&format!("revision {revision} to settle"), || {
        Ok(holds(observer.count(series, &labels)? > 0.0, || observer.log()))
    })
}

/// Those about rollouts, and how often each was counted.
fn events(api: &Api) -> anyhow::Result<Vec<(Value, u64)>> {
    let list = api
        .kubectl
        .json(&["-n", "shop", "get", "events.events.k8s.io", "-o", "json"])?;
    let all = list["items"].as_array().context("a list")?.iter();
    let of_rollouts = all.filter(|event| event["reason"] == "RolloutLostConnections");
    Ok(of_rollouts
        .map(|event| (event.clone(), event["series"]["count"].as_u64().unwrap_or(1)))
        .collect())
}

/// The query of a template, for a Deployment of the namespace `shop` and a rollout to this revision of it.
fn query(template: &str, deployment: &str, revision: u32) -> anyhow::Result<String> {
    let object: Value = serde_saphyr::from_str(template)?;
    let spec = &object["spec"];
    let argo = &spec["metrics"][0]["provider"]["prometheus"]["query"];
    let query = argo.as_str().or(spec["query"].as_str()).context("no query")?;
    let filled = [
        ("{{args.namespace}}", "shop"),
        ("{{args.rollout}}", deployment),
        ("{{args.revision}}", &revision.to_string()),
        // Argo Rollouts has a kind of its own.
        ("\"Rollout\"", "\"Deployment\""),
        ("{{ namespace }}", "shop"),
        ("{{ target }}-primary", deployment),
    ];
    let query = filled
        .iter()
        .fold(query.to_owned(), |query, (from, to)| query.replace(from, to));
    ensure!(!query.contains("{{"), "{query}");
    Ok(query)
}

/// By the real Prometheus, with the queries of `deploy/pipelines`, when the rollout to revision 2 of `web` has settled.
fn queried(api: &Api, observer: &Service) -> anyhow::Result<()> {
    let Some(prometheus) = program("EPITAPH_PROMETHEUS") else {
        skip(
            "the_observer_counts_what_a_rollout_cost",
            "the queries of deploy/pipelines: cargo xtask test builds a Prometheus and names it in EPITAPH_PROMETHEUS",
        );
        return Ok(());
    };
    // Nobody is notified: there are no rules.
    let prometheus = Prometheus::start(&prometheus, api.directory.path(), "groups: []", &[observer.port], 9)?;
    for template in [ARGO, FLAGGER] {
        // Of a workload without a rollout, and of a rollout that has not settled while the one before has, Argo Rollouts gets no result. Flagger
        // needs one, and is about the last promotion.
        for (deployment, revision, of_argo, of_flagger) in
            [("web", 2, Some(18), 18), ("web", 3, None, 18), ("another", 2, None, 0)]
        {
            let query = query(template, deployment, revision)?;
            let expected = if template == ARGO { of_argo } else { Some(of_flagger) };
            let wanted: Vec<String> = expected.iter().map(u32::to_string).collect();
            until(&format!("the result of {query}"), || {
                let result = prometheus.query(&percent_encoded(&query))?;
                let values = result.iter().filter_map(|of| of["value"][1].as_str());
                Ok(holds(values.eq(&wanted), || format!("{result:?}")))
            })?;
        }
    }
    Ok(())
}

/// For a URL.
fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte.is_ascii_alphanumeric() {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_observer_counts_what_a_rollout_cost() -> anyhow::Result<()> {
    let Some(api) = Api::new("the_observer_counts_what_a_rollout_cost")? else {
        return Ok(());
    };
    let kubeconfig = as_observer(&api.plane)?;
    let binaries = Path::new(env!("CARGO_BIN_EXE_victim")).parent().context("no directory")?;
    let epitaph = Epitaph::copied(&agent::program(binaries), api.directory.path())?;
    let kubeconfig = kubeconfig.to_str().context("a path of ours is text")?;
    // The reports are there before the last old pod is gone: nothing is waited for.
    let settle = ["--set", "observer.rollout_settle=0s"];
    let args = [
        &["--kubeconfig", kubeconfig, "--set", "observer.namespace=epitaph"],
        &settle[..],
    ]
    .concat();
    let observer = || Service::of("observer", &epitaph, api.directory.path(), &args);

    let web = Workload { kubectl: &api.kubectl };
    web.apply(1)?;
    let first = web.rolled_out(&[])?;
    let mut active = observer()?;
    active.until("epitaph_observer_active", &[], 1.0)?;
    web.apply(2)?;
    let second = web.added(&first)?;
    let (sink, worker) = writing(api.agent("node-1")?).await?;
    web.reports(&sink, &first[0])?;
    reported(&sink, EpitaphOutcome::Written, 1)?;
    web.ready(&second)?;
    tokio::task::block_in_place(|| settled(&active, 2))?;
    let of = |name: &str, label: &str| active.metric(name, &[r#"epitaph_workload_kind="Deployment""#, label]);
    for (kind, count) in [("refused", 14.0), ("reset", 1.0), ("cut", 3.0), ("undecided", 4.0)] {
        assert_eq!(of("epitaph_rollout_connections", &format!("kind={kind:?}"))?, count, "{kind}");
    }
    for (state, count) in [("all", 1.0), ("unclean", 1.0), ("unobserved", 0.0), ("missing", 1.0)] {
        assert_eq!(of("epitaph_rollout_pods", &format!("state={state:?}"))?, count, "{state}");
    }
    let event = || {
        until("the Event", || {
            let events = events(&api)?;
            Ok(if events.len() == 1 {
                Ok(events[0].clone())
            } else {
                Err(format!("{events:?}"))
            })
        })
    };
    let (posted, count) = tokio::task::block_in_place(event)?;
    ensure!(
        posted["regarding"]["kind"] == "Deployment" && posted["regarding"]["name"] == "web",
        "{posted}"
    );
    let note = posted["note"].as_str().unwrap_or_default();
    ensure!(
        note.contains("the rollout to revision 2 lost at least 18 connections of clients (14 refused, 1 reset, 3 cut)")
            && note.contains("1 replaced pod has no report yet")
            && note.ends_with("kubectl epitaph rollout deployment/web --namespace shop"),
        "{note}"
    );
    assert_eq!(count, 1);

    // What pipelines ask Prometheus for is this metric.
    tokio::task::block_in_place(|| queried(&api, &active))?;

    // The next observer has the metric, too, and does not report the rollout again.
    active.end(TO_END)?;
    let next = observer()?;
    tokio::task::block_in_place(|| settled(&next, 2))?;
    // A rollout without a loss has no Event, and its metric replaces that of the one before: no pod of it has a report.
    web.apply(3)?;
    web.rolled_out(&second)?;
    tokio::task::block_in_place(|| settled(&next, 3))?;
    assert_eq!(next.count("epitaph_rollout_connections", &[])?, 0.0);
    assert_eq!(
        next.count("epitaph_rollout_settled_timestamp_seconds", &[r#"revision="2""#])?,
        0.0
    );
    let events = events(&api)?;
    ensure!(events.len() == 1 && events[0].1 == 1, "{events:?}");
    worker.shutdown(TIMEOUT).await;
    Ok(())
}
