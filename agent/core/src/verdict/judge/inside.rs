//! The way of the stop signal inside: from the main process, which may be an init or a supervisor, to the process that people wrote.
//!
//! The main process's own answer goes first where it is proven. A process that got the signal from another one decides only if it held
//! up the stop, or if the default action terminated it and the main process did nothing but wait for it.

mod answer;

use super::ask::{self, Ask, INSIDE, INSIDE_NOR_STOP};
use super::cause::{cause, unknown};
use super::finding::{Blocked, Finding, InnerEnd, Missing, Why, finding};
use crate::attribute::Subject;
use crate::event::{Disposition, ExitStatus, Kind};
use crate::ids::{Pid, Signal};
use crate::ledger::Claim;
use crate::termination::{Forward, InnerKill, Inside, Killed, Role, Stop};
use crate::time::Boot;
use crate::tolerances::{AFTER_DISCARD, CHILD_REACH, NO_TIME, ONLY_WAITED};
use crate::verdict::case::Case;
use crate::verdict::{Cause, Exit};

pub use answer::is_at_once;
pub(super) use answer::{Answer, is_reflex};

/// The main process was killed after the grace period: by the process that held it up, if that is another one.
pub(super) fn killed_after(case: &Case<'_>, cause: Cause) -> Option<Finding> {
    let deadline = case.kill()?.at;
    let is_alive = |forward: &Forward| forward.exit.is_none_or(|exit| exit.at >= deadline);
    let held_up = holder(case, is_alive)?;
    Some(held(case, held_up, cause))
}

/// The main process exited after its stop signal: a process inside did not stop as it should.
pub(super) fn exited(case: &Case<'_>, cause: Cause) -> Option<Finding> {
    let stop = case.stop().filter(|stop| !stop.is_discarded())?;
    let forwards = &case.inside.forwards;
    let first = |is: &dyn Fn(&Forward) -> bool| forwards.iter().position(is);
    if let Some(of) = first(&|forward| crashed(case, forward)) {
        return Some(inside(Exit::Crashed, cause, Why::Inside(InnerEnd::Crashed, of)));
    }
    if let Some(of) = first(&|forward| killed_by_other(case, forward)) {
        let (exit, cause) = match forwards[of].kill.is_some_and(|kill| kill.by_oom_daemon) {
            true => (Exit::OomChild, of_daemon(cause)),
            false => (Exit::KilledByOther, cause),
        };
        return Some(inside(exit, cause, Why::Inside(InnerEnd::KilledByOther, of)));
    }
    let killed = (0..forwards.len()).filter(|&i| killed_by_its_supervisor(case, &forwards[i]));
    // The supervisor kills all that still run, also those that were only slow.
    if let Some(killed) = killed.min_by_key(|&i| (!Answer::of_forward(&forwards[i]).is_fault(), i)) {
        return Some(held(case, killed, cause));
    }
    if let Some((of, proof)) = terminated(case, stop) {
        let why = Why::Inside(InnerEnd::DefaultAction, of);
        return Some(match (forwards[of].began(), proof) {
            (_, Proof::ExitsNotSeen) => unknown(case, Missing::exits_below(case)),
            (None, Proof::Whole) => inside(Exit::DefaultAction, cause, why),
            _ => finding(Exit::DefaultAction, cause, why, ask::REFLEX),
        });
    }
    if let Some(of) = first(&|forward| abandoned(case, forward)) {
        return Some(inside(Exit::KilledAfterGrace, cause, Why::Inside(InnerEnd::Abandoned, of)));
    }
    let code = case.exit?.status.code()?;
    let failed = |forward: &Forward| is_child_of_main(case, forward) && status(forward) == Some(ExitStatus::Exited(code));
    if is_error(code, stop.signal) {
        let failed = forwards.iter().position(failed)?;
        return Some(inside(Exit::NonzeroExit, cause, Why::Inside(InnerEnd::Nonzero, failed)));
    }
    if code != 0
        && let Some(failed) = first(&|forward| failed_below_shell(case, forward))
    {
        return Some(inside(Exit::NonzeroExit, cause, Why::Inside(InnerEnd::Nonzero, failed)));
    }
    let of = first(&|forward| is_of_pool(case, forward))?;
    Some(unknown(case, Missing::Job(forwards[of].target.comm)))
}

/// The default action ended a process with the name of its parent, by the signal of an init to the whole group, while the parent went on to
/// its own end. It may have executed the same program again: a worker, too.
fn is_of_pool(case: &Case<'_>, forward: &Forward) -> bool {
    let is_parent = |tgid: Pid| tgid == forward.parent;
    let main = case.main().filter(|main| is_parent(main.tgid)).map(|main| main.comm);
    let other = || case.inside.forwards.iter().find(|other| is_parent(other.target.tgid));
    let parent = main.or_else(|| Some(other()?.target.comm));
    parent == Some(forward.target.comm) && !is_parent(forward.sender.tgid) && by_default(case, forward)
}

/// As [`is_of_pool`], by the sender of the stop: systemd signals all processes of a unit.
pub(super) fn pool_below(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let of = case.inside.pool.filter(|_| found.exit == Exit::Clean)?;
    Some(unknown(case, Missing::Job(of.comm)))
}

/// The main process ended well; the verdict is about the programs below it that were killed, if there were any.
pub(super) fn killed_below(case: &Case<'_>, found: &Finding) -> Option<Finding> {
    let exit = match worst(&case.inside) {
        _ if found.exit != Exit::Clean => return None,
        None if let Some((process, signal)) = case.inside.ended_unseen => {
            return Some(unknown(case, Missing::EndBelow(process.comm, signal)));
        }
        None if case.inside.sockets_known || case.inside.killed.is_empty() && !case.inside.others_killed => return None,
        None => return Some(unknown(case, Missing::Sockets)),
        Some(Killed {
            process,
            kill,
            is_unsure,
            ..
        }) if *is_unsure || kill.role == Role::Unknown && kill.signal != Signal::KILL => {
            return Some(unknown(case, Missing::EndBelow(process.comm, kill.signal)));
        }
        Some(killed) if killed.kill.by_oom_daemon => Exit::OomChild,
        Some(killed) if matches!(killed.kill.role, Role::Other | Role::Unknown) => Exit::KilledByOther,
        Some(killed) if killed.kill.signal != Signal::KILL => Exit::DefaultAction,
        Some(killed) if killed.was_signalled => Exit::KilledAfterGrace,
        // What a stop from inside was followed by is not recorded.
        Some(killed) if case.stop().is_some_and(|stop| stop.sender.role == Role::Inside) => {
            return Some(unknown(case, Missing::EndBelow(killed.process.comm, Signal::KILL)));
        }
        Some(_) => Exit::ForceKilled,
    };
    let is_before = worst(&case.inside).is_some_and(|killed| killed.kill.at < case.end);
    let is_reason = is_before && case.stop().is_none();
    let cause = match exit {
        Exit::OomChild if is_before => of_daemon(found.cause),
        Exit::KilledByOther if is_reason && found.cause == Cause::Completed => Cause::External,
        _ => found.cause,
    };
    // Beside a program that closes its listener, what the default action ended without a client is a helper.
    let is_client_seen = worst(&case.inside).is_some_and(|killed| killed.held.connection.is_some());
    let may_be_helper = exit == Exit::DefaultAction && !is_client_seen;
    let rests = match (found.rests.contains(&Ask::NoStop), may_be_helper) {
        (true, false) => INSIDE_NOR_STOP,
        (true, true) => ask::HELPERS_NOR_STOP,
        (false, false) => ask::CLEAN_INSIDE,
        (false, true) => ask::CLEAN_OF_HELPERS,
    };
    Some(finding(exit, cause, Why::Below(Box::new(found.why.clone())), rests))
}

/// The cause, where a daemon killed a program below before memory had run out.
fn of_daemon(cause: Cause) -> Cause {
    match cause {
        Cause::Unknown => cause,
        _ => Cause::Oom,
    }
}

/// Nobody stopped the subject, or the kernel discarded that stop, and the main process passes on how a program below it ended, or hides
/// that: a process from outside had ended it.
pub(super) fn killed_then_failed(case: &Case<'_>, _: &Finding) -> Option<Finding> {
    let is_by_itself = case.stop().is_none_or(Stop::is_discarded);
    let child = case.failed_child.filter(|_| is_by_itself)?;
    let has_failed = case.exit.is_some_and(|exit| exit.status != ExitStatus::Exited(0));
    let is_it = |killed: &Killed| killed.kill.role == Role::Other && killed.process.is(&child.process);
    let killed = case
        .inside
        .killed_programs()
        .find(|killed| is_it(killed))
        .filter(|_| has_failed)?;
    let why = Why::Below(Box::new(Why::Nonzero));
    Some(match killed.kill.by_oom_daemon {
        true => finding(Exit::OomChild, cause(case, Cause::Oom), why, INSIDE_NOR_STOP),
        false => finding(Exit::KilledByOther, cause(case, Cause::External), why, INSIDE_NOR_STOP),
    })
}

/// Of the programs that were killed.
pub(in crate::verdict) fn worst(inside: &Inside) -> Option<&Killed> {
    let by_other = |killed: &&Killed| matches!(killed.kill.role, Role::Other | Role::Unknown);
    let unasked = |killed: &&Killed| !killed.was_signalled;
    let mut programs = inside.killed_programs();
    programs
        .clone()
        .find(by_other)
        .or_else(|| programs.clone().find(unasked))
        .or_else(|| programs.next())
}

/// As [`exited`], of a main process that raised the signal again: a wrapper does so as soon as its child has exited.
pub(super) fn raised_after_child(case: &Case<'_>, cause: Cause) -> Option<Finding> {
    let forwards = &case.inside.forwards;
    if may_miss_exits(case) && forwards.iter().any(|forward| forward.exit.is_none()) {
        return exited(case, cause).map(|_| unknown(case, Missing::exits_below(case)));
    }
    let last = forwards.iter().filter_map(|forward| forward.exit).map(|exit| exit.at).max()?;
    (case.end.since(last) <= ONLY_WAITED).then(|| exited(case, cause)).flatten()
}

fn may_miss_exits(case: &Case<'_>) -> bool {
    case.missing.lacks(Claim::Others, Kind::ProcessExit)
}

/// PID 1 finished its shutdown, raised the stop signal again for the default action, and the kernel discarded this one: the code of the
/// exit that followed at once is not the application's.
pub(super) fn raised_then_failed(case: &Case<'_>, stop: &Stop, exit_at: Boot) -> bool {
    let raised = stop.raised_again.filter(|raised| raised.discarded);
    raised.is_some_and(|raised| raised.at <= exit_at && exit_at.since(raised.at) <= AFTER_DISCARD)
        && !is_reflex(case, stop.began(), stop.raised_again)
}

pub(super) fn inside(exit: Exit, cause: Cause, why: Why) -> Finding {
    finding(exit, cause, why, INSIDE)
}

fn held(case: &Case<'_>, of: usize, cause: Cause) -> Finding {
    let answer = Answer::of_forward(&case.inside.forwards[of]);
    let (exit, end) = match answer {
        Answer::Unread(Blocked::HandlerNeverEntered | Blocked::NothingEntered) if had_no_time(&case.inside.forwards[of]) => {
            (Exit::KilledAfterGrace, InnerEnd::AtOnce)
        }
        Answer::Discarded | Answer::RaisedInVain => (Exit::IgnoredStopSignal, InnerEnd::Ignored),
        Answer::Unread(how) => (Exit::BlockedStopSignal, InnerEnd::Blocked(how)),
        Answer::Handled | Answer::Read => (Exit::KilledAfterGrace, InnerEnd::AfterGrace),
    };
    inside(exit, cause, Why::Inside(end, of))
}

/// From the main process down: of the children that got the signal and were alive, one that certainly would not stop, and below a child
/// that may only have waited, the same again. A process whose parent is not among them comes after these.
fn holder(case: &Case<'_>, is_alive: impl Fn(&Forward) -> bool) -> Option<usize> {
    let forwards = &case.inside.forwards;
    let main = case.main()?.tgid;
    let below = |parent: Option<Pid>| {
        let is_below = |forward: &Forward| match parent {
            Some(parent) => forward.parent == parent && forward.target.tgid != parent,
            None => true,
        };
        let alive = (0..forwards.len()).filter(|&i| is_alive(&forwards[i]) && is_below(&forwards[i]));
        alive.min_by_key(|&i| (!Answer::of_forward(&forwards[i]).is_fault(), i))
    };
    let mut found = below(Some(main)).or_else(|| below(None))?;
    // A chain is no longer than the list; crafted parents may go in a circle.
    for _ in 0..forwards.len() {
        let Some(deeper) = below(Some(forwards[found].target.tgid)) else {
            break;
        };
        let [here, there] = [found, deeper].map(|i| Answer::of_forward(&forwards[i]).is_fault());
        if here && !there {
            break;
        }
        found = deeper;
    }
    Some(found)
}

/// Its supervisor killed it at once.
fn had_no_time(forward: &Forward) -> bool {
    let by_inside = forward.kill.filter(|kill| kill.role == Role::Inside);
    forward.handler_entered.is_none() && by_inside.is_some_and(|kill| kill.at.since(forward.at) <= NO_TIME)
}

/// It ended by a fault that no other process had sent it.
fn crashed(case: &Case<'_>, forward: &Forward) -> bool {
    let by_itself = forward.kill.is_none();
    // A program with clients may outlive a wrapper that does not wait for it.
    signal(forward).is_some_and(Signal::is_fault) && by_itself && (in_time(case, forward) || forward.served)
}

fn killed_by_other(case: &Case<'_>, forward: &Forward) -> bool {
    let by_other = forward.kill.filter(|kill| kill.role == Role::Other);
    by_other.is_some_and(|kill| signal(forward) == Some(kill.signal)) && in_time(case, forward)
}

/// It was in its shutdown, or about to begin with it, when the main process exited.
fn abandoned(case: &Case<'_>, forward: &Forward) -> bool {
    let handles = match Answer::of_forward(forward) {
        Answer::Handled | Answer::Read => true,
        Answer::Unread(_) => forward.disposition == Disposition::Handler && !forward.state.blocked,
        Answer::Discarded | Answer::RaisedInVain => false,
    };
    outlived_main(case, forward) && handles && signal(forward) == Some(Signal::KILL)
}

/// Whether it was killed because the main process had exited: at the exit of PID 1 the kernel kills the others, at that of any other first
/// process the container runtime does. systemd may first give a unit's other processes their own time.
pub(in crate::verdict) fn outlived_main(case: &Case<'_>, forward: &Forward) -> bool {
    let Some((main, kill)) = case.main().zip(forward.kill) else {
        return false;
    };
    let by_end = match kill.role {
        Role::Kernel => main.is_ns_init && main.tgid == kill.sender.tgid,
        Role::Runtime => match case.subject {
            Subject::Container { .. } => !main.is_ns_init,
            // One with clients has a rule of its own: `killed_below`.
            Subject::Unit { .. } => kill.at.since(case.end) <= CHILD_REACH && !forward.served,
        },
        _ => false,
    };
    by_end && kill.at >= case.end
}

fn in_time(case: &Case<'_>, forward: &Forward) -> bool {
    forward.exit.is_some_and(|exit| exit.at <= case.end)
}

/// A supervisor has a grace period of its own. It may signal the group of a job, in which a shell is the job's parent, and leave the second
/// signal to another process than the first, as the `pkill` of a script.
fn killed_by_its_supervisor(case: &Case<'_>, forward: &Forward) -> bool {
    // PID 1 may exit without waiting for the end that it has sent.
    let by_inside = |kill: &InnerKill| kill.role == Role::Inside && kill.at <= case.end && !kill.signal.is_fault();
    let Some(kill) = forward.kill.filter(by_inside) else {
        return false;
    };
    let by = kill.sender.tgid;
    let of_group = || {
        let is_shell = |other: &Forward| other.target.tgid == forward.parent && is_from_parent(other, by);
        case.inside.forwards.iter().any(is_shell)
    };
    let is_sender = by == forward.sender.tgid && (by == forward.parent || of_group());
    // An application disposes of its helper at once.
    let is_its = is_sender || forward.killed_by_own && kill.at.since(forward.at) > NO_TIME;
    is_its && signal(forward) == Some(kill.signal)
}

/// The process that the default action terminated, if the main process did nothing but wait for it: an init reads the signal without a
/// handler and exits with the code of its child. With a handler of its own the main process may be the application, and its children
/// helpers: then only if nothing else was there to stop.
fn terminated(case: &Case<'_>, stop: &Stop) -> Option<(usize, Proof)> {
    let forwards = &case.inside.forwards;
    let code = case.exit?.status.reported_code();
    let of_init = |forward: &Forward| {
        let is_its_code = code == 128 + i32::from(forward.signal.number());
        is_child_of_main(case, forward) && by_default(case, forward) && is_its_code && !has_exited_below(case, forward)
    };
    let reads_without_handler = stop.handler_entered.is_none() && (stop.state.blocked || stop.state.sigwait);
    if reads_without_handler && let Some(found) = forwards.iter().position(of_init) {
        return Some((found, Proof::Whole));
    }
    let main = case.main()?;
    let is_apart = |forward: &Forward| forward.target.comm != main.comm && forward.target.comm != forward.sender.comm;
    // Beside a program that closes its listener, too: no helper, or one whose work was lost.
    let has_cut =
        |forward: &Forward| forward.has_cut && by_default(case, forward) && is_apart(forward) && !is_of_pool(case, forward);
    if let Some(found) = forwards.iter().position(has_cut) {
        return Some((found, Proof::Whole));
    }
    let serves = case.traffic().listeners.iter().any(|listener| !listener.by_exit);
    // Whatever the processes between did: nobody closed a listener, and this one had clients when the signal ended it.
    let served = |forward: &Forward| forward.served && by_default(case, forward) && forward.target.comm != main.comm;
    if !serves && let Some(found) = forwards.iter().position(served) {
        return Some((found, Proof::NoListenerClosed));
    }
    let is_relay = |forward: &Forward| relays(case, forward);
    let waits_only = reads_without_handler && !forwards.iter().any(is_relay);
    let mut last = forwards.iter().filter(|forward| !is_relay(forward));
    let all = last.all(|forward| by_default(case, forward) && is_apart(forward));
    let is_supervised = |forward: &Forward| forward.parent == forward.sender.tgid && !is_relay(forward);
    if !all || serves && !waits_only {
        return None;
    }
    let has_unseen_child = |of: &Forward| forwards.iter().any(|other| is_from(other, of) && other.exit.is_none());
    let is_unseen = |forward: &Forward| is_relay(forward) && (forward.exit.is_none() || has_unseen_child(forward));
    let proof = match waits_only {
        _ if forwards.iter().any(is_unseen) => Proof::ExitsNotSeen,
        true => Proof::Whole,
        false => Proof::NoListenerClosed,
    };
    Some((forwards.iter().position(is_supervised)?, proof))
}

/// All that got the signal below it exited by themselves, as the program of a shell in a group that an init signals as a whole: the shell
/// only waited.
fn has_exited_below(case: &Case<'_>, forward: &Forward) -> bool {
    let of = forward.target.tgid;
    let mut children = case.inside.forwards.iter().filter(|other| other.parent == of).peekable();
    let has_exited = |child: &Forward| code(child).is_some() && in_time(case, child);
    children.peek().is_some() && children.all(has_exited)
}

/// It exited with an error below a shell that the default action ended: the code of the shell hides its own.
fn failed_below_shell(case: &Case<'_>, forward: &Forward) -> bool {
    let is_shell = |other: &Forward| is_child_of_main(case, other) && by_default(case, other);
    let is_parent = |other: &Forward| other.target.tgid == forward.parent && is_shell(other);
    code(forward).is_some_and(|code| is_error(code, forward.signal))
        && in_time(case, forward)
        && case.inside.forwards.iter().any(is_parent)
}

/// Neither 0 nor the code of that signal.
fn is_error(code: u8, stop: Signal) -> bool {
    code != 0 && u32::from(code) != 128 + u32::from(stop.number())
}

/// What shows that the processes between did nothing but wait.
#[derive(Clone, Copy)]
enum Proof {
    Whole,
    /// A lost record could be that of an application which closed its listener.
    NoListenerClosed,
    /// Lost records could show that a process between had more to do.
    ExitsNotSeen,
}

/// An init or a wrapper below the main process, as `npm`, `make` or `timeout`: it sent the signal on to its own child, and exits as soon as
/// the child has exited, or does not wait for a child with clients, as the trap of a shell that exits. An application that stops a helper has more to do.
fn relays(case: &Case<'_>, forward: &Forward) -> bool {
    let follows = |other: &Forward| match forward.exit.zip(other.exit) {
        Some((own, childs)) if own.at < childs.at => other.served && own.at.since(other.at) <= ONLY_WAITED,
        Some((own, childs)) => own.at.since(childs.at) <= ONLY_WAITED,
        None => may_miss_exits(case),
    };
    let mut others = case.inside.forwards.iter();
    others.any(|other| is_from(other, forward) && follows(other)) && !abandoned(case, forward)
}

/// Whether the target of `forward` sent `other` to its own child.
fn is_from(other: &Forward, forward: &Forward) -> bool {
    is_from_parent(other, forward.target.tgid)
}

fn is_from_parent(forward: &Forward, parent: Pid) -> bool {
    forward.sender.tgid == parent && forward.parent == parent
}

/// The signal's default action terminated it, at once or after a handler that only raised the signal again.
fn by_default(case: &Case<'_>, forward: &Forward) -> bool {
    let is_accepted = forward.state.exiting && forward.disposition == Disposition::Default;
    let is_terminated = signal(forward) == Some(forward.signal) || forward.exit.is_none() && is_accepted;
    is_terminated && (forward.began().is_none() || is_reflex(case, forward.began(), forward.raised_again))
}

fn is_child_of_main(case: &Case<'_>, forward: &Forward) -> bool {
    case.main().is_some_and(|main| main.tgid == forward.parent)
}

fn status(forward: &Forward) -> Option<ExitStatus> {
    forward.exit.map(|exit| exit.status)
}

fn code(forward: &Forward) -> Option<u8> {
    status(forward)?.code()
}

fn signal(forward: &Forward) -> Option<Signal> {
    status(forward)?.signal()
}
