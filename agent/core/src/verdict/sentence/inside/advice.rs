//! What to do about the end of a process below the main process.

use super::*;
use crate::tolerances::TOGETHER;
use crate::verdict::judge::Why;
use crate::verdict::sentence::remedy::asked::{Asked, Remedy};
use crate::verdict::sentence::settings::{declared, or_declare, stop_signal, too_young};

/// A process that has the stop signal, and programs below it that need it.
pub(in crate::verdict::sentence) struct SentOn {
    pub who: String,
    comm: Comm,
    pub others: Vec<InnerProcess>,
    pub signal: Signal,
}

impl SentOn {
    /// None where another remedy is the one.
    pub fn of(of: &Asked<'_>) -> Option<SentOn> {
        let case = of.case;
        let from_main = |others: Vec<InnerProcess>| SentOn {
            who: target(case.main()),
            comm: case.main().map(|main| main.comm).unwrap_or_default(),
            others,
            signal: stop_signal(case),
        };
        let needs_it = || forwards_to_nobody(case).is_some() && !are_its_own(case);
        match of.why() {
            // An init in front of it would send the signal to it alone, too. A supervisor may stop its programs at another signal.
            Why::Ignored if stop_signal(case) == Signal::TERM && needs_it() => Some(from_main(unsignalled(case))),
            Why::DefaultAction if needs_it() && case.stop().is_none_or(|stop| !stop.signal.is_fault()) => {
                Some(from_main(unsignalled(case)))
            }
            Why::AfterGrace if !are_its_own(case) => programs_waited_for(case).map(from_main),
            Why::Below(_) => match below(case)? {
                (Below::Unreached, killed) => Some(from_main(vec![killed.process])),
                _ => None,
            },
            Why::Inside(..) => of.inner().and_then(|(end, forward)| SentOn::inside(case, end, forward)),
            _ => None,
        }
    }

    fn inside(case: &Case<'_>, end: InnerEnd, forward: &Forward) -> Option<SentOn> {
        let others = match end {
            InnerEnd::AfterGrace => unreached(case, forward),
            InnerEnd::DefaultAction if !left(case).is_empty() && stands_in(forward.target.comm) => unsignalled(case),
            _ => return None,
        };
        (end == InnerEnd::DefaultAction || !others.is_empty()).then(|| SentOn {
            who: name(case.main(), &case.inside, &forward.target),
            comm: forward.target.comm,
            others,
            signal: forward.signal,
        })
    }

    pub fn is_stand_in(&self) -> bool {
        stands_in(self.comm)
    }

    pub fn is(&self, comm: &str) -> bool {
        self.comm == Comm::new(comm)
    }

    /// A PID 1 that sent the signal on works as an init does; any other is a shell or the application.
    pub fn is_below_an_init(&self, case: &Case<'_>) -> bool {
        let main = case.main().filter(|main| main.is_ns_init).map(|main| main.tgid);
        case.inside.forwards.iter().any(|forward| Some(forward.sender.tgid) == main)
    }
}

fn stands_in(comm: Comm) -> bool {
    STANDS_IN.map(Comm::new).contains(&comm)
}

/// How a program below a main process that ended well was killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    ForMemory,
    FromOutside,
    ByAnotherSignal,
    /// By systemd at the end of its time: long after the exit of the main process, or after systemd had sent this process the stop signal, too,
    /// as without `KillMode=mixed`.
    Late,
    /// Before it had finished.
    Cut,
    /// Nobody stopped the subject.
    LeftBehind,
    /// By systemd, which with another setting sends the signal to each process.
    BySystemd,
    Unreached,
}

fn below<'a>(case: &'a Case<'_>) -> Option<(Below, &'a Killed)> {
    let killed = worst(&case.inside)?;
    let is_unit = matches!(case.subject, Subject::Unit { .. });
    let is_late = || killed.kill.at.since(case.end) > TOGETHER;
    let how = match killed.kill.role {
        _ if killed.kill.by_oom_daemon => Below::ForMemory,
        Role::Other | Role::Unknown => Below::FromOutside,
        _ if killed.kill.signal != Signal::KILL => Below::ByAnotherSignal,
        Role::Runtime if is_unit && killed.was_signalled && (killed.runtime_signalled || is_late()) => Below::Late,
        _ if killed.was_signalled => Below::Cut,
        _ if case.stop().is_none() => Below::LeftBehind,
        Role::Runtime if is_unit => Below::BySystemd,
        _ => Below::Unreached,
    };
    Some((how, killed))
}

fn is_below(of: &Asked<'_>, how: Below) -> bool {
    matches!(of.why(), Why::Below(_)) && below(of.case).is_some_and(|(found, _)| found == how)
}

/// The name of the program that was killed below the main process.
fn killed_name(case: &Case<'_>) -> Option<String> {
    worst(&case.inside).map(|killed| name(case.main(), &case.inside, &killed.process))
}

fn is_end(of: &Asked<'_>, end: InnerEnd) -> bool {
    of.inner().is_some_and(|(found, _)| found == end)
}

/// The name of the process to which the signal was forwarded, and the signal.
fn target_of(of: &Asked<'_>) -> Option<(String, Signal)> {
    let (_, forward) = of.inner()?;
    Some((name(of.case.main(), &of.case.inside, &forward.target), forward.signal))
}

/// The name of the process that forwarded it.
fn sender_of(of: &Asked<'_>) -> Option<String> {
    let (_, forward) = of.inner()?;
    Some(name(of.case.main(), &of.case.inside, &forward.sender))
}

pub(in crate::verdict::sentence) const REMEDIES: &[Remedy] = &[
    // The process to which the signal was forwarded.
    Remedy {
        name: "handle-below-the-init",
        helps_if: "An init forwarded the stop signal to a process that ignores the signal, or that is itself an init (PID 1 of a pid \
                   namespace) without a handler.",
        holds: |of| is_end(of, InnerEnd::Ignored),
        words: |of| {
            let ((who, signal), (_, forward)) = (target_of(of)?, of.inner()?);
            let lost = waited(forward).map_or(String::new(), |waited| format!("; this avoids the wait of {waited}"));
            let declare = or_declare(of.case, signal);
            Some(format!("handle {signal} in {who}{declare}{lost}{}", early(forward, &who)))
        },
    },
    Remedy {
        name: "time-from-the-supervisor",
        helps_if: "A supervisor killed the process so soon after the stop signal that the process had no time for a shutdown.",
        holds: |of| is_end(of, InnerEnd::AtOnce),
        words: |of| {
            let (by, (who, _)) = (sender_of(of)?, target_of(of)?);
            Some(format!(
                "{by} gave {who} no time: raise the stop timeout of {by}, or send {by} the stop signal at which it waits for its processes (see \
                 its documentation; {})",
                declared(of.case)
            ))
        },
    },
    Remedy {
        name: "more-memory-for-the-program",
        helps_if: "The stop signal was forwarded to a process, and a daemon that kills processes before memory has run out (such as systemd-oomd) killed this process.",
        holds: |of| is_end(of, InnerEnd::KilledByOther) && daemon(of).is_some(),
        words: |of| daemon(of).map(spare_of),
    },
    Remedy {
        name: "find-who-killed-the-program",
        helps_if: "A process from outside killed the process to which the stop signal was forwarded, within the grace period.",
        holds: |of| is_end(of, InnerEnd::KilledByOther),
        words: |of| {
            let (by, with) = killer(of.case, of.inner()?.1);
            Some(format!(
                "find out why {by} sent {with}, and use the stop command of the {} instead",
                manager(of.case)
            ))
        },
    },
    Remedy {
        name: "wait-for-the-program",
        helps_if: "The first process forwarded the stop signal to another process, and exited before that process had exited. That process \
                   was then killed.",
        holds: |of| is_end(of, InnerEnd::Abandoned),
        words: |of| Some(wait_for(&target(of.case.main()), &target_of(of)?.0)),
    },
    Remedy {
        name: "install-a-handler-below-the-init",
        helps_if: "An init forwarded the stop signal to a process without a handler, and nothing else ran in the container.",
        holds: |of| is_end(of, InnerEnd::DefaultAction) && left(of.case).is_empty(),
        words: |of| {
            let ((who, signal), (_, forward)) = (target_of(of)?, of.inner()?);
            Some(install(signal, &who) + &early(forward, &who))
        },
    },
    // It is the program itself, with its own processes: `exec` would change nothing.
    Remedy {
        name: "install-a-handler-for-all-processes",
        helps_if: "An init forwarded the stop signal to a program that has several processes and no handler for the signal.",
        holds: |of| {
            let target = of.inner().map(|(_, forward)| forward.target.comm);
            is_end(of, InnerEnd::DefaultAction) && target.is_some_and(|comm| left_are_like(of.case, comm))
        },
        words: |of| {
            let (who, signal) = target_of(of)?;
            Some(format!(
                "install a {signal} handler in {who} that finishes the work in flight, also the work in its other processes, and then exits with 0"
            ))
        },
    },
    Remedy {
        name: "exec-below-the-init",
        helps_if: "An init forwarded the stop signal to a shell without a trap, and the program below the shell was killed.",
        holds: |of| is_end(of, InnerEnd::DefaultAction),
        words: |of| {
            let (by, (who, signal)) = (sender_of(of)?, target_of(of)?);
            Some(format!(
                "start the program with `exec` in {who}, so that {by} forwards {signal} to the program itself and waits for it; an init that \
                 signals the whole process group (`tini -g`, dumb-init) reaches the program, but does not wait for it"
            ))
        },
    },
    Remedy {
        name: "exit-with-0-below-the-init",
        helps_if: "The process to which the stop signal was forwarded exited with an error after its shutdown.",
        holds: |of| is_end(of, InnerEnd::Nonzero),
        words: |of| {
            Some(format!(
                "read the log of {}; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number",
                target_of(of)?.0
            ))
        },
    },
    // Programs that were killed below a main process that ended well.
    Remedy {
        name: "more-memory-below",
        helps_if: "A daemon that kills processes before memory has run out (such as systemd-oomd) killed a program below the first process, and this program had a listener or clients.",
        holds: |of| is_below(of, Below::ForMemory),
        words: |of| Some(spare_of(below(of.case)?.1.kill.sender.comm)),
    },
    Remedy {
        name: "find-who-killed-below",
        helps_if: "A process from outside killed a program with clients below the first process, and the first process exited cleanly.",
        holds: |of| is_below(of, Below::FromOutside),
        words: |of| {
            Some(format!(
                "find out why {} was killed, and use the stop command of the {} instead",
                killed_name(of.case)?,
                manager(of.case)
            ))
        },
    },
    Remedy {
        name: "install-a-handler-below",
        helps_if: "The default action of a signal ended a program with clients below the first process, and the first process exited \
                   cleanly.",
        holds: |of| is_below(of, Below::ByAnotherSignal),
        words: |of| {
            let (who, (_, killed)) = (killed_name(of.case)?, below(of.case)?);
            let waits = match killed.kill.at >= of.case.end {
                true => format!(", and {}", wait_for(&target(of.case.main()), &who)),
                false => String::new(),
            };
            Some(format!("{}{waits}", install(killed.kill.signal, &who)))
        },
    },
    Remedy {
        name: "raise-timeout-stop-sec-below",
        helps_if: "A program with clients below a unit's first process had not finished when the time that systemd waits \
                   (`TimeoutStopSec=`) had passed.",
        holds: |of| is_below(of, Below::Late),
        words: |of| {
            let (stop, (_, killed)) = (of.case.stop()?, below(of.case)?);
            Some(format!(
                "the shutdown of {} needs more than the {} that systemd gave it: raise `TimeoutStopSec=` of the unit, or shorten the shutdown",
                killed_name(of.case)?,
                seconds(killed.kill.at.since(stop.at))
            ))
        },
    },
    Remedy {
        name: "wait-below",
        helps_if: "A program with clients got the stop signal, and the first process exited before this program had finished.",
        holds: |of| is_below(of, Below::Cut),
        words: |of| Some(wait_for(&target(of.case.main()), &killed_name(of.case)?)),
    },
    Remedy {
        name: "start-it-in-the-foreground",
        helps_if: "The first process exited by itself and left a program with a listener or clients behind.",
        holds: |of| is_below(of, Below::LeftBehind),
        words: |of| {
            let ends = match of.case.subject {
                Subject::Unit { .. } => "a unit",
                Subject::Container { .. } => "a container",
            };
            Some(format!(
                "if {} is the service, start it in the foreground (with `exec` in a shell): {ends} ends with its first process",
                killed_name(of.case)?
            ))
        },
    },
    Remedy {
        name: "kill-mode-control-group",
        helps_if: "systemd sent the stop signal to the unit's main process alone, and killed a program below the main process \
                   (`KillMode=mixed`).",
        holds: |of| is_below(of, Below::BySystemd),
        words: |of| {
            let (who, main, signal) = (killed_name(of.case)?, target(of.case.main()), stop_signal(of.case));
            Some(format!(
                "let systemd send {signal} to {who} (`KillMode=control-group`), or let {main} stop {who} and wait for it"
            ))
        },
    },
];

/// The daemon that killed the process to which the signal was forwarded.
fn daemon(of: &Asked<'_>) -> Option<Comm> {
    let (_, forward) = of.inner()?;
    forward.kill.filter(|kill| kill.by_oom_daemon).map(|kill| kill.sender.comm)
}

/// A limit of the victim's own is not what a daemon looks at.
pub(in crate::verdict::sentence) fn spare_of(daemon: Comm) -> String {
    let exempt = match daemon.as_bytes() {
        b"systemd-oomd" => {
            "; `ManagedOOMPreference=omit` exempts a unit (`avoid` makes it the last choice), and `ManagedOOMMemoryPressureLimit=` of its slice sets the limit"
        }
        b"earlyoom" => "; `--avoid` of earlyoom exempts a program by its name",
        _ => "",
    };
    format!(
        "use less memory (heap size, caches, concurrency), or give the node more memory{exempt}; the log of `{daemon}` has the memory \
         values that led to the kill"
    )
}

fn install(signal: Signal, who: &str) -> String {
    format!("install a {signal} handler in {who} that finishes the work in flight and then exits with 0")
}

/// Added for a process without a handler that had just started.
fn early(forward: &Forward, who: &str) -> String {
    let sent = (forward.at, forward.signal);
    too_young(who, forward.target.start, sent, forward.disposition).unwrap_or_default()
}

/// From the first process that has exited before the others.
fn wait_for(main: &str, who: &str) -> String {
    format!(
        "let {main} wait until {who} has exited: a trap interrupts `wait`, so a shell must call `wait` again after the trap, and a program must \
         wait for its children before its own exit"
    )
}

/// From the signal to the end of the process that got it.
fn waited(forward: &Forward) -> Option<String> {
    forward.exit.map(|exit: MainExit| seconds(exit.at.since(forward.at)))
}

/// Of a process that the sender of its signal killed: with what changes the time that it gets.
pub(in crate::verdict::sentence) fn killed_by_its_supervisor(
    of: &Asked<'_>,
    timeout: impl Fn(&str) -> String,
) -> Option<String> {
    let ((who, signal), by, (_, forward)) = (target_of(of)?, sender_of(of)?, of.inner()?);
    let orphans = match orphans(of.case, forward) {
        orphans if orphans.is_empty() => String::new(),
        orphans => format!(
            "; if {who} waited for {0}, which got no signal: send {signal} on from {who} to {0}: start the program with `exec`, or in the \
             background with a trap that runs `kill` and then `wait`, or let the init signal the whole process group (`tini -g`)",
            names(of.case, &orphans)
        ),
    };
    let waited = waited(forward).unwrap_or_default();
    Some(match forward.kill.filter(|kill| !kill.sender.is(&forward.sender)) {
        Some(kill) => format!(
            "the shutdown of {who} needs more than the {waited} between {signal} from {by} and {} from {}: wait longer there, or shorten the \
             shutdown{orphans}",
            kill.signal,
            name(of.case.main(), &of.case.inside, &kill.sender)
        ),
        None => format!(
            "the shutdown of {who} needs more than the {waited} that {by} gave it: {}{orphans}",
            timeout(&by)
        ),
    })
}

/// Of the target that exited first, PID 1 has the children: which of its own they are is not known, but the target's are younger.
fn orphans(case: &Case<'_>, forward: &Forward) -> Vec<InnerProcess> {
    let Some(main) = case.main().filter(|main| main.is_ns_init) else {
        return Vec::new();
    };
    let may_be = |of: &&Unsignalled| of.parent == main.tgid && of.process.start > forward.target.start;
    let of_main = case.inside.unsignalled.iter().filter(may_be).map(|of| of.process);
    of_main.filter(|_| is_whole(case)).collect()
}
