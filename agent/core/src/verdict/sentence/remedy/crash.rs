//! For a process that failed by itself.

use super::asked::{Asked, Remedy};
use crate::ids::Signal;
use crate::verdict::judge::{Crash, InnerEnd, Why};
use crate::verdict::sentence::inside;
use crate::verdict::sentence::settings::{Managed, limit, refused_call};
use crate::verdict::words::target;

/// A signal that ended a process which nobody killed.
struct Fault {
    who: String,
    signal: Signal,
    /// The process sent it.
    is_raised: bool,
}

impl Fault {
    fn of(of: &Asked<'_>) -> Option<Fault> {
        let case = of.case;
        let child = case.failed_child.filter(|_| *of.why() == Why::ChildCrashed);
        let (who, exit) = match (of.why(), of.inner(), child) {
            (Why::Inside(InnerEnd::Crashed, _), Some((_, forward)), _) => {
                (inside::names(case, &[forward.target]), forward.exit.map(|exit| exit.status))
            }
            (Why::ChildCrashed, _, Some(child)) => (format!("`{}`", child.process.comm), Some(child.exit.status)),
            (Why::Crashed(_) | Why::ChildCrashed, ..) => (target(case.main()), case.exit.map(|exit| exit.status)),
            _ => return None,
        };
        let signal = exit?.signal()?;
        let is_its_own = matches!(of.why(), Why::Crashed(Crash::Itself)) && signal == Signal::KILL;
        let is_raised = is_its_own || case.fatal().is_some_and(|fatal| fatal.signal == signal && fatal.is_sent());
        Some(Fault { who, signal, is_raised })
    }

    /// By one of these, which are no faults of the code.
    fn is(of: &Asked<'_>, numbers: &[u8]) -> bool {
        Fault::of(of).is_some_and(|fault| numbers.contains(&fault.signal.number()))
    }
}

const PIPE: u8 = 13;
const ALARM: u8 = 14;
const FILE_SIZE: u8 = 25;
const SECCOMP: u8 = 31;

pub const REMEDIES: &[Remedy] = &[
    // The kernel's own signal at a limit looks like the process's own.
    Remedy {
        name: "read-the-log-of-what-raised",
        helps_if: "The process sent itself a signal, and this signal stands neither for a fault (such as SIGSEGV) nor for a resource limit.",
        holds: |of| {
            let own = |fault: Fault| fault.is_raised && !fault.signal.is_fault() && !fault.signal.is_resource_limit();
            Fault::of(of).is_some_and(own)
        },
        words: |of| {
            let Fault { who, signal, .. } = Fault::of(of)?;
            Some(format!(
                "look for the reason in the last lines of the log of {who}, which sent {signal} to itself"
            ))
        },
    },
    Remedy {
        name: "ignore-sigpipe",
        helps_if: "SIGPIPE ended the process: it wrote to a pipe or connection whose reader had closed it.",
        holds: |of| Fault::is(of, &[PIPE]),
        words: |of| {
            Some(format!(
                "ignore SIGPIPE in {} and handle the error EPIPE: the reader of a pipe or connection had closed it",
                Fault::of(of)?.who
            ))
        },
    },
    Remedy {
        name: "handle-the-timer",
        helps_if: "A timer of the process expired (SIGALRM, SIGVTALRM, SIGPROF), and the process has no handler for this signal.",
        holds: |of| Fault::is(of, &[ALARM, 26, 27]),
        words: |of| {
            let Fault { who, signal, .. } = Fault::of(of)?;
            let timer = match signal.number() {
                ALARM => "alarm, setitimer",
                _ => "setitimer; profilers use one",
            };
            Some(format!(
                "install a {signal} handler in {who} before it starts its timer ({timer}), or do not start the timer: the timer expired, and \
                 without a handler {signal} ends the process"
            ))
        },
    },
    Remedy {
        name: "raise-the-processor-limit",
        helps_if: "The process used more processor time than its limit allows (RLIMIT_CPU).",
        holds: |of| Fault::is(of, &[9, 24]),
        words: |of| {
            Some(format!(
                "find out what takes the processor time of {}, or raise the limit: RLIMIT_CPU, {}; `/proc/PID/limits` of a running process has \
                 its value",
                Fault::of(of)?.who,
                limit(of.case, "LimitCPU=", "ulimit -t")
            ))
        },
    },
    Remedy {
        name: "raise-the-file-limit",
        helps_if: "The process wrote a larger file than its limit allows (RLIMIT_FSIZE).",
        holds: |of| Fault::is(of, &[FILE_SIZE]),
        words: |of| {
            Some(format!(
                "keep the files that {} writes smaller, or raise the limit: RLIMIT_FSIZE, {}; `/proc/PID/limits` of a running process has its \
                 value",
                Fault::of(of)?.who,
                limit(of.case, "LimitFSIZE=", "ulimit -f")
            ))
        },
    },
    Remedy {
        name: "allow-the-system-call",
        helps_if: "A seccomp filter refused a system call (SIGSYS), and the process needs the call.",
        holds: |of| Fault::is(of, &[SECCOMP]),
        words: allow_the_call,
    },
    Remedy {
        name: "read-the-core-dump-of-the-program",
        helps_if: "The process to which the stop signal was forwarded crashed during its shutdown.",
        holds: |of| matches!(of.why(), Why::Inside(InnerEnd::Crashed, _)),
        words: |of| {
            let (_, forward) = of.inner()?;
            Some(format!(
                "look at the core dump or the last lines of the log of {}: the fault is in its shutdown",
                inside::names(of.case, &[forward.target])
            ))
        },
    },
    Remedy {
        name: "read-the-core-dump",
        helps_if: "The process crashed because of a fault of its own.",
        holds: |of| matches!(of.why(), Why::Crashed(_) | Why::ChildCrashed),
        words: |of| Some(of.row()),
    },
    Remedy {
        name: "pass-the-exit-code-on",
        helps_if: "A program below the first process exited with an error, and the first process exited with 0.",
        holds: |of| *of.why() == Why::ChildFailed,
        words: |of| {
            let child = of.case.failed_child;
            let who = child.map_or("the program".to_owned(), |child| format!("`{}`", child.process.comm));
            Some(format!(
                "look for the reason in the last lines of the log of {who}; let {} exit with the code of {who} (in a shell: `exit $?`, or start \
                 it with `exec`), so that the container runtime and systemd see the failure",
                target(of.case.main())
            ))
        },
    },
    Remedy {
        name: "exit-with-0",
        helps_if: "The process exited with an error; or its shutdown succeeded, but its exit code does not show that.",
        holds: |of| *of.why() == Why::Nonzero,
        words: |of| Some(of.row()),
    },
];

fn allow_the_call(of: &Asked<'_>) -> Option<String> {
    let who = Fault::of(of)?.who;
    let filter = match Managed::of(of.case) {
        Managed::Unit => "`SystemCallFilter=` of the unit",
        Managed::Container => "the container runtime's profile (`--security-opt seccomp=`)",
        Managed::Pod => "`seccompProfile` of the pod",
    };
    let (named, number) = match refused_call(of.case) {
        Some(call) => (format!(" {call}"), ""),
        None => (
            String::new(),
            "; the kernel's log has its number (`type=1326 … syscall=`), and `ausyscall` its name",
        ),
    };
    Some(format!(
        "if {who} needs the system call{named}, allow it in the seccomp filter: {filter}, or a filter of the program's own; otherwise change what \
         makes {who} use it{number}"
    ))
}
