use expect_test::expect;

use super::fit::{OBSERVERS, bytes, cut, word};
use super::make::{NAME, SHORT_NAME};
use super::*;
use super::{EpitaphEndpoint, EpitaphLoss, EpitaphObserved, EpitaphPod, EpitaphReplacement, Observed};
use crate::fixtures::pods::{self, context, in_pod};
use crate::fixtures::shutdowns;
use crate::fixtures::terminations::{clean, ignored, observation};
use crate::ids::ContainerId;
use crate::pod::ContainerKind;
use crate::report::{NodeShutdown, PodTermination, Report, Termination};
use crate::text::escape;

fn of_pod(p: PodTermination) -> Option<Epitaph> {
    of(&Report::PodTerminated(Box::new(p)), &observation())
}

fn of_container(t: Termination) -> Option<Epitaph> {
    of(&Report::Terminated(Box::new(t)), &observation())
}

/// A container of a pod that lives on, with an id of its own.
fn restart(n: u64) -> Termination {
    let mut t = pods::restarted(n);
    if let crate::attribute::Subject::Container { id, .. } = &mut t.facts.subject {
        *id = ContainerId(format!("{n:064x}").chars().rev().collect::<String>().into());
    }
    t.facts.end.0 += n * 1_000_000_000;
    t
}

#[test]
fn a_pod_s_termination_is_one_object() {
    let epitaph = of_pod(pods::pod(1)).expect("a pod's");
    let object = serde_json::to_string_pretty(&epitaph.object()).expect("JSON");
    expect![[r#"
        {
          "apiVersion": "epitaph.dev/v1alpha1",
          "kind": "Epitaph",
          "metadata": {
            "labels": {
              "epitaph.dev/node": "node-7",
              "epitaph.dev/revision": "7d9f8b6c5",
              "epitaph.dev/unclean": "true",
              "epitaph.dev/verdict": "ignored-stop-signal",
              "epitaph.dev/workload": "cart",
              "epitaph.dev/workload-kind": "Deployment"
            },
            "name": "cart-7d9f8b6c5-x2x4z.bdf1be6054bc48de",
            "namespace": "shop"
          },
          "report": {
            "advice": [
              {
                "container": "app",
                "kind": "accept-while-draining"
              }
            ],
            "cause": "deleted",
            "connections": {
              "accepted": 2,
              "atLeast": true,
              "cut": 3,
              "lost": 18,
              "refused": 14,
              "refusedNewPeers": 0,
              "rejected": 2,
              "reset": 1,
              "undecided": 4
            },
            "container": "app",
            "containers": [
              {
                "cause": "deleted",
                "exitSignal": "SIGKILL",
                "exited": "2023-11-14T23:37:10.002Z",
                "id": "000000000000",
                "killed": "2023-11-14T23:37:10.000Z",
                "kind": "main",
                "lost": 18,
                "name": "app",
                "preStop": "exec /bin/drain",
                "stopSignal": "2023-11-14T23:36:40.000Z",
                "verdict": "ignored-stop-signal"
              },
              {
                "cause": "deleted",
                "exitCode": 0,
                "exited": "2023-11-14T23:37:10.260Z",
                "id": "000000000000",
                "kind": "sidecar",
                "lost": 0,
                "name": "proxy",
                "stopSignal": "2023-11-14T23:37:10.010Z",
                "verdict": "clean"
              }
            ],
            "exit": "ignored-stop-signal",
            "exitSignal": "SIGKILL",
            "gaps": [
              "the Kubernetes API did not answer for 4.0 s",
              "the exit of container init was not observed"
            ],
            "graceSeconds": 30,
            "node": "node-7",
            "owner": {
              "kind": "Deployment",
              "name": "cart",
              "revision": "7d9f8b6c5",
              "uid": "6a1d0a86-1f0d-4a0b-8d6e-000000000001"
            },
            "pod": {
              "name": "cart-7d9f8b6c5-x2x4z",
              "uid": "0f9c2c1e-6f0b-4a53-9a4e-1f2a3b4c5d6e"
            },
            "remedy": "use `exec` in the shell that starts the server, so that the server is PID 1",
            "sentence": "container `app`: `sh` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 30.0 s later",
            "specGraceSeconds": 30,
            "stopSignal": "SIGTERM",
            "terminated": "Pod",
            "times": {
              "exited": "2023-11-14T23:37:10.260Z",
              "killed": "2023-11-14T23:37:10.000Z",
              "requested": "2023-11-14T23:36:37.600Z",
              "stopSignal": "2023-11-14T23:36:40.000Z"
            },
            "took": "32.7s",
            "traceId": "f413a7a4e46d1258ed4927cd46f8b039",
            "traffic": "cut",
            "unclean": true,
            "verdict": "ignored-stop-signal"
          }
        }"#]].assert_eq(&object);
}

#[test]
fn a_restart_of_the_agent_writes_the_same_name() {
    let [first, again] = [1, 1].map(|n| of_pod(pods::pod(n)).expect("a pod's").name());
    assert_eq!(first, again);
    let container = of_container(restart(3)).expect("a container's");
    assert_eq!(first, container.name(), "the pod has one, also while it lives on");
    let mut other = pods::pod(1);
    let mut identity = (*other.facts.pod).clone();
    identity.uid = crate::ids::PodUid("another".into());
    other.facts.pod = identity.into();
    assert_ne!(
        first,
        of_pod(other).expect("a pod's").name(),
        "a StatefulSet's pod of the same name"
    );
}

#[test]
fn what_is_not_a_termination_of_a_pod_has_none() {
    assert_eq!(of_container(ignored(1)), None, "no pod is known");
    let mut opted_out = context("app", ContainerKind::Main);
    opted_out.options.ignore = true;
    assert_eq!(of_container(in_pod(ignored(1), opted_out.clone())), None);
    let mut pod = pods::pod(1);
    pod.containers[0] = in_pod(ignored(1), opted_out);
    assert_eq!(of_pod(pod), None);
    let init = |t| of_container(in_pod(t, context("init", ContainerKind::Init)));
    assert_eq!(init(clean(1)), None, "a part of the pod's start");
    assert!(init(ignored(1)).is_some());
}

#[test]
fn the_last_ten_container_terminations_are_kept_once_each() {
    let mut epitaph = of_container(restart(1)).expect("a container's");
    for n in [2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] {
        epitaph = of_container(restart(n)).expect("a container's").after(&epitaph.report);
    }
    let kept: Vec<&str> = epitaph.report.containers.iter().map(|of| of.id.as_str()).collect();
    let expected: Vec<String> = (3..=12_u64)
        .map(|n| format!("{n:064x}").chars().rev().take(12).collect())
        .collect();
    assert_eq!(kept, expected);
    assert!(bytes(&epitaph.object()) <= MOST_BYTES);

    let pod = of_pod(pods::pod(20)).expect("a pod's").after(&epitaph.report);
    assert_eq!(pod.report.terminated, POD);
    // The latest of them: the observer's field has its place, too.
    let of_pod: Vec<&str> = pod.report.containers.iter().map(|of| of.id.as_str()).collect();
    assert!((4..TERMINATIONS).contains(&of_pod.len()), "{of_pod:?}");
    let earlier = of_pod.iter().take_while(|id| kept.contains(id)).count();
    assert!(earlier >= 3 && kept.ends_with(&of_pod[..earlier]), "{of_pod:?}");
    assert!(bytes(&pod.object()) <= MOST_BYTES - OBSERVERS);
    // A container that is reported after its pod does not replace the pod's verdict.
    let late = of_container(restart(30)).expect("a container's").after(&pod.report);
    assert_eq!(late.report.terminated, POD);
    assert_eq!(late.report.containers.last().map(|of| of.id.len()), Some(12));
}

#[test]
fn connections_that_nobody_observed_are_not_zero() {
    let mut pod = pods::pod(1);
    pod.verdict.traffic = crate::verdict::TrafficAxis::Unknown;
    for t in &mut pod.containers {
        t.facts.traffic = crate::termination::Traffic::default();
    }
    assert_eq!(of_pod(pod.clone()).expect("a pod's").report.connections, None);
    pod.containers[0].facts.traffic.observed = true;
    let connections = of_pod(pod).expect("a pod's").report.connections.expect("observed in part");
    assert_eq!((connections.lost, connections.at_least), (None, Some(true)));
}

/// What was seen counts, also where more may have been missed: of the first container sockets were seen only in part, of the other one all.
#[test]
fn losses_that_were_seen_in_part_are_the_least() {
    let mut pod = pods::pod(1);
    pod.facts.unseen.clear();
    for t in &mut pod.containers {
        t.facts.traffic = crate::termination::Traffic {
            observed: true,
            ..crate::termination::Traffic::default()
        };
    }
    pod.verdict.traffic = crate::verdict::TrafficAxis::Quiet;
    let lost = |pod: &PodTermination| {
        let of = of_pod(pod.clone())
            .expect("a pod's")
            .report
            .connections
            .expect("some were observed");
        (of.lost, of.at_least.is_some())
    };
    assert_eq!(lost(&pod), (Some(0), false));
    pod.containers[0].facts.traffic.observed = false;
    pod.containers[0].facts.traffic.cut.count = 5;
    pod.verdict.traffic = crate::verdict::TrafficAxis::Cut;
    assert_eq!(lost(&pod), (Some(5), true));
    // An undecided connection outweighs unobserved sockets in the verdict: that none was lost is not known all the same.
    pod.containers[0].facts.traffic.cut.count = 0;
    pod.containers[1].facts.traffic.undecided.all.count = 1;
    pod.verdict.traffic = crate::verdict::TrafficAxis::Undecided;
    assert_eq!(lost(&pod), (None, true));
    pod.containers[0].facts.traffic.observed = true;
    assert_eq!(lost(&pod), (Some(0), false));
    pod.containers[0].facts.traffic.unseen.other_sockets = true;
    assert_eq!(lost(&pod), (None, true));
}

#[test]
fn losses_of_a_shutdown_of_which_some_pods_are_not_known_are_the_least() {
    let mut shutdown = shutdowns::lossy();
    for pod in &mut shutdown.facts.pods {
        pod.loss.is_least = false;
    }
    let lost = |shutdown: &NodeShutdown| {
        let of = NodeEpitaph::of_shutdown(shutdown, "node-7").report;
        (of.lost_connections, of.lost_connections_at_least)
    };
    assert_eq!(lost(&shutdown), (Some(12), None));
    shutdown.facts.gaps.pods = true;
    assert_eq!(lost(&shutdown), (Some(12), Some(true)));
}

/// Whatever is in the names, the object is small, and its text safe on a terminal.
#[test]
fn an_object_has_at_most_four_kibibytes_and_no_control_character() {
    let long = |c: &str| c.repeat(5000 / c.len());
    for text in ["\u{1b}[31m<b>&\"\\", "\u{202e}", "é", "n", "\"", "\\", "\u{1f480}"].map(long) {
        let mut pod = pods::hostile(&text);
        for n in 0..20 {
            pod.containers.push(pods::hostile(&text).containers[n % 2].clone());
        }
        pod.verdict.sentence = text.clone();
        pod.verdict.remedy = Some(text.clone());
        let mut identity = (*pod.facts.pod).clone();
        identity.uid = crate::ids::PodUid(text.as_str().into());
        identity.revision = Some(text.as_str().into());
        pod.facts.pod = identity.into();
        let epitaph = of_pod(pod).expect("a pod's");
        for object in [epitaph.object(), epitaph.patch(Some("18446744073709551615"))] {
            assert!(
                bytes(&object) <= MOST_BYTES - OBSERVERS,
                "{} bytes of {object}",
                bytes(&object)
            );
        }
        let shown = epitaph.report.sentence.clone() + &epitaph.report.pod.name;
        assert!(shown.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{shown}");
        assert!(epitaph.report.sentence.len() > 100, "the sentence is kept");
    }
}

/// The agent and the observer write apart, and neither knows what the other wrote.
#[test]
fn the_observers_field_fits_beside_the_agents() {
    let long = |c: &str| c.repeat(5000 / c.len());
    for text in ["\u{1b}[31m<b>&\"\\", "é", "n", "\u{1f480}"].map(long) {
        let at = "2026-11-30T01:02:03.123456789Z".to_owned();
        let endpoint = |n: usize| EpitaphEndpoint {
            service: word(&format!("{n}{text}"), SHORT_NAME),
            begin: at.clone(),
            removed: at.clone(),
            took: "1000.0 s".to_owned(),
            ready_until: Some(at.clone()),
        };
        let lost = Observed {
            namespace: "shop".to_owned(),
            pod: EpitaphPod::default(),
            observed: EpitaphObserved {
                replacement: Some(EpitaphReplacement {
                    pod: word(&text, NAME),
                    node: word(&text, NAME),
                    created: at.clone(),
                    ready: Some(at.clone()),
                }),
                endpoints: (0..8).map(endpoint).collect(),
                loss: Some(EpitaphLoss {
                    verdict: "duplicate-run".to_owned(),
                    sentence: cut(&escape(&text), 512),
                    remedy: Some(cut(&escape(&text), 512)),
                    trace_id: "0123456789abcdef0123456789abcdef".to_owned(),
                }),
            },
            is_notable: true,
        };
        let written = lost.patch()["observed"].take();
        assert!(bytes(&written) <= OBSERVERS, "{} bytes of {written}", bytes(&written));
        assert!(
            written["loss"]["sentence"].as_str().is_some_and(|of| of.len() > 60),
            "{written}"
        );
        assert_eq!(written["loss"]["verdict"], "duplicate-run");
        let usual = Observed {
            observed: EpitaphObserved {
                endpoints: vec![endpoint(1), endpoint(2)],
                ..EpitaphObserved::default()
            },
            ..lost
        };
        let written = usual.patch()["observed"].take();
        assert_eq!(written["endpoints"].as_array().map(Vec::len), Some(2), "{written}");
    }
}

#[test]
fn labels_are_valid_and_names_with_one_begin_stay_apart() {
    let valid = |value: &str| {
        value.len() <= 63
            && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
            && !value.starts_with(['-', '_', '.'])
            && !value.ends_with(['-', '_', '.'])
    };
    let long = "web.".repeat(40);
    for name in ["web", "", "-web-", "a/b", "é", "...", &long, &format!("{long}2")] {
        assert!(valid(&label_value(name)), "{name}: {}", label_value(name));
    }
    assert_eq!(label_value("node-7.example"), "node-7.example");
    assert_ne!(label_value(&long), label_value(&format!("{long}2")));
}

#[test]
fn a_patch_removes_what_an_earlier_report_had() {
    let mut pod = pods::pod(1);
    pod.verdict.remedy = None;
    let epitaph = of_pod(pod).expect("a pod's");
    let patch = epitaph.patch(Some("7"));
    assert!(patch["report"]["remedy"].is_null() && patch["report"].get("remedy").is_some());
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    // Lists are replaced, so null would stay.
    assert!(!patch["report"]["containers"].to_string().contains("null"));
    assert!(!epitaph.object().to_string().contains("null"));
}
