//! Events as a real kube-apiserver takes them: the agent's sink with the rights of its manifest, without an agent around it.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph::clock;
use epitaph::sink::kubernetes_events::{EventsWorker, OUTCOMES, Outcome, Rate, Settings, Sink, start};
use epitaph::source::pods::{Access, connect};
use epitaph_core::ids::PodUid;
use epitaph_core::input::{CgroupMode, Observation};
use epitaph_core::kubernetes::PodTerminationFacts;
use epitaph_core::pod::{PodIdentity, Service, Workload};
use epitaph_core::report::PodTermination;
use epitaph_core::report::Report;
use epitaph_core::time::Boot;
use epitaph_core::verdict::{Cause, Exit, Severity, TrafficAxis, Verdict};
use epitaph_tests::cluster::Tools;
use epitaph_tests::cluster::control_plane::ControlPlane;
use epitaph_tests::cluster::deploy::as_agent;
use epitaph_tests::cluster::kubectl::Kubectl;
use epitaph_tests::skip::skip;
use epitaph_tests::timeout::{TIMEOUT, holds, until};
use serde_json::Value;

/// Other namespaces than the agent's; `nobody` has no rights.
const CLUSTER: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: going}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, namespace: shop}
spec:
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec:
      containers: [{name: app, image: app}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: nobody, namespace: shop}
";

const PODS: u64 = 110;
/// Far more than any of it takes.

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn events_are_posted_to_the_real_api_once_and_counted() -> anyhow::Result<()> {
    let Some(tools) = Tools::named()? else {
        skip(
            "events_are_posted_to_the_real_api_once_and_counted",
            "EPITAPH_CLUSTER_TOOLS names no kube-apiserver; `cargo xtask test` builds one",
        );
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let mut plane = ControlPlane::api_only(&tools, directory.path())?;
    let kubectl = plane.kubectl();
    kubectl.apply(CLUSTER)?;
    let uid = kubectl.json(&["-n", "shop", "get", "deployment", "cart", "-o", "json"])?["metadata"]["uid"]
        .as_str()
        .context("the Deployment has no UID")?
        .to_owned();
    let agent = Access::Kubeconfig(as_agent(&plane)?);
    let rollout: Vec<Report> = (0..PODS).map(|n| unclean("shop", &format!("cart-{n}"), &uid)).collect();

    // A rollout: one Event for each pod, one for all of them on the Deployment.
    let (sink, worker) = posting(&agent, 512, TIMEOUT).await?;
    offer(&sink, &rollout);
    reported(&sink, Outcome::Posted, 2 * PODS).await?;
    worker.shutdown(TIMEOUT).await;
    let (of_pods, of_cart) = events(&kubectl, "shop")?;
    assert_eq!(of_pods.len() as u64, PODS);
    let of_cart = one(&of_cart)?;
    assert_eq!(of_cart["series"]["count"], PODS);
    for (field, value) in [
        ("type", "Warning"),
        ("reason", "UncleanTermination"),
        ("action", "Terminate"),
        ("reportingController", "epitaph.dev/agent"),
        ("reportingInstance", "node-1"),
        ("note", "pod `cart-0`: container `app`: it was killed"),
    ] {
        assert_eq!(of_cart[field], value, "{field}");
    }
    assert!(
        of_pods
            .iter()
            .all(|event| event["note"] == "container `app`: it was killed" && event["series"].is_null())
    );
    let described = kubectl.run(&["-n", "shop", "describe", "deployment", "cart"])?;
    ensure!(described.contains("UncleanTermination"), "{described}");

    // The agent was started again and reports the last terminations once more, and a new one.
    let (sink, worker) = posting(&agent, 512, TIMEOUT).await?;
    offer(&sink, &rollout[100..]);
    reported(&sink, Outcome::Known, 2 * (PODS - 100)).await?;
    offer(&sink, &[unclean("shop", "cart-new", &uid)]);
    reported(&sink, Outcome::Posted, 2).await?;
    let (of_pods, of_cart) = events(&kubectl, "shop")?;
    assert_eq!(of_pods.len() as u64, PODS + 1);
    assert_eq!(one(&of_cart)?["series"]["count"], PODS + 1);

    // Another node's pods of the workload, which has enough Events for now.
    let (other, others_worker) = posting_as("node-2", &agent, 512, TIMEOUT).await?;
    offer(&other, &[unclean("shop", "cart-elsewhere", &uid)]);
    reported(&other, Outcome::Crowded, 2).await?;
    let (of_pods, of_cart) = events(&kubectl, "shop")?;
    assert_eq!(of_pods.len() as u64, PODS + 1);
    assert_eq!(one(&of_cart)?["series"]["count"], PODS + 1);

    // The Event on the Deployment expired: the next termination begins a new one.
    let name = one(&of_cart)?["metadata"]["name"].as_str().context("no name")?.to_owned();
    kubectl.run(&["-n", "shop", "delete", "events.events.k8s.io", &name])?;
    offer(&sink, &[unclean("shop", "cart-newer", &uid)]);
    reported(&sink, Outcome::Posted, 4).await?;
    assert!(one(&events(&kubectl, "shop")?.1)?["series"].is_null());
    // Both nodes count in the same Event, while there are few.
    others_worker.shutdown(TIMEOUT).await;
    let (other, others_worker) = posting_as("node-2", &agent, 512, TIMEOUT).await?;
    offer(&other, &[unclean("shop", "cart-there", &uid)]);
    reported(&other, Outcome::Posted, 2).await?;
    others_worker.shutdown(TIMEOUT).await;
    assert_eq!(one(&events(&kubectl, "shop")?.1)?["series"]["count"], 2);

    // The API server is away for a while. The second attempt at its port shows that the first one failed.
    plane.stop_api_server()?;
    let attempts = TcpListener::bind((Ipv4Addr::LOCALHOST, plane.port()))?;
    attempts.set_nonblocking(true)?;
    offer(&sink, &[unclean("shop", "cart-meanwhile", &uid)]);
    for attempt in ["the first attempt", "the second attempt"] {
        tokio::task::block_in_place(|| {
            until(attempt, || match attempts.accept() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Err(format!("{:?}", sink.stats()))),
                accepted => {
                    accepted?;
                    Ok(Ok(()))
                }
            })
        })?;
    }
    drop(attempts);
    assert_eq!(sink.stats().get(Outcome::Posted), 4);
    plane.start_api_server()?;
    reported(&sink, Outcome::Posted, 6).await?;
    assert_eq!(one(&events(&kubectl, "shop")?.1)?["series"]["count"], 3);

    // A static pod's workload is its node, whose Events are in `default`.
    let mut output = unclean("shop", "etcd-node-1", "node-1");
    if let Report::PodTerminated(pod) = &mut output {
        let mut identity = (*pod.pod).clone();
        identity.is_static = true;
        identity.workload = Workload {
            kind: "Node".into(),
            name: "node-1".into(),
            api_version: Some("v1".into()),
            ..identity.workload
        };
        pod.facts.pod = Arc::new(identity);
    }
    offer(&sink, &[output]);
    reported(&sink, Outcome::Posted, 8).await?;
    let in_default = kubectl.json(&["-n", "default", "get", "events.events.k8s.io", "-o", "json"])?;
    let of_node = items(&in_default)?.iter().find(|event| event["regarding"]["kind"] == "Node");
    assert_eq!(of_node.context("no Event on the node")?["regarding"]["name"], "node-1");

    // Its namespace is being removed, which no controller finishes here: there is no controller manager.
    kubectl.run(&["delete", "namespace", "going", "--wait=false"])?;
    offer(&sink, &[unclean("going", "cart-1", &uid)]);
    reported(&sink, Outcome::NamespaceGone, 2).await?;
    offer(&sink, &[unclean("never-was", "cart-1", &uid)]);
    reported(&sink, Outcome::NamespaceGone, 4).await?;
    worker.shutdown(TIMEOUT).await;
    assert_eq!(unreported(&sink), 4, "{:?}", sink.stats());

    // RBAC refuses: counted, and not tried for ever.
    let forbidden = Access::Kubeconfig(plane.kubeconfig_of_service_account("shop", "nobody")?);
    let (sink, worker) = posting(&forbidden, 512, Duration::ZERO).await?;
    offer(&sink, &rollout[..2]);
    reported(&sink, Outcome::Forbidden, 4).await?;
    worker.shutdown(TIMEOUT).await;

    // No server answers: Events that do not fit and those left at the end are counted.
    plane.stop_api_server()?;
    let (sink, worker) = posting(&agent, 10, TIMEOUT).await?;
    offer(&sink, &rollout);
    worker.shutdown(Duration::from_millis(200)).await;
    assert_eq!(unreported(&sink), 2 * PODS, "{:?}", sink.stats());
    assert!(sink.stats().get(Outcome::QueueFull) > 0 && sink.stats().get(Outcome::Shutdown) > 0);
    Ok(())
}

async fn posting(access: &Access, queue: usize, forbidden: Duration) -> anyhow::Result<(Sink, EventsWorker)> {
    posting_as("node-1", access, queue, forbidden).await
}

async fn posting_as(node: &str, access: &Access, queue: usize, forbidden: Duration) -> anyhow::Result<(Sink, EventsWorker)> {
    let settings = Settings {
        queue,
        rate: Rate {
            burst: 1_000,
            per_second: 1_000,
        },
        pause: Duration::from_millis(50),
        longest_pause: Duration::from_millis(200),
        give_up_forbidden: forbidden,
        ..Settings::of_node(node)
    };
    Ok(start(connect(access).await?, settings, clock::now))
}

fn offer(sink: &Sink, outputs: &[Report]) {
    let observation = Observation {
        boot_id: "boot".into(),
        host: "node-1".into(),
        kernel: "6.18".into(),
        wall_offset: clock::wall_offset(),
        since: Boot(0),
        cgroups: CgroupMode::V2,
        nodes_in_containers: false,
        ticks_per_second: None,
        observes_followed: true,
    };
    for output in outputs {
        sink.offer(output, &observation, clock::now());
    }
}

async fn reported(sink: &Sink, outcome: Outcome, count: u64) -> anyhow::Result<()> {
    let wanted = format!("{count} {}", outcome.name());
    // The worker is a task of this runtime.
    tokio::task::block_in_place(|| {
        until(&wanted, || {
            Ok(holds(sink.stats().get(outcome) >= count, || format!("{:?}", sink.stats())))
        })
    })?;
    assert_eq!(sink.stats().get(outcome), count, "{:?}", sink.stats());
    Ok(())
}

fn unreported(sink: &Sink) -> u64 {
    let reported = [Outcome::Posted, Outcome::Known];
    OUTCOMES
        .into_iter()
        .filter(|outcome| !reported.contains(outcome))
        .map(|outcome| sink.stats().get(outcome))
        .sum()
}

/// Those on pods, and those on the Deployment.
fn events(kubectl: &Kubectl, namespace: &str) -> anyhow::Result<(Vec<Value>, Vec<Value>)> {
    let all = kubectl.json(&["-n", namespace, "get", "events.events.k8s.io", "-o", "json"])?;
    let of = |kind: &str| -> anyhow::Result<Vec<Value>> {
        let events = items(&all)?.iter().filter(|event| event["regarding"]["kind"] == kind);
        Ok(events.cloned().collect())
    };
    Ok((of("Pod")?, of("Deployment")?))
}

fn items(list: &Value) -> anyhow::Result<&Vec<Value>> {
    list["items"].as_array().context("no list of Events")
}

fn one(events: &[Value]) -> anyhow::Result<&Value> {
    ensure!(events.len() == 1, "not one Event but {}", events.len());
    Ok(&events[0])
}

fn unclean(namespace: &str, name: &str, owner: &str) -> Report {
    let pod = PodIdentity {
        uid: PodUid(format!("uid-of-{name}").into()),
        cgroup_uid: PodUid(format!("uid-of-{name}").into()),
        namespace: namespace.into(),
        name: name.into(),
        node: "node-1".into(),
        workload: Workload {
            kind: "Deployment".into(),
            namespace: namespace.into(),
            name: "cart".into(),
            uid: Some(owner.into()),
            api_version: Some("apps/v1".into()),
            through: None,
        },
        is_static: false,
        service: Service::default(),
        created: None,
        revision: None,
    };
    let now = clock::now();
    Report::PodTerminated(Box::new(PodTermination {
        facts: PodTerminationFacts {
            pod: Arc::new(pod),
            boot_id: "boot".into(),
            stop_reason: None,
            request: None,
            begin: now,
            end: now,
            earlier: Vec::new(),
            unseen: Vec::new(),
            gone: None,
            shutdown: None,
        },
        containers: Vec::new(),
        verdict: Verdict {
            headline: "killed-after-grace",
            cause: Cause::Deleted,
            exit: Exit::KilledAfterGrace,
            traffic: TrafficAxis::Quiet,
            unclean: true,
            severity: Severity::Critical,
            sentence: "container `app`: it was killed".into(),
            remedy: None,
            advice: Vec::new(),
            disagreement: None,
            evidence: Vec::new(),
        },
    }))
}
