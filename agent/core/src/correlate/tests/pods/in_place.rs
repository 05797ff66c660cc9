//! A pod that restarts in place: the container that begins it, its neighbours, and what must not be taken for it.

use std::fmt::Write;

use expect_test::{Expect, expect};

use super::run;
use crate::report::Report;

/// `source` exits with 88, for which all containers restart; `app` and `slow` are its neighbours.
pub(super) const POD: &str = "
    -60 api synced
    pod web source app source.rule=all:88 source.rule=restart:42
    -60 mkdir web:pause
    proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
    -60 exec pause
    -59 mkdir web:source
    proc source in=web:source pid=100 ns=1 start=-59 parent=shim comm=source
    -59 exec source
    -59 mkdir web:app
    proc app in=web:app pid=110 ns=1 start=-59 parent=shim comm=app
    -59 exec app
    -58 pod web source=running app=running
";

/// What the kubelet (1.36) writes: first the exit and the condition, then that it removed both, then the next life of each.
const STATUS: &str = "
    +1.2 pod web source=88:Error restarting=yes
    +1.9 pod web source=waiting:RestartingAllContainers source.last=-:137:RestartingAllContainers source.restarts=1 \
     app=waiting:RestartingAllContainers app.id=- app.last=-:137:RestartingAllContainers app.restarts=1
    +2.4 pod web restarting=no source.id=web:source:2 source=running app.id=web:app:2 app=running";

/// The reports with sentence and remedy.
pub(super) fn check(script: &str, expect: Expect) {
    let mut text = String::new();
    for (_, report) in run(script) {
        let (what, v) = match report {
            Report::Terminated(of) => {
                let name = of.kubernetes.as_deref().and_then(|context| context.container.clone());
                (name.unwrap_or_default(), of.verdict)
            }
            Report::PodTerminated(pod) => (format!("pod {}", pod.facts.pod.name), pod.verdict),
            _ => continue,
        };
        writeln!(
            text,
            "{what} {} {:?} unclean={}: {}",
            v.headline, v.cause, v.unclean, v.sentence
        )
        .expect("a string");
        if let Some(remedy) = &v.remedy {
            writeln!(text, "  fix: {remedy}").expect("a string");
        }
        for advice in &v.advice {
            writeln!(text, "  {}: {}", advice.kind.name(), advice.text).expect("a string");
        }
    }
    expect.assert_eq(&text);
}

fn pod(rest: &str) -> String {
    format!("{POD}{rest}")
}

const SOURCE: &str = "
    +1 exit source 88";
const NEIGHBOUR: &str = "
    +1.3 TERM runc -> app handler
    +1.301 enter app TERM
    +1.308 exit app 0";

#[test]
fn the_container_that_begins_it_is_not_unclean_and_the_others_are_told_why() {
    check(
        &pod(&format!("{SOURCE}{NEIGHBOUR}{STATUS}")),
        expect![[r#"
            source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
            app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 8 ms later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
        "#]],
    );
}

/// The clients of a neighbour are lost all the same.
#[test]
fn a_neighbour_that_refuses_clients_is_unclean() {
    let neighbour = "
        +1.25 tcp web:app accepted 80 5001
        +1.3 TERM runc -> app handler
        +1.301 enter app TERM
        +1.302 tcp web:app closed 80
        +1.304 tcp web:app refused 80 5002
        +1.308 exit app 0";
    check(
        &pod(&format!("{SOURCE}{neighbour}{STATUS}")),
        expect![[r#"
            source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
            app refused-connections RestartInPlace unclean=true: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 8 ms later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM; 1 connection was refused in the 2 ms after the listener closed (10.0.0.2)
              fix: 1 connection was refused while the pod restarted in place, where a preStop sleep does not help: run another replica, and add a readiness probe that fails early
        "#]],
    );
}

/// The kubelet gives two seconds, whatever the pod's grace period is.
#[test]
fn a_slow_neighbour_is_killed_and_no_grace_period_is_advised() {
    let slow = "
        +1.3 TERM runc -> app handler
        +1.301 enter app TERM
        +3.31 KILL runc -> app
        +3.311 exit app KILL";
    let status = STATUS.replace("+1.9 ", "+3.6 ").replace("+2.4 ", "+4 ");
    check(
        &pod(&format!("{SOURCE}{slow}{status}")),
        expect![[r#"
            source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
            app killed-after-grace RestartInPlace unclean=true: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler started, but the shutdown did not finish: the container runtime sent SIGKILL 2.0 s later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that
              fix: the shutdown needs more than the 2.0 s that it got, and no grace period counts when the pod restarts in place: shorten the shutdown, or take `RestartAllContainers` out of the restart rules
        "#]],
    );
}

/// The status that showed the removal was folded into the next: the last state shows it, and the kernel which container began.
#[test]
fn a_status_that_was_skipped_hides_nothing() {
    let last = "
        +2.4 pod web source.id=web:source:2 source=running source.last=-:137:RestartingAllContainers source.restarts=1 \
         app.id=web:app:2 app=running app.last=-:137:RestartingAllContainers app.restarts=1";
    check(
        &pod(&format!("{SOURCE}{NEIGHBOUR}{last}")),
        expect![[r#"
            source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
            app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 8 ms later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
        "#]],
    );
}

/// Only an Event names the reason.
#[test]
fn an_event_shows_it_where_no_status_does() {
    let rest = "
        +1.2 pod web source=88:Error
        +1.8 pod web app=0:Completed
        +2 events web asked
        +2.1 event web app Killing at=+1 killing
        +2.2 events web known as-of=+2.1
        +2.4 pod web source.id=web:source:2 source=running source.restarts=1 app.id=web:app:2 app=running app.restarts=1";
    check(
        &pod(&format!("{SOURCE}{NEIGHBOUR}{rest}")),
        expect![[r#"
            source clean Completed unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list
            app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 8 ms later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that
        "#]],
    );
}

/// A code of a rule for this container alone, and one of no rule.
#[test]
fn a_rule_for_one_container_and_a_code_without_a_rule() {
    let restarted = |code: u8| {
        format!(
            "
        +1 exit source {code}
        +1.2 pod web source=waiting source.last=web:source:{code}:Error source.restarts=1
        +12 pod web source.id=web:source:2 source=running"
        )
    };
    check(
        &pod(&restarted(42)),
        expect![[r#"
        source clean Completed unclean=false: container `source`: PID 1 `source` exited by itself with code 42, a code that the container's restart rules list
    "#]],
    );
    check(
        &pod(&restarted(41)),
        expect![[r#"
        source nonzero-exit Crash unclean=true: container `source`: PID 1 `source` exited by itself with code 41
          fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
    "#]],
    );
    // A rule for all other codes foresees none of them.
    let all_but = POD.replace("source.rule=all:88 source.rule=restart:42", "source.rule=all-but:0");
    check(
        &format!("{all_but}{SOURCE}{NEIGHBOUR}{STATUS}"),
        expect![[r#"
            source nonzero-exit RestartInPlace unclean=true: container `source`: PID 1 `source` exited by itself with code 88; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
            app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 8 ms later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
        "#]],
    );
}

/// A neighbour that crashes in the same moment: nobody stopped that one.
#[test]
fn a_neighbour_that_crashes_by_itself_is_not_ended_by_it() {
    let crash = "
        +1.1 exit app 3";
    check(
        &pod(&format!("{SOURCE}{crash}{STATUS}")),
        expect![[r#"
        source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
        app nonzero-exit Crash unclean=true: container `app`: PID 1 `app` exited by itself with code 3; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 3
          fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
    "#]],
    );
}

/// The kubelet keeps its last state over a later restart, for which it says nothing.
#[test]
fn a_later_restart_is_not_in_place() {
    let later = "
        +2.3 mkdir web:app:2
        proc again in=web:app:2 pid=210 ns=1 start=+2.3 parent=shim comm=app
        +2.3 exec again
        +100 exit again 4
        +100.4 pod web app.id=web:app:3 app=running app.restarts=2";
    check(
        &pod(&format!("{SOURCE}{NEIGHBOUR}{STATUS}{later}")),
        expect![[r#"
            source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
            app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 8 ms later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
            app nonzero-exit Crash unclean=true: container `app`: PID 1 `app` exited by itself with code 4
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

/// And then the pod itself is deleted: one report of the pod, with its last lives alone.
#[test]
fn the_pods_own_report_follows_its_deletion() {
    let rest = "
        +2.3 mkdir web:source:2
        proc source2 in=web:source:2 pid=200 ns=1 start=+2.3 parent=shim comm=source
        +2.3 exec source2
        +2.3 mkdir web:app:2
        proc app2 in=web:app:2 pid=210 ns=1 start=+2.3 parent=shim comm=app
        +2.3 exec app2
        +60.05 pod web deleted=+60:30
        +60.3 TERM runc -> source2 handler
        +60.3 TERM runc -> app2 handler
        +60.31 enter source2 TERM
        +60.31 enter app2 TERM
        +60.4 exit source2 0
        +60.4 exit app2 0
        +60.8 pod web source=0:Completed app=0:Completed
        +61 gone web";
    check(
        &pod(&format!("{SOURCE}{NEIGHBOUR}{STATUS}{rest}")),
        expect![[r#"
            source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
            app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 8 ms later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
            pod web clean Deleted unclean=false: container `source` (2 of 2 clean): the container runtime sent SIGTERM to PID 1 `source`, the handler ran, and the process exited with code 0, 0.1 s later
        "#]],
    );
}

/// Deleted before it is started again: the kubelet's last words are about the life that ended, and nothing ran after it.
#[test]
fn a_pod_that_is_deleted_while_it_restarts() {
    let rest = "
        +2 pod web deleted=+1.95:30
        +2.2 pod web source.id=web:source:2 source=128:StartError
        +2.3 pod web app=137:ContainerStatusUnknown
        +3 gone web";
    let status = STATUS
        .lines()
        .filter(|line| !line.contains("+2.4 "))
        .collect::<Vec<_>>()
        .join("\n");
    check(
        &pod(&format!("{SOURCE}{NEIGHBOUR}{status}{rest}")),
        expect![[r#"
        source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
        app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 8 ms later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that; kubectl shows ContainerStatusUnknown, exit code 137; the kernel: exited with 0 at SIGTERM
        pod web runtime-failed Deleted unclean=true: container `source`: the container runtime did not start the program; the pod's status reports StartError, exit code 128
          fix: read the waiting or terminated message of the container in the pod's status: the command, a mount, the image or the container runtime itself failed
    "#]],
    );
}

/// What the status showed of the next start is in an outage: that it was due is known by the exit.
#[test]
fn a_pod_that_is_deleted_while_it_restarts_in_an_outage_is_not_clean() {
    let hidden = "
        +1.1 api away
        +2.9 api synced
        +3 gone web";
    check(
        &pod(&format!("{SOURCE}{NEIGHBOUR}{hidden}")),
        expect![[r#"
        pod web unknown Deleted unclean=false: container `source` (2 of 3 clean): a restart was due after the observed exit, and no process of the next start was observed; the pod's status reports no exit code
    "#]],
    );
    // Next to it: the deletion came first, and the kubelet starts nothing again.
    let deleted = "
        +0.5 pod web deleted=+0.45:30";
    check(
        &pod(&format!("{deleted}{SOURCE}{NEIGHBOUR}{hidden}")),
        expect![[r#"
        pod web clean Deleted unclean=false: container `source` (2 of 2 clean): PID 1 `source` exited by itself with code 88, a code that the container's restart rules list
    "#]],
    );
}

/// KEP-4438: a sidecar that exits while its pod terminates is started again, and ends a second time.
#[test]
fn a_sidecar_that_ends_twice_in_one_termination() {
    let script = "
        -60 api synced
        pod web app proxy:sidecar
        -60 mkdir web:pause
        proc pause in=web:pause pid=90 ns=1 start=-60 parent=shim comm=pause
        -60 exec pause
        -59 mkdir web:proxy
        proc proxy in=web:proxy pid=100 ns=1 start=-59 parent=shim comm=proxy
        -59 exec proxy
        -59 mkdir web:app
        proc app in=web:app pid=110 ns=1 start=-59 parent=shim comm=app
        -59 exec app
        -58 pod web proxy=running app=running
        +1.05 pod web deleted=+1:30
        +1.3 TERM runc -> app handler
        +1.301 enter app TERM
        +2 exit proxy 1
        +2.3 pod web proxy=waiting proxy.last=web:proxy:1:Error proxy.restarts=1
        +2.9 mkdir web:proxy:2
        proc proxy2 in=web:proxy:2 pid=200 ns=1 start=+2.9 parent=shim comm=proxy
        +2.9 exec proxy2
        +3 pod web proxy.id=web:proxy:2 proxy=running
        +8 exit app 0
        +8.1 TERM runc -> proxy2 handler
        +8.101 enter proxy2 TERM
        +8.2 exit proxy2 0
        +8.6 pod web app=0:Completed proxy=0:Completed
        +9 gone web";
    check(
        script,
        expect![[r#"
            proxy nonzero-exit Crash unclean=true: container `proxy`: PID 1 `proxy` exited by itself with code 1
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
            pod web clean Deleted unclean=false: container `app` (2 of 2 clean): the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 6.7 s later; container `proxy` had exited before with the verdict nonzero-exit, and was started again
        "#]],
    );
}

/// Its first life, and its next one once the kubelet has removed all containers. `first`: when the status shows the first.
fn with_an_init_container(first: &str) -> String {
    let before = "
    -59.5 mkdir web:setup
    proc setup in=web:setup pid=95 ns=1 start=-59.5 parent=shim comm=setup
    -59.5 exec setup
    +0.2 exit setup 0
    -59 mkdir web:source";
    let pod = POD
        .replace("pod web source app source.rule", "pod web setup:init source app source.rule")
        .replace("\n    -59 mkdir web:source", before);
    let status = STATUS
        .replace(
            "+1.9 pod web",
            "+1.9 pod web setup=waiting:RestartingAllContainers setup.last=-:137:RestartingAllContainers setup.restarts=1",
        )
        .replace(
            "+2.4 pod web",
            "+2.1 mkdir web:setup:2
    proc setup2 in=web:setup:2 pid=195 ns=1 start=+2.1 parent=shim comm=setup
    +2.1 exec setup2
    +2.2 exit setup2 0
    +2.4 pod web setup.id=web:setup:2 setup=0:Completed",
        );
    format!("{pod}{first}{SOURCE}{NEIGHBOUR}{status}")
}

/// Each life is reported once, and nobody ended either.
#[test]
fn an_init_container_runs_again() {
    let long_before = with_an_init_container("")
        .replace("+0.2 exit setup 0", "-59.2 exit setup 0")
        .replace("-58 pod web source=running", "-58 pod web setup=0:Completed source=running");
    check(
        &long_before,
        expect![[r#"
            setup clean Completed unclean=false: container `setup`: PID 1 `setup` exited by itself with code 0
            source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
            app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 8 ms later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
            setup clean Completed unclean=false: container `setup`: PID 1 `setup` exited by itself with code 0
        "#]],
    );
    // The restart comes before the report of the first.
    check(
        &with_an_init_container("+0.3 pod web setup=0:Completed"),
        expect![[r#"
        setup clean Completed unclean=false: container `setup`: PID 1 `setup` exited by itself with code 0; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0
        source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
        app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 8 ms later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
        setup clean Completed unclean=false: container `setup`: PID 1 `setup` exited by itself with code 0
    "#]],
    );
    // No status has shown the first life before it was removed.
    check(
        &with_an_init_container(""),
        expect![[r#"
        source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
        app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 8 ms later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
        setup clean Completed unclean=false: container `setup`: PID 1 `setup` exited by itself with code 0
         clean Completed unclean=false: a container of unknown name: PID 1 `setup` exited by itself with code 0
    "#]],
    );
}

/// The kubelet runs no hook where it gives no grace period (1.37: `executePreStopHook` only if it is above 0).
#[test]
fn a_hook_is_not_run() {
    let with_hook = POD.replace("source app source.rule", "source app app.prestop=exec:/bin/hook source.rule");
    check(
        &format!("{with_hook}{SOURCE}{NEIGHBOUR}{STATUS}"),
        expect![[r#"
            source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
            app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 8 ms later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
        "#]],
    );
}

/// `source` begins a restart in place 5 s after the kubelet has stopped `app` for its own liveness probe, which only an Event names.
fn stopped_before(events: &str) -> String {
    let probe = "pod web source app source.rule=all:88 app.liveness=exec:/bin/x";
    let rest = format!(
        "
    +1 TERM runc -> app handler
    +1.001 enter app TERM
    +6 exit source 88
    +6.1 exit app 0
    +6.2 pod web source=88:Error restarting=yes
    +6.9 pod web source=waiting:RestartingAllContainers source.last=-:137:RestartingAllContainers source.restarts=1 \
     app=waiting:RestartingAllContainers app.id=- app.last=-:137:RestartingAllContainers app.restarts=1
    {events}"
    );
    let before = "pod web source app source.rule=all:88 source.rule=restart:42";
    format!("{}{rest}", POD.replace(before, probe))
}

#[test]
fn a_stop_before_the_restart_is_not_blamed_on_it() {
    let event = "+7.2 event web app Killing at=+1 Container app failed liveness probe, will be restarted
    +7.3 events web known as-of=+7.3";
    check(
        &stopped_before(&format!("+7 events web asked\n{event}")),
        expect![[r#"
        source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
        app clean Liveness unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 5.1 s later; the kubelet stopped the container because the liveness probe failed; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
          fix: find out why the livenessProbe failed (`kubectl describe pod` shows the answers), or give the probe more time (timeoutSeconds, failureThreshold)
    "#]],
    );
    // What the Events say is not known.
    check(
        &stopped_before("+7 events web asked\n+7.3 events web throttled as-of=+7.3"),
        expect![[r#"
            source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
            app clean Unknown unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 5.1 s later; the reason for the termination is unknown: the Kubernetes Events of the pod are unknown: throttled; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
        "#]],
    );
}

/// And then the pod is deleted with less than its own grace period: the deletion asked for nothing of a life that ended before, and no
/// value to set is lower than that of the spec.
#[test]
fn a_later_deletion_lends_its_grace_period_to_no_earlier_life() {
    let deleted = "+7 events web asked\n    +7.3 events web throttled as-of=+7.3\n    +7.4 pod web deleted=+7:5";
    let script = stopped_before(deleted).replace("pod web source app", "pod web grace=60 source app");
    check(
        &script,
        expect![[r#"
            source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
            app clean Unknown unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 5.1 s later; the reason for the termination is unknown: the Kubernetes Events of the pod are unknown: throttled; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
        "#]],
    );
}

/// Somebody stops the container by hand, and its handler exits with the code of the rule: what it began cannot be why it was stopped.
#[test]
fn a_stop_by_hand_that_began_it_is_not_explained_by_it() {
    let by_hand = "
    +0.9 TERM runc -> source handler
    +0.901 enter source TERM
    +1 exit source 88";
    let events = "
    +3 events web asked
    +3.1 event web app Killing at=+1 killing
    +3.2 events web known as-of=+3.1";
    check(
        &pod(&format!("{by_hand}{NEIGHBOUR}{STATUS}{events}")),
        expect![[r#"
            source nonzero-exit Unknown unclean=true: container `source`: the container runtime sent SIGTERM to PID 1 `source`, the handler ran, and the process exited with code 88, 0.1 s later; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88 at SIGTERM
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
            app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 8 ms later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
        "#]],
    );
    // A neighbour of which only the status shows that it exited with a code of its rule as well: which of them came first is not known.
    let other = POD.replace("source.rule=restart:42", "source.rule=restart:42 other other.rule=all:77");
    let status = STATUS.replace("+1.2 pod web", "+1.2 pod web other=77:Error");
    check(
        &format!("{other}{by_hand}{NEIGHBOUR}{status}{events}"),
        expect![[r#"
            source nonzero-exit Unknown unclean=true: container `source`: the container runtime sent SIGTERM to PID 1 `source`, the handler ran, and the process exited with code 88, 0.1 s later; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88 at SIGTERM
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
            app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 8 ms later; all containers of the pod restarted in place; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
        "#]],
    );
    // The record of its exit is lost: the code may be one of its rules.
    let lost = by_hand.replace(
        "+1 exit source 88",
        "+1.05 lost sched_process_exit +1 1 within web:source\n+1.06 rmdir web:source",
    );
    let shown = super::sentences(&format!("{other}{lost}{NEIGHBOUR}{status}{events}"));
    assert!(shown.contains("`source`"), "{shown}");
    assert!(!shown.contains("because container `other`"), "{shown}");
    // Next to it: the exit of another container came before the stop, by the kernel's record.
    let both = POD.replace("source.rule=restart:42", "source.rule=restart:42 app.rule=all:77");
    let status = STATUS.replace("+1.2 pod web", "+1.2 pod web app=77:Error");
    check(
        &format!(
            "{both}\n    +0.8 exit app 77{by_hand}{status}{}",
            events.replace("web app", "web source")
        ),
        expect![[r#"
            app clean RestartInPlace unclean=false: container `app`: PID 1 `app` exited by itself with code 77, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 77; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 77
            source nonzero-exit RestartInPlace unclean=true: container `source`: the container runtime sent SIGTERM to PID 1 `source`, the handler ran, and the process exited with code 88, 0.1 s later; all containers of the pod restarted in place, because container `app` exited with code 77, and its restart rules ask for that; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88 at SIGTERM
              fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        "#]],
    );
}

/// The record of its stop signal may be lost: that its own exit began the restart is not known then.
#[test]
fn a_trigger_whose_stop_may_be_hidden_is_not_certain() {
    let lost = "
    +0.95 lost signal_generate +0.9 1 within source";
    check(
        &pod(&format!("{lost}{SOURCE}{STATUS}")),
        expect![[r#"
        source unknown Unknown unclean=false: container `source`: PID 1 `source` exited with code 88, but the reason is unknown: kernel records of sent signals were lost during the termination; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
          fix: raise `kernel.ring_bytes`, unless processes of the container itself send signals, exit or connect thousands of times per second: each container has a budget of records
    "#]],
    );
}

/// The trigger of the next life, and a late status of the first: each life has its own.
#[test]
fn a_later_trigger_is_not_that_of_an_earlier_life() {
    let two = POD.replace("source.rule=all:88", "source.rule=all:88 source.rule=all:77");
    let next = "
    +2.3 mkdir web:source:2
    proc again in=web:source:2 pid=200 ns=1 start=+2.3 parent=shim comm=source
    +2.3 exec again";
    let rest = STATUS.replace("+1.2 pod web source=88:Error restarting=yes", "");
    let late = rest.replace("+1.9 pod", "+9.9 pod").replace("+2.4 pod", "+10.4 pod");
    let script = format!("{two}{SOURCE}{NEIGHBOUR}{next}\n    +9 exit again 77{late}");
    check(
        &script,
        expect![[r#"
        source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
        app clean RestartInPlace unclean=false: container `app`: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 8 ms later; all containers of the pod restarted in place, because container `source` exited with code 88, and its restart rules ask for that; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 0 at SIGTERM
        source clean Completed unclean=false: container `source`: PID 1 `source` exited by itself with code 77, a code that the container's restart rules list
    "#]],
    );
}

/// The watch was away: the first life ended by itself, the second by the restart, and no version showed the second.
#[test]
fn a_life_that_nobody_saw_does_not_lend_its_status_to_an_earlier_one() {
    let away = "
    +0.5 api away gone
    +1 exit app 3
    +1.3 mkdir web:app:2
    proc app2 in=web:app:2 pid=210 ns=1 start=+1.3 parent=shim comm=app
    +1.3 exec app2
    +20 exit source 88
    +20.3 TERM runc -> app2 handler
    +20.301 enter app2 TERM
    +20.4 exit app2 0
    +22 pod web source.id=web:source:2 source=running source.last=-:137:RestartingAllContainers source.restarts=1 app.id=web:app:3 \
     app=running app.last=-:137:RestartingAllContainers app.restarts=2
    +22.1 api synced";
    check(
        &pod(away),
        expect![[r#"
        app nonzero-exit Crash unclean=true: container `app`: PID 1 `app` exited by itself with code 3
          fix: read the log of the process; if the code means success after a stop signal, exit with 0 or with 128 plus the signal number
        source clean RestartInPlace unclean=false: container `source`: PID 1 `source` exited by itself with code 88, a code that the container's restart rules list; all containers of the pod restarted in place, as the restart rules of this container ask for at code 88; kubectl shows RestartingAllContainers, exit code 137; the kernel: exited with 88
         clean-exit Unknown unclean=false: a container of unknown name: the container runtime sent SIGTERM to PID 1 `app`, the handler ran, and the process exited with code 0, 0.1 s later; the reason for the termination is unknown: the Kubernetes API did not answer during the termination: gone; the pod\'s status did not name this container; when deletion was requested, if it was, is unknown; the sockets of the container were not observed
    "#]],
    );
}
