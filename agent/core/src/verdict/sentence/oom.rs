//! Memory that ran out.

use crate::event::Kind;
use crate::ledger::Claim;
use crate::pod::ContainerKind;
use crate::termination::{MainProcess, OomKill};
use crate::tolerances::LATE_REACH;
use crate::verdict::case::Case;
use crate::verdict::judge::{Finding, Why};
use crate::verdict::words::{actor, of_role, seconds, since, status};

pub(super) fn main(case: &Case<'_>, who: &str) -> String {
    let before = case.stop().map_or(String::new(), |stop| {
        format!(", {} after {}", since(case, stop.at), stop.signal)
    });
    format!("the OOM killer killed {who} because memory ran out{before}{}", at_start(case))
}

/// What an OOM kill of the first process stopped from beginning.
fn at_start(case: &Case<'_>) -> &'static str {
    let is_unstarted =
        |main: &MainProcess| main.comm.may_be_of_crun() && main.is_ns_init && !main.executed && knows_execs(case, main);
    let is_runtimes = case
        .main()
        .is_some_and(|main| main.comm.is_stage_of_runc() || is_unstarted(main));
    let is_init = case.kubernetes.is_some_and(|pod| pod.kind == Some(ContainerKind::Init));
    match (is_runtimes, is_init) {
        (true, _) => "; that was the container runtime's own process, which had not yet started the program",
        (false, true) => "; the init container did not finish, so the containers behind it were not started",
        (false, false) => "",
    }
}

/// Each program that the main process executed has a record: of a process of which no record can have been lost longer ago than is known here.
fn knows_execs(case: &Case<'_>, main: &MainProcess) -> bool {
    let missing = &case.missing;
    let is_lost = missing.has_any(Claim::Executed) || missing.lacks(Claim::Main, Kind::ProcessExec);
    let is_young = case.end.since(main.start) < LATE_REACH;
    is_young && !is_lost && missing.late_start().is_none()
}

pub(super) fn child(case: &Case<'_>, who: &str) -> String {
    let is_its = |oom: &&OomKill| !oom.is_main() && oom.role.is_programs() && oom.at <= case.end;
    match case.oom().iter().rev().find(is_its) {
        Some(OomKill {
            at, tgid, comm, role, ..
        }) => {
            let of_role = of_role(*role);
            let stop = case.stop().map_or(String::new(), |stop| {
                format!(", and {} after {}", since(case, stop.at), stop.signal)
            });
            format!(
                "the OOM killer killed `{comm}` (pid {tgid}){of_role} because memory ran out, and the main process, {who}, {}, {} later{stop}",
                status(case),
                since(case, *at)
            )
        }
        None => format!("{who} {} after the OOM killer had killed another process", status(case)),
    }
}

/// An OOM kill that is not the verdict: the reader must not search for where the memory went.
pub(super) fn beside(case: &Case<'_>, finding: &Finding) -> Option<String> {
    if matches!(finding.why, Why::Oom | Why::OomByDaemon | Why::OomChild) {
        return None;
    }
    let children = || case.oom().iter().filter(|oom| !oom.is_main());
    let last = children().next_back()?;
    let others = match children().count() - 1 {
        0 => String::new(),
        1 => " and 1 other process".to_owned(),
        more => format!(" and {more} other processes"),
    };
    let when = match case.stop() {
        Some(stop) if stop.at > last.at => format!("{} before {}", seconds(stop.at.since(last.at)), stop.signal),
        Some(stop) => format!("{} after {}", seconds(last.at.since(stop.at)), stop.signal),
        None if last.at > case.end => format!("{} after the end", seconds(last.at.since(case.end))),
        None => format!("{} before the end", seconds(case.end.since(last.at))),
    };
    Some(format!(
        "the OOM killer {}killed `{}` (pid {}){}{others} because memory ran out, {when}",
        if last.at > case.end { "" } else { "had " },
        last.comm,
        last.tgid,
        of_role(last.role)
    ))
}

pub(super) fn by_daemon(case: &Case<'_>, who: &str) -> String {
    let (killed, by) = match (case.kill(), case.stop()) {
        (Some(kill), _) => ("killed", actor(&kill.sender)),
        (None, Some(stop)) => ("ended", actor(&stop.sender)),
        (None, None) => ("killed", "a daemon".to_owned()),
    };
    let before = case.stop().map_or(String::new(), |stop| match case.kill() {
        Some(_) => format!(", {} after {}", since(case, stop.at), stop.signal),
        None => format!(", by {}, for which it had no handler", stop.signal),
    });
    let why = case
        .oomd_reason
        .as_ref()
        .map_or(String::new(), |why| format!(" ({})", why.escape_debug()));
    format!("{by} {killed} {who} because memory was running out{why}{before}")
}
