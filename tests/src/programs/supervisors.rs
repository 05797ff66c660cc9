//! Supervisors, and shells with a trap, with the victims below.

use nix::libc::{SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1};

use super::inits::{IGNORES, NO_HANDLER, TINI};
use super::{CLEAN, Installed, clean, ignored, server, stopped, stopped_by, unclean};
use crate::runtime::Stop;
use crate::story::{End, Expected, Story};

pub(super) const SUPERVISORD: Installed = Installed {
    name: "supervisord",
    packages: &["supervisor"],
    files: &["/usr/bin/supervisord"],
    configuration: &[(
        "supervisord.conf",
        "[supervisord]\nlogfile=$DIR/log\npidfile=$DIR/pid\n\
         [program:app]\ncommand=$VICTIM handle 0\nstdout_logfile=/dev/stdout\nstdout_logfile_maxbytes=0\n",
    )],
    command: &["/usr/bin/supervisord", "-n", "-c", "$DIR/supervisord.conf"],
    documented: "SIGTERM: shuts down all subprocesses and itself; a subprocess gets `stopsignal` (SIGTERM), and after `stopwaitsecs` SIGKILL.",
    ..TINI
};

const RUNIT: Installed = Installed {
    name: "runit",
    packages: &["runit"],
    files: &["/usr/bin/runsvdir", "/usr/bin/runsv"],
    documented: "runsv, SIGTERM: sends the service SIGTERM and SIGCONT, waits for it, and exits.",
    ..TINI
};

const S6: Installed = Installed {
    name: "s6-svscan",
    packages: &["s6", "execline"],
    files: &["/usr/bin/s6-svscan", "/usr/bin/s6-supervise", "/usr/bin/execlineb"],
    documented: "SIGTERM: terminates the supervision tree; each s6-supervise sends its service SIGTERM and SIGCONT and waits for it.",
    ..TINI
};

pub(super) const BASH_WITH_TRAP: Installed = Installed {
    name: "bash with a trap",
    packages: &["bash"],
    files: &["/bin/bash"],
    documented: "A trap runs when the command in the foreground has exited; `wait` returns at once.",
    ..TINI
};

pub(super) static STORIES: &[Story] = &[
    server(
        "supervisord-clean",
        "supervisord's programs handle SIGTERM",
        SUPERVISORD,
        SIGTERM,
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `supervisord`, the handler ran and sent the signal on to `victim`, and the process exited with code 0",
        ]),
    ),
    server(
        "supervisord-held-up",
        "one of supervisord's two programs ignores SIGTERM until supervisord kills it",
        Installed {
            configuration: &[(
                "supervisord.conf",
                "[supervisord]\nlogfile=$DIR/log\npidfile=$DIR/pid\n\
             [program:good]\ncommand=$VICTIM handle 0\n\
             [program:bad]\ncommand=$VICTIM named bad ignore\nstopwaitsecs=1\nstdout_logfile=/dev/stdout\nstdout_logfile_maxbytes=0\n",
            )],
            ..SUPERVISORD
        },
        SIGTERM,
        Expected {
            early_warning: true,
            ..unclean(
                End::Code(0),
                "ignored-stop-signal",
                &[
                    "`supervisord` forwarded SIGTERM to `bad`, which ignores SIGTERM",
                    "`supervisord` sent SIGKILL",
                ],
                &["handle SIGTERM in `bad`"],
            )
        },
    ),
    server(
        "supervisord-default-action",
        "supervisord's program has no handler",
        Installed {
            configuration: &[(
                "supervisord.conf",
                "[supervisord]\nlogfile=$DIR/log\npidfile=$DIR/pid\n\
             [program:app]\ncommand=$VICTIM idle\nstdout_logfile=/dev/stdout\nstdout_logfile_maxbytes=0\n",
            )],
            ..SUPERVISORD
        },
        SIGTERM,
        unclean(End::Code(0), "default-action", NO_HANDLER, &["handler in `victim`"]),
    ),
    server(
        "supervisord-quit",
        "supervisord's programs handle the SIGTERM that supervisord sends at SIGQUIT",
        SUPERVISORD.documented("SIGTERM, SIGINT, SIGQUIT: supervisord and all its subprocesses shut down."),
        SIGQUIT,
        clean(&["sent SIGTERM to `victim`"]),
    ),
    server(
        "supervisord-int",
        "supervisord's programs handle the SIGTERM that supervisord sends at SIGINT",
        SUPERVISORD.documented("SIGTERM, SIGINT, SIGQUIT: supervisord and all its subprocesses shut down."),
        SIGINT,
        clean(&["sent SIGTERM to `victim`"]),
    ),
    stopped_by(
        "supervisord-usr1",
        "supervisord as PID 1 has no handler of SIGUSR1",
        SUPERVISORD.documented("Names SIGTERM, SIGINT, SIGQUIT, SIGHUP and SIGUSR2 only."),
        SIGUSR1,
        ignored(
            &["`supervisord` is PID 1 and has no SIGUSR1 handler"],
            &["handle SIGUSR1 in PID 1 `supervisord`"],
        ),
    ),
    stopped(
        "runsv-clean",
        "the service below runsv handles SIGTERM",
        Installed {
            configuration: &[("app/run", "#!/bin/sh\nexec \"$VICTIM\" handle 0\n")],
            command: &["/usr/bin/runsv", "$DIR/app"],
            ..RUNIT
        },
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `runsv`, the handler ran and sent the signal on to `victim`, and the process exited with code 0",
        ]),
    ),
    stopped(
        "runsv-ignored",
        "the service below runsv ignores SIGTERM",
        Installed {
            configuration: &[("app/run", "#!/bin/sh\nexec \"$VICTIM\" ignore\n")],
            command: &["/usr/bin/runsv", "$DIR/app"],
            ..RUNIT
        },
        ignored(IGNORES, &["handle SIGTERM in `victim`"]),
    ),
    stopped(
        "s6-svscan-ignored",
        "the service below s6-supervise ignores SIGTERM",
        Installed {
            configuration: &[("scan/app/run", "#!/bin/sh\nexec \"$VICTIM\" ignore\n")],
            command: &["/usr/bin/s6-svscan", "$DIR/scan"],
            ..S6
        },
        ignored(
            &["`s6-svscan` forwarded SIGTERM to `s6-supervise`, which forwarded SIGTERM to `victim`, which ignores SIGTERM"],
            &["handle SIGTERM in `victim`"],
        ),
    ),
    stopped(
        "s6-svscan-clean",
        "the service below s6-supervise handles SIGTERM",
        Installed {
            configuration: &[("scan/app/run", "#!/bin/sh\nexec \"$VICTIM\" handle 0\n")],
            command: &["/usr/bin/s6-svscan", "$DIR/scan"],
            ..S6
        },
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `s6-svscan`, which reads the signal without a handler (signalfd or sigwait) and sent the signal on to `s6-supervise`, and the process exited with code 0",
        ]),
    ),
    stopped(
        "bash-forwards",
        "a shell's trap sends SIGTERM to the program and waits",
        Installed {
            command: &[
                "/bin/bash",
                "-c",
                "trap 'kill -TERM $app; wait $app; exit 0' TERM; \"$VICTIM\" handle 0 & app=$!; wait $app",
            ],
            ..BASH_WITH_TRAP
        },
        clean(&[
            "The container runtime sent SIGTERM to PID 1 `bash`, the handler ran and sent the signal on to `victim`, and the process exited with code 0",
        ]),
    ),
    stopped(
        "bash-forwards-in-vain",
        "a shell's trap sends SIGTERM to a program that ignores it",
        Installed {
            command: &[
                "/bin/bash",
                "-c",
                "trap 'kill -TERM $app; wait $app; exit 0' TERM; \"$VICTIM\" ignore & app=$!; wait $app",
            ],
            ..BASH_WITH_TRAP
        },
        ignored(
            &["`bash` forwarded SIGTERM to `victim`, which ignores SIGTERM"],
            &["handle SIGTERM in `victim`"],
        ),
    ),
    stopped(
        "bash-waits-in-the-foreground",
        "a shell's trap waits for the program in the foreground, which gets no signal",
        Installed {
            command: &["/bin/bash", "-c", "trap 'exit 0' TERM; \"$VICTIM\" idle; true"],
            ..BASH_WITH_TRAP
        },
        unclean(
            End::Signal(SIGKILL),
            "killed-after-grace",
            &["sent no signal to `victim`"],
            &["send SIGTERM on from PID 1 `bash` to `victim`"],
        ),
    ),
    Story {
        stop: Stop::Wait,
        ..stopped(
            "bash-leaves-a-daemon",
            "a shell starts a server in the background and exits",
            Installed {
                command: &["/bin/bash", "-c", "$VICTIM serve drain 127.0.0.1:0 & sleep 1; exit 0"],
                ..BASH_WITH_TRAP
            },
            Expected {
                end: End::Code(0),
                verdict: "force-killed",
                cause: "completed",
                exit: "force-killed",
                sentence: &[
                    "PID 1 `bash` exited by itself with code 0; the kernel then killed `victim`, which still ran, with its listener open",
                ],
                remedy: &["start it in the foreground"],
                ..CLEAN
            },
        )
    },
];
