//! The cluster's programs, each from its Go module by name and version: `xtask/kubernetes/go.mod`, `xtask/containerd/go.mod`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{
    go::{self, Flags},
    shell,
};

/// What an everyday test needs: an API server with its store, and a client.
pub const API: &[&str] = &["etcd", "kube-apiserver", "kubectl"];
const KUBERNETES: &str = "xtask/kubernetes";
const OF_CONTAINERD: &str = "xtask/containerd";
/// Version and go.mod of the oldest Kubernetes that the chart is for.
const OLDEST: &str = "xtask/kubernetes-1.28";
/// What runs on the host besides.
pub const CONTROL_PLANE: &[&str] = &["kube-controller-manager", "kube-scheduler"];
/// What runs containers where there is no kubelet.
pub const CONTAINERD: &[&str] = &["containerd", "containerd-shim-runc-v2", "ctr"];
/// What runs on a node.
pub const NODE: &[&str] = &["containerd", "containerd-shim-runc-v2", "ctr", "kube-proxy", "kubelet"];

const PACKAGES: &[(&str, &str)] = &[
    ("containerd", "github.com/containerd/containerd/v2/cmd/containerd"),
    (
        "containerd-shim-runc-v2",
        "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
    ),
    ("ctr", "github.com/containerd/containerd/v2/cmd/ctr"),
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
];

/// Builds what is named, all of a module in one call; name → file.
pub fn build(names: &[&str]) -> Result<BTreeMap<String, PathBuf>> {
    let (containerd, kubernetes): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| is_containerds(name));
    let mut programs = BTreeMap::new();
    for (module, names) in [(KUBERNETES, kubernetes), (OF_CONTAINERD, containerd)] {
        if !names.is_empty() {
            programs.extend(build_from(module, &names)?);
        }
    }
    Ok(programs)
}

fn is_containerds(name: &str) -> bool {
    package(name).is_some_and(|package| package.starts_with("github.com/containerd/"))
}

fn package(name: &str) -> Option<&'static str> {
    PACKAGES.iter().find(|(known, _)| *known == name).map(|(_, package)| *package)
}

/// [`API`] with the oldest API server and its controllers, which may not be newer than it; the others are the newest, as a person's kubectl may be.
pub fn build_oldest() -> Result<BTreeMap<String, PathBuf>> {
    let mut programs = build(API)?;
    programs.extend(build_from(OLDEST, &[&["kube-apiserver"], CONTROL_PLANE].concat())?);
    Ok(programs)
}

/// CRI-O, its client, and the C program of CRI-O's module that keeps the namespaces of a pod without an infra container.
pub fn crio() -> Result<Vec<PathBuf>> {
    const CRIO: &str = "github.com/cri-o/cri-o";
    let module = shell::root().join("xtask/crio");
    let flags = Flags {
        // Signatures of images without GPG's library in C.
        tags: "containers_image_openpgp,exclude_graphdriver_btrfs",
        ..Flags::default()
    };
    let crio = go::build_all(&module, &[&format!("{CRIO}/cmd/crio")], flags, "five minutes on two cores")?;
    let client = go::build(
        &shell::root().join("xtask/crictl"),
        "sigs.k8s.io/cri-tools/cmd/crictl",
        "one to two minutes",
    )?;
    let mut files = [crio, vec![client]].concat();
    let directory = files.first().and_then(|crio| crio.parent()).context("CRI-O was not built")?;
    let pinns = directory.join("pinns");
    if !pinns.is_file() {
        let sources = go::sources(&module, CRIO)?.join("pinns/src");
        let partial = directory.join(format!("pinns-{}", std::process::id()));
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-static", "-o"])
            .arg(&partial)
            .args([sources.join("pinns.c"), sources.join("sysctl.c")]);
        shell::run_quietly(&mut cc, "building pinns of CRI-O")?;
        fs::rename(&partial, &pinns).with_context(|| format!("renaming to {}", pinns.display()))?;
    }
    files.push(pinns);
    Ok(files)
}

fn build_from(module: &str, names: &[&str]) -> Result<BTreeMap<String, PathBuf>> {
    let packages: Option<Vec<&str>> = names.iter().map(|name| package(name)).collect();
    let packages = packages.with_context(|| format!("one of {} is not a program of the cluster", names.join(", ")))?;
    let module = &shell::root().join(module);
    // containerd's are known by their module's version.
    let ldflags = match module.ends_with(OF_CONTAINERD) {
        true => String::new(),
        false => stamps(module)?,
    };
    let flags = Flags {
        ldflags: &ldflags,
        ..Flags::default()
    };
    let files = go::build_all(module, &packages, flags, "up to six minutes on two cores")?;
    Ok(names.iter().map(|name| (*name).to_owned()).zip(files).collect())
}

/// Unstamped, Kubernetes' programs call themselves v0.0.0-master, and clients and kubelet believe it.
fn stamps(module: &Path) -> Result<String> {
    let path = module.join("go.mod");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let version =
        required(&text, "k8s.io/kubernetes").with_context(|| format!("{} requires no k8s.io/kubernetes", path.display()))?;
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let stamps = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"].map(|package| {
        format!("-X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}")
    });
    Ok(stamps.join(" "))
}

fn required<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(module)).then(|| words.next()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_a_tool_of_the_go_mod() {
        let tools = |module: &str| {
            let text = fs::read_to_string(shell::root().join(module).join("go.mod")).unwrap();
            text.lines()
                .filter_map(|line| line.strip_prefix('\t').map(str::to_owned))
                .collect::<Vec<_>>()
        };
        let (kubernetes, containerd) = (tools(KUBERNETES), tools(OF_CONTAINERD));
        for (name, package) in PACKAGES {
            let tools = if is_containerds(name) { &containerd } else { &kubernetes };
            assert!(tools.iter().any(|tool| tool == package), "{name}");
        }
        let all: Vec<&str> = [API, CONTROL_PLANE, NODE].concat();
        assert_eq!(all.len(), PACKAGES.len());
    }

    #[test]
    fn the_stamp_is_the_version_required() {
        let text = "require (\n\tk8s.io/kubelet v0.37.2 // indirect\n\tk8s.io/kubernetes v1.37.2 // indirect\n)\n";
        assert_eq!(required(text, "k8s.io/kubernetes"), Some("v1.37.2"));
        assert_eq!(required(text, "k8s.io/kube"), None);
    }
}
