//! Supervisors, and shells with a trap, with the victims below.

use nix::libc::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1};

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
    documented: "At SIGTERM, supervisord shuts down all subprocesses and itself. A subprocess gets `stopsignal` (SIGTERM), and after `stopwaitsecs` SIGKILL.",
    ..TINI
};

const RUNIT: Installed = Installed {
    name: "runit",
    packages: &["runit"],
    files: &["/usr/bin/runsvdir", "/usr/bin/runsv"],
    documented: "At SIGTERM, runsv sends the service SIGTERM and SIGCONT, waits for the service, and exits.",
    ..TINI
};

const RUNSVDIR: Installed = Installed {
    configuration: &[("services/app/run", "#!/bin/sh\nexec \"$VICTIM\" serve drain 127.0.0.1:0\n")],
    command: &["/usr/bin/runsvdir", "$DIR/services"],
    files: &["/usr/bin/runsvdir", "/usr/bin/runsv", "/usr/bin/sv"],
    documented: "At SIGTERM, runsvdir exits with 0 at once. At SIGHUP, runsvdir sends SIGTERM to each runsv, and exits with 111 at once.",
    ..RUNIT
};

/// The container's shell in front of runsvdir, as its remedy names it.
const RUNSVDIR_WITH_TRAP: Installed = Installed {
    command: &[
        "/bin/sh",
        "-c",
        "trap 'kill $!; sv -w 8 shutdown \"$DIR\"/services/*; exit 0' TERM; runsvdir \"$DIR/services\" & wait",
    ],
    documented: "`sv shutdown` sends the service SIGTERM, as `sv exit` does, and in addition waits for the service.",
    ..RUNSVDIR
};

const GNU_PARALLEL: Installed = Installed {
    name: "GNU parallel",
    packages: &["parallel"],
    files: &["/usr/bin/parallel"],
    command: &[
        // As in a container, where nothing sets SHELL: dash stays above the job.
        "/usr/bin/env",
        "PARALLEL_SHELL=/bin/sh",
        "/usr/bin/parallel",
        "-u",
        // One job, which is there once it is ready, and which does not end by itself where parallel gets little of the processors.
        "-j1",
        "$VICTIM",
        "handle-for",
        "60",
        ":::",
        "0",
    ],
    documented: "At SIGTERM, parallel sends its jobs the signals of `--termseq` (default: SIGTERM, after 0.2 s SIGTERM, after 0.1 s SIGTERM, after 0.05 s SIGKILL), and exits.",
    ..TINI
};

const GNU_PARALLEL_AT_HUP: Installed = Installed {
    command: &[
        "/usr/bin/env",
        "PARALLEL_SHELL=/bin/sh",
        "/usr/bin/parallel",
        "-u",
        "-j2",
        "echo ready; exec \"$VICTIM\" hook 6",
        ":::",
        "0",
        "0",
    ],
    documented: "At SIGHUP, parallel starts no further job, waits for the running jobs, and exits.",
    ..GNU_PARALLEL
};

const S6: Installed = Installed {
    name: "s6-svscan",
    packages: &["s6", "execline"],
    files: &["/usr/bin/s6-svscan", "/usr/bin/s6-supervise", "/usr/bin/execlineb"],
    documented: "At SIGTERM, s6-svscan terminates the supervision tree: each s6-supervise sends its service SIGTERM and SIGCONT, and waits for the service.",
    ..TINI
};

pub(super) const BASH_WITH_TRAP: Installed = Installed {
    name: "bash with a trap",
    packages: &["bash"],
    files: &["/bin/bash"],
    documented: "bash runs a trap only when the command in the foreground has exited. If bash waits in `wait`, `wait` returns at once.",
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
        "one of supervisord's two programs ignores SIGTERM until supervisord kills this program",
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
        "supervisord-kills-early",
        "the shutdown of supervisord's program takes longer than `stopwaitsecs`",
        Installed {
            configuration: &[(
                "supervisord.conf",
                "[supervisord]\nlogfile=$DIR/log\npidfile=$DIR/pid\n\
             [program:app]\ncommand=$VICTIM handle-for 3 0\nstopwaitsecs=1\nstdout_logfile=/dev/stdout\nstdout_logfile_maxbytes=0\n",
            )],
            ..SUPERVISORD
        },
        SIGTERM,
        unclean(
            End::Code(0),
            "killed-after-grace",
            &["`supervisord` sent SIGKILL"],
            &["raise the stop timeout of `supervisord`"],
        ),
    ),
    server(
        "supervisord-with-time",
        "`stopwaitsecs` is longer than the shutdown of supervisord's program",
        Installed {
            configuration: &[(
                "supervisord.conf",
                "[supervisord]\nlogfile=$DIR/log\npidfile=$DIR/pid\n\
             [program:app]\ncommand=$VICTIM handle-for 3 0\nstopwaitsecs=7\nstdout_logfile=/dev/stdout\nstdout_logfile_maxbytes=0\n",
            )],
            ..SUPERVISORD
        },
        SIGTERM,
        clean(&["sent the signal on to `victim`"]),
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
        SUPERVISORD.documented("At SIGTERM, SIGINT and SIGQUIT, supervisord and all its subprocesses shut down."),
        SIGQUIT,
        clean(&["sent SIGTERM to `victim`"]),
    ),
    server(
        "supervisord-int",
        "supervisord's programs handle the SIGTERM that supervisord sends at SIGINT",
        SUPERVISORD.documented("At SIGTERM, SIGINT and SIGQUIT, supervisord and all its subprocesses shut down."),
        SIGINT,
        clean(&["sent SIGTERM to `victim`"]),
    ),
    stopped_by(
        "supervisord-usr1",
        "supervisord as PID 1 has no handler for SIGUSR1",
        SUPERVISORD.documented("The documentation names only SIGTERM, SIGINT, SIGQUIT, SIGHUP and SIGUSR2."),
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
    server(
        "runsvdir-leaves-its-services",
        "runsvdir exits at SIGTERM, and the kernel kills its service",
        RUNSVDIR,
        SIGTERM,
        unclean(
            End::Code(0),
            "force-killed",
            &["killed `victim`, which never got the signal, with its listener open"],
            &["sv -w 8 shutdown"],
        ),
    ),
    server(
        "runsvdir-with-a-trap",
        "a shell's trap stops the services of runsvdir and waits for them",
        RUNSVDIR_WITH_TRAP,
        SIGTERM,
        clean(&["PID 1 `sh`"]),
    ),
    server(
        "parallel-kills-its-jobs",
        "a job of GNU parallel needs more time than parallel gives it",
        GNU_PARALLEL,
        SIGTERM,
        unclean(
            End::Code(255),
            "killed-after-grace",
            &["`parallel` forwarded SIGTERM to `victim`", "`parallel` sent SIGKILL"],
            &["--termseq TERM,10000,KILL,25"],
        ),
    ),
    server(
        "parallel-kills-its-jobs-without-a-shell",
        "a job of GNU parallel needs more time than parallel gives it; bash has replaced itself by the job",
        Installed {
            command: &[
                "/usr/bin/env",
                "PARALLEL_SHELL=/bin/bash",
                "/usr/bin/parallel",
                "-u",
                "-j1",
                "$VICTIM",
                "handle-for",
                "60",
                ":::",
                "0",
            ],
            ..GNU_PARALLEL
        },
        SIGTERM,
        unclean(
            End::Code(255),
            "killed-after-grace",
            &["`parallel` forwarded SIGTERM to `victim`", "`parallel` sent SIGKILL"],
            &["--termseq TERM,10000,KILL,25"],
        ),
    ),
    server(
        "parallel-with-time",
        "a job of GNU parallel has enough time, with `--termseq TERM,5000,KILL,25`",
        Installed {
            command: &[
                "/usr/bin/env",
                "PARALLEL_SHELL=/bin/sh",
                "/usr/bin/parallel",
                "--termseq",
                "TERM,5000,KILL,25",
                "-u",
                "-j2",
                "$VICTIM",
                "handle-for",
                "2",
                ":::",
                "0",
                "0",
            ],
            ..GNU_PARALLEL
        },
        SIGTERM,
        unclean(
            End::Code(255),
            "nonzero-exit",
            &["PID 1 `parallel`", "exited with code 255"],
            &["exit with 0"],
        ),
    ),
    stopped_by(
        "parallel-waits-for-its-jobs",
        "a job of GNU parallel takes longer than the grace period",
        GNU_PARALLEL_AT_HUP,
        SIGHUP,
        unclean(
            End::Signal(SIGKILL),
            "killed-after-grace",
            &["PID 1 `parallel`", "sent no signal to `victim`"],
            &["raise the grace period above the length of a job"],
        ),
    ),
    server(
        "parallel-finishes-its-jobs",
        "a job of GNU parallel is shorter than the grace period",
        GNU_PARALLEL_AT_HUP,
        SIGHUP,
        clean(&["PID 1 `parallel`", "exited with code 0"]),
    ),
    server(
        "parallel-gives-no-time",
        "`--termseq TERM,0,KILL,25`: parallel kills its jobs before they can act on SIGTERM",
        Installed {
            command: &[
                "/usr/bin/env",
                "PARALLEL_SHELL=/bin/sh",
                "/usr/bin/parallel",
                "--termseq",
                "TERM,0,KILL,25",
                "-u",
                "$VICTIM",
                "held",
                "1",
                ":::",
                "0",
            ],
            ..GNU_PARALLEL
        },
        SIGTERM,
        unclean(
            End::Code(255),
            "killed-after-grace",
            &[
                "`parallel` forwarded SIGTERM to `victim`",
                "which had no time for its shutdown",
            ],
            &["`parallel` gave `victim`", "raise the stop timeout of `parallel`"],
        ),
    ),
    server(
        "parallel-gives-time",
        "the job has time to act on SIGTERM, with `--termseq TERM,5000,KILL,25`",
        Installed {
            command: &[
                "/usr/bin/env",
                "PARALLEL_SHELL=/bin/sh",
                "/usr/bin/parallel",
                "--termseq",
                "TERM,5000,KILL,25",
                "-u",
                "$VICTIM",
                "held",
                "1",
                ":::",
                "0",
            ],
            ..GNU_PARALLEL
        },
        SIGTERM,
        unclean(
            End::Code(255),
            "nonzero-exit",
            &["PID 1 `parallel`", "exited with code 255"],
            &["exit with 0"],
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
        "a shell runs the program in the foreground, so its trap has to wait, and the program gets no signal",
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
