//! What was built, as one directory of links: the shape is that of `Tools` in `tests/src/cluster/mod.rs`.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{
    programs,
    rootfs::{self, Suite},
};
use crate::{
    go, jaeger,
    shell::{self, Content},
};

/// A control plane without nodes, and helm.
pub fn api() -> Result<PathBuf> {
    with_helm(programs::build(&[programs::API, programs::CONTROL_PLANE].concat())?)
}

/// The same with the oldest API server that the chart is for.
pub fn oldest_api() -> Result<PathBuf> {
    with_helm(programs::build_oldest()?)
}

fn with_helm(programs: BTreeMap<String, PathBuf>) -> Result<PathBuf> {
    let mut links = in_bin(programs);
    links.insert("bin/helm".into(), helm()?);
    linked(&links)
}

/// Everything for a cluster; the packages of nodes only if there are to be `nodes`, of that Debian.
pub fn all(nodes: Option<Suite>) -> Result<PathBuf> {
    let host = [programs::API, programs::CONTROL_PLANE].concat();
    let mut names = host.clone();
    names.extend(programs::NODE.iter().filter(|_| nodes.is_some()));
    let mut built = programs::build(&names)?;
    let on_nodes: Vec<PathBuf> = programs::NODE.iter().filter_map(|name| built.remove(*name)).collect();
    let mut links = in_bin(built);
    links.insert("bin/helm".into(), helm()?);
    links.insert("bin/jaeger".into(), jaeger::path()?);
    if let Some(suite) = nodes {
        links.insert("bin/go-server".into(), go_server()?);
        machine(&mut links, rootfs::build(suite, &on_nodes)?);
    }
    linked(&links)
}

/// For machines of the `suite` that are not nodes: no kubelet.
pub fn bare(suite: Suite) -> Result<PathBuf> {
    let mut links = in_bin(programs::build(programs::API)?);
    let added = match suite {
        Suite::Runtimes => programs::crio()?,
        // Of OOM kills in containers.
        Suite::OomDaemons => programs::build(programs::CONTAINERD)?.into_values().collect(),
        Suite::Bullseye | Suite::Bookworm | Suite::Trixie | Suite::TrixieBackports => vec![],
    };
    machine(&mut links, rootfs::build(suite, &added)?);
    linked(&links)
}

fn machine(links: &mut BTreeMap<String, PathBuf>, parts: rootfs::Rootfs) {
    links.insert("node/rootfs.raw".into(), parts.disk);
    links.insert("node/vmlinuz".into(), parts.kernel);
    links.insert("node/initrd".into(), parts.initrd);
    links.insert("node/busybox".into(), parts.busybox);
}

pub fn helm() -> Result<PathBuf> {
    go::build(
        &shell::root().join("xtask/helm"),
        "helm.sh/helm/v4/cmd/helm",
        "one to two minutes",
    )
}

/// For an image: a server that handles no signal, in Go.
fn go_server() -> Result<PathBuf> {
    go::build(&shell::root().join("tests/go-server"), "epitaph/go-server", "seconds")
}

fn in_bin(programs: BTreeMap<String, PathBuf>) -> BTreeMap<String, PathBuf> {
    programs
        .into_iter()
        .map(|(name, file)| (format!("bin/{name}"), file))
        .collect()
}

/// A directory named by what it links to, each of which is named by its content: another name is another cluster.
fn linked(links: &BTreeMap<String, PathBuf>) -> Result<PathBuf> {
    let mut content = Content::default();
    for (name, target) in links {
        content.part(name, target.as_os_str().as_encoded_bytes());
    }
    let directory = shell::cache().join(format!("cluster/tools-{}", &content.hex()[..16]));
    if directory.is_dir() {
        return Ok(directory);
    }
    // Under another name until it is whole.
    let partial = directory.with_extension(std::process::id().to_string());
    for (name, target) in links {
        link(target, &partial.join(name))?;
    }
    if let Err(error) = fs::rename(&partial, &directory) {
        fs::remove_dir_all(&partial).with_context(|| format!("removing {}", partial.display()))?;
        // Another task was first.
        if !directory.is_dir() {
            return Err(error).with_context(|| format!("renaming to {}", directory.display()));
        }
    }
    Ok(directory)
}

fn link(target: &Path, file: &Path) -> Result<()> {
    if let Some(parent) = file.parent() {
        fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    }
    symlink(target, file).with_context(|| format!("linking {}", file.display()))
}
