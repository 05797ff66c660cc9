//! NodeEpitaphs, and the observer's part of a pod's Epitaph, on a real API server with the chart's policies.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph::clock;
use epitaph::sink::epitaphs::{Completer, EpitaphOutcome, Settings, Sink, start};
use epitaph::source::epitaphs::{EpitaphFeed, EpitaphNews};
use epitaph::source::pods::{Access, connect};
use epitaph_core::fixtures::shutdowns;
use epitaph_core::observe::loss_verdict::{Loss, LossVerdict};
use epitaph_core::observe::{
    AgentAnswer, EndpointRemoval, LossEnd, LossKey, LostPods, Moment, NodeIdentity, NodeLost, Output, Replacement, Rule,
};
use epitaph_core::report::Report;
use epitaph_core::time::{Boot, Wall};
use epitaph_tests::cluster::deploy::as_observer;
use epitaph_tests::cluster::kubectl::Kubectl;
use serde_json::{Value, json};

use crate::kubectl::clean;
use crate::stage::{Api, TIMEOUT, identity, observation, offer, pod, reported, requests, writing};

fn at(seconds: u64) -> Moment {
    Moment {
        at: Boot(seconds * 1_000_000_000),
        gap: None,
    }
}

fn lost(node: &str) -> Output {
    let loss = Loss::FencedByTaint;
    Output::NodeLost(Box::new(NodeLost {
        key: LossKey {
            node: Arc::new(NodeIdentity {
                name: node.into(),
                uid: format!("uid-of-{node}").into(),
                boot_id: "boot-1".into(),
                system_uuid: "".into(),
                kubelet_version: "v1.36.3".into(),
                provider: "".into(),
                unschedulable: false,
            }),
            transition: Wall(1_795_261_450_000_000_000),
        },
        begin: at(10),
        end: at(110),
        ended_by: LossEnd::PodsGone,
        verdict: LossVerdict {
            row: loss.row(),
            sentence: "the node stopped reporting".to_owned(),
            remedy: "nothing".to_owned(),
        },
        steps: Vec::new(),
        reason: "NodeStatusUnknown".into(),
        message: "".into(),
        renewed: None,
        agent: AgentAnswer::Silent,
        powered_off: true,
        pods: LostPods {
            stuck: 2,
            gone: 2,
            has_dropped: false,
            links: Vec::new(),
        },
        unwatched: None,
    }))
}

fn removal(name: &str, service: &str) -> Output {
    Output::Removal(Box::new(removed(name, service)))
}

/// The endpoint was ready until it was gone, three seconds after the pod's deletion.
fn late_removal(name: &str, service: &str) -> Output {
    Output::Removal(Box::new(EndpointRemoval {
        not_ready: None,
        ..removed(name, service)
    }))
}

fn removed(name: &str, service: &str) -> EndpointRemoval {
    EndpointRemoval {
        pod: Arc::new(identity("shop", name, "node-1")),
        service: service.into(),
        ports: Arc::from(Vec::new()),
        address_types: Vec::new(),
        ended: at(20),
        begin: at(20),
        end: at(23),
        terminating: Some(at(20)),
        not_ready: Some(at(20)),
        not_serving: None,
        all_terminating: None,
        publish_not_ready: false,
        api_clock: None,
        is_of_lost_node: false,
    }
}

fn replacement(name: &str, by: &str) -> Output {
    Output::Replacement(Box::new(Replacement {
        pod: Arc::new(identity("shop", name, "node-1")),
        by: Arc::new(identity("shop", by, "node-2")),
        rule: Rule::NextOfReplicaSet,
        created: at(15),
        scheduled: None,
        attached: None,
        ready: Some(at(19)),
        end: at(19),
        api_clock: None,
        is_of_lost_node: false,
    }))
}

/// The observer's sink, and its watch of Epitaphs.
struct Observing {
    completer: Completer,
    feed: EpitaphFeed,
}

impl Observing {
    fn see(&mut self, output: &Output) {
        self.completer.offer(output, observation().wall_offset, clock::now());
    }

    /// Reads the watch until it has shown the Epitaph of this pod.
    async fn until_written(&mut self, pod: &str) -> anyhow::Result<()> {
        let shown = async {
            while let Some(news) = self.feed.next().await {
                match news {
                    EpitaphNews::Listed => self.completer.listed(),
                    EpitaphNews::Gone { namespace, name } => self.completer.gone((namespace, name)),
                    EpitaphNews::Forbidden => self.completer.forbidden(clock::now()),
                    EpitaphNews::Watched => self.completer.watched(),
                    EpitaphNews::Written {
                        namespace,
                        name,
                        unclean,
                    } => {
                        let is_this = name.starts_with(&format!("{pod}."));
                        self.completer.written((namespace, name), unclean, clock::now());
                        if is_this {
                            return Ok(());
                        }
                    }
                }
            }
            anyhow::bail!("the watch ended")
        };
        let late = || format!("no Epitaph of {pod} in the watch");
        tokio::time::timeout(TIMEOUT, shown).await.with_context(late)?
    }
}

/// Requests that create and that patch Epitaphs, since the API server's start.
fn writes(kubectl: &Kubectl) -> anyhow::Result<[f64; 2]> {
    Ok([
        requests(kubectl, "POST", "resource")?,
        requests(kubectl, "PATCH", "resource")?,
    ])
}

fn nodes(kubectl: &Kubectl) -> anyhow::Result<Vec<Value>> {
    let list = kubectl.json(&["get", "nodeepitaphs", "-o", "json"])?;
    list["items"].as_array().cloned().context("no list of NodeEpitaphs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nodes_have_epitaphs_and_the_observer_completes_those_of_pods() -> anyhow::Result<()> {
    let Some(api) = Api::new("nodes_have_epitaphs_and_the_observer_completes_those_of_pods")? else {
        return Ok(());
    };
    let (first, second) = (api.agent("node-1")?, api.agent("node-2")?);
    let observer_file = as_observer(&api.plane)?;
    let observer_user = api.plane.kubectl_as(&observer_file);
    if !api.has_policies()? {
        return Ok(());
    }
    let create =
        |kubectl: &Kubectl, object: &Value| kubectl.run_with(&["create", "--validate=false", "-f", "-"], &object.to_string());
    let made = |name: &str, node: &str, event: &str| {
        json!({
            "apiVersion": "epitaph.dev/v1alpha1", "kind": "NodeEpitaph",
            "metadata": {"name": name, "labels": {"epitaph.dev/node": node}},
            "report": {"node": node, "event": event, "verdict": "graceful"},
        })
    };
    api.until_policies()?;

    // A shutdown, by the node's agent: once, also after a restart; and of its own node only.
    let shutdown = Report::NodeShutdown(Box::new(shutdowns::truncated()));
    let offer_of = |sink: &Sink, node: &str| sink.offer(&shutdown, &observation(), Some(node), clock::now());
    let (sink, worker) = writing(first).await?;
    offer_of(&sink, "node-1");
    reported(&sink, EpitaphOutcome::Written, 1)?;
    offer_of(&sink, "node-1");
    reported(&sink, EpitaphOutcome::Known, 1)?;
    offer_of(&sink, "node-2");
    reported(&sink, EpitaphOutcome::Refused, 1)?;
    offer(&sink, &pod("shop", "cart-1", "node-1"));
    reported(&sink, EpitaphOutcome::Written, 2)?;

    // A loss, and what agents cannot see of a pod, by the observer. What comes later is added.
    let settings = Settings {
        between: Duration::ZERO,
        ..Settings::of_observer()
    };
    let client = connect(&Access::Kubeconfig(observer_file)).await?;
    let (seen, observing) = start(client.clone(), settings, clock::now);
    let mut observer = Observing {
        completer: Completer::new(seen.clone()),
        feed: EpitaphFeed::start(&client, &Arc::default()),
    };
    observer.see(&lost("node-2"));
    observer.see(&removal("cart-1", "web"));
    observer.until_written("cart-1").await?;
    reported(&seen, EpitaphOutcome::Written, 2)?;
    observer.see(&replacement("cart-1", "cart-2"));
    reported(&seen, EpitaphOutcome::Written, 3)?;
    let table = api.kubectl.run(&["get", "nodeepitaphs"])?;
    let header: Vec<&str> = table.lines().next().context("no header")?.split_whitespace().collect();
    assert_eq!(header, ["NAME", "NODE", "EVENT", "VERDICT", "PODS", "TOOK", "AGE"]);
    let of = |event: &str| -> anyhow::Result<Value> {
        let all = nodes(&api.kubectl)?;
        let found = all.into_iter().find(|of| of["report"]["event"] == event);
        found.map(|mut of| of["report"].take()).with_context(|| event.to_owned())
    };
    let (down, gone) = (of("Shutdown")?, of("Loss")?);
    assert_eq!(
        (&down["node"], &down["verdict"]),
        (&json!("node-1"), &json!("truncated")),
        "{down}"
    );
    assert_eq!(
        (&gone["node"], &gone["pods"], &gone["took"]),
        (&json!("node-2"), &json!(2), &json!("100.0s")),
        "{gone}"
    );
    let written = api.epitaphs("shop")?;
    let observed = &written[0]["observed"];
    assert_eq!(observed["replacement"]["pod"], "cart-2", "{observed}");
    assert_eq!(observed["endpoints"][0]["service"], "web", "{observed}");
    assert_eq!(observed["endpoints"][0]["took"], "3.0s", "{observed}");
    assert_eq!(written[0]["report"]["verdict"], "ignored-stop-signal");

    // A termination that was not unclean needs no second write, unless clients were sent to a pod that was stopping: then with all that was seen.
    observer.see(&removal("cart-3", "web"));
    observer.see(&removal("cart-4", "web"));
    offer(&sink, &clean(pod("shop", "cart-3", "node-1")));
    offer(&sink, &clean(pod("shop", "cart-4", "node-1")));
    reported(&sink, EpitaphOutcome::Written, 4)?;
    observer.until_written("cart-4").await?;
    observer.see(&replacement("cart-3", "cart-5"));
    observer.see(&late_removal("cart-4", "admin"));
    reported(&seen, EpitaphOutcome::Written, 5)?;
    let observed = |name: &str| -> anyhow::Result<Value> {
        let all = api.epitaphs("shop")?;
        let found = all.into_iter().find(|of| of["report"]["pod"]["name"] == name);
        Ok(found.context("no Epitaph")?["observed"].take())
    };
    assert_eq!(observed("cart-3")?, Value::Null);
    let late = observed("cart-4")?;
    let services = late["endpoints"].as_array().into_iter().flatten();
    let services: Vec<&Value> = services.map(|of| &of["service"]).collect();
    assert_eq!(services, ["web", "admin"], "{late}");

    // The agent of a node that was away writes long after the observer saw the pod for the last time.
    observer.see(&removal("cart-6", "web"));
    let before = writes(&api.kubectl)?;
    offer(&sink, &pod("shop", "cart-6", "node-1"));
    observer.until_written("cart-6").await?;
    reported(&seen, EpitaphOutcome::Written, 6)?;
    let after = writes(&api.kubectl)?;
    assert_eq!(
        [after[0] - before[0], after[1] - before[1]],
        [1.0, 1.0],
        "one create and one patch a termination"
    );
    assert_eq!(observed("cart-6")?["endpoints"][0]["service"], "web");

    // Another observer, which saw none of that: what was written stays.
    let mut next = Observing {
        completer: Completer::new(seen.clone()),
        feed: EpitaphFeed::start(&client, &Arc::default()),
    };
    next.see(&removal("cart-6", "admin"));
    next.until_written("cart-6").await?;
    reported(&seen, EpitaphOutcome::Written, 7)?;
    let both = observed("cart-6")?;
    let services = both["endpoints"].as_array().into_iter().flatten();
    let services: Vec<&Value> = services.map(|of| &of["service"]).collect();
    assert_eq!(services, ["web", "admin"], "{both}");
    drop(next);

    // The agent writes once more: the observer's field stays.
    let mut again = pod("shop", "cart-1", "node-1");
    if let Report::PodTerminated(pod) = &mut again {
        pod.verdict.sentence = "once more".to_owned();
    }
    offer(&sink, &again);
    reported(&sink, EpitaphOutcome::Written, 6)?;
    let written = api.epitaphs("shop")?;
    assert_eq!(&written[0]["observed"]["replacement"]["pod"], "cart-2", "{written:?}");
    assert_eq!(written[0]["report"]["sentence"], "once more");

    // Who is taken over writes no more than that.
    let (agent, name) = (
        api.plane.kubectl_as(&second),
        written[0]["metadata"]["name"].as_str().context("no name")?,
    );
    let with_observed = json!({
        "apiVersion": "epitaph.dev/v1alpha1", "kind": "Epitaph",
        "metadata": {"name": "false", "namespace": "shop", "labels": {"epitaph.dev/node": "node-2"}},
        "report": {"node": "node-2", "verdict": "clean", "pod": {"name": "cart-9", "uid": "u"}},
        "observed": {"replacement": {"pod": "cart-10"}},
    });
    let over = ["apply", "--server-side", "--force-conflicts", "--validate=false", "-f", "-"];
    let mut cleaned = written[0].clone();
    cleaned["metadata"] = json!({"name": name, "namespace": "shop", "labels": cleaned["metadata"]["labels"]});
    let mut annotated = cleaned.clone();
    annotated["metadata"]["annotations"] = json!({"attacker.example/note": "x".repeat(512)});
    cleaned["report"]["verdict"] = "clean".into();
    let known = nodes(&api.kubectl)?[0]["metadata"]["name"]
        .as_str()
        .context("no name")?
        .to_owned();
    for (attempt, result, why) in [
        (
            "an agent observes",
            create(&agent, &with_observed),
            "does not write the observer's field",
        ),
        (
            "an agent reports a loss",
            create(&agent, &made("loss", "node-2", "Loss")),
            "the observer losses",
        ),
        (
            "an agent reports another node",
            create(&agent, &made("other", "node-1", "Shutdown")),
            "of its own node only",
        ),
        (
            "an agent takes the name of another node's",
            create(&agent, &made("node-1.0123456789abcdef", "node-2", "Shutdown")),
            "the name of a NodeEpitaph is its node's",
        ),
        (
            "an agent takes the name of a node whose name begins as its own",
            create(&agent, &made("node-2.example.0123456789abcdef", "node-2", "Shutdown")),
            "the name of a NodeEpitaph is its node's",
        ),
        (
            "the observer annotates",
            observer_user.run_with(&over, &annotated.to_string()),
            "its own field only",
        ),
        (
            "the observer judges",
            observer_user.run_with(&over, &cleaned.to_string()),
            "its own field only",
        ),
        (
            "the observer reports a shutdown",
            create(&observer_user, &made("down", "node-1", "Shutdown")),
            "the observer losses",
        ),
        (
            "an administrator changes one",
            api.kubectl.run(&[
                "patch",
                "nodeepitaph",
                &known,
                "--type=merge",
                "-p",
                r#"{"report":{"verdict":"graceful"}}"#,
            ]),
            "ValidatingAdmissionPolicy",
        ),
    ] {
        let refused = format!("{:#}", result.expect_err(attempt));
        ensure!(refused.contains(why), "{attempt}: {refused}");
    }
    create(&agent, &made("node-2.0123456789abcdef", "node-2", "Shutdown"))?;

    // Nothing to complete, and nothing that needs it: counted, once nobody can expect the agent any more.
    observer.see(&removal("nobody", "web"));
    drop(observer);
    assert_eq!(seen.stats().get(EpitaphOutcome::Absent), 1, "{:?}", seen.stats());
    assert_eq!(seen.stats().get(EpitaphOutcome::Unneeded), 2, "{:?}", seen.stats());
    observing.shutdown(TIMEOUT).await;
    worker.shutdown(TIMEOUT).await;
    Ok(())
}
