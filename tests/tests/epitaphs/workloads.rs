//! `kubectl epitaph rollout`, for people and in a pipeline, of workloads that a real API server with controllers rolls out.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use epitaph::clock;
use epitaph::sink::epitaphs::{EpitaphOutcome, Sink};
use epitaph_core::ids::PodUid;
use epitaph_core::report::Report;
use epitaph_core::time::{Boot, Wall, WallOffset};
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
        let begun = last_created(self.kubectl, "replicasets")?;
        terminated(
            sink,
            begun,
            ("Deployment", "web", &uid),
            (name, &format!("uid-of-{name}"), hash),
        )
    }
}

/// When the last of these objects was created.
fn last_created(kubectl: &Kubectl, kind: &str) -> anyhow::Result<Wall> {
    let objects = kubectl.json(&["-n", "shop", "get", kind, "-o", "json"])?;
    let created = objects["items"].as_array().into_iter().flatten();
    let created = created.filter_map(|of| Wall::parse_rfc3339(of["metadata"]["creationTimestamp"].as_str()?));
    created.max().context("no object")
}

/// A report of a pod of this workload (kind, name, UID) that terminated (name, UID, hash) in the rollout that began then, and lost connections of
/// clients.
fn terminated(
    sink: &Sink,
    begun: Wall,
    workload: (&str, &str, &str),
    (name, uid, hash): (&str, &str, &str),
) -> anyhow::Result<()> {
    let mut report = pod("shop", name, "node-1");
    let mut requested = Boot(0);
    if let Report::PodTerminated(pod) = &mut report {
        requested = pod.facts.request.as_ref().context("a deletion request")?.earliest;
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
    // The earliest time of the request can be a little before the rollout.
    let requested_at = begun.0.cast_signed() - 1_500_000_000;
    let mut current = observation();
    current.wall_offset = WallOffset(requested_at - requested.0.cast_signed());
    sink.offer(&report, &current, Some("node-1"), clock::now());
    Ok(())
}

/// A kind whose revisions are ControllerRevisions, with two pods.
struct Kind {
    name: &'static str,
    /// As kubectl calls it in short.
    short: &'static str,
    /// Of the spec, beside selector and template.
    more: Value,
    /// In the status: updated and available pods.
    counts: [&'static str; 2],
}

/// Name, UID and hash of a pod.
type Replaced = [String; 3];

impl Kind {
    /// The pods of `revision`, once its rollout is over; no node runs them, so their readiness is ours to write.
    fn rolled_out(&self, kubectl: &Kubectl, revision: u32, before: &[Replaced]) -> anyhow::Result<Vec<Replaced>> {
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": self.name, "metadata": {"name": "db", "namespace": "shop"}, "spec": self.more,
        });
        object["spec"]["selector"] = json!({"matchLabels": {"app": "db"}});
        object["spec"]["template"] = json!({
            "metadata": {"labels": {"app": "db"}, "annotations": {"revision": revision.to_string()}},
            "spec": {"containers": [{"name": "app", "image": "db"}]},
        });
        kubectl.apply(&object.to_string())?;
        let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
        until(&format!("the rollout of the {}", self.name), || {
            let pods = kubectl.json(&["-n", "shop", "get", "pods", "-l", "app=db", "-o", "json"])?;
            let pods = pods["items"].as_array().context("a list")?;
            for pod in pods
                .iter()
                .filter(|pod| pod["status"]["conditions"].to_string().find("Ready").is_none())
            {
                // Perhaps deleted meanwhile.
                let _ = ready(kubectl, &text(&pod["metadata"]["name"]));
            }
            let set = kubectl.json(&["-n", "shop", "get", self.name, "db", "-o", "json"])?;
            let status = &set["status"];
            let meta = |pod: &Value| {
                let meta = &pod["metadata"];
                [&meta["name"], &meta["uid"], &meta["labels"]["controller-revision-hash"]].map(text)
            };
            let now: Vec<Replaced> = pods.iter().map(meta).collect();
            let is_over = status["observedGeneration"] == set["metadata"]["generation"]
                && self.counts.iter().all(|count| status[count] == 2)
                && now.len() == 2
                && now.iter().all(|pod| before.iter().all(|old| old[2] != pod[2]));
            Ok(if is_over { Ok(now) } else { Err(status.to_string()) })
        })
    }
}

async fn is_compared_with_the_one_before(api: &Api, kind: &Kind) -> anyhow::Result<()> {
    let kubectl = &api.kubectl;
    let first = kind.rolled_out(kubectl, 1, &[])?;
    let uid = kubectl.run(&["-n", "shop", "get", kind.name, "db", "-o", "jsonpath={.metadata.uid}"])?;
    let (sink, worker) = writing(api.agent("node-1")?).await?;
    let report = |[name, pod, hash]: &Replaced| {
        let begun = last_created(kubectl, "controllerrevisions")?;
        terminated(&sink, begun, (kind.name, "db", &uid), (name, pod, hash))
    };
    let second = kind.rolled_out(kubectl, 2, &first)?;
    first.iter().try_for_each(report)?;
    kind.rolled_out(kubectl, 3, &second)?;
    report(&second[0])?;
    reported(&sink, EpitaphOutcome::Written, 3)?;
    worker.shutdown(TIMEOUT).await;

    // By one who may only view the namespace.
    api.user("alice")?;
    let alice = Plugin::new(api, &api.directory.path().join("alice.kubeconfig"))?;
    until("Kubernetes' roles to have the right", || {
        let ran = alice.run(&["-n", "shop", "list"])?;
        Ok(holds(ran.code == Some(0), || format!("{ran:?}")))
    })?;
    let workload = format!("{}/db", kind.short);
    let wait = ["--wait", "--settle", "1s", "--fail-on", "lost", "-o", "json"];
    let failed = alice.run(&[&["-n", "shop", "rollout", &workload], &wait[..]].concat())?;
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
    // One of the two replaced pods has no report.
    let shown = alice.run(&["-n", "shop", "rollout", kind.name, "db", "--fail-on", "unknown"])?;
    let note = "How many pods have no report is not known: the rollout has reports of 1 pod; it replaced at most 2.";
    ensure!(
        shown.code == Some(2) && shown.out.replace('\n', " ").contains(note),
        "{shown:?}"
    );
    let complete = alice.run(&["-n", "shop", "rollout", &workload, "--revision", "2", "--fail-on", "unknown"])?;
    ensure!(complete.code == Some(0), "both of the rollout before have one: {complete:?}");
    Ok(())
}

/// Its pods have the same names in each revision.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_rollout_of_a_statefulset_is_compared_with_the_one_before() -> anyhow::Result<()> {
    let Some(api) = Api::new("a_rollout_of_a_statefulset_is_compared_with_the_one_before")? else {
        return Ok(());
    };
    let kind = Kind {
        name: "StatefulSet",
        short: "sts",
        more: json!({"replicas": 2, "serviceName": "db", "podManagementPolicy": "Parallel"}),
        counts: ["updatedReplicas", "availableReplicas"],
    };
    is_compared_with_the_one_before(&api, &kind).await
}

/// It has a pod on each of the two nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_rollout_of_a_daemonset_is_compared_with_the_one_before() -> anyhow::Result<()> {
    let Some(api) = Api::new("a_rollout_of_a_daemonset_is_compared_with_the_one_before")? else {
        return Ok(());
    };
    let kind = Kind {
        name: "DaemonSet",
        short: "ds",
        more: json!({}),
        counts: ["updatedNumberScheduled", "numberAvailable"],
    };
    is_compared_with_the_one_before(&api, &kind).await
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
    // Before Kubernetes 1.30, as the policies: the page says what to write there.
    if api.has_policies()? {
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
    } else {
        let refused = api
            .kubectl
            .run(&patch)
            .err()
            .map(|error| format!("{error:#}"))
            .unwrap_or_default();
        ensure!(refused.contains("preStop.sleep"), "{refused}");
    }

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
