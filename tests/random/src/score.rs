//! The truth of a history against what was reported: only what docs/verdicts.md, docs/traffic.md and docs/limits.md promise.
//!
//! A client *lost* something if it was refused, or if its connection ended with a request, or a part of one, under way. All that
//! counts, until a second after the exit of the first process: nothing but the end of a history makes a request fail. `undecided` and
//! `unknown` are not `quiet`. Counts begin where docs/json.md has them begin: at the stop, or at the end of the first process.

use nix::libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV};
use serde_json::Value;

use crate::client::Outcome;
use crate::history::{Bind, History, Stop};
use crate::play::Played;
use crate::truth::Truth;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Missing,
    Twice,
    /// `exit` is `clean`, and the program did not finish: it was ended, or it crashed.
    FalseClean,
    /// `traffic` is `quiet`, and a client lost something.
    FalseQuiet,
    /// A deed is attributed to another than the one who did it, or a deed is reported that was not done.
    WrongCulprit,
    WrongExit,
    WrongCount,
    /// Allowed, but counted.
    Unknown,
}

impl Class {
    pub fn shown(self) -> &'static str {
        match self {
            Class::Missing => "missing",
            Class::Twice => "twice",
            Class::FalseClean => "false clean",
            Class::FalseQuiet => "false quiet",
            Class::WrongCulprit => "wrong culprit",
            Class::WrongExit => "wrong exit",
            Class::WrongCount => "wrong count",
            Class::Unknown => "unknown",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub class: Class,
    /// What was said, and what is true.
    pub what: String,
}

/// Refusals count for so long after the exit of the first process, by docs/limits.md; a part of it, for a slow machine.
const AFTER_NS: u64 = 1_000_000_000;

/// All that is wrong with `reports`, the reports on the container that was played.
pub fn score(played: &Played, reports: &[Value]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |class, what: String| findings.push(Finding { class, what });
    let truth = &played.truth;
    let [report, more @ ..] = reports else {
        add(Class::Missing, "no report".into());
        return findings;
    };
    if !more.is_empty() {
        add(Class::Twice, format!("{} reports", reports.len()));
    }
    if let Some(what) = false_clean(truth, report) {
        add(Class::FalseClean, what);
    }
    if let Some(what) = false_quiet(truth, report) {
        add(Class::FalseQuiet, what);
    }
    if let Some(what) = wrong_exit(truth, report) {
        add(Class::WrongExit, what);
    }
    for what in [wrong_sender(truth, report), wrong_blame(&played.history, truth, report)]
        .into_iter()
        .flatten()
    {
        add(Class::WrongCulprit, what);
    }
    let counts = !matches!(played.history.bind, Bind::Unix | Bind::Udp);
    if let Some(what) = wrong_count(truth, report).filter(|_| counts) {
        add(Class::WrongCount, what);
    }
    let unknown: Vec<&str> = ["verdict", "exit", "traffic", "cause"]
        .into_iter()
        .filter(|axis| report[*axis] == "unknown")
        .collect();
    let History { bind, stop, .. } = &played.history;
    let is_promised = |axis: &&str| match *axis {
        // What clients of other sockets than TCP's lost is not observed.
        "traffic" => matches!(bind, Bind::Unix | Bind::Udp),
        // By docs/limits, where the report has who asked.
        "cause" => matches!(stop, Stop::Inside { .. }) && report["stop"]["sender"]["role"] == "inside",
        _ => false,
    };
    if !unknown.iter().all(is_promised) {
        add(
            Class::Unknown,
            format!("{} unknown: {}", unknown.join(" and "), text(report, "sentence")),
        );
    }
    findings
}

fn text<'a>(report: &'a Value, key: &str) -> &'a str {
    report[key].as_str().unwrap_or("none")
}

fn false_clean(truth: &Truth, report: &Value) -> Option<String> {
    // A program that was not there yet has lost nothing.
    if report["exit"] != "clean" || truth.program_pid == 0 {
        return None;
    }
    if truth.finished() {
        return (truth.jobs_lost() > 0)
            .then(|| format!("{} processes of the program's pool were ended in a job", truth.jobs_lost()));
    }
    let how = match (truth.crashed(), truth.read_signal()) {
        (true, _) => "had a fault",
        (_, true) => "was ended before it had finished",
        (_, false) => "got no signal that it could read, and was ended",
    };
    Some(format!(
        "reported `{}`, and the program {how}: {}",
        text(report, "verdict"),
        text(report, "sentence")
    ))
}

fn false_quiet(truth: &Truth, report: &Value) -> Option<String> {
    let lost = truth.lost(0..=truth.ended + AFTER_NS);
    (report["traffic"] == "quiet" && lost > 0).then(|| {
        let (refused, reset) = (truth.count(&[Outcome::Refused]), truth.count(&[Outcome::Reset]));
        let cut = truth.count(&[Outcome::Cut]);
        format!("reported `quiet`, and clients were refused {refused} times, reset {reset} times and cut {cut} times")
    })
}

fn wrong_exit(truth: &Truth, report: &Value) -> Option<String> {
    let status = &report["status"];
    if status.is_null() {
        return (report["verdict"] != "unknown").then(|| "no status".into());
    }
    let code = status["code"].as_i64();
    let signal = status["signal"].as_str();
    let wanted_code = truth.code.map(i64::from);
    let wanted_signal = truth.signal.map(name);
    (code != wanted_code || signal != wanted_signal.as_deref())
        .then(|| format!("reported code {code:?} or signal {signal:?}, by wait(2) {wanted_code:?} or {wanted_signal:?}"))
}

fn name(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal).map_or_else(|_| signal.to_string(), |signal| signal.to_string())
}

/// The senders that the report names are those that sent.
fn wrong_sender(truth: &Truth, report: &Value) -> Option<String> {
    for deed in ["stop", "kill"] {
        let sender = &report[deed]["sender"];
        let Some(role) = sender["role"].as_str() else { continue };
        let pid = sender["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        let signal = report[deed]["signal"].as_str();
        let is_right = match role {
            "runtime" => {
                pid == Some(truth.shim_pid) && truth.sent.iter().any(|(_, sent, _)| signal.is_none_or(|s| s == name(*sent)))
            }
            "other" => truth.stranger.is_some_and(|stranger| pid == Some(stranger.pid)),
            _ => true,
        };
        if !is_right {
            return Some(format!(
                "the {deed} is attributed to pid {pid:?} ({role}); the runtime is {}, and sent {:?}; the stranger is {:?}",
                truth.shim_pid, truth.sent, truth.stranger
            ));
        }
    }
    None
}

/// The deed that the verdict reports was done.
fn wrong_blame(history: &History, truth: &Truth, report: &Value) -> Option<String> {
    let verdict = text(report, "verdict");
    let asked = |signal: i32| signal != SIGKILL;
    let by_stranger = truth.stranger;
    let by_inside = matches!(history.stop, Stop::Inside { .. });
    let runtime_killed = truth.sent.iter().any(|(_, signal, lives)| *signal == SIGKILL && *lives);
    let runtime_asked = truth.sent.iter().any(|(_, signal, _)| asked(*signal));
    let fault = [SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL];
    let is_unfinished = !truth.finished() || truth.may_be_overtaken();
    let is_true = match text(report, "exit") {
        "killed-by-other" => by_stranger.is_some() || by_inside,
        // Or the first process left a program that had not finished, and that was killed.
        "force-killed" => runtime_killed && !runtime_asked || !truth.is_main() && is_unfinished && truth.code.is_some(),
        "crashed" => truth.crashed() || truth.signal.is_some_and(|signal| fault.contains(&signal)),
        // Or its wrapper hides the program's code.
        "nonzero-exit" => truth.code.is_some_and(|code| code != 0) || !truth.is_main() && truth.failed(),
        "default-action" => !truth.finished(),
        // The program had not finished, or the first process had not.
        "killed-after-grace" | "ignored-stop-signal" | "blocked-stop-signal" => is_unfinished || truth.signal == Some(SIGKILL),
        "oom-killed"
        | "oom-child"
        | "prestop-overran"
        | "prestop-failed"
        | "sidecar-starved"
        | "truncated-by-shutdown"
        | "stuck"
        | "runtime-failed" => false,
        _ => true,
    };
    let is_cause_true = match text(report, "cause") {
        // The first process read a signal, and exited because of it. By docs/limits.md the cause of a stop from inside is `completed`, too,
        // but the report has the signal.
        "completed" => {
            !(report["stop"].is_null() && truth.is_main() && truth.read_signal() && (by_stranger.is_some() || by_inside))
        }
        "external" => by_stranger.is_some() || by_inside,
        "stopped" => !truth.sent.is_empty(),
        "oom" | "node-shutdown" => false,
        _ => true,
    };
    (!is_true || !is_cause_true).then(|| {
        format!(
            "reported `{verdict}` (cause {}): {}; the runtime sent {:?}, the stranger {by_stranger:?}, and the program logged {:?}",
            text(report, "cause"),
            text(report, "sentence"),
            truth.sent,
            truth.log.iter().map(|(_, event)| event).collect::<Vec<_>>()
        )
    })
}

/// Never more than the clients lost; and what they lost is counted, or undecided.
fn wrong_count(truth: &Truth, report: &Value) -> Option<String> {
    let connections = &report["connections"];
    let traffic = text(report, "traffic");
    if connections["observed"] != true || traffic == "unknown" || traffic == "quiet" {
        return None;
    }
    let number = |key: &str| usize::try_from(connections[key].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
    let [refused, reset, cut, undecided] = ["refused", "reset", "cut", "undecided"].map(number);
    let counted = refused + reset + cut;
    let all = truth.lost(0..=u64::MAX);
    // A reset of a connection without a request is one that the client does not miss; a client that gave up does not know.
    let spare = truth.count(&[Outcome::IdleReset, Outcome::GaveUp]);
    let surely = truth.lost(truth.began()..=truth.ended + AFTER_NS);
    let is_wrong = counted > all + spare || surely > counted + undecided || refused > truth.count(&[Outcome::Refused]);
    is_wrong.then(|| {
        let seen = [
            Outcome::Refused,
            Outcome::Reset,
            Outcome::Cut,
            Outcome::IdleReset,
            Outcome::IdleClosed,
        ];
        let seen = seen.map(|outcome| format!("{outcome:?} {}", truth.count(&[outcome])));
        format!(
            "reported refused {refused}, reset {reset}, cut {cut}, undecided {undecided}; the clients saw {}",
            seen.join(", ")
        )
    })
}

#[cfg(test)]
mod tests;
