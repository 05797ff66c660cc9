//! What the pod's status shows, and kubectl with it, where the kernel recorded something else of the same exit: an `OOMKilled` that
//! an earlier OOM kill of another process left behind, a code in place of one that nobody had asked for in time.

use super::Exit;
use super::case::Case;
use crate::event::{ExitStatus, Kind};
use crate::ids::Signal;
use crate::kubernetes::Reported;
use crate::ledger::Claim;
use crate::termination::Role;

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

/// None in doubt: only an observed exit, of a process that is certainly the container's first, contradicts a status. `exit` is the
/// verdict's.
pub(super) fn find(case: &Case<'_>, exit: Exit) -> Option<Disagreement> {
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
    let said = match reason {
        "OOMKilled" if matches!(exit, Exit::OomKilled | Exit::OomChild) => is_other_code.then_some(Said::ExitCode)?,
        "OOMKilled" => was_not_oom(case, exit, status).then_some(Said::OomKilled)?,
        "ContainerStatusUnknown" | "RestartingAllContainers" | "Unknown" if is_other_code => Said::Placeholder,
        _ if is_other_code || exit == Exit::OomKilled => Said::ExitCode,
        _ => return None,
    };
    let was = match status {
        _ if exit == Exit::OomKilled => Was::OomKill,
        ExitStatus::Exited(0) => Was::Exit0,
        ExitStatus::Exited(_) => Was::ExitCode,
        ExitStatus::Signaled { .. } => Was::Signal,
    };
    Some(Disagreement {
        said,
        was,
        status: shown(reported, is_other_code),
        kernel: kernel(case, was, status),
    })
}

/// No OOM kill ends a process that exits by itself or by another signal. Of a SIGKILL, the OOM kills must all be known.
fn was_not_oom(case: &Case<'_>, exit: Exit, status: ExitStatus) -> bool {
    let by_kill = status.signal() == Some(Signal::KILL);
    let is_known = !case.missing.lacks(Claim::Main, Kind::OomVictim);
    let is_main_hit = case.oom().iter().any(|oom| oom.is_main());
    !by_kill || exit != Exit::Unknown && is_known && !is_main_hit
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

fn kernel(case: &Case<'_>, was: Was, status: ExitStatus) -> String {
    if was == Was::OomKill {
        let by_daemon = case.kill().filter(|kill| kill.sender.role == Role::Other);
        return by_daemon.map_or("killed by the OOM killer".to_owned(), |kill| {
            format!("killed by `{}`", kill.sender.comm)
        });
    }
    let at = case.stop().map_or(String::new(), |stop| format!(" at {}", stop.signal));
    match status {
        ExitStatus::Exited(code) => format!("exited with {code}{at}"),
        ExitStatus::Signaled { signal, .. } if signal == Signal::KILL => match case.kill().map(|kill| kill.sender.role) {
            Some(Role::Runtime) => format!("terminated by {signal} of the container runtime"),
            _ => format!("terminated by {signal}"),
        },
        ExitStatus::Signaled { signal, .. } => format!("terminated by {signal}"),
    }
}
