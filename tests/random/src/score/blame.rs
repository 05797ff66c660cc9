//! Who did what, by the report: each deed was done, by that one.

use nix::libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGWINCH};
use serde_json::Value;

use super::{is_gone_before, is_tcp, name, signals_group, text};
use crate::history::{Deed, Eater, Handling, History, Pool, Program, Reaction, Stop, Target, Wrapper};
use crate::truth::{By, Stranger, Truth};

/// A program that a stranger killed so long before the end counts, by docs/limits.
const REACH_NS: u64 = 10_000_000_000;

/// The main process is the first one, by the shim that started it.
pub(super) fn wrong_main(truth: &Truth, report: &Value) -> Option<String> {
    let main = report["main"]["pid"].as_u64()?;
    (main != u64::from(truth.main_pid)).then(|| format!("the main process is {main}, by the shim {}", truth.main_pid))
}

/// The senders that the report names are those that sent.
pub(super) fn wrong_sender(history: &History, truth: &Truth, report: &Value) -> Option<String> {
    for deed in ["stop", "kill"] {
        let sender = &report[deed]["sender"];
        let Some(role) = sender["role"].as_str() else { continue };
        let pid = sender["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        let signal = report[deed]["signal"].as_str();
        let is_it = |sent: i32| signal.is_none_or(|signal| signal == name(sent));
        let is_right = match role {
            "runtime" => pid == Some(truth.shim_pid) && truth.sent.iter().any(|(_, sent, _)| is_it(*sent)),
            "other" => truth.strangers.iter().any(|by| pid == Some(by.pid) && is_it(by.signal)),
            // A wrapper or a supervisor signals what is below it.
            "inside" => !history.entry.is_empty() || truth.inside.iter().any(|by| pid == Some(by.pid) && is_it(by.signal)),
            "itself" => truth.crashed() || truth.read_signal() || !history.entry.is_empty(),
            _ => true,
        };
        if !is_right {
            return Some(format!(
                "the {deed} is attributed to pid {pid:?} ({role}); the runtime is {}, and sent {:?}; strangers {:?}; from inside {:?}",
                truth.shim_pid, truth.sent, truth.strangers, truth.inside
            ));
        }
    }
    None
}

/// The deed that the verdict reports was done.
pub(super) fn wrong_blame(history: &History, truth: &Truth, report: &Value) -> Option<String> {
    let exit = text(report, "exit");
    (!is_exit_true(exit, history, truth) || !is_cause_true(truth, report)).then(|| {
        format!(
            "reported `{}` (cause {}): {}; the runtime sent {:?}, strangers {:?}, from inside {:?}, and the program logged {:?}",
            text(report, "verdict"),
            text(report, "cause"),
            text(report, "sentence"),
            truth.sent,
            truth.strangers,
            truth.inside,
            truth.log.iter().map(|(_, event)| event).collect::<Vec<_>>()
        )
    })
}

fn is_exit_true(exit: &str, history: &History, truth: &Truth) -> bool {
    let asked = |signal: i32| signal != SIGKILL;
    let fault = [SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL];
    let serves = matches!(history.program.pool, Pool::Serving { .. });
    let lost_worker = serves && truth.workers_ended() > 0;
    let is_unfinished = !truth.finished() || truth.may_be_overtaken() || lost_worker;
    // The verdict is about what is left: its supervisors and wrappers, or the next life before its first line.
    let is_gone = is_gone_before(history, truth);
    let ate = truth.ate().is_some();
    let eats = history.stop == Stop::Oom(Eater::Program);
    // Of the first process.
    let killer = truth.killer().filter(|_| truth.signal == Some(SIGKILL));
    match exit {
        "killed-by-other" => {
            // Also of an earlier life of the program, up to 10 s before.
            let was_killed =
                |by: &Stranger| by.target == Target::Program && by.signal == SIGKILL && by.at + REACH_NS >= truth.ended;
            let is_ended = is_unfinished || truth.signal.is_some() || truth.strangers.iter().any(was_killed);
            is_ended && killer != Some(By::Runtime) && !(truth.strangers.is_empty() && truth.inside.is_empty())
        }
        // Or the first process left a program that had not finished, and that was killed.
        "force-killed" => {
            let is_forced = truth.runtime_sent(|signal| !asked(signal)) && !truth.runtime_sent(asked);
            let is_left = (!truth.is_main() || lost_worker) && is_unfinished && truth.code.is_some();
            is_forced && killer != Some(By::Stranger) || is_left
        }
        "crashed" => truth.crashed() || truth.signal.is_some_and(|signal| fault.contains(&signal)),
        // Or its wrapper hides the program's code.
        "nonzero-exit" => truth.code.is_some_and(|code| code != 0) || !truth.is_main() && truth.failed(),
        // By docs/limits, of a server on other sockets than TCP's whose handler raises the signal again within 10 ms, too.
        "default-action" => {
            let is_raised = raises_after(history) && !is_tcp(history);
            // Of the shell that an init waits for: nothing waited for the program.
            let is_overtaken = truth.may_be_overtaken() && signals_group(history);
            // Of a wrapper, while the program exited for another reason than the stop.
            let is_aside = !truth.read_signal() && matches!(history.stop, Stop::Two { first: Deed::Exit, .. });
            // A wrapper without a handler, which the runtime signalled as all others.
            let is_wrapper = matches!(history.stop, Stop::Runtime { to_all: true, .. }) && !truth.is_main();
            !truth.finished() || is_wrapper || lost_worker || is_raised || is_overtaken || is_gone || is_aside
        }
        // The program had not finished, or the first process had not.
        "killed-after-grace" | "ignored-stop-signal" | "blocked-stop-signal" => {
            let is_kill = killer != Some(By::Stranger) || stops_by_hand(history);
            is_gone || (is_unfinished || truth.signal == Some(SIGKILL)) && is_kill && is_answer(exit, history, truth)
        }
        // The second victim may be any.
        "oom-killed" => ate && truth.signal == Some(SIGKILL) && (truth.is_main() && eats || truth.oom_kills > 1),
        "oom-child" => ate && (!(truth.is_main() && eats) || truth.signal != Some(SIGKILL) || truth.oom_kills > 1),
        "prestop-overran" | "prestop-failed" | "sidecar-starved" | "truncated-by-shutdown" | "stuck" | "runtime-failed" => {
            false
        }
        _ => true,
    }
}

fn is_ignored_by_default(history: &History) -> bool {
    history.stop.signals().iter().all(|signal| *signal == SIGWINCH)
}

fn raises_after(history: &History) -> bool {
    history.program.reaction == Reaction::ReRaiseAfter || history.entry.contains(&Wrapper::TrapRaises)
}

/// Both signals are one stranger's: by docs/verdicts.md, a runtime without a daemon.
fn stops_by_hand(history: &History) -> bool {
    let is_strangers = |deed: &Deed| matches!(deed, Deed::Stranger { .. });
    history.stop.deeds().iter().filter(|deed| is_strangers(deed)).count() > 1
}

/// Whether the program did with its stop signal what `exit` says, where the program got it from the runtime, or from an init that does nothing
/// but send it on.
fn is_answer(exit: &str, history: &History, truth: &Truth) -> bool {
    const SENDS_ON: [Wrapper; 4] = [Wrapper::Tini, Wrapper::TiniGroup, Wrapper::DumbInit, Wrapper::DumbInitChild];
    let is_below_init = matches!(history.entry[..], [one] if SENDS_ON.contains(&one));
    let sends_on = matches!(history.program.pool, Pool::Serving { .. });
    if truth.program_pid == 0 || sends_on || !truth.is_main() && !is_below_init {
        return true;
    }
    // The kernel keeps from PID 1 what it has no handler for.
    let is_kept = history.pid_namespace && truth.is_main();
    let Program { handling, reaction, .. } = history.program;
    // Stopped to the end: of all signals only SIGKILL reached it, but what the kernel drops is dropped.
    let is_held = history.held.is_some_and(|held| held.until_ms.is_none());
    if is_held && handling == Handling::Default && !is_kept {
        return exit == "blocked-stop-signal";
    }
    // The init itself did not send it on.
    if !truth.is_main() && matches!(history.stop, Stop::Runtime { frozen: true, .. }) {
        return exit == "blocked-stop-signal";
    }
    // What takes memory looks at nothing else: its thread read the signal.
    let is_read_unlogged =
        history.stop == Stop::Oom(Eater::Program) && matches!(handling, Handling::SignalFd | Handling::SigWait);
    if truth.read_signal() || is_read_unlogged {
        let is_in_vain = reaction == Reaction::ReRaise && is_kept;
        let has_acted = !is_in_vain || truth.raised_late();
        return exit == "ignored-stop-signal" && is_in_vain || exit == "killed-after-grace" && has_acted;
    }
    match handling {
        Handling::Ignored => exit == "ignored-stop-signal",
        Handling::Default => exit == "ignored-stop-signal" && (is_kept || is_ignored_by_default(history)),
        // It came before the handler, or behind it in a frozen cgroup; before or after the change.
        Handling::LateHandler | Handling::Drops | Handling::IgnoresLater | Handling::Unblocks => exit != "killed-after-grace",
        Handling::Blocked | Handling::Handler | Handling::SignalFd | Handling::SigWait => exit == "blocked-stop-signal",
    }
}

fn is_cause_true(truth: &Truth, report: &Value) -> bool {
    let runtime_asked = truth.runtime_sent(|signal| signal != SIGKILL);
    // The program is the first process, and exited because of a signal that it read.
    let has_answered = truth.is_main() && truth.read_signal();
    match text(report, "cause") {
        // By docs/limits.md the cause of a stop from inside is `completed`, too, but the report has the signal.
        "completed" => !(has_answered && (report["stop"].is_null() || runtime_asked)),
        "external" => !(truth.strangers.is_empty() && truth.inside.is_empty()),
        "stopped" => truth.runtime_sent(|_| true),
        "crash" => {
            let has_failed = truth.crashed() || truth.failed() || truth.signal.is_some();
            (has_failed || truth.code.is_some_and(|code| code != 0)) && !(has_answered && runtime_asked)
        }
        "oom" => truth.oom_kills > 0,
        "node-shutdown" => false,
        _ => true,
    }
}
