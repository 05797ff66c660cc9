//! What came first: the exit that began a restart of the pod in place, or the stop of a neighbour.

use expect_test::expect;

use super::in_place::{POD, check};

/// `app` has a liveness probe, and `source` and `other` have the rule; the kernel shows `source` and `app`.
fn pod(rest: &str) -> String {
    let rules = "pod web source app other source.rule=all:88 other.rule=all:77 app.liveness=exec:/bin/x";
    let pod = POD
        .replace("pod web source app source.rule=all:88 source.rule=restart:42", rules)
        .replace("source=running app=running", "source=running app=running other=running");
    format!("{pod}{rest}")
}

const REMOVED: &str = "
    +6.9 pod web source=waiting:RestartingAllContainers source.id=- source.last=-:137:RestartingAllContainers source.restarts=1 \
     app=waiting:RestartingAllContainers app.id=- app.last=-:137:RestartingAllContainers app.restarts=1";

/// The Event of the probe comes after the status, and is waited for.
#[test]
fn a_lost_stop_signal_does_not_close_the_report() {
    let script = pod(&format!(
        "
    +5 lost signal_generate +4 5 within web:app
    +6 exit source 88
    +6.1 exit app 143
    +6.2 pod web source=88:Error restarting=yes{REMOVED}
    +7 events web asked
    +7.2 event web app Killing at=+4.5 Container app failed liveness probe, will be restarted
    +7.3 events web known as-of=+7.3"
    ));
    check(
        &script,
        expect![[r#"
            source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
            app unknown Liveness unclean=false: container `app`: PID 1 `app` exited with code 143, but the reason is unknown: kernel records of sent signals were lost during the termination; the kubelet stopped the container because the liveness probe failed; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 143
              fix: find out why the livenessProbe failed (`kubectl describe pod` shows the answers), or give the probe more time (timeoutSeconds, failureThreshold); raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
        "#]],
    );
}

/// `other` is not observed, and its status came with that of `source`.
#[test]
fn a_container_that_began_it_names_itself() {
    let script = pod(&format!(
        "
    +6 exit source 88
    +6.1 TERM runc -> app handler
    +6.101 enter app TERM
    +6.11 exit app 0
    +6.2 pod web source=88:Error other=77:Error restarting=yes{REMOVED}
    +7 events web asked
    +7.3 events web known as-of=+7.3"
    ));
    check(
        &script,
        expect![[r#"
        source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
        app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 10 ms later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
    "#]],
    );
}

/// The kernel shows an exit after the stop, and a status one at a time that is not known as well.
#[test]
fn an_exit_after_the_stop_did_not_begin_it() {
    let script = pod(&format!(
        "
    +1 TERM runc -> app handler
    +1.001 enter app TERM
    +6 exit source 88
    +6.1 exit app 0
    +6.2 pod web source=88:Error other=77:Error restarting=yes{REMOVED}
    +7 events web asked
    +7.3 events web known as-of=+7.3"
    ));
    check(
        &script,
        expect![[r#"
        source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
        app clean Unknown unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 5.1 s later; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
    "#]],
    );
}

/// Only a status shows what began it: without the Events, or before they are known, nothing shows that the kubelet did not stop `app`
/// for another reason.
#[test]
fn events_that_nobody_asked_for_are_not_known() {
    let script = |events: &str| {
        pod(&format!(
            "
    +6.05 TERM runc -> app handler
    +6.051 enter app TERM
    +6.1 exit app 0
    +6.2 pod web other=77:Error restarting=yes
    +6.9 pod web app=waiting:RestartingAllContainers app.id=- app.last=-:137:RestartingAllContainers app.restarts=1
    {events}"
        ))
    };
    check(
        &script(""),
        expect![[r#"
        app clean Unknown unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 50 ms later; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
    "#]],
    );
    check(
        &script("+7 events web asked\n+7.3 events web known as-of=+7.3"),
        expect![[r#"
            app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 50 ms later; all containers of the pod restarted in place, because container `other` exited with code 77, and its restart rules ask for that; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
        "#]],
    );
}
