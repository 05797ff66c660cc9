use std::collections::BTreeSet;

use expect_test::expect_file;
use serde_json::Value;

use super::super::alerts::groups;
use super::super::observer;
use super::super::table::{Shape, TABLE};
use super::*;

#[test]
fn the_file_is_that_of_the_code() {
    expect_file!["../../../../../deploy/alerts/epitaph.dashboard.json"].assert_eq(&json(&sections()));
}

#[test]
fn panels_have_their_own_id_and_place() {
    let dashboard: Value = serde_json::from_str(&json(&sections())).unwrap();
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 39);
    let panels = dashboard["panels"].as_array().unwrap();
    let of_sections: usize = sections().iter().map(|section| 1 + section.panels.len()).sum();
    assert_eq!(panels.len(), of_sections);
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut taken = BTreeSet::new();
    for panel in panels {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(w > 0 && h > 0 && x + w <= 24, "{}", panel["title"]);
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{} overlaps at {cell:?}", panel["title"]);
        }
    }
}

#[test]
fn every_panel_says_what_it_shows() {
    let mut titles = BTreeSet::new();
    for panel in panels() {
        assert!(!panel.title.is_empty() && titles.insert(panel.title), "{}", panel.title);
        assert!(panel.about.ends_with('.'), "{}: {}", panel.title, panel.about);
        assert!(!panel.unit.is_empty() && !panel.queries.is_empty(), "{}", panel.title);
        let is_table = matches!(panel.view, View::Table(..));
        for query in &panel.queries {
            assert_eq!(query.legend.is_empty(), is_table, "{}", query.expr);
        }
    }
}

/// Where nothing is scraped every panel is empty, and none may look as if all were well.
#[test]
fn every_empty_panel_says_that_nothing_may_be_scraped() {
    let dashboard: Value = serde_json::from_str(&json(&sections())).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        let empty = panel["fieldConfig"]["defaults"]["noValue"].as_str();
        if panel["type"] != "row" {
            assert!(
                empty.is_some_and(|empty| empty.contains("(chart value serviceMonitor.enabled)")),
                "{}: {empty:?}",
                panel["title"]
            );
        }
    }
}

/// An alert without a panel would lead to a dashboard that does not show the cause.
#[test]
fn every_alert_has_a_panel_with_its_runbook() {
    let alerts: BTreeSet<&str> = groups(60)
        .iter()
        .flat_map(|group| &group.rules)
        .map(|rule| rule.alert)
        .collect();
    let linked: BTreeSet<&str> = panels().iter().flat_map(|panel| panel.alerts.clone()).collect();
    assert_eq!(linked, alerts);
}

/// Of the reader.
const VARIABLES: [&str; 4] = ["$cluster", "$namespace", "$workload", "$node"];

/// A query by a name that the code does not have would stay empty.
#[test]
fn the_queries_name_only_what_the_tables_have() {
    for panel in panels() {
        for query in &panel.queries {
            let used: Vec<&Row> = TABLE
                .iter()
                .chain(observer::TABLE)
                .filter(|row| words(&query.expr).any(|word| word == series(row)))
                .collect();
            let labels: BTreeSet<String> = used
                .iter()
                .flat_map(|row| row.labels)
                .map(|(name, _)| name.replace('.', "_"))
                .chain(["cluster", "instance", "job", "le"].map(str::to_owned))
                .collect();
            for word in words(&query.expr).filter(|word| word.starts_with("epitaph_") && !labels.contains(*word)) {
                assert!(used.iter().any(|row| series(row) == word), "{word} in {}", query.expr);
            }
            let mut named: Vec<&str> = lists(&query.expr, "by (", ")");
            named.extend(lists(&query.expr, "on (", ")"));
            named.extend(lists(&query.legend, "{{", "}}"));
            let selectors = lists(&query.expr, "{", "}");
            named.extend(selectors.iter().map(|one| one.split(['=', '!']).next().unwrap()));
            for label in named {
                assert!(labels.contains(label), "{label} in {} or {}", query.expr, query.legend);
            }
            for value in selectors.iter().flat_map(|one| one.split('"').nth(1).unwrap().split('|')) {
                let of_metric = used
                    .iter()
                    .flat_map(|row| row.labels)
                    .any(|(_, values)| words(values).any(|word| word == value));
                let is_verdict = VERDICTS.iter().any(|row| row.headline == value);
                assert!(
                    of_metric || is_verdict || VARIABLES.contains(&value),
                    "{value} in {}",
                    query.expr
                );
            }
        }
    }
}

/// What the table shows is what the query keeps.
#[test]
fn columns_are_labels_of_the_query() {
    for panel in panels() {
        if let View::Table(columns, _) = &panel.view {
            assert_eq!(panel.queries.len(), 1, "{}", panel.title);
            assert_eq!(lists(&panel.queries[0].expr, "by (", ")"), *columns, "{}", panel.title);
        }
    }
}

/// Metrics of workloads are those of the selected namespaces, and no others have a namespace.
#[test]
fn the_selected_namespaces_count_for_every_metric_that_has_one() {
    for query in panels().iter().flat_map(|panel| &panel.queries) {
        for row in TABLE {
            let has_namespace = row.labels.iter().any(|(name, _)| *name == "k8s.namespace.name");
            for after in query.expr.split(&series(row)).skip(1) {
                assert_eq!(after.starts_with(&format!("{{{SELECTED}")), has_namespace, "{}", query.expr);
            }
        }
    }
}

fn panels() -> Vec<Panel> {
    sections().into_iter().flat_map(|section| section.panels).collect()
}

/// The name by which a query has the metric.
fn series(row: &Row) -> String {
    let buckets = if row.shape == Shape::Histogram { "_bucket" } else { "" };
    row.prometheus() + buckets
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// The items of all lists that stand between `open` and `close`.
fn lists<'a>(text: &'a str, open: &str, close: &str) -> Vec<&'a str> {
    let all = text.split(open).skip(1);
    all.flat_map(|list| list.split(close).next().unwrap().split(','))
        .map(str::trim)
        .collect()
}
