//! The table of probes: the programs for each tracepoint, what each program needs, and which of them fits this kernel.

use std::fmt;

use epitaph_core::input::{ProbeState, SeenClients};
use epitaph_ebpf::Field::{self, *};
use epitaph_ebpf::Kind;

use super::btf::{Argument, Layout};

/// One tracepoint, and the programs that can be attached to it.
pub struct Probe {
    pub tracepoint: &'static str,
    /// Kind of the probe's records.
    pub kind: Kind,
    /// What its records show, for `epitaph explain`.
    pub shows: &'static str,
    /// What is not known where the probe is missing.
    pub without: &'static str,
    variants: &'static [Variant],
}

struct Variant {
    program: &'static str,
    /// The tracepoint's arguments that the program reads.
    arguments: &'static [Argument],
    needs: &'static [&'static [Field]],
}

/// The program for one kernel.
#[derive(Debug, PartialEq, Eq)]
pub enum Choice {
    Program(&'static str),
    /// Why this kernel does not support the probe.
    Unsupported(String),
}

const TASK: &[Field] = &[
    TaskPid,
    TaskTgid,
    TaskRealParent,
    TaskGroupLeader,
    TaskThreadPid,
    TaskStartBoottime,
    TaskComm,
    TaskCgroups,
    CssSetDflCgrp,
    CgroupKn,
    KernfsNodeId,
    PidLevel,
    PidNumbers,
    UpidSize,
    UpidNr,
    UpidNs,
    PidNamespaceInum,
];
const TARGET: &[Field] = &[
    TaskFlags,
    TaskPtrace,
    TaskJobctl,
    TaskSignal,
    TaskSighand,
    TaskBlocked,
    SignalFlags,
    SighandAction,
    SigactionHandler,
    SigactionSize,
    SiginfoCode,
];
const EXIT: &[Field] = &[TaskSignal, SignalFlags, SignalGroupExitCode, TaskExitCode, CssSetNrTasks];
/// The sockets that the exit closes.
const FILES: &[Field] = &[
    TaskFiles,
    FilesTable,
    TableMost,
    TableFiles,
    TableOpen,
    FileInode,
    FilePrivate,
    InodeMode,
    SocketSk,
    SockFamily,
    SockState,
    SockProtocol,
    SockNum,
    CsockBindBucket,
    BindBucketReuse,
];
const CGROUP: &[Field] = &[
    CgroupKn,
    KernfsNodeId,
    CgroupRoot,
    CgroupRootHierarchyId,
    CgroupSelfParent,
    CssCgroup,
];
const SOCKET: &[Field] = &[
    TaskFlags,
    TaskCgroups,
    CssSetDflCgrp,
    CgroupKn,
    KernfsNodeId,
    SockFamily,
    SockState,
    SockNum,
    SockDport,
    SockDaddr,
    SockRcvSaddr,
    SockNet,
    SockErr,
    NetInum,
    InetSport,
];
const SOCKET_CGROUP: &[Field] = &[SockCgroup];
/// The same programs, early in 5.10.
const SOCKET_CGROUP_TAGGED: &[Field] = &[SockCgroupTagged];
const PACKET: &[Field] = &[SkbHead, SkbDev, SkbNetworkHeader, SkbTransportHeader, NetDeviceNet];

use Argument::{Pointer, Value};

const fn one(program: &'static str, arguments: &'static [Argument], needs: &'static [&'static [Field]]) -> Variant {
    Variant {
        program,
        arguments,
        needs,
    }
}

pub const SIGNAL_GENERATE: Probe = Probe {
    tracepoint: "signal_generate",
    kind: Kind::SignalGenerate,
    shows: "Each stop signal and SIGKILL to a container or unit: the sender, the receiver, and whether the kernel discarded the signal.",
    without: "Who stopped or killed the process, and whether the process ignored the stop signal.",
    variants: &[one(
        "signal_generate",
        &[Value, Pointer, Pointer, Value, Value],
        &[TASK, TARGET],
    )],
};

/// In the order of attaching: the kernel must mark new cgroups before any other event is seen. Of a probe's variants, the first
/// that fits is taken.
pub const PROBES: &[Probe] = &[
    Probe {
        tracepoint: "cgroup_mkdir",
        kind: Kind::CgroupMkdir,
        shows: "A new cgroup: a container, a pod or a systemd unit starts. The kernel marks the cgroup at once, so that no process in it is missed.",
        without: "When a container or unit began. A container or unit that begins and terminates between two scans of the cgroups can be \
                  missed.",
        variants: &[one("cgroup_mkdir", &[Pointer, Pointer], &[CGROUP])],
    },
    Probe {
        tracepoint: "cgroup_rmdir",
        kind: Kind::CgroupRmdir,
        shows: "A cgroup was removed: the container or unit is gone.",
        without: "The end of a container or unit whose last exit was not seen.",
        variants: &[one("cgroup_rmdir", &[Pointer], &[CGROUP])],
    },
    Probe {
        tracepoint: "sched_process_exit",
        kind: Kind::ProcessExit,
        shows: "The exit of each process of a container or unit: exit code or signal, the time, and the sockets that the exit closed.",
        without: "How a process exited: the verdict is `unknown`.",
        variants: &[
            one("process_exit_group_dead", &[Pointer, Value], &[TASK, EXIT, FILES]),
            one("process_exit_live", &[Pointer], &[TASK, EXIT, FILES, &[SignalLive]]),
        ],
    },
    Probe {
        tracepoint: "sched_process_exec",
        kind: Kind::ProcessExec,
        shows: "A process of a container or unit starts a program: the preStop hook, an exec probe, the program below an init.",
        without: "Begin, end and exit code of a preStop hook that is a command.",
        variants: &[one("process_exec", &[Pointer], &[TASK])],
    },
    Probe {
        tracepoint: "mark_victim",
        kind: Kind::OomVictim,
        shows: "The OOM killer chose a process of a container or unit.",
        without: "Whether a SIGKILL came from the OOM killer, and which process it ended.",
        variants: &[
            one("mark_victim_task", &[Pointer], &[TASK]),
            one("mark_victim_pid", &[Value], &[]),
        ],
    },
    Probe {
        tracepoint: "signal_deliver",
        kind: Kind::SignalDeliver,
        shows: "The process began to handle a stop signal.",
        without: "Whether a handler ran: a stop signal that was never read cannot be told from one that was handled.",
        variants: &[one(
            "signal_deliver",
            &[Value, Pointer, Pointer],
            &[TASK, &[SigactionHandler, SiginfoCode]],
        )],
    },
    SIGNAL_GENERATE,
    Probe {
        tracepoint: SET_STATE,
        kind: Kind::Tcp,
        shows: "The state of TCP sockets: listeners that close, connections that open and close, and connections that were open at the exit.",
        without: "The traffic: which connections were open at the exit, and when the listener closed.",
        variants: &[
            one("inet_sock_set_state", &[Pointer, Value, Value], &[SOCKET, SOCKET_CGROUP]),
            one(
                "inet_sock_set_state",
                &[Pointer, Value, Value],
                &[SOCKET, SOCKET_CGROUP_TAGGED],
            ),
        ],
    },
    Probe {
        tracepoint: SEND_RESET,
        kind: Kind::Tcp,
        shows: "TCP resets that this machine sends: a client was refused, or an open connection was reset. Before Linux 6.10 the tracepoint does not show refused clients; the functions tcp_v4_send_reset and tcp_v6_send_reset show them there.",
        without: "Clients that were refused, or reset by the server. If only clients of this machine are seen, the traffic of a container \
                  that closes a listener is `unknown`.",
        variants: &[
            one(
                "tcp_send_reset_reason",
                &[Pointer, Pointer, Value],
                &[SOCKET, SOCKET_CGROUP, PACKET],
            ),
            one("tcp_send_reset", &[Pointer, Pointer], &[SOCKET, SOCKET_CGROUP, PACKET]),
            one("tcp_send_reset", &[Pointer, Pointer], &[SOCKET, SOCKET_CGROUP_TAGGED, PACKET]),
        ],
    },
    Probe {
        tracepoint: "tcp_receive_reset",
        kind: Kind::Tcp,
        shows: "TCP resets that a socket on this machine received.",
        without: "Connections that the other end reset.",
        variants: &[
            one("tcp_receive_reset", &[Pointer], &[SOCKET, SOCKET_CGROUP]),
            one("tcp_receive_reset", &[Pointer], &[SOCKET, SOCKET_CGROUP_TAGGED]),
        ],
    },
    Probe {
        tracepoint: ERROR_REPORT,
        kind: Kind::Tcp,
        shows: "The error that a client on this machine got, such as ECONNREFUSED, also if the error came by ICMP.",
        without: "Connections that kube-proxy or a firewall rejected. On Linux 5.10, which lacks the tracepoint, inet_sock_set_state shows the error with which a connection closes.",
        variants: &[one("inet_sk_error_report", &[Pointer], &[SOCKET, SOCKET_CGROUP])],
    },
];

const SET_STATE: &str = "inet_sock_set_state";
const SEND_RESET: &str = ProbeState::REFUSALS;
const ERROR_REPORT: &str = "inet_sk_error_report";

/// Functions that send a reset, by IPv4 and by IPv6: a program of the same name runs at their entry where tcp_send_reset does not report
/// the resets that no full socket sends. Its arguments are the socket and the packet; later kernels add the reason.
pub const RESET_FUNCTIONS: [&str; 2] = ["tcp_v4_send_reset", "tcp_v6_send_reset"];

/// What provides events that a probe cannot provide on this kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandIn {
    /// A probe, or functions with programs of their own.
    pub name: String,
    provides: String,
    pub clients: SeenClients,
}

impl StandIn {
    /// At the entry of [`RESET_FUNCTIONS`]. `untested`: which of them was not tested, and why.
    pub fn by_functions(untested: Option<&str>) -> StandIn {
        let untested = untested.map_or_else(String::new, |untested| format!("; {untested}"));
        StandIn {
            name: RESET_FUNCTIONS.join(" and "),
            provides: format!("a refused SYN, and the other resets without a socket{untested}"),
            clients: SeenClients::All,
        }
    }

    /// `why`: what there is instead of the functions; empty if they were not tried.
    pub fn by_client(why: &str) -> StandIn {
        let and = if why.is_empty() { "" } else { "; " };
        StandIn {
            name: SET_STATE.to_owned(),
            provides: format!("a refused SYN, by the error of a client on this machine{and}{why}"),
            clients: SeenClients::OfThisMachine,
        }
    }
}

impl StandIn {
    /// Of the probe that it replaces.
    pub fn state(&self) -> ProbeState {
        ProbeState::Substituted {
            by: self.to_string(),
            clients: self.clients,
        }
    }
}

impl fmt::Display for StandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.provides)
    }
}

/// Those of [`RESET_FUNCTIONS`] that this kernel can have a program at; Err: what it lacks.
pub fn reset_functions(layout: &Layout) -> Result<&'static [&'static str], String> {
    // Without IPv6 in the kernel, no socket has such an address.
    let count = if layout.missing(&[SockV6Daddr]).is_some() { 1 } else { 2 };
    let functions = &RESET_FUNCTIONS[..count];
    for function in functions {
        match layout.function(function) {
            None => return Err(format!("this kernel has no function {function}")),
            Some(arguments) if !arguments.starts_with(&[Pointer, Pointer]) => {
                return Err(format!(
                    "the arguments of {function} on this kernel are not known: {arguments:?}"
                ));
            }
            Some(_) => {}
        }
    }
    Ok(functions)
}

/// Names of all tracepoints in the table.
pub fn tracepoints() -> Vec<&'static str> {
    PROBES.iter().map(|probe| probe.tracepoint).collect()
}

impl Probe {
    /// The program that reports the events for which the kernel skips `program`, because `program` runs on that CPU. Only for events of
    /// sockets: packets are handled in interrupts. Signals and cgroups are changed under locks that no interrupt takes; what is skipped
    /// since 7.0, where a task can be preempted in a program, counts as lost.
    pub fn nested(&self, program: &str) -> Option<String> {
        (self.kind == Kind::Tcp).then(|| format!("{program}_nested"))
    }

    /// `oldest`: of the programs that fit, the last in the table.
    pub fn choose(&self, layout: &Layout, oldest: bool) -> Choice {
        let Some(arguments) = layout.tracepoint(self.tracepoint) else {
            return Choice::Unsupported(format!("this kernel has no tracepoint {}", self.tracepoint));
        };
        let mut reason = format!("its arguments on this kernel are not known: {arguments:?}");
        let mut order: Vec<&Variant> = self.variants.iter().collect();
        if oldest {
            order.reverse();
        }
        for variant in order {
            if !arguments.starts_with(variant.arguments) {
                continue;
            }
            match variant.needs.iter().find_map(|fields| layout.missing(fields)) {
                None => return Choice::Program(variant.program),
                Some(field) => {
                    let (strukt, path) = field.place();
                    reason = format!("this kernel has no {strukt}.{path}");
                }
            }
        }
        Choice::Unsupported(reason)
    }

    /// Whether `choice` lacks the resets that no full socket sends, such as that of a closed port.
    pub fn lacks_refusals(&self, choice: &Choice, layout: &Layout, oldest: bool) -> bool {
        let is_program = matches!(choice, Choice::Program(_));
        self.tracepoint == SEND_RESET && is_program && (oldest || !layout.resets_without_socket)
    }

    /// The probe that provides on this kernel what `choice` does not, apart from refusals.
    pub fn stand_in(&self, choice: &Choice) -> Option<StandIn> {
        match (self.tracepoint, choice) {
            // No verdict depends on an error that does not close the connection.
            (ERROR_REPORT, Choice::Unsupported(_)) => Some(StandIn {
                name: SET_STATE.to_owned(),
                provides: "the error with which a connection closes".to_owned(),
                clients: SeenClients::All,
            }),
            _ => None,
        }
    }
}
