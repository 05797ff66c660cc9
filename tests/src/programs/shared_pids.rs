//! Containers in the pid namespace of others, as under `shareProcessNamespace`: the first process is not PID 1, so that a signal has its
//! default action there, and its exit kills no other process.

use nix::libc::{SIGKILL, SIGTERM};

use super::inits::{DUMB_INIT, IGNORES, NO_HANDLER, TINI};
use super::runtimes::BASH;
use super::supervisors::BASH_WITH_TRAP;
use super::{Installed, clean, ignored, not_pid_1, stopped, unclean};
use crate::story::{End, Expected, Story};

pub(super) static STORIES: &[Story] = &[
    not_pid_1(stopped(
        "tini-shared-exits-0",
        "shared pid namespace: the program below tini handles SIGTERM and exits with 0",
        Installed {
            command: &["/usr/bin/tini", "-s", "--", "$VICTIM", "handle", "0"],
            ..TINI
        },
        clean(&[
            "The container runtime sent SIGTERM to `tini` (pid ",
            "which reads the signal without a handler (signalfd or sigwait) and sent the signal on to `victim`, and the process exited with code 0",
        ]),
    )),
    not_pid_1(stopped(
        "tini-shared-default-action",
        "shared pid namespace: the program below tini has no handler",
        Installed {
            command: &["/usr/bin/tini", "-s", "--", "$VICTIM", "idle"],
            ..TINI
        },
        unclean(End::Code(143), "default-action", NO_HANDLER, &["handler in `victim`"]),
    )),
    not_pid_1(stopped(
        "tini-shared-ignored",
        "shared pid namespace: the program below tini ignores SIGTERM",
        Installed {
            command: &["/usr/bin/tini", "-s", "--", "$VICTIM", "ignore"],
            ..TINI
        },
        ignored(IGNORES, &["handle SIGTERM in `victim`"]),
    )),
    not_pid_1(stopped(
        "tini-shared-slow",
        "shared pid namespace: the program below tini handles SIGTERM, and its shutdown takes too long",
        Installed {
            command: &["/usr/bin/tini", "-s", "--", "$VICTIM", "handle-slowly"],
            ..TINI
        },
        unclean(
            End::Signal(SIGKILL),
            "killed-after-grace",
            &["forwarded SIGTERM to `victim`, whose handler ran"],
            &["raise the grace"],
        ),
    )),
    not_pid_1(stopped(
        "tini-shared-shell",
        "shared pid namespace: tini forwards SIGTERM to a shell that started the program without exec",
        Installed {
            command: &["/usr/bin/tini", "-s", "--", "/bin/sh", "-c", "\"$VICTIM\" handle 0; true"],
            ..TINI
        },
        unclean(
            End::Code(143),
            "default-action",
            &[
                "forwarded SIGTERM to `sh`",
                "`tini` then exited, and the container runtime killed `victim`, which never got the signal",
            ],
            &["`exec` in `sh`"],
        ),
    )),
    not_pid_1(stopped(
        "tini-shared-group",
        "shared pid namespace: tini -g signals the program below a shell, too, but waits for the shell only",
        Installed {
            command: &[
                "/usr/bin/tini",
                "-s",
                "-g",
                "--",
                "/bin/sh",
                "-c",
                "\"$VICTIM\" handle-slowly; true",
            ],
            ..TINI
        },
        unclean(
            End::Code(143),
            "default-action",
            &[
                "forwarded SIGTERM to `sh`",
                "`tini` then exited, and the container runtime killed `victim`, whose shutdown had not finished",
            ],
            &["`exec` in `sh`"],
        ),
    )),
    not_pid_1(stopped(
        "dumb-init-shared-exits-0",
        "shared pid namespace: the program below dumb-init handles SIGTERM and exits with 0",
        Installed {
            command: &["/usr/bin/dumb-init", "$VICTIM", "handle", "0"],
            ..DUMB_INIT
        },
        clean(&[
            "The container runtime sent SIGTERM to `dumb-init` (pid ",
            "which reads the signal without a handler (signalfd or sigwait) and sent the signal on to `victim`, and the process exited with code 0",
        ]),
    )),
    not_pid_1(stopped(
        "dumb-init-shared-ignored",
        "shared pid namespace: the program below dumb-init ignores SIGTERM",
        Installed {
            command: &["/usr/bin/dumb-init", "$VICTIM", "ignore"],
            ..DUMB_INIT
        },
        ignored(IGNORES, &["handle SIGTERM in `victim`"]),
    )),
    not_pid_1(stopped(
        "dumb-init-shared-drops",
        "shared pid namespace: dumb-init --rewrite 15:0 forwards no SIGTERM",
        Installed {
            command: &["/usr/bin/dumb-init", "--rewrite", "15:0", "$VICTIM", "handle", "0"],
            ..DUMB_INIT
        },
        // It read SIGTERM without a handler, and nothing shows that it has no other sockets.
        Expected {
            traffic: "unknown",
            ..unclean(
                End::Signal(SIGKILL),
                "killed-after-grace",
                &["`dumb-init` (pid ", "sent no signal to `victim`"],
                &["send SIGTERM on from `dumb-init` (pid "],
            )
        },
    )),
    not_pid_1(stopped(
        "bash-shared-without-trap",
        "shared pid namespace: a shell without a trap, and a program below the shell that gets no signal",
        Installed {
            command: &["/bin/bash", "-c", "\"$VICTIM\" handle 0; true"],
            ..BASH
        },
        unclean(
            End::Signal(SIGTERM),
            "default-action",
            &[
                "SIGTERM terminated `bash` (pid ",
                "no SIGTERM handler",
                "the container runtime then killed `victim`, which never got the signal",
            ],
            &["send SIGTERM on from `bash` (pid ", "start the program with `exec`"],
        ),
    )),
    not_pid_1(stopped(
        "bash-shared-waits-in-the-foreground",
        "shared pid namespace: a shell runs the program in the foreground, so its trap has to wait, and the program gets no signal",
        Installed {
            command: &["/bin/bash", "-c", "trap 'exit 0' TERM; \"$VICTIM\" idle; true"],
            ..BASH_WITH_TRAP
        },
        unclean(
            End::Signal(SIGKILL),
            "killed-after-grace",
            &["sent no signal to `victim`"],
            &["send SIGTERM on from `bash` (pid "],
        ),
    )),
    not_pid_1(stopped(
        "bash-shared-forwards-without-waiting",
        "shared pid namespace: a shell's trap sends SIGTERM to the program and exits without waiting",
        Installed {
            command: &[
                "/bin/bash",
                "-c",
                "trap 'kill -TERM $app; exit 0' TERM; \"$VICTIM\" handle-slowly & app=$!; wait $app",
            ],
            ..BASH_WITH_TRAP
        },
        unclean(
            End::Code(0),
            "killed-after-grace",
            &[
                "`bash` forwarded SIGTERM to `victim`",
                "then exited with code 0, and the container runtime killed `victim`, whose shutdown had not finished",
            ],
            &["let `bash` (pid ", "wait until `victim` has exited"],
        ),
    )),
];
