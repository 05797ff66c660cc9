//! The schema of the custom resource, written from the types: `UPDATE_EXPECT=1 cargo test -p epitaph-core --lib resource`.

use expect_test::expect_file;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{EpitaphObserved, EpitaphReport, KIND, NODE_KIND, NODE_PLURAL, NodeEpitaphReport, PLURAL, VERSION};

/// Longest sentence and remedy, and longest other text, in characters, and most entries of a list, that the API server accepts: what an
/// agent writes at most ([`super::fit`]). A node that is taken over does not fill etcd with one object.
const LONGEST_SENTENCE: u64 = 1024;
const LONGEST: u64 = super::make::NAME as u64;
const ENTRIES: u64 = super::TERMINATIONS as u64;

const HEAD: &str = "\
# From the types of agent/core/src/render/resource.rs: UPDATE_EXPECT=1 cargo test -p epitaph-core --lib resource; do not edit.
";

#[test]
fn the_chart_has_the_schema_of_the_types() {
    let spec = json!({
        "group": super::GROUP,
        "names": {"kind": KIND, "listKind": format!("{KIND}List"), "plural": PLURAL, "singular": "epitaph"},
        "scope": "Namespaced",
        "versions": [{
            "name": VERSION,
            "served": true,
            "storage": true,
            "additionalPrinterColumns": columns(),
            "schema": {"openAPIV3Schema": {
                "type": "object",
                "description": "How a pod terminated, or how the containers of a pod that lives on terminated. The agent of the pod's node writes this object.",
                "required": ["report"],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"type": "object"},
                    "report": report::<EpitaphReport>(&["node", "pod", "verdict"]),
                    "observed": observed(),
                },
            }},
        }],
    });
    let mut text = HEAD.to_owned();
    yaml(&spec, 0, &mut text);
    expect_file!["../../../../../deploy/helm/epitaph/files/crds/epitaphs.yaml"].assert_eq(&text);
}

#[test]
fn the_chart_has_the_schema_of_nodes() {
    let column = |name: &str, of: &str, kind: &str, about: &str| json!({"name": name, "type": kind, "jsonPath": of, "description": about});
    let mut sentence = column("Sentence", ".report.sentence", "string", "What happened.");
    sentence["priority"] = 1.into();
    let spec = json!({
        "group": super::GROUP,
        "names": {"kind": NODE_KIND, "listKind": format!("{NODE_KIND}List"), "plural": NODE_PLURAL, "singular": "nodeepitaph"},
        "scope": "Cluster",
        "versions": [{
            "name": VERSION,
            "served": true,
            "storage": true,
            "additionalPrinterColumns": [
                column("Node", ".report.node", "string", "Name of the node."),
                column("Event", ".report.event", "string", "What happened to the node: Shutdown or Loss."),
                column("Verdict", ".report.verdict", "string", "The verdict in one word."),
                column("Pods", ".report.pods", "integer", "Pods on the node at its shutdown, or pods that a lost node could not terminate. Empty: not known."),
                column("Took", ".report.took", "string", "Duration from the first to the last evidence."),
                column("Age", ".metadata.creationTimestamp", "date", "Time since the object was created."),
                sentence,
            ],
            "schema": {"openAPIV3Schema": {
                "type": "object",
                "description": "A shutdown or a loss of a node. The node's agent writes the object of a shutdown, the observer writes the object of a loss.",
                "required": ["report"],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"type": "object"},
                    "report": report::<NodeEpitaphReport>(&["node", "event", "verdict"]),
                },
            }},
        }],
    });
    let mut text = HEAD.replace("resource.rs", "resource/node.rs");
    yaml(&spec, 0, &mut text);
    expect_file!["../../../../../deploy/helm/epitaph/files/crds/nodeepitaphs.yaml"].assert_eq(&text);
}

/// `-o wide` also shows the sentence, and what kubectl shows of the exit.
fn columns() -> Value {
    let column = |name: &str, of: &str, kind: &str, about: &str| json!({"name": name, "type": kind, "jsonPath": of, "description": about});
    let mut shows = column(
        "Kubectl",
        ".report.kubectlShows",
        "string",
        "What kubectl shows of an exit, if the kernel recorded another exit.",
    );
    shows["priority"] = 1.into();
    let mut at_least = column(
        "At-Least",
        ".report.connections.atLeast",
        "boolean",
        "True: more connections may have been lost than the column Lost shows.",
    );
    at_least["priority"] = 1.into();
    let mut sentence = column("Sentence", ".report.sentence", "string", "What happened.");
    sentence["priority"] = 1.into();
    json!([
        column("Verdict", ".report.verdict", "string", "The verdict in one word."),
        column(
            "Lost",
            ".report.connections.lost",
            "integer",
            "Connections of clients that were refused, reset or cut. Empty: not known."
        ),
        column(
            "Took",
            ".report.took",
            "string",
            "Duration from the deletion request to the last exit."
        ),
        column("Exit", ".report.exit", "string", "How the main process exited."),
        column(
            "Age",
            ".metadata.creationTimestamp",
            "date",
            "Time since the object was created."
        ),
        at_least,
        shows,
        sentence,
    ])
}

/// Structural, as Kubernetes asks: every field has a type, and no schema has a reference.
fn report<T: JsonSchema>(required: &[&str]) -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut schema = serde_json::to_value(schema).expect("a schema is JSON");
    structural(&mut schema, "");
    schema["required"] = json!(required);
    // The report has one owner, which writes all of it: the API server then notes one field instead of each.
    schema["x-kubernetes-map-type"] = "atomic".into();
    schema
}

/// Of the observer, which may not write the rest.
fn observed() -> Value {
    let mut schema = report::<EpitaphObserved>(&[]);
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("required");
    }
    schema
}

fn structural(schema: &mut Value, name: &str) {
    let Some(fields) = schema.as_object_mut() else { return };
    // A default would be written into every object; null is never sent.
    for name in ["$schema", "title", "default", "nullable", "required"] {
        fields.remove(name);
    }
    match fields.get("type").and_then(Value::as_str) {
        Some("string") => {
            let longest = match name {
                "sentence" | "remedy" => LONGEST_SENTENCE,
                _ => LONGEST,
            };
            fields.insert("maxLength".to_owned(), longest.into())
        }
        Some("array") => fields.insert("maxItems".to_owned(), ENTRIES.into()),
        Some("integer") => fields
            .get("format")
            .is_some_and(|of| of == "uint64")
            .then(|| fields.insert("format".to_owned(), "int64".into()))
            .flatten(),
        Some("object" | "boolean") => None,
        other => panic!("not structural: {other:?} in {fields:?}"),
    };
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, property) in properties {
            structural(property, name);
        }
    }
    if let Some(items) = fields.get_mut("items") {
        structural(items, name);
    }
}

/// Enough of YAML for a schema: the first field of an entry stands beside its dash.
fn yaml(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(fields) => object(fields, depth, out),
        Value::Array(entries) => {
            for entry in entries {
                let mut text = String::new();
                yaml(entry, depth + 1, &mut text);
                let indent = "  ".repeat(depth);
                let inner = text.strip_prefix(&"  ".repeat(depth + 1)).unwrap_or(&text);
                *out += &format!("{indent}- {inner}");
            }
        }
        scalar => *out += &format!("{}{scalar}\n", "  ".repeat(depth)),
    }
}

fn object(fields: &Map<String, Value>, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    for (name, value) in fields {
        match value {
            Value::Object(_) | Value::Array(_) => {
                *out += &format!("{indent}{name}:\n");
                yaml(value, depth + 1, out);
            }
            // JSON's texts are YAML's, too.
            scalar => *out += &format!("{indent}{name}: {scalar}\n"),
        }
    }
}
