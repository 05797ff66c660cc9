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
    program: Program,
    then: Then,
}

/// Which program the second recording is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    /// The same, with the change only.
    Same,
    Another,
}

/// What following the remedy gives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// A better verdict.
    Better,
    /// The same failure, which the exit code now shows to the container runtime and systemd.
    Shown,
}

const fn play(before: &'static str, part: &'static str, change: &'static str, after: &'static str) -> Play {
    Play {
        before,
        part,
        change,
        after,
        program: Program::Same,
        then: Then::Better,
    }
}

/// The second recording is of another program, which does what the remedy asks for.
const fn other(before: &'static str, part: &'static str, change: &'static str, after: &'static str) -> Play {
    Play {
        program: Program::Another,
        ..play(before, part, change, after)
    }
}

/// See [`Then::Shown`].
const fn shown(before: &'static str, part: &'static str, change: &'static str, after: &'static str) -> Play {
    Play {
        then: Then::Shown,
        ..play(before, part, change, after)
    }
}

const HANDLER: &str = "the program has a SIGTERM handler that exits with 0";
const DRAIN: &str = "the server accepts until its clients have stopped connecting, and answers every request";

const EXEC: &str = "the shell starts the program with `exec`";
const LONGER: &str = "the grace period is longer than the shutdown";
const BELOW: &str = "the program below the init has a handler";
const ASKED: &str = "the stop command of the container runtime is used";
const ACCEPT_AND_DRAIN: &str = "load-accept-and-drain";

/// The worst first, as in the table of the verdicts.
const PLAYS: &[Play] = &[
    play("killed-by-a-neighbour", "use the stop command", ASKED, "handler-exits-0"),
    play("killed-by-a-stranger", "use the stop command", ASKED, "handler-exits-0"),
    other("killed-within-the-grace", "use the stop command", ASKED, "handler-exits-0"),
    other(
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
    other(
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
    other("shell-wrapper", "start the program with `exec`", EXEC, "handler-exits-0"),
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
    other("catatonit-ignored", "handle SIGTERM in", BELOW, "tini-exits-143"),
    other("s6-svscan-ignored", "handle SIGTERM in", BELOW, "tini-exits-143"),
    other("supervisord-held-up", "handle SIGTERM in", BELOW, "tini-exits-143"),
    play("default-action", "install a handler", HANDLER, "handler-exits-0"),
    other("ruby-without-handler", "handle SIGTERM in", HANDLER, "handler-exits-0"),
    other("node-below-tini", "install a SIGTERM handler", BELOW, "tini-exits-143"),
    play("tini-default-action", "install a SIGTERM handler", BELOW, "tini-exits-143"),
    other("tini-shell", "start the program with `exec`", EXEC, "tini-exits-143"),
    other("dumb-init-shell", "start the program with `exec`", EXEC, "tini-exits-143"),
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
    other("load-abrupt-ipv6", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    other("load-in-a-network-of-its-own", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
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
    other(
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
    other("load-probed", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    other("refuses", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    other("refuses-ipv6", "keep accepting", DRAIN, ACCEPT_AND_DRAIN),
    other("slow-handler", "raise the grace period", LONGER, "slow-handler-with-time"),
    other(
        "slow-handler-cgroup-kill",
        "raise the grace period",
        LONGER,
        "slow-handler-with-time",
    ),
    play(
        "oom",
        "memory limit",
        "the limit is above what the program takes",
        "memory-enough",
    ),
    other(
        "oom-child",
        "memory limit",
        "the limit is above what the program takes",
        "memory-enough",
    ),
    other(
        "oom-child-hidden",
        "memory limit",
        "the limit is above what the program takes",
        "memory-enough",
    ),
    play("unit-default-action", "install a handler", HANDLER, "unit-handler"),
    other(
        "trap-forgets-its-server",
        "start the program with `exec`",
        EXEC,
        "handler-exits-0",
    ),
    other(
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
    other(
        "cut-below-a-shell-that-cleans-up",
        "finish the requests in flight",
        "the server answers the open requests before its exit",
        "drains",
    ),
    other(
        "cut-below-a-shell",
        "finish the requests in flight",
        "the server answers the open requests before its exit",
        "drains",
    ),
    other(
        "idle-keep-alive",
        "ends each connection with shutdown(2) before the exit",
        "the server ends its kept connections before its exit",
        "load-accept-and-drain-kept",
    ),
    shown(
        "oom-child-hidden",
        "exit with an error if such a process fails",
        "the first process exits with an error: the failure stays, and its exit code shows it",
        "oom-child",
    ),
    shown(
        "cut-below-a-shell-that-cleans-up",
        "in a shell: `exit $?`",
        "the shell ends with `exit $?`: the failure stays, and its exit code shows it",
        "cut-below-a-shell",
    ),
];

/// What a remedy for a node leads to, by the rows of docs/shutdowns.md: the command before, its verdict, the part of the remedy, and the
/// command that the remedy names, with its verdict.
const MEASURED: &[[&str; 5]] = &[
    [
        "shutdown -h now",
        "bypassed",
        "Use `systemctl poweroff`",
        "systemctl poweroff",
        "graceful",
    ],
    [
        "reboot -f",
        "unannounced",
        "reboot with `systemctl reboot`",
        "systemctl reboot",
        "graceful",
    ],
];

/// Played on a real cluster, by hand: the verdict before, the remedy, the verdict after, and the story with its file below tests/src/cluster.
const ON_THE_CLUSTER: &[[&str; 5]] = &[
    [
        "refused-connections",
        "the preStop sleep that the advice names: 25 s by kube-proxy's iptables mode, 19 s by nftables; clients lost 781 and 643 connections before, none after",
        "clean",
        "placed",
        "rollouts.rs",
    ],
    [
        "unprotected",
        "the drop-in of logind.conf that `epitaph doctor` names, then a restart of systemd-logind and the kubelet",
        "graceful",
        "drop-in",
        "node_shutdown/mod.rs",
    ],
    [
        "spoofed",
        "a restart of the kubelet after the spoofed signal: the next shutdown waits for the pods",
        "graceful",
        "spoofed",
        "node_shutdown/mod.rs",
    ],
];

const OWN_FAULT: &str = "the remedy is in the program, and its log or core dump has the reason";

const NO_RECORDING: &str = "no story plays the program with a larger limit";

/// Stories whose remedy no story follows, each with the reason.
const NOT_PLAYED: &[(&str, &str)] = &[
    ("abort", OWN_FAULT),
    ("abort-as-pid-1", OWN_FAULT),
    ("abort-with-core", OWN_FAULT),
    ("segmentation-fault", OWN_FAULT),
    ("exits-1-by-itself", OWN_FAULT),
    ("exits-1-beside-the-host", OWN_FAULT),
    (
        "never-acknowledged",
        "the remedy is on the way to the clients, and no story has one that can be mended",
    ),
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
        let (before, after) = (judged(play.before), judged(play.after));
        let code = |of: &Termination| of.facts.exit.map(|exit| exit.status.reported_code());
        let is_shown = code(&before) == Some(0) && code(&after) != Some(0);
        let (before, after) = (before.verdict, after.verdict);
        let remedy = before.remedy.unwrap_or_default();
        if !remedy.contains(play.part) {
            wrong.push(format!("{}: its remedy has no `{}`: {remedy}", play.before, play.part));
        }
        let rank = |headline: &str| by_headline(headline).map(|row| (row.unclean, row.precedence));
        let is_better = rank(after.headline) < rank(before.headline);
        let is_right = match play.then {
            Then::Better => is_better,
            Then::Shown => is_shown,
        };
        if !is_right {
            wrong.push(format!(
                "{} is {}, and {} is {}",
                play.before, before.headline, play.after, after.headline
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_command_that_a_remedy_of_a_node_names_was_measured() {
    let page = include_str!("../../../../docs/shutdowns.md");
    for [before, verdict, _, after, then] in MEASURED {
        for (command, verdict) in [(before, verdict), (after, then)] {
            let row = |line: &&str| line.starts_with(&format!("| `{command}` |")) && line.contains(&format!("| `{verdict}` |"));
            assert!(page.lines().any(|line| row(&line)), "{command}: {verdict}");
        }
    }
    for [_, verdict, part, ..] in MEASURED {
        let remedy = epitaph_core::verdict::node::table::by_headline(verdict).map(|row| row.remedy);
        assert!(remedy.is_some_and(|remedy| remedy.contains(part)), "{verdict}: {remedy:?}");
    }
    for [.., story, file] in ON_THE_CLUSTER {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/src/cluster").join(file);
        let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(source.contains(story), "{story} is not in {file}");
    }
}

/// A remedy in the words of its kind: without its numbers and the names of programs.
fn words(remedy: &str) -> String {
    let mut words = String::new();
    for (i, part) in remedy.split('`').enumerate() {
        words.push_str(if i % 2 == 0 { part } else { "…" });
    }
    let is_number = |word: &&str| word.chars().next().is_some_and(|first| first.is_ascii_digit());
    words
        .split_whitespace()
        .filter(|word| !is_number(word))
        .collect::<Vec<_>>()
        .join(" ")
}

/// By remedy: what one story is told is followed once, for whichever story.
#[test]
fn every_remedy_of_a_story_is_followed_or_has_a_reason() {
    let followed: std::collections::BTreeSet<String> = PLAYS
        .iter()
        .map(|play| words(&judged(play.before).verdict.remedy.unwrap_or_default()))
        .chain(
            NOT_PLAYED
                .iter()
                .map(|(name, _)| words(&judged(name).verdict.remedy.unwrap_or_default())),
        )
        .collect();
    let missing: Vec<String> = stories()
        .into_iter()
        .filter_map(|name| Some((judged(&name).verdict.remedy?, name)))
        .filter(|(remedy, _)| !followed.contains(&words(remedy)))
        .map(|(remedy, name)| format!("{name}: {remedy}"))
        .collect();
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

fn stories() -> Vec<String> {
    let stories = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/stories")).unwrap();
    let mut names: Vec<String> = stories
        .filter_map(|file| Some(file.unwrap().file_name().to_str()?.strip_suffix(".epitaph")?.to_owned()))
        .collect();
    names.sort();
    names
}

/// A new story has a play, or a reason why it has none.
#[test]
fn every_unclean_story_has_a_play_or_a_reason() {
    let mut missing = Vec::new();
    for name in stories() {
        let is_listed = PLAYS.iter().any(|play| play.before == name) || NOT_PLAYED.iter().any(|(story, _)| *story == name);
        let verdict = judged(&name).verdict;
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
         remedy asks for; of another program where the row says so. The numbers in a remedy are measured.\n\n\
         | verdict | remedy | a process that does so | its verdict |\n|---|---|---|---|\n",
    );
    for play in PLAYS {
        let (before, after) = (judged(play.before).verdict, judged(play.after).verdict);
        let _ = writeln!(
            out,
            "| [`{0}`](#{0}) (`{1}`) | {2} | {3}{6} | [`{4}`](#{4}) (`{5}`) |",
            before.headline,
            play.before,
            before.remedy.unwrap_or_default(),
            play.change,
            after.headline,
            play.after,
            match play.program {
                Program::Same => "",
                Program::Another => " (another program)",
            }
        );
    }
    out.push_str(
        "\nOf a node, by the commands of [shutdowns.md](shutdowns.md):\n\n\
         | verdict | remedy | the command that the remedy names | its verdict |\n|---|---|---|---|\n",
    );
    for [before, verdict, part, after, then] in MEASURED {
        let _ = writeln!(out, "| `{verdict}` (`{before}`) | {part} | `{after}` | `{then}` |");
    }
    out.push_str(
        "\nPlayed on a real cluster, by hand (`cargo xtask cluster test`):\n\n\
         | verdict | what was followed | then | story |\n|---|---|---|---|\n",
    );
    for [verdict, what, then, story, _] in ON_THE_CLUSTER {
        let _ = writeln!(out, "| `{verdict}` | {what} | `{then}` | `{story}` |");
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
