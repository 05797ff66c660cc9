use expect_test::{Expect, expect};

use super::*;
use crate::report::Termination;
use crate::verdict::{TrafficAxis, judge_pod};

/// The verdict on a pod that ended so.
fn pod(containers: &[Termination], stop_reason: Option<&StopReason>, unseen: &[(String, Option<Reported>)]) -> Verdict {
    let facts = PodTerminationFacts {
        pod: termination().k.pod,
        boot_id: "boot".into(),
        stop_reason: stop_reason.cloned(),
        request: None,
        begin: at(0.0),
        end: at(0.0),
        earlier: Vec::new(),
        unseen: unseen.to_vec(),
        gone: None,
        shutdown: None,
    };
    let members: Vec<_> = containers.iter().map(Termination::as_judged).collect();
    judge_pod(&facts, &members)
}

fn named(name: &str, ended: Builder) -> Termination {
    let name = name.to_owned();
    ended.with(|k| k.container = Some(name)).judged()
}

fn deleted() -> StopReason {
    StopReason {
        cause: Cause::Deleted,
        evidence: "deletionTimestamp".into(),
        detail: None,
    }
}

fn reported(code: i32, reason: &str) -> Option<Reported> {
    Some(Reported {
        exit_code: code,
        reason: Some(reason.into()),
    })
}

fn check_pod(containers: &[Termination], unseen: &[(String, Option<Reported>)], expected: Expect) {
    expected.assert_eq(&text(&pod(containers, Some(&deleted()), unseen)));
}

#[test]
fn one_container_speaks_for_itself() {
    check_pod(
        &[termination().term(0.3).exit(0.5, 0).judged()],
        &[],
        expect![[r#"
            clean (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later
        "#]],
    );
}

#[test]
fn all_clean() {
    let of = |name| named(name, termination().term(0.3).exit(0.5, 0));
    check_pod(
        &[of("app"), of("log")],
        &[],
        expect![[r#"
            clean (Deleted, Quiet): container `app` (2 of 2 clean): the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later
        "#]],
    );
}

#[test]
fn the_unclean_one_is_named() {
    let app = named("app", termination().term(0.3).exit(0.5, 0));
    let log = named("log", termination().dropped_term(0.3).kill(10.3));
    let proxy = named("proxy", termination().fatal_term(0.3));
    check_pod(
        &[app.clone(), log.clone()],
        &[],
        expect![[r#"
            ignored-stop-signal (Deleted, Quiet): container `log` (1 of 2 unclean): `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
              remedy: handle SIGTERM in PID 1 `app`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 10.0 s
        "#]],
    );
    check_pod(
        &[app, proxy, log],
        &[],
        expect![[r#"
            ignored-stop-signal (Deleted, Quiet): container `log` (2 of 3 unclean): `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later; container `proxy`: default-action
              remedy: handle SIGTERM in PID 1 `app`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 10.0 s
        "#]],
    );
}

#[test]
fn what_clients_saw_of_any() {
    let mut cut = termination().term(0.3).exit(0.5, 0);
    cut.t.traffic.cut = Count {
        count: 2,
        first: at(0.4),
        last: at(0.5),
    };
    let killed = named("log", termination().term(0.3).kill(10.3));
    let verdict = pod(&[named("app", cut), killed], Some(&deleted()), &[]);
    assert_eq!((verdict.headline, verdict.traffic), ("killed-after-grace", TrafficAxis::Cut));
    let mut unobserved = termination().term(0.3).exit(0.5, 0);
    unobserved.t.traffic.observed = false;
    let quiet = named("log", termination().term(0.3).exit(0.5, 0));
    let verdict = pod(&[named("app", unobserved), quiet], Some(&deleted()), &[]);
    assert_eq!((verdict.headline, verdict.traffic), ("clean-exit", TrafficAxis::Unknown));
}

#[test]
fn the_longest_needed_grace_counts() {
    let slow = named("app", termination().term(0.3).exit(9.3, 0));
    let slower = named("log", termination().term(0.3).exit(10.1, 0));
    let verdict = pod(&[slow, slower], Some(&deleted()), &[]);
    let advice: Vec<_> = verdict.advice.iter().map(|a| (a.kind.name(), a.seconds)).collect();
    assert_eq!(advice, [("grace-longer", Some(15))]);
}

/// Of a pod with that grace.
fn graced(name: &str, grace: u64, ended: Builder) -> Termination {
    let grace = Duration::from_secs(grace);
    let ended = ended.with(|k| {
        k.grace = Some(grace);
        let request = k.request.as_mut().unwrap();
        (request.grace, request.spec_grace) = (grace, Some(grace));
    });
    named(name, ended)
}

#[test]
fn a_grace_far_too_long() {
    let quick = |name| graced(name, 600, termination().term(0.3).exit(0.6, 0));
    check_pod(
        &[quick("app")],
        &[],
        expect![[r#"
            clean (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.3 s later
              grace-shorter Some(5): container `app` needed at most 1.5 s of a grace period of 600 s: a container that hangs would delay a rollout or a drain for all of that time; terminationGracePeriodSeconds could be 5
        "#]],
    );
    let slower = graced("log", 600, termination().term(0.3).exit(12.6, 0));
    check_pod(
        &[quick("app"), slower],
        &[],
        expect![[r#"
            clean (Deleted, Quiet): container `app` (2 of 2 clean): the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.3 s later
              grace-shorter Some(20): container `log`, the last container of the pod to exit, needed at most 13.5 s of a grace period of 600 s: a container that hangs would delay a rollout or a drain for all of that time; terminationGracePeriodSeconds could be 20
        "#]],
    );
    // The container's own sentence is not the pod's.
    assert!(quick("app").verdict.advice.is_empty());
}

#[test]
fn a_grace_is_too_long_only_for_all_its_containers() {
    let advice = |others: &[Termination], unseen: &[(String, Option<Reported>)]| {
        let log = graced("log", 300, termination().term(0.3).exit(1.3, 0));
        let verdict = pod(&[std::slice::from_ref(&log), others].concat(), Some(&deleted()), unseen);
        let advice = verdict.advice.iter().map(|a| (a.kind.name(), a.seconds));
        advice.collect::<Vec<_>>()
    };
    let shorter = [("grace-shorter", Some(5))];
    assert_eq!(advice(&[], &[]), shorter);
    // Neither near its end nor far from it.
    assert!(advice(&[graced("app", 300, termination().term(0.3).exit(100.3, 0))], &[]).is_empty());
    // What was not done has no measured time.
    assert!(advice(&[graced("app", 300, termination().term(0.3).exit(1.3, 3))], &[]).is_empty());
    assert!(advice(&[graced("app", 300, termination().fatal_term(0.3))], &[]).is_empty());
    assert!(advice(&[], &[("app".into(), reported(0, "Completed"))]).is_empty());
    assert_eq!(advice(&[], &[("app".into(), reported(128, "StartError"))]), shorter);
    // A sidecar's stop comes when the main containers have ended.
    let sidecar = termination().with(|k| k.kind = Some(ContainerKind::Sidecar));
    assert!(advice(&[graced("proxy", 300, sidecar.term(100.0).exit(100.1, 0))], &[]).is_empty());
    // It had ended before anybody asked.
    let mut over = termination().exit(-60.0, 1);
    over.k.stop_reason = None;
    assert_eq!(advice(&[graced("job", 300, over)], &[]), shorter);
    // Who sleeps as long as another one's clients need has no use for less.
    let mut refused = termination().term(0.2).exit(1.2, 0);
    refused.t.traffic.listeners.push(ListenerClosed {
        at: at(0.3),
        local: ([10, 0, 0, 7], 8080).into(),
        by_exit: false,
    });
    refused.t.traffic.refused.all = Count {
        count: 9,
        first: at(0.4),
        last: at(9.3),
    };
    assert_eq!(
        advice(&[graced("app", 300, refused)], &[]),
        [("pre-stop-sleep-longer", Some(11))]
    );
}

#[test]
fn those_that_were_never_seen() {
    let app = || named("app", termination().term(0.3).exit(0.5, 0));
    check_pod(
        &[app()],
        &[("init".into(), reported(137, "ContainerStatusUnknown"))],
        expect![[r#"
            unknown (Deleted, Unknown): container `init` (1 of 2 clean): no process of the container was observed; the pod's status reports ContainerStatusUnknown, exit code 137
        "#]],
    );
    check_pod(
        &[app()],
        &[("log".into(), reported(0, "Completed"))],
        expect![[r#"
            unknown (Deleted, Unknown): container `log` (1 of 2 clean): no process of the container was observed; the pod's status reports Completed, exit code 0
        "#]],
    );
    check_pod(
        &[app()],
        &[("log".into(), reported(128, "StartError"))],
        expect![[r#"
            runtime-failed (Deleted, Quiet): container `log` (1 of 2 unclean): the container runtime did not start the program; the pod's status reports StartError, exit code 128
              remedy: read the waiting or terminated message of the container in the pod's status: the command, a mount, the image or the container runtime itself failed
        "#]],
    );
    check_pod(
        &[],
        &[("log".into(), None)],
        expect![[r#"
            unknown (Deleted, Unknown): container `log`: no process of the container was observed; the pod's status reports no exit code
        "#]],
    );
    check_pod(
        &[],
        &[],
        expect![[r#"
            unknown (Deleted, Unknown): no container of the pod was seen to exit
        "#]],
    );
}

#[test]
fn completed_by_itself() {
    let app = named("job", termination().unasked().exit(0.5, 0));
    expect![[r#"
        clean (Completed, Quiet): container `job`: PID 1 `app` exited by itself with code 0
    "#]]
    .assert_eq(&text(&pod(&[app], None, &[])));
}
