//! Definitions that are newer than the program, and the way back: Kubernetes' conventions for versions and unknown fields.

use anyhow::{Context as _, ensure};
use epitaph::sink::epitaphs::EpitaphOutcome;
use epitaph_core::report::Report;
use epitaph_tests::timeout::{holds, until};
use serde_json::{Value, json};

use crate::kubectl::Plugin;
use crate::stage::{Api, CRD, TIMEOUT, offer, patient, pod, reported, writing};

const NEWER: &str = "v1beta1";

/// Served with a further version, in which objects are stored, and with a field that this program does not know.
fn newer(versions: &mut Vec<Value>) {
    let Some(mut own) = versions.pop() else { return };
    own["schema"]["openAPIV3Schema"]["properties"]["report"]["properties"]["future"] = json!({"type": "string"});
    let mut later = own.clone();
    own["storage"] = false.into();
    later["name"] = NEWER.into();
    versions.extend([own, later]);
}

/// Changes the versions of the definition, once more if a controller wrote to it meanwhile.
fn change(api: &Api, change: impl Fn(&mut Vec<Value>)) -> anyhow::Result<()> {
    until("the change of the definition", || {
        let mut definition = api.kubectl.json(&["get", CRD, "-o", "json"])?;
        change(definition["spec"]["versions"].as_array_mut().context("versions")?);
        let replaced = api.kubectl.run_with(&["replace", "-f", "-"], &definition.to_string());
        Ok(replaced.map(drop).map_err(|error| format!("{error:#}")))
    })
}

fn report(api: &Api, pod: &str) -> anyhow::Result<Value> {
    let all = api
        .kubectl
        .json(&["-n", "shop", "get", "epitaphs.v1alpha1.epitaph.dev", "-o", "json"])?;
    let items = all["items"].as_array().context("a list")?;
    let found = items.iter().find(|of| of["report"]["pod"]["name"] == pod);
    Ok(found.with_context(|| format!("no Epitaph of {pod}"))?.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_newer_definition_and_what_it_holds_stay_as_they_are() -> anyhow::Result<()> {
    let Some(api) = Api::new("a_newer_definition_and_what_it_holds_stay_as_they_are")? else {
        return Ok(());
    };
    let agent = api.agent("node-1")?;
    // Before Kubernetes 1.30 there are none, and everything else is the same.
    if api.has_policies()? {
        api.until_policies()?;
    }
    let (sink, worker) = writing(agent.clone()).await?;
    offer(&sink, &pod("shop", "cart-1", "node-1"));
    reported(&sink, EpitaphOutcome::Written, 1)?;

    // The upgrade, and what a newer agent writes: a field, and words of verdicts that are not known here.
    change(&api, newer)?;
    let written = report(&api, "cart-1")?;
    let name = written["metadata"]["name"].as_str().context("a name")?;
    let newer_agent = api.plane.kubectl_as(&agent);
    let mut future = written.clone();
    future["apiVersion"] = format!("epitaph.dev/{NEWER}").into();
    future["metadata"] = json!({"name": name, "namespace": "shop", "labels": written["metadata"]["labels"]});
    future["report"]["future"] = "kept".into();
    let apply = ["apply", "--server-side", "--force-conflicts", "--validate=false", "-f", "-"];
    until("the newer version", || {
        let applied = newer_agent.run_with(&apply, &future.to_string());
        let is_there = applied.is_ok() && report(&api, "cart-1")?["report"]["future"] == "kept";
        Ok(holds(is_there, || format!("{applied:?}")))
    })?;
    let mut later = report(&api, "cart-1")?;
    later["apiVersion"] = format!("epitaph.dev/{NEWER}").into();
    later["metadata"] = json!({"name": "later", "namespace": "shop", "labels": {"epitaph.dev/node": "node-1"}});
    later["report"]["pod"] = json!({"name": "cart-2", "uid": "u"});
    for field in ["verdict", "cause", "exit", "traffic", "terminated"] {
        later["report"][field] = "word-of-the-future".into();
    }
    newer_agent.run_with(&["create", "--validate=false", "-f", "-"], &later.to_string())?;

    // The agent, started again, leaves the field of the other as it is.
    worker.shutdown(TIMEOUT).await;
    let (sink, worker) = writing(agent.clone()).await?;
    offer(&sink, &pod("shop", "cart-1", "node-1"));
    reported(&sink, EpitaphOutcome::Known, 1)?;
    let mut again = pod("shop", "cart-1", "node-1");
    if let Report::PodTerminated(pod) = &mut again {
        pod.verdict.sentence = "once more".to_owned();
    }
    offer(&sink, &again);
    reported(&sink, EpitaphOutcome::Written, 1)?;
    let both = report(&api, "cart-1")?;
    ensure!(
        both["report"]["future"] == "kept" && both["report"]["sentence"] == "once more",
        "{both}"
    );

    // And people read both.
    let admin = Plugin::new(&api, &api.plane.admin())?;
    let list = admin.out(&["-n", "shop", "list"])?;
    ensure!(list.contains("cart-1") && list.contains("word-of-the-future"), "{list}");
    let why = admin.out(&["-n", "shop", "why", "cart-2"])?;
    ensure!(why.contains("word-of-the-future"), "{why}");

    // Our version is not served any longer: as without the kind.
    change(&api, |versions| versions[0]["served"] = false.into())?;
    until("the version to be gone", || {
        let list = api.kubectl.run(&["get", "--raw", "/apis/epitaph.dev/v1alpha1/epitaphs"]);
        Ok(holds(list.is_err(), || format!("{list:?}")))
    })?;
    worker.shutdown(TIMEOUT).await;
    let (sink, worker) = patient(agent, std::time::Duration::ZERO).await?;
    offer(&sink, &pod("shop", "cart-3", "node-1"));
    reported(&sink, EpitaphOutcome::KindAbsent, 1)?;
    worker.shutdown(TIMEOUT).await;

    // The way back: Kubernetes refuses a definition without the version in which objects are stored, so that none is lost. Then as its
    // documentation says: stored in ours, written once more, the other taken off the list. The policies let a write pass that changes nothing.
    let refused = api.install().expect_err("objects are stored in the other version");
    ensure!(format!("{refused:#}").contains("storedVersions"), "{refused:#}");
    change(&api, |versions| {
        versions[0]["served"] = true.into();
        versions[0]["storage"] = true.into();
        versions[1]["storage"] = false.into();
    })?;
    until("all of them to be stored in our version", || {
        let all = api.kubectl.run(&["get", "epitaphs.v1alpha1.epitaph.dev", "-A", "-o", "json"]);
        let replaced = all.and_then(|all| api.kubectl.run_with(&["replace", "-f", "-"], &all));
        Ok(replaced.map(drop).map_err(|error| format!("{error:#}")))
    })?;
    let stored = r#"{"status":{"storedVersions":["v1alpha1"]}}"#;
    api.kubectl
        .run(&["patch", CRD, "--subresource=status", "--type=merge", "-p", stored])?;
    api.install()?;
    until("the definition of this program", || {
        let back = report(&api, "cart-1")?;
        let is_ours = back["report"]["future"].is_null() && back["report"]["sentence"] == "once more";
        Ok(holds(is_ours, || back.to_string()))
    })?;
    report(&api, "cart-2").map(drop)
}
