//! Three servers under load, each shutting down in its own way: the agent must count what the clients logged.

use super::*;

/// Clients go on for a second after the stop signal. A probe of which the server has the connection by then is answered as before
/// (`--stay-ready`).
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

pub(super) const CUT: Expected = suffered("cut-connections", "cut", &["dropped at exit", "refused"]);
pub(super) const REFUSED: Expected = suffered("refused-connections", "refused", &["refused"]);

pub(super) static STORIES: &[Story] = &[
    loaded(
        "load-abrupt",
        "under load the server exits with 0 at SIGTERM: open connections are dropped, later ones are refused",
        &["http", "abrupt", ANY, "--in-hand"],
        STALE,
        CUT,
    ),
    loaded(
        "load-abrupt-kept",
        "the same with keep-alive connections: idle connections lose nothing",
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
        "under load the server closes the listener at SIGTERM and answers open requests",
        &["http", "close-and-drain", ANY],
        STALE,
        REFUSED,
    ),
    loaded(
        "load-close-and-drain-kept",
        "the same with keep-alive connections",
        &["http", "close-and-drain", ANY],
        STALE_AND_KEPT,
        REFUSED,
    ),
    loaded(
        "load-accept-and-drain",
        "under load the server keeps accepting until clients stop connecting: nothing is lost",
        &["http", "accept-and-drain", ANY, "--drain-ms=2000", "--until-over"],
        STALE,
        CLEAN,
    ),
    loaded(
        "load-accept-and-drain-kept",
        "the same with keep-alive connections",
        &["http", "accept-and-drain", ANY, "--drain-ms=2000", "--until-over"],
        STALE_AND_KEPT,
        CLEAN,
    ),
    loaded(
        "load-probed",
        "the server closes the listener under load; refused kubelet probes are not counted as client connections",
        &["http", "close-and-drain", ANY, "--stay-ready"],
        STALE_AND_PROBED,
        REFUSED,
    ),
    Story {
        network_namespace: true,
        ..loaded(
            "load-in-a-network-of-its-own",
            "the server exits with 0 at SIGTERM under load, in a network namespace behind veth, with kubelet probes",
            &["http", "abrupt", ANY, "--in-hand", "--stay-ready"],
            STALE_AND_PROBED,
            CUT,
        )
    },
];
