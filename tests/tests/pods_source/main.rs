//! The agent's source of pods against a real kube-apiserver on a real etcd.

mod listener;
mod proxy;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use epitaph::source::pods::{Access, Allowed, PodSource, PodsDropReason};
use epitaph_core::input::Input;
use epitaph_core::pod::{ContainerState, Phase, PodEventsState, PodFact, RestartAction};
use epitaph_tests::agent::program;
use epitaph_tests::cluster::Tools;
use epitaph_tests::cluster::control_plane::ControlPlane;
use epitaph_tests::cluster::credentials::{Proof, kubeconfig};
use epitaph_tests::cluster::deploy::{AGENT, as_agent};
use epitaph_tests::cluster::kubectl::Kubectl;
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::http::get;
use epitaph_tests::machine::is_root;
use epitaph_tests::service::Service;
use epitaph_tests::skip::skip;
use epitaph_tests::timeout::{holds, until};
use serde_json::{Value, json};

use listener::Listener;
use proxy::Proxy;

const NODE: &str = "node-1";

/// None if there is no API server, which is logged as a skip.
fn plane(test: &str, directory: &Path) -> anyhow::Result<Option<ControlPlane>> {
    let Some(tools) = Tools::named()? else {
        skip(
            test,
            "EPITAPH_CLUSTER_TOOLS names no kube-apiserver; `cargo xtask test` builds one",
        );
        return Ok(None);
    };
    ControlPlane::api_only(&tools, directory).map(Some)
}

async fn listen(kubeconfig: &Path) -> anyhow::Result<Listener> {
    let access = Access::Kubeconfig(kubeconfig.to_owned());
    Ok(Listener::new(
        PodSource::start(Some(NODE), &access, Allowed::default()).await?,
    ))
}

fn namespace(kubectl: &Kubectl, name: &str, annotations: Value) -> anyhow::Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}});
    kubectl.apply(&namespace.to_string())
}

/// On our node; `extra` goes into its metadata.
fn pod(namespace: &str, name: &str, extra: &Value) -> Value {
    let mut meta = json!({"name": name, "namespace": namespace});
    for (key, value) in extra.as_object().into_iter().flatten() {
        meta[key] = value.clone();
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": meta,
        "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "cart:v2"}]},
    })
}

fn apply(kubectl: &Kubectl, object: &Value) -> anyhow::Result<()> {
    kubectl.apply(&object.to_string())
}

fn delete(kubectl: &Kubectl, namespace: &str, name: &str, grace: &[&str]) -> anyhow::Result<()> {
    let args = ["-n", namespace, "delete", "pod", name, "--wait=false"];
    kubectl.run(&[&args, grace].concat()).map(drop)
}

const FORCE: &[&str] = &["--grace-period=0", "--force"];

/// As the kubelet does.
fn set_status(kubectl: &Kubectl, namespace: &str, name: &str, status: Value) -> anyhow::Result<()> {
    let patch = json!({ "status": status }).to_string();
    let args = [
        "-n",
        namespace,
        "patch",
        "pod",
        name,
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ];
    kubectl.run(&args).map(drop)
}

fn uid_of(kubectl: &Kubectl, namespace: &str, kind: &str, name: &str) -> anyhow::Result<String> {
    let object = kubectl.json(&["-n", namespace, "get", kind, name, "-o", "json"])?;
    Ok(object["metadata"]["uid"].as_str().context("no uid")?.to_owned())
}

fn exited(code: i32, restarts: u32) -> Value {
    let id = format!("containerd://{}", "ab".repeat(32));
    json!({"phase": "Running", "containerStatuses": [{
        "name": "app", "image": "cart:v2", "imageID": "cart", "ready": false, "restartCount": restarts, "containerID": id,
        "state": {"terminated": {"exitCode": code, "reason": "Error", "containerID": id, "startedAt": null, "finishedAt": null}},
    }]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pods_life_is_reported_as_the_api_has_it() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let Some(plane) = plane("a_pods_life_is_reported_as_the_api_has_it", directory.path())? else {
        return Ok(());
    };
    let kubectl = plane.kubectl();
    namespace(&kubectl, "shop", json!({"epitaph.dev/expected-exit-codes": "3"}))?;
    let mut listener = listen(&as_agent(&plane)?).await?;
    listener.synced().await?;

    owners(&kubectl, &mut listener).await?;
    own_node_only(&kubectl, &mut listener).await?;
    deletion(&kubectl, &mut listener).await?;
    annotations(&kubectl, &mut listener).await?;
    events(&kubectl, &mut listener).await?;
    a_restart_in_place(&kubectl, &mut listener).await?;
    a_name_used_again(&kubectl, &mut listener).await?;
    many_at_once(&kubectl, &mut listener).await?;
    let forbidden: Vec<_> = listener
        .counters()
        .requests()
        .filter(|(_, how, n)| *how == "forbidden" && *n > 0)
        .collect();
    ensure!(
        forbidden.is_empty(),
        "the manifest's ClusterRole is not enough: {forbidden:?}"
    );

    // The API server runs on this machine: both use the same clock.
    let clock = listener.until("a clock", |input| match input {
        Input::ApiClock(clock) => Some(*clock),
        _ => None,
    });
    let clock = clock.await?;
    ensure!(clock.earliest <= 0 && clock.latest >= 0, "{clock:?}");
    Ok(())
}

async fn owners(kubectl: &Kubectl, listener: &mut Listener) -> anyhow::Result<()> {
    let template = json!({
        "metadata": {"labels": {"app": "cart"}},
        "spec": {"containers": [{"name": "app", "image": "cart:v2"}], "restartPolicy": "Always"},
    });
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": "cart"}}, "template": template});
    let deployment =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "cart", "namespace": "shop"}, "spec": spec});
    apply(kubectl, &deployment)?;
    let deployment = uid_of(kubectl, "shop", "deployment", "cart")?;
    let owner = |api_version: &str, kind: &str, name: &str, uid: &str| json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}]);
    let replica_set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": spec, "metadata": {
        "name": "cart-7d9", "namespace": "shop", "ownerReferences": owner("apps/v1", "Deployment", "cart", &deployment),
    }});
    apply(kubectl, &replica_set)?;
    let replica_set = uid_of(kubectl, "shop", "replicaset", "cart-7d9")?;
    let mut job_template = template.clone();
    job_template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": job_template}, "metadata": {"name": "night", "namespace": "shop",
        "ownerReferences": owner("batch/v1", "CronJob", "nightly", "11111111-2222-3333-4444-555555555555")}});
    apply(kubectl, &job)?;
    let job = uid_of(kubectl, "shop", "job", "night")?;

    let hash = json!({"pod-template-hash": "7d9"});
    let of = |references: Value| json!({"ownerReferences": references, "labels": hash});
    for (name, extra) in [
        ("cart-7d9-a", of(owner("apps/v1", "ReplicaSet", "cart-7d9", &replica_set))),
        // Another object of the same name: not this one.
        (
            "cart-7d9-b",
            of(owner(
                "apps/v1",
                "ReplicaSet",
                "cart-7d9",
                "99999999-2222-3333-4444-555555555555",
            )),
        ),
        ("night-a", of(owner("batch/v1", "Job", "night", &job))),
        ("db-0", of(owner("apps/v1", "StatefulSet", "db", "s"))),
        ("custom-0", of(owner("shop.example/v1", "Till", "front", "t"))),
        ("bare", json!({})),
    ] {
        apply(kubectl, &pod("shop", name, &extra))?;
        listener.pod(name, |_| true).await?;
    }
    let workload = |name: &str| {
        let pod = listener.last(name);
        pod.map(|pod| {
            let w = &pod.pod.workload;
            let through = w.through.as_ref().map(|(kind, name, _)| format!("{kind}/{name}"));
            (
                format!("{}/{}", w.kind, w.name),
                w.uid.clone(),
                through,
                pod.pod.service.name.clone(),
            )
        })
    };
    let text = |text: &str| Some(text.to_owned());
    let expected = |of: &str, uid: Option<&str>, through: Option<&str>, service: &str| {
        Some((
            of.to_owned(),
            uid.map(str::to_owned),
            through.map(str::to_owned),
            service.to_owned(),
        ))
    };
    let set = Some("ReplicaSet/cart-7d9");
    assert_eq!(
        workload("cart-7d9-a"),
        expected("Deployment/cart", Some(&deployment), set, "cart")
    );
    assert_eq!(workload("cart-7d9-b"), expected("Deployment/cart", None, set, "cart"));
    let cron = "11111111-2222-3333-4444-555555555555";
    assert_eq!(
        workload("night-a"),
        expected("CronJob/nightly", Some(cron), Some("Job/night"), "nightly")
    );
    assert_eq!(workload("db-0"), expected("StatefulSet/db", Some("s"), None, "db"));
    assert_eq!(workload("custom-0"), expected("Till/front", Some("t"), None, "custom-0"));
    let bare = listener.last("bare").context("bare was not reported")?;
    assert_eq!(bare.pod.workload.uid, text(&bare.pod.uid.0));
    assert_eq!(bare.pod.service.version, text("v2"));
    Ok(())
}

async fn own_node_only(kubectl: &Kubectl, listener: &mut Listener) -> anyhow::Result<()> {
    let mut elsewhere = pod("shop", "elsewhere", &json!({}));
    elsewhere["spec"]["nodeName"] = json!("node-2");
    apply(kubectl, &elsewhere)?;
    apply(kubectl, &pod("shop", "here", &json!({})))?;
    listener.pod("here", |_| true).await?;
    ensure!(listener.last("elsewhere").is_none(), "a pod of another node was reported");
    Ok(())
}

async fn deletion(kubectl: &Kubectl, listener: &mut Listener) -> anyhow::Result<()> {
    let seconds = |pod: &PodFact| pod.deletion.map(|d| d.grace.as_secs());
    apply(kubectl, &pod("shop", "leaver", &json!({})))?;
    listener.pod("leaver", |pod| pod.deletion.is_none()).await?;
    delete(kubectl, "shop", "leaver", &[])?;
    let first = listener.pod("leaver", |pod| seconds(pod) == Some(30)).await?;
    delete(kubectl, "shop", "leaver", &["--grace-period=5"])?;
    let second = listener.pod("leaver", |pod| seconds(pod) == Some(5)).await?;
    let at = |pod: &PodFact| pod.deletion.map(|d| d.timestamp);
    ensure!(at(&second) < at(&first), "it was shortened: {first:?} {second:?}");
    let status = json!({"phase": "Failed", "reason": "Evicted", "containerStatuses": exited(143, 0)["containerStatuses"]});
    set_status(kubectl, "shop", "leaver", status)?;
    delete(kubectl, "shop", "leaver", FORCE)?;
    let gone = listener.gone("leaver").await?;
    ensure!(gone.watched, "{gone:?}");
    let last = listener.last("leaver").context("not reported")?;
    assert_eq!(
        (last.phase, last.reason.as_deref(), seconds(&last)),
        (Phase::Failed, Some("Evicted"), Some(0))
    );
    ensure!(
        matches!(&last.containers[0].state, ContainerState::Terminated(ended) if ended.exit_code == 143 && ended.id.is_some()),
        "{last:?}"
    );
    Ok(())
}

async fn annotations(kubectl: &Kubectl, listener: &mut Listener) -> anyhow::Result<()> {
    let before = listener.counters().dropped(PodsDropReason::BadAnnotation);
    apply(kubectl, &pod("shop", "plain", &json!({})))?;
    apply(
        kubectl,
        &pod(
            "shop",
            "own",
            &json!({"annotations": {"epitaph.dev/expected-exit-codes": "7", "epitaph.dev/ignore": "true"}}),
        ),
    )?;
    apply(
        kubectl,
        &pod(
            "shop",
            "wrong",
            &json!({"annotations": {"epitaph.dev/expected-exit-codes": "many"}}),
        ),
    )?;
    let mut options = Vec::new();
    for name in ["plain", "own", "wrong"] {
        let pod = listener.pod(name, |_| true).await?;
        options.push((pod.spec.options.ignore, pod.spec.options.expected_exit_codes.clone()));
    }
    assert_eq!(options, [(false, vec![3]), (true, vec![7]), (false, vec![3])]);
    assert_eq!(listener.counters().dropped(PodsDropReason::BadAnnotation) - before, 1);

    // A namespace opts out for all of its pods without an annotation of their own.
    namespace(kubectl, "private", json!({"epitaph.dev/ignore": "true"}))?;
    for (name, annotations, ignored) in [
        ("hushed", json!({}), true),
        ("loud", json!({"epitaph.dev/ignore": "false"}), false),
        ("garbled", json!({"epitaph.dev/ignore": "no"}), true),
    ] {
        apply(kubectl, &pod("private", name, &json!({"annotations": annotations})))?;
        let pod = listener.pod(name, |_| true).await?;
        assert_eq!(pod.spec.options.ignore, ignored, "{name}");
    }
    Ok(())
}

async fn events(kubectl: &Kubectl, listener: &mut Listener) -> anyhow::Result<()> {
    apply(kubectl, &pod("shop", "restarter", &json!({})))?;
    let uid = listener.pod("restarter", |_| true).await?.pod.uid.clone();
    for (name, of, message) in [
        ("kill", &*uid.0, "Container app failed liveness probe, will be restarted"),
        (
            "namesake",
            "00000000-2222-3333-4444-555555555555",
            "of the pod that had the name before",
        ),
    ] {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "shop"},
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "restarter", "uid": of, "fieldPath": "spec.containers{app}"},
            "reason": "Killing", "message": message, "type": "Normal", "source": {"component": "kubelet", "host": NODE},
        });
        apply(kubectl, &event)?;
    }
    set_status(kubectl, "shop", "restarter", exited(137, 0))?;
    let over = |pod: &PodFact| matches!(pod.containers.first(), Some(of) if matches!(of.state, ContainerState::Terminated(_)));
    let restarter = listener.pod("restarter", over).await?;
    listener.list_events(&restarter);
    let event = listener
        .until("an event", |input| match input {
            Input::PodEvent(event) => Some(event.clone()),
            _ => None,
        })
        .await?;
    assert_eq!(
        (&event.uid, event.container.as_deref(), event.reason.as_str()),
        (&uid, Some("app"), "Killing")
    );
    assert_eq!(event.message, "Container app failed liveness probe, will be restarted");
    listener
        .until("that these are all", |input| match input {
            Input::PodEvents(events) if events.uid == uid && events.state == PodEventsState::Known => Some(()),
            _ => None,
        })
        .await?;
    let place = |what: &dyn Fn(&Input) -> bool| listener.seen().iter().position(what);
    let asked =
        place(&|input| matches!(input, Input::PodEvents(events) if events.uid == uid && events.state == PodEventsState::Asked));
    let sent = place(&|input| matches!(input, Input::PodEvent(_)));
    let known =
        place(&|input| matches!(input, Input::PodEvents(events) if events.uid == uid && events.state == PodEventsState::Known));
    ensure!(
        asked.is_some() && asked < sent && sent < known,
        "{asked:?} {sent:?} {known:?}"
    );
    Ok(())
}

/// As Kubernetes 1.36 has it: older API servers know none of the fields.
async fn a_restart_in_place(kubectl: &Kubectl, listener: &mut Listener) -> anyhow::Result<()> {
    let version = kubectl.json(&["get", "--raw", "/version"])?;
    let digits = version["minor"]
        .as_str()
        .context("no version")?
        .trim_matches(|c: char| !c.is_ascii_digit());
    if digits.parse::<u32>()? < 36 {
        return Ok(());
    }
    let mut restarter = pod("shop", "in-place", &json!({}));
    restarter["spec"]["containers"][0]["restartPolicy"] = json!("Never");
    restarter["spec"]["containers"][0]["restartPolicyRules"] =
        json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]);
    apply(kubectl, &restarter)?;
    let created = listener.pod("in-place", |_| true).await?;
    let of = &created.spec.containers[0];
    ensure!(
        of.restarts_after(88) == Some(true) && of.restarts_after(1) == Some(false),
        "{of:?}"
    );
    let rule = of.rule(88).context("no rule")?;
    ensure!(rule.action == RestartAction::RestartAllContainers && rule.is_in, "{rule:?}");
    let removed = json!({
        "phase": "Running",
        "conditions": [{"type": "AllContainersRestarting", "status": "True", "reason": "RestartAllContainersStarted"}],
        "containerStatuses": [{
            "name": "app", "image": "cart:v2", "imageID": "cart", "ready": false, "restartCount": 1,
            "state": {"waiting": {"reason": "RestartingAllContainers"}},
            "lastState": {"terminated": {"exitCode": 137, "reason": "RestartingAllContainers", "startedAt": null, "finishedAt": null}},
        }],
    });
    set_status(kubectl, "shop", "in-place", removed)?;
    let restarting = listener.pod("in-place", |pod| pod.restarting).await?;
    let last = restarting.containers[0].last.as_ref().context("no last state")?;
    ensure!(last.id.is_none() && last.exit_code == 137, "{last:?}");
    delete(kubectl, "shop", "in-place", FORCE)?;
    listener.gone("in-place").await?;
    Ok(())
}

async fn a_name_used_again(kubectl: &Kubectl, listener: &mut Listener) -> anyhow::Result<()> {
    apply(kubectl, &pod("shop", "web-0", &json!({})))?;
    let first = listener.pod("web-0", |_| true).await?.pod.uid.clone();
    delete(kubectl, "shop", "web-0", FORCE)?;
    apply(kubectl, &pod("shop", "web-0", &json!({})))?;
    let second = listener.pod("web-0", |pod| pod.pod.uid != first).await?.pod.uid.clone();
    let place = |what: &dyn Fn(&Input) -> bool| listener.seen().iter().position(what);
    let gone = place(&|input| matches!(input, Input::PodGone(gone) if gone.uid == first && gone.watched));
    let next = place(&|input| matches!(input, Input::Pod(pod) if pod.pod.uid == second));
    ensure!(gone.is_some() && gone < next, "{gone:?} {next:?}");
    Ok(())
}

async fn many_at_once(kubectl: &Kubectl, listener: &mut Listener) -> anyhow::Result<()> {
    let names: Vec<String> = (0..110).map(|n| format!("many-{n}")).collect();
    let pods: Vec<Value> = names
        .iter()
        .map(|name| pod("shop", name, &json!({"labels": {"of": "many"}})))
        .collect();
    apply(kubectl, &json!({"apiVersion": "v1", "kind": "List", "items": pods}))?;
    for name in &names {
        listener.pod(name, |_| true).await?;
    }
    // No input is read until the queue is full, and the watch waits for room.
    kubectl.run(&[
        "-n",
        "shop",
        "delete",
        "pods",
        "-l",
        "of=many",
        "--grace-period=0",
        "--force",
        "--wait=false",
    ])?;
    listener.full()?;
    // All of them are gone from the API while nobody reads: most of the inputs find no room.
    let left = kubectl.run(&["-n", "shop", "get", "pods", "-l", "of=many", "-o", "name"])?;
    ensure!(left.trim().is_empty(), "{left}");
    for name in &names {
        let gone = listener.gone(name).await?;
        ensure!(gone.watched, "{name}: {gone:?}");
    }
    for reason in [
        PodsDropReason::PodCap,
        PodsDropReason::Unreadable,
        PodsDropReason::EventQueueFull,
    ] {
        assert_eq!(listener.counters().dropped(reason), 0, "{}", reason.name());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_the_api_is_away() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let Some(mut plane) = plane("nothing_is_lost_while_the_api_is_away", directory.path())? else {
        return Ok(());
    };
    let kubectl = plane.kubectl();
    namespace(&kubectl, "shop", json!({}))?;
    apply(&kubectl, &pod("shop", "early", &json!({})))?;

    // No API server at the start: it is joined when it comes.
    plane.stop_api_server()?;
    let mut direct = listen(&plane.admin()).await?;
    let why = direct.away().await?;
    ensure!(why.contains("nobody listens there"), "{why}");
    plane.start_api_server()?;
    direct.synced().await?;
    ensure!(direct.last("early").is_some(), "pods come before `Synced`");

    // Stopped in the middle, and back.
    plane.stop_api_server()?;
    direct.away().await?;
    plane.start_api_server()?;
    direct.synced().await?;
    apply(&kubectl, &pod("shop", "later", &json!({})))?;
    direct.pod("later", |_| true).await?;
    drop(direct);

    // The connection is cut: a watch that resumes gets the changes from the API server's watch cache.
    let proxy = Proxy::start(plane.port()).await?;
    let text = plane.kubeconfig_for("admin", Some("system:masters"), &proxy.url())?;
    let file = directory.path().join("by-proxy");
    std::fs::write(&file, text)?;
    let mut listener = listen(&file).await?;
    listener.synced().await?;
    proxy.cut();
    listener.away().await?;
    delete(&kubectl, "shop", "early", &["--grace-period=20"])?;
    set_status(&kubectl, "shop", "early", exited(0, 0))?;
    delete(&kubectl, "shop", "early", FORCE)?;
    proxy.mend();
    let gone = listener.gone("early").await?;
    let last = listener.last("early").context("not reported")?;
    ensure!(
        gone.watched && matches!(last.containers[0].state, ContainerState::Terminated(_)),
        "{gone:?} {last:?}"
    );
    listener.synced().await?;

    // Without them (410 Gone), a pod that the list lacks was deleted at an unknown time.
    apply(&kubectl, &pod("shop", "survivor", &json!({})))?;
    listener.pod("survivor", |_| true).await?;
    proxy.cut();
    listener.away().await?;
    delete(&kubectl, "shop", "later", FORCE)?;
    apply(&kubectl, &pod("shop", "newcomer", &json!({})))?;
    plane.compact()?;
    plane.stop_api_server()?;
    plane.start_api_server()?;
    proxy.mend();
    let gone = listener.gone("later").await?;
    ensure!(!gone.watched, "{gone:?}");
    listener.pod("newcomer", |_| true).await?;
    listener.synced().await?;
    let survivor = listener.last("survivor").context("not reported")?.pod.uid.clone();
    ensure!(
        !listener
            .seen()
            .iter()
            .any(|input| matches!(input, Input::PodGone(gone) if gone.uid == survivor)),
        "an existing pod was reported as gone"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_agent_has_the_reason_and_joins_once_it_is_allowed() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let Some(mut plane) = plane(
        "a_refused_agent_has_the_reason_and_joins_once_it_is_allowed",
        directory.path(),
    )?
    else {
        return Ok(());
    };
    let kubectl = plane.kubectl();
    let manifest: Vec<&str> = AGENT.split("---\n").collect();
    let (accounts, rights): (Vec<&str>, Vec<&str>) =
        manifest.into_iter().partition(|part| !part.contains("rbac.authorization"));
    kubectl.apply(&accounts.join("---\n"))?;
    apply(
        &kubectl,
        &pod(
            "epitaph",
            "cart-7d9-x",
            &json!({
                "labels": {"pod-template-hash": "7d9"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart-7d9", "uid": "r", "controller": true}],
            }),
        ),
    )?;

    let file = plane.kubeconfig_of_service_account("epitaph", "epitaph-agent")?;
    let mut listener = listen(&file).await?;
    let why = listener.away().await?;
    ensure!(
        why.contains("RBAC forbids it") && why.contains("resources: [pods], verbs: [list, watch]"),
        "{why}"
    );
    // Only the pods: the agent runs without the rest.
    let rule = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "epitaph-agent"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]});
    apply(&kubectl, &rule)?;
    let binding = rights
        .iter()
        .find(|part| part.contains("ClusterRoleBinding"))
        .context("a binding")?;
    kubectl.apply(binding)?;
    listener.synced().await?;
    let workload = listener.pod("cart-7d9-x", |_| true).await?.pod.workload.clone();
    assert_eq!((workload.kind.as_str(), workload.name.as_str()), ("Deployment", "cart"));
    let forbidden = |of: &str| {
        listener
            .counters()
            .requests()
            .any(|(what, how, n)| what == of && how == "forbidden" && n > 0)
    };
    ensure!(
        forbidden("pods") && forbidden("replicaset") && forbidden("namespace"),
        "counted"
    );
    rights_taken_away_at_run_time(&mut plane, &mut listener, binding).await?;
    drop(listener);

    let write = |name: &str, text: String| {
        let file = directory.path().join(name);
        std::fs::write(&file, text).map(|()| file)
    };
    let url = plane.url();
    let stranger = write(
        "stranger",
        kubeconfig(&url, &plane.authority()?, &Proof::Token("not-a-token")),
    )?;
    let why = listen(&stranger).await?.away().await?;
    ensure!(why.contains("401"), "{why}");
    let token = plane.token("epitaph", "epitaph-agent")?;
    let other = epitaph_tests::cluster::credentials::Authority::open(directory.path(), "other-ca")?;
    let misled = write("misled", kubeconfig(&url, &other.certificate, &Proof::Token(&token)))?;
    let why = listen(&misled).await?.away().await?;
    ensure!(why.contains("CA that we were not given"), "{why}");
    Ok(())
}

async fn rights_taken_away_at_run_time(plane: &mut ControlPlane, listener: &mut Listener, binding: &str) -> anyhow::Result<()> {
    let kubectl = plane.kubectl();
    kubectl.run(&["delete", "clusterrolebinding", "epitaph-agent"])?;
    // An open watch goes on without the right: the next one is refused.
    plane.stop_api_server()?;
    plane.start_api_server()?;
    // First the API server is not there.
    let mut why = listener.away().await?;
    while !why.contains("RBAC forbids it") {
        why = listener.away().await?;
    }
    ensure!(why.contains("resources: [pods], verbs: [list, watch]"), "{why}");
    kubectl.apply(binding)?;
    listener.synced().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_reports_the_state_of_the_api_and_runs_without_it() -> anyhow::Result<()> {
    const NAME: &str = "the_agent_reports_the_state_of_the_api_and_runs_without_it";
    if !is_root() {
        skip(NAME, "the probes need root");
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let Some(mut plane) = plane(NAME, directory.path())? else {
        return Ok(());
    };
    let players = PathBuf::from(env!("CARGO_BIN_EXE_victim"));
    let copy = tempfile::tempdir()?;
    let epitaph = Epitaph::copied(&program(players.parent().context("no directory")?), copy.path())?;
    let kubeconfig = plane.admin().display().to_string();
    let args = ["--kubeconfig", &kubeconfig, "--node-name", NODE];
    let service = Service::start(&epitaph, copy.path(), &args)?;
    let expect = |words: &str| {
        until(&format!("`{words}`"), || {
            let (status, body) = get(service.port, "/readyz")?;
            ensure!(status == 200, "without the API it is ready all the same: {body}");
            Ok(holds(body.contains(words), || format!("{body}; its log: {}", service.log())))
        })
    };
    expect(r#""kubernetes":{"state":"synced"}"#)?;
    let synced = || service.metric("epitaph_kubernetes_state", &[r#"state="synced""#]);
    ensure!(synced()? == 1.0);
    plane.stop_api_server()?;
    expect(r#""kubernetes":{"state":"away","reason":"cannot list and watch the pods of this node"#)?;
    ensure!(synced()? == 0.0);
    let refused = [r#"resource="pods""#, r#"reason="connection""#];
    ensure!(service.metric("epitaph_kubernetes_failures_total", &refused)? >= 1.0);
    let failed = [r#"resource="pods""#, r#"outcome="failed""#];
    ensure!(service.metric("epitaph_kubernetes_requests_total", &failed)? >= 1.0);
    plane.start_api_server()?;
    expect(r#""kubernetes":{"state":"synced"}"#)
}
