//! Rules as YAML: a rule file of Prometheus, and the same as a PrometheusRule of the Prometheus Operator.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Group, Rule, duration};

const GENERATED: &str = "# Generated from the tables of verdicts and metrics by `UPDATE_EXPECT=1 cargo test -p epitaph --lib alerts`; do not edit.\n";

/// `promtool check rules` accepts the file.
pub fn rule_file(groups: &[Group]) -> String {
    format!("{GENERATED}groups:\n{}", list(groups, ""))
}

/// `kubectl apply` accepts the file where the CRDs of the Prometheus Operator are installed.
pub fn prometheus_rule(groups: &[Group]) -> String {
    format!(
        "{GENERATED}apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: epitaph\n  labels:\n    \
         app.kubernetes.io/name: epitaph\nspec:\n  groups:\n{}",
        list(groups, "  ")
    )
}

fn list(groups: &[Group], indent: &str) -> String {
    let mut out = String::new();
    for group in groups {
        let _ = writeln!(out, "{indent}  - name: {}\n{indent}    rules:", group.name);
        for rule in &group.rules {
            for line in lines(rule) {
                let _ = writeln!(out, "{indent}      {line}");
            }
        }
    }
    out
}

fn lines(rule: &Rule) -> Vec<String> {
    let mut out = vec![format!("- alert: {}", rule.alert), "  expr: |-".into()];
    out.extend(rule.expr.lines().map(|line| format!("    {line}")));
    for (key, seconds) in [("for", rule.lasting), ("keep_firing_for", rule.kept)] {
        if seconds > 0 {
            out.push(format!("  {key}: {}", duration(seconds)));
        }
    }
    out.push("  labels:".into());
    out.push(format!("    severity: {}", rule.severity));
    out.extend(rule.verdict.map(|verdict| format!("    verdict: {verdict}")));
    out.extend(rule.outcome.map(|outcome| format!("    outcome: {outcome}")));
    out.push("  annotations:".into());
    // The chart adds `runbook_url` where a team has the pages at an address: the repository is none.
    let description = format!("{} What to do: epitaph explain {}", rule.description, rule.alert);
    for (key, text) in [("summary", &rule.summary), ("description", &description)] {
        // A JSON string is a YAML string.
        out.push(format!("    {key}: {}", Value::String(text.clone())));
    }
    out
}
