//! Who did what.

use super::*;

#[test]
fn the_headline_is_that_of_the_axes() {
    assert_eq!(classes(truth(), &[with("verdict", json!("clean"))]), [Class::FalseClean]);
    assert_eq!(classes(truth(), &[with("main", json!({"pid": 200}))]), []);
    assert_eq!(classes(truth(), &[with("main", json!({"pid": 201}))]), [Class::WrongCulprit]);
}

/// What the program did with its stop signal, by its log and by how it was set up.
#[test]
fn each_of_the_three_stop_verdicts_is_its_own() {
    const VERDICTS: [&str; 3] = ["killed-after-grace", "ignored-stop-signal", "blocked-stop-signal"];
    let program = |handling, reaction| History {
        program: Program {
            handling,
            reaction,
            ..history().program
        },
        ..history()
    };
    let right_of = |history: &History, reads: bool, is_main: bool, then: &[(u64, Event)]| -> Vec<&str> {
        let read = (1_900_000_000, Event::Signal { signal: 15 });
        let killed = Truth {
            program_pid: if is_main { 200 } else { 250 },
            code: None,
            signal: Some(SIGKILL),
            log: reads.then_some(read).into_iter().chain(then.iter().cloned()).collect(),
            ..truth()
        };
        let report = |exit: &str| {
            let mut report = with_exit(exit);
            report["status"] = json!({"signal": "SIGKILL"});
            report
        };
        let is_right = |exit: &&str| classes_of(history.clone(), killed.clone(), &[report(exit)]).is_empty();
        VERDICTS.into_iter().filter(is_right).collect()
    };
    let right = |history: &History, reads, is_main| right_of(history, reads, is_main, &[]);
    let slow = program(Handling::Handler, Reaction::Slow { ms: 5_000 });
    assert_eq!(right(&slow, true, true), ["killed-after-grace"]);
    assert_eq!(right(&slow, false, true), ["blocked-stop-signal"]);
    let again = program(Handling::Handler, Reaction::ReRaise);
    assert_eq!(right(&again, true, true), ["ignored-stop-signal"]);
    // By docs/limits a handler that raises the signal only after 10 ms did something.
    let late = [(1_911_000_000, Event::Raising)];
    assert_eq!(
        right_of(&again, true, true, &late),
        ["killed-after-grace", "ignored-stop-signal"]
    );
    let default = program(Handling::Default, Reaction::AtOnce);
    assert_eq!(right(&default, false, true), ["ignored-stop-signal"]);
    assert_eq!(
        right(&program(Handling::Ignored, Reaction::AtOnce), false, true),
        ["ignored-stop-signal"]
    );
    assert_eq!(
        right(&program(Handling::Blocked, Reaction::AtOnce), false, true),
        ["blocked-stop-signal"]
    );
    let late = program(Handling::LateHandler, Reaction::Graceful);
    assert_eq!(right(&late, false, true), ["ignored-stop-signal", "blocked-stop-signal"]);
    // A thread reads the signal, and the program that takes memory does not log it.
    let eats = History {
        stop: Stop::Oom(Eater::Program),
        ..program(Handling::SigWait, Reaction::AtOnce)
    };
    assert_eq!(right(&eats, false, true), ["killed-after-grace"]);
    // Stopped by SIGSTOP to the end: the default action, too, waits behind it, but not what the kernel keeps from PID 1.
    let held = |pid_namespace| History {
        held: Some(Held { until_ms: None }),
        pid_namespace,
        ..default.clone()
    };
    assert_eq!(right(&held(false), false, true), ["blocked-stop-signal"]);
    assert_eq!(right(&held(true), false, true), ["ignored-stop-signal"]);
    let below_tini = History {
        entry: vec![Wrapper::Tini],
        ..held(true)
    };
    assert_eq!(right(&below_tini, false, false), ["blocked-stop-signal"]);
    // Before its change, or after it.
    let drops = program(Handling::Drops, Reaction::Graceful);
    assert_eq!(right(&drops, false, true), ["ignored-stop-signal", "blocked-stop-signal"]);
    // An init sends the signal on; what a shell does, the program's log does not show.
    let below = |wrapper, history: &History| History {
        entry: vec![wrapper],
        ..history.clone()
    };
    assert_eq!(right(&below(Wrapper::Tini, &slow), true, false), ["killed-after-grace"]);
    assert_eq!(right(&below(Wrapper::Tini, &default), false, false), [""; 0]);
    assert_eq!(right(&below(Wrapper::Sh, &default), false, false), VERDICTS);
}

/// A stranger's signal that the program read, and after which it exited with 0, did not kill it.
#[test]
fn a_program_that_finished_was_killed_by_nobody() {
    let struck = Truth {
        strangers: vec![stranger(15)],
        sent: Vec::new(),
        ..truth()
    };
    let report = |exit: &str| {
        let mut report = with_exit(exit);
        report["stop"]["sender"] = json!({"pid": STRANGER, "role": "other"});
        report["cause"] = json!("external");
        report
    };
    assert_eq!(classes(struck.clone(), &[report("clean")]), []);
    assert_eq!(classes(struck.clone(), &[report("killed-by-other")]), [Class::WrongCulprit]);
    let killed = Truth {
        log: Vec::new(),
        ..struck
    };
    assert_eq!(classes(killed, &[report("killed-by-other")]), []);
}

/// The victim is who took the memory, by its own log, and the kernel counted it.
#[test]
fn memory_ran_out_for_the_one_that_took_it() {
    let verdicts = |eater: Eater, kills: usize| {
        let history = History {
            stop: Stop::Oom(eater),
            ..history()
        };
        let taken = Truth {
            code: None,
            signal: Some(SIGKILL),
            sent: Vec::new(),
            oom_kills: kills,
            log: vec![(1_900_000_000, Event::Eating)],
            ..truth()
        };
        let is_right = |exit: &&str| {
            let mut report = with_exit(exit);
            report["status"] = json!({"signal": "SIGKILL"});
            report["stop"] = Value::Null;
            report["cause"] = json!("oom");
            classes_of(history.clone(), taken.clone(), &[report]).is_empty()
        };
        let all = ["oom-killed", "oom-child", "force-killed", "killed-by-other"];
        all.into_iter().filter(is_right).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(Eater::Program, 1), ["oom-killed"]);
    assert_eq!(verdicts(Eater::Worker, 1), ["oom-child"]);
    assert_eq!(verdicts(Eater::Program, 0), [""; 0]);
}

#[test]
fn a_cause_is_what_happened_first() {
    let causes = |truth: Truth, stop: Value| {
        let is_right = |cause: &&str| {
            let mut report = with("cause", json!(cause));
            report["stop"] = stop.clone();
            classes(truth.clone(), &[report]).is_empty()
        };
        let all = ["stopped", "completed", "crash", "external", "oom"];
        all.into_iter().filter(is_right).collect::<Vec<_>>()
    };
    let stop = report()["stop"].clone();
    assert_eq!(causes(truth(), stop.clone()), ["stopped"]);
    // The signal that the program read is not in the report.
    assert_eq!(causes(truth(), Value::Null), ["stopped"]);
    // What the runtime sends to make sure, once the first process is gone.
    let by_itself = Truth {
        sent: vec![(2_000_000_001, SIGKILL, false)],
        log: vec![(1_950_000_000, Event::Exiting { code: 0, unanswered: 0 })],
        ..truth()
    };
    assert_eq!(causes(by_itself, Value::Null), ["completed"]);
    let mut from_inside = from_inside();
    from_inside.sent.clear();
    let by_inside = json!({"signal": "SIGTERM", "sender": {"pid": INSIDE, "role": "inside"}});
    assert_eq!(causes(from_inside, by_inside), ["completed", "external"]);
}

#[test]
fn a_deed_has_the_one_who_did_it() {
    let by = |pid: u32, role: &str| with("stop", json!({"signal": "SIGTERM", "sender": {"pid": pid, "role": role}}));
    assert_eq!(classes(truth(), &[by(STRANGER, "runtime")]), [Class::WrongCulprit]);
    assert_eq!(classes(truth(), &[by(STRANGER, "other")]), [Class::WrongCulprit]);
    let struck = Truth {
        strangers: vec![stranger(15)],
        ..truth()
    };
    assert_eq!(classes(struck, &[by(STRANGER, "other")]), []);
    // Of the container itself, only a wrapper signals, or who came in for that.
    assert_eq!(classes(truth(), &[by(INSIDE, "inside")]), [Class::WrongCulprit]);
    assert_eq!(classes(from_inside(), &[by(INSIDE, "inside")]), []);
    assert_eq!(classes(from_inside(), &[by(STRANGER, "inside")]), [Class::WrongCulprit]);
    let below = History {
        entry: vec![Wrapper::Tini],
        ..history()
    };
    assert_eq!(classes_of(below, truth(), &[by(250, "inside")]), []);
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

/// `runc kill --all`: the default action of a wrapper is one of the signal that the wrapper itself got.
#[test]
fn a_wrapper_that_was_signalled_as_all_others_ended_by_its_default_action() {
    let stopped = |to_all| History {
        entry: vec![Wrapper::Setsid],
        stop: Stop::Runtime {
            signal: 15,
            grace_ms: 700,
            kill: Kill::Main,
            frozen: false,
            again_ms: None,
            to_all,
        },
        ..history()
    };
    let below = Truth {
        program_pid: 250,
        ..truth()
    };
    let report = [with_exit("default-action")];
    assert_eq!(classes_of(stopped(true), below.clone(), &report), []);
    assert_eq!(classes_of(stopped(false), below, &report), [Class::WrongCulprit]);
}
