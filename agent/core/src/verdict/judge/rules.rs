//! The rules of a verdict, in the order of their precedence. docs/verdicts.md lists them.

use super::below::BELOW;
use super::cause::unknown;
use super::finding::{Finding, Missing};
pub use super::rule::{Rule, Rules};
use super::rule::{first, rule};
use super::{inside, kernel, killed, kubernetes, shutdown};
use crate::verdict::Exit::*;
use crate::verdict::case::Case;

/// Of each list the first rule that applies decides, and replaces what the lists before have found. Where none applies to the main process,
/// its exit was not observed.
pub const RULES: [Rules; 4] = [
    Rules {
        of: "the main process",
        rules: MAIN,
    },
    Rules {
        of: "a program below a main process that exited cleanly",
        rules: BELOW,
    },
    Rules {
        of: "the pod",
        rules: POD,
    },
    Rules {
        of: "a shutdown of the node",
        rules: SHUTDOWN,
    },
];

#[rustfmt::skip]
const MAIN: &[Rule] = &[
    rule("The OOM killer chose the process, and no other sender's SIGKILL came first", &[OomKilled], killed::oom_killed),
    rule("systemd's stop signal ended a unit's first process, which may only be a wrapper of another process that has sockets", &[], kernel::program_unsure),
    rule("SIGKILL from a daemon that kills before memory has run out", &[OomKilled], killed::killed_by_oom_daemon),
    rule("SIGKILL from the sender of the stop signal: the kernel had discarded the stop signal", &[IgnoredStopSignal], killed::discarded),
    rule("SIGKILL from the sender of the stop signal: the handler had only raised the signal again, and the kernel had discarded the second signal", &[IgnoredStopSignal], killed::raised_in_vain),
    rule("SIGKILL from the sender of the stop signal: the process had not read the stop signal", &[BlockedStopSignal], killed::unread),
    rule("SIGKILL from the sender of the stop signal: another process, to which the stop signal had been forwarded, delayed the exit", &[IgnoredStopSignal, BlockedStopSignal, KilledAfterGrace], killed::held_up),
    rule("SIGKILL from the sender of the stop signal: the process had read the stop signal", &[KilledAfterGrace], killed::after_grace),
    rule("SIGKILL from the container runtime or systemd, without a stop signal before", &[ForceKilled], killed::forced),
    rule("SIGKILL from another process", &[KilledByOther], killed::killed_by_other),
    rule("SIGKILL from the process itself, or from the kernel for a resource limit", &[Crashed], killed::killed_itself),
    rule("SIGKILL from the kernel, because the init of the pid namespace exited", &[KilledByOther], killed::namespace_ended),
    rule("SIGKILL, and no record shows who sent it or why", &[], killed::killed),
    rule("The stop signal ended the process: its handler had only raised the same signal again", &[DefaultAction], kernel::raised_again),
    rule("The stop signal ended the process, which had raised it again just after a child had ended: the result describes how the child ended", &[Crashed, OomChild, KilledByOther, IgnoredStopSignal, BlockedStopSignal, KilledAfterGrace, DefaultAction], kernel::raised_after_child),
    rule("The stop signal ended the process, whose handler had raised it again at the end of its work", &[Clean], kernel::reraised),
    rule("The stop signal ended the process, which has no handler, and came from a daemon that kills before memory has run out", &[OomKilled], kernel::ended_by_oom_daemon),
    rule("The stop signal ended the process, which has no handler", &[DefaultAction], kernel::default_action),
    rule("A fault, an abort or a resource limit ended the process", &[Crashed], kernel::crashed),
    rule("Another signal from the container runtime or systemd ended the process", &[DefaultAction], kernel::signalled_by_runtime),
    rule("A signal from another process ended the process", &[KilledByOther], kernel::signalled_by_other),
    rule("A signal ended the process, and no record shows who sent it", &[], kernel::signalled),
    rule("Exit with an error, after the OOM killer chose another process of the container or unit", &[OomChild], kernel::failed_by_oom),
    rule("Exit after the stop signal: another process, to which the signal had been forwarded, did not end cleanly", &[Crashed, OomChild, KilledByOther, IgnoredStopSignal, BlockedStopSignal, KilledAfterGrace, DefaultAction, NonzeroExit], kernel::ended_inside),
    rule("Exit with an error, just after a process from outside had killed a program with clients below the main process", &[OomChild, KilledByOther], inside::killed_then_failed),
    rule("Exit, just after a program with clients below the main process had failed", &[Crashed, NonzeroExit], kernel::child_failed),
    rule("Exit with 0, without a stop signal", &[Clean], kernel::completed),
    rule("Exit with 0, after the stop signal", &[Clean], kernel::stopped),
    rule("Exit with a code other than 0, without a stop signal", &[NonzeroExit], kernel::failed),
    rule("Exit of PID 1 with an error: its handler had only raised the stop signal again, and the kernel had discarded the second signal", &[DefaultAction], kernel::failed_after_discard),
    rule("Exit of PID 1 with an error: at the end of its shutdown PID 1 had raised the stop signal again, and the kernel had just discarded the second signal", &[Clean], kernel::raised_then_failed),
    rule("Exit after the stop signal with another error code than 128 + the stop signal, or with that code although the process has no handler", &[NonzeroExit], kernel::failed_after_stop),
    rule("Exit with 128 + the stop signal, which may be the code of a process below the main process that is not observed", &[Crashed, NonzeroExit], kernel::code_from_inside),
    rule("Exit with 128 + the stop signal, which the process had handled", &[Clean], kernel::stopped_with_code),
];

#[rustfmt::skip]
const POD: &[Rule] = &[
    rule("The pod's status shows that the program was never started", &[RuntimeFailed], kubernetes::never_started),
    rule("The exit code is one that the annotation `epitaph.dev/expected-exit-codes` lists", &[Clean, OomChild, KilledByOther, DefaultAction, KilledAfterGrace, ForceKilled], kubernetes::expected),
    rule("The exit code is one for which a restart rule of the container exists", &[Clean, OomChild, KilledByOther, DefaultAction, KilledAfterGrace, ForceKilled], kubernetes::listed),
    rule("No exit, long after the grace period", &[Stuck], kubernetes::stuck),
    rule("The API server showed no version of the pod, a part of the evidence is missing, and what Kubernetes knows of the pod could change the result", &[], kubernetes::pod_unseen),
    rule("No status of a pod names the container: the container may be the sandbox, or have a preStop hook", &[], kubernetes::unnamed),
    rule("SIGKILL before the end of the known grace period, and the watch of the pods was interrupted", &[], kubernetes::request_unseen),
    rule("SIGKILL, and the pod was deleted with a grace period of 0", &[ForceKilled], kubernetes::force_deleted),
    rule("SIGKILL of a sidecar: the main containers had left it only the kubelet's minimum of the grace period", &[SidecarStarved], kubernetes::starved),
    rule("SIGKILL after a preStop hook had left only the kubelet's minimum of the grace period", &[PrestopOverran], kubernetes::hook_took_grace),
    rule("A clean exit, and the preStop hook was cut off or failed", &[PrestopOverran, PrestopFailed], kubernetes::hook_failed),
];

#[rustfmt::skip]
const SHUTDOWN: &[Rule] = &[
    rule("SIGKILL by the shutdown, or SIGKILL during the shutdown before the process's own grace period was over", &[TruncatedByShutdown], shutdown::cut),
    rule("The process got the stop signal and did not exit before the shutdown ended", &[TruncatedByShutdown], shutdown::ran_on),
];

pub(super) fn find(case: &Case<'_>) -> Finding {
    let unseen = unknown(case, Missing::NoExit(case.open));
    RULES.iter().fold(unseen, |found, of| first(of.rules, case, found))
}

/// The rule that decides, whatever evidence may be missing; None where the exit was not observed.
#[cfg(any(test, feature = "fixtures"))]
pub fn deciding(case: &Case<'_>) -> Option<&'static Rule> {
    let mut found = (unknown(case, Missing::NoExit(case.open)), None);
    for of in RULES {
        let apply = |rule: &'static Rule| Some(((rule.find)(case, &found.0)?, Some(rule)));
        found = of.rules.iter().find_map(apply).unwrap_or(found);
    }
    found.1
}
