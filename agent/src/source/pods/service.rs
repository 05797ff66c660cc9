//! `service.*` of a pod's application, as OpenTelemetry's operator and collector compute them:
//! <https://opentelemetry.io/docs/specs/semconv/non-normative/k8s-attributes/>.

use std::collections::BTreeMap;

use epitaph_core::pod::{Service, Workload};
use k8s_openapi::api::core::v1::Pod;

use crate::source::bounded;

/// An annotation may be as long as an object.
const MAX_VALUE: usize = 255;

/// All annotations that are read here.
pub(in crate::source) const ANNOTATIONS: [&str; 3] = [
    "resource.opentelemetry.io/service.name",
    "resource.opentelemetry.io/service.namespace",
    "resource.opentelemetry.io/service.version",
];
/// All labels that are read here.
pub(in crate::source) const LABELS: [&str; 3] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/name",
    "app.kubernetes.io/version",
];

pub(super) fn service(pod: &Pod, workload: &Workload) -> Service {
    let meta = &pod.metadata;
    let [name, namespace, version] = ANNOTATIONS.map(|name| value(meta.annotations.as_ref(), name));
    let [label_instance, label_name, label_version] = LABELS.map(|name| value(meta.labels.as_ref(), name));
    let pod_name = meta.name.as_deref().unwrap_or_default();
    Service {
        name: name
            .or(label_instance)
            .or(label_name)
            .unwrap_or_else(|| workload_name(workload).unwrap_or(pod_name).to_owned()),
        namespace: namespace.or_else(|| meta.namespace.clone()),
        version: version.or(label_version).or_else(|| {
            let image = pod.spec.as_ref()?.containers.first()?.image.as_deref()?;
            image_version(image).map(|version| bounded(&version, MAX_VALUE))
        }),
    }
}

/// The convention defines these kinds only; a pod of a custom controller is named by its ReplicaSet or by itself.
fn workload_name(workload: &Workload) -> Option<&str> {
    match workload.kind.as_str() {
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "CronJob" | "Job" => Some(&workload.name),
        _ => {
            let (_, name, _) = workload.through.as_ref()?;
            Some(name)
        }
    }
}

/// `<tag>@<digest>`, `<digest>` or `<tag>`.
fn image_version(image: &str) -> Option<String> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let tag = name.rsplit('/').next()?.split_once(':').map(|(_, tag)| tag);
    match (tag, digest) {
        (Some(tag), Some(digest)) => Some(format!("{tag}@{digest}")),
        (Some(only), None) | (None, Some(only)) => Some(only.to_owned()),
        (None, None) => None,
    }
    .filter(|version| !version.is_empty())
}

fn value(map: Option<&BTreeMap<String, String>>, name: &str) -> Option<String> {
    let value = map?.get(name).filter(|value| !value.is_empty())?;
    Some(bounded(value, MAX_VALUE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_images_version_is_its_tag_and_digest() {
        for (image, version) in [
            ("nginx", None),
            ("nginx:1.27", Some("1.27")),
            ("registry.example:5000/shop/cart", None),
            ("registry.example:5000/shop/cart:v2@sha256:ab", Some("v2@sha256:ab")),
            ("cart@sha256:ab", Some("sha256:ab")),
            ("", None),
        ] {
            assert_eq!(image_version(image).as_deref(), version, "{image}");
        }
    }
}
