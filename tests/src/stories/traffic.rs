//! What its clients saw.

use super::*;

pub(super) static STORIES: &[Story] = &[
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
            count: 2,
        },
        ..stopped(
            "hangs-up-on-requests",
            "it closes two connections whose requests it had read, then exits 0: clients see only a FIN",
            &["serve", "hang-up", ANY],
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
