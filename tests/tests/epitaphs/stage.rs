//! A real API server with controllers, on which two teams, two nodes and readers of one namespace are, and the agent's sink.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use epitaph::clock;
use epitaph::sink::epitaphs::{EpitaphOutcome, EpitaphsWorker, Rate, Settings, Sink, start};
use epitaph::source::pods::{Access, connect};
use epitaph_core::attribute::Subject;
use epitaph_core::fixtures::{pods, sample};
use epitaph_core::ids::{ContainerId, PodUid};
use epitaph_core::input::Observation;
use epitaph_core::pod::PodIdentity;
use epitaph_core::report::Report;
use epitaph_tests::cluster::Tools;
use epitaph_tests::cluster::control_plane::ControlPlane;
use epitaph_tests::cluster::credentials::{Proof, kubeconfig, write_private};
use epitaph_tests::cluster::deploy::{AGENT, NAMESPACE, policies};
use epitaph_tests::cluster::kubectl::Kubectl;
use epitaph_tests::skip::skip;
pub use epitaph_tests::timeout::TIMEOUT;
use epitaph_tests::timeout::{holds, until};
use serde_json::{Value, json};
use tempfile::TempDir;

const POLICY: &str = include_str!("../../../deploy/kubernetes/policy.yaml");
pub const CRD: &str = "customresourcedefinition/epitaphs.epitaph.dev";
const NODE_CRD: &str = "customresourcedefinition/nodeepitaphs.epitaph.dev";

/// Two teams, two nodes with their agents' pods, and readers of one namespace: by certificate, and by token.
pub const CLUSTER: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: bank}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
---
apiVersion: v1
kind: Node
metadata: {name: node-2}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects:
- {kind: User, name: alice, apiGroup: rbac.authorization.k8s.io}
- {kind: ServiceAccount, name: reader, namespace: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: owners, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects:
- {kind: User, name: owner, apiGroup: rbac.authorization.k8s.io}
";

pub struct Api {
    pub plane: ControlPlane,
    pub kubectl: Kubectl,
    pub directory: TempDir,
}

impl Api {
    /// None without a kube-apiserver, which is reported as a skip of `test`. With controllers: Kubernetes aggregates its roles by one.
    pub fn new(test: &str) -> anyhow::Result<Option<Api>> {
        let Some(tools) = Tools::named()? else {
            skip(
                test,
                "EPITAPH_CLUSTER_TOOLS names no kube-apiserver; `cargo xtask test` builds one",
            );
            return Ok(None);
        };
        let directory = tempfile::tempdir()?;
        let plane = ControlPlane::without_nodes(&tools, &directory.path().join("plane"), &[], &[])?;
        let kubectl = plane.kubectl();
        kubectl.apply(CLUSTER)?;
        let api = Api {
            plane,
            kubectl,
            directory,
        };
        api.install()?;
        Ok(Some(api))
    }

    pub fn install(&self) -> anyhow::Result<()> {
        self.kubectl.apply(AGENT)?;
        self.kubectl
            .run(&["wait", "--for=condition=Established", CRD, NODE_CRD, "--timeout=180s"])
            .map(drop)
    }

    /// Applies the policies of the chart; false before Kubernetes 1.30, where there are none and a token names no node.
    pub fn has_policies(&self) -> anyhow::Result<bool> {
        let has = policies(&self.kubectl)?.is_some();
        if has {
            self.kubectl.apply(POLICY)?;
        }
        Ok(has)
    }

    /// They take effect a moment after they were made.
    pub fn until_policies(&self) -> anyhow::Result<()> {
        let dry_run = ["create", "--dry-run=server", "--validate=false", "-f", "-"];
        for object in [forged("epitaphs", "any", "node-1"), forged("nodeepitaphs", "any", "node-1")] {
            until("the policies", || {
                let refused = self.kubectl.run_with(&dry_run, &object.to_string());
                Ok(match refused {
                    Err(error) if format!("{error:#}").contains("ValidatingAdmissionPolicy") => Ok(()),
                    other => Err(format!("{other:?}")),
                })
            })?;
        }
        Ok(())
    }

    /// The agent of a node, with the token of its pod.
    pub fn agent(&self, node: &str) -> anyhow::Result<PathBuf> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("agent-{node}"), "namespace": NAMESPACE},
            "spec": {"nodeName": node, "serviceAccountName": "epitaph-agent", "containers": [{"name": "agent", "image": "epitaph"}]},
        });
        self.kubectl.apply(&pod.to_string())?;
        let of_pod = ["--bound-object-kind=Pod", &format!("--bound-object-name=agent-{node}")];
        let token = ["-n", NAMESPACE, "create", "token", "epitaph-agent"];
        self.with_token(node, &self.kubectl.run(&[&token[..], &of_pod].concat())?)
    }

    pub fn with_token(&self, name: &str, token: &str) -> anyhow::Result<PathBuf> {
        let file = self.directory.path().join(format!("{name}.kubeconfig"));
        let text = kubeconfig(&self.plane.url(), &self.plane.authority()?, &Proof::Token(token.trim()));
        write_private(&file, text.as_bytes())?;
        Ok(file)
    }

    pub fn user(&self, name: &str) -> anyhow::Result<Kubectl> {
        let file = self.directory.path().join(format!("{name}.kubeconfig"));
        let text = self.plane.kubeconfig_for(name, None, &self.plane.url())?;
        write_private(&file, text.as_bytes())?;
        Ok(self.plane.kubectl_as(&file))
    }

    pub fn epitaphs(&self, namespace: &str) -> anyhow::Result<Vec<Value>> {
        let list = self.kubectl.json(&["-n", namespace, "get", "epitaphs", "-o", "json"])?;
        list["items"].as_array().cloned().context("no list of Epitaphs")
    }
}

/// The least that schema and policy accept: an Epitaph in the namespace `shop`, or the NodeEpitaph of a shutdown, which is named by its node.
pub fn forged(kind: &str, name: &str, node: &str) -> Value {
    let hash = name.bytes().fold(0_u64, |hash, byte| hash << 8 | u64::from(byte));
    let name = match kind {
        "epitaphs" => name.to_owned(),
        _ => format!("{node}.{hash:016x}"),
    };
    let (kind, report) = match kind {
        "epitaphs" => ("Epitaph", json!({"pod": {"name": "cart-9", "uid": "u"}, "verdict": "clean"})),
        _ => ("NodeEpitaph", json!({"event": "Shutdown", "verdict": "graceful"})),
    };
    let mut object = json!({
        "apiVersion": "epitaph.dev/v1alpha1", "kind": kind, "metadata": {"name": name, "labels": {"epitaph.dev/node": node}},
        "report": report,
    });
    object["report"]["node"] = node.into();
    if kind == "Epitaph" {
        object["metadata"]["namespace"] = "shop".into();
    }
    object
}

pub async fn writing(kubeconfig: PathBuf) -> anyhow::Result<(Sink, EpitaphsWorker)> {
    patient(kubeconfig, TIMEOUT).await
}

/// `give_up`: after which time the sink gives up where RBAC forbids, or the kind is not known. A starting API server forbids everything.
pub async fn patient(kubeconfig: PathBuf, give_up: Duration) -> anyhow::Result<(Sink, EpitaphsWorker)> {
    let settings = Settings {
        rate: Rate {
            burst: 1_000,
            per_second: 1_000,
        },
        between: Duration::ZERO,
        pause: Duration::from_millis(50),
        longest_pause: Duration::from_millis(200),
        give_up_refused: give_up,
        ..Settings::default()
    };
    Ok(start(connect(&Access::Kubeconfig(kubeconfig)).await?, settings, clock::now))
}

pub fn identity(namespace: &str, name: &str, node: &str) -> PodIdentity {
    let mut identity = Arc::unwrap_or_clone(pods::identity());
    identity.uid = PodUid(format!("uid-of-{name}").into());
    namespace.clone_into(&mut identity.namespace);
    name.clone_into(&mut identity.name);
    node.clone_into(&mut identity.node);
    identity
}

pub fn pod(namespace: &str, name: &str, node: &str) -> Report {
    let mut pod = pods::pod(1);
    pod.facts.pod = Arc::new(identity(namespace, name, node));
    // Every socket was observed: what the pod lost is known.
    pod.facts.unseen.clear();
    for container in &mut pod.containers {
        container.facts.traffic.observed = true;
        container.facts.traffic.refused.goes_on = false;
    }
    Report::PodTerminated(Box::new(pod))
}

/// The n-th restart of a container of a pod on node-1 that lives on.
pub fn restart(namespace: &str, name: &str, n: u64) -> Report {
    let mut t = pods::restarted(n);
    if let Subject::Container { id, .. } = &mut t.facts.subject {
        *id = ContainerId(format!("{n:012x}").as_str().into());
    }
    t.facts.end.0 += n * 1_000_000_000;
    let context = t.kubernetes.as_mut().map(Arc::make_mut).expect("a pod's");
    context.pod = Arc::new(identity(namespace, name, "node-1"));
    Report::Terminated(Box::new(t))
}

pub fn observation() -> Observation {
    sample::observation()
}

pub fn offer(sink: &Sink, report: &Report) {
    sink.offer(report, &observation(), Some("node-1"), clock::now());
}

pub fn reported(sink: &Sink, outcome: EpitaphOutcome, count: u64) -> anyhow::Result<()> {
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

/// Requests for Epitaphs of pods, since the API server's start, by its own count. `verb`: as its metrics name it; `scope`: `resource` of one, `namespace`
/// of several.
pub fn requests(kubectl: &Kubectl, verb: &str, scope: &str) -> anyhow::Result<f64> {
    let labels =
        [("verb", verb), ("scope", scope), ("resource", "epitaphs")].map(|(name, value)| format!("{name}=\"{value}\""));
    let metrics = kubectl.run(&["get", "--raw", "/metrics"])?;
    let all = metrics.lines().filter(|line| line.starts_with("apiserver_request_total{"));
    let of_verb = all.filter(|line| labels.iter().all(|label| line.contains(label)));
    let count = |line: &str| line.rsplit(' ').next().unwrap_or_default().parse::<f64>();
    of_verb.map(|line| count(line).with_context(|| line.to_owned())).sum()
}
