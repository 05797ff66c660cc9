//! Values for what another team owns: definitions, roles, monitoring, further objects.

use serde_json::{Value, json};

use super::{Rendering, find};

/// Who installs the CustomResourceDefinitions, binds the roles or scrapes is not always who installs the chart.
#[test]
fn what_other_teams_own_is_a_value() -> anyhow::Result<()> {
    let Some(rendering) = Rendering::new("what_other_teams_own_is_a_value")? else {
        return Ok(());
    };
    let definitions = |values: &Value| -> anyhow::Result<Vec<Value>> {
        let objects = rendering.objects(values)?;
        let is_definition = |object: &Value| object["kind"] == "CustomResourceDefinition";
        Ok(objects.into_iter().filter(is_definition).collect())
    };
    let kept = |objects: &[Value]| {
        let policy = |object: &Value| object["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep";
        objects.iter().filter(|object| policy(object)).count()
    };
    let default = definitions(&json!({}))?;
    assert_eq!((default.len(), kept(&default)), (2, 2));
    let removed = definitions(&json!({"crds": {"keep": false}}))?;
    assert_eq!((removed.len(), kept(&removed)), (2, 0));
    assert!(definitions(&json!({"crds": {"enabled": false}}))?.is_empty());

    let objects = rendering.objects(&json!({
        "rbac": {"aggregate": false}, "service": {"annotations": {"prometheus.io/scrape": "true"}},
        "serviceMonitor": {
            "enabled": true, "namespace": "monitoring", "scrapeTimeout": "9s", "honorLabels": true, "annotations": {"a": "1"},
            "relabelings": [{"targetLabel": "t", "replacement": "v"}], "metricRelabelings": [{"action": "drop", "regex": "x"}],
        },
        "prometheusRule": {"enabled": true, "namespace": "monitoring", "annotations": {"a": "1"}},
        "dashboard": {"enabled": true, "namespace": "grafana", "annotations": {"grafana_folder": "f"}},
        "extraObjects": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "as-it-is"}, "data": {"x": "{{ .Release.Name }}"}},
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-of-a-template'}\n",
        ],
    }))?;
    let labels = &find(&objects, "ClusterRole", "epitaph-view")?["metadata"]["labels"];
    assert!(labels["rbac.authorization.k8s.io/aggregate-to-view"].is_null(), "{labels}");
    for service in ["epitaph-agent", "epitaph-observer"] {
        let annotations = &find(&objects, "Service", service)?["metadata"]["annotations"];
        assert_eq!(annotations["prometheus.io/scrape"], "true", "{service}");
    }
    let monitor = find(&objects, "ServiceMonitor", "epitaph")?;
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(monitor["spec"]["namespaceSelector"]["matchNames"], json!(["epitaph"]));
    assert_eq!(
        (&endpoint["scrapeTimeout"], &endpoint["honorLabels"]),
        (&json!("9s"), &json!(true))
    );
    // After the chart's own.
    assert_eq!(endpoint["relabelings"][2]["targetLabel"], "t");
    assert_eq!(endpoint["metricRelabelings"][0]["action"], "drop");
    for (kind, name, namespace) in [
        ("ServiceMonitor", "epitaph", "monitoring"),
        ("PrometheusRule", "epitaph", "monitoring"),
        ("ConfigMap", "epitaph-dashboard", "grafana"),
    ] {
        let meta = &find(&objects, kind, name)?["metadata"];
        assert_eq!(meta["namespace"], namespace, "{kind}");
        assert!(meta["annotations"].is_object(), "{kind}");
    }
    assert_eq!(find(&objects, "ConfigMap", "as-it-is")?["data"]["x"], "{{ .Release.Name }}");
    find(&objects, "ConfigMap", "epitaph-of-a-template")?;
    Ok(())
}
