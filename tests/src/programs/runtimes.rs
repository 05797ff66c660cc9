//! Language runtimes, with and without a handler of the application.

use nix::libc::{SIGKILL, SIGQUIT, SIGTERM, SIGUSR1};

use super::{CLEAN, Installed, Ready, clean, ignored, not_pid_1, stopped, stopped_by, unclean};
use crate::story::{End, Expected, Story};

pub(super) const NODE: Installed = Installed {
    name: "Node.js",
    packages: &["nodejs"],
    files: &["/usr/bin/node"],
    configuration: &[],
    command: &[],
    ready: Ready::Prints,
    documented: "At SIGTERM and SIGINT, default handlers reset the terminal mode, then exit with 128 + the signal number. A listener of the application for the signal removes this default behaviour.",
};

const NODE_OTHERS: &str = "The page \"Signal events\" does not describe SIGQUIT.";

const PYTHON: Installed = Installed {
    name: "Python",
    packages: &["python3-minimal"],
    files: &["/usr/bin/python3"],
    documented: "SIGTERM has its default action, unless the program calls signal.signal().",
    ..NODE
};

const RUBY: Installed = Installed {
    name: "Ruby",
    packages: &["ruby"],
    files: &["/usr/bin/ruby"],
    documented: "SIGTERM raises a SignalException in the main thread, unless the program calls trap().",
    ..NODE
};

const PERL: Installed = Installed {
    name: "Perl",
    packages: &["perl-base"],
    files: &["/usr/bin/perl"],
    documented: "SIGTERM has its default action, unless the program sets $SIG{TERM}.",
    ..NODE
};

pub(super) const BASH: Installed = Installed {
    name: "bash",
    packages: &["bash"],
    files: &["/bin/bash"],
    documented: "In a script without a trap, SIGTERM has its default action.",
    ..NODE
};

const NODE_IDLE: &str = "setInterval(() => {}, 1000); console.log('ready')";
const NODE_HANDLES: &str = "process.on('SIGTERM', () => process.exit(0)); setInterval(() => {}, 1000); console.log('ready')";
const PYTHON_IDLE: &str = "import time; print('ready', flush=True); time.sleep(60)";
const PYTHON_HANDLES: &str = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('ready', flush=True); time.sleep(60)";
const RUBY_IDLE: &str = "STDOUT.sync = true; puts 'ready'; sleep 60";
const RUBY_HANDLES: &str = "trap('TERM') { exit 0 }; STDOUT.sync = true; puts 'ready'; sleep 60";
const PERL_IDLE: &str = "$| = 1; print \"ready\\n\"; sleep 60";
const PERL_HANDLES: &str = "$SIG{TERM} = sub { exit 0 }; $| = 1; print \"ready\\n\"; sleep 60";

pub(super) static STORIES: &[Story] = &[
    stopped(
        "node-without-handler",
        "Node.js as PID 1 without a handler of the application",
        Installed {
            command: &["/usr/bin/node", "-e", NODE_IDLE],
            ..NODE
        },
        ignored(
            &[
                "PID 1 `node` entered its SIGTERM handler, which raised SIGTERM again",
                "SIGKILL",
            ],
            &["handle SIGTERM in the application", "small init"],
        ),
    ),
    stopped(
        "node-handles",
        "Node.js as PID 1, the application handles SIGTERM",
        Installed {
            command: &["/usr/bin/node", "-e", NODE_HANDLES],
            ..NODE
        },
        clean(&["The container runtime sent SIGTERM to PID 1 `node`, the handler ran, and the process exited with code 0"]),
    ),
    stopped(
        "node-below-tini",
        "Node.js below tini without a handler of the application",
        Installed {
            packages: &["nodejs", "tini"],
            files: &["/usr/bin/node", "/usr/bin/tini"],
            command: &["/usr/bin/tini", "--", "/usr/bin/node", "-e", NODE_IDLE],
            ..NODE
        },
        unclean(
            End::Code(143),
            "default-action",
            &["`tini` forwarded SIGTERM to `node`, whose handler raised SIGTERM again at once"],
            &["handler in `node`"],
        ),
    ),
    not_pid_1(stopped(
        "node-not-pid-1",
        "Node.js shares the host's pid namespace, without a handler of the application",
        Installed {
            command: &["/usr/bin/node", "-e", NODE_IDLE],
            ..NODE
        },
        unclean(
            End::Signal(SIGTERM),
            "default-action",
            &["entered its SIGTERM handler, raised SIGTERM again at once"],
            &["handle SIGTERM in the application"],
        ),
    )),
    stopped_by(
        "node-quit",
        "Node.js as PID 1, which has no handler for SIGQUIT",
        Installed {
            command: &["/usr/bin/node", "-e", NODE_IDLE],
            ..NODE.documented(NODE_OTHERS)
        },
        SIGQUIT,
        ignored(
            &["`node` is PID 1 and has no SIGQUIT handler"],
            &["handle SIGQUIT in PID 1 `node`"],
        ),
    ),
    stopped_by(
        "node-quit-below-tini",
        "Node.js below tini, which has no handler for SIGQUIT",
        Installed {
            packages: &["nodejs", "tini"],
            files: &["/usr/bin/node", "/usr/bin/tini"],
            command: &["/usr/bin/tini", "--", "/usr/bin/node", "-e", NODE_IDLE],
            ..NODE.documented(NODE_OTHERS)
        },
        SIGQUIT,
        unclean(
            End::Code(131),
            "default-action",
            &["`tini` forwarded SIGQUIT to `node`, which has no SIGQUIT handler"],
            &["SIGQUIT handler in `node`"],
        ),
    ),
    stopped_by(
        "node-usr1",
        "Node.js as PID 1 starts its debugger, and continues to run",
        Installed {
            command: &["/usr/bin/node", "--inspect-port=0", "-e", NODE_IDLE],
            ..NODE.documented("SIGUSR1 is reserved for starting the debugger.")
        },
        SIGUSR1,
        unclean(
            End::Signal(SIGKILL),
            "killed-after-grace",
            &["sent SIGUSR1 to PID 1 `node`, the handler started", "SIGKILL"],
            &["may not stop this program"],
        ),
    ),
    stopped_by(
        "node-usr1-below-tini",
        "Node.js below tini starts its debugger, and continues to run",
        Installed {
            packages: &["nodejs", "tini"],
            files: &["/usr/bin/node", "/usr/bin/tini"],
            command: &["/usr/bin/tini", "--", "/usr/bin/node", "--inspect-port=0", "-e", NODE_IDLE],
            ..NODE.documented("SIGUSR1 is reserved for starting the debugger.")
        },
        SIGUSR1,
        unclean(
            End::Signal(SIGKILL),
            "killed-after-grace",
            &["`tini` forwarded SIGUSR1 to `node`, whose handler ran", "SIGKILL"],
            &["may not stop this program"],
        ),
    ),
    stopped(
        "python-without-handler",
        "Python as PID 1 without a handler",
        Installed {
            command: &["/usr/bin/python3", "-c", PYTHON_IDLE],
            ..PYTHON
        },
        ignored(
            &["`python3` is PID 1 and has no SIGTERM handler"],
            &["handle SIGTERM in PID 1 `python3`"],
        ),
    ),
    stopped(
        "python-handles",
        "Python as PID 1 with a handler",
        Installed {
            command: &["/usr/bin/python3", "-c", PYTHON_HANDLES],
            ..PYTHON
        },
        clean(&["The container runtime sent SIGTERM to PID 1 `python3`, the handler ran, and the process exited with code 0"]),
    ),
    stopped(
        "ruby-without-handler",
        "Ruby as PID 1 without a handler of the application: the signal raises an exception, and the process exits",
        Installed {
            command: &["/usr/bin/ruby", "-e", RUBY_IDLE],
            ..RUBY
        },
        unclean(
            End::Code(1),
            "default-action",
            &["PID 1 `ruby` entered its SIGTERM handler, raised SIGTERM again at once, and exited with code 1"],
            &["handle SIGTERM in the application"],
        ),
    ),
    stopped(
        "ruby-handles",
        "Ruby as PID 1 with a handler",
        Installed {
            command: &["/usr/bin/ruby", "-e", RUBY_HANDLES],
            ..RUBY
        },
        clean(&["The container runtime sent SIGTERM to PID 1 `ruby`, the handler ran, and the process exited with code 0"]),
    ),
    stopped(
        "perl-without-handler",
        "Perl as PID 1 without a handler",
        Installed {
            command: &["/usr/bin/perl", "-e", PERL_IDLE],
            ..PERL
        },
        ignored(
            &["`perl` is PID 1 and has no SIGTERM handler"],
            &["handle SIGTERM in PID 1 `perl`"],
        ),
    ),
    stopped(
        "perl-handles",
        "Perl as PID 1 with a handler",
        Installed {
            command: &["/usr/bin/perl", "-e", PERL_HANDLES],
            ..PERL
        },
        clean(&["The container runtime sent SIGTERM to PID 1 `perl`, the handler ran, and the process exited with code 0"]),
    ),
    stopped(
        "bash-without-trap",
        "bash as PID 1, a script without a trap",
        Installed {
            command: &["/bin/bash", "-c", "echo ready; while :; do sleep 0.1; done"],
            ..BASH
        },
        ignored(
            &["`bash` is PID 1 and has no SIGTERM handler"],
            &["handle SIGTERM in PID 1 `bash`"],
        ),
    ),
    stopped(
        "bash-trap-on-exit",
        "bash as PID 1 in a script that has a trap on EXIT and runs a program: because of the trap bash has a handler, and exits with 143",
        Installed {
            command: &[
                "/bin/bash",
                "-c",
                "trap '/bin/true' EXIT; echo ready; while :; do sleep 0.1; done",
            ],
            ..BASH
        },
        Expected {
            end: End::Code(143),
            sentence: &[
                "The container runtime sent SIGTERM to PID 1 `bash`, the handler ran, and the process exited with code 143",
            ],
            ..CLEAN
        },
    ),
];
