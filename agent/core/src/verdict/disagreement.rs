//! What the pod's status shows, and kubectl with it, where the kernel recorded something else of the same exit: an `OOMKilled` that
//! an earlier OOM kill of another process left behind, a code in place of one that nobody had asked for in time.

use super::Exit;
use super::case::Case;
use super::judge::{Finding, Why};
use super::words::seconds;
use crate::event::{ExitStatus, Kind};
use crate::ids::Signal;
use crate::kubernetes::Reported;
use crate::ledger::Claim;
use crate::termination::Role;
use crate::time::Boot;
use crate::tolerances::OOM_CHILD_REACH;

/// One exit, by the pod's status and by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    pub said: Said,
    pub was: Was,
    /// Reason and code of the status, as kubectl shows them; bounded by the source, escaped.
    pub status: String,
    /// What the kernel recorded, in words.
    pub kernel: String,
}

/// What the pod's status shows. `said` in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Said {
    /// `OOMKilled`, of a process that no OOM kill ended.
    OomKilled,
    /// A code that the kubelet or the runtime wrote because it did not know the exit: `ContainerStatusUnknown`,
    /// `RestartingAllContainers`, `Unknown`.
    Placeholder,
    /// Another exit code than the kernel's.
    ExitCode,
}

/// What the kernel recorded. `was` in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Was {
    Exit0,
    ExitCode,
    Signal,
    OomKill,
}

names! {
    all Said:
    OomKilled => "OOMKilled",
    Placeholder => "placeholder",
    ExitCode => "exit-code",
}

names! {
    all Was:
    Exit0 => "exit-0",
    ExitCode => "exit-code",
    Signal => "signal",
    OomKill => "oom-kill",
}

impl Disagreement {
    /// A clause of the sentence.
    pub fn clause(&self) -> String {
        format!("kubectl shows {}; the kernel: {}", self.status, self.kernel)
    }

    /// Pairs that can occur.
    pub fn all() -> impl Iterator<Item = (Said, Was)> {
        let of = |said: Said| {
            let can_be = move |was: &Was| (said, *was) != (Said::OomKilled, Was::OomKill);
            Was::ALL.into_iter().filter(can_be).map(move |was| (said, was))
        };
        Said::ALL.into_iter().flat_map(of)
    }
}

/// None in doubt: only an observed exit, of a process that is certainly the container's first, contradicts a status.
pub(super) fn find(case: &Case<'_>, finding: &Finding) -> Option<Disagreement> {
    let reported = case
        .kubernetes?
        .reported
        .as_ref()
        .filter(|reported| !reported.never_started())?;
    let status = case.exit?.status;
    let holes = &case.missing;
    if holes.has_gap(Claim::Main) || holes.has_any(Claim::WhichMain) {
        return None;
    }
    let reason = reported.reason.as_deref().unwrap_or_default();
    let is_other_code = status.reported_code() != reported.exit_code;
    // A daemon's kill is none of the kernel's, and no runtime has a mark for it.
    let is_oom = finding.why == Why::Oom;
    let said = match reason {
        "OOMKilled" if is_oom || finding.exit == Exit::OomChild => is_other_code.then_some(Said::ExitCode)?,
        "OOMKilled" => was_not_oom(case, finding.exit, status).then_some(Said::OomKilled)?,
        "ContainerStatusUnknown" | "RestartingAllContainers" | "Unknown" if is_other_code => Said::Placeholder,
        _ if is_other_code || is_oom => Said::ExitCode,
        _ => return None,
    };
    let was = match status {
        _ if is_oom => Was::OomKill,
        ExitStatus::Exited(0) => Was::Exit0,
        ExitStatus::Exited(_) => Was::ExitCode,
        ExitStatus::Signaled { .. } => Was::Signal,
    };
    let earlier = (said == Said::OomKilled).then(|| earlier_oom(case)).flatten();
    let kernel = match was {
        Was::OomKill => "killed by the OOM killer".to_owned(),
        Was::Exit0 | Was::ExitCode | Was::Signal => kernel(case, status) + &earlier.unwrap_or_default(),
    };
    Some(Disagreement {
        said,
        was,
        status: shown(reported, is_other_code),
        kernel,
    })
}

/// Whether the status is wrong about the end of this process. After an exit with 0 or another signal than SIGKILL it is: no OOM kill ends a
/// process so. Any other end can follow from an OOM kill, of this process or of another one: these must all be known.
fn was_not_oom(case: &Case<'_>, exit: Exit, status: ExitStatus) -> bool {
    match status {
        ExitStatus::Exited(0) => return true,
        ExitStatus::Signaled { signal, .. } if signal != Signal::KILL => return true,
        ExitStatus::Signaled { .. } if exit == Exit::Unknown => return false,
        ExitStatus::Signaled { .. } | ExitStatus::Exited(_) => {}
    }
    let missing = &case.missing;
    let may_lack = |claim| missing.lacks(claim, Kind::OomVictim);
    let is_recent = |since: Boot| case.end.since(since) < OOM_CHILD_REACH;
    let is_unseen = may_lack(Claim::Main) || may_lack(Claim::Others) || missing.late_start().is_some_and(is_recent);
    !is_unseen && !case.oom().iter().any(|oom| oom.is_main())
}

/// Whose mark the status has kept, where no other clause names it.
fn earlier_oom(case: &Case<'_>) -> Option<String> {
    let is_named = case.oom().iter().any(|oom| !oom.is_main());
    let oom = case.kubernetes?.last_oom.filter(|_| !is_named)?;
    Some(format!(
        ", and the OOM killer had killed `{}` {} before",
        oom.comm,
        seconds(case.end.since(oom.at))
    ))
}

/// As kubectl shows them: the reason, and the code where it is not the kernel's.
fn shown(reported: &Reported, is_other_code: bool) -> String {
    let code = format!("exit code {}", reported.exit_code);
    match reported.reason.as_deref() {
        // `Error` and `Completed` say no more than the code.
        None | Some("Error" | "Completed") => code,
        Some(reason) if !is_other_code => reason.escape_debug().to_string(),
        Some(reason) => format!("{}, {code}", reason.escape_debug()),
    }
}

fn kernel(case: &Case<'_>, status: ExitStatus) -> String {
    let at = case.stop().map_or(String::new(), |stop| format!(" at {}", stop.signal));
    match status {
        ExitStatus::Exited(code) => format!("exited with {code}{at}"),
        ExitStatus::Signaled { signal, .. } if signal == Signal::KILL => match case.kill().map(|kill| &kill.sender) {
            Some(sender) if sender.role == Role::Runtime => format!("terminated by {signal} of the container runtime"),
            Some(sender) if sender.is_oom_daemon() => format!("terminated by {signal} of `{}`", sender.comm),
            _ => format!("terminated by {signal}"),
        },
        ExitStatus::Signaled { signal, .. } => format!("terminated by {signal}"),
    }
}
