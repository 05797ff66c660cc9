//! All processes of a unit, as systemd stops them; and sockets that no probe observes.

use super::*;

/// A unit of more than one process, which systemd stops by this `KillMode`. The stand-in is systemd to its own child alone: that a shell was
/// only the wrapper of a program rests on systemd's signal to a child of the shell, and has timelines only; so has what systemd kills at the end of its
/// time, after the exit of the main process.
const fn unit(name: &'static str, what: &'static str, script: &'static str, others: Others, expected: Expected) -> Story {
    Story {
        subject: Kind::Unit,
        pid_namespace: false,
        program: Program::Shell(script),
        stop: by_systemd(SIGTERM, 4, others),
        ..stopped(name, what, &[], expected)
    }
}

/// With a `TimeoutStopSec=` of so many seconds.
const fn by_systemd(signal: i32, seconds: u64, others: Others) -> Stop {
    Stop::Signal {
        signal,
        grace: Duration::from_secs(seconds),
        frozen: false,
        kill: Kill::Main,
        others,
    }
}

const UNSEEN: Expected = Expected {
    sentence: &["SIGTERM", "a process served clients by a Unix or UDP socket"],
    ..suffered("clean-exit", "unknown", &[])
};

pub(super) static STORIES: &[Story] = &[
    unit(
        "unit-mixed",
        "the trap of a unit's shell exits with 0, and systemd kills its server, which never got the signal (`KillMode=mixed`)",
        "trap 'exit 0' TERM; $VICTIM serve drain 127.0.0.1:0 & wait",
        Others::Kill,
        Expected {
            remedy: &["KillMode=control-group"],
            ..unclean(
                End::Code(0),
                "force-killed",
                &["SIGTERM", "never got the signal", "listener open"],
            )
        },
    ),
    unit(
        "unit-control-group",
        "systemd sends the stop signal to all processes of `unit-mixed` (`KillMode=control-group`)",
        "trap 'exit 0' TERM; $VICTIM serve drain 127.0.0.1:0 & wait",
        Others::Signal,
        CLEAN,
    ),
    unit(
        "unit-does-not-wait",
        "the trap of a unit's shell sends the signal on and exits at once: systemd kills the server (`KillMode=mixed`)",
        "trap 'kill $!; exit 0' TERM; $VICTIM http accept-and-drain 127.0.0.1:0 --drain-ms=1000 & wait",
        Others::Kill,
        Expected {
            remedy: &["wait until `victim` has exited"],
            ..unclean(
                End::Code(0),
                "killed-after-grace",
                &["SIGTERM", "killed `victim`, which had not finished, with its listener open"],
            )
        },
    ),
    unit(
        "unit-waits",
        "the trap of `unit-does-not-wait` waits for the server",
        "trap 'kill $!; wait $!; exit 0' TERM; $VICTIM http accept-and-drain 127.0.0.1:0 --drain-ms=1000 & wait",
        Others::Kill,
        CLEAN,
    ),
    unit(
        "unit-below-without-a-handler",
        "systemd stops all processes of a unit: its shell waits for a server without a handler, and exits with 0",
        "trap 'wait; exit 0' TERM; $VICTIM listen 127.0.0.1:0 & wait",
        Others::Signal,
        Expected {
            remedy: &["install a SIGTERM handler in `victim`"],
            ..unclean(
                End::Code(0),
                "default-action",
                &["SIGTERM", "to `victim`", "default action", "listener open"],
            )
        },
    ),
    Story {
        program: Program::Victim(&["pool"]),
        ..unit(
            "unit-pool",
            "systemd stops all processes of a unit: the program handles the signal and exits with 0, what it has forked has no handler",
            "",
            Others::Signal,
            Expected {
                verdict: "unknown",
                exit: "unknown",
                sentence: &["with the name of its parent", "the default action ended that process"],
                remedy: &["KillMode=mixed"],
                ..CLEAN
            },
        )
    },
    Story {
        program: Program::Victim(&["pool"]),
        stop: by_systemd(SIGQUIT, 4, Others::Kill),
        ..unit(
            "unit-pool-mixed",
            "systemd stops the program of `unit-pool` alone (`KillMode=mixed`), by a signal at which the program lets finish what it has forked",
            "",
            Others::Kill,
            Expected {
                sentence: &["SIGQUIT"],
                ..CLEAN
            },
        )
    },
    stopped(
        "serves-udp",
        "a server of datagrams exits with 0 at SIGTERM: what its clients lost is not observed",
        &["serve-udp"],
        UNSEEN,
    ),
    Story {
        subject: Kind::Unit,
        pid_namespace: false,
        ..stopped(
            "unit-serves-a-unix-socket",
            "a unit's server on a path exits with 0 at SIGTERM, with a client: what that lost is not observed",
            &["serve-unix", "victim.socket"],
            UNSEEN,
        )
    },
];
