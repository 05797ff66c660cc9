//! `deploy/pipelines` by the schemas of Argo Rollouts and Flagger, and the examples of Argo CD and Flux by theirs, on a real API server.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use epitaph_tests::cluster::Tools;
use epitaph_tests::cluster::control_plane::ControlPlane;
use epitaph_tests::cluster::kubectl::Kubectl;
use epitaph_tests::monitoring::program;
use epitaph_tests::skip::skip;
use epitaph_tests::timeout::{holds, until};

const ARGO: &str = include_str!("../../../deploy/pipelines/argo-rollouts.yaml");
const FLAGGER: &str = include_str!("../../../deploy/pipelines/flagger.yaml");
const ARGO_CD: &str = include_str!("../../../deploy/examples/argo-cd.yaml");
const FLUX: &str = include_str!("../../../deploy/examples/flux.yaml");
/// For the template of Flagger.
const NAMESPACE: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: flagger-system}}";

/// Without what another field manager has: an object may be there already.
fn validate(kubectl: &Kubectl, objects: &str) -> anyhow::Result<()> {
    let strict = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"];
    kubectl.run_with(&strict, objects).map(drop)
}

/// Adds the definition in the file, and waits until the API server serves it.
fn define(kubectl: &Kubectl, file: &Path, definition: &str) -> anyhow::Result<()> {
    let definitions = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    // Longer than kubectl's annotation of what was applied.
    kubectl.run_with(&["create", "-f", "-"], &definitions)?;
    until(&format!("the definition {definition} to be established"), || {
        let object = kubectl.json(&["get", "customresourcedefinition", definition, "-o", "json"])?;
        let conditions = object["status"]["conditions"].as_array();
        let is_established = conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
        Ok(holds(is_established, || object["status"].to_string()))
    })
}

#[test]
fn the_templates_of_pipelines_are_valid_by_their_own_schemas() -> anyhow::Result<()> {
    let test = "the_templates_of_pipelines_are_valid_by_their_own_schemas";
    let schemas = ["EPITAPH_ARGO_CRDS", "EPITAPH_FLAGGER_CRDS"].map(program);
    let (Some(tools), [Some(argo), Some(flagger)]) = (Tools::named()?, schemas) else {
        skip(
            test,
            "cargo xtask test builds a kube-apiserver and fetches the definitions: EPITAPH_CLUSTER_TOOLS, EPITAPH_ARGO_CRDS, EPITAPH_FLAGGER_CRDS",
        );
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let plane = ControlPlane::api_only(&tools, directory.path())?;
    let kubectl = plane.kubectl();
    for (file, definition) in [
        (argo, "analysistemplates.argoproj.io"),
        (flagger, "metrictemplates.flagger.app"),
    ] {
        define(&kubectl, &file, definition)?;
    }
    kubectl.apply(NAMESPACE)?;
    validate(&kubectl, ARGO)?;
    validate(&kubectl, FLAGGER)?;

    // The validation is one that can fail: an unknown field, and a field that is missing.
    let unknown = ARGO.replace("failureLimit:", "failuresLimit:");
    let refused = validate(&kubectl, &unknown).expect_err("an unknown field").to_string();
    ensure!(refused.contains("failuresLimit"), "{refused}");
    let missing = FLAGGER.replace("  query: |", "  queries: |");
    let refused = validate(&kubectl, &missing).expect_err("no query").to_string();
    ensure!(refused.contains("quer"), "{refused}");
    Ok(())
}

#[test]
fn the_examples_of_argo_cd_and_flux_are_valid_by_their_own_schemas() -> anyhow::Result<()> {
    let test = "the_examples_of_argo_cd_and_flux_are_valid_by_their_own_schemas";
    let schemas = ["EPITAPH_ARGO_CD_CRD", "EPITAPH_FLUX_HELM_CRD", "EPITAPH_FLUX_SOURCE_CRD"].map(program);
    let (Some(tools), [Some(argo), Some(helm), Some(source)]) = (Tools::named()?, schemas) else {
        skip(
            test,
            "cargo xtask test builds a kube-apiserver and fetches the definitions: EPITAPH_CLUSTER_TOOLS, EPITAPH_ARGO_CD_CRD, EPITAPH_FLUX_HELM_CRD, \
             EPITAPH_FLUX_SOURCE_CRD",
        );
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let plane = ControlPlane::api_only(&tools, directory.path())?;
    let kubectl = plane.kubectl();
    for (file, definition) in [
        (argo, "applications.argoproj.io"),
        (helm, "helmreleases.helm.toolkit.fluxcd.io"),
        (source, "ocirepositories.source.toolkit.fluxcd.io"),
    ] {
        define(&kubectl, &file, definition)?;
    }
    // A dry run makes no namespace for the objects behind it.
    for name in ["argocd", "epitaph"] {
        kubectl.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"))?;
    }
    validate(&kubectl, ARGO_CD)?;
    validate(&kubectl, FLUX)?;

    // The validation is one that can fail: for each kind an unknown field, or a value that its schema refuses.
    for (example, right, wrong, named) in [
        (ARGO_CD, "targetRevision:", "targetVersion:", "targetVersion"),
        (FLUX, "chartRef:", "chartReference:", "chartReference"),
        (FLUX, "oci://HOST", "https://HOST", "spec.url"),
    ] {
        ensure!(example.contains(right), "no {right} in an example");
        let refused = validate(&kubectl, &example.replace(right, wrong))
            .expect_err(named)
            .to_string();
        ensure!(refused.contains(named), "{refused}");
    }
    Ok(())
}
