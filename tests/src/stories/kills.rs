//! Killed: by the runtime, by another sender, by the kernel, or by a fault of the process.

use super::*;

/// With what glibc's abort() ends a process that SIGABRT does not end: an instruction that faults.
const ABORT: (i32, &str) = match cfg!(target_arch = "aarch64") {
    true => (nix::libc::SIGTRAP, "SIGTRAP"),
    false => (SIGSEGV, "SIGSEGV"),
};

pub(super) static STORIES: &[Story] = &[
    // Killed.
    stopped(
        "slow-handler",
        "the handler runs, but the shutdown takes longer than the grace period",
        &["handle-slowly"],
        unclean(End::Signal(SIGKILL), "killed-after-grace", &["SIGTERM", "SIGKILL", "2."]),
    ),
    Story {
        stop: GRACE_FOR_SERVERS,
        ..stopped(
            "slow-handler-with-time",
            "the shutdown takes 3 s, longer than the grace period of `slow-handler`, and has more",
            &["handle-for", "3", "0"],
            CLEAN,
        )
    },
    Story {
        stop: Stop::Signal {
            signal: SIGTERM,
            grace: Duration::from_secs(1),
            frozen: false,
            kill: Kill::Cgroup,
            others: Others::Nothing,
        },
        ..stopped(
            "slow-handler-cgroup-kill",
            "the shutdown takes longer than the grace period; the runtime kills through cgroup.kill",
            &["handle-slowly"],
            unclean(End::Signal(SIGKILL), "killed-after-grace", &["SIGTERM", "SIGKILL", "1."]),
        )
    },
    Story {
        stop: Stop::Force(Kill::Main),
        ..stopped(
            "force-killed",
            "the runtime sends SIGKILL without a stop signal",
            &["handle", "0"],
            unclean(End::Signal(SIGKILL), "force-killed", &["SIGKILL"]),
        )
    },
    Story {
        stop: Stop::Force(Kill::Cgroup),
        ..stopped(
            "force-killed-cgroup-kill",
            "the runtime writes to cgroup.kill without a stop signal",
            &["handle", "0"],
            unclean(End::Signal(SIGKILL), "force-killed", &["SIGKILL"]),
        )
    },
    Story {
        stop: Stop::Wait,
        bystander: Bystander::Signals {
            name: "janitor",
            signal: SIGKILL,
            when: When::BeforeStop,
            from: Whence::Host,
        },
        ..stopped(
            "killed-by-a-stranger",
            "a process of the host that is not the runtime sends SIGKILL",
            &["handle", "0"],
            unasked(End::Signal(SIGKILL), "external", "killed-by-other", &["janitor", "SIGKILL"]),
        )
    },
    Story {
        bystander: Bystander::Signals {
            name: "janitor",
            signal: SIGKILL,
            when: When::WithinGrace,
            from: Whence::Host,
        },
        ..stopped(
            "killed-within-the-grace",
            "the process is shutting down after SIGTERM when another process of the host sends SIGKILL",
            &["handle-slowly"],
            unclean(End::Signal(SIGKILL), "killed-by-other", &["janitor", "SIGKILL"]),
        )
    },
    Story {
        stop: Stop::Wait,
        bystander: Bystander::Signals {
            name: "neighbour",
            signal: SIGKILL,
            when: When::BeforeStop,
            from: Whence::Container,
        },
        ..stopped(
            "killed-by-a-neighbour",
            "a process of another container sends SIGKILL",
            &["handle", "0"],
            unasked(End::Signal(SIGKILL), "external", "killed-by-other", &["neighbour", "SIGKILL"]),
        )
    },
    // A fault of the process.
    Story {
        stop: Stop::Wait,
        ..stopped(
            "segmentation-fault",
            "the process writes to address 0",
            &["fault"],
            unasked(End::Signal(SIGSEGV), "crash", "crashed", &["SIGSEGV"]),
        )
    },
    Story {
        stop: Stop::Wait,
        pid_namespace: false,
        ..stopped(
            "abort",
            "the process calls abort()",
            &["abort"],
            unasked(End::Signal(SIGABRT), "crash", "crashed", &["SIGABRT"]),
        )
    },
    Story {
        stop: Stop::Wait,
        ..stopped(
            "abort-as-pid-1",
            "PID 1 calls abort(): the kernel discards the SIGABRT, so glibc faults on purpose",
            &["abort"],
            unasked(End::Signal(ABORT.0), "crash", "crashed", &[ABORT.1]),
        )
    },
    Story {
        stop: Stop::Wait,
        pid_namespace: false,
        leaves_core: true,
        ..stopped(
            "abort-with-core",
            "the process calls abort() and dumps core",
            &["abort-with-core"],
            unasked(End::Signal(SIGABRT), "crash", "crashed", &["SIGABRT", "core"]),
        )
    },
    Story {
        stop: Stop::Wait,
        memory_limit: Some(MEMORY_LIMIT),
        ..stopped(
            "oom",
            "the process exceeds the memory limit",
            &["allocate"],
            unasked(End::Signal(SIGKILL), "oom", "oom-killed", &["memory"]),
        )
    },
    Story {
        stop: Stop::Wait,
        memory_limit: Some(4 * MEMORY_LIMIT),
        ..stopped(
            "memory-enough",
            "the process takes more memory than the limit of `oom`, and has a higher one",
            &["allocate", "40"],
            Expected {
                cause: "completed",
                sentence: &["by itself"],
                ..CLEAN
            },
        )
    },
    Story {
        stop: Stop::Wait,
        memory_limit: Some(MEMORY_LIMIT),
        ..stopped(
            "oom-child",
            "a child exceeds the memory limit and is killed, so the main process exits with 137",
            &["child-allocates"],
            unasked(End::Code(137), "oom", "oom-child", &["memory", "137"]),
        )
    },
    Story {
        stop: Stop::Wait,
        memory_limit: Some(MEMORY_LIMIT),
        program: Program::Shell("echo ready; sleep 0.3; $VICTIM allocate-at-once || true"),
        ..stopped(
            "oom-child-hidden",
            "a job exceeds the memory limit and is killed; the shell goes on (`job || true`) and exits with 0",
            &[],
            unasked(End::Code(0), "oom", "oom-child", &["`victim`", "memory", "code 0"]),
        )
    },
    // The first process leaves, the program stays.
    Story {
        program: Program::Shell("trap 'exit 0' TERM; $VICTIM serve keep-alive 127.0.0.1:0 & wait"),
        bystander: Bystander::Client {
            verb: "keep-alive",
            count: 2,
        },
        ..stopped(
            "trap-forgets-its-server",
            "PID 1 is a shell whose trap exits with 0: the kernel kills the server, which never got the signal",
            &[],
            Expected {
                traffic: "undecided",
                remedy: &["send SIGTERM on from PID 1 `sh` to `victim`"],
                ..unclean(
                    End::Code(0),
                    "force-killed",
                    &["killed `victim`, which never got the signal, with its listener and connections open"],
                )
            },
        )
    },
    Story {
        stop: Stop::Wait,
        program: Program::Shell("$VICTIM serve drain 127.0.0.1:0 & while [ ! -e over ]; do sleep 0.1; done; exit 0"),
        ..stopped(
            "leaves-its-server-behind",
            "PID 1 starts a server in the background and exits with 0: the kernel kills the server",
            &[],
            unasked(
                End::Code(0),
                "completed",
                "force-killed",
                &["by itself", "killed `victim`, which still ran, with its listener open"],
            ),
        )
    },
];
