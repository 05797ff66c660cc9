//! Observers on a real API server, with the rights of their manifest: slices and pods are written as the controllers write them,
//! and the spans are read back from a real Jaeger.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use epitaph_core::ids::PodUid;
use epitaph_core::render::id;
use epitaph_core::shutdown::ShutdownKey;
use epitaph_core::time::Wall;
use epitaph_tests::agent::program;
use epitaph_tests::cluster::Tools;
use epitaph_tests::cluster::control_plane::ControlPlane;
use epitaph_tests::cluster::deploy::as_observer;
use epitaph_tests::cluster::kubectl::Kubectl;
use epitaph_tests::epitaph::Epitaph;
use epitaph_tests::http::get;
use epitaph_tests::jaeger::{self, Jaeger};
use epitaph_tests::service::Service;
use epitaph_tests::skip::skip;
use epitaph_tests::sys::wall_seconds;
use epitaph_tests::timeout::{TO_END, holds, until, until_within};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Seconds are enough on an idle machine; the rest is for a loaded one.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Longer than by default: a loaded machine that renews the Lease late makes no turn more.
const ELECTION: [&str; 4] = ["--set", "observer.lease_duration=30s", "--set", "observer.renew_deadline=25s"];

/// Those of the pods, and the one that the observers' manifest needs.
const NAMESPACES: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: private, annotations: {epitaph.dev/ignore: 'true'}}
---
apiVersion: v1
kind: Namespace
metadata: {name: epitaph}
";

struct Stage {
    plane: ControlPlane,
    kubectl: Kubectl,
    jaeger: Jaeger,
    epitaph: Epitaph,
    kubeconfig: PathBuf,
    directory: TempDir,
}

impl Stage {
    /// None, logged as a skip, where the test of that name cannot run.
    fn set(test: &str) -> anyhow::Result<Option<Stage>> {
        let Some(tools) = Tools::named()? else {
            skip(
                test,
                "EPITAPH_CLUSTER_TOOLS names no kube-apiserver; `cargo xtask test` builds one",
            );
            return Ok(None);
        };
        let Some(jaeger) = jaeger::named(test) else { return Ok(None) };
        let directory = tempfile::tempdir()?;
        let jaeger = Jaeger::start(&jaeger, &directory.path().join("jaeger.log"))?;
        let plane = ControlPlane::api_only(&tools, &directory.path().join("plane"))?;
        let kubectl = plane.kubectl();
        kubectl.apply(NAMESPACES)?;
        let kubeconfig = as_observer(&plane)?;
        let binaries = Path::new(env!("CARGO_BIN_EXE_victim")).parent().context("no directory")?;
        let copy = directory.path().join("bin");
        std::fs::create_dir(&copy)?;
        Ok(Some(Stage {
            kubeconfig,
            epitaph: Epitaph::copied(&program(binaries), &copy)?,
            plane,
            kubectl,
            jaeger,
            directory,
        }))
    }

    fn observer(&self, more: &[&str]) -> anyhow::Result<Service> {
        let otlp = format!("http://127.0.0.1:{}", self.jaeger.ports().otlp_grpc);
        let kubeconfig = self.kubeconfig.to_str().context("a path of ours is text")?;
        let mut args = vec!["--kubeconfig", kubeconfig, "--otlp", &otlp, "--otlp-protocol", "grpc"];
        args.extend(["--set", "observer.namespace=epitaph", "--log", "info,epitaph=debug"]);
        args.extend(ELECTION);
        args.extend(more);
        Service::of("observer", &self.epitaph, self.directory.path(), &args)
    }

    /// A pod of this ReplicaSet (or another kind) on a node: its UID.
    fn pod(&self, namespace: &str, name: &str, owner: (&str, &str)) -> anyhow::Result<String> {
        let (kind, of) = owner;
        let api_version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
        let reference =
            json!({"apiVersion": api_version, "kind": kind, "name": of, "uid": format!("uid-{of}"), "controller": true});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [reference]},
            "spec": {"nodeName": "node-1", "containers": [{"name": "app", "image": "app"}]},
        });
        self.kubectl.run_with(&["create", "-f", "-"], &pod.to_string())?;
        let created = self.kubectl.json(&["-n", namespace, "get", "pod", name, "-o", "json"])?;
        Ok(created["metadata"]["uid"].as_str().context("no UID")?.to_owned())
    }

    fn runs(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let status = json!({"status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "app", "image": "app", "imageID": "", "ready": true, "restartCount": 0,
                "containerID": format!("containerd://{:064x}", 7), "state": {"running": {}},
            }],
        }});
        let patch = [
            "-n",
            namespace,
            "patch",
            "pod",
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
        ];
        self.kubectl.run(&[&patch[..], &[&status.to_string()]].concat()).map(drop)
    }

    /// The Service's slice, with these pods: name, UID, ready, serving, terminating.
    fn slice(&self, namespace: &str, service: &str, pods: &[(&str, &str, [bool; 3])]) -> anyhow::Result<()> {
        let endpoint = |(name, uid, [ready, serving, terminating]): &(&str, &str, [bool; 3])| {
            json!({
                "addresses": ["10.0.0.1"],
                "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
                "targetRef": {"kind": "Pod", "namespace": namespace, "name": name, "uid": uid},
            })
        };
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{service}-1"), "namespace": namespace,
                "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
        });
        self.kubectl.apply(&slice.to_string())
    }

    /// The request; the object stays until the kubelet's second one.
    fn delete(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        self.kubectl
            .run(&["-n", namespace, "delete", "pod", name, "--wait=false"])
            .map(drop)
    }

    fn gone(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let args = ["-n", namespace, "delete", "pod", name, "--grace-period=0", "--force"];
        self.kubectl.run(&args).map(drop)
    }

    /// A pod of a ReplicaSet leaves its Service and is replaced, as it happens in a cluster: its UID and the other's.
    fn roll(&self, namespace: &str, service: &str, old: &str, new: &str) -> anyhow::Result<(String, String)> {
        let owner = ("ReplicaSet", service);
        let uid = self.pod(namespace, old, owner)?;
        self.runs(namespace, old)?;
        self.slice(namespace, service, &[(old, &uid, READY)])?;
        self.delete(namespace, old)?;
        self.slice(namespace, service, &[(old, &uid, TERMINATING)])?;
        let by = self.pod(namespace, new, owner)?;
        self.slice(namespace, service, &[(old, &uid, [false, false, true])])?;
        self.slice(namespace, service, &[])?;
        self.gone(namespace, old)?;
        self.runs(namespace, new)?;
        Ok((uid, by))
    }

    /// The spans of a pod's trace once there are so many.
    fn spans(&self, uid: &str, count: usize) -> anyhow::Result<Vec<Value>> {
        let mut last = Vec::new();
        let _ = until_within(TIMEOUT, "the spans", || {
            last = self.spans_now(uid)?;
            Ok(holds(last.len() >= count, || format!("{} spans", last.len())))
        });
        Ok(last)
    }

    /// One look: for what must not be there, after what comes behind it is.
    fn spans_now(&self, uid: &str) -> anyhow::Result<Vec<Value>> {
        let trace = id::pod_trace_id(&PodUid(uid.into()), None).to_string();
        match self.jaeger.trace(&trace)? {
            Some(trace) => Ok(trace["spans"].as_array().context("no spans")?.clone()),
            None => Ok(Vec::new()),
        }
    }

    /// Turns by the Lease.
    fn transitions(&self) -> anyhow::Result<u64> {
        let args = ["-n", "epitaph", "get", "lease", "epitaph-observer", "-o", "json"];
        let lease = self.kubectl.json(&args)?;
        let count = lease["spec"]["leaseTransitions"].as_u64();
        count.with_context(|| format!("no transitions: {lease:#}"))
    }
}

const READY: [bool; 3] = [true, true, false];
const TERMINATING: [bool; 3] = [false, true, true];

fn role(observer: &Service) -> anyhow::Result<String> {
    let (_, body) = get(observer.port, "/readyz")?;
    let ready: Value = serde_json::from_str(&body)?;
    Ok(ready["role"].as_str().context("no role")?.to_owned())
}

/// Waits until it is active and synced, and the API server's clock is measured.
fn until_active(observer: &Service) -> anyhow::Result<()> {
    until("the observer to be active", || {
        let clock = observer.metric("epitaph_kubernetes_clock_ahead_seconds", &[]);
        let (role, ready) = (role(observer)?, get(observer.port, "/readyz")?.0);
        let is_so = role == "active" && ready == 200 && clock.is_ok();
        Ok(holds(is_so, || {
            format!("{role}, {ready}, {clock:?}; its log: {}", observer.log())
        }))
    })
}

/// How often it has begun to watch the cluster.
fn turns(observer: &Service) -> u64 {
    observer.log().matches("active: watching the cluster").count() as u64
}

fn until_logged(observer: &Service, text: &str) -> anyhow::Result<()> {
    until(&format!("`{text}` to be logged"), || {
        let log = observer.log();
        Ok(holds(log.contains(text), || log.clone()))
    })
}

fn tag<'a>(span: &'a Value, key: &str) -> &'a Value {
    let mut tags = span["tags"].as_array().into_iter().flatten();
    tags.find(|tag| tag["key"] == key).map_or(&Value::Null, |tag| &tag["value"])
}

fn named<'a>(spans: &'a [Value], name: &str) -> anyhow::Result<&'a Value> {
    let found: Vec<_> = spans.iter().filter(|span| span["operationName"] == name).collect();
    ensure!(found.len() == 1, "{} spans {name} in {spans:#?}", found.len());
    Ok(found[0])
}

/// Breaks of its watches, and stalls of its process: it reports a gap for nothing else.
fn interruptions(observer: &Service) -> anyhow::Result<f64> {
    Ok(observer.metric("epitaph_observer_watch_breaks_total", &[])? + observer.metric("epitaph_observer_stalls_total", &[])?)
}

fn check(stage: &Stage, observer: &Service, (uid, by): &(String, String), service: &str) -> anyhow::Result<()> {
    let spans = stage.spans(uid, 2)?;
    assert_eq!(spans.len(), 2, "{spans:#?}");
    let removal = named(&spans, "endpoint.removal")?;
    assert_eq!(tag(removal, "k8s.service.name"), service);
    assert_eq!(tag(removal, "epitaph.endpoint.all_terminating"), true);
    // A young API server may end a watch early, and a loaded machine may stall the observer.
    if interruptions(observer)? == 0.0 {
        assert!(tag(removal, "epitaph.watch.gap").is_null(), "{removal:#}");
    }
    let logs: Vec<_> = removal["logs"].as_array().into_iter().flatten().collect();
    let events: Vec<_> = logs
        .iter()
        .map(|log| log["fields"][0]["value"].as_str().unwrap_or_default())
        .collect();
    let expected = [
        "endpoint.terminating",
        "endpoint.not_ready",
        "service.all_terminating",
        "endpoint.not_serving",
        "endpoint.gone",
    ];
    assert_eq!(events, expected);
    let replacement = named(&spans, "replacement")?;
    assert_eq!(tag(replacement, "epitaph.replacement.pod.uid"), by.as_str());
    assert_eq!(tag(replacement, "epitaph.replacement.rule"), "next-of-replica-set");
    assert_eq!(tag(replacement, "epitaph.replacement.ready"), true);
    // Both hang below the root, which the agent exports.
    let trace = id::pod_trace_id(&PodUid(uid.as_str().into()), None);
    for span in [removal, replacement] {
        assert_eq!(span["references"][0]["spanID"], id::pod_root(trace).to_string());
        // The API server runs on this machine: both use the same clock.
        let ahead = |bound: &str| tag(span, &format!("epitaph.api_clock.ahead.{bound}")).as_f64();
        let (least, most) = ahead("least").zip(ahead("most")).context("no clock")?;
        ensure!(least <= 0.0 && most >= 0.0, "{least}..{most}");
    }
    Ok(())
}

#[test]
fn observers_take_turns_and_export_everything_once() -> anyhow::Result<()> {
    let Some(mut stage) = Stage::set("observers_take_turns_and_export_everything_once")? else {
        return Ok(());
    };
    let mut first = stage.observer(&[])?;
    until_active(&first)?;
    let mut second = stage.observer(&[])?;
    until("the second observer to be a standby", || {
        let role = role(&second)?;
        Ok(holds(role == "standby", || format!("{role}; its log: {}", second.log())))
    })?;
    assert_eq!(get(second.port, "/readyz")?.0, 200, "a standby is ready");

    let rolled = stage.roll("shop", "web", "web-a", "web-b")?;
    check(&stage, &first, &rolled, "web")?;
    first.until("epitaph_observer_spans_total", &[], 2.0)?;
    assert_eq!(first.metric("epitaph_observer_active", &[])?, 1.0);
    assert_eq!(second.metric("epitaph_observer_active", &[])?, 0.0);

    // At SIGTERM it releases the Lease.
    let mut exported = first.metric("epitaph_observer_spans_total", &[])?;
    assert!(first.end(TO_END)?.success(), "{}", first.log());
    assert!(first.log().contains("the Lease is free"), "{}", first.log());
    until_active(&second)?;
    // The Lease of the manifest has no holder: the first observer's turn counts, too. Each turn is in a log: a machine that stands still for
    // longer than the Lease makes one more.
    let in_logs = |observers: &[&Service]| observers.iter().map(|observer| turns(observer)).sum::<u64>();
    let counted = stage.transitions()?;
    assert!(
        (2..=in_logs(&[&first, &second])).contains(&counted),
        "{counted}: {}",
        second.log()
    );
    let rolled_again = stage.roll("shop", "web", "web-c", "web-d")?;
    check(&stage, &second, &rolled_again, "web")?;
    // The spans of the first one are not exported again.
    assert_eq!(stage.spans(&rolled.0, 2)?.len(), 2);

    // The API server restarts in between: changes in that time are reported with their gap.
    let uid = stage.pod("shop", "web-e", ("ReplicaSet", "web"))?;
    stage.runs("shop", "web-e")?;
    stage.slice("shop", "web", &[("web-e", &uid, READY)])?;
    second.until("epitaph_observer_known", &["object=\"endpoints\""], 1.0)?;
    stage.plane.stop_api_server()?;
    second.until("epitaph_observer_watch_breaks_total", &["watch=\"endpointslices\""], 1.0)?;
    let refused = ["resource=\"endpointslices\"", "reason=\"connection\""];
    second.until("epitaph_kubernetes_failures_total", &refused, 1.0)?;
    stage.plane.start_api_server()?;
    stage.delete("shop", "web-e")?;
    stage.slice("shop", "web", &[("web-e", &uid, TERMINATING)])?;
    stage.slice("shop", "web", &[])?;
    stage.gone("shop", "web-e")?;
    let spans = stage.spans(&uid, 1)?;
    assert_eq!(
        tag(named(&spans, "endpoint.removal")?, "k8s.service.name"),
        "web",
        "{}",
        second.log()
    );

    // An observer is killed between a pod's terminating and its gone, the replacement created and not ready. It releases nothing:
    // the next one waits until the Lease expires.
    let left = stage.pod("shop", "edge-a", ("ReplicaSet", "edge"))?;
    stage.runs("shop", "edge-a")?;
    stage.slice("shop", "edge", &[("edge-a", &left, READY)])?;
    stage.delete("shop", "edge-a")?;
    stage.slice("shop", "edge", &[("edge-a", &left, TERMINATING)])?;
    stage.pod("shop", "edge-b", ("ReplicaSet", "edge"))?;
    // Reported by the same watches after all that: edge-a was seen.
    let rolled_meanwhile = stage.roll("shop", "api", "api-a", "api-b")?;
    check(&stage, &second, &rolled_meanwhile, "api")?;
    exported += second.metric("epitaph_observer_spans_total", &[])?;
    second.kill()?;
    let mut third = stage.observer(&[])?;
    until_active(&third)?;
    let (before, counted) = (counted, stage.transitions()?);
    let logged = in_logs(&[&first, &second, &third]);
    assert!(
        (before + 1..=logged).contains(&counted),
        "{counted}, {logged} logged: {}",
        third.log()
    );
    stage.slice("shop", "edge", &[])?;
    stage.gone("shop", "edge-a")?;
    stage.runs("shop", "edge-b")?;
    third.until("epitaph_observer_dropped_total", &["reason=\"begin_unseen\""], 1.0)?;
    let rolled_last = stage.roll("shop", "web", "web-f", "web-g")?;
    check(&stage, &third, &rolled_last, "web")?;

    // All spans of the three are there, once: no span id is twice in a trace, and edge-a has no half of a story.
    exported += third.metric("epitaph_observer_spans_total", &[])?;
    assert!(third.end(TO_END)?.success(), "{}", third.log());
    let all = [&rolled.0, &rolled_again.0, &uid, &rolled_meanwhile.0, &rolled_last.0];
    let mut spans = Vec::new();
    for uid in all {
        spans.extend(stage.spans(uid, 1)?);
    }
    let ids: BTreeSet<_> = spans
        .iter()
        .map(|span| (span["traceID"].as_str(), span["spanID"].as_str()))
        .collect();
    assert_eq!((spans.len(), exported), (ids.len(), ids.len() as f64), "{spans:#?}");
    // All that were exported are of the others; and Jaeger has those that came behind it.
    let of_left = stage.spans_now(&left)?;
    assert!(of_left.is_empty(), "{of_left:#?}");
    Ok(())
}

#[test]
fn an_observer_exports_nothing_of_opted_out_pods_or_of_what_began_before_it() -> anyhow::Result<()> {
    let test = "an_observer_exports_nothing_of_opted_out_pods_or_of_what_began_before_it";
    let Some(stage) = Stage::set(test)? else {
        return Ok(());
    };
    let early = stage.pod("shop", "early", ("ReplicaSet", "web"))?;
    stage.runs("shop", "early")?;
    stage.slice("shop", "web", &[("early", &early, READY)])?;
    stage.delete("shop", "early")?;
    stage.slice("shop", "web", &[("early", &early, TERMINATING)])?;

    let observer = stage.observer(&["--set", "observer.election=false"])?;
    until_active(&observer)?;
    stage.slice("shop", "web", &[])?;
    stage.gone("shop", "early")?;
    let (private, _) = stage.roll("private", "safe", "safe-a", "safe-b")?;
    let rolled = stage.roll("shop", "admin", "admin-a", "admin-b")?;
    check(&stage, &observer, &rolled, "admin")?;
    observer.until("epitaph_observer_dropped_total", &["reason=\"begin_unseen\""], 1.0)?;
    // Those of the pod that came behind.
    let exported = observer.metric("epitaph_observer_spans_total", &[])?;
    assert_eq!(exported, 2.0, "{}", observer.log());
    for uid in [early, private] {
        let spans = stage.spans_now(&uid)?;
        assert!(spans.is_empty(), "{spans:#?}");
    }

    // One with an election runs at the same time: this one warns of it.
    let mut other = stage.observer(&[])?;
    until_active(&other)?;
    until_logged(&observer, "another observer holds the Lease")?;
    assert!(other.end(TO_END)?.success());
    two_without_a_lease_export_everything_twice(&stage, observer)
}

/// As docs/limits.md has it.
fn two_without_a_lease_export_everything_twice(stage: &Stage, one: Service) -> anyhow::Result<()> {
    const SPANS: [&str; 2] = ["endpoint.removal", "replacement"];
    let other = stage.observer(&["--set", "observer.election=false"])?;
    let mut both = [one, other];
    let exported =
        |observer: &Service, span: &str| observer.metric("epitaph_observer_spans_total", &[&format!("span=\"{span}\"")]);
    let mut before = Vec::new();
    for observer in &both {
        until_active(observer)?;
        before.push([exported(observer, SPANS[0])?, exported(observer, SPANS[1])?]);
    }
    let (uid, _) = stage.roll("shop", "twice", "twice-a", "twice-b")?;
    let spans = stage.spans(&uid, 4)?;
    for (n, name) in SPANS.into_iter().enumerate() {
        let ids: Vec<_> = spans
            .iter()
            .filter(|span| span["operationName"] == name)
            .map(|span| &span["spanID"])
            .collect();
        assert!(ids.len() == 2 && ids[0] == ids[1], "{spans:#?}");
        for (observer, before) in both.iter().zip(&before) {
            assert_eq!(exported(observer, name)? - before[n], 1.0, "{}", observer.log());
        }
    }
    assert_eq!(spans.len(), 4, "{spans:#?}");
    for observer in &mut both {
        assert_eq!(role(observer)?, "active");
        assert_eq!(observer.metric("epitaph_observer_active", &[])?, 1.0);
        assert!(observer.end(TO_END)?.success(), "{}", observer.log());
    }
    // No Lease shows the first one.
    assert!(
        !both[1].log().contains("another observer holds the Lease"),
        "{}",
        both[1].log()
    );
    Ok(())
}

/// An agent that answers which shutdown of its node is in progress.
/// How often it has.
fn agent_of(stage: &Stage, node: &str, shutdown: u32) -> anyhow::Result<Arc<AtomicUsize>> {
    let answers = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&answers);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    // Until this process ends.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { break };
            // The request is read first: a close with unread bytes is a reset.
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok\nshutdown {shutdown}\n");
            if stream.write_all(answer.as_bytes()).is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "epitaph-agent", "uid": "uid-agent", "controller": true});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "agent", "namespace": "epitaph", "ownerReferences": [owner],
            "labels": {"app.kubernetes.io/name": "epitaph", "app.kubernetes.io/component": "agent"},
        },
        "spec": {
            "nodeName": node, "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "agent", "image": "agent", "ports": [{"name": "metrics", "containerPort": port}]}],
        },
    });
    stage.kubectl.run_with(&["create", "-f", "-"], &pod.to_string())?;
    let status = json!({"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
    let patch = [
        "-n",
        "epitaph",
        "patch",
        "pod",
        "agent",
        "--subresource=status",
        "--type=merge",
        "-p",
    ];
    stage.kubectl.run(&[&patch[..], &[&status.to_string()]].concat())?;
    Ok(answers)
}

/// The node's condition `Ready`, as kubelet and controller write it.
fn node_is(stage: &Stage, node: &str, ready: &str, message: &str) -> anyhow::Result<()> {
    let now = Wall((wall_seconds() as u64) * 1_000_000_000).rfc3339();
    let status = json!({"status": {
        "conditions": [{
            "type": "Ready", "status": ready, "reason": "KubeletNotReady", "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }],
        "nodeInfo": {
            "bootID": "boot-1", "kubeletVersion": "v1.36.3", "machineID": "", "systemUUID": "", "kernelVersion": "", "osImage": "",
            "containerRuntimeVersion": "", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
        },
    }});
    let patch = ["patch", "node", node, "--subresource=status", "--type=strategic", "-p"];
    stage.kubectl.run(&[&patch[..], &[&status.to_string()]].concat()).map(drop)
}

/// The kubelet stops a pod and does not delete it: its endpoint is ready until it has ended, and another one until the node is silent.
#[test]
fn endpoints_that_stay_ready_are_in_the_trace_of_the_shutdown() -> anyhow::Result<()> {
    const NODE: &str = "node-1";
    let Some(stage) = Stage::set("endpoints_that_stay_ready_are_in_the_trace_of_the_shutdown")? else {
        return Ok(());
    };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
    stage.kubectl.run_with(&["create", "-f", "-"], &node.to_string())?;
    node_is(&stage, NODE, "True", "ready")?;
    let answers = agent_of(&stage, NODE, 3)?;
    for (pod, service) in [("web-a", "web"), ("db-a", "db")] {
        let uid = stage.pod("shop", pod, ("ReplicaSet", service))?;
        stage.runs("shop", pod)?;
        stage.slice("shop", service, &[(pod, &uid, READY)])?;
    }
    let observer = stage.observer(&["--set", "observer.election=false"])?;
    until_active(&observer)?;
    observer.until("epitaph_observer_known", &["object=\"nodes\""], 1.0)?;

    node_is(&stage, NODE, "False", "node is shutting down")?;
    until("the agent to be asked", || {
        Ok(holds(answers.load(Ordering::Relaxed) > 0, || observer.log()))
    })?;
    let failed = json!({"status": {"phase": "Failed", "reason": "Terminated"}}).to_string();
    let patch = [
        "-n",
        "shop",
        "patch",
        "pod",
        "web-a",
        "--subresource=status",
        "--type=merge",
        "-p",
    ];
    stage.kubectl.run(&[&patch[..], &[&failed]].concat())?;
    stage.slice("shop", "web", &[])?;
    // Some seconds after its removal it is forgotten.
    until("one endpoint to be left", || {
        let known = observer.metric("epitaph_observer_known", &["object=\"endpoints\""])?;
        Ok(holds(known == 1.0, || known.to_string()))
    })?;
    node_is(&stage, NODE, "Unknown", "Kubelet stopped posting node status.")?;

    let key = ShutdownKey {
        boot_id: "boot-1".to_owned(),
        ordinal: 3,
    };
    let trace = id::node_trace_id(&key);
    let mut spans = Vec::new();
    until_within(TIMEOUT, "the trace of the shutdown", || {
        if let Some(trace) = stage.jaeger.trace(&trace.to_string())? {
            spans = trace["spans"].as_array().context("no spans")?.clone();
        }
        Ok(holds(spans.len() >= 3, || format!("{spans:#?}; {}", observer.log())))
    })?;
    let not_ready = named(&spans, "node.not_ready")?;
    let ready = |service: &str| {
        let is_it = |span: &&Value| span["operationName"] == "endpoints.ready" && tag(span, "k8s.service.name") == service;
        spans
            .iter()
            .find(is_it)
            .with_context(|| format!("no endpoints.ready of {service}"))
    };
    let (web, db) = (ready("web")?, ready("db")?);
    for span in [web, db] {
        assert_eq!(tag(span, "epitaph.endpoints.namespace"), "shop");
        assert_eq!(tag(span, "epitaph.endpoints.ready"), 1);
        assert_eq!(span["startTime"], not_ready["startTime"]);
        assert_eq!(span["references"][0]["spanID"], id::node_root(trace).to_string());
    }
    assert!(tag(web, "epitaph.endpoints.still_ready").is_null(), "{web:#}");
    assert_eq!(tag(db, "epitaph.endpoints.still_ready"), 1, "{db:#}");
    let lasted = |span: &Value| span["duration"].as_u64().unwrap_or_default();
    assert!(lasted(web) < lasted(db), "{web:#} {db:#}");
    assert_eq!(lasted(db), lasted(not_ready));
    until_logged(&observer, "shop/db (1 endpoint, 1 still ready), shop/web (1 endpoint)")
}

#[test]
fn a_missing_rule_is_named() -> anyhow::Result<()> {
    let Some(stage) = Stage::set("a_missing_rule_is_named")? else {
        return Ok(());
    };
    let rules = stage
        .kubectl
        .json(&["get", "clusterrole", "epitaph-observer", "-o", "json"])?;
    let rules: Vec<&Value> = rules["rules"]
        .as_array()
        .context("no rules")?
        .iter()
        .filter(|rule| rule["resources"][0] != "endpointslices")
        .collect();
    let patch = json!({"rules": rules}).to_string();
    let args = ["patch", "clusterrole", "epitaph-observer", "--type=merge", "-p", &patch];
    stage.kubectl.run(&args)?;
    let error = match stage.observer(&["--set", "observer.election=false"]) {
        Ok(_) => bail!("it is ready"),
        Err(error) => error.to_string(),
    };
    let rule = "{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}";
    assert!(error.contains(rule), "{error}");
    Ok(())
}
