//! Text timelines: `+SECONDS verb …`, one input per line.
//!
//! - `pod NAME OWNER words…`: a version of a pod. OWNER is `KIND/NAME` or `-`; words: `node=N`, `ready`, `deleting`, `deleted=+S`
//!   (requested then), `grace=S`, `by-taint`, `outlasts`, `finalizer=X`, `claim=X`, `agent`, `failed` (the phase alone, as without a kubelet), `terminated` (all containers), `succeeded` (both), `index=N`, `static`, `ignored`, `not-ignored`, `pending` (nothing of it has run), `crashed` (nothing of it runs any more: its container waits for its restart), `again=N` (another pod of that name).
//!   A pod with a node is scheduled.
//! - `gone NAME [again=N]`
//! - `slice NAME SERVICE [v6] POD:CONDITIONS…`: conditions are letters of `rst`: ready, serving, terminating.
//! - `no-slice NAME`, `namespace NAME [ignored]`, `list WATCH`, `listed WATCH`, `broken WATCH [since=+S]`, `stalled`, `paused SECONDS`, `tick`
//! - `node NAME true|false|unknown words…`: a version of a node. Words: `since=+S` (the transition; else now), `reason=X`, `boot=X`,
//!   `machine=X`, `uid=X`, `out-of-service`, `evicting`, `off`, `cordoned`, `shutting-down`. `no-node NAME`.
//! - `attachment NAME VOLUME NODE words…`: `attached`, `detaching`, `error=X`. `no-attachment NAME`, `claim VOLUME CLAIM`
//! - `renewal NODE +S|none`, `agent NODE answers|silent [shutdown=N]`, `version 1.N`
//! - `skew LEAST MOST`: of the API server's clock, milliseconds
//!
//! Everything is in namespace `shop`. Unless the script has a `list`, the first lists were over, empty, long before.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::PodUid;
use crate::observe::{
    ApiTime, AttachmentFact, ClaimKey, ClusterVersion, Conditions, DeletionSight, EndpointFact, Input, NodeFact, NodeIdentity,
    Owner, PodDetails, PodRun, PodSight, Ready, SliceFact, SliceKey, Watch,
};
use crate::pod::{ApiClock, PodIdentity, Service, Workload};
use crate::time::{Boot, Wall};

/// Scripts begin an hour after boot.
pub(super) const ZERO: Boot = Boot(3_600_000_000_000);

pub(super) fn parse(script: &str) -> Vec<(Boot, Input)> {
    let lines: Vec<&str> = script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let mut inputs = Vec::new();
    if !lines.iter().any(|line| line.starts_with("+0 list ")) {
        for watch in Watch::ALL {
            let long_ago = ZERO.minus(Duration::from_secs(600));
            inputs.extend([(long_ago, Input::ListBegin(watch)), (long_ago, Input::ListEnd(watch))]);
        }
    }
    inputs.extend(lines.into_iter().map(line));
    inputs
}

fn line(line: &str) -> (Boot, Input) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = time(words[0]);
    let watch = || {
        let found = Watch::ALL.into_iter().find(|watch| watch.name() == words[2]);
        found.unwrap_or_else(|| panic!("no watch: {line}"))
    };
    let input = match words[1] {
        "pod" => Input::Pod(pod(at, words[2], words[3], &words[4..])),
        "gone" => Input::PodGone(uid(words[2], &words[3..])),
        "slice" => Input::Slice(slice(words[2], words[3], &words[4..])),
        "no-slice" => Input::SliceGone(key(words[2])),
        "namespace" => Input::Namespace {
            name: words[2].to_owned(),
            ignored: words.get(3) == Some(&"ignored"),
        },
        "list" => Input::ListBegin(watch()),
        "listed" => Input::ListEnd(watch()),
        "broken" => Input::Broken {
            watch: watch(),
            since: words
                .get(3)
                .map_or(at, |word| time(word.strip_prefix("since=").unwrap_or(word))),
        },
        "node" => Input::Node(node(at, words[2], words[3], &words[4..])),
        "no-node" => Input::NodeGone(words[2].into()),
        "attachment" => Input::Attachment(attachment([words[2], words[3], words[4]], &words[5..])),
        "no-attachment" => Input::AttachmentGone(words[2].into()),
        "claim" => Input::Claim {
            volume: words[2].into(),
            claim: Some(ClaimKey {
                namespace: "shop".into(),
                name: words[3].into(),
            }),
        },
        "renewal" => Input::Renewal {
            node: words[2].into(),
            renewed: (words[3] != "none").then(|| api_time(time(words[3]))),
        },
        "agent" => Input::Agent {
            node: words[2].into(),
            answered: words[3] == "answers",
            shutdown: words
                .get(4)
                .and_then(|word| word.strip_prefix("shutdown="))
                .map(|number| number.parse().expect("a number")),
        },
        "version" => {
            let (major, minor) = words[2].split_once('.').unwrap_or_else(|| panic!("no version: {line}"));
            Input::Version(ClusterVersion {
                major: major.parse().expect("a number"),
                minor: minor.parse().expect("a number"),
            })
        }
        "stalled" => Input::Stalled,
        "paused" => Input::Paused(Duration::from_secs(words[2].parse().expect("seconds"))),
        "tick" => Input::Tick,
        "skew" => {
            let nanos = |word: &str| word.parse::<i64>().unwrap_or_else(|_| panic!("no milliseconds: {line}")) * 1_000_000;
            Input::ApiClock(ApiClock {
                earliest: nanos(words[2]),
                latest: nanos(words[3]),
            })
        }
        other => panic!("no verb {other}: {line}"),
    };
    (at, input)
}

/// `+SECONDS`.
fn time(word: &str) -> Boot {
    let seconds: Option<f64> = word.strip_prefix('+').and_then(|s| s.parse().ok());
    match seconds.unwrap_or_else(|| panic!("no time: {word}")) {
        before @ ..0.0 => ZERO.minus(Duration::from_secs_f64(-before)),
        after => ZERO.plus(Duration::from_secs_f64(after)),
    }
}

/// Both clocks agree, and begin together.
fn api_time(at: Boot) -> ApiTime {
    ApiTime { wall: Wall(at.0), at }
}

fn uid(name: &str, words: &[&str]) -> PodUid {
    let again = words.iter().find_map(|word| word.strip_prefix("again="));
    PodUid(format!("uid-{name}-{}", again.unwrap_or("0")).into())
}

fn pod(at: Boot, name: &str, owner: &str, words: &[&str]) -> PodSight {
    let is = |word: &str| words.contains(&word);
    let of = |key: &str| value(words, key);
    let all = |key: &str| -> Vec<Box<str>> {
        let values = words.iter().filter_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        values.map(Into::into).collect()
    };
    let requested = of("deleted").map(time).or(is("deleting").then_some(at));
    let node = of("node").unwrap_or_default();
    let owner = owner.split_once('/').map(|(kind, name)| Owner {
        kind: kind.into(),
        uid: format!("uid-{name}").into(),
    });
    PodSight {
        identity: Arc::new(PodIdentity {
            uid: uid(name, words),
            cgroup_uid: uid(name, words),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            node: node.to_owned(),
            workload: Workload {
                kind: "Pod".to_owned(),
                namespace: "shop".to_owned(),
                name: name.to_owned(),
                uid: None,
                api_version: None,
                through: None,
            },
            is_static: is("static"),
            service: Service::default(),
            created: None,
            revision: None,
        }),
        owner,
        completion_index: of("index").map(Into::into),
        scheduled: !node.is_empty(),
        ready: is("ready"),
        run: PodRun {
            failed: is("failed"),
            succeeded: is("succeeded"),
            started: !is("pending") && !is("crashed"),
            has_run: !is("pending"),
            terminated: is("succeeded") || is("terminated"),
        },
        ignored: is("ignored").then_some(true).or(is("not-ignored").then_some(false)),
        outlasts: is("outlasts"),
        details: PodDetails {
            deletion: requested.map(|requested| DeletionSight {
                requested: api_time(requested),
                grace: Duration::from_secs(of("grace").map_or(30, |grace| grace.parse().expect("seconds"))),
                by_taint: is("by-taint"),
            }),
            finalizers: all("finalizer"),
            claims: all("claim"),
            agent: is("agent").then(|| "10.0.0.9:9464".parse().expect("an address")),
        },
    }
}

fn value<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn node(at: Boot, name: &str, ready: &str, words: &[&str]) -> NodeFact {
    let is = |word: &str| words.contains(&word);
    let ready = match ready {
        "true" => Ready::True,
        "false" => Ready::False,
        "unknown" => Ready::Unknown,
        other => panic!("no state of a node: {other}"),
    };
    NodeFact {
        identity: Arc::new(NodeIdentity {
            name: name.into(),
            uid: value(words, "uid").unwrap_or(name).into(),
            boot_id: value(words, "boot").unwrap_or("boot-1").into(),
            system_uuid: value(words, "machine").unwrap_or_default().into(),
            kubelet_version: "v1.36.3".into(),
            provider: "".into(),
            unschedulable: is("cordoned"),
        }),
        ready,
        transition: Some(api_time(value(words, "since").map_or(at, time))),
        reason: value(words, "reason").unwrap_or_default().into(),
        message: if is("shutting-down") { "node is shutting down" } else { "" }.into(),
        out_of_service: is("out-of-service"),
        evicting: is("evicting"),
        powered_off: is("off"),
    }
}

fn attachment([name, volume, node]: [&str; 3], words: &[&str]) -> AttachmentFact {
    AttachmentFact {
        name: name.into(),
        volume: volume.into(),
        node: node.into(),
        attacher: "csi.example.com".into(),
        attached: words.contains(&"attached"),
        detaching: words.contains(&"detaching"),
        error: value(words, "error").map(Into::into),
    }
}

fn key(name: &str) -> SliceKey {
    SliceKey {
        namespace: "shop".into(),
        name: name.into(),
    }
}

fn slice(name: &str, service: &str, words: &[&str]) -> SliceFact {
    let endpoints = words.iter().filter_map(|word| word.split_once(':'));
    SliceFact {
        key: key(name),
        service: service.into(),
        address_type: if words.contains(&"v6") { "IPv6" } else { "IPv4" }.into(),
        ports: ["http/TCP:8080".to_owned()].into(),
        endpoints: endpoints
            .map(|(pod, conditions)| EndpointFact {
                pod: uid(pod, &[]),
                conditions: Conditions {
                    ready: conditions.contains('r'),
                    serving: conditions.contains('s'),
                    terminating: conditions.contains('t'),
                },
            })
            .collect(),
    }
}
