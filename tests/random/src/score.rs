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
    let is_true = match text(report, "exit") {
        "killed-by-other" => by_stranger.is_some() || by_inside,
        // Or the first process left a program that had not finished, and that was killed.
        "force-killed" => runtime_killed && !runtime_asked || !truth.is_main() && !truth.finished() && truth.code.is_some(),
        "crashed" => truth.crashed() || truth.signal.is_some_and(|signal| fault.contains(&signal)),
        // Or its wrapper hides the program's code.
        "nonzero-exit" => truth.code.is_some_and(|code| code != 0) || !truth.is_main() && truth.failed(),
        "default-action" => !truth.finished(),
        // The program had not finished, or the first process had not.
        "killed-after-grace" | "ignored-stop-signal" | "blocked-stop-signal" => {
            !truth.finished() || truth.signal == Some(SIGKILL)
        }
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::Attempt;
    use crate::draw;
    use crate::history::{Kill, Target};
    use crate::program::{Doing, Event};
    use crate::truth::Stranger;

    const SHIM: u32 = 100;
    const STRANGER: u32 = 300;

    /// The runtime's SIGTERM; the program exits with 0, and a client's request was cut.
    fn truth() -> Truth {
        Truth {
            shim_pid: SHIM,
            main_pid: 200,
            program_pid: 200,
            started: 0,
            ended: 2_000_000_000,
            code: Some(0),
            signal: None,
            sent: vec![(1_900_000_000, 15, true)],
            stranger: None,
            log: vec![
                (1, Event::Listening { pid: 200 }),
                (1_900_000_000, Event::Signal),
                (1_950_000_000, Event::Exiting { code: 0, unanswered: 0 }),
            ],
            attempts: vec![attempt(Outcome::Answered, 1), attempt(Outcome::Cut, 1_990_000_000)],
            broken: None,
        }
    }

    fn attempt(outcome: Outcome, end: u64) -> Attempt {
        Attempt {
            client: 0,
            port: 4711,
            begin: end,
            end,
            outcome,
        }
    }

    fn report() -> Value {
        json!({
            "verdict": "cut-connections", "exit": "clean", "traffic": "cut", "cause": "stopped", "sentence": "a",
            "status": {"code": 0},
            "stop": {"signal": "SIGTERM", "sender": {"pid": SHIM, "role": "runtime"}},
            "connections": {"observed": true, "refused": 0, "reset": 0, "cut": 1, "undecided": 0},
        })
    }

    fn classes(truth: Truth, reports: &[Value]) -> Vec<Class> {
        let played = Played {
            history: History {
                bind: Bind::V4,
                stop: Stop::Runtime {
                    signal: 15,
                    grace_ms: 700,
                    kill: Kill::Main,
                    frozen: false,
                },
                ..draw::history(1, |_| true)
            },
            container: String::new(),
            truth,
        };
        score(&played, reports).into_iter().map(|finding| finding.class).collect()
    }

    /// The report with another value of `key`.
    fn with(key: &str, value: Value) -> Value {
        let mut report = report();
        report[key] = value;
        report
    }

    #[test]
    fn a_true_report_has_no_finding() {
        assert_eq!(classes(truth(), &[report()]), []);
    }

    #[test]
    fn each_history_is_reported_once() {
        assert_eq!(classes(truth(), &[]), [Class::Missing]);
        assert_eq!(classes(truth(), &[report(), report()]), [Class::Twice]);
    }

    #[test]
    fn a_lost_request_is_not_quiet() {
        assert_eq!(classes(truth(), &[with("traffic", json!("quiet"))]), [Class::FalseQuiet]);
        let undecided = json!({"observed": true, "refused": 0, "reset": 0, "cut": 0, "undecided": 1});
        let mut report = with("traffic", json!("undecided"));
        report["connections"] = undecided;
        assert_eq!(classes(truth(), &[report]), []);
    }

    /// A request long after the exit is not of this termination.
    #[test]
    fn a_loss_long_after_the_exit_does_not_count() {
        let late = Truth {
            attempts: vec![attempt(Outcome::Refused, 4_000_000_000)],
            ..truth()
        };
        assert_eq!(classes(late, &[with("traffic", json!("quiet"))]), []);
    }

    #[test]
    fn a_program_that_did_not_finish_is_not_clean() {
        let killed = Truth {
            log: vec![(1, Event::Listening { pid: 250 })],
            program_pid: 250,
            ..truth()
        };
        assert_eq!(classes(killed, &[report()]), [Class::FalseClean]);
    }

    #[test]
    fn a_pool_that_lost_a_job_is_not_clean() {
        let worker = |does| (1, Event::Worker { number: 1, does });
        let with = |does: &[Doing]| Truth {
            log: truth().log.into_iter().chain(does.iter().copied().map(worker)).collect(),
            ..truth()
        };
        assert_eq!(classes(with(&[Doing::Job, Doing::Leaves]), &[report()]), []);
        assert_eq!(classes(with(&[Doing::Nothing]), &[report()]), []);
        assert_eq!(classes(with(&[Doing::Job]), &[report()]), [Class::FalseClean]);
    }

    #[test]
    fn counts_are_those_of_the_clients() {
        let count = |refused: u64, cut: u64| {
            let connections = json!({"observed": true, "refused": refused, "reset": 0, "cut": cut, "undecided": 0});
            classes(truth(), &[with("connections", connections)])
        };
        assert_eq!(count(0, 1), []);
        assert_eq!(count(0, 0), [Class::WrongCount]);
        assert_eq!(count(0, 2), [Class::WrongCount]);
        assert_eq!(count(1, 0), [Class::WrongCount]);
    }

    #[test]
    fn the_exit_is_that_of_wait() {
        assert_eq!(classes(truth(), &[with("status", json!({"code": 1}))]), [Class::WrongExit]);
        assert_eq!(
            classes(truth(), &[with("status", json!({"signal": "SIGTERM"}))]),
            [Class::WrongExit]
        );
    }

    #[test]
    fn a_deed_has_the_one_who_did_it() {
        let by = |pid: u32, role: &str| with("stop", json!({"signal": "SIGTERM", "sender": {"pid": pid, "role": role}}));
        assert_eq!(classes(truth(), &[by(STRANGER, "runtime")]), [Class::WrongCulprit]);
        assert_eq!(classes(truth(), &[by(STRANGER, "other")]), [Class::WrongCulprit]);
        let struck = Truth {
            stranger: Some(Stranger {
                at: 1,
                pid: STRANGER,
                signal: 15,
                target: Target::Main,
            }),
            ..truth()
        };
        assert_eq!(classes(struck, &[by(STRANGER, "other")]), []);
    }

    #[test]
    fn a_deed_that_was_not_done_is_a_wrong_verdict() {
        for exit in [
            "killed-by-other",
            "force-killed",
            "crashed",
            "default-action",
            "killed-after-grace",
            "oom-killed",
        ] {
            assert_eq!(
                classes(truth(), &[with("exit", json!(exit))]),
                [Class::WrongCulprit],
                "{exit}"
            );
        }
        assert_eq!(classes(truth(), &[with("cause", json!("external"))]), [Class::WrongCulprit]);
    }

    #[test]
    fn unknown_is_counted() {
        assert_eq!(classes(truth(), &[with("traffic", json!("unknown"))]), [Class::Unknown]);
        assert_eq!(classes(truth(), &[with("cause", json!("unknown"))]), [Class::Unknown]);
    }

    /// What docs/limits promises is unknown with that reason only.
    #[test]
    fn the_cause_of_a_stop_from_inside_is_unknown() {
        let inside = |report: Value| {
            let played = Played {
                history: History {
                    bind: Bind::V4,
                    stop: Stop::Inside { signal: 15 },
                    ..draw::history(1, |_| true)
                },
                container: String::new(),
                truth: truth(),
            };
            score(&played, &[report])
                .into_iter()
                .map(|finding| finding.class)
                .collect::<Vec<_>>()
        };
        let mut report = with("cause", json!("unknown"));
        assert_eq!(inside(report.clone()), [Class::Unknown]);
        report["stop"]["sender"]["role"] = json!("inside");
        assert_eq!(inside(report.clone()), []);
        report["exit"] = json!("unknown");
        assert_eq!(inside(report), [Class::Unknown]);
    }
}
