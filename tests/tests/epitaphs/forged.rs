//! What one forged object may hold: a node that is taken over chooses every part of it, and etcd keeps ten thousand.

use anyhow::{Context as _, ensure};
use epitaph_tests::cluster::kubectl::Kubectl;
use epitaph_tests::timeout::until;
use serde_json::{Value, json};

use crate::stage::{Api, forged};

const NODE: &str = "node-2";
/// Far more field managers than an agent and an observer are.
const MANAGERS: usize = 30;

/// Created by the API server's own path: kubectl adds nothing, and takes nothing away.
fn create(kubectl: &Kubectl, kind: &str, object: &Value) -> anyhow::Result<String> {
    let namespaced = if kind == "epitaphs" { "namespaces/shop/" } else { "" };
    let path = format!("/apis/epitaph.dev/v1alpha1/{namespaced}{kind}");
    kubectl.run_with(&["create", "--raw", &path, "-f", "-"], &object.to_string())
}

fn manager(name: &str, fields: &Value) -> Value {
    json!({
        "manager": name, "operation": "Apply", "apiVersion": "epitaph.dev/v1alpha1", "time": "2026-01-02T03:04:05Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    })
}

/// What is done, the object, and the words of the refusal.
fn large(kind: &str) -> Vec<(&'static str, Value, &'static str)> {
    let managed = |name: &str, managers: Vec<Value>| {
        let mut object = forged(kind, name, NODE);
        object["metadata"]["managedFields"] = managers.into();
        object
    };
    let mut texts = forged(kind, "texts", NODE);
    let name = "x".repeat(253);
    texts["report"]["gaps"] = vec![name.clone(); 10].into();
    texts["report"]["sentence"] = "x".repeat(1000).into();
    texts["report"]["remedy"] = "x".repeat(1000).into();
    let mut cases = Vec::from([
        (
            "many field managers",
            // Of a field that the object does not have: otherwise the API server takes it for overwritten.
            managed(
                "managers",
                (0..MANAGERS)
                    .map(|n| {
                        manager(
                            &format!("manager-{n}"),
                            &json!({"f:metadata": {"f:annotations": {"f:a": {}}}}),
                        )
                    })
                    .collect(),
            ),
            "at most 12 field managers",
        ),
        (
            "a field manager of a field with a long name",
            managed(
                "long",
                vec![manager(
                    "long",
                    &json!({"f:metadata": {"f:labels": {format!("f:{}", "x".repeat(100_000)): {}}}}),
                )],
            ),
            "names of at most 4096 characters in their fields",
        ),
        (
            "a field manager of fields that are deep",
            managed(
                "deep",
                vec![manager(
                    "deep",
                    &json!({"f:metadata": {"f:labels": {"f:a": {"f:b": {"f:c": {}}}}}}),
                )],
            ),
            "names of at most 4096 characters in their fields",
        ),
        ("texts that are large together", texts, "may have at most 4096 characters"),
    ]);
    if kind == "epitaphs" {
        let mut containers = forged(kind, "containers", NODE);
        containers["report"]["containers"] = vec![json!({"name": name, "cause": name}); 10].into();
        cases.push((
            "containers that are large together",
            containers,
            "may have at most 4096 characters",
        ));
        let mut owner = forged(kind, "owner", NODE);
        owner["report"]["gaps"] = vec![name.clone(); 10].into();
        owner["report"]["owner"] = json!({"kind": name, "name": name, "uid": name, "revision": name});
        owner["report"]["times"] = json!({"requested": name, "exited": name, "killed": name, "stopSignal": name});
        cases.push((
            "lists and parts that are large together",
            owner,
            "may have at most 4096 characters",
        ));
    }
    cases
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn whatever_part_of_a_forged_object_is_large_the_object_is_refused() -> anyhow::Result<()> {
    let Some(api) = Api::new("whatever_part_of_a_forged_object_is_large_the_object_is_refused")? else {
        return Ok(());
    };
    let forger = api.plane.kubectl_as(&api.agent(NODE)?);
    if !api.has_policies()? {
        return Ok(());
    }
    api.until_policies()?;
    type_checked(&api.kubectl)?;
    for kind in ["epitaphs", "nodeepitaphs"] {
        for (attempt, object, why) in large(kind) {
            let refused = create(&forger, kind, &object);
            let refused = format!("{:#}", refused.expect_err(attempt));
            ensure!(refused.contains(why), "{kind}: {attempt}: {refused}");
        }
        create(&forger, kind, &forged(kind, "small", NODE))?;
    }

    // One that is there, by one manager after the other.
    let applied = |n: usize| {
        let manager = format!("--field-manager=manager-{n}");
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--validate=false",
            &manager,
            "-f",
            "-",
        ];
        forger.run_with(&apply, &forged("epitaphs", "small", NODE).to_string())
    };
    applied(0)?;
    let refused = (1..MANAGERS).find_map(|n| applied(n).err());
    let refused = format!("{:#}", refused.expect("one of them is refused"));
    ensure!(refused.contains("at most 12 field managers"), "{refused}");
    let small = api
        .kubectl
        .json(&["-n", "shop", "get", "epitaph", "small", "--show-managed-fields", "-o", "json"])?;
    let managers = small["metadata"]["managedFields"].as_array().map(Vec::len);
    assert_eq!(managers, Some(12), "{small}");
    // Kubernetes bounds it at the creation alone.
    let mut generated = forged("epitaphs", "small", NODE);
    generated["metadata"]["generateName"] = "x".repeat(100_000).into();
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--validate=false",
        "--field-manager=manager-0",
        "-f",
        "-",
    ];
    let refused = forger.run_with(&apply, &generated.to_string());
    let refused = format!("{:#}", refused.expect_err("a generateName without end"));
    ensure!(refused.contains("a generateName of at most 253 characters"), "{refused}");
    Ok(())
}

/// By Kubernetes' own check of the expressions against the schemas.
fn type_checked(kubectl: &Kubectl) -> anyhow::Result<()> {
    let policies = until("the policies to be checked", || {
        let all = kubectl.json(&["get", "validatingadmissionpolicies", "-o", "json"])?;
        let policies = all["items"].as_array().context("a list")?.clone();
        let is_checked = |of: &Value| of["status"]["observedGeneration"] == of["metadata"]["generation"];
        Ok(match policies.len() == 2 && policies.iter().all(is_checked) {
            true => Ok(policies),
            false => Err(all.to_string()),
        })
    })?;
    for policy in policies {
        let warnings = &policy["status"]["typeChecking"]["expressionWarnings"];
        ensure!(warnings.is_null(), "{}: {warnings:#}", policy["metadata"]["name"]);
    }
    Ok(())
}
