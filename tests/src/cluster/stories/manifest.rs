//! Pods of the stories, as JSON.

use serde_json::{Value, json};

use super::NAMESPACE;
use crate::cluster::images::VICTIM;

/// A pod, named and labelled after its story. Every taint is tolerated, so that a story that taints the node evicts no other pod.
pub fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"story": name}},
        "spec": {
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "tolerations": [{"operator": "Exists"}],
        },
    });
    merge(&mut pod["spec"], spec);
    pod
}

/// One container, `app`, of the victim with these arguments, and a grace in seconds.
pub fn victim(name: &str, grace: u32, args: &[&str]) -> Value {
    pod(
        name,
        json!({"terminationGracePeriodSeconds": grace, "containers": [container("app", args)]}),
    )
}

/// The same, with more fields of the container.
pub fn victim_with(name: &str, grace: u32, args: &[&str], more: Value) -> Value {
    let mut app = container("app", args);
    merge(&mut app, more);
    pod(name, json!({"terminationGracePeriodSeconds": grace, "containers": [app]}))
}

pub fn container(name: &str, args: &[&str]) -> Value {
    json!({"name": name, "image": VICTIM, "imagePullPolicy": "Never", "args": args})
}

/// A hook or probe that runs the victim.
pub fn exec(args: &[&str]) -> Value {
    let command: Vec<&str> = ["/victim"].iter().chain(args).copied().collect();
    json!({"exec": {"command": command}})
}

pub fn pre_stop(hook: Value) -> Value {
    json!({"lifecycle": {"preStop": hook}})
}

/// `more`'s fields over `base`'s, objects into objects.
pub fn merge(base: &mut Value, more: Value) {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            for (key, value) in more {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, more) => *base = more,
    }
}
