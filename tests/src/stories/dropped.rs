//! Stop signals that do nothing: ignored by the kernel, or never read.

use super::*;

pub(super) static STORIES: &[Story] = &[
    // The kernel discards the stop signal.
    stopped(
        "ignored-without-handler",
        "PID 1 has no handler: the kernel discards SIGTERM, SIGKILL follows",
        &["idle"],
        ignored(&["SIGTERM", "PID 1", "victim", "SIGKILL"]),
    ),
    stopped(
        "ignored-by-choice",
        "the process has set SIGTERM to SIG_IGN, SIGKILL follows",
        &["ignore"],
        ignored(&["SIGTERM", "victim", "SIGKILL"]),
    ),
    Story {
        program: Program::Shell("$VICTIM idle & wait"),
        ..stopped(
            "shell-wrapper",
            "PID 1 is sh -c 'server & wait': the server never receives SIGTERM",
            &[],
            ignored(&["SIGTERM", "PID 1", "sh", "SIGKILL"]),
        )
    },
    Story {
        program: Program::Shell("$VICTIM handle 0; true"),
        ..stopped(
            "shell-wrapper-foreground",
            "PID 1 is sh -c 'server; true': the server has a handler that never runs",
            &[],
            ignored(&["SIGTERM", "PID 1", "sh", "SIGKILL"]),
        )
    },
    stopped(
        "escape-in-its-name",
        "the name of the process has a terminal escape sequence, and PID 1 has no handler",
        &["named", "\x1b[31mred", "idle"],
        ignored(&["SIGTERM", "PID 1", "[31mred"]),
    ),
    // The stop signal is never read.
    stopped(
        "blocked",
        "SIGTERM is blocked and never read",
        &["block"],
        unclean(End::Signal(SIGKILL), "blocked-stop-signal", &["SIGTERM", "SIGKILL"]),
    ),
    Story {
        stop: Stop::Signal {
            signal: SIGTERM,
            grace: Duration::from_secs(2),
            frozen: true,
            kill: Kill::Main,
            others: Others::Nothing,
        },
        ..stopped(
            "frozen",
            "the cgroup is frozen when SIGTERM comes, so the handler never runs",
            &["handle", "0"],
            unclean(End::Signal(SIGKILL), "blocked-stop-signal", &["SIGTERM", "froze", "SIGKILL"]),
        )
    },
    Story {
        bystander: Bystander::Signals {
            name: "debugger",
            signal: SIGSTOP,
            when: When::BeforeStop,
            from: Whence::Host,
        },
        ..stopped(
            "stopped-by-a-debugger",
            "the process is stopped by SIGSTOP when SIGTERM comes, so the handler never runs",
            &["handle", "0"],
            unclean(
                End::Signal(SIGKILL),
                "blocked-stop-signal",
                &["SIGTERM", "stopped", "SIGKILL"],
            ),
        )
    },
];
