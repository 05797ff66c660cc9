//! What each rule of the verdict rests on. Of every termination of the corpus, each kind of record is taken for lost in its whole life, and a gap is
//! put into each claim: the judgement is unknown, or the hole cannot change what the rule finds, for a reason that [`STANDS`] has. A new rule
//! without an entry fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::sync::Mutex;

use epitaph::recording::Reader;
use epitaph_core::correlate::{Correlator, Limits};
use epitaph_core::decode::decode;
use epitaph_core::event::Kind;
use epitaph_core::ledger::{Claim, Hole, Origin};
use epitaph_core::report::{Report, Termination};
use epitaph_core::verdict::judge::rules::deciding;
use epitaph_core::verdict::{Case, Exit, judge};

use super::{ROOMS, corpus, in_parallel, stems};

const KINDS: [Kind; 6] = [
    Kind::SignalGenerate,
    Kind::SignalDeliver,
    Kind::ProcessExec,
    Kind::ProcessExit,
    Kind::OomVictim,
    Kind::Tcp,
];
const CLAIMS: [Claim; 5] = [Claim::Main, Claim::Others, Claim::NoStop, Claim::FirstStop, Claim::WhichMain];

/// Rules whose findings stand over these holes in some termination, and why.
struct Stands {
    rules: &'static [&'static str],
    over: &'static [&'static str],
    why: &'static str,
}

static STANDS: [Stands; 18] = [
    Stands {
        rules: &[
            "A fault, an abort or a resource limit ended the process",
            "Exit with an error, after the OOM killer chose another process of the container or unit",
            "SIGKILL from the process itself, or from the kernel for a resource limit",
            "The OOM killer chose another process of the container or unit",
            "The OOM killer chose the process, and no other sender's SIGKILL came first",
        ],
        over: &[
            "OomVictim",
            "ProcessExec",
            "ProcessExit",
            "SignalDeliver",
            "SignalGenerate",
            "Tcp",
            "gap in FirstStop",
            "gap in Main",
            "gap in NoStop",
            "gap in Others",
        ],
        why: "The kernel's own record proves the end: the fault, or the victim of an OOM kill.",
    },
    Stands {
        rules: &[
            "A signal from another process ended the process",
            "The stop signal ended the process, which has no handler",
            "Exit, just after a program with clients below the main process had failed",
            "SIGKILL from a daemon that kills before memory has run out",
            "SIGKILL from another process",
        ],
        over: &[
            "OomVictim",
            "ProcessExec",
            "ProcessExit",
            "SignalDeliver",
            "Tcp",
            "gap in FirstStop",
            "gap in NoStop",
            "gap in Others",
        ],
        why: "The signal that ended the process was seen, and its sender; what others did changes neither.",
    },
    Stands {
        rules: &["No exit, long after the grace period"],
        over: &[
            "OomVictim",
            "ProcessExec",
            "SignalDeliver",
            "SignalGenerate",
            "Tcp",
            "gap in FirstStop",
            "gap in NoStop",
            "gap in Others",
        ],
        why: "The process still runs: nothing but its exit, or the removal of its cgroup, would contradict that.",
    },
    Stands {
        rules: &["SIGKILL from the sender of the stop signal: the kernel had discarded the stop signal"],
        over: &[
            "OomVictim",
            "ProcessExec",
            "ProcessExit",
            "SignalDeliver",
            "SignalGenerate",
            "Tcp",
            "gap in Main",
            "gap in Others",
        ],
        why: "The kernel's result of the stop signal is in the record of the signal. Only an earlier one could have been handled.",
    },
    Stands {
        rules: &["SIGKILL from the container runtime or systemd, without a stop signal before"],
        over: &[
            "OomVictim",
            "ProcessExec",
            "ProcessExit",
            "SignalDeliver",
            "Tcp",
            "gap in FirstStop",
            "gap in Others",
        ],
        why: "The SIGKILL was seen. What it rests on is that no stop signal came before.",
    },
    Stands {
        rules: &["Exit with a code other than 0, without a stop signal"],
        over: &[
            "ProcessExec",
            "ProcessExit",
            "SignalDeliver",
            "Tcp",
            "gap in FirstStop",
            "gap in NoStop",
            "gap in Others",
        ],
        why: "An error is one with any other process's end. What it rests on is the OOM killer, and for the code of a signal the stop.",
    },
    Stands {
        rules: &[
            "Exit after the stop signal: another process, to which the signal had been forwarded, did not end cleanly",
            "SIGKILL from the sender of the stop signal: another process, to which the stop signal had been forwarded, delayed the exit",
            "SIGKILL from the sender of the stop signal: the process had read the stop signal",
            "SIGKILL, and the pod was deleted with a grace period of 0",
        ],
        over: &[
            "OomVictim",
            "ProcessExec",
            "Tcp",
            "gap in FirstStop",
            "gap in NoStop",
            "gap in Others",
        ],
        why: "The stop signal and its way inside were seen; an earlier one, a program start or a client does not change who did not end well. With exit 0 an OOM kill does not go before.",
    },
    Stands {
        rules: &["The process got the stop signal and did not exit before the shutdown ended"],
        over: &[
            "OomVictim",
            "ProcessExec",
            "SignalDeliver",
            "SignalGenerate",
            "Tcp",
            "gap in Others",
        ],
        why: "As above: still running; a later stop signal of two would have had less time.",
    },
    Stands {
        rules: &["SIGKILL from the kernel, because the init of the pid namespace exited"],
        over: &[
            "ProcessExec",
            "ProcessExit",
            "SignalDeliver",
            "SignalGenerate",
            "Tcp",
            "gap in FirstStop",
        ],
        why: "The init's exit sent it. Before the OOM killer is asked for, and a stop of the main process.",
    },
    Stands {
        rules: &[
            "The stop signal ended the process, which had raised it again just after a child had ended: the result describes how the child ended",
            "The stop signal ended the process: its handler had only raised the same signal again",
        ],
        over: &[
            "OomVictim",
            "ProcessExec",
            "gap in FirstStop",
            "gap in NoStop",
            "gap in Others",
        ],
        why: "How the child ended was seen; a process that a signal ended has no OOM kill of another process as its reason.",
    },
    Stands {
        rules: &[
            "The stop signal ended the process, which has no handler, and came from a daemon that kills before memory has run out",
        ],
        over: &[
            "OomVictim",
            "ProcessExec",
            "ProcessExit",
            "SignalDeliver",
            "Tcp",
            "gap in FirstStop",
            "gap in Others",
        ],
        why: "The daemon's signal was seen, and that its default action ended the process. An earlier stop would be whose the end was.",
    },
    Stands {
        rules: &[
            "Exit with an error, just after a process from outside had killed a program with clients below the main process",
        ],
        over: &["ProcessExec", "Tcp", "gap in FirstStop"],
        why: "The stranger's signal and the program's end were seen. What it rests on is that nobody else had asked or killed before.",
    },
    Stands {
        rules: &[
            "A clean exit, and the preStop hook was cut off or failed",
            "The stop signal ended the process, whose handler had raised it again at the end of its work",
            "Exit with 0, after the stop signal",
            "Exit with 0, without a stop signal",
            "The exit code is one for which a restart rule of the container exists",
        ],
        over: &["ProcessExec", "SignalDeliver", "Tcp", "gap in FirstStop", "gap in NoStop"],
        why: "Rests on signals, exits and OOM kills of all processes. Who handled the signal does not matter where nobody else got it, and Kubernetes can rule an earlier stop out.",
    },
    Stands {
        rules: &[
            "Exit after the stop signal with another error code than 128 + the stop signal, or with that code although the process has no handler",
        ],
        over: &["ProcessExec", "Tcp", "gap in FirstStop", "gap in NoStop", "gap in Others"],
        why: "An error after the stop signal. The end of another process in a later gap makes it no better.",
    },
    Stands {
        rules: &[
            "A program with clients was killed, or the default action of a signal ended the program",
            "Exit of PID 1 with an error: at the end of its shutdown PID 1 had raised the stop signal again, and the kernel had just discarded the second signal",
            "Exit with 128 + the stop signal, which the process had handled",
        ],
        over: &["ProcessExec", "Tcp", "gap in FirstStop", "gap in NoStop"],
        why: "As a clean exit, with the handlers: the signal was sent on, or raised again.",
    },
    Stands {
        rules: &[
            "SIGKILL after a preStop hook had left only the kubelet's minimum of the grace period",
            "SIGKILL by the shutdown, or SIGKILL during the shutdown before the process's own grace period was over",
            "SIGKILL from the sender of the stop signal: the process had not read the stop signal",
            "SIGKILL of a sidecar: the main containers had left it only the kubelet's minimum of the grace period",
        ],
        over: &["OomVictim", "ProcessExec", "Tcp", "gap in Others"],
        why: "Rests on the first stop signal and on what the process did with it; an OOM kill would have sent a SIGKILL of its own first.",
    },
    Stands {
        rules: &[
            "Exit of PID 1 with an error: its handler had only raised the stop signal again, and the kernel had discarded the second signal",
        ],
        over: &["ProcessExec", "gap in FirstStop", "gap in NoStop"],
        why: "Rests on all that could show work between the handler and the second signal.",
    },
    Stands {
        rules: &[
            "SIGKILL from the sender of the stop signal: the handler had only raised the signal again, and the kernel had discarded the second signal",
        ],
        over: &["OomVictim", "ProcessExec", "gap in Others"],
        why: "The same before a SIGKILL: an OOM kill would have sent one of its own first.",
    },
];

#[test]
fn a_rule_is_unknown_over_each_hole_or_its_finding_stands_for_a_stated_reason() {
    let found: Mutex<BTreeMap<&'static str, BTreeSet<String>>> = Mutex::default();
    for room in ROOMS {
        let room = corpus().join(room);
        in_parallel(stems(&room, "epitaph"), |name| -> Option<()> {
            for termination in terminations(&room.join(format!("{name}.epitaph"))) {
                let certain = certain(&termination);
                let mut found = found.lock().unwrap();
                for (hole, rule) in certain {
                    found.entry(rule).or_default().insert(hole);
                }
            }
            None
        });
    }
    let stated = STANDS.iter().flat_map(|of| of.rules.iter().map(move |rule| (*rule, of)));
    let stated: BTreeMap<&str, &Stands> = stated.collect();
    let found = found.into_inner().unwrap();
    let is_stated = |rule: &str, over: &BTreeSet<String>| {
        let of = stated
            .get(rule)
            .map(|of| of.over.iter().map(|hole| (*hole).to_owned()).collect());
        of.as_ref() == Some(over)
    };
    let wrong = found.iter().filter(|(rule, over)| !is_stated(rule, over));
    let wrong: Vec<String> = wrong.map(|(rule, over)| format!("{rule}: {over:?}")).collect();
    assert!(
        wrong.is_empty(),
        "these are certain over other holes than `STANDS` has a reason for:\n{}",
        wrong.join("\n")
    );
    let stale: Vec<&&str> = stated.keys().filter(|rule| !found.contains_key(*rule)).collect();
    assert!(stale.is_empty(), "never certain over a hole: {stale:?}");
    assert!(STANDS.iter().all(|of| !of.why.is_empty()));
}

/// The holes over which the judgement is certain, with the rule that decides.
fn certain(termination: &Termination) -> Vec<(String, &'static str)> {
    let case = Case::new(&termination.facts, termination.kubernetes.as_deref());
    let Some(rule) = deciding(&case).filter(|_| judge(&case).exit() != Exit::Unknown) else {
        return Vec::new();
    };
    let (begin, end) = (
        termination.facts.main.as_ref().map_or(termination.begin, |main| main.start),
        termination.end,
    );
    let lost = KINDS.map(|kind| {
        let hole = Hole::of(Origin::Lost, kind, begin, end, 1);
        (format!("{kind:?}"), vec![(Claim::Main, hole), (Claim::Others, hole)])
    });
    let gap = Hole::gap(begin, Some(end));
    let gaps = CLAIMS.map(|claim| (format!("gap in {claim:?}"), vec![(claim, gap)]));
    let is_certain = |holes: &[(Claim, Hole)]| {
        let mut facts = termination.facts.clone();
        for (claim, hole) in holes {
            facts.missing.add(*claim, [*hole]);
        }
        judge(&Case::new(&facts, termination.kubernetes.as_deref())).exit() != Exit::Unknown
    };
    let all = lost.into_iter().chain(gaps);
    all.filter(|(_, holes)| is_certain(holes))
        .map(|(hole, _)| (hole, rule.observed))
        .collect()
}

fn terminations(recording: &std::path::Path) -> Vec<Termination> {
    let file = File::open(recording).unwrap_or_else(|error| panic!("{}: {error}", recording.display()));
    let reader = Reader::new(BufReader::new(file), decode).unwrap_or_else(|error| panic!("{}: {error}", recording.display()));
    let mut core = Correlator::new(Limits::default());
    let reports = reader.flat_map(|(now, input)| core.handle(now, input).reports);
    let terminations = reports.flat_map(|report| match report {
        Report::Terminated(of) => vec![*of],
        Report::PodTerminated(of) => of.containers,
        _ => Vec::new(),
    });
    terminations.collect()
}
