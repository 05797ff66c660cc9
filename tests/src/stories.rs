//! All stories. An eleventh way to die is a line here, a behaviour in `victim`, and a rule in the agent's verdict room.

use std::time::Duration;

use nix::libc::{SIGABRT, SIGKILL, SIGQUIT, SIGSEGV, SIGSTOP, SIGTERM};

use crate::runtime::{Kill, Stop};
use crate::story::{Bystander, End, Expected, Kind, Program, Story, When, by_signal, stopped};
use crate::victim::SIGRTMIN_3;

const CLEAN: Expected = Expected {
    end: End::Code(0),
    verdict: "clean",
    cause: "stopped",
    exit: "clean",
    traffic: "quiet",
    sentence: &["SIGTERM"],
    remedy: &[],
    early_warning: false,
};

/// An end that is not clean, asked for by the runtime, without traffic.
const fn unclean(end: End, exit: &'static str, sentence: &'static [&'static str]) -> Expected {
    Expected {
        end,
        verdict: exit,
        exit,
        sentence,
        ..CLEAN
    }
}

const fn ignored(sentence: &'static [&'static str]) -> Expected {
    Expected {
        early_warning: true,
        ..unclean(End::Signal(SIGKILL), "ignored-stop-signal", sentence)
    }
}

/// An end that nobody asked for.
const fn unasked(end: End, cause: &'static str, exit: &'static str, sentence: &'static [&'static str]) -> Expected {
    Expected {
        cause,
        ..unclean(end, exit, sentence)
    }
}

/// A clean exit that clients suffered from.
const fn suffered(verdict: &'static str, traffic: &'static str, sentence: &'static [&'static str]) -> Expected {
    Expected {
        verdict,
        traffic,
        sentence,
        ..CLEAN
    }
}

const MEMORY_LIMIT: u64 = 24 << 20;
const ANY: &str = "127.0.0.1:0";
const GRACE_FOR_SERVERS: Stop = Stop::Signal {
    signal: SIGTERM,
    grace: Duration::from_secs(4),
    frozen: false,
    kill: Kill::Main,
};

/// In the order in which they are told.
pub static STORIES: &[Story] = &[
    // Clean ends.
    stopped(
        "handler-exits-0",
        "its SIGTERM handler runs, it exits 0",
        &["handle", "0"],
        CLEAN,
    ),
    stopped(
        "handler-exits-143",
        "its SIGTERM handler runs, it exits 143 as Java does",
        &["handle", "143"],
        Expected {
            end: End::Code(143),
            ..CLEAN
        },
    ),
    stopped(
        "signalfd-reader",
        "SIGTERM is blocked and read from a signalfd, it exits 0",
        &["signalfd"],
        CLEAN,
    ),
    stopped(
        "sigwait-reader",
        "SIGTERM is blocked and taken by sigwait, it exits 0",
        &["sigwait"],
        CLEAN,
    ),
    Story {
        stop: by_signal(SIGQUIT),
        ..stopped(
            "custom-stop-signal",
            "the stop signal is SIGQUIT as nginx has it, handled, it exits 0",
            &["handle", "0"],
            Expected {
                sentence: &["SIGQUIT"],
                ..CLEAN
            },
        )
    },
    Story {
        stop: by_signal(SIGRTMIN_3),
        ..stopped(
            "realtime-stop-signal",
            "the stop signal is SIGRTMIN+3 as systemd has it, handled, it exits 0",
            &["handle", "0"],
            Expected {
                sentence: &["SIGRTMIN+3"],
                ..CLEAN
            },
        )
    },
    stopped(
        "leader-exits-first",
        "its first thread ends early with code 5; another handles SIGTERM and exits 0",
        &["leader-exits-first", "0"],
        CLEAN,
    ),
    Story {
        pid_namespace: false,
        ..stopped(
            "handler-reraises",
            "its handler tidies up, restores the default action and raises SIGTERM again",
            &["reraise"],
            Expected {
                end: End::Signal(SIGTERM),
                ..CLEAN
            },
        )
    },
    Story {
        stop: Stop::Wait,
        ..stopped(
            "completed",
            "it has done its work and exits 0",
            &["exit", "0"],
            Expected {
                cause: "completed",
                sentence: &[],
                ..CLEAN
            },
        )
    },
    // The stop signal itself ends it.
    Story {
        pid_namespace: false,
        ..stopped(
            "default-action",
            "it shares the host's pid namespace and has no handler: SIGTERM ends it at once",
            &["idle"],
            unclean(End::Signal(SIGTERM), "default-action", &["SIGTERM"]),
        )
    },
    Story {
        subject: Kind::Unit,
        pid_namespace: false,
        ..stopped(
            "unit-default-action",
            "a systemd unit's process without a handler: SIGTERM ends it at once",
            &["idle"],
            unclean(End::Signal(SIGTERM), "default-action", &["SIGTERM"]),
        )
    },
    // Non-zero.
    stopped(
        "handler-exits-3",
        "its SIGTERM handler runs, but it exits 3",
        &["handle", "3"],
        unclean(End::Code(3), "nonzero-exit", &["3"]),
    ),
    stopped(
        "leader-exits-first-then-7",
        "its first thread ends early with code 5; another handles SIGTERM and exits 7",
        &["leader-exits-first", "7"],
        unclean(End::Code(7), "nonzero-exit", &["7"]),
    ),
    Story {
        stop: Stop::Wait,
        ..stopped(
            "exits-1-by-itself",
            "nobody asked it to stop: it exits 1",
            &["exit", "1"],
            unasked(End::Code(1), "crash", "nonzero-exit", &["1"]),
        )
    },
    // The stop signal is dropped.
    stopped(
        "ignored-without-handler",
        "PID 1 without a handler: the kernel drops SIGTERM, SIGKILL follows",
        &["idle"],
        ignored(&["SIGTERM", "PID 1", "victim", "SIGKILL"]),
    ),
    stopped(
        "ignored-by-choice",
        "it has set SIGTERM to SIG_IGN, SIGKILL follows",
        &["ignore"],
        ignored(&["SIGTERM", "victim", "SIGKILL"]),
    ),
    Story {
        program: Program::Shell("$VICTIM idle & wait"),
        ..stopped(
            "shell-wrapper",
            "PID 1 is sh -c 'server & wait': the server never hears of SIGTERM",
            &[],
            ignored(&["SIGTERM", "PID 1", "sh", "SIGKILL"]),
        )
    },
    Story {
        program: Program::Shell("$VICTIM handle 0; true"),
        ..stopped(
            "shell-wrapper-foreground",
            "PID 1 is sh -c 'server; true': the server has a handler that never runs",
            &[],
            ignored(&["SIGTERM", "PID 1", "sh", "SIGKILL"]),
        )
    },
    stopped(
        "escape-in-its-name",
        "its name carries a terminal escape sequence, and it has no handler",
        &["named", "\x1b[31mred", "idle"],
        ignored(&["SIGTERM", "PID 1", "[31mred"]),
    ),
    // The stop signal is never read.
    stopped(
        "blocked",
        "SIGTERM is blocked and nobody ever reads it",
        &["block"],
        unclean(End::Signal(SIGKILL), "blocked-stop-signal", &["SIGTERM", "SIGKILL"]),
    ),
    Story {
        stop: Stop::Signal {
            signal: SIGTERM,
            grace: Duration::from_secs(2),
            frozen: true,
            kill: Kill::Main,
        },
        ..stopped(
            "frozen",
            "its cgroup is frozen when SIGTERM comes, so its handler never runs",
            &["handle", "0"],
            unclean(End::Signal(SIGKILL), "blocked-stop-signal", &["SIGTERM", "froze", "SIGKILL"]),
        )
    },
    Story {
        bystander: Bystander::Signals {
            name: "debugger",
            signal: SIGSTOP,
            when: When::BeforeStop,
        },
        ..stopped(
            "stopped-by-a-debugger",
            "somebody has sent it SIGSTOP when SIGTERM comes, so its handler never runs",
            &["handle", "0"],
            unclean(
                End::Signal(SIGKILL),
                "blocked-stop-signal",
                &["SIGTERM", "stopped", "SIGKILL"],
            ),
        )
    },
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
        },
        ..stopped(
            "killed-within-the-grace",
            "it is at work after SIGTERM when a stranger sends SIGKILL",
            &["handle-slowly"],
            unclean(End::Signal(SIGKILL), "killed-by-other", &["janitor", "SIGKILL"]),
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
    // What its clients saw.
    Story {
        stop: GRACE_FOR_SERVERS,
        bystander: Bystander::KeepsCalling,
        ..stopped(
            "refuses",
            "it closes its listener at SIGTERM and ends 2 s later; a client keeps connecting",
            &["serve", "close-listener", ANY],
            Expected {
                remedy: &["preStop"],
                ..suffered("refused-connections", "refused", &["refused"])
            },
        )
    },
    Story {
        stop: GRACE_FOR_SERVERS,
        bystander: Bystander::KeepsCalling,
        ..stopped(
            "refuses-ipv6",
            "the same on ::1",
            &["serve", "close-listener", "[::1]:0"],
            Expected {
                remedy: &["preStop"],
                ..suffered("refused-connections", "refused", &["refused"])
            },
        )
    },
    Story {
        bystander: Bystander::Client {
            verb: "connect",
            count: 3,
        },
        ..stopped(
            "resets-its-backlog",
            "it exits 0 with three connections that it never accepted",
            &["serve", "accept-never", ANY],
            suffered("reset-connections", "reset", &["3", "reset"]),
        )
    },
    Story {
        bystander: Bystander::Client {
            verb: "request",
            count: 2,
        },
        ..stopped(
            "resets-unread-requests",
            "it exits 0 with two requests that it never read",
            &["serve", "read-never", ANY],
            suffered("reset-connections", "reset", &["2", "reset"]),
        )
    },
    Story {
        bystander: Bystander::Client {
            verb: "request",
            count: 2,
        },
        ..stopped(
            "cuts-requests",
            "it exits 0 with two requests read and not answered: clients see only a FIN",
            &["serve", "answer-never", ANY],
            suffered("cut-connections", "cut", &["2", "cut"]),
        )
    },
    Story {
        bystander: Bystander::Client {
            verb: "request",
            count: 1,
        },
        ..stopped(
            "cut-by-the-kill",
            "a request has been read when the grace ends: SIGKILL cuts it with a FIN",
            &["serve", "answer-never-slowly", ANY],
            Expected {
                traffic: "cut",
                ..unclean(End::Signal(SIGKILL), "killed-after-grace", &["SIGTERM", "SIGKILL"])
            },
        )
    },
    Story {
        bystander: Bystander::Client {
            verb: "keep-alive",
            count: 2,
        },
        ..stopped(
            "idle-keep-alive",
            "it exits 0 with two answered, idle connections: nothing is lost",
            &["serve", "keep-alive", ANY],
            CLEAN,
        )
    },
    Story {
        stop: GRACE_FOR_SERVERS,
        bystander: Bystander::Client {
            verb: "request",
            count: 2,
        },
        ..stopped(
            "drains",
            "it answers the two requests in hand after SIGTERM, then exits 0",
            &["serve", "drain", ANY],
            CLEAN,
        )
    },
];

#[cfg(test)]
mod tests {
    use super::STORIES;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = STORIES.iter().map(|s| s.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STORIES.len());
    }

    #[test]
    fn headline_follows_from_exit_and_traffic() {
        for story in STORIES {
            let expected = &story.expected;
            let headline = match (expected.exit, expected.traffic) {
                ("clean", "quiet") => "clean",
                ("clean", "refused") => "refused-connections",
                ("clean", "reset") => "reset-connections",
                ("clean", "cut") => "cut-connections",
                (exit, _) => exit,
            };
            assert_eq!(expected.verdict, headline, "{}", story.name);
        }
    }

    /// Every `exit` that can occur without Kubernetes, but for unknown.
    #[test]
    fn every_exit_has_a_story() {
        let exits = [
            "clean",
            "default-action",
            "nonzero-exit",
            "ignored-stop-signal",
            "blocked-stop-signal",
            "killed-after-grace",
            "force-killed",
            "oom-killed",
            "oom-child",
            "killed-by-other",
            "crashed",
        ];
        for exit in exits {
            assert!(STORIES.iter().any(|s| s.expected.exit == exit), "no story ends {exit}");
        }
    }
}
