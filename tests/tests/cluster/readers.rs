//! Whoever may view one namespace reads the Epitaphs of its pods, and of no other: by client certificate, and by token; also when nodes,
//! agents and observers are gone.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use epitaph_tests::cluster::control_plane::ControlPlane;
use epitaph_tests::cluster::credentials::write_private;
use epitaph_tests::cluster::deploy::NAMESPACE;
use epitaph_tests::cluster::kubectl::{Kubectl, output};
use epitaph_tests::cluster::{Cluster, node_name};
use epitaph_tests::timeout::{holds, until};
use serde_json::{Value, json};

const OWN: &str = "readers";
const OTHER: &str = "readers-other";
/// Of the story in which nodes and agents are gone.
const GONE: &str = "readers-gone";
const GONE_OTHER: &str = "readers-gone-other";
const USER: &str = "alice";
const ACCOUNT: &str = "reader";
/// An emulated node takes a minute for a pod.
const LONG: &str = "--timeout=240s";
/// And some for its boot.
const BOOT: &str = "--timeout=600s";
/// No node has it.
const NOWHERE: &str = "epitaph.test/nowhere";

/// Two namespaces; user and ServiceAccount are bound to Kubernetes' own role `view` in one of them.
fn namespaces([own, other]: [&str; 2]) -> String {
    let named = |name: &str, namespace: &str| json!({"name": name, "namespace": namespace});
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let mut items = Vec::from([own, other].map(namespace));
    items.push(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named(ACCOUNT, own)}));
    items.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": named("readers", own),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [
            {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"},
            {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": own},
        ],
    }));
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn spec() -> Value {
    json!({"automountServiceAccountToken": false, "containers": [{
        "name": "app", "image": "localhost/busybox:test", "imagePullPolicy": "Never",
        "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done"],
    }]})
}

fn pod(namespace: &str) -> String {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "talker", "namespace": namespace}, "spec": spec()})
        .to_string()
}

/// Two empty namespaces, in which pods are admitted.
fn prepare(kubectl: &Kubectl, both: [&str; 2]) -> anyhow::Result<()> {
    remove(kubectl, both, &["--ignore-not-found"])?;
    kubectl.apply(&namespaces(both))?;
    for namespace in both {
        // A controller makes it; without it no pod is admitted.
        kubectl.run(&["-n", namespace, "wait", "--for=create", "serviceaccount/default", LONG])?;
    }
    Ok(())
}

fn remove(kubectl: &Kubectl, [own, other]: [&str; 2], more: &[&str]) -> anyhow::Result<()> {
    let args = [&["delete", "namespace", own, other, LONG], more].concat();
    kubectl.run(&args).map(drop)
}

fn until_written(kubectl: &Kubectl, namespace: &str, uid: &str) -> anyhow::Result<()> {
    until(&format!("the Epitaph of the pod in {namespace}"), || {
        let all = epitaphs(kubectl, namespace)?;
        Ok(holds(all.iter().any(|of| of["report"]["pod"]["uid"] == uid), || {
            format!("{all:?}")
        }))
    })
}

pub fn who_may_view_a_namespace_reads_its_epitaphs_and_no_others() -> anyhow::Result<()> {
    let plane = Cluster::named()?.control_plane()?;
    let kubectl = plane.kubectl();
    prepare(&kubectl, [OWN, OTHER])?;
    for namespace in [OWN, OTHER] {
        kubectl.apply(&pod(namespace))?;
    }
    let mut uids = Vec::new();
    for namespace in [OWN, OTHER] {
        let of = |args: &[&str]| kubectl.run(&[&["-n", namespace], args].concat());
        of(&["wait", "--for=condition=Ready", "pod/talker", LONG])?;
        uids.push(of(&["get", "pod", "talker", "-o", "jsonpath={.metadata.uid}"])?);
        of(&["delete", "pod", "talker", LONG])?;
    }
    // Both are written: what the readers do not see is there.
    for (namespace, uid) in [OWN, OTHER].into_iter().zip(&uids) {
        until_written(&kubectl, namespace, uid)?;
    }
    let [certificate, token] = readers(&plane, OWN)?.map(|file| plane.kubectl_as(&file));
    reads(&certificate, &uids[0]).context("by certificate")?;
    reads(&token, &uids[0]).context("by token")?;
    remove(&kubectl, [OWN, OTHER], &[])
}

/// Kubeconfigs of both.
fn readers(plane: &ControlPlane, namespace: &str) -> anyhow::Result<[PathBuf; 2]> {
    let token = plane.kubeconfig_of_service_account(namespace, ACCOUNT)?;
    let certificate = token.with_file_name(format!("{USER}.kubeconfig"));
    write_private(&certificate, plane.kubeconfig_for(USER, None, &plane.url())?.as_bytes())?;
    Ok([certificate, token])
}

fn reads(reader: &Kubectl, uid: &str) -> anyhow::Result<()> {
    let own = epitaphs(reader, OWN)?;
    ensure!(
        own.len() == 1 && own[0]["report"]["pod"]["uid"] == uid && own[0]["report"]["pod"]["name"] == "talker",
        "{own:?}"
    );
    let name = own[0]["metadata"]["name"].as_str().context("a name")?;
    let described = reader.run(&["-n", OWN, "describe", "epitaph", name])?;
    ensure!(described.contains("Sentence:"), "{described}");
    for refused in [
        &["-n", OTHER, "get", "epitaphs"][..],
        &["get", "epitaphs", "--all-namespaces"],
        &["get", "nodeepitaphs"],
        &["-n", OWN, "delete", "epitaph", name],
        &["-n", OWN, "label", "epitaph", name, "mine=true"],
    ] {
        let error = reader.run(refused).expect_err("not allowed").to_string();
        ensure!(error.contains("forbidden"), "{refused:?}: {error}");
    }
    Ok(())
}

/// What a pod that moved, and one whose node is gone, left: for those who may view the namespace, with the node switched off and deleted, and
/// neither an agent nor an observer in the cluster. `plugin`: the program `kubectl-epitaph`.
pub fn nodes_and_agents_are_gone(plugin: &Path) -> anyhow::Result<()> {
    let cluster = Cluster::named()?;
    let plane = cluster.control_plane()?;
    let kubectl = plane.kubectl();
    let both = [GONE, GONE_OTHER];
    prepare(&kubectl, both)?;
    let lost = node_name(2);
    let terminated = terminated(&kubectl, &lost)?;
    let mut node = cluster.node(&lost)?;
    let here = |args: &[&str]| kubectl.run(&[&["-n", NAMESPACE], args].concat());
    let agents = |nowhere: Value| {
        let patch = json!({"spec": {"template": {"spec": {"nodeSelector": {NOWHERE: nowhere}}}}}).to_string();
        here(&["patch", "daemonset/epitaph-agent", "-p", &patch])
    };
    let observers = |count: &str| here(&["scale", "deployment/epitaph-observer", count]);
    let played = (|| -> anyhow::Result<()> {
        node.power_off()?;
        kubectl.run(&["delete", "node", &lost, LONG])?;
        agents(json!("true"))?;
        observers("--replicas=0")?;
        // Those of the node go once Kubernetes collects the pods of a node that it does not have.
        here(&["wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=epitaph", LONG])?;
        for (file, by) in readers(&plane, GONE)?.iter().zip(["certificate", "token"]) {
            reads_of_the_gone(&plane.kubectl_as(file), (plugin, file), &terminated).with_context(|| format!("by {by}"))?;
        }
        Ok(())
    })();
    // Whatever happened, the cluster is whole for what follows.
    let restored = (|| -> anyhow::Result<()> {
        if !node.runs() {
            node.power_on()?;
        }
        let of = format!("node/{lost}");
        kubectl.run(&["wait", "--for=create", &of, BOOT])?;
        kubectl.run(&["wait", "--for=condition=Ready", &of, BOOT])?;
        agents(Value::Null)?;
        observers("--replicas=2")?;
        ["daemonset/epitaph-agent", "deployment/epitaph-observer"]
            .into_iter()
            .try_for_each(|workload| here(&["rollout", "status", workload, BOOT]).map(drop))
    })();
    played?;
    restored?;
    remove(&kubectl, both, &[])
}

/// UIDs of pods that terminated.
struct Terminated {
    /// On the node that is lost later.
    talker: String,
    /// Of the StatefulSet's pod: there, and on the other node.
    moved: [String; 2],
}

fn terminated(kubectl: &Kubectl, lost: &str) -> anyhow::Result<Terminated> {
    let of = |args: &[&str]| kubectl.run(&[&["-n", GONE], args].concat());
    let uid = |pod: &str| of(&["get", "pod", pod, "-o", "jsonpath={.metadata.uid}"]);
    let ready = |pod: &str| -> anyhow::Result<String> {
        of(&["wait", "--for=create", pod, LONG])?;
        of(&["wait", "--for=condition=Ready", pod, LONG])?;
        uid(pod.trim_start_matches("pod/"))
    };
    let on = |pod: &str| of(&["get", "pod", pod, "-o", "jsonpath={.spec.nodeName}"]);
    // All begins on the node that is lost later.
    let first = node_name(1);
    kubectl.run(&["cordon", &first])?;
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": GONE},
        "spec": {
            "replicas": 1, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": spec()},
        },
    });
    let placed = kubectl
        .apply(&pod(GONE))
        .and_then(|()| kubectl.apply(&set.to_string()))
        .and_then(|()| Ok([ready("pod/talker")?, ready("pod/db-0")?]));
    kubectl.run(&["uncordon", &first])?;
    let [talker, before] = placed?;
    for pod in ["talker", "db-0"] {
        let at = on(pod)?;
        ensure!(at == lost, "{pod} is on {at}");
    }
    kubectl.run(&["cordon", lost])?;
    let moved = of(&["delete", "pod", "talker", "db-0", LONG]).and_then(|_| ready("pod/db-0"));
    kubectl.run(&["uncordon", lost])?;
    let after = moved?;
    let at = on("db-0")?;
    ensure!(at == first, "db-0 moved to {at}");
    of(&["delete", "statefulset", "db", "--cascade=orphan"])?;
    of(&["delete", "pod", "db-0", LONG])?;
    for uid in [&talker, &before, &after] {
        until_written(kubectl, GONE, uid)?;
    }
    // What the readers do not see.
    kubectl.apply(&pod(GONE_OTHER))?;
    let other = |args: &[&str]| kubectl.run(&[&["-n", GONE_OTHER], args].concat());
    other(&["wait", "--for=condition=Ready", "pod/talker", LONG])?;
    let hidden = other(&["get", "pod", "talker", "-o", "jsonpath={.metadata.uid}"])?;
    other(&["delete", "pod", "talker", LONG])?;
    until_written(kubectl, GONE_OTHER, &hidden)?;
    Ok(Terminated {
        talker,
        moved: [before, after],
    })
}

fn reads_of_the_gone(reader: &Kubectl, (plugin, file): (&Path, &Path), terminated: &Terminated) -> anyhow::Result<()> {
    let [before, after] = &terminated.moved;
    let own = epitaphs(reader, GONE)?;
    let mut found: Vec<[&Value; 3]> = own
        .iter()
        .map(|of| {
            [
                &of["report"]["pod"]["name"],
                &of["report"]["pod"]["uid"],
                &of["report"]["node"],
            ]
        })
        .collect();
    found.sort_by_key(|of| of.map(Value::to_string));
    let mut expected = [
        ["db-0", before, &node_name(2)],
        ["db-0", after, &node_name(1)],
        ["talker", &terminated.talker, &node_name(2)],
    ]
    .map(|of| of.map(|text| json!(text)));
    expected.sort_by_key(|of| of.each_ref().map(Value::to_string));
    ensure!(found.iter().map(|of| of.map(Value::clone)).eq(expected), "{found:?}");

    let asked = |args: &[&str]| {
        let mut command = Command::new(plugin);
        command.args(["--namespace", GONE]).args(args).env("KUBECONFIG", file);
        output(command, &format!("kubectl epitaph {}", args.join(" ")), "")
    };
    let list = asked(&["list", "-o", "wide", "--no-headers"])?;
    for (pod, node) in [("db-0 ", node_name(1)), ("db-0 ", node_name(2)), ("talker ", node_name(2))] {
        ensure!(list.lines().any(|row| row.starts_with(pod) && row.contains(&node)), "{list}");
    }
    let why = asked(&["why", "talker"])?;
    ensure!(
        why.contains(&format!("pod {GONE}/talker")) && why.contains("SIGTERM"),
        "{why}"
    );
    // Of a name that two pods had, the last one; the other one by its label.
    let last: Value = serde_json::from_str(&asked(&["why", "db-0", "-o", "json"])?)?;
    ensure!(last["report"]["pod"]["uid"] == **after, "{last}");
    let on_lost = format!("epitaph.dev/node={}", node_name(2));
    let first: Value = serde_json::from_str(&asked(&["why", "db-0", "-l", &on_lost, "-o", "json"])?)?;
    ensure!(first["report"]["pod"]["uid"] == **before, "{first}");
    // Nodes are in no namespace: what is not known is named.
    let node = asked(&["node", &node_name(2)])?;
    ensure!(
        node.contains("that are kept: 2") && node.contains("Unknown: cannot"),
        "{node}"
    );
    for refused in [&["-n", GONE_OTHER, "get", "epitaphs"][..], &["get", "epitaphs", "-A"]] {
        let error = reader.run(refused).expect_err("not allowed").to_string();
        ensure!(error.contains("forbidden"), "{refused:?}: {error}");
    }
    Ok(())
}

fn epitaphs(kubectl: &Kubectl, namespace: &str) -> anyhow::Result<Vec<Value>> {
    let list = kubectl.json(&["-n", namespace, "get", "epitaphs", "-o", "json"])?;
    list["items"].as_array().cloned().context("no list of Epitaphs")
}
