//! Terminations for the tests of what is shown.

use std::time::Duration;

use crate::attribute::{Attribution, ContainerId, Runtime, Subject, UnknownCgroup};
use crate::event::*;
use crate::termination::*;
use crate::verdict::{Cause, Evidence, Exit, Severity, TrafficAxis, Verdict};

/// 2026-01-02T03:04:05Z at boot.
pub fn observation() -> Observation {
    Observation {
        boot_id: "0a4f64fc-2a6e-4d29-9d6b-6ce1f0f9a111".into(),
        host: "node-1".into(),
        kernel: "6.18.15".into(),
        wall_offset: WallOffset(1_767_323_045_000_000_000),
        since: Boot(1_000_000_000),
        cgroups: CgroupMode::V2,
    }
}

fn at(millis: u64) -> Boot {
    Boot(millis * 1_000_000)
}

pub fn container() -> Subject {
    Subject::Container {
        id: ContainerId("3f1c0d4e5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f".into()),
        runtime: Runtime::Containerd,
        pod: None,
    }
}

fn runtime_actor() -> Actor {
    Actor {
        tgid: Pid(812),
        comm: Comm::new("containerd-shim"),
        parent: Pid(1),
        parent_comm: Comm::new("systemd"),
        place: Attribution::Subject(
            Subject::Unit {
                name: "containerd.service".into(),
            },
            CgroupId::v2(77),
        ),
        pod: None,
        role: Role::Runtime,
    }
}

fn main_process(comm: &str) -> MainProcess {
    MainProcess {
        tgid: Pid(4021),
        ns_pid: 1,
        is_ns_init: true,
        comm: Comm::new(comm),
        start: at(500),
    }
}

fn key() -> TerminationKey {
    TerminationKey {
        boot_id: observation().boot_id,
        cgroup: CgroupId::v2(4242),
        main_start: at(500),
    }
}

fn quiet() -> Traffic {
    Traffic {
        observed: true,
        refused_source: RefusedSource::ServerReset,
        ..Traffic::default()
    }
}

/// A container whose `sh` has no handler: SIGTERM dropped, killed 10 s later, 14 connections refused before that.
pub fn ignored() -> Termination {
    let stop = at(60_000);
    let kill = at(70_002);
    let end = at(70_003);
    Termination {
        key: key(),
        subject: container(),
        cgroup_path: Some("/system.slice/cri-containerd-3f1c.scope".into()),
        main: Some(main_process("sh")),
        begin: stop,
        end,
        stop: Some(Stop {
            at: stop,
            signal: Signal::TERM,
            sender: runtime_actor(),
            result: SignalResult::Ignored,
            disposition: Disposition::Default,
            state: TargetState::default(),
            handler_entered: None,
            repeated: 0,
        }),
        kill: Some(Kill {
            at: kill,
            sender: runtime_actor(),
            cgroup_kill: false,
        }),
        exit: Some(MainExit {
            at: end,
            status: ExitStatus::Signaled {
                signal: Signal::KILL,
                core_dumped: false,
            },
        }),
        oom: vec![OomKill {
            at: at(65_000),
            tgid: Pid(4055),
            comm: Comm::new("worker"),
            is_main: false,
        }],
        other_exits: 2,
        traffic: Traffic {
            listeners: vec![ListenerClosed {
                at: at(66_800),
                local: "10.0.0.7:8080".parse().unwrap(),
                by_exit: false,
            }],
            accepted: Count {
                count: 3,
                first: at(60_100),
                last: at(66_000),
            },
            refused: Count {
                count: 14,
                first: at(66_801),
                last: at(70_000),
            },
            ..quiet()
        },
        gaps: Gaps::default(),
        basis: Basis::default(),
        kubernetes: None,
        of_ending_pod: false,
        verdict: Verdict {
            headline: "ignored-stop-signal",
            cause: Cause::Stopped,
            exit: Exit::IgnoredStopSignal,
            traffic: TrafficAxis::Refused,
            unclean: true,
            severity: Severity::Warning,
            sentence: "SIGTERM reached PID 1 `sh`, which has no handler, so the kernel dropped it; \
                       the runtime sent SIGKILL 10.0 s later"
                .into(),
            remedy: Some("install a handler for SIGTERM, or run `sh` under an init".into()),
            advice: Vec::new(),
            evidence: vec![
                Evidence {
                    at: stop,
                    source: Kind::SignalGenerate.into(),
                    text: "SIGTERM to pid 4021 (`sh`), result ignored".into(),
                },
                Evidence {
                    at: kill,
                    source: Kind::SignalGenerate.into(),
                    text: "SIGKILL from pid 812 (`containerd-shim`)".into(),
                },
                Evidence {
                    at: end,
                    source: Kind::ProcessExit.into(),
                    text: "killed by SIGKILL".into(),
                },
            ],
        },
    }
}

/// A unit that was already dying when observation began.
pub fn unknown_unit() -> Termination {
    Termination {
        key: TerminationKey {
            main_start: Boot(0),
            ..key()
        },
        subject: Subject::Unit {
            name: "nginx.service".into(),
        },
        cgroup_path: Some("/system.slice/nginx.service".into()),
        main: None,
        begin: at(1_500),
        end: at(1_500),
        stop: None,
        kill: None,
        exit: None,
        oom: Vec::new(),
        other_exits: 0,
        traffic: Traffic {
            observed: false,
            refused_source: RefusedSource::None,
            ..quiet()
        },
        gaps: Gaps {
            lost: vec![("signal_generate", 3)],
            over_cap: 0,
            late_start: true,
            inactive_probes: vec!["tcp_send_reset".into()],
        },
        basis: Basis::default(),
        kubernetes: None,
        of_ending_pod: false,
        verdict: Verdict {
            headline: "unknown",
            cause: Cause::Unknown,
            exit: Exit::Unknown,
            traffic: TrafficAxis::Unknown,
            unclean: false,
            severity: Severity::Warning,
            sentence: "it ended, and how is not known: it was running before observation began".into(),
            remedy: None,
            advice: Vec::new(),
            evidence: Vec::new(),
        },
    }
}

/// Every text in it comes from outside.
pub fn hostile(text: &str) -> Termination {
    let mut t = ignored();
    let mut comm = [0; 16];
    for (to, from) in comm.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    t.subject = Subject::Unit { name: text.into() };
    t.cgroup_path = Some(text.into());
    if let Some(main) = &mut t.main {
        main.comm = Comm(comm);
    }
    t.gaps.inactive_probes = vec![text.into()];
    t.verdict.sentence = text.into();
    t.verdict.remedy = Some(text.into());
    t.verdict.evidence[0].text = text.into();
    t
}

pub fn early() -> StopSignalIgnored {
    StopSignalIgnored {
        key: key(),
        subject: container(),
        main: Some(main_process("sh")),
        at: at(60_000),
        signal: Signal::TERM,
        sender: Actor {
            place: Attribution::Unknown(UnknownCgroup::ProcessGone),
            ..runtime_actor()
        },
        disposition: Disposition::Default,
        grace_left: Some(Duration::from_secs(10)),
        kubernetes: None,
        sentence: "SIGTERM reached PID 1 `sh`, which has no handler, so the kernel dropped it; SIGKILL follows in 10.0 s"
            .into(),
    }
}

pub fn child_oom() -> (Subject, OomKill) {
    (
        container(),
        OomKill {
            at: at(65_000),
            tgid: Pid(4055),
            comm: Comm::new("worker"),
            is_main: false,
        },
    )
}

pub fn probes() -> Vec<(String, ProbeState)> {
    vec![
        ("signal_generate".into(), ProbeState::Active),
        (
            "tcp_send_reset".into(),
            ProbeState::Unsupported("the kernel has no such tracepoint".into()),
        ),
        (
            "inet_sk_error_report".into(),
            ProbeState::Substituted {
                by: "inet_sock_set_state (the error with which a connection closes)".into(),
            },
        ),
    ]
}
