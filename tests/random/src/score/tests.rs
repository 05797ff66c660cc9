mod blame;

use serde_json::json;

use super::*;
use crate::history::{Held, Kill};
use crate::program::{Doing, Event};
use crate::truth::{Inside, Stranger};

const SHIM: u32 = 100;
const STRANGER: u32 = 300;
const INSIDE: u32 = 400;

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
        strangers: Vec::new(),
        inside: Vec::new(),
        oom_kills: 0,
        log: vec![
            (1, Event::Listening { pid: 200 }),
            (1_900_000_000, Event::Signal { signal: 15 }),
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

fn history() -> History {
    History {
        entry: Vec::new(),
        pid_namespace: true,
        own_network: true,
        bind: Bind::V4,
        program: Program {
            handling: Handling::Handler,
            reaction: Reaction::Graceful,
            code: 0,
            drains: true,
            closes: Closes::Exit,
            pool: Pool::None,
        },
        clients: Vec::new(),
        lead_ms: 100,
        stop: Stop::Runtime {
            signal: 15,
            grace_ms: 700,
            kill: Kill::Main,
            frozen: false,
            again_ms: None,
            to_all: false,
        },
        probes: None,
        held: None,
    }
}

fn classes(truth: Truth, reports: &[Value]) -> Vec<Class> {
    classes_of(history(), truth, reports)
}

fn classes_of(history: History, truth: Truth, reports: &[Value]) -> Vec<Class> {
    let played = Played {
        history,
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

/// By the program's own log, whoever had waited for the answer.
#[test]
fn an_unanswered_request_is_not_quiet() {
    let with_left = |unanswered| Truth {
        log: vec![(1_950_000_000, Event::Exiting { code: 0, unanswered })],
        attempts: vec![attempt(Outcome::GaveUp, 1_990_000_000)],
        ..truth()
    };
    let quiet = || with("traffic", json!("quiet"));
    assert_eq!(classes(with_left(1), &[quiet()]), [Class::FalseQuiet]);
    assert_eq!(classes(with_left(0), &[quiet()]), []);
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

/// The program's own code, whatever its wrapper makes of it, but for the code of a stop signal that the program read.
#[test]
fn a_program_that_failed_is_not_clean() {
    let with = |code: i32, status: i32| Truth {
        code: Some(status),
        log: vec![
            (1, Event::Listening { pid: 200 }),
            (1_900_000_000, Event::Signal { signal: 15 }),
            (1_950_000_000, Event::Exiting { code, unanswered: 0 }),
        ],
        ..truth()
    };
    let clean = |status: i32| with_status(report(), status);
    assert_eq!(classes(with(3, 3), &[clean(3)]), [Class::FalseClean]);
    assert_eq!(classes(with(143, 143), &[clean(143)]), []);
    assert_eq!(classes(with(130, 130), &[clean(130)]), [Class::FalseClean]);
    let nonzero = with_status(with_exit("nonzero-exit"), 3);
    assert_eq!(classes(with(3, 3), &[nonzero]), []);

    // Below a wrapper that hides it.
    let hidden = || Truth {
        program_pid: 250,
        sent: Vec::new(),
        ..with(3, 0)
    };
    let by_itself = || {
        let mut report = report();
        report["stop"] = Value::Null;
        report["cause"] = json!("completed");
        report
    };
    assert_eq!(classes(hidden(), &[by_itself()]), [Class::FalseClean]);
    // Nothing shows that it is a program.
    let without_clients = Truth {
        attempts: vec![attempt(Outcome::Cut, 1_990_000_000)],
        ..hidden()
    };
    assert_eq!(classes(without_clients, &[by_itself()]), []);
    let shown = Truth {
        program_pid: 250,
        ..with(3, 3)
    };
    assert_eq!(classes(shown, &[clean(3)]), [Class::FalseClean]);
    // As a shell whose wait the signal interrupts.
    let passed_on = Truth {
        program_pid: 250,
        ..with(7, 143)
    };
    assert_eq!(classes(passed_on, &[clean(143)]), []);
}

fn with_exit(exit: &str) -> Value {
    with("exit", json!(exit))
}

fn with_status(mut report: Value, code: i32) -> Value {
    report["status"] = json!({ "code": code });
    report
}

/// Of each connection the program ended with shutdown(2), the records show that nothing was under way.
#[test]
fn undecided_is_counted_where_it_could_be_decided() {
    let undecided = || {
        let mut report = with("traffic", json!("undecided"));
        report["connections"] = json!({"observed": true, "refused": 0, "reset": 0, "cut": 0, "undecided": 1});
        report
    };
    let idle = |closes| {
        let mut truth = truth();
        truth.log.insert(1, (1_900_000_001, Event::Closed));
        truth.attempts = vec![attempt(Outcome::Answered, 1), attempt(Outcome::IdleClosed, 1_990_000_000)];
        let mut history = history();
        history.program.closes = closes;
        classes_of(history, truth, &[undecided()])
    };
    assert_eq!(idle(Closes::Shutdown), [Class::Undecided]);
    assert_eq!(idle(Closes::Close), []);
    assert_eq!(classes(truth(), &[undecided()]), []);
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

fn stranger(signal: i32) -> Stranger {
    Stranger {
        at: 1_850_000_000,
        pid: STRANGER,
        signal,
        target: Target::Main,
    }
}

fn from_inside() -> Truth {
    let inside = Inside {
        at: 1_850_000_000,
        pid: INSIDE,
        signal: 15,
    };
    Truth {
        inside: vec![inside],
        ..truth()
    }
}

#[test]
fn unknown_is_counted() {
    assert_eq!(classes(truth(), &[with("traffic", json!("unknown"))]), [Class::Unknown]);
    assert_eq!(classes(truth(), &[with("cause", json!("unknown"))]), [Class::Unknown]);
}

/// What docs/limits has, in that situation only.
#[test]
fn what_docs_limits_has_is_counted_apart() {
    let inside = |entry: &[Wrapper], report: Value| {
        let history = History {
            entry: entry.to_vec(),
            stop: Stop::Inside { signal: 15 },
            ..history()
        };
        let mut report = report;
        report["stop"]["sender"] = json!({"pid": INSIDE, "role": "inside"});
        classes_of(history, from_inside(), &[report])
    };
    assert_eq!(inside(&[], with("cause", json!("unknown"))), [Class::Documented]);
    assert_eq!(inside(&[], with_exit("unknown")), [Class::Unknown]);
    assert_eq!(inside(&[Wrapper::Sh], with_exit("unknown")), [Class::Documented]);

    let pool = |wrapper, does| {
        let mut history = history();
        history.entry = vec![wrapper];
        history.program.pool = Pool::Busy;
        let mut truth = truth();
        truth.log.insert(0, (1, Event::Worker { number: 0, does }));
        classes_of(history, truth, &[with_exit("unknown")])
    };
    assert_eq!(pool(Wrapper::TiniGroup, Doing::Job), [Class::Documented]);
    assert_eq!(pool(Wrapper::TiniGroup, Doing::Leaves), [Class::Unknown]);
    assert_eq!(pool(Wrapper::Tini, Doing::Job), [Class::Unknown]);
}

/// How the program ended before the stop is of another time.
#[test]
fn a_program_that_was_gone_before_the_stop_is_not_judged() {
    let two = |first| History {
        entry: vec![Wrapper::Runit],
        stop: Stop::Two {
            first,
            after_ms: 100,
            second: Deed::Runtime(15),
        },
        ..history()
    };
    let crashed_at = |at: u64| Truth {
        program_pid: 250,
        log: vec![(1, Event::Starting), (at, Event::Crashing)],
        ..truth()
    };
    let clean = || with("traffic", json!("undecided"));
    let judged = |first, truth| classes_of(two(first), truth, &[clean()]).contains(&Class::FalseClean);
    assert!(!judged(Deed::Fault, crashed_at(1_800_000_000)));
    assert!(judged(Deed::Fault, crashed_at(1_950_000_000)));
    let struck = |signal, at| Truth {
        program_pid: 250,
        strangers: vec![Stranger {
            at,
            target: Target::Program,
            ..stranger(signal)
        }],
        log: vec![(1_000_000_000, Event::Starting)],
        ..truth()
    };
    let first = |signal| Deed::Stranger {
        signal,
        target: Target::Program,
    };
    assert!(!judged(first(SIGKILL), struck(SIGKILL, 1_850_000_000)));
    // It has started again since.
    assert!(judged(first(SIGKILL), struck(SIGKILL, 900_000_000)));
    // It has a handler that did not run.
    assert!(judged(first(15), struck(15, 1_850_000_000)));
}

/// By docs/limits the refused clients of a Unix socket are not seen where the program has a TCP port, too; those of the port are.
#[test]
fn the_clients_of_a_second_address_are_excused_alone() {
    let two = History {
        bind: Bind::TcpAndUnix,
        ..history()
    };
    let lost_by = |client| Truth {
        attempts: vec![Attempt {
            client,
            ..attempt(Outcome::Refused, 1_990_000_000)
        }],
        ..truth()
    };
    let quiet = [with("traffic", json!("quiet"))];
    assert_eq!(classes_of(two.clone(), lost_by(1), &quiet), []);
    assert_eq!(classes_of(two, lost_by(0), &quiet), [Class::FalseQuiet]);
}

/// By docs/limits the crash of a daemon, which nobody waits for, is not seen; that of a wrapper's own child is.
#[test]
fn the_crash_of_a_daemon_may_be_hidden_by_a_shell_that_exits_with_0() {
    let below = |entry: &[Wrapper]| History {
        entry: entry.to_vec(),
        stop: Stop::Fault,
        ..history()
    };
    let crashed = Truth {
        program_pid: 250,
        sent: Vec::new(),
        log: vec![(1, Event::Listening { pid: 250 }), (1_900_000_000, Event::Crashing)],
        ..truth()
    };
    let mut report = with("cause", json!("completed"));
    report["stop"] = Value::Null;
    let report = [report];
    assert_eq!(
        classes_of(below(&[Wrapper::ShZero, Wrapper::DoubleFork]), crashed.clone(), &report),
        []
    );
    assert_eq!(classes_of(below(&[Wrapper::ShZero]), crashed, &report), [Class::FalseClean]);
}
