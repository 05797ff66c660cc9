//! The API server's own numbers.

use std::collections::BTreeMap;

use anyhow::Context as _;
use epitaph_tests::cluster::kubectl::Kubectl;

/// Totals of the API server.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Requests that only agents send, by verb and resource.
    pub requests: BTreeMap<String, f64>,
    /// Events that lists read from etcd, whether they were returned or not.
    pub events_read: f64,
    /// CPU time of the API server, seconds.
    pub cpu: f64,
}

/// Requests that write, and the bytes of their bodies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Writes {
    pub count: f64,
    pub bytes: f64,
}

impl Writes {
    pub fn since(self, before: Writes) -> Writes {
        Writes {
            count: self.count - before.count,
            bytes: self.bytes - before.bytes,
        }
    }
}

impl Totals {
    pub fn read(kubectl: &Kubectl) -> anyhow::Result<Totals> {
        let text = kubectl.run(&["get", "--raw", "/metrics"])?;
        let mut totals = Totals::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let value: f64 = value.parse().with_context(|| format!("read `{line}`"))?;
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            match name {
                "apiserver_request_total" => {
                    if let Some(request) = agents_request(labels) {
                        *totals.requests.entry(request).or_default() += value;
                    }
                }
                "apiserver_storage_list_evaluated_objects_total" if label(labels, "resource") == "events" => {
                    totals.events_read += value;
                }
                "process_cpu_seconds_total" => totals.cpu = value,
                _ => {}
            }
        }
        Ok(totals)
    }

    pub fn since(&self, before: &Totals) -> Totals {
        let new = |(request, count): (&String, &f64)| {
            let known = before.requests.get(request).copied().unwrap_or_default();
            (request.clone(), count - known)
        };
        Totals {
            requests: self.requests.iter().map(new).collect(),
            events_read: self.events_read - before.events_read,
            cpu: self.cpu - before.cpu,
        }
    }
}

/// Requests that write, by resource, but Leases: of everybody since the API server's start.
pub fn writes(kubectl: &Kubectl) -> anyhow::Result<BTreeMap<String, Writes>> {
    let text = kubectl.run(&["get", "--raw", "/metrics"])?;
    let mut all: BTreeMap<String, Writes> = BTreeMap::new();
    for line in text.lines() {
        let Some((series, value)) = line
            .strip_prefix("apiserver_request_body_size_bytes_")
            .and_then(|line| line.rsplit_once(' '))
        else {
            continue;
        };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        if label(labels, "resource") == "leases" {
            continue;
        }
        let value: f64 = value.parse().with_context(|| format!("read `{line}`"))?;
        let of = all
            .entry(resource(label(labels, "group"), label(labels, "resource")))
            .or_default();
        match name {
            "count" => of.count += value,
            "sum" => of.bytes += value,
            _ => {}
        }
    }
    Ok(all)
}

/// As kubectl writes it.
pub fn resource(group: &str, resource: &str) -> String {
    match group {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    }
}

/// kwok and this program send none of these, but for kwok's own watch of the pods.
fn agents_request(labels: &str) -> Option<String> {
    let (group, resource, verb) = (label(labels, "group"), label(labels, "resource"), label(labels, "verb"));
    let is_agents = matches!(
        (group, resource, verb),
        ("", "events", "LIST")
            | ("events.k8s.io", "events", _)
            | ("apps", "replicasets", "GET")
            | ("", "namespaces", "GET")
            | ("", "pods", "LIST" | "WATCH")
    );
    is_agents.then(|| format!("{verb} {resource}"))
}

fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let found = labels
        .split(',')
        .find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
    found.and_then(|value| value.split('"').next()).unwrap_or_default()
}
