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

/// The kernel kills it when the first process exits, between its last line and its exit, or just not.
#[test]
fn a_program_whose_last_line_is_that_near_to_the_end_may_have_been_killed() {
    let last_line = |at: u64| Truth {
        program_pid: 250,
        log: vec![
            (1, Event::Listening { pid: 250 }),
            (at, Event::Exiting { code: 0, unanswered: 0 }),
        ],
        ..truth()
    };
    for exit in ["killed-after-grace", "force-killed"] {
        assert_eq!(classes(last_line(1_999_500_000), &[with("exit", json!(exit))]), [], "{exit}");
        assert_eq!(
            classes(last_line(1_900_000_000), &[with("exit", json!(exit))]),
            [Class::WrongCulprit],
            "{exit}"
        );
    }
    let by_default = with("exit", json!("default-action"));
    assert_eq!(classes(last_line(1_999_500_000), &[by_default]), [Class::WrongCulprit]);
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
