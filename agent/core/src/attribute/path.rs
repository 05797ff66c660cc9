//! cgroup path → container, systemd unit, or host. Pure text work; any process on the machine may have chosen the path.
//!
//! In a pod the outermost pod segment and the segment after it decide; segments below (crun's `container`, a systemd, a Docker or
//! a forged pod inside the container) do not count. Without a pod segment the innermost container segment decides, and without
//! a container segment the innermost systemd service or scope.
//!
//! A container and a user with cgroups of their own can create any name below them. So a pod segment below a container or a
//! user's manager does not count, and the container or user is the owner; unless the machine's nodes are known to be containers
//! themselves (kind, minikube): [`Nodes`].

use std::borrow::Cow;
use std::sync::Arc;

use super::{ContainerId, PodUid, Runtime, Subject};
use crate::text::bounded;

/// The kernel's `PATH_MAX`.
const MAX_PATH: usize = 4096;
/// The kernel's `NAME_MAX`: a longer segment cannot be a cgroup's.
const MAX_NAME: usize = 255;
/// Longest path shown, in bytes before escaping.
const MAX_SHOWN: usize = 1024;

/// The owner of the cgroup at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// The subject, and the path of its own cgroup: a prefix of the path given.
    Subject(Subject, &'a str),
    Host,
}

/// Why a path does not name a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("cgroup path does not begin at its hierarchy's root")]
    NotAbsolute,
    #[error("cgroup path has a segment that no cgroup can have")]
    Malformed,
    /// `/..` as `/proc/PID/cgroup` shows it to a reader in a cgroup namespace of its own: the segments before are not known.
    #[error("cgroup path is outside the reader's cgroup namespace; run the agent in the host's cgroup namespace")]
    OutsideNamespace,
}

/// Where the Kubernetes nodes of a machine are: see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nodes {
    /// The machine is a node, or none.
    #[default]
    Machine,
    /// Nodes run in containers or under a user's manager: the pods below one are a node's.
    Containers,
}

/// Finds the subject of a cgroup, by its path from the hierarchy's root.
pub fn parse(path: &str, nodes: Nodes) -> Result<Place<'_>, PathError> {
    let (segments, outside) = split(path)?;
    match subject(&segments, nodes) {
        Some((subject, at)) => Ok(Place::Subject(subject, &path[..segments[at].end])),
        None if outside => Err(PathError::OutsideNamespace),
        None => Ok(Place::Host),
    }
}

fn subject(segments: &[Segment<'_>], nodes: Nodes) -> Option<(Subject, usize)> {
    match (container_of_pod(segments), owned_pod(segments, nodes)) {
        // All names below the pod's are the owner's own.
        (_, Some(pod_at)) => {
            let above = &segments[..pod_at];
            container(above).or_else(|| unit(above))
        }
        (Some(pod), None) => Some(pod),
        (None, None) => container(segments).or_else(|| unit(segments)),
    }
}

/// The place of a pod's name below a container's or a user's cgroup, where cgroups can have any name. None if pods of a node can be there.
fn owned_pod(segments: &[Segment<'_>], nodes: Nodes) -> Option<usize> {
    let owner = (0..segments.len()).find(|&at| container_at(segments, at).is_some() || is_users(segments, at))?;
    let pod_at = (0..segments.len()).find(|&at| pod_uid(segments, at).is_some())?;
    (owner < pod_at && nodes == Nodes::Machine).then_some(pod_at)
}

/// The pod by whose name a cgroup is called that counts for a container or a user around it: of a node that is a container itself, where
/// [`Nodes::Machine`] holds.
pub fn pod_below_container(path: &str) -> Option<PodUid> {
    let (segments, _) = split(path).ok()?;
    pod_uid(&segments, owned_pod(&segments, Nodes::Machine)?)
}

/// The path of the outermost container's cgroup, a prefix of the path given: a cgroup made inside a container counts for that
/// container, under any name.
pub fn outermost_container(path: &str) -> Option<&str> {
    let (segments, _) = split(path).ok()?;
    let is_container = |&at: &usize| {
        container_of_pod_at(&segments, at)
            .or_else(|| container_at(&segments, at))
            .is_some()
    };
    let at = (0..segments.len()).find(is_container)?;
    Some(&path[..segments[at].end])
}

/// The path of the outermost container around a cgroup of another subject: a container inside it, or the pods of a node that
/// runs in it (kind, minikube). None if the cgroup counts for the outermost container.
pub fn enclosing_container(path: &str, nodes: Nodes) -> Option<&str> {
    let outermost = outermost_container(path)?;
    let is_of_another = || matches!(parse(path, nodes), Ok(Place::Subject(_, own)) if own != outermost);
    let is_of_pods = || nodes == Nodes::Containers && path[outermost.len()..].contains("kubepods");
    (is_of_another() || is_of_pods()).then_some(outermost)
}

/// The path of the party that can make the cgroup at a path: the container of a pod, otherwise the outermost container, otherwise the
/// outermost unit or session. None if the cgroup is the party's own, or in none.
pub fn party(path: &str, nodes: Nodes) -> Option<&str> {
    // A malformed name is below the party: the party chose the name.
    let (segments, ..) = split_well_formed(path);
    let any_unit = |segment: &Segment<'_>| segment.name.ends_with(".service") || segment.name.ends_with(".scope");
    let pod = container_of_pod(&segments).filter(|_| owned_pod(&segments, nodes).is_none());
    let at = match pod {
        Some((_, at)) => at,
        None => (0..segments.len())
            .find(|&at| container_at(&segments, at).is_some())
            .or_else(|| segments.iter().position(any_unit))?,
    };
    (segments[at].end < path.trim_end_matches('/').len()).then(|| &path[..segments[at].end])
}

/// The segments; true if segments before them are not known.
fn split(path: &str) -> Result<(Vec<Segment<'_>>, bool), PathError> {
    match split_well_formed(path) {
        (_, _, Some(error)) => Err(error),
        (segments, outside, None) => Ok((segments, outside)),
    }
}

/// The same for the part of the path before the first malformed name, and the error of this name.
fn split_well_formed(path: &str) -> (Vec<Segment<'_>>, bool, Option<PathError>) {
    let mut segments: Vec<Segment<'_>> = Vec::with_capacity(12);
    let mut outside = false;
    if !path.starts_with('/') {
        return (segments, outside, Some(PathError::NotAbsolute));
    }
    let mut start = 1;
    for name in path[1..].split('/') {
        let end = start + name.len();
        match name {
            "" => {}
            ".." if segments.is_empty() => outside = true,
            "." | ".." => return (segments, outside, Some(PathError::Malformed)),
            _ if name.len() > MAX_NAME || end > MAX_PATH => return (segments, outside, Some(PathError::Malformed)),
            _ => segments.push(Segment { name, end }),
        }
        start = end + 1;
    }
    (segments, outside, None)
}

#[derive(Clone, Copy)]
struct Segment<'a> {
    name: &'a str,
    /// Offset of the end of the name in the path.
    end: usize,
}

/// The outermost.
fn container_of_pod(segments: &[Segment<'_>]) -> Option<(Subject, usize)> {
    (0..segments.len()).find_map(|at| Some((container_of_pod_at(segments, at)?, at)))
}

fn container_of_pod_at(segments: &[Segment<'_>], at: usize) -> Option<Subject> {
    let pod = pod_uid(segments, at.checked_sub(1)?)?;
    let name = segments[at].name;
    let (runtime, id) = runtime_scope(name).or_else(|| container_id(name).map(|id| (Runtime::Unnamed, id)))?;
    Some(Subject::Container {
        id,
        runtime,
        pod: Some(pod),
    })
}

/// The innermost.
fn container(segments: &[Segment<'_>]) -> Option<(Subject, usize)> {
    (0..segments.len())
        .rev()
        .find_map(|at| Some((container_at(segments, at)?, at)))
}

fn container_at(segments: &[Segment<'_>], at: usize) -> Option<Subject> {
    let name = segments[at].name;
    let (runtime, id) = runtime_scope(name).or_else(|| {
        let parent = segments[at.checked_sub(1)?].name;
        let runtime = match parent {
            "docker" => Runtime::Docker,
            // containerd's own default is /<namespace>/<id>: nerdctl and ctr with the cgroupfs driver.
            "default" | "k8s.io" if at == 1 => Runtime::Containerd,
            _ => return None,
        };
        Some((runtime, container_id(name)?))
    })?;
    Some(Subject::Container { id, runtime, pod: None })
}

fn unit(segments: &[Segment<'_>]) -> Option<(Subject, usize)> {
    for at in (0..segments.len()).rev() {
        let name = segments[at].name;
        let Some(stem) = name.strip_suffix(".service").or_else(|| name.strip_suffix(".scope")) else {
            continue;
        };
        if stem.is_empty() {
            continue;
        }
        if name == "init.scope" {
            // The manager's own processes: the machine's systemd belongs to the host, a user's to user@.service.
            continue;
        }
        let parent = at.checked_sub(1).map_or("", |above| segments[above].name);
        if is_session(stem, parent) || is_monitor(stem) {
            return None;
        }
        // systemd puts an underscore before a name that collides with a file of the cgroup file system.
        let name = name.strip_prefix('_').unwrap_or(name);
        return Some((
            Subject::Unit {
                name: Arc::from(bounded(name, MAX_NAME)),
            },
            at,
        ));
    }
    None
}

/// A login session: `user-1000.slice/session-c1.scope`.
fn is_session(stem: &str, parent: &str) -> bool {
    stem.strip_prefix("session-")
        .is_some_and(|id| is_all(id, u8::is_ascii_alphanumeric))
        && is_users_slice(parent)
}

/// `user-1000.slice`, below which systemd lets a user create cgroups of any name.
fn is_users(segments: &[Segment<'_>], at: usize) -> bool {
    let above = at.checked_sub(1).map(|above| segments[above].name);
    above == Some("user.slice") && is_users_slice(segments[at].name)
}

fn is_users_slice(name: &str) -> bool {
    let uid = name.strip_prefix("user-").and_then(|rest| rest.strip_suffix(".slice"));
    uid.is_some_and(|uid| is_all(uid, u8::is_ascii_digit))
}

fn is_all(text: &str, of: fn(&u8) -> bool) -> bool {
    !text.is_empty() && text.as_bytes().iter().all(of)
}

/// A container's monitor, `libpod-conmon-<id>.scope` or `crio-conmon-<id>.scope`: its exit is part of the container's termination.
fn is_monitor(stem: &str) -> bool {
    ["libpod-conmon-", "crio-conmon-"]
        .iter()
        .any(|prefix| stem.strip_prefix(prefix).and_then(container_id).is_some())
}

/// `cri-containerd-<64 hex>.scope` (systemd driver), `crio-<64 hex>` (cgroupfs driver): a name that only a runtime gives.
fn runtime_scope(name: &str) -> Option<(Runtime, ContainerId)> {
    const PREFIXES: [(&str, Runtime); 6] = [
        ("cri-containerd-", Runtime::Containerd),
        ("nerdctl-", Runtime::Containerd),
        ("crio-", Runtime::CriO),
        ("docker-", Runtime::Docker),
        ("libpod-payload-", Runtime::Podman),
        ("libpod-", Runtime::Podman),
    ];
    let stem = name.strip_suffix(".scope").unwrap_or(name);
    // `crio-conmon-<id>` and `libpod-conmon-<id>` have no id after their prefix: the monitor is not a container.
    PREFIXES
        .iter()
        .find_map(|(prefix, runtime)| Some((*runtime, container_id(stem.strip_prefix(prefix)?)?)))
}

fn container_id(text: &str) -> Option<ContainerId> {
    (text.len() == 64 && text.bytes().all(is_hex)).then(|| ContainerId(Arc::from(text)))
}

/// The UID where segment `at` is a pod's: `kubepods-burstable-pod<uid>.slice`, or `pod<uid>` below `kubepods[/<qos>]`.
fn pod_uid(segments: &[Segment<'_>], at: usize) -> Option<PodUid> {
    let name = segments[at].name;
    if let Some(slice) = name.strip_suffix(".slice") {
        let (parents, uid) = slice.rsplit_once("-pod")?;
        return if parents.split('-').any(|part| part == "kubepods") {
            uid_of(uid, '_')
        } else {
            None
        };
    }
    let uid = name.strip_prefix("pod")?;
    let above = |n: usize| at.checked_sub(n).map(|i| segments[i].name);
    let below_kubepods = match above(1)? {
        "kubepods" => true,
        "burstable" | "besteffort" => above(2) == Some("kubepods"),
        _ => false,
    };
    if below_kubepods { uid_of(uid, '-') } else { None }
}

/// A UUID with `separator` between its groups, or a static pod's 32 hex digits.
fn uid_of(text: &str, separator: char) -> Option<PodUid> {
    if text.len() == 32 && text.bytes().all(is_hex) {
        return Some(PodUid(Arc::from(text)));
    }
    let is_uuid = text.len() == 36
        && text.char_indices().all(|(i, c)| match i {
            8 | 13 | 18 | 23 => c == separator,
            _ => c.is_ascii() && is_hex(c as u8),
        });
    is_uuid.then(|| PodUid(Arc::from(text.replace('_', "-"))))
}

fn is_hex(b: u8) -> bool {
    matches!(b, b'0'..=b'9' | b'a'..=b'f')
}

/// A path that is safe to print: bounded, without control characters for a terminal or a log.
pub fn shown(path: &str) -> Cow<'_, str> {
    bounded(path, MAX_SHOWN)
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
