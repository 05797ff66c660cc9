//! Networks other than one address of the loopback.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::load::{CUT, REFUSED, STALE_AND_PROBED, loaded};
use super::*;

/// Every address of both families, as Go's servers do: an IPv4 client's is an IPv6 socket there.
const BOTH: &str = "[::]:0";

const fn called_at(ip: IpAddr, story: Story) -> Story {
    Story {
        called_at: Some(ip),
        ..story
    }
}

const fn by_ipv4(story: Story) -> Story {
    called_at(IpAddr::V4(Ipv4Addr::LOCALHOST), story)
}

/// As `refuses`.
const REFUSES: Story = Story {
    stop: GRACE_FOR_SERVERS,
    bystander: Bystander::KeepsCalling,
    ..stopped(
        "refuses-dual-stack",
        "the server closes the listener on [::] at SIGTERM; a client keeps connecting from 127.0.0.1",
        &["serve", "close-listener", BOTH],
        Expected {
            remedy: &["keep accepting"],
            ..suffered("refused-connections", "refused", &["refused"])
        },
    )
};

const REJECTS: Story = Story {
    network_namespace: true,
    bystander: Bystander::Rejected { count: 2 },
    ..stopped(
        "rejected-on-the-way",
        "the server keeps accepting after SIGTERM, but the network rejects two connections by ICMP",
        &["serve", "accept-on-until-over", ANY],
        Expected {
            remedy: &["missing route"],
            ..suffered(
                "proxy-rejected",
                "proxy-rejected",
                &["2 connections were rejected by the network"],
            )
        },
    )
};

/// Three clients of a network that is gone at the stop.
const fn unheard(
    name: &'static str,
    what: &'static str,
    verb: &'static str,
    loss: Loss,
    program: &'static [&'static str],
    expected: Expected,
) -> Story {
    Story {
        network_namespace: true,
        bystander: Bystander::Unheard { verb, count: 3, loss },
        ..stopped(name, what, program, expected)
    }
}

const NEVER_ACKNOWLEDGED: Expected = suffered(
    "undecided-connections",
    "undecided",
    &["the clients of 3 connections never acknowledged the close"],
);

pub(super) static STORIES: &[Story] = &[
    by_ipv4(REFUSES),
    called_at(
        IpAddr::V6(Ipv6Addr::LOCALHOST),
        Story {
            name: "refuses-dual-stack-ipv6",
            what: "the same with a client on ::1",
            ..REFUSES
        },
    ),
    by_ipv4(Story {
        bystander: Bystander::Client {
            verb: "connect",
            count: 3,
        },
        ..stopped(
            "resets-its-backlog-dual-stack",
            "the server exits with 0 and three connections from 127.0.0.1 on [::] that it never accepted",
            &["serve", "accept-never", BOTH],
            suffered("reset-connections", "reset", &["3", "reset"]),
        )
    }),
    by_ipv4(Story {
        bystander: Bystander::Client {
            verb: "request",
            count: 2,
        },
        ..stopped(
            "cuts-requests-dual-stack",
            "the server exits with 0 and two requests from 127.0.0.1 on [::] read but not answered",
            &["serve", "answer-never", BOTH],
            suffered("cut-connections", "cut", &["2", "dropped at exit"]),
        )
    }),
    by_ipv4(loaded(
        "load-dual-stack-probed",
        "the server closes the listener on [::] under load from 127.0.0.1; kubelet probes are refused too",
        &["http", "close-and-drain", BOTH, "--stay-ready"],
        STALE_AND_PROBED,
        REFUSED,
    )),
    Story {
        network_namespace: true,
        ..loaded(
            "load-in-an-ipv6-network-of-its-own",
            "the server exits with 0 at SIGTERM under load, in a network namespace behind veth with IPv6 only, with kubelet probes",
            &["http", "abrupt", ANY_IPV6, "--in-hand", "--stay-ready"],
            STALE_AND_PROBED,
            CUT,
        )
    },
    unheard(
        "never-acknowledged",
        "the route to the clients goes at the stop: three connections without a request end with a FIN that never arrives, and wait on",
        "connect",
        Loss::Route,
        &["serve", "keep-alive", ANY],
        NEVER_ACKNOWLEDGED,
    ),
    unheard(
        "never-acknowledged-answers",
        "the route to the clients goes at the stop: three requests are answered, the connections closed by shutdown(2), and the clients wait on",
        "request",
        Loss::Route,
        &["serve", "answer-last", ANY],
        NEVER_ACKNOWLEDGED,
    ),
    unheard(
        "never-acknowledged-link",
        "the same where the link to the clients drops all",
        "request",
        Loss::Link,
        &["serve", "answer-last", ANY],
        NEVER_ACKNOWLEDGED,
    ),
    unheard(
        "never-acknowledged-requests",
        "the route to the clients goes at the stop: the server exits with three requests that it has read, and the clients wait on",
        "request",
        Loss::Route,
        &["serve", "answer-never", ANY],
        // What was read and never answered is lost, whatever arrives.
        suffered(
            "cut-connections",
            "cut",
            &["3", "dropped at exit", "with an unanswered request"],
        ),
    ),
    REJECTS,
    Story {
        name: "rejected-on-the-way-ipv6",
        what: "the same with ICMPv6",
        program: Program::Victim(&["serve", "accept-on-until-over", ANY_IPV6]),
        ..REJECTS
    },
];
