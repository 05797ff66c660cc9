//! What holds for any timeline.

use std::time::Duration;

use proptest::prelude::*;

use super::{container, unit};
use crate::correlate::{Correlator, Limits};
use crate::event::*;
use crate::fixtures::script::{self, ZERO, show};
use crate::ids::*;
use crate::input::*;
use crate::report::Report;
use crate::time::*;
use crate::verdict::Exit;

/// Terminations of every sort with a known verdict.
pub(super) fn deaths() -> Vec<String> {
    vec![
        container("+1 TERM runc -> main handler\n+1.001 enter main TERM\n+1.05 exit main 0\n+1.2 rmdir app"),
        container("+1 TERM runc -> main handler\n+1.001 enter main TERM\n+1.002 exit main 143"),
        container("+1 TERM runc -> main ignored default\n+1.1 KILL runc -> main\n+1.101 exit main KILL\n+1.102 rmdir app"),
        container("+1 TERM runc -> main blocked default\n+1.1 KILL runc -> main\n+1.101 exit main KILL"),
        container("+1 TERM runc -> main handler\n+1.02 enter main TERM\n+1.1 KILL runc -> main\n+1.101 exit main KILL"),
        container("+1 TERM runc -> main handler\n+1.02 enter main TERM\n+1.05 KILL bash -> main\n+1.051 exit main KILL"),
        // Records of one cgroup's creation and removal do not overtake each other.
        container("+0.1 KILL runc -> main\n+0.101 exit main KILL\n+0.31 rmdir app"),
        container("+1 KILL main -> main kernel\n+1.0001 oom main\n+1.001 exit main KILL"),
        container("+1 KILL bash -> main\n+1.0001 oom main\n+1.001 exit main KILL"),
        container(
            "proc worker in=app pid=101 ns=7 start=+0.5 parent=main comm=worker
            +1 KILL worker -> worker kernel\n+1.0001 oom worker\n+1.001 exit worker KILL\n+1.05 exit main 137",
        ),
        container("+0.1 SEGV main -> main fault\n+0.101 exit main SEGV core"),
        container("+0.1 exit main 0\n+0.35 rmdir app"),
        unit("+1 TERM systemd -> main default\n+1.001 exit main TERM"),
        unit("+1 TERM systemd -> main handler\n+1.001 enter main TERM\n+1.1 TERM main -> main default thread\n+1.101 exit main TERM"),
        unit("+1 HUP systemd -> main handler\n+1.01 enter main HUP\n+1.1 TERM systemd -> main handler\n+1.11 enter main TERM\n+1.2 exit main 3"),
        unit(
            "proc second in=web.service pid=200 start=+1.05 parent=systemd comm=web
            +1 SEGV main -> main fault\n+1.001 exit main SEGV core\n+1.06 exec second
            +1.1 TERM systemd -> second handler\n+1.11 enter second TERM\n+1.15 exit second 0\n+1.16 rmdir web.service",
        ),
        unit(
            "proc second in=web.service pid=201 start=+1.1 parent=systemd comm=web\n+1 exit main 0\n+1.101 exec second
            +4 TERM systemd -> second default\n+4.01 exit second TERM\n+4.02 rmdir web.service",
        ),
        container(
            "proc box in=app pid=110 ns=1 level=2 start=+0.5 parent=main comm=box\n+0.51 exec box\n+1 exit box 0
            +4 TERM runc -> main default\n+4.01 exit main TERM\n+4.02 rmdir app",
        ),
        container(
            "+1 TERM runc -> main handler\n+1.01 enter main TERM\n+1.02 tcp app closed 80\n+1.03 tcp app accepted 80 5001
            +1.1 tcp app refused 80 5002\n+1.11 tcp app client-refused 80 5002\n+1.2 tcp app reset 80 5001
            +1.3 exit main 0\n+1.301 tcp app cut 80 5003 sent=0 received=5 last-sent=0 last-received=3\n+1.31 tcp app refused 80 5003",
        ),
        container(
            "proc worker in=app pid=107 ns=7 start=+0.1 parent=main comm=worker\n+0.1 exec worker\n+1 TERM runc -> main handler armed
            +1.001 enter main TERM\n+1.01 TERM main -> worker handler already-armed\n+1.02 enter worker TERM
            +1.2 exit worker 0\n+1.21 exit main 0",
        ),
    ]
}

/// Deaths only: when an early warning comes depends on what came before it.
fn terminations(outputs: Vec<Report>) -> Vec<Report> {
    let is_end = |output: &Report| matches!(output, Report::Terminated(_));
    outputs.into_iter().filter(is_end).collect()
}

/// Feeds kernel records late by up to the reorder window each, so that they overtake one another.
fn run_late(script: &str, delays: &[u64]) -> Vec<Report> {
    let limits = Limits::default();
    let window = limits.reorder.as_nanos() as u64;
    let mut correlator = Correlator::new(limits);
    let delayed = |(i, (at, input)): (usize, (Boot, Input))| {
        let late = match &input {
            Input::Kernel { .. } => delays[i % delays.len()] % window,
            _ => 0,
        };
        (Boot(at.0 + late), input)
    };
    let mut inputs: Vec<_> = script::parse(script).inputs.into_iter().enumerate().map(delayed).collect();
    inputs.sort_by_key(|(arrival, _)| *arrival);
    let mut out = Vec::new();
    let mut last = ZERO;
    for (arrival, input) in inputs {
        last = arrival;
        out.extend(correlator.handle(arrival, input).reports);
    }
    out.extend(correlator.handle(last.plus(Duration::from_secs(11)), Input::Tick).reports);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_within_the_window_gives_the_verdict_of_the_true_order(
        which in 0..20_usize,
        delays in prop::collection::vec(any::<u64>(), 60),
    ) {
        let script = &deaths()[which];
        let expected = terminations(script::run(script));
        prop_assert!(!expected.is_empty());
        for output in &expected {
            let Report::Terminated(termination) = output else { continue };
            prop_assert_ne!(termination.verdict.exit, Exit::Unknown);
        }
        let got = terminations(run_late(script, &delays));
        prop_assert_eq!(show(&expected, true), show(&got, true));
        prop_assert_eq!(expected, got);
    }

    #[test]
    fn memory_is_bounded_and_nothing_panics(events in prop::collection::vec(any::<[u8; 12]>(), 0..600)) {
        let limits = Limits {
            subjects: 8,
            timelines: 4,
            facts: 8,
            connections: 8,
            pending: 8,
            index_live: 32,
            index_dead: 16,
            ..Limits::default()
        };
        // Per subject 16 candidates, 32 exits, 16 cgroups, early handler entries; per timeline its facts, 64 listeners, accepted ones over again.
        let subject = 16 + 32 + 16 + limits.facts;
        let timeline = 3 * limits.facts + 64 + 3 * limits.connections;
        let lists = 2 * limits.subjects + limits.pending + 64 + 1_024;
        let bound = limits.subjects * subject + (limits.timelines + 1) * timeline + lists;
        let mut correlator = Correlator::new(limits);
        let mut now = ZERO;
        for bytes in events {
            now = now.plus(Duration::from_millis(u64::from(bytes[0]) * u64::from(bytes[1]) / 16));
            correlator.handle(now, any_input(now, &bytes));
            let (subjects, timelines) = correlator.sizes();
            prop_assert!(subjects <= limits.subjects && timelines <= limits.timelines);
            prop_assert!(correlator.kept() <= bound, "{} kept, {bound} allowed", correlator.kept());
        }
        correlator.handle(now, Input::End);
        prop_assert_eq!(correlator.sizes(), (0, 0));
    }
}

#[test]
fn a_worker_that_reloads_begins_no_timeline() {
    let script = container(
        "proc worker in=app pid=107 ns=7 start=+0.1 parent=main comm=worker\n+0.1 exec worker
        +1 HUP main -> worker handler unarmed\n+1.01 enter worker HUP\n+9 HUP main -> worker handler unarmed\n+9.01 enter worker HUP",
    );
    let mut correlator = Correlator::new(Limits::default());
    for (now, input) in script::parse(&script).inputs {
        correlator.handle(now, input);
    }
    assert_eq!(correlator.sizes(), (1, 0));
}

/// Few cgroups and process ids, so that they meet.
pub(in crate::correlate) fn any_input(now: Boot, bytes: &[u8; 12]) -> Input {
    let [_, _, verb, a, b, c, d, e, f, g, h, i] = *bytes;
    let at = Boot(now.0.saturating_sub(u64::from(i) * 2_000_000));
    let cgroup = |n: u8| CgroupId::v2(100 + u64::from(n % 24));
    let path = |n: u8| match n % 3 {
        0 => format!("/system.slice/unit{}.service", n % 24),
        1 => format!("/user.slice/{}", n % 24),
        _ => format!("/system.slice/docker-{:0>64x}.scope", n % 24),
    };
    let container = |n: u8| n.is_multiple_of(3).then(|| cgroup(n.wrapping_mul(5)));
    let armed = |n: u8| [None, Some(Armed::No), Some(Armed::Already), Some(Armed::ByThis)][usize::from(n % 4)];
    let armed_at_exit = |n: u8| if n % 5 == 4 { Some(Armed::ByOwn) } else { armed(n) };
    let held = |n: u8| {
        n.is_multiple_of(2).then_some(HeldSockets {
            listener: n.is_multiple_of(3),
            connection: n.is_multiple_of(5),
            more: n.is_multiple_of(7),
            unix_listener: n.is_multiple_of(11),
            last_unix_listener: n.is_multiple_of(22),
        })
    };
    let task = |n: u8, group: u8| Task {
        tgid: Pid(u32::from(n % 16)),
        tid: Pid(u32::from(n % 16)),
        ppid: Pid(u32::from(n % 5)),
        ns_level: u32::from(group % 3),
        ns_pid: u32::from(n % 2) + 1,
        pidns: 7,
        cgroup: cgroup(group),
        v1_cgroup: n.is_multiple_of(4).then_some(CgroupId {
            hierarchy: 4,
            ..cgroup(group.wrapping_add(1))
        }),
        container: container(n),
        start: Boot(ZERO.0.saturating_add(u64::from(n / 16) * 400_000_000)),
        comm: Comm([n; 16]),
    };
    let signal = |n: u8| Signal::new(u32::from(n % 64) + 1).unwrap_or(Signal::TERM);
    let event = match verb % 16 {
        0 | 1 => Event::CgroupMkdir(CgroupMkdir {
            cgroup: cgroup(a),
            parent: cgroup(b),
            container: container(c),
            path: (c > 10).then(|| path(a)),
        }),
        2 => Event::CgroupRmdir(CgroupRmdir { cgroup: cgroup(a) }),
        3..=5 => Event::SignalGenerate(SignalGenerate {
            sender: task(a, b),
            sender_parent_comm: Comm::default(),
            sender_grandparent: Pid(u32::from(c % 5)),
            target: task(d, e),
            signal: if f % 2 == 0 {
                signal(f)
            } else {
                [Signal::TERM, Signal::KILL][usize::from(f / 2 % 2)]
            },
            code: [0, -6, 1, 128][usize::from(g % 4)],
            from_kernel: g % 4 == 3,
            group: g > 100,
            result: [
                SignalResult::Delivered,
                SignalResult::Ignored,
                SignalResult::AlreadyPending,
                SignalResult::OverflowFail,
                SignalResult::LoseInfo,
            ][usize::from(h % 5)],
            disposition: [Disposition::Default, Disposition::Ignore, Disposition::Handler][usize::from(h / 3 % 3)],
            state: TargetState {
                blocked: h > 200,
                ..TargetState::default()
            },
            call: None,
            pending: None,
            armed: armed(i),
        }),
        6 if g > 200 => Event::SignalDiscarded(SignalDiscarded {
            task: task(a, b),
            signal: signal(f),
        }),
        6 => Event::SignalDeliver(SignalDeliver {
            task: task(a, b),
            signal: signal(f),
            open: UnseenSockets {
                udp: i.is_multiple_of(13),
                unix_listener: i.is_multiple_of(7),
                last_unix_listener: i.is_multiple_of(14),
                more: i.is_multiple_of(11),
            },
        }),
        7 => Event::ProcessExit(ProcessExit {
            task: task(a, b),
            status: if c % 2 == 0 {
                ExitStatus::Exited(d)
            } else {
                ExitStatus::Signaled {
                    signal: signal(d),
                    core_dumped: e % 2 == 0,
                }
            },
            armed: armed_at_exit(i),
            held: held(i),
            unobserved: i % 7 == 0,
            leaves_others: i % 3 == 0,
            is_own: i % 2 == 0,
        }),
        8 | 9 => Event::ProcessExec(ProcessExec {
            task: task(a, b),
            parent_cgroup: cgroup(c),
            parent_v1_cgroup: None,
            parent_container: container(d),
            parent_comm: Comm::default(),
        }),
        10 => Event::OomVictim(OomVictim {
            victim: task(a, b).tgid,
            task: (c % 2 == 0).then(|| task(a, b)),
            trigger: Pid(1),
            armed: armed(i),
        }),
        11 | 12 => Event::Tcp(Tcp {
            op: match c % 5 {
                0 => TcpOp::State {
                    old: TcpState::Listen,
                    new: TcpState::Close,
                },
                1 => TcpOp::State {
                    old: TcpState::SynRecv,
                    new: TcpState::Established,
                },
                2 => TcpOp::State {
                    old: TcpState::Established,
                    new: TcpState::FinWait1,
                },
                3 => TcpOp::ResetSent {
                    reason: 0,
                    state: (i % 2 == 0).then_some(TcpState::Close),
                },
                _ => TcpOp::ResetReceived,
            },
            cgroup: (a % 8 != 0).then(|| cgroup(b)),
            container: container(i),
            netns: 1,
            local: ([10, 0, 0, 1], u16::from(d)).into(),
            remote: ([10, 0, 0, 2], u16::from(e)).into(),
            has_socket: f % 2 == 0,
            close: Close {
                unheld: f % 5 == 0,
                by_exit: f % 3 == 0,
                by_shutdown: f % 5 == 0,
                foreign: f % 7 == 0,
                by_own: f % 5 == 0,
            },
            not_syn: f % 11 == 0,
            client: match f % 13 {
                0 => Some(Client::Kubelet),
                1 => Some(Client::Other),
                _ => None,
            },
            sequence: None,
            sk_err: 111,
            tgid: Pid(1),
            counts: (f % 4 != 0).then(|| TcpCounts {
                bytes_sent: u64::from(g % 3),
                bytes_received: u64::from(h % 3),
                last_sent: u32::from(g),
                last_received: u32::from(h),
            }),
            progress: (f % 4 == 1).then(|| TcpProgress {
                jiffies: u32::from(g.max(h)),
                unacknowledged: u32::from(d % 2),
                unsent: d % 3 == 0,
                unread: 0,
                data_segments_sent: 0,
                data_segments_received: 0,
            }),
        }),
        13 => {
            return Input::Process(ProcessFact {
                tgid: Pid(u32::from(a % 16)),
                ppid: Pid(1),
                start: task(a, b).start,
                ns_level: u32::from(c % 2),
                ns_pid: 1,
                comm: "found".to_owned(),
                cgroups: vec![(cgroup(b), path(b))],
            });
        }
        14 => {
            return Input::Lost {
                kind: Kind::ALL[usize::from(a % 8)],
                scope: match a / 8 % 4 {
                    0 => LossScope::Within(cgroup(c)),
                    1 => LossScope::Others(cgroup(c)),
                    _ => LossScope::Machine,
                },
                since: Boot(now.0.saturating_sub(u64::from(b) * 10_000_000)),
                count: u64::from(c),
            };
        }
        _ if a < 16 => return Input::End,
        _ if a < 32 => {
            return Input::Start(Observation {
                boot_id: format!("boot{}", b % 2),
                host: String::new(),
                kernel: String::new(),
                wall_offset: WallOffset(0),
                since: now,
                cgroups: [CgroupMode::V2, CgroupMode::Hybrid, CgroupMode::V1(4)][usize::from(c % 3)],
                nodes_in_containers: false,
                ticks_per_second: None,
                observes_followed: true,
            });
        }
        _ => return Input::Tick,
    };
    Input::Kernel { at, event }
}
