//! Inits, with the victims below.

use nix::libc::{SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGWINCH};

use super::{CLEAN, Installed, Ready, clean, ignored, stopped, stopped_by, unclean, within};
use crate::runtime::Stop;
use crate::story::{End, Expected, Story};

pub(super) const TINI: Installed = Installed {
    name: "tini",
    packages: &["tini"],
    files: &["/usr/bin/tini"],
    configuration: &[],
    command: &[],
    ready: Ready::Prints,
    documented: "tini forwards signals to its child (with `-g` to the child's process group), and exits with the child's exit code.",
};

pub(super) const DUMB_INIT: Installed = Installed {
    name: "dumb-init",
    packages: &["dumb-init"],
    files: &["/usr/bin/dumb-init"],
    documented: "dumb-init forwards signals to the session of its child (with `--single-child` to the child only), and exits with the child's exit code.",
    ..TINI
};

const CATATONIT: Installed = Installed {
    name: "catatonit",
    packages: &["catatonit"],
    files: &["/usr/bin/catatonit"],
    documented: "catatonit forwards signals to its child.",
    ..TINI
};

pub(super) const NO_HANDLER: &[&str] = &["forwarded SIGTERM to `victim`, which has no SIGTERM handler"];
pub(super) const IGNORES: &[&str] = &["forwarded SIGTERM to `victim`, which ignores SIGTERM", "SIGKILL"];

pub(super) static STORIES: &[Story] = &[
    stopped(
        "tini-default-action",
        "the program below tini has no handler",
        Installed {
            command: &["/usr/bin/tini", "--", "$VICTIM", "idle"],
            ..TINI
        },
        unclean(
            End::Code(143),
            "default-action",
            &["`tini` forwarded SIGTERM to `victim`, which has no SIGTERM handler"],
            &["handler in `victim`"],
        ),
    ),
    Story {
        stop: Stop::Wait,
        ..stopped(
            "tini-fault",
            "the program below tini crashes",
            Installed {
                command: &["/usr/bin/tini", "--", "$VICTIM", "fault"],
                ..TINI
            },
            Expected {
                cause: "crash",
                ..unclean(
                    End::Code(139),
                    "crashed",
                    &["`victim` was terminated by SIGSEGV, and PID 1 `tini` exited with code 139"],
                    &[],
                )
            },
        )
    },
    stopped(
        "tini-exits-0",
        "the program below tini handles SIGTERM and exits with 0",
        Installed {
            command: &["/usr/bin/tini", "--", "$VICTIM", "handle", "0"],
            ..TINI
        },
        clean(&["sent the signal on to `victim`"]),
    ),
    stopped(
        "tini-exits-143",
        "the program below tini handles SIGTERM and exits with 143",
        Installed {
            command: &["/usr/bin/tini", "--", "$VICTIM", "handle", "143"],
            ..TINI
        },
        Expected {
            end: End::Code(143),
            sentence: &[
                "The container runtime sent SIGTERM to PID 1 `tini`, which reads the signal without a handler (signalfd or sigwait) and sent the signal on to `victim`, and the process exited with code 143",
            ],
            ..CLEAN
        },
    ),
    stopped(
        "tini-exits-3",
        "the program below tini handles SIGTERM and exits with 3",
        Installed {
            command: &["/usr/bin/tini", "--", "$VICTIM", "handle", "3"],
            ..TINI
        },
        unclean(
            End::Code(3),
            "nonzero-exit",
            &["forwarded SIGTERM to `victim`, whose handler ran, and which exited with code 3"],
            &["log of `victim`"],
        ),
    ),
    stopped(
        "tini-signalfd",
        "the program below tini reads SIGTERM from a signalfd and exits with 0",
        Installed {
            command: &["/usr/bin/tini", "--", "$VICTIM", "signalfd"],
            ..TINI
        },
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `tini`, which reads the signal without a handler (signalfd or sigwait) and sent the signal on to `victim`, and the process exited with code 0",
        ]),
    ),
    stopped(
        "tini-reraise",
        "the program below tini handles SIGTERM and raises SIGTERM again",
        Installed {
            command: &["/usr/bin/tini", "--", "$VICTIM", "reraise"],
            ..TINI
        },
        Expected {
            end: End::Code(143),
            sentence: &["sent the signal on to `victim`, and the process exited with code 143"],
            ..CLEAN
        },
    ),
    stopped_by(
        "tini-pool",
        "the program below tini has worker processes, and finishes their work at SIGQUIT",
        Installed {
            command: &["/usr/bin/tini", "--", "$VICTIM", "pool"],
            ..TINI
        },
        SIGQUIT,
        clean(&["sent the signal on to `victim`"]),
    ),
    stopped_by(
        "tini-group-pool",
        "tini -g also signals the program's worker processes, which have no handler",
        Installed {
            command: &["/usr/bin/tini", "-g", "--", "$VICTIM", "pool"],
            ..TINI
        },
        SIGQUIT,
        Expected {
            verdict: "unknown",
            exit: "unknown",
            sentence: &["with the name of its parent", "the default action ended that process"],
            remedy: &["tini without `-g`"],
            ..CLEAN
        },
    ),
    stopped_by(
        "tini-idle-pool",
        "neither the program below tini nor its worker processes have a handler",
        Installed {
            command: &["/usr/bin/tini", "--", "$VICTIM", "idle-pool"],
            ..TINI
        },
        SIGQUIT,
        unclean(
            End::Code(131),
            "default-action",
            &["`tini` forwarded SIGQUIT to `victim`", "which has no SIGQUIT handler"],
            &["also the work in its other processes"],
        ),
    ),
    stopped(
        "tini-ignored",
        "the program below tini ignores SIGTERM",
        Installed {
            command: &["/usr/bin/tini", "--", "$VICTIM", "ignore"],
            ..TINI
        },
        ignored(IGNORES, &["handle SIGTERM in `victim`"]),
    ),
    stopped(
        "tini-slow",
        "the program below tini handles SIGTERM, and its shutdown takes too long",
        Installed {
            command: &["/usr/bin/tini", "--", "$VICTIM", "handle-for", "4", "0"],
            ..TINI
        },
        unclean(
            End::Signal(SIGKILL),
            "killed-after-grace",
            &["forwarded SIGTERM to `victim`, whose handler ran"],
            &["raise the grace"],
        ),
    ),
    within(
        8,
        "tini-slow-with-time",
        "the program below tini handles SIGTERM, and the grace period is longer than its shutdown",
        Installed {
            command: &["/usr/bin/tini", "--", "$VICTIM", "handle-for", "4", "0"],
            ..TINI
        },
        SIGTERM,
        clean(&["sent the signal on to `victim`"]),
    ),
    stopped(
        "tini-blocked",
        "the program below tini blocks SIGTERM and never reads it",
        Installed {
            command: &["/usr/bin/tini", "--", "$VICTIM", "block"],
            ..TINI
        },
        unclean(
            End::Signal(SIGKILL),
            "blocked-stop-signal",
            &["forwarded SIGTERM to `victim`, which blocks SIGTERM"],
            &["unblock"],
        ),
    ),
    stopped(
        "tini-shell",
        "tini forwards SIGTERM to a shell that started the program without exec",
        Installed {
            command: &["/usr/bin/tini", "--", "/bin/sh", "-c", "\"$VICTIM\" handle 0; true"],
            ..TINI
        },
        unclean(
            End::Code(143),
            "default-action",
            &["forwarded SIGTERM to `sh`", "killed `victim`, which never got the signal"],
            &["`exec` in `sh`"],
        ),
    ),
    stopped(
        "tini-trap-waits",
        "tini forwards SIGTERM to a shell that runs the program in the foreground, so the shell's trap has to wait",
        Installed {
            command: &[
                "/usr/bin/tini",
                "--",
                "/bin/sh",
                "-c",
                "trap 'exit 0' TERM; \"$VICTIM\" handle 0; true",
            ],
            ..TINI
        },
        unclean(
            End::Signal(SIGKILL),
            "killed-after-grace",
            &["`tini` forwarded SIGTERM to `sh`", "sent no signal to `victim`"],
            &["send SIGTERM on from `sh` to `victim`", "`tini -g`"],
        ),
    ),
    stopped(
        "tini-group",
        "tini -g signals the program below a shell, too, but waits for the shell only",
        Installed {
            command: &[
                "/usr/bin/tini",
                "-g",
                "--",
                "/bin/sh",
                "-c",
                "\"$VICTIM\" handle-for 1 0; true",
            ],
            ..TINI
        },
        unclean(
            End::Code(143),
            "default-action",
            &[
                "forwarded SIGTERM to `sh`",
                "killed `victim`, whose shutdown had not finished",
            ],
            &["`exec` in `sh`"],
        ),
    ),
    stopped(
        "tini-remaps",
        "the program below tini has no handler, and tini -e 143 turns the exit code 143 into 0",
        Installed {
            command: &["/usr/bin/tini", "-e", "143", "--", "$VICTIM", "idle"],
            ..TINI
        },
        unclean(End::Code(0), "default-action", NO_HANDLER, &["handler in `victim`"]),
    ),
    stopped_by(
        "tini-quit",
        "the program below tini has no handler for SIGQUIT",
        Installed {
            // A shell's background job ignores SIGQUIT, and so does what it starts.
            command: &[
                "/usr/bin/tini",
                "--",
                "/usr/bin/env",
                "--default-signal=QUIT",
                "$VICTIM",
                "idle",
            ],
            ..TINI
        },
        SIGQUIT,
        unclean(
            End::Code(131),
            "default-action",
            &["`tini` forwarded SIGQUIT to `victim`, which has no SIGQUIT handler"],
            &["SIGQUIT handler in `victim`"],
        ),
    ),
    stopped_by(
        "tini-usr1",
        "the program below tini has no handler for SIGUSR1",
        Installed {
            command: &["/usr/bin/tini", "--", "$VICTIM", "idle"],
            ..TINI
        },
        SIGUSR1,
        unclean(
            End::Code(138),
            "default-action",
            &["`tini` forwarded SIGUSR1 to `victim`, which has no SIGUSR1 handler"],
            &["SIGUSR1 handler in `victim`"],
        ),
    ),
    stopped(
        "dumb-init-rewrites",
        "dumb-init --rewrite 15:3 forwards SIGTERM as SIGQUIT to a program without a handler",
        Installed {
            command: &["/usr/bin/dumb-init", "--rewrite", "15:3", "$VICTIM", "idle"],
            ..DUMB_INIT
        },
        unclean(
            End::Code(131),
            "default-action",
            &["`dumb-init` forwarded SIGQUIT to `victim`, which has no SIGQUIT handler"],
            &["SIGQUIT handler in `victim`"],
        ),
    ),
    stopped(
        "dumb-init-drops",
        "dumb-init --rewrite 15:0 forwards no SIGTERM",
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
                &["PID 1 `dumb-init`", "sent no signal to `victim`"],
                &["send SIGTERM on from PID 1 `dumb-init` to `victim`"],
            )
        },
    ),
    stopped_by(
        "dumb-init-usr1",
        "the program below dumb-init has no handler for SIGUSR1",
        Installed {
            command: &["/usr/bin/dumb-init", "$VICTIM", "idle"],
            ..DUMB_INIT
        },
        SIGUSR1,
        unclean(
            End::Code(138),
            "default-action",
            &["`dumb-init` forwarded SIGUSR1 to `victim`, which has no SIGUSR1 handler"],
            &["SIGUSR1 handler in `victim`"],
        ),
    ),
    stopped_by(
        "dumb-init-winch",
        "the program below dumb-init has no handler for SIGWINCH, and the default action of SIGWINCH is to do nothing",
        Installed {
            command: &["/usr/bin/dumb-init", "$VICTIM", "idle"],
            ..DUMB_INIT
        },
        SIGWINCH,
        ignored(
            &["`dumb-init` forwarded SIGWINCH to `victim`, which has no SIGWINCH handler"],
            &["handle SIGWINCH in `victim`"],
        ),
    ),
    stopped(
        "dumb-init-default-action",
        "the program below dumb-init has no handler",
        Installed {
            command: &["/usr/bin/dumb-init", "$VICTIM", "idle"],
            ..DUMB_INIT
        },
        unclean(End::Code(143), "default-action", NO_HANDLER, &["handler in `victim`"]),
    ),
    stopped(
        "dumb-init-exits-0",
        "the program below dumb-init handles SIGTERM and exits with 0",
        Installed {
            command: &["/usr/bin/dumb-init", "$VICTIM", "handle", "0"],
            ..DUMB_INIT
        },
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `dumb-init`, which reads the signal without a handler (signalfd or sigwait) and sent the signal on to `victim`, and the process exited with code 0",
        ]),
    ),
    stopped(
        "dumb-init-ignored",
        "the program below dumb-init ignores SIGTERM",
        Installed {
            command: &["/usr/bin/dumb-init", "$VICTIM", "ignore"],
            ..DUMB_INIT
        },
        ignored(IGNORES, &["handle SIGTERM in `victim`"]),
    ),
    stopped(
        "dumb-init-slow",
        "the program below dumb-init handles SIGTERM, and its shutdown takes too long",
        Installed {
            command: &["/usr/bin/dumb-init", "$VICTIM", "handle-slowly"],
            ..DUMB_INIT
        },
        unclean(
            End::Signal(SIGKILL),
            "killed-after-grace",
            &["forwarded SIGTERM to `victim`, whose handler ran"],
            &["raise the grace"],
        ),
    ),
    stopped(
        "dumb-init-shell",
        "dumb-init signals the program below a shell, too, but waits for the shell only",
        Installed {
            command: &["/usr/bin/dumb-init", "/bin/sh", "-c", "\"$VICTIM\" handle-for 1 0; true"],
            ..DUMB_INIT
        },
        unclean(
            End::Code(143),
            "default-action",
            &[
                "forwarded SIGTERM to `sh`",
                "killed `victim`, whose shutdown had not finished",
            ],
            &["`exec` in `sh`"],
        ),
    ),
    stopped(
        "catatonit-default-action",
        "the program below catatonit has no handler",
        Installed {
            command: &["/usr/bin/catatonit", "--", "$VICTIM", "idle"],
            ..CATATONIT
        },
        unclean(End::Code(143), "default-action", NO_HANDLER, &["handler in `victim`"]),
    ),
    stopped(
        "catatonit-ignored",
        "the program below catatonit ignores SIGTERM",
        Installed {
            command: &["/usr/bin/catatonit", "--", "$VICTIM", "ignore"],
            ..CATATONIT
        },
        ignored(IGNORES, &["handle SIGTERM in `victim`"]),
    ),
];
