use expect_test::expect;

use super::*;

fn sidecar() -> Builder {
    termination().with(|k| {
        k.container = Some("proxy".into());
        k.kind = Some(ContainerKind::Sidecar);
    })
}

#[test]
fn deleted_and_clean() {
    check(
        termination().term(0.3).exit(0.5, 0),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later
        "#]],
    );
    check(
        termination().term(0.3).exit(0.5, 143),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 143, 0.2 s later (128 + SIGTERM: the usual code of many language runtimes after a shutdown)
        "#]],
    );
}

#[test]
fn needed_nearly_all_of_its_grace() {
    check(
        termination().term(0.3).exit(9.3, 0),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 9.0 s later
              grace-longer Some(15): container `app` needed 9.0 s of a grace period of 10 s; set terminationGracePeriodSeconds to at least 15
        "#]],
    );
}

#[test]
fn no_handler() {
    check(
        termination().dropped_term(0.3).kill(10.3),
        expect![[r#"
            ignored-stop-signal (Deleted, Quiet): container `app`: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 10.0 s later
              remedy: handle SIGTERM in PID 1 `app`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 10.0 s
        "#]],
    );
}

#[test]
fn killed_after_the_grace() {
    check(
        termination().term(0.3).kill(10.3),
        expect![[r#"
            killed-after-grace (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              remedy: the shutdown needs more than the 10.0 s that it got: raise terminationGracePeriodSeconds above 10 s, or shorten the shutdown
              grace-longer None: container `app` needed more than the grace period of 10 s; how much more is unknown, because SIGKILL ended the shutdown
        "#]],
    );
}

#[test]
fn killed_after_the_grace_of_its_liveness_probe() {
    let liveness = |k: &mut PodContext| {
        k.stop_reason = Some(StopReason {
            cause: Cause::Liveness,
            evidence: "Event Killing: Container app failed liveness probe, will be restarted".into(),
            detail: None,
        });
        k.grace = Some(Duration::from_secs(5));
    };
    check(
        termination().unasked().with(liveness).term(0.0).kill(5.3),
        expect![[r#"
            killed-after-grace (Liveness, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 5.3 s later; the kubelet stopped the container because the liveness probe failed
              remedy: find out why the livenessProbe failed (`kubectl describe pod` shows the answers), or give the probe more time (timeoutSeconds, failureThreshold); the shutdown needs more than the 5.3 s that it got: raise livenessProbe.terminationGracePeriodSeconds above 5 s, or shorten the shutdown
        "#]],
    );
}

#[test]
fn restarted_without_a_known_reason() {
    check(
        termination().unasked().term(0.3).exit(0.5, 0),
        expect![[r#"
            clean (Restart, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later; the kubelet stopped the container, and no evidence shows why
        "#]],
    );
    let away = |k: &mut PodContext| k.incomplete = Some("the API did not answer".into());
    check(
        termination().unasked().with(away).term(0.3).exit(0.5, 0),
        expect![[r#"
            clean (Unknown, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.2 s later; the reason for the termination is unknown: the API did not answer
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
        let reason = StopReason {
            cause,
            evidence: "DisruptionTarget".into(),
            detail: None,
        };
        let verdict = termination()
            .with(|k| k.stop_reason = Some(reason))
            .term(0.3)
            .exit(0.5, 0)
            .judged()
            .verdict;
        assert_eq!((verdict.cause, verdict.headline), (cause, "clean"));
        assert!(verdict.sentence.contains("the pod was") || verdict.sentence.contains("evicted the pod"));
    }
}

#[test]
fn deleted_by_force() {
    let forced = |k: &mut PodContext| k.request.as_mut().unwrap().grace = Duration::ZERO;
    check(
        termination().with(forced).term(0.3).kill(2.4),
        expect![[r#"
            force-killed (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.1 s later; the pod was force-deleted (grace period 0, 10 s in its spec)
              remedy: the pod's own grace period of 10 s was not given: do not pass `--force` or `--grace-period` to `kubectl delete`, and do not set `gracePeriodSeconds` in the controller that deletes the pod (the API server's audit log names this controller): then the pod's 10 s apply
        "#]],
    );
    // No grace would have helped this one.
    check(
        termination().with(forced).dropped_term(0.3).kill(2.4),
        expect![[r#"
            ignored-stop-signal (Deleted, Quiet): container `app`: `app` is PID 1 and has no SIGTERM handler, so the kernel discarded the signal; the container runtime sent SIGKILL 2.1 s later; the pod was force-deleted (grace period 0, 10 s in its spec)
              remedy: handle SIGTERM in PID 1 `app`, use `exec` in the shell that starts the program, or run a small init such as tini; this avoids the wait of 2.1 s
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
        termination().with(shortened).term(0.3).kill(5.3),
        expect![[r#"
            killed-after-grace (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 5.0 s later; a later delete request, 2.0 s after the first, shortened the grace period from 10 s to 3 s
              remedy: the shutdown needs more than the 5.0 s that it got: do not shorten the grace period with a second delete
        "#]],
    );
    let not_followed = |k: &mut PodContext| {
        k.request.as_mut().unwrap().shortened = vec![(at(2.0), Duration::from_secs(3))];
    };
    check(
        termination().with(not_followed).term(0.3).kill(10.4),
        expect![[r#"
            killed-after-grace (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 10.1 s later; a later delete request, 2.0 s after the first, shortened the grace period from 10 s to 3 s, but SIGKILL did not come earlier
              remedy: the shutdown needs more than the 10.1 s that it got: raise terminationGracePeriodSeconds above 10 s, or shorten the shutdown
        "#]],
    );
}

#[test]
fn a_sidecar_starved() {
    check(
        sidecar()
            .with(|k| k.mains = Some(Mains::ended(at(10.9))))
            .term(10.3)
            .kill(12.3),
        expect![[r#"
            sidecar-starved (Deleted, Quiet): container `proxy`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.0 s later; this sidecar got the stop signal only 10.3 s after the deletion request, when the main containers had used up the grace period of 10 s
              remedy: the pod needs more than 12.3 s: shorten the main containers' shutdown, or set terminationGracePeriodSeconds to at least 15
              grace-longer None: container `proxy` needed more than the grace period of 10 s; how much more is unknown, because SIGKILL ended the shutdown
        "#]],
    );
    // The main containers ended at once: it had the grace, and its own hook took it.
    let killed = ExitStatus::Signaled {
        signal: Signal::KILL,
        core_dumped: false,
    };
    check(
        sidecar()
            .with(|k| k.mains = Some(Mains::ended(at(0.5))))
            .hook(0.2, 10.2, killed)
            .term(10.3)
            .kill(12.3),
        expect![[r#"
            prestop-overran (Deleted, Quiet): container `proxy`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.0 s later; the preStop hook `/drain.sh` was still running when the grace period of 10 s ended, which left 2.0 s for the shutdown
              remedy: shorten the preStop hook `/drain.sh`, or set terminationGracePeriodSeconds to at least 15 (the hook and the shutdown need more than 12.0 s)
              grace-longer None: container `proxy` needed more than the grace period of 10 s; how much more is unknown, because SIGKILL ended the shutdown
        "#]],
    );
    check(
        sidecar()
            .with(|k| k.mains = Some(Mains::ended(at(0.5))))
            .term(0.6)
            .exit(0.7, 0),
        expect![[r#"
            clean (Deleted, Quiet): container `proxy`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.1 s later
        "#]],
    );
}

#[test]
fn still_running_long_after_its_grace() {
    check(
        termination().term(0.3).open(60.0),
        expect![[r#"
            stuck (Deleted, Quiet): container `app`: PID 1 `app` is still running 60 s after deletion was requested (grace period 10 s)
              remedy: find what holds the process: uninterruptible sleep (a disk or network mount that hangs), or a kubelet or container runtime that is not running
        "#]],
    );
    // Not long enough to decide.
    check(
        termination().term(0.3).open(15.0),
        expect![[r#"
            unknown (Deleted, Quiet): container `app`: how PID 1 `app` terminated is unknown: epitaph stopped while this container was still shutting down; SIGTERM had been sent before
              remedy: keep epitaph running until the process has exited
        "#]],
    );
    let mut lost = termination().term(0.3).open(60.0);
    let hole = Hole::of(Origin::Lost, Kind::ProcessExit, Boot(0), Boot(1), 1);
    lost.t.missing.add(Claim::Main, [hole]);
    check(
        lost,
        expect![[r#"
            unknown (Deleted, Quiet): container `app`: how PID 1 `app` terminated is unknown: kernel records of process exits were lost during the termination
              remedy: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
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
    let mut no_process = termination().unasked().with(reported).open(1.0);
    no_process.t.main = None;
    no_process.t.open = Open::CgroupRemoved;
    check(
        no_process,
        expect![[r#"
            runtime-failed (Unknown, Quiet): container `app`: the container runtime did not start the program (StartError, exit code 128)
              remedy: read the waiting or terminated message of the container in the pod's status: the command, a mount, the image or the container runtime itself failed
        "#]],
    );
    // The runtime's own init ran out of the container's memory: the better reason.
    check(
        termination().unasked().with(reported).oom(0.1),
        expect![[r#"
            oom-killed (Oom, Quiet): container `app`: the OOM killer killed PID 1 `app` because memory ran out
              remedy: raise the memory limit, or reduce the memory that the process needs (heap size, caches, concurrency)
        "#]],
    );
}

#[test]
fn expected_exit_codes() {
    let expected = |k: &mut PodContext| k.options.expected_exit_codes = vec![3, 143, 137];
    check(
        termination().with(expected).term(0.3).exit(0.5, 3),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 3 (declared as expected by an annotation), 0.2 s later
        "#]],
    );
    check(
        termination().unasked().with(expected).exit(0.5, 3),
        expect![[r#"
            clean (Completed, Quiet): container `app`: PID 1 `app` exited by itself with code 3 (declared as expected by an annotation)
        "#]],
    );
    check(
        termination().with(expected).fatal_term(0.3),
        expect![[r#"
            clean (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, and the process was terminated by SIGTERM (declared as expected by an annotation), less than 1 ms later
        "#]],
    );
    // SIGKILL is never a declared exit.
    check(
        termination().with(expected).term(0.3).kill(10.3),
        expect![[r#"
            killed-after-grace (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 10.0 s later
              remedy: the shutdown needs more than the 10.0 s that it got: raise terminationGracePeriodSeconds above 10 s, or shorten the shutdown
              grace-longer None: container `app` needed more than the grace period of 10 s; how much more is unknown, because SIGKILL ended the shutdown
        "#]],
    );
}

#[test]
fn of_their_own_accord() {
    check(
        termination().unasked().exit(0.5, 0),
        expect![[r#"
            clean (Completed, Quiet): container `app`: PID 1 `app` exited by itself with code 0
        "#]],
    );
    check(
        termination().unasked().exit(0.5, 3),
        expect![[r#"
            nonzero-exit (Crash, Quiet): container `app`: PID 1 `app` exited by itself with code 3
              remedy: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
    let mut young = termination().unasked().exit(0.5, 3);
    young.t.main.as_mut().unwrap().start = at(0.1);
    check(
        young,
        expect![[r#"
            nonzero-exit (Crash, Quiet): container `app`: PID 1 `app` exited by itself with code 3, 0.4 s after the start
              remedy: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

#[test]
fn killed_by_another_although_asked() {
    check(
        termination().term(0.3).kill_by(1.3, bash()),
        expect![[r#"
            killed-by-other (Deleted, Quiet): container `app`: `bash` (pid 812, on the host, child of `sshd`) sent SIGKILL to PID 1 `app`, 1.0 s after SIGTERM, during the grace period; the sender is neither the runtime nor the process itself
              remedy: find out why `bash` (pid 812, on the host, child of `sshd`) sent SIGKILL, and use the stop command of the container runtime instead
        "#]],
    );
    check(
        termination().unasked().kill_by(1.3, bash()),
        expect![[r#"
            killed-by-other (External, Quiet): container `app`: `bash` (pid 812, on the host, child of `sshd`) sent SIGKILL to PID 1 `app`; the sender is neither the runtime nor the process itself
              remedy: find out why `bash` (pid 812, on the host, child of `sshd`) sent SIGKILL, and use the stop command of the container runtime instead
        "#]],
    );
    // The deletion request came later.
    let later = |k: &mut PodContext| {
        let request = k.request.as_mut().unwrap();
        (request.earliest, request.latest) = (at(2.0), at(3.0));
    };
    check(
        termination().with(later).kill_by(1.3, bash()),
        expect![[r#"
            killed-by-other (External, Quiet): container `app`: `bash` (pid 812, on the host, child of `sshd`) sent SIGKILL to PID 1 `app`; the sender is neither the runtime nor the process itself
              remedy: find out why `bash` (pid 812, on the host, child of `sshd`) sent SIGKILL, and use the stop command of the container runtime instead
        "#]],
    );
}

#[test]
fn a_shared_pid_namespace_takes_pid_1s_protection() {
    let mut shared = termination().with(|k| k.shares_pid_namespace = true).fatal_term(0.3);
    shared.t.main.as_mut().unwrap().is_ns_init = false;
    check(
        shared,
        expect![[r#"
            default-action (Deleted, Quiet): container `app`: SIGTERM terminated `app` (pid 4021): the process has no SIGTERM handler, so any work in flight was lost; the pod shares a pid namespace, so the main process is not PID 1 and the default action of the signal applies
              remedy: install a handler that finishes the work in flight and then exits with 0
        "#]],
    );
}

#[test]
fn the_kernel_is_believed_before_the_api() {
    let reported = |code, reason: &str| {
        let reason = Some(reason.to_owned());
        termination().term(0.3).exit(0.5, 0).with(|k| {
            k.reported = Some(Reported { exit_code: code, reason });
        })
    };
    let line = |ended: Builder| ended.judged().verdict.evidence.last().unwrap().text.clone();
    expect!["the pod's status reports ContainerStatusUnknown, exit code 137; the kernel reports 0, which takes precedence"]
        .assert_eq(&line(reported(137, "ContainerStatusUnknown")));
    expect!["the pod's status reports OOMKilled, exit code 0; no OOM kill during this termination was observed"]
        .assert_eq(&line(reported(0, "OOMKilled")));
    expect!["the pod's status reports Completed, exit code 0"].assert_eq(&line(reported(0, "Completed")));
}

/// SIGHUP mostly means "reload", unless somebody chose it for this program. An image's own choice is advised to be declared still.
#[test]
fn a_stop_signal_by_the_api() {
    let hup = Signal::named("SIGHUP").unwrap();
    let stopped = |own: Option<StopSignal>, sent: Signal| {
        let mut killed = termination().with(|k| k.stop_signal = own).term(0.3).kill(10.4);
        killed.t.stop.as_mut().unwrap().signal = sent;
        killed
    };
    let by = |in_spec: bool| Some(StopSignal { signal: hup, in_spec });
    check(
        stopped(None, hup),
        expect![[r#"
        killed-after-grace (Deleted, Quiet): container `app`: the container runtime sent SIGHUP to PID 1 `app`, the handler started, but the process did not exit: the container runtime sent SIGKILL 10.1 s later
          remedy: SIGHUP may not stop this program (some reload at SIGHUP): declare the signal that does (`STOPSIGNAL` in the image, `lifecycle.stopSignal` of the pod's container); if the program does shut down at SIGHUP: the shutdown needs more than the 10.1 s that it got: raise terminationGracePeriodSeconds above 10 s, or shorten the shutdown
          grace-longer None: container `app` needed more than the grace period of 10 s; how much more is unknown, because SIGKILL ended the shutdown
    "#]],
    );
    check(
        stopped(by(false), hup),
        expect![[r#"
        killed-after-grace (Deleted, Quiet): container `app`: the container runtime sent SIGHUP to PID 1 `app`, the handler started, but the process did not exit: the container runtime sent SIGKILL 10.1 s later
          remedy: SIGHUP may not stop this program (some reload at SIGHUP): declare the signal that does (`STOPSIGNAL` in the image, `lifecycle.stopSignal` of the pod's container); if the program does shut down at SIGHUP: the shutdown needs more than the 10.1 s that it got: raise terminationGracePeriodSeconds above 10 s, or shorten the shutdown
          grace-longer None: container `app` needed more than the grace period of 10 s; how much more is unknown, because SIGKILL ended the shutdown
    "#]],
    );
    check(
        stopped(by(true), hup),
        expect![[r#"
        killed-after-grace (Deleted, Quiet): container `app`: the container runtime sent SIGHUP to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 10.1 s later
          remedy: the shutdown needs more than the 10.1 s that it got: raise terminationGracePeriodSeconds above 10 s, or shorten the shutdown
          grace-longer None: container `app` needed more than the grace period of 10 s; how much more is unknown, because SIGKILL ended the shutdown
    "#]],
    );
    check(
        stopped(by(true), Signal::TERM),
        expect![[r#"
        killed-after-grace (Deleted, Quiet): container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 10.1 s later; the container's own stop signal is SIGHUP by `lifecycle.stopSignal`, and SIGTERM was sent
          remedy: the shutdown needs more than the 10.1 s that it got: raise terminationGracePeriodSeconds above 10 s, or shorten the shutdown
          grace-longer None: container `app` needed more than the grace period of 10 s; how much more is unknown, because SIGKILL ended the shutdown
    "#]],
    );
}
