//! `kubectl epitaph doctor`: whether terminations are reported in this cluster, as far as the API server shows it.

use epitaph_core::render::resource::{API_VERSION, LABEL_NODE, PLURAL, label_value};
use epitaph_core::text::bounded;
use epitaph_story::story::paragraph;
use kube::ResourceExt as _;
use serde::Serialize;

use crate::cli::{DoctorArgs, DoctorOutput};
use crate::cluster::{Cluster, DAEMON_SETS, DEPLOYMENTS, NODES, PODS, Place, Selection, now};
use crate::failure::{Exit, Failure};
use crate::output::{age_of, json, page, print, yaml};
use crate::read::epitaphs;

/// As the chart labels them.
const AGENTS: &str = "app.kubernetes.io/name=epitaph,app.kubernetes.io/component=agent";
const OBSERVERS: &str = "app.kubernetes.io/name=epitaph,app.kubernetes.io/component=observer";
/// The policy that lets an agent write only about its own node needs it.
const POLICIES: u64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Ok,
    Warning,
    Failed,
    Unknown,
}

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    state: State,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn new(check: &'static str, state: State, text: impl Into<String>) -> Finding {
        Finding {
            check,
            state,
            text: text.into(),
            remedy: None,
        }
    }

    fn remedy(mut self, remedy: &str) -> Finding {
        self.remedy = Some(remedy.to_owned());
        self
    }

    /// What may not be read is unknown.
    fn unread(check: &'static str, failure: Failure) -> Finding {
        let state = if failure.is_forbidden { State::Unknown } else { State::Failed };
        Finding {
            remedy: failure.remedy,
            ..Finding::new(check, state, failure.problem)
        }
    }
}

#[derive(Serialize)]
struct Findings<'a> {
    findings: &'a [Finding],
}

pub async fn run(cluster: &Cluster, args: &DoctorArgs) -> Result<Exit, Failure> {
    let node = args.node.as_deref();
    let mut findings = vec![version(cluster).await?];
    let is_served = kind(cluster).await;
    let has_kind = is_served.state == State::Ok;
    findings.push(is_served);
    match node {
        Some(node) => findings.push(agent_of(cluster, node).await),
        None => findings.push(agents(cluster).await),
    }
    findings.push(observers(cluster).await);
    if has_kind {
        findings.push(last(cluster, node).await);
    }
    print(&match args.output {
        DoctorOutput::Text => findings.iter().map(|finding| line(finding, page())).collect(),
        DoctorOutput::Json => json(&Findings { findings: &findings })?,
        DoctorOutput::Yaml => yaml(&Findings { findings: &findings })?,
    })?;
    let failed = findings.iter().any(|finding| finding.state == State::Failed);
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

async fn version(cluster: &Cluster) -> Result<Finding, Failure> {
    let info = cluster
        .within("read the version of the API server", cluster.client().apiserver_version())
        .await?;
    let minor: Option<u64> = info.minor.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok();
    let text = format!("Kubernetes {}", bounded(&info.git_version, 80));
    Ok(match minor {
        Some(minor) if info.major == "1" && minor < POLICIES => Finding::new(
            "api-server",
            State::Warning,
            format!("{text}: any node's agent can write the Epitaphs of every node, because the policy against it needs Kubernetes 1.30"),
        )
        .remedy("upgrade to Kubernetes 1.30 or later and install Epitaph's chart again"),
        _ => Finding::new("api-server", State::Ok, text),
    })
}

async fn kind(cluster: &Cluster) -> Finding {
    let groups = cluster.client().list_api_group_resources(API_VERSION);
    match cluster.within("read the kinds of the API server", groups).await {
        Ok(list) if list.resources.iter().any(|resource| resource.name == PLURAL) => {
            Finding::new("kind", State::Ok, format!("the kind Epitaph is served ({API_VERSION})"))
        }
        Err(failure) if !failure.is_kind_absent => Finding::unread("kind", failure),
        _ => Finding::new("kind", State::Failed, format!("the API server does not know the kind Epitaph ({API_VERSION})")).remedy(
            "install Epitaph's chart or manifests again, which bring the CustomResourceDefinition epitaphs.epitaph.dev; the chart brings it \
             only where an observer runs (observer.enabled) and config.kubernetes.epitaphs is not false",
        ),
    }
}

async fn agents(cluster: &Cluster) -> Finding {
    const CHECK: &str = "agents";
    let sets = match cluster.list(DAEMON_SETS, Place::Cluster, &Selection::labels(AGENTS)).await {
        Ok((sets, _)) => sets,
        Err(failure) => return Finding::unread(CHECK, failure),
    };
    let sum = |field: &str| sets.iter().filter_map(|set| set.data["status"][field].as_u64()).sum::<u64>();
    let (wanted, ready) = (sum("desiredNumberScheduled"), sum("numberReady"));
    match wanted {
        _ if sets.is_empty() => Finding::new(CHECK, State::Failed, "no DaemonSet of agents is installed")
            .remedy("install Epitaph's chart (docs/kubernetes.md)"),
        0 => Finding::new(CHECK, State::Failed, "the DaemonSet of agents runs on no node").remedy("look at its node selector and tolerations"),
        wanted if ready < wanted => Finding::new(CHECK, State::Failed, format!("{ready} of {wanted} agents are ready"))
            .remedy("`kubectl get pods -A -l app.kubernetes.io/name=epitaph -o wide` shows which; terminations on the other nodes have no Epitaph"),
        wanted => Finding::new(CHECK, State::Ok, format!("{wanted} of {wanted} agents are ready")),
    }
}

async fn agent_of(cluster: &Cluster, node: &str) -> Finding {
    const CHECK: &str = "agent";
    let shown = bounded(node, 253);
    if let Ok(None) = cluster.get(NODES, Place::Cluster, node).await {
        return Finding::new(CHECK, State::Failed, format!("there is no node `{shown}`"))
            .remedy("`kubectl get nodes` shows the nodes");
    }
    let selection = Selection {
        labels: Some(AGENTS.to_owned()),
        fields: Some(format!("spec.nodeName={node}")),
    };
    let pods = match cluster.list(PODS, Place::Cluster, &selection).await {
        Ok((pods, _)) => pods,
        Err(failure) => return Finding::unread(CHECK, failure),
    };
    let Some(pod) = pods.first() else {
        return Finding::new(CHECK, State::Failed, format!("no agent runs on node `{shown}`"))
            .remedy("look at the node selector and tolerations of the DaemonSet of agents");
    };
    let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    let conditions = pod.data["status"]["conditions"].as_array().into_iter().flatten();
    let is_ready = conditions
        .into_iter()
        .any(|of| of["type"] == "Ready" && of["status"] == "True");
    match is_ready {
        true => Finding::new(CHECK, State::Ok, format!("agent {name} is ready")),
        false => Finding::new(CHECK, State::Failed, format!("agent {name} is not ready"))
            .remedy("`kubectl logs` of this pod has the reason and its remedy"),
    }
}

async fn observers(cluster: &Cluster) -> Finding {
    const CHECK: &str = "observer";
    let all = match cluster.list(DEPLOYMENTS, Place::Cluster, &Selection::labels(OBSERVERS)).await {
        Ok((all, _)) => all,
        Err(failure) => return Finding::unread(CHECK, failure),
    };
    let available: u64 = all
        .iter()
        .filter_map(|of| of.data["status"]["availableReplicas"].as_u64())
        .sum();
    match available {
        _ if all.is_empty() => Finding::new(
            CHECK,
            State::Failed,
            "no observer is installed: nothing removes old Epitaphs, and lost nodes are not reported",
        )
        .remedy("install Epitaph's chart with observer.enabled=true"),
        0 => Finding::new(
            CHECK,
            State::Failed,
            "no observer is available: nothing removes old Epitaphs, and lost nodes are not reported",
        )
        .remedy("`kubectl get pods -A -l app.kubernetes.io/component=observer` shows its pods"),
        some => Finding::new(CHECK, State::Ok, format!("{some} observers are available")),
    }
}

/// The last report, of the namespaces that may be read.
async fn last(cluster: &Cluster, node: Option<&str>) -> Finding {
    const CHECK: &str = "reports";
    let selection = node.map_or_else(Selection::default, |node| {
        Selection::labels(format!("{LABEL_NODE}={}", label_value(node)))
    });
    let own = Place::Namespace(&cluster.namespace);
    let (all, place) = match epitaphs(cluster, Place::Cluster, &selection).await {
        Err(failure) if failure.is_forbidden => (
            epitaphs(cluster, own, &selection).await,
            format!("in namespace {}", cluster.namespace),
        ),
        all => (all, "in the cluster".to_owned()),
    };
    match all.as_deref() {
        Err(_) => all.map_or_else(
            |failure| Finding::unread(CHECK, failure),
            |_| Finding::new(CHECK, State::Ok, ""),
        ),
        Ok([]) => Finding::new(CHECK, State::Warning, format!("no termination is kept {place}"))
            .remedy("delete a pod, and look again when it is gone; clean terminations are kept for a day"),
        Ok([latest, ..]) => Finding::new(
            CHECK,
            State::Ok,
            format!(
                "the last termination {place} was {} ago: {}",
                age_of(latest.exited(), now()),
                bounded(&latest.report.pod.name, 253)
            ),
        ),
    }
}

fn line(finding: &Finding, width: usize) -> String {
    let mark = match finding.state {
        State::Ok => "ok",
        State::Warning => "warning",
        State::Failed => "FAILED",
        State::Unknown => "unknown",
    };
    let text = paragraph(&format!("{mark:8} {}: {}", finding.check, finding.text), width, "");
    let remedy = finding
        .remedy
        .as_deref()
        .map(|remedy| paragraph(&format!("remedy: {remedy}"), width, "         "));
    text + &remedy.filter(|_| finding.state != State::Ok).unwrap_or_default()
}
