//! The signals to the main process: the stop, the kill, the fatal one.

use crate::event::{Disposition, ExitStatus, SignalResult, SignalSet, si_code};
use crate::ids::Signal;
use crate::termination::{Fatal, Role, Stop};
use crate::time::Boot;

use crate::correlate::subjects::inside::{Begun, handled_by};
use crate::correlate::subjects::process::Candidate;
use crate::correlate::subjects::subject::State;
use crate::correlate::subjects::timeline::{SignalFact, Timeline};
use crate::tolerances::{ABORT_REACH, GRACE_REACH, HANDLED_REACH, HOOK_AFTER, PASSED_ON, RUN_GAP, SLOW_KILL, STOP_REACH};

/// The signals to the main process until its exit, in the order of their own times.
pub(super) fn to_main<'a>(timeline: &'a Timeline, main: Option<&Candidate>, end: Boot) -> Vec<&'a SignalFact> {
    let is_main = |fact: &&SignalFact| main.is_some_and(|main| main.id.is(&fact.signal.target));
    let mut signals: Vec<&SignalFact> = timeline
        .signals
        .iter()
        .filter(is_main)
        .filter(|fact| fact.at <= end)
        .collect();
    signals.sort_by_key(|fact| fact.key());
    signals
}

/// The first SIGKILL that took effect: the kernel discards a SIGKILL to a namespace's init from inside.
pub(super) fn kill<'a>(signals: &[&'a SignalFact]) -> Option<&'a SignalFact> {
    let mut kills = signals.iter().filter(|fact| fact.signal.signal == Signal::KILL);
    kills.find(|fact| fact.signal.result != SignalResult::Ignored).copied()
}

/// The fatal signal: of several with its number the last before the exit (earlier ones were handled).
pub(super) fn fatal(
    signals: &[&SignalFact],
    kill: Option<&SignalFact>,
    status: Option<ExitStatus>,
    main: Option<&Candidate>,
) -> Option<Fatal> {
    let fact = match status.and_then(ExitStatus::signal) {
        Some(signal) if signal != Signal::KILL => {
            let alike = |fact: &&&SignalFact| fact.signal.signal == signal && fact.signal.result != SignalResult::Ignored;
            let fatal = signals.iter().rev().find(alike).copied();
            fatal.or_else(|| aborted(signals, signal, main))?
        }
        _ => kill?,
    };
    let sender = &fact.signal.sender;
    let same_space = sender.pidns == fact.signal.target.pidns || sender.ns_level < fact.signal.target.ns_level;
    let is_main = main.is_some_and(|main| main.id.tgid == sender.tgid);
    Some(Fatal {
        at: fact.at,
        signal: fact.signal.signal,
        code: fact.signal.code,
        call: fact.signal.call,
        namespace_ended: fact.sender.role == Role::Kernel && sender.is_ns_init() && same_space && !is_main,
        sender: fact.sender.clone(),
    })
}

/// PID 1 has no default action, so abort(3) sends SIGABRT in vain, and then executes an instruction that is a fault.
fn aborted<'a>(signals: &[&'a SignalFact], fault: Signal, main: Option<&Candidate>) -> Option<&'a SignalFact> {
    let exit = main.filter(|main| main.is_ns_init())?.exit?;
    let is_last_act = |fact: &&SignalFact| {
        let signal = &fact.signal;
        let is_abort = signal.signal == Signal::ABRT && signal.disposition == Disposition::Default;
        is_abort && fact.sender.role == Role::Itself && exit.at.since(fact.last) <= ABORT_REACH
    };
    let last = signals.iter().rev().copied().find(is_last_act);
    last.filter(|_| fault.is_fault() && fault != Signal::ABRT)
}

/// Group 0 with code 0: nothing else sends that to another process.
pub(super) fn is_cgroup_kill(fact: &SignalFact) -> bool {
    !fact.signal.group && fact.signal.code == si_code::USER && fact.sender.role != Role::Itself
}

/// The stop signal: the runtime's before other senders', the container's own before any other, a conventional stop signal before one that
/// mostly means "reload", and the first of the last series.
pub(super) fn stop_signal<'a>(
    signals: &[&'a SignalFact],
    (own, requested): (Option<Signal>, Option<Boot>),
    deadline: Boot,
    killed_by_runtime: bool,
) -> Option<&'a SignalFact> {
    let stops: Vec<&SignalFact> = possible_stops(signals, deadline).collect();
    let is_own = |fact: &SignalFact| fact.sender.role == Role::Runtime && Some(fact.signal.signal) == own;
    // `docker kill --signal`: of a container whose own signal is known a reload, mostly.
    let is_another = |fact: &SignalFact| own.is_some_and(|own| own != fact.signal.signal) && fact.is_handled();
    // A reload came before the deletion request. The watch shows the request some time after the kubelet has acted.
    let is_asked_for = |fact: &SignalFact| requested.is_some_and(|at| fact.last.plus(HOOK_AFTER) >= at);
    let reach = |fact: &SignalFact| match fact.sender.role {
        Role::Runtime if fact.is_conventional_stop() || is_own(fact) || own.is_none() && is_asked_for(fact) => {
            match killed_by_runtime {
                true => GRACE_REACH,
                false => STOP_REACH,
            }
        }
        Role::Runtime if is_another(fact) => HANDLED_REACH + SLOW_KILL,
        Role::Runtime => RUN_GAP,
        // A reload, mostly.
        _ if !fact.is_conventional_stop() && fact.is_handled() => HANDLED_REACH,
        _ => RUN_GAP,
    };
    let run = |ok: &dyn Fn(&SignalFact) -> bool| -> Option<&'a SignalFact> {
        let mut first: Option<&SignalFact> = None;
        for fact in stops.iter().rev().filter(|fact| ok(fact)) {
            let near = match first {
                None => deadline.since(fact.last) <= reach(fact),
                Some(first) => first.at.since(fact.last) <= RUN_GAP,
            };
            if !near {
                break;
            }
            first = Some(fact);
        }
        first
    };
    let by = |role: Role| move |fact: &SignalFact| fact.sender.role == role;
    run(&is_own)
        .or_else(|| run(&|fact| by(Role::Runtime)(fact) && fact.is_conventional_stop()))
        .or_else(|| run(&by(Role::Runtime)))
        .or_else(|| run(&by(Role::Other)))
        .or_else(|| run(&by(Role::Unknown)))
        .or_else(|| run(&by(Role::Kernel)))
        .or_else(|| run(&by(Role::Inside)))
}

/// From when on the subject was being stopped: another party may have asked the main process shortly before the runtime did (a preStop
/// hook, a person), and what that led to is of this stop.
pub(super) fn first_asked<'a>(stop: &'a SignalFact, signals: &[&'a SignalFact]) -> &'a SignalFact {
    let is_before = |fact: &&SignalFact| {
        let by_other = fact.sender.role != Role::Runtime && fact.is_conventional_stop();
        by_other && fact.is_handled() && fact.at < stop.at && fact.last.plus(PASSED_ON) >= stop.at
    };
    let before = possible_stops(signals, stop.at).filter(is_before);
    match stop.sender.role {
        Role::Runtime => before.min_by_key(|fact| fact.at).unwrap_or(stop),
        _ => stop,
    }
}

/// Without a stop signal: one from another process or a terminal that the process handled shortly before it exited. The exit may follow
/// from it, whatever its number: the process did not exit by itself.
pub(super) fn handled_last<'a>(signals: &[&'a SignalFact], end: Boot) -> Option<&'a SignalFact> {
    let is_handled = |fact: &&&SignalFact| {
        let by_other = matches!(fact.sender.role, Role::Other | Role::Inside | Role::Kernel);
        by_other && !fact.signal.signal.is_job_control() && fact.is_handled() && end.since(fact.last) <= HANDLED_REACH
    };
    signals
        .iter()
        .filter(is_handled)
        .max_by_key(|fact| (fact.last, fact.key()))
        .copied()
}

/// Signals that may be stop signals.
fn possible_stops<'a>(signals: &[&'a SignalFact], deadline: Boot) -> impl Iterator<Item = &'a SignalFact> {
    signals
        .iter()
        .filter(move |fact| fact.is_stop() && fact.at <= deadline)
        .copied()
}

/// The stop signal `fact`, with the kernel's result.
pub(super) fn stop(fact: &SignalFact, of: (&State, &Timeline), signals: &[&SignalFact], deadline: Boot) -> Stop {
    let begun = handled_by(of, fact);
    let later: u32 = possible_stops(signals, deadline)
        .filter(|other| other.last >= fact.at)
        .map(|other| other.count)
        .sum();
    let by_runtime = possible_stops(signals, deadline).filter(|fact| fact.sender.role == Role::Runtime);
    let by_runtime = by_runtime.fold(SignalSet::default(), |all, fact| all.with(fact.signal.signal));
    Stop {
        at: fact.at,
        signal: fact.signal.signal,
        sender: fact.sender.clone(),
        result: fact.signal.result,
        disposition: fact.signal.disposition,
        state: fact.signal.state,
        handler_entered: begun.and_then(Begun::entered),
        raised_again: begun.and_then(|begun| begun.raised),
        still_pending: None,
        repeated: later.saturating_sub(1),
        by_runtime,
    }
}
