//! A zone of which most nodes fall silent: the controller holds its evictions back. The nodes take no other pods, and the other nodes are
//! of another zone.

use std::time::Duration;

use anyhow::ensure;
use epitaph_tests::service::Service;
use epitaph_tests::timeout::TO_END;
use serde_json::json;

use crate::stage::{Stage, named, of_node, pod_trace, tag, template, time, until_active, until_metric};

const ZONE: &str = "zone-z";
/// The node of the pod.
const HELD: &str = "node-c";
const POD: &str = "single";
/// With no ready node the controller takes the zone for lost, and evicts.
const READY: &str = "node-d";
/// The controller holds back from more than two nodes on, if they are 55 % of the zone's.
const SILENT: [&str; 3] = ["node-e", "node-f", "node-g"];
/// Between two nodes that fall silent, so that the controller sees one before the other.
const APART: f64 = 5.0;
/// The product's own wait for evictions.
const MINUTE: Duration = Duration::from_secs(60);

/// A pod without a workload: its UID.
pub fn set(stage: &Stage) -> anyhow::Result<String> {
    for node in [HELD, READY] {
        stage.kubelets.boot(node, "boot-1", Some(ZONE))?;
    }
    let mut pod = template(POD, json!([]));
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"] = json!({"name": POD, "namespace": "shop"});
    // Past the scheduler.
    pod["spec"]["nodeName"] = json!(HELD);
    stage.kubectl.apply(&pod.to_string())?;
    Ok(stage.running(POD, &[])?.0)
}

/// The pod's node last: a node that falls silent before the controller holds back is evicted.
pub fn falls_silent(stage: &Stage) -> anyhow::Result<()> {
    for node in SILENT {
        stage.kubelets.register(node, "boot-1", Some(ZONE))?;
    }
    let renewed = |node: &str| {
        let lease = stage
            .kubectl
            .json(&["-n", "kube-node-lease", "get", "lease", node, "-o", "json"])?;
        Ok::<_, anyhow::Error>(time(&lease["spec"]["renewTime"])?.seconds())
    };
    let last = renewed(SILENT[SILENT.len() - 1])?;
    stage.until("the pod's node renews its Lease for longer", || {
        Ok((renewed(HELD)? >= last + APART).then_some(()))
    })?;
    stage.kubelets.lose(HELD);
    Ok(())
}

/// After a minute of silence, and the pod is not deleted.
pub fn is_held(stage: &Stage, observer: &Service) -> anyhow::Result<()> {
    until_metric(observer, "epitaph_node_evictions_held", &[&of_node(HELD)], 1.0)?;
    let pod = stage.kubectl.json(&["-n", "shop", "get", "pod", POD, "-o", "json"])?;
    ensure!(pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");
    Ok(())
}

/// Nodes are back, and the evictions go on; while the pod hangs, the active observer ends in order, and another one completes the story.
pub fn recovers(stage: &Stage, mut active: Service, pod: &str) -> anyhow::Result<String> {
    let mut next = stage.observer()?;
    is_held(stage, &active)?;
    for node in &SILENT[1..] {
        stage.kubelets.boot(node, "boot-1", Some(ZONE))?;
    }
    let of_node = of_node(HELD);
    until_metric(&active, "epitaph_node_evictions_held", &[&of_node], 0.0)?;
    until_metric(&active, "epitaph_node_pods_stuck", &[&of_node], 1.0)?;
    let (loss, _) = stage.loss(HELD)?;
    assert!(active.end(TO_END)?.success(), "{}", active.log());
    until_active(&next)?;
    until_metric(&next, "epitaph_node_pods_stuck", &[&of_node], 1.0)?;
    stage.kubelets.boot(HELD, "boot-1", Some(ZONE))?;

    let spans = stage.spans(&pod_trace(pod), "pod.lost")?;
    named(&spans, "pod.lost lost")?;
    let spans = stage.spans(&loss, "node.down")?;
    let lost = named(&spans, "node.lost lost")?;
    let unwatched = tag(lost, "epitaph.node.unwatched").as_f64();
    assert!(unwatched.is_some_and(|seconds| seconds >= MINUTE.as_secs_f64()), "{lost:#}");
    // By the observer that ended.
    named(&spans, "node.not_ready")?;
    assert_eq!(tag(named(&spans, "node.down")?, "epitaph.node.return"), "same-boot");
    assert!(next.end(TO_END)?.success(), "{}", next.log());
    Ok(loss)
}
