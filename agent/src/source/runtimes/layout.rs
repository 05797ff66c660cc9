//! The files of each runtime, and what they say of a container. Pure: bytes → description.
//!
//! Every text is chosen by whoever created the container: bounded and escaped. Unknown fields are skipped; of the environment, which
//! often has secrets, nothing is kept.

use epitaph_core::container::ContainerFact;
use epitaph_core::ids::{ContainerId, Signal};
use serde::Deserialize;

use crate::source::bounded;

/// Longest name, image and argument, bytes; most arguments.
const NAME: usize = 128;
const IMAGE: usize = 256;
const ARGUMENT: usize = 256;
const ARGUMENTS: usize = 16;

/// The `config.json` of an OCI bundle, with the annotations of containerd, CRI-O and Podman.
pub(super) fn bundle(bytes: &[u8], id: &ContainerId) -> Result<ContainerFact, serde_json::Error> {
    let Bundle { annotations, process } = serde_json::from_slice(bytes)?;
    let Annotations {
        containerd_type,
        containerd_name,
        containerd_image,
        crio_type,
        crio_image,
        crio_requested,
        kubelet_name,
        stop_signal,
    } = annotations.unwrap_or_default();
    let is_of_crio = crio_type.is_some();
    let role = containerd_type.or(crio_type);
    Ok(ContainerFact {
        id: id.clone(),
        name: name(containerd_name.or(kubelet_name)),
        image: image(
            containerd_image
                .or(crio_image.filter(|name| !name.is_empty()))
                .or(crio_requested),
        ),
        command: arguments(process.and_then(|process| process.args).unwrap_or_default()),
        sandbox: role.as_deref() == Some("sandbox"),
        stop_signal: match stop_signal {
            Some(name) => Signal::named(&name),
            // CRI-O writes down what an image or a pod declares, and otherwise sends SIGTERM.
            None => is_of_crio.then_some(Signal::TERM),
        },
    })
}

/// Docker's `config.v2.json`.
pub(super) fn docker(bytes: &[u8], id: &ContainerId) -> Result<ContainerFact, serde_json::Error> {
    let Docker {
        name: own,
        path,
        args,
        config,
    } = serde_json::from_slice(bytes)?;
    let DockerConfig {
        image: of,
        stop_signal,
        labels,
    } = config.unwrap_or_default();
    let Labels { role, kubelet_name } = labels.unwrap_or_default();
    // cri-dockerd's own names have five parts; people know the one in the pod's spec.
    let own = own.map(|name| name.trim_start_matches('/').to_owned());
    Ok(ContainerFact {
        id: id.clone(),
        name: name(kubelet_name.or(own)),
        image: image(of),
        command: arguments(path.into_iter().chain(args.unwrap_or_default()).collect()),
        sandbox: role.as_deref() == Some("podsandbox"),
        // Without it Docker sends SIGTERM.
        stop_signal: stop_signal.map_or(Some(Signal::TERM), |name| Signal::named(&name)),
    })
}

/// Name and image in the `containers.json` of Podman's storage; None if the container is not in the list.
pub(super) fn storage(bytes: &[u8], id: &ContainerId) -> Result<Option<ContainerFact>, serde_json::Error> {
    let all: Vec<Stored> = serde_json::from_slice(bytes)?;
    let Some(found) = all.into_iter().find(|stored| *stored.id == *id.0) else {
        return Ok(None);
    };
    let metadata = found.metadata.as_deref().map(serde_json::from_str);
    let StoredMetadata { name: first, image: of } = metadata.transpose()?.unwrap_or_default();
    // `podman rename` changes the list of names only.
    let own = found.names.and_then(|names| names.into_iter().next());
    Ok(Some(ContainerFact {
        name: name(own.or(first)),
        image: image(of),
        ..ContainerFact::unknown(id.clone())
    }))
}

#[derive(Deserialize)]
struct Bundle {
    #[serde(default)]
    annotations: Option<Annotations>,
    #[serde(default)]
    process: Option<Process>,
}

#[derive(Deserialize)]
struct Process {
    #[serde(default)]
    args: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "io.kubernetes.cri.container-type")]
    containerd_type: Option<String>,
    #[serde(rename = "io.kubernetes.cri.container-name")]
    containerd_name: Option<String>,
    #[serde(rename = "io.kubernetes.cri.image-name")]
    containerd_image: Option<String>,
    #[serde(rename = "io.kubernetes.cri-o.ContainerType")]
    crio_type: Option<String>,
    /// A name of the image; what was requested can be an id.
    #[serde(rename = "io.kubernetes.cri-o.ImageName")]
    crio_image: Option<String>,
    #[serde(rename = "io.kubernetes.cri-o.Image")]
    crio_requested: Option<String>,
    /// The kubelet's label: CRI-O writes labels as annotations.
    #[serde(rename = "io.kubernetes.container.name")]
    kubelet_name: Option<String>,
    #[serde(rename = "org.opencontainers.image.stopSignal")]
    stop_signal: Option<String>,
}

#[derive(Deserialize)]
struct Docker {
    #[serde(default, rename = "Name")]
    name: Option<String>,
    #[serde(default, rename = "Path")]
    path: Option<String>,
    #[serde(default, rename = "Args")]
    args: Option<Vec<String>>,
    #[serde(default, rename = "Config")]
    config: Option<DockerConfig>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DockerConfig {
    #[serde(rename = "Image")]
    image: Option<String>,
    #[serde(rename = "StopSignal")]
    stop_signal: Option<String>,
    #[serde(rename = "Labels")]
    labels: Option<Labels>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Labels {
    #[serde(rename = "io.kubernetes.docker.type")]
    role: Option<String>,
    #[serde(rename = "io.kubernetes.container.name")]
    kubelet_name: Option<String>,
}

#[derive(Deserialize)]
struct Stored {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    /// JSON in a text.
    #[serde(default)]
    metadata: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredMetadata {
    name: Option<String>,
    #[serde(rename = "image-name")]
    image: Option<String>,
}

fn name(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(|text| bounded(&text, NAME))
}

fn image(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(|text| bounded(&text, IMAGE))
}

fn arguments(all: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = all.into_iter().take(ARGUMENTS).map(|one| bounded(&one, ARGUMENT)).collect();
    // The list keeps the room of all arguments otherwise.
    kept.shrink_to_fit();
    kept
}
