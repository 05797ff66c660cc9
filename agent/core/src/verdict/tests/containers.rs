use expect_test::expect;

use super::*;

fn sidecar() -> Death {
    death().with(|k| {
        k.container = Some("proxy".into());
        k.kind = Some(ContainerKind::Sidecar);
    })
}

#[test]
fn deleted_and_clean() {
    check(
        death().term(0.3).exit(0.5, 0),
        expect![[r#"
        clean (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.2 s later
    "#]],
    );
    check(
        death().term(0.3).exit(0.5, 143),
        expect![[r#"
        clean (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 143 (128 + SIGTERM), 0.2 s later, as many runtimes do after a shutdown
    "#]],
    );
}

#[test]
fn needed_nearly_all_of_its_grace() {
    check(
        death().term(0.3).exit(9.3, 0),
        expect![[r#"
        clean (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 9.0 s later
          grace-longer Some(15): container `app` needed 9.0 s of a grace of 10 s; set terminationGracePeriodSeconds to at least 15
    "#]],
    );
}

#[test]
fn no_handler() {
    check(
        death().dropped_term(0.3).kill(10.3),
        expect![[r#"
        ignored-stop-signal (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, which has no handler, so the kernel dropped it; the runtime sent SIGKILL 10.0 s later
          remedy: handle SIGTERM in PID 1 `app`, `exec` the program in place of a shell, or run it under a small init such as tini: it would have saved the 10.0 s of waiting
    "#]],
    );
}

#[test]
fn killed_after_the_grace() {
    check(
        death().term(0.3).kill(10.3),
        expect![[r#"
        killed-after-grace (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL 10.0 s later
          remedy: it needs more than the 10.0 s it was given: raise terminationGracePeriodSeconds above 10 s, or finish the shutdown sooner
          grace-longer None: container `app` needed more than the grace of 10 s: how much is not known, for it was not let finish
    "#]],
    );
}

#[test]
fn killed_after_the_grace_of_its_liveness_probe() {
    let liveness = |k: &mut PodContext| {
        k.asked = Some(Asked {
            cause: Cause::Liveness,
            evidence: "Event Killing: Container app failed liveness probe, will be restarted".into(),
            detail: None,
        });
        k.grace = Some(Duration::from_secs(5));
    };
    check(
        death().unasked().with(liveness).term(0.0).kill(5.3),
        expect![[r#"
            killed-after-grace (Liveness, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL 5.3 s later; the kubelet stopped it because its liveness probe failed
              remedy: find out why its livenessProbe failed (`kubectl describe pod` has its answers), or give the probe more time: timeoutSeconds, failureThreshold; it needs more than the 5.3 s it was given: raise livenessProbe.terminationGracePeriodSeconds above 5 s, or finish the shutdown sooner
        "#]],
    );
}

#[test]
fn restarted_and_nobody_says_why() {
    check(
        death().unasked().term(0.3).exit(0.5, 0),
        expect![[r#"
        clean (Restart, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.2 s later; the kubelet stopped it, and no evidence names why
    "#]],
    );
    let away = |k: &mut PodContext| k.incomplete = Some("the API did not answer".into());
    check(
        death().unasked().with(away).term(0.3).exit(0.5, 0),
        expect![[r#"
        clean (Unknown, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.2 s later; why it had to end is not known: the API did not answer
    "#]],
    );
}

#[test]
fn evicted() {
    for cause in [
        Cause::EvictedApi,
        Cause::EvictedNodePressure,
        Cause::EvictedTaint,
        Cause::EvictedPreempted,
    ] {
        let asked = Asked {
            cause,
            evidence: "DisruptionTarget".into(),
            detail: None,
        };
        let verdict = death()
            .with(|k| k.asked = Some(asked))
            .term(0.3)
            .exit(0.5, 0)
            .judged()
            .verdict;
        assert_eq!((verdict.cause, verdict.headline), (cause, "clean"));
        assert!(verdict.sentence.contains("its pod was") || verdict.sentence.contains("evicted its pod"));
    }
}

#[test]
fn deleted_by_force() {
    let forced = |k: &mut PodContext| k.request.as_mut().unwrap().grace = Duration::ZERO;
    check(
        death().with(forced).term(0.3).kill(2.4),
        expect![[r#"
        force-killed (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL 2.1 s later; its pod was deleted by force, with a grace of 0
          remedy: stop it with a grace period (not `kill`, `rm --force` or a grace of 0)
    "#]],
    );
    // No grace would have helped this one.
    check(
        death().with(forced).dropped_term(0.3).kill(2.4),
        expect![[r#"
            ignored-stop-signal (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, which has no handler, so the kernel dropped it; the runtime sent SIGKILL 2.1 s later; its pod was deleted by force, with a grace of 0
              remedy: handle SIGTERM in PID 1 `app`, `exec` the program in place of a shell, or run it under a small init such as tini: it would have saved the 2.1 s of waiting
        "#]],
    );
}

#[test]
fn a_second_delete_shortened_the_grace() {
    let shortened = |k: &mut PodContext| {
        k.request.as_mut().unwrap().shortened = vec![(at(2.0), Duration::from_secs(3))];
        k.grace = Some(Duration::from_secs(3));
    };
    check(
        death().with(shortened).term(0.3).kill(5.3),
        expect![[r#"
        killed-after-grace (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL 5.0 s later; a later delete, 2.0 s after the first, shortened the grace of 10 s to 3 s
          remedy: it needs more than the 5.0 s it was left: do not shorten the grace by a second delete
    "#]],
    );
    let not_followed = |k: &mut PodContext| {
        k.request.as_mut().unwrap().shortened = vec![(at(2.0), Duration::from_secs(3))];
    };
    check(
        death().with(not_followed).term(0.3).kill(10.4),
        expect![[r#"
        killed-after-grace (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL 10.1 s later; a later delete, 2.0 s after the first, shortened the grace of 10 s to 3 s, and the kill came no sooner
          remedy: it needs more than the 10.1 s it was given: raise terminationGracePeriodSeconds above 10 s, or finish the shutdown sooner
    "#]],
    );
}

#[test]
fn a_sidecar_starved() {
    check(
        sidecar().with(|k| k.mains_ended = Some(at(10.9))).term(10.3).kill(12.3),
        expect![[r#"
            sidecar-starved (Deleted, Quiet): container `proxy`: SIGTERM reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL 2.0 s later; as a sidecar it was asked only 10.3 s after the deletion, when the main containers had used up the grace of 10 s
              remedy: the pod needs more than 12.3 s: shorten the main containers' shutdown, or set terminationGracePeriodSeconds to at least 15
              grace-longer None: container `proxy` needed more than the grace of 10 s: how much is not known, for it was not let finish
        "#]],
    );
    // The main containers ended at once: it had the grace, and its own hook took it.
    let killed = ExitStatus::Signaled {
        signal: Signal::KILL,
        core_dumped: false,
    };
    check(
        sidecar()
            .with(|k| k.mains_ended = Some(at(0.5)))
            .hook(0.2, 10.2, killed)
            .term(10.3)
            .kill(12.3),
        expect![[r#"
            prestop-overran (Deleted, Quiet): container `proxy`: SIGTERM reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL 2.0 s later; its preStop `/drain.sh` was not done when the grace of 10 s was over and left it 2.0 s
              remedy: make the preStop `/drain.sh` shorter, or set terminationGracePeriodSeconds to at least 15 (the hook and the stop took more than 12.0 s)
              grace-longer None: container `proxy` needed more than the grace of 10 s: how much is not known, for it was not let finish
        "#]],
    );
    check(
        sidecar().with(|k| k.mains_ended = Some(at(0.5))).term(0.6).exit(0.7, 0),
        expect![[r#"
            clean (Deleted, Quiet): container `proxy`: SIGTERM reached PID 1 `app`, its handler ran, and it exited with code 0, 0.1 s later
        "#]],
    );
}

#[test]
fn still_running_long_after_its_grace() {
    check(
        death().term(0.3).open(60.0),
        expect![[r#"
        stuck (Deleted, Quiet): container `app`: PID 1 `app` still runs 60 s after it was to end (grace 10 s)
          remedy: look for what holds it: a process in uninterruptible sleep (a disk or network mount that hangs), or a kubelet or runtime that is not running
    "#]],
    );
    // Not long enough to say.
    check(
        death().term(0.3).open(15.0),
        expect![[r#"
            unknown (Deleted, Quiet): container `app`: how PID 1 `app` ended is not known: the observation ended before it did, after SIGTERM at its beginning
              remedy: let it observe until the process has ended
        "#]],
    );
    let mut lost = death().term(0.3).open(60.0);
    lost.t.missing.lost = vec![Kind::ProcessExit];
    check(
        lost,
        expect![[r#"
            unknown (Deleted, Quiet): container `app`: how PID 1 `app` ended is not known: records were lost while it went on (sched_process_exit)
              remedy: see what is missing: a probe that this kernel cannot have, a ring buffer too small, an agent started late
        "#]],
    );
}

#[test]
fn never_started() {
    let reported = |k: &mut PodContext| {
        k.reported = Some(Reported {
            exit_code: 128,
            reason: Some("StartError".into()),
        });
    };
    let mut no_process = death().unasked().with(reported).open(1.0);
    no_process.t.main = None;
    no_process.t.open = Open::CgroupRemoved;
    check(
        no_process,
        expect![[r#"
        runtime-failed (Unknown, Quiet): container `app`: the runtime did not start its program (StartError, exit code 128)
          remedy: see the container's waiting or terminated message in the pod's status: the command, a mount, the image or the runtime itself
    "#]],
    );
    // The runtime's own init ran out of the container's memory: the better reason.
    check(
        death().unasked().with(reported).oom(0.1),
        expect![[r#"
        oom-killed (Oom, Quiet): container `app`: the kernel killed PID 1 `app` because memory ran out
          remedy: raise the memory limit, or make the process stay below it (heap size, caches, concurrency)
    "#]],
    );
}

#[test]
fn expected_exit_codes() {
    let expected = |k: &mut PodContext| k.options.expected_exit_codes = vec![3, 143, 137];
    check(
        death().with(expected).term(0.3).exit(0.5, 3),
        expect![[r#"
        clean (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler ran, and it ended with code 3, 0.2 s later, as expected
    "#]],
    );
    check(
        death().unasked().with(expected).exit(0.5, 3),
        expect![[r#"
        clean (Completed, Quiet): container `app`: PID 1 `app` ended by itself with code 3, as expected
    "#]],
    );
    check(
        death().with(expected).fatal_term(0.3),
        expect![[r#"
        clean (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, and it ended with SIGTERM, less than 1 ms later, as expected
    "#]],
    );
    // A SIGKILL is nobody's way to end.
    check(
        death().with(expected).term(0.3).kill(10.3),
        expect![[r#"
        killed-after-grace (Deleted, Quiet): container `app`: SIGTERM reached PID 1 `app`, its handler was entered, but it was not done: the runtime sent SIGKILL 10.0 s later
          remedy: it needs more than the 10.0 s it was given: raise terminationGracePeriodSeconds above 10 s, or finish the shutdown sooner
          grace-longer None: container `app` needed more than the grace of 10 s: how much is not known, for it was not let finish
    "#]],
    );
}

#[test]
fn of_their_own_accord() {
    check(
        death().unasked().exit(0.5, 0),
        expect![[r#"
        clean (Completed, Quiet): container `app`: PID 1 `app` ended by itself with code 0
    "#]],
    );
    check(
        death().unasked().exit(0.5, 3),
        expect![[r#"
        nonzero-exit (Crash, Quiet): container `app`: PID 1 `app` ended by itself with code 3
          remedy: look at its log; if the code is meant as a success after a stop signal, exit with 0 or 128 plus the signal
    "#]],
    );
    let mut young = death().unasked().exit(0.5, 3);
    young.t.main.as_mut().unwrap().start = at(0.1);
    check(
        young,
        expect![[r#"
        nonzero-exit (Crash, Quiet): container `app`: PID 1 `app` ended by itself with code 3, 0.4 s after its start
          remedy: look at its log; if the code is meant as a success after a stop signal, exit with 0 or 128 plus the signal
    "#]],
    );
}

#[test]
fn killed_by_another_although_asked() {
    check(
        death().term(0.3).kill_by(1.3, bash()),
        expect![[r#"
        killed-by-other (Deleted, Quiet): container `app`: `bash` (pid 812, on the host, child of `sshd`) sent SIGKILL to PID 1 `app`, 1.0 s into the grace after SIGTERM: neither its runtime nor itself
          remedy: find out why `bash` (pid 812, on the host, child of `sshd`) does that; stop it by the runtime's own command
    "#]],
    );
    check(
        death().unasked().kill_by(1.3, bash()),
        expect![[r#"
        killed-by-other (External, Quiet): container `app`: `bash` (pid 812, on the host, child of `sshd`) sent SIGKILL to PID 1 `app`: neither its runtime nor itself
          remedy: find out why `bash` (pid 812, on the host, child of `sshd`) does that; stop it by the runtime's own command
    "#]],
    );
    // The request came after: nobody had asked yet.
    let later = |k: &mut PodContext| {
        let request = k.request.as_mut().unwrap();
        (request.earliest, request.latest) = (at(2.0), at(3.0));
    };
    check(
        death().with(later).kill_by(1.3, bash()),
        expect![[r#"
        killed-by-other (External, Quiet): container `app`: `bash` (pid 812, on the host, child of `sshd`) sent SIGKILL to PID 1 `app`: neither its runtime nor itself
          remedy: find out why `bash` (pid 812, on the host, child of `sshd`) does that; stop it by the runtime's own command
    "#]],
    );
}

#[test]
fn a_shared_pid_namespace_takes_pid_1s_protection() {
    let mut shared = death().with(|k| k.shares_pid_namespace = true).fatal_term(0.3);
    shared.t.main.as_mut().unwrap().is_ns_init = false;
    check(
        shared,
        expect![[r#"
        default-action (Deleted, Quiet): container `app`: SIGTERM itself ended `app` (pid 4021): it has no handler, so any work in flight was dropped; its pod shares a pid namespace, so it is no PID 1 and the signal's default holds
          remedy: install a handler that finishes the work in flight and then exits with 0
    "#]],
    );
}

#[test]
fn the_kernel_is_believed_before_the_api() {
    let reported = |code, reason: &str| {
        let reason = Some(reason.to_owned());
        death().term(0.3).exit(0.5, 0).with(|k| {
            k.reported = Some(Reported { exit_code: code, reason });
        })
    };
    let line = |death: Death| death.judged().verdict.evidence.last().unwrap().text.clone();
    expect!["the API says ContainerStatusUnknown, exit code 137; the kernel's 0 counts"]
        .assert_eq(&line(reported(137, "ContainerStatusUnknown")));
    expect!["the API says OOMKilled, exit code 0; no OOM kill was seen here"].assert_eq(&line(reported(0, "OOMKilled")));
    expect!["the API says Completed, exit code 0"].assert_eq(&line(reported(0, "Completed")));
}
