//! What ends a process, as a number or a signal.

use super::{FAULT, KILLED, NOT_STARTED, Word};

pub(super) const CODES: &[Word] = &[
    Word {
        names: &["137", "SIGKILL", "signal 9", "Killed", "signal: killed"],
        meaning: "Exit code 137 is 128 + 9: SIGKILL ended the process. The code alone shows neither the sender nor the reason: the OOM \
                  killer, the container runtime after the grace period, systemd at a shutdown of the node, or another process. The kubelet \
                  can also make up this code in a pod's status.",
        verdicts: KILLED,
    },
    Word {
        names: &["143", "SIGTERM", "signal 15", "signal: terminated"],
        meaning: "Exit code 143 is 128 + 15: SIGTERM. Either the process has no handler and SIGTERM ended it at once, or its handler ran and \
                  the program (Java, many others) then exited with this code, which is clean.",
        verdicts: &[
            "default-action",
            "clean",
            "clean-exit",
            "refused-connections",
            "cut-connections",
            "nonzero-exit",
            "truncated-by-shutdown",
        ],
    },
    Word {
        names: &[
            "502",
            "502 Bad Gateway",
            "503",
            "504",
            "503 Service Unavailable",
            "504 Gateway Timeout",
        ],
        meaning: "Status codes that a proxy or ingress makes itself. 502: the connection to the pod was refused or ended before the \
                  answer. 503: the proxy knows no pod to connect to, or gave up. 504: the pod did not answer in time. In a rollout, \
                  compare the time with terminations: `epitaph list --since 1h`. Epitaph does not read answers of the application.",
        verdicts: &[
            "refused-connections",
            "reset-connections",
            "cut-connections",
            "proxy-rejected",
            "undecided-connections",
        ],
    },
    Word {
        names: &["1"],
        meaning: "The program reported an error of its own: read its log. After a stop signal this code often means that the shutdown \
                  failed.",
        verdicts: &["nonzero-exit", "oom-child"],
    },
    Word {
        names: &["2"],
        meaning: "The program reported an error of its own. A shell exits with 2 if it is used wrongly. A Go program that is PID 1 and has \
                  no handler for SIGTERM exits with 2 at SIGTERM, too.",
        verdicts: &["nonzero-exit", "oom-child"],
    },
    Word {
        names: &["124"],
        meaning: "timeout(1) exits with 124 if the command ran longer than its limit and timeout ended it with SIGTERM. Without \
                  timeout(1), 124 is the program's own code.",
        verdicts: &["nonzero-exit", "prestop-failed"],
    },
    Word {
        names: &["125"],
        meaning: "`docker run`, timeout(1) and env(1) exit with 125 if the tool itself failed and the command was not started. Without \
                  these tools, 125 is the program's own code.",
        verdicts: &["nonzero-exit", "runtime-failed", "prestop-failed"],
    },
    Word {
        names: &["126"],
        meaning: "A shell exits with 126 if the command was found but could not be executed (not executable, wrong architecture).",
        verdicts: &["nonzero-exit", "runtime-failed", "prestop-failed"],
    },
    Word {
        names: &["127"],
        meaning: "A shell exits with 127 if the command was not found in the image.",
        verdicts: &["nonzero-exit", "runtime-failed", "prestop-failed"],
    },
    Word {
        names: &[
            "128",
            "StartError",
            "RunContainerError",
            "ContainerCannotRun",
            "CreateContainerError",
        ],
        meaning: "The container runtime did not start the program: the command, a mount or the image is wrong. No process ran.",
        verdicts: &["runtime-failed"],
    },
    Word {
        names: &["130", "SIGINT", "signal 2", "signal: interrupt"],
        meaning: "Exit code 130 is 128 + 2: SIGINT, as by Ctrl-C or `STOPSIGNAL SIGINT`. Either no handler ran, or the handler exited with \
                  this code.",
        verdicts: &["default-action", "clean", "nonzero-exit", "killed-by-other"],
    },
    Word {
        names: &["131", "SIGQUIT", "signal 3", "signal: quit"],
        meaning: "Exit code 131 is 128 + 3: SIGQUIT, the stop signal of nginx, php-fpm and others. Either no handler ran, or the handler exited \
                  with this code.",
        verdicts: &["default-action", "clean", "nonzero-exit", "killed-by-other"],
    },
    Word {
        names: &["129", "SIGHUP", "signal 1", "signal: hangup"],
        meaning: "Exit code 129 is 128 + 1: SIGHUP. Many programs read their configuration again at SIGHUP. SIGHUP ends a program that has \
                  no handler for it.",
        verdicts: &["killed-by-other", "default-action", "nonzero-exit"],
    },
    Word {
        names: &["139", "SIGSEGV", "signal 11", "Segmentation fault"],
        meaning: "Exit code 139 is 128 + 11: a segmentation fault, an invalid access to memory in the program or one of its libraries.",
        verdicts: FAULT,
    },
    Word {
        names: &["134", "SIGABRT", "signal 6", "Aborted"],
        meaning: "Exit code 134 is 128 + 6: SIGABRT, by which the program aborted itself: a failed assertion, a panic, or an uncaught \
                  exception.",
        verdicts: FAULT,
    },
    Word {
        names: &["132", "SIGILL", "signal 4"],
        meaning: "Exit code 132 is 128 + 4: SIGILL. The program ran an instruction that this CPU does not have, or a trap that the \
                  compiler had put into it.",
        verdicts: FAULT,
    },
    Word {
        names: &["159", "SIGSYS", "signal 31", "Bad system call", "seccomp"],
        meaning: "Exit code 159 is 128 + 31: the kernel refused a system call of the program, because a seccomp filter does not allow it \
                  (`seccompProfile` of a pod, a profile of the container runtime, `SystemCallFilter=` of a unit, or a sandbox of the program's own). \
                  From Linux 5.16 on, the report names the system call if the main process ended in this way.",
        verdicts: FAULT,
    },
    Word {
        names: &["135", "SIGBUS", "signal 7"],
        meaning: "Exit code 135 is 128 + 7: a bus error. Often a file that was mapped into memory had been truncated, or its disk was \
                  full.",
        verdicts: FAULT,
    },
    Word {
        names: &["136", "SIGFPE", "signal 8"],
        meaning: "Exit code 136 is 128 + 8: an arithmetic fault, such as a division by zero.",
        verdicts: FAULT,
    },
    Word {
        names: &["138", "SIGUSR1", "signal 10"],
        meaning: "Exit code 138 is 128 + 10: SIGUSR1. Many programs rotate their logs or print their state at SIGUSR1. SIGUSR1 ends a \
                  program that has no handler for it.",
        verdicts: &["killed-by-other", "default-action", "nonzero-exit"],
    },
    Word {
        names: &["140", "SIGUSR2", "signal 12"],
        meaning: "Exit code 140 is 128 + 12: SIGUSR2. Many programs replace themselves with a new version at SIGUSR2. SIGUSR2 ends a \
                  program that has no handler for it.",
        verdicts: &["killed-by-other", "default-action", "nonzero-exit"],
    },
    Word {
        names: &["141", "SIGPIPE", "signal 13"],
        meaning: "Exit code 141 is 128 + 13: the program wrote to a pipe or connection that its reader had closed.",
        verdicts: FAULT,
    },
    Word {
        names: &["SIGRTMIN+3", "165", "signal 37"],
        meaning: "Exit code 165 is 128 + 37: SIGRTMIN+3, the stop signal of containers in which systemd is PID 1 (`STOPSIGNAL \
                  SIGRTMIN+3`). For systemd this signal means: halt.",
        verdicts: &["default-action", "clean", "ignored-stop-signal", "killed-after-grace"],
    },
    Word {
        names: &["200", "200/CHDIR"],
        meaning: "For a systemd unit: systemd did not start the program, because its WorkingDirectory= does not exist or cannot be \
                  entered. Outside of systemd, 200 is the program's own code.",
        verdicts: NOT_STARTED,
    },
    Word {
        names: &["203", "203/EXEC"],
        meaning: "For a systemd unit: systemd could not execute the program of ExecStart=: a wrong path, not executable, a missing \
                  interpreter, or the wrong architecture. Outside of systemd, 203 is the program's own code.",
        verdicts: NOT_STARTED,
    },
    Word {
        names: &["217", "217/USER"],
        meaning: "For a systemd unit: systemd did not start the program, because the user of User= does not exist or systemd cannot switch \
                  to it. Outside of systemd, 217 is the program's own code.",
        verdicts: NOT_STARTED,
    },
    Word {
        names: &["226", "226/NAMESPACE"],
        meaning: "For a systemd unit: systemd did not start the program, because its mount namespace could not be set up: often a path of \
                  ReadWritePaths= or BindPaths= does not exist. Outside of systemd, 226 is the program's own code.",
        verdicts: NOT_STARTED,
    },
    Word {
        names: &["255", "Unknown"],
        meaning: "Exit code 255 with the reason Unknown: the container runtime lost the container, for example when the node was restarted. \
                  If the reason is not Unknown, 255 is the program's own code (-1).",
        verdicts: &["unknown", "nonzero-exit", "runtime-failed"],
    },
    Word {
        names: &[
            "StopSignalIgnored",
            "SIGTERM ignored",
            "SIGTERM was ignored",
            "stop signal ignored",
        ],
        meaning: "An early warning of epitaph, as an Event and a metric: the kernel discarded the stop signal, so the process continues to \
                  run until the runtime kills it at the end of the grace period.",
        verdicts: &["ignored-stop-signal"],
    },
];
