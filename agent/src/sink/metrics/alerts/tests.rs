use std::collections::BTreeSet;
use std::path::Path;

use expect_test::expect_file;

use super::super::{observer, table};
use super::*;

/// Of agents and observers.
fn rows() -> impl Iterator<Item = &'static Row> {
    table::TABLE.iter().chain(observer::TABLE)
}

fn rules() -> Vec<Rule> {
    groups(60).into_iter().flat_map(|group| group.rules).collect()
}

#[test]
fn the_files_are_those_of_the_code() {
    let groups = groups(60);
    let rules = rule_file(&groups);
    expect_file!["../../../../../deploy/alerts/epitaph.rules.yaml"].assert_eq(&rules);
    // A chart holds no file from outside of it.
    expect_file!["../../../../../deploy/helm/epitaph/files/epitaph.rules.yaml"].assert_eq(&rules);
    expect_file!["../../../../../deploy/alerts/prometheusrule.yaml"].assert_eq(&prometheus_rule(&groups));
}

#[test]
fn each_alert_has_a_runbook_and_no_runbook_is_left_over() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runbooks");
    let mut written = BTreeSet::new();
    for (name, text) in pages() {
        expect_file![directory.join(format!("{name}.md"))].assert_eq(&text);
        written.insert(format!("{name}.md"));
    }
    let found = std::fs::read_dir(&directory).unwrap();
    let found: BTreeSet<String> = found.map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, written);
    let alerts: BTreeSet<&str> = rules().iter().map(|rule| rule.alert).collect();
    assert_eq!(pages::all().map(|page| page.alert).collect::<BTreeSet<_>>(), alerts);
}

/// promtool's lint, and Prometheus: alerts with the same labels would be one alert.
#[test]
fn no_two_rules_have_the_same_name_and_labels() {
    let mut seen = BTreeSet::new();
    for rule in rules() {
        let key = (rule.alert, rule.severity, rule.verdict, rule.outcome);
        assert!(seen.insert(key), "{key:?}");
    }
}

/// Each of the rules' numbers comes from one parameter: the test rules are the same rules.
#[test]
fn a_shorter_minute_changes_durations_only() {
    let without_digits = |text: &str| {
        let text: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
        text.replace("[h]", "[]").replace("[m]", "[]").replace("[s]", "[]")
    };
    let short: Vec<Rule> = groups(1).into_iter().flat_map(|group| group.rules).collect();
    for (long, short) in rules().iter().zip(&short) {
        assert_eq!(without_digits(&long.expr), without_digits(&short.expr));
        assert_eq!(
            (long.alert, long.severity, long.verdict, long.outcome),
            (short.alert, short.severity, short.verdict, short.outcome)
        );
        assert_eq!((long.lasting, long.kept), (60 * short.lasting, 60 * short.kept));
        assert_eq!((&long.summary, &long.description), (&short.summary, &short.description));
    }
}

#[test]
fn every_unclean_verdict_has_an_alert_of_its_severity_and_no_other_verdict_has() {
    for row in &VERDICTS {
        let of: Vec<Rule> = rules()
            .into_iter()
            .filter(|rule| rule.verdict == Some(row.headline))
            .collect();
        assert_eq!(of.len(), usize::from(row.unclean), "{}", row.headline);
        for rule in of {
            assert_eq!(rule.severity, severity(row.severity), "{}", row.headline);
            assert!(rule.description.contains(row.remedy), "{}", row.headline);
        }
        let on_hosts = rules()
            .iter()
            .filter(|rule| rule.alert == "EpitaphHostUncleanTermination" && names(&rule.expr, row.headline))
            .count();
        assert_eq!(on_hosts, usize::from(row.unclean), "{}", row.headline);
    }
}

#[test]
fn every_unclean_verdict_on_a_shutdown_has_an_alert_of_its_severity() {
    for row in &epitaph_core::verdict::node::table::TABLE {
        let rules = rules();
        let is_its = |rule: &&Rule| rule.alert == "EpitaphNodeShutdownUnclean" && rule.verdict == Some(row.headline);
        let of: Vec<&Rule> = rules.iter().filter(is_its).collect();
        assert_eq!(of.len(), usize::from(row.unclean), "{}", row.headline);
        for rule in of {
            assert_eq!(rule.severity, severity(row.severity), "{}", row.headline);
        }
    }
}

/// An older cluster does not detach, or does so only with a feature gate.
#[test]
fn a_command_that_sets_the_taint_has_the_version_it_needs() {
    let taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
    let steps = pages::all().flat_map(|page| page.to_do).map(|&step| step.to_owned());
    let texts: Vec<String> = rules().into_iter().map(|rule| rule.description).chain(steps).collect();
    for text in &texts {
        for after in text.split(taint).skip(1) {
            let after = after.trim_start_matches('`');
            assert!(after.starts_with(" (Kubernetes 1.26 or later"), "{text}");
        }
    }
    assert_eq!(texts.iter().filter(|text| text.contains(taint)).count(), 4);
}

#[test]
fn the_alert_about_volumes_has_commands_for_its_node() {
    let rules = rules();
    let rule = rules.iter().find(|rule| rule.alert == "EpitaphVolumeOnLostNode").unwrap();
    for command in ["kubectl get volumeattachments -o wide | grep", "kubectl taint nodes"] {
        let command = format!("{command} {{{{ $labels.k8s_node_name }}}}");
        assert!(rule.description.contains(&command), "{command} in {}", rule.description);
    }
}

/// A name of a metric or a label's value that the code does not have would never fire.
#[test]
fn the_rules_name_only_what_the_tables_have() {
    let metrics: BTreeSet<String> = rows().map(Row::prometheus).collect();
    let labels: BTreeSet<String> = rows()
        .flat_map(|row| row.labels)
        .map(|(name, _)| name.replace('.', "_"))
        .chain(["cluster", "instance", "job"].map(str::to_owned))
        .collect();
    let values: String = super::super::markdown();
    for rule in rules() {
        let words: Vec<&str> = words(&rule.expr).collect();
        for word in words
            .iter()
            .filter(|word| word.starts_with("epitaph_") && !labels.contains(**word))
        {
            assert!(metrics.contains(*word), "{word} in {}", rule.expr);
        }
        for list in rule.expr.split("by (").skip(1).chain(rule.expr.split("on (").skip(1)) {
            for label in list.split(')').next().unwrap().split(", ") {
                assert!(labels.contains(label), "{label} in {}", rule.expr);
            }
        }
        for value in rule.expr.split('"').skip(1).step_by(2).flat_map(|values| values.split('|')) {
            let is_verdict = VERDICTS.iter().any(|row| row.headline == value);
            assert!(is_verdict || values.contains(value), "{value} in {}", rule.expr);
        }
    }
    for row in used() {
        let is_used = rules()
            .iter()
            .any(|rule| names(&rule.expr, &row.prometheus()) || names(&rule.description, &row.prometheus()));
        assert!(is_used, "{}", row.name);
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// With the characters of a verdict's name.
fn names(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-')
        .any(|word| word == name)
}
