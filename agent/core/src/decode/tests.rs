use std::net::{IpAddr, SocketAddr};

use bytes::BufMut;
use proptest::array::{uniform4, uniform16};
use proptest::prelude::*;

use super::encode::{encode, header};
use super::tcp::tcp_state;
use super::*;
use crate::event::{Client, Close, ExitStatus, Task, Tcp, TcpCounts, TcpOp, TcpProgress};
use crate::ids::{Comm, Signal};

proptest! {
    #[test]
    fn never_panics_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        let _ = decode(&bytes);
    }

    /// Headers that are right, so that the rest is reached.
    #[test]
    fn never_panics_on_any_record(kind in 0_u16..10, version in 0_u16..6, mut bytes in prop::collection::vec(any::<u8>(), 0..600), right in any::<bool>()) {
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
fn an_unreadable_record_gives_the_reason() {
    let good = encode(7, &Event::CgroupRmdir(CgroupRmdir { cgroup: CgroupId::v2(5) }));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        decode(&bytes)
    };
    assert_eq!(decode(&[]), Err(DecodeError::Short { need: 16, have: 0 }));
    assert_eq!(with(0, 99), Err(DecodeError::UnknownKind(99)));
    assert_eq!(with(2, 5), Err(DecodeError::NewerVersion(5)));
    assert_eq!(
        with(2, 0),
        Err(DecodeError::Value {
            field: "version",
            value: 0
        })
    );
    // A newer version may have newer kinds: the version is the better answer.
    let mut newer = good.clone();
    (newer[0], newer[2]) = (99, 5);
    assert_eq!(decode(&newer), Err(DecodeError::NewerVersion(5)));
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
fn a_task_has_a_cgroup_of_v1_since_version_3_and_a_container_since_version_4() {
    let exit = ProcessExit {
        task: Task {
            v1_cgroup: Some(CgroupId { hierarchy: 4, id: 77 }),
            container: Some(CgroupId::v2(8)),
            ..person(CgroupId::v2(9))
        },
        status: ExitStatus::Exited(3),
        armed: Some(Armed::ByThis),
        held: None,
        unobserved: false,
        leaves_others: false,
        is_own: false,
    };
    let mut bytes = encode(1, &Event::ProcessExit(exit));
    assert_eq!(decode(&bytes), Ok((Boot(1), Event::ProcessExit(exit))));
    let mut older = exit;
    (older.task.container, older.armed) = (None, None);
    make_older(&mut bytes, 3, std::mem::offset_of!(wire::Task, container));
    assert_eq!(decode(&bytes), Ok((Boot(1), Event::ProcessExit(older))));
    older.task.v1_cgroup = None;
    make_older(&mut bytes, 2, std::mem::offset_of!(wire::Task, v1_cgroup));
    assert_eq!(decode(&bytes), Ok((Boot(1), Event::ProcessExit(older))));
    for (kind, words) in Kind::ALL
        .into_iter()
        .zip([(2, 3), (1, 1), (1, 1), (2, 2), (1, 1), (0, 1), (0, 0), (0, 3)])
    {
        let since = |version: u16| (size(kind, version) - size(kind, version - 1)) / 8;
        assert_eq!((since(3), since(4)), words, "{kind:?}");
    }
}

/// Without the eight bytes there of its first task.
fn make_older(bytes: &mut Vec<u8>, version: u16, offset: usize) {
    let at = size_of::<wire::Header>() + offset;
    bytes.drain(at..at + 8);
    bytes[2..4].copy_from_slice(&version.to_le_bytes());
}

/// A record of each kind that has changed since, as written by the probes of version 3.
#[test]
fn what_version_3_did_not_write_is_unknown() {
    let task = |n: u8| [&[n; 24][..], &[n; 8], &[0; 8], &[n; 8], b"person\0\0\0\0\0\0\0\0\0\0"].concat();
    let decoded = |kind: u16, rest: Vec<u8>| {
        let header = [kind.to_le_bytes(), 3_u16.to_le_bytes(), [1, 0], [0, 0]].concat();
        let bytes = [header, 7_u64.to_le_bytes().to_vec(), rest].concat();
        decode(&bytes).unwrap_or_else(|error| panic!("{kind}: {error}")).1
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();

    let generate = |code: i32| {
        [
            task(2),
            task(3),
            vec![0; 16],
            words(&[1, 15, code.cast_unsigned()]),
            vec![1, 3, 3, 0],
            words(&[1, 0]),
        ]
        .concat()
    };
    let Event::SignalGenerate(signal) = decoded(1, generate(0)) else {
        panic!("no signal")
    };
    assert_eq!((signal.armed, signal.pending, signal.target.container), (None, None, None));
    assert_eq!((signal.result, signal.state.blocked), (SignalResult::OverflowFail, true));
    assert_eq!(signal.sender.comm.to_string(), "person");
    for (code, from_kernel) in [(0, false), (1, false), (si_code::KERNEL, true)] {
        let Event::SignalGenerate(signal) = decoded(1, generate(code)) else {
            panic!("no signal")
        };
        assert_eq!((signal.code, signal.from_kernel), (code, from_kernel), "as by its code");
    }

    let deliver = decoded(2, [task(2), words(&[15, 0])].concat());
    assert!(matches!(deliver, Event::SignalDeliver(deliver) if deliver.signal == Signal::TERM));
    let exit = decoded(3, [task(2), words(&[0x300, 0])].concat());
    assert!(matches!(exit, Event::ProcessExit(exit) if (exit.status, exit.armed) == (ExitStatus::Exited(3), None)));
    let exec = decoded(4, [task(2), words(&[9, 0, 0, 0]), vec![b'p'; 16]].concat());
    assert!(
        matches!(exec, Event::ProcessExec(exec) if (exec.parent_cgroup.id, exec.parent_container, exec.parent_comm) == (9, None, Comm([b'p'; 16])))
    );
    let oom = decoded(5, [task(2), words(&[6, 0])].concat());
    assert!(matches!(oom, Event::OomVictim(oom) if (oom.trigger, oom.armed) == (Pid(6), None)));

    let mut mkdir = words(&[9, 0, 8, 0, 0, 2]);
    mkdir.extend(b"/a");
    mkdir.resize(24 + wire::PATH_LEN, 0);
    let made = decoded(6, mkdir);
    assert!(matches!(made, Event::CgroupMkdir(made) if made.path.as_deref() == Some("/a") && made.container.is_none()));
    let ends = [[1; 16], [2; 16]].concat();
    let tcp = [
        words(&[9, 0, 5]),
        vec![3, 0, 0, 0],
        ends,
        words(&[80, 0, 0, 0, 6, 0, 0, 0, 11, 0, 12, 0]),
    ]
    .concat();
    let Event::Tcp(tcp) = decoded(8, tcp) else {
        panic!("no socket")
    };
    assert_eq!((tcp.op, tcp.netns, tcp.tgid), (TcpOp::ResetReceived, 5, Pid(6)));
    assert_eq!((tcp.cgroup, tcp.container, tcp.progress), (Some(CgroupId::v2(9)), None, None));
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
        v1_cgroup: None,
        container: None,
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

/// A terminal's new size, httpd's stop signal, the same from another sender: signals, as in every version.
#[test]
fn only_ones_own_signal_with_the_mark_is_an_announcement() {
    let task = person(CgroupId::v2(9));
    let nonce = 0x00c0_ffee;
    let is_announcement = |sender: u32, number: u32, code: i32| {
        let mut bytes = encode(1, &Event::PeerAnnouncement(PeerAnnouncement { task, nonce }));
        bytes[16..20].copy_from_slice(&sender.to_le_bytes());
        bytes[180..184].copy_from_slice(&number.to_le_bytes());
        bytes[184..188].copy_from_slice(&code.to_le_bytes());
        matches!(decode(&bytes), Ok((_, Event::PeerAnnouncement(announcement))) if announcement == PeerAnnouncement { task, nonce })
    };
    let code = wire::announcement::code(nonce);
    assert!(code < -60);
    assert!(is_announcement(40, 28, code));
    assert!(!is_announcement(99, 28, code) && !is_announcement(40, 15, code));
    for other in [0, -1, -6, -60, 128, i32::MIN, code ^ (1 << 24), code & i32::MAX] {
        assert!(!is_announcement(40, 28, other), "{other}");
    }
}

#[test]
fn a_path_that_was_cut_is_none_and_one_that_is_not_text_is_escaped() {
    let mkdir = |len: u32, text: &[u8]| {
        let mut bytes = header(0, Kind::CgroupMkdir);
        bytes.put_u64_le(2);
        bytes.put_u64_le(1);
        bytes.put_u64_le(0);
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
    bytes.put_bytes(0, 68);
    bytes.put_u64_le(78);
    let victim = OomVictim {
        victim: Pid(77),
        task: None,
        trigger: Pid(78),
        armed: Some(Armed::No),
    };
    assert_eq!(decode(&bytes), Ok((Boot(3), Event::OomVictim(victim))));
}

fn v1_cgroup() -> impl Strategy<Value = Option<CgroupId>> {
    prop::option::of((1_u32..=0xffff, 0_u64..1 << 48).prop_map(|(hierarchy, id)| CgroupId { hierarchy, id }))
}

fn armed_at_exit() -> impl Strategy<Value = Armed> {
    prop::sample::select(vec![Armed::No, Armed::Already, Armed::ByThis, Armed::ByOwn])
}

fn held() -> impl Strategy<Value = Option<HeldSockets>> {
    any::<Option<[bool; 5]>>().prop_map(|bits| {
        bits.map(
            |[listener, connection, more, unix_listener, last_unix_listener]| HeldSockets {
                listener,
                connection,
                more,
                unix_listener,
                last_unix_listener,
            },
        )
    })
}

fn call() -> impl Strategy<Value = SystemCall> {
    let abi = prop::sample::select(vec![CallAbi::X86_64, CallAbi::X86, CallAbi::Arm64, CallAbi::Arm]);
    (abi, any::<i32>()).prop_map(|(abi, number)| SystemCall { abi, number })
}

fn armed_any() -> impl Strategy<Value = Armed> {
    prop::sample::select(vec![Armed::No, Armed::Already, Armed::ByThis])
}

/// Of either hierarchy, or none.
fn container_of() -> impl Strategy<Value = Option<CgroupId>> {
    prop_oneof![v1_cgroup(), (1_u64..1 << 48).prop_map(|id| Some(CgroupId::v2(id)))]
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
            any::<[bool; 2]>(),
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
        any::<[bool; 6]>(),
        (prop::option::of(any::<u64>()), armed_any(), prop::option::of(call())),
    )
        .prop_map(
            |(
                (sender, target, comm, grandparent, signal, code, [from_kernel, group]),
                result,
                disposition,
                state,
                (pending, armed, call),
            )| {
                let [blocked, stopped, frozen, exiting, traced, sigwait] = state;
                Event::SignalGenerate(SignalGenerate {
                    sender,
                    sender_parent_comm: Comm(comm),
                    sender_grandparent: Pid(grandparent),
                    target,
                    signal,
                    code,
                    from_kernel,
                    group,
                    result,
                    disposition,
                    state: TargetState {
                        blocked,
                        stopped,
                        frozen,
                        exiting,
                        traced,
                        sigwait,
                    },
                    call,
                    pending: pending.map(SignalSet),
                    armed: Some(armed),
                })
            },
        );
    let exit = prop_oneof![
        any::<u8>().prop_map(ExitStatus::Exited),
        (signal2, any::<bool>()).prop_map(|(signal, core_dumped)| ExitStatus::Signaled { signal, core_dumped }),
    ];
    prop_oneof![
        generate,
        (task(), 0..=wire::announcement::NONCE)
            .prop_map(|(task, nonce)| Event::PeerAnnouncement(PeerAnnouncement { task, nonce })),
        (task(), signal, any::<[bool; 5]>()).prop_map(|(task, signal, [discarded, udp, unix_listener, last, more])| {
            match discarded {
                true => Event::SignalDiscarded(SignalDiscarded { task, signal }),
                false => Event::SignalDeliver(SignalDeliver {
                    task,
                    signal,
                    open: UnseenSockets {
                        udp,
                        unix_listener,
                        last_unix_listener: last,
                        more,
                    },
                }),
            }
        }),
        (task(), exit, armed_at_exit(), held(), any::<[bool; 2]>()).prop_map(|(task, status, armed, held, flags)| {
            let [unobserved, leaves_others] = flags;
            let armed = Some(armed);
            Event::ProcessExit(ProcessExit {
                task,
                status,
                armed,
                held,
                unobserved,
                leaves_others,
                is_own: held.is_some(),
            })
        }),
        (task(), any::<u64>(), v1_cgroup(), container_of(), any::<[u8; 16]>()).prop_map(
            |(task, parent, parent_v1_cgroup, parent_container, comm)| {
                Event::ProcessExec(ProcessExec {
                    task,
                    parent_cgroup: CgroupId::v2(parent),
                    parent_v1_cgroup,
                    parent_container,
                    parent_comm: Comm(comm),
                })
            }
        ),
        (task(), any::<bool>(), any::<u32>(), armed_any()).prop_map(|(task, has_task, trigger, armed)| {
            Event::OomVictim(OomVictim {
                victim: task.tgid,
                task: has_task.then_some(task),
                trigger: Pid(trigger),
                armed: Some(armed),
            })
        }),
        (
            any::<[u64; 2]>(),
            any::<u32>(),
            container_of(),
            prop::option::of("/[a-z/é]{0,200}")
        )
            .prop_map(|([id, parent], hierarchy, container, path)| {
                Event::CgroupMkdir(CgroupMkdir {
                    cgroup: CgroupId { hierarchy, id },
                    parent: CgroupId { hierarchy, id: parent },
                    container,
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
    let fields = (
        any::<[u32; 6]>(),
        any::<u64>(),
        v1_cgroup(),
        container_of(),
        1_u64..,
        any::<[u8; 16]>(),
    );
    fields.prop_map(|(words, cgroup, v1_cgroup, container, start, comm)| {
        let [tgid, tid, ppid, ns_level, ns_pid, pidns] = words;
        Task {
            tgid: Pid(tgid),
            tid: Pid(tid),
            ppid: Pid(ppid),
            ns_level,
            ns_pid,
            pidns,
            cgroup: CgroupId::v2(cgroup),
            v1_cgroup,
            container,
            start: Boot(start),
            comm: Comm(comm),
        }
    })
}

fn tcp_event() -> impl Strategy<Value = Event> {
    let state = || (1_u8..=13).prop_map(|n| tcp_state("", n).expect("in range"));
    let op = prop_oneof![
        (state(), state()).prop_map(|(old, new)| TcpOp::State { old, new }),
        (any::<u32>(), proptest::option::of(state())).prop_map(|(reason, state)| TcpOp::ResetSent { reason, state }),
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
    let progress = (any::<[u32; 5]>(), any::<bool>()).prop_map(
        |([jiffies, unacknowledged, unread, data_segments_sent, data_segments_received], unsent)| TcpProgress {
            jiffies,
            unacknowledged,
            unsent,
            unread,
            data_segments_sent,
            data_segments_received,
        },
    );
    let some_cgroup = prop::option::of((1_u64..).prop_map(CgroupId::v2));
    (
        op,
        (some_cgroup, container_of()),
        any::<[u32; 3]>(),
        end(),
        end(),
        any::<[bool; 7]>(),
        prop::option::of(prop_oneof![Just(Client::Kubelet), Just(Client::Other)]),
        (prop::option::of(counts), prop::option::of(progress), any::<Option<u32>>()),
    )
        .prop_map(
            |(
                op,
                (cgroup, container),
                [netns, sk_err, tgid],
                local,
                remote,
                [has_socket, by_exit, by_shutdown, foreign, unheld, not_syn, by_own],
                client,
                (counts, progress, sequence),
            )| {
                let op = if matches!(op, TcpOp::Error { .. }) {
                    TcpOp::Error { errno: sk_err }
                } else {
                    op
                };
                Event::Tcp(Tcp {
                    op,
                    cgroup,
                    container,
                    netns,
                    local,
                    remote,
                    has_socket,
                    not_syn,
                    sequence: sequence.filter(|_| counts.is_none()),
                    client,
                    close: Close {
                        unheld,
                        by_exit,
                        by_shutdown,
                        foreign,
                        by_own,
                    },
                    sk_err,
                    tgid: Pid(tgid),
                    counts,
                    progress,
                })
            },
        )
}
