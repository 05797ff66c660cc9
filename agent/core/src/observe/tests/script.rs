//! Text timelines: `+SECONDS verb …`, one input per line.
//!
//! - `pod NAME OWNER words…`: a version of a pod. OWNER is `KIND/NAME` or `-`; words: `node=N`, `ready`, `deleting`, `failed`,
//!   `succeeded`, `index=N`, `static`, `ignored`, `not-ignored`, `pending` (nothing of it runs, yet or any more), `again=N` (another pod of that name).
//!   A pod with a node is scheduled.
//! - `gone NAME [again=N]`
//! - `slice NAME SERVICE [v6] POD:CONDITIONS…`: conditions are letters of `rst`: ready, serving, terminating.
//! - `no-slice NAME`, `namespace NAME [ignored]`, `list WATCH`, `listed WATCH`, `broken WATCH [since=+S]`, `stalled`, `tick`
//! - `skew LEAST MOST`: of the API server's clock, milliseconds
//!
//! Everything is in namespace `shop`. Unless the script has a `list`, the first lists were over, empty, long before.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::PodUid;
use crate::observe::{Conditions, EndpointFact, Input, Owner, PodSight, SliceFact, SliceKey, Watch};
use crate::pod::{ApiClock, PodIdentity, Service, Workload};
use crate::time::Boot;

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
    let seconds = words[0].strip_prefix('+').and_then(|s| s.parse().ok());
    let at = ZERO.plus(Duration::from_secs_f64(seconds.unwrap_or_else(|| panic!("no time: {line}"))));
    let watch = || {
        let found = Watch::ALL.into_iter().find(|watch| watch.name() == words[2]);
        found.unwrap_or_else(|| panic!("no watch: {line}"))
    };
    let input = match words[1] {
        "pod" => Input::Pod(pod(words[2], words[3], &words[4..])),
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
            since: words.get(3).map_or(at, |word| {
                let since = word.strip_prefix("since=+").and_then(|s| s.parse().ok());
                ZERO.plus(Duration::from_secs_f64(since.unwrap_or_else(|| panic!("no time: {line}"))))
            }),
        },
        "stalled" => Input::Stalled,
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

fn uid(name: &str, words: &[&str]) -> PodUid {
    let again = words.iter().find_map(|word| word.strip_prefix("again="));
    PodUid(format!("uid-{name}-{}", again.unwrap_or("0")).into())
}

fn pod(name: &str, owner: &str, words: &[&str]) -> PodSight {
    let is = |word: &str| words.contains(&word);
    let of = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
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
        }),
        owner,
        completion_index: of("index").map(Into::into),
        scheduled: !node.is_empty(),
        ready: is("ready"),
        deleting: is("deleting"),
        failed: is("failed"),
        succeeded: is("succeeded"),
        started: !is("pending"),
        ignored: is("ignored").then_some(true).or(is("not-ignored").then_some(false)),
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
