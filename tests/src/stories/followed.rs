//! Programs that go wrong, each followed by the same program, or the same setting, as its remedy asks for: the pairs of docs/verdicts.md
//! (`agent/src/cli/explain/plays_tests.rs`).

use nix::libc::{SIGALRM, SIGHUP, SIGPIPE, SIGSYS, SIGXCPU, SIGXFSZ};

use super::*;
use crate::socket_unit::INHERITED;

/// As `docker stop --time 0`.
const AT_ONCE: Stop = Stop::Signal {
    signal: SIGTERM,
    grace: Duration::ZERO,
    frozen: false,
    kill: Kill::Main,
    others: Others::Nothing,
};

/// Longer than any shutdown here.
const ENOUGH: Stop = Stop::Signal {
    signal: SIGTERM,
    grace: Duration::from_secs(8),
    frozen: false,
    kill: Kill::Main,
    others: Others::Nothing,
};

/// Nobody stops it, and a signal that the kernel discards for PID 1 ends it.
const fn left(name: &'static str, what: &'static str, program: Program, expected: Expected) -> Story {
    Story {
        pid_namespace: false,
        stop: Stop::Wait,
        program,
        ..stopped(name, what, &[], expected)
    }
}

const fn crashed(signal: i32, sentence: &'static [&'static str], remedy: &'static [&'static str]) -> Expected {
    Expected {
        remedy,
        ..unasked(End::Signal(signal), "crash", "crashed", sentence)
    }
}

const COMPLETED: Expected = Expected {
    cause: "completed",
    sentence: &["by itself"],
    ..CLEAN
};

const fn unit(name: &'static str, what: &'static str, program: &'static [&'static str], expected: Expected) -> Story {
    Story {
        subject: Kind::Unit,
        pid_namespace: false,
        ..stopped(name, what, program, expected)
    }
}

pub(super) static STORIES: &[Story] = &[
    // The service is not the first process.
    Story {
        program: Program::Shell("$VICTIM serve drain 127.0.0.1:0 & exec tail -f /dev/null"),
        ..stopped(
            "tail-stands-in",
            "PID 1 is `tail -f`, and the service runs in the background",
            &[],
            Expected {
                remedy: &["`tail` only keeps the container running", "start `victim` in the foreground"],
                ..ignored(&["`tail` is PID 1", "SIGKILL"])
            },
        )
    },
    Story {
        program: Program::Shell("exec $VICTIM serve drain 127.0.0.1:0"),
        ..stopped(
            "service-in-the-foreground",
            "the service of `tail-stands-in` is PID 1",
            &[],
            CLEAN,
        )
    },
    // The signal is "reload" to the program.
    Story {
        stop: by_signal(SIGHUP),
        ..stopped(
            "reload-signal",
            "the stop signal is SIGHUP, at which the server reads its configuration again",
            &["serve", "reload", ANY],
            Expected {
                remedy: &["SIGHUP may not stop this program", "`STOPSIGNAL` in the image"],
                ..unclean(
                    End::Signal(SIGKILL),
                    "killed-after-grace",
                    &["SIGHUP", "the process did not exit"],
                )
            },
        )
    },
    stopped(
        "declared-stop-signal",
        "the stop signal of `reload-signal` is the one that stops the server",
        &["serve", "reload", ANY],
        CLEAN,
    ),
    Story {
        stop: by_signal(SIGHUP),
        bystander: Bystander::KeepsCalling,
        ..stopped(
            "reload-signal-with-clients",
            "the server of `reload-signal` serves clients on after SIGHUP",
            &["serve", "reload", ANY],
            Expected {
                traffic: "refused",
                remedy: &["still accepted connections", "declare the signal that stops it"],
                ..unclean(
                    End::Signal(SIGKILL),
                    "killed-after-grace",
                    &["SIGHUP", "the process did not exit"],
                )
            },
        )
    },
    Story {
        bystander: Bystander::KeepsCalling,
        ..stopped(
            "declared-stop-signal-with-clients",
            "the stop signal of `reload-signal-with-clients` is the one that stops the server: its clients are refused then",
            &["serve", "reload", ANY],
            suffered("refused-connections", "refused", &["refused"]),
        )
    },
    // The first process sends the signal on, and does not wait.
    Story {
        program: Program::Shell("trap 'kill $!; exit 0' TERM; $VICTIM handle-for 1 0 & wait"),
        ..stopped(
            "shell-does-not-wait",
            "the trap of a shell sends the signal on and exits at once: the kernel kills the program, which was shutting down",
            &[],
            Expected {
                remedy: &["wait until `victim` has exited"],
                ..unclean(End::Code(0), "killed-after-grace", &["forwarded SIGTERM to `victim`"])
            },
        )
    },
    Story {
        stop: ENOUGH,
        program: Program::Shell("trap 'kill $!; wait $!; exit 0' TERM; $VICTIM handle-for 1 0 & wait"),
        ..stopped(
            "shell-waits",
            "the trap of `shell-does-not-wait` waits for the program",
            &[],
            CLEAN,
        )
    },
    // A signal that is no request to stop.
    Story {
        program: Program::Shell("ulimit -c 0; exec $VICTIM handle 0"),
        stop: by_signal(SIGABRT),
        ..unit(
            "unit-aborted",
            "systemd sends SIGABRT to a unit, as a watchdog does",
            &[],
            Expected {
                remedy: &["find out why the service manager sent SIGABRT"],
                ..unclean(End::Signal(SIGABRT), "default-action", &["SIGABRT"])
            },
        )
    },
    // PID 1 has no default action.
    stopped(
        "raises-as-pid-1",
        "PID 1 raises SIGTERM again after its shutdown, the kernel discards the signal, and the process exits with 1",
        &["reraise"],
        Expected {
            end: End::Code(1),
            sentence: &["raised SIGTERM again", "discarded", "exited with code 1"],
            remedy: &["exit with 0 in PID 1 `victim`", "run a small init"],
            ..CLEAN
        },
    ),
    // The stop signal is never read.
    Story {
        bystander: Bystander::Debugs { name: "debugger" },
        ..stopped(
            "held-by-a-debugger",
            "a debugger holds the process at SIGTERM, so the handler never runs",
            &["handle", "0"],
            Expected {
                remedy: &["detach the debugger"],
                ..unclean(
                    End::Signal(SIGKILL),
                    "blocked-stop-signal",
                    &["SIGTERM", "held by a debugger", "SIGKILL"],
                )
            },
        )
    },
    stopped(
        "held-in-the-kernel",
        "the process waits in the kernel for longer than the grace period, so the handler never runs",
        &["held", "60", "0"],
        Expected {
            remedy: &["find what kept the process from running"],
            ..unclean(
                End::Signal(SIGKILL),
                "blocked-stop-signal",
                &["SIGTERM", "whose handler never ran", "SIGKILL"],
            )
        },
    ),
    Story {
        stop: AT_ONCE,
        ..stopped(
            "no-time-to-act",
            "SIGKILL comes at once after SIGTERM, before the handler can run",
            &["held", "1", "0"],
            Expected {
                remedy: &["time to act on SIGTERM", "`docker stop --time`"],
                ..unclean(
                    End::Signal(SIGKILL),
                    "blocked-stop-signal",
                    &["SIGTERM", "no time to act", "SIGKILL"],
                )
            },
        )
    },
    Story {
        stop: ENOUGH,
        ..stopped(
            "held-for-a-moment",
            "the process waits in the kernel for a second, and its grace period is longer",
            &["held", "1", "0"],
            CLEAN,
        )
    },
    // More time.
    Story {
        stop: ENOUGH,
        bystander: Bystander::Client {
            verb: "request",
            count: 1,
        },
        ..stopped(
            "answered-within-the-grace",
            "the request of `cut-by-the-kill` with a longer grace period",
            &["serve", "drain-slowly", ANY],
            CLEAN,
        )
    },
    unit(
        "unit-slow",
        "the shutdown of a unit takes longer than systemd waits (`TimeoutStopSec=`)",
        &["handle-for", "4", "0"],
        Expected {
            remedy: &["raise `TimeoutStopSec=` of the unit"],
            ..unclean(End::Signal(SIGKILL), "killed-after-grace", &["SIGTERM", "SIGKILL", "2."])
        },
    ),
    Story {
        stop: ENOUGH,
        ..unit(
            "unit-slow-with-time",
            "the unit of `unit-slow` with a longer `TimeoutStopSec=`",
            &["handle-for", "4", "0"],
            CLEAN,
        )
    },
    // Signals of the kernel.
    left(
        "pipe-without-a-reader",
        "the process writes to a pipe whose reader has gone",
        Program::Victim(&["write-to-nobody", "default"]),
        crashed(SIGPIPE, &["SIGPIPE"], &["ignore SIGPIPE in", "EPIPE"]),
    ),
    left(
        "pipe-without-a-reader-handled",
        "the same process ignores SIGPIPE and handles EPIPE",
        Program::Victim(&["write-to-nobody", "ignore"]),
        COMPLETED,
    ),
    left(
        "alarm",
        "a timer of the process expires, and the process has no SIGALRM handler",
        Program::Victim(&["alarm", "default"]),
        // The kernel does not record the signal of a timer.
        Expected {
            verdict: "unknown",
            cause: "unknown",
            exit: "unknown",
            sentence: &["a timer of the process sends SIGALRM"],
            remedy: &["install a SIGALRM handler before"],
            end: End::Signal(SIGALRM),
            ..CLEAN
        },
    ),
    left(
        "alarm-handled",
        "the process of `alarm` has a handler",
        Program::Victim(&["alarm", "handle"]),
        COMPLETED,
    ),
    left(
        "processor-limit",
        "the process takes more processor time than its limit",
        Program::Shell("ulimit -S -t 1; echo ready; exec $VICTIM spin 1500"),
        crashed(
            SIGXCPU,
            &["resource limits", "SIGXCPU"],
            &["raise the limit: RLIMIT_CPU", "`ulimit -t`"],
        ),
    ),
    left(
        "processor-limit-raised",
        "the process of `processor-limit` with a higher limit",
        Program::Shell("ulimit -S -t 60; echo ready; exec $VICTIM spin 1500"),
        COMPLETED,
    ),
    left(
        "file-limit",
        "the process writes a larger file than its limit",
        Program::Shell("ulimit -f 1; echo ready; sleep 0.3; exec $VICTIM write victim.data 64"),
        crashed(
            SIGXFSZ,
            &["resource limits", "SIGXFSZ"],
            &["raise the limit: RLIMIT_FSIZE", "`ulimit -f`"],
        ),
    ),
    left(
        "file-limit-raised",
        "the process of `file-limit` with a higher limit",
        Program::Shell("ulimit -f 4096; echo ready; sleep 0.3; exec $VICTIM write victim.data 64"),
        COMPLETED,
    ),
    left(
        "refused-by-seccomp",
        "a seccomp filter refuses a system call that the process needs",
        Program::Victim(&["filtered", "refuse"]),
        crashed(
            SIGSYS,
            &["a seccomp filter refused the system call `getsid`"],
            &["needs the system call `getsid`", "allow it in the seccomp filter"],
        ),
    ),
    left(
        "allowed-by-seccomp",
        "the filter allows the call of `refused-by-seccomp`",
        Program::Victim(&["filtered", "allow"]),
        COMPLETED,
    ),
    // The listener of a unit.
    Story {
        stop: ENOUGH,
        bystander: Bystander::KeepsCalling,
        ..unit(
            "unit-refuses",
            "a unit's server closes its listener at SIGTERM; a client keeps connecting",
            &["serve", "close-listener", ANY],
            Expected {
                remedy: &["a socket unit keeps the listener open over a restart"],
                ..suffered("refused-connections", "refused", &["refused"])
            },
        )
    },
    Story {
        stop: ENOUGH,
        bystander: Bystander::KeepsCalling,
        ..unit(
            "unit-with-a-socket-unit",
            "systemd has the listener of `unit-refuses`, and the next start answers the client",
            &["serve", "close-listener", INHERITED],
            CLEAN,
        )
    },
];
