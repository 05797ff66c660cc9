//! Killed: by the runtime, a stranger, the kernel, or its own fault.

use super::*;

pub(super) static STORIES: &[Story] = &[
    // Killed.
    stopped(
        "slow-handler",
        "its handler runs, but its work outlasts the grace",
        &["handle-slowly"],
        unclean(End::Signal(SIGKILL), "killed-after-grace", &["SIGTERM", "SIGKILL", "2."]),
    ),
    Story {
        stop: Stop::Signal {
            signal: SIGTERM,
            grace: Duration::from_secs(1),
            frozen: false,
            kill: Kill::Cgroup,
        },
        ..stopped(
            "slow-handler-cgroup-kill",
            "its work outlasts the grace; the runtime ends it by cgroup.kill",
            &["handle-slowly"],
            unclean(End::Signal(SIGKILL), "killed-after-grace", &["SIGTERM", "SIGKILL", "1."]),
        )
    },
    Story {
        stop: Stop::Force(Kill::Main),
        ..stopped(
            "force-killed",
            "the runtime sends SIGKILL without any stop signal",
            &["handle", "0"],
            unclean(End::Signal(SIGKILL), "force-killed", &["SIGKILL"]),
        )
    },
    Story {
        stop: Stop::Force(Kill::Cgroup),
        ..stopped(
            "force-killed-cgroup-kill",
            "the runtime writes cgroup.kill without any stop signal",
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
            "a process of the host that is not its runtime sends SIGKILL",
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
            "it is at work after SIGTERM when a stranger sends SIGKILL",
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
    // Its own fault.
    Story {
        stop: Stop::Wait,
        ..stopped(
            "segmentation-fault",
            "it writes to address 0",
            &["fault"],
            unasked(End::Signal(SIGSEGV), "crash", "crashed", &["SIGSEGV"]),
        )
    },
    Story {
        stop: Stop::Wait,
        pid_namespace: false,
        ..stopped(
            "abort",
            "it calls abort()",
            &["abort"],
            unasked(End::Signal(SIGABRT), "crash", "crashed", &["SIGABRT"]),
        )
    },
    Story {
        stop: Stop::Wait,
        ..stopped(
            "abort-as-pid-1",
            "PID 1 calls abort(): its own SIGABRT is dropped, so glibc faults on purpose",
            &["abort"],
            unasked(End::Signal(SIGSEGV), "crash", "crashed", &["SIGSEGV"]),
        )
    },
    Story {
        stop: Stop::Wait,
        pid_namespace: false,
        leaves_core: true,
        ..stopped(
            "abort-with-core",
            "it calls abort() and leaves a core",
            &["abort-with-core"],
            unasked(End::Signal(SIGABRT), "crash", "crashed", &["SIGABRT", "core"]),
        )
    },
    Story {
        stop: Stop::Wait,
        memory_limit: Some(MEMORY_LIMIT),
        ..stopped(
            "oom",
            "it allocates beyond its memory limit",
            &["allocate"],
            unasked(End::Signal(SIGKILL), "oom", "oom-killed", &["memory"]),
        )
    },
    Story {
        stop: Stop::Wait,
        memory_limit: Some(MEMORY_LIMIT),
        ..stopped(
            "oom-child",
            "its child allocates beyond the limit and is killed, so it exits 137",
            &["child-allocates"],
            unasked(End::Code(137), "oom", "oom-child", &["memory", "137"]),
        )
    },
];
