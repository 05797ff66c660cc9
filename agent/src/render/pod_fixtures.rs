//! Pods for tests, on the deaths of [`super`].

use std::sync::Arc;
use std::time::Duration;

use epitaph::attribute::{Attribution, PodUid, Subject};
use epitaph::event::{Boot, CgroupId, ExitStatus};
use epitaph::kubernetes::{Asked, PodContext, PodTermination, PreStopRun, Reported, Request};
use epitaph::pod::{ContainerKind, PodIdentity, PodOptions, PreStop, Service, Workload};
use epitaph::termination::{Count, KubeletTraffic, PodContainer, Role, StopSignalIgnored, Termination};
use epitaph::verdict::{Advice, AdviceKind, Cause, Exit};

use super::{clean, ignored, ms, observation};

pub fn identity() -> Arc<PodIdentity> {
    let uid = PodUid("0f9c2c1e-6f0b-4a53-9a4e-1f2a3b4c5d6e".into());
    Arc::new(PodIdentity {
        cgroup_uid: uid.clone(),
        uid,
        namespace: "shop".into(),
        name: "cart-7d9f8b6c5-x2x4z".into(),
        node: "node-7".into(),
        workload: Workload {
            kind: "Deployment".into(),
            namespace: "shop".into(),
            name: "cart".into(),
            uid: Some("6a1d0a86-1f0d-4a0b-8d6e-000000000001".into()),
            api_version: Some("apps/v1".into()),
            through: Some((
                "ReplicaSet".into(),
                "cart-7d9f8b6c5".into(),
                Some("6a1d0a86-1f0d-4a0b-8d6e-000000000002".into()),
            )),
        },
        is_static: false,
        service: Service {
            name: "cart".into(),
            namespace: Some("shop".into()),
            version: Some("1.4.2".into()),
        },
        created: None,
    })
}

/// A pod of a workload of this kind.
pub fn identity_of(kind: &str, through: Option<&str>) -> Arc<PodIdentity> {
    let mut pod = Arc::unwrap_or_clone(identity());
    pod.workload.kind = kind.into();
    pod.workload.through = through.map(|kind| (kind.into(), "between".into(), Some("some-uid".into())));
    Arc::new(pod)
}

fn deleted() -> Asked {
    Asked {
        cause: Cause::Deleted,
        evidence: "deletionTimestamp".into(),
        detail: None,
    }
}

fn request() -> Request {
    Request {
        earliest: before(2_400),
        latest: before(2_100),
        grace: Duration::from_secs(30),
        shortened: vec![(ms(100), Duration::from_secs(20))],
        skew: Some((-250_000_000, 50_000_000)),
    }
}

fn before(millis: u64) -> Boot {
    ms(0).minus(Duration::from_millis(millis))
}

/// Of a container whose pod goes on.
pub fn context(container: &str, kind: ContainerKind) -> PodContext {
    PodContext {
        pod: identity(),
        container: Some(container.into()),
        kind: Some(kind),
        image: Some(format!("registry.example:5000/shop/{container}:1.4.2")),
        restarts: 0,
        options: PodOptions::default(),
        asked: None,
        request: None,
        grace: Some(Duration::from_secs(30)),
        pre_stop: None,
        mains_ended: None,
        shares_pid_namespace: false,
        reported: None,
        incomplete: None,
    }
}

/// Puts a death into the pod.
pub fn in_pod(mut t: Termination, context: PodContext) -> Termination {
    if let Subject::Container { pod, .. } = &mut t.subject {
        *pod = Some(context.pod.cgroup_uid.clone());
    }
    t.kubernetes = Some(Arc::new(context));
    t
}

/// A liveness kill: the pod goes on.
pub fn restarted(cgroup: u64) -> Termination {
    let mut t = in_pod(
        ignored(cgroup),
        PodContext {
            restarts: 2,
            asked: Some(Asked {
                cause: Cause::Liveness,
                evidence: "Event Killing: Container app failed liveness probe, will be restarted".into(),
                detail: None,
            }),
            ..context("app", ContainerKind::Main)
        },
    );
    t.verdict.cause = Cause::Liveness;
    t
}

/// Asked to stop, and then killed, by a process of another pod's container.
pub fn killed_by_a_pod(cgroup: u64) -> Termination {
    let mut t = ignored(cgroup);
    let mut pod = Arc::unwrap_or_clone(identity());
    pod.name = "killer".into();
    let of = Arc::new(PodContainer {
        pod: Arc::new(pod),
        container: "cron".into(),
    });
    let stop = t.stop.as_mut().map(|stop| &mut stop.sender);
    let kill = t.kill.as_mut().map(|kill| &mut kill.sender);
    for sender in [stop, kill].into_iter().flatten() {
        sender.place = Attribution::Subject(clean(99).subject, CgroupId::v2(99));
        sender.role = Role::Other;
        sender.pod = Some(of.clone());
    }
    t
}

/// Deleted, with a preStop hook, a sidecar that ended well after a main container that did not, and one that nobody saw.
pub fn pod(cgroup: u64) -> PodTermination {
    let app = PodContext {
        asked: Some(deleted()),
        request: Some(request()),
        pre_stop: Some(PreStopRun {
            hook: PreStop::Exec {
                program: "/bin/drain".into(),
            },
            begin: Some(before(2_000)),
            end: Some(before(10)),
            status: Some(ExitStatus::Exited(7)),
            seen: true,
            failed: Some("command '/bin/drain' exited with 7".into()),
            events_unknown: None,
        }),
        reported: Some(Reported {
            exit_code: 137,
            reason: Some("Error".into()),
        }),
        ..context("app", ContainerKind::Main)
    };
    let proxy = PodContext {
        asked: Some(deleted()),
        request: Some(request()),
        image: Some("proxy@sha256:0123".into()),
        mains_ended: Some(ms(30_002)),
        incomplete: Some("the API was away for 4.0 s".into()),
        ..context("proxy", ContainerKind::Sidecar)
    };
    let mut app = in_pod(ignored(cgroup), app);
    app.verdict.cause = Cause::Deleted;
    app.verdict.sentence = format!("container `app`: {}", app.verdict.sentence);
    app.verdict.advice = vec![Advice {
        kind: AdviceKind::AcceptWhileDraining,
        seconds: None,
        text: "14 connections were refused in the 3.2 s after the listener closed".into(),
    }];
    app.traffic.since = before(2_100);
    app.traffic.reset_queued = 1;
    app.traffic.rejected = Count {
        count: 2,
        first: ms(500),
        last: ms(900),
    };
    app.traffic.kubelet = KubeletTraffic {
        known: true,
        refused: Count {
            count: 3,
            first: ms(1_000),
            last: ms(21_000),
        },
        ..KubeletTraffic::default()
    };
    let mut proxy = in_pod(later(clean(cgroup + 1), 30_010), proxy);
    proxy.traffic.kubelet.known = true;
    proxy.verdict.cause = Cause::Deleted;
    proxy.verdict.sentence = format!("container `proxy`: {}", proxy.verdict.sentence);
    PodTermination {
        pod: identity(),
        boot_id: observation().boot_id,
        asked: Some(deleted()),
        request: Some(request()),
        begin: before(2_100),
        end: ms(30_260),
        unseen: vec![(
            "init".into(),
            Some(Reported {
                exit_code: 0,
                reason: Some("Completed".into()),
            }),
        )],
        gone: Some((ms(32_000), true)),
        verdict: app.verdict.clone(),
        containers: vec![app, proxy],
    }
}

/// All its moments, this much later.
fn later(mut t: Termination, millis: u64) -> Termination {
    let by = |at: &mut Boot| at.0 += millis * 1_000_000;
    by(&mut t.begin);
    by(&mut t.end);
    if let Some(stop) = &mut t.stop {
        by(&mut stop.at);
        stop.handler_entered.as_mut().map(by);
    }
    if let Some(exit) = &mut t.exit {
        by(&mut exit.at);
    }
    t
}

/// A static pod that a kubelet's eviction ended: no request, and every other kind of hook.
pub fn evicted(cgroup: u64, hook: PreStop) -> PodTermination {
    let mut pod = Arc::unwrap_or_clone(identity());
    pod.is_static = true;
    pod.cgroup_uid = PodUid("5f4dcc3b5aa765d61d8327deb882cf99".into());
    let pod = Arc::new(pod);
    let asked = Asked {
        cause: Cause::EvictedNodePressure,
        evidence: "status.reason=Evicted".into(),
        detail: None,
    };
    let context = PodContext {
        pod: pod.clone(),
        asked: Some(asked.clone()),
        image: Some("app".into()),
        pre_stop: Some(PreStopRun {
            hook,
            begin: Some(before(300)),
            end: None,
            status: None,
            seen: false,
            failed: None,
            events_unknown: None,
        }),
        shares_pid_namespace: true,
        ..context("app", ContainerKind::Main)
    };
    let mut t = in_pod(clean(cgroup), context);
    t.verdict.cause = Cause::EvictedNodePressure;
    t.verdict.exit = Exit::Clean;
    PodTermination {
        pod,
        boot_id: observation().boot_id,
        asked: Some(asked),
        request: None,
        begin: before(300),
        end: t.end,
        unseen: vec![],
        gone: None,
        verdict: t.verdict.clone(),
        containers: vec![t],
    }
}

/// The warning before a death of a pod's container that never heard its stop signal.
pub fn early(t: &Termination) -> StopSignalIgnored {
    let stop = t.stop.clone().expect("a stop signal");
    StopSignalIgnored {
        key: t.key.clone(),
        subject: t.subject.clone(),
        main: t.main,
        at: stop.at,
        signal: stop.signal,
        sender: stop.sender,
        disposition: stop.disposition,
        grace_left: t.kubernetes.as_ref().and_then(|context| context.grace),
        kubernetes: t.kubernetes.clone(),
        sentence: "container `app`: SIGTERM reached PID 1 `sh`, which has no handler; SIGKILL follows in 30.0 s".into(),
    }
}

/// Every text in it comes from outside.
pub fn hostile(text: &str) -> PodTermination {
    let mut p = pod(1);
    let mut identity = Arc::unwrap_or_clone(p.pod);
    identity.namespace = text.into();
    identity.name = text.into();
    identity.node = text.into();
    identity.workload.kind = text.into();
    identity.workload.name = text.into();
    identity.service.name = text.into();
    let identity = Arc::new(identity);
    let asked = Asked {
        cause: Cause::Deleted,
        evidence: text.into(),
        detail: None,
    };
    let reported = Reported {
        exit_code: 1,
        reason: Some(text.into()),
    };
    for t in &mut p.containers {
        let mut context = Arc::unwrap_or_clone(t.kubernetes.take().expect("a pod's"));
        context.pod = identity.clone();
        context.container = Some(text.into());
        context.image = Some(text.into());
        context.asked = Some(asked.clone());
        context.reported = Some(reported.clone());
        context.incomplete = Some(text.into());
        if let Some(stop) = &mut t.stop {
            stop.sender.pod = Some(Arc::new(PodContainer {
                pod: identity.clone(),
                container: text.into(),
            }));
        }
        if let Some(run) = &mut context.pre_stop {
            run.hook = PreStop::Exec { program: text.into() };
            run.failed = Some(text.into());
        }
        t.kubernetes = Some(Arc::new(context));
    }
    p.verdict.sentence = text.into();
    p.verdict.remedy = Some(text.into());
    p.verdict.advice[0].text = text.into();
    p.verdict.evidence[0].text = text.into();
    p.asked = Some(asked);
    p.unseen = vec![(text.into(), Some(reported))];
    p.pod = identity;
    p
}
