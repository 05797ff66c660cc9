//! Terminations for tests, here and in `tests/tests/jaeger.rs` (which includes this file).

// By path: `tests/tests/jaeger.rs` has this file under another directory.
#[path = "pod_fixtures.rs"]
pub mod pods;

use epitaph::attribute::{Attribution, ContainerId, Runtime, Subject};
use epitaph::event::{
    Boot, CgroupId, CgroupMode, Comm, Disposition, ExitStatus, Kind, Observation, Pid, Signal, SignalResult, TargetState,
    WallOffset,
};
use epitaph::termination::{
    Actor, Basis, Count, Gaps, Kill, ListenerClosed, MainExit, MainProcess, OomKill, RefusedSource, Role, Stop, Termination,
    TerminationKey, Traffic,
};
use epitaph::verdict::{Cause, Evidence, Exit, Severity, TrafficAxis, Verdict};

/// Milliseconds after the begin of every death here.
pub fn ms(after: u64) -> Boot {
    Boot(5_000_000_000_000 + after * 1_000_000)
}

pub fn observation() -> Observation {
    Observation {
        boot_id: "5ad5ae73-41a8-4a0c-8b5c-3a1c2b0e0f11".into(),
        host: "node-7".into(),
        kernel: "6.18.0".into(),
        wall_offset: WallOffset(1_700_000_000_000_000_000),
        since: Boot(1),
        cgroups: CgroupMode::V2,
    }
}

pub fn runtime() -> Actor {
    Actor {
        tgid: Pid(900),
        comm: Comm::new("containerd-shim"),
        parent: Pid(1),
        parent_comm: Comm::new("systemd"),
        place: Attribution::Host,
        pod: None,
        role: Role::Runtime,
    }
}

fn bare(cgroup: u64, subject: Subject, headline: &'static str, sentence: &str) -> Termination {
    Termination {
        key: TerminationKey {
            boot_id: observation().boot_id,
            cgroup: CgroupId::v2(cgroup),
            main_start: Boot(4_000_000_000_000),
        },
        subject,
        cgroup_path: Some(format!("/system.slice/cg-{cgroup}")),
        main: Some(MainProcess {
            tgid: Pid(4242),
            ns_pid: 1,
            is_ns_init: true,
            comm: Comm::new("sh"),
            start: Boot(4_000_000_000_000),
        }),
        begin: ms(0),
        end: ms(250),
        stop: None,
        kill: None,
        exit: Some(MainExit {
            at: ms(250),
            status: ExitStatus::Exited(0),
        }),
        oom: vec![],
        other_exits: 0,
        traffic: Traffic {
            observed: true,
            ..Traffic::default()
        },
        gaps: Gaps::default(),
        basis: Basis::default(),
        kubernetes: None,
        of_ending_pod: false,
        verdict: Verdict {
            headline,
            cause: Cause::Stopped,
            exit: Exit::Clean,
            traffic: TrafficAxis::Quiet,
            unclean: false,
            severity: Severity::Info,
            sentence: sentence.into(),
            remedy: None,
            advice: Vec::new(),
            evidence: vec![],
        },
    }
}

fn container(cgroup: u64) -> Subject {
    Subject::Container {
        id: ContainerId(format!("{cgroup:064x}").into()),
        runtime: Runtime::Containerd,
        pod: None,
    }
}

/// A container that stopped as it should.
pub fn clean(cgroup: u64) -> Termination {
    let mut t = bare(
        cgroup,
        container(cgroup),
        "clean",
        "SIGTERM was handled and it exited with code 0 after 250 ms",
    );
    t.stop = Some(Stop {
        at: ms(0),
        signal: Signal::TERM,
        sender: runtime(),
        result: SignalResult::Delivered,
        disposition: Disposition::Handler,
        state: TargetState::default(),
        handler_entered: Some(ms(1)),
        repeated: 0,
    });
    t
}

/// The `sh -c` wrapper that never heard SIGTERM, killed 30.0 s later, with clients refused, reset and cut.
pub fn ignored(cgroup: u64) -> Termination {
    let mut t = clean(cgroup);
    t.end = ms(30_002);
    t.stop = t.stop.map(|stop| Stop {
        result: SignalResult::Ignored,
        disposition: Disposition::Default,
        handler_entered: None,
        repeated: 1,
        ..stop
    });
    t.kill = Some(Kill {
        at: ms(30_000),
        sender: runtime(),
        cgroup_kill: false,
    });
    t.exit = Some(MainExit {
        at: ms(30_002),
        status: ExitStatus::Signaled {
            signal: Signal::KILL,
            core_dumped: false,
        },
    });
    t.other_exits = 1;
    let local = "10.0.0.7:8080".parse().expect("an address");
    t.traffic = Traffic {
        observed: true,
        refused_source: RefusedSource::ServerReset,
        listeners: vec![ListenerClosed {
            at: ms(40),
            local,
            by_exit: false,
        }],
        accepted: Count {
            count: 2,
            first: ms(3),
            last: ms(9),
        },
        refused: Count {
            count: 14,
            first: ms(41),
            last: ms(3_241),
        },
        reset: Count {
            count: 1,
            first: ms(30_001),
            last: ms(30_001),
        },
        cut: Count {
            count: 3,
            first: ms(30_001),
            last: ms(30_002),
        },
        cut_unanswered: 2,
        idle_closed: Count {
            count: 5,
            first: ms(30_002),
            last: ms(30_002),
        },
        ..Traffic::default()
    };
    t.verdict = Verdict {
        headline: "ignored-stop-signal",
        cause: Cause::Stopped,
        exit: Exit::IgnoredStopSignal,
        traffic: TrafficAxis::Cut,
        unclean: true,
        severity: Severity::Critical,
        sentence:
            "SIGTERM reached PID 1 `sh`, which has no handler, so the kernel dropped it; the runtime sent SIGKILL 30.0 s later"
                .into(),
        remedy: Some("exec the server from the shell, so that it is PID 1".into()),
        advice: Vec::new(),
        evidence: vec![
            Evidence {
                at: ms(0),
                source: Kind::SignalGenerate.into(),
                text: "SIGTERM from containerd-shim: ignored".into(),
            },
            Evidence {
                at: ms(30_000),
                source: Kind::SignalGenerate.into(),
                text: "SIGKILL from containerd-shim".into(),
            },
        ],
    };
    t
}

/// A unit taken by the OOM killer, with evidence lost.
pub fn oom(cgroup: u64) -> Termination {
    let unit = Subject::Unit {
        name: "hungry.service".into(),
    };
    let mut t = bare(cgroup, unit, "oom-killed", "the OOM killer took the main process `sh`");
    t.main = t.main.map(|main| MainProcess {
        ns_pid: 4242,
        is_ns_init: false,
        ..main
    });
    t.oom = vec![OomKill {
        at: ms(0),
        tgid: Pid(4242),
        comm: Comm::new("sh\x1b[2J"),
        is_main: true,
    }];
    t.exit = Some(MainExit {
        at: ms(250),
        status: ExitStatus::Signaled {
            signal: Signal::KILL,
            core_dumped: false,
        },
    });
    t.traffic.observed = false;
    t.gaps = Gaps {
        lost: vec![("tcp", 3)],
        over_cap: 0,
        late_start: true,
        inactive_probes: vec!["tcp_send_reset".into()],
    };
    t.verdict.cause = Cause::Oom;
    t.verdict.exit = Exit::OomKilled;
    t.verdict.traffic = TrafficAxis::Unknown;
    t.verdict.unclean = true;
    t.verdict.severity = Severity::Critical;
    t
}
