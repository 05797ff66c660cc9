//! The kubelet's files for the agent: read again and again by a thread of its own, an input when what they say has changed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use epitaph_core::input::Input;
use epitaph_core::node::{KubeletShutdown, NodeEvent};
use tokio::sync::mpsc;

use super::flags::Flags;
use super::{Configz, KubeletError, Running, configured, configz, shutdown_state};
use crate::error::{HasRemedy as _, chain};
use crate::source::bounded;
use crate::source::files::{Directory, FileError};

/// Both files change when a person changes them, or at a shutdown, which logind announces.
const EVERY: Duration = Duration::from_secs(10);
/// Inputs that wait: the latest states, which replace those before.
const QUEUE: usize = 8;
/// Longest reason, bytes.
const REASON: usize = 512;

/// Files that the settings give. In a pod they are mounted one by one: /var/lib/kubelet itself has the pods' secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    pub config: Option<PathBuf>,
    pub config_directory: Option<PathBuf>,
    pub state: Option<PathBuf>,
}

impl Paths {
    pub fn is_empty(&self) -> bool {
        *self == Paths::default()
    }

    pub fn has_configuration(&self) -> bool {
        self.config.is_some() || self.config_directory.is_some()
    }

    /// The configuration's, which are left out then.
    fn take_configuration(&mut self) -> Option<Paths> {
        let state = self.state.take();
        let configuration = std::mem::replace(
            self,
            Paths {
                state,
                ..Paths::default()
            },
        );
        configuration.has_configuration().then_some(configuration)
    }

    /// As flags of a kubelet.
    pub fn flags(&self) -> Flags {
        Flags {
            config: self.config.clone(),
            config_directory: self.config_directory.clone(),
            ..Flags::default()
        }
    }
}

/// What reads the files and asks the kubelet; it ends with this value.
pub struct KubeletFiles {
    /// [`NodeEvent::Kubelet`] and [`NodeEvent::KubeletState`].
    pub inputs: mpsc::Receiver<Input>,
    _stop: Sender<()>,
}

impl KubeletFiles {
    /// In a runtime, where a kubelet is to be asked: again when another one runs. It is asked first, and its file counts where it does not
    /// answer.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(mut paths: Paths, kubelet: Option<(Configz, Running)>) -> io::Result<KubeletFiles> {
        let (answers, inputs) = mpsc::channel(QUEUE);
        let (stop, stopped) = channel::<()>();
        if let Some((kubelet, running)) = kubelet {
            let files = paths.take_configuration();
            tokio::spawn(configz::follow(kubelet, files, running, answers.clone()));
        }
        if paths.is_empty() {
            return Ok(KubeletFiles { inputs, _stop: stop });
        }
        thread::Builder::new().name("kubelet-files".to_owned()).spawn(move || {
            let mut last = Last::default();
            loop {
                for event in last.changes(&paths) {
                    if answers.blocking_send(Input::Node(event)).is_err() {
                        return;
                    }
                }
                match stopped.recv_timeout(EVERY) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return,
                }
            }
        })?;
        Ok(KubeletFiles { inputs, _stop: stop })
    }
}

/// What was sent.
#[derive(Default)]
struct Last {
    config: Option<NodeEvent>,
    state: Option<NodeEvent>,
}

impl Last {
    fn changes(&mut self, paths: &Paths) -> Vec<NodeEvent> {
        let mut events = Vec::new();
        if paths.has_configuration() {
            let was_wrong = matches!(self.config, Some(NodeEvent::Kubelet { config: Err(_) }));
            let config = told("configuration", read_config(paths), was_wrong);
            note(&mut self.config, NodeEvent::Kubelet { config }, &mut events);
        }
        if let Some(path) = &paths.state {
            let read = root().and_then(|root| shutdown_state(&root, path));
            let was_wrong = matches!(self.state, Some(NodeEvent::KubeletState { state: Err(_) }));
            let state = told("shutdown state", read, was_wrong);
            note(&mut self.state, NodeEvent::KubeletState { state }, &mut events);
        }
        events
    }
}

fn note(last: &mut Option<NodeEvent>, event: NodeEvent, events: &mut Vec<NodeEvent>) {
    if last.as_ref() != Some(&event) {
        *last = Some(event.clone());
        events.push(event);
    }
}

/// An error as text, logged when the file was readable before.
pub(super) fn told<T>(what: &str, read: Result<T, KubeletError>, was_wrong: bool) -> Result<T, String> {
    read.map_err(|error| {
        let reason = bounded(&chain(&error), REASON);
        if !was_wrong {
            tracing::warn!(error = %reason, remedy = error.remedy().as_deref(), "the kubelet's {what} is unknown");
        }
        reason
    })
}

pub(super) fn read_config(paths: &Paths) -> Result<KubeletShutdown, KubeletError> {
    let configured = configured(&root()?, &paths.flags())?;
    match configured.shutdown.refused {
        Some(reason) => Err(KubeletError::Refused(reason)),
        None => Ok(configured.protection()),
    }
}

fn root() -> Result<Directory, KubeletError> {
    let root = Path::new("/");
    Directory::root(root)?.ok_or_else(|| KubeletError::File(FileError::NotAFile { path: root.to_owned() }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_input_follows_each_change() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let paths = Paths {
            config: Some(file("config.yaml")),
            state: Some(file("state")),
            ..Paths::default()
        };
        let mut last = Last::default();
        let first = last.changes(&paths);
        assert!(
            matches!(&first[0], NodeEvent::Kubelet { config: Err(reason) } if reason.ends_with("config.yaml does not exist"))
        );
        assert!(matches!(&first[1], NodeEvent::KubeletState { state: Ok(state) } if state.started.is_none()));
        assert!(last.changes(&paths).is_empty());

        fs::write(file("config.yaml"), "shutdownGracePeriod: 60s\n").unwrap();
        let changes = last.changes(&paths);
        let [NodeEvent::Kubelet { config: Ok(config) }] = &changes[..] else {
            panic!("{changes:?}");
        };
        assert_eq!(config.total, Duration::from_secs(60));
        assert!(last.changes(&paths).is_empty());

        fs::write(file("state"), "{").unwrap();
        assert!(matches!(
            &last.changes(&paths)[..],
            [NodeEvent::KubeletState { state: Err(_) }]
        ));
    }

    #[test]
    fn the_thread_sends_and_ends_with_its_value() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let mut files = KubeletFiles::start(
            Paths {
                state: Some(state),
                ..Paths::default()
            },
            None,
        )
        .unwrap();
        let first = files.inputs.blocking_recv();
        assert!(
            matches!(first, Some(Input::Node(NodeEvent::KubeletState { .. }))),
            "{first:?}"
        );
        let KubeletFiles { mut inputs, _stop } = files;
        drop(_stop);
        assert!(inputs.blocking_recv().is_none());
    }
}
