//! What to do about the end of a process below the main process.

use super::*;
use crate::verdict::sentence::settings::{after_grace, blocked, declared, or_declare, stop_signal, too_young, without_a_core};

/// Of programs that were killed below a main process that ended well.
pub(in crate::verdict::sentence) fn remedy_below(case: &Case<'_>) -> Option<String> {
    let killed = worst(&case.inside)?;
    let who = name(case.main(), &case.inside, &killed.process);
    let main = target(case.main());
    let is_unit = matches!(case.subject, Subject::Unit { .. });
    Some(match killed.kill.role {
        _ if killed.kill.by_oom_daemon => more_memory(killed.kill.sender.comm),
        Role::Other | Role::Unknown => format!(
            "find out why {who} was killed, and use the stop command of the {} instead",
            manager(case)
        ),
        _ if killed.kill.signal != Signal::KILL => {
            let waits = match killed.kill.at >= case.end {
                true => format!(", and {}", wait_for(&main, &who)),
                false => String::new(),
            };
            format!("{}{waits}", install(killed.kill.signal, &who))
        }
        _ if killed.was_signalled => wait_for(&main, &who),
        _ if case.stop().is_none() => {
            let ends = if is_unit { "a unit" } else { "a container" };
            format!(
                "if {who} is the service, start it in the foreground (with `exec` in a shell): {ends} ends with its first process"
            )
        }
        // With any other setting systemd sends it to each process.
        Role::Runtime if is_unit => {
            let signal = stop_signal(case);
            format!("let systemd send {signal} to {who} (`KillMode=control-group`), or let {main} stop {who} and wait for it")
        }
        _ => {
            let comm = case.main().map(|main| main.comm).unwrap_or_default();
            to_others(case, (&main, comm), &[killed.process], stop_signal(case))
        }
    })
}

fn more_memory(daemon: Comm) -> String {
    format!("raise the memory limit, or reduce the memory that is needed; the log of `{daemon}` has the memory that it saw")
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

pub(in crate::verdict::sentence) fn remedy(case: &Case<'_>, finding: &Finding, end: InnerEnd, of: usize) -> Option<String> {
    let forward = case.inside.forwards.get(of)?;
    let signal = forward.signal;
    let who = name(case.main(), &case.inside, &forward.target);
    let by = name(case.main(), &case.inside, &forward.sender);
    let waited = forward.exit.map(|exit: MainExit| seconds(exit.at.since(forward.at)));
    match end {
        InnerEnd::Ignored => {
            let lost = waited.map_or(String::new(), |waited| format!("; this avoids the wait of {waited}"));
            let declare = or_declare(case, signal);
            Some(format!("handle {signal} in {who}{declare}{lost}{}", early(forward, &who)))
        }
        InnerEnd::Blocked(how) => blocked(how),
        InnerEnd::AfterGrace if !unreached(case, forward).is_empty() => Some(to_others(
            case,
            (&who, forward.target.comm),
            &unreached(case, forward),
            signal,
        )),
        InnerEnd::AfterGrace if is_killed_inside(forward) => {
            let orphans = match orphans(case, forward) {
                orphans if orphans.is_empty() => String::new(),
                orphans => format!(
                    "; if {who} waited for {}, which got no signal: {}",
                    names(case, &orphans),
                    to_others(case, (&who, forward.target.comm), &orphans, signal)
                ),
            };
            let timeout = match forward.sender.comm == Comm::new(PARALLEL) {
                true => format!(
                    "give its jobs more time (`--termseq TERM,10000,KILL,25`: 10 s), or declare SIGHUP as the stop signal ({}), at which \
                     {by} starts no further job and waits for its jobs",
                    declared(case)
                ),
                false => format!("raise the stop timeout of {by}, or shorten the shutdown"),
            };
            Some(format!(
                "the shutdown of {who} needs more than the {} that {by} gave it: {timeout}{orphans}",
                waited.unwrap_or_default()
            ))
        }
        InnerEnd::AfterGrace => after_grace(case, finding),
        InnerEnd::AtOnce => Some(format!(
            "{by} gave {who} no time: raise the stop timeout of {by}, or send {by} the stop signal at which it waits for its processes (see its \
             documentation; {})",
            declared(case)
        )),
        InnerEnd::Crashed => {
            let signal = forward.exit.and_then(|exit| exit.status.signal());
            let of_signal = signal.and_then(|signal| without_a_core(case, &who, signal, false));
            Some(of_signal.unwrap_or_else(|| {
                format!("look at the core dump or the last lines of the log of {who}: the fault is in its shutdown")
            }))
        }
        InnerEnd::KilledByOther if let Some(kill) = forward.kill.filter(|kill| kill.by_oom_daemon) => {
            Some(more_memory(kill.sender.comm))
        }
        InnerEnd::KilledByOther => {
            let (by, with) = killer(case, forward);
            Some(format!(
                "find out why {by} sent {with}, and use the stop command of the {} instead",
                manager(case)
            ))
        }
        InnerEnd::Abandoned => Some(wait_for(&target(case.main()), &who)),
        InnerEnd::DefaultAction if left(case).is_empty() => Some(install(signal, &who) + &early(forward, &who)),
        InnerEnd::DefaultAction if STANDS_IN.map(Comm::new).contains(&forward.target.comm) => {
            Some(to_others(case, (&who, forward.target.comm), &unsignalled(case), signal))
        }
        // It is the program itself, with its own processes: `exec` would change nothing.
        InnerEnd::DefaultAction if left_are_like(case, forward.target.comm) => Some(format!(
            "install a {signal} handler in {who} that finishes the work in flight, also that of its other processes, and then exits with 0"
        )),
        InnerEnd::DefaultAction => Some(format!(
            "start the program with `exec` in {who}, so that {by} forwards {signal} to the program itself and waits for it; an init that \
             signals the whole process group (`tini -g`, dumb-init) reaches the program, but does not wait for it"
        )),
        InnerEnd::Nonzero => Some(format!(
            "read the log of {who}; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number"
        )),
    }
}

/// From the main process to those that did not get it.
pub(in crate::verdict::sentence) fn to_unsignalled(case: &Case<'_>) -> String {
    to_these(case, &unsignalled(case))
}

/// The remedy where the main process may have waited for programs that did not get the signal.
pub(in crate::verdict::sentence) fn to_waited_for(case: &Case<'_>) -> Option<String> {
    programs_waited_for(case).map(|programs| to_these(case, &programs))
}

fn to_these(case: &Case<'_>, others: &[InnerProcess]) -> String {
    let signal = stop_signal(case);
    let comm = case.main().map(|main| main.comm).unwrap_or_default();
    to_others(case, (&target(case.main()), comm), others, signal)
}

/// What lets the signal reach the others. A PID 1 that sent the signal on works as an init does; any other is a shell or the application.
fn to_others(case: &Case<'_>, (who, comm): (&str, Comm), others: &[InnerProcess], signal: Signal) -> String {
    let others = names(case, others);
    if STANDS_IN.map(Comm::new).contains(&comm) {
        return format!(
            "{who} only keeps the {} running: start {others} in the foreground instead (with `exec` in a shell), so that {signal} reaches the \
             service",
            subject(case)
        );
    }
    if comm == Comm::new("runsvdir") && signal == Signal::TERM {
        return format!(
            "declare SIGHUP as the stop signal ({}): at SIGHUP `runsvdir` stops its services, and at {signal} it leaves them to be killed",
            declared(case)
        );
    }
    if comm == Comm::new(PARALLEL) {
        return format!("raise the grace period above the length of a job: at {signal} {who} waited for its jobs ({others})");
    }
    let main = case.main().filter(|main| main.is_ns_init).map(|main| main.tgid);
    let by_init = case.inside.forwards.iter().any(|forward| Some(forward.sender.tgid) == main);
    let how = match by_init {
        true => {
            "start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`, or let the init signal the \
             whole process group (`tini -g`)"
        }
        false => {
            "a shell must start the program with `exec`, or in the background with a trap that runs `kill` and then `wait`; any other \
             program must signal its children and wait for them before its own exit"
        }
    };
    format!("send {signal} on from {who} to {others}: {how}")
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
