//! Names of containers from the files that their runtimes keep: the OCI bundle (containerd, CRI-O, Podman) and the runtime's own state
//! (Docker, Podman). Read-only, bounded, on request of the core, and never needed: a container without such a file has its id.
//!
//! The files are read by a thread of their own: a disk that hangs must not keep the agent from the kernel's records.
//!
//! *Architecture invariant*: no socket of a runtime is used, and the environment of a container, which often has secrets, is not kept.

mod layout;

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use epitaph_core::container::ContainerFact;
use epitaph_core::ids::ContainerId;
use epitaph_core::input::Input;
use tokio::sync::mpsc;

use super::files::{Directory, FileError};

/// The directories of the runtimes' own defaults, and of k3s and RKE2.
pub const DIRECTORIES: &[&str] = &[
    "/run/containerd/io.containerd.runtime.v2.task",
    "/run/k3s/containerd/io.containerd.runtime.v2.task",
    "/var/lib/docker/containers",
    "/var/lib/containers/storage/overlay-containers",
];

/// A bundle has a few ten kilobytes, more with many mounts or variables; the list of a storage a kilobyte for each container.
const MOST: u64 = 1 << 20;
const MOST_LISTED: u64 = 8 << 20;
/// Most namespaces of containerd that are looked into.
const NAMESPACES: usize = 64;
/// Questions and answers that wait.
const QUEUE: usize = 1_024;

/// Whose files a directory has, by its last component, which the runtimes do not let users choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// `NAMESPACE/ID/config.json`.
    Containerd,
    /// `ID/config.v2.json`.
    Docker,
    /// `ID/userdata/config.json`, and `containers.json`: CRI-O and Podman.
    Storage,
}

impl Layout {
    fn of(directory: &Path) -> Option<Layout> {
        Some(match directory.file_name()?.to_str()? {
            "io.containerd.runtime.v2.task" => Layout::Containerd,
            "containers" => Layout::Docker,
            "overlay-containers" | "vfs-containers" | "btrfs-containers" => Layout::Storage,
            _ => return None,
        })
    }
}

/// Whether the files in a directory of that name are known. `..` could lead to any other directory.
pub fn is_known(directory: &Path) -> bool {
    let goes_up = directory.components().any(|component| component == Component::ParentDir);
    directory.is_absolute() && !goes_up && !is_of_kubelet(directory) && Layout::of(directory).is_some()
}

/// The kubelet's directory has the pods' secrets, whose volumes can have any name. `--root-dir` and distributions move the directory
/// (`/var/lib/k0s/kubelet`).
pub fn is_of_kubelet(directory: &Path) -> bool {
    directory.components().any(|component| component.as_os_str() == "kubelet")
}

/// See the module.
pub struct Files {
    directories: Vec<(Layout, PathBuf)>,
    command: bool,
}

#[derive(Debug, thiserror::Error)]
enum DescribeError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path} is not what the runtime writes: {source}")]
    Invalid { path: PathBuf, source: serde_json::Error },
}

impl Files {
    /// `command`: the arguments of the first process, too.
    pub fn new(directories: &[PathBuf], command: bool) -> Files {
        let known = directories.iter().filter_map(|path| Some((Layout::of(path)?, path.clone())));
        Files {
            directories: known.collect(),
            command,
        }
    }

    /// The container's description, from the first directory that names the container, otherwise from the first that describes the
    /// container. Docker's containers also have a bundle in containerd's directory, without a name.
    fn describe(&self, id: &ContainerId, mut problem: impl FnMut(DescribeError)) -> Option<ContainerFact> {
        let mut unnamed = None;
        for (layout, path) in &self.directories {
            let found = Directory::open(path)
                .map_err(DescribeError::from)
                .and_then(|directory| match directory {
                    Some(directory) => layout.describe(&directory, path, id),
                    None => Ok(None),
                });
            match found {
                Ok(Some(mut fact)) => {
                    if !self.command {
                        fact.command.clear();
                    }
                    if fact.name.is_some() || fact.sandbox {
                        return Some(fact);
                    }
                    unnamed = unnamed.or(Some(fact));
                }
                Ok(None) => {}
                Err(error) => problem(error),
            }
        }
        unnamed
    }
}

impl Layout {
    fn describe(self, directory: &Directory, path: &Path, id: &ContainerId) -> Result<Option<ContainerFact>, DescribeError> {
        type Parse<T> = fn(&[u8], &ContainerId) -> Result<T, serde_json::Error>;
        fn parsed<T>(
            directory: &Directory,
            path: &Path,
            below: &Path,
            most: u64,
            id: &ContainerId,
            parse: Parse<T>,
        ) -> Result<Option<T>, DescribeError> {
            let Some(bytes) = directory.read(below, most)? else {
                return Ok(None);
            };
            parse(&bytes, id).map(Some).map_err(|source| DescribeError::Invalid {
                path: path.join(below),
                source,
            })
        }
        match self {
            Layout::Containerd => {
                for namespace in directory.entries(NAMESPACES)? {
                    let below = Path::new(&namespace).join(&*id.0).join("config.json");
                    if let Some(fact) = parsed(directory, path, &below, MOST, id, layout::bundle)? {
                        return Ok(Some(fact));
                    }
                }
                Ok(None)
            }
            Layout::Docker => {
                let below = Path::new(&*id.0).join("config.v2.json");
                parsed(directory, path, &below, MOST, id, layout::docker)
            }
            Layout::Storage => {
                let below = Path::new(&*id.0).join("userdata/config.json");
                let Some(bundle) = parsed(directory, path, &below, MOST, id, layout::bundle)? else {
                    return Ok(None);
                };
                if bundle.name.is_some() {
                    return Ok(Some(bundle));
                }
                // Containers with `--rm` are in the second list.
                for list in ["containers.json", "volatile-containers.json"] {
                    if let Some(Some(listed)) = parsed(directory, path, Path::new(list), MOST_LISTED, id, layout::storage)? {
                        return Ok(Some(ContainerFact {
                            name: listed.name,
                            image: listed.image,
                            ..bundle
                        }));
                    }
                }
                Ok(Some(bundle))
            }
        }
    }
}

/// Counts what was not read.
#[derive(Debug, Default)]
pub struct RuntimesCounters {
    unreadable: AtomicU64,
    queue_full: AtomicU64,
}

/// Why a container was not described although a runtime has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimesDropReason {
    /// A file or directory is not readable, too large, or not what the runtime writes.
    Unreadable,
    /// More containers at once than are asked for.
    QueueFull,
}

impl RuntimesDropReason {
    pub const ALL: [RuntimesDropReason; 2] = [RuntimesDropReason::Unreadable, RuntimesDropReason::QueueFull];

    pub const fn name(self) -> &'static str {
        match self {
            RuntimesDropReason::Unreadable => "container_file",
            RuntimesDropReason::QueueFull => "container_queue_full",
        }
    }
}

impl RuntimesCounters {
    pub fn dropped(&self, reason: RuntimesDropReason) -> u64 {
        let counter = match reason {
            RuntimesDropReason::Unreadable => &self.unreadable,
            RuntimesDropReason::QueueFull => &self.queue_full,
        };
        counter.load(Ordering::Relaxed)
    }
}

/// The thread that reads the files.
pub struct Runtimes {
    questions: mpsc::Sender<ContainerId>,
    /// [`Input::Container`]s.
    pub inputs: mpsc::Receiver<Input>,
    pub counters: Arc<RuntimesCounters>,
}

impl Runtimes {
    /// The thread ends with the value.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(files: Files) -> std::io::Result<Runtimes> {
        let (questions, mut asked) = mpsc::channel::<ContainerId>(QUEUE);
        let (answers, inputs) = mpsc::channel(QUEUE);
        let counters = Arc::new(RuntimesCounters::default());
        let of_thread = counters.clone();
        thread::Builder::new().name("container-files".to_owned()).spawn(move || {
            let mut is_logged = false;
            while let Some(id) = asked.blocking_recv() {
                let found = files.describe(&id, |error| {
                    of_thread.unreadable.fetch_add(1, Ordering::Relaxed);
                    // Once: what is wrong with one container's file is mostly wrong with all.
                    if !std::mem::replace(&mut is_logged, true) {
                        tracing::warn!(
                            %error,
                            remedy = "run epitaph as uid 0, or set `containers.directories = []`",
                            "the name of a container is unknown; further ones are counted (epitaph_dropped_total)"
                        );
                    }
                });
                if let Some(fact) = found
                    && answers.blocking_send(Input::Container(fact)).is_err()
                {
                    return;
                }
            }
        })?;
        Ok(Runtimes {
            questions,
            inputs,
            counters,
        })
    }

    pub fn ask(&self, id: ContainerId) {
        if self.questions.try_send(id).is_err() {
            self.counters.queue_full.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[path = "fuzz_tests.rs"]
mod fuzz;
#[cfg(test)]
mod tests;
