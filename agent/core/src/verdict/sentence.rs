//! The plain sentence with the measured times; [`remedy`] has what to do about it.

mod kubernetes;
mod remedy;

use std::time::Duration;

use super::judge::{Blocked, Case, Crash, Finding, Missing, Why};
use super::{Exit, TrafficAxis};
pub(super) use remedy::remedy;

use crate::attribute::Attribution;
use crate::event::{Disposition, ExitStatus, Kind};
use crate::ids::Signal;
use crate::kubernetes::PodContext;
use crate::termination::{Actor, MainProcess, OomKill, Open, RefusedSource, Role};
use crate::time::Boot;

pub(super) fn sentence(case: &Case<'_>, finding: &Finding, traffic: TrafficAxis) -> String {
    let how = how_it_ended(case, finding);
    let mut text = match case.kubernetes {
        Some(context) => in_container(context, &how),
        None => upper(how),
    };
    for clause in kubernetes::clauses(case, finding) {
        text.push_str("; ");
        text.push_str(&clause);
    }
    for clause in clients(case, finding.exit, traffic) {
        text.push_str("; ");
        text.push_str(&clause);
    }
    text
}

/// What to say the moment the kernel dropped a stop signal.
pub fn ignored(main: Option<&MainProcess>, signal: Signal, disposition: Disposition) -> String {
    let is_init = main.is_some_and(|main| main.is_ns_init);
    upper(format!(
        "{signal} reached {}, {}",
        target(main),
        dropped(disposition, is_init)
    ))
}

/// The same of a container whose pod is known.
pub fn in_container(context: &PodContext, sentence: &str) -> String {
    format!("{}: {sentence}", context.name())
}

fn how_it_ended(case: &Case<'_>, finding: &Finding) -> String {
    let who = target(case.main());
    let asked = asked(case);
    let ended = case.exit.map_or(case.end, |exit| exit.at);
    let took = case.stop().map_or(String::new(), |stop| seconds(ended.since(stop.at)));
    let killed = killed(case);
    match &finding.why {
        Why::Completed if case.kubernetes.is_some_and(|context| context.asked.is_some()) => {
            format!("{who} exited with code 0; no stop signal to it was seen")
        }
        Why::Completed => format!("{who} ended by itself with code 0"),
        Why::Stopped => {
            let ran = ran_handler(case);
            format!("{asked}{ran}and it exited with code 0, {took} later")
        }
        Why::StoppedUnheard => format!("{asked}; it exited with code 0, {took} later for another reason"),
        Why::StoppedWithSignalCode(signal) => {
            let ran = ran_handler(case);
            format!(
                "{asked}{ran}and it exited with code {} (128 + {signal}), {took} later, as many runtimes do after a shutdown",
                128 + u32::from(signal.number())
            )
        }
        Why::Reraised => format!("{asked}, its handler ran, and it then ended itself by the same signal {took} later"),
        Why::DefaultAction => default_action(case, &who),
        Why::Nonzero => match case.stop() {
            Some(_) => format!("{asked}{}and it exited with {}, {took} later", ran_handler(case), code(case)),
            None => format!("{who} ended by itself with {}{}", code(case), young(case)),
        },
        Why::Ignored => format!("{asked}; {killed}"),
        Why::Blocked(how) => {
            let how = match how {
                Blocked::Frozen => "which was frozen, so it never read it",
                Blocked::Stopped => "which was stopped (SIGSTOP), so it never read it",
                Blocked::Traced => "which a debugger held, so it never read it",
                Blocked::Masked => "which had it masked and never read it",
                Blocked::HandlerNeverEntered => "which has a handler but never came to enter it",
                Blocked::NothingEntered => "which never came to act on it",
            };
            format!("{}, {how}; {killed}", reached(case))
        }
        Why::AfterGrace | Why::ForceDeleted | Why::Starved | Why::HookTookGrace => {
            let handled = match case.stop().and_then(|stop| Some((stop, stop.handler_entered?))) {
                Some((stop, at)) if at.since(stop.at) >= Duration::from_millis(100) => {
                    format!("its handler was entered {} later", seconds(at.since(stop.at)))
                }
                _ => "its handler was entered".to_owned(),
            };
            format!("{}, {handled}, but it was not done: {killed}", reached(case))
        }
        Why::Forced => match case.kill() {
            Some(kill) => format!(
                "{} killed {who} with SIGKILL{} and had sent no stop signal before",
                runtime(&kill.sender),
                by_cgroup(kill.cgroup_kill)
            ),
            None => format!("the runtime killed {who} without a stop signal"),
        },
        Why::Oom => {
            let before = case.stop().map_or(String::new(), |stop| {
                format!(", {} after {}", since(case, stop.at), stop.signal)
            });
            format!("the kernel killed {who} because memory ran out{before}")
        }
        Why::OomChild => oom_child(case, &who),
        Why::KilledByOther => {
            let Some(fatal) = case.fatal() else {
                return format!("{who} was killed");
            };
            let whence = match fatal.sender.role {
                Role::Inside => "another process of its own",
                _ => "neither its runtime nor itself",
            };
            let core = core(case);
            let inside = case.stop().filter(|stop| stop.at < fatal.at).map_or(String::new(), |stop| {
                format!(", {} into the grace after {}", seconds(fatal.at.since(stop.at)), stop.signal)
            });
            format!(
                "{} sent {} to {who}{inside}{core}: {whence}",
                actor(&fatal.sender),
                fatal.signal
            )
        }
        Why::NamespaceEnded => format!("{who} was killed with its pid namespace, whose first process had ended"),
        Why::Crashed(how) => crashed(case, *how, &who),
        Why::Expected => match case.stop() {
            Some(_) => format!(
                "{asked}{}and it ended with {}, {took} later, as expected",
                ran_handler(case),
                code(case)
            ),
            None => format!("{who} ended by itself with {}, as expected", code(case)),
        },
        Why::Stuck => kubernetes::stuck(case, &who),
        Why::NeverStarted => kubernetes::never_started(case),
        Why::Unknown(missing) => unknown(case, missing, &who),
    }
}

/// "SIGTERM reached PID 1 `sh`", and what the kernel did with it where it dropped it.
fn asked(case: &Case<'_>) -> String {
    let Some(stop) = case.stop() else { return String::new() };
    let mut text = reached(case);
    if stop.result == crate::event::SignalResult::Ignored {
        let is_init = case.main().is_some_and(|main| main.is_ns_init);
        text.push_str(", ");
        text.push_str(&dropped(stop.disposition, is_init));
    }
    text
}

/// Names the sender where it was not the runtime.
fn reached(case: &Case<'_>) -> String {
    let Some(stop) = case.stop() else { return String::new() };
    let by = match stop.sender.role {
        Role::Runtime => String::new(),
        Role::Kernel => " from its terminal".to_owned(),
        _ => format!(" from {}", actor(&stop.sender)),
    };
    format!("{}{by} reached {}", stop.signal, target(case.main()))
}

/// A process may have a handler and never be asked to run it: said only where it was seen.
fn ran_handler(case: &Case<'_>) -> &'static str {
    match case.stop() {
        Some(stop) if stop.handler_entered.is_some() => ", its handler ran, ",
        Some(stop) if stop.state.blocked => ", which reads it without a handler, ",
        Some(_) => ", ",
        None => "",
    }
}

fn dropped(disposition: Disposition, is_init: bool) -> String {
    match disposition {
        Disposition::Default if is_init => "which has no handler, so the kernel dropped it",
        Disposition::Default => "whose default is to do nothing, so the kernel dropped it",
        Disposition::Ignore => "which has it set to SIG_IGN, so the kernel dropped it",
        Disposition::Handler | Disposition::Unknown if is_init => {
            "which has no handler or ignores it, so the kernel dropped it"
        }
        Disposition::Handler | Disposition::Unknown => "which ignores it, so the kernel dropped it",
    }
    .to_owned()
}

fn killed(case: &Case<'_>) -> String {
    let Some(kill) = case.kill() else {
        return "it was killed".to_owned();
    };
    let after = case
        .stop()
        .map_or(String::new(), |stop| format!(" {} later", seconds(kill.at.since(stop.at))));
    format!("{} sent SIGKILL{}{after}", runtime(&kill.sender), by_cgroup(kill.cgroup_kill))
}

fn runtime(sender: &Actor) -> String {
    match sender.role {
        Role::Runtime => "the runtime".to_owned(),
        _ => actor(sender),
    }
}

fn by_cgroup(cgroup_kill: bool) -> &'static str {
    if cgroup_kill { " by cgroup.kill" } else { "" }
}

fn default_action(case: &Case<'_>, who: &str) -> String {
    let (signal, sender) = match (case.stop(), case.fatal()) {
        (Some(stop), _) => (stop.signal, &stop.sender),
        (None, Some(fatal)) => (fatal.signal, &fatal.sender),
        (None, None) => return format!("{who} was ended by the stop signal"),
    };
    let by = match sender.role {
        Role::Runtime => String::new(),
        Role::Kernel => " from its terminal".to_owned(),
        _ => format!(" from {}", actor(sender)),
    };
    format!(
        "{signal}{by} itself ended {who}{}: it has no handler, so any work in flight was dropped",
        core(case)
    )
}

fn oom_child(case: &Case<'_>, who: &str) -> String {
    let child = case.oom().iter().find(|oom| !oom.is_main);
    match child {
        Some(OomKill { at, tgid, comm, .. }) => format!(
            "the kernel killed `{comm}` (pid {tgid}), a child of {who}, because memory ran out, and {who} ended with {}, {} later",
            code(case),
            since(case, *at)
        ),
        None => format!("{who} ended with {} after the kernel killed a child for memory", code(case)),
    }
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
        Crash::Itself => "ended itself by",
        Crash::Limit => "ran into a limit of its own and was ended by",
    };
    format!("{who} {how} {signal}{}{while_stopping}{}", core(case), young(case))
}

fn unknown(case: &Case<'_>, missing: &Missing, who: &str) -> String {
    let unseen = || format!("how {who} ended is not known: ");
    let status = case.exit.map_or_else(unseen, |exit| {
        format!("{who} {}, but why is not known: ", super::evidence::status(exit.status))
    });
    let reason = match missing {
        Missing::LateStart => "it ran before the observation began, and a stop signal may have come before that".to_owned(),
        Missing::Gap => "for a part of that time nothing was observed".to_owned(),
        Missing::OverCap => "it was sent more signals than are kept".to_owned(),
        Missing::Lost(kinds) => format!("records were lost while it went on ({})", names(kinds)),
        Missing::Inactive(kinds) => format!("a probe that would show it was not active ({})", names(kinds)),
        Missing::NoExit(open) => {
            let open = match open {
                Open::CgroupRemoved => "its cgroup was removed and its end was not seen",
                Open::ObservationEnded => "the observation ended before it did",
                Open::TimelineCap => "more processes were being stopped than are kept, and it was the longest idle",
            };
            let stop = case
                .stop()
                .map_or(String::new(), |stop| format!(", after {} at its beginning", stop.signal));
            return format!("how {who} ended is not known: {open}{stop}");
        }
        Missing::SenderNotSeen(signal) => format!("nobody was seen to send {signal}"),
        Missing::KernelKill => "the kernel sent SIGKILL, and no OOM kill or limit was seen".to_owned(),
    };
    format!("{status}{reason}")
}

fn names(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
}

fn clients(case: &Case<'_>, exit: Exit, axis: TrafficAxis) -> Vec<String> {
    let traffic = case.traffic();
    let mut clauses = Vec::new();
    if traffic.cut.count > 0 {
        let unanswered = match traffic.cut_unanswered {
            0 => String::new(),
            n if n == traffic.cut.count => ", with a request that got no answer".to_owned(),
            n => format!(", {n} of them with a request that got no answer"),
        };
        clauses.push(format!("its end cut {}{unanswered}", many(traffic.cut.count, "connection")));
    }
    if traffic.reset.count > 0 {
        let queued = match traffic.reset_queued {
            0 => String::new(),
            n if n == traffic.reset.count => ", in its accept queue when the listener closed".to_owned(),
            n => format!(", {n} of them in its accept queue when the listener closed"),
        };
        clauses.push(format!("{} reset{queued}", were(traffic.reset.count)));
    }
    if traffic.refused.count > 0 {
        let window = traffic.refusal_window().map_or(String::new(), |window| {
            format!(" in the {} after the listener closed", seconds(window))
        });
        let source = match traffic.refused_source {
            RefusedSource::ClientError => " (known from clients on this machine only)",
            RefusedSource::ServerReset | RefusedSource::None => "",
        };
        let on = if traffic.refusing_on {
            ", and clients still came when counting ended"
        } else {
            ""
        };
        clauses.push(format!("{} refused{window}{source}{on}", were(traffic.refused.count)));
    }
    if traffic.rejected.count > 0 {
        clauses.push(format!("{} rejected on the way to it", were(traffic.rejected.count)));
    }
    if axis == TrafficAxis::Unknown && exit == Exit::Clean && case.stop().is_some() {
        let why = match traffic.cgroup_v1 {
            true => ", for the kernel knows a socket by its cgroup v2, and it has none to itself",
            false => "",
        };
        clauses.push(format!("its sockets were not observed{why}"));
    }
    clauses
}

/// "PID 1 `sh`" where it is its namespace's first, else "`nginx` (pid 77)".
pub(super) fn target(main: Option<&MainProcess>) -> String {
    match main {
        Some(main) if main.is_ns_init => format!("PID 1 `{}`", main.comm),
        Some(main) => format!("`{}` (pid {})", main.comm, main.tgid),
        None => "the main process".to_owned(),
    }
}

/// "`bash` (pid 77, on the host)".
pub(super) fn actor(actor: &Actor) -> String {
    let place = match (&actor.pod, &actor.place) {
        (Some(of), _) => format!("container `{}` of pod {}/{}", of.container, of.pod.namespace, of.pod.name),
        (None, Attribution::Subject(subject, _)) => subject.to_string(),
        (None, Attribution::Host) => "on the host".to_owned(),
        (None, Attribution::Unknown(_)) => "its cgroup not known".to_owned(),
    };
    let parent = if actor.parent_comm.is_empty() {
        String::new()
    } else {
        format!(", child of `{}`", actor.parent_comm)
    };
    format!("`{}` (pid {}, {place}{parent})", actor.comm, actor.tgid)
}

fn code(case: &Case<'_>) -> String {
    match case.exit.map(|exit| exit.status) {
        Some(ExitStatus::Exited(code)) => format!("code {code}"),
        Some(ExitStatus::Signaled { signal, .. }) => signal.to_string(),
        None => "an end that was not seen".to_owned(),
    }
}

/// Of a container that did not live for a second: it never came up, and the kubelet will try again.
fn young(case: &Case<'_>) -> String {
    let lived = case.main().zip(case.exit).map(|(main, exit)| exit.at.since(main.start));
    match lived {
        Some(lived) if case.kubernetes.is_some() && case.stop().is_none() && lived < Duration::from_secs(1) => {
            format!(", {} after its start", seconds(lived))
        }
        _ => String::new(),
    }
}

fn core(case: &Case<'_>) -> &'static str {
    match case.exit.map(|exit| exit.status) {
        Some(ExitStatus::Signaled { core_dumped: true, .. }) => " and dumped core",
        _ => "",
    }
}

fn since(case: &Case<'_>, at: Boot) -> String {
    seconds(case.exit.map_or(case.end, |exit| exit.at).since(at))
}

pub(super) fn many(count: u64, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{s}")
}

fn were(count: u64) -> String {
    let verb = if count == 1 { "was" } else { "were" };
    format!("{} {verb}", many(count, "connection"))
}

/// `12 ms`, `3.2 s`, `75 s`.
pub fn seconds(d: Duration) -> String {
    match d.as_millis() {
        0 => "less than 1 ms".to_owned(),
        ms @ 1..100 => format!("{ms} ms"),
        100..60_000 => format!("{:.1} s", d.as_secs_f64()),
        _ => format!("{:.0} s", d.as_secs_f64()),
    }
}

fn upper(text: String) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => text,
    }
}

pub(super) fn lower(text: &str) -> String {
    let mut chars = text.trim_end_matches('.').chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}
