use expect_test::{Expect, expect};

use super::*;
use crate::verdict::{TrafficAxis, pod};

fn named(name: &str, death: Death) -> Termination {
    let name = name.to_owned();
    death.with(|k| k.container = Some(name)).judged()
}

fn asked() -> Asked {
    Asked {
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
    expected.assert_eq(&text(&pod(containers, Some(&asked()), unseen)));
}

#[test]
fn one_container_speaks_for_itself() {
    check_pod(
        &[death().term(0.3).exit(0.5, 0).judged()],
        &[],
        expect![[r#"
        clean (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.2 s later
    "#]],
    );
}

#[test]
fn all_clean() {
    let of = |name| named(name, death().term(0.3).exit(0.5, 0));
    check_pod(
        &[of("app"), of("log")],
        &[],
        expect![[r#"
            clean (Deleted, Quiet): container `app` (2 of 2 clean): SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.2 s later
        "#]],
    );
}

#[test]
fn the_unclean_one_is_named() {
    let app = named("app", death().term(0.3).exit(0.5, 0));
    let log = named("log", death().dropped_term(0.3).kill(10.3));
    let proxy = named("proxy", death().fatal_term(0.3));
    check_pod(
        &[app.clone(), log.clone()],
        &[],
        expect![[r#"
        ignored-stop-signal (Deleted, Quiet): container `log` (1 of 2 unclean): SIGTERM reached PID 1 `app`, which has no handler, so the kernel dropped it; the runtime sent SIGKILL 10.0 s later
          remedy: handle SIGTERM in PID 1 `app`, `exec` the program in place of a shell, or run it under a small init such as tini: it would have saved the 10.0 s of waiting
    "#]],
    );
    check_pod(
        &[app, proxy, log],
        &[],
        expect![[r#"
        ignored-stop-signal (Deleted, Quiet): container `log` (2 of 3 unclean): SIGTERM reached PID 1 `app`, which has no handler, so the kernel dropped it; the runtime sent SIGKILL 10.0 s later; container `proxy`: default-action
          remedy: handle SIGTERM in PID 1 `app`, `exec` the program in place of a shell, or run it under a small init such as tini: it would have saved the 10.0 s of waiting
    "#]],
    );
}

#[test]
fn what_clients_saw_of_any() {
    let mut cut = death().term(0.3).exit(0.5, 0);
    cut.t.traffic.cut = Count {
        count: 2,
        first: at(0.4),
        last: at(0.5),
    };
    let killed = named("log", death().term(0.3).kill(10.3));
    let verdict = pod(&[named("app", cut), killed], Some(&asked()), &[]);
    assert_eq!((verdict.headline, verdict.traffic), ("killed-after-grace", TrafficAxis::Cut));
    let mut unobserved = death().term(0.3).exit(0.5, 0);
    unobserved.t.traffic.observed = false;
    let quiet = named("log", death().term(0.3).exit(0.5, 0));
    let verdict = pod(&[named("app", unobserved), quiet], Some(&asked()), &[]);
    assert_eq!((verdict.headline, verdict.traffic), ("clean-exit", TrafficAxis::Unknown));
}

#[test]
fn the_longest_needed_grace_counts() {
    let slow = named("app", death().term(0.3).exit(9.3, 0));
    let slower = named("log", death().term(0.3).exit(10.1, 0));
    let verdict = pod(&[slow, slower], Some(&asked()), &[]);
    let advice: Vec<_> = verdict.advice.iter().map(|a| (a.kind.name(), a.seconds)).collect();
    assert_eq!(advice, [("grace-longer", Some(15))]);
}

#[test]
fn those_that_were_never_seen() {
    let app = || named("app", death().term(0.3).exit(0.5, 0));
    check_pod(
        &[app()],
        &[("init".into(), reported(137, "ContainerStatusUnknown"))],
        expect![[r#"
            unknown (Deleted, Unknown): container `init` (1 of 2 clean): none of its processes was seen; the API says ContainerStatusUnknown, exit code 137
        "#]],
    );
    check_pod(
        &[app()],
        &[("log".into(), reported(0, "Completed"))],
        expect![[r#"
            unknown (Deleted, Unknown): container `log` (1 of 2 clean): none of its processes was seen; the API says Completed, exit code 0
        "#]],
    );
    check_pod(
        &[app()],
        &[("log".into(), reported(128, "StartError"))],
        expect![[r#"
        runtime-failed (Deleted, Quiet): container `log` (1 of 2 unclean): the runtime did not start it; the API says StartError, exit code 128
          remedy: see the container's waiting or terminated message in the pod's status: the command, a mount, the image or the runtime itself
    "#]],
    );
    check_pod(
        &[],
        &[("log".into(), None)],
        expect![[r#"
            unknown (Deleted, Unknown): container `log`: none of its processes was seen; the API does not say how it ended
        "#]],
    );
    check_pod(
        &[],
        &[],
        expect![[r#"
        unknown (Deleted, Unknown): no container of the pod was seen to end
    "#]],
    );
}

#[test]
fn completed_by_itself() {
    let app = named("job", death().unasked().exit(0.5, 0));
    expect![[r#"
        clean (Completed, Quiet): container `job`: PID 1 `app` ended by itself with code 0
    "#]]
    .assert_eq(&text(&pod(&[app], None, &[])));
}
