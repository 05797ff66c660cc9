//! What clients saw.

use super::*;

pub(super) static STORIES: &[Story] = &[
    Story {
        stop: GRACE_FOR_SERVERS,
        bystander: Bystander::KeepsCalling,
        ..stopped(
            "refuses",
            "the server closes the listener at SIGTERM and exits 2 s later; a client keeps connecting",
            &["serve", "close-listener", ANY],
            Expected {
                remedy: &["keep accepting"],
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
                remedy: &["keep accepting"],
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
            "the server exits with 0 and three connections that it never accepted",
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
            "the server exits with 0 and two requests that it never read",
            &["serve", "read-never", ANY],
            suffered("reset-connections", "reset", &["2", "reset"]),
        )
    },
    Story {
        bystander: Bystander::Client { verb: "stall", count: 2 },
        ..stopped(
            "aborts-downloads",
            "the server aborts two answers of which it had not sent all, then exits with 0: clients see an RST",
            &["serve", "abort", ANY],
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
            "the server exits with 0 and two requests read but not answered: clients see only a FIN",
            &["serve", "answer-never", ANY],
            suffered("cut-connections", "cut", &["2", "dropped at exit"]),
        )
    },
    Story {
        bystander: Bystander::Client {
            verb: "request",
            count: 2,
        },
        ..stopped(
            "hangs-up-on-requests",
            "the server closes two connections without answering their requests, then exits with 0: clients see only a FIN",
            &["serve", "hang-up", ANY],
            suffered("cut-connections", "cut", &["2", "dropped at exit"]),
        )
    },
    Story {
        bystander: Bystander::Client {
            verb: "request",
            count: 1,
        },
        ..stopped(
            "cut-by-the-kill",
            "a request takes longer than the grace period: SIGKILL closes the connection with a FIN, without an answer",
            &["serve", "drain-slowly", ANY],
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
            "the server exits with 0 and two answered, idle connections: the kernel cannot tell them from a stream that waits",
            &["serve", "keep-alive", ANY],
            Expected {
                remedy: &["clients"],
                ..suffered(
                    "undecided-connections",
                    "undecided",
                    &["2 connections may have had a request under way"],
                )
            },
        )
    },
    Story {
        bystander: Bystander::Client {
            verb: "connect",
            count: 3,
        },
        ..stopped(
            "unused-connections",
            "the server exits with 0 and three connections that neither side has used: nothing is lost",
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
            "the server answers two open requests after SIGTERM, then exits with 0",
            &["serve", "drain", ANY],
            CLEAN,
        )
    },
    Story {
        program: Program::Shell("$VICTIM serve give-up 127.0.0.1:0; exit $?"),
        ..left(
            "cut-below-a-shell",
            "a server below a shell exits by itself with two requests read but not answered, and the shell after it",
            Expected {
                traffic: "cut",
                ..unasked(End::Code(7), "crash", "nonzero-exit", &["2", "dropped at exit"])
            },
        )
    },
    Story {
        program: Program::Shell("$VICTIM serve give-up 127.0.0.1:0; sleep 0.3"),
        ..left(
            "cut-below-a-shell-that-cleans-up",
            "the same, and the shell exits with 0 a little later",
            Expected {
                traffic: "cut",
                ..unasked(
                    End::Code(0),
                    "crash",
                    "nonzero-exit",
                    &["exited with code 7", "2", "dropped at exit"],
                )
            },
        )
    },
];

/// Nobody stops the server; two clients have requests under way.
const fn left(name: &'static str, what: &'static str, expected: Expected) -> Story {
    Story {
        stop: Stop::Wait,
        bystander: Bystander::Client {
            verb: "request",
            count: 2,
        },
        ..stopped(name, what, &[], expected)
    }
}
