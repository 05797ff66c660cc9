//! One container's death with its pod's side → verdict, as text. Times are seconds after the request.

mod clients;
mod containers;
mod hooks;
mod pods;

use std::sync::Arc;
use std::time::Duration;

use expect_test::Expect;

use super::{Cause, Verdict, judge};
use crate::attribute::{Attribution, ContainerId, PodUid, Runtime, Subject};
use crate::event::*;
use crate::kubernetes::*;
use crate::pod::*;
use crate::termination::*;
use crate::verdict::judge::{Fatal, Open};

pub const GRACE: u64 = 10;

/// An hour after boot.
pub fn at(seconds: f64) -> Boot {
    let nanos = 3_600e9 + seconds * 1e9;
    Boot(format!("{nanos:.0}").parse().expect("a time"))
}

pub struct Death {
    pub t: Termination,
    pub k: PodContext,
}

/// Container `app` of a pod that was deleted with a grace of ten seconds; PID 1 `app` has run for an hour.
pub fn death() -> Death {
    let pod = PodIdentity {
        uid: PodUid("b6f3a3f2-58f5-4a6c-9a0d-0f1e2d3c4b5a".into()),
        cgroup_uid: PodUid("b6f3a3f2-58f5-4a6c-9a0d-0f1e2d3c4b5a".into()),
        namespace: "shop".into(),
        name: "cart-7d9c-x2x1z".into(),
        node: "node-1".into(),
        workload: Workload {
            kind: "Deployment".into(),
            namespace: "shop".into(),
            name: "cart".into(),
            uid: None,
            api_version: Some("apps/v1".into()),
            through: None,
        },
        is_static: false,
        service: Service::default(),
        created: None,
    };
    Death {
        t: Termination {
            key: TerminationKey {
                boot_id: "boot".into(),
                cgroup: CgroupId::v2(7),
                main_start: Boot(0),
            },
            subject: Subject::Container {
                id: ContainerId("3f1c0d4e5a6b7c8d".into()),
                runtime: Runtime::Containerd,
                pod: None,
            },
            cgroup_path: None,
            main: Some(MainProcess {
                tgid: Pid(4021),
                ns_pid: 1,
                is_ns_init: true,
                comm: Comm::new("app"),
                start: Boot(0),
            }),
            begin: at(0.0),
            end: at(0.0),
            stop: None,
            kill: None,
            exit: None,
            oom: Vec::new(),
            other_exits: 0,
            traffic: Traffic {
                observed: true,
                refused_source: RefusedSource::ServerReset,
                ..Traffic::default()
            },
            gaps: Gaps::default(),
            basis: Basis::default(),
            kubernetes: None,
            of_ending_pod: false,
            verdict: Verdict::pending(),
        },
        k: PodContext {
            pod: Arc::new(pod),
            container: Some("app".into()),
            kind: Some(ContainerKind::Main),
            image: None,
            restarts: 0,
            options: PodOptions::default(),
            asked: Some(Asked {
                cause: Cause::Deleted,
                evidence: "deletionTimestamp".into(),
                detail: None,
            }),
            request: Some(Request {
                earliest: at(-0.9),
                latest: at(0.0),
                grace: Duration::from_secs(GRACE),
                shortened: Vec::new(),
                skew: Some((-1, 1)),
            }),
            grace: Some(Duration::from_secs(GRACE)),
            pre_stop: None,
            mains_ended: None,
            shares_pid_namespace: false,
            reported: None,
            incomplete: None,
        },
    }
}

fn runtime() -> Actor {
    Actor {
        tgid: Pid(812),
        comm: Comm::new("runc"),
        parent: Pid(700),
        parent_comm: Comm::new("containerd-shim"),
        place: Attribution::Host,
        pod: None,
        role: Role::Runtime,
    }
}

pub fn bash() -> Actor {
    Actor {
        comm: Comm::new("bash"),
        parent_comm: Comm::new("sshd"),
        role: Role::Other,
        ..runtime()
    }
}

impl Death {
    pub fn with(mut self, change: impl FnOnce(&mut PodContext)) -> Death {
        change(&mut self.k);
        self
    }

    /// Nobody asked: it ended by itself, or the kubelet restarted it.
    pub fn unasked(self) -> Death {
        self.with(|k| {
            k.asked = None;
            k.request = None;
        })
    }

    /// The stop signal, read by a handler.
    pub fn term(mut self, seconds: f64) -> Death {
        self.t.stop = Some(Stop {
            at: at(seconds),
            signal: Signal::TERM,
            sender: runtime(),
            result: SignalResult::Delivered,
            disposition: Disposition::Handler,
            state: TargetState::default(),
            handler_entered: Some(at(seconds)),
            repeated: 0,
        });
        self
    }

    pub fn dropped_term(self, seconds: f64) -> Death {
        let mut death = self.term(seconds);
        let stop = death.t.stop.as_mut().expect("a stop");
        stop.result = SignalResult::Ignored;
        stop.disposition = Disposition::Default;
        stop.handler_entered = None;
        death
    }

    /// The stop signal's default action.
    pub fn fatal_term(self, seconds: f64) -> Death {
        let mut death = self.term(seconds);
        let stop = death.t.stop.as_mut().expect("a stop");
        stop.disposition = Disposition::Default;
        stop.handler_entered = None;
        death.signaled(seconds, Signal::TERM)
    }

    pub fn exit(mut self, seconds: f64, code: u8) -> Death {
        let status = ExitStatus::Exited(code);
        self.t.exit = Some(MainExit { at: at(seconds), status });
        self.t.end = at(seconds);
        self
    }

    fn signaled(mut self, seconds: f64, signal: Signal) -> Death {
        let status = ExitStatus::Signaled {
            signal,
            core_dumped: false,
        };
        self.t.exit = Some(MainExit { at: at(seconds), status });
        self.t.end = at(seconds);
        self
    }

    pub fn kill(self, seconds: f64) -> Death {
        self.kill_by(seconds, runtime())
    }

    pub fn kill_by(mut self, seconds: f64, sender: Actor) -> Death {
        self.t.kill = Some(Kill {
            at: at(seconds),
            sender: sender.clone(),
            cgroup_kill: false,
        });
        self.t.basis.fatal = Some(Fatal {
            at: at(seconds),
            signal: Signal::KILL,
            code: 0,
            namespace_ended: false,
            sender,
        });
        self.signaled(seconds, Signal::KILL)
    }

    pub fn oom(mut self, seconds: f64) -> Death {
        self.t.oom.push(OomKill {
            at: at(seconds),
            tgid: Pid(4021),
            comm: Comm::new("app"),
            is_main: true,
        });
        self.signaled(seconds, Signal::KILL)
    }

    /// No end was seen until then.
    pub fn open(mut self, seconds: f64) -> Death {
        self.t.exit = None;
        self.t.end = at(seconds);
        self.t.basis.open = Open::ObservationEnded;
        self
    }

    /// An exec hook whose process was seen.
    pub fn hook(self, begin: f64, end: f64, status: ExitStatus) -> Death {
        self.with(|k| {
            k.pre_stop = Some(PreStopRun {
                hook: PreStop::Exec {
                    program: "/drain.sh".into(),
                },
                begin: Some(at(begin)),
                end: Some(at(end)),
                status: Some(status),
                seen: true,
                failed: None,
                events_unknown: None,
            });
        })
    }

    /// One that no process here shows: it lasts until the stop signal.
    pub fn wait(self, hook: PreStop, end: f64, failed: Option<&str>) -> Death {
        self.with(|k| {
            k.pre_stop = Some(PreStopRun {
                hook,
                begin: Some(at(0.0)),
                end: Some(at(end)),
                status: None,
                seen: false,
                failed: failed.map(str::to_owned),
                events_unknown: None,
            });
        })
    }

    pub fn judged(mut self) -> Termination {
        self.t.kubernetes = Some(Arc::new(self.k));
        self.t.verdict = judge(&self.t.case());
        self.t
    }
}

pub fn check(death: Death, expected: Expect) {
    expected.assert_eq(&text(&death.judged().verdict));
}

pub fn text(v: &Verdict) -> String {
    let mut text = format!("{} ({:?}, {:?}): {}\n", v.headline, v.cause, v.traffic, v.sentence);
    if let Some(remedy) = &v.remedy {
        text += &format!("  remedy: {remedy}\n");
    }
    for advice in &v.advice {
        text += &format!("  {} {:?}: {}\n", advice.kind.name(), advice.seconds, advice.text);
    }
    text
}

pub fn evidence(death: Death, expected: Expect) {
    let verdict = death.judged().verdict;
    let lines: Vec<String> = verdict
        .evidence
        .iter()
        .map(|line| format!("{:+.1} {}: {}\n", seconds_of(line.at), line.source.name(), line.text))
        .collect();
    expected.assert_eq(&lines.concat());
}

fn seconds_of(at_: Boot) -> f64 {
    let zero = at(0.0);
    if at_ >= zero {
        at_.since(zero).as_secs_f64()
    } else {
        -zero.since(at_).as_secs_f64()
    }
}
