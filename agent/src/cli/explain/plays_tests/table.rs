//! Which remedy is followed by which recordings.

/// A remedy, and a process that does what it asks for.
pub struct Play {
    /// The recording with the remedy, of tests/corpus/stories.
    pub before: &'static str,
    /// The part of the remedy that is followed.
    pub part: &'static str,
    pub change: &'static str,
    pub after: &'static str,
    pub program: Program,
    pub then: Then,
}

/// Which program the second recording is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The same, with the change only.
    Same,
    Another,
}

/// What following the remedy gives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// A better verdict.
    Better,
    /// The same failure, which the exit code now shows to the container runtime and systemd.
    Shown,
    /// The same clean verdict, with an exit code that is that of a clean stop for the container runtime and systemd, too.
    Agreed,
}

const fn play(before: &'static str, part: &'static str, change: &'static str, after: &'static str) -> Play {
    Play {
        before,
        part,
        change,
        after,
        program: Program::Same,
        then: Then::Better,
    }
}

/// The second recording is of another program, which does what the remedy asks for.
const fn other(before: &'static str, part: &'static str, change: &'static str, after: &'static str) -> Play {
    Play {
        program: Program::Another,
        ..play(before, part, change, after)
    }
}

/// See [`Then::Shown`].
const fn shown(before: &'static str, part: &'static str, change: &'static str, after: &'static str) -> Play {
    Play {
        then: Then::Shown,
        ..play(before, part, change, after)
    }
}

/// See [`Then::Agreed`].
const fn agreed(before: &'static str, part: &'static str, change: &'static str, after: &'static str) -> Play {
    Play {
        then: Then::Agreed,
        ..play(before, part, change, after)
    }
}

const HANDLER: &str = "the program has a SIGTERM handler that exits with 0";
const DRAIN: &str = "the server accepts until its clients have stopped connecting, and answers every request";

const EXEC: &str = "the shell starts the program with `exec`";
const LONGER: &str = "the grace period is longer than the shutdown";
const BELOW: &str = "the program below the init has a handler";
const ASKED: &str = "the stop command of the container runtime is used";
const ACCEPT_AND_DRAIN: &str = "load-accept-and-drain";

/// The worst first, as in the table of the verdicts.
pub const PLAYS: &[Play] = &[
    play("killed-by-a-neighbour", "use the stop command", ASKED, "handler-exits-0"),
    play("killed-by-a-stranger", "use the stop command", ASKED, "handler-exits-0"),
    other("killed-within-the-grace", "use the stop command", ASKED, "handler-exits-0"),
    other(
        "bash-waits-in-the-foreground",
        "start the program with `exec`",
        EXEC,
        "handler-exits-0",
    ),
    play(
        "force-killed",
        "with a grace period",
        "a stop signal comes first",
        "handler-exits-0",
    ),
    play(
        "force-killed-cgroup-kill",
        "with a grace period",
        "a stop signal comes first",
        "handler-exits-0",
    ),
    play(
        "blocked",
        "unblock the signal",
        "the program does not block the signal, and its handler of the signal exits with 0",
        "handler-exits-0",
    ),
    other(
        "tini-blocked",
        "read it with sigwait",
        "the program reads the signal with sigwait",
        "sigwait-reader",
    ),
    play(
        "frozen",
        "thaw the cgroup before the stop",
        "the cgroup is not frozen",
        "handler-exits-0",
    ),
    play(
        "stopped-by-a-debugger",
        "continue the process (SIGCONT) before the stop",
        "the process is not stopped",
        "handler-exits-0",
    ),
    play(
        "held-by-a-debugger",
        "detach the debugger before the stop",
        "no debugger holds the process",
        "handler-exits-0",
    ),
    play(
        "held-in-the-kernel",
        "find what kept the process from running",
        "the process waits in the kernel for one second only",
        "held-for-a-moment",
    ),
    play(
        "no-time-to-act",
        "give PID 1 `victim` time to act on SIGTERM",
        "the stop command waits for 8 s",
        "held-for-a-moment",
    ),
    play("ignored-without-handler", "handle SIGTERM in", HANDLER, "handler-exits-0"),
    play("ignored-by-choice", "handle SIGTERM in", HANDLER, "handler-exits-0"),
    play("escape-in-its-name", "handle SIGTERM in", HANDLER, "handler-exits-0"),
    other("shell-wrapper", "start the program with `exec`", EXEC, "handler-exits-0"),
    play(
        "shell-wrapper-foreground",
        "start the program with `exec`",
        EXEC,
        "handler-exits-0",
    ),
    play(
        "node-without-handler",
        "run a small init such as tini",
        "tini is PID 1: the signal now ends the program at once, and work in flight is lost",
        "node-below-tini",
    ),
    play("tini-ignored", "handle SIGTERM in", BELOW, "tini-exits-143"),
    other("catatonit-ignored", "handle SIGTERM in", BELOW, "tini-exits-143"),
    other("s6-svscan-ignored", "handle SIGTERM in", BELOW, "tini-exits-143"),
    other("supervisord-held-up", "handle SIGTERM in", BELOW, "tini-exits-143"),
    play("default-action", "install a handler", HANDLER, "handler-exits-0"),
    other("ruby-without-handler", "handle SIGTERM in", HANDLER, "handler-exits-0"),
    other("node-below-tini", "install a SIGTERM handler", BELOW, "tini-exits-143"),
    play("tini-default-action", "install a SIGTERM handler", BELOW, "tini-exits-143"),
    play(
        "tini-idle-pool",
        "also the work in its other processes",
        "the program has a handler, which finishes the work of all processes of its pool",
        "tini-pool",
    ),
    other("tini-shell", "start the program with `exec`", EXEC, "tini-exits-143"),
    other("dumb-init-shell", "start the program with `exec`", EXEC, "tini-exits-143"),
    play(
        "handler-exits-3",
        "exit with 0 or with 128",
        "the program exits with 0",
        "handler-exits-0",
    ),
    play(
        "handler-exits-3",
        "exit with 0 or with 128",
        "the program exits with 143",
        "handler-exits-143",
    ),
    play(
        "leader-exits-first-then-7",
        "exit with 0 or with 128",
        "the program exits with 0",
        "leader-exits-first",
    ),
    play("load-abrupt", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    play("load-abrupt-kept", "keep accepting", DRAIN, "load-accept-and-drain-kept"),
    other("load-abrupt-ipv6", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    other("load-in-a-network-of-its-own", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    play(
        "cuts-requests",
        "finish the requests in flight",
        "the server answers the open requests before its exit",
        "drains",
    ),
    play(
        "hangs-up-on-requests",
        "finish the requests in flight",
        "the server answers the open requests before its exit",
        "drains",
    ),
    other(
        "resets-its-backlog",
        "accept and serve the queued connections",
        DRAIN,
        ACCEPT_AND_DRAIN,
    ),
    play(
        "resets-unread-requests",
        "read all data",
        "the server reads and answers the requests before its exit",
        "drains",
    ),
    play("load-close-and-drain", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    play(
        "load-close-and-drain-kept",
        "keep accepting",
        DRAIN,
        "load-accept-and-drain-kept",
    ),
    other("load-probed", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    other("refuses", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    other("refuses-ipv6", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    other("slow-handler", "raise the grace period", LONGER, "slow-handler-with-time"),
    play("tini-slow", "raise the grace period", LONGER, "tini-slow-with-time"),
    play(
        "cut-by-the-kill",
        "raise the grace period",
        LONGER,
        "answered-within-the-grace",
    ),
    play(
        "unit-slow",
        "raise `TimeoutStopSec=` of the unit",
        "`TimeoutStopSec=` is longer than the shutdown",
        "unit-slow-with-time",
    ),
    play(
        "supervisord-kills-early",
        "raise the stop timeout",
        "`stopwaitsecs` is longer than the shutdown",
        "supervisord-with-time",
    ),
    play(
        "parallel-kills-its-jobs",
        "give its jobs more time",
        "`--termseq TERM,5000,KILL,25`: the jobs finish, and parallel exits with 255 as always after SIGTERM",
        "parallel-with-time",
    ),
    play(
        "parallel-gives-no-time",
        "raise the stop timeout of `parallel`",
        "`--termseq TERM,5000,KILL,25`: the job finishes, and parallel exits with 255 as always after SIGTERM",
        "parallel-gives-time",
    ),
    play(
        "parallel-waits-for-its-jobs",
        "raise the grace period above the length of a job",
        LONGER,
        "parallel-finishes-its-jobs",
    ),
    play(
        "reload-signal",
        "declare the signal that does",
        "the stop signal is SIGTERM, at which the server ends",
        "declared-stop-signal",
    ),
    play(
        "reload-signal-with-clients",
        "declare the signal that stops it",
        "the stop signal is SIGTERM, at which the server ends, and its clients are refused",
        "declared-stop-signal-with-clients",
    ),
    play(
        "shell-does-not-wait",
        "call `wait` again after the trap",
        "the trap waits for the program",
        "shell-waits",
    ),
    other("tini-trap-waits", "start the program with `exec`", EXEC, "tini-exits-0"),
    play(
        "tini-exits-3",
        "exit with 0 or with 128",
        "the program exits with 0",
        "tini-exits-0",
    ),
    play(
        "tini-exits-3",
        "exit with 0 or with 128",
        "the program exits with 143",
        "tini-exits-143",
    ),
    play(
        "tail-stands-in",
        "start `victim` in the foreground",
        "the service is the first process",
        "service-in-the-foreground",
    ),
    play(
        "runsvdir-leaves-its-services",
        "let a shell stop the services first",
        "the first process is a shell with the trap of the remedy",
        "runsvdir-with-a-trap",
    ),
    play(
        "unit-mixed",
        "`KillMode=control-group`",
        "systemd sends the stop signal to all processes of the unit",
        "unit-control-group",
    ),
    play(
        "unit-does-not-wait",
        "call `wait` again after the trap",
        "the trap waits for the server",
        "unit-waits",
    ),
    play(
        "unit-pool",
        "set `KillMode=mixed` in the unit",
        "systemd sends SIGQUIT to the main process alone, which then finishes the work of its pool",
        "unit-pool-mixed",
    ),
    play(
        "tini-group-pool",
        "tini without `-g`",
        "tini sends the stop signal to its child alone",
        "tini-pool",
    ),
    other(
        "unit-below-without-a-handler",
        "install a SIGTERM handler in `victim`",
        "the server has a handler",
        "unit-control-group",
    ),
    other(
        "unit-aborted",
        "find out why the service manager sent SIGABRT",
        "systemd sends SIGTERM",
        "unit-handler",
    ),
    play(
        "unit-refuses",
        "a socket unit keeps the listener open",
        "systemd holds the listener (a socket unit)",
        "unit-with-a-socket-unit",
    ),
    play(
        "pipe-without-a-reader",
        "ignore SIGPIPE",
        "the program ignores SIGPIPE and handles EPIPE",
        "pipe-without-a-reader-handled",
    ),
    play(
        "alarm",
        "install a SIGALRM handler",
        "the program has a SIGALRM handler",
        "alarm-handled",
    ),
    play(
        "processor-limit",
        "raise the limit: RLIMIT_CPU",
        "`ulimit -t` is higher",
        "processor-limit-raised",
    ),
    play(
        "file-limit",
        "raise the limit: RLIMIT_FSIZE",
        "`ulimit -f` is higher",
        "file-limit-raised",
    ),
    play(
        "refused-by-seccomp",
        "allow it in the seccomp filter",
        "the seccomp filter allows the system call",
        "allowed-by-seccomp",
    ),
    other(
        "slow-handler-cgroup-kill",
        "raise the grace period",
        LONGER,
        "slow-handler-with-time",
    ),
    play(
        "oom",
        "memory limit",
        "the memory limit is higher than the program's use",
        "memory-enough",
    ),
    other(
        "oom-child",
        "memory limit",
        "the memory limit is higher than the program's use",
        "memory-enough",
    ),
    other(
        "oom-child-hidden",
        "memory limit",
        "the memory limit is higher than the program's use",
        "memory-enough",
    ),
    play("unit-default-action", "install a handler", HANDLER, "unit-handler"),
    other(
        "trap-forgets-its-server",
        "start the program with `exec`",
        EXEC,
        "handler-exits-0",
    ),
    other(
        "leaves-its-server-behind",
        "start it in the foreground",
        "the service is the first process",
        "handler-exits-0",
    ),
    play(
        "aborts-downloads",
        "finish the requests in flight",
        "the server answers the open requests before its exit",
        "drains",
    ),
    other(
        "cut-below-a-shell-that-cleans-up",
        "finish the requests in flight",
        "the server answers the open requests before its exit",
        "drains",
    ),
    other(
        "cut-below-a-shell",
        "finish the requests in flight",
        "the server answers the open requests before its exit",
        "drains",
    ),
    other(
        "idle-keep-alive",
        "ends each connection with shutdown(2) before the exit",
        "the server ends its keep-alive connections before its exit",
        "load-accept-and-drain-kept",
    ),
    agreed(
        "raises-as-pid-1",
        "exit with 0 in PID 1 `victim` after the shutdown",
        "the program exits with 0: the verdict stays `clean`, and the exit code now shows a clean exit, too",
        "handler-exits-0",
    ),
    agreed(
        "raises-as-pid-1",
        "run a small init such as tini",
        "tini is PID 1 and exits with 143: the verdict stays `clean`, and the exit code now shows a clean exit, too",
        "tini-reraise",
    ),
    shown(
        "oom-child-hidden",
        "exit with an error if such a process fails",
        "the first process exits with an error: the OOM kill still happens, and the exit code now shows a failure",
        "oom-child",
    ),
    shown(
        "cut-below-a-shell-that-cleans-up",
        "in a shell: `exit $?`",
        "the shell ends with `exit $?`: the program still fails, and the shell's exit code now shows the failure",
        "cut-below-a-shell",
    ),
];
