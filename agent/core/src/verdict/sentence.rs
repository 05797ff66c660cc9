//! The plain sentence with the measured times; [`remedy`] has what to do about it.

mod clients;
mod inside;
mod kubernetes;
mod oom;
mod remedy;
mod settings;
mod signals;
mod unknown;

use super::case::Case;
use super::judge::{Blocked, Crash, Finding, Why, began_in, by_systemd_shutdown, may_have_begun_before, own_grace};
use super::words::*;
use super::{Cause, Exit, TrafficAxis};
use clients::clients;
pub use inside::{discarded_inside, raised_in_vain};
pub(super) use remedy::remedy;
pub use remedy::{Remedy, remedies, remedies_of};
use settings::{refused_call, stop_signal};
use signals::{by_cgroup, killed, sender_of, sent, unfinished};
pub use unknown::OBSERVATION_ENDED;
use unknown::{late_start, unknown};

use crate::event::{Disposition, ExitStatus};
use crate::ids::Signal;
use crate::kubernetes::PodContext;
use crate::ledger::{Claim, Hole, Origin};
use crate::termination::{MainProcess, Role};
use crate::tolerances::{CHILD_REACH, HANDLER_LATE, YOUNG};

pub(super) fn sentence(case: &Case<'_>, finding: &Finding, traffic: TrafficAxis) -> String {
    let how = how_it_ended(case, finding);
    let mut text = match case.kubernetes {
        Some(context) => in_container(context, &how),
        None => upper(how),
    };
    let is_clean = finding.exit == Exit::Clean;
    let failed = inside::failed(case).filter(|_| is_clean);
    // An exit that was not clean is the verdict, and this comes after it.
    let left = (!is_clean && !matches!(finding.why, Why::Below(_)) && case.stop().is_none())
        .then(|| inside::killed_below(case))
        .flatten();
    let oom = oom::beside(case, finding);
    for clause in failed
        .into_iter()
        .chain(left)
        .chain(oom)
        .chain(kubernetes::clauses(case, finding))
    {
        text.push_str("; ");
        text.push_str(&clause);
    }
    // Before the first observation anything may have begun: only what a killed process had is measured.
    let is_measured = || case.kill().is_some() || !case.missing.of(Claim::FirstStop).all(|hole| began_in(case, hole));
    if !matches!(finding.why, Why::Unknown(_)) && may_have_begun_before(case) && is_measured() {
        text.push_str("; ");
        text.push_str(&begun_before(case));
    }
    if case.kubernetes.is_none() && finding.cause == Cause::NodeShutdown {
        text.push_str("; the node was shutting down");
    }
    if let Some(disagreement) = super::disagreement::find(case, finding) {
        text.push_str("; ");
        text.push_str(&disagreement.clause());
    }
    for clause in clients(case, finding.exit, traffic) {
        text.push_str("; ");
        text.push_str(&clause);
    }
    text
}

/// The sentence of a stop signal that the kernel has just discarded.
pub fn ignored(main: Option<&MainProcess>, signal: Signal, disposition: Disposition) -> String {
    upper(discarded(main, signal, disposition, "the signal"))
}

/// The same for a container whose pod is known.
pub fn in_container(context: &PodContext, sentence: &str) -> String {
    format!("{}: {sentence}", context.name())
}

fn how_it_ended(case: &Case<'_>, finding: &Finding) -> String {
    let who = target(case.main());
    let stopped = stopped(case);
    let took = took(case);
    let killed = killed(case);
    match &finding.why {
        Why::Completed if case.kubernetes.is_some_and(|context| context.stop_reason.is_some()) => {
            format!("{who} exited with code 0; no stop signal was seen")
        }
        Why::Completed => format!("{who} exited by itself with code 0"),
        Why::Stopped => {
            let ran = ran_handler(case);
            format!("{stopped}{ran} the process exited with code 0, {took} later")
        }
        Why::StoppedAfterDiscard => format!("{stopped}; the process exited with code 0, {took} later, for another reason"),
        Why::StoppedWithSignalCode(signal) => {
            let ran = ran_handler(case);
            format!(
                "{stopped}{ran} the process exited with code {}, {took} later (128 + {signal}: the usual code of many language runtimes \
                 after a shutdown)",
                128 + u32::from(signal.number())
            )
        }
        Why::Reraised => {
            let ran = ran_handler(case);
            format!("{stopped}{ran} the process then terminated itself with the same signal, {took} later")
        }
        Why::RaisedThenFailed => {
            let signal = stop_signal(case);
            let in_vain = case.main().map_or(stopped, |main| inside::in_vain(main, signal));
            format!("{in_vain}; the process then {}, {took} after {signal}", status(case))
        }
        Why::DefaultAction => default_action(case, &who),
        Why::RaisedAgain => raised_again(case, &who),
        Why::Inside(end, of) => inside::how(case, *end, *of),
        Why::Below(clean) => {
            let below = inside::killed_below(case).unwrap_or_default();
            match finding.cause {
                // It came first, and is the reason.
                Cause::External | Cause::Oom | Cause::Unknown if case.stop().is_none() && inside::is_first(case) => {
                    format!("{below}; {who} then {}", status(case))
                }
                _ => format!("{}; {below}", how_it_ended(case, &finding.with_why(clean))),
            }
        }
        Why::Nonzero => nonzero(case, finding, &who),
        Why::Ignored => format!("{stopped}; {killed}"),
        Why::RaisedInVain => {
            let signal = stop_signal(case);
            let in_vain = case.main().map_or(stopped, |main| inside::in_vain(main, signal));
            format!("{in_vain}; {killed}")
        }
        Why::CutByShutdown => cut_by_shutdown(case, &who),
        Why::RanAtShutdown => ran_at_shutdown(case, &who),
        Why::Blocked(how) => blocked(case, *how),
        Why::AfterGrace | Why::ForceDeleted | Why::Starved | Why::HookTookGrace => after_grace(case, finding),
        Why::Forced => forced(case, &who),
        Why::Oom => oom::main(case, &who),
        Why::OomByDaemon => oom::by_daemon(case, &who),
        Why::OomChild => oom::child(case, &who),
        Why::KilledByOther => killed_by_other(case, &who),
        Why::NamespaceEnded => format!("the kernel killed {who} because PID 1 of its pid namespace exited"),
        Why::Crashed(how) => crashed(case, *how, &who),
        Why::ChildCrashed | Why::ChildFailed => child_crashed(case, &who),
        Why::Expected => match case.stop() {
            Some(_) => format!(
                "{stopped}{} the process {} (declared as expected by an annotation), {took} later",
                ran_handler(case),
                status(case)
            ),
            None => format!("{who} {} (declared as expected by an annotation)", by_itself(case)),
        },
        Why::Listed => format!("{who} {}, a code that the container's restart rules list", by_itself(case)),
        Why::Stuck => kubernetes::stuck(case, &who),
        Why::NeverStarted => kubernetes::never_started(case),
        Why::Unknown(missing) => unknown(case, missing, &who),
    }
}

fn nonzero(case: &Case<'_>, finding: &Finding, who: &str) -> String {
    let took = took(case);
    match case.stop() {
        Some(_) => format!(
            "{}{} the process {}, {took} later",
            stopped(case),
            ran_handler(case),
            status(case)
        ),
        None if finding.cause == Cause::Unknown && case.missing.late_start().is_some() => format!(
            "{who} {}; {}, so a stop signal may have come before",
            status(case),
            late_start(case)
        ),
        None => format!("{who} {}{}", by_itself(case), young(case)),
    }
}

/// From the stop signal to the end.
fn took(case: &Case<'_>) -> String {
    case.stop().map_or(String::new(), |stop| since(case, stop.at))
}

fn blocked(case: &Case<'_>, how: Blocked) -> String {
    let signal = stop_signal(case);
    let unread = match settings::had_no_time(case, how) {
        true => "which had no time to act on the signal".to_owned(),
        false => inside::unread(how, signal),
    };
    format!("{}, {unread}; {}", sent(case), killed(case))
}

fn cut_by_shutdown(case: &Case<'_>, who: &str) -> String {
    let killed = killed(case);
    let own = own_grace(case);
    let of = own.map_or(String::new(), |(_, own)| {
        format!(", before the end of the container's grace period of {}", seconds(own))
    });
    let by = case.kill().is_some_and(by_systemd_shutdown);
    let who_killed = if by {
        "systemd-shutdown sent SIGKILL to all processes"
    } else {
        &killed
    };
    match case.stop() {
        Some(_) => format!("{}; {who_killed}{of}", stopped(case)),
        None => format!("{who_killed}; {who} received no stop signal"),
    }
}

fn ran_at_shutdown(case: &Case<'_>, who: &str) -> String {
    let had = case.shutdown.as_ref().and_then(|shutdown| shutdown.ran_at).zip(case.stop());
    let had = had.map_or(String::new(), |(ran, stop)| {
        format!(" {} after {}", seconds(ran.since(stop.at)), stop.signal)
    });
    format!("{who} still ran{had}, when the shutdown of the node stopped all processes")
}

fn after_grace(case: &Case<'_>, finding: &Finding) -> String {
    let handled = match case.stop().and_then(|stop| Some((stop, stop.handler_entered?))) {
        None if finding.why == Why::AfterGrace => "which reads the signal without a handler (signalfd or sigwait)".to_owned(),
        Some((stop, at)) if at.since(stop.at) >= HANDLER_LATE => {
            format!("the handler started {} later", seconds(at.since(stop.at)))
        }
        _ => "the handler started".to_owned(),
    };
    let sent_on = match (inside::sent_on(case), inside::waited_for(case)) {
        (Some(sent_on), _) => format!(" and {sent_on}, which stopped"),
        (None, Some(others)) => format!(" and sent no signal to {others}"),
        (None, None) => String::new(),
    };
    format!(
        "{}, {handled}{sent_on}, but {}: {}",
        sent(case),
        unfinished(case),
        killed(case)
    )
}

fn forced(case: &Case<'_>, who: &str) -> String {
    match case.kill() {
        Some(kill) => {
            let by = runtime(case, &kill.sender);
            // Others' signals that mostly mean "reload" explain nothing.
            let before = match case.stop().filter(|stop| stop.signal.is_conventional_stop()) {
                Some(stop) => format!(
                    "without a stop signal of its own, {} after {} had sent {}",
                    seconds(kill.at.since(stop.at)),
                    sender_of(case, stop),
                    stop.signal
                ),
                None => "without a stop signal first".to_owned(),
            };
            format!("{by} sent SIGKILL{} to {who} {before}", by_cgroup(kill.cgroup_kill))
        }
        None => format!("{} killed {who} without a stop signal first", the_runtime(case)),
    }
}

fn killed_by_other(case: &Case<'_>, who: &str) -> String {
    let Some(fatal) = case.fatal() else {
        return format!("{who} was killed");
    };
    let whence = match fatal.sender.role {
        Role::Inside => format!("the sender is another process of the same {}", subject(case)),
        _ => "the sender is neither the runtime nor the process itself".to_owned(),
    };
    let core = core(case);
    let inside = case.stop().filter(|stop| stop.at < fatal.at).map_or(String::new(), |stop| {
        format!(
            ", {} after {}, during the grace period",
            seconds(fatal.at.since(stop.at)),
            stop.signal
        )
    });
    format!(
        "{} sent {} to {who}{core}{inside}; {whence}",
        actor(&fatal.sender),
        fatal.signal
    )
}

/// The kernel's result for the stop signal: sent to the process, or discarded.
fn stopped(case: &Case<'_>) -> String {
    match case.stop() {
        Some(stop) if stop.is_discarded() => {
            let signal = match stop.sender.role {
                Role::Runtime if !is_named(case, &stop.sender) => "the signal".to_owned(),
                Role::Kernel => "the signal from the terminal".to_owned(),
                Role::Unknown => "the signal from an unknown sender".to_owned(),
                _ => format!("the signal from {}", actor(&stop.sender)),
            };
            discarded(case.main(), stop.signal, stop.disposition, &signal)
        }
        _ => sent(case),
    }
}

/// The words between the stop signal and the exit. A handler ran only if the kernel recorded its entry.
fn ran_handler(case: &Case<'_>) -> String {
    let sent_on = inside::sent_on(case).map_or(String::new(), |sent_on| format!(" and {sent_on}"));
    match case.stop() {
        Some(stop) if stop.handler_entered.is_some() => format!(", the handler ran{sent_on}, and"),
        Some(stop) if stop.state.blocked || stop.state.sigwait => {
            format!(", which reads the signal without a handler (signalfd or sigwait){sent_on}, and")
        }
        Some(_) => ", and".to_owned(),
        None => String::new(),
    }
}

fn discarded(main: Option<&MainProcess>, signal: Signal, disposition: Disposition, what: &str) -> String {
    let who = target(main);
    let why = match (disposition, main.filter(|main| main.is_ns_init)) {
        (Disposition::Default, Some(init)) => format!("`{}` is PID 1 and has no {signal} handler", init.comm),
        (Disposition::Default, None) => {
            format!("{who} has no {signal} handler, and the default action of {signal} is to do nothing")
        }
        (Disposition::Ignore, _) => format!("{who} ignores {signal} (SIG_IGN)"),
        (Disposition::Handler | Disposition::Unknown, Some(init)) => {
            format!(
                "`{}` is PID 1 and either has no {signal} handler or ignores {signal}",
                init.comm
            )
        }
        (Disposition::Handler | Disposition::Unknown, None) => format!("{who} ignores {signal}"),
    };
    format!("{why}, so the kernel discarded {what}")
}

fn default_action(case: &Case<'_>, who: &str) -> String {
    let (signal, sender) = match (case.stop(), case.fatal()) {
        (Some(stop), _) => (stop.signal, &stop.sender),
        (None, Some(fatal)) => (fatal.signal, &fatal.sender),
        (None, None) => return format!("the stop signal terminated {who}"),
    };
    let by = match sender.role {
        Role::Runtime if !is_named(case, sender) => String::new(),
        Role::Kernel => " from the terminal".to_owned(),
        Role::Unknown => " from an unknown sender".to_owned(),
        _ => format!(" from {}", actor(sender)),
    };
    let left = inside::left_by_default_action(case).map_or(String::new(), |left| format!("; {left}"));
    format!(
        "{signal}{by} terminated {who}{}: the process has no {signal} handler, so any work in flight was lost{left}",
        core(case)
    )
}

fn raised_again(case: &Case<'_>, who: &str) -> String {
    let Some(stop) = case.stop() else { return status(case) };
    let signal = stop.signal;
    let ended = match case.exit.and_then(|exit| exit.status.code()) {
        Some(code) => format!("exited with code {code}"),
        None => "was terminated by the default action".to_owned(),
    };
    let (read, unfinished) = match stop.handler_entered {
        Some(_) => (format!("entered its {signal} handler"), "the handler"),
        None => (format!("read {signal}"), "it"),
    };
    format!("{who} {read}, raised {signal} again at once, and {ended}: any work that {unfinished} had not finished was lost")
}

fn crashed(case: &Case<'_>, how: Crash, who: &str) -> String {
    let signal = case.exit.map_or("a signal".to_owned(), |exit| match exit.status {
        ExitStatus::Signaled { signal, .. } => signal.to_string(),
        ExitStatus::Exited(code) => format!("code {code}"),
    });
    let while_stopping = case.stop().map_or(String::new(), |stop| {
        format!(", {} after {}", since(case, stop.at), stop.signal)
    });
    let how = match how {
        Crash::Fault => "crashed with",
        Crash::Itself => "terminated itself with",
        Crash::Limit => "reached one of its resource limits and was terminated by",
    };
    let core = if dumped_core(case) { " (core dumped)" } else { "" };
    let aborted = case.fatal().is_some_and(|fatal| fatal.signal == Signal::ABRT) && signal != Signal::ABRT.to_string();
    if aborted {
        return format!(
            "{who} called abort(): the kernel discarded SIGABRT for PID 1, and the process ended by {signal}{core}{while_stopping}{}",
            young(case)
        );
    }
    let call = refused_call(case).map_or(String::new(), |call| {
        format!(": a seccomp filter refused the system call {call}")
    });
    format!("{who} {how} {signal}{core}{while_stopping}{}{call}", young(case))
}

/// Not "crashed with": a signal between two processes below PID 1 has no record without a stop.
fn child_crashed(case: &Case<'_>, who: &str) -> String {
    let child = case.failed_child.map_or(String::new(), |child| {
        let later = match case.exit.map(|exit| exit.at.since(child.exit.at)) {
            Some(later) if later >= CHILD_REACH => format!(" {} later", seconds(later)),
            _ => String::new(),
        };
        format!("`{}` {}, and{later} ", child.process.comm, how(child.exit.status))
    });
    format!("{child}{who} {}{}", status(case), young(case))
}

/// The times in the sentence begin with the first stop signal that was observed.
fn begun_before(case: &Case<'_>) -> String {
    let first = stop_signal(case);
    let are = |is: &dyn Fn(&Hole) -> bool| case.missing.of(Claim::FirstStop).all(is);
    let why = match () {
        () if are(&|hole| began_in(case, hole)) => {
            format!("the process started before the observation began, and this {first} may not be the first one")
        }
        () if are(&|hole| hole.why == Origin::Gap) => {
            format!("epitaph did not observe for part of the time before this {first}")
        }
        () => "the record of an earlier stop signal may be lost".to_owned(),
    };
    format!("{why}: the stop may have begun before it, and the shutdown may have taken longer than stated")
}

fn by_itself(case: &Case<'_>) -> String {
    match case.exit.and_then(|exit| exit.status.code()) {
        Some(code) => format!("exited by itself with code {code}"),
        None => status(case),
    }
}

/// Of a container that lived for less than a second: it never became ready, and the kubelet will restart it.
fn young(case: &Case<'_>) -> String {
    let lived = case.main().zip(case.exit).map(|(main, exit)| exit.at.since(main.start));
    match lived {
        Some(lived) if case.kubernetes.is_some() && case.stop().is_none() && lived < YOUNG => {
            format!(", {} after the start", seconds(lived))
        }
        _ => String::new(),
    }
}
