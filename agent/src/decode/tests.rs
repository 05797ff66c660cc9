use std::net::{IpAddr, SocketAddr};

use bytes::BufMut;
use proptest::array::{uniform4, uniform16};
use proptest::prelude::*;

use super::encode::{encode, header};
use super::*;

proptest! {
    #[test]
    fn never_panics_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        let _ = decode(&bytes);
    }

    /// Headers that are right, so that the rest is reached.
    #[test]
    fn never_panics_on_any_record(kind in 0_u16..10, version in 0_u16..5, mut bytes in prop::collection::vec(any::<u8>(), 0..600), right in any::<bool>()) {
        if right && let Some(kind) = Kind::from_u16(kind) {
            bytes.resize(size(kind, version), 1);
        }
        if let Some(header) = bytes.get_mut(..4) {
            header[..2].copy_from_slice(&kind.to_le_bytes());
            header[2..].copy_from_slice(&version.to_le_bytes());
        }
        let _ = decode(&bytes);
    }

    #[test]
    fn every_event_comes_back(at in any::<u64>(), event in event()) {
        let bytes = encode(at, &event);
        prop_assert_eq!(decode(&bytes), Ok((Boot(at), event)));
        for cut in 0..bytes.len() {
            let is_short = matches!(decode(&bytes[..cut]), Err(DecodeError::Short { have, .. }) if have == cut);
            prop_assert!(is_short);
        }
        let need = bytes.len();
        let longer = [bytes, vec![0]].concat();
        prop_assert_eq!(decode(&longer), Err(DecodeError::Long { need, have: need + 1 }));
    }
}

#[test]
fn what_cannot_be_read_says_why() {
    let good = encode(7, &Event::CgroupRmdir(CgroupRmdir { cgroup: CgroupId::v2(5) }));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        decode(&bytes)
    };
    assert_eq!(decode(&[]), Err(DecodeError::Short { need: 16, have: 0 }));
    assert_eq!(with(0, 99), Err(DecodeError::UnknownKind(99)));
    assert_eq!(with(2, 4), Err(DecodeError::NewerVersion(4)));
    assert_eq!(
        with(2, 0),
        Err(DecodeError::Value {
            field: "version",
            value: 0
        })
    );
    // A newer version may have newer kinds: the version is the better answer.
    let mut newer = good.clone();
    (newer[0], newer[2]) = (99, 4);
    assert_eq!(decode(&newer), Err(DecodeError::NewerVersion(4)));
}

#[test]
fn a_header_names_the_hierarchy_of_its_tasks_cgroups_since_version_2() {
    let decoded = |version: u16, hierarchy: u16| {
        let mut bytes = header(0, Kind::ProcessExec);
        bytes[2..4].copy_from_slice(&version.to_le_bytes());
        bytes[6..8].copy_from_slice(&hierarchy.to_le_bytes());
        bytes.resize(size(Kind::ProcessExec, version), 1);
        match decode(&bytes) {
            Ok((_, Event::ProcessExec(exec))) => (exec.task.cgroup.hierarchy, exec.parent_cgroup.hierarchy),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((decoded(2, 0), decoded(2, 4)), ((0, 0), (4, 4)));
    assert_eq!((decoded(1, 0), decoded(1, 4)), ((0, 0), (0, 0)));
}

/// A recording keeps its records as they were written.
#[test]
fn a_task_has_a_cgroup_of_v1_beside_v2_since_version_3() {
    let beside = Some(CgroupId { hierarchy: 4, id: 77 });
    let exit = ProcessExit {
        task: Task {
            beside,
            ..person(CgroupId::v2(9))
        },
        status: ExitStatus::Exited(3),
    };
    let mut bytes = encode(1, &Event::ProcessExit(exit));
    assert_eq!(decode(&bytes), Ok((Boot(1), Event::ProcessExit(exit))));
    let offset = size_of::<wire::Header>() + std::mem::offset_of!(wire::Task, beside);
    bytes.drain(offset..offset + 8);
    bytes[2..4].copy_from_slice(&2_u16.to_le_bytes());
    let older = ProcessExit {
        task: person(CgroupId::v2(9)),
        ..exit
    };
    assert_eq!(decode(&bytes), Ok((Boot(1), Event::ProcessExit(older))));
    for kind in Kind::ALL {
        let older = size(kind, 3) - size(kind, 2);
        assert_eq!((older % 8, older <= 16), (0, true), "{kind:?}");
    }
}

fn person(cgroup: CgroupId) -> Task {
    Task {
        tgid: Pid(40),
        tid: Pid(41),
        ppid: Pid(1),
        ns_level: 0,
        ns_pid: 40,
        pidns: 0,
        cgroup,
        beside: None,
        start: Boot(5),
        comm: Comm::new("epitaph"),
    }
}

#[test]
fn a_status_is_read_as_wait_has_it() {
    let signaled = |signal, core_dumped| Ok(ExitStatus::Signaled { signal, core_dumped });
    assert_eq!(exit_status(0), Ok(ExitStatus::Exited(0)));
    assert_eq!(exit_status(0x8f00), Ok(ExitStatus::Exited(143)));
    assert_eq!(exit_status(9), signaled(Signal::KILL, false));
    assert_eq!(exit_status(0x86), signaled(Signal::ABRT, true));
    assert_eq!(
        exit_status(0x7f),
        Err(DecodeError::Value {
            field: "sig",
            value: 127
        })
    );
}

/// A terminal's new size, a stop signal of httpd's, one that somebody else sends: what the core has always had.
#[test]
fn only_ones_own_signal_with_the_mark_is_a_hello() {
    let task = person(CgroupId::v2(9));
    let nonce = 0x00c0_ffee;
    let is_hello = |sender: u32, number: u32, code: i32| {
        let mut bytes = encode(1, &Event::Hello(Hello { task, nonce }));
        bytes[16..20].copy_from_slice(&sender.to_le_bytes());
        bytes[164..168].copy_from_slice(&number.to_le_bytes());
        bytes[168..172].copy_from_slice(&code.to_le_bytes());
        matches!(decode(&bytes), Ok((_, Event::Hello(hello))) if hello == Hello { task, nonce })
    };
    let code = wire::hello::code(nonce);
    assert!(code < -60);
    assert!(is_hello(40, 28, code));
    assert!(!is_hello(99, 28, code) && !is_hello(40, 15, code));
    for other in [0, -1, -6, -60, 128, i32::MIN, code ^ (1 << 24), code & i32::MAX] {
        assert!(!is_hello(40, 28, other), "{other}");
    }
}

#[test]
fn a_path_that_was_cut_is_none_and_one_that_is_not_text_is_escaped() {
    let mkdir = |len: u32, text: &[u8]| {
        let mut bytes = header(0, Kind::CgroupMkdir);
        bytes.put_u64_le(2);
        bytes.put_u64_le(1);
        bytes.put_u32_le(0);
        bytes.put_u32_le(len);
        bytes.extend_from_slice(text);
        bytes.resize(size(Kind::CgroupMkdir, wire::VERSION), b'x');
        match decode(&bytes) {
            Ok((_, Event::CgroupMkdir(made))) => Ok(made.path),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        }
    };
    assert_eq!(mkdir(2, b"/a"), Ok(Some("/a".to_owned())));
    assert_eq!(mkdir(9, b"/\xff\x1b[m\\x2d"), Ok(Some(r"/\xff\u{1b}[m\x2d".to_owned())));
    assert_eq!(mkdir(0, b""), Ok(None));
    assert_eq!(mkdir(512, b""), Ok(None));
    assert_eq!(
        mkdir(513, b""),
        Err(DecodeError::Value {
            field: "path_len",
            value: 513
        })
    );
}

#[test]
fn an_oom_victim_of_an_old_kernel_is_a_pid() {
    let mut bytes = header(3, Kind::OomVictim);
    bytes.put_u32_le(77);
    bytes.put_bytes(0, 60);
    bytes.put_u64_le(78);
    let victim = OomVictim {
        victim: Pid(77),
        task: None,
        trigger: Pid(78),
    };
    assert_eq!(decode(&bytes), Ok((Boot(3), Event::OomVictim(victim))));
}

fn beside_v2() -> impl Strategy<Value = Option<CgroupId>> {
    prop::option::of((1_u32..=0xffff, 0_u64..1 << 48).prop_map(|(hierarchy, id)| CgroupId { hierarchy, id }))
}

fn event() -> impl Strategy<Value = Event> {
    let signal = (1_u32..=64).prop_map(|number| Signal::new(number).expect("in range"));
    let signal2 = signal.clone();
    let generate = (
        (
            task(),
            task(),
            any::<[u8; 16]>(),
            any::<u32>(),
            signal.clone(),
            any::<i32>(),
            any::<bool>(),
        ),
        prop::sample::select(vec![
            SignalResult::Delivered,
            SignalResult::Ignored,
            SignalResult::AlreadyPending,
            SignalResult::OverflowFail,
            SignalResult::LoseInfo,
        ]),
        prop::sample::select(vec![
            Disposition::Unknown,
            Disposition::Default,
            Disposition::Ignore,
            Disposition::Handler,
        ]),
        any::<[bool; 5]>(),
    )
        .prop_map(
            |((sender, target, comm, grandparent, signal, code, group), result, disposition, state)| {
                let [blocked, stopped, frozen, exiting, traced] = state;
                Event::SignalGenerate(SignalGenerate {
                    sender,
                    sender_parent_comm: Comm(comm),
                    sender_grandparent: Pid(grandparent),
                    target,
                    signal,
                    code,
                    group,
                    result,
                    disposition,
                    state: TargetState {
                        blocked,
                        stopped,
                        frozen,
                        exiting,
                        traced,
                    },
                })
            },
        );
    let exit = prop_oneof![
        any::<u8>().prop_map(ExitStatus::Exited),
        (signal2, any::<bool>()).prop_map(|(signal, core_dumped)| ExitStatus::Signaled { signal, core_dumped }),
    ];
    prop_oneof![
        generate,
        (task(), 0..=wire::hello::NONCE).prop_map(|(task, nonce)| Event::Hello(Hello { task, nonce })),
        (task(), signal).prop_map(|(task, signal)| Event::SignalDeliver(SignalDeliver { task, signal })),
        (task(), exit).prop_map(|(task, status)| Event::ProcessExit(ProcessExit { task, status })),
        (task(), any::<u64>(), beside_v2(), any::<[u8; 16]>()).prop_map(|(task, parent, parent_beside, comm)| {
            Event::ProcessExec(ProcessExec {
                task,
                parent_cgroup: CgroupId::v2(parent),
                parent_beside,
                parent_comm: Comm(comm),
            })
        }),
        (task(), any::<bool>(), any::<u32>()).prop_map(|(task, has_task, trigger)| {
            Event::OomVictim(OomVictim {
                victim: task.tgid,
                task: has_task.then_some(task),
                trigger: Pid(trigger),
            })
        }),
        (any::<[u64; 2]>(), any::<u32>(), prop::option::of("/[a-z/é]{0,200}")).prop_map(|([id, parent], hierarchy, path)| {
            Event::CgroupMkdir(CgroupMkdir {
                cgroup: CgroupId { hierarchy, id },
                parent: CgroupId { hierarchy, id: parent },
                path,
            })
        }),
        (any::<u64>(), any::<u32>()).prop_map(|(id, hierarchy)| Event::CgroupRmdir(CgroupRmdir {
            cgroup: CgroupId { hierarchy, id }
        })),
        tcp_event(),
    ]
}

fn task() -> impl Strategy<Value = Task> {
    let fields = (any::<[u32; 6]>(), any::<u64>(), beside_v2(), 1_u64.., any::<[u8; 16]>());
    fields.prop_map(|(words, cgroup, beside, start, comm)| {
        let [tgid, tid, ppid, ns_level, ns_pid, pidns] = words;
        Task {
            tgid: Pid(tgid),
            tid: Pid(tid),
            ppid: Pid(ppid),
            ns_level,
            ns_pid,
            pidns,
            cgroup: CgroupId::v2(cgroup),
            beside,
            start: Boot(start),
            comm: Comm(comm),
        }
    })
}

fn tcp_event() -> impl Strategy<Value = Event> {
    let state = || (1_u8..=13).prop_map(|n| tcp_state("", n).expect("in range"));
    let op = prop_oneof![
        (state(), state()).prop_map(|(old, new)| TcpOp::State { old, new }),
        any::<u32>().prop_map(|reason| TcpOp::ResetSent { reason }),
        Just(TcpOp::ResetReceived),
        Just(TcpOp::Error { errno: 0 }),
    ];
    let end = || {
        let ip = prop_oneof![
            uniform4(any::<u8>()).prop_map(IpAddr::from),
            uniform16(any::<u8>()).prop_map(|bytes| IpAddr::from(bytes).to_canonical()),
        ];
        (ip, any::<u16>()).prop_map(SocketAddr::from)
    };
    let counts =
        (any::<[u64; 2]>(), any::<[u32; 2]>()).prop_map(|([bytes_sent, bytes_received], [last_sent, last_received])| {
            TcpCounts {
                bytes_sent,
                bytes_received,
                last_sent,
                last_received,
            }
        });
    let some_cgroup = prop::option::of((1_u64..).prop_map(CgroupId::v2));
    (
        op,
        some_cgroup,
        any::<[u32; 3]>(),
        end(),
        end(),
        any::<[bool; 5]>(),
        prop::option::of(prop_oneof![Just(Client::Kubelet), Just(Client::Other)]),
        prop::option::of(counts),
    )
        .prop_map(
            |(
                op,
                cgroup,
                [netns, sk_err, tgid],
                local,
                remote,
                [has_socket, by_exit, foreign, unheld, not_syn],
                client,
                counts,
            )| {
                let op = if matches!(op, TcpOp::Error { .. }) {
                    TcpOp::Error { errno: sk_err }
                } else {
                    op
                };
                Event::Tcp(Tcp {
                    op,
                    cgroup,
                    netns,
                    local,
                    remote,
                    has_socket,
                    unheld,
                    not_syn,
                    client,
                    by_exit,
                    foreign,
                    sk_err,
                    tgid: Pid(tgid),
                    counts,
                })
            },
        )
}
