//! Three servers under load, each going its own way: what the clients' own log says must be what the agent counted.

use super::*;

/// Clients go on for a second after the stop signal.
const STALE: Bystander = Bystander::Load {
    keep_alive: false,
    goes_on_ms: 1000,
    probed: false,
};
const STALE_AND_KEPT: Bystander = Bystander::Load {
    keep_alive: true,
    goes_on_ms: 1000,
    probed: false,
};
pub(super) const STALE_AND_PROBED: Bystander = Bystander::Load {
    keep_alive: false,
    goes_on_ms: 1000,
    probed: true,
};

pub(super) const fn loaded(
    name: &'static str,
    what: &'static str,
    program: &'static [&'static str],
    bystander: Bystander,
    expected: Expected,
) -> Story {
    Story {
        stop: GRACE_FOR_SERVERS,
        bystander,
        ..stopped(name, what, program, expected)
    }
}

pub(super) const CUT: Expected = suffered("cut-connections", "cut", &["cut", "refused"]);
pub(super) const REFUSED: Expected = suffered("refused-connections", "refused", &["refused"]);

pub(super) static STORIES: &[Story] = &[
    loaded(
        "load-abrupt",
        "under load it exits 0 at SIGTERM: requests in hand are cut, those who come later are refused",
        &["http", "abrupt", ANY, "--in-hand"],
        STALE,
        CUT,
    ),
    loaded(
        "load-abrupt-kept",
        "the same, with connections that are kept: idle ones lose nothing",
        &["http", "abrupt", ANY, "--in-hand"],
        STALE_AND_KEPT,
        CUT,
    ),
    loaded(
        "load-abrupt-ipv6",
        "the same on ::1",
        &["http", "abrupt", "[::1]:0", "--in-hand"],
        STALE,
        CUT,
    ),
    loaded(
        "load-close-and-drain",
        "under load it closes its listener at SIGTERM and answers what it has",
        &["http", "close-and-drain", ANY],
        STALE,
        REFUSED,
    ),
    loaded(
        "load-close-and-drain-kept",
        "the same, with connections that are kept",
        &["http", "close-and-drain", ANY],
        STALE_AND_KEPT,
        REFUSED,
    ),
    loaded(
        "load-accept-and-drain",
        "under load it goes on accepting for longer than clients come: nothing is lost",
        &["http", "accept-and-drain", ANY, "--drain-ms=2000"],
        STALE,
        CLEAN,
    ),
    loaded(
        "load-accept-and-drain-kept",
        "the same, with connections that are kept",
        &["http", "accept-and-drain", ANY, "--drain-ms=2000"],
        STALE_AND_KEPT,
        CLEAN,
    ),
    loaded(
        "load-probed",
        "it closes its listener under load, and a kubelet's probes are refused too: they are no clients",
        &["http", "close-and-drain", ANY],
        STALE_AND_PROBED,
        REFUSED,
    ),
    Story {
        network_namespace: true,
        ..loaded(
            "load-in-a-network-of-its-own",
            "it exits 0 at SIGTERM under load, in a network namespace behind veth, probed by a kubelet",
            &["http", "abrupt", ANY, "--in-hand"],
            STALE_AND_PROBED,
            CUT,
        )
    },
];
