//! What the Kubernetes API says, in text: pods and their versions.
//!
//! `pod NAME [uid=TEXT] [hash=TEXT] [owner=UID] [grace=S] [policy=never|on-failure] [hostpid] [sharepid] [ignore] CONTAINER…`, where a
//! container is `app`, `side:sidecar`, `setup:init`, `debug:ephemeral`, and `app.prestop=exec:/bin/hook|sleep:5|http`,
//! `app.liveness=exec:/bin/x` and `app.liveness-grace=5` add to it. Its cgroup is `NAME:CONTAINER`, of a later life
//! `NAME:CONTAINER:2`; `NAME:pause` is the sandbox's.
//!
//! A version says what has changed: `+S pod NAME [deleted=+S:GRACE] [phase=…] [disruption=REASON:MESSAGE] [reason=…] [app=running|
//! waiting|CODE:REASON] [app.id=CGROUP] [app.restarts=N] [app.last=CGROUP:CODE:REASON]`; `_` in a message is a space.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::script::time;
use crate::attribute::{ContainerId, PodUid};
use crate::event::{Boot, CgroupId, Input, Wall};
use crate::pod::*;

#[derive(Default)]
pub(in crate::correlate::tests) struct Cast {
    pods: HashMap<String, PodFact>,
}

pub(in crate::correlate::tests) fn id(cgroup: CgroupId) -> String {
    format!("{:0>64x}", cgroup.id)
}

impl Cast {
    pub fn declare(&mut self, words: &[&str]) {
        let name = words[0];
        let number = self.pods.len() + 1;
        let new = || format!("00000000-0000-4000-8000-{number:012x}");
        // Declared again, it is the same pod with another spec.
        let mut uid = self.pods.get(name).map_or_else(new, |fact| fact.pod.uid.0.to_string());
        let mut hash = None;
        let mut owner = None;
        let mut spec = PodSpec {
            grace: Some(Duration::from_secs(30)),
            ..PodSpec::default()
        };
        for word in &words[1..] {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "uid" => uid = value.to_owned(),
                "owner" => owner = Some(value.to_owned()),
                "hash" => hash = Some(format!("{value:0>32}")),
                "grace" => spec.grace = Some(seconds(value)),
                "policy" if value == "never" => spec.restart_policy = RestartPolicy::Never,
                "policy" => spec.restart_policy = RestartPolicy::OnFailure,
                "hostpid" => spec.host_pid = true,
                "sharepid" => spec.share_process_namespace = true,
                "ignore" => spec.options.ignore = true,
                key => match key.split_once('.') {
                    Some((container, what)) => add(&mut spec, container, what, value),
                    None => spec.containers.push(container(key)),
                },
            }
        }
        let names = spec.containers.iter().map(|container| ContainerStatus {
            name: container.name.clone(),
            id: None,
            restarts: 0,
            state: ContainerState::Waiting { reason: None },
            last: None,
        });
        let uid = PodUid(uid.into());
        let fact = PodFact {
            pod: Arc::new(PodIdentity {
                cgroup_uid: hash.as_ref().map_or(uid.clone(), |hash| PodUid(hash.as_str().into())),
                uid,
                namespace: "shop".to_owned(),
                name: name.to_owned(),
                node: "node".to_owned(),
                workload: Workload {
                    kind: "Deployment".to_owned(),
                    namespace: "shop".to_owned(),
                    name: name.to_owned(),
                    uid: owner,
                    api_version: None,
                    through: None,
                },
                is_static: hash.is_some(),
                service: Service::default(),
                created: None,
            }),
            seen: Boot(0),
            containers: names.collect(),
            spec: Arc::new(spec),
            deletion: None,
            phase: Phase::Running,
            reason: None,
            disruption: None,
        };
        self.pods.insert(name.to_owned(), fact);
    }

    /// The path of a container's cgroup.
    pub fn path(&self, pod: &str, cgroup: CgroupId) -> String {
        let uid = self.pods[pod].pod.cgroup_uid.0.replace('-', "_");
        format!("/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-{}.scope", id(cgroup))
    }

    pub fn version(&mut self, at: Boot, words: &[&str], mut cgroup: impl FnMut(&str) -> CgroupId) -> Input {
        let name = words[0];
        let fact = self.pods.get_mut(name).unwrap_or_else(|| panic!("no pod {name}"));
        fact.seen = at;
        for word in &words[1..] {
            let (key, value) = word.split_once('=').expect("key=value");
            match key {
                "deleted" => {
                    let (request, grace) = value.split_once(':').expect("+S:GRACE");
                    let whole = time(request).0 / 1_000_000_000 * 1_000_000_000;
                    let grace = seconds(grace);
                    fact.deletion = Some(Deletion {
                        timestamp: Wall(whole + grace.as_nanos() as u64),
                        grace,
                    });
                }
                "phase" => {
                    fact.phase = match value {
                        "pending" => Phase::Pending,
                        "running" => Phase::Running,
                        "succeeded" => Phase::Succeeded,
                        "failed" => Phase::Failed,
                        _ => Phase::Unknown,
                    }
                }
                "reason" => fact.reason = Some(value.to_owned()),
                "disruption" if value == "-" => fact.disruption = None,
                "disruption" => {
                    let (reason, message) = value.split_once(':').unwrap_or((value, ""));
                    fact.disruption = Some(Disruption {
                        reason: reason.to_owned(),
                        message: message.replace('_', " "),
                    });
                }
                key => {
                    let (container, what) = key.split_once('.').unwrap_or((key, ""));
                    let of = fact.containers.iter_mut().find(|status| status.name == container);
                    let of = of.unwrap_or_else(|| panic!("no container {container}"));
                    let mut its_id = |of: &str| Some(ContainerId(id(cgroup(of)).as_str().into()));
                    match what {
                        "id" => of.id = its_id(value),
                        "restarts" => of.restarts = value.parse().expect("a number"),
                        "last" => {
                            let (of_cgroup, rest) = split_cgroup(value);
                            of.last = Some(ended(its_id(of_cgroup), rest));
                        }
                        _ => {
                            if value != "waiting" && of.id.is_none() {
                                of.id = its_id(&format!("{name}:{container}"));
                            }
                            of.state = match value {
                                "running" => ContainerState::Running,
                                "waiting" => ContainerState::Waiting { reason: None },
                                value => ContainerState::Terminated(ended(of.id.clone(), value)),
                            };
                        }
                    }
                }
            }
        }
        Input::Pod(Arc::new(fact.clone()))
    }

    pub fn gone(&self, at: Boot, words: &[&str]) -> Input {
        Input::PodGone(PodGone {
            uid: self.pods[words[0]].pod.uid.clone(),
            seen: at,
            watched: !words.contains(&"unwatched"),
        })
    }

    /// `POD CONTAINER|- REASON [at=+S] TEXT…`; without it, it happened in the second in which it reaches us.
    pub fn event(&self, at: Boot, words: &[&str]) -> Input {
        let told = words.get(3).and_then(|word| word.strip_prefix("at="));
        let text = if told.is_some() { &words[4..] } else { &words[3..] };
        let happened = told.map_or(at, time).0 / 1_000_000_000 * 1_000_000_000;
        Input::PodEvent(PodEvent {
            uid: self.pods[words[0]].pod.uid.clone(),
            seen: at,
            container: (words[1] != "-").then(|| words[1].to_owned()),
            at: Some(Wall(happened)),
            reason: words[2].to_owned(),
            message: text.join(" "),
        })
    }

    /// `POD asked|known|WHY… [as-of=+S]`, in place of the time at which it reaches us.
    pub fn events(&self, at: Boot, words: &[&str]) -> Input {
        let (as_of, words) = match words.split_last() {
            Some((last, words)) if last.starts_with("as-of=") => (last.strip_prefix("as-of=").map(time), words),
            _ => (None, words),
        };
        Input::PodEvents(PodEventsUpdate {
            uid: self.pods[words[0]].pod.uid.clone(),
            seen: as_of.unwrap_or(at),
            state: match words[1..] {
                ["asked"] => PodEventsState::Asked,
                ["known"] => PodEventsState::Known,
                _ => PodEventsState::Unknown {
                    why: words[1..].join(" "),
                },
            },
        })
    }
}

fn add(spec: &mut PodSpec, name: &str, what: &str, value: &str) {
    let of = spec.containers.iter_mut().find(|container| container.name == name);
    let of = of.unwrap_or_else(|| panic!("no container {name}"));
    let (kind, rest) = value.split_once(':').unwrap_or((value, ""));
    match what {
        "prestop" => {
            of.pre_stop = Some(match kind {
                "exec" => PreStop::Exec {
                    program: rest.to_owned(),
                },
                "sleep" => PreStop::Sleep {
                    seconds: rest.parse().expect("seconds"),
                },
                _ => PreStop::HttpGet { port: Some(8080) },
            });
        }
        "liveness-grace" => {
            of.liveness = Some(KubeletProbe {
                kind: KubeletProbeKind::Network { port: Some(8080) },
                grace: Some(seconds(value)),
            });
        }
        "liveness" => {
            of.liveness = Some(KubeletProbe {
                kind: KubeletProbeKind::Exec {
                    program: rest.to_owned(),
                },
                grace: None,
            });
        }
        _ => panic!("unknown word {what}"),
    }
}

fn container(text: &str) -> ContainerSpec {
    let (name, kind) = text.split_once(':').unwrap_or((text, "main"));
    ContainerSpec {
        name: name.to_owned(),
        kind: match kind {
            "init" => ContainerKind::Init,
            "sidecar" => ContainerKind::Sidecar,
            "ephemeral" => ContainerKind::Ephemeral,
            _ => ContainerKind::Main,
        },
        image: format!("example/{name}:1"),
        pre_stop: None,
        stop_signal: None,
        liveness: None,
        startup: None,
        readiness: None,
        ports: vec![80],
    }
}

/// `web:app:2:137:Error` is cgroup `web:app:2`, 137, Error.
fn split_cgroup(text: &str) -> (&str, &str) {
    let reason = text.rfind(':').expect("a reason");
    let code = text[..reason].rfind(':').expect("a code");
    (&text[..code], &text[code + 1..])
}

fn ended(id: Option<ContainerId>, text: &str) -> Ended {
    let (code, reason) = text.split_once(':').unwrap_or((text, "Error"));
    Ended {
        id,
        exit_code: code.parse().expect("an exit code"),
        reason: Some(reason.to_owned()),
    }
}

fn seconds(text: &str) -> Duration {
    Duration::from_secs(text.parse().expect("seconds"))
}
