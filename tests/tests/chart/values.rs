//! The values: documented, all of them in the schema, and wrong ones refused by name.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use epitaph::config::settings;
use epitaph_core::correlate::Limits;
use expect_test::expect_file;
use serde_json::{Map, Value, json};

use super::{Rendering, of_chart, read, root};

/// Settings that the chart sets itself, and why.
const SET_BY_THE_CHART: &[(&str, &str)] = &[
    ("listen", "the Service needs the port"),
    ("health_listen", "the probes need the port"),
    ("containers.directories", "agent.runtimeDirectories mounts and names them"),
    ("host.proc", "the mount is the chart's"),
    ("kubelet.address", "agent.kubelet.configz, from the downward API"),
    ("kubelet.config", "agent.kubelet mounts and names it"),
    ("kubelet.config_directory", "agent.kubelet mounts and names it"),
    ("kubelet.state", "agent.kubelet mounts and names it"),
    ("host.sys", "the mount is the chart's"),
    ("journal.directory", "the mount is the chart's"),
    ("kubernetes.mode", "a pod has a ServiceAccount"),
    ("kubernetes.kubeconfig", "a pod has a ServiceAccount"),
    ("kubernetes.node_name", "from the downward API"),
    ("logind.bus", "the mount is the chart's"),
    ("logind.lock", "logind.lock, for one container only"),
    ("logind.socket", "the volume is the chart's"),
    ("logind.uid", "logind.runAsRoot decides"),
    ("observer.election", "there are several observers"),
    ("observer.namespace", "the Lease is the chart's"),
    ("otlp.insecure", "the schema demands a scheme"),
];

/// A value of values.yaml: its path, the comment above it, the default as written.
struct Documented {
    path: String,
    comment: String,
    default: String,
}

/// values.yaml has one value a line, its comment above it, and two spaces a level.
fn documented() -> anyhow::Result<Vec<Documented>> {
    let (mut all, mut path, mut comment) = (Vec::new(), Vec::<String>::new(), String::new());
    for line in of_chart("values.yaml")?.lines() {
        let text = line.trim_start();
        if let Some(words) = text.strip_prefix("# ") {
            comment += &format!("{}{words}", if comment.is_empty() { "" } else { " " });
        } else if text.is_empty() {
            comment.clear();
        } else {
            let (key, default) = text.split_once(':').with_context(|| format!("not a value: {line}"))?;
            path.truncate((line.len() - text.len()) / 2);
            path.push(key.to_owned());
            if !default.trim().is_empty() {
                all.push(Documented {
                    path: path.join("."),
                    comment: std::mem::take(&mut comment),
                    default: default.trim().to_owned(),
                });
            }
            // The comment of a section is not its first value's.
            comment.clear();
        }
    }
    Ok(all)
}

#[test]
fn every_value_is_documented_in_the_readme() -> anyhow::Result<()> {
    const MARK: &str =
        "<!-- from values.yaml: UPDATE_EXPECT=1 cargo test -p epitaph-tests --test chart values; do not edit the table -->\n";
    let all = documented()?;
    ensure!(all.len() > 50, "{} values", all.len());
    let mut table = "| Value | Default | Meaning |\n|---|---|---|\n".to_owned();
    for value in &all {
        ensure!(!value.comment.is_empty(), "{} has no comment", value.path);
        table += &format!(
            "| `{}` | `{}` | {} |\n",
            value.path,
            value.default,
            value.comment.replace('|', "\\|")
        );
    }
    let page = of_chart("README.md")?;
    let (before, rest) = page.split_once(MARK).context("no mark in README.md")?;
    let (_, next) = rest
        .split_once("\nNext: ")
        .context("README.md names no next page at its end")?;
    expect_file!["../../../deploy/helm/epitaph/README.md"].assert_eq(&format!("{before}{MARK}\n{table}\nNext: {next}"));
    Ok(())
}

#[test]
fn the_readme_names_the_tested_versions_of_kubernetes() -> anyhow::Result<()> {
    let version = |of: &str| {
        let path = format!("{}/../xtask/{of}/go.mod", env!("CARGO_MANIFEST_DIR"));
        let modules = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let mut words = modules.split_whitespace().skip_while(|word| *word != "k8s.io/kubernetes");
        let version = words.nth(1).and_then(|version| version.strip_prefix('v'));
        Ok::<_, anyhow::Error>(version.with_context(|| format!("no k8s.io/kubernetes in {path}"))?.to_owned())
    };
    let tested = format!(
        "real API servers of {} and {} check",
        version("kubernetes-1.28")?,
        version("kubernetes")?
    );
    ensure!(of_chart("README.md")?.contains(&tested), "the README lacks `{tested}`");
    Ok(())
}

/// The page is in the archive, and Artifact Hub shows it: what is beside the chart in the repository is not there.
#[test]
fn no_link_of_the_readme_leaves_the_charts_archive() -> anyhow::Result<()> {
    let page = of_chart("README.md")?;
    let links = page.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let leaving: Vec<&str> = links.map(|(link, _)| link).filter(|link| link.starts_with("..")).collect();
    ensure!(leaving.is_empty(), "{leaving:?}");
    // Named by their path instead, which must be one.
    let named = page.split('`').skip(1).step_by(2);
    let named: Vec<&str> = named
        .filter(|path| path.starts_with("docs/") && path.ends_with(".md"))
        .collect();
    ensure!(named.len() > 3, "{named:?}");
    for path in named {
        ensure!(root().join(path).is_file(), "{path}");
    }
    Ok(())
}

#[test]
fn values_and_schema_have_the_same_names() -> anyhow::Result<()> {
    let values = read(&of_chart("values.yaml")?)?.pop().context("no values")?;
    let schema: Value = serde_json::from_str(&of_chart("values.schema.json")?)?;
    let mut wrong = Vec::new();
    same(&values, &schema, "", &mut wrong);
    ensure!(wrong.is_empty(), "{wrong:?}");

    let known = schema["properties"]["config"]["properties"].as_object().context("config")?;
    let key = |(section, of): (&String, &Value)| -> Vec<String> {
        let keys = of["properties"].as_object().cloned().unwrap_or_default();
        keys.keys().map(|key| format!("{section}.{key}")).collect()
    };
    let mut known: BTreeSet<String> = known.iter().flat_map(key).collect();
    known.extend(SET_BY_THE_CHART.iter().map(|(key, _)| (*key).to_owned()));
    let settings: BTreeSet<String> = settings::ALL.iter().map(|setting| setting.key.to_owned()).collect();
    assert_eq!(known, settings, "the schema's `config` and the settings of docs/config.md");
    Ok(())
}

/// A section of values is a closed object of the schema with the same names; `config` has names that are not set, and `global` is helm's.
fn same(values: &Value, schema: &Value, path: &str, wrong: &mut Vec<String>) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    if schema["additionalProperties"] != false {
        wrong.push(format!("{path} is open"));
    }
    let empty = Map::new();
    let values = values.as_object().unwrap_or(&empty);
    for name in values.keys().filter(|name| !properties.contains_key(*name)) {
        wrong.push(format!("{path}.{name} is not in the schema"));
    }
    for (name, schema) in properties {
        let path = format!("{path}.{name}");
        match values.get(name) {
            Some(value) if value.is_object() && value.as_object().is_some_and(|value| !value.is_empty()) => {
                same(value, schema, &path, wrong);
            }
            Some(_) => {}
            None if path.starts_with(".config")
                || path == ".global"
                || path.contains(".seccompProfile.")
                || path.contains(".resources.") => {}
            None => wrong.push(format!("{path} is not in values.yaml")),
        }
    }
}

#[test]
fn a_wrong_value_is_refused_by_its_name() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("a_wrong_value_is_refused_by_its_name")? else {
        return Ok(());
    };
    for (values, name, why) in [
        (
            json!({"config": {"otlp": {"endpoint": "collector:4317"}}}),
            "/config/otlp/endpoint",
            "https?://",
        ),
        (
            json!({"config": {"otlp": {"endpont": "http://c"}}}),
            "/config/otlp",
            "endpont",
        ),
        (
            json!({"config": {"export": {"unclean_only": "yes"}}}),
            "/config/export/unclean_only",
            "boolean",
        ),
        (
            json!({"config": {"limits": {"timelines": 0}}}),
            "/config/limits/timelines",
            "minimum",
        ),
        (json!({"config": {"listen": "[::]:1"}}), "/config", "listen"),
        (
            json!({"agent": {"capabilities": ["BPF", "CAP_PERFMON"]}}),
            "/agent/capabilities/1",
            "PERFMON",
        ),
        (json!({"agent": {"privileged": true}}), "/agent", "privileged"),
        (
            json!({"agent": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}, "journal": {"hostPath": "/var/lib/epitaph"}}),
            "/agent/updateStrategy/rollingUpdate/maxSurge",
            "0%",
        ),
        (json!({"logind": {"enabled": "auto"}}), "/logind/enabled", "boolean"),
        (json!({"logind": {"privileged": true}}), "/logind", "privileged"),
        (json!({"observer": {"replicas": 0}}), "/observer/replicas", "minimum"),
        (
            json!({"image": {"pullPolicy": "Sometimes"}}),
            "/image/pullPolicy",
            "IfNotPresent",
        ),
        (json!({"image": {"digest": "sha256:abc"}}), "/image/digest", "sha256"),
        (json!({"runbookUrl": "git.example/runbooks"}), "/runbookUrl", "https?://"),
        (
            json!({"networkPolicy": {"from": {"podSelector": {}}}}),
            "/networkPolicy/from'",
            "array",
        ),
        // The API server refuses a peer that admits nothing, after objects before it were made.
        (
            json!({"networkPolicy": {"from": [{"podSelector": {}}, {}]}}),
            "/networkPolicy/from/1'",
            "minProperties",
        ),
        (
            json!({"networkPolicy": {"from": [{"namespaceSelecter": {}}]}}),
            "/networkPolicy/from/0'",
            "namespaceSelecter",
        ),
        (
            json!({"networkPolicy": {"from": [{"podSelector": {"app": "prometheus"}}]}}),
            "/networkPolicy/from/0/podSelector'",
            "app",
        ),
        (
            json!({"networkPolicy": {"from": [{"ipBlock": {"cidr": "10.0.0.1"}}]}}),
            "/networkPolicy/from/0/ipBlock/cidr'",
            "pattern",
        ),
        (
            json!({"resourceQuota": {"enabled": "maybe"}}),
            "/resourceQuota/enabled",
            "auto",
        ),
        (
            json!({"serviceMonitor": {"enabled": 1}}),
            "/serviceMonitor/enabled",
            "boolean",
        ),
        (json!({"servicemonitor": {"enabled": true}}), "''", "servicemonitor"),
    ] {
        let error = rendering.objects(&values).expect_err("a wrong value").to_string();
        ensure!(error.contains(name) && error.contains(why), "{values}: {error}");
    }
    for (values, name, why) in wrong_kubernetes() {
        let error = rendering.objects(&values).expect_err("a wrong value").to_string();
        ensure!(error.contains(name) && error.contains(why), "{values}: {error}");
    }
    // In memory, two agents have a journal each.
    let surge = json!({"updateStrategy": {"rollingUpdate": {"maxSurge": "10%", "maxUnavailable": 0}}});
    rendering.objects(&json!({"agent": surge, "journal": {"hostPath": ""}}))?;
    Ok(())
}

/// The program's defaults count where one of both is not set.
#[test]
fn a_linger_shorter_than_the_reorder_window_is_refused_before_the_install() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("a_linger_shorter_than_the_reorder_window_is_refused_before_the_install")? else {
        return Ok(());
    };
    let defaults = Limits::default();
    let (linger, reorder) = (defaults.linger.as_millis(), defaults.reorder.as_millis());
    let ms = |millis: u128| format!("{millis}ms");
    let refused = [
        json!({"linger": ms(reorder - 1)}),
        json!({"reorder": ms(linger + 1)}),
        json!({"reorder": "1m 30s", "linger": "89 s 999ms"}),
        json!({"reorder": "2us", "linger": "1999ns"}),
    ];
    for limits in refused {
        let error = rendering.objects(&json!({"config": {"limits": &limits}}));
        let error = error.expect_err("a wrong value").to_string();
        ensure!(error.contains("limits.linger that is not shorter"), "{limits}: {error}");
    }
    let accepted = [
        json!({"linger": ms(reorder)}),
        json!({"reorder": ms(linger)}),
        json!({"reorder": "90s", "linger": "1m 30s"}),
        json!({"reorder": "1d", "linger": "24h"}),
    ];
    for limits in accepted {
        rendering.objects(&json!({"config": {"limits": limits}}))?;
    }
    Ok(())
}

/// What the API server or the program would refuse later: after the first objects were made, or in the log of a pod.
fn wrong_kubernetes() -> Vec<(Value, &'static str, &'static str)> {
    let endpoint = |url: &str| json!({"config": {"otlp": {"endpoint": url}}});
    let rolling = |of: Value| json!({"agent": {"updateStrategy": {"rollingUpdate": of}}});
    let at_update = "/agent/updateStrategy/rollingUpdate";
    vec![
        (endpoint("http://:4317"), "/config/otlp/endpoint", "pattern"),
        (endpoint("http://collector:otlp"), "/config/otlp/endpoint", "pattern"),
        (endpoint("http://collector:65536"), "/config/otlp/endpoint", "pattern"),
        (json!({"config": {"otlp": {"timeout": "0s"}}}), "/config/otlp/timeout", "not"),
        (
            json!({"config": {"otlp": {"headers": {"x token": "t"}}}}),
            "/config/otlp/headers",
            "x token",
        ),
        (
            json!({"config": {"observer": {"lease_duration": "1500ms"}}}),
            "/config/observer/lease_duration",
            "pattern",
        ),
        (
            json!({"config": {"shutdown": {"grace": "1500ms"}}}),
            "/config/shutdown/grace",
            "pattern",
        ),
        (
            json!({"agent": {"resources": {"limits": {"memory": "256Mb"}}}}),
            "/agent/resources/limits/memory",
            "256Mb",
        ),
        (
            json!({"observer": {"resources": {"requests": {"cpu": -1}}}}),
            "/observer/resources/requests/cpu",
            "minimum",
        ),
        (
            json!({"agent": {"tolerations": [{"operator": "Exist"}]}}),
            "/agent/tolerations/0/operator",
            "Exists",
        ),
        (
            json!({"observer": {"affinity": {"nodeAfinity": {}}}}),
            "/observer/affinity",
            "nodeAfinity",
        ),
        (rolling(json!({"maxUnavailabel": 1})), at_update, "maxUnavailabel"),
        (rolling(json!({"maxUnavailable": "ten"})), at_update, "ten"),
        (rolling(json!({"maxUnavailable": 0})), at_update, "maxUnavailable"),
        (
            json!({"agent": {"capabilities": ["SYS_RESOURCE", "SYS_PTRACE"]}}),
            "/agent/capabilities",
            "contains",
        ),
        (
            json!({"agent": {"seccompProfile": {"type": "Localhost"}}}),
            "/agent/seccompProfile",
            "localhostProfile",
        ),
        (
            json!({"agent": {"extraEnv": [{"name": "A", "vale": "x"}]}}),
            "/agent/extraEnv/0",
            "vale",
        ),
        (
            json!({"agent": {"extraEnv": [{"name": "NODE_NAME", "value": "x"}]}}),
            "/agent/extraEnv/0/name",
            "not",
        ),
        (
            json!({"observer": {"podLabels": {"app.kubernetes.io/component": "x"}}}),
            "/observer/podLabels",
            "not",
        ),
        (json!({"commonLabels": {"team": "a b"}}), "/commonLabels/team", "a b"),
        (
            json!({"observer": {"topologySpreadConstraints": [{"maxSkew": 0}]}}),
            "/observer/topologySpreadConstraints/0",
            "topologyKey",
        ),
        (
            json!({"agent": {"livenessProbe": {"periodSecond": 1}}}),
            "/agent/livenessProbe",
            "periodSecond",
        ),
        (json!({"agent": {"dnsPolicy": "default"}}), "/agent/dnsPolicy", "Default"),
        (
            json!({"agent": {"kubelet": {"configz": "yes"}}}),
            "/agent/kubelet/configz",
            "boolean",
        ),
        (
            json!({"commonLabels": {"app.kubernetes.io/instance": "x"}}),
            "/commonLabels",
            "not",
        ),
        (
            json!({"prometheusRule": {"recentMinutes": 0}}),
            "/prometheusRule/recentMinutes",
            "minimum",
        ),
        // An increase within one minute needs two scrapes in it: the alert would never fire.
        (
            json!({"prometheusRule": {"lastingMinutes": 1}}),
            "/prometheusRule/lastingMinutes",
            "minimum",
        ),
        (
            json!({"dashboard": {"tracesUrl": "jaeger:16686"}}),
            "/dashboard/tracesUrl",
            "https?://",
        ),
        (
            json!({"image": {"repository": "https://r/e"}}),
            "/image/repository",
            "pattern",
        ),
        (json!({"image": {"repository": "r/e:tag"}}), "/image/repository", "pattern"),
        (json!({"journal": {"hostPath": "/var/lib/../x"}}), "/journal/hostPath", "not"),
        (
            json!({"networkPolicy": {"from": [{"ipBlock": {"cidr": "10.0.0.0/33"}}]}}),
            "/networkPolicy/from/0/ipBlock/cidr",
            "pattern",
        ),
        (
            json!({"networkPolicy": {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}}),
            "/networkPolicy/from/0",
            "maxProperties",
        ),
        // What is right alone.
        (
            json!({"collector": {"tlsClient": true}}),
            "collector.tlsClient",
            "collector.tlsSecret",
        ),
        (
            json!({"collector": {"tlsSecret": "t"}, "config": {"otlp": {"endpoint": "http://c:4317"}}}),
            "collector.tlsSecret",
            "https://",
        ),
        (
            json!({"collector": {"tlsSecret": "t"}, "config": {"otlp": {"certificate": "/ca"}}}),
            "collector.tlsSecret",
            "config.otlp.certificate",
        ),
        (
            json!({"collector": {"headersSecret": "h"}, "config": {"otlp": {"headers": {"a": "b"}}}}),
            "collector.headersSecret",
            "config.otlp.headers",
        ),
    ]
}

/// `config:` with nothing below it is null, and helm then drops the section or value with its default.
#[test]
fn an_empty_value_is_the_default_or_refused_by_its_name() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("an_empty_value_is_the_default_or_refused_by_its_name")? else {
        return Ok(());
    };
    let values = read(&of_chart("values.yaml")?)?.pop().context("no values")?;
    let sections = values.as_object().context("no sections")?;
    for section in sections.keys() {
        if let Err(error) = rendering.objects(&json!({section: null})) {
            let error = error.to_string();
            ensure!(error.contains(&format!("missing property '{section}'")), "{section}: {error}");
        }
    }
    // Nothing is switched off, and there are observers.
    for values in [
        json!({"observer": {"replicas": null}}),
        json!({"observer": {"enabled": null}}),
        json!({"rbac": {"create": null}}),
        json!({"networkPolicy": {"enabled": null}}),
        json!({"agent": {"capabilities": null}}),
    ] {
        ensure!(rendering.objects(&values).is_err(), "{values}");
    }
    Ok(())
}
