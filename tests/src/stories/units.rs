//! All processes of a unit, as systemd stops them; and sockets that no probe observes.

use super::*;

/// A unit of more than one process, which systemd stops by this `KillMode`. The stand-in is systemd to its own child alone: that a shell was
/// only the wrapper of a program rests on systemd's signal to a child of the shell, and has timelines only.
const fn unit(name: &'static str, what: &'static str, script: &'static str, others: Others, expected: Expected) -> Story {
    Story {
        subject: Kind::Unit,
        pid_namespace: false,
        program: Program::Shell(script),
        stop: Stop::Signal {
            signal: SIGTERM,
            grace: Duration::from_secs(4),
            frozen: false,
            kill: Kill::Main,
            others,
        },
        ..stopped(name, what, &[], expected)
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
