//! All stories. A new kind of termination is an entry in one of the lists below, a behaviour in `victim`, and a rule in the
//! agent's verdict room.

mod dropped;
mod ends;
mod followed;
mod kills;
mod load;
mod networks;
mod traffic;
mod units;

use std::time::Duration;

use nix::libc::{SIGABRT, SIGKILL, SIGQUIT, SIGSEGV, SIGSTOP, SIGTERM};

use crate::runtime::{Kill, Others, Stop};
use crate::story::{Bystander, End, Expected, Kind, Loss, Program, Story, When, Whence, by_signal, stopped};
use crate::victim::SIGRTMIN_3;

/// The stories of the demo, in the order of their output, played on every kernel of `docs/kernels.md`.
pub fn stories() -> impl Iterator<Item = &'static Story> {
    [
        ends::STORIES,
        dropped::STORIES,
        kills::STORIES,
        traffic::STORIES,
        load::STORIES,
    ]
    .into_iter()
    .flatten()
}

/// With those that only the tests of the machine at hand play: they rest on records that the demo's have shown on every kernel.
pub fn all() -> impl Iterator<Item = &'static Story> {
    stories()
        .chain(networks::STORIES)
        .chain(units::STORIES)
        .chain(followed::STORIES)
}

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

/// An unclean termination, requested by the runtime, without traffic.
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

/// A termination without a stop request.
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
/// In a network namespace of its own, the address there.
pub(crate) const ANY: &str = "127.0.0.1:0";
pub(crate) const ANY_IPV6: &str = "[::1]:0";
const GRACE_FOR_SERVERS: Stop = Stop::Signal {
    signal: SIGTERM,
    grace: Duration::from_secs(4),
    frozen: false,
    kill: Kill::Main,
    others: Others::Nothing,
};

#[cfg(test)]
mod tests {
    use super::{all, stories};

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = all().map(|s| s.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
    }

    #[test]
    fn headline_follows_from_exit_and_traffic() {
        for story in all() {
            let expected = &story.expected;
            let headline = match (expected.exit, expected.traffic) {
                ("clean", "quiet") => "clean",
                ("clean", "undecided") => "undecided-connections",
                ("clean", "refused") => "refused-connections",
                ("clean", "reset") => "reset-connections",
                ("clean", "cut") => "cut-connections",
                ("clean", "proxy-rejected") => "proxy-rejected",
                ("clean", "unknown") => "clean-exit",
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
            assert!(stories().any(|s| s.expected.exit == exit), "no story ends {exit}");
        }
    }
}
