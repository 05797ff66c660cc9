//! Stop signals that do nothing: ignored by the kernel, or never read.

use super::*;

pub(super) static STORIES: &[Story] = &[
    // The stop signal is dropped.
    stopped(
        "ignored-without-handler",
        "PID 1 without a handler: the kernel drops SIGTERM, SIGKILL follows",
        &["idle"],
        ignored(&["SIGTERM", "PID 1", "victim", "SIGKILL"]),
    ),
    stopped(
        "ignored-by-choice",
        "it has set SIGTERM to SIG_IGN, SIGKILL follows",
        &["ignore"],
        ignored(&["SIGTERM", "victim", "SIGKILL"]),
    ),
    Story {
        program: Program::Shell("$VICTIM idle & wait"),
        ..stopped(
            "shell-wrapper",
            "PID 1 is sh -c 'server & wait': the server never hears of SIGTERM",
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
        "its name carries a terminal escape sequence, and it has no handler",
        &["named", "\x1b[31mred", "idle"],
        ignored(&["SIGTERM", "PID 1", "[31mred"]),
    ),
    // The stop signal is never read.
    stopped(
        "blocked",
        "SIGTERM is blocked and nobody ever reads it",
        &["block"],
        unclean(End::Signal(SIGKILL), "blocked-stop-signal", &["SIGTERM", "SIGKILL"]),
    ),
    Story {
        stop: Stop::Signal {
            signal: SIGTERM,
            grace: Duration::from_secs(2),
            frozen: true,
            kill: Kill::Main,
        },
        ..stopped(
            "frozen",
            "its cgroup is frozen when SIGTERM comes, so its handler never runs",
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
            "somebody has sent it SIGSTOP when SIGTERM comes, so its handler never runs",
            &["handle", "0"],
            unclean(
                End::Signal(SIGKILL),
                "blocked-stop-signal",
                &["SIGTERM", "stopped", "SIGKILL"],
            ),
        )
    },
];
