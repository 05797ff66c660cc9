//! Kubernetes Events reach us late, and stay in the API for an hour.

use expect_test::expect;

use super::{at, check, run, show, web};
use crate::fixtures::script::play_all;
use crate::report::{Command, Report};
use crate::verdict::Cause;

#[test]
fn the_next_life_is_not_blamed_for_the_last_ones_probe() {
    check(
        &web("
        +1.1 TERM runc -> main handler
        +1.11 enter main TERM
        +1.3 exit main 0
        +1.8 mkdir web:app:2
        proc second in=web:app:2 pid=101 ns=1 start=+1.8 parent=shim comm=app
        +1.8 exec second
        +3 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
        +3.1 event web app Killing at=+1 Container app failed liveness probe, will be restarted
        +3.1 event web app FailedPreStopHook at=+1 PreStopHook failed
        +60.05 pod web deleted=+60:30
        +60.3 TERM runc -> second handler
        +60.31 enter second TERM
        +60.5 exit second 0
        +61 pod web app=0:Completed
        +62 gone web
        "),
        expect![[r#"
            +4.300 web/app +1.100…+1.300 clean: Liveness/Clean/Quiet
              Liveness: Event Killing: Container app failed liveness probe, will be restarted, grace 30 s, reported 0 Completed
            +62.800 pod web +60.000…+60.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +60.000…+60.050 grace 30 s
              web/app +60.300…+60.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, restarts 1, reported 0 Completed
              gone +62.000
        "#]],
    );
}

#[test]
fn an_old_event_explains_no_crash() {
    check(
        &web("
        +1 exit main 3
        +2 pod web app=waiting app.last=web:app:3:Error app.restarts=1
        +2.1 event web app Killing at=-1200 Container app failed liveness probe, will be restarted
        "),
        expect![[r#"
            +4.100 web/app +1.000…+1.000 nonzero-exit: Crash/NonzeroExit/Quiet
              reported 3 Error
        "#]],
    );
}

#[test]
fn a_liveness_kill_that_is_explained_after_a_deletion_overtook_it() {
    check(
        &web("
        +1.1 TERM runc -> main handler
        +1.11 enter main TERM
        +5.1 pod web deleted=+5:30
        +8 exit main 3
        +9 pod web app=3:Error
        +9.1 event web app Killing at=+1 Container app failed liveness probe, will be restarted
        +10 gone web
        "),
        expect![[r#"
            +10.400 pod web +1.100…+8.000 nonzero-exit: Deleted/NonzeroExit/Quiet (deletionTimestamp)
              request +5.000…+5.100 grace 30 s
              web/app +1.100…+8.000 nonzero-exit: Liveness/NonzeroExit/Quiet
                Liveness: Event Killing: Container app failed liveness probe, will be restarted, grace 30 s, reported 3 Error
              gone +10.000
        "#]],
    );
}

#[test]
fn what_says_nothing_pushes_no_reason_out() {
    let noise = "+1.6 event web app Unhealthy Readiness probe failed\n".repeat(20);
    check(
        &web(&format!(
            "
        +1 event web app Killing Container app failed liveness probe, will be restarted
        +1.1 TERM runc -> main handler
        +1.11 enter main TERM
        {noise}
        +6.4 exit main 0
        +7 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
        "
        )),
        expect![[r#"
            +9.400 web/app +1.100…+6.400 clean: Liveness/Clean/Quiet
              Liveness: Event Killing: Container app failed liveness probe, will be restarted, grace 30 s, reported 0 Completed
        "#]],
    );
}

#[test]
fn an_eviction_by_taint_that_was_called_off() {
    check(
        &web("
        +1 event web - TaintManagerEviction Marking for deletion Pod shop/web
        +2 event web - TaintManagerEviction Cancelling deletion of Pod shop/web
        +60.05 pod web deleted=+60:30
        +60.3 TERM runc -> main handler
        +60.31 enter main TERM
        +60.5 exit main 0
        +62 gone web
        "),
        expect![[r#"
            +62.800 pod web +60.000…+60.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +60.000…+60.050 grace 30 s
              web/app +60.300…+60.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s
              gone +62.000
        "#]],
    );
}

/// A liveness kill looks like this, too.
const RESTARTED: &str = "
        +1.1 TERM runc -> main handler
        +1.11 enter main TERM
        +1.4 exit main 0
        +1.8 mkdir web:app:2
        proc second in=web:app:2 pid=101 ns=1 start=+1.8 parent=shim comm=app
        +1.8 exec second
        +2 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
        +2 events web asked
";

#[test]
fn a_restart_is_told_with_the_answer_however_slow() {
    check(
        &web(&format!(
            "{RESTARTED}
        +9 event web app Killing at=+1 Container app failed liveness probe, will be restarted
        +9 events web known
        "
        )),
        expect![[r#"
            +9.000 web/app +1.100…+1.400 clean: Liveness/Clean/Quiet
              Liveness: Event Killing: Container app failed liveness probe, will be restarted, grace 30 s, reported 0 Completed
        "#]],
    );
    check(
        &web(&format!("{RESTARTED}\n+9 events web known")),
        expect![[r#"
        +9.000 web/app +1.100…+1.400 clean: Restart/Clean/Quiet
          grace 30 s, reported 0 Completed
    "#]],
    );
}

#[test]
fn a_restart_whose_events_are_not_known_has_no_known_cause() {
    check(
        &web(&format!("{RESTARTED}\n+4 events web no answer within 2s")),
        expect![[r#"
            +4.400 web/app +1.100…+1.400 clean: Unknown/Clean/Quiet
              grace 30 s, reported 0 Completed
              incomplete: the Kubernetes Events of the pod are unknown: no answer within 2s
        "#]],
    );
    // Nobody answers at all.
    check(
        &web(RESTARTED),
        expect![[r#"
            +32.000 web/app +1.100…+1.400 clean: Unknown/Clean/Quiet
              grace 30 s, reported 0 Completed
              incomplete: the Kubernetes Events of the pod are unknown: the API server had not answered yet
        "#]],
    );
}

#[test]
fn an_answer_is_no_answer_to_a_later_question() {
    check(
        &web(&format!(
            "{RESTARTED}\n+2.1 events web known as-of=+1.2\n+8 events web no answer within 2s"
        )),
        expect![[r#"
            +8.000 web/app +1.100…+1.400 clean: Unknown/Clean/Quiet
              grace 30 s, reported 0 Completed
              incomplete: the Kubernetes Events of the pod are unknown: no answer within 2s
        "#]],
    );
}

#[test]
fn the_next_life_is_not_doubted_for_the_last_ones_events() {
    check(
        &web(&format!(
            "{RESTARTED}
        +4 events web no answer within 2s
        +60.1 TERM runc -> second handler
        +60.11 enter second TERM
        +60.3 exit second 0
        +61 pod web app.last=web:app:2:0:Completed app.restarts=2 app.id=web:app:3 app=running
        "
        )),
        expect![[r#"
            +4.400 web/app +1.100…+1.400 clean: Unknown/Clean/Quiet
              grace 30 s, reported 0 Completed
              incomplete: the Kubernetes Events of the pod are unknown: no answer within 2s
            +63.400 web/app +60.100…+60.300 clean: Restart/Clean/Quiet
              grace 30 s, restarts 1, reported 0 Completed
        "#]],
    );
}

#[test]
fn a_hook_that_no_process_shows_is_not_done_without_an_answer() {
    let deleted = |answer: &str| {
        web(&format!(
            "
        pod web app app.prestop=http
        -58 pod web app=running
        +1.05 pod web deleted=+1:30
        +1.2 TERM runc -> main handler
        +1.21 enter main TERM
        +1.5 exit main 0
        +2 pod web app=0:Completed
        +2 events web asked
        +2.1 gone web
        {answer}
        "
        ))
    };
    check(
        &deleted("+6 events web known"),
        expect![[r#"
            +6.000 pod web +1.000…+1.500 clean: Deleted/Clean/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.200…+1.500 clean: Deleted/Clean/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
                preStop +1.050…+1.200 not seen
              gone +2.100
        "#]],
    );
    check(
        &deleted("+6 events web no answer within 2s"),
        expect![[r#"
            +6.000 pod web +1.000…+1.500 unknown: Deleted/Unknown/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.200…+1.500 unknown: Deleted/Unknown/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
                preStop +1.050…+1.200 not seen
                incomplete: the Kubernetes Events of the pod are unknown: no answer within 2s
              gone +2.100
        "#]],
    );
    check(
        &deleted("+5.9 event web app FailedPreStopHook at=+1 connection refused\n+6 events web known"),
        expect![[r#"
            +6.000 pod web +1.000…+1.500 prestop-failed: Deleted/PrestopFailed/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.200…+1.500 prestop-failed: Deleted/PrestopFailed/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
                preStop +1.050…+1.200 not seen failed: connection refused
              gone +2.100
        "#]],
    );
}

#[test]
fn a_hook_whose_end_no_status_told_was_not_asked_about() {
    for gone in ["+3 gone web", "+1.4 gone web", "+3 gone web unwatched", "+60 tick"] {
        let reports = run(&web(&format!(
            "
        pod web app app.prestop=http
        -58 pod web app=running
        +1.05 pod web deleted=+1:30
        +1.2 TERM runc -> main handler
        +1.21 enter main TERM
        +1.5 exit main 0
        {gone}
        "
        )));
        let told = show(&reports);
        assert!(
            told.contains("web/app +1.200…+1.500 unknown: Deleted/Unknown/Quiet"),
            "{told}"
        );
        // The deletion's, whatever the last update shows.
        let of = |report: &Report| match report {
            Report::Terminated(of) => Some(of.verdict.sentence.clone()),
            Report::PodTerminated(of) => Some(of.verdict.sentence.clone()),
            _ => None,
        };
        let sentences: Vec<String> = reports.iter().filter_map(|(_, report)| of(report)).collect();
        assert!(
            !sentences.is_empty() && sentences.iter().all(|text| text.contains(" of 30 s")),
            "{sentences:?}"
        );
    }
}

/// The recording lacks a part, perhaps with the kubelet's Event of a probe that failed: then the reason of a restart is not known.
#[test]
fn a_missing_part_of_the_evidence_may_hide_why_a_container_was_stopped() {
    let cause = |part: &str| {
        let reports = run(&web(&format!(
            "
        {part}
        +1.1 TERM runc -> main handler
        +1.2 enter main TERM
        +1.4 exit main 0
        +2 pod web app.last=web:app:0:Completed app.restarts=1 app.id=web:app:2 app=running
        +60 tick
        "
        )));
        reports.iter().find_map(|(_, report)| match report {
            Report::Terminated(of) => Some(of.verdict.cause),
            _ => None,
        })
    };
    assert_eq!(cause(""), Some(Cause::Restart));
    assert_eq!(cause("+1 lost tcp +0.5 1 damaged"), Some(Cause::Unknown));
    // The oldest part of the journal is removed when it is full.
    assert_eq!(cause("+1 lost tcp +0.5 1 not-recorded"), Some(Cause::Unknown));
    // The next case: records that the kernel lost.
    assert_eq!(cause("+1 lost tcp +0.5 1"), Some(Cause::Restart));
}

/// The pods whose Events the core asks for.
pub(super) fn asked(script: &str) -> Vec<String> {
    let of = |(now, command)| match command {
        Command::ListEvents(pod) => Some(format!("{} {}", at(now), pod.name)),
        Command::Watch(_) | Command::Forget(_) => None,
    };
    play_all(script).commands.into_iter().filter_map(of).collect()
}

/// Whether the core asks for Events.
fn asks(rest: &str) -> bool {
    !asked(&web(rest)).is_empty()
}

#[test]
fn a_container_that_nothing_stopped_needs_no_events() {
    for (what, rest) in [
        (
            "a crash",
            "+1 exit main 3\n+2 pod web app=waiting app.last=web:app:3:Error app.restarts=1",
        ),
        (
            "the end of a Job",
            "pod web policy=never app\n-57 pod web app=running\n+1 exit main 0\n+2 pod web phase=succeeded app=0:Completed",
        ),
        (
            "an OOM kill",
            "+1 KILL main -> main kernel\n+1.0001 oom main\n+1.01 exit main KILL\n+2 pod web app.last=web:app:137:OOMKilled app.restarts=1",
        ),
        (
            "a fault",
            "+1 SEGV main -> main fault default\n+1.01 exit main SEGV\n+2 pod web app.last=web:app:139:Error app.restarts=1",
        ),
    ] {
        assert!(!asks(rest), "{what}");
    }
}

#[test]
fn a_deletion_before_the_stop_signal_explains_it() {
    for (what, exit) in [
        ("clean", "+1.21 enter main TERM\n+1.5 exit main 0\n+2 pod web app=0:Completed"),
        (
            "128 + n",
            "+1.21 enter main TERM\n+1.5 exit main 143\n+2 pod web app=143:Error",
        ),
        (
            "another code",
            "+1.21 enter main TERM\n+1.5 exit main 3\n+2 pod web app=3:Error",
        ),
        (
            "killed",
            "+31.3 KILL runc -> main\n+31.31 exit main KILL\n+32 pod web app=137:Error",
        ),
    ] {
        let rest = format!("+1.05 pod web deleted=+1:30\n+1.2 TERM runc -> main handler\n{exit}\n+33 gone web");
        assert!(!asks(&rest), "{what}");
    }
    // The stop signal came first: a probe may be why, and the deletion a coincidence.
    let before = "+0 skew -10 10\n+1.1 TERM runc -> main handler\n+1.11 enter main TERM\n+5.1 pod web deleted=+5:30\n+8 exit main 3\n+9 pod web app=3:Error\n+12 gone web";
    assert_eq!(asked(&web(before)).len(), 1);
}

#[test]
fn a_restart_by_the_kubelet_needs_the_events_of_the_pod_once() {
    assert_eq!(asked(&web(RESTARTED)).len(), 1);
    let again = format!("{RESTARTED}+2.5 pod web app=running\n+3 pod web app=running");
    assert_eq!(asked(&web(&again)).len(), 1);
}

#[test]
fn a_hook_needs_events_unless_its_end_is_known() {
    let deleted = |hook: &str, begin: &str, stop: &str| {
        format!(
            "
        pod web app app.prestop={hook}
        -58 pod web app=running
        proc hook in=web:app pid=130 ns=7 start=+1.1 parent=shim comm=hook
        +1.05 pod web deleted=+1:30
        {begin}
        +{stop}.2 TERM runc -> main handler
        +{stop}.21 enter main TERM
        +{stop}.5 exit main 0
        +9 pod web app=0:Completed
        +12 gone web
        "
        )
    };
    for (hook, begin, stop, wanted) in [
        ("http", "", "3", true),
        ("exec:/bin/hook", "", "3", true),
        ("exec:/bin/hook", "+1.12 exec hook\n+3 exit hook 0", "3", false),
        // The result is known, and an Event only repeats it.
        ("exec:/bin/hook", "+1.12 exec hook\n+3 exit hook 7", "3", false),
        ("sleep:5", "", "6", false),
        ("sleep:5", "", "3", true),
    ] {
        assert_eq!(asks(&deleted(hook, begin, stop)), wanted, "{hook} {begin} {stop}");
    }
    // The main process exited while the hook ran.
    let quit = "
        pod web app app.prestop=http
        -58 pod web app=running
        +1.05 pod web deleted=+1:30
        +1.5 exit main 0
        +2 pod web app=0:Completed
        +3 gone web";
    assert!(!asks(quit));
}

#[test]
fn a_signal_that_may_be_lost_leaves_the_question_open() {
    let crash = |lost: &str| format!("{lost}\n+1 exit main 3\n+2 pod web app=waiting app.last=web:app:3:Error app.restarts=1");
    assert!(!asks(&crash("")) && asks(&crash("+0.5 lost signal_generate +0 3")));
}

#[test]
fn of_a_pod_that_opted_out_no_events_are_listed() {
    assert_eq!(
        asked(&web(&format!("pod web ignore app\n-57 pod web app=running\n{RESTARTED}"))).len(),
        0
    );
}

/// The exit became known after the pod was gone: due at once, and still not judged without the answer.
#[test]
fn a_question_that_is_asked_late_is_not_overtaken_by_its_own_verdict() {
    let late = |answer: &str| {
        web(&format!(
            "
        pod web app app.prestop=http
        -58 pod web app=running
        +1.05 pod web deleted=+1:30
        +1.2 TERM runc -> main handler
        +1.21 enter main TERM
        +2 pod web app=0:Completed
        +2.1 gone web
        +8 tick
        +1.5 exit main 0
        {answer}
        "
        ))
    };
    assert_eq!(asked(&late("")), ["+8.200 web"]);
    check(
        &late("+8.3 events web asked\n+9 event web app FailedPreStopHook at=+1 connection refused\n+9 events web known"),
        expect![[r#"
            +9.000 pod web +1.000…+1.500 prestop-failed: Deleted/PrestopFailed/Quiet (deletionTimestamp)
              request +1.000…+1.050 grace 30 s
              web/app +1.200…+1.500 prestop-failed: Deleted/PrestopFailed/Quiet
                Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
                preStop +1.050…+1.200 not seen failed: connection refused
              gone +2.100
        "#]],
    );
    // Nobody announces the request, and nothing can wait: unknown, not clean.
    check(
        &late("+8.3 end"),
        expect![[r#"
        +8.300 pod web +1.000…+1.500 unknown: Deleted/Unknown/Quiet (deletionTimestamp)
          request +1.000…+1.050 grace 30 s
          web/app +1.200…+1.500 unknown: Deleted/Unknown/Quiet
            Deleted: deletionTimestamp, grace 30 s, reported 0 Completed
            preStop +1.050…+1.200 not seen
            incomplete: the Kubernetes Events of the pod are unknown: the API server had not answered yet
          gone +2.100
    "#]],
    );
}
