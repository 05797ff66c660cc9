//! The programs that users run beside Epitaph, for the tests of `deploy/alerts` and `deploy/examples`: Prometheus, promtool,
//! Alertmanager and the OpenTelemetry Collector; and the schemas of `deploy/pipelines` and of Argo CD and Flux.

use std::path::PathBuf;

use anyhow::Result;

use crate::{
    go::{self, Flags},
    shell,
};

/// Variable of the tests, and package.
const PROMETHEUS: [(&str, &str); 3] = [
    ("EPITAPH_PROMETHEUS", "github.com/prometheus/prometheus/cmd/prometheus"),
    ("EPITAPH_PROMTOOL", "github.com/prometheus/prometheus/cmd/promtool"),
    ("EPITAPH_ALERTMANAGER", "github.com/prometheus/alertmanager/cmd/alertmanager"),
];
const COLLECTOR: (&str, &str) = ("EPITAPH_OTELCOL", "epitaph/otelcol");

/// Variable of the tests, module, and its file of CustomResourceDefinitions.
const SCHEMAS: [(&str, &str, &str); 5] = [
    (
        "EPITAPH_ARGO_CRDS",
        "github.com/argoproj/argo-rollouts",
        "manifests/crds/analysis-template-crd.yaml",
    ),
    (
        "EPITAPH_FLAGGER_CRDS",
        "github.com/fluxcd/flagger",
        "artifacts/flagger/crd.yaml",
    ),
    (
        "EPITAPH_ARGO_CD_CRD",
        "github.com/argoproj/argo-cd/v3",
        "manifests/crds/application-crd.yaml",
    ),
    (
        "EPITAPH_FLUX_HELM_CRD",
        "github.com/fluxcd/helm-controller",
        "config/crd/bases/helm.toolkit.fluxcd.io_helmreleases.yaml",
    ),
    (
        "EPITAPH_FLUX_SOURCE_CRD",
        "github.com/fluxcd/source-controller",
        "config/crd/bases/source.toolkit.fluxcd.io_ocirepositories.yaml",
    ),
];

/// Builds what is missing; each program by the variable that the tests read.
pub fn programs() -> Result<Vec<(&'static str, PathBuf)>> {
    // Without the clouds' service discovery: their clients are most of the build.
    let flags = Flags {
        tags: "remove_all_sd",
        ..Flags::default()
    };
    let module = shell::root().join("xtask/prometheus");
    let files = go::build_all(
        &module,
        &PROMETHEUS.map(|(_, package)| package),
        flags,
        "about five minutes on two cores",
    )?;
    let mut built: Vec<_> = PROMETHEUS.iter().map(|(variable, _)| *variable).zip(files).collect();
    let (variable, package) = COLLECTOR;
    built.push((
        variable,
        go::build(
            &shell::root().join("xtask/otelcol"),
            package,
            "about two minutes on two cores",
        )?,
    ));
    for (variable, module, file) in SCHEMAS {
        let sources = go::sources(&shell::root().join("xtask/pipelines"), module)?;
        built.push((variable, sources.join(file)));
    }
    Ok(built)
}
