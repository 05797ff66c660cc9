//! Sections and panels as Grafana reads them.

use serde_json::{Value, json};

use super::{BUILD, Panel, Query, Section, UNSCRAPED, View, WORKLOAD_TERMINATIONS};

/// Columns of a dashboard.
pub(super) const WIDTH: u64 = 24;
/// Of a panel; a row's heading has 1.
const HEIGHT: u64 = 9;
/// Of the JSON model: Grafana 11; newer versions migrate it.
const SCHEMA: u64 = 39;
/// Jaeger behind `kubectl port-forward`, as deploy/examples has it; the chart puts `dashboard.tracesUrl` here.
const TRACES: &str = "http://localhost:16686";

/// Grafana imports the file, by hand or from a ConfigMap.
pub fn json(sections: &[Section]) -> String {
    let mut dashboard = json!({
        "uid": "epitaph",
        "title": "Epitaph",
        "description": "Why pods, containers and systemd units terminated. Generated from the tables of verdicts and metrics by \
                        `UPDATE_EXPECT=1 cargo test -p epitaph --lib dashboard`; do not edit.",
        "tags": ["epitaph"],
        "schemaVersion": SCHEMA,
        "editable": true,
        "graphTooltip": 1,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": variables()},
        "panels": panels(sections),
    });
    // The order must not depend on the features with which a build has serde_json.
    dashboard.sort_all_objects();
    format!("{dashboard:#}\n")
}

fn variables() -> [Value; 6] {
    let workloads = WORKLOAD_TERMINATIONS.prometheus();
    let cluster = format!("label_values({}, cluster)", BUILD.prometheus());
    let namespace = format!("label_values({workloads}{{cluster=~\"$cluster\"}}, k8s_namespace_name)");
    let selected = "cluster=~\"$cluster\",k8s_namespace_name=~\"$namespace\"";
    let workload = format!("label_values({workloads}{{{selected}}}, epitaph_workload_name)");
    let node = format!("label_values({}{{cluster=~\"$cluster\"}}, instance)", BUILD.prometheus());
    [
        json!({"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}),
        list("cluster", "Cluster", &cluster),
        list("namespace", "Namespace", &namespace),
        list("workload", "Workload", &workload),
        list("node", "Node", &node),
        json!({
            "name": "traces", "label": "Address of Jaeger", "type": "textbox", "query": TRACES,
            "current": {"text": TRACES, "value": TRACES},
        }),
    ]
}

/// All, until the reader selects some. A Prometheus of one cluster has no label `cluster`, and `.*` fits an absent label, too.
fn list(name: &str, label: &str, query: &str) -> Value {
    json!({
        "name": name, "label": label, "type": "query", "datasource": datasource(),
        "query": {"query": query, "refId": name}, "definition": query,
        // When the time range changes.
        "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    })
}

/// From left to right, and below where the width ends.
fn panels(sections: &[Section]) -> Vec<Value> {
    let (mut out, mut y) = (Vec::new(), 0);
    for section in sections {
        let id = out.len() + 1;
        out.push(json!({
            "id": id, "type": "row", "title": section.title, "collapsed": false, "panels": [],
            "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
        }));
        y += 1;
        let mut x = 0;
        for panel in &section.panels {
            if x + panel.width > WIDTH {
                (x, y) = (0, y + HEIGHT);
            }
            let id = out.len() + 1;
            out.push(one(panel, id, &json!({"x": x, "y": y, "w": panel.width, "h": HEIGHT})));
            x += panel.width;
        }
        y += HEIGHT;
    }
    out
}

fn one(panel: &Panel, id: usize, at: &Value) -> Value {
    let is_table = matches!(panel.view, View::Table(..));
    let targets: Vec<Value> = ('A'..)
        .zip(&panel.queries)
        .map(|(name, query)| target(name, query, is_table))
        .collect();
    let (kind, mut defaults, options, transformations) = view(&panel.view);
    defaults["unit"] = panel.unit.into();
    defaults["noValue"] = format!("{}, or {UNSCRAPED}", panel.empty).into();
    json!({
        "id": id, "gridPos": at, "type": kind, "title": panel.title, "description": described(panel), "datasource": datasource(),
        "targets": targets, "links": [], "fieldConfig": {"defaults": defaults, "overrides": to_traces(&panel.view)}, "options": options,
        "transformations": transformations,
    })
}

fn datasource() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn target(name: char, query: &Query, is_table: bool) -> Value {
    json!({
        "refId": name, "datasource": datasource(), "expr": query.expr, "legendFormat": query.legend, "editorMode": "code",
        "instant": is_table, "range": !is_table, "format": if is_table { "table" } else { "time_series" },
    })
}

/// With the names of its alerts: the chart makes links of them where the runbooks have an address (`runbookUrl`).
fn described(panel: &Panel) -> String {
    let explained: Vec<String> = panel
        .alerts
        .iter()
        .map(|alert| format!("`epitaph explain {alert}`"))
        .collect();
    format!("{} Runbooks: {}.", panel.about, explained.join(", "))
}

/// From a verdict in a table to the traces that have it. The service of a pod's traces is the application, mostly the workload's name.
/// From a lost node to its traces: they come after the loss, with one name for every verdict.
fn to_traces(view: &View) -> Value {
    let link = |column: &str, service: &str, tag: &str, title: &str| {
        let tags = format!("%7B%22{tag}%22%3A%22${{__value.text}}%22%7D");
        let url = format!("${{traces:raw}}/search?service={service}&tags={tags}&lookback=2d");
        let link = json!({"title": title, "url": url, "targetBlank": true});
        json!([{"matcher": {"id": "byName", "options": column}, "properties": [{"id": "links", "value": [link]}]}])
    };
    match view {
        View::Table(columns, Some(_)) if columns.iter().any(|column| column == "epitaph_workload_name") => link(
            "verdict",
            "${__data.fields.workload}",
            "epitaph.verdict",
            "Traces with this verdict",
        ),
        View::Table(columns, _) if columns.iter().any(|column| column == "k8s_node_name") => {
            link("k8s_node_name", "epitaph", "k8s.node.name", "Traces of this node")
        }
        View::Table(columns, _) if columns.iter().any(|column| column == "verdict") => {
            link("verdict", "epitaph", "epitaph.verdict", "Traces with this verdict")
        }
        _ => json!([]),
    }
}

/// Grafana's type of the panel, the defaults of its fields, its options, its transformations.
fn view(view: &View) -> (&'static str, Value, Value, Value) {
    let (stacking, fill, limit) = match view {
        View::Table(columns, value) => return table(columns, *value),
        View::Lines => ("none", 0, None),
        View::Stacked => ("normal", 40, None),
        View::Limit(limit) => ("none", 0, Some(limit)),
    };
    let mut steps = vec![json!({"color": "green", "value": null})];
    steps.extend(limit.map(|limit| json!({"color": "red", "value": limit})));
    let style = if limit.is_some() { "line" } else { "off" };
    let defaults = json!({
        "min": 0,
        "color": {"mode": "palette-classic"},
        "custom": {
            "drawStyle": "line", "lineWidth": 1, "fillOpacity": fill, "showPoints": "auto", "spanNulls": false,
            "stacking": {"mode": stacking, "group": "A"}, "thresholdsStyle": {"mode": style},
        },
        "thresholds": {"mode": "absolute", "steps": steps},
    });
    let options = json!({
        "legend": {"showLegend": true, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    });
    ("timeseries", defaults, options, json!([]))
}

/// Grafana's own columns are `Time`, of the query, and `Value`.
fn table(columns: &[String], value: Option<&str>) -> (&'static str, Value, Value, Value) {
    let (mut names, mut order) = (json!({}), json!({}));
    let heading = value.map(|heading| ("Value", heading));
    for (index, (field, name)) in heading
        .into_iter()
        .chain(columns.iter().map(|label| (label.as_str(), heading_of(label))))
        .enumerate()
    {
        names[field] = name.into();
        order[field] = index.into();
    }
    let sort = value.map(|heading| json!({"displayName": heading, "desc": true}));
    let options = json!({"showHeader": true, "cellHeight": "sm", "sortBy": Vec::from_iter(sort)});
    let excluded = json!({"Time": true, "Value": value.is_none()});
    let transformations = json!([{
        "id": "organize",
        "options": {"excludeByName": excluded, "renameByName": names, "indexByName": order},
    }]);
    let defaults = json!({"custom": {"align": "auto", "filterable": true}});
    ("table", defaults, options, transformations)
}

fn heading_of(label: &str) -> &str {
    match label {
        "k8s_namespace_name" => "namespace",
        "epitaph_workload_kind" => "kind",
        "epitaph_workload_name" => "workload",
        other => other,
    }
}
