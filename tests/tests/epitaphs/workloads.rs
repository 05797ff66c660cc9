//! `kubectl epitaph rollout`, for people and in a pipeline, of workloads that a real API server with controllers rolls out.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use epitaph::clock;
use epitaph::sink::epitaphs::{EpitaphOutcome, Sink};
use epitaph_core::ids::PodUid;
use epitaph_core::report::Report;
use epitaph_core::time::{Boot, WallOffset};
use epitaph_core::verdict::{Advice, AdviceKind};
use epitaph_tests::cluster::kubectl::Kubectl;
use epitaph_tests::timeout::{holds, until};
use serde_json::{Value, json};

use crate::kubectl::Plugin;
use crate::stage::{Api, TIMEOUT, identity, observation, pod, reported, writing};

/// As a kubelet would report it.
fn ready(kubectl: &Kubectl, pod: &str) -> anyhow::Result<()> {
    let ready = json!({"status": {"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"},
    ]}});
    let args = [
        "-n",
        "shop",
        "patch",
        "pod",
        pod,
        "--subresource=status",
        "--type=merge",
        "-p",
    ];
    kubectl.run(&[&args[..], &[&ready.to_string()]].concat()).map(drop)
}

/// A Deployment whose pods no node runs: their readiness is the test's to write.
pub struct Workload<'a> {
    pub kubectl: &'a Kubectl,
}

impl Workload<'_> {
    pub fn apply(&self, revision: u32) -> anyhow::Result<()> {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "replicas": 2,
                "strategy": {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}},
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}, "annotations": {"revision": revision.to_string()}},
                    "spec": {"containers": [{"name": "app", "image": "web"}]},
                },
            },
        });
        self.kubectl.apply(&deployment.to_string())
    }

    /// Name and hash of each pod.
    pub fn pods(&self) -> anyhow::Result<Vec<(String, String)>> {
        let list = self
            .kubectl
            .json(&["-n", "shop", "get", "pods", "-l", "app=web", "-o", "json"])?;
        let pods = list["items"].as_array().context("a list")?;
        let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
        Ok(pods
            .iter()
            .map(|pod| {
                (
                    text(&pod["metadata"]["name"]),
                    text(&pod["metadata"]["labels"]["pod-template-hash"]),
                )
            })
            .collect())
    }

    /// Two pods that are not among `old`, made ready; then the old ones go.
    pub fn rolled_out(&self, old: &[(String, String)]) -> anyhow::Result<Vec<(String, String)>> {
        let new = self.added(old)?;
        self.ready(&new)?;
        Ok(new)
    }

    /// Two pods that are not among `old`.
    pub fn added(&self, old: &[(String, String)]) -> anyhow::Result<Vec<(String, String)>> {
        until("two new pods", || {
            let mut new = self.pods()?;
            new.retain(|pod| !old.contains(pod));
            Ok(if new.len() == 2 { Ok(new) } else { Err(format!("{new:?}")) })
        })
    }

    pub fn ready(&self, pods: &[(String, String)]) -> anyhow::Result<()> {
        pods.iter().try_for_each(|(name, _)| ready(self.kubectl, name))
    }

    /// The agent reports now that one of the pods terminated and lost connections of clients.
    pub fn reports(&self, sink: &Sink, (name, hash): &(String, String)) -> anyhow::Result<()> {
        let uid = self
            .kubectl
            .run(&["-n", "shop", "get", "deployment", "web", "-o", "jsonpath={.metadata.uid}"])?;
        terminated(sink, ("Deployment", "web", &uid), (name, &format!("uid-of-{name}"), hash))
    }
}

/// A report of now: a pod of this workload (kind, name, UID) terminated (name, UID, hash), and lost connections of clients.
fn terminated(sink: &Sink, workload: (&str, &str, &str), (name, uid, hash): (&str, &str, &str)) -> anyhow::Result<()> {
    let mut report = pod("shop", name, "node-1");
    let mut end = Boot(0);
    if let Report::PodTerminated(pod) = &mut report {
        end = pod.end;
        let mut of = identity("shop", name, "node-1");
        let (kind, name_of, uid_of) = workload;
        of.uid = PodUid(uid.into());
        of.workload.kind = kind.into();
        of.workload.name = name_of.into();
        of.workload.uid = Some(uid_of.into());
        of.revision = Some(hash.into());
        pod.facts.pod = Arc::new(of);
        let app = &mut pod.containers[0];
        app.verdict.advice = vec![Advice {
            kind: AdviceKind::PreStopSleepLonger,
            seconds: Some(4),
            text: String::new(),
        }];
        app.kubernetes.as_mut().map(Arc::make_mut).context("a pod's")?.pre_stop = None;
    }
    // The pod terminated within the rollout: now.
    let now = clock::wall_offset().wall(clock::now());
    let mut current = observation();
    current.wall_offset = WallOffset(now.0.cast_signed() - end.0.cast_signed());
    sink.offer(&report, &current, Some("node-1"), clock::now());
    Ok(())
}

/// Its pods have the same names in each revision, and its revisions are ControllerRevisions.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_rollout_of_a_statefulset_is_compared_with_the_one_before() -> anyhow::Result<()> {
    let Some(api) = Api::new("a_rollout_of_a_statefulset_is_compared_with_the_one_before")? else {
        return Ok(());
    };
    let kubectl = &api.kubectl;
    let set = |revision: u32| {
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "shop"},
            "spec": {
                "replicas": 2, "serviceName": "db", "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": "db"}},
                "template": {
                    "metadata": {"labels": {"app": "db"}, "annotations": {"revision": revision.to_string()}},
                    "spec": {"containers": [{"name": "app", "image": "db"}]},
                },
            },
        })
    };
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    // Name, UID and hash of each pod, once the rollout is over; no node runs them, so their readiness is ours to write.
    let rolled_out = |revision: u32| -> anyhow::Result<Vec<[String; 3]>> {
        kubectl.apply(&set(revision).to_string())?;
        until("the rollout of the StatefulSet", || {
            let pods = kubectl.json(&["-n", "shop", "get", "pods", "-l", "app=db", "-o", "json"])?;
            let pods = pods["items"].as_array().context("a list")?;
            for pod in pods
                .iter()
                .filter(|pod| pod["status"]["conditions"].to_string().find("Ready").is_none())
            {
                // Perhaps deleted meanwhile.
                let _ = ready(kubectl, &text(&pod["metadata"]["name"]));
            }
            let set = kubectl.json(&["-n", "shop", "get", "statefulset", "db", "-o", "json"])?;
            let status = &set["status"];
            let is_over = status["observedGeneration"] == set["metadata"]["generation"]
                && status["updatedReplicas"] == 2
                && status["availableReplicas"] == 2
                && pods.len() == 2
                && pods
                    .iter()
                    .all(|pod| pod["metadata"]["labels"]["controller-revision-hash"] == status["updateRevision"]);
            let meta = |pod: &Value| {
                let meta = &pod["metadata"];
                [&meta["name"], &meta["uid"], &meta["labels"]["controller-revision-hash"]].map(text)
            };
            Ok(match is_over {
                true => Ok(pods.iter().map(meta).collect()),
                false => Err(status.to_string()),
            })
        })
    };
    let first = rolled_out(1)?;
    let uid = kubectl.run(&["-n", "shop", "get", "statefulset", "db", "-o", "jsonpath={.metadata.uid}"])?;
    let (sink, worker) = writing(api.agent("node-1")?).await?;
    let report = |[name, pod, hash]: &[String; 3]| terminated(&sink, ("StatefulSet", "db", &uid), (name, pod, hash));
    let second = rolled_out(2)?;
    first.iter().try_for_each(report)?;
    rolled_out(3)?;
    report(&second[0])?;
    reported(&sink, EpitaphOutcome::Written, 3)?;
    worker.shutdown(TIMEOUT).await;

    let admin = Plugin::new(&api, &api.plane.admin())?;
    let args = [
        "-n",
        "shop",
        "rollout",
        "sts/db",
        "--wait",
        "--settle",
        "1s",
        "--fail-on",
        "lost",
        "-o",
        "json",
    ];
    let failed = admin.run(&args)?;
    assert_eq!(failed.code, Some(2), "{failed:?}");
    let object: Value = serde_json::from_str(&failed.out)?;
    let of = |what: &str| {
        [
            &object[what]["revision"],
            &object[what]["replacedBy"],
            &object[what]["pods"],
            &object[what]["cut"],
        ]
    };
    assert_eq!(object["revision"], 3, "{object}");
    assert_eq!(of("cost"), [&json!(2), &json!(3), &json!(1), &json!(3)], "{object}");
    assert_eq!(of("before"), [&json!(1), &json!(2), &json!(2), &json!(6)], "{object}");
    let shown = admin.out(&["-n", "shop", "rollout", "statefulset", "db"])?;
    ensure!(
        shown.contains("Which pods of a StatefulSet have no report is not known."),
        "{shown}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_pipeline_learns_what_a_rollout_cost() -> anyhow::Result<()> {
    let Some(api) = Api::new("a_pipeline_learns_what_a_rollout_cost")? else {
        return Ok(());
    };
    let web = Workload { kubectl: &api.kubectl };
    web.apply(1)?;
    let first = web.rolled_out(&[])?;
    let admin = Plugin::new(&api, &api.plane.admin())?;
    let rollout = |more: &[&str]| admin.run(&[&["-n", "shop", "rollout", "deployment/web"], more].concat());

    // The first rollout replaced nothing.
    let settled = rollout(&[
        "--wait",
        "--settle",
        "1s",
        "--timeout",
        "2m",
        "--fail-on",
        "lost,unclean,unknown",
    ])?;
    ensure!(settled.code == Some(0) && settled.err.contains("settled"), "{settled:?}");

    web.apply(2)?;
    let second = web.rolled_out(&first)?;
    until("the old pods to go", || {
        let pods = web.pods()?;
        Ok(holds(pods.len() == 2, || format!("{pods:?}")))
    })?;
    let (sink, worker) = writing(api.agent("node-1")?).await?;
    let (reporting, silent) = (&first[0], &first[1]);
    web.reports(&sink, reporting)?;
    reported(&sink, EpitaphOutcome::Written, 1)?;
    worker.shutdown(TIMEOUT).await;

    let failed = rollout(&["--wait", "--settle", "1s", "--fail-on", "lost", "-o", "json"])?;
    assert_eq!(failed.code, Some(2), "{failed:?}");
    ensure!(failed.err.contains("failed on: lost"), "{failed:?}");
    let object: Value = serde_json::from_str(&failed.out)?;
    let cost = &object["cost"];
    assert_eq!((&object["revision"], &cost["revision"]), (&json!(2), &json!(1)), "{object}");
    assert_eq!((&cost["pods"], &cost["unclean"]), (&json!(1), &json!(1)), "{object}");
    assert_eq!(
        [&cost["refused"], &cost["reset"], &cost["cut"], &cost["undecided"]],
        [&json!(14), &json!(1), &json!(3), &json!(4)],
        "{object}"
    );
    assert_eq!(cost["missing"], json!([silent.0]), "{object}");
    assert_eq!(object["before"], Value::Null, "{object}");
    ensure!(
        object["settings"][0]["text"]
            .as_str()
            .is_some_and(|text| text.contains("seconds: 4")),
        "{object}"
    );

    // Pasted, the API server takes them, and changes nothing else.
    let settings = object["settings"][0]["text"].as_str().context("a text")?;
    let patch = [
        "-n",
        "shop",
        "patch",
        "deployment",
        "web",
        "--dry-run=server",
        "-o",
        "json",
        "--patch",
        settings,
    ];
    let patched = api.kubectl.json(&patch)?;
    let container = &patched["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["lifecycle"],
        json!({"preStop": {"sleep": {"seconds": 4}}}),
        "{patched}"
    );
    assert_eq!(
        (&container["name"], &container["image"]),
        (&json!("app"), &json!("web")),
        "{patched}"
    );

    // One pod is too few for a spread.
    ensure!(
        object["forecast"]["today"]["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("too few")),
        "{object}"
    );

    let unknown = rollout(&["--fail-on", "unknown"])?;
    ensure!(unknown.code == Some(2) && unknown.out.contains(&silent.0), "{unknown:?}");
    let markdown = rollout(&["-o", "markdown"])?;
    ensure!(
        markdown.code == Some(0) && markdown.out.contains("| lost connections | 18 |"),
        "{markdown:?}"
    );

    // The rollout before, by its number, and one that never was.
    web.apply(3)?;
    let third = web.rolled_out(&second)?;
    until("the old pods to go", || {
        let pods = web.pods()?;
        Ok(holds(pods.len() == third.len(), || format!("{pods:?}")))
    })?;
    let before = rollout(&["--revision", "2"])?;
    ensure!(before.out.contains("what the rollout to revision 2 cost"), "{before:?}");
    let last = rollout(&["--fail-on", "lost"])?;
    ensure!(last.code == Some(0), "{last:?}");
    let never = rollout(&["--revision", "9"])?;
    ensure!(
        never.code == Some(1) && never.err.contains("the API has these: "),
        "{never:?}"
    );
    let nobody = admin.run(&["-n", "shop", "rollout", "deployment/nobody"])?;
    ensure!(
        nobody.code == Some(1) && nobody.err.contains("Deployment `nobody` does not exist"),
        "{nobody:?}"
    );

    // A rollout that cannot settle: its new pods never become ready.
    web.apply(4)?;
    let late = rollout(&["--wait", "--timeout", "1s"])?;
    assert_eq!(late.code, Some(3), "{late:?}");
    Ok(())
}
