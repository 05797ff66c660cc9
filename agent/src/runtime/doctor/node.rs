//! What `epitaph doctor` reads about a node's shutdown: on a machine, in the agent's pod, in a mounted image.

use std::path::Path;

use epitaph_core::time::Wall;

use crate::cli::{DoctorArgs, SysExit};
use crate::clock;
use crate::config::{Config, Env, Overrides};
use crate::doctor::Trouble;
use crate::doctor::node::{FoundKubelet, Kubelet, Logind, Machine, Node, ReadyCheck, Unknown};
use crate::error::{HasRemedy, chain};
use crate::runtime::{RuntimeError, block_on_value, past};
use crate::source::files::{Directory, Entry};
use crate::source::kubelet::flags::Flags;
use crate::source::kubelet::{self, Configz, KubeletProcess, Located, Origin, process};
use crate::source::pods::{self, PodGrace};
use crate::source::systemd;

use super::bus;
use super::journal::journal;

/// Exists where systemd is the init, and in no container without it.
const BOOTED: &str = "run/systemd/system";

/// The agent's metric.
const READY: &str = "epitaph_node_shutdown_ready";

const MOUNTED: &str = "give the directory where the image is mounted";

/// A shutdown that logind was told to do later.
const SCHEDULED: &str = "/run/systemd/shutdown/scheduled";

/// A mounted image. `config`: the agent's, as given; the one that this machine has is not the image's.
pub fn image(root: &Path, config: Option<&Path>, env: &dyn Env) -> Result<Node, RuntimeError> {
    let directory = open(root)?;
    let is_there = |name: &&str| !matches!(directory.entry(Path::new(name)), Ok(Entry::Missing));
    if !["etc", "usr", "var"].iter().any(is_there) {
        let problem = format!(
            "{} has none of /etc, /usr and /var: no image is mounted there",
            root.display()
        );
        return Err(RuntimeError::new(SysExit::NoInput, problem).with_remedy(MOUNTED));
    }
    let systemd = systemd::version(&directory);
    let paths = Config::load(config, env, &Overrides::default())?.kubelet.paths();
    let kubelet = if paths.has_configuration() {
        let gates = kubelet::unit::flags(&directory)
            .ok()
            .flatten()
            .and_then(|flags| flags.feature_gates);
        of_settings(&directory, &paths, Origin::Settings, gates)
    } else {
        located(&directory, None)
    };
    let none = || "no process runs in an image".to_owned();
    Ok(Node {
        machine: Machine::Image(root.to_owned()),
        kubelet,
        logind: Logind {
            bus: Err(none()),
            systemd,
            limit: None,
            locks: Err(none()),
        },
        conf: Ok(systemd::logind_conf(&directory, systemd)),
        pods: Err(Unknown::new("an image has no pods", None)),
        scheduled: None,
        journal: None,
    })
}

/// This machine. `config`: as the person's flags have it.
pub fn live(args: &DoctorArgs, config: &Config, env: &dyn Env) -> Result<Node, RuntimeError> {
    let agents = past::installed(args.config.as_deref(), env)?;
    let root = open(Path::new("/"))?;
    let is_host = Path::new("/").join(BOOTED).is_dir();
    let process = process::find(&config.host.proc, &agents.kubernetes.kubelet_units);
    let in_pod = Path::new(pods::TOKEN).exists();
    let systemd = is_host.then(|| systemd::version(&root)).flatten();
    let hidden = || hidden(in_pod);
    Ok(Node {
        machine: Machine::Live {
            wall_offset: clock::wall_offset(),
        },
        kubelet: answering_kubelet(&agents, is_host, in_pod)
            .unwrap_or_else(|| live_kubelet(&root, process, &agents, is_host, in_pod)),
        logind: if is_host {
            logind(&root, systemd)
        } else {
            Logind {
                bus: Err(hidden()),
                systemd,
                limit: None,
                locks: Err(hidden()),
            }
        },
        conf: if is_host {
            Ok(systemd::logind_conf(&root, systemd))
        } else {
            Err(hidden())
        },
        pods: node_pods(config, &agents, in_pod),
        scheduled: is_host.then(|| scheduled(&root)).flatten(),
        journal: agents
            .journal
            .directory
            .as_deref()
            .map(|path| journal(path, agents.journal.group)),
    })
}

/// Why logind and its files are not known in a container. An agent has them from the container beside it.
fn hidden(in_pod: bool) -> String {
    match in_pod {
        true => {
            let [lock, delay] =
                [ReadyCheck::Lock, ReadyCheck::Delay].map(|check| format!("{READY}{{check=\"{}\"}}", check.name()));
            format!(
                "the node's systemd and its bus are not visible in a pod; the running agent knows them, if the pod has the container \
                 `logind`: {lock} and {delay} at its /metrics"
            )
        }
        false => "systemd is not the init here, or this is a container, in which the host's files are not visible".to_owned(),
    }
}

/// By the bus; without it the locks of logind's files. `systemd`: its version by its files.
fn logind(root: &Directory, systemd: Option<u32>) -> Logind {
    let asked = match bus::ask() {
        Ok(events) => Logind::of_events(&events),
        Err(reason) => Logind {
            bus: Err(reason),
            ..Logind::of_events([])
        },
    };
    Logind {
        systemd: asked.systemd.or(systemd),
        locks: asked.locks.or_else(|_| systemd::inhibitors(root)),
        ..asked
    }
}

fn open(root: &Path) -> Result<Directory, RuntimeError> {
    match Directory::root(root) {
        Ok(Some(directory)) => Ok(directory),
        Ok(None) => {
            let problem = format!("{} does not exist", root.display());
            Err(RuntimeError::new(SysExit::NoInput, problem).with_remedy(MOUNTED))
        }
        Err(error) => Err(RuntimeError::new(SysExit::NoInput, chain(&error)).with_remedy(MOUNTED)),
    }
}

/// In a pod, by the kubelet's own answer. None: it is not to be asked, or does not answer and its file is given.
fn answering_kubelet(agents: &Config, is_host: bool, in_pod: bool) -> Option<Kubelet> {
    let address = agents.kubelet.address.filter(|_| in_pod && !is_host)?;
    // The client needs the runtime from its making on.
    let asked = block_on_value(async move { Configz::in_cluster(address)?.configured().await });
    let unknown = |problem: String, remedy| Kubelet::Unknown(Unknown::new(problem, remedy));
    let has_file = agents.kubelet.paths().has_configuration();
    Some(match asked {
        Ok(Ok(configured)) => Kubelet::Found(Box::new(FoundKubelet {
            located: Located {
                flags: Flags::default(),
                origin: Origin::Answer,
                place: None,
            },
            version: None,
            configured: Ok(configured),
        })),
        _ if has_file => return None,
        Ok(Err(error)) => unknown(chain(&error), error.remedy()),
        Err(error) => unknown(chain(&error), error.remedy()),
    })
}

fn live_kubelet(root: &Directory, process: Option<KubeletProcess>, agents: &Config, is_host: bool, in_pod: bool) -> Kubelet {
    let paths = agents.kubelet.paths();
    if paths.has_configuration() {
        let origin = process.as_ref().map_or(Origin::Settings, Origin::of);
        let gates = process.and_then(|process| process.flags.feature_gates);
        return of_settings(root, &paths, origin, gates);
    }
    if !is_host && (process.is_some() || in_pod) {
        return Kubelet::Unknown(Unknown::new(
            "its files are not visible here",
            Some(
                "run `epitaph doctor` on the host; or mount its file (chart: agent.kubelet.config, such as /var/lib/kubelet/config.yaml), \
                 which `kubelet.config` names"
                    .into(),
            ),
        ));
    }
    located(root, process.as_ref())
}

/// The files that the settings name.
fn of_settings(root: &Directory, paths: &kubelet::Paths, origin: Origin, feature_gates: Option<String>) -> Kubelet {
    let flags = Flags {
        feature_gates,
        ..paths.flags()
    };
    let place = None;
    found(root, Located { flags, origin, place })
}

fn located(root: &Directory, process: Option<&KubeletProcess>) -> Kubelet {
    match kubelet::locate(root, process) {
        Ok(Some(located)) => found(root, located),
        Ok(None) => Kubelet::None,
        Err(reason) => {
            let remedy = "name the kubelet's files in `kubelet.config` and `kubelet.config_directory` (--config, EPITAPH_KUBELET_CONFIG)";
            Kubelet::Unknown(Unknown::new(reason, Some(remedy.into())))
        }
    }
}

fn found(root: &Directory, located: Located) -> Kubelet {
    let configured = kubelet::configured(root, &located.flags).map_err(|error| Trouble {
        code: if error.is_permission() {
            SysExit::NoPerm
        } else {
            SysExit::Config
        },
        problem: chain(&error),
        remedy: error.remedy(),
    });
    Kubelet::Found(Box::new(FoundKubelet {
        located,
        version: systemd::package_version(root, "kubelet"),
        configured,
    }))
}

/// By the access of the flags; in a pod by that of the agent.
fn node_pods(config: &Config, agents: &Config, in_pod: bool) -> Result<Vec<PodGrace>, Unknown> {
    let access = config.kubernetes.access(false).or_else(|| match in_pod {
        true => agents.kubernetes.access(true),
        false => None,
    });
    let Some(access) = access else {
        let remedy = if cfg!(feature = "kubeconfig") {
            "give --kubeconfig FILE and --node-name NAME"
        } else {
            "run it in the agent's pod, or elsewhere the program of the Debian package with --kubeconfig FILE and --node-name NAME"
        };
        return Err(Unknown::new("no access to the Kubernetes API was given", Some(remedy.into())));
    };
    let node = config
        .kubernetes
        .node_name
        .as_deref()
        .or(agents.kubernetes.node_name.as_deref());
    let unknown = |error: &dyn std::error::Error, remedy| Unknown::new(chain(error), remedy);
    match block_on_value(pods::graces(node, &access)) {
        Ok(Ok(pods)) => Ok(pods),
        Ok(Err(error)) => Err(unknown(&error, error.remedy())),
        Err(error) => Err(unknown(&error, error.remedy())),
    }
}

/// `USEC=…` and `MODE=…` as text for people.
fn scheduled(root: &Directory) -> Option<String> {
    let bytes = root.read(Path::new(SCHEDULED), 4 << 10).ok()??;
    let text = String::from_utf8(bytes).ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let micros: u64 = field("USEC")?.trim().parse().ok()?;
    let at = Wall(micros.checked_mul(1_000)?).rfc3339_millis();
    Some(format!("{} at {at}", epitaph_core::text::bounded(field("MODE")?, 32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Vars(&'static [(&'static str, &'static str)]);

    impl Env for Vars {
        fn get(&self, name: &str) -> Option<String> {
            let found = self.0.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        }
        fn names(&self) -> Vec<String> {
            self.0.iter().map(|(name, _)| (*name).to_owned()).collect()
        }
    }

    #[test]
    fn a_scheduled_shutdown_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(&SCHEDULED[1..]);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let root = open(directory.path()).unwrap();
        assert_eq!(scheduled(&root), None);
        std::fs::write(&file, "USEC=1795000000000000\nWARN_WALL=1\nMODE=reboot\n").unwrap();
        assert_eq!(scheduled(&root).unwrap(), "reboot at 2026-11-18T11:06:40.000Z");
        std::fs::write(&file, "USEC=soon\nMODE=reboot\n").unwrap();
        assert_eq!(scheduled(&root), None);
    }

    #[test]
    fn an_image_without_a_kubelet_is_not_a_node() {
        let directory = tempfile::tempdir().unwrap();
        // An empty directory: nothing was mounted.
        for root in [directory.path(), &directory.path().join("missing")] {
            let error = image(root, None, &Vars(&[])).unwrap_err();
            assert_eq!(error.code, SysExit::NoInput);
            assert!(crate::error::lines(&error).contains(&root.display().to_string()));
        }
        std::fs::create_dir(directory.path().join("etc")).unwrap();
        let node = image(directory.path(), None, &Vars(&[])).unwrap();
        assert!(matches!(node.kubelet, Kubelet::None));
    }

    /// As kubeadm's packages have it.
    #[test]
    fn an_image_before_it_joins_is_unknown_and_the_settings_name_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let kubelet = |vars| image(directory.path(), None, &Vars(vars)).unwrap().kubelet;
        write("usr/bin/kubelet", "");
        let reason = |kubelet: Kubelet| match kubelet {
            Kubelet::Unknown(unknown) => unknown.reason,
            other => panic!("{other:?}"),
        };
        assert!(reason(kubelet(&[])).starts_with("/usr/bin/kubelet is there, and neither"));
        write(
            "usr/lib/systemd/system/kubelet.service",
            "[Service]\nExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --feature-gates=GracefulNodeShutdown=false\n",
        );
        let missing = "the kubelet's configuration /var/lib/kubelet/config.yaml does not exist yet";
        assert_eq!(reason(kubelet(&[])), missing);

        write("etc/own.yaml", "shutdownGracePeriod: 60s\n");
        let Kubelet::Found(found) = kubelet(&[("EPITAPH_KUBELET_CONFIG", "/etc/own.yaml")]) else {
            panic!("not found");
        };
        assert_eq!(found.located.origin, Origin::Settings);
        let shutdown = found.configured.unwrap().shutdown;
        assert!(shutdown.total == std::time::Duration::from_secs(60) && shutdown.is_off);
        // The file of `--config` says the same.
        let toml = directory.path().join("a.toml");
        std::fs::write(&toml, "[kubelet]\nconfig = \"/etc/own.yaml\"\n").unwrap();
        let node = image(directory.path(), Some(&toml), &Vars(&[])).unwrap();
        assert!(matches!(node.kubelet, Kubelet::Found(found) if found.located.origin == Origin::Settings));
    }

    fn root_with_configuration() -> (tempfile::TempDir, Directory) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("var/lib/kubelet/config.yaml");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "shutdownGracePeriod: 60s\n").unwrap();
        let root = open(directory.path()).unwrap();
        (directory, root)
    }

    fn running() -> Option<KubeletProcess> {
        Some(KubeletProcess {
            pid: epitaph_core::ids::Pid(7),
            name: "kubelet".to_owned(),
            start: epitaph_core::time::Boot(1),
            unit: None,
            flags: Flags {
                config: Some("/var/lib/kubelet/config.yaml".into()),
                ..Default::default()
            },
        })
    }

    #[test]
    fn a_pod_does_not_take_its_own_files_for_the_nodes() {
        let (_directory, root) = root_with_configuration();
        let plain = Config::default();
        // On the host: the running kubelet's file, or the distribution's.
        for process in [running(), None] {
            let found = live_kubelet(&root, process, &plain, true, false);
            assert!(
                matches!(&found, Kubelet::Found(found) if found.configured.is_ok()),
                "{found:?}"
            );
        }
        // In a pod: the same paths are those of the image.
        for (process, in_pod) in [(running(), true), (None, true), (running(), false)] {
            let found = live_kubelet(&root, process, &plain, false, in_pod);
            assert!(matches!(found, Kubelet::Unknown(_)), "{found:?}");
        }
    }

    /// Only in a pod; without an answer its file counts, or the value to set is named.
    #[test]
    fn a_kubelet_is_asked_in_a_pod_and_its_silence_names_the_value() {
        let mut agents = Config::default();
        assert!(answering_kubelet(&agents, false, true).is_none());
        agents.kubelet.address = Some("127.0.0.1:1".parse().unwrap());
        for (is_host, in_pod) in [(true, true), (false, false)] {
            assert!(answering_kubelet(&agents, is_host, in_pod).is_none());
        }
        let Some(Kubelet::Unknown(unknown)) = answering_kubelet(&agents, false, true) else {
            panic!("no cluster is here to answer");
        };
        assert!(unknown.remedy.unwrap().contains("agent.kubelet.config"));
        agents.kubelet.config = Some("/config.yaml".into());
        assert!(answering_kubelet(&agents, false, true).is_none(), "the file counts");
    }

    /// docs/kubernetes.md sends people there.
    #[test]
    fn in_a_pod_the_metric_is_named_that_has_what_the_doctor_does_not_see() {
        let reason = hidden(true);
        for check in ["lock", "delay"] {
            assert!(reason.contains(&format!("{READY}{{check=\"{check}\"}}")), "{reason}");
        }
        assert!(crate::sink::metrics::TABLE.iter().any(|row| row.prometheus() == READY));
        assert!(!hidden(false).contains("/metrics"));
    }

    #[test]
    fn mounted_files_of_the_settings_count_everywhere() {
        let (_directory, root) = root_with_configuration();
        let mut agents = Config::default();
        agents.kubelet.config = Some("/var/lib/kubelet/config.yaml".into());
        for (process, origin) in [
            (None, Origin::Settings),
            (
                running(),
                Origin::Process {
                    pid: epitaph_core::ids::Pid(7),
                    start: epitaph_core::time::Boot(1),
                    unit: None,
                },
            ),
        ] {
            let Kubelet::Found(found) = live_kubelet(&root, process, &agents, false, true) else {
                panic!("not found");
            };
            assert_eq!(found.located.origin, origin);
            assert_eq!(found.configured.unwrap().shutdown.total, std::time::Duration::from_secs(60));
        }
    }
}
