//! Alerts and dashboard of the chart: the generated files, changed by values.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use anyhow::{Context as _, ensure};
use epitaph_tests::monitoring::program;
use epitaph_tests::skip::skip;
use serde_json::{Value, json};

use super::{Rendering, find, of_chart, read, root};

fn rules(rendering: &Rendering, values: &Value) -> anyhow::Result<Vec<Value>> {
    let mut all = values.clone();
    all["prometheusRule"]["enabled"] = json!(true);
    let objects = rendering.objects(&all)?;
    let groups = &find(&objects, "PrometheusRule", "epitaph")?["spec"]["groups"];
    let groups = groups.as_array().context("no groups")?;
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().into_iter().flatten());
    Ok(rules.cloned().collect())
}

fn named<'a>(rules: &'a [Value], alert: &str) -> Vec<&'a Value> {
    rules.iter().filter(|rule| rule["alert"] == alert).collect()
}

#[test]
fn by_default_the_rules_are_those_of_the_file_without_dead_links() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("by_default_the_rules_are_those_of_the_file_without_dead_links")? else {
        return Ok(());
    };
    let file = read(&of_chart("files/epitaph.rules.yaml")?)?.remove(0);
    let groups = file["groups"].as_array().context("no groups")?;
    let of_file: Vec<Value> = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().into_iter().flatten())
        .cloned()
        .collect();
    let by_default = rules(&rendering, &json!({}))?;
    assert_eq!(by_default, of_file);
    for rule in &by_default {
        let (alert, annotations) = (rule["alert"].as_str().context("no name")?, &rule["annotations"]);
        ensure!(annotations.get("runbook_url").is_none(), "{rule}");
        let description = annotations["description"].as_str().context("no description")?;
        ensure!(description.ends_with(&format!("epitaph explain {alert}")), "{description}");
    }
    // The team's own copy.
    for rule in rules(&rendering, &json!({"runbookUrl": "https://git.example/runbooks/"}))? {
        let url = format!(
            "https://git.example/runbooks/{}.md",
            rule["alert"].as_str().unwrap_or_default()
        );
        assert_eq!(rule["annotations"]["runbook_url"], url);
    }
    Ok(())
}

#[test]
fn severities_windows_and_absent_alerts_are_values() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("severities_windows_and_absent_alerts_are_values")? else {
        return Ok(());
    };
    let before = rules(&rendering, &json!({}))?;
    let values = json!({"prometheusRule": {
        "disabled": ["EpitaphNodeNotReadyForShutdown", "cut-connections"],
        "severities": {"EpitaphUncleanTermination": "info", "crashed": "page", "EpitaphAgentDown": "warning"},
        "recentMinutes": 10, "lastingMinutes": 15, "nodesWithoutAgent": 3,
    }});
    let after = rules(&rendering, &values)?;
    // The verdicts of one severity are one rule of hosts.
    let not_of_hosts = |rules: &[Value]| rules.len() - named(rules, "EpitaphHostUncleanTermination").len();
    assert_eq!(not_of_hosts(&before) - not_of_hosts(&after), 2);
    ensure!(named(&after, "EpitaphNodeNotReadyForShutdown").is_empty());
    ensure!(after.iter().all(|rule| rule["labels"]["verdict"] != "cut-connections"));
    // A verdict wins over its alert.
    for rule in named(&after, "EpitaphUncleanTermination") {
        let expected = if rule["labels"]["verdict"] == "crashed" {
            "page"
        } else {
            "info"
        };
        assert_eq!(rule["labels"]["severity"], expected, "{rule}");
    }
    assert_eq!(named(&after, "EpitaphAgentDown")[0]["labels"]["severity"], "warning");
    let text = serde_json::to_string(&after)?;
    for old in ["[15m])) > 0\"", "< 900", "offset 900s", "\"for\":\"10m\""] {
        ensure!(serde_json::to_string(&before)?.contains(old), "{old} is not in the file");
    }
    for old in ["< 900", "900s", "\"for\":\"10m\""] {
        ensure!(!text.contains(old), "{old} is left");
    }
    for new in ["< 600", "offset 600s", "\"for\":\"15m\""] {
        ensure!(text.contains(new), "{new}");
    }
    // The two windows do not mix.
    let lost = named(&after, "EpitaphRecordsLost")[0];
    ensure!(lost["expr"].as_str().is_some_and(|expr| expr.contains("[10m]")), "{lost}");
    let away = named(&after, "EpitaphNotExporting");
    ensure!(
        away.iter()
            .any(|rule| rule["labels"]["outcome"] == "unreachable" && rule["expr"].to_string().contains("[15m]")),
        "{away:?}"
    );
    let missing = named(&after, "EpitaphAgentsMissing")[0];
    ensure!(
        missing["expr"].as_str().is_some_and(|expr| expr.ends_with("> 3")),
        "{missing}"
    );
    // Nothing misses an observer that nobody wants.
    let alone = rules(&rendering, &json!({"observer": {"enabled": false}}))?;
    assert_eq!(before.len() - alone.len(), 1);
    ensure!(named(&alone, "EpitaphObserverMissing").is_empty());
    for wrong in [
        json!({"disabled": ["EpitaphAgentDwon"]}),
        json!({"severities": {"crushed": "info"}}),
    ] {
        let error = rules(&rendering, &json!({"prometheusRule": wrong}))
            .expect_err("no such alert")
            .to_string();
        ensure!(error.contains("is neither an alert nor the verdict of one"), "{error}");
    }
    Ok(())
}

/// A Prometheus without the operator takes no PrometheusRule.
#[test]
fn the_command_of_the_page_makes_a_file_of_rules() -> anyhow::Result<()> {
    const TEST: &str = "the_command_of_the_page_makes_a_file_of_rules";
    let Some(rendering) = Rendering::new(TEST)? else {
        return Ok(());
    };
    let Some(promtool) = program("EPITAPH_PROMTOOL") else {
        skip(TEST, "promtool was not built: `cargo xtask test` builds it");
        return Ok(());
    };
    let page = fs::read_to_string(root().join("deploy/alerts/README.md"))?;
    let (_, script) = page.split_once("```sh\nhelm template ").context("no command on the page")?;
    let (script, _) = script.split_once("```").context("the command has no end")?;
    let directory = tempfile::tempdir()?;
    symlink(root().canonicalize()?.join("deploy"), directory.path().join("deploy"))?;
    let done = Command::new("sh")
        .arg("-ec")
        .arg(format!("'{}' template {script}", rendering.helm.program().display()))
        .current_dir(directory.path())
        .env("HOME", directory.path())
        .env("KUBECONFIG", directory.path().join("no-kubeconfig"))
        .output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let file = directory.path().join("epitaph.rules.yaml");
    let done = Command::new(promtool).args(["check", "rules"]).arg(&file).output()?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    let values = json!({"prometheusRule": {"disabled": ["EpitaphNodeNotReadyForShutdown"], "severities": {"cut-connections": "warning"}}});
    let expected = rules(&rendering, &values)?.len();
    ensure!(
        done.status.success() && said.contains(&format!("{expected} rules found")),
        "{said}{}",
        fs::read_to_string(&file)?
    );
    Ok(())
}

/// A connection of a unit that was cut had another severity than that of a pod.
#[test]
fn severities_and_absence_by_verdict_are_of_hosts_too() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("severities_and_absence_by_verdict_are_of_hosts_too")? else {
        return Ok(());
    };
    const ALERT: &str = "EpitaphHostUncleanTermination";
    // Severity and verdicts of each rule.
    let hosts = |values: Value| -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        let mut hosts = BTreeMap::new();
        for rule in named(&rules(&rendering, &json!({"prometheusRule": values}))?, ALERT) {
            let expr = rule["expr"].as_str().context("no expression")?;
            let list = expr.split_once("verdict=~\"").and_then(|(_, rest)| rest.split_once('"'));
            let verdicts = list.context("no verdicts")?.0.split('|').map(str::to_owned).collect();
            let severity = rule["labels"]["severity"].as_str().context("no severity")?;
            ensure!(
                hosts.insert(severity.to_owned(), verdicts).is_none(),
                "two rules are {severity}"
            );
        }
        Ok(hosts)
    };
    let before = hosts(json!({}))?;
    let without = |severity: &str, verdict: &str| -> Vec<String> {
        before[severity].iter().filter(|of| *of != verdict).cloned().collect()
    };
    const CUT: &str = "cut-connections";
    ensure!(before["critical"].iter().any(|verdict| verdict == CUT), "{before:?}");

    let disabled = hosts(json!({"disabled": [CUT]}))?;
    assert_eq!(disabled["critical"], without("critical", CUT));
    assert_eq!(disabled["warning"], before["warning"]);

    let warned = hosts(json!({"severities": {CUT: "warning"}}))?;
    assert_eq!(warned["critical"], without("critical", CUT));
    assert_eq!(warned["warning"].iter().filter(|of| *of == CUT).count(), 1);
    assert_eq!(warned["warning"].len(), before["warning"].len() + 1);

    // A severity of its own; a verdict wins over its alert.
    let paged = hosts(json!({"severities": {"crashed": "page", ALERT: "info"}}))?;
    assert_eq!(paged["page"], ["crashed"]);
    assert_eq!(paged.keys().collect::<Vec<_>>(), ["info", "page"]);
    assert_eq!(paged["info"].len() + 1, before.values().map(Vec::len).sum::<usize>());

    assert!(hosts(json!({"disabled": [ALERT]}))?.is_empty());
    Ok(())
}

#[test]
fn the_dashboard_links_where_there_is_an_address() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("the_dashboard_links_where_there_is_an_address")? else {
        return Ok(());
    };
    let dashboard = |values: &Value| -> anyhow::Result<Value> {
        let mut all = values.clone();
        all["dashboard"]["enabled"] = json!(true);
        let objects = rendering.objects(&all)?;
        let json = &find(&objects, "ConfigMap", "epitaph-dashboard")?["data"]["epitaph.json"];
        Ok(serde_json::from_str(json.as_str().context("no dashboard")?)?)
    };
    let by_default = dashboard(&json!({}))?;
    assert_eq!(
        by_default,
        serde_json::from_str::<Value>(&of_chart("files/epitaph.dashboard.json")?)?
    );
    ensure!(!by_default.to_string().contains("docs/runbooks"), "a dead link");
    let linked = dashboard(&json!({
        "runbookUrl": "https://git.example/runbooks/", "dashboard": {"tracesUrl": "https://jaeger.example/"},
    }))?;
    let mut alerts = BTreeSet::new();
    for panel in linked["panels"].as_array().context("no panels")? {
        for link in panel["links"].as_array().into_iter().flatten() {
            let url = link["url"].as_str().context("no url")?;
            let name = url
                .strip_prefix("https://git.example/runbooks/")
                .and_then(|name| name.strip_suffix(".md"));
            alerts.insert(name.with_context(|| url.to_owned())?.to_owned());
        }
    }
    let all: BTreeSet<String> = rules(&rendering, &json!({}))?
        .iter()
        .filter_map(|rule| rule["alert"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(alerts, all);
    ensure!(
        linked.to_string().contains("\"https://jaeger.example\""),
        "no address of Jaeger"
    );
    ensure!(
        !linked.to_string().contains("localhost"),
        "the port-forward's address is left"
    );
    // Traces are under the service of the applications, mostly named as their workloads, or all under one.
    let services = |dashboard: &Value| -> BTreeSet<String> {
        let text = dashboard.to_string();
        let links = text.split("/search?service=").skip(1);
        links.filter_map(|link| Some(link.split_once('&')?.0.to_owned())).collect()
    };
    let both = ["${__data.fields.workload}", "epitaph"].map(str::to_owned);
    assert_eq!(services(&by_default), BTreeSet::from(both));
    let under_one = dashboard(&json!({"config": {"export": {"service_name": "all ends"}}}))?;
    assert_eq!(services(&under_one), BTreeSet::from(["all+ends".to_owned()]));
    // Helm's numbers stay whole.
    assert_eq!(linked["schemaVersion"], by_default["schemaVersion"]);
    assert_eq!(linked["panels"][1]["gridPos"], by_default["panels"][1]["gridPos"]);
    Ok(())
}
