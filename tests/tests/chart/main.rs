//! The Helm chart: its rendering, its values, and how a real API server takes it.

mod api;
mod defaults;
mod monitoring;
mod owners;
mod rendering;
mod values;

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use epitaph_tests::cluster::Tools;
use epitaph_tests::cluster::helm::{Helm, chart};
use epitaph_tests::skip::skip;
use serde_json::{Value, json};
use tempfile::TempDir;

/// helm without a cluster; None if there is no helm, which is reported as a skip of `test`.
struct Rendering {
    helm: Helm,
    _home: TempDir,
}

impl Rendering {
    fn new(test: &str) -> anyhow::Result<Option<Rendering>> {
        let Some(tools) = Tools::named()? else {
            skip(test, "EPITAPH_CLUSTER_TOOLS names no helm; `cargo xtask test` builds one");
            return Ok(None);
        };
        let home = tempfile::tempdir()?;
        Ok(Some(Rendering {
            helm: Helm::new(&tools, home.path()),
            _home: home,
        }))
    }

    /// With the one value that has no default, unless the values have it.
    fn text(&self, values: &Value, flags: &[&str]) -> anyhow::Result<String> {
        let mut values = values.clone();
        let image = values.get("image");
        if image.is_none_or(|image| image.is_object() && image.get("repository").is_none()) {
            values["image"]["repository"] = json!("epitaph");
        }
        self.exact(&values, flags)
    }

    fn exact(&self, values: &Value, flags: &[&str]) -> anyhow::Result<String> {
        let args = ["template", "epitaph", chart(), "--namespace", "epitaph"];
        self.helm.run_values(&[&args[..], flags].concat(), values)
    }

    fn objects(&self, values: &Value) -> anyhow::Result<Vec<Value>> {
        read(&self.text(values, &[])?)
    }

    fn default(&self) -> anyhow::Result<Vec<Value>> {
        self.objects(&json!({}))
    }
}

fn read(yaml: &str) -> anyhow::Result<Vec<Value>> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(yaml).context("read the rendered YAML")?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> anyhow::Result<&'a Value> {
    let mut found = objects
        .iter()
        .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.next().with_context(|| format!("no {kind} {name}"))
}

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn of_chart(file: &str) -> anyhow::Result<String> {
    let path = PathBuf::from(chart()).join(file);
    fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}
