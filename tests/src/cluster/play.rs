//! Plays one story on a running cluster, and waits for its traces and Events.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Map, Value, json};

use crate::cluster::beside::{differs_beside, differs_from_clients, is_beside};
use crate::cluster::clients::Clients;
use crate::cluster::images::VICTIM;
use crate::cluster::kubectl::Kubectl;
use crate::cluster::node::Node;
use crate::cluster::reported::{differs, differs_in_events, differs_in_place, has_span, outline, reported_twice, roots};
use crate::cluster::stories::{Act, From, NAMESPACE, Story};
use crate::cluster::{Cluster, deploy};
use crate::jaeger::Jaeger;
use crate::timeout::until_within;
use crate::traces::kind_of;

/// An emulated machine that starts many pods at once is slow.
const READY: Duration = Duration::from_secs(240);
/// The longest grace period of a story, and the time until the pod's status is final.
const OVER: Duration = Duration::from_secs(150);
/// How long clients call before the story goes on.
const CALLS: Duration = Duration::from_secs(3);
/// From the pod's termination to its trace: the agent waits for the last update of the pod's status.
const TO_REPORT: Duration = Duration::from_secs(90);
/// Time within which a second trace, or a late span, would arrive.
const SETTLED: Duration = Duration::from_secs(4);
/// Until an Event is posted, or a Lease taken over.
const SOON: Duration = Duration::from_secs(60);

pub struct Stage {
    pub cluster: Cluster,
    pub kubectl: Kubectl,
    pub jaeger: Jaeger,
}

impl Stage {
    /// The cluster that `cargo xtask cluster test` names, with the agent on it.
    ///
    /// # Errors
    /// There is no cluster, or it has no Jaeger.
    pub fn named() -> anyhow::Result<Stage> {
        let cluster = Cluster::named()?;
        let kubectl = cluster.control_plane()?.kubectl();
        let jaeger = cluster.jaeger()?.context("the cluster has no Jaeger")?;
        kubectl.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}).to_string())?;
        deploy::deploy(&cluster)?;
        Ok(Stage {
            cluster,
            kubectl,
            jaeger,
        })
    }

    /// The problem, if there is one: who reads no traces has the same verdict of the node from the custom resource. `trace`: its spans.
    ///
    /// # Errors
    /// The API server does not answer, or no object of that trace comes.
    pub fn node_epitaph(&self, event: &str, verdict: &str, trace: &[Value]) -> anyhow::Result<Option<String>> {
        let id = text(&trace.first().context("no span")?["traceID"]);
        let id = id.trim_start_matches('0');
        let report = until(TO_REPORT, &format!("the NodeEpitaph of the trace {id}"), || {
            let all = self.kubectl.json(&["get", "nodeepitaphs", "-o", "json"])?;
            let mut reports = all["items"].as_array().into_iter().flatten().map(|of| of["report"].clone());
            Ok(reports.find(|report| text(&report["traceId"]).trim_start_matches('0') == id))
        })?;
        let is_so = report["event"] == event && report["verdict"] == verdict;
        Ok((!is_so).then(|| format!("its NodeEpitaph is not {event} {verdict}: {report}")))
    }

    /// The differences between the agent's reports of `story` and the expected ones, a line each.
    ///
    /// # Errors
    /// The story could not be played.
    pub fn play(&self, story: &Story) -> anyhow::Result<Vec<String>> {
        self.clean_up(story)?;
        let Some(settings) = story.kubelet else {
            return self.play_here(story);
        };
        let settings: Map<String, Value> =
            serde_json::from_str(settings).with_context(|| format!("read the kubelet's settings {settings}"))?;
        let without: Map<String, Value> = settings.keys().map(|key| (key.clone(), Value::Null)).collect();
        self.configure_kubelets(&settings.into())?;
        let played = self.play_here(story);
        self.configure_kubelets(&without.into())?;
        played
    }

    /// Of every node: the scheduler chooses the pod's.
    fn configure_kubelets(&self, changes: &Value) -> anyhow::Result<()> {
        let nodes = self
            .kubectl
            .run(&["get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"])?;
        nodes
            .split_whitespace()
            .try_for_each(|node| self.cluster.node(node)?.configure_kubelet(changes))
    }

    fn play_here(&self, story: &Story) -> anyhow::Result<Vec<String>> {
        let manifests: Vec<Value> = (story.manifest)(story.name);
        self.apply(&manifests)?;
        let pod = until(READY, &format!("a pod of {}", story.name), || {
            Ok(self.pods(story.name)?.into_iter().next())
        })?;
        let pod = Pod {
            name: text(&pod["metadata"]["name"]),
            uid: text(&pod["metadata"]["uid"]),
            service: story.name.to_owned(),
        };
        if story.from == From::Ready {
            until(READY, &format!("{} to be ready", pod.name), || self.is_ready(&pod).map(Some))?;
        }
        let acted = story.acts.iter().try_for_each(|act| self.act(story, &pod, act));
        let found = acted.and_then(|()| self.reported(story, &pod));
        self.clean_up(story)?;
        found
    }

    fn act(&self, story: &Story, pod: &Pod, act: &Act) -> anyhow::Result<()> {
        let name = pod.name.as_str();
        match act {
            Act::Delete(grace) => {
                let grace = grace.map(|seconds| format!("--grace-period={seconds}"));
                let args: Vec<&str> = ["delete", "pod", name, "--namespace", NAMESPACE, "--wait=false"]
                    .into_iter()
                    .chain(grace.as_deref())
                    .collect();
                self.kubectl.run(&args).map(drop)
            }
            Act::ForceDelete => {
                let args = ["delete", "pod", name, "--namespace", NAMESPACE, "--force", "--grace-period=0"];
                self.kubectl.run(&args).map(drop)
            }
            Act::Evict(grace) => {
                let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction");
                let mut eviction = json!({
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": name, "namespace": NAMESPACE},
                });
                if let Some(grace) = grace {
                    eviction["deleteOptions"] = json!({"gracePeriodSeconds": grace});
                }
                self.kubectl
                    .run_with(&["create", "--raw", &path, "-f", "-"], &eviction.to_string())
                    .map(drop)
            }
            Act::Drain(grace) => {
                let node = self.node_of(pod)?;
                let grace = format!("--grace-period={grace}");
                let of_story = format!("--pod-selector=story={}", story.name);
                let drained = self
                    .kubectl
                    .run(&["drain", &node, &of_story, &grace, "--force", "--timeout=60s"]);
                self.kubectl.run(&["uncordon", &node])?;
                drained.map(drop)
            }
            Act::Taint => {
                let node = self.node_of(pod)?;
                self.kubectl
                    .run(&["taint", "node", &node, "epitaph.dev/story=taint:NoExecute", "--overwrite"])?;
                let gone = until(OVER, "the pod to leave the tainted node", || {
                    Ok(self.gone(pod)?.then_some(()))
                });
                self.kubectl.run(&["taint", "node", &node, "epitaph.dev/story:NoExecute-"])?;
                gone
            }
            Act::Apply(manifests) => self.apply(&manifests(story.name)),
            Act::Wait(time) => {
                // The subject is time: the story's own.
                sleep(*time);
                Ok(())
            }
            // A story that does not wait for a ready pod starts the pod within this time, too.
            Act::UntilOver => until(READY + OVER, "the phase Succeeded or Failed", || {
                let phase = self.pod(pod)?.map(|pod| text(&pod["status"]["phase"]));
                Ok(phase.filter(|phase| phase == "Succeeded" || phase == "Failed").map(drop))
            })
            .or_else(|error| {
                let status = self.pod(pod)?.map(|pod| pod["status"].clone());
                bail!("{error:#}; the pod's status: {}", status.unwrap_or_default())
            }),
            Act::UntilRestarted => until(READY + OVER, "a restart", || {
                let pod = self.pod(pod)?.context("the pod is gone")?;
                let restarts =
                    ["containerStatuses", "initContainerStatuses"].map(|of| pod["status"][of][0]["restartCount"].as_u64());
                Ok(restarts.into_iter().flatten().find(|&restarts| restarts > 0).map(drop))
            }),
            Act::UntilHeld(words) => {
                let is_its = |event: &Value| {
                    let of = &event["regarding"];
                    let is_held = event["reason"] == "TerminationHeld" && of["kind"] == "Pod" && of["uid"] == pod.uid.as_str();
                    is_held && text(&event["note"]).contains(words)
                };
                let held = until(OVER, &format!("the Event TerminationHeld with `{words}`"), || {
                    Ok(self.events()?.iter().any(is_its).then_some(()))
                });
                // Whether the Event came or not, the pod goes.
                let path = ["patch", "pod", name, "--namespace", NAMESPACE, "--type=merge", "--patch"];
                let none = [r#"{"metadata":{"finalizers":null}}"#];
                let freed = self.kubectl.run(&[&path[..], &none].concat());
                held.and(freed.map(drop))
            }
            Act::Debug => {
                let patch = json!({"spec": {"ephemeralContainers": [
                    {"name": "debugger", "image": VICTIM, "imagePullPolicy": "Never", "args": ["handle", "0"]},
                ]}})
                .to_string();
                let path = [
                    "patch",
                    "pod",
                    name,
                    "--namespace",
                    NAMESPACE,
                    "--subresource",
                    "ephemeralcontainers",
                ];
                let args = [&path[..], &["--type", "strategic", "--patch", &patch]].concat();
                self.kubectl.run(&args)?;
                until(READY, "the debugger to run", || {
                    let pod = self.pod(pod)?.context("the pod is gone")?;
                    let running = &pod["status"]["ephemeralContainerStatuses"][0]["state"]["running"];
                    Ok((!running.is_null()).then_some(()))
                })
            }
            Act::Remove(manifests) => {
                let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests(story.name)});
                let args = ["delete", "--ignore-not-found", "--timeout=60s", "-f", "-"];
                self.kubectl.run_with(&args, &list.to_string()).map(drop)
            }
            Act::Clients(options) => {
                Clients::of(self, story.name).call(story.name, options, json!({}))?;
                // The subject is time: how long they call while all is well.
                sleep(CALLS);
                Ok(())
            }
            Act::OnNode(script) => {
                let pid = self.main_pid(pod)?;
                let known = format!("PID={pid}\nPOD={}\n", pod.uid);
                self.node(pod)?.run(&(known + script)).map(drop)
            }
            Act::LackMemory(mebibytes) => {
                let node = self.node(pod)?;
                let available = available_kib(&node.run("cat /proc/meminfo")?)? >> 10;
                let threshold = format!("{}Mi", available + mebibytes);
                eprintln!(
                    "{}: {available} MiB are available, and the kubelet evicts below {threshold}",
                    story.name
                );
                node.configure_kubelet(&json!({"evictionHard": {"memory.available": threshold}}))
            }
            Act::KillAgent => self.restart_agent(pod, |agent| {
                let id = text(&agent["status"]["containerStatuses"][0]["containerID"]);
                let id = id.strip_prefix("containerd://").context("the agent has no container")?;
                self.node(pod)?
                    .run(&format!("ctr --namespace k8s.io tasks kill --signal SIGKILL {id}"))
                    .map(drop)
            }),
            Act::ReplaceAgent => self.restart_agent(pod, |agent| {
                let name = text(&agent["metadata"]["name"]);
                self.kubectl
                    .run(&["delete", "pod", &name, "--namespace", deploy::NAMESPACE])
                    .map(drop)
            }),
            Act::KillObserver => self.kill_observer(),
            Act::StopApiServer(time) => self.api_away(*time),
        }
    }

    pub(super) fn api_away(&self, time: Duration) -> anyhow::Result<()> {
        let mut plane = self.cluster.control_plane()?;
        plane.stop_api_server()?;
        // The subject is time: how long the API server is away.
        sleep(time);
        plane.start_api_server()
    }

    /// Reads the trace once it has come, and compares.
    fn reported(&self, story: &Story, pod: &Pod) -> anyhow::Result<Vec<String>> {
        let expected = &story.expected;
        if expected.root.is_empty() {
            until(OVER, "the pod to be gone", || Ok(self.gone(pod)?.then_some(())))?;
            // The subject is time: a trace, or an Event, would come within it.
            nothing_more_within(Duration::from_secs(25));
            let traces = self.traces(pod)?;
            let is_its = |event: &&Value| event["regarding"]["uid"] == pod.uid.as_str();
            let events = self.events()?.iter().filter(is_its).count();
            return Ok(if traces.is_empty() && events == 0 {
                Vec::new()
            } else {
                vec![format!("{} traces and {events} Events of a pod that opted out", traces.len())]
            });
        }
        let root = |trace: &Value| roots(trace).iter().any(|root| kind_of(root) == expected.root);
        // The observer's spans come later than the agent's: a replacement must be ready first.
        let of_beside = |trace: &Value| root(trace) && is_beside(expected.beside, trace);
        let whole = |trace: &Value| root(trace) && !of_beside(trace) && expected.spans.iter().all(|name| has_span(trace, name));
        let come = || {
            let traces = self.traces(pod)?;
            let beside = traces.iter().filter(|trace| of_beside(trace)).count();
            Ok((traces.iter().any(whole) && beside >= expected.beside.len()).then_some(()))
        };
        let waited = until(
            OVER + TO_REPORT,
            &format!(
                "a trace with {} and {:?}, and {} traces beside",
                expected.root,
                expected.spans,
                expected.beside.len()
            ),
            come,
        );
        if let Err(error) = waited
            && !self.traces(pod)?.iter().any(|trace| root(trace) && !of_beside(trace))
        {
            return Ok(vec![format!("{error:#}")]);
        }
        // The subject is time: a second trace would come within it.
        nothing_more_within(SETTLED);
        let (beside, others): (Vec<Value>, Vec<Value>) = self.traces(pod)?.into_iter().partition(of_beside);
        let (traces, others): (Vec<Value>, Vec<Value>) = others.into_iter().partition(root);
        let mut problems = differs_beside(expected.beside, &beside);
        if let Some(container) = expected.clients {
            let totals = Clients::of(self, story.name).end()?;
            problems.extend(differs_from_clients(container, &beside, &totals));
        }
        // A container that crashes again and again has a trace for each time.
        if expected.root == "pod.termination" {
            if traces.len() != 1 {
                problems.push(format!("{} traces with a root {}", traces.len(), expected.root));
            }
            problems.extend(reported_twice(expected, &others));
        }
        let first = traces.iter().min_by_key(|trace| trace["spans"][0]["startTime"].as_u64());
        let trace = first.context("the trace is gone again")?;
        problems.extend(differs(expected, trace, pod));
        if let Some(rule) = expected.replaced {
            problems.extend(differs_in_place(rule, trace, pod, &self.pods(story.name)?));
        }
        let mut of_events = vec!["the Events were not read".to_owned()];
        // Events are posted at the same time as the trace. Unwanted Events would have arrived by now.
        let _ = until(SOON, "the Events", || {
            of_events = differs_in_events(trace, &beside, pod, &self.events()?);
            Ok(of_events.is_empty().then_some(()))
        });
        problems.extend(of_events);
        if !problems.is_empty() {
            problems.push(outline(trace));
        }
        Ok(problems)
    }

    /// The Events that agents posted on the stories' pods and workloads.
    fn events(&self) -> anyhow::Result<Vec<Value>> {
        let field = "reportingController=epitaph.dev/agent";
        let args = [
            "get",
            "events.v1.events.k8s.io",
            "--namespace",
            NAMESPACE,
            "--field-selector",
            field,
            "-o",
            "json",
        ];
        let list = self.kubectl.json(&args)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Kills the active observer; waits until another, or the same one again, has the Lease.
    pub(super) fn kill_observer(&self) -> anyhow::Result<()> {
        let holder = || -> anyhow::Result<String> {
            let path = "jsonpath={.spec.holderIdentity}";
            self.kubectl.run(&[
                "get",
                "lease",
                "epitaph-observer",
                "--namespace",
                deploy::NAMESPACE,
                "-o",
                path,
            ])
        };
        let before = holder()?;
        let (pod, _) = before.split_once('_').context("no observer holds the Lease")?;
        let path = "jsonpath={.status.containerStatuses[0].containerID} {.spec.nodeName}";
        let found = self
            .kubectl
            .run(&["get", "pod", pod, "--namespace", deploy::NAMESPACE, "-o", path])?;
        let (id, node) = found
            .strip_prefix("containerd://")
            .and_then(|found| found.split_once(' '))
            .context("the observer has no container")?;
        self.cluster
            .node(node)?
            .run(&format!("ctr --namespace k8s.io tasks kill --signal SIGKILL {id}"))?;
        until(SOON, "another observer to be active", || {
            let now = holder()?;
            Ok((now != before && !now.is_empty()).then_some(()))
        })
    }

    fn traces(&self, pod: &Pod) -> anyhow::Result<Vec<Value>> {
        self.jaeger.traces_with("k8s.pod.uid", &pod.uid)
    }

    pub(super) fn apply(&self, manifests: &[Value]) -> anyhow::Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests});
        self.kubectl.apply(&list.to_string())
    }

    pub(super) fn pods(&self, story: &str) -> anyhow::Result<Vec<Value>> {
        let selector = format!("story={story}");
        let args = ["get", "pods", "--namespace", NAMESPACE, "--selector", &selector, "-o", "json"];
        let list = self.kubectl.json(&args)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// The pod as it is now; None if that pod is gone, even if another has its name.
    fn pod(&self, pod: &Pod) -> anyhow::Result<Option<Value>> {
        let args = [
            "get",
            "pod",
            &pod.name,
            "--namespace",
            NAMESPACE,
            "--ignore-not-found",
            "-o",
            "json",
        ];
        let answer = self.kubectl.run(&args)?;
        if answer.trim().is_empty() {
            return Ok(None);
        }
        let found: Value = serde_json::from_str(&answer)?;
        Ok((found["metadata"]["uid"] == pod.uid.as_str()).then_some(found))
    }

    fn gone(&self, pod: &Pod) -> anyhow::Result<bool> {
        Ok(self.pod(pod)?.is_none())
    }

    fn is_ready(&self, pod: &Pod) -> anyhow::Result<()> {
        let found = self.pod(pod)?.context("the pod is gone")?;
        let status = &found["status"];
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let ready = conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        ensure!(
            ready,
            "{}, {}, {}",
            status["phase"],
            status["conditions"],
            status["containerStatuses"]
        );
        Ok(())
    }

    fn node_of(&self, pod: &Pod) -> anyhow::Result<String> {
        let found = self.pod(pod)?.context("the pod is gone")?;
        Ok(text(&found["spec"]["nodeName"]))
    }

    fn node(&self, pod: &Pod) -> anyhow::Result<Node> {
        self.cluster.node(&self.node_of(pod)?)
    }

    /// Of container `app`, in the node's own pid namespace.
    fn main_pid(&self, pod: &Pod) -> anyhow::Result<u32> {
        let found = self.pod(pod)?.context("the pod is gone")?;
        let statuses = found["status"]["containerStatuses"].as_array().into_iter().flatten();
        let id = statuses
            .filter(|status| status["name"] == "app")
            .find_map(|status| status["containerID"].as_str()?.strip_prefix("containerd://"))
            .context("container app has no id yet")?;
        let tasks = self.node(pod)?.run("ctr --namespace k8s.io tasks ls")?;
        let line = tasks
            .lines()
            .find(|line| line.starts_with(id))
            .context("containerd has no task for the container")?;
        let pid = line.split_whitespace().nth(1).context("a task without a pid")?;
        pid.parse().with_context(|| format!("pid `{pid}`"))
    }

    /// Has `end` stop the agent on the pod's node, given the agent's own pod, and waits for the next agent to be ready.
    fn restart_agent(&self, pod: &Pod, end: impl FnOnce(&Value) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let node = self.node_of(pod)?;
        let field = format!("spec.nodeName={node}");
        let selector = ["--selector", "app.kubernetes.io/component=agent", "--field-selector", &field];
        let list = || -> anyhow::Result<Value> {
            let args = [
                &["get", "pods", "--namespace", deploy::NAMESPACE, "-o", "json"][..],
                &selector,
            ]
            .concat();
            Ok(self.kubectl.json(&args)?["items"][0].clone())
        };
        let status = |agent: &Value| agent["status"]["containerStatuses"][0].clone();
        let agent = list()?;
        let before = status(&agent);
        end(&agent)?;
        until(READY, "the agent to be back", || {
            let now = status(&list()?);
            let again = now["containerID"] != before["containerID"] && now["ready"] == true;
            Ok(again.then_some(()))
        })
    }

    /// Removes what a story left: its manifests, and the pods made from them.
    fn clean_up(&self, story: &Story) -> anyhow::Result<()> {
        let selector = format!("story={}", story.name);
        // A policy of the story's may keep its pod, and its pod the claim.
        let policies = "validatingadmissionpolicybindings,validatingadmissionpolicies";
        let workloads = format!("{policies},deployments,statefulsets,daemonsets,jobs,services");
        for kinds in [workloads.as_str(), "pods", "persistentvolumeclaims,persistentvolumes"] {
            let args = ["delete", kinds, "--namespace", NAMESPACE, "--selector", &selector];
            let how = ["--ignore-not-found", "--wait=true", "--timeout=120s", "--grace-period=1"];
            self.kubectl.run(&[&args[..], &how].concat())?;
        }
        for other in ["killer", "by", "clients"] {
            let name = format!("{}-{other}", story.name);
            let args = [
                "delete",
                "pod",
                &name,
                "--namespace",
                NAMESPACE,
                "--ignore-not-found",
                "--grace-period=1",
            ];
            self.kubectl.run(&args)?;
        }
        Ok(())
    }
}

/// What a kubelet takes for available on a node of cgroup v2, of /proc/meminfo.
fn available_kib(meminfo: &str) -> anyhow::Result<u64> {
    let of = |name: &str| -> anyhow::Result<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let word = line.and_then(|line| line.split_whitespace().next());
        let word = word.with_context(|| format!("/proc/meminfo has no {name}: {meminfo}"))?;
        word.parse().with_context(|| format!("read {name}: {word}"))
    };
    Ok(of("MemFree")? + of("Inactive(file)")?)
}

pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
    /// `service.name` of its traces, and its workload's name and its Service's where it has them.
    pub(super) service: String,
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Traces and Events that must not come: no marker passes through the Jaeger behind them within a story's time.
pub(super) fn nothing_more_within(time: Duration) {
    // The subject is time: that of each call.
    sleep(time);
}

/// Repeats the question until there is an answer. The API server may be unreachable for a moment.
pub(super) fn until<T>(timeout: Duration, what: &str, mut ask: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    until_within(timeout, what, || {
        Ok(match ask() {
            Ok(answer) => answer.ok_or_else(|| "no answer".to_owned()),
            Err(error) => Err(format!("{error:#}")),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_and_inactive_files_are_available() {
        let meminfo =
            "MemTotal:  3000 kB\nMemFree:  1000 kB\nInactive:  700 kB\nInactive(anon):  200 kB\nInactive(file):  500 kB\n";
        assert_eq!(available_kib(meminfo).unwrap(), 1500);
        assert!(available_kib("MemFree: 1000 kB\n").is_err());
    }

    #[test]
    fn settings_of_kubelets_are_objects() {
        for story in crate::cluster::stories::stories() {
            let Some(settings) = story.kubelet else { continue };
            assert!(
                serde_json::from_str::<Map<String, Value>>(settings).is_ok(),
                "{}: {settings}",
                story.name
            );
            assert!(story.alone, "{} changes the kubelets of others", story.name);
        }
    }
}
