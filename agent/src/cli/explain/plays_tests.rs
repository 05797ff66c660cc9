//! What remedies lead to: two recordings of real processes each, of one that got the remedy, and of one that does what it asks for. Judged
//! again here, written to docs/verdicts.md.

use std::fmt::Write as _;
use std::path::Path;

use epitaph_core::correlate::{Correlator, Limits};
use epitaph_core::decode::decode;
use epitaph_core::report::{Report, Termination};
use epitaph_core::verdict::table::by_headline;

use crate::recording::Reader;

/// A remedy, and a process that does what it asks for.
struct Play {
    /// The recording with the remedy, of tests/corpus/stories.
    before: &'static str,
    /// The part of the remedy that is followed.
    part: &'static str,
    change: &'static str,
    after: &'static str,
}

const fn play(before: &'static str, part: &'static str, change: &'static str, after: &'static str) -> Play {
    Play {
        before,
        part,
        change,
        after,
    }
}

const HANDLER: &str = "the program has a SIGTERM handler that exits with 0";
const DRAIN: &str = "the server accepts until its clients have stopped connecting, and answers every request";

const EXEC: &str = "the shell starts the program with `exec`";
const BELOW: &str = "the program below the init has a handler";
const ASKED: &str = "the stop command of the container runtime is used";
const ACCEPT_AND_DRAIN: &str = "load-accept-and-drain";

/// The worst first, as in the table of the verdicts.
const PLAYS: &[Play] = &[
    play("killed-by-a-neighbour", "use the stop command", ASKED, "handler-exits-0"),
    play("killed-by-a-stranger", "use the stop command", ASKED, "handler-exits-0"),
    play("killed-within-the-grace", "use the stop command", ASKED, "handler-exits-0"),
    play(
        "bash-waits-in-the-foreground",
        "start the program with `exec`",
        EXEC,
        "handler-exits-0",
    ),
    play(
        "force-killed",
        "with a grace period",
        "a stop signal comes first",
        "handler-exits-0",
    ),
    play(
        "force-killed-cgroup-kill",
        "with a grace period",
        "a stop signal comes first",
        "handler-exits-0",
    ),
    play(
        "blocked",
        "unblock the signal",
        "the signal is not blocked, and its handler exits with 0",
        "handler-exits-0",
    ),
    play(
        "tini-blocked",
        "read it with sigwait",
        "the program reads the signal with sigwait",
        "sigwait-reader",
    ),
    play(
        "frozen",
        "thaw the cgroup before the stop",
        "the cgroup runs",
        "handler-exits-0",
    ),
    play(
        "stopped-by-a-debugger",
        "continue the process (SIGCONT) before the stop",
        "the process runs",
        "handler-exits-0",
    ),
    play("ignored-without-handler", "handle SIGTERM in", HANDLER, "handler-exits-0"),
    play("ignored-by-choice", "handle SIGTERM in", HANDLER, "handler-exits-0"),
    play("escape-in-its-name", "handle SIGTERM in", HANDLER, "handler-exits-0"),
    play("shell-wrapper", "start the program with `exec`", EXEC, "handler-exits-0"),
    play(
        "shell-wrapper-foreground",
        "start the program with `exec`",
        EXEC,
        "handler-exits-0",
    ),
    play(
        "node-without-handler",
        "run a small init such as tini",
        "tini is PID 1: the process ends at once, and work in flight is lost",
        "node-below-tini",
    ),
    play("tini-ignored", "handle SIGTERM in", BELOW, "tini-exits-143"),
    play("catatonit-ignored", "handle SIGTERM in", BELOW, "tini-exits-143"),
    play("s6-svscan-ignored", "handle SIGTERM in", BELOW, "tini-exits-143"),
    play("supervisord-held-up", "handle SIGTERM in", BELOW, "tini-exits-143"),
    play("default-action", "install a handler", HANDLER, "handler-exits-0"),
    play("ruby-without-handler", "handle SIGTERM in", HANDLER, "handler-exits-0"),
    play("node-below-tini", "install a SIGTERM handler", BELOW, "tini-exits-143"),
    play("tini-default-action", "install a SIGTERM handler", BELOW, "tini-exits-143"),
    play("tini-shell", "start the program with `exec`", EXEC, "tini-exits-143"),
    play("dumb-init-shell", "start the program with `exec`", EXEC, "tini-exits-143"),
    play(
        "handler-exits-3",
        "exit with 0 or with 128",
        "the program exits with 0",
        "handler-exits-0",
    ),
    play(
        "handler-exits-3",
        "exit with 0 or with 128",
        "the program exits with 143",
        "handler-exits-143",
    ),
    play(
        "leader-exits-first-then-7",
        "exit with 0 or with 128",
        "the program exits with 0",
        "leader-exits-first",
    ),
    play("load-abrupt", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    play("load-abrupt-kept", "keep accepting", DRAIN, "load-accept-and-drain-kept"),
    play("load-abrupt-ipv6", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    play("load-in-a-network-of-its-own", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    play(
        "cuts-requests",
        "finish the requests in flight",
        "the server answers the open requests before its exit",
        "drains",
    ),
    play(
        "hangs-up-on-requests",
        "finish the requests in flight",
        "the server answers the open requests before its exit",
        "drains",
    ),
    play(
        "resets-its-backlog",
        "accept and serve the queued connections",
        DRAIN,
        ACCEPT_AND_DRAIN,
    ),
    play(
        "resets-unread-requests",
        "read all data",
        "the server reads and answers the requests before its exit",
        "drains",
    ),
    play("load-close-and-drain", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    play(
        "load-close-and-drain-kept",
        "keep accepting",
        DRAIN,
        "load-accept-and-drain-kept",
    ),
    play("load-probed", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    play("refuses", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    play("refuses-ipv6", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    play(
        "slow-handler",
        "raise the grace period",
        "the grace period is longer than the shutdown",
        "slow-handler-with-time",
    ),
    play(
        "slow-handler-cgroup-kill",
        "raise the grace period",
        "the grace period is longer than the shutdown",
        "slow-handler-with-time",
    ),
    play(
        "oom",
        "memory limit",
        "the limit is above what the program takes",
        "memory-enough",
    ),
    play(
        "oom-child",
        "memory limit",
        "the limit is above what the program takes",
        "memory-enough",
    ),
    play(
        "oom-child-hidden",
        "memory limit",
        "the limit is above what the program takes",
        "memory-enough",
    ),
    play("unit-default-action", "install a handler", HANDLER, "unit-handler"),
    play(
        "trap-forgets-its-server",
        "start the program with `exec`",
        EXEC,
        "handler-exits-0",
    ),
    play(
        "leaves-its-server-behind",
        "start it in the foreground",
        "the service is the first process",
        "handler-exits-0",
    ),
    play(
        "aborts-downloads",
        "finish the requests in flight",
        "the server answers the open requests before its exit",
        "drains",
    ),
    play(
        "cut-below-a-shell-that-cleans-up",
        "finish the requests in flight",
        "the server answers the open requests before its exit",
        "drains",
    ),
    play(
        "cut-below-a-shell",
        "finish the requests in flight",
        "the server answers the open requests before its exit",
        "drains",
    ),
];

const OWN_FAULT: &str = "the remedy is in the program, and its log or core dump has the reason";
const NO_RECORDING: &str = "no story plays the program with a larger limit";

/// Unclean stories whose remedy no story follows, each with the reason.
const NOT_PLAYED: &[(&str, &str)] = &[
    ("abort", OWN_FAULT),
    ("abort-as-pid-1", OWN_FAULT),
    ("abort-with-core", OWN_FAULT),
    ("segmentation-fault", OWN_FAULT),
    ("exits-1-by-itself", OWN_FAULT),
    ("exits-1-beside-the-host", OWN_FAULT),
    ("cut-by-the-kill", NO_RECORDING),
    ("tini-slow", NO_RECORDING),
];

fn judged(name: &str) -> Termination {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/corpus/stories/{name}.epitaph"));
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut core = Correlator::new(Limits::default());
    let inputs = Reader::new(std::io::BufReader::new(file), decode).unwrap();
    let reports = inputs
        .flat_map(|(now, input)| core.handle(now, input).reports)
        .collect::<Vec<_>>();
    let mut terminations = reports.into_iter().filter_map(|report| match report {
        Report::Terminated(termination) => Some(*termination),
        _ => None,
    });
    let one = terminations.next().unwrap_or_else(|| panic!("{name} has no termination"));
    assert!(terminations.next().is_none(), "{name} has several terminations");
    one
}

#[test]
fn a_process_that_does_what_a_remedy_asks_for_has_a_better_verdict() {
    let mut wrong = Vec::new();
    for play in PLAYS {
        let (before, after) = (judged(play.before).verdict, judged(play.after).verdict);
        let remedy = before.remedy.unwrap_or_default();
        if !remedy.contains(play.part) {
            wrong.push(format!("{}: its remedy has no `{}`: {remedy}", play.before, play.part));
        }
        let rank = |headline: &str| by_headline(headline).map(|row| (row.unclean, row.precedence));
        if rank(after.headline) >= rank(before.headline) {
            wrong.push(format!(
                "{} is {}, and {} is {}",
                play.before, before.headline, play.after, after.headline
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A new story has a play, or a reason why it has none.
#[test]
fn every_unclean_story_has_a_play_or_a_reason() {
    let stories = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/stories")).unwrap();
    let mut missing = Vec::new();
    for file in stories {
        let file = file.unwrap().path();
        let Some(name) = file.file_name().unwrap().to_str().unwrap().strip_suffix(".epitaph") else {
            continue;
        };
        let is_listed = PLAYS.iter().any(|play| play.before == name) || NOT_PLAYED.iter().any(|(story, _)| *story == name);
        let verdict = judged(name).verdict;
        if verdict.unclean && !is_listed {
            missing.push(format!(
                "{name}: {}: {}",
                verdict.headline,
                verdict.remedy.unwrap_or_default()
            ));
        }
    }
    missing.sort();
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

/// A section of docs/verdicts.md.
pub fn markdown() -> String {
    let mut out = String::from(
        "\n## What remedies lead to\n\n\
         Recordings of real processes, in tests/corpus/stories: the remedy that one of them got, and the verdict of another one that does what the\n\
         remedy asks for, not always of the same program. The numbers in a remedy are measured.\n\n\
         | verdict | remedy | a process that does so | its verdict |\n|---|---|---|---|\n",
    );
    for play in PLAYS {
        let (before, after) = (judged(play.before).verdict, judged(play.after).verdict);
        let _ = writeln!(
            out,
            "| [`{0}`](#{0}) (`{1}`) | {2} | {3} | [`{4}`](#{4}) (`{5}`) |",
            before.headline,
            play.before,
            before.remedy.unwrap_or_default(),
            play.change,
            after.headline,
            play.after
        );
    }
    out.push_str("\nNot followed by a story:\n\n");
    for (reason, names) in reasons() {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(out, "- {}: {reason}.", names.join(", "));
    }
    out
}

fn reasons() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, reason) in NOT_PLAYED {
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    reasons
}
