//! Networks that are less plain than a loopback's one address.

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
        "it closes its listener on [::] at SIGTERM; a client of 127.0.0.1 keeps connecting",
        &["serve", "close-listener", BOTH],
        Expected {
            remedy: &["preStop"],
            ..suffered("refused-connections", "refused", &["refused"])
        },
    )
};

const REJECTS: Story = Story {
    network_namespace: true,
    stop: GRACE_FOR_SERVERS,
    bystander: Bystander::Rejected { count: 2 },
    ..stopped(
        "rejected-on-the-way",
        "it goes on accepting after SIGTERM, but its network rejects two clients by ICMP",
        &["serve", "accept-on", ANY],
        Expected {
            remedy: &["missing route"],
            ..suffered(
                "proxy-rejected",
                "proxy-rejected",
                &["2 connections were rejected on the way"],
            )
        },
    )
};

pub(super) static STORIES: &[Story] = &[
    by_ipv4(REFUSES),
    called_at(
        IpAddr::V6(Ipv6Addr::LOCALHOST),
        Story {
            name: "refuses-dual-stack-ipv6",
            what: "the same with a client of ::1",
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
            "it exits 0 with three connections of 127.0.0.1's on [::] that it never accepted",
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
            "it exits 0 with two requests of 127.0.0.1's on [::] read and not answered",
            &["serve", "answer-never", BOTH],
            suffered("cut-connections", "cut", &["2", "cut"]),
        )
    }),
    by_ipv4(loaded(
        "load-dual-stack-probed",
        "it closes its listener on [::] under load from 127.0.0.1, and a kubelet's probes are refused too",
        &["http", "close-and-drain", BOTH],
        STALE_AND_PROBED,
        REFUSED,
    )),
    Story {
        network_namespace: true,
        ..loaded(
            "load-in-an-ipv6-network-of-its-own",
            "it exits 0 at SIGTERM under load, in a network namespace behind veth with IPv6 alone, probed by a kubelet",
            &["http", "abrupt", ANY_IPV6, "--in-hand"],
            STALE_AND_PROBED,
            CUT,
        )
    },
    REJECTS,
    Story {
        name: "rejected-on-the-way-ipv6",
        what: "the same with ICMPv6",
        program: Program::Victim(&["serve", "accept-on", ANY_IPV6]),
        ..REJECTS
    },
];
