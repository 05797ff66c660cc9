//! Ends that the process itself brought about in time: clean, by the default action, with a code that is not 0.

use super::*;

pub(super) static STORIES: &[Story] = &[
    // Clean ends.
    stopped(
        "handler-exits-0",
        "its SIGTERM handler runs, it exits 0",
        &["handle", "0"],
        CLEAN,
    ),
    stopped(
        "handler-exits-143",
        "its SIGTERM handler runs, it exits 143 as Java does",
        &["handle", "143"],
        Expected {
            end: End::Code(143),
            ..CLEAN
        },
    ),
    stopped(
        "signalfd-reader",
        "SIGTERM is blocked and read from a signalfd, it exits 0",
        &["signalfd"],
        CLEAN,
    ),
    stopped(
        "sigwait-reader",
        "SIGTERM is blocked and taken by sigwait, it exits 0",
        &["sigwait"],
        CLEAN,
    ),
    Story {
        stop: by_signal(SIGQUIT),
        ..stopped(
            "custom-stop-signal",
            "the stop signal is SIGQUIT as nginx has it, handled, it exits 0",
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
            "the stop signal is SIGRTMIN+3 as systemd has it, handled, it exits 0",
            &["handle", "0"],
            Expected {
                sentence: &["SIGRTMIN+3"],
                ..CLEAN
            },
        )
    },
    stopped(
        "leader-exits-first",
        "its first thread ends early with code 5; another handles SIGTERM and exits 0",
        &["leader-exits-first", "0"],
        CLEAN,
    ),
    Story {
        pid_namespace: false,
        ..stopped(
            "handler-reraises",
            "its handler tidies up, restores the default action and raises SIGTERM again",
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
            "it has done its work and exits 0",
            &["exit", "0"],
            Expected {
                cause: "completed",
                sentence: &[],
                ..CLEAN
            },
        )
    },
    // The stop signal itself ends it.
    Story {
        pid_namespace: false,
        ..stopped(
            "default-action",
            "it shares the host's pid namespace and has no handler: SIGTERM ends it at once",
            &["idle"],
            unclean(End::Signal(SIGTERM), "default-action", &["SIGTERM"]),
        )
    },
    Story {
        subject: Kind::Unit,
        pid_namespace: false,
        ..stopped(
            "unit-default-action",
            "a systemd unit's process without a handler: SIGTERM ends it at once",
            &["idle"],
            unclean(End::Signal(SIGTERM), "default-action", &["SIGTERM"]),
        )
    },
    // Non-zero.
    stopped(
        "handler-exits-3",
        "its SIGTERM handler runs, but it exits 3",
        &["handle", "3"],
        unclean(End::Code(3), "nonzero-exit", &["3"]),
    ),
    stopped(
        "leader-exits-first-then-7",
        "its first thread ends early with code 5; another handles SIGTERM and exits 7",
        &["leader-exits-first", "7"],
        unclean(End::Code(7), "nonzero-exit", &["7"]),
    ),
    Story {
        stop: Stop::Wait,
        ..stopped(
            "exits-1-by-itself",
            "nobody asked it to stop: it exits 1",
            &["exit", "1"],
            unasked(End::Code(1), "crash", "nonzero-exit", &["1"]),
        )
    },
    Story {
        stop: Stop::Wait,
        pid_namespace: false,
        ..stopped(
            "exits-1-beside-the-host",
            "it shares the host's pid namespace, and nobody asked it to stop: it exits 1",
            &["exit", "1"],
            unasked(End::Code(1), "crash", "nonzero-exit", &["1"]),
        )
    },
];
