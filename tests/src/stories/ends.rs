//! Exits within the grace period: clean, by the default action of the signal, with a code other than 0.

use super::*;

pub(super) static STORIES: &[Story] = &[
    // Clean ends.
    stopped(
        "handler-exits-0",
        "the SIGTERM handler runs, the process exits with 0",
        &["handle", "0"],
        CLEAN,
    ),
    stopped(
        "handler-exits-143",
        "the SIGTERM handler runs, the process exits with 143, as Java does",
        &["handle", "143"],
        Expected {
            end: End::Code(143),
            ..CLEAN
        },
    ),
    stopped(
        "signalfd-reader",
        "SIGTERM is blocked and read from a signalfd, the process exits with 0",
        &["signalfd"],
        CLEAN,
    ),
    stopped(
        "sigwait-reader",
        "SIGTERM is blocked and read by sigwait, the process exits with 0",
        &["sigwait"],
        CLEAN,
    ),
    Story {
        stop: by_signal(SIGQUIT),
        ..stopped(
            "custom-stop-signal",
            "the stop signal is SIGQUIT, as for nginx; the handler runs, the process exits with 0",
            &["handle", "0"],
            Expected {
                sentence: &["SIGQUIT"],
                ..CLEAN
            },
        )
    },
    Story {
        stop: by_signal(SIGRTMIN_3),
        ..stopped(
            "realtime-stop-signal",
            "the stop signal is SIGRTMIN+3, as for systemd; the handler runs, the process exits with 0",
            &["handle", "0"],
            Expected {
                sentence: &["SIGRTMIN+3"],
                ..CLEAN
            },
        )
    },
    stopped(
        "leader-exits-first",
        "the first thread exits early with 5; another thread handles SIGTERM, and the process exits with 0",
        &["leader-exits-first", "0"],
        CLEAN,
    ),
    Story {
        pid_namespace: false,
        ..stopped(
            "handler-reraises",
            "the handler cleans up, restores the default action and raises SIGTERM again",
            &["reraise"],
            Expected {
                end: End::Signal(SIGTERM),
                ..CLEAN
            },
        )
    },
    Story {
        stop: Stop::Wait,
        ..stopped(
            "completed",
            "the process finishes its work and exits with 0",
            &["exit", "0"],
            Expected {
                cause: "completed",
                sentence: &[],
                ..CLEAN
            },
        )
    },
    Story {
        program: Program::Shell("trap 'exit 0' TERM; echo ready; sleep 100 & wait"),
        ..stopped(
            "trap-with-a-helper",
            "PID 1 is a shell whose trap exits with 0; the `sleep` that it waited for has no sockets and is not a program",
            &[],
            CLEAN,
        )
    },
    // The stop signal terminates the process.
    Story {
        pid_namespace: false,
        ..stopped(
            "default-action",
            "the process shares the host's pid namespace and has no handler: SIGTERM terminates it at once",
            &["idle"],
            unclean(End::Signal(SIGTERM), "default-action", &["SIGTERM"]),
        )
    },
    Story {
        subject: Kind::Unit,
        pid_namespace: false,
        ..stopped(
            "unit-default-action",
            "the process of a systemd unit has no handler: SIGTERM terminates it at once",
            &["idle"],
            unclean(End::Signal(SIGTERM), "default-action", &["SIGTERM"]),
        )
    },
    Story {
        subject: Kind::Unit,
        pid_namespace: false,
        ..stopped(
            "unit-handler",
            "the process of a systemd unit has a handler, and exits with 0",
            &["handle", "0"],
            CLEAN,
        )
    },
    // Non-zero.
    stopped(
        "handler-exits-3",
        "the SIGTERM handler runs, but the process exits with 3",
        &["handle", "3"],
        unclean(End::Code(3), "nonzero-exit", &["3"]),
    ),
    stopped(
        "leader-exits-first-then-7",
        "the first thread exits early with 5; another thread handles SIGTERM, and the process exits with 7",
        &["leader-exits-first", "7"],
        unclean(End::Code(7), "nonzero-exit", &["7"]),
    ),
    Story {
        stop: Stop::Wait,
        ..stopped(
            "exits-1-by-itself",
            "the process exits with 1 without a stop signal",
            &["exit", "1"],
            unasked(End::Code(1), "crash", "nonzero-exit", &["1"]),
        )
    },
    Story {
        stop: Stop::Wait,
        pid_namespace: false,
        ..stopped(
            "exits-1-beside-the-host",
            "the process shares the host's pid namespace and exits with 1 without a stop signal",
            &["exit", "1"],
            unasked(End::Code(1), "crash", "nonzero-exit", &["1"]),
        )
    },
];
