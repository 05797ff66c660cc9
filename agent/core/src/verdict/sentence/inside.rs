//! The stop signal's way from the main process to the process that people wrote.

mod advice;

use super::signals::{killed, sent, unfinished};
use crate::attribute::Subject;
use crate::event::{Disposition, ExitStatus, SignalResult};
use crate::ids::{Comm, Pid, Signal};
use crate::ledger::Claim;
use crate::termination::{Forward, InnerProcess, Inside, Killed, MainExit, MainProcess, Role, Unsignalled};
use crate::time::Boot;
use crate::verdict::case::Case;
use crate::verdict::judge::{Blocked, InnerEnd, outlived_main, worst};
use crate::verdict::words::{self, manager, seconds, subject, target, the_runtime, upper};
pub(super) use advice::{REMEDIES, SentOn, killed_by_its_supervisor, spare_of};

/// Programs that start no other, and that keep a container running whose service has put itself into the background: `tail -f`.
const STANDS_IN: [&str; 3] = ["tail", "sleep", "cat"];

/// GNU parallel, which runs jobs.
pub(super) const PARALLEL: &str = "parallel";

/// Why a daemon kills.
const MEMORY: &str = ", because memory was running out";

/// Longest chain of processes in a sentence.
const CHAIN: usize = 4;

/// The sentence of a second signal that the kernel has just discarded: the handler of the main process had raised it.
pub fn raised_in_vain(main: &MainProcess, signal: Signal) -> String {
    upper(in_vain(main, signal))
}

/// The sentence of a stop signal that the kernel discarded for each process at the end of its way that still runs, with its time. None if
/// there is none.
pub fn discarded_inside(main: &MainProcess, inside: &Inside) -> Option<(Boot, String)> {
    let alive = || inside.forwards.iter().filter(|forward| forward.exit.is_none());
    let sends_on = |forward: &Forward| alive().any(|other| other.sender.tgid == forward.target.tgid);
    let mut last = alive().filter(|forward| !sends_on(forward));
    let discards = |forward: &&Forward| {
        let raised = forward.raised_again.is_some_and(|raised| raised.discarded);
        forward.result == SignalResult::Ignored || raised
    };
    let (first, all) = (last.clone().next()?, last.all(|forward| discards(&forward)));
    all.then(|| {
        let sentence = upper(format!("{}, {}", chain(Some(main), inside, first), discarding(first)));
        (first.at, sentence)
    })
}

pub(super) fn how(case: &Case<'_>, end: InnerEnd, of: usize) -> String {
    let Some(forward) = case.inside.forwards.get(of) else {
        return sent(case);
    };
    let signal = forward.signal;
    let chain = whole_chain(case, forward);
    let took = forward.exit.map_or(String::new(), |exit| seconds(exit.at.since(forward.at)));
    let handled = match forward.handler_entered {
        Some(_) => "whose handler ran, and which",
        None => "which",
    };
    let read = match forward.handler_entered {
        Some(_) => "whose handler ran",
        None => "which reads the signal without a handler (signalfd or sigwait)",
    };
    match end {
        InnerEnd::Ignored => format!("{chain}, {}; {}", discarding(forward), killed_by(case, forward)),
        InnerEnd::Blocked(how) => format!("{chain}, {}; {}", unread(how, signal), killed_by(case, forward)),
        InnerEnd::AfterGrace => {
            let waits = match unreached(case, forward) {
                below if below.is_empty() => String::new(),
                below => format!(" and sent no signal to {}", names(case, &below)),
            };
            format!(
                "{chain}, {read}{waits}, but {}: {}",
                unfinished(case),
                killed_by(case, forward)
            )
        }
        InnerEnd::DefaultAction => {
            let (how, lost) = match forward.raised_again {
                Some(_) => (
                    format!("whose handler raised {signal} again at once, so the default action terminated it"),
                    "any work that the handler had not finished",
                ),
                None => (
                    format!("which has no {signal} handler and was terminated by the default action"),
                    "any work in flight",
                ),
            };
            format!("{chain}, {how}{}: {lost} was lost", left(case))
        }
        InnerEnd::Nonzero => {
            let status = forward.exit.map_or(String::new(), |exit| words::how(exit.status));
            format!("{chain}, {handled} {status}, {took} later")
        }
        InnerEnd::AtOnce => format!("{chain}, which had no time for its shutdown: {}", killed_by(case, forward)),
        InnerEnd::Crashed => {
            let fault = match forward.exit.map(|exit| exit.status) {
                Some(ExitStatus::Signaled { signal, core_dumped }) => {
                    let core = if core_dumped { " (core dumped)" } else { "" };
                    format!("{signal}{core}")
                }
                _ => "a fault".to_owned(),
            };
            format!("{chain}, {handled} crashed with {fault}, {took} later; {}", main_end(case))
        }
        InnerEnd::KilledByOther => {
            let (by, with) = killer(case, forward);
            let who = name(case.main(), &case.inside, &forward.target);
            if forward.kill.is_some_and(|kill| kill.by_oom_daemon) {
                return format!(
                    "{chain}; {by} sent {with} to {who}, {took} after {signal}{MEMORY}; {}",
                    main_end(case)
                );
            }
            format!(
                "{chain}; {by} sent {with} to {who}, {took} after {signal}, during the grace period; the sender is neither the runtime nor a \
                 process of the {}",
                subject(case)
            )
        }
        InnerEnd::Abandoned => {
            let ran = forward.handler_entered.map_or("", |_| ", whose handler ran");
            format!("{chain}{ran}; {}{}", main_end(case), then_killed(case))
        }
    }
}

/// With the sender of the stop signal, where that is not the runtime.
fn whole_chain(case: &Case<'_>, last: &Forward) -> String {
    let chain = chain(case.main(), &case.inside, last);
    let is_runtime = case.stop().is_none_or(|stop| stop.sender.role == Role::Runtime);
    let main = case.main().map(|main| format!("`{}`", main.comm));
    match main.and_then(|main| Some(chain.strip_prefix(&main)?.to_owned())) {
        Some(rest) if !is_runtime => format!("{}, which{rest}", sent(case)),
        _ => chain,
    }
}

/// "PID 1 `bash` then exited with code 0".
fn main_end(case: &Case<'_>) -> String {
    format!("{} then {}", target(case.main()), words::status(case))
}

/// Who ended it from outside, and by which signal.
fn killer(case: &Case<'_>, forward: &Forward) -> (String, Signal) {
    let by = |process: &InnerProcess| format!("`{}` (pid {})", process.comm, process.tgid);
    match forward.kill {
        Some(kill) if kill.role == Role::Other => (by(&kill.sender), kill.signal),
        Some(kill) => (name(case.main(), &case.inside, &kill.sender), kill.signal),
        None => ("an unknown sender".to_owned(), Signal::KILL),
    }
}

/// A process that failed although the main process exited as after a shutdown.
pub(super) fn failed(case: &Case<'_>) -> Option<String> {
    let main_code = case.exit.map(|exit| exit.status);
    let has_failed = |forward: &&Forward| match forward.exit.filter(|exit| exit.at <= case.end).map(|exit| exit.status) {
        Some(status @ ExitStatus::Exited(code)) => {
            code != 0 && u32::from(code) != 128 + u32::from(forward.signal.number()) && Some(status) != main_code
        }
        _ => false,
    };
    let mut failed = case.inside.forwards.iter().filter(has_failed);
    let first = failed.next()?;
    let status = first.exit.map_or(String::new(), |exit| words::how(exit.status));
    let others = match failed.count() {
        0 => String::new(),
        1 => ", and 1 other process exited with an error".to_owned(),
        more => format!(", and {more} other processes exited with an error"),
    };
    Some(format!("{} {status}{others}", name(case.main(), &case.inside, &first.target)))
}

/// The words of a process that never read its stop signal.
pub(super) fn unread(how: Blocked, signal: Signal) -> String {
    match how {
        Blocked::Frozen => "which was frozen and never read the signal".to_owned(),
        Blocked::Stopped => "which was stopped (SIGSTOP) and never read the signal".to_owned(),
        Blocked::Traced => "which was held by a debugger and never read the signal".to_owned(),
        Blocked::Masked => format!("which blocks {signal} in its signal mask and never read the signal"),
        Blocked::HandlerNeverEntered => "whose handler never ran".to_owned(),
        Blocked::NothingEntered => "which never acted on the signal".to_owned(),
    }
}

/// The main process and its second signal.
pub(super) fn in_vain(main: &MainProcess, signal: Signal) -> String {
    let who = target(Some(main));
    format!(
        "{who} entered its {signal} handler, which raised {signal} again for the default action; PID 1 has none, so the kernel discarded \
         the second signal"
    )
}

/// What the main process sent to others: "sent the signal on to `app`", "sent SIGQUIT to 4 processes". None: nothing.
pub(super) fn sent_on(case: &Case<'_>) -> Option<String> {
    let main = case.main()?.tgid;
    let of_main = || case.inside.forwards.iter().filter(|forward| forward.sender.tgid == main);
    let first = of_main().next()?;
    let to = match of_main().count() as u64 - 1 + case.inside.more {
        0 => name(case.main(), &case.inside, &first.target),
        more => format!("{} processes", more + 1),
    };
    // Of the rest, neither the signal nor the sender is kept.
    let is_one_signal = case.inside.more == 0 && of_main().all(|forward| forward.signal == first.signal);
    Some(match case.stop() {
        _ if !is_one_signal => format!("sent signals to {to}"),
        Some(stop) if stop.signal != first.signal => format!("sent {} to {to}", first.signal),
        _ => format!("sent the signal on to {to}"),
    })
}

/// The main process read the signal, and others did not get it.
pub(super) fn forwards_to_nobody(case: &Case<'_>) -> Option<String> {
    let inside = &case.inside;
    let nobody = inside.observed
        && is_whole(case)
        && inside.main_sent_nothing
        && inside.forwards.is_empty()
        && !inside.unsignalled.is_empty();
    nobody.then(|| names(case, &unsignalled(case)))
}

/// The programs among these, for which the main process may have waited.
pub(super) fn waited_for(case: &Case<'_>) -> Option<String> {
    programs_waited_for(case).map(|programs| names(case, &programs))
}

fn programs_waited_for(case: &Case<'_>) -> Option<Vec<InnerProcess>> {
    forwards_to_nobody(case)?;
    Some(programs(case, unsignalled(case))).filter(|programs| !programs.is_empty())
}

/// A server's process without sockets is a helper: nothing shows that the server waits for it.
fn programs(case: &Case<'_>, mut of: Vec<InnerProcess>) -> Vec<InnerProcess> {
    let traffic = case.traffic();
    if traffic.listeners.is_empty() && traffic.accepted.count == 0 {
        return of;
    }
    let is_program = |of: &InnerProcess| case.inside.killed_programs().any(|killed| killed.process.tgid == of.tgid);
    of.retain(is_program);
    of
}

/// The programs below the target, to which it sent nothing: it may wait for them. Its siblings are no matter of its own.
fn unreached(case: &Case<'_>, forward: &Forward) -> Vec<InnerProcess> {
    let inside = &case.inside;
    let sends_on = inside.forwards.iter().any(|other| other.sender.tgid == forward.target.tgid);
    let mut below: Vec<InnerProcess> = Vec::new();
    if !is_whole(case) || sends_on {
        return below;
    }
    // A chain is no longer than the list; the list is not in the order of descent.
    for _ in &inside.unsignalled {
        for of in &inside.unsignalled {
            let is_child = of.parent == forward.target.tgid || below.iter().any(|parent| parent.tgid == of.parent);
            if is_child && !below.contains(&of.process) {
                below.push(of.process);
            }
        }
    }
    programs(case, below)
}

/// No signal among the processes is missing.
fn is_whole(case: &Case<'_>) -> bool {
    !case.missing.has_any(Claim::Others)
}

fn unsignalled(case: &Case<'_>) -> Vec<InnerProcess> {
    case.inside.unsignalled.iter().map(|of| of.process).collect()
}

/// Processes that were killed without the signal, after it had terminated the main process: a shell, mostly.
pub(super) fn left_by_default_action(case: &Case<'_>) -> Option<String> {
    let others = forwards_to_nobody(case)?;
    Some(format!(
        "{} then killed {others}, which never got the signal",
        killer_of_others(case)
    ))
}

/// These are processes of the program itself, which need no signal: it may end them in another way.
pub(super) fn are_its_own(case: &Case<'_>) -> bool {
    let main = case.main().map(|main| main.comm);
    unsignalled(case).iter().all(|process| Some(process.comm) == main)
}

/// The worst end below the main process came before its own.
pub(super) fn is_first(case: &Case<'_>) -> bool {
    worst(&case.inside).is_some_and(|worst| worst.kill.at < case.end)
}

/// The programs that were killed below the main process: with the worst one those that ended alike.
pub(super) fn killed_below(case: &Case<'_>) -> Option<String> {
    let worst = worst(&case.inside)?;
    let is_alike = |killed: &&Killed| {
        let of = |Killed { kill, was_signalled, .. }: &Killed| (*was_signalled, kill.role, kill.sender.tgid, kill.signal);
        of(killed) == of(worst)
    };
    let alike = || case.inside.killed_programs().filter(is_alike);
    let who = names(case, &alike().map(|killed| killed.process).collect::<Vec<_>>());
    let by = match worst.kill.role {
        Role::Kernel => "the kernel".to_owned(),
        Role::Runtime => the_runtime(case).to_owned(),
        Role::Unknown => "an unknown sender".to_owned(),
        Role::Itself | Role::Inside => name(case.main(), &case.inside, &worst.kill.sender),
        Role::Other => format!("`{}` (pid {})", worst.kill.sender.comm, worst.kill.sender.tgid),
    };
    let signal = match case.stop() {
        _ if worst.was_signalled => ", which had not finished,",
        Some(_) => ", which never got the signal,",
        None => ", which still ran,",
    };
    let memory = match worst.kill.by_oom_daemon {
        true => MEMORY,
        false => "",
    };
    let listener = alike().any(|killed| killed.held.listener.is_some()).then_some("its listener");
    let connections = alike()
        .any(|killed| killed.held.connection.is_some())
        .then_some("connections");
    let others = alike()
        .any(|killed| killed.held.other.is_some())
        .then_some("a Unix or UDP socket");
    let open: Vec<&str> = listener.into_iter().chain(connections).chain(others).collect();
    let then = if worst.kill.at >= case.end { " then" } else { "" };
    let open = open.join(" and ");
    Some(match worst.kill.signal {
        Signal::KILL => format!("{by}{then} killed {who}{signal} with {open} open{memory}"),
        other => {
            let memory = if memory.is_empty() {
                String::new()
            } else {
                format!("{memory},")
            };
            format!("{by}{then} sent {other}{memory} to {who}, which its default action terminated with {open} open")
        }
    })
}

pub(super) fn names_of_killed(case: &Case<'_>) -> String {
    names(
        case,
        &case.inside.killed.iter().map(|killed| killed.process).collect::<Vec<_>>(),
    )
}

pub(super) fn is_killed_inside(forward: &Forward) -> bool {
    forward.kill.is_some_and(|kill| kill.role == Role::Inside)
}

/// "the container runtime sent SIGKILL 10.0 s later", "`supervisord` sent SIGKILL 10.0 s later".
fn killed_by(case: &Case<'_>, forward: &Forward) -> String {
    match forward.kill.filter(|_| is_killed_inside(forward)) {
        Some(kill) => format!(
            "{} sent {} {} later",
            name(case.main(), &case.inside, &kill.sender),
            kill.signal,
            seconds(kill.at.since(forward.at))
        ),
        None => killed(case),
    }
}

/// Processes that were killed because the main process exited: without the signal, or before their shutdown had finished.
fn left(case: &Case<'_>) -> String {
    match then_killed(case) {
        killed if killed.is_empty() => killed,
        killed => match case.main() {
            Some(main) if !main.is_ns_init => format!("; `{}` then exited{killed}", main.comm),
            _ => format!("; PID 1 then exited{killed}"),
        },
    }
}

/// These have all that name: processes of one program.
fn left_are_like(case: &Case<'_>, comm: Comm) -> bool {
    let mut left = unsignalled(case).into_iter().chain(cut(case));
    left.all(|process| process.comm == comm)
}

/// Those that got the signal and were killed before their shutdown had finished.
fn cut(case: &Case<'_>) -> Vec<InnerProcess> {
    let cut = |forward: &&Forward| outlived_main(case, forward);
    case.inside
        .forwards
        .iter()
        .filter(cut)
        .map(|forward| forward.target)
        .collect()
}

fn then_killed(case: &Case<'_>) -> String {
    let inside = &case.inside;
    let cut = cut(case);
    let mut left = Vec::new();
    if !inside.unsignalled.is_empty() {
        left.push(format!("{}, which never got the signal", names(case, &unsignalled(case))));
    }
    if !cut.is_empty() {
        left.push(format!("{}, whose shutdown had not finished", names(case, &cut)));
    }
    match left.is_empty() {
        true => String::new(),
        false => format!(", and {} killed {}", killer_of_others(case), left.join(", and ")),
    }
}

/// Who kills the others once the main process has exited.
pub(super) fn killer_of_others(case: &Case<'_>) -> &'static str {
    match case.main() {
        Some(main) if !main.is_ns_init => the_runtime(case),
        _ => "the kernel",
    }
}

/// "`tini` forwarded SIGTERM to `bash`, which forwarded SIGTERM to `app`".
fn chain(main: Option<&MainProcess>, inside: &Inside, last: &Forward) -> String {
    let mut hops = vec![last];
    while let Some(first) = hops.last()
        && hops.len() < CHAIN
        && main.is_none_or(|main| main.tgid != first.sender.tgid)
        && let Some(earlier) = inside
            .forwards
            .iter()
            .find(|forward| forward.target.tgid == first.sender.tgid)
    {
        hops.push(earlier);
    }
    let mut text = hops.last().map_or(String::new(), |first| name(main, inside, &first.sender));
    for (i, hop) in hops.iter().rev().enumerate() {
        let which = if i == 0 { "" } else { ", which" };
        text.push_str(&format!(
            "{which} forwarded {} to {}",
            hop.signal,
            name(main, inside, &hop.target)
        ));
    }
    text
}

fn discarding(forward: &Forward) -> String {
    let signal = forward.signal;
    match (forward.raised_again, forward.disposition) {
        (Some(_), _) => format!("whose handler raised {signal} again, which the kernel discarded"),
        (None, Disposition::Ignore) => format!("which ignores {signal} (SIG_IGN)"),
        (None, Disposition::Default) => format!("which has no {signal} handler, so the kernel discarded the signal"),
        (None, Disposition::Handler | Disposition::Unknown) => format!("which ignores {signal}"),
    }
}

/// "`python3`", with its pid where another process has the same name.
fn name(main: Option<&MainProcess>, inside: &Inside, process: &InnerProcess) -> String {
    let all = inside
        .forwards
        .iter()
        .map(|forward| (forward.target.tgid, forward.target.comm));
    let unsignalled = inside.unsignalled.iter().map(|of| (of.process.tgid, of.process.comm));
    let mains = main.map(|main| (main.tgid, main.comm));
    let is_other = |(tgid, comm): (Pid, _)| tgid != process.tgid && comm == process.comm;
    match all.chain(unsignalled).chain(mains).any(is_other) {
        true => format!("`{}` (pid {})", process.comm, process.tgid),
        false => format!("`{}`", process.comm),
    }
}

pub(super) fn names(case: &Case<'_>, of: &[InnerProcess]) -> String {
    let mut names: Vec<String> = of.iter().map(|process| name(case.main(), &case.inside, process)).collect();
    match names.pop() {
        Some(last) if names.is_empty() => last,
        Some(last) => format!("{} and {last}", names.join(", ")),
        None => "other processes".to_owned(),
    }
}
