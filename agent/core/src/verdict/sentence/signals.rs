//! The stop signal and the SIGKILL of the main process in words.

use super::settings;
use crate::termination::{Role, Stop};
use crate::verdict::case::Case;
use crate::verdict::words::{runtime, seconds, target};

/// "the container runtime sent SIGTERM to PID 1 `sh`".
pub(super) fn sent(case: &Case<'_>) -> String {
    let Some(stop) = case.stop() else { return String::new() };
    format!("{} sent {} to {}", sender_of(case, stop), stop.signal, target(case.main()))
}

pub(super) fn sender_of(case: &Case<'_>, stop: &Stop) -> String {
    match stop.sender.role {
        Role::Kernel => "the terminal".to_owned(),
        Role::Unknown => "an unknown sender".to_owned(),
        _ => runtime(case, &stop.sender),
    }
}

/// A shutdown, where one may have begun.
pub(super) fn unfinished(case: &Case<'_>) -> &'static str {
    match settings::may_serve_on(case) {
        true => "the process did not exit",
        false => "the shutdown did not finish",
    }
}

pub(super) fn killed(case: &Case<'_>) -> String {
    let Some(kill) = case.kill() else {
        return "the process was killed".to_owned();
    };
    let after = case
        .stop()
        .map_or(String::new(), |stop| format!(" {} later", seconds(kill.at.since(stop.at))));
    format!(
        "{} sent SIGKILL{}{after}",
        runtime(case, &kill.sender),
        by_cgroup(kill.cgroup_kill)
    )
}

pub(super) fn by_cgroup(cgroup_kill: bool) -> &'static str {
    if cgroup_kill { " through cgroup.kill" } else { "" }
}
